"""No hostile edit climbs past G3, whatever would find it later: here nothing runs, and nothing but the text is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.workspace import Workspace
from tests import corpora

Figure = Callable[[str, object], None]

HOSTILE = [edit for edit in corpora.bad_edits() if edit.is_hostile]
STATIC = ("G0", "G1", "G2", "G3")


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Let every hostile edit climb without a sandbox, and give the code that each is refused with, by its name."""

    @cache
    def ground(project: str) -> tuple[Gate, Workspace]:
        like = next(edit for edit in HOSTILE if edit.project == project)._replace(links=())
        root: Path = corpora.write(like, tmp_path_factory.mktemp(project))
        config = corpora.config_of(like, root)
        before = Project.read(config, cache=False)
        assert before.errors == ()
        return Gate(before, config, None), Workspace(before)

    found = {}
    for edit in HOSTILE:
        gate, workspace = ground(edit.project)
        failure = gate.check(edit.proposal, workspace).failure
        found[edit.name] = failure.code if failure else ""
    return found


def test_no_hostile_edit_passes_the_rungs_that_only_read(refusals: dict[str, str], figure: Figure) -> None:
    tried = Counter(edit.group for edit in HOSTILE)
    passed = {edit.name: edit.group for edit in HOSTILE if not refusals[edit.name].startswith(STATIC)}

    figure("hostile edits", f"{tried.total()} tried in {len(tried)} classes, {len(passed)} passed")
    assert tried.total() >= 300
    assert len(tried) >= 15
    assert passed == {}


def test_each_hostile_edit_is_refused_for_what_it_is(refusals: dict[str, str]) -> None:
    """An edit that does not even apply would prove nothing."""
    wrong = {edit.name: refusals[edit.name] for edit in HOSTILE if not refusals[edit.name].startswith(edit.refused)}
    assert wrong == {}
