"""From the deliveries of a trace to the tree of causes and effects. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.hosting.instruments.trace import Delivery

SHORT = 8
"""How many digits of an id are shown."""

_CANDIDATES = 6


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


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One event from outside, with its effects as far as the trace still holds them.

    Attributes:
        topic: That of the root; empty if its own deliveries are forgotten or it had none.
        published: When the root, or else the first event of its tree, was published.
        busy_s: The durations of all handlers together.
    """

    event_id: str
    topic: str
    src: str
    published: float
    events: int
    deliveries: int
    failed: int
    busy_s: float


def roots(deliveries: Sequence[Delivery], limit: int = 0) -> list[Root]:
    """Give the last roots, that with the last delivery first; 0: all."""
    trees: dict[str, list[Delivery]] = {}
    for each in deliveries:
        tree = trees.pop(each.correlation_id, [])
        tree.append(each)
        trees[each.correlation_id] = tree  # the keys are in the order of their last deliveries
    last = list(reversed(trees))
    return [_root(event_id, trees[event_id]) for event_id in (last[:limit] if limit else last)]


def _root(event_id: str, tree: Sequence[Delivery]) -> Root:
    own = [each for each in tree if each.event_id == event_id]
    return Root(
        event_id=event_id,
        topic=own[0].topic if own else "",
        src=own[0].src if own else "",
        published=min(each.published for each in tree),
        events=len({each.event_id for each in tree}),
        deliveries=len(tree),
        failed=sum(each.outcome != "done" for each in tree),
        busy_s=sum(each.duration_s for each in tree),
    )


class Found(NamedTuple):
    """An event of a trace, and the deliveries of its root."""

    event_id: str
    root: str
    deliveries: list[Delivery]

    @property
    def tree(self) -> Caused:
        """What the root has caused."""
        return plant(self.root, self.deliveries)


def find(deliveries: Sequence[Delivery], word: str) -> Found:
    """Find an event by its id, by the beginning of its id, or as the `last` one from outside.

    Raises:
        RunError: GBE685 when there is none, GBE686 when there are several.
    """
    word = deliveries[-1].correlation_id if word == "last" and deliveries else word.lower()
    root_of: dict[str, str] = {}
    for each in reversed(deliveries):
        for event_id in (each.event_id, each.causation_id or each.event_id, each.correlation_id):
            root_of.setdefault(event_id, each.correlation_id)
    matching = [event_id for event_id in root_of if event_id.startswith(word)]
    if not matching:
        near = did_you_mean(word, [event_id[: max(len(word), SHORT)] for event_id in islice(root_of, 1000)])
        raise RunError("GBE685", event_id=word, suggestion=near)
    if len(matching) > 1:
        known = ", ".join(event_id[:SHORT] for event_id in matching[:_CANDIDATES])
        raise RunError("GBE686", count=len(matching), event_id=word, known=known)
    root = root_of[matching[0]]
    return Found(matching[0], root, [each for each in deliveries if each.correlation_id == root])
