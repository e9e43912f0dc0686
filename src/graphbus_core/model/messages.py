"""Event: what a handler receives. Cheap to make; its ids are computed only when somebody asks for them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from threading import Lock
from time import time
from typing import Any

import msgspec

from graphbus_core.model.digests import sha256_hex
from graphbus_core.schema.json import FrozenDict, Json, freeze

_KEPT_ANCESTORS = 50
"""A chain of events holds on to between one and two times as many of its last links, however long it gets."""

_identifying = Lock()


class _Lineage(msgspec.Struct, eq=False):
    """Where an event comes from, and its ids as far as somebody has asked: what most events never need."""

    hops: int = 0
    cause: Event | None = None
    root: Event | None = None
    by: str = ""
    ordinal: int = 0
    id: str = ""
    cause_id: str = ""
    descendants: int = 0  # counted by whoever delivers in place
    descendants_on_loop: int = 0  # counted on the event loop: each has one writer, and so needs no lock


class _Carried(msgspec.Struct, frozen=True, eq=False):
    """The fields of an event, with the payload as it was handed over. Each field more costs every publish two nanoseconds."""

    topic: str
    payload: Json = None
    src: str = ""
    timestamp: float = msgspec.field(default_factory=time)
    _lineage: _Lineage | None = None  # of a root: made when it is first needed


_payload = _Carried.__dict__["payload"]
_get_payload = _payload.__get__


class Event(_Carried, frozen=True, eq=False):
    """Something that happened. Nobody can change it; it is also a read-only mapping over its payload.

    Attributes:
        topic: `/Segment/Segment`.
        src: The agent that published it; empty from outside of the graph.
        timestamp: Seconds since the epoch, taken when it was published.
    """

    @property  # type: ignore[misc]  # it stands before the field of the same name
    def payload(self) -> Json:
        """The payload; its dicts and lists are read-only.

        Raises:
            RunError: GBE612 or GBE613 for a payload that is not JSON or is too large.
        """
        carried = _get_payload(self)
        if type(carried) is FrozenDict:
            return carried
        frozen = freeze(carried)
        if frozen is not carried:
            _payload.__set__(self, frozen)
        return frozen

    @property
    def hops(self) -> int:
        """How many events came before it in its causal chain."""
        lineage = self._lineage
        return 0 if lineage is None else lineage.hops

    @property
    def event_id(self) -> str:
        """32 hexadecimal digits.

        A root's are random; those of an event that a handler published follow from its cause, the handler and how many the
        handler had published before, so that an event that is delivered again makes the same children.
        """
        lineage = self._lineage
        return (lineage is not None and lineage.id) or _identify(self)

    @property
    def causation_id(self) -> str:
        """The id of the event whose handler published this one; empty for a root."""
        lineage = self._lineage
        if lineage is None:
            return ""
        cause = lineage.cause  # may be let go at any time, but not before its id is kept
        return lineage.cause_id or ("" if cause is None else cause.event_id)

    @property
    def correlation_id(self) -> str:
        """The id of the event at the root of the causal tree; its own for a root."""
        return self.root.event_id

    @property
    def root(self) -> Event:
        """The event at the root of the causal tree; itself for a root."""
        lineage = self._lineage
        return self if lineage is None or (root := lineage.root) is None else root

    @property
    def published_by(self) -> str:
        """The handler that published it, `Agent.method`; empty when no handler of an event did."""
        return "" if self._lineage is None else self._lineage.by

    @property
    def trail(self) -> tuple[tuple[str, str], ...]:
        """The last links of the causal chain, oldest first: (topic, handler that published the next event)."""
        links: list[tuple[str, str]] = []
        lineage = self._lineage
        while lineage is not None and (cause := lineage.cause) is not None:
            links.append((cause.topic, lineage.by))
            lineage = cause._lineage
        return tuple(reversed(links))

    def __getitem__(self, key: str) -> Json:
        return self.payload[key]

    def get(self, key: str, default: Json = None) -> Json:
        """Return a field of the payload, or the default."""
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
        payload = self.payload
        return payload if isinstance(payload, dict) else {}


Mapping.register(Event)


def child_of(  # noqa: PLR0917 - every nested publish calls it, and arguments by name cost time
    cause: Event, topic: str, payload: Json, src: str, by: str, ordinal: int, timestamp: float | None = None
) -> Event:
    """Make the event that the handler `by` publishes while it handles `cause`, after `ordinal` others; now by default."""
    before = cause._lineage
    if before is None:
        hops, root = 1, cause
    else:
        hops, root = before.hops + 1, cause if before.root is None else before.root
    lineage = _Lineage(hops, cause, root, by, ordinal)
    event = Event(topic, payload, src, time() if timestamp is None else timestamp, lineage)
    if hops % _KEPT_ANCESTORS == 0 and hops > _KEPT_ANCESTORS:
        _let_go(cause)
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
    """Make an event anew that was written down: with the same ids, and so with the same children."""
    cause: Event | None = None
    by = ""
    for heard, by_handler in trail:  # the ancestors, as far as they are known: a topic and who published the next
        cause = Event(heard, None, "", timestamp, _Lineage(cause=cause, by=by))
        by = by_handler
    root = None if correlation_id == event_id else Event(topic, None, "", timestamp, _Lineage(id=correlation_id))
    lineage = _Lineage(hops, cause, root, by, id=event_id, cause_id=causation_id)
    return Event(topic, freeze(payload), src, timestamp, lineage)


def once_more(event: Event) -> Event:
    """Make the same event anew, with the same ids, as the only one of its tree: what comes of it can be told from the rest."""
    event_id, cause_id = event.event_id, event.causation_id
    before, root = _lineage_of(event), event.root
    own = None if root is event else Event(root.topic, None, "", root.timestamp, _Lineage(id=root.event_id))
    lineage = _Lineage(before.hops, before.cause, own, before.by, id=event_id, cause_id=cause_id)
    return Event(event.topic, _get_payload(event), event.src, event.timestamp, lineage)


def count_descendant(child: Event, max_hops: int, *, on_loop: bool = False) -> tuple[int, int]:
    """Return the hops of an event that a handler has published, and how many events came of its root, this one included.

    One beyond `max_hops` is not counted. One thread at a time may count for the loop, and one for everything else.
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
    """The lineage of an event; a root gets one now, and whoever asks gets the same."""
    lineage = event._lineage
    if lineage is None:
        with _identifying:
            lineage = event._lineage
            if lineage is None:
                lineage = _Lineage()
                msgspec.structs.force_setattr(event, "_lineage", lineage)
    return lineage


def _let_go(event: Event) -> None:
    """Cut the causal chain some way up, so that a chain without end does not fill the memory."""
    kept = _KEPT_ANCESTORS
    lineage = _lineage_of(event)
    while kept and lineage.cause is not None:
        event = lineage.cause
        lineage = event._lineage or _lineage_of(event)
        kept -= 1
    lineage.cause_id = event.causation_id
    _identify(event)
    lineage.cause = None


def _identify(event: Event) -> str:
    """Settle the ids of the event and of its causes, from the oldest on."""
    line = [_lineage_of(event)]
    while not line[-1].id and not line[-1].cause_id and (cause := line[-1].cause) is not None:
        line.append(_lineage_of(cause))
    with _identifying:
        for member in reversed(line):
            if not member.id:
                member.id = _new_id(member)
    return line[0].id


def _new_id(lineage: _Lineage) -> str:
    cause = lineage.cause
    cause_id = lineage.cause_id or ("" if cause is None or cause._lineage is None else cause._lineage.id)
    if not cause_id:
        from os import urandom

        return urandom(16).hex()
    return sha256_hex(f"{cause_id}|{lineage.by}|{lineage.ordinal}".encode())[:32]
