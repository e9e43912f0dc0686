"""Orders in three processes on one file, which are killed and stopped at random: nothing is lost, and no effect is doubled."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.project_files import write_project

Figure = Callable[[str, object], None]

PROJECT = {
    "pyproject.toml": """
        [tool.graphbus.runtime]
        ledger = "sqlite"
        """,
    "mill/__init__.py": "",
    "mill/agents.py": """
        import random

        from graphbus_core import Event, GraphBusNode, subscribe


        class Intake(GraphBusNode):
            @subscribe("/Grain/Delivered")
            def on_delivered(self, event: Event) -> None:
                self.state["taken"] = self.state.get("taken", 0) + 1
                self.publish("/Grain/Weighed", {"n": event["n"]})
                self.publish("/Grain/Weighed", {"n": -event["n"]})


        class Mill(GraphBusNode):
            @subscribe("/Grain/Weighed", retries=30, backoff=0.001)
            async def on_weighed(self, event: Event) -> None:
                self.state["milled"] = self.state.get("milled", 0) + 1
                if random.random() < 0.1:
                    raise OSError("the stone is stuck")
                self.publish("/Flour/Ready", {"n": event["n"]})


        class Store(GraphBusNode):
            @subscribe("/Flour/Ready")
            def on_ready(self, event: Event) -> None:
                self.state["sacks"] = [*self.state.get("sacks", []), event["n"]]
        """,
    "mill/main.py": """
        def deliver(graph):
            first, count = map(int, open("wanted.txt").read().split())
            for n in range(first, first + count):
                graph.publish("/Grain/Delivered", {"n": n})
        """,
}
AGENTS = ("Intake", "Mill", "Store")


def graphbus(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "graphbus_core", *arguments]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = write_project(tmp_path / "mill", PROJECT)
    subprocess.run(graphbus("build", "mill"), cwd=folder, check=True, capture_output=True)
    return folder


class Fleet:
    """One process for each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for agent in AGENTS:
            self.start(agent)

    def start(self, agent: str) -> None:
        with (self.folder / f"{agent}.log").open("ab") as log:
            command = graphbus("run", "--only", agent)
            self.processes[agent] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def end(self, agent: str, number: signal.Signals) -> float:
        """End a process, and give the seconds that this takes."""
        began = time.monotonic()
        self.processes[agent].send_signal(number)
        self.processes[agent].wait(30)
        return time.monotonic() - began

    def restart(self, agent: str, number: signal.Signals) -> float:
        took_s = self.end(agent, number)
        self.start(agent)
        return took_s


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    running = Fleet(folder)
    try:
        yield running
    finally:
        for agent in AGENTS:
            running.end(agent, signal.SIGKILL)


def deliver(folder: Path, first: int, count: int) -> None:
    (folder / "wanted.txt").write_text(f"{first} {count}")
    # the process hosts no agent that has work to do meanwhile: it publishes, and ends
    command = graphbus("run", "--only", "Intake", "--entrypoint", "mill.main:deliver")
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


def open_deliveries(folder: Path) -> int:
    with sqlite3.connect(f"file:{folder}/.graphbus/state/state.sqlite3?mode=ro", uri=True) as file:
        return int(file.execute("SELECT count(*) FROM ledger_deliveries WHERE status < 4").fetchone()[0])


def wait_until_done(folder: Path, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while open_deliveries(folder):
        assert time.monotonic() < deadline, "events wait, and nobody handles them"
        time.sleep(0.05)


def state_of(folder: Path, agent: str) -> dict[str, Any]:
    with sqlite3.connect(f"file:{folder}/.graphbus/state/state.sqlite3?mode=ro", uri=True) as file:
        rows = file.execute("SELECT key, value FROM state WHERE agent = ?", (agent,))
        return {key: json.loads(value) for key, value in rows}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_nothing_is_lost_or_doubled_when_processes_end(number: signal.Signals, project: Path, figure: Figure) -> None:
    chance = random.Random(16)
    ends, batches, size = 12, 6, 50
    took_s = []
    with fleet(project) as running:
        for batch in range(batches):
            deliver(project, 1 + batch * size, size)
            for _ in range(ends // batches):
                time.sleep(chance.uniform(0.0, 0.5))
                took_s.append(running.restart(chance.choice(AGENTS), number))
        wait_until_done(project)
    sacks = state_of(project, "Store")["sacks"]
    wanted = {each for n in range(1, 1 + batches * size) for each in (n, -n)}
    figure(
        f"events lost and effects doubled, {ends} processes ended with {number.name}",
        f"{len(wanted - set(sacks))} and {len(sacks) - len(set(sacks))} of {len(wanted)}",
    )
    assert state_of(project, "Intake")["taken"] == batches * size
    assert set(sacks) == wanted
    assert len(sacks) == len(wanted)
    if number == signal.SIGTERM:
        assert max(took_s) < 10
