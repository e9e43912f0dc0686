"""What may be repeated of what tried code has said: places and words that are known without it.

A model reads the reasons of the gate, and they are kept in records and reports. Tried code could put any file of the project into
the text of an error, the name of a class or of a test. So only this is repeated: a path of the project and a line that it has,
a name that stands in the text of a file, an exception that Python itself defines. All else is for the person alone, shortened.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.reading import syntax

MOST_CHARACTERS, MOST_LINES = 2000, 20
_ANY_ERROR = "an error"
_OF_LIBRARY = ("CancelledError", "Empty", "FrozenInstanceError", "Full", "InvalidOperation", "JSONDecodeError")
_LONGEST_FILE = 4_000_000
_IN_TEXT = re.compile(r"^\s*([^\s:()\"']+\.\w+):(\d+)", re.MULTILINE)


class Raised(msgspec.Struct, frozen=True, array_like=True):
    """An exception as `inside/graphbus_raised.py` tells it: class, text, and where it came from, nearest last."""

    name: str
    text: str = ""
    steps: list[tuple[str, int]] = []

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


class Spot(NamedTuple):
    """A line of a file of the project; nothing for none that is known."""

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class Files:
    """The files of a state of the project, by which places and names are recognised."""

    def __init__(self, root: Path, changed: Mapping[str, bytes | None]) -> None:
        self._root = root
        self._changed = changed
        self._names: dict[str, frozenset[str]] = {}

    def text(self, path: str) -> bytes | None:
        """Give the text of a file; None for what is no file of the project."""
        if path in self._changed:
            return self._changed[path]
        parts = path.split("/")
        if path != Path(path).as_posix() or parts[0] in ("", ".") or ".." in parts:
            return None
        try:
            file = self._root / path
            is_ours = file.is_file() and file.resolve().is_relative_to(self._root.resolve())
            return file.read_bytes() if is_ours and file.stat().st_size <= _LONGEST_FILE else None
        except (OSError, ValueError):
            return None

    def spot(self, path: str, line: int = 0) -> Spot:
        """Give a place if there is such a file, with its line if the file has that line."""
        text = self.text(path)
        if text is None:
            return Spot()
        return Spot(path, line if 0 < line <= text.count(b"\n") + 1 else 0)

    def last(self, steps: Iterable[tuple[str, int]]) -> Spot:
        """Give the last place that is known."""
        return next((spot for spot in (self.spot(*step) for step in reversed(list(steps))) if spot.line), Spot())

    def spots_in(self, text: str) -> list[Spot]:
        """Give the places with which lines of a text begin, each once."""
        found = (self.spot(path.removeprefix("./"), int(line[:9])) for path, line in _IN_TEXT.findall(text))
        return list(dict.fromkeys(spot for spot in found if spot.line))

    def test(self, name: str) -> str:
        """Give the name of a test as far as it stands in its file: without parameters, and without what was made by code."""
        path, *parts = name.partition("[")[0].split("::")
        spot = self.spot(path)
        known = self._defined(path) if spot.path else frozenset()
        kept = parts[: next((at for at, part in enumerate(parts) if part not in known), len(parts))]
        return "::".join([spot.path, *kept]) if spot.path else "a test"

    def _defined(self, path: str) -> frozenset[str]:
        if path not in self._names:
            try:
                tree = syntax.parse(self.text(path) or b"")
            except (SyntaxError, ValueError, RecursionError):
                return frozenset()
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            self._names[path] = frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
        return self._names[path]


def error_name(name: str) -> str:
    """Give the name of an exception of Python itself; of others only that there was one."""
    if name in _OF_LIBRARY:
        return name
    found = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else _ANY_ERROR


def names(found: Iterable[str], known: Collection[str], noun: str) -> str:
    """Give the names that are known, and how many others there are."""
    told = list(dict.fromkeys(found))
    kept = [name for name in told if name in known]
    others = len(told) - len(kept)
    return ", ".join([*kept, *([f"{others} {noun}{'s' if others > 1 else ''} of other names"] if others else [])])


def shortened(text: str) -> str:
    """Give the beginning of a text, for the person."""
    lines = text.strip().splitlines()
    kept = "\n".join(lines[:MOST_LINES])
    is_whole = len(lines) <= MOST_LINES and len(kept) <= MOST_CHARACTERS
    return kept if is_whole else f"{kept[:MOST_CHARACTERS]} …"
