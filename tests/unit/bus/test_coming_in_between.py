"""One thread of a bus stops before each of its steps in turn, and others come in between: nothing is lost, all come to an end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

import graphbus_core.bus
from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.clock import SystemClock, Timer
from graphbus_core.isolation import attempt_anything
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.fakes.pausing import PATIENCE_S, Pausing, comes_true

FOLDER = os.path.dirname(graphbus_core.bus.__file__) + "/"
A_MOMENT_S = 0.02
EVERY = 17
"""Which steps are tried; 1 for all of them, which takes four minutes."""


class Graph:
    """A bus with a plain and an async agent, and what can be done with it from outside."""

    def __init__(self, *, has_loop: bool) -> None:
        self.bus = bus = MessageBus()
        self.heard: list[str] = []
        self.errors: list[BaseException] = []
        bus.subscribe("/A/Plain", lambda: self.heard.append("plain"), owner="Plain")
        bus.subscribe("/A/Ask", lambda: "answer", owner="Plain")
        self._call = bus.caller(lambda _nothing: self.heard.append("called"), owner="Plain")
        if has_loop:
            bus.subscribe("/A/Both", lambda: self.heard.append("both, plain"), owner="Plain")
            bus.subscribe("/A/Both", self._on_both, owner="Async")
            bus.subscribe("/A/Async", self._on_async, owner="Async")
            bus.subscribe("/A/Chain", self._on_chain, owner="Async")
            bus.publish("/A/Async")  # now there is a loop
        self.heard.clear()

    async def _on_both(self) -> None:
        await asyncio.sleep(0)
        self.heard.append("both, async")

    async def _on_async(self) -> None:
        self.heard.append("async")

    async def _on_chain(self) -> None:
        self.bus.publish("/A/Plain")
        answer = await self.bus.request("/A/Ask", timeout_s=PATIENCE_S)
        self.heard.append(answer)

    def do(self, what: str) -> None:
        """Do it, and note what it raises."""
        error = attempt_anything(getattr(self, f"_{what}"))
        if error is not None:
            self.errors.append(error)

    def _publishes_plain(self) -> None:
        self.bus.publish("/A/Plain")

    def _publishes_async(self) -> None:
        self.bus.publish("/A/Async")

    def _publishes_both(self) -> None:
        self.bus.publish("/A/Both")

    def _publishes_chain(self) -> None:
        self.bus.publish("/A/Chain")

    def _calls(self) -> None:
        self._call(None)

    def _asks(self) -> None:
        self.heard.append(self.bus.request("/A/Ask", timeout_s=PATIENCE_S))

    def _settles(self) -> None:
        assert self.bus.settle(PATIENCE_S)

    def _queues(self) -> None:
        self.bus.deliver_again(Event("/A/Plain"), None)


EXPECTED = {
    "publishes_plain": ["plain"],
    "publishes_async": ["async"],
    "publishes_both": ["both, plain", "both, async"],
    "publishes_chain": ["plain", "answer"],
    "calls": ["called"],
    "asks": ["answer"],
    "settles": [],
    "queues": ["plain"],
}
PLAIN = ["publishes_plain", "calls", "asks", "settles", "queues"]
ON_LOOP = ["publishes_async", "publishes_both", "publishes_chain"]


def state_of(bus: MessageBus) -> str:
    """What tells why somebody waits."""
    under_way = [] if bus._lanes is None else bus._lanes.now_under_way()
    return (
        f"queue {list(bus._queue)}, errands {len(bus._errands)}, right {bus._right_to_drain.present}, event {bus._event}, "
        f"under way {[each.name for each in under_way]}, waiting {bus._bell.waiting}"
    )


def at_each_step(scenario: Callable[[int], str], *, every: int = EVERY, begin: int = 1) -> None:
    """Go through a scenario, which gives the place where it has stopped, or nothing when it has no such step."""
    step = begin
    while scenario(step):
        step += every
    assert step > 20


def ends(thread: threading.Thread, bus: MessageBus, place: str) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"{place}: {state_of(bus)}"


def come_in_between(first: str, then: str, step: int) -> str:
    """Stop the first at a step, let the other do what it can, and go on; give the place, or nothing when there is none left."""
    graph = Graph(has_loop=first in ON_LOOP or then in ON_LOOP)
    bus, pausing = graph.bus, Pausing(FOLDER, step)
    one = pausing.thread(lambda: graph.do(first))
    comes_true(lambda: pausing.is_there.is_set() or not one.is_alive())
    other = threading.Thread(target=lambda: graph.do(then), daemon=True)
    other.start()
    comes_true(lambda: not other.is_alive() or bus._bell.waiting, A_MOMENT_S)
    pausing.go_on()
    for each in (one, other):
        ends(each, bus, pausing.place)
    assert comes_true(bus._is_quiet), f"{pausing.place}: {state_of(bus)}"
    assert graph.errors == [], pausing.place
    assert sorted(graph.heard) == sorted([*EXPECTED[first], *EXPECTED[then]]), pausing.place
    bus.close()
    return pausing.place


@pytest.mark.slow
@pytest.mark.parametrize("then", EXPECTED)
@pytest.mark.parametrize("first", EXPECTED)
def test_whoever_comes_in_between_finds_everything_in_order(first: str, then: str) -> None:
    begin = 1 + hash_of(first, then) % EVERY  # other steps in each of the tests
    at_each_step(lambda step: come_in_between(first, then, step), begin=begin)


def hash_of(first: str, then: str) -> int:
    names = list(EXPECTED)
    return 5 * names.index(first) + names.index(then)


@pytest.mark.slow
def test_who_settles_is_not_told_of_the_end_while_an_event_goes_to_the_loop() -> None:
    """A `def` handler has the event; then it goes to an async handler, and for a moment the queue is empty and so is the loop."""

    def scenario(step: int) -> str:
        is_in, may_go, is_begun, may_end, has_ended = (threading.Event() for _ in range(5))
        seen: list[bool] = []

        def first() -> None:
            is_in.set()
            may_go.wait(PATIENCE_S)

        async def then() -> None:
            is_begun.set()
            for _ in iter(may_end.is_set, True):
                await asyncio.sleep(0.0005)
            has_ended.set()

        with MessageBus() as bus:
            bus.subscribe("/A/B", first)
            bus.subscribe("/A/B", then)
            publisher = threading.Thread(target=bus.publish, args=("/A/B",), daemon=True)
            publisher.start()
            assert is_in.wait(PATIENCE_S)
            pausing = Pausing(FOLDER, step)
            settling = pausing.thread(lambda: seen.append(bus.settle(PATIENCE_S) and has_ended.is_set()))
            comes_true(lambda: pausing.is_there.is_set() or bus._bell.waiting)
            may_go.set()
            assert is_begun.wait(PATIENCE_S)
            comes_true(lambda: bus._right_to_drain.is_free, A_MOMENT_S)
            pausing.go_on()
            comes_true(lambda: not settling.is_alive() or len(bus._bell.waiting) == 2, A_MOMENT_S)
            may_end.set()
            for each in (settling, publisher):
                ends(each, bus, pausing.place)
        assert seen == [True], pausing.place
        return pausing.place

    at_each_step(scenario, every=2)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["settles", "closes"])
def test_an_attempt_that_falls_due_meanwhile_is_not_overlooked_by_who(way: str) -> None:
    def scenario(step: int) -> str:
        is_in, may_end, has_ended = (threading.Event() for _ in range(3))
        seen: list[bool] = []

        def flaky() -> None:
            if not is_second:
                raise ValueError("not yet")
            is_in.set()
            may_end.wait(PATIENCE_S)
            has_ended.set()

        def waits() -> None:
            if way == "settles":
                bus.settle()
            else:
                bus.close()
            seen.append(has_ended.is_set())

        is_second = False
        clock = SlowClock()
        bus = MessageBus(clock=clock)
        bus.subscribe("/A/B", flaky, policy=DeliveryPolicy(retries=1, backoff_s=0.001))
        bus.publish("/A/B")
        pausing = Pausing(FOLDER, step)
        is_second = True
        waiting = pausing.thread(waits)
        comes_true(lambda: pausing.is_there.is_set() or bus._bell.waiting)
        falling_due = threading.Thread(target=clock.fall_due, daemon=True)
        falling_due.start()
        comes_true(is_in.is_set, A_MOMENT_S)
        pausing.go_on()
        comes_true(lambda: not waiting.is_alive(), 0.003)
        may_end.set()
        ends(waiting, bus, pausing.place)
        assert seen == [True], pausing.place
        ends(falling_due, bus, pausing.place)
        bus.close()
        clock.close()
        return pausing.place

    at_each_step(scenario, every=4)


@pytest.mark.slow
def test_who_settles_gets_the_error_of_a_further_attempt_wherever_that_one_is() -> None:
    def fails() -> None:
        raise ValueError("never")

    def scenario(step: int) -> str:
        clock = SlowClock()
        bus = MessageBus(clock=clock, on_error="raise")
        bus.subscribe("/A/B", fails, policy=DeliveryPolicy(retries=1, backoff_s=0.001))
        bus.publish("/A/B")
        pausing, raised = Pausing(FOLDER, step), list[BaseException | None]()
        falling_due = pausing.thread(lambda: attempt_anything(clock.fall_due))
        comes_true(lambda: pausing.is_there.is_set() or not falling_due.is_alive())
        settling = threading.Thread(target=lambda: raised.append(attempt_anything(bus.settle)), daemon=True)
        settling.start()
        comes_true(lambda: not settling.is_alive() or bus._bell.waiting, A_MOMENT_S)
        pausing.go_on()
        for each in (settling, falling_due):
            ends(each, bus, pausing.place)
        assert [type(each) for each in raised] == [ValueError], pausing.place
        bus.close()
        clock.close()
        return pausing.place

    at_each_step(scenario, every=3)


@pytest.mark.slow
def test_of_two_who_settle_one_gets_what_an_async_handler_has_raised() -> None:
    def scenario(step: int) -> str:
        may_end = threading.Event()

        async def leaves() -> None:
            for _ in iter(may_end.is_set, True):
                await asyncio.sleep(0.0005)
            raise SystemExit(3)

        def settles() -> None:
            raised.append(attempt_anything(lambda: seen.append(bus.settle(PATIENCE_S))))

        bus, pausing = MessageBus(), Pausing(FOLDER, step)
        raised, seen = list[BaseException | None](), list[bool]()
        bus.subscribe("/A/B", leaves)
        bus.deliver_again(Event("/A/B"), None)
        comes_true(lambda: bus._lanes is not None and bus._lanes.under_way)
        one = pausing.thread(settles)
        comes_true(lambda: pausing.is_there.is_set() or bus._bell.waiting)
        other = threading.Thread(target=settles, daemon=True)
        other.start()
        comes_true(lambda: bus._bell.waiting, A_MOMENT_S)
        may_end.set()
        other.join(A_MOMENT_S)
        pausing.go_on()
        for each in (one, other):
            ends(each, bus, pausing.place)
        assert sorted(type(each).__name__ for each in raised) == ["NoneType", "SystemExit"], pausing.place
        assert seen == [True], pausing.place
        bus.close()
        return pausing.place

    at_each_step(scenario, every=3)


@pytest.mark.slow
def test_who_closes_delivers_at_once_what_a_dispatcher_that_was_ended_has_left() -> None:
    def leaves() -> None:
        raise SystemExit(3)

    def scenario(step: int) -> str:
        bus, pausing, heard = MessageBus(), Pausing(FOLDER, step), list[str]()
        is_in, may_leave = threading.Event(), threading.Event()
        bus.subscribe("/A/B", lambda: (is_in.set(), may_leave.wait(PATIENCE_S), leaves()))
        bus.subscribe("/A/C", lambda: heard.append("c"))
        bus._queue.extend([Event("/A/B"), Event("/A/C")])
        before = threading.gettrace()
        threading.settrace(pausing.trace)
        try:
            bus.start_dispatcher()
        finally:
            threading.settrace(before)  # type: ignore[arg-type]
        comes_true(lambda: pausing.is_there.is_set() or is_in.is_set())
        may_leave.set()
        comes_true(lambda: pausing.is_there.is_set() or bus.is_dispatcher_lost)
        raised: list[BaseException | None] = []
        closing = threading.Thread(target=lambda: raised.append(attempt_anything(bus.close)), daemon=True)
        closing.start()
        comes_true(lambda: bus._bell.waiting, A_MOMENT_S)
        pausing.go_on()
        closing.join(PATIENCE_S / 2)  # well within the grace
        assert not closing.is_alive(), f"{pausing.place}: {state_of(bus)}"
        assert heard == ["c"], pausing.place
        return pausing.place

    at_each_step(scenario, every=3)


class SlowClock(SystemClock):
    """Lets fall due when it is told to."""

    def after(self, delay_s: float, work: Callable[[], None]) -> Timer:
        """Keep the work."""
        self._work = work
        return super().after(3600, work)

    def fall_due(self) -> None:
        """Do it, on this thread."""
        self._work()


def test_who_publishes_and_awaits_leaves_nothing_behind_that_another_thread_has_queued() -> None:
    def scenario(step: int) -> str:
        pausing = Pausing(FOLDER, step)
        heard = threading.Event()
        asyncio.run(publish_and_await(pausing, heard))
        return pausing.place

    at_each_step(scenario, every=1)


async def publish_and_await(pausing: Pausing, heard: threading.Event) -> None:
    async with MessageBus() as bus:

        async def on_async() -> None:  # waits for what the other thread has published
            deadline = time.monotonic() + PATIENCE_S
            while not heard.is_set():
                assert time.monotonic() < deadline, f"{pausing.place}: {state_of(bus)}"
                await asyncio.sleep(0.0005)

        def other() -> None:
            comes_true(lambda: pausing.is_there.is_set() or has_ended.is_set())
            publisher = threading.Thread(target=bus.publish, args=("/A/Plain",), daemon=True)
            publisher.start()
            comes_true(lambda: not publisher.is_alive() or bus._bell.waiting, A_MOMENT_S)
            pausing.go_on()
            publisher.join(PATIENCE_S)

        bus.subscribe("/A/Async", on_async, owner="Async")
        bus.subscribe("/A/Plain", heard.set, owner="Plain")
        heard.set()
        await bus.publish_async("/A/Async")
        heard.clear()
        has_ended = threading.Event()
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        publishing = asyncio.ensure_future(bus.publish_async("/A/Async"))
        before = sys.gettrace()
        sys.settrace(pausing.trace)
        try:
            await asyncio.sleep(0)
        finally:
            sys.settrace(before)
            has_ended.set()
        await publishing
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{pausing.place}: {state_of(bus)}"
        assert bus.dead_letters() == ()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["publishes_both", "publishes_chain", "asks", "calls", "queues"])
def test_the_loop_leaves_nothing_behind(what: str) -> None:
    def scenario(step: int) -> str:
        graph = Graph(has_loop=True)
        bus, pausing = graph.bus, Pausing(FOLDER, step)
        assert bus._lanes is not None
        bus._lanes.loop.call_soon_threadsafe(sys.settrace, pausing.trace)
        one = threading.Thread(target=lambda: graph.do("publishes_chain"), daemon=True)
        one.start()
        comes_true(lambda: pausing.is_there.is_set() or not one.is_alive())
        other = threading.Thread(target=lambda: graph.do(what), daemon=True)
        other.start()
        comes_true(lambda: not other.is_alive() or len(bus._bell.waiting) > 1, A_MOMENT_S)
        pausing.go_on()
        for each in (one, other):
            ends(each, bus, pausing.place)
        assert comes_true(bus._is_quiet), f"{pausing.place}: {state_of(bus)}"
        assert graph.errors == [], pausing.place
        assert sorted(graph.heard) == sorted([*EXPECTED["publishes_chain"], *EXPECTED[what]]), pausing.place
        bus.close()
        return pausing.place

    at_each_step(scenario, every=2 * EVERY)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["publishes_plain", "publishes_both", "publishes_chain", "asks", "calls", "queues"])
def test_the_dispatcher_leaves_nothing_behind(what: str) -> None:
    def scenario(step: int) -> str:
        graph = Graph(has_loop=True)
        bus, pausing = graph.bus, Pausing(FOLDER, step)
        before = threading.gettrace()
        threading.settrace(pausing.trace)
        try:
            bus.start_dispatcher()
        finally:
            threading.settrace(before)  # type: ignore[arg-type]
        other = threading.Thread(target=lambda: graph.do(what), daemon=True)
        other.start()

        def is_heard() -> bool:
            return len(graph.heard) == len(EXPECTED[what])

        comes_true(lambda: pausing.is_there.is_set() or is_heard())
        other.join(A_MOMENT_S)
        pausing.go_on()
        ends(other, bus, pausing.place)
        assert comes_true(is_heard), f"{pausing.place}: {state_of(bus)}"
        assert graph.errors == [], pausing.place
        bus.close()
        return pausing.place

    at_each_step(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("dispatcher", [False, True], ids=["the caller drains", "a dispatcher drains"])
@pytest.mark.parametrize("who", ["closer", "drainer", "loop"])
def test_who_closes_is_told_when_the_last_handler_has_ended(who: str, dispatcher: bool) -> None:
    """The grace is long, and the end comes long before it is over, wherever one of the threads stops for a moment."""

    def scenario(step: int) -> str:
        graph, pausing = Graph(has_loop=True), Pausing(FOLDER, step)
        bus, is_in, may_end = graph.bus, threading.Event(), threading.Event()
        refused: list[BaseException | None] = []
        bus.subscribe("/A/Slow", lambda: (is_in.set(), may_end.wait(PATIENCE_S), bus.publish("/A/Both")))
        before = threading.gettrace()
        if who == "drainer":
            threading.settrace(pausing.trace)
        try:
            if dispatcher:
                bus.start_dispatcher()
            publishing = threading.Thread(
                target=lambda: refused.append(attempt_anything(lambda: bus.publish("/A/Slow"))), daemon=True
            )
            publishing.start()
        finally:
            threading.settrace(before)  # type: ignore[arg-type]
        if who == "loop":
            assert bus._lanes is not None
            bus._lanes.loop.call_soon_threadsafe(sys.settrace, pausing.trace)
        comes_true(lambda: is_in.is_set() or pausing.is_there.is_set())

        def closes() -> None:
            bus.close(grace_s=4 * PATIENCE_S)

        closing = pausing.thread(closes) if who == "closer" else threading.Thread(target=closes, daemon=True)
        if who != "closer":
            closing.start()
        comes_true(lambda: pausing.is_there.is_set() or bus._bell.waiting, A_MOMENT_S)
        may_end.set()
        comes_true(lambda: pausing.is_there.is_set() or not closing.is_alive())
        closing.join(A_MOMENT_S)
        pausing.go_on()
        for each in (closing, publishing):
            ends(each, bus, pausing.place)
        kept = [letter.event.topic for letter in bus.dead_letters()]
        # Admitted just before, it may come when the bus is being closed, or is: then it, or what comes of it, is kept.
        is_late = who == "drainer" and (refused != [None] or kept in (["/A/Slow"], ["/A/Both"]))
        assert kept == [] or is_late, f"{pausing.place}: {kept}"
        assert sorted(graph.heard) == sorted([] if is_late else EXPECTED["publishes_both"]), (
            f"{pausing.place}: {refused}"
        )
        return pausing.place

    at_each_step(scenario)
