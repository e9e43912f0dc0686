"""A program that owns an event loop: the bus lives on it, and `await publish_async` is back when all is delivered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import BackpressureError, RunError
from graphbus_core.model.deliveries import DeliveryPolicy


def on_a_bus(work: Callable[[MessageBus], Awaitable[object]], **settings: object) -> MessageBus:
    async def main() -> MessageBus:
        async with MessageBus(**settings) as bus:  # type: ignore[arg-type]
            await work(bus)
        return bus

    return asyncio.run(main())


def test_handlers_run_on_the_loop_of_the_program_and_no_thread_is_started() -> None:
    seen: list[tuple[int, str]] = []

    async def hear(event: Event) -> None:
        seen.append((threading.get_ident(), event["n"]))

    async def work(bus: MessageBus) -> None:
        before = set(threading.enumerate())
        bus.subscribe("/A/B", hear)
        for n in range(3):
            await bus.publish_async("/A/B", {"n": n})
            assert len(seen) == n + 1
        assert set(threading.enumerate()) <= before

    bus = on_a_bus(work)
    assert seen == [(threading.get_ident(), n) for n in range(3)]
    assert [event["n"] for event in bus.history()] == [0, 1, 2]
    assert bus.statistics().delivered == 3


def test_it_is_back_when_everything_that_came_of_the_event_is_delivered() -> None:
    log: list[str] = []

    async def first(event: Event) -> None:
        event_bus[0].publish("/A/Second")
        await asyncio.sleep(0.001)
        log.append("first")

    async def second(event: Event) -> None:
        await asyncio.sleep(0.01)
        event_bus[0].publish("/A/Third")
        log.append("second")

    event_bus: list[MessageBus] = []

    async def work(bus: MessageBus) -> None:
        event_bus.append(bus)
        bus.subscribe("/A/First", first)
        bus.subscribe("/A/Second", second, name="Agent.second")
        bus.subscribe("/A/Third", lambda: log.append("plain, on another thread"))
        for _ in range(2):
            await bus.publish_async("/A/First")
            assert sorted(log) == ["first", "plain, on another thread", "second"]
            log.clear()

    bus = on_a_bus(work)
    third = [event for event in bus.history() if event.topic == "/A/Third"]
    assert third[0].hops == 2
    assert third[0].trail[-1] == ("/A/Second", "Agent.second")


def test_two_events_of_one_agent_never_overlap_and_those_of_others_do() -> None:
    running: list[str] = []
    most = {"A": 0, "all": 0}

    async def work(bus: MessageBus) -> None:
        def handler(name: str) -> Callable[[Event], Awaitable[None]]:
            async def handle(event: Event) -> None:
                running.append(name)
                most["A"] = max(most["A"], running.count("A"))
                most["all"] = max(most["all"], len(running))
                await asyncio.sleep(0.01)
                running.remove(name)

            return handle

        bus.subscribe("/A/One", handler("A"), owner="A")
        bus.subscribe("/A/Two", handler("A"), owner="A")
        bus.subscribe("/B/One", handler("B"), owner="B")
        await bus.publish_async("/A/One")
        await asyncio.gather(*(bus.publish_async(topic) for topic in ("/A/One", "/A/Two", "/B/One", "/A/One")))

    bus = on_a_bus(work)
    assert most == {"A": 1, "all": 2}
    assert bus.statistics().delivered == 5


@pytest.mark.parametrize("warmed", [False, True])
def test_a_failure_is_isolated_judged_and_tried_again(warmed: bool) -> None:
    log: list[int] = []

    async def flaky(event: Event) -> None:
        if event["warm"]:
            return
        log.append(1)
        if len(log) < 3:
            raise ConnectionError

    async def work(bus: MessageBus) -> None:
        bus.subscribe("/A/B", flaky, policy=DeliveryPolicy(retries=2, backoff_s=0.001))
        if warmed:
            await bus.publish_async("/A/B", {"warm": True})
        await bus.publish_async("/A/B", {"warm": False})
        assert len(log) == 3

    assert on_a_bus(work).dead_letters() == ()


def test_what_does_not_even_reach_its_handler_is_a_dead_letter_and_not_raised() -> None:
    async def hear(sku: str) -> None:
        raise AssertionError(sku)

    async def work(bus: MessageBus) -> None:
        bus.subscribe("/A/B", hear)
        for _ in range(2):
            await bus.publish_async("/A/B", {"without": "the field"})

    bus = on_a_bus(work)
    assert [str(each.error)[:30] for each in bus.dead_letters()] == ["test_what_does_not_even_reach_"] * 2
    assert bus.statistics().failed == 2


@pytest.mark.parametrize("warmed", [False, True])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_for_tests_an_exception_comes_out_and_what_is_none_always_does(warmed: bool, kind: type[BaseException]) -> None:
    async def fail(event: Event) -> None:
        if event["n"]:
            raise kind("out")

    async def work(bus: MessageBus) -> None:
        bus.subscribe("/A/B", fail)
        if warmed:
            await bus.publish_async("/A/B", {"n": 0})
        try:
            await bus.publish_async("/A/B", {"n": 1})
        except kind as error:
            caught.append(error)

    caught: list[BaseException] = []
    on_a_bus(work, on_error="raise")
    assert [str(error) for error in caught] == ["out"]


def test_inside_a_handler_it_only_queues() -> None:
    log: list[str] = []

    async def work(bus: MessageBus) -> None:
        async def outer(event: Event) -> None:
            await bus.publish_async("/A/B", {"n": 1}) if event["n"] == 0 else None
            log.append(f"end {event['n']}")

        bus.subscribe("/A/B", outer)
        await bus.publish_async("/A/B", {"n": 0})

    on_a_bus(work)
    assert log == ["end 0", "end 1"]


def test_while_it_is_awaited_others_find_the_mailbox_and_lose_nothing() -> None:
    seen: list[int] = []

    async def work(bus: MessageBus) -> None:
        async def hear(event: Event) -> None:
            await asyncio.sleep(0.002)
            seen.append(event["n"])

        bus.subscribe("/A/B", hear)
        await bus.publish_async("/A/B", {"n": 0})
        first = asyncio.create_task(bus.publish_async("/A/B", {"n": 1}))
        await asyncio.sleep(0)
        await asyncio.to_thread(bus.publish, "/A/B", {"n": 2})
        await first

    on_a_bus(work)
    assert seen == [0, 1, 2]


def test_the_bus_moves_to_one_loop_only_and_can_be_awaited_there_only() -> None:
    async def hear(event: Event) -> None: ...

    async def elsewhere() -> str:
        with MessageBus() as bus, pytest.raises(RunError) as refused:
            await bus.publish_async("/A/B")
        return refused.value.code

    async def too_late() -> str:
        with MessageBus() as bus:
            bus.subscribe("/A/B", hear)
            await asyncio.to_thread(bus.publish, "/A/B")
            with pytest.raises(RunError) as refused:
                await bus.__aenter__()
        return refused.value.code

    assert asyncio.run(elsewhere()) == "GBE639"
    assert asyncio.run(too_late()) == "GBE638"


def test_a_full_queue_refuses_and_a_schema_is_checked() -> None:
    async def work(bus: MessageBus) -> None:
        bus.subscribe("/A/B", lambda: None)
        with pytest.raises(BackpressureError):
            await bus.publish_async("/A/B")

    on_a_bus(work, queue=0)


def test_calls_and_requests_are_awaited_on_the_loop_of_the_program() -> None:
    async def work(bus: MessageBus) -> None:
        async def answer(event: Event) -> int:
            await asyncio.sleep(0)
            return 2

        bus.subscribe("/A/Async", answer, owner="A")
        bus.subscribe("/A/Plain", lambda: threading.current_thread().name, owner="B")
        assert await bus.request("/A/Async") == 2
        assert await bus.request("/A/Plain") != threading.current_thread().name
        assert await bus.run(lambda: 3, owner="A") == 3  # type: ignore[misc]

    on_a_bus(work)


def test_what_a_handler_leaves_running_is_followed_by_nobody_when_it_publishes_later() -> None:
    async def program() -> None:
        heard: list[str] = []
        late: list[asyncio.Task[None]] = []
        async with MessageBus() as bus:

            async def publish_later() -> None:
                await asyncio.sleep(0.01)
                bus.publish("/A/Late")

            async def leaves_a_task() -> None:
                late.append(asyncio.ensure_future(publish_later()))

            async def on_late() -> None:
                heard.append("late")

            bus.subscribe("/A/B", leaves_a_task)
            bus.subscribe("/A/Late", on_late)
            for _ in range(3):
                await bus.publish_async("/A/B")
            await asyncio.gather(*late)
            await asyncio.sleep(0.01)
            assert heard == ["late"] * 3
            assert bus._followed == {}

    asyncio.run(program())


@pytest.mark.parametrize("warmed", [False, True])
def test_who_cancels_the_publisher_cancels_the_one_handler_that_it_awaits(warmed: bool) -> None:
    log: list[str] = []

    async def endless(event: Event) -> None:
        if event["n"]:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                log.append("cancelled")
                raise

    async def work(bus: MessageBus) -> None:
        bus.subscribe("/A/B", endless)
        if warmed:
            await bus.publish_async("/A/B", {"n": 0})
        publisher = asyncio.create_task(bus.publish_async("/A/B", {"n": 1}))
        await asyncio.sleep(0.001)
        publisher.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publisher
        assert log == ["cancelled"]

    on_a_bus(work)
