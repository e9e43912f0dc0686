"""`graphbus why` where git does not know everything: shallow and partial clones, squashed commits, settings of `git blame`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.fakes.landed_sessions import FILES, ORDER, PRICE, REBATE, Agreed
from tests.unit.editing.git_project import commit_files, git, make_repository

ORDER_PY = "agents/order.py"
UNKNOWN = "It is not known which decision wrote this line, if any: git's history here does not reach back to it."


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path_factory.mktemp("home") / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with two decisions, the last of which is the last commit."""
    root = make_repository(tmp_path / "origin", FILES)
    Agreed(root).accept(PRICE).accept(REBATE, title="Give a rebate").land()
    git(root, "config", "uploadpack.allowFilter", "true")
    return root


def clone(origin: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Path:
    target = origin.parent / "clone"
    git(origin.parent, "clone", "-q", *options, f"file://{origin}", str(target))
    monkeypatch.chdir(target)
    return target


def origins(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Line -> its decisions, or where it comes from, for the lines that matter."""
    found = {}
    for number, line in enumerate(Path(ORDER_PY).read_text().splitlines(), 1):
        if line.strip():
            main(["why", f"{ORDER_PY}:{number}", "--json"])
            document = json.loads(capsys.readouterr().out)
            found[line.strip()] = (
                "+".join(one["proposal"] for one in document["decisions"])
                or f"{document['origin']} {document['session']}".strip()
            )
    return found


def test_the_first_commit_of_a_shallow_clone_has_not_written_everything(
    origin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clone(origin, monkeypatch, "--depth", "1")
    assert set(origins(capsys).values()) == {"unknown"}
    main(["why", f"{ORDER_PY}:1"])
    assert UNKNOWN in capsys.readouterr().out
    git(Path.cwd(), "fetch", "-q", "--unshallow")
    found = origins(capsys)
    assert found["class Order(GraphBusNode):"] == "before"
    assert (found["total = max(price, 0)"], found["return 1"]) == ("P001", "P002")


def test_a_history_whose_files_were_not_fetched_is_not_taken_for_none(
    origin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clone(origin, monkeypatch, "--filter=blob:none")
    assert set(origins(capsys).values()) == {"unknown"}
    assert main(["why", ORDER_PY]) == 0
    captured = capsys.readouterr()
    assert "No decision of GraphBus wrote a line" not in captured.out
    assert "git's history here does not reach back" in captured.out + captured.err


def test_a_squashed_commit_names_all_its_decisions(
    origin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = git(origin, "log", "--reverse", "-2", "--format=* %B")
    root = clone(origin, monkeypatch)
    git(root, "reset", "-q", "--hard", "HEAD~2")
    changed = ORDER.replace(PRICE[1], PRICE[2]).replace(REBATE[1], REBATE[2])
    for key, value in (("user.name", "A Person"), ("user.email", "person@example.com")):
        git(root, "config", key, value)
    commit_files(root, {ORDER_PY: changed}, f"Improve orders (#12)\n\n{messages}")
    assert {name for name in origins(capsys).values() if name != "before"} == {"P001+P002"}
    main(["why", f"{ORDER_PY}:6"])
    said = capsys.readouterr().out
    assert "One of these decisions" in said
    assert "P001  fix(Order): refuse negative prices" in said
    assert "P002  fix(Order): give a rebate" in said


@pytest.mark.parametrize("session", ["S\0001", "../" * 30 + "S001", "x" * 3000, "S001\x1b[31m"])
def test_a_commit_may_call_a_session_whatever_it_likes(
    origin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], session: str
) -> None:
    root = clone(origin, monkeypatch)
    kept = git(root, "cat-file", "commit", "HEAD")
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"],
        input=kept.replace("GraphBus-Session: S001", f"GraphBus-Session: {session}").encode(),
        cwd=root,
        capture_output=True,
        check=True,
    )
    git(root, "update-ref", "HEAD", made.stdout.decode().strip())
    assert main(["why", f"{ORDER_PY}:{line_with('return 1')}"]) == 0
    said = capsys.readouterr().out
    assert "P002  fix(Order): give a rebate" in said
    assert "\x1b" not in said


def line_with(text: str) -> int:
    return next(number for number, line in enumerate(Path(ORDER_PY).read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    "place", [f"{ORDER_PY}:{'9' * 5000}", f"{'x' * 5000}.py:1", "a\0b.py:1", f"{ORDER_PY}:{'9' * 20}"]
)
def test_a_place_that_no_system_knows_is_refused_like_others(
    origin: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.chdir(origin)
    assert main(["why", place]) == 5
    assert "[GBE43" in capsys.readouterr().err
