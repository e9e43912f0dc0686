"""Processes of a graph on a ledger when something is wrong around them: nothing is lost or doubled, and the answer is clear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.hosting.state import States
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.fakes.pausing import comes_true
from tests.fakes.small_disk import small_disk
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

AGENTS = """
    import os
    from pathlib import Path

    from graphbus_core import GraphBusNode, subscribe

    class Finder(GraphBusNode):
        @subscribe("/Dig/Ordered")
        def on_ordered(self, n: int) -> None:
            self.publish("/Stone/Found", {"n": n})

    class Counter(GraphBusNode):
        @subscribe("/Stone/Found", retries=3, backoff=0.02)
        def on_found(self, n: int) -> None:
            tried = Path(os.environ["TRIED"], str(n))
            if not tried.exists():
                tried.touch()
                raise ValueError("the first attempt")
            self.state["seen"] = [*self.state.get("seen", []), n]
    """
SKEWED = """
import os, time

real, seconds = time.time, float(os.environ.get("SKEW_S", "0"))
time.time = lambda: real() + seconds
"""
STONES = 40


class Quarry:
    """A built project on a ledger."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self.folder, self.ledger = folder, ledger
        write_project(folder, {"clock/sitecustomize.py": SKEWED, "tried/.keep": ""})
        self.build(AGENTS)

    def build(self, agents: str) -> None:
        write_project(self.folder, {"pyproject.toml": "", "quarry/__init__.py": "", "quarry/a.py": agents})
        build_graph(self.folder / "quarry")

    def _environment(self, host: str, skew_s: float, state: Path | None) -> dict[str, str]:
        place = state or self.folder / f"state-{host}"
        config = self.folder / f"{host}.toml"
        config.write_text(f"[runtime]\nstate_dir = {json.dumps(str(place))}\n")
        return {
            **os.environ,
            "GRAPHBUS_CONFIG": str(config),
            "PYTHONPATH": str(self.folder / "clock"),
            "SKEW_S": str(skew_s),
            "TRIED": str(self.folder / "tried"),
        }

    @contextmanager
    def process(self, *agents: str, host: str = "here", skew_s: float = 0, state: Path | None = None) -> Iterator[None]:
        """Run agents until the `with` block ends, on a host with its own state files and clock."""
        only = [f"--only={each}" for each in agents]
        command = [sys.executable, "-m", "graphbus_core.runtime", "--ledger", self.ledger, *only]
        environment = self._environment(host, skew_s, state)
        running = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert running.stdout is not None
            while "Ready" not in (line := running.stdout.readline()):
                assert line, "the process has ended"
            yield
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE_S)

    def dig(self, *numbers: int, host: str = "here", state: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Publish orders from a process of the Finder, which publishes the stones."""
        digging = self.start_digging(*numbers, host=host, state=state)
        output, errors = digging.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(digging.args, digging.returncode, output, errors)

    def start_digging(self, *numbers: int, host: str = "here", state: Path | None = None) -> subprocess.Popen[str]:
        only = "Finder" if host == "here" else "outside"
        orders = [word for n in numbers for word in ("--publish", "/Dig/Ordered", json.dumps({"n": n}))]
        command = [sys.executable, "-m", "graphbus_core", "run", "--ledger", self.ledger, "--only", only, *orders]
        environment = self._environment(host, 0, state)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def seen(self, host: str = "here", state: Path | None = None) -> list[int]:
        with closing(States(str((state or self.folder / f"state-{host}") / "state.sqlite3"))) as states:
            return list(json.loads(states.find("Counter", "seen")[0] or "[]"))

    def parked(self) -> int:
        command = [sys.executable, "-m", "graphbus_core", "ledger", "lag", "--json"]
        shown = subprocess.run(
            command, cwd=self.folder, env=self._environment("here", 0, None), capture_output=True, check=True
        )
        return sum(each["parked"] for each in json.loads(shown.stdout))


@pytest.fixture(params=["sqlite", "nats"])
def quarry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Quarry]:
    if request.param == "sqlite":
        yield Quarry(tmp_path / "quarry", "sqlite")
        return
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        yield Quarry(tmp_path / "quarry", server.url("quarry"))


@pytest.mark.slow
def test_two_processes_with_the_same_agent_handle_each_event_once(quarry: Quarry) -> None:
    with quarry.process("Counter"), quarry.process("Counter"):
        assert quarry.dig(*range(STONES)).returncode == 0
        assert comes_true(lambda: len(quarry.seen()) >= STONES)
    assert sorted(quarry.seen()) == list(range(STONES))


@pytest.mark.slow
def test_two_clocks_that_differ_by_minutes_lose_and_double_nothing(quarry: Quarry) -> None:
    """On one file, the process that is ahead takes the leases of the other one; on NATS, each host has its own leases."""
    on_nats = quarry.ledger != "sqlite"
    with (
        quarry.process("Counter" if not on_nats else "Finder", host="a" if on_nats else "here", skew_s=300),
        quarry.process("Counter", skew_s=-300),
    ):
        assert quarry.dig(*range(STONES), host="b" if on_nats else "here").returncode == 0
        assert comes_true(lambda: len(quarry.seen()) >= STONES)
    assert quarry.seen() == list(range(STONES)) if not on_nats else sorted(quarry.seen()) == list(range(STONES))
    assert quarry.parked() == 0


@pytest.mark.slow
def test_an_event_that_only_another_build_can_read_waits_for_it(quarry: Quarry) -> None:
    """It is parked, later events pass, and the build that published it takes it up again."""
    assert quarry.dig(1).returncode == 0
    heavier = AGENTS.replace('{"n": n}', '{"n": n, "kg": 2}').replace(
        "def on_found(self, n: int)", "def on_found(self, n: int, kg: int)"
    )
    quarry.build(heavier)
    with quarry.process("Counter"):
        assert comes_true(lambda: quarry.parked() == 1)
        assert quarry.dig(2).returncode == 0
        assert comes_true(lambda: quarry.seen() == [2])
    quarry.build(AGENTS)
    with quarry.process("Counter"):
        assert comes_true(lambda: quarry.seen() == [2, 1])
    assert quarry.parked() == 0


@pytest.mark.slow
def test_a_full_disk_is_said_and_waited_for(quarry: Quarry, tmp_path: Path) -> None:
    """All go on when there is room again."""
    with small_disk(tmp_path / "disk") as disk, quarry.process("Counter", state=disk.folder):
        assert quarry.dig(*range(10), state=disk.folder).returncode == 0
        assert comes_true(lambda: len(quarry.seen(state=disk.folder)) == 10)
        disk.fill()
        digging = quarry.start_digging(*range(10, 20), state=disk.folder)
        assert digging.stderr is not None
        said = iter(digging.stderr.readline, "")
        assert any("disk is full" in line for line in said)
        assert "Free disk space." in next(said)
        disk.make_room()
        assert digging.communicate(timeout=PATIENCE_S) is not None
        assert digging.returncode == 0
        assert comes_true(lambda: len(quarry.seen(state=disk.folder)) >= 20)
        assert sorted(quarry.seen(state=disk.folder)) == list(range(20))
