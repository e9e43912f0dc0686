"""Probes: what they say while all is well, when a handler is stuck, and when the end has begun; on both servers."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphbus_core import GraphBusNode, connect
from graphbus_core.hosting.metrics import HandlerMetrics
from graphbus_core.hosting.serving.probes import ProbeServer, Status
from tests.fakes.http_site import AGENTS, TOKEN, SiteClient, build_site, kept_log, served
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)


class Lonely(GraphBusNode):
    """An agent."""


def probe(site: SiteClient, path: str) -> tuple[int, dict[str, object]]:
    """What both servers say; they say the same."""
    answers = []
    for port in (site.port, site.health_port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", path)
        response = connection.getresponse()
        document = json.loads(response.read())
        for varying in ("running_s", "waiting_s"):
            document.pop(varying, None)
        answers.append((response.status, document))
        connection.close()
    assert answers[0] == answers[1]
    return answers[0]


def test_a_handler_that_runs_for_too_long_is_named_by_livez_and_forgotten_when_it_ends(tmp_path: Path) -> None:
    with served(build_site(tmp_path, "stuck_after_s = 0.2")) as site:
        assert probe(site, "/livez") == (200, {"status": "alive"})
        call = threading.Thread(target=site.post, args=("/call/Till/sleep", {"seconds": 4}))
        call.start()
        assert comes_true(lambda: site.request("GET", "/livez").status == 503)
        assert probe(site, "/livez") == (503, {"status": "stuck", "handler": "Till.sleep"})
        assert probe(site, "/readyz") == (200, {"status": "ready"})
        call.join()
        assert probe(site, "/livez") == (200, {"status": "alive"})


def test_a_graph_in_which_no_more_events_can_wait_is_not_ready_and_takes_none(tmp_path: Path) -> None:
    with served(build_site(tmp_path, runtime="queue = 3")) as site:
        slow, quick = ({"order_id": "1", "quantity": quantity} for quantity in (3_000, 1))
        answers = [site.post("/publish/Order/Placed", order) for order in (slow, *[quick] * 7)]
        assert probe(site, "/readyz") == (503, {"status": "overloaded", "queued": 3})
        assert [answer.status for answer in answers].count(503) >= 3
        refused = answers[-1]
        assert (refused.headers["retry-after"], refused.document["code"]) == ("1", "GBE636")
        site.graph.bus.settle()
        assert probe(site, "/readyz") == (200, {"status": "ready"})
        assert site.graph.bus.statistics().published == [answer.status for answer in answers].count(202)


@pytest.mark.parametrize(
    ("listens_at", "host", "status"),
    [
        ("127.0.0.1", "localhost:80", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "evil.example", 403),
        ("127.0.0.1", "", 403),
        ("0.0.0.0", "graphbus:80", 200),
    ],
)
def test_a_page_whose_name_leads_to_this_machine_reads_no_metrics_but_other_machines_do_when_they_may(
    listens_at: str, host: str, status: int
) -> None:
    with connect(Lonely) as graph:
        server = ProbeServer(listens_at, 0)
        server.start(Status(graph, HandlerMetrics(), stuck_after_s=1, queue=10), lambda: b"")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        for path, expected in (("/metrics", status), ("/livez", 200)):
            connection.request("GET", path, headers={"host": host})
            response = connection.getresponse()
            assert (response.read() is not None, response.status) == (True, expected)
            connection.close()
        server.stop()


@pytest.mark.slow
def test_probes_alone_load_neither_starlette_nor_uvicorn_and_a_plain_run_loads_no_http_at_all(tmp_path: Path) -> None:
    root = build_site(tmp_path)
    code = """
import sys, threading, os, signal
from graphbus_core.cli import main
def end():
    sys.stdin.readline()
    print("LOADED", *sys.modules)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end).start()
try:
    main(["run", *sys.argv[1:]])
except SystemExit:
    pass
"""
    heavy = {"starlette", "uvicorn", "h11", "opentelemetry.trace"}
    for options, unwanted, wanted in (
        (["--health", "0"], heavy, {"http.server"}),
        ([], heavy | {"http.server", "graphbus_core.hosting.serving"}, set[str]()),
    ):
        command = [sys.executable, "-c", code, *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "Ready" in line:
                    break
            told, logged = process.communicate("now\n", timeout=PATIENCE_S)
        loaded = set(told.partition("LOADED ")[2].split())
        assert loaded, logged
        assert not unwanted & loaded
        assert wanted <= loaded


def test_a_graph_whose_deliveries_do_not_go_on_is_stuck_although_no_handler_runs(tmp_path: Path) -> None:
    """Something else than a handler may hang: here it is the disk that dead letters are written to."""
    is_free = threading.Event()
    with served(build_site(tmp_path, "stuck_after_s = 2")) as site:
        site.graph.bus.hosting.letters.keeper = lambda _letter: is_free.wait(PATIENCE_S)
        site.post("/publish/Order/Placed", {"order_id": "1", "quantity": -1})
        for number in range(3):
            site.post("/publish/Order/Placed", {"order_id": str(number), "quantity": 1})
        time.sleep(2.1)
        assert probe(site, "/livez") == (200, {"status": "alive"}), (
            "a probe that comes late knows nothing of the time before"
        )
        assert comes_true(lambda: site.request("GET", "/livez").status == 503)
        assert probe(site, "/livez") == (503, {"status": "stuck", "queued": 3})
        is_free.set()
        site.graph.bus.settle()
        assert probe(site, "/livez") == (200, {"status": "alive"})


def test_a_graph_that_is_busy_all_the_time_is_not_stuck(tmp_path: Path) -> None:
    with served(build_site(tmp_path, "stuck_after_s = 2")) as site:
        threads = [threading.Thread(target=site.post, args=("/call/Till/sleep", {"seconds": 0.3})) for _ in range(10)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            assert probe(site, "/livez") == (200, {"status": "alive"})
        for thread in threads:
            thread.join()


def test_a_dispatcher_that_a_handler_has_ended_is_noticed_at_once_and_the_log_says_who_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = AGENTS.replace(
        'if event["quantity"] < 0',
        'if event["order_id"] == "end":\n                raise SystemExit\n            if event["quantity"] < 0',
    )
    with served(build_site(tmp_path, agents=agents)) as site:
        monkeypatch.setattr(
            site.graph.bus._sync, "_on_interruption", lambda: None
        )  # whoever should end the process does not
        with kept_log() as log:
            site.post("/publish/Order/Placed?wait=0.5", {"order_id": "end", "quantity": 1})
        assert probe(site, "/livez") == probe(site, "/readyz") == (503, {"status": "dead"})
    assert "a handler ended the dispatcher thread" in log.text
    assert "till.py" in log.text
