"""What a handler on the loop publishes goes straight into mailboxes if nothing else comes first: the corners of it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable

import pytest

import graphbus_core.bus
from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt_anything
from tests.fakes.pausing import PATIENCE_S, Pausing, comes_true

FOLDER = os.path.dirname(graphbus_core.bus.__file__) + "/"


def run(bus: MessageBus, **handlers: object) -> MessageBus:
    """Publish `/A/First` on a loop of its own and wait for all that comes of it; `first` hears `/A/First`."""

    async def program() -> None:
        async with bus:
            for name, handler in handlers.items():
                bus.subscribe(f"/A/{name.capitalize()}", handler, name=name, owner=name)  # type: ignore[arg-type]
            await bus.publish_async("/A/First")

    asyncio.run(program())
    return bus


def test_a_bus_whose_queue_takes_nothing_makes_dead_letters_of_what_its_handlers_publish() -> None:
    bus = MessageBus(queue=0)

    async def first() -> None:
        bus.publish("/A/Second")

    async def second() -> None:
        """Is never called."""

    run(bus, first=first, second=second)
    assert [(each.reason, each.event.topic) for each in bus.dead_letters()] == [("full", "/A/Second")]


def test_a_payload_that_is_refused_costs_no_number_of_a_child() -> None:
    bus = MessageBus()

    async def first() -> None:
        with pytest.raises(RunError):
            bus.publish("/A/Second", object())
        bus.publish("/A/Second")

    async def second() -> None:
        """Nothing to do."""

    run(bus, first=first, second=second)
    child = bus.history()[1]
    assert child._lineage is not None
    assert (child.topic, child._lineage.ordinal) == ("/A/Second", 0)


def test_every_agent_hears_the_events_of_a_handler_in_one_order_plain_ones_in_between_too() -> None:
    heard: dict[str, list[int]] = {"second": [], "third": []}
    bus = MessageBus(mailbox=2)

    async def first() -> None:
        for n in range(20):
            bus.publish("/A/Second" if n % 5 else "/A/Third", {"n": n})

    async def second(event: Event) -> None:
        await asyncio.sleep(0)
        heard["second"].append(event["n"])

    run(bus, first=first, second=second, third=lambda event: heard["third"].append(event["n"]))
    assert heard == {"second": [n for n in range(20) if n % 5], "third": [0, 5, 10, 15]}
    assert [event["n"] for event in bus.history()[1:]] == list(range(20))


class Working:
    """A bus with an async agent at work, which publishes when it may, pauses at a step of that, and then goes on working."""

    def __init__(self, topic: str, step: int, queue: int = 100_000) -> None:
        self.bus = bus = MessageBus(queue=queue)
        self.pausing = pausing = Pausing(FOLDER, step)
        self.heard: list[str] = []
        self.has_published = threading.Event()
        may_end = asyncio.Event()
        self.may_publish = asyncio.Event()

        async def works() -> None:
            await self.may_publish.wait()
            sys.settrace(pausing.trace)
            bus.publish(topic)
            sys.settrace(None)
            self.has_published.set()
            await may_end.wait()

        async def other() -> None:
            self.heard.append("other")

        async def last() -> None:
            await asyncio.sleep(0.005)
            self.may_publish.set()  # the worker goes on as soon as this has ended, and before anybody who waits for it

        bus.subscribe("/A/Works", works, owner="Works")
        bus.subscribe("/A/Other", other, owner="Other")
        bus.subscribe("/A/Last", last, owner="Last")
        bus.subscribe("/A/Plain", lambda: self.heard.append("plain"), owner="Plain")
        bus.deliver_again(Event("/A/Works"), None)
        assert comes_true(lambda: bus._core.under_way)
        self.end = lambda: self.on_loop(may_end.set)

    def on_loop(self, do: Callable[[], object]) -> None:
        assert self.bus._sync.loop is not None
        self.bus._sync.loop.loop.call_soon_threadsafe(do)

    def is_there(self) -> bool:
        return self.pausing.is_there.is_set() or self.has_published.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["/No/Body", "/A/Other", "/A/Plain"])
def test_who_waits_is_told_wherever_a_handler_on_the_loop_is_in_its_publish(topic: str) -> None:
    """What somebody waits for ends, and before he looks a handler that was at work all the time publishes."""

    def scenario(step: int) -> str:
        working = Working(topic, step)
        waits = threading.Thread(target=working.bus.publish, args=("/A/Last",), daemon=True)
        waits.start()
        comes_true(working.is_there)
        comes_true(lambda: not waits.is_alive(), 0.002)
        working.pausing.go_on()
        waits.join(PATIENCE_S)
        assert not waits.is_alive(), working.pausing.place
        working.end()
        working.bus.close()
        return working.pausing.place

    at_each_third_step(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("queued", ["/A/Other", "/A/Plain"])
@pytest.mark.parametrize("topic", ["/No/Body", "/A/Other", "/A/Plain"])
def test_what_is_queued_while_a_handler_on_the_loop_publishes_is_delivered(topic: str, queued: str) -> None:
    def scenario(step: int) -> str:
        working = Working(topic, step)
        working.on_loop(working.may_publish.set)
        comes_true(working.is_there)
        other = threading.Thread(target=working.bus.publish, args=(queued,), daemon=True)
        other.start()
        comes_true(lambda: not other.is_alive() or working.bus._bell.waiting, 0.002)
        working.pausing.go_on()
        expected = sorted(each.rpartition("/")[2].lower() for each in (topic, queued) if each != "/No/Body")
        assert comes_true(lambda: sorted(working.heard) == expected), f"{working.pausing.place}: {working.heard}"
        other.join(PATIENCE_S)
        assert not other.is_alive(), working.pausing.place
        working.end()
        working.bus.close()
        return working.pausing.place

    at_each_third_step(scenario)


@pytest.mark.slow
def test_what_fills_the_queue_while_a_handler_on_the_loop_publishes_is_delivered_though_that_is_stopped() -> None:
    def scenario(step: int) -> str:
        working = Working("/A/Plain", step, queue=1)
        working.on_loop(working.may_publish.set)
        comes_true(working.is_there)
        refused: list[BaseException | None] = []

        def publish() -> None:
            refused.append(attempt_anything(lambda: working.bus.publish("/A/Other")))

        other = threading.Thread(target=publish, daemon=True)
        other.start()
        comes_true(lambda: not other.is_alive() or working.bus._bell.waiting, 0.002)
        working.pausing.go_on()
        assert comes_true(lambda: "other" in working.heard or any(refused)), working.pausing.place
        other.join(PATIENCE_S)
        assert not other.is_alive(), working.pausing.place
        working.end()
        working.bus.close()
        return working.pausing.place

    at_each_third_step(scenario)


def at_each_third_step(scenario: Callable[[int], str]) -> None:
    step = 1
    while scenario(step):
        step += 3
    assert step > 20
