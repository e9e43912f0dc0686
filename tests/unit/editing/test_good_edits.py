"""No good edit is refused for its text: all of them climb the rungs that only read, G0 to G4. Nothing of them runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.workspace import Workspace
from tests import corpora

Figure = Callable[[str, object], None]
Ground = tuple[Gate, Workspace]

GOOD = corpora.good_edits()
STATIC = ("G0", "G1", "G2", "G3", "G4")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ground]:
    """Give a project of the collection with a gate that has no sandbox; each is written and read once."""

    @cache
    def of(project: str) -> Ground:
        like = next(edit for edit in GOOD if edit.project == project)
        root: Path = corpora.write(like, tmp_path_factory.mktemp(project))
        config = corpora.config_of(like, root)
        before = Project.read(config, cache=False)
        assert before.errors == ()
        return Gate(before, config, None), Workspace(before)

    return of


def refusal(edit: corpora.GoodEdit, ground: Ground) -> str:
    """Say why a rung that only reads refuses an edit; empty when all of them let it pass."""
    gate, workspace = ground
    rungs = gate.check(edit.proposal, workspace).rungs
    bad = next((rung for rung in rungs if rung.rung in STATIC and rung.status != "passed"), None)
    if bad:
        return f"{bad.code} {bad.path}:{bad.line}: {bad.message}"
    assert tuple(rung.rung for rung in rungs[:5]) == STATIC
    return ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_good_edit_is_refused_for_its_text(ground: Callable[[str], Ground], figure: Figure) -> None:
    found = {edit.name: refusal(edit, ground(edit.project)) for edit in GOOD}

    refused = {name: reason for name, reason in found.items() if reason}
    figure("good edits", f"{len(found)} tried, {len(refused)} refused")
    assert refused == {}
    assert len(found) >= 200
