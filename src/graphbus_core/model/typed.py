"""Objects of typed classes from JSON: dataclasses, TypedDicts, msgspec and pydantic classes, with what is nested in them.

Dates, ids and decimals come from the text that JSON has for them, members of an Enum from their values. Every call makes a new
object. pydantic is never imported: its classes say themselves how they are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.model.live_types import hints_of, type_of
from graphbus_core.model.proposals import Json
from graphbus_core.model.validation import Problem, problems_in
from graphbus_core.model.values import clipped, shown

Make = Callable[[Json], Any]


class UnfitError(Exception):
    """JSON of which no object of the class can be made; `problems` says why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems


class Unmakeable(TypeError):  # noqa: N818 - it is the class that cannot be made, not this
    """A class whose objects cannot be made of JSON."""


def maker_of(kind: Any) -> Make:
    """Give the function that makes objects of this class, or of what is nested in this annotation.

    The function raises UnfitError; what code of the class itself raises beside ValueError and TypeError goes up.

    Raises:
        Unmakeable: A field has a type that no JSON can be made into.
    """
    make = _maker_of(kind)

    def make_or_explain(value: Json) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError) as error:  # ValidationError of both libraries is a ValueError
            raise UnfitError(_explain(kind, value, error)) from error

    return make_or_explain


def needs_making(annotation: Any) -> bool:
    """True for an annotation that holds a class of which JSON has no values: a typed class, an Enum, a date."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _is_typed(annotation) or _is_scalar(annotation)
    return any(needs_making(part) for part in get_args(annotation) if part is not ...)


def is_typed_class(kind: type) -> bool:
    """True for a TypedDict, dataclass, msgspec or pydantic class."""
    return _is_typed(kind) or (issubclass(kind, dict) and hasattr(kind, "__required_keys__"))


def _is_typed(kind: type) -> bool:
    return any(hasattr(kind, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "model_validate"))


_SCALARS = frozenset(
    {
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("decimal", "Decimal"),
        ("uuid", "UUID"),
    }
)
"""By name, so that who has none of them does not import them."""


def _is_scalar(kind: type) -> bool:
    return hasattr(kind, "__members__") or (kind.__module__, kind.__name__) in _SCALARS


def _maker_of(kind: Any) -> Make:
    own = _own_way(kind)
    if own is not None:
        return own
    _, error = attempt(lambda: msgspec.json.Decoder(kind, dec_hook=_make_nested))
    if error is None:
        return lambda value: msgspec.convert(value, kind, dec_hook=_make_nested)
    if hasattr(kind, "__dataclass_fields__"):
        return _maker_by_arguments(kind)
    raise Unmakeable(f"{getattr(kind, '__name__', kind)}: {error}") from error


def _own_way(kind: Any) -> Make | None:
    """How a pydantic model or dataclass makes its objects."""
    if hasattr(kind, "model_validate"):
        validate: Make = kind.model_validate
        return validate
    validator = getattr(kind, "__pydantic_validator__", None)
    return None if validator is None else validator.validate_python


def _make_nested(kind: Any, value: Any) -> Any:
    """Make what msgspec does not know by itself."""
    own = _own_way(kind)
    if own is None:
        raise TypeError(f"a {getattr(kind, '__name__', kind)} cannot be made of JSON")
    return own(value)


def _maker_by_arguments(kind: Any) -> Make:
    """A dataclass that msgspec cannot make, e.g. for its InitVars: its arguments are read as fields, then it is called."""
    from dataclasses import MISSING

    hints = hints_of(kind)
    parameters: list[Any] = []
    for each in kind.__dataclass_fields__.values():
        if each.init and each._field_type.name != "_FIELD_CLASSVAR":
            hint = getattr(hints[each.name], "type", hints[each.name])
            has_default = each.default is not MISSING or each.default_factory is not MISSING
            parameters.append(
                (each.name, hint | msgspec.UnsetType, msgspec.UNSET) if has_default else (each.name, hint)
            )
    read, error = attempt(lambda: msgspec.defstruct(kind.__name__, parameters, kw_only=True))
    if read is not None:
        _, error = attempt(lambda: msgspec.json.Decoder(read, dec_hook=_make_nested))
    if error is not None:
        raise Unmakeable(f"{kind.__name__}: {error}") from error

    def make(value: Json) -> Any:
        given = msgspec.structs.asdict(msgspec.convert(value, read, dec_hook=_make_nested))
        return kind(**{name: each for name, each in given.items() if each is not msgspec.UNSET})

    return make


# --- why not -------------------------------------------------------------------------------


def _explain(kind: Any, value: Json, error: Exception) -> tuple[Problem, ...]:
    """All that is wrong by the types of the fields, or what only the library or the class itself has noticed."""
    return problems_in(type_of(kind), value) or _told_by_pydantic(error) or (_told_by_msgspec(kind, value, error),)


def _told_by_pydantic(error: Exception) -> tuple[Problem, ...]:
    errors, _ = attempt(lambda: error.errors(include_url=False))  # type: ignore[attr-defined]
    return tuple(
        Problem(clipped(_spelled(each["loc"])), clipped(each["msg"]), shown(each["input"])) for each in errors or ()
    )


def _spelled(steps: tuple[str | int, ...]) -> str:
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return spelled or "the value"


_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"^Expected (.*?)(, got .*)?$")


def _told_by_msgspec(kind: Any, value: Json, error: Exception) -> Problem:
    text = str(error)
    place = _PLACE.search(text)
    path = place.group(1) if place else ""
    told = _PLACE.sub("", text)
    expected = _EXPECTED.match(told)
    wanted = expected.group(1) if expected else f"a valid {getattr(kind, '__name__', kind)} ({told})"
    return Problem(clipped(path) or "the value", clipped(wanted.replace("`", "")), _found_at(value, path))


def _found_at(value: Json, path: str) -> str:
    for step in re.findall(r"[^.\[\]]+", path):
        inner, error = attempt(lambda: value[int(step) if isinstance(value, list) else step])  # noqa: B023
        if error is not None:
            break
        value = inner
    return shown(value)
