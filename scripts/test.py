"""Everything that must hold before a change is done: `make test`; with `--fast` the part that takes less than a minute.

Each step is a command. Several run side by side; all run, also after a failure, and a table of what each took closes the output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / ".testreport"
COVERAGE = REPORT / "coverage"
BIN = Path(sys.executable).parent
PYTHON = sys.executable

AT_ONCE = 3
"""Steps at a time: tests often wait, so that a core is free for one more than there are."""
SCREEN = threading.Lock()
TOTAL_LIMIT = 95.0
FULL_COVERAGE = (
    "negotiation/engine.py", "negotiation/transitions.py", "negotiation/votes.py", "editing/edits.py", "editing/gate.py",
    "bus/core.py", "bus/outcomes.py", "bus/sync.py", "bus/loop.py", "bus/failures.py", "bus/routes.py", "bus/signatures.py",
    "bus/dead_letters.py", "bus/message_bus.py", "bus/closing.py", "bus/waiting.py",
)  # fmt: skip


class Step(NamedTuple):
    """A command of the suite; `is_fast` if `--fast` runs it too. What it measures of coverage goes to `data`."""

    name: str
    command: list[str]
    is_fast: bool = True
    data: str = ""


def pytest_command(report: str, *extra: str) -> list[str]:
    """Tests with the hypothesis examples that are the same every time."""
    return [PYTHON, "-m", "pytest", "-q", "--hypothesis-profile=ci", f"--junitxml={REPORT / report}.xml", *extra]


MEASURED = ("--cov", "--cov-report=")
SHARDS = ("1/2", "2/2")
STATIC = [
    Step("types", [str(BIN / "mypy")]),
    Step("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    Step("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    Step("floor plan", [str(BIN / "lint-imports"), "--no-cache"]),
    Step("artifact schemas", [PYTHON, "scripts/schemas.py", "--check"]),
    Step("generated pages", [PYTHON, "scripts/reference.py", "--check"]),
    Step("weight", [PYTHON, "scripts/weight.py"]),
    Step("documentation", [PYTHON, "-m", "scripts.docs"], is_fast=False),
]
AFTERWARDS = [
    Step("coverage", [PYTHON, "scripts/test.py", "--coverage"]),
    Step("guarantees", [PYTHON, "scripts/guarantees.py"]),
]


def steps(*, is_fast: bool) -> list[Step]:
    """What runs side by side, the longest first."""
    options = () if is_fast else MEASURED
    slow = Step("slow tests", slow_tests(), data="slow")
    quick = [
        Step(
            f"quick tests {shard}",
            pytest_command(f"junit-{shard[0]}", "-m", "not slow", f"--shard={shard}", *options),
            data=shard[0],
        )
        for shard in SHARDS
    ]
    return [*quick, *(step for step in STATIC if step.is_fast)] if is_fast else [slow, *quick, *STATIC]


def slow_tests() -> list[str]:
    """Those that take long or start processes, on two workers; files without any are not even loaded."""
    files = [
        str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.slow" in path.read_text("utf-8")
    ]
    return pytest_command(
        "junit-slow", "-m", "slow", "-n", "2", "--dist", "worksteal", "--durations=10", *MEASURED, *files
    )


class Result(NamedTuple):
    """How a step ended."""

    name: str
    passed: bool
    seconds: float
    crashes: int = 0


def run(step: Step) -> Result:
    """Run one step, and show what it has printed when it has ended.

    Coverage traces by a C extension, and once CPython 3.11 ended by SIGSEGV while it did so in a program of several threads.
    That is no verdict on a test: the step runs a second time, and the table says so. A second crash fails.
    """
    started = time.monotonic()
    ended, crashes = start(step), 0
    if ended.returncode == -signal.SIGSEGV and step.data:
        with SCREEN:
            print(
                f"\n=== {step.name}: the interpreter crashed",
                ended.stdout.decode(errors="replace"),
                sep="\n",
                flush=True,
            )
        ended, crashes = start(step), 1
    result = Result(step.name, ended.returncode == 0, time.monotonic() - started, crashes)
    with SCREEN:
        print(f"\n=== {step.name}: {result.seconds:.1f} s")
        sys.stdout.flush()
        sys.stdout.buffer.write(ended.stdout)
        sys.stdout.flush()
    return result


def start(step: Step) -> subprocess.CompletedProcess[bytes]:
    """Run the command of a step to its end."""
    return subprocess.run(
        step.command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment() | ({"COVERAGE_FILE": str(COVERAGE / step.data)} if step.data else {}),
        check=False,
    )


def environment() -> dict[str, str]:
    """Our own, without what would change results: coverage settings of an outer run and flags for the interpreter."""
    dropped = ("COVERAGE_", "COV_", "PYTEST_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONSTARTUP")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def coverage_failures(report: Path) -> list[str]:
    """Compare what was measured with what we ask for; one line per miss."""
    measured = json.loads(report.read_text(encoding="utf-8"))
    failures = []
    for kind in ("statements", "branches"):
        percent = measured["totals"][f"percent_{kind}_covered"]
        print(f"{kind} covered: {percent:.2f} % (at least {TOTAL_LIMIT:.0f} %)")
        if percent < TOTAL_LIMIT:
            failures.append(
                f"{kind}: {percent:.2f} % is below {TOTAL_LIMIT:.0f} %; most is missing in {worst(measured)}"
            )
    for name in FULL_COVERAGE:
        file = measured["files"].get(f"src/graphbus_core/{name}")
        if file is None:
            failures.append(f"{name} was not measured")
        elif file["summary"]["percent_covered"] < 100:
            failures.append(f"{name}: lines {file['missing_lines']}, branches {file['missing_branches']} not covered")
    return failures


def worst(measured: dict[str, dict[str, dict[str, dict[str, int]]]]) -> str:
    """Name the five files that miss the most."""

    def missed(name: str) -> int:
        summary = measured["files"][name]["summary"]
        return summary["missing_lines"] + summary["missing_branches"]

    return ", ".join(f"{name} ({missed(name)})" for name in sorted(measured["files"], key=missed, reverse=True)[:5])


def check_coverage() -> int:
    """The step `coverage`."""
    measure = [PYTHON, "-m", "coverage"]
    data, report = f"--data-file={COVERAGE / 'all'}", REPORT / "coverage.json"
    subprocess.run([*measure, "combine", "--quiet", data, *map(str, COVERAGE.iterdir())], cwd=ROOT, check=True)
    subprocess.run([*measure, "json", "--quiet", data, "-o", str(report)], cwd=ROOT, check=True)
    failures = coverage_failures(report)
    for failure in failures:
        print(failure)
    return bool(failures)


def show_figures() -> None:
    """Print what the tests have measured, by the fixture `figure`."""
    lines = [line for path in sorted(REPORT.glob("figures/*.txt")) for line in path.read_text("utf-8").splitlines()]
    if lines:
        print("\n=== figures", *lines, sep="\n  ")


def main() -> int:
    """Run the steps and print the closing table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="static checks and the quick tests only")
    parser.add_argument("--coverage", action="store_true", help="judge the coverage that the last run measured")
    options = parser.parse_args()
    if options.coverage:
        return check_coverage()
    shutil.rmtree(REPORT, ignore_errors=True)
    COVERAGE.mkdir(parents=True)
    started = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(run, steps(is_fast=options.fast)))
    results += [run(step) for step in AFTERWARDS if not options.fast]
    show_figures()
    print("\n=== summary")
    for result in results:
        print(
            f"{'ok  ' if result.passed else 'FAIL'}  {result.name:<18}{result.seconds:7.1f} s{'   crashed once' * result.crashes}"
        )
    print(f"      {'in all':<18}{time.monotonic() - started:7.1f} s")
    failed = [result.name for result in results if not result.passed]
    print(f"{'failed: ' + ', '.join(failed) if failed else 'everything passed'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
