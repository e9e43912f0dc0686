"""The testing kit: graphs and a bus that record events, a fake clock, and stand-ins for agents. See docs/testing.md."""

from __future__ import annotations

from graphbus_core.testing.clock import FakeClock
from graphbus_core.testing.graphs import RecordingGraph, run_graph
from graphbus_core.testing.recording import RecordingBus
from graphbus_core.testing.scripts import say, scripted

__all__ = ["FakeClock", "RecordingBus", "RecordingGraph", "run_graph", "say", "scripted"]
