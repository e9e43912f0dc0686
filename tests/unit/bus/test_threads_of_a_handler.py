"""Threads that one async handler has started publish at once: every event counts, and each has an id of its own."""

from __future__ import annotations

import asyncio
import sys

import pytest

from graphbus_core.bus import MessageBus
from tests.patience import PATIENCE_S

THREADS, EVENTS = 6, 500
KEPT = 2_000


def test_what_the_threads_of_a_handler_publish_is_counted_exactly_and_has_ids_of_its_own() -> None:
    def publishes() -> None:
        for _ in range(EVENTS):
            bus.publish("/A/Child")

    async def on_root() -> None:
        await asyncio.gather(*(asyncio.to_thread(publishes) for _ in range(THREADS)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with MessageBus(max_tree=KEPT, history=THREADS * EVENTS + 1, dead_letters=THREADS * EVENTS) as bus:
            bus.subscribe("/A/Root", on_root)
            bus.publish("/A/Root")
            ids = {each.event_id for each in bus.history() if each.topic == "/A/Child"}
            assert len(ids) == KEPT
            assert len(bus.dead_letters()) == THREADS * EVENTS - KEPT
            assert {each.reason for each in bus.dead_letters()} == {"tree"}
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("dispatcher", [False, True])
def test_what_a_thread_publishes_comes_before_what_its_handler_publishes_later(dispatcher: bool) -> None:
    heard: list[str] = []

    async def starts() -> None:
        for _ in range(500):
            bus.publish("/A/Noise")
        await asyncio.to_thread(bus.publish, "/A/Child", {"by": "the thread"})
        bus.publish("/A/Child", {"by": "the handler"})

    async def child(by: str) -> None:
        heard.append(by)

    async def noise() -> None: ...

    with MessageBus(dispatcher=dispatcher) as bus:
        bus.subscribe("/A/Start", starts, owner="Starts")
        bus.subscribe("/A/Child", child, owner="Child")
        bus.subscribe("/A/Noise", noise, owner="Noise")
        receipt = bus.publish("/A/Start")
        assert receipt.wait(PATIENCE_S) if receipt else True
        assert heard == ["the thread", "the handler"]
