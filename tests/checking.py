"""Projects with the findings that they must give, written where they must be found: `event["skuu"]  #! GB003`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.model.config import Settings
from graphbus_core.model.findings import Finding, Fix
from tests.reading import HEAD, read_files

MARK = "#!"
Files = str | Mapping[str, str]


def as_files(given: Files) -> dict[str, str]:
    """A text is the module `agents.py`; the public names are imported already, on the first line."""
    files = {"agents.py": given} if isinstance(given, str) else given
    return {path: HEAD + dedent(text).removeprefix("\n") for path, text in files.items()}


def marked(files: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """Give the findings that the texts announce, as (path, line, code)."""
    return sorted(
        (path, number, code)
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if MARK in line
        for code in line.partition(MARK)[2].split()
    )


def read(root: Path, given: Files, settings: Settings | None = None) -> Project:
    """Write the files and read the project."""
    return read_files(root, as_files(given), settings)


def found(project: Project, *select: str) -> list[tuple[str, int, str]]:
    """Give what a check finds, as (path, line, code)."""
    return sorted((each.span.path, each.span.line, each.code) for each in rules.check(project, select=select))


def assert_marked(root: Path, given: Files, *select: str, settings: Settings | None = None) -> None:
    """A check finds what is marked and nothing else."""
    project = read(root, given, settings)
    unexpected = [error for error in project.errors if error.code not in rules.COVERED_ERRORS]
    assert unexpected == []
    details = [f"{each.code} {each.span.place} {each.message}" for each in rules.check(project, select=select)]
    assert found(project, *select) == marked(as_files(given)), "\n".join(details)


def only_finding(project: Project, code: str) -> Finding:
    """Give the one finding of a rule."""
    findings = [each for each in rules.check(project, select=[code]) if each.code == code]
    assert len(findings) == 1, [each.message for each in findings]
    return findings[0]


def apply_fix(project: Project, fix: Fix) -> Project:
    """Give the project after a fix, applied by the editor of the negotiation."""
    files = {change.file_path: project.source(change.file_path).data for change in fix.changes}
    for change in fix.changes:
        files[change.file_path] = apply_change(files[change.file_path], change)
    return project.with_files(files)


def fixed(project: Project, code: str) -> Project:
    """Give the project after the fix of the one finding of a rule: it is gone, and no other one has come."""
    finding = only_finding(project, code)
    fix = rules.fix_for(finding, project)
    assert finding.is_fixable
    assert fix is not None
    assert finding.is_fix_safe == fix.is_safe
    wanted = ["ALL"] if code == "GB210" else []  # a method whose schema is completed may be validated less than before
    before = {each.key for each in rules.check(project, select=wanted)}
    after = apply_fix(project, fix)
    left = {each.key for each in rules.check(after, select=wanted)}
    assert finding.key not in left
    assert left <= before, sorted(left - before)
    return after


def text_of(project: Project, path: str = "agents.py") -> str:
    """Give the text of a file without the line of imports at its head."""
    text = project.source(path).text
    return text.removeprefix(HEAD) if text.startswith(HEAD) else text
