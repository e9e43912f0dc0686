"""GraphBus beside the libraries that people use for the same: each a child process in an environment of its own, taking turns.

    this process  -- name of a measure -->  peer_programs/<library>.py  -- ns per operation -->  median of the rounds

What a library has no word for is left out. `peer_programs/` says how each is used, and what it does that others do not.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from peers import QUIET, environment
from stopwatch import ROOT, Row, markdown, medians, overview, report, shown

PROGRAMS = Path(__file__).parent / "peer_programs"
ROUNDS = 15
ROUNDS_OF_CHECKS = 31
STARTS = 7
GONE_S = 30.0
"""A child that has not answered by then is left out."""

DIRECT, OURS, OLD = "no library", "GraphBus", "graphbus 0.5.1"
PEERS = {
    DIRECT: "direct.py",
    OURS: "graphbus_bus.py",
    OLD: "graphbus_0_5_1.py",
    "blinker": "blinker_signals.py",
    "pyee": "pyee_emitter.py",
    "LangGraph": "langgraph_graph.py",
    "FastStream": "faststream_broker.py",
    "bubus": "bubus_bus.py",
    "autogen-core": "autogen_runtime.py",
}
VALIDATORS = ("msgspec", "pydantic", "fastjsonschema")
MEASURES = (
    "publish, 1 handler",
    "publish, 10 handlers",
    "publish, 100 handlers",
    "typed payload",
    "async handler",
    "call",
)
LIMITS = {
    ("publish, 1 handler", OLD): 1 / 7,
    ("publish, 10 handlers", OLD): 1 / 7,
    ("publish, 100 handlers", OLD): 1 / 7,
} | {(name, peer): 1.0 for name in MEASURES[:3] for peer in ("blinker", "pyee")}
LIMIT_TEXTS = {OLD: "a seventh"}


class Program(NamedTuple):
    """How a library's program is started: its interpreter, its file, where, with which environment and first arguments."""

    python: Path
    file: Path
    folder: Path
    variables: dict[str, str]
    arguments: tuple[str, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """The command of the child process."""
        return [str(self.python), str(self.file), *self.arguments, *arguments]


def programs(work: Path) -> dict[str, Program]:
    """The programs of all libraries that install here, with the small graph built where they need it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    found = {}
    for peer, name in PEERS.items():
        binaries = Path(sys.executable).parent if peer in (DIRECT, OURS) else environment(peer)
        if binaries is None:
            continue
        folder = work / Path(name).stem
        shutil.copytree(PROGRAMS / "order_flow", folder, ignore=shutil.ignore_patterns("__pycache__", ".graphbus"))
        variables = inherited | QUIET | {"PYTHONPATH": str(folder)}
        if peer in (OURS, OLD):
            build = [str(binaries / "graphbus"), "build", "agents"]
            subprocess.run(build, cwd=folder, env=variables, check=True, capture_output=True, timeout=120)
        found[peer] = Program(binaries / "python", PROGRAMS / name, folder, variables)
    return found


class Child:
    """A running program: asked for one measure at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.measures: list[str] = self._answer()["measures"]

    def take_s(self, measure: str) -> float:
        """One round of the measure: seconds per operation."""
        assert self._process.stdin is not None
        self._process.stdin.write(measure + "\n")
        self._process.stdin.flush()
        return float(self._answer()["ns"]) / 1e9

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], GONE_S)[0]:
            raise TimeoutError
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError(f"the program ended with status {self._process.wait()}")
        answer: dict[str, object] = json.loads(line)
        return answer


@contextmanager
def running(program: Program) -> Iterator[Child]:
    """Start a program; it ends with the `with` statement."""
    process = subprocess.Popen(
        program.command(),
        cwd=program.folder,
        env=program.variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate()


def answering(started: dict[str, Child]) -> dict[str, Child]:
    """Those that can do all that they say they can; the others are left out, with a sentence."""
    able = {}
    for peer, child in started.items():
        try:
            for measure in child.measures:
                child.take_s(measure)
        except OSError as problem:
            print(f"{peer} cannot be measured here ({type(problem).__name__}); its rows are left out", flush=True)
        else:
            able[peer] = child
    return able


def operations(started: dict[str, Child]) -> list[Row]:
    """All measures of all libraries, alternating: what stands below each other is of the same minutes, too."""
    able = [(measure, peer) for measure in MEASURES for peer, child in started.items() if measure in child.measures]
    took = medians({(what, peer): lambda it=started[peer], what=what: it.take_s(what) for what, peer in able}, ROUNDS)
    return [
        Row(
            measure,
            took[measure, OURS],
            took[measure, peer],
            peer,
            LIMITS.get((measure, peer), 0.0),
            LIMIT_TEXTS.get(peer, "") if (measure, peer) in LIMITS else "",
        )
        for measure, peer in able
        if peer != OURS
    ]


def checks(ours: Child, validators: Child) -> list[Row]:
    """What a check of five fields adds to a publish, beside validators that stand alone.

    The difference is taken in each round, of two figures that follow each other; between two medians there may be minutes.
    """

    def added_s() -> float:
        return ours.take_s("typed payload") - ours.take_s(MEASURES[0])

    took = medians(
        {name: lambda it=name: validators.take_s(it) for name in VALIDATORS} | {OURS: added_s}, ROUNDS_OF_CHECKS
    )
    return [Row("check of 5 fields, what it adds", took[OURS], took[name], f"{name} alone") for name in VALIDATORS]


def first_event_bytes(program: Program) -> int:
    """Run the program for one event; what it weighed then."""
    said = subprocess.run(
        program.command("first-event"),
        cwd=program.folder,
        env=program.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=GONE_S,
    ).stdout
    return int(json.loads(said)["resident_bytes"])


def first_events(found: dict[str, Program]) -> list[Row]:
    """From nothing to the end of the first event in a graph of three steps, as a process; and what it then weighs."""
    weights: dict[str, list[int]] = {peer: [] for peer in found}

    def start(peer: str) -> float:
        started = time.perf_counter()
        weight = first_event_bytes(found[peer])
        took_s = time.perf_counter() - started
        weights[peer].append(weight)
        return took_s

    took = medians({peer: lambda it=peer: start(it) for peer in found}, STARTS)
    weight = {peer: statistics.median(each) for peer, each in weights.items()}
    others = [peer for peer in found if peer != OURS]
    return [Row("start to first event, 3 steps", took[OURS], took[peer], peer) for peer in others] + [
        Row("memory, 3 steps", weight[OURS], weight[peer], peer, unit="B") for peer in others
    ]


def alive(found: dict[str, Program]) -> dict[str, Program]:
    """Those whose first event arrives; the others are left out, with a sentence."""
    able = {}
    for peer, program in found.items():
        try:
            first_event_bytes(program)
        except (OSError, subprocess.SubprocessError) as problem:
            print(f"{peer} does not run here ({type(problem).__name__}); its rows are left out", flush=True)
        else:
            able[peer] = program
    return able


def page(rows: list[Row]) -> str:
    """One table with a column for each library, then what has a limit."""
    many = [row for row in rows if not row.what.startswith("check")]
    checks = [row for row in rows if row.what.startswith("check")]
    alone = ", ".join(f"{row.against} {shown(row.peer, row.unit)}" for row in checks)
    parts = [overview(many, OURS)]
    if checks:
        parts.append(f"A check of five fields adds {shown(checks[0].ours, checks[0].unit)} to a publish; {alone}.")
    return "\n\n".join([*parts, markdown([row for row in rows if row.limit])])


def main() -> list[Row]:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = alive(programs(Path(folder)))
        rows = first_events(found)
        started = {peer: stack.enter_context(running(program)) for peer, program in found.items()}
        rows = operations(answering(started)) + rows
        validators = environment("validators")
        if validators is not None:
            alone = Program(validators / "python", PROGRAMS / "validators.py", ROOT, dict(os.environ))
            rows += checks(started[OURS], stack.enter_context(running(alone)))
    return report("Side by side", rows)


if __name__ == "__main__":
    main()
