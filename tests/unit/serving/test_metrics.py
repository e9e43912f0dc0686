"""What a scrape reads: the text format, its names, and figures that are true."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from graphbus_core import GraphBusNode, connect, subscribe
from graphbus_core.hosting.metrics import CONTENT_TYPE, HandlerMetrics, Histogram, render_metrics
from graphbus_core.middleware import Handling
from graphbus_core.model.deliveries import Counts, Statistics
from tests.fakes.http_site import TOKEN, SiteClient, build_site, served
from tests.fakes.prometheus_page import read_page
from tests.patience import PATIENCE_S


def families(page: bytes) -> dict[str, dict[str, float]]:
    """Read a page by all rules of the format: family -> sample as it is written -> value."""
    found: dict[str, dict[str, float]] = {name: {} for name in read_page(page)}
    name = ""
    for line in page.decode().splitlines():
        if line.startswith("#"):
            name = line.split()[2]
        else:
            key, _, value = line.rpartition(" ")
            found[name][key] = float(value)
    return found


def statistics(**subscriptions: Counts) -> Statistics:
    named = {name.replace("__", " <- /"): counts for name, counts in subscriptions.items()}
    return Statistics(published=3, queued=1, delivered=5, failed=2, dead_letters=2, subscriptions=named)


def test_counters_of_the_bus_have_the_names_of_the_conventions() -> None:
    page = families(render_metrics(statistics(Till_on__Order=Counts(5, 2)), HandlerMetrics()))
    assert page["messaging_client_sent_messages_total"] == {
        'messaging_client_sent_messages_total{messaging_system="graphbus"}': 3
    }
    labels = '{messaging_system="graphbus",messaging_destination_name="/Order",graphbus_handler="Till_on"}'
    assert page["messaging_client_consumed_messages_total"] == {f"messaging_client_consumed_messages_total{labels}": 5}
    assert page["graphbus_failed_messages_total"] == {f"graphbus_failed_messages_total{labels}": 2}
    assert page["graphbus_dead_letters_total"] == {"graphbus_dead_letters_total": 2}
    assert page["graphbus_queued_messages"] == {"graphbus_queued_messages": 1}


@pytest.mark.parametrize(
    ("value", "shown"), [('a"b', r"a\"b"), ("a\\b", r"a\\b"), ("a\nb", r"a\nb"), ('\\"\n', r"\\\"\n"), ("ä{}", "ä{}")]
)
def test_label_values_are_escaped(value: str, shown: str) -> None:
    histogram = Histogram("x_seconds", "X.")
    histogram.record(1, name=value)
    lines = list(histogram.lines())
    assert f'x_seconds_sum{{name="{shown}"}} 1' in lines
    [family] = read_page("".join(f"{line}\n" for line in lines).encode()).values()
    assert family.samples["x_seconds_sum", (("name", value),)] == 1


@pytest.mark.parametrize(
    "page",
    [
        "x 1\n",
        "# HELP x X.\n# TYPE x gauge\nx 1\nx 2\n",
        "# HELP x X.\n# TYPE x counter\nx 1\n",
        "# HELP x X.\n# TYPE x gauge\ny 1\n",
        '# HELP x X.\n# TYPE x gauge\nx{a="b} 1\n',
        '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1"} 2\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 1\n',
        '# HELP x X.\n# TYPE x histogram\nx_bucket{le="1"} 1\nx_sum 1\nx_count 1\n',
    ],
)
def test_the_reader_of_these_tests_refuses_a_page_that_breaks_a_rule(page: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        read_page(page.encode())


def test_the_buckets_of_a_histogram_add_up() -> None:
    histogram = Histogram("x_seconds", "X.")
    for seconds in (0.00005, 0.0001, 0.02, 0.02, 7, 100):
        histogram.record(seconds)
    lines = dict(line.rsplit(" ", 1) for line in histogram.lines() if not line.startswith("#"))
    at = {
        bound: int(lines[f'x_seconds_bucket{{le="{bound}"}}']) for bound in ("0.0001", "0.01", "0.05", "10.0", "+Inf")
    }
    assert at == {"0.0001": 2, "0.01": 2, "0.05": 4, "10.0": 5, "+Inf": 6}
    assert lines["x_seconds_count"] == "6"
    assert float(lines["x_seconds_sum"]) == pytest.approx(107.04015)


def test_handlers_and_calls_are_measured_failures_included() -> None:
    class Till(GraphBusNode):
        @subscribe("/Order/Placed")
        def on_order(self, event: dict[str, object]) -> None:
            if event["order_id"] == 2:
                raise ValueError(event)

    meter = HandlerMetrics()
    with connect(Till, middleware=[meter], on_error="isolate") as graph:
        graph.publish("/Order/Placed", {"order_id": 1})
        graph.publish("/Order/Placed", {"order_id": 2})
        page = families(render_metrics(graph.bus.statistics(), meter))
    counts = [
        value
        for name, value in page["messaging_process_duration_seconds"].items()
        if name.startswith("messaging_process_duration_seconds_count")
    ]
    assert counts == [2]
    assert meter.running == 0


def test_what_is_running_is_known_by_name_and_age() -> None:
    meter = HandlerMetrics()
    assert meter.runs() == []
    first: Iterator[None] = meter(Handling("event", "Till", "Till.first"))
    second: Iterator[None] = meter(Handling("call", "Till", "Till.second"))
    next(first)
    next(second)
    assert [run.handling.name for run in meter.runs()] == ["Till.first", "Till.second"]
    assert meter.running == 2
    assert list(first) == list(second) == []
    assert meter.running == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteClient]:
    root = build_site(tmp_path_factory.mktemp("site"))
    patch = pytest.MonkeyPatch()
    with patch.context() as environment:
        environment.setenv("GRAPHBUS_TOKEN", TOKEN)
        with served(root) as client:
            yield client


def test_a_scrape_of_a_graph_at_work(site: SiteClient) -> None:
    site.post("/call/Till/add", {"amount": 1})
    site.post("/publish/Order/Placed?wait=5", {"order_id": "1", "quantity": 1})
    site.get("/no/such/page/" + "x" * 50)
    alone = http.client.HTTPConnection("127.0.0.1", site.health_port, timeout=PATIENCE_S)
    alone.request("GET", "/metrics")
    answer, other = site.get("/metrics"), alone.getresponse()
    assert answer.headers["content-type"] == other.getheader("content-type") == CONTENT_TYPE
    page = families(answer.body)
    assert page.keys() == families(other.read()).keys()
    alone.close()
    assert page["graphbus_http_responses_total"]
    routes = {name for name in page["graphbus_http_responses_total"] if "xxx" in name}
    assert not routes, "an address that a client invents must not become a label"
    call = 'graphbus_call_duration_seconds_count{graphbus_method="Till.add"}'
    assert page["graphbus_call_duration_seconds"][call] >= 1


def test_labels_do_not_grow_with_what_is_requested(site: SiteClient) -> None:
    for number in range(20):
        site.get(f"/page{number}")
        site.post(f"/call/Agent{number}/method", {})
        site.post(f"/publish/Topic/T{number}", {})
    site.get("/metrics")  # a route is on the page when it was answered once
    before = len(site.get("/metrics").body.splitlines())
    for number in range(20, 60):
        site.get(f"/page{number}")
        site.post(f"/call/Agent{number}/method", {})
        site.post(f"/publish/Topic/T{number}", {})
    assert len(site.get("/metrics").body.splitlines()) == before
