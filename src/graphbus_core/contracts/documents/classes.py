"""Records that bear a name, TypedDicts and dataclasses: described once, and referred to.

Where two classes of one name look different, each is described in place: no number would be a name that stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from graphbus_core.contracts.documents.parts import Part
from graphbus_core.schema.json_schema import Dialect, JsonSchema, Writer
from graphbus_core.schema.types import Type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Classes:
    """The named records of some parts.

    Args:
        parts: Where they are found.
        at: What stands before the name in a `$ref`, e.g. `#/$defs/`.
        dialect: Of the JSON Schema that is written.
    """

    def __init__(self, parts: Iterable[Part], at: str, dialect: Dialect = "2020-12") -> None:
        self._at = at
        self._by_name = _unambiguous(each for part in parts for kind in part.types for each in _records_in(kind))
        self._needed: dict[str, None] = {}
        self.writer = Writer(self._refer, dialect)

    def needed(self) -> dict[str, JsonSchema]:
        """The schemas of all classes that were referred to since this was asked last, by name."""
        written: dict[str, JsonSchema] = {}
        while missing := [name for name in self._needed if name not in written]:
            for name in missing:
                written[name] = self.writer.record(self._by_name[name])
        self._needed.clear()
        return dict(sorted(written.items()))

    def _refer(self, record: Type) -> str | None:
        if self._by_name.get(record.name) != record:
            return None
        self._needed[record.name] = None
        return self._at + record.name


def _unambiguous(records: Iterable[Type]) -> dict[str, Type]:
    found: dict[str, set[Type]] = {}
    for record in records:
        if _NAME.fullmatch(record.name):
            found.setdefault(record.name, set()).add(record)
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


def _records_in(kind: Type) -> Iterator[Type]:
    if kind.kind == "record":
        yield kind
    for inner in (*kind.args, *(field.type for field in kind.fields)):
        yield from _records_in(inner)
