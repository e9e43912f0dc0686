"""Two builds side by side: do the handlers of one take the events that the other has published?

forward   events of the old build that are on their way are read by the new one
back      events of the new build are read by the old one: after a rollback, and while both run

A running graph decides by the same types (`Subscription.wanted`) whether it parks an event of another build.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from graphbus_core.contracts.surface import Surface, merge_schemas
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.compatibility import Fit, fit_of
from graphbus_core.schema.types import UNKNOWN, Schema, Type, as_json

Direction = Literal["forward", "back"]
Kind = Literal["breaking", "unknown", "settled"]

OUTSIDE = "code outside"
_AGES: dict[Direction, tuple[str, str]] = {"forward": ("old", "new"), "back": ("new", "old")}


class Misfit(NamedTuple):
    """Events of one build that a handler of the other one does not take.

    Attributes:
        direction: Which build has published them.
        kind: `breaking`: some of these events are parked. `unknown`: a type is not known. `settled`: the other build has no such
            handler, and keeps them parked for it.
        topic: Their topic.
        field: The field that does not fit; empty for the whole payload.
        publisher: The agent that publishes them.
        handler: The handler, as `Agent.method`.
        span: The place of its subscription.
        why: The whole in one sentence, without its full stop.
    """

    direction: Direction
    kind: Kind
    topic: str
    field: str
    publisher: str
    handler: str
    span: SourceSpan
    why: str


def compare_both_ways(old: Surface, new: Surface) -> tuple[Misfit, ...]:
    """Return what does not fit when events of each build are read by the other one; empty if all does."""
    return (*_find_misfits(old, new, "forward"), *_find_misfits(new, old, "back"))


def _find_misfits(sender: Surface, reader: Surface, direction: Direction) -> Iterator[Misfit]:
    past, present = _AGES[direction]
    for topic in sorted({*sender.publications, *sender.handlers_by_topic}):
        own = [given for _, given in _payloads(reader, topic)]
        for publisher, given in dict.fromkeys(_payloads(sender, topic)):
            for handler in reader.handlers_of(topic):
                for field, fit in _misfits_of(handler.wanted, given).items():
                    if fit.lacks_type and given in own:
                        continue  # that is so within each of the builds, and no matter of versions
                    why = f"the {present} {handler.name} needs {_describe(field, fit, f'the {past} {publisher}')}"
                    kind: Kind = "unknown" if fit.lacks_type else "breaking"
                    yield Misfit(direction, kind, topic, field, publisher, handler.name, handler.subscription.span, why)
    for topic, name in sorted(sender.handler_at.keys() - reader.handler_at.keys()):
        span = sender.handler_at[topic, name].subscription.span
        why = f"the {present} build has no handler {name}, so that events for it stay parked"
        yield Misfit(direction, "settled", topic, "", "", name, span, why)


class _Given(NamedTuple):
    """The type of the payloads of a publication, and the type that is declared for its topic; UNKNOWN for none."""

    sent: Type
    declared: Type


def _payloads(surface: Surface, topic: str) -> Iterator[tuple[str, _Given]]:
    """Yield each publisher of a topic with its payloads; for a topic that comes from outside, with what the handlers take."""
    published = surface.publications.get(topic, ())
    schema = next((each.schema for each in surface.topics if each.name == topic), None)
    for each in published:
        if not each.publication.is_declared:
            yield each.agent.name, _Given(_type_of(each.publication.payload, each.publication.type), _type_of(schema))
    if not any(not each.publication.is_declared for each in published):
        handlers = surface.handlers_by_topic.get(topic, ())
        needed = merge_schemas([each.needs for each in handlers])
        declared = _type_of(schema if schema or not handlers else needed)
        yield next((each.agent.name for each in published), OUTSIDE), _Given(UNKNOWN, declared)


def _type_of(schema: Schema | None, otherwise: Type = UNKNOWN) -> Type:
    """Return the type of values of a schema; `otherwise` if their fields are not known."""
    return otherwise if schema is None or schema.is_open else as_json(Type("record", fields=schema.fields))


def _misfits_of(wanted: Type, given: _Given) -> dict[str, Fit]:
    """Return field -> why neither what is sent nor what is declared is sure to fit; a misfit of what is sent counts first."""
    declared = dict(_fits_of_fields(as_json(wanted), given.declared))
    if given.sent.kind == "unknown":
        return declared
    found = dict(_fits_of_fields(as_json(wanted), given.sent))
    if given.declared.kind == "unknown":
        return found
    return {name: declared[name] if fit.lacks_type else fit for name, fit in found.items() if name in declared}


def _fits_of_fields(wanted: Type, given: Type) -> Iterator[tuple[str, Fit]]:
    """Yield each field that does not fit, or is not known to fit, with the reason; without a name, for the whole payload."""
    if wanted.kind == given.kind == "record":
        has = {each.name: each for each in given.fields}
        for field in wanted.fields:
            parts = Type("record", fields=(field,)), Type("record", fields=(*filter(None, (has.get(field.name),)),))
            fit = fit_of(*parts)
            if fit.verdict != "fits":
                yield field.name, fit
        return
    fit = fit_of(wanted, given)
    if fit.verdict != "fits":
        yield "", fit


def _describe(field: str, fit: Fit, publisher: str) -> str:
    """Return what follows on `needs`."""
    what = fit.reason.removeprefix(f"{field}: ")
    if fit.lacks_type:
        return f"{repr(field) if field else 'fields'}, and it is not known what {publisher} sends"
    if what == "it is missing":
        return f"{field!r}, which {publisher} does not send"
    if what == "it may be missing":
        return f"{field!r}, which {publisher} may leave out"
    return f"another {repr(field) if field else 'payload'} than {publisher} sends: {what}"
