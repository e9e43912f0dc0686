"""Promotion and undo, killed or failing at every single step that touches the disk: all files old, or all files new."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.journal import Journal
from graphbus_core.editing.promotion import promote, recover
from graphbus_core.model.config import ResolvedBuild
from tests.e2e.promotion_driver import DONE, FILES, REFUSED, SAVED, write_old
from tests.patience import PATIENCE_S
from tests.thoroughness import some

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
REPOSITORY = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


def drive(start: Path, copies: Path, action: str, how: str, saved_at: int = 0) -> list[int]:
    """Do it once per step, each in a copy of its own; give the exit statuses."""
    copies.mkdir()
    command = [sys.executable, "-m", "tests.e2e.promotion_driver", str(start), str(copies), action, how, str(saved_at)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    outcomes: list[int] = json.loads(done.stdout)
    return outcomes


def project_at(root: Path, state: str) -> Path:
    """A project with old files, or one in which S001 was promoted."""
    write_old(root)
    if state == "promoted":
        promote(config_of(root), FILES, "S001")
    return root


def config_of(root: Path) -> ResolvedBuild:
    return ResolvedBuild(root=str(root), paths=(f"{root}/agents",))


def versions(root: Path) -> set[str]:
    names = ("old", "new")
    return {names[FILES[path].index((root / path).read_bytes())] for path in FILES}


def check_clean(root: Path) -> None:
    """No file of ours is left beside the targets, the permissions are those from before, and nothing is unfinished."""
    assert sorted(path.name for path in (root / "agents").iterdir()) == ["a.py", "b.py", "c.py"]
    assert {stat.S_IMODE((root / path).stat().st_mode) for path in FILES} == {0o640}
    assert Journal(config_of(root)).unfinished() == []


@pytest.mark.parametrize(("action", "state"), [("promote", "old"), ("undo", "promoted")])
def test_a_kill_at_any_step_leaves_all_files_old_or_all_files_new(action: str, state: str, tmp_path: Path) -> None:
    start = project_at(tmp_path / "start", state)
    outcomes = drive(start, tmp_path / "copies", action, "kill")
    endings = []

    for at, outcome in enumerate(outcomes, 1):
        root = tmp_path / "copies" / str(at)
        assert outcome == KILLED
        recover(config_of(root))
        assert len(versions(root)) == 1, f"mixed after step {at}"
        check_clean(root)
        endings.append(versions(root).pop())

    assert len(outcomes) >= 40
    assert set(endings) == {"old", "new"}
    assert endings == sorted(endings, reverse=action == "promote"), "old and new alternate"


def test_a_kill_of_the_recovery_at_any_step_can_be_recovered(tmp_path: Path) -> None:
    half = halfway(tmp_path)

    outcomes = drive(half, tmp_path / "recoveries", "recover", "kill")

    for at, outcome in enumerate(outcomes, 1):
        root = tmp_path / "recoveries" / str(at)
        assert outcome == KILLED
        recover(config_of(root))
        assert versions(root) == {"old"}, f"after step {at}"
        check_clean(root)
    assert len(outcomes) >= 15


def halfway(tmp_path: Path) -> Path:
    """A promotion that was killed when two of the three files were new."""
    start = project_at(tmp_path / "start", "old")
    count = len(drive(start, tmp_path / "copies", "promote", "kill"))
    roots = (tmp_path / "copies" / str(at) for at in range(1, count + 1))
    return next(root for root in roots if [b"new" in (root / path).read_bytes() for path in sorted(FILES)] == [1, 1, 0])


@pytest.mark.parametrize(("action", "state"), [("promote", "old"), ("undo", "promoted")])
def test_a_failure_of_any_step_changes_nothing_and_says_so(action: str, state: str, tmp_path: Path) -> None:
    start = project_at(tmp_path / "start", state)
    unchanged = versions(start)
    outcomes = drive(start, tmp_path / "copies", action, "fail")

    for at, outcome in enumerate(outcomes, 1):
        root = tmp_path / "copies" / str(at)
        assert outcome in {DONE, *REFUSED.values()}, f"step {at}"
        if outcome == REFUSED["GBE321"]:
            assert versions(root) == unchanged, f"step {at}"
        if outcome == DONE:  # the step did not matter: a folder that could not be made was there already
            assert versions(root) != unchanged, f"step {at}"
        recover(config_of(root))
        assert len(versions(root)) == 1, f"step {at}"
        check_clean(root)
    assert outcomes.count(REFUSED["GBE321"]) >= 40


@pytest.mark.parametrize("saved_at", some([2, 1, 3], every=3))
def test_what_a_person_saves_at_the_moment_of_the_exchange_survives_a_kill_at_any_step(
    saved_at: int, tmp_path: Path
) -> None:
    """The save comes between the last look at a file and its replacement, the kill at any later step, or none."""
    start = project_at(tmp_path / "start", "old")
    outcomes = drive(start, tmp_path / "copies", "promote", "kill", saved_at)
    saved = f"agents/{'abc'[saved_at - 1]}.py"
    displaced = 0

    for at, outcome in enumerate(outcomes, 1):
        root = tmp_path / "copies" / str(at)
        assert outcome in {KILLED, REFUSED["GBE320"]}
        was_saved = any(path.read_bytes() == SAVED for path in (root / "agents").iterdir())
        displaced += was_saved and (root / saved).read_bytes() != SAVED
        recover(config_of(root))
        texts = {path: (root / path).read_bytes() for path in FILES}
        if was_saved:
            assert texts.pop(saved) == SAVED, f"lost after step {at}"
            assert all(texts[path] == FILES[path][0] for path in texts), f"after step {at}"
        else:
            assert len(versions(root)) == 1
        check_clean(root)

    assert displaced, "the process was never killed while what was saved lay beside its file"
