"""Dead letters once more: the event of a letter goes again to the subscription that could not handle it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import Subscription
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event, once_more
from graphbus_core.model.topics import matches

_MOST_WAITING = 1000
"""So many letters may wait for further attempts before another one is delivered."""


class Waits(Protocol):
    """Who can wait for a receipt, e.g. a graph."""

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until it is done, or until nothing is left to do but further attempts; False when it will not be."""


class Replays:
    """The letters that are being delivered once more.

    One is delivered after the other, each with all that comes of it, but nobody waits for the further attempts of one before the
    next is delivered.
    """

    def __init__(self, bus: MessageBus, waits: Waits) -> None:
        self._bus = bus
        self._waits = waits
        self._running: list[tuple[DeadLetter, Event, Receipt]] = []

    def deliver(self, letter: DeadLetter) -> None:
        """Deliver the event of a letter again, with its ids.

        It goes to the subscription that failed, which has all its attempts anew; or to all when it had never reached any.

        Raises:
            RunError: GBE649 for a letter whose handler is gone, GBE615 on a closed bus, GBE648 inside a handler.
        """
        subscription = find_subscription(self._bus, letter)
        event = once_more(letter.event)
        receipt = self._bus.deliver_once_more(event, subscription)
        self._running.append((letter, event, receipt))
        self._waits.wait_for(receipt, is_rest_enough=len(self._running) < _MOST_WAITING)

    def wait(self) -> None:
        """Wait for all that has begun, as long as the bus is there to do it."""
        for _, _, receipt in self._running:
            if not self._waits.wait_for(receipt):
                return

    def finished(self) -> list[tuple[DeadLetter, tuple[DeadLetter, ...]]]:
        """Give what has come to its end since: each letter, and what has died of its event; nothing when it was handled at last.

        Such a letter leaves the ring of the bus. What has died again is in there, but did not go to who keeps letters. A letter
        whose event was not handled before the bus was closed is not among them.
        """
        running, self._running = self._running, []
        found = []
        for letter, event, receipt in running:
            if not receipt.is_done:
                self._running.append((letter, event, receipt))
                continue
            died = self._bus.release_dead_letters(event)
            is_stopped = any(each.reason == "closed" for each in died)
            for each in died if is_stopped else (letter,):
                self._bus.forget_dead_letter(each)
            if not is_stopped:
                found.append((letter, died))
        return found


def replay_all(
    bus: MessageBus,
    letters: Iterable[DeadLetter] | None,
    waits: Waits,
    one_at_a_time: AbstractContextManager[object],
) -> tuple[DeadLetter, ...]:
    """Replay letters, those of the ring by default; nothing is delivered if the handler of one of them is gone.

    Returns:
        What has died again.

    Raises:
        RunError: What `Replays.deliver` raises, and GBE615 when the bus is closed before all have come to their end.
    """
    from graphbus_core.hosting.dead_letters import Keeper  # msgspec is not free

    bus.refuse_in_handler()
    replays, died = Replays(bus, waits), dict[int, tuple[DeadLetter, ...]]()

    def note() -> None:
        for letter, new in replays.finished():
            died[id(letter)] = new
            if isinstance(bus.keeper, Keeper):
                bus.keeper.replayed(letter, new)

    with one_at_a_time:
        again = tuple(bus.dead_letters() if letters is None else letters)
        for letter in again:
            find_subscription(bus, letter)
        for letter in again:
            replays.deliver(letter)
            note()
        replays.wait()
        note()
    unfinished = [letter for letter in again if id(letter) not in died]
    if unfinished:
        raise RunError("GBE615", topic=unfinished[0].event.topic)
    return tuple(dead for letter in again for dead in died[id(letter)])


def find_subscription(bus: MessageBus, letter: DeadLetter) -> Subscription | None:
    """Give the subscription that a letter is for; None when it is for all.

    Raises:
        RunError: GBE649 when it is not there any more.
    """
    if not letter.subscription:
        return None
    topic = letter.event.topic
    for each in bus.subscriptions:
        if each.name == letter.subscription and matches(each.topic, topic):
            return each
    raise RunError("GBE649", subscription=letter.subscription, topic=topic)
