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
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project
from tests.fakes.typing_person import CTRL_C, CTRL_D, Person
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.measures_children

CLERK = """
    from graphbus_core import GraphBusNode, subscribe
    from shop.words import GREETING

    class Clerk(GraphBusNode):
        def on_stop(self):
            self.log(f"bye after {self.state.get('visits', 0)}")

        @subscribe("/Door/Opened")
        def on_door(self, event):
            self.state["visits"] = self.state.get("visits", 0) + 1
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
            [sys.executable, "-m", "graphbus_core", *arguments],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._out: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._err: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._seen: list[str] = []
        self._readers = [
            threading.Thread(target=_pump, args=(self.process.stdout, self._out)),
            threading.Thread(target=_pump, args=(self.process.stderr, self._err)),
        ]
        for reader in self._readers:
            reader.start()

    def line(self) -> str:
        """Give the next line of stdout."""
        return self._next(self._out)

    def _next(self, lines: queue.SimpleQueue[str]) -> str:
        try:
            self._seen.append(lines.get(timeout=PATIENCE_S))
        except queue.Empty:
            unread = [each.get() for each in (self._out, self._err) for _ in range(each.qsize())]
            raise AssertionError("\n".join(["Nothing more is said after:", *self._seen, "---", *unread])) from None
        return self._seen[-1]

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
            line = self._next(self._err)
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
        status = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status


def _pump(stream: Any, lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


@pytest.fixture
def start(project: Project) -> Iterator[Start]:
    running: list[Dev] = []

    def begin(*arguments: str, files: dict[str, str] | None = None, builds: bool = False) -> Dev:
        root = project(FILES | (files or {}))
        if builds:
            build_graph(root / "shop")
        running.append(Dev(root, *arguments))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.end()


@pytest.mark.slow
def test_a_save_is_running_code_a_moment_later_and_the_state_is_kept(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come")
    assert "Loaded 2 agents" in dev.until("Watching shop")
    dev.logged("Clerk. hello guest")
    dev.edit("shop/clerk.py", "{GREETING}", "Good day,")
    assert re.fullmatch(r"saved shop/clerk.py -> checked, built, restarted in \d+ ms", dev.line())
    before = int(dev.logged("Clerk. bye after").rpartition(" ")[2])
    dev.logged("Clerk. Good day, guest 1$")
    assert dev.end() == 0
    assert int(dev.logged("Clerk. bye after").rpartition(" ")[2]) > before > 0


@pytest.mark.slow
def test_what_is_being_handled_is_finished_before_the_process_ends(start: Start) -> None:
    slow = CLERK.replace('self.log(f"{GREETING}', 'import time; time.sleep(1)\n            self.log(f"{GREETING}')
    dev = start(
        "run", "--watch", "--publish", "/Door/Opened", '{"name": "Ann"}', files={"shop/clerk.py": slow}, builds=True
    )
    dev.until("Watching")
    dev.edit("shop/words.py", "hello", "hullo")
    assert dev.logged("hello Ann")
    dev.logged("bye after 1")
    dev.until("restarted in")
    dev.logged("hullo Ann")  # what the command line asks for is done after every start
    assert dev.end() == 0


@pytest.mark.slow
def test_errors_are_shown_with_their_place_and_the_old_code_keeps_running(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come")
    dev.until("Watching")
    dev.edit("shop/words.py", '"hello"', '"hello')
    told = dev.until("->")
    assert re.search(r"^shop/words.py:1:\d+: error: .*GBE201", told, re.MULTILINE)
    assert "saved shop/words.py -> the old code keeps running" in told
    dev.logged("hello guest")
    dev.edit("shop/words.py", '"hello', "1 / 0")
    assert re.search(r"shop/words.py:1: error: .*ZeroDivisionError.*GBE601", told := dev.until("->"))
    assert "the old code keeps running" in told
    dev.edit("shop/words.py", "1 / 0", '"hi"')
    assert "-> checked, built, restarted in" in dev.until("->")
    dev.logged("hi guest")
    assert dev.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_a_graph_that_crashes_or_cannot_start_waits_for_the_next_save(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come", files={"shop/words.py": "GREETING = (\n"})
    assert "shop/words.py:1" in dev.until("Nothing is running")
    dev.edit("shop/words.py", "(", '"hello"')
    dev.until("Watching")
    dev.edit("shop/clerk.py", "def on_stop", "def on_start(self):\n        1 / 0\n\n    def on_stop")
    told = dev.until("Nothing is running")
    assert re.search(r"shop/clerk.py:6: error: .*on_start.*GBE605", told)
    dev.edit("shop/clerk.py", "1 / 0", "from threading import Timer; import os; Timer(1, os._exit, [9]).start()")
    dev.until("checked, built, restarted in")
    assert "The graph ended with status 9. Save a file to start it again." in dev.line()
    dev.edit("shop/clerk.py", "Timer(1, os._exit, [9]).start()", "pass")
    dev.until("restarted in")
    dev.logged("hello guest")
    assert dev.end() == 0


@pytest.mark.slow
def test_findings_agents_and_settings_come_and_go(start: Start) -> None:
    dev = start("dev", "shop", "--json")
    ready = dev.event()
    assert (ready["event"], ready["agents"], ready["findings"]) == ("ready", ["Door", "Clerk"], [])
    dev.edit("shop/clerk.py", "event['name']", "event['title']")
    found = dev.event()
    assert (found["event"], found["saved"]) == ("reloaded", ["shop/clerk.py"])
    assert [(each["code"], each["path"], each["line"]) for each in found["findings"]] == [
        ("GB003", "shop/clerk.py", 11)
    ]
    dev.edit("shop/clerk.py", "    def on_stop", "    # moved\n    def on_stop")
    moved = dev.event()
    assert (moved["findings"], moved["gone"]) == ([], [])
    dev.edit("shop/clerk.py", "event['title']", "event['name']")
    assert [each["code"] for each in dev.event()["gone"]] == ["GB003"]
    new = dev.root / "shop/back/porter.py"
    new.parent.mkdir()
    new.write_text("from graphbus_core import GraphBusNode\n\nclass Porter(GraphBusNode):\n    pass\n")
    assert "Porter" in dev.event()["agents"]
    new.unlink()
    assert "Porter" not in dev.event()["agents"]
    (dev.root / "pyproject.toml").write_text("[tool.graphbus]\nunknown = 5\n")
    refused = dev.event()
    assert (refused["event"], refused["errors"][0]["code"]) == ("failed", "GBE102")
    (dev.root / "pyproject.toml").write_text("[tool.graphbus.runtime]\nhistory = 5\n")
    assert dev.event()["event"] == "reloaded"
    (dev.root / "shop/notes.txt").write_text("no source file")
    (dev.root / "shop/.hidden.py").write_text("no source file")
    dev.edit("shop/words.py", "hello", "hullo")
    assert dev.event()["saved"] == ["shop/words.py"]
    assert dev.end() == 0
    assert dev.event() == {"event": "stopped"}


@pytest.mark.slow
def test_many_quick_saves_end_with_the_last_text(start: Start) -> None:
    dev = start("dev", "shop", "--json", "--entrypoint", "visits:come")
    dev.event()
    for number in range(30):
        (dev.root / "shop/words.py").write_text(f'GREETING = "hello {number + 10}"\n')
        time.sleep(0.004)
    dev.logged("hello 39 guest")
    assert dev.end() == 0


@pytest.mark.slow
def test_run_with_watch_keeps_its_other_options(start: Start) -> None:
    dev = start("run", "--watch", "--only", "Clerk", "--serve", "--port", "0", "--health", "0", builds=True)
    assert "only Clerk, of 2 agents" in dev.until("Watching shop")
    dev.logged("Listening at")
    dev.edit("shop/clerk.py", "event['name']", "event['title']")
    told = dev.until("->")
    assert "shop/clerk.py:11" in told
    assert "GB003" in told
    assert "restarted in" in told
    dev.logged("Listening at")
    assert dev.end() == 0


@pytest.mark.slow
def test_ctrl_c_reaches_every_process_and_ends_them_in_good_order(project: Project) -> None:
    with Person(["dev", "shop", "--entrypoint", "visits:come"], project(FILES)) as person:
        person.sees("hello guest")
        person.keys(CTRL_C)
        person.sees("bye after")
        person.sees("Stopped.")
        assert person.leaves() == 0
        assert "Traceback" not in person.seen


@pytest.mark.slow
def test_a_supervisor_that_is_killed_leaves_no_process_behind(start: Start) -> None:
    dev = start("dev", "shop", "--entrypoint", "visits:come")
    dev.logged("hello guest")
    dev.process.kill()
    dev.logged("bye after")
    dev.end()  # all who could write have closed their end of the pipes


@pytest.mark.slow
def test_a_prompt_is_shown_again_for_the_new_code(project: Project) -> None:
    root = project(FILES)
    with Person(["dev", "shop", "-i"], root) as person:
        person.sees("graphbus> ")
        person.types("publish /Door/Opened name=Ann")
        person.sees("hello Ann")
        (root / "shop/words.py").write_text("GREETING = 'hello\n")
        person.sees("the old code keeps running")
        person.sees("graphbus> ")
        person.presses(CTRL_C, "graphbus> ")
        (root / "shop/words.py").write_text("GREETING = 'hullo'\n")
        person.sees("checked, built, restarted in")
        person.sees("graphbus> ")
        person.types("publish /Door/Opened name=Ann")
        person.sees("hullo Ann")
        assert person.leaves(CTRL_D) == 0


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
    assert "pip install '.[watch]'" in told


@pytest.mark.parametrize("other", [["--json"], ["--entrypoint", "visits:come"]])
def test_the_prompt_takes_the_place_of_what_else_would_talk(
    other: list[str], project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project(FILES))
    assert main(["dev", "shop", "-i", *other]) == 2
    assert "GBE132" in capsys.readouterr().err
