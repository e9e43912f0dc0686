"""A process that is killed while it writes: the state is the old one or the new one, always whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphbus_core.hosting.state import States

pytestmark = pytest.mark.slow

WRITER = """
import sys
from graphbus_core.hosting.state import States

state = States(sys.argv[1]).of("Orders")
number = state.get("number", 0)
while True:
    number += 1
    with state.transaction():
        state["number"] = number
        state["copy"] = {"number": number, "filling": "x" * (number % 5000)}
        state[f"slot {number % 7}"] = number
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_a_state_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    path = str(tmp_path / "state.sqlite3")
    moments = random.Random(4)
    for _ in range(25):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()  # it writes
        time.sleep(moments.uniform(0, 0.03))
        writer.send_signal(signal.SIGKILL)
        said = [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.stdout.close()
        writer.wait()

        states = States(path)
        state = states.of("Orders")
        number = state["number"]
        assert number in ((said[-1], said[-1] + 1) if said else (number,)), "what was said to be written is written"
        assert state["copy"] == {"number": number, "filling": "x" * (number % 5000)}
        assert state[f"slot {number % 7}"] == number
        with states.open().connection() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        states.close()
    assert number > 25
