"""Whom a publisher on the loop awaits itself: nobody who has a time limit, takes several at once, or has others to hear first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus, waiting
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S


def test_a_time_limit_holds_for_the_only_handler_as_well() -> None:
    async def program() -> list[str]:
        async def endless(event: Event) -> None:
            await asyncio.Event().wait()

        async with MessageBus() as bus:
            bus.subscribe("/A/A", endless, name="endless", policy=DeliveryPolicy(timeout_s=0.01))
            async with asyncio.timeout(PATIENCE_S):
                await bus.publish_async("/A/A")
            return [letter.error for letter in bus.dead_letters()]

    assert asyncio.run(program()) == ["TimeoutError: it took more than 0.01 s"]


def test_no_more_than_may_be_are_at_work_when_the_first_has_ended() -> None:
    async def program() -> int:
        gates = [asyncio.Event() for _ in range(5)]
        running = most = 0

        async def on_event(event: Event) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gates[event["n"]].wait()
            running -= 1

        async with MessageBus() as bus:
            bus.subscribe("/A/A", on_event, name="two", policy=DeliveryPolicy(concurrency=2))
            waiting = []
            for number in range(5):
                waiting.append(asyncio.create_task(bus.publish_async("/A/A", {"n": number})))
                await asyncio.sleep(0.01)
                if number == 1:
                    gates[0].set()
                    await waiting[0]
            for gate in gates:
                gate.set()
            await asyncio.gather(*waiting)
        return most

    assert asyncio.run(program()) == 2


def test_what_another_thread_has_put_into_the_mailbox_comes_first() -> None:
    async def program() -> list[str]:
        heard: list[str] = []

        async def on_event(event: Event) -> None:
            heard.append(event["from"])

        async with MessageBus() as bus:
            subscription = bus.subscribe("/A/A", on_event, name="only")
            other = threading.Thread(target=bus.publish, args=("/A/A", {"from": "a thread"}))
            other.start()
            while subscription.mailbox is None or not subscription.mailbox.box:
                pass  # the loop does not turn meanwhile: nobody has begun with it
            await bus.publish_async("/A/A", {"from": "the loop"})
            await asyncio.to_thread(other.join)
        return heard

    assert asyncio.run(program()) == ["a thread", "the loop"]


def interrupted_round(bus: MessageBus) -> None:
    """Leaves an event in hand, which one handler has yet to hear."""
    with suppress(KeyboardInterrupt):
        bus.publish("/A/Left")


def interrupted_call(bus: MessageBus) -> None:
    """Leaves an event in the queue."""

    def publish_and_stop(_nothing: object) -> None:
        bus.publish("/A/Left/Behind")
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        bus.hosting.caller(publish_and_stop, owner="Plain")(None)


def stop(event: Event) -> None:
    raise KeyboardInterrupt


INTERRUPTED = pytest.mark.parametrize("interrupt", [interrupted_round, interrupted_call])


@INTERRUPTED
def test_what_an_interruption_has_left_comes_before_what_is_awaited(interrupt: Callable[[MessageBus], None]) -> None:
    async def program() -> list[str]:
        heard: list[str] = []

        async def on_event(event: Event) -> None:
            heard.append(event.topic.split("/")[2])

        async with MessageBus() as bus:
            bus.subscribe("/A/Left", stop, name="stop", owner="Plain")
            bus.subscribe("/A/**", on_event, name="hears", owner="Async")
            await asyncio.to_thread(interrupt, bus)
            async with asyncio.timeout(PATIENCE_S):
                await bus.publish_async("/A/Next")
        return heard

    assert asyncio.run(program()) == ["Left", "Next"]


@INTERRUPTED
def test_what_an_interruption_has_left_comes_before_what_a_handler_publishes(
    interrupt: Callable[[MessageBus], None],
) -> None:
    """Nobody waits meanwhile, who would deliver it at once."""

    async def program() -> list[str]:
        heard: list[str] = []
        begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def on_long(event: Event) -> None:
            begun.set()
            await may_go_on.wait()
            bus.publish("/A/Next")

        async def on_event(event: Event) -> None:
            heard.append(event.topic.split("/")[2])

        async with MessageBus() as bus:
            bus.subscribe("/A/Left", stop, name="stop", owner="Plain")
            bus.subscribe("/A/**", on_event, name="hears", owner="Async")
            bus.subscribe("/Long/Work", on_long, name="long", owner="Long")
            bus.publish("/Long/Work")
            async with asyncio.timeout(PATIENCE_S):
                await begun.wait()
                await asyncio.to_thread(interrupt, bus)
                may_go_on.set()
                await asyncio.to_thread(bus.settle)
        return heard

    assert asyncio.run(program()) == ["Left", "Next"]


def test_it_is_given_what_the_check_of_the_topic_has_made_of_the_payload() -> None:
    async def program() -> list[object]:
        heard: list[object] = []

        async def on_event(event: Event) -> None:
            heard.append(event.payload)

        async with MessageBus(admit=lambda topic: lambda payload: {"made": payload}) as bus:
            bus.subscribe("/A/A", on_event, name="only")
            await bus.publish_async("/A/A", 1)
        return heard

    assert asyncio.run(program()) == [{"made": 1}]


def test_who_settles_meanwhile_is_woken_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_AGAIN_S", 100 * PATIENCE_S)

    async def program() -> bool:
        async with MessageBus() as bus:
            settling = threading.Thread(target=bus.settle, daemon=True)

            async def on_event(event: Event) -> None:
                settling.start()
                while not bus._notifier.waiting:
                    pass

            bus.subscribe("/A/A", on_event, name="only")
            await bus.publish_async("/A/A")
            await asyncio.to_thread(settling.join, PATIENCE_S)
            return settling.is_alive()

    assert asyncio.run(program()) is False


@pytest.mark.parametrize("is_plain", [False, True])
def test_it_may_wait_for_what_it_has_published(is_plain: bool) -> None:
    async def program() -> list[str]:
        loop, heard = asyncio.get_running_loop(), list[str]()

        async def on_root() -> None:
            child_was_heard.clear()
            bus.publish("/A/Child")
            async with asyncio.timeout(PATIENCE_S):
                await child_was_heard.wait()
            heard.append("root")

        def on_child() -> None:
            loop.call_soon_threadsafe(child_was_heard.set)

        async def on_child_on_loop() -> None:
            child_was_heard.set()

        async with MessageBus() as bus:
            child_was_heard = asyncio.Event()
            bus.subscribe("/A/Root", on_root)
            bus.subscribe("/A/Child", on_child if is_plain else on_child_on_loop)
            for _ in range(2):
                await bus.publish_async("/A/Root")
        return heard

    assert asyncio.run(program()) == ["root", "root"]
