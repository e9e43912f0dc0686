"""Dead letters once more: the event of a letter goes again to the subscription that could not handle it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import matches
from graphbus_core.routing import Subscription


def replay(bus: MessageBus, letters: Sequence[DeadLetter]) -> Iterator[tuple[DeadLetter, tuple[DeadLetter, ...]]]:
    """Deliver the event of each letter again, with its ids: one after the other, each with all that comes of it.

    It goes to the subscription that failed, which has all its attempts anew; or to all when it had never reached any.

    Yields:
        The letter, and what has died of its event meanwhile: nothing when it was handled at last.

    Raises:
        RunError: GBE648 inside of a handler. GBE649 for a letter whose handler is gone; nothing is delivered for it, and the
            iteration has ended.
    """
    bus.settle(0)  # in a handler it is refused, before anything is delivered
    for letter in letters:
        subscription = find_subscription(bus, letter)
        with _collecting(bus, letter.event) as died:
            bus.run(lambda letter=letter, subscription=subscription: bus.deliver_again(letter.event, subscription))  # type: ignore[misc]
            bus.settle()
        yield letter, tuple(died)


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


@contextmanager
def _collecting(bus: MessageBus, event: Event) -> Iterator[list[DeadLetter]]:
    """Collect what dies of one event; what dies of others goes to who keeps them."""
    died: list[DeadLetter] = []
    keeper = bus.keeper

    def collect(letter: DeadLetter) -> None:
        if letter.event is event:
            died.append(letter)
        elif keeper is not None:
            keeper(letter)

    bus.keeper = collect
    is_done = False
    try:
        yield died
        is_done = True
    finally:
        if is_done:  # else the graph is being stopped: what dies of the event then is in the letter that is replayed
            bus.keeper = keeper
