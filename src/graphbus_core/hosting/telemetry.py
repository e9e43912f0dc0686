"""Middleware that makes an OpenTelemetry span for every handler and call; the only module that imports opentelemetry.

    POST /publish/Order/Placed   traceparent: 00-...      continues the trace of the client
      process /Order/Placed      OrderProcessor.on_order_placed
        call InventoryService.reserve
        process /Order/Created   NotificationService.on_order_created

The parent of a span is the span of the handler or method that published the event. The program configures where spans go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event

_MOST_PARENTS = 10_000
"""How many spans are remembered as possible parents. An event whose parent was dropped begins a new trace."""

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Middleware that makes the spans of one graph."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("graphbus")
        # (event id, its handler) -> the span of that handling; (event id, "") -> the span of a publisher outside of handlers
        self._parents: OrderedDict[tuple[str, str], Context] = OrderedDict()
        self._lock = Lock()

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Wrap a handler or call in a span; the span records an exception that it raises."""
        event = handling.event
        if event is None:
            yield from self._trace_call(handling)
        else:
            yield from self._trace_event(handling, event)

    def _trace_event(self, handling: Handling, event: Event) -> Iterator[None]:
        """Wrap a handler in a span whose parent is the span that published the event."""
        attributes: dict[str, str | int] = {
            "messaging.system": "graphbus",
            "messaging.destination.name": event.topic,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.message.id": event.event_id,
            "messaging.message.conversation_id": event.correlation_id,
            "graphbus.handler": handling.name,
            "graphbus.attempt": handling.attempt,
        }
        with self._tracer.start_as_current_span(
            f"process {event.topic}",
            context=self._parent_of(event),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        ):
            self._remember_context(event.event_id, handling.name, contexts.get_current())
            yield

    def _trace_call(self, handling: Handling) -> Iterator[None]:
        """Wrap a method in a span whose parent is the span of its caller."""
        attributes = {"graphbus.agent": handling.agent, "graphbus.method": handling.name}
        parent = None if handling.caller is None else handling.caller.run(contexts.get_current)
        with self._tracer.start_as_current_span(f"call {handling.name}", context=parent, attributes=attributes):
            yield

    def on_root(self, event: Event) -> None:
        """Remember the current span as the parent of an event published outside of handlers; another thread may deliver it."""
        self._remember_context(event.event_id, "", contexts.get_current())

    @contextmanager
    def continue_trace(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Within the block, make the trace that the headers of a request name (`traceparent`) current on this thread."""
        token = contexts.attach(_propagator.extract(headers))
        try:
            yield
        finally:
            contexts.detach(token)

    def _parent_of(self, event: Event) -> Context | None:
        """Return the context of the span that published the event; None if it is no longer remembered."""
        key = (event.causation_id, event.published_by) if event.causation_id else (event.event_id, "")
        with self._lock:
            return self._parents.get(key)

    def _remember_context(self, event_id: str, handler: str, context: Context) -> None:
        """Keep a context for `_parent_of`, and drop the oldest beyond `_MOST_PARENTS`; `handler` is empty outside of handlers."""
        with self._lock:
            self._parents[event_id, handler] = context
            while len(self._parents) > _MOST_PARENTS:
                self._parents.popitem(last=False)
