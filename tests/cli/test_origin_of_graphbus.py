"""The command that `graphbus ci` offers to a project without requirements: typed, it makes a file that is taken."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.cli.ci import _advise

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "a" * 64
KNOWN = {
    "git": (
        {"url": "https://git.example.org/bus.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"graphbus @ git+https://git.example.org/bus.git@{COMMIT}",
    ),
    "git with a password": (
        {"url": "https://me:secret@git.example.org/bus.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"graphbus @ git+https://git.example.org/bus.git@{COMMIT}",
    ),
    "git over ssh": (
        {"url": "ssh://git@git.example.org/team/bus.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
        f"graphbus @ git+ssh://git@git.example.org/team/bus.git@{COMMIT}",
    ),
    "a wheel": (
        {"url": "https://me:secret@wheels.example.org/g.whl", "archive_info": {"hashes": {"sha256": DIGEST}}},
        f"graphbus @ https://wheels.example.org/g.whl --hash=sha256:{DIGEST}",
    ),
    "a wheel without a hash": (
        {"url": "https://wheels.example.org/g.whl", "archive_info": {}},
        "graphbus @ https://wheels.example.org/g.whl",
    ),
}
UNKNOWN = {
    "an index": {},
    "a wheel of this machine": {"url": "file:///home/me/g.whl", "archive_info": {}},
    "git of this machine": {"url": "file:///home/me/g", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
    "no object": [],
}


def installed(folder: Path, about: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let metadata on the path say where GraphBus came from, as pip writes them."""
    place = folder / "graphbus-0.1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.4\nName: graphbus\nVersion: 0.1.0\n", encoding="utf-8")
    (place / "direct_url.json").write_text(json.dumps(about), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


def typed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Type what the refusal offers, in a new project; its pipeline is written then."""
    assert main(["init", str(folder)]) == 0
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main(["ci", "github"]) == 8
    command = capsys.readouterr().err.partition("Write it: `")[2].partition("`; then add")[0]
    subprocess.run(["bash", "-euc", command], check=True)
    assert main(["ci", "github"]) == 0
    return (folder / "requirements.txt").read_text()


@pytest.mark.parametrize("name", KNOWN)
def test_what_was_installed_from_an_address_is_installed_from_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    about, line = KNOWN[name]
    installed(tmp_path / "site", about, monkeypatch)
    assert typed(tmp_path / "my-shop", monkeypatch, capsys) == f"{line}\npytest\n"


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_nobody_else_can_reach_is_left_to_the_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, UNKNOWN[name], monkeypatch)
    assert "https://..." in _advise("requirements.txt")


def test_a_folder_of_this_machine_becomes_a_wheel_that_can_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my checkout"
    installed(tmp_path / "site", {"url": folder.as_uri(), "dir_info": {"editable": True}}, monkeypatch)
    assert _advise("r.txt") == (
        f"python -m pip wheel --no-deps --wheel-dir wheels '{folder}' && "
        "printf '%s\\n' ./wheels/graphbus-0.1.0-py3-none-any.whl pytest > r.txt"
    )
