"""`graphbus run --ledger sqlite`, `graphbus ledger` and `graphbus cluster`: events outlive processes, and several share them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.hosting import signals
from graphbus_core.hosting.state import States
from tests.fakes.nats_server import NEWEST, NatsServer, free_port
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

AGENTS = """
    from graphbus_core import Event, GraphBusNode, depends_on, schema_method, subscribe

    class Baker(GraphBusNode):
        @subscribe("/Bread/Ordered")
        def on_ordered(self, event: Event) -> None:
            price = self.request("/Price/Asked", {"loaves": event["loaves"]})
            self.publish("/Bread/Baked", {"loaves": event["loaves"], "price": price})

    class Till(GraphBusNode):
        @subscribe("/Price/Asked")
        def on_price_asked(self, event: Event) -> int:
            if event["loaves"] > 100:
                raise ValueError("so much flour is not there")
            return 3 * event["loaves"]

        @subscribe("/Bread/Baked")
        def on_baked(self, event: Event) -> None:
            self.state["earned"] = self.state.get("earned", 0) + event["price"]

        @schema_method(input_schema={}, output_schema={"earned": int})
        def balance(self) -> dict[str, int]:
            return {"earned": self.state.get("earned", 0)}

    @depends_on("Till")
    class Owner(GraphBusNode):
        @schema_method(input_schema={}, output_schema={"earned": int})
        def look(self) -> dict[str, int]:
            return self.call("Till", "balance")
    """
ORDER = ("--publish", "/Bread/Ordered")


PATIENT = f"[tool.graphbus.runtime]\nmissing_agent_s = {PATIENCE_S}\n"
"""However long it takes on a busy machine until a process is there again."""


@pytest.fixture
def bakery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_project(tmp_path / "bakery", {"pyproject.toml": "", "bakery/__init__.py": "", "bakery/a.py": AGENTS})
    build_graph(folder / "bakery")
    monkeypatch.chdir(folder)
    return folder


def lag(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, int]]:
    capsys.readouterr()
    assert main(["ledger", "lag", "--json"]) == 0
    return {each["handler"]: each for each in json.loads(capsys.readouterr().out)}


def test_events_wait_in_the_ledger_until_their_agent_runs(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--ledger", "sqlite", "--only", "Owner", *ORDER, '{"loaves": 2}']) == 0
    assert lag(capsys)["Baker.on_ordered"]["waiting"] == 1
    assert main(["run", "--ledger", "sqlite", "--call", "Till.balance", "{}"]) == 0
    assert main(["run", "--ledger", "sqlite", "--call", "Till.balance", "{}"]) == 0
    assert '{"earned":6}' in capsys.readouterr().out
    assert lag(capsys)["Baker.on_ordered"]["waiting"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--ledger", "sqlite", "--only", "Till", "--partition", "0"], "only on NATS each has its own"),
        (["--ledger", "nats://127.0.0.1:1/bakery", "--partition", "0"], "it needs --only"),
        (["--ledger", "nats://127.0.0.1:1/bakery", "--only", "Till", "--partition", "1"], "Till has 1 partition,"),
    ],
)
@pytest.mark.usefixtures("bakery")
def test_a_partition_that_there_is_not_is_refused_before_anything_starts(
    options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options, "--call", "Till.balance", "{}"]) != 0
    told = capsys.readouterr().err
    assert "[GBE691]" in told
    assert reason in told


@pytest.fixture(params=["sqlite", "nats"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite"
        return
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        yield server.url("bakery")


@pytest.mark.slow
def test_agents_of_several_processes_ask_and_call_each_other(
    ledger: str, bakery: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = subprocess.Popen(
        [
            *(sys.executable, "-m", "graphbus_core", "cluster", "up", "--ledger", ledger),
            *("--agents", "Baker", "--agents", "Till"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert cluster.stdout is not None
        ready = 0
        while ready < 2:
            ready += "Ready" in cluster.stdout.readline()
        children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
        assert [each for each in children if ledger.encode() in Path(f"/proc/{each}/cmdline").read_bytes()] == []
        assert main(["run", "--ledger", ledger, "--only", "Owner", *ORDER, '{"loaves": 4}']) == 0
        while json.loads(called("Owner.look", capfd, ledger))["earned"] != 12:
            pass
        cluster.send_signal(signal.SIGINT)
        output, _ = cluster.communicate(timeout=PATIENCE_S)
        assert cluster.returncode == 0, output
    finally:
        cluster.kill()
        cluster.communicate()


def called(method: str, capfd: pytest.CaptureFixture[str], ledger: str) -> str:
    capfd.readouterr()
    assert main(["run", "--ledger", ledger, "--only", "Owner", "--call", method, "{}", "--json"]) == 0
    return json.dumps(json.loads(capfd.readouterr().out)["calls"][0]["result"])


def test_an_answer_that_fails_in_another_process_is_an_error_here(
    bakery: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "graphbus_core.runtime", "--ledger", "sqlite", "--only", "Till"]
    till = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert till.stdout is not None
        while "Ready" not in till.stdout.readline():
            pass
        assert main(["run", "--ledger", "sqlite", "--only", "Baker", *ORDER, '{"loaves": 400}']) == 7
    finally:
        till.kill()
        till.communicate()
    text = capfd.readouterr().err
    assert "/Price/Asked failed in another process: ValueError: so much flour is not there" in text
    assert "GBE669" in text


def test_a_request_to_an_agent_that_no_process_runs_says_so(bakery: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text("[tool.graphbus.runtime]\nmissing_agent_s = 0\n")
    assert main(["run", "--ledger", "sqlite", "--only", "Baker", *ORDER, '{"loaves": 4}']) == 7
    text = " ".join(capfd.readouterr().err.split())
    assert "No process runs Till, which is asked for /Price/Asked" in text
    assert "GBE609" in text


def test_a_ledger_that_does_not_exist_is_named(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--ledger", "sqllite", *ORDER, '{"loaves": 2}']) == 7
    assert "There is no ledger 'sqllite'." in capsys.readouterr().err


@pytest.mark.usefixtures("bakery")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_process_that_waits_for_its_server(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "graphbus_core.runtime", "--ledger", f"nats://127.0.0.1:{free_port()}/x"]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert waiting.stderr is not None
        while "is waited for" not in waiting.stderr.readline():
            assert waiting.poll() is None
        began = time.monotonic()
        waiting.send_signal(number)
        assert waiting.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < signals._START_S  # until which a graph that starts is left alone
    finally:
        waiting.kill()
        waiting.communicate()


@pytest.mark.parametrize("command", ["lag", "resume"])
def test_a_graph_without_a_ledger_has_none_to_show(
    command: str, bakery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", command]) == 7
    assert "GBE629" in capsys.readouterr().err


def test_an_agent_that_nobody_has_cannot_be_in_a_cluster(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--agents", "Baker,Tiill"]) == 7
    assert "Did you mean 'Till'?" in capsys.readouterr().err


def test_the_processes_of_a_cluster_use_the_ledger_of_the_environment(
    bakery: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_LEDGER", "sqllite")
    assert main(["cluster", "up", "--agents", "Till"]) == 7
    assert "There is no ledger 'sqllite'." in capsys.readouterr().out


def test_a_process_that_cannot_start_ends_the_cluster(bakery: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = """
        from graphbus_core import GraphBusNode, subscribe

        class Late(GraphBusNode):
            def on_start(self) -> None:
                raise ValueError("no flour")

            @subscribe("/Bread/Baked")
            def on_baked(self) -> None: ...
        """
    write_project(bakery, {"bakery/late.py": late})
    build_graph(bakery / "bakery")
    assert main(["cluster", "up", "--agents", "Till", "--agents", "Late"]) == 7
    assert "Late │" in (output := capsys.readouterr().out)
    assert "no flour" in output


@pytest.mark.slow
def test_an_event_that_ends_its_process_does_so_five_times_at_most(
    ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = """
        import os

        from graphbus_core import Event, GraphBusNode, subscribe

        class Mine(GraphBusNode):
            @subscribe("/Stone/Found")
            def on_found(self, event: Event) -> None:
                if event["kind"] == "bomb":
                    os._exit(9)
                self.state["kept"] = self.state.get("kept", 0) + 1
        """
    monkeypatch.chdir(write_project(tmp_path, {"pyproject.toml": "", "mine/__init__.py": "", "mine/a.py": agent}))
    build_graph("mine")
    publish = ("--publish", "/Stone/Found", '{"kind": "bomb"}', "--publish", "/Stone/Found", '{"kind": "ore"}')
    command = [sys.executable, "-m", "graphbus_core", "run", "--ledger", ledger]
    statuses = [subprocess.run([*command, *publish], capture_output=True, check=False).returncode]
    while statuses[-1] == 9:
        finished = subprocess.run([*command, *publish[3:]], capture_output=True, text=True, check=False)
        statuses.append(finished.returncode)
    assert statuses == [9, 9, 9, 9, 9, 7]
    assert "5 times a process ended" in finished.stderr
    with closing(States(str(tmp_path / ".graphbus" / "state" / "state.sqlite3"))) as states:
        assert int(states.find("Mine", "kept")[0] or 0) >= 1  # a process may end before it has published the ore


KITCHEN = """
    import time
    from pathlib import Path

    from graphbus_core import GraphBusNode, subscribe

    class Oven(GraphBusNode):
        @subscribe("/Heat/Asked")
        def on_heat(self) -> dict[str, int]:
            Path("asked").touch()
            time.sleep(4.0)
            return {"degrees": 200}

    class Cook(GraphBusNode):
        @subscribe("/Dish/Ordered")
        def on_dish(self) -> None:
            self.state["dish"] = self.request("/Heat/Asked", {}, timeout_s=600)["degrees"]

    class Baker(GraphBusNode):
        @subscribe("/Cake/Ordered")
        def on_cake(self) -> None:
            self.state["cake"] = self.request("/Heat/Asked", {}, timeout_s=600)["degrees"]
    """


@pytest.mark.slow
def test_a_process_that_ends_answers_what_it_has_taken_and_leaves_the_rest(
    ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that another process asks is lost when one is replaced: the next one answers it."""
    kitchen = write_project(
        tmp_path / "kitchen", {"pyproject.toml": PATIENT, "kitchen/__init__.py": "", "kitchen/a.py": KITCHEN}
    )
    monkeypatch.chdir(kitchen)
    build_graph("kitchen")

    begun: list[subprocess.Popen[str]] = []

    def start(agent: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "graphbus_core.runtime", "--ledger", ledger, "--only", agent]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert begun[-1].stdout is not None
        assert any("Ready" in line for line in begun[-1].stdout)
        return begun[-1]

    def order(topic: str) -> None:
        assert main(["run", "--ledger", ledger, "--only", "outside", "--publish", topic, "{}"]) == 0

    def dishes() -> list[str]:
        with closing(States(str(kitchen / ".graphbus/state/state.sqlite3"))) as states:
            return [*states.keys("Cook"), *states.keys("Baker")]

    try:
        oven = start("Oven")
        start("Cook")
        start("Baker")
        order("/Dish/Ordered")
        assert comes_true(Path("asked").exists)
        oven.terminate()
        order("/Cake/Ordered")
        assert oven.wait(PATIENCE_S) == 0
        assert comes_true(lambda: dishes() == ["dish"]), "the process that ended has answered it"
        start("Oven")
        assert comes_true(lambda: dishes() == ["dish", "cake"])
    finally:
        for each in begun:
            each.kill()
            each.communicate()
