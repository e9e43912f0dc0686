"""The type that a value needs to have so that certain paths into it can be read, such as `lines[].sku`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphbus_core.schema.types import ITEM, UNKNOWN, Field, Type

ANYTHING_BELOW = "?"
"""A last step that may read any part of the value."""
_KEY = re.compile(r"[^.\[]+")


def type_of_paths(paths: Mapping[str, bool]) -> Type:
    """Return the record that has these paths; `UNKNOWN` if there are none.

    Args:
        paths: Path -> whether it must be there.
    """
    below: dict[str, dict[str, bool]] = {}
    for path, is_needed in paths.items():
        if found := _KEY.match(path):
            below.setdefault(found[0], {})[path[found.end() :]] = is_needed
    below.pop(ANYTHING_BELOW, None)
    fields = tuple(Field(name, type_of_rest(rest), any(rest.values())) for name, rest in below.items())
    return Type("record", fields=fields) if fields else UNKNOWN


def type_of_rest(rest: Mapping[str, bool]) -> Type:
    """Return the type of a value of which these rests of paths are read; each is empty or begins with `[]` or `.`."""
    items = {path.removeprefix(ITEM): is_needed for path, is_needed in rest.items() if path.startswith(ITEM)}
    if items:
        return Type("list", (type_of_rest(items),))
    return type_of_paths({path.removeprefix("."): is_needed for path, is_needed in rest.items() if path})
