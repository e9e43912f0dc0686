"""The end of a graph waits once: a signal, the servers and the bus share the seconds of `grace_s`."""

from __future__ import annotations

import http.client
import json
import threading
import time
from pathlib import Path

import pytest

from graphbus_core import GraphBusNode, build_graph, connect, run_graph, runtime, schema_method, subscribe
from graphbus_core.hosting.serving.companion import ServerOptions, Servers
from graphbus_core.hosting.signals import stop_on_signals
from tests.conftest import Project
from tests.patience import PATIENCE_S

LONG_S = 1000.0
TOKEN = "one-token-that-is-long-enough-for-a-test"

AGENT = """
    from threading import Event

    from graphbus_core import GraphBusNode, schema_method

    class Till(GraphBusNode):
        may_end = Event()

        @schema_method(output_schema={"sum": int})
        def count(self) -> dict:
            print("counting", flush=True)
            self.may_end.wait(60)
            return {"sum": 1}
"""


class Patient(GraphBusNode):
    @subscribe("/A/B", retries=1, backoff=LONG_S / 2)
    def on_b(self) -> None:
        raise ConnectionError("down")

    @schema_method()
    def nothing(self) -> None:
        pass


def test_who_asks_first_begins_the_grace_and_the_next_gets_what_is_left() -> None:
    with connect(Patient) as graph:
        graph.grace_s = LONG_S
        first = graph.begin_grace()
        assert 0 < graph.begin_grace() <= first <= LONG_S
        graph.grace_s = 2 * LONG_S
        assert graph.begin_grace() <= LONG_S, "it has begun"
        graph._grace_ends = 0.0


def test_a_bus_gets_what_others_have_left_of_the_grace() -> None:
    with connect(Patient, on_error="isolate") as graph:
        graph.grace_s = 0.0
        graph.begin_grace()
        graph.grace_s = LONG_S
        graph.publish("/A/B")
        graph.stop()
        assert [letter.reason for letter in graph.bus.dead_letters()] == ["closed"]


def test_a_signal_that_waits_for_a_handler_begins_the_grace() -> None:
    with connect(Patient) as graph, stop_on_signals() as patience:
        runtime.let_handlers_finish(patience, graph)
        graph.grace_s = 0.0
        assert patience.begin_grace() == 0.0
        graph.grace_s = LONG_S
        assert graph.begin_grace() == 0.0


def test_a_request_that_does_not_end_takes_the_grace_of_the_whole_graph(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root: Path = project({"pyproject.toml": "[tool.graphbus.runtime]\ngrace_s = 0.1\n", "agents/till.py": AGENT})
    build_graph(str(root / "agents"))
    servers = Servers(ServerOptions(True, "127.0.0.1", 0), str(root / ".graphbus"), lambda _line: None)

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", servers.ports["serve"], timeout=PATIENCE_S)
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        connection.request("POST", "/call/Till/count", json.dumps({}), headers)
        connection.getresponse().read()
        connection.close()

    with run_graph(root / ".graphbus") as graph:
        asker = threading.Thread(target=ask)
        with servers.run_beside(graph):
            asker.start()
            while "counting" not in capsys.readouterr().out:
                time.sleep(0.01)
        graph.grace_s = LONG_S
        assert graph.begin_grace() == 0.0
        graph.node("Till").may_end.set()  # type: ignore[attr-defined]
        asker.join()
    servers.close()
