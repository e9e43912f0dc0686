"""Fixtures for pytest: `pytest_plugins = ["graphbus_core.testing.plugin"]` in the conftest.py of the project root.

With it pytest leaves the lines of GraphBus out of its tracebacks; `--full-trace` shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from graphbus_core.bus.message_bus import OnError
from graphbus_core.clock import Clock
from graphbus_core.middleware import Middleware
from graphbus_core.model.config import Validation
from graphbus_core.node import GraphBusNode
from graphbus_core.testing import FakeClock, RecordingGraph
from graphbus_core.testing import run_graph as start_graph

for _name in [name for name in sys.modules if name.startswith("graphbus_core.")]:
    vars(sys.modules[_name])["__tracebackhide__"] = True


class RunGraph(Protocol):
    """What the fixture `run_graph` gives: `graphbus_core.testing.run_graph` with the clock of the test."""

    def __call__(
        self,
        *agents: type[GraphBusNode] | GraphBusNode,
        artifacts: str | Path = ".graphbus",
        clock: Clock | None = None,
        validation: Validation | None = None,
        on_error: OnError = "raise",
        middleware: Sequence[Middleware] = (),
        state: str | Path = "",
    ) -> RecordingGraph:
        """Start a graph; it is stopped when the test ends."""


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still; the graphs of `run_graph` have their time from it."""
    return FakeClock()


@pytest.fixture
def run_graph(fake_clock: FakeClock) -> Iterator[RunGraph]:
    """Start graphs that record, of classes or of what was built; they are stopped when the test ends, the last one first."""
    with ExitStack() as running:

        def start(*agents: type[GraphBusNode] | GraphBusNode, **options: Any) -> RecordingGraph:
            return running.enter_context(start_graph(*agents, **{"clock": fake_clock, **options}))

        yield start
