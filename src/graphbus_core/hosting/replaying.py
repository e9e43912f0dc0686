"""Dead letters once more: the event of a letter goes again to the subscription that could not handle it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import once_more
from graphbus_core.model.topics import matches
from graphbus_core.receipts import Receipt
from graphbus_core.routing import Subscription


def replay_all(
    bus: MessageBus,
    letters: Iterable[DeadLetter] | None,
    wait: Callable[[Receipt], object],
    one_at_a_time: AbstractContextManager[object],
) -> tuple[DeadLetter, ...]:
    """Replay letters, those of the ring by default; nothing is delivered if the handler of one of them is gone.

    Returns:
        What has died again.

    Raises:
        RunError: What `replay` raises.
    """
    from graphbus_core.hosting.dead_letters import Keeper  # msgspec is not free

    bus.refuse_in_handler()
    died: list[DeadLetter] = []
    with one_at_a_time:
        again = tuple(bus.dead_letters() if letters is None else letters)
        for letter in again:
            find_subscription(bus, letter)
        for letter in again:
            new = replay(bus, letter, wait)
            died += new
            if isinstance(bus.keeper, Keeper):
                bus.keeper.replayed(letter, new)
    return tuple(died)


def replay(bus: MessageBus, letter: DeadLetter, wait: Callable[[Receipt], object]) -> tuple[DeadLetter, ...]:
    """Deliver the event of a letter again, with its ids, and wait for all that comes of it.

    It goes to the subscription that failed, which has all its attempts anew; or to all when it had never reached any. The letter
    leaves the ring of the bus when it is over; what has died again is in there, but does not go to who keeps letters.

    Args:
        wait: Comes back when the receipt is done, or will not be.

    Returns:
        What has died of the event: nothing when it was handled at last.

    Raises:
        RunError: GBE649 for a letter whose handler is gone, GBE615 when the bus is closed before it is handled, GBE648 inside a
            handler.
    """
    subscription = find_subscription(bus, letter)
    event = once_more(letter.event)
    receipt = bus.deliver_once_more(event, subscription)
    wait(receipt)
    died = bus.release_dead_letters(event)
    is_stopped = not receipt.is_done or any(each.reason == "closed" for each in died)
    for each in died if is_stopped else (letter,):
        bus.forget_dead_letter(each)
    if is_stopped:
        raise RunError("GBE615", topic=event.topic)
    return died


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
