"""A queue has an end: who publishes from outside is refused, and what a handler publishes is kept as a dead letter."""

from __future__ import annotations

import asyncio
import threading

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import BackpressureError
from tests.patience import PATIENCE_S


def test_a_publisher_from_outside_is_refused_while_the_queue_is_full() -> None:
    may_end, is_inside = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(event: Event) -> None:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        seen.append(event["n"])

    with MessageBus(queue=2, dispatcher=True) as bus:
        bus.subscribe("/A/B", slow)
        bus.publish("/A/B", {"n": 0})
        assert is_inside.wait(PATIENCE_S)
        bus.publish("/A/B", {"n": 1})
        bus.publish("/A/B", {"n": 2})
        with pytest.raises(BackpressureError, match="the queue is full: 2 events are waiting") as refused:
            bus.publish("/A/B", {"n": 3})
        assert refused.value.code == "GBE636"
        may_end.set()
    assert seen == [0, 1, 2]
    assert bus.dead_letters() == ()


def test_what_a_handler_publishes_to_a_full_queue_is_a_dead_letter() -> None:
    seen: list[int] = []

    def hear(n: int) -> None:
        seen.append(n)

    bus = MessageBus(queue=3)
    bus.subscribe("/A/Start", lambda: [bus.publish("/A/B", {"n": n}) for n in range(5)])
    bus.subscribe("/A/B", hear)
    bus.publish("/A/Start")
    assert seen == [0, 1, 2]
    assert [(each.reason, each.event["n"], each.error) for each in bus.dead_letters()] == [
        ("full", 3, "3 events are already waiting in the queue"),
        ("full", 4, "3 events are already waiting in the queue"),
    ]


def test_an_async_handler_that_fills_its_own_mailbox_loses_nothing_and_waits_for_nobody() -> None:
    seen: list[int] = []

    async def hear(event: Event) -> None:
        seen.append(event["n"])
        if event["n"] == 0:
            for n in range(1, 50):
                bus.publish("/A/B", {"n": n})
            await asyncio.sleep(0.02)

    with MessageBus(mailbox=2) as bus:
        bus.subscribe("/A/B", hear)
        bus.publish("/A/B", {"n": 0})
        assert seen == list(range(50))
        assert bus.dead_letters() == ()


def test_while_a_mailbox_is_full_others_wait_too_so_that_the_order_is_kept() -> None:
    log: list[str] = []
    may_end = asyncio.Event()

    async def slow(event: Event) -> None:
        await may_end.wait()
        log.append("slow")

    async def other(event: Event) -> None:
        log.append("other")

    async def finish(event: Event) -> None:
        await asyncio.sleep(0.02)
        log.append("finish")
        may_end.set()

    def start(event: Event) -> None:
        bus.publish("/A/Finish")
        for _ in range(3):
            bus.publish("/A/Slow")
        bus.publish("/A/Other")

    with MessageBus(mailbox=1) as bus:
        bus.subscribe("/A/Start", start)
        bus.subscribe("/A/Slow", slow)
        bus.subscribe("/A/Other", other)
        bus.subscribe("/A/Finish", finish)
        bus.publish("/A/Start")
    assert sorted(log) == ["finish", "other", "slow", "slow", "slow"]
    assert log.index("other") > log.index("finish")


def test_the_loop_waits_with_the_queue_while_a_mailbox_is_full() -> None:
    heard: list[int] = []

    async def publishes() -> None:
        for n in range(10):
            bus.publish("/A/Small", {"n": n})

    async def hears(n: int) -> None:
        await asyncio.sleep(0)
        heard.append(n)

    with MessageBus(mailbox=2) as bus:
        bus.subscribe("/A/Start", publishes, owner="Publishes")
        bus.subscribe("/A/Small", hears, owner="Hears")
        bus.publish("/A/Start")
        assert heard == list(range(10))
        assert bus.dead_letters() == ()
