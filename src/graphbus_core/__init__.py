"""GraphBus: agents improve the code once, at build time; afterwards plain Python runs it on a message bus.

Names are imported when they are first used, so that `graphbus --help` and a deployed graph pay only for what they need.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graphbus_core.build import build_graph as build_graph
    from graphbus_core.decorators import depends_on as depends_on
    from graphbus_core.decorators import publishes as publishes
    from graphbus_core.decorators import schema_method as schema_method
    from graphbus_core.decorators import subscribe as subscribe
    from graphbus_core.errors import GraphBusError as GraphBusError
    from graphbus_core.hosting.graph import LiveGraph as LiveGraph
    from graphbus_core.hosting.members import connect as connect
    from graphbus_core.model.messages import Event as Event
    from graphbus_core.model.topics import Topic as Topic
    from graphbus_core.node import GraphBusNode as GraphBusNode
    from graphbus_core.runtime import run_graph as run_graph

_HOME = {  # public name -> the module that defines it
    "build_graph": "build",
    "Event": "model.messages",
    "GraphBusError": "errors",
    "GraphBusNode": "node",
    "LiveGraph": "hosting.graph",
    "connect": "hosting.members",
    "depends_on": "decorators",
    "publishes": "decorators",
    "schema_method": "decorators",
    "run_graph": "runtime",
    "subscribe": "decorators",
    "Topic": "model.topics",
}

__all__ = [
    "Event",
    "GraphBusError",
    "GraphBusNode",
    "LiveGraph",
    "Topic",
    "build_graph",
    "connect",
    "depends_on",
    "publishes",
    "run_graph",
    "schema_method",
    "subscribe",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, and keep it in this module."""
    from importlib import import_module

    if name in _HOME:
        value: object = getattr(import_module(f"graphbus_core.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'graphbus_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
