"""Fixtures for pytest: `pytest_plugins = ["graphbus_core.testing.plugin"]` in the conftest.py of the project root.

The plugin also hides the frames of GraphBus in tracebacks of pytest; `--full-trace` shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from graphbus_core.node import GraphBusNode
from graphbus_core.testing import FakeClock, RecordingGraph
from graphbus_core.testing import run_graph as start_graph

for _name in [name for name in sys.modules if name.startswith("graphbus_core.")]:
    vars(sys.modules[_name])["__tracebackhide__"] = True


@pytest.fixture
def fake_clock() -> FakeClock:
    """A fake clock, which the graphs of the fixture `run_graph` use."""
    return FakeClock()


@pytest.fixture
def run_graph(fake_clock: FakeClock) -> Iterator[Callable[..., RecordingGraph]]:
    """A function that starts graphs as `graphbus_core.testing.run_graph` does; they are stopped after the test."""
    with ExitStack() as running:

        def start(*agents: type[GraphBusNode] | GraphBusNode, **options: Any) -> RecordingGraph:
            """Start a graph, by default with the clock of the test."""
            return running.enter_context(start_graph(*agents, **{"clock": fake_clock, **options}))

        yield start
