"""`graphbus state`: what agents keep is listed, shown, exported, imported and emptied, also beside a running graph."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.hosting.state import FILE, States
from tests.conftest import Project
from tests.patience import PATIENCE_S

FILES = {
    "pyproject.toml": '[tool.graphbus]\nexternal_topics = ["/Order/Placed"]\n',
    "agents/__init__.py": "",
    "agents/carrier.py": """
        from pathlib import Path

        from graphbus_core import GraphBusNode, subscribe


        class Carrier(GraphBusNode):
            @subscribe("/Order/Placed")
            def book(self, order_id: str) -> None:
                self.state[order_id] = "booked"


        class Counter(GraphBusNode):
            def on_start(self) -> None:
                Path("ready").touch()
                while not Path("enough").exists():
                    value, version = self.state.read("n")
                    if not self.state.update_if("n", (value or 0) + 1, version):
                        Path("noticed").touch()
        """,
}

Run = Callable[..., SimpleNamespace]


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(shop: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> SimpleNamespace:
        status = main(["state", *arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def path(shop: Path) -> Path:
    return shop / ".graphbus/state" / FILE


def keep(path: Path, agent: str, **values: Any) -> None:
    states = States(str(path))
    try:
        states.of(agent).update(values)
    finally:
        states.close()


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """Agent -> key -> value, read by another way than that of the command."""
    with closing(sqlite3.connect(path)) as connection:
        found: dict[str, dict[str, Any]] = {}
        for agent, key, text in connection.execute("SELECT agent, key, value FROM state"):
            found.setdefault(agent, {})[key] = json.loads(text)
        return found


def versions(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, version FROM state"))


@pytest.fixture
def carrier(path: Path) -> Path:
    keep(path, "Carrier", parcels=2, cart={"sku": "mug", "ä": [1, None]})
    keep(path, "Clerk", name="x")
    return path


# --- looking --------------------------------------------------------------------------------


def test_a_project_without_state_says_so_and_looking_makes_nothing(run: Run, shop: Path) -> None:
    shown = run("ls")
    assert (shown.status, shown.out, shown.err) == (0, "", "No agent stores anything here.\n")
    assert json.loads(run("ls", "--json").out) == {"agents": [], "version": 0}
    assert run("ls", "Carrier").err == "Carrier stores nothing.\n"
    assert run("show", "Carrier").out == "{}\n"
    assert json.loads(run("export").out)["agents"] == {}
    assert run("reset", "--all", "--yes").out == "Nothing to change.\n"
    assert run("import", write(shop / "a.json", {}), "--dry-run").status == 0
    assert not (shop / ".graphbus/state").exists()


def test_agents_are_listed(run: Run, carrier: Path) -> None:
    shown = run("ls")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["AGENT", "KEYS", "SIZE", "VERSION"],
        ["Carrier", "2", "32", "B", "1"],
        ["Clerk", "1", "3", "B", "2"],
    ]
    assert json.loads(run("ls", "--json").out) == {
        "agents": [
            {"agent": "Carrier", "keys": 2, "size_bytes": 32, "version": 1},
            {"agent": "Clerk", "keys": 1, "size_bytes": 3, "version": 2},
        ],
        "version": 2,
    }


def test_keys_are_listed_with_the_begin_of_their_values(run: Run, carrier: Path) -> None:
    keep(carrier, "Carrier", long="x" * 3000, odd="\x1b[31m\n")
    shown = run("ls", "Carrier")
    assert [line.split()[0] for line in shown.out.splitlines()] == ["KEY", "cart", "long", "odd", "parcels"]
    assert '{"sku": "mug", "ä": [1, null]}' in shown.out
    assert "3.0 kB" in shown.out
    assert "…" in shown.out
    assert "\x1b" not in shown.out
    keys = json.loads(run("ls", "Carrier", "--json").out)["keys"]
    assert keys[-1] == {"key": "parcels", "version": 1, "size_bytes": 1}


def test_values_are_shown_whole(run: Run, carrier: Path) -> None:
    big = 10**40
    keep(carrier, "Carrier", big=big)
    assert json.loads(run("show", "Carrier").out) == {"big": big, "cart": {"sku": "mug", "ä": [1, None]}, "parcels": 2}
    assert run("show", "Carrier", "big").out == f"{big}\n"
    assert json.loads(run("show", "Carrier", "big", "--json").out) == {
        "agent": "Carrier",
        "key": "big",
        "value": big,
        "version": 3,
    }
    assert json.loads(run("show", "Carrier", "--json").out)["keys"]["parcels"] == {"value": 2, "version": 1}


REFUSED = [
    (("ls", "Carier"), "GBE175", "Did you mean 'Carrier'?"),
    (("show", "Nobody"), "GBE175", "No state is stored for the agent Nobody"),
    (("show", "Carrier", "parcel"), "GBE176", "Did you mean 'parcels'?"),
    (("export", "Nobody"), "GBE175", "No state is stored for the agent Nobody"),
    (("reset", "Nobody", "--yes"), "GBE175", "No state is stored for the agent Nobody"),
    (("reset", "Carrier", "nothing", "--yes"), "GBE176", "nothing under the key 'nothing'"),
    (("reset",), "GBE178", "No agent was named"),
    (("reset", "Carrier", "--all"), "GBE132", "--all resets every agent"),
    (("reset", "Carrier"), "GBE177", "no terminal to ask on"),
]


def test_what_cannot_be_done_is_refused_and_nothing_changes(run: Run, carrier: Path) -> None:
    before = kept(carrier)
    for arguments, code, said in REFUSED:
        refused = run(*arguments)
        assert (refused.status, refused.out.startswith("-") or refused.out == "") == (2, True), arguments
        assert f"[{code}]" in refused.err
        assert said in refused.err
    assert kept(carrier) == before


# --- export and import ----------------------------------------------------------------------


def write(path: Path, agents: dict[str, dict[str, Any]], **others: Any) -> str:
    document = {
        "format": "graphbus-state",
        "format_version": 1,
        "version": 1,
        "agents": {
            agent: {key: {"value": value, "version": 1} for key, value in keys.items()}
            for agent, keys in agents.items()
        },
    }
    path.write_text(json.dumps(document | others))
    return str(path)


def test_what_is_exported_comes_back(run: Run, carrier: Path, shop: Path) -> None:
    before = kept(carrier)
    told = run("export", "--output", "all.json")
    assert told.out == "Exported 3 keys of 2 agents to all.json.\n"
    assert stat.S_IMODE((shop / "all.json").stat().st_mode) == 0o600
    assert (shop / "all.json").read_text() == run("export").out
    carrier.unlink()
    assert run("import", "all.json", "--yes").out.splitlines()[-1] == "Changed 3 keys."
    assert kept(carrier) == before
    assert run("import", "all.json", "--yes").out == "Nothing to change.\n"


def test_versions_rise_beyond_those_of_the_file_and_those_that_were(run: Run, carrier: Path, shop: Path) -> None:
    """Whoever has read a version before, in this file or another one, does not meet it again with another value."""
    keep(carrier, "Carrier", parcels=3)
    file = write(shop / "a.json", {"Carrier": {"parcels": 2, "cart": {"sku": "mug", "ä": [1, None]}}}, version=70)
    before = versions(carrier)
    assert run("import", file, "--yes").status == 0
    assert versions(carrier) == {**before, "parcels": 71}, "what has not changed keeps its version"
    keep(carrier, "Carrier", more=1)
    assert versions(carrier)["more"] == 72


def test_an_import_replaces_its_agents_and_a_merge_keeps_other_keys(run: Run, carrier: Path, shop: Path) -> None:
    file = write(shop / "a.json", {"Carrier": {"parcels": 5, "new": True}})
    shown = run("import", file, "--merge", "--yes")
    assert shown.out.splitlines() == ["+ Carrier new  true", "~ Carrier parcels  5", "Changed 2 keys."]
    assert kept(carrier)["Carrier"] == {"parcels": 5, "new": True, "cart": {"sku": "mug", "ä": [1, None]}}
    shown = run("import", file, "--yes")
    assert shown.out.splitlines() == ["- Carrier cart", "Changed 1 key."]
    assert kept(carrier) == {"Carrier": {"parcels": 5, "new": True}, "Clerk": {"name": "x"}}


def test_a_dry_run_shows_and_writes_nothing(run: Run, carrier: Path, shop: Path) -> None:
    before = carrier.read_bytes()
    shown = run("import", write(shop / "a.json", {"Carrier": {"x": 1}}), "--dry-run")
    assert shown.out.splitlines() == ["- Carrier cart", "- Carrier parcels", "+ Carrier x  1"]
    assert shown.err == "3 keys would change; nothing was written.\n"
    assert json.loads(run("reset", "--all", "--dry-run", "--json").out)["is_dry"] is True
    assert carrier.read_bytes() == before
    assert not list(carrier.parent.glob("*.json"))


def test_a_file_is_not_written_over_unasked(run: Run, carrier: Path, shop: Path) -> None:
    (shop / "mine.json").write_text("mine")
    refused = run("export", "-o", "mine.json")
    assert (refused.status, "[GBE179]" in refused.err) == (2, True)
    assert (shop / "mine.json").read_text() == "mine"
    assert json.loads(run("export", "Carrier", "-o", "mine.json", "--force", "--json").out) == {
        "output": "mine.json",
        "agents": 1,
        "keys": 2,
        "version": 2,
    }
    assert list(json.loads((shop / "mine.json").read_text())["agents"]) == ["Carrier"]
    refused = run("export", "-o", "no/folder.json")
    assert (refused.status, "[GBE699]" in refused.err) == (7, True)


@pytest.mark.parametrize(("make", "said"), [(os.mkfifo, "not a regular file"), (os.mkdir, "is a directory")])
def test_what_is_no_plain_file_is_not_replaced_by_one(
    run: Run, carrier: Path, shop: Path, make: Callable[[Path], None], said: str
) -> None:
    """As root it could be `/dev/stdout`."""
    make(shop / "special")
    before = (shop / "special").lstat()
    refused = run("export", "-o", "special", "--force")
    assert (refused.status, f"{said}. [GBE699]" in refused.err) == (7, True)
    assert (shop / "special").lstat() == before
    assert run("export", "-o", "/", "--force").status == 7
    assert run("export", "-o", ".", "--force").status == 7


GOOD = '{"format": "graphbus-state", "format_version": 1, "version": 1, "agents": '
DEEP = "[" * 200 + "]" * 200


NO_EXPORTS: list[tuple[str | bytes | None, str, str]] = [
    (GOOD + '{"Carrier": {"a": {"value": NaN, "version": 1}}}}', "GBE697", "NaN is not a number in JSON"),
    (GOOD + '{"Carrier": {"a": {"value": {"b": 1, "b": 2}, "version": 1}}}}', "GBE697", "'b' appears twice"),
    (GOOD + '{"Carrier": {"a": {"value": ' + DEEP + ', "version": 1}}}}', "GBE697", "deep"),
    (GOOD + '{"Carrier": {"a": {"value": "' + "x" * 1_100_000 + '", "version": 1}}}}', "GBE642", "larger than"),
    (GOOD + '{"Carrier": {"\\ud800": {"value": 1, "version": 1}}}}', "GBE641", "half of a surrogate pair"),
    (GOOD + '{"Carrier": {"a": {"value": 1, "version": -1}}}}', "GBE697", "`int` >= 0"),
    (GOOD + '{"Carrier": {"a": {"version": 1}}}}', "GBE697", "missing required field `value`"),
    (GOOD + '{"Carrier": {"a": {"value": 1, "version": 1, "c": 1}}}}', "GBE697", "unknown field `c`"),
    (GOOD.replace('sion": 1', 'sion": 2', 1) + "{}}", "GBE697", "at `$.format_version`"),
    (GOOD.replace("graphbus-state", "other") + "{}}", "GBE697", "at `$.format`"),
    ("", "GBE697", "line 1, column 1"),
    (b"\xff\xfe", "GBE697", "UTF-8"),
    (None, "GBE697", "no such file"),
]


def test_what_is_no_export_is_refused_whole(run: Run, carrier: Path, shop: Path) -> None:
    before = kept(carrier), versions(carrier)
    for text, code, said in NO_EXPORTS:
        (shop / "a.json").unlink(missing_ok=True)
        if text is not None:
            (shop / "a.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        refused = run("import", "a.json", "--yes")
        assert (refused.status, refused.out) == (7, ""), said
        assert f"[{code}]" in refused.err
        assert said in refused.err
    assert (kept(carrier), versions(carrier)) == before
    assert not list(carrier.parent.glob("*.json")), "no backup of a change that was none"


# --- reset ----------------------------------------------------------------------------------


def test_a_key_an_agent_or_everything_is_removed_and_comes_back(run: Run, carrier: Path, shop: Path) -> None:
    before = kept(carrier)
    for words, left in (
        (("Carrier", "parcels"), {"Carrier": {"cart": {"sku": "mug", "ä": [1, None]}}, "Clerk": {"name": "x"}}),
        (("Carrier",), {"Clerk": {"name": "x"}}),
        (("--all",), {}),
    ):
        changed = run("reset", *words, "--yes")
        assert changed.status == 0
        assert kept(carrier) == left
        keep(carrier, "Counter", since=1)
        undo = changed.err.partition("graphbus state ")[2].split()
        assert run(*undo, "--yes").status == 0
        assert kept(carrier) == {**before, "Counter": {"since": 1}}, "others keep what has come since"
        assert run("reset", "Counter", "--yes").status == 0
    names = sorted(each.name for each in carrier.parent.glob("state-backup-*.json"))
    assert len(names) == 9
    assert {stat.S_IMODE((carrier.parent / name).stat().st_mode) for name in names} == {0o600}


def test_a_person_is_asked(carrier: Path, shop: Path) -> None:
    before = kept(carrier)
    for answer, expected in (("n\n", before), ("y\n", {"Clerk": {"name": "x"}})):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "graphbus_core", "state", "reset", "Carrier"],
            cwd=shop,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            os.write(ours, answer.encode())
            _, error = process.communicate(timeout=PATIENCE_S)
        os.close(ours)
        os.close(theirs)
        assert b"Make these changes?" in error
        assert kept(carrier) == expected


# --- trouble --------------------------------------------------------------------------------


def test_a_backup_that_cannot_be_written_stops_everything(carrier: Path, shop: Path) -> None:
    keep(carrier, "Carrier", long="x" * 60_000)
    before = kept(carrier)
    program = (
        "import resource, signal, sys; from graphbus_core.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); sys.exit(main())"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program, "state", "reset", "--all", "--yes"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 7, finished.stderr
    assert "[GBE699]" in finished.stderr
    assert kept(carrier) == before
    assert not [each.name for each in carrier.parent.iterdir() if "backup" in each.name], "nor a part of it"


def test_a_disk_that_is_full_leaves_everything_as_it_was(
    run: Run, carrier: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite is given no further page: to it, that is a full disk."""
    from graphbus_core.hosting.database import Database

    file = write(shop / "a.json", {"Carrier": {str(n): "x" * 100_000 for n in range(20)}})
    before = kept(carrier)
    opened = Database._prepare

    def prepare(self: Database, timeout_s: float) -> None:
        opened(self, timeout_s)
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        self._connection.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_prepare", prepare)
        refused = run("import", file, "--yes")
    assert (refused.status, "[GBE645]" in refused.err) == (7, True)
    assert "full" in refused.err
    assert kept(carrier) == before


@pytest.mark.parametrize("damage", ["no database", "broken pages", "no JSON"])
def test_a_damaged_file_is_one_clear_refusal(run: Run, carrier: Path, damage: str) -> None:
    if damage == "no JSON":
        with closing(sqlite3.connect(carrier, isolation_level=None)) as connection:
            connection.execute("UPDATE state SET value = '{' WHERE key = 'cart'")
    else:
        data = carrier.read_bytes()
        broken = b"not a database" * 400 if damage == "no database" else data[:4096] + b"\xff" * (len(data) - 4096)
        carrier.write_bytes(broken)
    before = carrier.read_bytes()
    for words in (("ls",), ("show", "Carrier"), ("export",), ("reset", "Carrier", "--yes")):
        refused = run(*words)
        assert (refused.status, refused.out) == (7, "")
        assert refused.err.count("[GBE643]") == 1
        assert "it is damaged" in refused.err
    assert carrier.read_bytes() == before


# --- beside a running graph -----------------------------------------------------------------


@pytest.fixture
def counting(shop: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A graph in another process, one of whose agents counts without a pause."""
    with subprocess.Popen(
        [sys.executable, "-m", "graphbus_core", "run", ".graphbus/"],
        cwd=shop,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        wait_for((shop / "ready").exists)
        yield process
        (shop / "enough").touch()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def test_an_agent_that_has_read_before_an_import_notices_it(run: Run, carrier: Path, shop: Path) -> None:
    states = States(str(carrier))
    try:
        agent = states.of("Carrier")
        for words in (("reset", "Carrier"), ("import", write(shop / "a.json", {"Carrier": {"parcels": 7}}))):
            value, version = agent.read("parcels")
            assert run(*words, "--yes").status == 0
            assert not agent.update_if("parcels", value, version)
        assert dict(agent) == {"parcels": 7}, "it sees at once what was imported"
    finally:
        states.close()


def wait_for(is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@pytest.mark.slow
def test_everything_works_while_a_graph_writes(
    run: Run, shop: Path, path: Path, counting: subprocess.Popen[bytes]
) -> None:
    wait_for(lambda: path.exists() and run("ls").out != "")
    for number in range(10):
        assert run("export", "-o", f"{number}.json").status == 0
        assert run("import", write(shop / "a.json", {"Counter": {"n": -1_000_000}}), "--yes").status == 0
        after = int(run("show", "Counter", "n").out)
        assert after < 0, "it counts on from what was imported"
        assert run("reset", "Counter", "--yes").status == 0
        wait_for(lambda: kept(path) != {})
        assert 0 < kept(path)["Counter"]["n"] < 1_000_000, "it has begun anew"
    assert counting.poll() is None


@pytest.mark.slow
def test_what_a_killed_graph_has_kept_is_there(run: Run, path: Path, counting: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: path.exists() and run("ls").out != "")
    seen = int(run("show", "Counter", "n").out)
    counting.kill()
    counting.wait()
    assert int(run("show", "Counter", "n").out) >= seen
    assert run("export", "-o", "all.json").status == 0
    assert run("reset", "--all", "--yes").status == 0
    assert run("import", "all.json", "--yes").status == 0
    assert kept(path)["Counter"]["n"] >= seen


@pytest.mark.parametrize("command", ["state", "dlq"])
def test_a_folder_that_is_not_there_is_not_taken_for_one_where_nothing_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "ls", "--artifacts", str(tmp_path / "typo")]) == 6
    said = capsys.readouterr()
    assert "There are no build artifacts here. [GBE501]" in said.err
    assert not said.out
