"""The step `coverage` of `make test` fails when it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.test import FULL_COVERAGE, coverage_failures


def report(folder: Path, *, statements: float = 100, branches: float = 100, **files: float) -> Path:
    """A report in which the files that must be covered whole are, but for those that are named."""
    measured = {f"src/graphbus_core/{name}": file(files.get(Path(name).stem, 100.0)) for name in FULL_COVERAGE}
    totals = {"percent_statements_covered": statements, "percent_branches_covered": branches}
    path = folder / "coverage.json"
    path.write_text(json.dumps({"totals": totals, "files": measured}), encoding="utf-8")
    return path


def file(percent: float) -> dict[str, object]:
    summary = {"percent_covered": percent, "missing_lines": 1, "missing_branches": 1}
    return {"summary": summary, "missing_lines": [7], "missing_branches": [[7, 9]]}


@pytest.mark.parametrize(
    ("measured", "named"),
    [
        ({}, []),
        ({"statements": 94.9}, ["statements: 94.90 %"]),
        ({"branches": 94.9}, ["branches: 94.90 %"]),
        ({"votes": 99.9}, ["negotiation/votes.py: lines [7]"]),
        ({"message_bus": 99.9, "gate": 50.0}, ["editing/gate.py", "bus/message_bus.py"]),
    ],
)
def test_a_miss_of_the_total_or_of_a_file_is_a_failure(
    tmp_path: Path, measured: dict[str, float], named: list[str]
) -> None:
    failures = coverage_failures(report(tmp_path, **measured))
    assert len(failures) == len(named)
    assert all(failure.startswith(start) for failure, start in zip(failures, named, strict=True))


def test_a_file_that_was_not_measured_is_a_failure(tmp_path: Path) -> None:
    path = report(tmp_path)
    whole = json.loads(path.read_text(encoding="utf-8"))
    del whole["files"]["src/graphbus_core/bus/message_bus.py"]
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert coverage_failures(path) == ["bus/message_bus.py was not measured"]
