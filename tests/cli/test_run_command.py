"""`graphbus run` and `python -m graphbus_core.runtime`: what they print, where, and with which exit status."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphbus_core import build_graph, runtime
from graphbus_core.cli import main
from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.measures_children

WINGS = ("graphbus_core.compiler", "graphbus_core.negotiation", "graphbus_core.editing", "graphbus_core.cli")
READY = [
    "[RUNTIME] Loaded 2 agents, 2 topics, 2 subscriptions",
    "[RUNTIME] Ready. Zero LLM calls will be made during execution.",
]
STOCK = """
    import msgspec
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class Left(msgspec.Struct):
        left: int

    class Stock(GraphBusNode):
        def on_start(self):
            self.left = 3
            self.log("open")

        def on_stop(self):
            self.log("closed")

        @schema_method(input_schema={"count": int}, output_schema={"left": int})
        def take(self, count: int) -> dict:
            self.left -= count
            self.publish("/Stock/Changed", {"left": self.left})
            return {"left": self.left}

        @schema_method(input_schema={}, output_schema={"left": int})
        def look(self):
            return Left(self.left)

        @schema_method(input_schema={})
        def odd(self):
            return object

        @schema_method(input_schema={}, output_schema={"weight": float})
        def weigh(self):
            return {"weight": float("nan")}

        @subscribe("/Stock/Wanted")
        def on_wanted(self, count: int):
            self.take(count)
    """
WATCH = """
    from graphbus_core import GraphBusNode, subscribe

    class Watch(GraphBusNode):
        def on_stop(self):
            self.log("closed")

        @subscribe("/Stock/Changed")
        def on_change(self, left):
            self.log(f"{left} left")
            if left < 0:
                raise ValueError("less than nothing")
    """
MAIN = """
    import os, signal

    def run(graph):
        graph.call("Stock", "take", count=1)
        return {"done": True}

    def fail():
        raise OSError("no paper")

    def forever():
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass
    """


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project({"pyproject.toml": "", "agents/stock.py": STOCK, "agents/watch.py": WATCH, "main.py": MAIN})
    monkeypatch.chdir(root)
    build_graph("agents")
    return root


@pytest.fixture
def run(shop: Path, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> SimpleNamespace:
        status = main(["run", *arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out.splitlines(), err=captured.err.splitlines())

    return run


def test_the_result_of_a_call_has_stdout_to_itself(run) -> None:
    wanted = ("--publish", "/Stock/Wanted", '{"count": 1}')
    done = run(".graphbus/", "--call", "Stock.take", '{"count": 1}', *wanted)  # events come before calls
    assert (done.status, done.out) == (0, ['{"left":1}'])
    assert done.err == ["[Stock] open", *READY, "[Watch] 2 left", "[Watch] 1 left", "[Watch] closed", "[Stock] closed"]


def test_json_is_one_document_and_talk_goes_to_stderr(run) -> None:
    done = run("--json", "--call", "Stock.look", "{}", "--call", "Stock.odd", "{}", "--entrypoint", "main:run")
    document = json.loads("\n".join(done.out))
    assert [call["result"] for call in document["calls"]] == [{"left": 3}, "<class 'object'>"]
    assert document["calls"][0] | {"result": 0} == {"agent": "Stock", "method": "look", "result": 0}
    assert document["entrypoint"] == {"done": True}
    assert document["statistics"]["published"] == 1
    assert document["dead_letters"] == []
    assert READY[0] in done.err


def test_with_json_what_code_of_the_project_prints_goes_to_stderr(shop: Path) -> None:
    prints = """

def prints():
    import subprocess
    print("printed")
    os.write(1, b"written to the descriptor ")
    subprocess.run(["echo", "printed by a child"], check=True)
"""
    with (shop / "main.py").open("a") as file:
        file.write(prints)
    words = [sys.executable, "-m", "graphbus_core", "run", "--json", "--entrypoint", "main:prints"]
    done = subprocess.run(words, cwd=shop, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert json.loads(done.stdout)["entrypoint"] is None
    assert "printed\n" in done.stderr
    assert "written to the descriptor printed by a child\n" in done.stderr


def test_a_failed_handler_shows_and_fails(run) -> None:
    done = run("--json", "--publish", "/Stock/Wanted", '{"count": 4}')
    assert done.status == 7
    (letter,) = json.loads("\n".join(done.out))["dead_letters"]
    assert (letter["topic"], letter["subscription"]) == ("/Stock/Changed", "Watch.on_change")
    assert "Traceback (most recent call last):" in done.err
    assert any("[GBE630]" in line and "ValueError: less than nothing" in line for line in done.err)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--call", "Stock.take", '{"count": "one"}'), 7, "count: expected int, got str 'one'. [GBE622]"),
        (("--call", "Stock.weigh", "{}"), 7, "it contains NaN or Infinity, which JSON cannot represent. [GBE623]"),
        (("--call", "Stok.take", "{}"), 7, "Did you mean 'Stock'? [GBE620]"),
        (("--publish", "/Stock/Wantd", "{}"), 7, "Did you mean '/Stock/Wanted'? [GBE619]"),
        (("--entrypoint", "main:rum"), 7, "[GBE606]"),
        (
            ("--entrypoint", "main:fail"),
            7,
            "main.py:8: error: The entry point main:fail failed: OSError: no paper. [GBE607]",
        ),
        (("--call", "Stock", "{}"), 2, "the method must be written as Agent.method. [GBE130]"),
        (("--call", "Stock.take", "{count: 1}"), 2, "is not JSON"),
        (("--publish", "/Stock/Wanted", "x"), 2, "`--publish /Stock/Wanted` is not valid"),
        (("nowhere/",), 6, "[GBE501]"),
    ],
)
def test_what_is_refused_is_one_message_and_the_status_of_its_family(
    run, arguments: tuple[str, ...], status: int, told: str
) -> None:
    done = run(*arguments)
    assert done.status == status
    assert told in "\n".join(done.err)
    if arguments[0] != "--entrypoint":
        assert "Traceback" not in "\n".join(done.err)


def test_a_signal_before_all_work_was_done_is_no_success(run) -> None:
    work = ("--call", "Stock.take", '{"count": 1}', "--entrypoint", "main:forever")
    assert run(*work).status == 143
    done = run("--json", *work)
    assert done.status == 143
    result = {"agent": "Stock", "method": "take", "result": {"left": 2}}
    assert json.loads("\n".join(done.out)) == {"calls": [result], "stopped_by": signal.SIGTERM}


def test_a_handler_that_does_not_end_is_interrupted_when_the_grace_is_over(run, project: Project) -> None:
    kill = "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(1000)"
    project(
        {
            "pyproject.toml": "[tool.graphbus.runtime]\ngrace_s = 0.1\n",
            "agents/stock.py": STOCK.replace("self.left -= count", f"self.left -= count; {kill}"),
        }
    )
    build_graph("agents")
    done = run("--call", "Stock.take", '{"count": 1}')
    assert (done.status, done.out) == (143, [])
    assert done.err[-2:] == ["[Watch] closed", "[Stock] closed"]


class Running:
    """A child process that stays up."""

    def __init__(self, root: Path, *command: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.first = [self.process.stdout.readline().rstrip() for _ in range(2)]

    def stop(self, number: int) -> tuple[int, list[str]]:
        self.process.send_signal(number)
        _out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [(("-m", "graphbus_core", "run"), signal.SIGINT), (("-m", "graphbus_core.runtime"), signal.SIGTERM)],
)
def test_a_graph_stays_up_until_a_signal_and_ends_with_zero(shop: Path, command: tuple[str, ...], number: int) -> None:
    running = Running(shop, *command)
    assert running.first == READY
    time.sleep(0.1)
    assert running.process.poll() is None
    assert running.stop(number) == (0, ["[Stock] open", "[Watch] closed", "[Stock] closed"])


@pytest.mark.slow
def test_what_waits_is_delivered_after_the_signal(shop: Path, project: Project) -> None:
    thread = """
    import os, threading, time
    from graphbus_core import GraphBusNode, subscribe

    class Ticker(GraphBusNode):
        def on_start(self):
            threading.Thread(target=self.tick, daemon=True).start()

        def tick(self):
            while not os.path.exists("go"):
                time.sleep(0.01)
            self.publish("/Tick/Begun")

        @subscribe("/Tick/Begun")
        def on_begun(self):
            self.log("begun")
            time.sleep(0.5)
            self.publish("/Tick/Ended")

        @subscribe("/Tick/Ended")
        def on_ended(self):
            self.log("ended")
    """
    project({"agents/ticker.py": thread})
    build_graph("agents")
    running = Running(shop, "-m", "graphbus_core", "run")
    (shop / "go").touch()
    assert running.process.stderr is not None
    while running.process.stderr.readline() != "[Ticker] begun\n":
        pass
    running.process.send_signal(signal.SIGTERM)
    rest = running.process.stderr.read().splitlines()
    assert rest == ["[Ticker] ended", "[Watch] closed", "[Stock] closed"]
    running.process.communicate(timeout=PATIENCE_S)
    assert running.process.returncode == 0


@pytest.mark.slow
def test_the_door_runs_an_entry_point_and_loads_nothing_of_build_mode(shop: Path) -> None:
    with (shop / "main.py").open("a") as file:
        file.write("\ndef loaded():\n    import sys\n    print(sorted(sys.modules))\n")
    done = subprocess.run(
        [sys.executable, "-m", "graphbus_core.runtime", "--entrypoint", "main:loaded", "--artifacts", ".graphbus"],
        cwd=shop,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split("'")[1::2])
    assert "graphbus_core.runtime" not in loaded, "it is __main__"
    assert "graphbus_core.bus" in loaded
    heavy = {"asyncio", "click", "rich", "networkx", "difflib", "graphbus_core.build"}
    assert not heavy & loaded
    assert not {name for name in loaded if name.startswith(WINGS)}


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--entrypoint", "main:run"], 0, "[Watch] 2 left"),
        (["--entrypoint", "main:fail"], 7, "[GBE607]"),
        (["--entrypoint", "main:forever"], 0, "[Stock] closed"),
        (["--artifacts", "nowhere"], 6, "[GBE501]"),
        (["--artifacts"], 2, "Option --artifacts requires argument. [GBE110]"),
        (["--artifakts", "x"], 2, "Option --artifakts not recognized. [GBE110]"),
        (["--health", "65536"], 2, "a port is a number from 0 to 65535"),
        (["--serve="], 2, "Option --serve requires argument. [GBE110]"),
        (["--health", "127.0.0.1:0", "--entrypoint", "main:run"], 0, "Probes and metrics at http://127.0.0.1:"),
        (["--serve", "127.0.0.1:0", "--entrypoint", "main:run"], 0, "Listening at http://127.0.0.1:"),
    ],
)
def test_the_door_has_the_status_of_the_family(
    shop: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, told: str
) -> None:
    assert runtime.main(arguments) == status
    assert told in capsys.readouterr().err
