"""What happens rarely on the event loop: long bursts, handlers that cancel themselves, tasks that are left behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError


def refuse(payload: object) -> object:
    raise RunError("GBE614", topic="/A/B", reason="never fits")


def test_requests_and_awaited_events_must_fit_their_schema() -> None:
    async def await_it() -> None:
        async with MessageBus(admit=lambda _topic: refuse) as bus:
            with pytest.raises(RunError) as refused:
                await bus.publish_async("/A/B")
        assert refused.value.code == "GBE614"

    asyncio.run(await_it())
    with MessageBus(admit=lambda _topic: refuse) as bus, pytest.raises(RunError) as refused:
        bus.request("/A/B")
    assert refused.value.code == "GBE614"


def test_a_long_burst_lets_others_on_the_loop_have_their_turn() -> None:
    log: list[str] = []

    async def start(event: Event) -> None:
        for _ in range(200):
            bus.publish("/A/Many")
        asyncio.get_running_loop().call_soon(log.append, "other")

    async def many(event: Event) -> None:
        log.append("many")

    with MessageBus(max_tree=1000) as bus:
        bus.subscribe("/A/Start", start, owner="S")
        bus.subscribe("/A/Many", many, owner="A")
        bus.publish("/A/Start")
    assert log.count("many") == 200
    assert log.index("other") < 200


def test_a_handler_that_cancels_itself_ends_the_delivery_and_not_its_agent() -> None:
    log: list[int] = []

    async def leave(event: Event) -> None:
        log.append(event["n"])
        if event["n"] == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0)

    with MessageBus() as bus:
        bus.subscribe("/A/B", leave)
        with pytest.raises(asyncio.CancelledError):
            bus.publish("/A/B", {"n": 0})
        bus.publish("/A/B", {"n": 1})
    assert log == [0, 1]


def test_a_task_that_a_handler_leaves_behind_is_cancelled_at_the_end() -> None:
    log: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def handle(event: Event) -> None:
        tasks.append(asyncio.get_running_loop().create_task(stay()))
        await asyncio.sleep(0)

    with MessageBus() as bus:
        bus.subscribe("/A/B", handle)
        bus.publish("/A/B")
    assert log == ["cancelled"]


def test_an_idle_worker_that_ends_with_the_loop_of_an_unclosed_bus_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(event: Event) -> None:
        await asyncio.sleep(0)

    async def leave_open() -> None:
        bus = MessageBus()
        bus.adopt_loop()
        bus.subscribe("/A/B", wait)
        bus.publish("/A/B")
        for _ in range(10):
            await asyncio.sleep(0)
        assert bus.statistics().delivered == 1

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_open())
    loop.close()
    del loop
    gc.collect()
    assert "Task was destroyed but it is pending!" not in caplog.text
