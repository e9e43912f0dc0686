"""A further attempt: the same event, one handler, the same children."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.middleware import Handling
from tests.fakes.queued_again import deliver_again


def wait_until(condition) -> None:
    for _ in range(500):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_further_attempt_goes_to_one_handler_and_makes_the_same_children(kind: str) -> None:
    log: list[str] = []
    made: list[str] = []

    def again(event: Event) -> None:
        log.append("again")
        bus.publish("/A/Child", {"n": 1})
        bus.publish("/A/Child", {"n": 2})

    async def again_later(event: Event) -> None:
        await asyncio.sleep(0)
        again(event)

    with MessageBus() as bus:
        subscription = bus.subscribe("/A/B", again if kind == "plain" else again_later, name="Agent.again")
        bus.subscribe("/A/B", lambda: log.append("other"))
        bus.subscribe("/A/Child", lambda event: made.append(event.event_id))
        bus.publish("/A/B")
        event = bus.history()[0]
        deliver_again(bus, event, subscription, 2)
        wait_until(lambda: len(made) == 4)
    assert sorted(log) == ["again", "again", "other"]
    assert made[:2] == made[2:]
    assert bus.statistics().subscriptions["Agent.again <- /A/B"].delivered == 2
    assert [each.topic for each in bus.history()] == ["/A/B"] + ["/A/Child"] * 4, "the event itself happened once"


def test_a_further_attempt_for_a_handler_that_is_gone_is_nothing() -> None:
    log: list[int] = []
    with MessageBus() as bus:
        subscription = bus.subscribe("/A/B", lambda: log.append(1))
        bus.publish("/A/B")
        bus.unsubscribe(subscription)
        deliver_again(bus, bus.history()[0], subscription, 2)
    assert log == [1]


def test_middleware_is_told_which_attempt_it_is() -> None:
    attempts: list[int] = []

    def watch(handling: Handling) -> Iterator[None]:
        attempts.append(handling.attempt)
        yield

    with MessageBus(middleware=[watch]) as bus:
        subscription = bus.subscribe("/A/B", lambda: None)
        bus.publish("/A/B")
        deliver_again(bus, bus.history()[0], subscription, 2)
        wait_until(lambda: len(attempts) == 2)
    assert attempts == [1, 2]


def test_inside_a_handler_a_further_attempt_waits_for_its_turn() -> None:
    log: list[str] = []
    bus = MessageBus()

    def first(event: Event) -> None:
        if len(log) < 2:
            deliver_again(bus, event, subscription, 2)
        log.append("first")

    subscription = bus.subscribe("/A/B", first)
    bus.subscribe("/A/B", lambda: log.append("second"))
    bus.publish("/A/B")
    assert log == ["first", "second", "first"]


def test_what_waits_for_a_further_attempt_when_the_bus_is_closed_is_a_dead_letter() -> None:
    bus = MessageBus()
    subscription = bus.subscribe("/A/B", lambda: None, name="Agent.again")

    def stop(event: Event) -> None:
        deliver_again(bus, event, subscription, 2)
        raise KeyboardInterrupt

    bus.subscribe("/A/B", stop)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close(grace_s=0)
    assert [(letter.reason, letter.subscription) for letter in bus.dead_letters()] == [("closed", "Agent.again")]


def test_a_closed_bus_follows_no_further_delivery() -> None:
    with MessageBus() as bus:
        bus.publish("/A/B")
    with pytest.raises(RunError, match="GBE615"):
        bus.hosting.deliver_once_more(bus.history()[0], None)
