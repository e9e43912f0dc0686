"""Every bad edit of the collection is refused by the rung that should refuse it; every good one passes. With the real jail."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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

BAD, GOOD = corpora.bad_edits(), corpora.good_edits()
READ = [edit for edit in BAD if edit.refused < "G5"]
RUN = sorted((edit for edit in BAD if edit.refused >= "G5"), key=lambda edit: (edit.project, edit.timeout_s))
PARTS_RUN = [RUN[at : at + 8] for at in range(0, len(RUN), 8)]
PARTS_GOOD = [GOOD[at : at + 8] for at in range(0, len(GOOD), 8)]


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


@pytest.fixture(scope="session")
def grounds():
    made = Grounds()
    yield made
    remove_tree(made.folder)


def test_the_collections_are_as_large_as_promised_and_name_every_edit_once(figure: Figure) -> None:
    names = [edit.name for edit in (*BAD, *GOOD)]

    assert len(names) == len(set(names))
    assert len(BAD) >= 150
    assert len(GOOD) >= 60
    assert {edit.refused[:2] for edit in BAD} >= {"G0", "G1", "G2", "G3", "G4", "G5", "G6"}
    figure("the collections hold", f"{len(BAD)} bad edits and {len(GOOD)} good ones")


@pytest.mark.slow
def test_bad_edits_that_can_be_read_are_refused_without_running_them(grounds: Grounds, figure: Figure) -> None:
    found = {edit.name: (edit.refused, grounds.check(edit)) for edit in READ}

    assert {name: codes for name, codes in found.items() if not codes[1].startswith(codes[0])} == {}
    figure(
        "bad edits that passed the rungs that read them",
        f"{sum(not code for _, code in found.values())} of {len(READ)}",
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS_RUN, ids=range(len(PARTS_RUN)))
def test_bad_edits_that_must_be_run_are_refused(grounds: Grounds, part: list[corpora.BadEdit], figure: Figure) -> None:
    found = {edit.name: (edit.refused, grounds.check(edit)) for edit in part}

    assert {name: codes for name, codes in found.items() if not codes[1].startswith(codes[0])} == {}
    figure("bad edits that passed the gate", f"{sum(not code for _, code in found.values())} of {len(part)}")


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS_GOOD, ids=range(len(PARTS_GOOD)))
def test_good_edits_pass(grounds: Grounds, part: list[corpora.GoodEdit], figure: Figure) -> None:
    found = {edit.name: grounds.check(edit) for edit in part}

    assert {name: code for name, code in found.items() if code} == {}
    figure("good edits that the gate refused", f"{sum(map(bool, found.values()))} of {len(part)}")
