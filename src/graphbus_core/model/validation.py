"""Values against types: compiled once per schema to a fast yes or no; why it is no is found out only when it is.

check = compile_schema(schema)
check({"total": "12"})    ->   (Problem("total", "float", "str '12'"),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from graphbus_core.errors import did_you_mean
from graphbus_core.model.schema import NULL, Field, Schema, Type

Fits = Callable[[Any], bool]

_EXACT: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "bytes": bytes}
"""Kinds whose values are nearly always of just this class."""


class Problem(NamedTuple):
    """One value that does not fit: where it is (`items[0].sku`), what is expected there and what was found."""

    path: str
    expected: str
    got: str
    suggestion: str = ""

    def __str__(self) -> str:
        suggestion = f".{self.suggestion}" if self.suggestion else ""
        return f"{self.path}: expected {self.expected}, got {self.got}{suggestion}"


SchemaCheck = Callable[[Any], tuple[Problem, ...]]


def compile_schema(schema: Schema, *, is_closed: bool = False) -> SchemaCheck:
    """Make a function that gives what is wrong with a mapping or typed object; nothing for one that fits.

    Args:
        schema: What is expected.
        is_closed: Fields that the schema does not list are wrong, too.
    """
    parts = [(each.name, each.required, _EXACT.get(each.type.kind), compile_type(each.type)) for each in schema.fields]
    names = schema.names
    refuses_others = is_closed and not schema.is_open

    def check(value: Any) -> tuple[Problem, ...]:
        fields = value if isinstance(value, dict) else _fields_of(value)
        if fields is not None:
            for name, is_required, exact, fits in parts:
                if name in fields:
                    field = fields[name]
                    if type(field) is not exact and not fits(field):  # the first saves a call, nearly always
                        break
                elif is_required:
                    break
            else:
                if not refuses_others or names >= fields.keys():
                    return ()
        return tuple(_field_problems(schema, value, "", refuses_others=refuses_others))

    return check


def compile_type(wanted: Type) -> Fits:
    """Make a function that tells whether a value is of the type. What is unknown fits; an int is a float, a bool no int."""
    if wanted.kind in _SIMPLE:
        return _SIMPLE[wanted.kind]
    return _COMPOUND[wanted.kind](wanted)


_SIMPLE: dict[str, Fits] = {
    "unknown": lambda _value: True,
    "any": lambda _value: True,
    "null": lambda value: value is None,
    "bool": lambda value: value is True or value is False,
    "int": lambda value: isinstance(value, int) and value is not True and value is not False,
    "float": lambda value: isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)),
    "str": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes),
}


def _compile_items(wanted: Type) -> Fits:
    kinds = (list, tuple, set, frozenset) if wanted.kind == "set" else (list, tuple)
    if not wanted.args:
        return lambda value: isinstance(value, kinds)
    fits = compile_type(wanted.args[0])
    return lambda value: isinstance(value, kinds) and all(map(fits, value))


def _compile_tuple(wanted: Type) -> Fits:
    if not wanted.args:
        return lambda value: isinstance(value, list | tuple)
    parts = [compile_type(part) for part in wanted.args]
    return lambda value: (
        isinstance(value, list | tuple)
        and len(value) == len(parts)
        and all(fits(item) for fits, item in zip(parts, value, strict=True))
    )


def _compile_dict(wanted: Type) -> Fits:
    if not wanted.args:
        return lambda value: isinstance(value, Mapping)
    fits_key, fits_value = (compile_type(part) for part in wanted.args[:2])
    return lambda value: (
        isinstance(value, Mapping) and all(map(fits_key, value.keys())) and all(map(fits_value, value.values()))
    )


def _compile_union(wanted: Type) -> Fits:
    choices = [compile_type(choice) for choice in wanted.args]
    return lambda value: any(fits(value) for fits in choices)


def _compile_literal(wanted: Type) -> Fits:
    allowed = {(type(value), value) for value in wanted.values}
    return lambda value: value.__hash__ is not None and (type(value), value) in allowed


def _compile_record(wanted: Type) -> Fits:
    check = compile_schema(Schema(wanted.fields))
    return lambda value: not check(value)


_COMPOUND: dict[str, Callable[[Type], Fits]] = {
    "list": _compile_items,
    "set": _compile_items,
    "tuple": _compile_tuple,
    "dict": _compile_dict,
    "union": _compile_union,
    "literal": _compile_literal,
    "record": _compile_record,
}


def _fields_of(value: object) -> Mapping[str, Any] | None:
    """The fields of a mapping, or the attributes of a typed object; None for what has neither."""
    if isinstance(value, Mapping):
        return value
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return vars(value) if hasattr(type(value), "__annotations__") and hasattr(value, "__dict__") else None


# --- why not -------------------------------------------------------------------------------


def _field_problems(schema: Schema, value: object, path: str, *, refuses_others: bool = False) -> list[Problem]:
    fields = _fields_of(value)
    if fields is None:
        return [Problem(path or "the value", f"an object with {schema}", _shown(value))]
    found: list[Problem] = []
    others = [name for name in fields if name not in schema.names]
    for field in schema.fields:
        found += _problems_of_field(field, fields, path, others)
    if refuses_others:
        for name in others:
            missing = [field.name for field in schema.fields if field.name not in fields] or schema.names
            expected = f"one of {', '.join(field.name for field in schema.fields)}" if schema.fields else "no argument"
            found.append(Problem(_join(path, str(name)), expected, "an unknown name", did_you_mean(str(name), missing)))
    return found


def _problems_of_field(field: Field, fields: Mapping[str, Any], path: str, others: list[str]) -> list[Problem]:
    where = _join(path, field.name)
    if field.name in fields:
        return _problems(field.type, fields[field.name], where)
    if not field.required:
        return []
    near = did_you_mean(field.name, map(str, others)).replace("Did you mean", "Is it")
    return [Problem(where, str(field.type), "nothing", near)]


def _problems(wanted: Type, value: object, path: str) -> list[Problem]:
    if compile_type(wanted)(value):
        return []
    if wanted.kind == "record" and _fields_of(value) is not None:
        return _field_problems(Schema(wanted.fields), value, path)
    if wanted.kind in ("list", "set") and isinstance(value, list | tuple | set | frozenset) and wanted.args:
        inside = [p for at, item in enumerate(value) for p in _problems(wanted.args[0], item, f"{path}[{at}]")]
        if inside:
            return inside
    if wanted.kind == "dict" and isinstance(value, Mapping) and wanted.args:
        inside = [p for key, item in value.items() for p in _problems(wanted.args[1], item, _join(path, str(key)))]
        if inside:
            return inside
    choices = [choice for choice in wanted.args if choice != NULL] if wanted.kind == "union" else []
    if len(choices) == 1 and value is not None:
        return [
            problem._replace(expected=_or_none(problem, path, wanted)) for problem in _problems(choices[0], value, path)
        ]
    return [Problem(path, str(wanted), _shown(value))]


def _or_none(problem: Problem, path: str, wanted: Type) -> str:
    return str(wanted) if problem.path == path else problem.expected


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
