"""The type that a value needs to have so that certain paths into it can be read, such as `lines[].sku`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from graphbus_core.schema.types import ITEM, STR, UNKNOWN, Field, Type, union

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


def container_of(whole: Type, path: str) -> tuple[Type, str]:
    """Return the type of the value that contains the last key of a path such as `bookings[].text`, and that key.

    `whole` is the type of the value at which the path begins.
    """
    *parts, key = split_path(path)
    return type_at(whole, parts), key


def split_path(path: str) -> list[str]:
    """Return the keys of a path: `items[].sku` -> `["items", "[]", "sku"]`."""
    return path.replace(ITEM, f".{ITEM}").split(".")


def type_at(whole: Type, keys: Iterable[str]) -> Type:
    """Return the type of the value to which keys lead, of which `ITEM` stands for any item; `UNKNOWN` if it is not known.

    What may be None on the way is taken for the other type: a condition may have excluded None.
    """
    for key in keys:
        whole = _without_none(whole)
        field = next((field.type for field in whole.fields if field.name == key), UNKNOWN)
        if key == ITEM:
            items = STR if whole.kind == "str" and not whole.name else UNKNOWN
            whole = whole.args[0] if whole.kind in ("list", "set") and whole.args else items
        else:
            whole = whole.args[1] if whole.kind == "dict" and whole.args else field
    return whole


def _without_none(of: Type) -> Type:
    return union(*(each for each in of.args if each.kind != "null")) if of.kind == "union" and of.args else of


def has_path(given: Type, path: str) -> bool:
    """Return whether a value certainly has a path such as `items[].sku`.

    A path that ends with `?` may lead to any key: True only if there is nothing below that has keys.
    """
    container, key = container_of(given, path)
    if key == ANYTHING_BELOW:
        return is_flat(container)
    return container.kind == "record" and any(field.name == key and field.required for field in container.fields)


def is_flat(of: Type) -> bool:
    """Return whether no part of a value of this type has keys: it is a scalar, or a list, set, tuple or union of scalars."""
    if of.kind in ("list", "set", "tuple", "union"):
        return bool(of.args) and all(map(is_flat, of.args))
    return of.kind in ("str", "int", "float", "bool", "bytes", "null", "literal")
