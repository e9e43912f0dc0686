"""Replays of dead letters: the event of a letter is delivered again to the subscription that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import Subscription
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event, once_more
from graphbus_core.model.topics import matches

Note = Callable[[DeadLetter, tuple[DeadLetter, ...]], None]
"""Gets a letter that was replayed, and the dead letters of its event since; none if it was handled."""

_MOST_WAITING = 1000
"""So many letters may wait for further attempts before another one is delivered."""


class Waits(Protocol):
    """Something that can wait for a receipt, e.g. a graph."""

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until it is done, or until nothing is left to do but further attempts; False when it will not be."""


class Replays:
    """Letters that are being replayed.

    They are delivered one after the other, each with everything that follows from it; only further attempts of one may come
    after the delivery of the next.

    Args:
        bus: Where they are delivered.
        waits: Waits for deliveries.
        note: Is called with each result, in the order in which the deliveries end. The letter has left the ring of the bus then;
            what has died again is in the ring, and was not given to the keeper of the bus.
    """

    def __init__(self, bus: MessageBus, waits: Waits, note: Note) -> None:
        self._bus = bus
        self._waits = waits
        self._note = note
        self._running: list[tuple[DeadLetter, Event, Receipt]] = []

    def deliver(self, letter: DeadLetter) -> None:
        """Deliver the event of a letter again, with its ids.

        It goes to the subscription that failed, with all its attempts anew; or to all when it had never reached any.

        Raises:
            RunError: GBE649 for a letter whose handler is gone, GBE615 on a closed bus, GBE648 inside a handler.
        """
        subscription = find_subscription(self._bus, letter)
        event = once_more(letter.event)
        receipt = self._bus.deliver_once_more(event, subscription)
        self._running.append((letter, event, receipt))
        self._waits.wait_for(receipt, is_rest_enough=len(self._running) < _MOST_WAITING)
        self.note_finished()

    def wait(self) -> None:
        """Wait for all that has begun, as long as the bus is there to do it."""
        for _, _, receipt in list(self._running):
            if not self._waits.wait_for(receipt):
                break
        self.note_finished()

    def note_finished(self) -> None:
        """Note the results since the last time; a letter that was not handled before the bus was closed has none."""
        running, self._running = self._running, []
        for letter, event, receipt in running:
            if not receipt.is_done:
                self._running.append((letter, event, receipt))
                continue
            died = self._bus.release_dead_letters(event)
            is_stopped = any(each.reason == "closed" for each in died)
            for each in died if is_stopped else (letter,):
                self._bus.forget_dead_letter(each)
            if not is_stopped:
                self._note(letter, died)


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
        RunError: What `Replays.deliver` raises, and GBE615 when the bus is closed before all are done.
    """
    from graphbus_core.hosting.dead_letters import Keeper  # msgspec is not free

    bus.refuse_in_handler()
    results: dict[int, tuple[DeadLetter, ...]] = {}

    def note(letter: DeadLetter, died: tuple[DeadLetter, ...]) -> None:
        results[id(letter)] = died
        if isinstance(bus.keeper, Keeper):
            bus.keeper.replayed(letter, died)

    with one_at_a_time:
        again = tuple(bus.dead_letters() if letters is None else letters)
        for letter in again:
            find_subscription(bus, letter)
        replays = Replays(bus, waits, note)
        for letter in again:
            replays.deliver(letter)
        replays.wait()
    unfinished = [letter for letter in again if id(letter) not in results]
    if unfinished:
        raise RunError("GBE615", topic=unfinished[0].event.topic)
    return tuple(dead for letter in again for dead in results[id(letter)])


def find_subscription(bus: MessageBus, letter: DeadLetter) -> Subscription | None:
    """Give the subscription that a letter is for; None when it is for all.

    Raises:
        RunError: GBE649 when it is not there any more.
    """
    topic = letter.event.topic
    found = (each for each in bus.subscriptions if each.name == letter.subscription and matches(each.topic, topic))
    if not letter.subscription:
        return None
    if (subscription := next(found, None)) is None:
        raise RunError("GBE649", subscription=letter.subscription, topic=topic)
    return subscription
