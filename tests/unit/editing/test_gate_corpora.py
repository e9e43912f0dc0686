"""Every bad edit of the collection is refused by the rung that should refuse it; good ones pass.

The rungs that only read judge without a sandbox; the real jail tries bad edits that only running can tell, and some good ones.
Every run takes some of each kind, `pytest --thorough` all of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing import sandboxes
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes.process import remove_tree
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.proposals import GateReport
from tests import corpora
from tests.conftest import Figure
from tests.thoroughness import some

Edit = corpora.BadEdit | corpora.GoodEdit

BAD, GOOD = corpora.bad_edits(), corpora.good_edits()


def some_of_each(edits: Iterable[Edit], every: int, kind: Callable[[Edit], str]) -> list[Edit]:
    """Give each `every`th of each kind."""
    return [edit for _, found in groupby(sorted(edits, key=kind), kind) for edit in some(list(found), every)]


HOSTILE = [edit for edit in BAD if edit.is_hostile]
HOSTILE_NOW = some_of_each(HOSTILE, 4, lambda edit: edit.group)
READ = [edit for edit in BAD if edit.refused < "G5" and not edit.is_hostile]
RUN = some_of_each((edit for edit in BAD if edit.refused >= "G5"), 10, lambda edit: edit.refused)
GOOD_NOW = some_of_each(GOOD, 3, lambda edit: edit.group)
GOOD_IN_THE_JAIL = some_of_each(GOOD, 40, lambda edit: edit.project)
STATIC = ("G0", "G1", "G2", "G3", "G4")


class Grounds:
    """Projects, each with its gate; one that several edits share is written, and its tests are run, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = cache(self._gate)

    def judge(self, edit: Edit, *, in_jail: bool = False) -> GateReport:
        gate, workspace = self.gate(edit.project, edit.links, edit.timeout_s, bool(edit.refused), in_jail)
        return gate.check(edit.proposal, workspace)

    def _gate(
        self, project: str, links: tuple[str, ...], timeout_s: float, is_bad: bool, in_jail: bool
    ) -> tuple[Gate, Workspace]:
        like = next(edit for edit in (BAD if is_bad else GOOD) if edit.project == project)
        edit = like._replace(links=links, timeout_s=timeout_s)
        root = corpora.write(edit, Path(mkdtemp(dir=self.folder)))
        config = corpora.config_of(edit, root)
        before = Project.read(config, cache=False)
        assert before.errors == ()
        return Gate(before, config, sandboxes.choose_sandbox("jail", root) if in_jail else None), Workspace(before)


@pytest.fixture(scope="module")
def grounds() -> Iterator[Grounds]:
    folder = Path(mkdtemp(prefix="graphbus-corpora-"))  # a jail that kept a file from its owner needs `remove_tree`
    yield Grounds(folder)
    remove_tree(folder)


def code_of(report: GateReport) -> str:
    return report.failure.code if report.failure else ""


def wrongly_judged(edits: Sequence[Edit], codes: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Give the code that was asked for and the one that was given, where they differ, by the names of the edits."""
    wanted = {edit.name: edit.refused for edit in edits}
    if sys.version_info >= (3, 12) and "compile-newer-python" in wanted:
        wanted["compile-newer-python"] = (
            "G2.version"  # it can read it, and then sees that the project's oldest Python cannot
        )
    return {name: (wanted[name], code) for name, code in codes.items() if not code.startswith(wanted[name])}


def test_the_collections_are_as_large_as_promised_and_name_every_edit_once(figure: Figure) -> None:
    names = [edit.name for edit in (*BAD, *GOOD)]

    assert len(names) == len(set(names))
    assert len(BAD) - len(HOSTILE) >= 150
    assert len(GOOD) >= 400
    assert len(HOSTILE) >= 1200
    assert len([edit for edit in BAD if edit.group == "g2_nonsense"]) >= 100
    assert len([edit for edit in BAD if edit.group == "g2_what_runs"]) >= 260
    assert len({edit.group for edit in HOSTILE}) >= 22
    assert {edit.refused[:2] for edit in BAD} >= {"G0", "G1", "G2", "G3", "G4", "G5", "G6"}
    figure("the collections hold", f"{len(BAD)} bad edits and {len(GOOD)} good ones")


@pytest.mark.slow
def test_no_hostile_edit_passes_the_rungs_that_only_read(grounds: Grounds, figure: Figure) -> None:
    """Each is refused for what it is: one that does not even apply would prove nothing."""
    codes = {edit.name: code_of(grounds.judge(edit)) for edit in HOSTILE_NOW}

    tried = Counter(edit.group for edit in HOSTILE_NOW)
    passed = [name for name, code in codes.items() if not code.startswith(STATIC[:4])]
    figure("hostile edits", f"{tried.total()} tried in {len(tried)} classes, {len(passed)} passed")
    assert passed == []
    assert wrongly_judged(HOSTILE_NOW, codes) == {}


@pytest.mark.slow
def test_bad_edits_are_refused_by_the_rung_that_should(grounds: Grounds, figure: Figure) -> None:
    read = {edit.name: code_of(grounds.judge(edit)) for edit in READ}
    run = {edit.name: code_of(grounds.judge(edit, in_jail=True)) for edit in RUN}

    codes = read | run
    figure("bad edits that passed the gate", f"{sum(not code for code in codes.values())} of {len(codes)}")
    assert wrongly_judged([*READ, *RUN], codes) == {}


@pytest.mark.slow
@pytest.mark.no_cover
def test_no_good_edit_is_refused_for_its_text(grounds: Grounds, figure: Figure) -> None:
    refused = {}
    for edit in GOOD_NOW:
        rungs = grounds.judge(edit).rungs[: len(STATIC)]
        if tuple((rung.rung, rung.status) for rung in rungs) != tuple((name, "passed") for name in STATIC):
            refused[edit.name] = f"{rungs[-1].code} {rungs[-1].path}:{rungs[-1].line}: {rungs[-1].message}"
    figure("good edits", f"{len(GOOD_NOW)} tried, {len(refused)} refused")
    assert refused == {}


@pytest.mark.slow
@pytest.mark.no_cover
def test_good_edits_pass(grounds: Grounds, figure: Figure) -> None:
    codes = {edit.name: code_of(grounds.judge(edit, in_jail=True)) for edit in GOOD_IN_THE_JAIL}

    figure("good edits refused in the jail", f"{sum(map(bool, codes.values()))} of {len(codes)}")
    assert {name: code for name, code in codes.items() if code} == {}
    assert {edit.project for edit in GOOD_IN_THE_JAIL} == {edit.project for edit in GOOD}
