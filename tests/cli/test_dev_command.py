"""`graphbus dev` and `graphbus run --watch`: real processes, real saves."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.cli import main
from graphbus_core.cli.running.development import Development
from graphbus_core.cli.running.watching import Watcher
from graphbus_core.compiler.disk import DiskReader
from graphbus_core.errors import UsageError
from tests.conftest import Project
from tests.patience import PATIENCE_S

CLERK = """
    from graphbus_core import GraphBusNode, subscribe
    from shop.words import GREETING

    class Clerk(GraphBusNode):
        def on_stop(self):
            self.log("bye")

        @subscribe("/Door/Opened")
        def on_door(self, event):
            self.log(f"{GREETING} {event['name']}")
    """
DOOR = """
    from graphbus_core import GraphBusNode, publishes

    @publishes("/Door/Opened", {"name": str})
    class Door(GraphBusNode):
        pass
    """
VISITS = """
    import time

    def keep_coming(graph):
        number = 0
        while not graph.is_stopped:
            number += 1
            graph.publish("/Door/Opened", {"name": f"guest {number}"})
            time.sleep(0.02)

    def come(graph):
        from threading import Thread
        Thread(target=keep_coming, args=(graph,), daemon=True).start()

    def fail():
        1 / 0
    """
FILES = {
    "pyproject.toml": "",
    "shop/__init__.py": "",
    "shop/words.py": 'GREETING = "hello"\n',
    "shop/clerk.py": CLERK,
    "shop/door.py": DOOR,
    "visits.py": VISITS,
}
Start = Callable[..., "Dev"]


class Dev:
    """A running command, what it writes, and the files that it follows."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._out: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._err: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=_pump, args=(self.process.stdout, self._out)),
            threading.Thread(target=_pump, args=(self.process.stderr, self._err)),
        ]
        for reader in self._readers:
            reader.start()

    def line(self) -> str:
        """Give the next line of stdout."""
        return self._out.get(timeout=PATIENCE_S)

    def until(self, pattern: str) -> str:
        """Give the lines of stdout up to one that matches."""
        lines = []
        while True:
            lines.append(self.line())
            if re.search(pattern, lines[-1]):
                return "\n".join(lines)

    def event(self) -> dict[str, Any]:
        """Give the next JSON line of stdout."""
        found: dict[str, Any] = json.loads(self.line())
        return found

    def logged(self, pattern: str) -> str:
        """Wait for a line of stderr that matches."""
        while True:
            line = self._err.get(timeout=PATIENCE_S)
            if re.search(pattern, line):
                return line

    def edit(self, path: str, old: str, new: str) -> None:
        """Exchange a piece of a file as careful editors do: beside it, then over it."""
        target = self.root / path
        beside = target.with_name(f".{target.name}.swp")
        beside.write_text(target.read_text().replace(old, new))
        os.replace(beside, target)

    def end(self, number: int = signal.SIGINT) -> int:
        """Stop it, and give its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self._stacks()}") from None
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status

    def _stacks(self) -> str:
        """Where each thread of the command is, which alone tells why it does not end."""
        self.process.send_signal(signal.SIGUSR2)
        lines: list[str] = []
        with suppress(queue.Empty):
            while True:
                lines.append(self._err.get(timeout=1))
        return "\n".join(lines)


_COMMAND = """
import faulthandler, runpy, signal, sys
faulthandler.register(signal.SIGUSR2)
sys.argv[0] = "graphbus"
runpy.run_module("graphbus_core", run_name="__main__", alter_sys=True)
"""


def _pump(stream: Any, lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


@pytest.fixture
def start(project: Project) -> Iterator[Start]:
    running: list[Dev] = []

    def begin(*arguments: str, files: dict[str, str] | None = None) -> Dev:
        running.append(Dev(project(FILES | (files or {})), *arguments))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.end()


@pytest.mark.slow
def test_a_save_is_running_code_a_moment_later(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come")
    assert "Loaded 2 agents" in dev.until("Watching shop")
    dev.logged("Clerk. hello guest")
    dev.edit("shop/clerk.py", "{GREETING}", "Good day,")
    # On a busy machine the save may come before the folders are watched; then all files are looked at once more.
    what = r"(saved shop/clerk.py|looked again)"
    assert re.fullmatch(what + r" -> checked, built, reloaded Clerk in \d+ ms", dev.line())
    dev.logged("Clerk. Good day, guest")
    assert dev.end() == 0
    dev.logged("Clerk. bye")


@pytest.mark.slow
def test_errors_are_shown_with_their_place_and_the_old_code_keeps_running(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come")
    dev.until("Watching")
    dev.edit("shop/words.py", '"hello"', '"hello')
    told = dev.until("->")
    assert re.search(r"^shop/words.py:1:\d+: error: .*GBE201", told, re.MULTILINE)
    assert "saved shop/words.py -> the old code keeps running" in told
    dev.logged("hello guest")
    dev.edit("shop/words.py", '"hello', '"hi"')
    assert "-> mended, checked, built, reloaded Clerk in" in dev.until("->")
    dev.logged("hi guest")
    dev.edit("shop/words.py", '"hi"', "1 / 0")
    assert re.search(r"shop/words.py:1: error: .*ZeroDivisionError.*GBE691", dev.until("->"))
    assert dev.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_findings_are_told_when_they_come_and_when_they_go(start: Start) -> None:
    dev = start("dev", "shop", "--json")
    ready = dev.event()
    assert (ready["event"], ready["agents"], ready["findings"]) == ("ready", ["Door", "Clerk"], [])
    dev.edit("shop/clerk.py", "event['name']", "event['title']")
    found = dev.event()
    assert (found["event"], found["saved"], found["replaced"]) == ("reloaded", ["shop/clerk.py"], ["Clerk"])
    assert [(each["code"], each["path"], each["line"]) for each in found["new"]] == [("GB003", "shop/clerk.py", 10)]
    dev.edit("shop/clerk.py", "    def on_stop", "    # moved\n    def on_stop")
    moved = dev.event()
    assert (moved["new"], moved["gone"]) == ([], [])
    dev.edit("shop/clerk.py", "event['title']", "event['name']")
    assert [each["code"] for each in dev.event()["gone"]] == ["GB003"]
    assert dev.end() == 0
    assert dev.event() == {"event": "stopped"}


@pytest.mark.slow
def test_agents_files_and_settings_come_and_go(start: Start) -> None:
    dev = start("dev", "shop", "--json")
    dev.event()
    new = dev.root / "shop/back/porter.py"
    new.parent.mkdir()
    new.write_text("from graphbus_core import GraphBusNode\n\nclass Porter(GraphBusNode):\n    pass\n")
    assert dev.event()["added"] == ["Porter"]
    new.write_text(new.read_text().replace("pass", "x = 1"))
    assert dev.event()["replaced"] == ["Porter"]
    new.unlink()
    assert dev.event()["removed"] == ["Porter"]
    (dev.root / "pyproject.toml").write_text("[tool.graphbus.runtime]\nhistory = 5\n")
    assert dev.event()["notes"] == ["[tool.graphbus.runtime] has changed (history): that counts from the next start."]
    (dev.root / "pyproject.toml").write_text("[tool.graphbus]\nunknown = 5\n")
    refused = dev.event()
    assert (refused["event"], refused["errors"][0]["code"]) == ("failed", "GBE102")
    (dev.root / "pyproject.toml").write_text("[tool.graphbus.runtime]\nhistory = 5\n")
    assert dev.event()["is_mended"]
    (dev.root / "shop/notes.txt").write_text("no source file")
    (dev.root / "shop/.hidden.py").write_text("no source file")
    dev.edit("shop/words.py", "hello", "hullo")
    assert dev.event()["saved"] == ["shop/words.py"]


@pytest.mark.slow
def test_many_quick_saves_end_with_the_last_text(start: Start) -> None:
    dev = start("dev", "shop", "--json", "--entrypoint", "visits:come")
    dev.event()
    for number in range(30):
        (dev.root / "shop/words.py").write_text(f'GREETING = "hello {number}"\n')
        time.sleep(0.004)
    dev.logged("hello 29 guest")
    assert dev.end() == 0


def test_files_that_vanish_while_they_are_read_are_no_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(
        {"pyproject.toml": "", "shop/door.py": DOOR, "shop/old.py": "OLD = 1\n", "shop/older.py": "OLD = 0\n"}
    )
    monkeypatch.chdir(root)
    read = DiskReader.__call__

    def read_late(self: DiskReader, path: str) -> bytes:
        if "old" in path:
            (root / path).unlink()
        return read(self, path)

    monkeypatch.setattr(DiskReader, "__call__", read_late)
    built = Development(("shop",), lambda _saved: None).build()
    assert [each.name for each in built.artifacts.agents.agents] == ["Door"]


@pytest.mark.slow
def test_it_waits_for_a_project_that_can_run(start: Start) -> None:
    dev = start("dev", "shop", files={"shop/clerk.py": "class Clerk(:\n"})
    told = dev.until("Nothing runs yet")
    assert "shop/clerk.py:1" in told
    dev.edit(
        "shop/clerk.py",
        "class Clerk(:",
        "from graphbus_core import GraphBusNode\nclass Clerk(GraphBusNode):\n    def on_start(self): 1 / 0",
    )
    assert "shop/clerk.py:3: error: `on_start` of Clerk failed" in dev.until("Nothing runs yet")
    dev.edit("shop/clerk.py", "1 / 0", "self.log('at work')")
    dev.until("Watching")
    dev.logged("at work")
    assert dev.end() == 0


@pytest.mark.slow
def test_ctrl_c_ends_it_while_nothing_runs(start: Start) -> None:
    dev = start("dev", "shop", "--json", files={"shop/clerk.py": "class Clerk(:\n"})
    assert dev.event()["event"] == "waiting"
    assert dev.end() == 0
    assert dev.event() == {"event": "stopped"}


@pytest.mark.slow
def test_a_handler_that_never_ends_keeps_nobody_from_leaving(start: Start) -> None:
    stuck = CLERK.replace(
        "self.log(f", "self.log('stuck')\n            import time\n            time.sleep(1000)\n            self.log(f"
    )
    files = {"shop/clerk.py": stuck, "pyproject.toml": "[tool.graphbus.runtime]\ngrace_s = 0.5\n"}
    dev = start("dev", "shop", "--entrypoint", "visits:come", files=files)
    dev.until("Watching")
    dev.logged("stuck")
    dev.edit("shop/words.py", "hello", "hullo")
    time.sleep(0.3)
    dev.end()


@pytest.mark.slow
def test_an_entry_point_that_fails_is_told_and_the_graph_stays_up(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:fail")
    dev.until("Watching")
    dev.logged(r"visits.py:1\d: error: .*ZeroDivisionError")
    dev.edit("shop/words.py", "hello", "hullo")
    assert "reloaded Clerk" in dev.until("->")
    assert dev.end() == 0


@pytest.mark.slow
def test_run_with_watch_follows_the_files_too(start: Start, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(FILES))
    assert main(["build", "shop"]) == 0
    dev = start("run", "--watch", "--publish", "/Door/Opened", '{"name": "Ann"}')
    dev.until("Ready")
    dev.logged("Watching shop: what is saved is checked, built and reloaded.")
    dev.logged("hello Ann")
    time.sleep(0.5)
    dev.edit("shop/clerk.py", "event['name']", "event['title']")
    told = dev.until("->")
    assert "shop/clerk.py:10" in told
    assert "GB003" in told
    assert "reloaded Clerk" in told
    assert dev.end() == 0


def test_run_with_watch_refuses_artifacts_from_elsewhere(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(FILES)
    monkeypatch.chdir(root)
    assert main(["build", "shop"]) == 0
    (root / ".graphbus").rename(root / "kept")
    assert main(["run", "kept", "--watch"]) == 2
    assert "GBE165" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["dev", "shop"], ["run", "--watch"]])
def test_without_watchfiles_it_says_what_to_install(
    command: list[str], project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project(FILES))
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "GBE163" in told
    assert "pip install 'graphbus[watch]'" in told


@pytest.mark.slow
def test_at_the_prompt_commands_go_to_the_graph_until_one_leaves(project: Project) -> None:
    command = [sys.executable, "-m", "graphbus_core", "dev", "shop", "-i", "--serve", "--port", "0"]
    typed = 'publish /Door/Opened {"name": "Ann"}\n'
    done = subprocess.run(
        command, cwd=project(FILES), input=typed, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0
    assert "hello Ann" in done.stderr + done.stdout
    assert "Listening at http://127.0.0.1:" in done.stderr


@pytest.mark.parametrize("other", [["--json"], ["--entrypoint", "visits:come"]])
def test_the_prompt_takes_the_place_of_what_else_would_talk(
    other: list[str], project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project(FILES))
    assert main(["dev", "shop", "-i", *other]) == 2
    assert "GBE132" in capsys.readouterr().err


def test_a_machine_that_refuses_to_watch_is_reported(tmp_path: Path) -> None:
    told: queue.SimpleQueue[UsageError] = queue.SimpleQueue()
    with Watcher(tmp_path / "nowhere", lambda _paths: None, told.put):
        assert told.get(timeout=PATIENCE_S).code == "GBE164"
