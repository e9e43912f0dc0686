"""How everything here is measured: ours and a peer side by side, alternating, the median of several rounds, as a ratio.

A benchmark is a file with `main() -> list[Row]`, which prints its table too; `run_all.py` collects them.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parent.parent

K = TypeVar("K")


class Row(NamedTuple):
    """One line of a table.

    Attributes:
        what: What was done, e.g. `"publish, 10 handlers"`.
        ours: What it cost us, in seconds (or bytes, with `unit`).
        peer: What it cost the peer.
        against: Who the peer is, e.g. `"direct call"`.
        limit: `ours / peer` may be at most this; 0: for information, no limit.
        limit_text: How the limit reads when it is no plain ratio, e.g. `"bare + 60 ms"`.
    """

    what: str
    ours: float
    peer: float
    against: str
    limit: float = 0.0
    limit_text: str = ""
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """How many times the peer."""
        return self.ours / self.peer

    @property
    def is_kept(self) -> bool:
        """True when there is no limit or the ratio is within it."""
        return not self.limit or self.ratio <= self.limit


def at_most(what: str, ours: float, peer: float, against: str, extra_s: float) -> Row:
    """A row whose limit is the peer and so many seconds more."""
    text = f"{against} + {extra_s * 1000:.0f} ms"
    return Row(what, ours, peer, against, (peer + extra_s) / peer, text)


def timed(function: Callable[[], object], number: int = 1) -> Callable[[], float]:
    """Give a measurement: seconds of one call, on average over `number` calls in a row, the collector off.

    A fifth as many go before and do not count. Otherwise each turn pays for what the one before has left in the caches of the
    processor, and what is measured beside a slow library seems slow.
    """

    def measure() -> float:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for _ in range(number // 5):
                function()
            started = time.perf_counter()
            for _ in range(number):
                function()
            return (time.perf_counter() - started) / number
        finally:
            if was_enabled:
                gc.enable()

    return measure


def process(command: Sequence[str | Path], cwd: Path = ROOT, **environment: str) -> Callable[[], float]:
    """Give a measurement: wall seconds of a child process, started with compiled bytecode allowed and nothing to read."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}

    def measure() -> float:
        started = time.perf_counter()
        subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=inherited | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - started

    return measure


def medians(measurements: Mapping[K, Callable[[], float]], rounds: int = 7) -> dict[K, float]:
    """Take all measurements alternately, once without counting and then `rounds` times; name -> median."""
    taken: dict[K, list[float]] = {name: [] for name in measurements}
    for current in range(rounds + 1):
        for name, measure in measurements.items():
            value = measure()
            if current:
                taken[name].append(value)
    return {name: statistics.median(values) for name, values in taken.items()}


def shown(value: float, unit: str) -> str:
    """A quantity with three digits and the unit that fits."""
    scales = {"s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), "B": ((1e6, "MB"), (1e3, "kB"), (1, "B"))}
    if unit not in scales:
        return f"{value:g} {unit}".strip()
    scale, name = next(((scale, name) for scale, name in scales[unit] if abs(value) >= scale), scales[unit][-1])
    return f"{value / scale:.3g} {name}"


def markdown(rows: Sequence[Row]) -> str:
    """The table for docs/performance.md; a missed limit is bold."""
    lines = ["| measure | ours | peer | ratio | limit | kept |", "|---|---|---|---|---|---|"]
    for row in rows:
        limit = row.limit_text or (f"≤ {row.limit:.3g} ×" if row.limit else "–")
        kept = "" if not row.limit else "yes" if row.is_kept else "**no**"
        peer = f"{row.against} {shown(row.peer, row.unit)}"
        ratio = f"{row.ratio:.2f}" if row.ratio >= 0.095 else f"{row.ratio:.1g}"
        lines.append(f"| {row.what} | {shown(row.ours, row.unit)} | {peer} | {ratio} | {limit} | {kept} |")
    return "\n".join(lines)


def overview(rows: Sequence[Row], ours: str) -> str:
    """A table with one column for each peer, for rows that measure the same against many; `–` where a peer has no figure."""
    peers = list(dict.fromkeys(row.against for row in rows))
    lines = [f"| measure | {ours} | {' | '.join(peers)} |", "|---" * (len(peers) + 2) + "|"]
    for what in dict.fromkeys(row.what for row in rows):
        same = {row.against: row for row in rows if row.what == what}
        first = next(iter(same.values()))
        cells = [shown(same[peer].peer, same[peer].unit) if peer in same else "–" for peer in peers]
        lines.append(f"| {what} | {shown(first.ours, first.unit)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(title: str, rows: list[Row]) -> list[Row]:
    """Print the table and give the rows back."""
    print(f"\n## {title}\n\n{markdown(rows)}", flush=True)
    return rows


def python_version() -> str:
    """The interpreter that measured."""
    return ".".join(map(str, sys.version_info[:3]))
