"""A graph with one agent on a ledger, as `graphbus run --ledger` has it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
import uuid
from collections.abc import Sequence
from typing import Any

from ledger_protocol import Append, Handle, serve

from graphbus_core import Event, GraphBusNode, subscribe
from graphbus_core.hosting.members import connect
from graphbus_core.ledger.attached import AttachedLedger, open_engine
from graphbus_core.ledger.envelope import Envelope


class Counter(GraphBusNode):
    """Counts what it gets."""

    handle: Handle

    @subscribe("/Event", retries=3, backoff=0.01)
    def on_event(self, event: Event) -> None:
        """Handle one event."""
        type(self).handle(event.payload)


async def start(name: str, handle: Handle) -> Append:
    """Start the graph."""
    logging.getLogger("graphbus").setLevel(logging.CRITICAL)
    Counter.handle = staticmethod(handle)
    graph = connect(Counter, on_error="isolate")
    graph.ledger = ledger = AttachedLedger(graph, open_engine(name, f"{tempfile.mkdtemp()}/state.sqlite3"))
    graph.bus.hosting.start_dispatcher()
    await asyncio.to_thread(ledger.begin)

    async def append(payloads: Sequence[dict[str, Any]]) -> None:
        events = [Envelope(id=uuid.uuid4().hex, type="/Event", time=time.time(), data=payload) for payload in payloads]
        appending = asyncio.run_coroutine_threadsafe(ledger.engine.append(events), ledger._loop)
        await asyncio.wrap_future(appending)

    return append


if __name__ == "__main__":
    serve(start)
