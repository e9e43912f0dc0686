"""Spans of handlers and calls, as the real SDK of OpenTelemetry receives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from time import sleep

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphbus_core import Event, GraphBusNode, connect, depends_on, schema_method, subscribe
from graphbus_core.hosting import telemetry
from graphbus_core.hosting.telemetry import Tracing
from tests.fakes.http_site import TOKEN, build_site, served
from tests.patience import PATIENCE_S


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The provider of a process can be set once only; here each test has its own."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield memory
    provider.shutdown()


class Shelf(GraphBusNode):
    @schema_method(input_schema={"sku": str}, output_schema={"left": int})
    def take(self, sku: str) -> dict[str, int]:
        return {"left": len(sku)}


@depends_on("Shelf")
class Desk(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_placed(self, event: Event) -> None:
        self.call("Shelf", "take", sku=event["sku"])
        self.publish("/Order/Created", {"sku": event["sku"]})
        if event["sku"] == "bad":
            raise ValueError("no such thing")


class Mail(GraphBusNode):
    @subscribe("/Order/Created")
    def on_created(self, event: Event) -> None:
        self.publish("/Mail/Sent", {})

    @subscribe("/Mail/Sent")
    async def on_sent(self, event: Event) -> None:
        self.log(event.topic)


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def run(tracing: Tracing, sku: str = "mug") -> None:
    with connect(Shelf, Desk, Mail, middleware=[tracing], on_error="isolate") as graph:
        graph.publish("/Order/Placed", {"sku": sku})


def test_each_handler_and_call_is_a_span_below_the_one_that_caused_it(exporter: InMemorySpanExporter) -> None:
    run(Tracing())
    found = spans(exporter)
    assert set(found) == {"process /Order/Placed", "call Shelf.take", "process /Order/Created", "process /Mail/Sent"}
    parents = {
        "process /Order/Created": "process /Order/Placed",
        "process /Mail/Sent": "process /Order/Created",
        "call Shelf.take": "process /Order/Placed",
    }
    for child, parent in parents.items():
        above = found[child].parent
        assert above is not None
        assert above.span_id == found[parent].context.span_id, child
    root = found["process /Order/Placed"]
    assert root.parent is None
    assert len({span.context.trace_id for span in found.values()}) == 1
    assert root.kind is trace.SpanKind.CONSUMER
    assert root.attributes is not None
    assert root.attributes["messaging.system"] == "graphbus"
    assert root.attributes["messaging.destination.name"] == "/Order/Placed"
    assert root.attributes["graphbus.handler"] == "Desk.on_placed"
    assert root.attributes["messaging.message.id"] == root.attributes["messaging.message.conversation_id"]


def test_an_exception_of_a_handler_is_recorded(exporter: InMemorySpanExporter) -> None:
    run(Tracing(), sku="bad")
    failed = spans(exporter)["process /Order/Placed"]
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]


def test_the_trace_of_a_request_goes_on(exporter: InMemorySpanExporter) -> None:
    tracing = Tracing()
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with tracing.continue_trace({"traceparent": f"00-{trace_id}-{span_id}-01"}):
        run(tracing)
    root = spans(exporter)["process /Order/Placed"]
    assert f"{root.context.trace_id:032x}" == trace_id
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == span_id


def test_what_is_remembered_is_bounded(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_MOST_PARENTS", 5)
    tracing = Tracing()
    with connect(Shelf, Desk, Mail, middleware=[tracing]) as graph:
        for _ in range(20):
            graph.publish("/Order/Placed", {"sku": "mug"})
    assert len(tracing._parents) == 5
    assert len(exporter.get_finished_spans()) == 80


def test_what_comes_over_http_goes_on_with_the_trace_of_its_request(
    exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    trace_ids = [f"{number:032x}" for number in range(1, 31)]
    with served(build_site(tmp_path, runtime="tracing = true")) as site:
        for trace_id in trace_ids:
            headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
            order = {"order_id": trace_id, "quantity": 1}
            assert site.post("/publish/Order/Placed?wait=5", order, headers).status == 200
        site.post("/call/Till/order", {}, {"traceparent": f"00-{'a' * 32}-00f067aa0ba902b7-01"})
        site.post("/publish/Order/Placed?wait=5", {"order_id": "alone", "quantity": 1})
    found = exporter.get_finished_spans()
    *handled, ordered, alone = [span for span in found if span.name == "process /Order/Placed"]
    assert [f"{span.context.trace_id:032x}" for span in handled] == trace_ids
    [call] = [span for span in found if span.name == "call Till.order"]
    assert f"{call.context.trace_id:032x}" == f"{ordered.context.trace_id:032x}" == "a" * 32
    assert ordered.parent is not None
    assert ordered.parent.span_id == call.context.span_id
    assert alone.parent is None


def test_an_event_belongs_to_who_has_published_it_and_not_to_who_delivers_it(exporter: InMemorySpanExporter) -> None:
    class Slow(GraphBusNode):
        @subscribe("/Order/Placed")
        def on_placed(self, _event: Event) -> None:
            is_at_work.set()
            assert is_published.wait(PATIENCE_S)

        @subscribe("/Order/Sent")
        def on_sent(self) -> None:
            pass

    is_at_work, is_published = Signal(), Signal()
    tracer = trace.get_tracer("test")
    with connect(Slow, middleware=[Tracing()]) as graph:

        def publish_inside_a_span() -> None:
            with tracer.start_as_current_span("first"):
                graph.publish("/Order/Placed", {})

        first = Thread(target=publish_inside_a_span)
        first.start()
        assert is_at_work.wait(PATIENCE_S)
        second = Thread(target=graph.publish, args=("/Order/Sent", {}))
        second.start()
        while not graph.bus.statistics().queued:
            sleep(0.001)
        is_published.set()
        first.join()
        second.join()
    found = spans(exporter)
    assert found["process /Order/Placed"].parent == found["first"].context
    assert found["process /Order/Sent"].parent is None
