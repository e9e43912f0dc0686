"""From a saved file to running code: `graphbus dev` on the shop of the examples, in a process of its own.

Measured from the moment in which the saved file has its name until the line that says that the new code runs can be read: waiting
for further saves, check, build, restart and the pipe included. Against building and starting the same shop again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stopwatch import ROOT, Row, medians, process, report

LIMIT_S = 0.3
FILE = "agents/inventory.py"
HELPER = "agents/orders.py"


@contextmanager
def running(shop: Path) -> Iterator[IO[str]]:
    """`graphbus dev` on a copy of the shop, ready; gives the lines that it writes."""
    shutil.copytree(ROOT / "examples" / "shop", shop)
    command = [sys.executable, "-m", "graphbus_core", "dev", "agents", "--json"]
    with subprocess.Popen(
        command, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as development:
        lines = development.stdout
        assert lines is not None
        assert json.loads(lines.readline())["event"] == "ready"
        time.sleep(1)  # until the folders are watched
        try:
            yield lines
        finally:
            development.terminate()


class Saver:
    """Saves a file of the shop, another text each time, and waits until it runs."""

    def __init__(self, path: Path, lines: IO[str]) -> None:
        self._path = path
        self._lines = lines
        self._number = 0

    def __call__(self) -> float:
        self._number += 1
        beside = self._path.with_suffix(".new")
        beside.write_text(f"{self._path.read_text(encoding='utf-8')}\nSAVED = {self._number}\n", encoding="utf-8")
        os.replace(beside, self._path)
        saved = time.perf_counter()
        told = json.loads(self._lines.readline())
        took = time.perf_counter() - saved
        assert told["event"] == "reloaded", told
        time.sleep(1)  # until the next process waits, as it does while a person types
        return took


def main() -> list[Row]:
    """Measure and print."""
    again = "from graphbus_core import build_graph, run_graph; build_graph('agents', ); run_graph().stop()"
    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder, "shop")
        with running(shop) as lines:
            took = medians(
                {
                    "agent": Saver(shop / FILE, lines),
                    "helper": Saver(shop / HELPER, lines),
                    "again": process([sys.executable, "-c", again], shop),
                },
                rounds=9,
            )
    rows = [
        Row(
            what,
            took[name],
            took["again"],
            "build and start again",
            LIMIT_S / took["again"],
            f"{LIMIT_S * 1000:.0f} ms",
        )
        for what, name in (
            ("a save of an agent, until its new code runs", "agent"),
            ("a save of a module that two agents import", "helper"),
        )
    ]
    return report("From a saved file to running code", rows)


if __name__ == "__main__":
    main()
