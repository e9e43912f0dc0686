"""`graphbus view`, and `--view` of other commands, as whole processes: what they print, show, and refuse."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

FILES = {
    "pyproject.toml": '[tool.graphbus]\n[tool.graphbus.llm]\nmodel = "rules"\n[tool.graphbus.gate]\nisolation = "process"\n',
    "agents/__init__.py": "",
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, subscribe

        class Stock(GraphBusNode):
            @subscribe("/Goods/Sold")
            def on_sold(self, event):
                self.publish("/Stock/Counted", {"sku": event["sku"], "left": 3})
        """,
    "agents/report.py": """
        from graphbus_core import GraphBusNode, depends_on, subscribe

        @depends_on("Stock")
        class Report(GraphBusNode):
            @subscribe("/Stock/Counted")
            def on_counted(self, event):
                self.log(event["sku"])
        """,
}
SELL = ("--publish", "/Goods/Sold", '{"sku": "mug"}')


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "shop", FILES)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    return root


class Shown(NamedTuple):
    """A running command with a page: its address, and what it has printed."""

    popen: subprocess.Popen[str]
    lines: list[str]
    port: int
    token: str

    def get(self, path: str) -> Any:
        """The answer to a request with the token, as JSON; for another status than 200 the problem."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", f"/view/{path}", headers={"authorization": f"Bearer {self.token}"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE_S)


@contextmanager
def shown(*command: str) -> Iterator[Shown]:
    """Run `graphbus` with these words until its page is there."""
    environment = {name: value for name, value in os.environ.items() if name != "GRAPHBUS_TOKEN"}
    words = [sys.executable, "-m", "graphbus_core", *command]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as popen:
        assert popen.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(popen.stdout or []))
        reader.start()
        try:
            pattern = r"View at http://127\.0\.0\.1:(\d+)/view/(?:\?token=(\S+))?"
            assert comes_true(lambda: re.search(pattern, "".join(lines)) or popen.poll() is not None)
            found = re.search(pattern, "".join(lines))
            assert found, lines
            yield Shown(popen, lines, int(found[1]), found[2] or "")
        finally:
            if popen.poll() is None:
                popen.kill()
            reader.join()
    assert "Traceback" not in "".join(lines)


# --- traces and artifacts ---


@pytest.mark.slow
def test_a_build_is_shown_with_its_trace_until_ctrl_c(project: Path) -> None:
    assert main(["run", "--trace", "--trace-payloads", *SELL]) == 0
    with shown("view") as view:
        graph = view.get("graph")
        assert (graph["origin"]["kind"], graph["origin"]["is_live"], graph["origin"]["note"]) == ("trace", False, "")
        assert [each["handler"] for each in view.get("deliveries")["deliveries"]] == [
            "Stock.on_sold",
            "Report.on_counted",
        ]
        event_id = view.get("deliveries")["deliveries"][1]["event_id"]
        tree = view.get(f"event/{event_id}?payload=1")
        assert [each["payload"] for each in tree["events"]] == [{"sku": "mug"}, {"sku": "mug", "left": 3}]
        assert "self.publish" in "".join(view.get("source/Stock.on_sold")["lines"])
        assert view.get("negotiation")["state"] == "none"
        assert view.end(signal.SIGINT) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [('{"trace_version":9}\n', "a newer GraphBus has written it"), ('{"trace_version":1}\n{"event_id":', "cut off")],
)
def test_a_trace_that_cannot_be_shown_whole_is_a_page_that_says_why(project: Path, content: str, words: str) -> None:
    path = project / ".graphbus/state/trace.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    with shown("view", ".graphbus/state/trace.jsonl") as view:
        graph = view.get("graph")
        assert words in graph["origin"]["note"]
        assert [each["name"] for each in graph["agents"]][1:] == ["Stock", "Report"]
        assert view.get("deliveries")["deliveries"] == []


@pytest.mark.slow
def test_a_trace_alone_is_shown_without_a_graph(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["run", "--trace", *SELL]) == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / ".graphbus/state/trace.jsonl").rename(elsewhere / "found.jsonl")
    monkeypatch.chdir(elsewhere)
    with shown("view", "found.jsonl") as view:
        graph = view.get("graph")
        assert "graph is not known" in graph["origin"]["note"]
        assert "no agents" in graph["note"]
        assert len(view.get("deliveries")["deliveries"]) == 2


@pytest.mark.slow
def test_a_trace_is_followed_while_it_grows_and_when_it_is_begun_anew(project: Path) -> None:
    assert main(["run", "--trace", *SELL]) == 0
    trace = project / ".graphbus/state/trace.jsonl"
    with shown("view", str(trace)) as view:
        connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=PATIENCE_S)
        connection.request("GET", "/view/events")
        stream = connection.getresponse()

        def next_message(kind: str) -> Any:
            while stream.readline() != f"event: {kind}\n".encode():
                pass
            return json.loads(stream.readline().removeprefix(b"data: "))

        newest = next_message("hello")["newest"]
        assert next_message("tick")["last"] == 0
        assert main(["run", "--trace", *SELL]) == 0
        assert next_message("tick")["first"] > newest
        assert len(view.get(f"deliveries?after={newest}")["deliveries"]) == 2

        server = view.get("graph")["origin"]["server"]
        trace.unlink()
        assert main(["run", "--trace", *SELL]) == 0
        anew = next_message("hello")["origin"]["server"]
        assert anew != server
        assert view.get("graph")["origin"]["server"] == anew
        assert len(view.get("deliveries")["deliveries"]) == 2
        connection.close()


@pytest.mark.slow
def test_two_traces_and_two_builds_are_compared(project: Path, tmp_path: Path) -> None:
    assert main(["run", "--trace", "--trace-payloads", *SELL]) == 0
    (project / ".graphbus/state/trace.jsonl").rename(tmp_path / "before.jsonl")
    before = write_project(tmp_path / "before", FILES)
    build_graph(before / "agents")
    stock = project / "agents/stock.py"
    stock.write_text(stock.read_text().replace('"left"', '"remaining"'))
    build_graph(project / "agents")
    assert main(["run", "--trace", "--trace-payloads", *SELL]) == 0
    with shown("view", str(tmp_path / "before.jsonl"), ".graphbus/state/trace.jsonl") as view:
        (found,) = view.get("compare")["differences"]
        assert (found["kind"], found["topic"], found["left"], found["right"]) == (
            "fields",
            "/Stock/Counted",
            "left, sku",
            "remaining, sku",
        )
        assert view.get("compare?left=nowhere")["code"] == "GBE694"
    with shown("view", str(before / ".graphbus"), ".graphbus") as view:
        (found,) = view.get("compare")["differences"]
        assert (found["kind"], found["topic"]) == ("fields", "/Stock/Counted")


def test_a_path_that_does_not_exist_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "nowhere.jsonl"]) == 2
    assert main(["view", ".graphbus", "nowhere"]) == 2
    assert "GBE101" in capsys.readouterr().err


def test_artifacts_that_are_damaged_are_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".graphbus/graph.json").write_text("{}")
    assert main(["view"]) == 6
    assert "GBE506" in capsys.readouterr().err


# --- running graphs ---


@pytest.mark.parametrize(
    ("words", "needed"), [(["--view"], "--serve"), (["--serve", "--view-payloads"], "--view")], ids=["serve", "view"]
)
def test_options_that_need_another_one_are_refused(
    project: Path, words: list[str], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    refusal = capsys.readouterr().err
    assert "GBE131" in refusal
    assert needed in refusal


@pytest.mark.slow
def test_a_graph_is_shown_while_it_runs(project: Path) -> None:
    with shown("run", "--serve", "--port", "0", "--view") as view:
        assert view.token == ""  # it is in a file, as stderr is no terminal
        assert view.get("graph")["origin"]["kind"] == "run"
        assert view.end() == 0


@pytest.mark.slow
def test_dev_prints_the_address_of_the_page_unless_it_is_told_not_to(project: Path) -> None:
    with shown("dev", "agents") as view:
        first = view.get("graph")["origin"]
        assert (first["kind"], first["is_live"]) == ("run", True)
        stock = project / "agents/stock.py"
        stock.write_text(stock.read_text() + "# saved\n")
        assert comes_true(lambda: any("restarted" in line for line in view.lines))
        assert view.get("graph")["origin"]["server"] != first["server"]
        assert view.end() == 0
    command = [sys.executable, "-m", "graphbus_core", "dev", "agents", "--no-view"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as popen:
        assert popen.stdout is not None
        said = ""
        while "Watching" not in said:
            said += popen.stdout.readline()
        popen.send_signal(signal.SIGTERM)
        said += popen.stdout.read()
    assert "View at" not in said


# --- negotiations ---


@pytest.mark.slow
def test_a_negotiation_is_shown_while_it_goes_on_and_afterwards(project: Path) -> None:
    report = project / "agents/report.py"
    report.write_text(report.read_text().replace('event["sku"]', 'event["skuu"]'))
    with shown("build", "agents", "--enable-agents", "--unsafe-verify", "--view") as view:
        connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=PATIENCE_S)
        connection.request("GET", "/view/events")
        stream = connection.getresponse()
        parts = stream.read().decode()  # until the command ends
        connection.close()
        assert view.popen.wait(PATIENCE_S) == 0
    assert "event: hello" in parts
    assert '"negotiation":true' in parts
    assert '"topic":"/Negotiation/Committed"' in parts
    assert parts.count('"topic":"/Negotiation/Checked"') == 9  # each rung by itself
    assert "graphbus view S001" in parts.rpartition("event: bye")[2]
    with shown("view", "S001") as view:
        picture = view.get("negotiation")
        (proposal,) = picture["proposals"]
        assert (picture["state"], proposal["status"], proposal["stage"]) == ("ended", "accepted", "decided")
        assert [rung["rung"] for rung in proposal["checks"][0]] == [f"G{number}" for number in range(9)]
        assert [vote["evaluator"] for vote in proposal["votes"]] == ["Stock"]
        (decision,) = view.get("source/Report.on_counted")["why"]
        assert (decision["proposal"], decision["session"]) == ("P001", "S001")
        assert view.get("negotiation?session=S009")["code"] == "GBE404"


def test_view_without_agents_that_negotiate_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "agents", "--view"]) == 2
    assert "--enable-agents" in capsys.readouterr().err


# --- ledgers ---


@pytest.mark.slow
def test_a_ledger_in_a_file_is_shown_and_not_changed(project: Path) -> None:
    assert main(["run", "--ledger", "sqlite", *SELL]) == 0
    path = project / ".graphbus/state/state.sqlite3"

    def rows() -> list[str]:
        with closing(sqlite3.connect(path)) as connection:
            return list(connection.iterdump())

    before = rows()
    with shown("view", str(path)) as view:
        assert view.get("graph")["origin"]["kind"] == "ledger"
        assert comes_true(lambda: len(view.get("deliveries")["deliveries"]) == 2)
        found = view.get("deliveries")["deliveries"]
        assert {(each["topic"], each["handler"], each["outcome"]) for each in found} == {
            ("/Goods/Sold", "Stock.on_sold", "done"),
            ("/Stock/Counted", "Report.on_counted", "done"),
        }
        tree = view.get(f"event/{found[1]['event_id']}?payload=1")
        assert {each["topic"] for each in tree["events"]} == {"/Goods/Sold", "/Stock/Counted"}
        assert view.get("dead-letters")["letters"] == []
        assert view.end() == 0
    assert rows() == before


@pytest.mark.slow
def test_a_ledger_on_nats_is_shown(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        assert main(["run", "--ledger", server.url("shop"), *SELL]) == 0
        # Stock alone runs, so what it publishes waits for Report
        assert main(["run", "--ledger", server.url("shop"), "--only", "Stock", *SELL]) == 0
        with shown("view", server.url("shop")) as view:
            graph = view.get("graph")
            assert (graph["origin"]["kind"], graph["origin"]["name"]) == ("ledger", server.url("shop"))
            assert comes_true(lambda: view.get("deliveries")["newest"] > 0)
            topics = {each["topic"] for each in view.get("deliveries")["deliveries"]}
            assert "/Stock/Counted" in topics
            assert view.end() == 0
        with shown("view", server.url("nobody")) as view:
            assert comes_true(lambda: "GB_nobody" in view.get("graph")["origin"]["note"])
    capsys.readouterr()
    assert main(["view", "nats://127.0.0.1:1/shop"]) == 7
    assert "GBE659" in capsys.readouterr().err
