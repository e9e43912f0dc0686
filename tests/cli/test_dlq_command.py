"""`graphbus dlq`: what a running graph could not deliver is listed, shown, replayed and dropped, and nothing gets lost."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event
from tests.conftest import Project
from tests.patience import PATIENCE_S

FILES = {
    "pyproject.toml": """
        [tool.graphbus]
        external_topics = ["/Order/Placed", "/Order/Gone"]
        [tool.graphbus.runtime]
        keep_dead_letters = true
        """,
    "agents/__init__.py": "",
    "agents/carrier.py": """
        import time
        from pathlib import Path

        from graphbus_core import GraphBusNode, subscribe

        class Carrier(GraphBusNode):
            @subscribe("/Order/Placed", retries=1, backoff=0.01)
            def book(self, order_id: str) -> None:
                if Path("down").exists():
                    raise ConnectionError(f"no line for {order_id}")
                with Path("booked").open("a") as file:
                    file.write(f"{order_id}\\n")
                while Path("slow").exists():
                    time.sleep(0.01)

            @subscribe("/Order/Gone")
            def tell(self) -> None:
                self.publish("/Told/Late", {})

            @subscribe("/Told/Late")
            def on_late(self, name: str) -> None:
                pass
        """,
}


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(shop: Path, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> SimpleNamespace:
        status = main(list(arguments))
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def letters(shop: Path, run) -> Path:
    """Two dead letters of /Order/Placed, 1 and 2, made by a run while the carrier was down."""
    (shop / "down").touch()
    placed = [
        part for number in (1, 2) for part in ("--publish", "/Order/Placed", json.dumps({"order_id": f"{number}"}))
    ]
    assert run("run", *placed).status == 7
    (shop / "down").unlink()
    return shop / ".graphbus/state" / FILE


def listed(run) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("dlq", "ls", "--json").out)["dead_letters"]
    return found


def keep(shop: Path, *letters: DeadLetter) -> None:
    with closing(DeadLetterFile(str(shop / ".graphbus/state" / FILE))) as file:
        file.add(letters)


def letter(topic: str, payload: Any, subscription: str) -> DeadLetter:
    return DeadLetter(
        event=Event(topic, payload), subscription=subscription, reason="handler", error="E: x\ny", timestamp=time.time()
    )


# --- looking --------------------------------------------------------------------------------


def test_a_project_without_letters_says_so_and_how_to_keep_them(run, shop: Path) -> None:
    shown = run("dlq", "ls")
    assert (shown.status, shown.out) == (0, "")
    assert shown.err == "No dead letters are kept here.\n", "they would be, if there were any"
    (shop / "pyproject.toml").write_text("[tool.graphbus]\nexternal_topics = ['/Order/Gone', '/Order/Placed']\n")
    assert "keep_dead_letters = true" in run("dlq", "ls").err
    assert json.loads(run("dlq", "ls", "--json").out) == {"dead_letters": [], "count": 0, "dropped": 0}
    assert not (shop / ".graphbus/state").exists(), "looking makes nothing"


def test_letters_are_listed_with_what_a_person_asks_first(run, letters: Path) -> None:
    shown = run("dlq", "ls")
    head, first, second = shown.out.splitlines()
    assert head.split() == ["ID", "AGE", "TOPIC", "HANDLER", "ATTEMPTS", "ERROR"]
    assert first.split()[0] == "1"
    assert "/Order/Placed  Carrier.book" in first
    assert first.endswith("ConnectionError: no line for 1")
    assert " 2  ConnectionError" in second


def test_one_letter_is_shown_whole(run, letters: Path) -> None:
    shown = run("dlq", "show", "2").out
    for part in (
        "/Order/Placed",
        "Carrier.book",
        "attempts     2",
        "agents/carrier.py:",
        '"order_id": "2"',
        "Traceback",
    ):
        assert part in shown
    facts = json.loads(run("dlq", "show", "2", "--json").out)
    assert facts["payload"] == {"order_id": "2"}
    assert facts["correlation_id"] == facts["event_id"]
    assert facts["first_timestamp"] < facts["timestamp"]


# --- dropping -------------------------------------------------------------------------------


def test_letters_are_dropped_by_their_numbers_or_all(run, letters: Path) -> None:
    assert run("dlq", "drop", "1", "--yes").out == "Dropped 1 dead letter.\n"
    assert [each["id"] for each in listed(run)] == [2]
    assert json.loads(run("dlq", "drop", "--all", "--yes", "--json").out) == {"dropped": [2]}
    assert listed(run) == []
    assert run("dlq", "drop", "--all").status == 0


REFUSED = [
    (("drop", "1"), "GBE153"),
    (("drop",), "GBE152"),
    (("drop", "9", "--yes"), "GBE151"),
    (("drop", "1", "--all", "--yes"), "GBE132"),
    (("replay",), "GBE152"),
    (("replay", "1", "9"), "GBE151"),
    (("replay", "1", "--all"), "GBE132"),
    (("show", "0"), "GBE110"),
    (("show", "9" * 25), "GBE110"),
    (("show", "9"), "GBE151"),
]


def test_what_cannot_be_meant_is_refused_and_nothing_is_changed(run, letters: Path) -> None:
    for arguments, code in REFUSED:
        refused = run("dlq", *arguments)
        assert (refused.status, code in refused.err) == (2, True), arguments
    assert [each["id"] for each in listed(run)] == [1, 2]


# --- replaying ------------------------------------------------------------------------------


def test_what_is_handled_at_last_is_removed(run, letters: Path, shop: Path) -> None:
    before = listed(run)
    shown = run("dlq", "replay", "2", "--artifacts", ".graphbus/")
    assert shown.status == 0
    assert shown.out == "✓ 2  /Order/Placed > Carrier.book\n"
    assert "1 handled and removed." in shown.err
    assert (shop / "booked").read_text() == "2\n"
    assert listed(run) == before[:1]


def test_what_fails_again_stays_and_its_attempts_are_counted(run, letters: Path, shop: Path) -> None:
    (shop / "down").touch()
    first = listed(run)[0]
    shown = run("dlq", "replay", "--all")
    assert shown.status == 7
    assert "✗ 1  /Order/Placed > Carrier.book: ConnectionError: no line for 1" in shown.out
    assert "0 handled and removed, 2 failed and kept." in shown.err
    again = listed(run)[0]
    assert (again["attempts"], again["replays"]) == (4, 1)
    assert again["event_id"] == first["event_id"]
    assert again["first_timestamp"] == first["first_timestamp"]
    assert again["timestamp"] > first["timestamp"]
    assert "replayed 1 times" in run("dlq", "show", "1").out


def test_replay_as_json(run, letters: Path, shop: Path) -> None:
    keep(shop, letter("/Order/Placed", {}, "Carrier.gone"))
    shown = run("dlq", "replay", "--all", "--json")
    assert shown.status == 7
    document = json.loads(shown.out)
    assert document["replayed"] == [1, 2]
    assert document["unfinished"] == 0
    (failed,) = document["failed"]
    assert failed["id"] == 3


def test_letters_without_a_handler_or_a_payload_are_told_and_kept(run, shop: Path) -> None:
    keep(shop, letter("/Order/Placed", {}, "Carrier.gone"), letter("/Order/Placed", {"x": {1j}}, "Carrier.book"))
    shown = run("dlq", "replay", "--all")
    assert shown.status == 7
    assert "This graph no longer has the handler Carrier.gone of /Order/Placed" in shown.out
    assert "its payload was not JSON" in shown.out
    assert [(each["id"], each["replays"]) for each in listed(run)] == [(1, 0), (2, 0)]
    assert "The payload was not JSON." in run("dlq", "show", "2").out


def test_a_payload_with_nan_is_no_json_and_is_never_shown_as_null(run, shop: Path) -> None:
    keep(
        shop, letter("/Order/Placed", {"price": math.nan}, "Carrier.book"), letter("/A/B", {"price": 1.5}, "Carrier.x")
    )
    with closing(sqlite3.connect(shop / ".graphbus/state" / FILE, isolation_level=None)) as database:
        database.execute("""UPDATE letters SET payload = '{"price":NaN}' WHERE id = 2""")  # as it was once written
    for number in ("1", "2"):
        facts = json.loads(run("dlq", "show", number, "--json").out)
        assert (facts["has_payload"], facts["payload"]) == (False, None)
        assert "The payload was not JSON." in run("dlq", "show", number).out


def test_a_letter_that_had_reached_nobody_becomes_one_of_each_handler_that_fails(run, shop: Path) -> None:
    keep(shop, letter("/Order/Placed", {"order_id": "7"}, ""), letter("/Order/Placed", {"order_id": "8"}, ""))
    (shop / "down").touch()
    assert run("dlq", "replay", "1").status == 7
    assert [(each["id"], each["subscription"]) for each in listed(run)] == [(2, ""), (3, "Carrier.book")]
    (shop / "down").unlink()
    assert run("dlq", "replay", "--all").status == 0
    assert (shop / "booked").read_text() == "8\n7\n"


def test_two_replays_at_once_deliver_each_letter_once(run, letters: Path, shop: Path) -> None:
    with closing(DeadLetterFile(str(letters))) as file, file.replaying():
        refused = run("dlq", "replay", "--all")
    assert refused.status == 7
    assert "The replay of dead letters is locked by another process. [GBE644]" in " ".join(refused.err.split())
    assert [(each["id"], each["replays"]) for each in listed(run)] == [(1, 0), (2, 0)]
    assert run("dlq", "replay", "--all").status == 0
    assert (shop / "booked").read_text() == "1\n2\n"


def test_a_letter_that_is_dropped_while_others_are_replayed_is_not_delivered(
    run, letters: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = DeadLetterFile.begin_replay

    def drop_the_second(file: DeadLetterFile, number: int) -> None:
        begin(file, number)
        file.remove([2])

    monkeypatch.setattr(DeadLetterFile, "begin_replay", drop_the_second)
    shown = run("dlq", "replay", "--all")
    assert shown.status == 7
    assert shown.out.splitlines()[1] == "✗ 2  it was dropped in the meantime"
    assert (shop / "booked").read_text() == "1\n"


def test_a_graph_that_cannot_start_delivers_nothing(run, letters: Path, shop: Path) -> None:
    with (shop / "agents/carrier.py").open("a") as file:
        file.write("# drift\n")
    assert run("dlq", "replay", "--all").status == 6
    assert len(listed(run)) == 2
    assert run("dlq", "replay", "--all", "--allow-drift").status == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_replay_that_is_ended_half_way_loses_nothing(run, letters: Path, shop: Path, number: signal.Signals) -> None:
    (shop / "slow").touch()
    code = "import sys; from graphbus_core.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", code, "dlq", "replay", "--all"]
    process = subprocess.Popen(command, cwd=shop, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not (shop / "booked").exists() and process.poll() is None:
        time.sleep(0.02)
    has_begun = (shop / "booked").exists()
    process.send_signal(number)
    time.sleep(0.2)
    (shop / "slow").unlink()
    told, _ = process.communicate(timeout=PATIENCE_S)
    assert has_begun, told.decode()
    left = [each["id"] for each in listed(run)]
    assert left in ([1, 2], [2], []), "what was begun may end in the time of grace"
    if number == signal.SIGKILL:
        assert left == [1, 2]
    assert run("dlq", "replay", "--all").status == 0
    assert set((shop / "booked").read_text().split()) == {"1", "2"}
    assert listed(run) == []
