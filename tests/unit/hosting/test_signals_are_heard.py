"""A signal ends what waits for it, also when it comes at a moment at which Python lets no exception through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.hosting.signals import StopRequested, stop_on_signals, wait_for_signal
from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.measures_children


class Finalised:
    """Gets the signal while it is taken down: what is raised there is only reported, and goes nowhere."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))  # the handler of the signal runs between two instructions of this method


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_finaliser_is_heard_all_the_same() -> None:
    with stop_on_signals() as patience:
        patience.is_busy = lambda: False
        doomed = Finalised()
        del doomed
        with pytest.raises(StopRequested) as stopped:
            wait_for_signal()
    assert stopped.value.number == signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_the_runtime_is_being_imported_ends_it_in_good_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "msgspec.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "graphbus_core.runtime"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE_S) == ("", None)
    assert process.returncode == 0


@pytest.mark.slow
def test_a_signal_that_comes_while_agents_are_imported_stops_the_graph_when_it_is_ready(
    project: Project,
) -> None:
    agent = """
        import time
        from graphbus_core import GraphBusNode

        print("importing", flush=True)
        time.sleep(0.5)

        class Till(GraphBusNode):
            def on_stop(self) -> None:
                print("bye", flush=True)
        """
    root = project({"pyproject.toml": "", "agents/till.py": agent})
    build_graph(str(root / "agents"))
    command = [sys.executable, "-m", "graphbus_core.runtime"]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told.splitlines()[-1]) == (0, "bye")
