"""What counts against a limit of time is what tried code uses; how busy the machine is makes no difference."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbus_core.editing.rungs.trial_environment import TrialEnvironment
from graphbus_core.editing.sandboxes.jails import Jail
from graphbus_core.editing.sandboxes.process import FinishedProcess, Limits, ProcessSandbox, Sandbox
from graphbus_core.editing.sandboxes.usage import Meter
from graphbus_core.errors import NotJudgedError
from graphbus_core.model.config import GateConfig, ResolvedBuild, Settings

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")]
Figure = Callable[[str, object], None]
ENDLESS = {
    "computes in children": "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
    "computes in threads": (
        "import threading\ndef work():\n    while True: pass\nfor _ in range(4): threading.Thread(target=work).start()"
    ),
    "computes in short children": (
        "import os\nwhile True:\n    if os.fork() == 0: sum(range(100_000)); os._exit(0)\n    os.wait()"
    ),
    "sleeps in pieces": "import time\nwhile True: time.sleep(0.01)",
    "waits for its child": "import os, time\nif os.fork() == 0: time.sleep(1000)\nos.wait()",
    "stops itself": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "sleeps, and then computes": "import time; time.sleep(0.3)\nwhile True: pass",
}


@pytest.fixture(params=["process", "landlock", "bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return ProcessSandbox() if request.param == "process" else Jail(request.param)


def run(sandbox: Sandbox, code: str, folder: Path, **limits: float) -> FinishedProcess:
    command = [sys.executable, "-I", "-S", "-c", code]
    return sandbox.run(command, folder, limits=Limits(**{"patience": 200.0, **limits}))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ENDLESS)
def test_what_never_ends_is_out_of_time_in_whatever_way_it_goes_on(sandbox: Sandbox, way: str, tmp_path: Path) -> None:
    done = run(sandbox, ENDLESS[way], tmp_path, timeout_s=0.5)
    assert done.timed_out
    assert done.used_s > 0.5


def test_what_four_processes_compute_is_added_up(sandbox: Sandbox, tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(2): os.fork()
while time.process_time() < 0.6: pass
try:
    while True: os.wait()
except ChildProcessError: pass
"""
    assert run(sandbox, code, tmp_path, timeout_s=1.0).timed_out


@pytest.fixture
def crowd() -> Iterator[int]:
    """A processor that three other programs keep busy; ended by their own clock, if by nobody else."""
    place = max(os.sched_getaffinity(0))
    busy = (
        f"import os, time; os.sched_setaffinity(0, [{place}])\nwhile time.monotonic() < {time.monotonic() + 100}: pass"
    )
    others = [subprocess.Popen([sys.executable, "-S", "-c", busy]) for _ in range(3)]
    yield place
    for other in others:
        other.kill()
        other.wait()


def test_waiting_for_a_busy_processor_counts_for_nothing(
    sandbox: Sandbox, crowd: int, tmp_path: Path, figure: Figure
) -> None:
    """It computes for half a second, with a tenth of the weight of each of the others."""
    start = f"import os, time; os.sched_setaffinity(0, [{crowd}]); os.nice(10)\n"
    code = start + "while time.process_time() < 0.5: pass\nprint('end')"
    begun = time.monotonic()
    done = run(sandbox, code, tmp_path, timeout_s=2.0)
    assert (done.returncode, done.stdout, done.timed_out) == (0, "end\n", False)
    figure(
        f"seconds used and passed on a busy processor ({sandbox.tier})",
        f"{done.used_s:.1f} and {time.monotonic() - begun:.1f}",
    )


def test_who_gets_no_time_on_a_busy_machine_is_not_judged(sandbox: Sandbox, tmp_path: Path) -> None:
    """Instead of a busy machine: a wall time that is over at once."""
    with pytest.raises(NotJudgedError) as refusal:
        run(sandbox, "while True: pass", tmp_path, timeout_s=60.0, patience=0.005)
    assert refusal.value.code == "GBE332"
    assert "too busy to test the change" in refusal.value.sentence


@pytest.mark.parametrize(
    ("before_s", "longest_s", "limit_s"),
    [(0.0, 1e9, 10.0), (3.0, 1e9, 10.0), (8.0, 1e9, 24.0), (30.0, 1e9, 30.0), (0.1, 4.0, 4.0), (3.0, 4.0, 9.0)],
)
def test_what_takes_nearly_all_of_the_time_without_the_change_gets_more_with_it(
    before_s: float, longest_s: float, limit_s: float, tmp_path: Path
) -> None:
    config = ResolvedBuild(root=str(tmp_path), paths=(), settings=Settings(gate=GateConfig(timeout_s=10.0)))
    assert TrialEnvironment(config, None).limits_after(before_s, longest_s).timeout_s == limit_s


def test_what_is_too_much_for_a_moment_is_weighed_again() -> None:
    found = iter(["too much", "", "too much", "too much"])

    assert [Meter(0.0, lambda: next(found)).poll() for _ in range(2)] == ["", "too much"]
