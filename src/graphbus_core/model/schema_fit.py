"""Does what is given fit what is wanted? Three answers folded into two: yes, no, and "cannot be known", which counts as yes.

why_not(STR, INT)       "str is wanted, int is given"
why_not(FLOAT, INT)     None
why_not(STR, UNKNOWN)   None
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphbus_core.model.schema import BOOL, INT, NULL, STR, Field, Schema, Type
from graphbus_core.model.texts import is_text_of

Side = Literal["input", "output"]

_OPEN = frozenset({"unknown", "any"})
_ARRAYS = frozenset({"list", "tuple", "set"})
_MAPPINGS = frozenset({"dict", "record"})


def why_not(wanted: Type, given: Type, *, is_narrowed: bool = False) -> str | None:
    """Give the reason why some value of the type `given` is not one of `wanted`, or None where none is known.

    `int` fits `float`; `bool` does not fit `int`; None fits only where it is one of the choices; records are compared
    field by field; arrays are arrays, whatever Python calls them. Whatever is unknown fits.

    Args:
        wanted: The type that is declared.
        given: The type of what is handed over.
        is_narrowed: One fitting choice of `given` is enough, as of a parameter `str | None` behind `if x is None: return`.
    """
    if wanted.kind in _OPEN or given.kind in _OPEN:
        return None
    if given.kind == "union" or (given.kind == "literal" and len(given.values) > 1):
        reasons = [why_not(wanted, part, is_narrowed=is_narrowed) for part in _parts(given)]
        is_excused = is_narrowed and None in reasons
        return None if is_excused else next(filter(None, reasons), None)
    if wanted.kind == "union":
        return _fits_no_choice(wanted, given, is_narrowed=is_narrowed)
    return _why_not_one(wanted, given, is_narrowed=is_narrowed)


def why_not_fields(wanted: Schema, given: Schema, *, is_narrowed: bool = False) -> tuple[tuple[str, str], ...]:
    """Give `(field, reason)` for every field of `wanted` that `given` does not provide as wanted, in the order of `wanted`.

    Further fields of `given` are no reason. A field that is missing from an open `given` may still be there, and so fits.
    """
    pairs = ((field.name, _field_differs(field, given, is_narrowed=is_narrowed)) for field in wanted.fields)
    return tuple((name, reason) for name, reason in pairs if reason)


def is_disjoint(one: Type, other: Type) -> bool:
    """Tell whether no value at all is of both types; None is left out of account, and what is unknown is never disjoint."""
    left = [choice for choice in _choices(one) if choice.kind != "null"]
    right = [choice for choice in _choices(other) if choice.kind != "null"]
    return bool(left and right) and not any(_may_overlap(mine, theirs) for mine in left for theirs in right)


def breaking_changes(before: Schema | None, after: Schema | None, side: Side) -> tuple[str, ...]:
    """Say in which ways those who relied on `before` are let down by `after`; empty when they cannot notice.

    Args:
        before: The fields that were declared; None: nothing was, so nothing was relied on.
        after: The fields that are declared now; None: nothing is promised any more.
        side: `"input"`: others pass these fields in. `"output"`: others read them.
    """
    if before is None or before == after:
        return ()
    if after is None:
        return (f"the {side} schema is gone",)
    changes = _input_breaks(before, after) if side == "input" else _output_breaks(before, after)
    return tuple(changes)


def _why_not_one(wanted: Type, given: Type, *, is_narrowed: bool) -> str | None:
    kinds = {wanted.kind, given.kind}
    if "literal" in kinds:
        return _literals_differ(wanted, given)
    if kinds <= _ARRAYS:
        return _items_differ(wanted, given, is_narrowed=is_narrowed)
    if kinds <= _MAPPINGS:
        return _mappings_differ(wanted, given, is_narrowed=is_narrowed)
    fits = wanted.kind == given.kind or (wanted.kind, given.kind) == ("float", "int")
    return None if fits else _mismatch(wanted, given)


def _fits_no_choice(wanted: Type, given: Type, *, is_narrowed: bool) -> str | None:
    reasons = [why_not(choice, given, is_narrowed=is_narrowed) for choice in wanted.args]
    return None if None in reasons else _mismatch(wanted, given)


def _parts(of: Type) -> tuple[Type, ...]:
    return of.args or tuple(Type("literal", values=(value,)) for value in of.values)


def _literals_differ(wanted: Type, given: Type) -> str | None:
    if given.kind == "literal":
        fits = all(
            any(_same_literal(value, choice) for choice in wanted.values)
            if wanted.kind == "literal"
            else _has_value(wanted, value)
            for value in given.values
        )
        return None if fits else f"{wanted} is wanted, {', '.join(map(repr, given.values))} is given"
    # a plain str may well be one of the wanted words: only a type that none of them has is refused
    kinds = {_type_of(value) for value in wanted.values}
    return None if any(why_not(kind, given) is None for kind in kinds) else _mismatch(wanted, given)


def _has_value(wanted: Type, value: str | int | bool | None) -> bool:
    if wanted.kind == "str" and wanted.name:
        return is_text_of(wanted.name)(value)
    return why_not(wanted, _type_of(value)) is None


def _same_literal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _type_of(value: str | int | bool | None) -> Type:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    return INT if isinstance(value, int) else STR


def _items_differ(wanted: Type, given: Type, *, is_narrowed: bool) -> str | None:
    if wanted.kind == given.kind == "tuple" and wanted.args and given.args and len(wanted.args) != len(given.args):
        return f"{len(wanted.args)} items are wanted, {len(given.args)} are given"
    if wanted.kind == given.kind == "tuple":
        pairs = list(zip(wanted.args, given.args, strict=False))
    else:
        pairs = [
            (want, have) for want in wanted.args for have in given.args if "tuple" not in {wanted.kind, given.kind}
        ]
    reasons = (why_not(want, have, is_narrowed=is_narrowed) for want, have in pairs)
    return next((f"in its items, {reason}" for reason in reasons if reason), None)


def _mappings_differ(wanted: Type, given: Type, *, is_narrowed: bool) -> str | None:
    if wanted.kind == given.kind == "record":
        differences = why_not_fields(Schema(wanted.fields), Schema(given.fields), is_narrowed=is_narrowed)
        return f"{differences[0][0]}: {differences[0][1]}" if differences else None
    if wanted.kind == given.kind == "dict":
        pairs = zip(wanted.args, given.args, strict=False)
        reasons = (why_not(want, have, is_narrowed=is_narrowed) for want, have in pairs)
        return next((f"in its entries, {reason}" for reason in reasons if reason), None)
    return None


def _field_differs(field: Field, given: Schema, *, is_narrowed: bool) -> str | None:
    found = given.get(field.name)
    if found is None:
        return "it is missing" if field.required and not given.is_open else None
    if field.required and not found.required and not given.is_open:
        return "it may be missing"
    return why_not(field.type, found.type, is_narrowed=is_narrowed)


def _mismatch(wanted: Type, given: Type) -> str:
    return f"{wanted} is wanted, {given} is given"


def _choices(of: Type) -> Iterator[Type]:
    if of.kind == "union":
        for part in of.args:
            yield from _choices(part)
    elif of.kind == "literal":
        yield from {_type_of(value): None for value in of.values}
    else:
        yield of


def _may_overlap(one: Type, other: Type) -> bool:
    kinds = {one.kind, other.kind}
    if kinds & _OPEN or one.kind == other.kind or kinds <= {"int", "float"}:
        return True
    return kinds <= _ARRAYS or kinds <= _MAPPINGS


def _input_breaks(before: Schema, after: Schema) -> Iterator[str]:
    for old in before.fields:
        new = after.get(old.name)
        if new is None:
            if not after.is_open:
                yield f"{old.name} is no longer accepted"
        elif new.required and not old.required:
            yield f"{old.name} has become required"
        elif reason := why_not(new.type, old.type):
            yield f"{old.name}: {reason}"
    for new in after.fields:
        if new.required and before.get(new.name) is None:
            yield f"{new.name} is required now"


def _output_breaks(before: Schema, after: Schema) -> Iterator[str]:
    for name, reason in why_not_fields(before, after):
        yield f"{name}: {reason}"
