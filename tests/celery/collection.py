"""The collection of labelled changes in `changes.txt`, and what a reader says about each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """Return all changes of the collection."""
    text = Path(__file__).with_name("changes.txt").read_text("utf-8")
    return [_read_change(part) for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]]


def _read_change(text: str) -> Change:
    name, label, *body = text.rstrip("\n").split("\n")
    verdict, *words = label.removeprefix("label: ").split()
    ways = tuple(word for word in words if word in ("old", "new"))
    task, parameter, *_ = (*(word for word in words if word not in ways), "", "")
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
    return Change(name, verdict, ways, task, parameter, old, new)


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
