"""Run every benchmark here; with `--write` put the measured tables into docs/performance.md, between its markers.

A module with `page(rows)` says itself how its part of the page looks; otherwise it is the table of its rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from stopwatch import ROOT, Row, markdown, python_version

from graphbus_core.isolation import attempt

PAGE = ROOT / "docs" / "performance.md"
OPENING = "<!-- measured: by benchmarks/run_all.py --write -->"
CLOSING = "<!-- /measured -->"
NO_BENCHMARK = {"run_all", "stopwatch", "peers", "soak", "kills"}


def measured(names: list[str]) -> tuple[dict[str, list[Row]], list[str]]:
    """Name -> rows of every benchmark, one after the other, and the names of those that failed.

    Nothing else should run meanwhile.
    """
    rows: dict[str, list[Row]] = {}
    failed = []
    for name in names:
        print(f"\n=== {name}", flush=True)
        started = time.perf_counter()
        got, error = attempt(import_module(name).main)
        if error is None:
            rows[name] = got or []
        else:  # the figures of the others are not lost for it
            traceback.print_exception(error)
            failed.append(name)
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)
    return rows, failed


def machine(took_s: float) -> str:
    """What measured, without saying which machine it was, and how long it took."""
    where = f"Python {python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores."
    return f"{where} Measuring it all took {took_s / 60:.0f} minutes."


def misses(tables: dict[str, list[Row]]) -> list[str]:
    """The measures that are over their limit, in words."""
    return [f"{row.what} against {row.against}" for rows in tables.values() for row in rows if not row.is_kept]


def part(name: str, rows: list[Row]) -> str:
    """One benchmark on the page."""
    page = getattr(import_module(name), "page", markdown)
    return f"### {name.replace('_', ' ').capitalize()}\n\n{page(rows)}"


def section(tables: dict[str, list[Row]], took_s: float) -> str:
    """The part of the page between the markers."""
    missed = misses(tables)
    summary = "Every limit is kept." if not missed else "Over its limit: " + "; ".join(missed) + "."
    return "\n\n".join([machine(took_s), summary, *(part(name, rows) for name, rows in tables.items())])


def main() -> int:
    """Measure everything and say what is over its limit; figures are reported, they do not fail."""
    everything = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_BENCHMARK)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("names", nargs="*", default=everything, help="only these benchmarks")
    options = parser.parse_args()
    if options.write and options.names != everything:
        parser.error("the page shows one run of all benchmarks: --write takes no names")
    started = time.perf_counter()
    tables, failed = measured(options.names)
    took_s = time.perf_counter() - started
    if options.write and not failed:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(OPENING)
        after = rest.partition(CLOSING)[2]
        PAGE.write_text(f"{before}{OPENING}\n\n{section(tables, took_s)}\n\n{CLOSING}{after}", encoding="utf-8")
    missed = misses(tables)
    print(f"\n{sum(map(len, tables.values()))} measures in {took_s:.0f} s, {len(missed)} over their limit")
    for line in missed:
        print(f"  over its limit: {line}")
    for name in failed:
        print(f"  failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
