"""`graphbus simulate`: what it says about graphs that hold and that do not, and about events that cannot be used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

AGENTS = """
    from graphbus_core import Event, GraphBusNode, publishes, subscribe

    class Oven(GraphBusNode):
        @subscribe("/Bread/Ordered")
        @publishes("/Bread/Baked", {"loaves": int})
        def on_ordered(self, loaves: int) -> None:
            print("baking")
            self.publish("/Bread/Baked", {"loaves": loaves})

    class Shelf(GraphBusNode):
        @subscribe("/Bread/Baked")
        def on_baked(self, loaves: int) -> None:
            self.state["loaves"] = self.state.get("loaves", 0) + loaves
    """
FORGETFUL = AGENTS.replace(
    'self.state["loaves"] = self.state.get("loaves", 0) + loaves', "self.loaves += loaves"
).replace(
    "class Shelf(GraphBusNode):",
    "class Shelf(GraphBusNode):\n        def on_start(self) -> None:\n            self.loaves = 0\n",
)
EVENTS = "".join(f'{{"topic": "/Bread/Ordered", "payload": {{"loaves": {number}}}}}\n\n' for number in range(1, 5))


def make_bakery(folder: Path, monkeypatch: pytest.MonkeyPatch, agents: str = AGENTS, **files: str) -> Path:
    texts = {"pyproject.toml": "", "bakery/__init__.py": "", "bakery/a.py": agents, "events.jsonl": EVENTS}
    write_project(folder, texts | {f"{name}.py": text for name, text in files.items()})
    build_graph(folder / "bakery")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def bakery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_bakery(tmp_path, monkeypatch)


@pytest.fixture
def forgetful_bakery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_bakery(tmp_path, monkeypatch, FORGETFUL)


def simulate(*words: str) -> int:
    return main(["simulate", "--events", "events.jsonl", *words])


def simulate_in_a_process(*words: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Also for what the audit hook of the simulator finds: a hook stays in its process for ever."""
    command = [sys.executable, "-m", "graphbus_core", "simulate", "--events", "events.jsonl", *words]
    return subprocess.run(command, capture_output=True, check=False, env=environ)


@pytest.mark.usefixtures("bakery")
def test_a_graph_without_defects_holds_every_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "60") == 0
    out, err = capsys.readouterr()
    assert out == "Every invariant held: 60 seeds, 4 events.\n"
    assert "Processes: Oven, Shelf" in err
    assert "60 seeds in" in err


@pytest.mark.usefixtures("forgetful_bakery")
def test_a_failure_names_the_seed_the_faults_the_events_and_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "60") == 7
    out, err = capsys.readouterr()
    assert "attribute 'loaves' of Shelf" in out
    assert "Violated: What an agent remembers outlives its process." in out
    assert "Faults (1 of" in out
    assert "Causal tree:" in out
    assert "bakery/a.py:" in err
    assert "[GBE668]" in err
    assert "graphbus simulate --events events.jsonl --seed" in err


@pytest.mark.usefixtures("forgetful_bakery")
def test_a_seed_shows_the_same_failure_byte_by_byte_in_every_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--json") == 7
    seed = json.loads(capsys.readouterr().out)["failure"]["seed"]
    runs = [simulate_in_a_process("--seed", str(seed), PYTHONHASHSEED=hash_seed) for hash_seed in "12"]
    assert runs[0].returncode == runs[1].returncode == 7
    assert runs[0].stdout == runs[1].stdout
    assert f"Seed {seed}:" in runs[0].stdout.decode()


@pytest.mark.usefixtures("forgetful_bakery")
def test_kinds_of_faults_may_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "60", "--faults", "none") == 0
    assert simulate("--seeds", "60", "--faults", "lost, duplicate, engine") in (0, 7)
    assert simulate("--seeds", "60", "--faults", "crash") == 7
    assert "events.jsonl --faults crash --seed" in capsys.readouterr().err


@pytest.mark.usefixtures("bakery")
def test_an_unknown_kind_of_fault_is_refused_with_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--faults", "crahs") == 2
    assert "Did you mean 'crash'?" in capsys.readouterr().err


@pytest.mark.usefixtures("bakery")
def test_an_upgrade_without_another_build_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--faults", "crash,upgrade") == 2
    assert "--upgrade" in capsys.readouterr().err


@pytest.mark.usefixtures("bakery")
def test_a_result_may_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"seeds": 5, "failure": None}


@pytest.mark.usefixtures("bakery")
def test_the_number_of_processes_may_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--seeds", "5", "--nodes", "1") == 0
    assert "Processes: Oven+Shelf" in capsys.readouterr().err


@pytest.mark.usefixtures("bakery")
def test_events_are_made_up_if_there_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "5"]) == 0
    assert "3 events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "events.jsonl", "contains no event"),
        ("{nonsense", "events.jsonl:1", ""),
        ('{"payload": {}}', "events.jsonl:1", "`topic` and `payload`"),
        (f'{EVENTS.splitlines()[0]}\n{{"topic": "/Bread/Orderd", "payload": {{}}}}', "events.jsonl:2", "/Bread/Orderd"),
        ('{"topic": "/Bread/Baked", "payload": {"loaves": "many"}}', "events.jsonl:1", "loaves"),
    ],
)
def test_events_that_cannot_be_used_are_an_error_with_their_line(
    bakery: Path, capsys: pytest.CaptureFixture[str], text: str, place: str, reason: str
) -> None:
    (bakery / "events.jsonl").write_text(text, encoding="utf-8")
    assert simulate() == 7
    err = capsys.readouterr().err
    assert f"{place}: error:" in err
    assert reason in err
    assert "[GBE666]" in err


@pytest.mark.usefixtures("bakery")
def test_a_file_with_events_that_is_missing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--events", "nowhere.jsonl"]) == 7
    assert "nowhere.jsonl: error:" in capsys.readouterr().err


OWN = """
    from graphbus_core.simulation import View, invariant

    @invariant
    def the_shelf_is_not_full(view: View) -> None:
        assert view.states["Shelf"]["loaves"] <= 9, f"there are {view.states['Shelf']['loaves']}"
    """


def test_an_invariant_of_the_project_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bakery(tmp_path, monkeypatch, simulation=OWN)
    assert simulate("--seeds", "3") == 7
    assert "AssertionError: there are 10" in capsys.readouterr().out


def test_what_the_project_excludes_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bakery(tmp_path, monkeypatch, FORGETFUL, simulation='NOT_COMPARED = ["Shelf.loaves"]\n')
    assert simulate("--seeds", "30") == 0
    capsys.readouterr()


def test_a_handler_with_a_thread_of_its_own_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = AGENTS.replace('print("baking")', "__import__('threading').Thread(target=print).start()")
    make_bakery(tmp_path, monkeypatch, text)
    assert simulate() == 7
    err = capsys.readouterr().err
    assert "Oven.on_ordered uses a thread" in err
    assert "[GBE667]" in err


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("__import__('socket').create_connection(('127.0.0.1', 9))", "a socket"),
        ("__import__('subprocess').run(['true'])", "another process"),
        ("__import__('os').system('true')", "another process"),
    ],
)
def test_a_handler_that_cannot_be_repeated_is_refused_and_named(
    statement: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bakery(tmp_path, monkeypatch, AGENTS.replace('print("baking")', statement))
    ended = simulate_in_a_process()
    assert ended.returncode == 7
    assert f"Oven.on_ordered uses {what}" in ended.stderr.decode()
    assert "[GBE667]" in ended.stderr.decode()


def test_a_handler_that_writes_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bakery(tmp_path, monkeypatch, AGENTS.replace('print("baking")', "open('sales.txt', 'a').close()"))
    ended = simulate_in_a_process("--seeds", "5")
    assert ended.returncode == 0
    assert "Oven.on_ordered uses a file (sales.txt)" in ended.stderr.decode()


CAREFUL = AGENTS.replace('{"loaves": int}', '{"loaves": int, "kind": str}').replace(
    '{"loaves": loaves}', '{"loaves": loaves, "kind": "rye"}'
)
DEMANDING = CAREFUL.replace("def on_baked(self, loaves: int)", "def on_baked(self, loaves: int, kind: str)")


def make_two_builds(folder: Path, monkeypatch: pytest.MonkeyPatch, new: str) -> None:
    make_bakery(folder / "new", monkeypatch, new)
    make_bakery(folder / "old", monkeypatch)


def test_two_compatible_builds_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_two_builds(tmp_path, monkeypatch, CAREFUL)
    assert simulate("--upgrade", "../new/.graphbus", "--seeds", "40") == 0
    assert "Every invariant held: 40 seeds, 4 events." in capsys.readouterr().out


def test_events_that_an_upgrade_cannot_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_two_builds(tmp_path, monkeypatch, DEMANDING)
    assert simulate("--upgrade", "../new/.graphbus", "--faults", "upgrade") == 7
    said = capsys.readouterr()
    assert "Violated: No event stays parked when all processes run one build." in said.out
    assert "kind: expected str, got nothing" in said.out
    assert "graphbus simulate --events events.jsonl --faults upgrade --upgrade ../new/.graphbus --seed" in said.err
    assert "../new/" in said.err.partition(": error")[0]  # the place is in the build that cannot read them


BAKED, TAKES = '{"loaves": loaves}', "def on_baked(self, loaves: int)"
DECLARED, ADDS = '{"loaves": int}', 'self.state.get("loaves", 0) + loaves'
UPGRADES = {
    "nothing": ((), True),
    "a field that nobody reads": (
        ((BAKED, BAKED[:-1] + ', "kind": "rye"}'), (DECLARED, DECLARED[:-1] + ', "kind": str}')),
        True,
    ),
    "a field with a default": ((("loaves: int)", 'loaves: int, kind: str = "rye")'),), True),
    "a wider type": (
        ((TAKES, TAKES.replace("int", "int | str")), (ADDS, ADDS.replace("+ loaves", "+ int(loaves)"))),
        True,
    ),
    "a required field": (
        (
            (BAKED, BAKED[:-1] + ', "kind": "rye"}'),
            (DECLARED, DECLARED[:-1] + ', "kind": str}'),
            (TAKES, TAKES[:-1] + ", kind: str)"),
        ),
        False,
    ),
    "a field with another name": (
        (
            (BAKED, '{"count": loaves}'),
            (DECLARED, '{"count": int}'),
            (TAKES, "def on_baked(self, count: int)"),
            (ADDS, ADDS.replace("+ loaves", "+ count")),
        ),
        False,
    ),
    "another type": (
        (
            (BAKED, '{"loaves": str(loaves)}'),
            (DECLARED, '{"loaves": str}'),
            (TAKES, TAKES.replace("int", "str")),
            (ADDS, ADDS.replace("+ loaves", "+ int(loaves)")),
        ),
        False,
    ),
    "a key that is read": (
        (
            (BAKED, '{"count": loaves}'),
            (DECLARED, '{"count": int}'),
            (TAKES, "def on_baked(self, event: Event)"),
            (ADDS, ADDS.replace("+ loaves", '+ event["count"]')),
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", UPGRADES)
def test_an_upgrade_parks_events_only_where_the_comparison_both_ways_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the end all processes run the new build: what is parked then are messages of the old one."""
    edits, is_safe = UPGRADES[name]
    new = AGENTS
    for before, after in edits:
        assert before in new
        new = new.replace(before, after)
    make_two_builds(tmp_path, monkeypatch, new)
    main(["contract", "diff", ".graphbus", "../new/.graphbus", "--both-ways", "--json"])
    edges = json.loads(capsys.readouterr().out)["both_ways"]["edges"]
    assert all(each["answers"]["queued"] != "breaks" for each in edges if each["kind"] == "event") is is_safe
    assert simulate("--upgrade", "../new/.graphbus", "--seeds", "25") == (0 if is_safe else 7)
    assert ("No event stays parked" in capsys.readouterr().out) is not is_safe
