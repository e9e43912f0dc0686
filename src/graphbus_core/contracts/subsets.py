"""Is every value of one type a value of another? Decided for all values at once as `model.validation` does for one.

refusal(INT, BOOL)      "int is taken, bool may be sent"
refusal(FLOAT, INT)     None
refusal(STR, UNKNOWN)   what may be sent is not known: never certain

`model.schema_fit.why_not` asks whether something is surely wrong and lets doubt pass; here something must be surely right.
A well-behaved sender sends the fields that it declares and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from graphbus_core.model.schema import BOOL, NULL, STR, Field, Type
from graphbus_core.model.validation import problems_in

OPEN = frozenset({"unknown", "any"})
_ARRAYS = frozenset({"list", "tuple", "set"})


class Refusal(NamedTuple):
    """Why a value may be refused; not certain when that rests on a type that nobody knows."""

    reason: str
    is_certain: bool = True


def refusal(takes: Type, sent: Type) -> Refusal | None:
    """Give a reason why `takes` refuses some value of `sent`, a certain one if there is any; None when it refuses none."""
    if takes.kind in OPEN or is_same(takes, sent):
        return None
    if sent.kind == "unknown":
        return Refusal(f"{takes} is taken, and what is sent is not known", is_certain=False)
    if sent.kind == "union":
        return _worst(refusal(takes, part) for part in sent.args)
    if sent.kind == "literal":
        return _refused_values(takes, sent, sent.values)
    if takes.kind in ("union", "literal"):
        return _refused_by_choices(takes, sent)
    return _refused_by_one(takes, sent)


def is_same(one: Type, other: Type) -> bool:
    """Tell whether two types are equal; 1 is not True here, though Python holds them for equal."""
    return one == other and repr(one) == repr(other)


def refused_fields(takes: Iterable[Field], sent: tuple[Field, ...]) -> Refusal | None:
    """The same for the fields of two records; what is not taken is ignored."""
    given = {field.name: field for field in sent}
    return _worst(_refused_field(field, given.get(field.name)) for field in takes)


def _refused_field(field: Field, found: Field | None) -> Refusal | None:
    if found is None or (field.required and not found.required):
        what = "is not sent" if found is None else "may be missing"
        return Refusal(f"{field.name} {what}") if field.required else None
    inner = refusal(field.type, found.type)
    return inner and inner._replace(reason=f"{field.name}: {inner.reason}")


def _worst(found: Iterable[Refusal | None]) -> Refusal | None:
    reasons = [each for each in found if each]
    return next((each for each in reasons if each.is_certain), reasons[0] if reasons else None)


def _refused_values(takes: Type, sent: Type, values: Iterable[object]) -> Refusal | None:
    refused = [value for value in values if problems_in(takes, value)]
    return Refusal(f"{takes} is taken, {', '.join(map(repr, refused))} may be sent") if refused else None


def _refused_by_choices(takes: Type, sent: Type) -> Refusal | None:
    if sent == BOOL:
        return _refused_values(takes, sent, (True, False))
    if sent == NULL:
        return _refused_values(takes, sent, (None,))
    if takes.kind == "literal":
        return _misfit(takes, sent)
    answers = [refusal(choice, sent) for choice in takes.args]
    if None in answers:
        return None
    is_doubtful = any(each and not each.is_certain for each in answers)
    return _misfit(takes, sent)._replace(is_certain=not is_doubtful)


def _refused_by_one(takes: Type, sent: Type) -> Refusal | None:
    kinds = (takes.kind, sent.kind)
    if {*kinds} <= _ARRAYS:
        return _refused_array(takes, sent)
    if takes.kind == "dict":
        return _refused_by_dict(takes, sent)
    if takes.kind == "record":
        return _refused_by_record(takes, sent)
    if kinds == ("str", "str"):  # the text of a date is a text, and not the other way round
        return None if takes.name in ("", sent.name) else _misfit(takes, sent)
    fits = takes.kind == sent.kind or kinds == ("float", "int")
    return None if fits else _misfit(takes, sent)


def _refused_array(takes: Type, sent: Type) -> Refusal | None:
    if sent.kind == "set" and takes.kind != "set":  # JSON has none, but a call within the process may pass one
        return _misfit(takes, sent)
    if takes.kind == "tuple" and takes.args:
        if sent.kind != "tuple" or len(sent.args) != len(takes.args):
            return _misfit(takes, sent)
        return _inside("items", (refusal(*pair) for pair in zip(takes.args, sent.args, strict=True)))
    if not takes.args:
        return None
    return _inside("items", (refusal(takes.args[0], item) for item in sent.args or (Type("any"),)))


def _refused_by_dict(takes: Type, sent: Type) -> Refusal | None:
    if sent.kind not in ("dict", "record"):
        return _misfit(takes, sent)
    if len(takes.args) < 2:
        return None
    key, value = takes.args[:2]
    if sent.kind == "record":
        if refusal(key, STR):
            return _misfit(takes, sent)
        return _inside("entries", (refusal(value, field.type) for field in sent.fields))
    sent_key, sent_value = sent.args[:2] if len(sent.args) > 1 else (Type("any"), Type("any"))
    return _inside("entries", (refusal(key, sent_key), refusal(value, sent_value)))


def _refused_by_record(takes: Type, sent: Type) -> Refusal | None:
    if sent.kind == "record":
        return refused_fields(takes.fields, sent.fields)
    if sent.kind != "dict" or any(field.required for field in takes.fields):
        return _misfit(takes, sent)
    value = sent.args[1] if len(sent.args) > 1 else Type("any")
    return _inside("entries", (refusal(field.type, value) for field in takes.fields))


def _inside(where: str, found: Iterable[Refusal | None]) -> Refusal | None:
    worst = _worst(found)
    return worst and worst._replace(reason=f"in its {where}, {worst.reason}")


def _misfit(takes: Type, sent: Type) -> Refusal:
    return Refusal(f"{takes} is taken, {sent} may be sent")
