"""What two threads do between two lines of each other, and a KeyboardInterrupt where the interpreter lets one in."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from types import FrameType
from typing import Any

import pytest

import graphbus_core.bus
from graphbus_core import Event
from graphbus_core.bus import MessageBus, waiting
from graphbus_core.isolation import attempt_anything
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.fakes.pausing import PATIENCE_S, Pausing, comes_true

FOLDER = os.path.dirname(graphbus_core.bus.__file__) + "/"
INTERRUPTED = (FOLDER, threading.__file__)


def at_each(scenario: Callable[[int], str], *, at_least: int) -> None:
    """Go through a scenario, which gives the place where it has stopped, or nothing when it has no such step."""
    step = 1
    while scenario(step):
        step += 1
    assert step > at_least


class Interrupting:
    """Raises KeyboardInterrupt at the n-th call of a function: that is where the interpreter looks for signals."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.place = ""

    def trace(self, frame: FrameType, _what: str, _value: object) -> Callable[..., Any] | None:
        """To be given to `sys.settrace` on the thread."""
        if frame.f_code.co_filename.startswith(INTERRUPTED):
            self._left -= 1
            if self._left == 0:
                self.place = frame.f_code.co_qualname
                raise KeyboardInterrupt
        return None


def test_of_two_threads_that_close_a_bus_at_once_one_does() -> None:
    def scenario(step: int) -> str:
        bus, pausing, closed, raised = MessageBus(), Pausing(FOLDER, step, "line"), list[str](), list[object]()

        def close() -> None:
            raised.append(attempt_anything(lambda: bus.close(last=lambda: closed.append("closed"))))

        one = pausing.thread(close)
        comes_true(lambda: pausing.is_there.is_set() or not one.is_alive())
        other = threading.Thread(target=close, daemon=True)
        other.start()
        comes_true(lambda: not other.is_alive(), 0.01)
        pausing.go_on()
        for each in (one, other):
            each.join(PATIENCE_S)
            assert not each.is_alive(), pausing.place
        assert (raised, closed) == ([None, None], ["closed"]), pausing.place
        return pausing.place

    at_each(scenario, at_least=20)


def test_the_grace_may_end_while_somebody_looks_whether_it_has() -> None:
    def scenario(step: int) -> str:
        with MessageBus() as bus:
            bus._sync.deadline = time.monotonic() + PATIENCE_S
            pausing, raised = Pausing(FOLDER, step), list[object]()
            looking = pausing.thread(lambda: raised.append(attempt_anything(bus._sync.is_late)))
            comes_true(lambda: pausing.is_there.is_set() or not looking.is_alive())
            bus._sync.deadline = None  # as `close` does when all is delivered
            pausing.go_on()
            looking.join(PATIENCE_S)
            assert raised == [None], pausing.place
        return pausing.place

    at_each(scenario, at_least=5)


def test_of_two_who_settle_one_gets_the_error_and_the_other_goes_on_waiting() -> None:
    def fails() -> None:
        raise ValueError("not yet")

    def scenario(step: int) -> str:
        with MessageBus(on_error="raise") as bus:
            bus.subscribe("/A/B", fails, policy=DeliveryPolicy(retries=1, backoff_s=3600))
            bus.publish("/A/B")  # tried again in an hour: there is no rest
            bus._sync.late_error = ValueError("of another attempt")
            pausing, ends = Pausing(FOLDER, step, "line"), list[str]()

            def settle() -> None:
                error = attempt_anything(lambda: ends.append(f"rest: {bus.settle(0.005)}"))
                ends.extend([] if error is None else [type(error).__name__])

            one = pausing.thread(settle)
            comes_true(lambda: pausing.is_there.is_set() or not one.is_alive())
            settle()
            pausing.go_on()
            one.join(PATIENCE_S)
            assert sorted(ends) == ["ValueError", "rest: False"], pausing.place
            bus.close(grace_s=0)
        return pausing.place

    at_each(scenario, at_least=20)


@pytest.mark.slow
def test_threads_that_an_async_handler_has_started_publish_events_of_different_ids() -> None:
    def scenario(step: int) -> str:
        pausing = Pausing(FOLDER, step, "line")

        async def on_root() -> None:
            def publish() -> Callable[[], object]:
                context = copy_context()
                return lambda: context.run(bus.publish, "/A/Child")

            one, other = pausing.thread(publish()), threading.Thread(target=publish(), daemon=True)
            comes_true(lambda: pausing.is_there.is_set() or not one.is_alive())
            other.start()
            other.join(0.05)
            pausing.go_on()
            for each in (one, other):
                each.join(PATIENCE_S)

        async def on_warm() -> None:
            """Nothing to do."""

        async def program() -> None:
            async with bus:
                bus.subscribe("/A/Warm", on_warm, owner="Agent")
                bus.subscribe("/A/Root", on_root, owner="Agent")
                await bus.publish_async("/A/Warm")  # now the lane is there
                await bus.publish_async("/A/Root")

        bus = MessageBus()
        asyncio.run(program())
        children = [each.event_id for each in bus.history() if each.topic == "/A/Child"]
        assert len(children) == len(set(children)) == 2, pausing.place
        return pausing.place

    at_each(scenario, at_least=20)


@pytest.mark.parametrize("interrupted", ["publishes", "settles"])
def test_nobody_waits_for_ever_when_somebody_is_interrupted_anywhere(
    interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_LOOK_AGAIN_S", 0.02, raising=False)

    def scenario(number: int) -> str:
        bus, interrupting = MessageBus(), Interrupting(number)
        may_end: list[bool] = []
        bus.subscribe("/A/B", lambda: comes_true(lambda: may_end))
        waits = threading.Thread(target=bus.settle, daemon=True)

        def work() -> None:
            sys.settrace(interrupting.trace)
            try:
                bus.publish("/A/B") if interrupted == "publishes" else bus.settle()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)

        first = threading.Thread(target=lambda: bus.publish("/A/B"), daemon=True)
        if interrupted == "settles":
            first.start()
            comes_true(lambda: bus._core.round.event is not None)
        works = threading.Thread(target=work, daemon=True)
        works.start()
        comes_true(lambda: bus._core.round.event is not None or not works.is_alive())
        waits.start()
        comes_true(lambda: bus._notifier.waiting or not waits.is_alive())
        may_end.append(True)
        for each in (works, waits, *([first] if interrupted == "settles" else [])):
            each.join(PATIENCE_S)
            assert not each.is_alive(), interrupting.place
        assert not bus._notifier.waiting, interrupting.place
        ended = threading.Thread(target=lambda: (bus.publish("/A/B"), bus.close()), daemon=True)
        ended.start()
        ended.join(PATIENCE_S)
        assert not ended.is_alive(), interrupting.place
        return interrupting.place

    at_each(scenario, at_least=5)


@pytest.mark.parametrize("way", ["for all", "for one", "published"])
def test_whoever_is_interrupted_anywhere_nothing_comes_twice_and_the_next_one_delivers(way: str) -> None:
    def scenario(number: int) -> str:
        bus, interrupting, heard = MessageBus(), Interrupting(number), list[str]()
        first = bus.subscribe("/A/B", lambda event: heard.append(f"first {event['n']}"))
        bus.subscribe("/A/B", lambda event: heard.append(f"second {event['n']}"))
        if way != "published":
            again = first if way == "for one" else None
            bus._core.queue.append(bus._sync.queue_entry(Event("/A/B", {"n": 1}), again))

        def work() -> None:
            sys.settrace(interrupting.trace)
            try:
                bus.publish("/A/B", {"n": 1}) if way == "published" else bus.settle()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)

        works = threading.Thread(target=work, daemon=True)
        works.start()
        works.join(PATIENCE_S)
        next_one = threading.Thread(target=lambda: (bus.publish("/A/B", {"n": 2}), bus.close()), daemon=True)
        next_one.start()
        next_one.join(PATIENCE_S)
        assert not next_one.is_alive(), interrupting.place
        assert heard[-2:] == ["first 2", "second 2"], interrupting.place
        wanted = ["first 1"] if way == "for one" else ["first 1", "second 1"]
        is_before = way == "published" and not heard[:-2]  # the interruption came before the event
        assert heard[:-2] == ([] if is_before else wanted), interrupting.place
        assert not bus.dead_letters(), interrupting.place
        return interrupting.place

    at_each(scenario, at_least=5)


def test_an_agent_is_free_again_when_who_publishes_and_awaits_is_interrupted_before_its_handler() -> None:
    heard: list[str] = []

    def interrupt(frame: FrameType, _what: str, _value: object) -> None:
        if frame.f_code.co_qualname == "LoopDriver.begin_alone" and not heard[1:]:
            heard.append("interrupted")
            raise KeyboardInterrupt

    async def program() -> None:
        async with MessageBus() as bus:

            async def on_event() -> None:
                heard.append("heard")

            bus.subscribe("/A/B", on_event)
            await bus.publish_async("/A/B")  # now the lane is there
            is_over: list[bool] = []
            waits = threading.Thread(target=bus._notifier.wait, args=(lambda: is_over,), daemon=True)
            waits.start()
            comes_true(lambda: bus._notifier.waiting)
            before = sys.gettrace()
            sys.settrace(interrupt)
            try:
                await bus.publish_async("/A/B")
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
                is_over.append(True)
                bus._notifier.notify()
                waits.join(PATIENCE_S)
            await asyncio.wait_for(bus.publish_async("/A/B"), PATIENCE_S)
            assert bus._sync.is_quiet()

    asyncio.run(program())
    assert heard == ["heard", "interrupted", "heard"]
