"""Compares types: is every value of a given type also a value of a wanted type?

    fit_of(FLOAT, INT)               fits
    fit_of(STR, INT)                 unfit: str is wanted, int is given
    fit_of(STR, UNKNOWN)             unknown: the given type is not known
    fit_of(Literal["a"], STR)        unknown: depends on the value

Callers that warn act on `unfit` alone (`misfit_reason`); callers that prove something need `fits`. The verdict about a type
agrees with what `validation` says about each of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from graphbus_core.schema.types import ALL_OCCUR, ANY, BOOL, INT, NULL, STR, Field, Type
from graphbus_core.schema.validation import problems_in

LiteralValue = str | int | bool | None
"""One value of a literal."""
Side = Literal["input", "output"]
"""The side of a contract: `"input"` is what callers pass in, `"output"` is what they read."""

_OPEN = frozenset({"unknown", "any", "result"})
_ARRAYS = frozenset({"list", "tuple", "set"})
_MAPPINGS = frozenset({"dict", "record"})


class Fit(NamedTuple):
    """The result of comparing a given type with a wanted one.

    Attributes:
        verdict: `"fits"`: every given value is wanted. `"unfit"`: some given values, or parts of them, are certainly not wanted.
            `"unknown"`: neither can be shown.
        reason: A clause such as `str is wanted, int is given`; empty for `"fits"`.
        lacks_type: For `"unknown"`: True if one of the types is not known, False if it depends on the value.
    """

    verdict: Literal["fits", "unfit", "unknown"]
    reason: str = ""
    lacks_type: bool = False


_FITS = Fit("fits")
_SEVERITY = {("fits", False): 0, ("unknown", True): 1, ("unknown", False): 2, ("unfit", False): 3}


def _severity(fit: Fit) -> int:
    """Return 0 for a fit; the number grows with the certainty that something is wrong."""
    return _SEVERITY[fit.verdict, fit.lacks_type]


def fit_of(wanted: Type, given: Type, *, is_narrowed: bool = False) -> Fit:
    """Compare a given type with a wanted one.

    `int` fits `float`; `bool` does not fit `int`; None fits only a type that includes it. Records are compared field by field,
    and further fields of the given one do not matter.

    Args:
        wanted: The declared type.
        given: The type of the values that are passed.
        is_narrowed: A condition may have narrowed `given`, such as `str | None` after `if x is None: return`. Then one fitting
            choice of a union is enough for `"unknown"` instead of `"unfit"`.
    """
    if wanted.kind in _OPEN or is_same(wanted, given):
        return _FITS
    if given.kind in ("unknown", "result"):
        return Fit("unknown", f"{wanted} is wanted, but the type of the value is not known", lacks_type=True)
    if given.kind == "union":
        is_narrowed = is_narrowed and given.name != ALL_OCCUR
        fit = _fit_of_choices([fit_of(wanted, part, is_narrowed=is_narrowed) for part in given.args], is_narrowed)
        return _make_possible_misfit(wanted, given) if fit.verdict == "unknown" and not fit.lacks_type else fit
    if given.kind in ("literal", "null"):
        values: tuple[LiteralValue, ...] = given.values if given.kind == "literal" else (None,)
        return _fit_of_choices([_fit_of_value(wanted, value) for value in values], is_narrowed)
    fit = (_fit_into_union if wanted.kind == "union" else _fit_into_non_union)(wanted, given, is_narrowed)
    if fit.verdict == "unknown" and given.values:  # it depends on the value, and the possible values are known
        return _fit_of_choices([_fit_of_value(wanted, value) for value in given.values], is_narrowed)
    return fit


def misfit_reason(wanted: Type, given: Type, *, is_narrowed: bool = False) -> str | None:
    """Return why a given type is `"unfit"` for a wanted one, None for other verdicts; see `fit_of` for the arguments."""
    fit = fit_of(wanted, given, is_narrowed=is_narrowed)
    return fit.reason if fit.verdict == "unfit" else None


def is_same(one: Type, other: Type) -> bool:
    """True if two types are equal; literals 1 and True, which are equal in Python, are distinguished."""
    return one == other and repr(one) == repr(other)


def is_disjoint(one: Type, other: Type) -> bool:
    """True if no value except None can be of both types; False whenever that is not certain."""
    left = [choice for choice in _choices(one) if choice.kind != "null"]
    right = [choice for choice in _choices(other) if choice.kind != "null"]
    return bool(left and right) and not any(_may_overlap(mine, theirs) for mine in left for theirs in right)


def _worst_fit(fits: Iterable[Fit]) -> Fit:
    """Return the fit with the highest severity; `"fits"` if there are none."""
    return max(fits, key=_severity, default=_FITS)


def _make_certain_misfit(wanted: Type, given: Type) -> Fit:
    return Fit("unfit", f"{wanted} is wanted, {given} is given")


def _make_possible_misfit(wanted: Type, given: Type) -> Fit:
    return Fit("unknown", f"{wanted} is wanted, {given} is given")


def _fit_of_choices(fits: list[Fit], is_narrowed: bool) -> Fit:
    """Return the worst of `fits`, one for each choice of a given union or literal.

    If a condition may have narrowed the value to a choice that is not unfit, `"unfit"` becomes `"unknown"`.
    """
    worst = _worst_fit(fits)
    if is_narrowed and worst.verdict == "unfit" and any(fit.verdict != "unfit" for fit in fits):
        return Fit("unknown", worst.reason)
    return worst


def _fit_of_value(wanted: Type, value: LiteralValue) -> Fit:
    return _FITS if _is_value_of(wanted, value) else Fit("unfit", f"{wanted} is wanted, {value!r} is given")


def _is_value_of(wanted: Type, value: LiteralValue) -> bool:
    return not problems_in(wanted, value)


def _fit_into_union(wanted: Type, given: Type, is_narrowed: bool) -> Fit:
    """Compare with a wanted union: it is enough that one of its choices fits all given values."""
    fits = [fit_of(choice, given, is_narrowed=is_narrowed) for choice in wanted.args]
    best = min(fits, key=_severity, default=_make_certain_misfit(wanted, given))
    if best.verdict == "fits" or (given.kind == "bool" and _includes_both_booleans(wanted)):
        return _FITS
    return best._replace(reason=f"{wanted} is wanted, {given} is given")


def _fit_into_non_union(wanted: Type, given: Type, is_narrowed: bool) -> Fit:
    """Compare two types of which neither is a union; `given` must not be a literal either."""
    kinds = {wanted.kind, given.kind}
    if given.kind == "any":
        return _make_possible_misfit(wanted, given)
    if wanted.kind == "literal":
        return _fit_into_literal(wanted, given)
    if kinds <= _ARRAYS:
        return _fit_of_arrays(wanted, given, is_narrowed)
    if kinds <= _MAPPINGS:
        return _fit_of_mappings(wanted, given, is_narrowed)
    if kinds == {"str"}:
        # Named texts, such as dates, fit plain text; whether plain text is a date depends on the value.
        return _FITS if not wanted.name else _make_possible_misfit(wanted, given)
    fits = wanted.kind == given.kind or (wanted.kind, given.kind) == ("float", "int")
    return _FITS if fits else _make_certain_misfit(wanted, given)


def _fit_into_literal(wanted: Type, given: Type) -> Fit:
    """Compare with a wanted literal: `"unfit"` if no value of it can be of the given type, else it depends on the value."""
    if given.kind == "bool" and _includes_both_booleans(wanted):
        return _FITS
    may_be = any(fit_of(_type_of_value(value), given).verdict != "unfit" for value in wanted.values)
    return _make_possible_misfit(wanted, given) if may_be else _make_certain_misfit(wanted, given)


def _includes_both_booleans(wanted: Type) -> bool:
    return _is_value_of(wanted, True) and _is_value_of(wanted, False)


def _fit_of_arrays(wanted: Type, given: Type, is_narrowed: bool) -> Fit:
    """Compare lists, tuples and sets of any two kinds, and the types of their items."""
    if wanted.kind == given.kind == "tuple" and wanted.args and given.args:
        if len(wanted.args) != len(given.args):
            return Fit("unfit", f"{len(wanted.args)} items are wanted, {len(given.args)} are given")
        return _fit_of_parts("items", zip(wanted.args, given.args, strict=True), is_narrowed)
    is_set = given.kind == "set" and wanted.kind != "set"  # JSON has no sets, but a call in the process may pass one
    # whether a list has the length of a tuple depends on the value
    container_fit = (
        _make_possible_misfit(wanted, given) if is_set or (wanted.kind == "tuple" and wanted.args) else _FITS
    )
    if wanted.kind == "tuple" or not wanted.args:
        return container_fit
    pairs = [(wanted.args[0], item) for item in given.args or (ANY,)]
    return _worst_fit((_fit_of_parts("items", pairs, is_narrowed), container_fit))


def _fit_of_mappings(wanted: Type, given: Type, is_narrowed: bool) -> Fit:
    """Compare dicts and records.

    Two records are compared field by field, two dicts by the types of keys and values. Between the two kinds, each field of the
    record is compared with the entries of the dict.
    """
    if wanted.kind == given.kind == "record":
        found = {field.name: field for field in given.fields}
        return _worst_fit(_fit_of_field(field, found.get(field.name), is_narrowed) for field in wanted.fields)
    if wanted.kind == "record":
        return _fit_dict_into_record(wanted, given)
    if not wanted.args:
        return _FITS
    if given.kind == "record":
        if fit_of(wanted.args[0], STR).verdict != "fits":
            return _make_possible_misfit(wanted, given)
        return _fit_of_parts("entries", ((wanted.args[1], field.type) for field in given.fields), is_narrowed)
    return _fit_of_parts("entries", zip(wanted.args, given.args or (ANY, ANY), strict=True), is_narrowed)


def _fit_of_field(wanted: Field, given: Field | None, is_narrowed: bool) -> Fit:
    """Compare a field of the wanted record with the same field of the given one; None if the given record does not have it."""
    if given is None or (wanted.required and not given.required):
        what = "is" if given is None else "may be"
        return Fit("unfit", f"{wanted.name}: it {what} missing") if wanted.required else _FITS
    fit = fit_of(wanted.type, given.type, is_narrowed=is_narrowed)
    return fit if fit.verdict == "fits" else fit._replace(reason=f"{wanted.name}: {fit.reason}")


def _fit_dict_into_record(wanted: Type, given: Type) -> Fit:
    """Compare a dict with a wanted record: whether the dict has the fields depends on the value, so it is never unfit."""
    if any(field.required for field in wanted.fields):
        return _make_possible_misfit(wanted, given)
    value = given.args[1] if given.args else ANY
    worst = _fit_of_parts("entries", ((field.type, value) for field in wanted.fields), is_narrowed=False)
    return worst._replace(verdict="unknown") if worst.verdict == "unfit" else worst


def _fit_of_parts(where: str, pairs: Iterable[tuple[Type, Type]], is_narrowed: bool) -> Fit:
    """Return the worst fit of `(wanted, given)` pairs; `where` names them in its reason, such as "items"."""
    worst = _worst_fit(fit_of(wanted, given, is_narrowed=is_narrowed) for wanted, given in pairs)
    return worst if worst.verdict == "fits" else worst._replace(reason=f"in its {where}, {worst.reason}")


def _type_of_value(value: LiteralValue) -> Type:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOL
    return INT if isinstance(value, int) else STR


def _choices(of: Type) -> Iterator[Type]:
    """Yield the choices of a union and the types of the values of a literal; any other type yields itself."""
    if of.kind == "union":
        for part in of.args:
            yield from _choices(part)
    elif of.kind == "literal":
        yield from {_type_of_value(value): None for value in of.values}
    else:
        yield of


def _may_overlap(one: Type, other: Type) -> bool:
    """True unless it is certain that no value is of both types. Neither may be a union or a literal."""
    kinds = {one.kind, other.kind}
    if kinds & _OPEN or one.kind == other.kind or kinds <= {"int", "float"}:
        return True
    return kinds <= _ARRAYS or kinds <= _MAPPINGS
