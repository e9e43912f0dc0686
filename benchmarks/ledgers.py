"""Ledgers beside what people use for the same: raw nats-py and FastStream, on the same NATS servers, in turns.

    this process  -- measure and count -->  peer_programs/<way>_ledger.py  -- seconds -->  ratios of each round, and their median

Events of 80 bytes go from a publisher to one consumer in the same process, over a server on this machine. What a figure costs
differs much on a busy machine; so each round takes all ways in turns, and compares within the round.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from peers import environment
from stopwatch import ROOT, Row, report

sys.path.insert(0, str(ROOT))  # the servers of the tests

from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer

PROGRAMS = Path(__file__).parent / "peer_programs"
ROUNDS = 7
EVENTS, SINGLES, HOPS, FAILURES = 2000, 500, 200, 50
GONE_S = 120.0
RAW, OURS, FASTSTREAM, SQLITE = "raw nats-py", "`--ledger nats://`", "FastStream", "`--ledger sqlite`"
NAMES = {NEWEST: "server 2.15", OLDEST: "server 2.9"}
COST_LIMIT, HOP_LIMIT, SINGLE_LIMIT = 1.6, 2.0, 0.2


class Way(NamedTuple):
    """A way for an event: through what, and over which server; none for SQLite."""

    name: str
    server: str = ""


class Figures(NamedTuple):
    """What one way took in one round: seconds of an event among many, and of one that is stored before the next is published; and
    the median and 99th percentile of a hop.
    """

    event_s: float
    single_s: float
    hop_s: float
    slow_hop_s: float


class Child:
    """A running program."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._process, self._errors = process, errors

    def ask(self, measure: str, count: int) -> Any:
        """Let it measure, and return its answer; raise what it wrote to standard error if it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, which `readline` tells
            self._process.stdin.write(json.dumps({"measure": measure, "count": count}) + "\n")
            self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], GONE_S)[0]:
            raise TimeoutError(f"there is no answer about {measure}")
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise ChildProcessError(
                f"{self._process.args} has ended with {self._process.wait()}:\n{self._errors.read()}"
            )
        return json.loads(line)

    def take(self) -> Figures:
        """Return the figures of one round."""
        event_s, single_s = self.ask("events", EVENTS), self.ask("singles", SINGLES)
        hops = sorted(self.ask("hops", HOPS))
        return Figures(event_s, single_s, statistics.median(hops), hops[len(hops) * 99 // 100])


@contextmanager
def running(python: Path, program: str, ledger: str) -> Iterator[Child]:
    """Start a program; it ends with the `with` statement."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    command = [str(python), str(PROGRAMS / program), ledger]
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=inherited, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        try:
            yield Child(process, errors)
        finally:
            process.kill()
            with suppress(BrokenPipeError):
                process.communicate()


def start_all(stack: ExitStack, folder: Path) -> dict[Way, Child]:
    """Start the servers that are installed, and the programs of all ways."""
    here, faststream = Path(sys.executable), environment("FastStream")
    found = {}
    for kind, server_name in NAMES.items():
        try:
            server = stack.enter_context(NatsServer(kind, folder / kind))
        except pytest.skip.Exception as missing:
            print(f"{server_name} is left out: {missing}", flush=True)
            continue
        found[Way(RAW, server_name)] = stack.enter_context(running(here, "nats_ledger.py", server.url()))
        found[Way(OURS, server_name)] = stack.enter_context(running(here, "graphbus_ledger.py", server.url("bench")))
        if faststream is not None:
            child = running(faststream / "python", "faststream_ledger.py", server.url())
            found[Way(FASTSTREAM, server_name)] = stack.enter_context(child)
    found[Way(SQLITE)] = stack.enter_context(running(here, "graphbus_ledger.py", "sqlite"))
    return found


def compare(way: Way, raw: Way, taken: dict[Way, list[Figures]], field: str, limit: float) -> Row:
    """Return the row about one figure of a way against raw nats-py, with the least and the largest ratio of a round."""
    ours, peer = ([getattr(each, field) for each in taken[it]] for it in (way, raw))
    ratios = sorted(one / other for one, other in zip(ours, peer, strict=True))
    ratio, base = statistics.median(ratios), statistics.median(peer)
    what = {
        "event_s": "an event among many",
        "single_s": "one by one",
        "hop_s": "one hop, median",
        "slow_hop_s": "one hop, 99 of 100",
    }[field]
    name = f"{what}: {way.name} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return Row(name, ratio * base, base, f"{raw.name}, {raw.server}", limit)


def rows_of(taken: dict[Way, list[Figures]]) -> list[Row]:
    """Return the rows of all ways; SQLite is compared with the first server."""
    rows = []
    first = next((each for each in taken if each.name == RAW), None)
    for way in taken:
        raw = Way(RAW, way.server) if way.server else first
        if way.name == RAW or raw is None:
            continue
        is_limited = way.name == OURS
        rows.append(compare(way, raw, taken, "event_s", COST_LIMIT if is_limited else 0.0))
        rows.append(compare(way, raw, taken, "single_s", SINGLE_LIMIT if way.name == SQLITE else 0.0))
        rows.append(compare(way, raw, taken, "hop_s", HOP_LIMIT if is_limited else 0.0))
        rows.append(compare(way, raw, taken, "slow_hop_s", 0.0))
    return rows


def main() -> list[Row]:
    """Measure and print."""
    with ExitStack() as stack:
        children = start_all(stack, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        taken: dict[Way, list[Figures]] = {way: [] for way in children}
        for number in range(ROUNDS + 1):
            for way, child in children.items():
                figures = child.take()
                if number:  # the first round only warms up
                    taken[way].append(figures)
        rows = rows_of(taken)
        rows += [
            Row(
                f"lost of those that fail once: {way.name}",
                child.ask("lost", FAILURES),
                FAILURES,
                f"{way.server or 'no server'}, all",
                unit="events",
            )
            for way, child in children.items()
            if way.name != RAW
        ]
    return report("Ledgers", rows)


if __name__ == "__main__":
    main()
