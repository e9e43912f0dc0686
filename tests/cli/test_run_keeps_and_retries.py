"""`graphbus run` with an end: it waits for further attempts, and what agents keep is there in the next run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project

FILES = {
    "pyproject.toml": """
        [tool.graphbus]
        external_topics = ["/Order/Placed"]
        [tool.graphbus.runtime]
        grace_s = 0
        state_dir = "kept"
        """,
    "agents/__init__.py": "",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method, subscribe

        class Orders(GraphBusNode):
            @subscribe("/Order/Placed", retries=3, backoff=0.02)
            def on_placed(self) -> None:
                self.state["attempts"] = self.state.get("attempts", 0) + 1
                if self.state["attempts"] % 3:
                    raise ConnectionError("not yet")
                self.state["done"] = self.state.get("done", 0) + 1

            @schema_method(output_schema={"attempts": int, "done": int})
            def count(self) -> dict:
                return {"attempts": self.state.get("attempts", 0), "done": self.state.get("done", 0)}
        """,
}


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    return root


def count(capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    capsys.readouterr()
    assert main(["run", "--call", "Orders.count", "{}", "--json"]) == 0
    found: dict[str, int] = json.loads(capsys.readouterr().out)["calls"][0]["result"]
    return found


def test_a_run_that_publishes_waits_for_further_attempts_and_keeps_what_came_of_them(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count(capsys) == {"attempts": 0, "done": 0}
    for run in (1, 2):
        assert main(["run", "--publish", "/Order/Placed", "{}"]) == 0
        assert count(capsys) == {"attempts": 3 * run, "done": run}
    assert [path.name for path in (shop / "kept").iterdir()] == ["state.sqlite3"]


# --- files that cannot be used ---


@pytest.mark.parametrize(
    ("name", "what"), [("dead_letters", "The file of dead letters"), ("state", "The state of the agents")]
)
def test_a_graph_does_not_start_on_a_damaged_file_and_says_which_one_to_move_away(
    shop: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    content = "no database, whatever its name says" * 99
    with (shop / "pyproject.toml").open("a") as file:
        file.write("keep_dead_letters = true\n")
    path = shop / f"kept/{name}.sqlite3"
    path.parent.mkdir()
    path.write_text(content)
    assert main(["run", "--call", "Orders.count", "{}"]) == 7
    captured = capsys.readouterr()
    told = " ".join(captured.err.split())
    assert f"kept/{name}.sqlite3: error: {what} cannot be read: it is damaged" in told
    assert "Move the file away: GraphBus then creates a new one." in told
    assert "Ready" not in captured.out
    assert path.read_text() == content
    path.rename(shop / "moved")
    assert main(["run", "--call", "Orders.count", "{}"]) == 0


@pytest.mark.parametrize("name", ["dead_letters", "state"])
def test_nor_where_a_file_cannot_be_made(shop: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with (shop / "pyproject.toml").open("a") as file:
        file.write("keep_dead_letters = true\n")
    (shop / f"kept/{name}.sqlite3").mkdir(parents=True)
    assert main(["run", "--call", "Orders.count", "{}"]) == 7
    captured = capsys.readouterr()
    assert "[GBE645]" in captured.err
    assert "Ready" not in captured.out


def test_dead_letters_that_others_write_at_the_moment_keep_no_graph_from_starting(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (shop / "pyproject.toml").open("a") as file:
        file.write("keep_dead_letters = true\n")
    assert count(capsys) == {"attempts": 0, "done": 0}
    with closing(sqlite3.connect(shop / "kept/dead_letters.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert count(capsys) == {"attempts": 0, "done": 0}


# --- dead letters beside the state ---


FAILS = """
    from graphbus_core import GraphBusNode, subscribe

    class Orders(GraphBusNode):
        @subscribe("/Order/Placed")
        def on_placed(self) -> None:
            {before}
            raise ConnectionError("not yet")
    """


def run_failing(project: Project, monkeypatch: pytest.MonkeyPatch, before: str, setting: str = "") -> set[str]:
    """The files that a run leaves in which a handler fails."""
    changed = {"agents/orders.py": FAILS.format(before=before), "pyproject.toml": FILES["pyproject.toml"] + setting}
    root = project(FILES | changed)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    assert main(["run", "--publish", "/Order/Placed", "{}"]) == 7
    return {path.name for path in (root / "kept").iterdir()} if (root / "kept").exists() else set()


@pytest.mark.parametrize(
    ("before", "setting", "files"),
    [
        ("self.state['n'] = 1", "", {"state.sqlite3", "dead_letters.sqlite3"}),
        ("pass", "", set()),
        ("self.state['n'] = 1", "keep_dead_letters = false\n", {"state.sqlite3"}),
        ("pass", "keep_dead_letters = true\n", {"dead_letters.sqlite3"}),
    ],
)
def test_dead_letters_are_kept_where_state_is_kept_unless_the_project_says_otherwise(
    project: Project, monkeypatch: pytest.MonkeyPatch, before: str, setting: str, files: set[str]
) -> None:
    assert run_failing(project, monkeypatch, before, setting) == files


def test_what_was_kept_beside_the_state_is_listed_and_replayed(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_failing(project, monkeypatch, "self.state['n'] = 1")
    capsys.readouterr()
    assert main(["dlq", "ls"]) == 0
    assert "not yet" in capsys.readouterr().out
    assert main(["dlq", "replay", "--all"]) == 7
    capsys.readouterr()
    assert main(["dlq", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 1
