"""`graphbus why` as a person types it, over sessions that were really landed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.cli import main
from graphbus_core.editing.promotion import undo
from graphbus_core.model.config import ResolvedBuild
from tests.fakes.landed_sessions import FILES, LOG, PRICE, REBATE, Agreed
from tests.project_files import write_project
from tests.unit.editing.git_project import commit_files, git, make_repository

ORDER_PY = "agents/order.py"


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path_factory.mktemp("home") / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def land(root: Path, *edits: Any, title: str = "Refuse negative prices", makes_commits: bool = False) -> None:
    Agreed(root, makes_commits=makes_commits).accept(*edits, title=title).land()


def line_of(text: str, path: str = ORDER_PY) -> int:
    return next(number for number, line in enumerate(Path(path).read_text().splitlines(), 1) if text in line)


def why(capsys: pytest.CaptureFixture[str], place: str, *options: str) -> tuple[int, str, str]:
    status = main(["why", place, *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def decision_of(capsys: pytest.CaptureFixture[str], text: str, path: str = ORDER_PY) -> str:
    """Session and proposals of the line with this text, or where it comes from."""
    document = json.loads(why(capsys, f"{path}:{line_of(text, path)}", "--json")[1])
    names = "+".join(one["proposal"] for one in document["decisions"])
    return f"{document['session']} {names}" if names else f"{document['origin']} {document['session']}".strip()


def test_a_line_names_its_decision(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    land(here, PRICE)
    status, out, _ = why(capsys, f"{ORDER_PY}:6")
    assert status == 0
    assert out == (
        "agents/order.py:6  total = max(price, 0)\n"
        "\n"
        "P001  Refuse negative prices\n"
        "  session:    S001\n"
        "  by:         Order\n"
        "  intent:     add_validation\n"
        "  why:        A negative price would make the total wrong.\n"
        "  said:       Stock accept: Fits what I read.\n"
        "  consensus:  unanimous (Stock)\n"
        "  gate:       passed G0; not run G6\n"
        "  model:      rules\n"
    )


def test_a_line_that_was_there_before_names_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    land(here, PRICE)
    _, out, _ = why(capsys, f"{ORDER_PY}:1")
    assert out.endswith("No decision of GraphBus wrote this line; it was here before.\n")
    _, out, _ = why(capsys, "agents/stock.py:1")
    assert out.endswith("No decision of GraphBus wrote this line; it was here before.\n")


def test_a_line_is_followed_when_others_move_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    land(here, PRICE)
    path = here / ORDER_PY
    path.write_text("# by hand\n\n" + path.read_text())
    land(here, REBATE, title="Give a rebate")
    path.write_text("# once more\n" + path.read_text().replace("rebate(self)", "rebate(self, by=1)"))
    assert decision_of(capsys, "max(price, 0)") == "S001 P001"
    assert decision_of(capsys, "return 1") == "S002 P001"
    assert decision_of(capsys, "# by hand") == "since S001"
    assert decision_of(capsys, "by=1") == "since S002"
    assert decision_of(capsys, "class Order") == "before"
    _, out, _ = why(capsys, f"{ORDER_PY}:1")
    assert "it was changed by hand after session S002" in out


def test_decisions_of_one_session_are_told_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Agreed(here, makes_commits=False).accept(PRICE)
    session.accept((ORDER_PY, "max(price, 0)", "max(price, 1)"), title="At least one")
    session.accept(REBATE, LOG, title="Give and log")
    session.land()
    assert decision_of(capsys, "max(price, 1)") == "S001 P002"
    assert decision_of(capsys, "return 1") == "S001 P003"
    assert decision_of(capsys, "sold", "agents/stock.py") == "S001 P003"


def test_what_was_undone_has_written_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    land(here, PRICE)
    undo(ResolvedBuild(root=str(here), paths=()))
    assert decision_of(capsys, "total = price") == "before"
    land(here, PRICE)
    assert decision_of(capsys, "max(price, 0)") == "S002 P001"


def test_a_session_whose_record_is_gone_is_still_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Agreed(here, makes_commits=False).accept(PRICE).accept(REBATE, title="Give a rebate").land()
    shutil.rmtree(here / ".graphbus/sessions")
    assert decision_of(capsys, "max(price, 0)") == "S001 P001+P002"
    _, out, _ = why(capsys, f"{ORDER_PY}:6")
    assert "which one is no longer known" in out
    assert "the record of its session is gone" in out


def test_without_sessions_git_remembers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_repository(here, FILES)
    land(here, PRICE, makes_commits=True)
    commit_files(here, {"agents/stock.py": "# by hand\n" + str(FILES["agents/stock.py"])}, "by hand\n\nA-Trailer: x")
    commit = git(here, "rev-parse", "HEAD~1").strip()
    _, out, _ = why(capsys, f"{ORDER_PY}:6")
    assert f"commit:     {commit}" in out
    shutil.rmtree(here / ".graphbus")
    _, out, _ = why(capsys, f"{ORDER_PY}:6")
    assert out == (
        "agents/order.py:6  total = max(price, 0)\n"
        "\n"
        "P001  fix(Order): refuse negative prices\n"
        "  session:    S001\n"
        "  by:         Order\n"
        "  why:        A negative price would make the total wrong.\n"
        "  consensus:  unanimous (Stock)\n"
        "  gate:       passed G0; not run G6\n"
        "  model:      rules\n"
        f"  commit:     {commit}\n"
    )
    assert decision_of(capsys, "# by hand", "agents/stock.py") == "before"
    assert decision_of(capsys, "class Order") == "before"


def test_another_session_of_the_same_name_is_not_mistaken(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_repository(here, FILES)
    land(here, PRICE, makes_commits=True)
    shutil.rmtree(here / ".graphbus")
    land(here, LOG, title="Log what was sold")
    _, out, _ = why(capsys, f"{ORDER_PY}:6")
    assert "P001  fix(Order): refuse negative prices" in out


def test_a_file_lists_its_decided_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    land(here, (ORDER_PY, PRICE[1], PRICE[2] + "        total += 0\n"))
    land(here, REBATE, title="Give a rebate")
    status, out, err = why(capsys, ORDER_PY)
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["LINES", "SESSION", "ID", "AGENT", "WHAT"],
        ["6-7", "S001", "P001", "Order", "Refuse", "negative", "prices"],
        ["11", "S002", "P001", "Order", "Give", "a", "rebate"],
    ]
    assert "graphbus why agents/order.py:6" in err
    ranges = json.loads(why(capsys, ORDER_PY, "--json")[1])["ranges"]
    assert [(one["first"], one["last"], one["decisions"][0]["session"]) for one in ranges] == [
        (6, 7, "S001"),
        (11, 11, "S002"),
    ]


def test_a_file_without_decisions_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(capsys, "notes.txt")[1] == "No decision of GraphBus wrote a line of notes.txt.\n"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "agents/ordr.py",
            "agents/ordr.py: error: This is not a text file of the project. Did you mean 'agents/order.py'?",
        ),
        ("agents/ordr.py:3", "agents/ordr.py: error: This is not a text file of"),
        ("agents", "agents: error: This is not a text file of"),
        ("/etc/passwd:1", "/etc/passwd: error: This is not a text file of"),
        ("bytes.bin", "bytes.bin: error: This is not a text file of"),
        ("agents/order.py:99", "agents/order.py: error: This file has no line 99: it has 10 lines."),
        ("agents/order.py:0", "agents/order.py: error: This file has no line 0: it has 10 lines."),
        ("one.txt:2", "one.txt: error: This file has no line 2: it has 1 line."),
    ],
)
def test_a_place_that_is_none_is_refused(here: Path, capsys: pytest.CaptureFixture[str], place: str, said: str) -> None:
    land(here, PRICE)
    write_project(here, {"bytes.bin": b"\xff\xfe\x00", "one.txt": "x\n"})
    status, out, err = why(capsys, place)
    assert (status, out) == (5, "")
    assert said in err


def test_a_place_is_found_from_a_folder_below(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    land(here, PRICE)
    monkeypatch.chdir(here / "agents")
    for place in ("order.py:6", "agents/order.py:6", "order.py:6:9"):
        assert "P001  Refuse negative prices" in why(capsys, place)[1]
