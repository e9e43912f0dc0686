"""Converts JSON to objects of typed classes: dataclasses, TypedDicts, msgspec and pydantic classes, and what they contain.

Dates, UUIDs and decimals are made of their text, members of an Enum of their values. Each conversion makes a new object.
pydantic is never imported; its classes are recognized by their methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.schema.json import Json, describe_path
from graphbus_core.schema.live import (
    Unresolved,
    annotation_of,
    hints_of,
    resolve_alias,
    type_alias_of,
    type_of,
    unwrap_function,
)
from graphbus_core.schema.types import TEXT_TYPES, as_json
from graphbus_core.schema.validation import ValueProblem, problems_in
from graphbus_core.schema.values import Items, clip_text, format_value, items_of, mapping_of

Make = Callable[[Json], Any]


class UnfitError(Exception):
    """Raised for JSON that cannot be converted to an object of the class; `problems` says why."""

    def __init__(self, problems: tuple[ValueProblem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems


class Unmakeable(TypeError):  # noqa: N818 - a property of the class, and no failed operation
    """Raised for a class or annotation if no JSON can be converted to an object of it."""


def maker_of(kind: Any) -> Make:
    """Return the function that converts JSON to a class or annotation.

    The function raises UnfitError for JSON that does not fit. Exceptions of the class's own code are raised unchanged, except
    ValueError and TypeError, which become UnfitError, too.

    Raises:
        Unmakeable: A field has a type that no JSON can be converted to.
    """
    make = _find_maker(kind)

    def make_or_explain(value: Json) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, RecursionError) as error:  # includes ValidationError of msgspec and of pydantic
            raise UnfitError(_explain_misfit(kind, value, error)) from error

    return make_or_explain


def needs_making(annotation: Any, depth: int = 0) -> bool:
    """True for an annotation whose values must be converted from JSON, or checked: a typed class, an Enum, a date, `Meta(ge=1)`.

    The types inside of it count, too. Also True for a `type` alias that cannot be evaluated.
    """
    if depth > _MAX_DEPTH:
        return False
    annotation = resolve_alias(annotation)
    # an alias that `resolve_alias` leaves cannot be evaluated: `makers_for` reports it
    if type(annotation) is msgspec.Meta or type_alias_of(annotation) is not None:
        return True
    origin = get_origin(annotation)
    if isinstance(origin, type) and is_typed_class(origin):
        return True
    if not isinstance(annotation, type) or origin is not None:
        return any(needs_making(part, depth + 1) for part in get_args(annotation) if part is not ...)
    return is_typed_class(annotation) or _is_scalar(annotation)


def differs_in_json(annotation: Any) -> bool:
    """True for an annotation such as `bytes` or `set[str]`, whose values have another type in JSON."""
    of = type_of(annotation)
    return as_json(of) != of


class _Makers(msgspec.Struct, frozen=True):
    """The conversions for the arguments of a function.

    Attributes:
        by_name: Parameter -> the function that converts its JSON; parameters that take JSON as it is are missing.
        unmade: Parameter -> why its JSON cannot be converted, although its annotation may need that.
    """

    by_name: Mapping[str, Make]
    unmade: Mapping[str, str]


def makers_for(function: Any, is_needed: Callable[[Any], bool] = needs_making) -> _Makers:
    """Return the conversions for those parameters of a function whose annotations need one; never raises."""
    inspected = unwrap_function(function)
    by_name: dict[str, Make] = {}
    unmade: dict[str, str] = {}
    for name in getattr(inspected, "__annotations__", ()) if hasattr(inspected, "__globals__") else ():
        annotation = annotation_of(inspected, name) if name != "return" else None
        if isinstance(annotation, Unresolved):
            unmade[name] = f"{annotation} is not defined at run time"
        elif is_needed(annotation):
            make, error = attempt(lambda annotation=annotation: maker_of(annotation))  # type: ignore[misc]
            if make is not None:
                by_name[name] = make
            else:
                unmade[name] = f"no JSON can become an object of {error}"
    return _Makers(by_name, unmade)


def is_json_shaped(value: object, depth: int = 0) -> bool:
    """True for a value that contains nothing but dicts, lists and plain JSON values; what is nested deeper than 100 passes."""
    kind = type(value)
    if depth > _MAX_NESTING:
        return True
    if kind in _JSON_KINDS:
        return True
    inside: Items | None = None
    if issubclass(kind, dict):
        inside = list((mapping_of(value) or {}).values())
    elif issubclass(kind, list):
        inside = items_of(value)
    return inside is not None and all(is_json_shaped(item, depth + 1) for item in inside)


_JSON_KINDS = frozenset({str, int, float, bool, type(None)})
_MAX_DEPTH = 12
_MAX_NESTING = 100


def is_typed_class(kind: type) -> bool:
    """True for a TypedDict, dataclass, msgspec or pydantic class."""
    return _is_typed(kind) or (issubclass(kind, dict) and hasattr(kind, "__required_keys__"))


def _is_typed(kind: type) -> bool:
    """True for a dataclass, msgspec or pydantic class."""
    return any(hasattr(kind, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "model_validate"))


def _is_scalar(kind: type) -> bool:
    """True for an Enum, and for the classes of `TEXT_TYPES`, such as dates."""
    return hasattr(kind, "__members__") or (kind.__module__, kind.__name__) in TEXT_TYPES


def _find_maker(kind: Any) -> Make:
    """Return the conversion: by pydantic for its classes, else by msgspec, else by the constructor of a dataclass.

    Raises:
        Unmakeable: None of these can convert JSON to this class or annotation.
    """
    kind = resolve_alias(kind)
    validator = _find_validator(kind)
    if validator is not None:
        return validator
    _, error = attempt(lambda: msgspec.json.Decoder(kind, dec_hook=_make_nested))
    if error is None and any(map(_defaults_of, _classes_in(kind, {}))):  # see "defaults of dataclasses" below
        return lambda value: _set_missing_defaults(msgspec.convert(value, kind, dec_hook=_make_nested))
    if error is None:
        return lambda value: msgspec.convert(value, kind, dec_hook=_make_nested)
    if hasattr(kind, "__dataclass_fields__"):
        return _maker_by_constructor(kind)
    raise Unmakeable(f"{getattr(kind, '__name__', kind)}: {error}") from error


def _find_validator(kind: Any) -> Make | None:
    """Return the validation function of a pydantic model or dataclass; None for any other class."""
    if hasattr(kind, "model_validate"):
        validate: Make = kind.model_validate
        return validate
    validator = getattr(kind, "__pydantic_validator__", None)
    return None if validator is None else validator.validate_python


def _make_nested(kind: Any, value: Any) -> Any:
    """Convert a value to a pydantic class: the `dec_hook` of msgspec. TypeError for other classes unknown to msgspec."""
    validator = _find_validator(kind)
    if validator is None:
        raise TypeError(f"a {getattr(kind, '__name__', kind)} cannot be made from JSON")
    return validator(value)


def _maker_by_constructor(kind: Any) -> Make:
    """Return a conversion that calls the constructor of a dataclass, for one that msgspec cannot make, such as with InitVars.

    The arguments are first converted as the fields of a temporary Struct. Raises Unmakeable if msgspec cannot make that either.
    """
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


# --- defaults of dataclasses ---------------------------------------------------------------
#
# If a field is missing in JSON, msgspec does not set it on the object, because the class attribute holds the default. When
# msgspec encodes the object later, it leaves the field out, so that the next handler would not get it. Therefore
# `_set_missing_defaults` sets such fields.


def _classes_in(annotation: Any, found: dict[Any, None]) -> dict[Any, None]:
    """Add the classes that objects of this annotation may contain, at any depth, to `found`, and return it."""
    for part in map(resolve_alias, get_args(annotation) or (annotation,)):
        if get_args(part):
            _classes_in(part, found)
        elif isinstance(part, type) and part not in found:
            found[part] = None
            hints, _ = attempt(lambda part=part: hints_of(part) if is_typed_class(part) else {})  # type: ignore[misc]
            for hint in (hints or {}).values():
                _classes_in(hint, found)
    return found


@lru_cache(256)
def _defaults_of(kind: type) -> dict[str, Any]:
    """Return field -> default of a dataclass, for defaults that are class attributes; empty with `__slots__`."""
    from dataclasses import MISSING

    fields = getattr(kind, "__dataclass_fields__", {}) if not hasattr(kind, "__slots__") else {}
    return {
        name: each.default
        for name, each in fields.items()
        if each._field_type.name == "_FIELD" and each.default is not MISSING
    }


def _set_missing_defaults(value: Any) -> Any:
    """Set missing defaults on all dataclass objects inside of a value, and return the value."""
    kind = type(value)
    inside: Iterable[Any] = ()
    if kind is list or kind is tuple:
        inside = value
    elif kind is dict:
        inside = value.values()
    elif hasattr(kind, "__dataclass_fields__") and hasattr(value, "__dict__"):
        own = value.__dict__
        for name, default in _defaults_of(type(value)).items():  # type: ignore[arg-type]
            own.setdefault(name, default)
        inside = own.values()
    elif hasattr(kind, "__struct_fields__"):
        inside = [getattr(value, name, None) for name in kind.__struct_fields__]  # None: the attribute was deleted
    for each in inside:
        if type(each) not in _JSON_KINDS:
            _set_missing_defaults(each)
    return value


# --- why not -------------------------------------------------------------------------------


def _explain_misfit(kind: Any, value: Json, error: Exception) -> tuple[ValueProblem, ...]:
    """Return the problems that a comparison with the type finds; if it finds none, those that the library's error names."""
    return problems_in(type_of(kind), value) or _pydantic_problems(error) or (_msgspec_problem(kind, value, error),)


def _pydantic_problems(error: Exception) -> tuple[ValueProblem, ...]:
    """Return the problems that an error of pydantic lists; empty for any other error."""
    errors, _ = attempt(lambda: error.errors(include_url=False))  # type: ignore[attr-defined]
    return tuple(
        ValueProblem(
            clip_text(describe_path(each["loc"], "the value")),
            _read_expectation(each["msg"]),
            format_value(each["input"]),
        )
        for each in errors or ()
    )


def _read_expectation(message: str, kind: str = "value") -> str:
    """Turn a message of pydantic or msgspec into the words that follow on "expected"; `kind` names the value in them."""
    wanted = re.match(r"(?:Expected|Input should be) (.*?)(?:, got .*)?$", message)
    reason = re.sub(r"^(Value error|Assertion failed), ", "", message)
    text = wanted[1] if wanted else f"a valid {kind} ({reason})"
    return clip_text(text.replace("`", "").replace("| null", "| None") if wanted else text)


def _msgspec_problem(kind: Any, value: Json, error: Exception) -> ValueProblem:
    """Return the problem that an error of msgspec describes, such as "Expected `int`, got `str` - at `$.items[0].count`"."""
    message, _, place = str(error).partition(" - at `$")
    path = place.strip(".`")
    for step in re.findall(r"\.\.\.|[^.\[\]]+", path):  # go to the value at the path, as far as that is possible
        inner, missing = attempt(lambda step=step, at=value: at[int(step) if isinstance(at, list) else step])  # type: ignore[misc]
        if missing is not None:
            break
        value = inner
    name = "value" if path else getattr(kind, "__name__", str(kind))
    return ValueProblem(clip_text(path) or "the value", _read_expectation(message, name), format_value(value))
