"""A clone is foreign: whatever it brings under `.graphbus/`, nothing outside of it is written, and no broken source passes."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.editing.journal import COMMITTING
from tests import thoroughness
from tests.conftest import Figure
from tests.fakes.forged_folders import BROKEN, FORGED, SOURCE, Clone, journal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
READING = (["check"], ["build", "agents"])
COMMANDS = (
    *READING,
    ["build", "agents", "--force"],
    ["build", "agents", "--frozen"],
    ["undo"],
    ["undo", "S001"],
    ["negotiate", "agents", "--model", "rules"],
    ["negotiate", "agents", "--resume"],
    ["replay"],
    ["replay", "S001"],
    ["inspect-negotiation"],
    ["report"],
    ["validate"],
    ["migrate"],
    ["state", "ls"],
    ["state", "reset", "--all", "--yes"],
    ["dlq", "ls"],
    ["trace"],
    ["profile"],
    ["check", "--fix"],
)
MOST_BYTES = 3 * 1024**3
"""Of address space: `/dev/zero` read to its end would need more."""


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every file below a folder with its kind, mode, time and content; no link is followed."""
    found: dict[str, tuple[object, ...]] = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            status = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path)] = (status.st_mode, status.st_mtime_ns if data else 0, hashlib.sha256(data).hexdigest())
    return found


def sources_of(clone: Clone) -> dict[str, bytes]:
    names = ("pyproject.toml", "agents/farm.py", "tests/test_farm.py")
    return {name: (clone.root / name).read_bytes() for name in names}


def attacked(clone: Clone, number: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Use commands in a forged folder, each third of them in a third of the folders, and give what went wrong."""
    wrong = []
    outside, sources = seen(clone.outside), sources_of(clone)
    for command in COMMANDS if thoroughness.is_thorough else COMMANDS[number % 3 :: 3]:
        status = main(["-C", str(clone.root), *command])
        said = capsys.readouterr()
        words = " ".join(command)
        if status and not (said.out + said.err).strip():
            wrong.append(f"{words} ends with {status} and says nothing")
        if status == 1 or "Traceback" in said.err:
            wrong.append(f"{words} ends with a traceback: {said.err[-300:]}")
        if seen(clone.outside) != outside:
            wrong.append(f"{words} wrote outside of the project")
            break
        if sources_of(clone) != sources:
            wrong.append(f"{words} changed a source")
            break
    return wrong


def false_greens(clone: Clone, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Break the source, keep what can be kept of its status, and give the commands that find nothing wrong."""
    path = clone.root / "agents/farm.py"
    if path.read_bytes() == SOURCE.encode():
        status = path.stat()
        path.write_bytes(BROKEN)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    green = []
    for command in READING:
        if main(["-C", str(clone.root), *command]) == 0:
            green.append(f"{' '.join(command)} finds nothing wrong with a broken source")
        said = capsys.readouterr()
        if "GB" not in said.out + said.err:
            green.append(f"{' '.join(command)} gives no code")
    return green


@pytest.fixture
def limited() -> object:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("limited")
def test_nothing_in_a_forged_folder_is_acted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: dict[str, list[str]] = {}
    for number, (name, forge) in enumerate(FORGED.items()):
        clone = Clone(tmp_path / str(number))
        forge(clone)
        capsys.readouterr()
        found = [*attacked(clone, number, capsys), *false_greens(clone, capsys)]
        if found:
            wrong[name] = found

    green = sum("broken source" in each for found in wrong.values() for each in found)
    outside = sum("wrote outside" in each for found in wrong.values() for each in found)
    figure("forged folders", f"{len(FORGED)} variants, {outside} writes outside, {green} false green")
    assert not wrong, "\n".join(f"{name}: {each}" for name, found in wrong.items() for each in found)
    assert len(FORGED) >= 60


def test_who_only_reads_sources_is_told_of_a_foreign_journal_and_who_writes_them_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clone = Clone(tmp_path)
    journal("agents/farm.py", COMMITTING, "theirs", clone)
    for command, status in (
        (["check"], 0),
        (["build", "agents"], 0),
        (["check", "--fix"], 4),
        (["negotiate", "agents", "--model", "rules"], 4),
        (["undo"], 4),
    ):
        assert main(["-C", str(clone.root), *command]) == status, command
        told = capsys.readouterr().err
        assert "[GBE328]" in told
        assert ".graphbus/journal/0001-S001.committing" in told
    assert (clone.root / "agents/farm.py").read_text() == SOURCE
