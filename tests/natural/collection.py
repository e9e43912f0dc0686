"""The collection of natural code: correct projects, and defects as small changes of them.

A project is a text: what it is like, then its files, each below a line `=== path`. `#: …` names a construct.
A defect stands in `defects/` below the name of its project: `=== name`, what finds it, which edges it breaks, and the change.

    === key renamed by the publisher
    expect: GB003              codes, separated by |; `check`: any error or warning; `mypy`: the type checker;
                               `unknown`: it need not be found, but its edge is not proven
    edge: /Order/Created Ledger.on_created
    shop/orders.py
    -    self.publish(ORDER_CREATED, {"order_id": order_id})
    +    self.publish(ORDER_CREATED, {"id": order_id})

Lines with `+` alone are added to the end of the file, or make a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_HEAD = re.compile(r"^=== (.+)$", re.MULTILINE)
_CONSTRUCT = re.compile(r"#: (.+)$", re.MULTILINE)


class Correct(NamedTuple):
    """A project that gives no error and no warning."""

    name: str
    files: Mapping[str, str]

    @property
    def constructs(self) -> list[str]:
        """The names of its constructs."""
        return [name for text in self.files.values() for name in _CONSTRUCT.findall(text)]


class Defect(NamedTuple):
    """A correct project with one mistake.

    Attributes:
        expected: Codes, `check` or `mypy`.
        edges: The words by which each edge that the mistake breaks is known: agent, topic or handler.
        files: The whole project with the mistake.
    """

    project: str
    name: str
    expected: tuple[str, ...]
    edges: tuple[frozenset[str], ...]
    files: Mapping[str, str]

    @property
    def key(self) -> str:
        """How the tables of the tests name it."""
        return f"{self.project}: {self.name}"


def correct_projects() -> list[Correct]:
    """All of them, by name."""
    return [Correct(path.stem, dict(_sections(path))) for path in sorted((HERE / "correct").glob("*.txt"))]


def defects() -> list[Defect]:
    """All of them, by project."""
    projects = {each.name: each.files for each in correct_projects()}
    return [
        _defect(path.stem, name, text, projects[path.stem])
        for path in sorted((HERE / "defects").glob("*.txt"))
        for name, text in _sections(path)
    ]


def _sections(path: Path) -> Iterator[tuple[str, str]]:
    parts = _HEAD.split(path.read_text(encoding="utf-8"))
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        yield name.strip(), text.removeprefix("\n")


def _defect(project: str, name: str, text: str, files: Mapping[str, str]) -> Defect:
    said: dict[str, list[str]] = {"expect": [], "edge": []}
    changed, path, old, new = dict(files), "", "", ""
    for line in [*text.splitlines(), "end"]:
        word, _, rest = line.partition(": ")
        if line[:1] == "-" and not new:
            old += f"{line[1:]}\n"
        elif line[:1] == "+":
            new += f"{line[1:]}\n"
        elif line.strip() and line[0] != "#":
            changed |= _changed(changed, path, old, new, name)
            old, new = (f"{line[1:]}\n", "") if line[0] == "-" else ("", "")
            if word in said:
                said[word].append(rest)
            elif line[0] != "-":
                path = line
    edges = tuple(frozenset(each.split()) for each in said["edge"])
    return Defect(project, name, tuple("|".join(said["expect"]).split("|")), edges, changed)


def _changed(files: Mapping[str, str], path: str, old: str, new: str, name: str) -> dict[str, str]:
    if not old and not new:
        return {}
    text = files.get(path, "")
    if not old:
        return {path: text + new}
    old, new = old[:-1], new[:-1]  # the last line may be the beginning of one
    assert text.count(old) == 1, f"{name}: {path} has {text.count(old)} times\n{old}"
    return {path: text.replace(old, new)}
