"""`contract diff --both-ways` on labelled changes: what it finds, what it misses, and that it never says ✓ of what breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.contracts.agent_messages import messages_of
from graphbus_core.contracts.both_ways import BothWays, EdgeAnswers, Problem, compare_both_ways
from graphbus_core.contracts.messages import Messages
from graphbus_core.contracts.surface import Surface
from graphbus_core.model.config import BuildConfig
from graphbus_core.settings import resolve_build
from tests.project_files import write_project

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PYPROJECT = '[tool.graphbus]\nexternal_topics = ["/Till/Scanned"]\n'


class Change(NamedTuple):
    """A change of a project: pairs of an old and a new text, and what it breaks."""

    project: str
    name: str
    edits: tuple[tuple[str, str], ...]
    labels: frozenset[str]


def parse(project: str, entry: str) -> Change:
    """An entry of a file of changes."""
    name, *lines = entry.rstrip("\n").split("\n")
    labels = frozenset(lines.pop(0).split()[1:]) if lines[0].startswith("breaks:") else frozenset()
    blocks = [(mark, "\n".join(line[1:] for line in each)) for mark, each in groupby(lines, key=lambda line: line[:1])]
    edits = [
        (text, blocks[at + 1][1] if blocks[at + 1 : at + 2] and blocks[at + 1][0] == "+" else "")
        for at, (mark, text) in enumerate(blocks)
        if mark == "-"
    ]
    return Change(project, name, tuple(edits), labels)


CHANGES = tuple(
    parse(project, entry)
    for project in ("shop", "office")
    for entry in (HERE / f"{project}_changes.txt").read_text().split("\n# ")[1:]
)


def read(folder: Path, text: str) -> Messages:
    root = write_project(folder, {"agents/shop.py": text, "pyproject.toml": PYPROJECT})
    project = Project.read(resolve_build(BuildConfig(paths=(str(root / "agents"),))), cache=False)
    assert not project.errors
    return messages_of(Surface(project.definitions, project.graph.topics))


def changed(change: Change) -> str:
    text = (HERE / f"{change.project}.txt").read_text()
    for old, new in change.edits:
        assert old in text, (change.name, old)
        text = text.replace(old, new)
    return text


class Said(NamedTuple):
    """The labels that the comparison gives, and those of them that it lists: not what is as unknown in each build alone."""

    labels: frozenset[str]
    listed: frozenset[str]

    @property
    def breaks(self) -> frozenset[str]:
        return frozenset(each for each in self.labels if each[0] != "?")

    @property
    def unknown(self) -> frozenset[str]:
        return self.labels - self.breaks


def said_of(found: BothWays) -> Said:
    problems = [(edge, each) for edge in found.edges for each in edge.problems]
    every = (label for edge, each in problems for label in labels_of(edge, each))
    listed = (label for edge, each in problems if each.is_new for label in labels_of(edge, each))
    return Said(frozenset(every), frozenset(listed))


def labels_of(edge: EdgeAnswers, problem: Problem) -> set[str]:
    channel = f"{edge.channel}{'=' if edge.kind == 'answer' else ''}"
    if problem.verdict != "breaks":
        return {f"?:{channel}"} if problem.verdict == "unknown" else set()
    return {f"{letter}:{channel}" for letter, way in (("F", "forward"), ("B", "back")) if way in problem.ways}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], Said]:
    folder = tmp_path_factory.mktemp("projects")
    old = {name: read(folder / name, (HERE / f"{name}.txt").read_text()) for name in ("shop", "office")}

    @cache
    def compare(change: Change) -> Said:
        new = read(folder / str(CHANGES.index(change)), changed(change))
        return said_of(compare_both_ways(old[change.project], new))

    return compare


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_breaks_what_its_labels_say(change: Change, said: Callable[[Change], Said]) -> None:
    """What is unknown besides does no harm: it is not ✓."""
    found = said(change)
    assert found.breaks == change.labels - found.unknown
    assert {each for each in change.labels if each[0] == "?"} <= found.unknown


def test_the_figures(said: Callable[[Change], Said], figure: Callable[[str, object], None]) -> None:
    counts: Counter[str] = Counter()
    for change in CHANGES:
        found, expected = said(change), {each for each in change.labels if each[0] != "?"}
        missed = change.labels - found.labels
        counts["found"] += len(expected & found.breaks)
        counts["missed"] += len(expected - found.breaks)
        counts["wrong"] += len(found.breaks - expected)
        counts["false ✓"] += sum(f"?{each[1:]}" not in found.unknown for each in missed)
        counts["doubts without need"] += len({each for each in found.listed if each[0] == "?"} - change.labels)
    figure(f"{len(CHANGES)} labelled changes of GraphBus code, both ways", dict(counts))
    assert (counts["missed"], counts["wrong"], counts["false ✓"]) == (0, 0, 0)
