"""A graph that records: what it can be asked, and what a failed assertion tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbus_core import Event, GraphBusNode, build_graph, depends_on, schema_method, subscribe
from graphbus_core.errors import RunError
from graphbus_core.testing import RecordingGraph, run_graph
from tests.conftest import Project


class Stock(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_order(self, order_id: str, qty: int = 1) -> None:
        if qty > 10:
            raise LookupError(f"not {qty} of it")
        self.publish("/Stock/Reserved", {"order_id": order_id, "qty": qty})

    @schema_method(input_schema={"sku": str}, output_schema={"left": int})
    def count(self, sku: str) -> dict[str, int]:
        return {"left": 3}


@depends_on(Stock)
class Mail(GraphBusNode):
    @subscribe("/Stock/*")
    async def on_stock(self, event: Event) -> None:
        await asyncio.sleep(0)
        await self.call("Stock", "count", sku="mug")


@pytest.fixture
def graph() -> Iterator[RecordingGraph]:
    with run_graph(Stock, Mail) as graph:
        yield graph


@pytest.fixture
def lenient() -> Iterator[RecordingGraph]:
    with run_graph(Stock, Mail, on_error="isolate") as graph:
        yield graph


def place(graph: RecordingGraph, *orders: tuple[str, int]) -> None:
    for order_id, qty in orders:
        graph.publish("/Order/Placed", {"order_id": order_id, "qty": qty})


def test_events_are_remembered_in_order_and_found_by_pattern(graph: RecordingGraph) -> None:
    place(graph, ("1", 2), ("2", 3))
    assert [event.topic for event in graph.events()] == ["/Order/Placed", "/Stock/Reserved"] * 2
    assert graph.published("/Stock/Reserved") == [{"order_id": "1", "qty": 2}, {"order_id": "2", "qty": 3}]
    assert graph.published("/Order/*") == [{"order_id": "1", "qty": 2}, {"order_id": "2", "qty": 3}]
    assert graph.events("/Nothing/**") == []


def test_deliveries_and_calls_are_remembered_for_plain_and_async_agents(graph: RecordingGraph) -> None:
    place(graph, ("1", 2))
    assert [(each.handler, each.event.topic, each.attempt, each.error) for each in graph.deliveries()] == [
        ("Stock.on_order", "/Order/Placed", 1, None),
        ("Mail.on_stock", "/Stock/Reserved", 1, None),
    ]
    assert [each.handler for each in graph.deliveries("Mail")] == ["Mail.on_stock"]
    assert graph.deliveries("Mail.on_order") == []
    assert graph.calls("Stock.count") == graph.calls("Stock") == [{"sku": "mug"}]


def test_a_failure_that_is_isolated_is_remembered_and_a_dead_letter(lenient: RecordingGraph) -> None:
    place(lenient, ("1", 11))
    [failure] = lenient.failures()
    assert (failure.handler, str(failure.error)) == ("Stock.on_order", "not 11 of it")
    assert lenient.failures("Mail") == []
    [letter] = lenient.dead_letters()
    assert letter.subscription == "Stock.on_order"


def test_an_event_with_such_fields_is_found(graph: RecordingGraph) -> None:
    place(graph, ("1", 2), ("2", 3))
    assert graph.assert_published("/Stock/Reserved", qty=3)["order_id"] == "2"
    assert graph.assert_published("/Stock/*").topic == "/Stock/Reserved"
    assert graph.assert_delivered_to("Mail", "/Stock/Reserved", order_id="2").handler == "Mail.on_stock"
    assert graph.assert_delivered_to("Stock.on_order").attempt == 1
    graph.assert_not_published("/Stock/Reserved", qty=4)
    graph.assert_not_published("/Stock/Missing")
    assert graph.assert_called("Stock.count", sku="mug") == {"sku": "mug"}
    assert graph.assert_called("Stock") == {"sku": "mug"}
    graph.assert_no_dead_letters()


Ask = Callable[[RecordingGraph], object]


FAILED = """
These handlers have failed:
  Stock.on_order on /Order/Placed: LookupError: not 11 of it"""


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (
            lambda graph: graph.assert_published("/Stock/Reserved", order_id="3", quantity=2),
            """\
            no event on /Stock/Reserved with order_id='3', quantity=2; there were:
              /Stock/Reserved {"order_id":"1","qty":2}
                  quantity: missing, not 2
                  order_id: '1', not '3'
              /Stock/Reserved {"order_id":"2","qty":3}
                  quantity: missing, not 2
                  order_id: '2', not '3'""",
        ),
        (
            lambda graph: graph.assert_published("/Stock/Reserve"),
            """\
            nothing was published on /Stock/Reserve. Did you mean '/Stock/Reserved'? There were:
              /Order/Placed {"order_id":"1","qty":2}
              /Stock/Reserved {"order_id":"1","qty":2}
              /Order/Placed {"order_id":"2","qty":3}
              /Stock/Reserved {"order_id":"2","qty":3}
              /Order/Placed {"order_id":"3","qty":11}""",
        ),
        (
            lambda graph: graph.assert_not_published("/Order/*", qty=3),
            """\
            there were events on /Order/* with qty=3:
              /Order/Placed {"order_id":"2","qty":3}""",
        ),
        (
            lambda graph: graph.assert_delivered_to("Mail.on_stock", "/Stock/Reserved", qty=11),
            """\
            Mail.on_stock handled no event on /Stock/Reserved with qty=11. It got:
              /Stock/Reserved {"order_id":"1","qty":2}
                  qty: 2, not 11
              /Stock/Reserved {"order_id":"2","qty":3}
                  qty: 3, not 11""",
        ),
        (
            lambda graph: graph.assert_delivered_to("Stok.on_order"),
            """\
            Stok.on_order handled no event. Did you mean 'Stock.on_order'? It got: nothing""",
        ),
        (
            lambda graph: graph.assert_called("Stock.counts"),
            """\
            nobody called Stock.counts. Did you mean 'Stock.count'? Calls were:
              Stock.count(sku='mug')
              Stock.count(sku='mug')""",
        ),
        (
            lambda graph: graph.assert_no_dead_letters(),
            """\
            there are dead letters:
              /Order/Placed {"order_id":"3","qty":11} to Stock.on_order: LookupError: not 11 of it""",
        ),
    ],
)
def test_an_assertion_that_fails_says_what_there_was_instead(lenient: RecordingGraph, ask: Ask, told: str) -> None:
    place(lenient, ("1", 2), ("2", 3), ("3", 11))
    with pytest.raises(AssertionError) as caught:
        ask(lenient)
    assert str(caught.value) == "\n".join(line[12:] for line in told.splitlines()) + FAILED


def test_a_handler_that_took_too_long_has_failed_with_its_time_limit_as_the_dead_letter_says() -> None:
    class Slow(GraphBusNode):
        @subscribe("/Order/Placed", retries=1, timeout=0.02)
        async def on_order(self) -> None:
            await asyncio.Event().wait()

    with run_graph(Slow, on_error="isolate") as graph:
        graph.publish("/Order/Placed")
        graph.settle()
        assert [each.attempt for each in graph.failures("Slow")] == [1, 2]
        told = [f"{type(each.error).__name__}: {each.error}" for each in graph.failures("Slow.on_order")]
        assert told == ["TimeoutError: it took more than 0.02 s"] * 2
        assert [letter.error for letter in graph.dead_letters()] == told[1:]


@pytest.mark.parametrize("topic", ["Order/Placed", "/Order/", "", "/**/Placed"])
def test_a_malformed_topic_is_refused_instead_of_finding_nothing(graph: RecordingGraph, topic: str) -> None:
    with pytest.raises(RunError) as caught:
        graph.assert_not_published(topic)
    assert caught.value.code == "GBE610"


def test_a_graph_that_was_built_is_recorded_too(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(
        {
            "pyproject.toml": '[tool.graphbus.runtime]\nhistory = 0\nmax_hops = 1\nmiddleware = ["shop_of_it.around:note"]\n',
            "shop_of_it/__init__.py": "",
            "shop_of_it/around.py": """
                from pathlib import Path

                def note(handling):
                    Path("noted.txt").write_text(handling.name)
                    yield
                """,
            "shop_of_it/stock.py": """
                from graphbus_core import GraphBusNode, subscribe

                class Stock(GraphBusNode):
                    @subscribe("/Order/Placed")
                    def on_order(self, order_id):
                        self.publish("/Stock/Reserved", {"order_id": order_id})

                    @subscribe("/Stock/Reserved")
                    def on_reserved(self, order_id):
                        self.publish("/Stock/TooFar", {"order_id": order_id})
                """,
        }
    )
    monkeypatch.chdir(root)
    build_graph("shop_of_it")
    before = sorted(path.name for path in root.rglob("*"))
    with run_graph() as graph:
        graph.publish("/Order/Placed", {"order_id": "1"})
        graph.assert_published("/Stock/Reserved", order_id="1")
        graph.assert_not_published("/Stock/TooFar")
        with pytest.raises(RunError) as caught:
            graph.publish("/Order/Plced")
    assert caught.value.code == "GBE619"
    assert Path("noted.txt").read_text() == "Stock.on_reserved"
    written = {path.name for path in root.rglob("*")} - set(before)
    assert {name for name in written if "pyc" not in name} == {"noted.txt"}


def test_the_first_failure_goes_up_also_when_more_fail_before_the_end() -> None:
    class Rude(GraphBusNode):
        @subscribe("/Order/Lost")
        def on_lost(self, n: int) -> None:
            raise LookupError(n)

    with pytest.raises(LookupError, match="1"), run_graph(Rude) as graph:
        graph.publish_all(*[("/Order/Lost", {"n": n}) for n in (1, 2, 3)])
    assert [str(each.error) for each in graph.failures("Rude")] == ["1", "2", "3"]
    assert graph.is_stopped
