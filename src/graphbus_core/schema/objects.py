"""Objects of typed classes from JSON: dataclasses, TypedDicts, msgspec and pydantic classes, with what is nested in them.

Dates, ids and decimals come from the text that JSON has for them, members of an Enum from their values. Every call makes a new
object. pydantic is never imported: its classes say themselves how they are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.schema.json import Json, describe_path
from graphbus_core.schema.live import Unresolved, annotation_of, hints_of, meant_by, type_alias_of, type_of, unwrapped
from graphbus_core.schema.types import TEXTS
from graphbus_core.schema.validation import Problem, problems_in
from graphbus_core.schema.values import Items, clipped, items_of, mapping_of, shown

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
        except (ValueError, TypeError, RecursionError) as error:  # ValidationError of both libraries is a ValueError
            raise UnfitError(_explain(kind, value, error)) from error

    return make_or_explain


def needs_making(annotation: Any, depth: int = 0) -> bool:
    """True for an annotation that holds a typed class, an Enum, a date or a `Meta(ge=1)`: more than JSON says by itself."""
    if depth > _MAX_DEPTH:
        return False
    annotation = meant_by(annotation)
    if type(annotation) is msgspec.Meta or type_alias_of(annotation) is not None:  # of what is not there: to be said
        return True
    origin = get_origin(annotation)
    if isinstance(origin, type) and is_typed_class(origin):
        return True
    if not isinstance(annotation, type) or origin is not None:
        return any(needs_making(part, depth + 1) for part in get_args(annotation) if part is not ...)
    return is_typed_class(annotation) or _is_scalar(annotation)


class _Makers(msgspec.Struct, frozen=True):
    """How the arguments of a function become what it is annotated with.

    Attributes:
        by_name: Parameter -> the function that makes it; those that take JSON as it is are not here.
        unmade: Parameter -> why nothing can be made for it although its annotation may want that.
    """

    by_name: Mapping[str, Make]
    unmade: Mapping[str, str]


def makers_for(function: Any) -> _Makers:
    """Give the makers for those parameters of a function that want more than JSON has."""
    inspected = unwrapped(function)
    by_name: dict[str, Make] = {}
    unmade: dict[str, str] = {}
    for name in getattr(inspected, "__annotations__", ()) if hasattr(inspected, "__globals__") else ():
        annotation = annotation_of(inspected, name) if name != "return" else None
        if isinstance(annotation, Unresolved):
            unmade[name] = f"{annotation} is not defined at run time"
        elif needs_making(annotation):
            make, error = attempt(lambda annotation=annotation: maker_of(annotation))  # type: ignore[misc]
            if make is not None:
                by_name[name] = make
            else:
                unmade[name] = f"no JSON can become an object of {error}"
    return _Makers(by_name, unmade)


def is_json_shaped(value: object, depth: int = 0) -> bool:
    """True for what JSON can be read into: nothing of it is an object of a class of its own yet."""
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
    return any(hasattr(kind, mark) for mark in ("__dataclass_fields__", "__struct_fields__", "model_validate"))


def _is_scalar(kind: type) -> bool:
    return hasattr(kind, "__members__") or (kind.__module__, kind.__name__) in TEXTS


def _maker_of(kind: Any) -> Make:
    kind = meant_by(kind)
    own = _own_way(kind)
    if own is not None:
        return own
    _, error = attempt(lambda: msgspec.json.Decoder(kind, dec_hook=_make_nested))
    if error is None and any(map(_defaults_of, _classes_in(kind, {}))):
        return lambda value: _completed(msgspec.convert(value, kind, dec_hook=_make_nested))
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


# --- defaults of dataclasses ---------------------------------------------------------------
#
# msgspec leaves a default that the class holds out of the object that it makes, and later leaves out of JSON what is not in the
# object: a field would get lost on its way from one handler to the next.


def _classes_in(annotation: Any, found: dict[Any, None]) -> dict[Any, None]:
    """The classes that objects of this annotation may hold, at any depth."""
    for part in map(meant_by, get_args(annotation) or (annotation,)):
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
    """The defaults that a dataclass holds for objects that do not have their own value."""
    from dataclasses import MISSING

    fields = getattr(kind, "__dataclass_fields__", {}) if not hasattr(kind, "__slots__") else {}
    return {
        name: each.default
        for name, each in fields.items()
        if each._field_type.name == "_FIELD" and each.default is not MISSING
    }


def _completed(value: Any) -> Any:
    """The same object; dataclasses in it have their defaults themselves."""
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
        inside = [getattr(value, name, None) for name in kind.__struct_fields__]  # one that was deleted is not there
    for each in inside:
        if type(each) not in _JSON_KINDS:
            _completed(each)
    return value


# --- why not -------------------------------------------------------------------------------


def _explain(kind: Any, value: Json, error: Exception) -> tuple[Problem, ...]:
    """All that is wrong by the types of the fields, or what only the library or the class itself has noticed."""
    return problems_in(type_of(kind), value) or _told_by_pydantic(error) or (_told_by_msgspec(kind, value, error),)


def _told_by_pydantic(error: Exception) -> tuple[Problem, ...]:
    errors, _ = attempt(lambda: error.errors(include_url=False))  # type: ignore[attr-defined]
    return tuple(
        Problem(clipped(describe_path(each["loc"], "the value")), _as_wanted(each["msg"]), shown(each["input"]))
        for each in errors or ()
    )


def _as_wanted(message: str, kind: str = "value") -> str:
    """What a library expects, to be read after "expected"."""
    wanted = re.match(r"(?:Expected|Input should be) (.*?)(?:, got .*)?$", message)
    told = re.sub(r"^(Value error|Assertion failed), ", "", message)
    text = wanted[1] if wanted else f"a valid {kind} ({told})"
    return clipped(text.replace("`", "").replace("| null", "| None") if wanted else text)


def _told_by_msgspec(kind: Any, value: Json, error: Exception) -> Problem:
    told, _, place = str(error).partition(" - at `$")
    path = place.strip(".`")
    for step in re.findall(r"\.\.\.|[^.\[\]]+", path):
        inner, missing = attempt(lambda step=step, at=value: at[int(step) if isinstance(at, list) else step])  # type: ignore[misc]
        if missing is not None:
            break
        value = inner
    name = "value" if path else getattr(kind, "__name__", str(kind))
    return Problem(clipped(path) or "the value", _as_wanted(told, name), shown(value))
