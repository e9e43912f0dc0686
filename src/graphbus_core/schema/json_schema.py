"""Writes types as JSON Schema: a JSON value is valid if and only if a running graph accepts it, with two exceptions.

JSON Schema takes `1.0` for an integer, Python for a float. A dict with keys other than text has no JSON form, so only an
empty one is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from graphbus_core.schema.types import FORMATS, Field, Schema, Type

JsonSchema = dict[str, Any]
Refer = Callable[[Type], str | None]
"""Returns the `$ref` for a record; None: its schema is written in place."""
Dialect = Literal["2020-12", "draft-07"]
"""The version of JSON Schema, which matters for tuples only. AsyncAPI uses draft-07, everything else 2020-12."""

NOTHING: JsonSchema = {"not": {}}
_SIMPLE = {"null": "null", "bool": "boolean", "int": "integer", "float": "number", "str": "string"}
_ANY_TEXT = frozenset({"str", "any", "unknown"})


def _write_in_place(_record: Type) -> None:
    """Return no `$ref`, so that the schema of each record is written in place."""


class Writer:
    """Writes types as JSON Schema.

    Args:
        refer: Returns the `$ref` of records whose schemas are written elsewhere.
        dialect: The version of JSON Schema.
    """

    def __init__(self, refer: Refer = _write_in_place, dialect: Dialect = "2020-12") -> None:
        self._refer = refer
        self._dialect = dialect

    def arguments(self, schema: Schema) -> JsonSchema:
        """Return the schema for the arguments of a method: further fields are invalid, unless the schema is open."""
        return self._write_object(schema.fields, is_closed=not schema.is_open)

    def result(self, schema: Schema) -> JsonSchema:
        """Return the schema for a result: further fields are allowed, and null if it has no fields."""
        return self._write_object(schema.fields, has_null=not schema.fields)

    def payload(self, schema: Schema) -> JsonSchema:
        """Return the schema for a payload: further fields are allowed, and null if no field is required."""
        return self._write_object(schema.fields, has_null=not any(field.required for field in schema.fields))

    def value(self, of: Type) -> JsonSchema:
        """Return the schema for values of a type; an unknown type allows all values."""
        if of.kind in _SIMPLE:
            form = {"format": FORMATS[of.name]} if of.kind == "str" and of.name in FORMATS else {}
            return {"type": _SIMPLE[of.kind], **form}
        write = _WRITERS.get(of.kind)
        return write(self, of) if write else {}

    def record(self, of: Type) -> JsonSchema:
        """Return the schema of a record in place, even if `refer` has a `$ref` for it."""
        return self._write_object(of.fields)

    def _write_object(
        self, fields: tuple[Field, ...], *, is_closed: bool = False, has_null: bool = False
    ) -> JsonSchema:
        """Return the schema of an object; `is_closed` forbids further fields, `has_null` allows null."""
        schema: JsonSchema = {"type": ["object", "null"] if has_null else "object"}
        if fields:
            schema["properties"] = {field.name: self.value(field.type) for field in fields}
        required = [field.name for field in fields if field.required]
        if required:
            schema["required"] = required
        return schema | ({"additionalProperties": False} if is_closed else {})

    def _write_record(self, of: Type) -> JsonSchema:
        """Return a reference to the schema of a record, or the schema itself if it has no `$ref`."""
        place = self._refer(of)
        return {"$ref": place} if place else self.record(of)

    def _write_union(self, of: Type) -> JsonSchema:
        """Return the schema for values of one of the choices; no value is valid if there are none."""
        return {"anyOf": [self.value(part) for part in of.args]} if of.args else NOTHING

    def _write_array(self, of: Type) -> JsonSchema:
        return {"type": "array", **({"items": self.value(of.args[0])} if of.args else {})}

    def _write_tuple(self, of: Type) -> JsonSchema:
        """Return the schema of an array with one schema for each item; of any array for a tuple without item types."""
        if not of.args:
            return {"type": "array"}
        size = len(of.args)
        items = "prefixItems" if self._dialect == "2020-12" else "items"
        return {"type": "array", items: [self.value(part) for part in of.args], "minItems": size, "maxItems": size}

    def _write_dict(self, of: Type) -> JsonSchema:
        """Return the schema of an object; keys and values are constrained only if their types exclude some JSON."""
        if not of.args:
            return {"type": "object"}
        key, item = of.args
        names = {} if key.kind in _ANY_TEXT and key.name not in FORMATS else {"propertyNames": self.value(key)}
        values = {} if item.kind in ("any", "unknown") else {"additionalProperties": self.value(item)}
        return {"type": "object", **names, **values}


_WRITERS: dict[str, Callable[[Writer, Type], JsonSchema]] = {
    "bytes": lambda _writer, _of: {"type": "string", "contentEncoding": "base64"},
    "literal": lambda _writer, of: {"enum": list(of.values)} if of.values else NOTHING,
    "union": Writer._write_union,
    "record": Writer._write_record,
    "list": Writer._write_array,
    "set": Writer._write_array,
    "tuple": Writer._write_tuple,
    "dict": Writer._write_dict,
}
