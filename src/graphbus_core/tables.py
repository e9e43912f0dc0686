"""Fills settings classes from TOML tables. Each value is checked, and all errors are collected with their lines."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from graphbus_core.errors import GraphBusError, Place, UsageError, did_you_mean

Table = TypeVar("Table", bound=msgspec.Struct)
Config = TypeVar("Config", bound=msgspec.Struct)


@cache
def _required_keys(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a settings class that have no default."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


@cache
def _type_hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


class TableReader:
    """Fills settings classes from tables of a TOML document, and collects the errors.

    Args:
        path: The file, for the places of errors.
        text: The text of the document, in which the lines of errors are searched.

    Attributes:
        errors: The errors found so far: GBE102 for unknown keys, GBE103 for wrong values, GBE144 for missing keys.
    """

    def __init__(self, path: str, text: str) -> None:
        self.errors: list[GraphBusError] = []
        self._path = path
        self._paths = list(_list_written_paths(text))

    def read(self, kind: type[Table], table: object, names: tuple[str, ...], before: Table | None = None) -> Table:
        """Return an object of a settings class, filled from a table. Wrong and unknown keys are left out and added to `errors`.

        Args:
            kind: The settings class.
            table: The table of the document; any other value is an error.
            names: The keys that lead to the table.
            before: The values of keys that the table does not set; None: their defaults.
        """
        required = _required_keys(kind)
        before = before or kind(**dict.fromkeys(required, ""))
        if not isinstance(table, dict):
            self._add_wrong_value(names[:-1], names[-1], "a table", table)
            return before
        hints = _type_hints(kind)
        valid: dict[str, Any] = {}
        for key, value in table.items():
            inner = _find_table_class(hints.get(key))
            if key not in hints:
                self._add_unknown_key(names, key, hints)
            elif inner is hints[key]:  # a table
                valid[key] = self.read(inner, value, (*names, key), getattr(before, key))
            elif inner:  # a mapping of tables
                valid[key] = self._read_named(inner, value, (*names, key), getattr(before, key))
            else:
                valid |= self._convert_value(names, key, value, hints[key])
        for key in required:
            if key not in table and not getattr(before, key):
                self._add_missing_key(names, key)
        return msgspec.structs.replace(before, **valid)

    def _read_named(
        self, kind: type[Table], tables: object, names: tuple[str, ...], before: dict[str, Table]
    ) -> dict[str, Table]:
        """Return name -> object for tables whose names the user chooses, e.g. one for each provider, merged into `before`."""
        if not isinstance(tables, dict):
            self._add_wrong_value(names[:-1], names[-1], "a table of tables", tables)
            return before
        return before | {
            name: self.read(kind, table, (*names, name), before.get(name)) for name, table in tables.items()
        }

    def _convert_value(self, names: tuple[str, ...], key: str, value: object, hint: Any) -> dict[str, Any]:
        """Return key -> converted value; empty, with an error added, if the value has a wrong type or breaks a rule."""
        try:
            converted = msgspec.convert(value, hint)
        except msgspec.ValidationError:
            expected = _HOSTS if names[-1:] == ("powers",) and key == "network" else _describe_type(hint)
            self._add_wrong_value(names, key, expected, value)
            return {}
        if isinstance(converted, int | float) and converted < 0:
            self._add_wrong_value(names, key, f"{_describe_type(hint).partition(' or ')[0]} of at least 0", value)
            return {}
        if isinstance(converted, float) and not math.isfinite(converted):
            self._add_wrong_value(names, key, "a finite number", value)
            return {}
        is_allowed, expected = _RULES.get((names[-1] if names else "graphbus", key), (lambda _value: True, ""))
        if not is_allowed(converted):
            self._add_wrong_value(names, key, expected, value)
            return {}
        return {key: converted}

    def _add_unknown_key(self, names: tuple[str, ...], key: str, known: Iterable[str]) -> None:
        """Add the error GBE102 for a key that its table does not have."""
        error = UsageError(
            "GBE102",
            where=self.place(names, key),
            key=key,
            table=_format_table_name(names),
            suggestion=did_you_mean(key, known),
            known=", ".join(sorted(known)),
        )
        self.errors.append(error)

    def _add_wrong_value(self, names: tuple[str, ...], key: str, expected: str, value: object) -> None:
        """Add the error GBE103 for a value that is not what is expected."""
        where = self.place(names, key)
        got = "written in a file" if key == "api_key" else repr(value)  # an API key must not appear in a message
        self.errors.append(
            UsageError("GBE103", where=where, key=key, table=_format_table_name(names), expected=expected, got=got)
        )

    def _add_missing_key(self, names: tuple[str, ...], key: str) -> None:
        """Add the error GBE144 for a table without a required key."""
        where = self.place(names[:-1], names[-1])
        self.errors.append(UsageError("GBE144", where=where, key=key, table=_format_table_name(names)))

    def place(self, names: tuple[str, ...], key: str) -> Place:
        """Return the line that sets the key, or else the line of the innermost table around it; line 0 if there is neither.

        TOML can write a table in many ways. So this takes the first line whose dotted path has the most names in common with the
        path of the key, from the beginning on.
        """
        target = [*names, key]
        longest, line = int(names[:1] == ("tool",)), 0  # `tool` alone also matches tables of other tools
        for number, path in self._paths:
            pairs = enumerate(zip(path, target, strict=False))
            common = next((index for index, (each, other) in pairs if each != other), min(len(path), len(target)))
            if longest < common:
                longest, line = common, number
        return Place(self._path, line)


def convert_config(config: Config) -> Config:
    """Return a configuration from Python code with its values converted to the declared types, e.g. lists to tuples.

    Raises:
        UsageError: GBE146 for a value that is of another type.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(type(config)):
        value = getattr(config, field.name)
        if field.name == "instruments":  # functions, which have no declared type to convert to
            continue
        try:
            values[field.name] = msgspec.convert(msgspec.to_builtins(value, enc_hook=os.fspath), field.type)
        except (msgspec.ValidationError, TypeError) as error:
            reason, _, place = str(error).partition(" - at `$")
            name = f"{type(config).__name__}.{field.name}{place.rstrip('`')}"
            advice = "Correct this argument in the Python code that creates the configuration."
            raise UsageError("GBE146", name=name, reason=f"{reason[:1].lower()}{reason[1:]}", advice=advice) from None
    return msgspec.structs.replace(config, **values)


def _format_table_name(names: tuple[str, ...]) -> str:
    """Return the name of a table for a message, e.g. `[tool.graphbus.gate]`; `the settings` for the top of a file (no names)."""
    return f"[{'.'.join(names)}]" if names else "the settings"


def _list_written_paths(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the dotted path of each table header and of each key at the start of a line."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = re.sub(r"[\s\"']", "", line.partition("#")[0])
        if stripped.startswith("["):
            table = stripped.strip("[]").split(".")
            yield number, table
        elif "=" in stripped:
            yield number, [*table, *stripped.partition("=")[0].split(".")]


def _find_table_class(hint: Any) -> type[msgspec.Struct] | None:
    """Return the settings class of a table, or of each table in a mapping; None for a plain value."""
    if get_origin(hint) is dict:
        hint = get_args(hint)[1]
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def _describe_type(hint: Any) -> str:
    """Return in words which values a type allows, for a message, e.g. `a list of strings`."""
    plain = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    if hint in plain:
        return plain[hint]
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " or ".join(f'"{choice}"' for choice in choices)
    if choices and get_origin(choices[-1]) is Literal:  # true or false, or a number, or "auto"
        return f"{plain[choices[0]].replace(' or', ',')} or {_describe_type(choices[-1])}"
    if get_origin(hint) is dict:
        return f"a table of {_describe_items(choices[1])}"
    if get_origin(hint) is not tuple and any(get_origin(choice) is tuple for choice in choices):
        return "false or a list of strings"
    return f"a list of {_describe_items(choices[0])}"


def _describe_items(hint: Any) -> str:
    """Return in words the items of a list, given their type, e.g. `strings`."""
    plain = {str: "strings", int: "whole numbers"}
    return plain[hint] if hint in plain else f"lists of {_describe_items(get_args(hint)[0])}"


def _is_inside_project(path: str) -> bool:
    """True for a relative path to something below the project folder."""
    parts = path.split("/")
    return bool(path) and not os.path.isabs(path) and ".." not in parts and "\0" not in path and path.strip("./") != ""


def _is_positive(value: Any) -> bool:
    return bool(value > 0)


def _all_match(pattern: str) -> Callable[[Any], bool]:
    """Return a test that is true if all strings match the pattern."""
    return lambda values: all(re.fullmatch(pattern, value) for value in values)


def _are_hosts(values: Any) -> bool:
    """True for a list of hosts: `*`, names with or without a leading `*.`, and addresses; also for False."""
    return values is False or (bool(values) and all(map(_is_host, values)))


def _is_host(text: str) -> bool:
    """True for `*`, an address, or a host name with or without a leading `*.`."""
    label = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    # a text of digits and dots is no name: it must be a valid address
    if text == "*" or (re.fullmatch(rf"(\*\.)?{label}(\.{label})*", text) and not re.fullmatch(r"[0-9.]+", text)):
        return True
    from ipaddress import ip_address

    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _are_paths(values: Any) -> bool:
    """True for paths without `..`, blank ones, null bytes, `~`, `$` and the wildcards `*`, `?` and `[`; they may be absolute."""
    return all(
        value.strip() and "\0" not in value and ".." not in value.split("/") and not set("*?[~$") & set(value)
        for value in values
    )


_PARTITIONS = "a table of agents, each with a whole number from 2 to 1000"
_HOSTS = 'false or a list of hosts: names, "*.name", addresses, or ["*"] for every host'

_RULES: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    ("graphbus", "artifacts"): (_is_inside_project, "a folder inside the project"),
    ("llm", "api_key"): (lambda key: not key, "set through the environment variable that `key_env` names"),
    ("powers", "network"): (_are_hosts, _HOSTS),
    ("powers", "write"): (_are_paths, "a list of files and folders, without `..` and patterns"),
    ("powers", "read"): (_are_paths, "a list of files and folders, without `..` and patterns"),
    ("powers", "environment"): (
        _all_match(r"[A-Za-z_][A-Za-z0-9_]*\*?"),
        'a list of names like "DATABASE_URL" or "SHOP_*"',
    ),
    ("runtime", "partitions"): (_is_positive, "a whole number of at least 1"),
    ("nats", "replicas"): (lambda count: count <= 5, "a whole number up to 5"),
    ("nats", "partitions"): (lambda counts: all(2 <= each <= 1000 for each in counts.values()), _PARTITIONS),
    ("serve", "port"): (lambda port: port < 65_536, "a whole number up to 65535"),
    ("serve", "max_connections"): (_is_positive, "a whole number of at least 1"),
    ("serve", "concurrency"): (_is_positive, "a whole number of at least 1"),
    ("serve", "call_timeout_s"): (_is_positive, "a number above 0"),
    ("serve", "allowed_origins"): (  # as browsers send them: in lower case, without a path
        _all_match(r"[a-z][a-z0-9+.-]*://[^\s/*?#@A-Z]+"),
        'a list of origins like "https://shop.example.org:8443"',
    ),
    ("serve", "allowed_hosts"): (
        _all_match(r"[A-Za-z0-9._-]+"),
        'a list of names like "shop.example.org", without a port',
    ),
}
"""Conditions besides the type: (table, key) -> test, and the text for what is expected."""
