"""Every bad edit of the collection is refused by the rung that should refuse it; good ones pass. With the real jail.

Hostile edits are refused before anything runs, in `test_hostile_edits.py`. All good edits climb the rungs that only read in
`test_good_edits.py`; of them, the jail tries a part of every style.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tests import corpora

Figure = Callable[[str, object], None]
Edit = corpora.BadEdit | corpora.GoodEdit

ALL, GOOD = corpora.bad_edits(), corpora.good_edits()
BAD = [edit for edit in ALL if not edit.is_hostile]
TRIED_IN_THE_JAIL = GOOD[::8]


class Grounds:
    """Projects, each with its gate; one that several edits share is written, and its tests are run, once."""

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="graphbus-corpora-"))
        self.gate = cache(self._gate)

    def check(self, edit: Edit) -> str:
        """Give the code of the refusal; empty when it passes."""
        gate, workspace = self.gate(edit.project, edit.links, edit.timeout_s, bool(edit.refused))
        report = gate.check(edit.proposal, workspace)
        return report.failure.code if report.failure else ""

    def _gate(self, project: str, links: tuple[str, ...], timeout_s: float, is_bad: bool) -> tuple[Gate, Workspace]:
        like = next(edit for edit in (BAD if is_bad else GOOD) if edit.project == project)
        edit = like._replace(links=links, timeout_s=timeout_s)
        root = corpora.write(edit, Path(mkdtemp(dir=self.folder)))
        config = corpora.config_of(edit, root)
        before = Project.read(config, cache=False)
        assert before.errors == ()
        return Gate(before, config, sandboxes.choose("jail", root)), Workspace(before)


def judged(edits: Sequence[Edit]) -> dict[str, str]:
    """Let each edit climb, two projects at a time, and give the codes of the refusals by the names of the edits."""
    ordered = sorted(edits, key=lambda edit: edit.project)
    parts = [list(part) for _, part in groupby(ordered, key=lambda edit: edit.project)]
    with ThreadPoolExecutor(2) as pool:
        return {name: code for found in pool.map(_judged, sorted(parts, key=len, reverse=True)) for name, code in found}


def _judged(edits: Sequence[Edit]) -> list[tuple[str, str]]:
    grounds = Grounds()
    try:
        return [(edit.name, grounds.check(edit)) for edit in edits]
    finally:
        remove_tree(grounds.folder)


def test_the_collections_are_as_large_as_promised_and_name_every_edit_once(figure: Figure) -> None:
    names = [edit.name for edit in (*ALL, *GOOD)]

    assert len(names) == len(set(names))
    assert len(BAD) >= 150
    assert len(GOOD) >= 400
    assert {edit.refused[:2] for edit in BAD} >= {"G0", "G1", "G2", "G3", "G4", "G5", "G6"}
    figure("the collections hold", f"{len(ALL)} bad edits and {len(GOOD)} good ones")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bad_edits_are_refused_by_the_rung_that_should(figure: Figure) -> None:
    found = judged(BAD)

    figure("bad edits that passed the gate", f"{sum(not code for code in found.values())} of {len(found)}")
    wanted = {edit.name: edit.refused for edit in BAD}
    if sys.version_info >= (3, 12):  # it can read it, and then sees that the project's oldest Python cannot
        wanted["compile-newer-python"] = "G2.version"
    assert {name: (wanted[name], code) for name, code in found.items() if not code.startswith(wanted[name])} == {}
    assert found.keys() == wanted.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_good_edits_pass(figure: Figure) -> None:
    found = judged(TRIED_IN_THE_JAIL)

    figure("good edits refused in the jail", f"{sum(map(bool, found.values()))} of {len(found)}")
    assert {name: code for name, code in found.items() if code} == {}
    assert found.keys() == {edit.name for edit in TRIED_IN_THE_JAIL}
    assert {edit.project for edit in TRIED_IN_THE_JAIL} == {edit.project for edit in GOOD}
