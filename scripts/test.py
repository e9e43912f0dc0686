"""Everything that must hold before a change is done: `make test`; with `--fast` the part that takes about a minute.

Each step is a command; all run, also after a failure, and a table of what happened closes the output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / ".testreport"
BIN = Path(sys.executable).parent
PYTHON = sys.executable

TOTAL_LIMIT = 95.0
FULL_COVERAGE = (
    "negotiation/engine.py", "negotiation/transitions.py", "negotiation/votes.py", "editing/edits.py", "editing/gate.py",
    "bus/core.py", "bus/outcomes.py", "bus/sync.py", "bus/loop.py", "bus/failures.py", "bus/routes.py", "bus/signatures.py",
    "bus/dead_letters.py", "bus/message_bus.py", "bus/closing.py", "bus/waiting.py",
)  # fmt: skip


class Step(NamedTuple):
    """A command of the suite; `is_fast` if `--fast` runs it too."""

    name: str
    command: list[str]
    is_fast: bool = True


def pytest_command(*extra: str) -> list[str]:
    """All tests on two processes, with the hypothesis examples that are the same every time."""
    return [PYTHON, "-m", "pytest", "-n", "2", "--dist", "worksteal", "--hypothesis-profile=ci", *extra]


FULL_TESTS = pytest_command(
    f"--junitxml={REPORT / 'junit.xml'}",
    "--durations=10",
    "--cov", "--cov-report=", f"--cov-report=json:{REPORT / 'coverage.json'}",
)  # fmt: skip

STEPS = [
    Step("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    Step("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    Step("types", [str(BIN / "mypy")]),
    Step("floor plan", [str(BIN / "lint-imports"), "--no-cache"]),
    Step("artifact schemas", [PYTHON, "scripts/schemas.py", "--check"]),
    Step("generated pages", [PYTHON, "scripts/reference.py", "--check"]),
    Step("weight", [PYTHON, "scripts/weight.py"]),
    Step("tests", FULL_TESTS, is_fast=False),
    Step("coverage", [PYTHON, "scripts/test.py", "--coverage"], is_fast=False),
    Step("guarantees", [PYTHON, "scripts/guarantees.py"], is_fast=False),
    Step("documentation", [PYTHON, "scripts/docs.py"], is_fast=False),
]
FAST_TESTS = Step("quick tests", pytest_command("-m", "not slow"))


class Result(NamedTuple):
    """How a step ended."""

    name: str
    passed: bool
    seconds: float


def run(step: Step) -> Result:
    """Run one step with its output on our own."""
    print(f"\n=== {step.name}", flush=True)
    started = time.monotonic()
    status = subprocess.run(step.command, cwd=ROOT, stdin=subprocess.DEVNULL, env=environment(), check=False).returncode
    return Result(step.name, status == 0, time.monotonic() - started)


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
    failures = coverage_failures(REPORT / "coverage.json")
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
    shutil.rmtree(REPORT if not options.fast else REPORT / "figures", ignore_errors=True)
    results = [run(step) for step in STEPS if step.is_fast or not options.fast]
    if options.fast:
        results.append(run(FAST_TESTS))
    show_figures()
    print("\n=== summary")
    for result in results:
        print(f"{'ok  ' if result.passed else 'FAIL'}  {result.name:<18}{result.seconds:7.1f} s")
    failed = [result.name for result in results if not result.passed]
    print(f"{'failed: ' + ', '.join(failed) if failed else 'everything passed'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
