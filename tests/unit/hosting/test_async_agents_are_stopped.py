"""`on_stop` of an agent on the event loop is called, whatever the loop has been told to cancel shortly before."""

from __future__ import annotations

import pytest

from graphbus_core import GraphBusNode, connect, subscribe

STOPPED: list[str] = []


class Clock(GraphBusNode):
    def on_stop(self) -> None:
        STOPPED.append("Clock")

    @subscribe("/Clock/Struck")
    async def on_struck(self) -> None:
        pass


@pytest.mark.parametrize("events", [0, 1, 5])
def test_every_graph_that_is_stopped_stops_its_async_agents(events: int) -> None:
    STOPPED.clear()
    for _ in range(20):
        with connect(Clock) as graph:
            for _ in range(events):
                graph.publish("/Clock/Struck")
    assert len(STOPPED) == 20
