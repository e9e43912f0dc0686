"""From the deliveries of a trace to the tree of causes and effects. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphbus_core.hosting.instruments.traced import Delivery


class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """What one handler did with an event; `caused` are the events that it has published meanwhile."""

    delivery: Delivery
    caused: tuple[Caused, ...] = ()


class Caused(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its deliveries, in the order in which they ended.

    Attributes:
        topic: Empty when the trace holds no delivery of it: it is forgotten, or it had none.
        published: Seconds since the epoch; 0 when it is not known.
    """

    event_id: str
    topic: str
    src: str
    published_by: str
    published: float
    payload: str
    handled: tuple[Handled, ...]
    unplaced: tuple[Caused, ...] = ()


def plant(event_id: str, deliveries: Sequence[Delivery]) -> Caused:
    """Make the tree below an event from all deliveries of its root, oldest first."""
    own: dict[str, list[Delivery]] = {}
    effects: dict[str, list[str]] = {}
    for delivery in deliveries:
        if delivery.event_id not in own and delivery.causation_id:
            effects.setdefault(delivery.causation_id, []).append(delivery.event_id)
        own.setdefault(delivery.event_id, []).append(delivery)
    # leaves first, so that the depth of a tree is not limited by the stack
    order = [event_id]
    for each in order:
        order += effects.get(each, ())
    made: dict[str, Caused] = {}
    for each in reversed(order):
        made[each] = _caused(each, own.get(each, []), [made[effect] for effect in effects.get(each, ())])
    return made[event_id]


def _caused(event_id: str, own: Sequence[Delivery], effects: Sequence[Caused]) -> Caused:
    last = {delivery.handler: index for index, delivery in enumerate(own)}  # the last attempt of each handler
    handled = [
        Handled(
            delivery=delivery,
            caused=tuple(each for each in effects if last.get(each.published_by) == index),
        )
        for index, delivery in enumerate(own)
    ]
    first = own[0] if own else None
    return Caused(
        event_id=event_id,
        topic=first.topic if first else "",
        src=first.src if first else "",
        published_by=first.published_by if first else "",
        published=first.published if first else 0.0,
        payload=first.payload if first else "",
        handled=tuple(handled),
        unplaced=tuple(each for each in effects if each.published_by not in last),
    )
