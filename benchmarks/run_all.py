"""Run every benchmark here; with `--write` put the measured tables into docs/performance.md, between its markers."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

from stopwatch import ROOT, Row, markdown, python_version

PAGE = ROOT / "docs" / "performance.md"
OPENING = "<!-- measured: by benchmarks/run_all.py --write -->"
CLOSING = "<!-- /measured -->"
NO_BENCHMARK = {"run_all", "stopwatch", "peers"}


def measured(names: list[str]) -> dict[str, list[Row]]:
    """Name -> rows of every benchmark, one after the other: nothing else should run meanwhile."""
    rows = {}
    for name in names:
        print(f"\n=== {name}", flush=True)
        rows[name] = import_module(name).main()
    return rows


def machine() -> str:
    """What measured, without saying which machine it was."""
    return f"Python {python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores."


def section(tables: dict[str, list[Row]]) -> str:
    """The part of the page between the markers."""
    parts = [machine()]
    parts += [f"### {name.replace('_', ' ').capitalize()}\n\n{markdown(rows)}" for name, rows in tables.items()]
    return "\n\n".join(parts)


def main() -> int:
    """Measure everything and say what is over its limit; figures are reported, they do not fail."""
    everything = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_BENCHMARK)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("names", nargs="*", default=everything, help="only these benchmarks")
    options = parser.parse_args()
    tables = measured(options.names)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(OPENING)
        after = rest.partition(CLOSING)[2]
        PAGE.write_text(f"{before}{OPENING}\n\n{section(tables)}\n\n{CLOSING}{after}", encoding="utf-8")
    missed = [f"{row.what} against {row.against}" for rows in tables.values() for row in rows if not row.is_kept]
    print(f"\n{sum(map(len, tables.values()))} measures, {len(missed)} over their limit")
    for line in missed:
        print(f"  over its limit: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
