"""`graphbus run --serve` and `--health` as a whole process: from the first line to exit status 0."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from graphbus_core.cli import main
from tests.fakes.http_site import AGENTS, TOKEN, build_site
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.measures_children]

LAST_WORDS = """

    class Last(GraphBusNode):
        def on_stop(self):
            self.log("good night")
    """


class Process(NamedTuple):
    """A running `graphbus run`; `lines` grows while it does."""

    popen: subprocess.Popen[str]
    lines: list[str]

    def port(self, what: str) -> int:
        """The port in the first line that begins with these words."""
        pattern = rf"{what} .*:(\d+)/"
        assert comes_true(lambda: re.search(pattern, self.text) or self.popen.poll() is not None)
        found = re.search(pattern, self.text)
        assert found, self.lines
        return int(found[1])

    def end(self) -> int:
        """Ask it to end, and give its exit status."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(PATIENCE_S)

    @property
    def text(self) -> str:
        return "".join(self.lines)


@contextmanager
def running(root: Path, *options: str) -> Iterator[Process]:
    environment = os.environ | {"GRAPHBUS_TOKEN": TOKEN}
    command = [sys.executable, "-m", "graphbus_core", "run", ".graphbus", *options]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as popen:
        assert popen.stdout is not None
        process = Process(popen, [])
        reader = threading.Thread(target=lambda: process.lines.extend(popen.stdout or []))
        reader.start()
        try:
            yield process
        finally:
            if popen.poll() is None:
                popen.kill()
            reader.join()


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_sigterm_lets_requests_end_refuses_new_ones_and_exits_with_0(tmp_path: Path) -> None:
    agents = AGENTS.replace("time.sleep(seconds)", "print('asleep', flush=True); time.sleep(seconds)")
    root = build_site(tmp_path, agents=agents.rstrip() + LAST_WORDS)
    with running(root, "--serve", "--port", "0", "--health", "0") as process:
        port, health = process.port("Listening"), process.port("Probes")
        answers: list[tuple[int, dict[str, object]]] = []
        call = threading.Thread(target=lambda: answers.append(ask(port, "POST", "/call/Till/sleep", {"seconds": 5.0})))
        call.start()
        assert comes_true(lambda: "asleep" in process.text)
        process.popen.send_signal(signal.SIGTERM)
        assert comes_true(lambda: ask(health, "GET", "/readyz")[0] == 503)
        assert ask(health, "GET", "/readyz") == (503, {"status": "stopping"})
        assert ask(port, "GET", "/readyz") == (503, {"status": "stopping"})
        assert ask(port, "GET", "/livez") == (200, {"status": "alive"})
        assert ask(port, "POST", "/call/Till/read", {})[0] == 503
        call.join()
        assert answers[0][0] == 200
        assert process.popen.wait(PATIENCE_S) == 0
    assert "[Last] good night" in process.text
    assert "Traceback" not in process.text
    with pytest.raises(ConnectionRefusedError):
        ask(port, "GET", "/livez")


@pytest.mark.parametrize(
    ("line", "token", "refused"),
    [
        ("--serve --host 0.0.0.0", "", (2, "GBE155")),
        ("--serve", "short", (2, "GBE156")),
        ("--health nowhere", TOKEN, (2, "GBE157")),
        ("--port 80", TOKEN, (2, "GBE131")),
        ("--serve --port 0 --host 192.0.2.1", TOKEN, (7, "GBE672")),
    ],
)
def test_what_cannot_be_served_is_refused_before_the_graph_starts(
    line: str, token: str, refused: tuple[int, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = build_site(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHBUS_TOKEN", token)
        status = main(["-C", str(root), "run", *line.split()])
    streams = capsys.readouterr()
    assert status == refused[0]
    assert refused[1] in streams.err
    assert "Ready" not in streams.out
