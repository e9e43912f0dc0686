"""Another Python is found where there is one, and nothing is tried where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import other_python
from scripts.other_python import Python, newest_other, pins, supported, version_of

OWN = sys.version_info[:2]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose only interpreters are those that a test puts there: `bin/` on the path, and pyenv's."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def install(path: Path, says: str) -> str:
    """Put a program there that answers like an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


def test_the_newest_that_runs_is_taken(machine: Path) -> None:
    install(machine / "bin" / "python3.12", "echo 3 12")
    expected = install(machine / "pyenv" / "versions" / "3.13.0" / "bin" / "python3", "echo 3 13")
    install(machine / "bin" / "python3.14", "echo no such version is installed >&2; exit 127")
    assert newest_other([(3, 12), (3, 13), (3, 14)], (3, 11)) == Python((3, 13), expected)


def test_our_own_and_one_that_is_not_supported_do_not_count(machine: Path) -> None:
    install(machine / "bin" / "python3.11", "echo 3 11")
    install(machine / "bin" / "python3.10", "echo 3 10")
    install(machine / "bin" / "python3.12", "echo 3 10")  # not what it is called
    (machine / "bin" / "python3.13").write_text("cannot be executed")
    assert newest_other([(3, 11), (3, 12), (3, 13)], (3, 11)) is None


def test_without_another_one_that_is_said_in_a_line(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(other_python, "run", ran.append)
    other_python.main()
    said = capsys.readouterr().out.splitlines()
    assert said == ["=== other Python: none here besides {}.{}; nothing is tried on another".format(*OWN)]
    assert ran == []


def test_an_interpreter_says_its_version() -> None:
    assert version_of(sys.executable) == OWN
    assert version_of("/nowhere/python3.13") is None


def test_our_own_is_supported() -> None:
    assert OWN in supported()
    assert supported()[0] == (3, 11)


def test_pins_are_those_of_the_lock_with_all_their_hashes_and_conditions() -> None:
    lock = "click==8 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    lock += "networkx==3 ; python_full_version < '3.12' \\\n    --hash=sha256:3\n"
    lock += "networkx==4 ; python_full_version >= '3.12' \\\n    --hash=sha256:4\nrich==1 \\\n    --hash=sha256:5\n"
    click, rich = lock.index("networkx==3"), lock.index("rich")
    assert pins(lock, ["networkx"]) == lock[click:rich]
    assert pins(lock, ["click", "rich"]) == lock[:click] + lock[rich:]


def test_every_name_that_is_needed_is_in_the_lock() -> None:
    lock = other_python.LOCK.read_text(encoding="utf-8")
    assert [name for name in other_python.NEEDED if f"\n{name}==" not in f"\n{lock}"] == []


def test_every_room_is_there() -> None:
    assert [room for room in other_python.ROOMS if not (other_python.ROOT / room).exists()] == []
