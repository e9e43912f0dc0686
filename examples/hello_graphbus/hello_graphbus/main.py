"""The entry point: `python -m graphbus_core.runtime --entrypoint hello_graphbus.main:run`."""

from __future__ import annotations

import os

from graphbus_core import LiveGraph


def run(graph: LiveGraph) -> None:
    """Greet the user of this machine."""
    greeting = graph.call("HelloService", "generate_message", name=os.environ.get("HELLO_NAME", "world"))
    graph.call("PrinterService", "print_message", message=greeting["message"])
