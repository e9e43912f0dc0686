"""Types as JSON Schema: a JSON value is valid exactly if a running graph takes it, as far as JSON Schema can say that.

Three things it cannot say. To JSON Schema `1.0` is an integer, to Python a float. JSON has no bytes, only text that stands for
them: a payload has that text, a method takes bytes and no text. And a dict with keys other than text is no JSON: only an empty
one is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from graphbus_core.schema.types import FORMATS, Field, Schema, Type

JsonSchema = dict[str, Any]
Refer = Callable[[Type], str | None]
"""Record -> where its schema stands, for a `$ref`; None: it is written in place."""
Dialect = Literal["2020-12", "draft-07"]
"""Where they differ, which is in tuples only. AsyncAPI knows draft-07, all else 2020-12."""

NOTHING: JsonSchema = {"not": {}}
_SIMPLE = {"null": "null", "bool": "boolean", "int": "integer", "float": "number", "str": "string"}
_ANY_TEXT = frozenset({"str", "any", "unknown"})


def _in_place(_record: Type) -> None:
    return None


class Writer:
    """Writes types as JSON Schema.

    Args:
        refer: Which records stand elsewhere.
        dialect: How tuples are written.
    """

    def __init__(self, refer: Refer = _in_place, dialect: Dialect = "2020-12") -> None:
        self._refer = refer
        self._dialect = dialect

    def arguments(self, schema: Schema) -> JsonSchema:
        """What a method takes: what the schema does not list is refused, unless it is open."""
        return self._object(schema.fields, is_closed=not schema.is_open)

    def result(self, schema: Schema) -> JsonSchema:
        """What a method gives: there may be more; nothing is as good as no fields."""
        return self._object(schema.fields, has_null=not schema.fields)

    def payload(self, schema: Schema) -> JsonSchema:
        """What an event carries: there may be more; an event without a payload has no fields."""
        return self._object(schema.fields, has_null=not any(field.required for field in schema.fields))

    def value(self, of: Type) -> JsonSchema:
        """A value of this type; what is unknown allows everything."""
        if of.kind in _SIMPLE:
            form = {"format": FORMATS[of.name]} if of.kind == "str" and of.name in FORMATS else {}
            return {"type": _SIMPLE[of.kind], **form}
        write = _WRITERS.get(of.kind)
        return write(self, of) if write else {}

    def record(self, of: Type) -> JsonSchema:
        """A record itself, also if others refer to it."""
        return self._object(of.fields)

    def _object(self, fields: tuple[Field, ...], *, is_closed: bool = False, has_null: bool = False) -> JsonSchema:
        schema: JsonSchema = {"type": ["object", "null"] if has_null else "object"}
        if fields:
            schema["properties"] = {field.name: self.value(field.type) for field in fields}
        required = [field.name for field in fields if field.required]
        if required:
            schema["required"] = required
        return schema | ({"additionalProperties": False} if is_closed else {})

    def _record(self, of: Type) -> JsonSchema:
        place = self._refer(of)
        return {"$ref": place} if place else self.record(of)

    def _union(self, of: Type) -> JsonSchema:
        return {"anyOf": [self.value(part) for part in of.args]} if of.args else NOTHING

    def _array(self, of: Type) -> JsonSchema:
        return {"type": "array", **({"items": self.value(of.args[0])} if of.args else {})}

    def _tuple(self, of: Type) -> JsonSchema:
        if not of.args:
            return {"type": "array"}
        size = len(of.args)
        items = "prefixItems" if self._dialect == "2020-12" else "items"
        return {"type": "array", items: [self.value(part) for part in of.args], "minItems": size, "maxItems": size}

    def _dict(self, of: Type) -> JsonSchema:
        if not of.args:
            return {"type": "object"}
        key, item = of.args
        names = {} if key.kind in _ANY_TEXT and key.name not in FORMATS else {"propertyNames": self.value(key)}
        values = {} if item.kind in ("any", "unknown") else {"additionalProperties": self.value(item)}
        return {"type": "object", **names, **values}


_WRITERS: dict[str, Callable[[Writer, Type], JsonSchema]] = {
    "bytes": lambda _writer, _of: {"type": "string", "contentEncoding": "base64"},
    "literal": lambda _writer, of: {"enum": list(of.values)} if of.values else NOTHING,
    "union": Writer._union,
    "record": Writer._record,
    "list": Writer._array,
    "set": Writer._array,
    "tuple": Writer._tuple,
    "dict": Writer._dict,
}
