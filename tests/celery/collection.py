"""The collections of labelled changes in `changes.txt` and `mall_changes.txt`, and what a reader says about each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from graphbus_core.contracts.tasks import TaskComparison, compare_tasks
from graphbus_core.readers import celery
from graphbus_core.readers.seam import Project

Files = dict[str, str]


class Change(NamedTuple):
    """A labelled change: `verdict` is `safe`, `breaks`, `unknown` or `note`; `ways` are `old` and `new`."""

    name: str
    verdict: str
    ways: tuple[str, ...]
    task: str
    parameter: str
    old: Files
    new: Files


def read_changes() -> list[Change]:
    """Return all changes of both collections."""
    shop = dict(_read_file(part) for part in _read("mall.txt").split("*** ")[1:])
    changes = [_read_change(name, label, *_both_sides(body)) for name, label, *body in _entries("changes.txt")]
    edits = [(name, label, {**shop, **_edit(shop, body)}) for name, label, *body in _entries("mall_changes.txt")]
    return [*changes, *(_read_change(name, label, shop, edited) for name, label, edited in edits)]


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _read_file(text: str) -> tuple[str, str]:
    path, body = text.split("\n", 1)
    return path, body


def _entries(name: str) -> Iterator[list[str]]:
    return (part.rstrip("\n").split("\n") for part in re.split(r"^=== ", _read(name), flags=re.MULTILINE)[1:])


def _read_change(name: str, label: str, old: Files, new: Files) -> Change:
    verdict, *words = label.removeprefix("label: ").split()
    ways = tuple(word for word in words if word in ("old", "new"))
    task, parameter, *_ = (*(word for word in words if word not in ways), "", "")
    return Change(name, verdict, ways, task, parameter, old, new)


def _edit(files: Mapping[str, str], body: list[str]) -> Files:
    """Return the files that an entry of `mall_changes.txt` changes."""
    changed: Files = {}
    path = before = ""
    for mark, lines in groupby(body, key=lambda line: line[:1]):
        text = "\n".join(line[2:] for line in lines)
        if mark == "*":
            path = text[2:]
        elif mark == "-":
            before = text
        else:
            old = changed.get(path, files.get(path, ""))
            assert before in old, (path, before)
            changed[path] = old.replace(before, text) if before else f"{text}\n"
            before = ""
    return changed


def _both_sides(body: list[str]) -> tuple[Files, Files]:
    """Return the old and the new files of an entry of `changes.txt`."""
    old: Files = {}
    new: Files = {}
    path = ""
    for line in filter(None, body):
        mark, rest = line[0], line[2:]
        if mark == "*":
            path = line[4:]
        for side, other in ((old, "+"), (new, "-")):
            if mark not in ("*", other):
                side[path] = f"{side.get(path, '')}{rest}\n"
    return old, new


def compare(old: Mapping[str, str], new: Mapping[str, str]) -> TaskComparison:
    """Compare two states of a project, as the command does: with the files that differ in the focus."""
    focus = frozenset(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    memory: dict[object, object] = {}
    before, after = (
        celery.read(Project(files, lambda path, files=files: files[path].encode(), focus, memory))  # type: ignore[misc]
        for files in (old, new)
    )
    return compare_tasks(before, after)


def answer_of(found: TaskComparison) -> tuple[str, tuple[str, ...], set[str], set[str]]:
    """Return the verdict, the ways in which messages fail, the tasks, and the parameters that the remarks name."""
    verdict = next((each.verdict for each in found.remarks), "safe")
    remarks = [each for each in found.remarks if each.verdict == verdict]
    ways = [("old", any(each.forward for each in remarks)), ("new", any(each.back for each in remarks))]
    parameters = {part.parameter for each in remarks for part in each.differences}
    return verdict, tuple(way for way, fails in ways if fails), {each.task for each in remarks}, parameters
