"""Whether the messages of a producer fit a consumer: by name, by position, and as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from graphbus_core.contracts.messages import Consumer, Producer
from graphbus_core.schema.compatibility import Fit, fit_of
from graphbus_core.schema.types import UNKNOWN, Field, Type, is_unspecific, union


class Misfit(NamedTuple):
    """A part of a message that does not fit, or is not known to fit.

    Attributes:
        verdict: `unknown`: a type is not known.
        field: The field; empty for the whole message.
        why: One sentence without its full stop.
        is_mixed_up: It is taken for something else, and nothing fails at once.
        is_assumed: It is not known that the consumer needs it, only that messages of its own build have it.
    """

    verdict: Literal["breaks", "unknown"]
    field: str
    why: str
    is_mixed_up: bool = False
    is_assumed: bool = False


def find_misfits(producer: Producer, consumer: Consumer, names: tuple[str, str]) -> Iterator[Misfit]:
    """Yield what does not fit when a consumer gets the messages of a producer.

    Args:
        producer: Who sends them.
        consumer: Who takes them.
        names: Both in messages, such as `("the old Till", "the new Books.on_sold")`.
    """
    sender, reader = names
    bound = _bind(producer, consumer)
    yield from _find_misplaced(producer, consumer, names)
    for field, fit in _find_unmet(consumer.wanted, bound).items():
        verdict: Literal["breaks", "unknown"] = "unknown" if fit.lacks_type else "breaks"
        yield Misfit(verdict, field, f"{reader} needs {_describe(field, fit, sender)}")
    perhaps = Type("record", fields=tuple(Field(name, UNKNOWN) for name in consumer.guarded))
    for field, fit in _find_unmet(perhaps, bound).items() if consumer.guarded else ():
        yield Misfit("unknown", field, f"{reader} may need {_describe(field, fit, sender)}", is_assumed=True)
    if consumer.is_closed and consumer.wanted.kind == "record":
        taken = {each.name for each in consumer.wanted.fields}
        for each in bound.given.fields:
            if each.name not in taken:
                yield Misfit("breaks", each.name, f"{reader} does not take {each.name!r}, which {sender} sends")
        if bound.is_open:
            yield Misfit("unknown", "", f"it is not known whether {sender} sends more than {reader} takes")


def fits(producer: Producer, consumer: Consumer) -> bool:
    """True if no message of a producer is known to fail."""
    return all(each.verdict != "breaks" for each in find_misfits(producer, consumer, ("", "")))


def find_reliances(
    producer: Producer, consumer: Consumer, own: Sequence[Producer], names: tuple[str, str]
) -> Iterator[Misfit]:
    """Yield what a consumer may rely on, although that is not known, because messages of its own build have it.

    That is the type of a field of which only the name is known; and any field, if not all that it needs is known.

    Args:
        producer: Who sends the messages, in another build.
        consumer: Who takes them.
        own: The producers of the same channel in the build of the consumer.
        names: See `find_misfits`.
    """
    sender, reader = names
    vague = {each.name for each in consumer.wanted.fields if is_unspecific(each.type)}
    if consumer.is_whole and not vague:
        return
    relied = _merge([_sent_type(each) for each in own])
    if relied.kind == "unknown":
        if not _is_alike(producer, own):
            why = f"it is not known what {reader} needs of what {sender} sends"
            yield Misfit("unknown", "", why, is_assumed=True)
        return
    named = {each.name for each in consumer.wanted.fields}
    for field, fit in _find_unmet(relied, producer).items():
        if field in vague or (field not in named and not consumer.is_whole):
            yield Misfit("unknown", field, f"{reader} may need {_describe(field, fit, sender)}", is_assumed=True)


def _is_alike(producer: Producer, own: Sequence[Producer]) -> bool:
    """Return whether the consumer's own build sends the same, as far as is known."""
    return any((each.given, each.declared) == (producer.given, producer.declared) for each in own)


def _sent_type(producer: Producer) -> Type:
    """Return the type that all messages of a producer certainly have."""
    if producer.is_open or producer.given.kind == "unknown":
        return producer.declared
    return producer.given


def _merge(types: Sequence[Type]) -> Type:
    """Return a type that all of these fit: a record of the fields that all records have, else their union."""
    if not types or any(each.kind == "unknown" for each in types):
        return UNKNOWN
    if any(each.kind != "record" for each in types):
        return union(*types)
    maps = [{field.name: field for field in each.fields} for each in types]
    shared = [[found[name] for found in maps] for name in maps[0] if all(name in found for found in maps)]
    fields = (
        Field(each[0].name, union(*(one.type for one in each)), all(one.required for one in each)) for each in shared
    )
    return Type("record", fields=tuple(fields))


# --- by position -------------------------------------------------------------------------------


def _bind(producer: Producer, consumer: Consumer) -> Producer:
    """Return the producer with the values that it sends by position under the names that these have for the consumer."""
    if not (producer.positional or producer.has_rest):
        return producer
    named = [Field(name, of) for name, of in zip(consumer.positions, producer.positional, strict=False)]
    given = Type("record", fields=(*named, *producer.given.fields))
    return replace(producer, given=given, is_open=producer.is_open or producer.has_rest)


def _find_misplaced(producer: Producer, consumer: Consumer, names: tuple[str, str]) -> Iterator[Misfit]:
    """Yield values by position for which the consumer has no place, and those that it gets by name as well."""
    sender, reader = names
    sent, taken = len(producer.positional), len(consumer.positions)
    if sent > taken and not consumer.takes_rest:
        values = f"{taken} value{'' if taken == 1 else 's'}" if taken else "no value"
        yield Misfit("breaks", "", f"{reader} takes {values} by position, and {sender} sends {sent}")
    by_name = {each.name for each in producer.given.fields}
    for name in consumer.positions[:sent]:
        if name in by_name:
            yield Misfit("breaks", name, f"{reader} gets {name!r} twice from {sender}: by position and by name")


def find_mixed_up(producer: Producer, consumer: Consumer, meant: Consumer, names: tuple[str, str]) -> Iterator[Misfit]:
    """Yield values by position that the consumer takes for others; `meant` is the consumer in the build of the producer.

    A parameter at the same position that has a new name is a renamed one.
    """
    sender, reader = names
    pairs = zip(meant.positions, consumer.positions, strict=False)
    for at, (old, new) in enumerate([*pairs][: len(producer.positional)]):
        if old != new and (old in consumer.positions or new in meant.positions):
            why = f"{reader} takes value {at + 1} for {new!r}, and {sender} sends {old!r} there"
            yield Misfit("breaks", new, why, is_mixed_up=True)


# --- types ---------------------------------------------------------------------------------------


def _find_unmet(wanted: Type, producer: Producer) -> dict[str, Fit]:
    """Return field -> why neither what is sent nor what is declared is sure to fit; a misfit of what is sent counts first."""
    declared = dict(_fits_of_fields(wanted, producer.declared, is_open=False))
    if producer.given.kind == "unknown":
        return declared
    found = dict(_fits_of_fields(wanted, producer.given, is_open=producer.is_open))
    if producer.declared.kind == "unknown":
        return found
    return {name: declared[name] if fit.lacks_type else fit for name, fit in found.items() if name in declared}


def _fits_of_fields(wanted: Type, given: Type, *, is_open: bool) -> Iterator[tuple[str, Fit]]:
    """Yield each field that does not fit, or is not known to fit, with the reason; without a name, for the whole message."""
    if wanted.kind == given.kind == "record":
        has = {each.name: each for each in given.fields}
        for field in wanted.fields:
            there = has.get(field.name)
            part = Type("record", name=given.name, fields=(*filter(None, (there,)),))
            fit = _fit_of_sent(Type("record", fields=(field,)), part)
            if is_open and there is None:
                fit = Fit("unknown", fit.reason, lacks_type=True)
            if fit.verdict != "fits":
                yield field.name, fit
        return
    fit = _fit_of_sent(wanted, UNKNOWN if is_open else given)
    if fit.verdict != "fits":
        yield "", fit


def _fit_of_sent(wanted: Type, given: Type) -> Fit:
    """Compare like `fit_of`; that a field of a class may be missing is not known, because a default may always be sent."""
    fit = fit_of(wanted, given)
    if fit.verdict == "fits" or fit_of(wanted, _with_defaults(given)).verdict != "fits":
        return fit
    return Fit("unknown", fit.reason, lacks_type=True)


def _with_defaults(of: Type) -> Type:
    """Return the type of objects whose classes send fields with a default, too."""
    fields = tuple(Field(each.name, _with_defaults(each.type), each.required or bool(of.name)) for each in of.fields)
    return replace(of, args=tuple(map(_with_defaults, of.args)), fields=fields)


def _describe(field: str, fit: Fit, sender: str) -> str:
    """Return what follows on `needs`."""
    what = fit.reason.removeprefix(f"{field}: ")
    if what == "it may be missing":
        return f"{field!r}, which {sender} may leave out"
    if fit.lacks_type and not what.endswith("it may be missing"):
        return f"{repr(field) if field else 'fields'}, and it is not known what {sender} sends"
    if what == "it is missing":
        return f"{field!r}, which {sender} does not send"
    return f"another {repr(field) if field else 'message'} than {sender} sends: {what}"
