"""A crash of the interpreter while coverage traces is no verdict: the step runs once more, and the table says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.test import Step, run

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def crashing(folder: Path, *, times: int) -> list[str]:
    """A program that crashes so many times before it passes."""
    count = folder / "count"
    count.write_text("")
    once = f"import pathlib; p = pathlib.Path({str(count)!r}); n = len(p.read_text()); p.write_text('x' * (n + 1))"
    return [sys.executable, "-c", f"{once}\nif n < {times}:\n    {CRASH}"]


@pytest.mark.parametrize(("times", "passed", "crashes"), [(0, True, 0), (1, True, 1), (2, False, 1)])
def test_a_measured_step_that_crashes_runs_once_more(tmp_path: Path, times: int, passed: bool, crashes: int) -> None:
    result = run(Step("it", crashing(tmp_path, times=times), data=str(tmp_path / "data")))
    assert (result.passed, result.crashes) == (passed, crashes)


def test_another_failure_and_a_step_without_coverage_do_not(tmp_path: Path) -> None:
    failed = run(Step("it", [sys.executable, "-c", "raise SystemExit(1)"], data=str(tmp_path / "data")))
    unmeasured = run(Step("it", crashing(tmp_path, times=1)))
    assert [(each.passed, each.crashes) for each in (failed, unmeasured)] == [(False, 0), (False, 0)]
