"""Every promise of docs/guarantees.md names the test that proves it; that test must exist, have run, and have passed.

Of every test file something must have run, too. What ran is read from .testreport/junit-*.xml, which `make test`
writes. A test that was skipped, because this machine lacks a program that it needs, is named and counts as broken
in CI, where all of them are installed.
"""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
REPORTS = ROOT / ".testreport"

NODE = re.compile(r"`(tests/[^`\s]+::[^`\s]+)`")


class Promise(NamedTuple):
    """An item of the page: its line, its text and the tests that it names."""

    line: int
    text: str
    tests: tuple[str, ...]


def promises(page: str) -> list[Promise]:
    """The items of all lists of the page; an indented line continues its item."""
    items: list[tuple[int, str]] = []
    for number, line in enumerate(page.splitlines(), start=1):
        if line.startswith("- "):
            items.append((number, line[2:]))
        elif line.startswith("  ") and items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
    return [Promise(number, text, tuple(NODE.findall(text))) for number, text in items]


def outcomes(*reports: str) -> dict[str, str]:
    """Node id without parameters -> the worst outcome of its runs: failed, skipped or passed."""
    worst: dict[str, str] = {}
    for case in (case for report in reports for case in ET.fromstring(report).iter("testcase")):
        node = node_of(case.get("classname", ""), case.get("name", ""))
        outcome = outcome_of(case)
        worst[node] = min(outcome, worst.get(node, outcome), key=("failed", "skipped", "passed").index)
    return worst


def node_of(dotted: str, name: str) -> str:
    """`tests.unit.test_bus.TestOrder` and `test_first[1]` as pytest would name them; modules of tests begin with `test_`."""
    parts = dotted.split(".")
    length = next((count for count, part in enumerate(parts, start=1) if part.startswith("test_")), len(parts))
    return "::".join(["/".join(parts[:length]) + ".py", *parts[length:], name.partition("[")[0]])


def outcome_of(case: ET.Element) -> str:
    """How one run of a test ended."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def broken(found: list[Promise], ran: dict[str, str], *, may_skip: bool = False) -> list[str]:
    """One line per promise that names no test, or a test that does not hold; a skipped one holds where that is allowed."""
    fine = {"passed", "skipped"} if may_skip else {"passed"}
    problems = []
    for promise in found:
        if not promise.tests:
            problems.append(f"docs/guarantees.md:{promise.line}: names no test: {promise.text[:80]}")
        for test in promise.tests:
            outcome = ran.get(test, "not run, or there is no such test")
            if outcome not in fine:
                problems.append(f"docs/guarantees.md:{promise.line}: {test}: {outcome}")
    return problems


def left_out(files: list[str], ran: dict[str, str]) -> list[str]:
    """Test files of which nothing ran: a runner that passes over a folder says nothing of it."""
    modules = {node.partition("::")[0] for node in ran}
    return [f"{file}: nothing of it ran" for file in files if file not in modules]


def test_files() -> list[str]:
    """All test files, but for those of the sample projects, which are data."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    return sorted(path.as_posix() for path in paths if "projects" not in path.parts)


def main() -> int:
    """Compare the page with the last full run."""
    reports = sorted(REPORTS.glob("junit-*.xml"))
    if not (REPORTS / "junit-slow.xml").exists():
        print(f"{REPORTS.relative_to(ROOT)} has no report of all tests: run `make test`, which writes it")
        return 1
    found = promises(PAGE.read_text(encoding="utf-8"))
    ran = outcomes(*(report.read_text(encoding="utf-8") for report in reports))
    is_ci = bool(os.environ.get("CI"))
    problems = broken(found, ran, may_skip=not is_ci) + left_out(test_files(), ran)
    for problem in problems:
        print(problem)
    skipped = sum(any(ran.get(test) == "skipped" for test in promise.tests) for promise in found)
    if skipped and not is_ci:
        print(f"{skipped} promises could not be tried in full on this machine: see the tests that were skipped")
    if not found:
        print("docs/guarantees.md makes no promise at all")
    if found and not problems:
        print(f"{len(found)} promises, each with a test that ran and passed")
    return bool(problems) or not found


if __name__ == "__main__":
    sys.exit(main())
