"""`graphbus ledger ls` and `replay`: which events are in the ledger, and how done ones are handled again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.hosting.state import States
from graphbus_core.ledger.nats import NatsLedger
from graphbus_core.ledger.sqlite import SqliteLedger
from tests.project_files import write_project

AGENTS = """
    from graphbus_core import Event, GraphBusNode, subscribe

    class Baker(GraphBusNode):
        @subscribe("/Bread/Ordered")
        def on_ordered(self, event: Event) -> None:
            self.state["ids"] = [*self.state.get("ids", []), event.event_id]
            self.publish("/Bread/Baked", {"loaves": event["loaves"]})

    class Till(GraphBusNode):
        @subscribe("/Bread/Baked")
        def on_baked(self, event: Event) -> None:
            if event["loaves"] > 100:
                raise ValueError("so much flour is not there")
            self.state["loaves"] = self.state.get("loaves", 0) + event["loaves"]

    class Guard(GraphBusNode):
        @subscribe("/Bread/**")
        def on_any(self, event: Event) -> None:
            self.state["seen"] = self.state.get("seen", 0) + 1

    def handle_what_waits(graph):
        assert graph.settle(60)
    """


@pytest.fixture
def bakery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = write_project(
        tmp_path / "bakery",
        {
            "pyproject.toml": '[tool.graphbus.runtime]\nledger = "sqlite"\n',
            "bakery/__init__.py": "",
            "bakery/a.py": AGENTS,
        },
    )
    build_graph(folder / "bakery")
    monkeypatch.chdir(folder)
    assert main(["run", "--publish", "/Bread/Ordered", '{"loaves": 2}']) == 0
    capsys.readouterr()
    return folder


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main(["ledger", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def state(agent: str, key: str) -> Any:
    assert main(["run", "--entrypoint", "bakery.a:handle_what_waits", "--allow-drift"]) == 0
    kept = States(".graphbus/state/state.sqlite3")
    try:
        return kept.snapshot().agents[agent][key].value
    finally:
        kept.close()


def test_events_are_listed_with_what_they_wait_for(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--publish", "/Bread/Ordered", '{"loaves": 200}']) == 7
    assert main(["run", "--only", "Baker", "--publish", "/Bread/Ordered", '{"loaves": 1}']) == 0
    found = asked(capsys, "ls")
    assert not found["has_more"]
    listed = [(each["topic"], each["state"], each["handler"]) for each in found["events"]]
    assert listed[:2] == [("/Bread/Ordered", "done", ""), ("/Bread/Baked", "done", "")]
    assert ("/Bread/Ordered", "waiting", "Guard.on_any") in listed
    assert ("/Bread/Baked", "waiting", "Till.on_baked") in listed
    assert len({each["build"] for each in found["events"]}) == 1
    assert all(len(each["build"]) == 64 and each["published"] <= time.time() for each in found["events"])
    waiting = asked(capsys, "ls", "--state", "waiting", "--topic", "/Bread/Baked")["events"]
    assert {each["handler"] for each in waiting} == {"Till.on_baked", "Guard.on_any"}
    latest = asked(capsys, "ls", "--limit", "1")
    assert latest == {"events": found["events"][-1:], "has_more": True}
    assert main(["ledger", "ls", "--limit", "1"]) == 0
    assert "--limit 0" in capsys.readouterr().err


def test_what_is_done_is_handled_again_with_the_same_id_and_all_that_follows(
    bakery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two events are of this time, but the second is caused by the first: it comes again by itself, once."""
    shown = asked(capsys, "replay", "--from", "1h", "--dry-run")
    done = asked(capsys, "replay", "--from", "1h")
    assert shown == {"replayed": done["replayed"], "dry_run": True}
    assert sorted(each["handler"] for each in done["replayed"]) == ["Baker.on_ordered", "Guard.on_any"]
    assert len(set(state("Baker", "ids"))) == 1
    assert len(state("Baker", "ids")) == 2
    assert (state("Till", "loaves"), state("Guard", "seen")) == (4, 4)


def test_only_the_chosen_handlers_get_what_is_of_the_topic_and_time(
    bakery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, "replay", "--from", "1h", "--handler", "Guard.on_any", "--topic", "/Bread/*")["replayed"]
    assert [each["topic"] for each in found] == ["/Bread/Ordered", "/Bread/Baked"]  # neither comes again by itself
    assert (state("Guard", "seen"), state("Till", "loaves"), len(state("Baker", "ids"))) == (4, 2, 1)
    assert asked(capsys, "replay", "--from", "2h", "--to", "1h")["replayed"] == []
    assert asked(capsys, "replay", "--from", "2100-01-01T00:00")["replayed"] == []
    assert asked(capsys, "replay", "--from", "1h", "--topic", "/Cake")["replayed"] == []


def test_what_still_waits_is_not_handed_out_twice(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again = ("replay", "--from", "1h", "--handler", "Till.on_baked")
    assert len(asked(capsys, *again)["replayed"]) == 1
    assert asked(capsys, *again)["replayed"] == []
    assert state("Till", "loaves") == 4


def test_it_says_in_words_that_effects_happen_again(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "replay", "--from", "1h", "--handler", "Till.on_baked"]) == 0
    said = capsys.readouterr().out
    assert "1 delivery handed out again: what the handlers store and publish happens a second time." in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "1h", "--handler", "Till.on_bakd"), "There is no handler 'Till.on_bakd'. Did you mean"),
        (("--from", "yesterday"), "neither a time such as"),
    ],
)
def test_wrong_words_are_refused(
    words: tuple[str, ...], said: str, bakery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "replay", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["lag", "ls", "resume"])
def test_a_folder_that_does_not_exist_is_no_ledger_of_another_one(
    command: str, bakery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", command, "nope"]) == 2
    assert "The path nope does not exist." in capsys.readouterr().err


def test_a_server_that_forgets_what_is_done_is_named(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bakery / "pyproject.toml").write_text('[tool.graphbus.runtime]\nledger = "nats://127.0.0.1:1/x"\n')
    assert main(["ledger", "replay", "--from", "1h"]) == 7
    assert "[GBE698]" in capsys.readouterr().err
    assert main(["ledger", "ls"]) == 0  # of the state file: no server is needed
    assert (NatsLedger.capabilities.replay, SqliteLedger.capabilities.replay) == (False, True)


@pytest.mark.usefixtures("bakery")
def test_the_variable_names_the_ledger_as_for_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the file of a process on NATS would be taken for a ledger of its own."""
    monkeypatch.setenv("GRAPHBUS_LEDGER", "nats://127.0.0.1:1/x")
    assert main(["ledger", "replay", "--from", "1h"]) == 7
    assert "[GBE698]" in capsys.readouterr().err
    assert main(["ledger", "replay", "--from", "1h", "--ledger", "sqlite"]) == 0
