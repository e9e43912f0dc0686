"""The causal tree of one event, from deliveries and from what a running graph still knows; payloads with redacted values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from graphbus_core import strict_json
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.trace import REDACTED, is_redacted
from graphbus_core.isolation import attempt
from graphbus_core.model.messages import Event
from graphbus_core.schema.json import Json
from graphbus_core.view.messages import DeadLetter, EventTree, Planned, TreeEvent
from graphbus_core.view.records import LARGEST_TREE, Found

_NOT_RECORDED = "Payloads were not recorded: start with --view-payloads."
_NOT_KEPT = "The payload is not kept any more, or was too large to be kept."
_CUT = f"Only the first {LARGEST_TREE:,} deliveries are shown."


class Known(NamedTuple):
    """What is known of a tree besides its deliveries.

    Attributes:
        events: Events of the graph, of which those of the tree are used.
        planned: Attempts that wait.
        running: Pairs of event id and handler.
    """

    events: Sequence[Event] = ()
    planned: Sequence[Planned] = ()
    letters: Sequence[DeadLetter] = ()
    running: Sequence[tuple[str, str]] = ()


class Reveal(NamedTuple):
    """What of the payloads is shown: all but the values of the keys in `redacted`, if `is_asked` and `is_recorded`."""

    is_asked: bool = False
    is_recorded: bool = False
    redacted: Collection[str] = ()


def build_tree(event_id: str, found: Sequence[Found], known: Known, reveal: Reveal) -> EventTree:
    """Return the tree that an event belongs to.

    Raises:
        RunError: GBE685, nothing is known of the event.
    """
    root = _find_root(event_id, found, known)
    payloads = {each.delivery.event_id: each.payload for each in found}
    events: dict[str, TreeEvent] = {}
    for delivery, _ in found:
        if delivery.event_id not in events:
            events[delivery.event_id] = TreeEvent(
                event_id=delivery.event_id,
                causation_id=delivery.causation_id,
                topic=delivery.topic,
                src=delivery.src,
                published_by=delivery.published_by,
                published=delivery.published,
                key=delivery.key,
                **_payload_of(payloads[delivery.event_id], reveal),
            )
    for event in (each for each in known.events if each.correlation_id == root):
        events.setdefault(event.event_id, _tree_event(event, reveal))
    for missing in {each.causation_id for each in events.values()} - {*events, ""}:
        events[missing] = TreeEvent(event_id=missing, causation_id="", topic="", src="", published_by="", published=0.0)
    return EventTree(
        event_id=event_id,
        root=root,
        events=tuple(sorted(events.values(), key=lambda each: each.published)),
        deliveries=tuple(sorted((each.delivery for each in found), key=lambda each: each.started)),
        planned=tuple(each for each in known.planned if each.event_id in events),
        dead_letters=tuple(each for each in known.letters if each.event_id in events),
        running=tuple(each for each in known.running if each[0] in events),
        note=_CUT if len(found) >= LARGEST_TREE else "",
    )


def _find_root(event_id: str, found: Sequence[Found], known: Known) -> str:
    """Return the id of the event at the root; raise GBE685 if nothing is known of the event."""
    if found:
        return found[0].delivery.correlation_id
    for event in known.events:
        if event_id in (event.event_id, event.correlation_id):
            return event.correlation_id
    raise RunError("GBE685", event_id=event_id)


def _tree_event(event: Event, reveal: Reveal) -> TreeEvent:
    is_shown = reveal.is_asked and reveal.is_recorded
    payload, _ = attempt(lambda: redact(event.payload, reveal.redacted) if is_shown else None)
    return TreeEvent(
        event_id=event.event_id,
        causation_id=event.causation_id,
        topic=event.topic,
        src=event.src,
        published_by=event.published_by,
        published=event.timestamp,
        payload=payload,
        payload_note=_NOT_RECORDED if reveal.is_asked and not reveal.is_recorded else "",
    )


def _payload_of(text: str, reveal: Reveal) -> dict[str, Json]:
    """Return the fields of a `TreeEvent` about the payload that was recorded as this text."""
    if not reveal.is_asked:
        return {}
    if not text:
        return {"payload_note": _NOT_KEPT if reveal.is_recorded else _NOT_RECORDED}
    shown, error = attempt(lambda: redact(strict_json.loads(text, any_text=True), reveal.redacted))
    return {"payload_note": _NOT_KEPT} if error else {"payload": shown}


def redact(value: Json, keys: Collection[str]) -> Json:
    """Return a JSON value in which the values of these keys are replaced, as `is_redacted` says."""
    if isinstance(value, dict):
        return {key: REDACTED if is_redacted(key, keys) else redact(item, keys) for key, item in value.items()}
    return [redact(item, keys) for item in value] if isinstance(value, list) else value
