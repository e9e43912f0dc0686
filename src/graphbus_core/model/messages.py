"""Event: what a handler receives. To keep publishing fast, its ids are computed only when they are read."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from threading import Lock
from time import time
from typing import Any

import msgspec

from graphbus_core.model.digests import sha256_hex
from graphbus_core.schema.json import FrozenDict, Json, freeze

_KEPT_ANCESTORS = 50
"""A chain of events keeps at least this many of its last links, and fewer than twice as many, however long it gets."""

_id_lock = Lock()


class _Lineage(msgspec.Struct, eq=False):
    """The causes of an event, and those of its ids that were read. It is a separate object because most events do not need it.

    Attributes:
        hops: The number of events before this one in its causal chain.
        cause: The event whose handler published this one; None for a root, and where a long chain was cut.
        root: The event at the root of the causal tree; None for a root.
        by: The handler that published the event, as `Agent.method`.
        ordinal: The number of events that this handler had published before, for the same cause.
        id: The id of the event; empty until it is read.
        cause_id: The id of the cause; empty until it is known without `cause`.
        descendants: How many events this root has caused, as counted outside of the event loop.
        descendants_on_loop: The same, as counted on the event loop. Each counter has one writer, and needs no lock.
    """

    hops: int = 0
    cause: Event | None = None
    root: Event | None = None
    by: str = ""
    ordinal: int = 0
    id: str = ""
    cause_id: str = ""
    descendants: int = 0
    descendants_on_loop: int = 0


class _Carried(msgspec.Struct, frozen=True, eq=False):
    """The fields of an event, with the payload as it was published. Every further field makes each publish 2 ns slower."""

    topic: str
    payload: Json = None
    src: str = ""
    timestamp: float = msgspec.field(default_factory=time)
    _lineage: _Lineage | None = None  # a root has none until it is needed


_payload = _Carried.__dict__["payload"]
_get_payload = _payload.__get__


class Event(_Carried, frozen=True, eq=False):
    """One immutable message on the bus. It is also a read-only mapping of the fields of its payload.

    Attributes:
        topic: `/Segment/Segment`.
        src: The agent that published it; empty if it was published from outside of the graph.
        timestamp: When it was published, in seconds since the epoch.
    """

    @property  # type: ignore[misc]  # it hides the field of the same name
    def payload(self) -> Json:
        """The payload; its dicts and lists are read-only.

        Raises:
            RunError: GBE612, the payload is not JSON; GBE613, it is too large.
        """
        as_published = _get_payload(self)
        if type(as_published) is FrozenDict:
            return as_published
        frozen = freeze(as_published)  # at the first read, since most payloads are read at most once
        if frozen is not as_published:
            _payload.__set__(self, frozen)
        return frozen

    @property
    def hops(self) -> int:
        """The number of events before this one in its causal chain."""
        lineage = self._lineage
        return 0 if lineage is None else lineage.hops

    @property
    def event_id(self) -> str:
        """The id of the event, 32 hexadecimal digits.

        The id of a root is random. The id of an event from a handler is computed from the id of its cause, the handler, and the
        number of events that the handler had published before. So if the cause is delivered again, this event has the same id.
        """
        lineage = self._lineage
        return (lineage is not None and lineage.id) or _compute_ids(self)

    @property
    def causation_id(self) -> str:
        """The id of the event whose handler published this one; empty for a root."""
        lineage = self._lineage
        if lineage is None:
            return ""
        cause = lineage.cause  # another thread may remove it at any time, but stores its id first
        return lineage.cause_id or ("" if cause is None else cause.event_id)

    @property
    def correlation_id(self) -> str:
        """The id of the event at the root of the causal tree; for a root its own."""
        return self.root.event_id

    @property
    def root(self) -> Event:
        """The event at the root of the causal tree; for a root the event itself."""
        lineage = self._lineage
        return self if lineage is None or (root := lineage.root) is None else root

    @property
    def published_by(self) -> str:
        """The handler that published it, as `Agent.method`; empty if it was not published by a handler."""
        return "" if self._lineage is None else self._lineage.by

    @property
    def trail(self) -> tuple[tuple[str, str], ...]:
        """The last links of the causal chain, oldest first: `(topic of an event, handler that published the next event)`.

        The event itself is not in it. A chain is cut after at least 50 links.
        """
        links: list[tuple[str, str]] = []
        lineage = self._lineage
        while lineage is not None and (cause := lineage.cause) is not None:
            links.append((cause.topic, lineage.by))
            lineage = cause._lineage
        return tuple(reversed(links))

    def __getitem__(self, key: str) -> Json:
        return self.payload[key]

    def get(self, key: str, default: Json = None) -> Json:
        """Return a field of the payload, or the default if there is no such field."""
        return self._fields.get(key, default)

    def keys(self) -> KeysView[str]:
        """Return the names of the payload's fields."""
        return self._fields.keys()

    def values(self) -> ValuesView[Json]:
        """Return the values of the payload's fields."""
        return self._fields.values()

    def items(self) -> ItemsView[str, Json]:
        """Return the payload's fields with their values."""
        return self._fields.items()

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, key: object) -> bool:
        return key in self._fields

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Event({self.topic!r}, {_get_payload(self)!r}, src={self.src!r})"

    @property
    def _fields(self) -> dict[str, Any]:
        """The payload if it is a dict, else an empty dict."""
        payload = self.payload
        return payload if isinstance(payload, dict) else {}


Mapping.register(Event)


def child_of(  # noqa: PLR0917 - every nested publish calls it, and arguments by name cost time
    cause: Event, topic: str, payload: Json, src: str, by: str, ordinal: int, timestamp: float | None = None
) -> Event:
    """Return the event that the handler `by` publishes while it handles `cause`.

    Args:
        cause: The event that is handled.
        topic: The topic to publish on.
        payload: The payload.
        src: The agent with the handler.
        by: The handler, as `Agent.method`.
        ordinal: The number of events that the handler has published before, for the same cause.
        timestamp: Seconds since the epoch; None for now.
    """
    before = cause._lineage
    if before is None:
        hops, root = 1, cause
    else:
        hops, root = before.hops + 1, cause if before.root is None else before.root
    lineage = _Lineage(hops, cause, root, by, ordinal)
    event = Event(topic, payload, src, time() if timestamp is None else timestamp, lineage)
    if hops % _KEPT_ANCESTORS == 0 and hops > _KEPT_ANCESTORS:  # not at each event, since it walks along the chain
        _shorten_chain(cause)
    return event


def restore_event(
    topic: str,
    payload: Json,
    src: str,
    timestamp: float,
    *,
    hops: int,
    event_id: str,
    causation_id: str,
    correlation_id: str,
    trail: Sequence[tuple[str, str]],
) -> Event:
    """Return an event made from stored fields. It has the same ids as before, and so have the events that its handlers publish.

    Args:
        topic: As the other arguments, the attribute of `Event` with the same name.
        trail: As `Event.trail`; older ancestors are not known.
    """
    cause: Event | None = None
    handler = ""
    # stand-ins for the ancestors and the root, of which only topics, handlers and the root's id are known
    for ancestor_topic, by_handler in trail:
        cause = Event(ancestor_topic, None, "", timestamp, _Lineage(cause=cause, by=handler))
        handler = by_handler
    root = None if correlation_id == event_id else Event(topic, None, "", timestamp, _Lineage(id=correlation_id))
    lineage = _Lineage(hops, cause, root, handler, id=event_id, cause_id=causation_id)
    return Event(topic, freeze(payload), src, timestamp, lineage)


def once_more(event: Event) -> Event:
    """Return a copy of an event with the same ids and causes, for a further delivery.

    The events that it causes are counted from zero, so those of the earlier delivery do not use up its limit.
    """
    event_id, cause_id = event.event_id, event.causation_id
    before, root = _lineage_of(event), event.root
    own_root = None if root is event else Event(root.topic, None, "", root.timestamp, _Lineage(id=root.event_id))
    lineage = _Lineage(before.hops, before.cause, own_root, before.by, id=event_id, cause_id=cause_id)
    return Event(event.topic, _get_payload(event), event.src, event.timestamp, lineage)


def count_descendant(child: Event, max_hops: int, *, on_loop: bool = False) -> tuple[int, int]:
    """Count an event that a handler has published; return its hops, and the number of events that its root has caused so far.

    An event with more than `max_hops` is not counted. At any time, only one thread may call this with `on_loop`, and one without.
    """
    lineage = child._lineage or _lineage_of(child)
    root = child if lineage.root is None else lineage.root
    of_root = root._lineage or _lineage_of(root)
    if lineage.hops <= max_hops:
        if on_loop:
            of_root.descendants_on_loop += 1
        else:
            of_root.descendants += 1
    return lineage.hops, of_root.descendants + of_root.descendants_on_loop


def _lineage_of(event: Event) -> _Lineage:
    """Return the lineage of an event. A root gets a lineage at the first call; concurrent calls return the same object."""
    lineage = event._lineage
    if lineage is None:
        with _id_lock:
            lineage = event._lineage
            if lineage is None:
                lineage = _Lineage()
                msgspec.structs.force_setattr(event, "_lineage", lineage)
    return lineage


def _shorten_chain(event: Event) -> None:
    """Remove all but the last `_KEPT_ANCESTORS` links from the causal chain, so that an endless chain does not fill the memory.

    The event at the cut keeps the id of its cause, and its own id is computed first.
    """
    kept = _KEPT_ANCESTORS
    lineage = _lineage_of(event)
    while kept and lineage.cause is not None:
        event = lineage.cause
        lineage = event._lineage or _lineage_of(event)
        kept -= 1
    lineage.cause_id = event.causation_id
    _compute_ids(event)
    lineage.cause = None


def _compute_ids(event: Event) -> str:
    """Compute the missing ids of an event and its causes, the oldest first, and return the id of the event."""
    lineages = [_lineage_of(event)]
    while not lineages[-1].id and not lineages[-1].cause_id and (cause := lineages[-1].cause) is not None:
        lineages.append(_lineage_of(cause))
    with _id_lock:
        for member in reversed(lineages):
            if not member.id:
                member.id = _make_id(member)
    return lineages[0].id


def _make_id(lineage: _Lineage) -> str:
    """Return a random id for a root, else one that follows from the id of the cause, the handler and the ordinal."""
    cause = lineage.cause
    cause_id = lineage.cause_id or ("" if cause is None or cause._lineage is None else cause._lineage.id)
    if not cause_id:
        from os import urandom

        return urandom(16).hex()
    return sha256_hex(f"{cause_id}|{lineage.by}|{lineage.ordinal}".encode())[:32]
