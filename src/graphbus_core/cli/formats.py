"""Findings as text, JSON, SARIF 2.1.0 and annotations: the commands by which a job tells GitHub what to show beside lines.

Nothing is printed here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from graphbus_core import __version__
from graphbus_core.cli import console
from graphbus_core.compiler.rules import REGISTER
from graphbus_core.errors import GraphBusError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Fix, Related

_MOST_RELATED = 3
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
ANNOTATION_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class _Lines(Protocol):
    """A source file, as far as its lines are shown."""

    @property
    def utf8(self) -> bytes:
        """The text in UTF-8."""

    @property
    def line_starts(self) -> tuple[int, ...]:
        """Where each line begins."""


class Report(msgspec.Struct, frozen=True):
    """What a check has to say.

    Attributes:
        findings: By place.
        errors: Files that could not be read and what else stops a build.
        root: The project root, absolute; all paths are below it.
        source: Gives a file by its path.
        fix_of: Gives the change that mends a finding, if there is one.
        fixed: What `--fix` mended.
        files: How many files were read, and
        agents: how many agents they hold.
        asked: If only some files are reported, those of them that were read, and
        unread: those that were not.
        elsewhere: What was found in the other files, counted.
    """

    findings: tuple[Finding, ...]
    errors: tuple[GraphBusError, ...]
    root: str
    source: Callable[[str], _Lines]
    fix_of: Callable[[Finding], Fix | None]
    fixed: tuple[tuple[Finding, Fix], ...] = ()
    files: int = 0
    agents: int = 0
    asked: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    elsewhere: str = ""

    def count(self, severity: str) -> int:
        """Count the findings of a severity; errors of reading count as errors."""
        return count(severity, self.findings, self.errors)

    def shown(self, path: str) -> str:
        """Give a path as seen from the working directory."""
        return os.path.relpath(os.path.join(self.root, path)) if path else path

    def line(self, span: SourceSpan, number: int = 0) -> str:
        """Give the text of a line, the first of the span if none is named."""
        source = self.source(span.path)
        number = number or span.line
        starts = source.line_starts
        end = starts[number] if number < len(starts) else len(source.utf8)
        return source.utf8[starts[number - 1] : end].decode().rstrip("\r\n")

    def columns(self, span: SourceSpan) -> tuple[int, int]:
        """Give where a span begins and ends, in characters that count from 1; the end is exclusive."""
        first, last = self.line(span).encode(), self.line(span, span.end_line).encode()
        start = len(first[: span.column].decode(errors="ignore"))
        return start + 1, len(last[: span.end_column].decode(errors="ignore")) + 1


# --- text -------------------------------------------------------------------------------------


def as_text(report: Report) -> Iterator[str]:
    """Show each finding with its line, the other end of the edge with its own, and what to do; then a summary."""
    for finding in report.findings:
        yield from finding_lines(finding, report)
        yield ""
    yield from _summary(report)


def finding_lines(finding: Finding, report: Report) -> Iterator[str]:
    """Show one finding as `as_text` does."""
    role: console.Role = "bad" if finding.severity == "error" else "warn" if finding.severity == "warning" else "name"
    place = f"{report.shown(finding.span.path)}:{finding.span.line}:{report.columns(finding.span)[0]}:"
    label = console.paint(finding.code, role) + (" note:" if finding.severity == "info" else "")
    yield f"{console.paint(console.plain(place), 'strong')} {label} {console.plain(finding.message)}"
    spans = [finding.span, *(related.span for related in finding.related[:_MOST_RELATED])]
    width = max(len(str(span.line)) for span in spans)
    yield from _excerpt(finding.span, "^", role, width, report)
    for related in finding.related[:_MOST_RELATED]:
        yield from _related_lines(related, width, report)
    rest = len(finding.related) - _MOST_RELATED
    if rest > 0:
        yield f"{' ' * width} {console.paint('=', 'dim')} and {rest} more {'place' if rest == 1 else 'places'}"
    margin = f"{' ' * width} {console.paint('=', 'dim')}"
    if finding.hint:
        yield f"{margin} {console.paint('help:', 'name')} {console.plain(finding.hint)}"
    fix = report.fix_of(finding)
    if fix is not None:
        way = "--fix" if fix.is_safe else "graphbus negotiate"
        yield f"{margin} {console.paint('fix:', 'good')} {console.plain(fix.title)} ({way})"


def _related_lines(related: Related, width: int, report: Report) -> Iterator[str]:
    place = f"{report.shown(related.span.path)}:{related.span.line}:{report.columns(related.span)[0]}"
    yield f"{' ' * width} {console.paint('::', 'dim')} {console.plain(place)}: {console.plain(related.message)}"
    yield from _excerpt(related.span, "-", "name", width, report)


def _excerpt(span: SourceSpan, mark: str, role: console.Role, width: int, report: Report) -> Iterator[str]:
    line = report.line(span)
    start, end = report.columns(span)
    if span.end_line > span.line:
        end = len(line) + 1
    before = "".join("\t" if letter == "\t" else " " * _cells(letter) for letter in line[: start - 1])
    length = sum(map(_cells, line[start - 1 : end - 1])) or 1
    bar = console.paint("|", "dim")
    number = console.paint(str(span.line).rjust(width), "dim")
    yield f"{number} {bar} {console.plain(line)}"
    yield f"{' ' * width} {bar} {before}{console.paint(mark * length, role)}"


def _cells(letter: str) -> int:
    if letter.isascii():
        return 1
    from unicodedata import combining, east_asian_width

    return 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1


def _summary(report: Report) -> Iterator[str]:
    for path in report.unread:
        yield f"{console.plain(report.shown(path))}: not read, for it is a test or excluded."
    extent = f"{console.counted(report.agents, 'agent')} in {console.counted(report.files, 'file')}"
    if report.findings or report.errors:
        yield _found(report)
    elif report.asked:  # speaks for the files that were asked for, and not for those that were only read with them
        names, they = (
            console.plain(", ".join(map(report.shown, report.asked))),
            "it" if len(report.asked) == 1 else "them",
        )
        rest = f"; what was found there, {report.elsewhere}, is not shown" if report.elsewhere else ""
        yield f"{console.paint('✓', 'good')} {names}: nothing to say. Read with {they}: {extent}{rest}."
    elif not report.unread:
        verdict = "everything fits together" if report.agents else "nothing to check"
        yield f"{console.paint('✓', 'good')} {extent}: {verdict}."


def count(severity: str, findings: Iterable[Finding], errors: Sequence[GraphBusError]) -> int:
    """Count the findings of a severity; errors of reading count as errors."""
    return sum(finding.severity == severity for finding in findings) + (len(errors) if severity == "error" else 0)


def counts(findings: Sequence[Finding], errors: Sequence[GraphBusError]) -> str:
    """Count by severity: `1 error, 2 notes`; empty for nothing."""
    nouns = {"error": "error", "warning": "warning", "info": "note"}
    numbers = {noun: count(severity, findings, errors) for severity, noun in nouns.items()}
    return ", ".join(console.counted(number, noun) for noun, number in numbers.items() if number)


def _found(report: Report) -> str:
    places = {finding.span.path for finding in report.findings}
    places |= {error.where.path for error in report.errors if error.where}
    found = counts(report.findings, report.errors)
    safe = sum(finding.is_fix_safe for finding in report.findings)
    other = sum(finding.is_fixable for finding in report.findings) - safe
    ways = [f"{safe} with `graphbus check --fix`"] if safe else []
    ways += [f"{other} by the agents, with `graphbus negotiate`"] if other else []
    mendable = f" Can be mended: {', '.join(ways)}." if ways else ""
    return f"Found {found} in {console.counted(len(places), 'file')}.{mendable}"


def statistics(findings: Iterable[Finding]) -> Iterator[str]:
    """Count the findings of each rule, the most frequent first."""
    found = Counter(sorted(finding.code for finding in findings)).most_common()
    for code, number in found:
        yield f"{number:>{len(str(found[0][1]))}}  {code}  {REGISTER[code].title}"


# --- JSON -------------------------------------------------------------------------------------


def as_json(report: Report) -> dict[str, Any]:
    """One document; paths are relative to `root`, lines and columns count from 1 in characters, ends are exclusive."""
    safe = sum(finding.is_fix_safe for finding in report.findings)
    return {
        "root": report.root,
        "findings": [_finding_document(finding, report) for finding in report.findings],
        "errors": [console.describe(error) for error in report.errors],
        "fixed": [
            {"code": finding.code, "path": finding.span.path, "agent": finding.agent, "title": fix.title}
            for finding, fix in report.fixed
        ],
        "summary": {
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "notes": report.count("info"),
            "fixable": safe,
            "negotiable": sum(finding.is_fixable for finding in report.findings) - safe,
            "agents": report.agents,
            "files": report.files,
        },
    }


def _finding_document(finding: Finding, report: Report) -> dict[str, Any]:
    fix = report.fix_of(finding)
    return {
        "code": finding.code,
        "severity": finding.severity,
        "agent": finding.agent,
        **_place_document(finding.span, report),
        "message": finding.message,
        "hint": finding.hint,
        "related": [
            {"agent": related.agent, **_place_document(related.span, report), "message": related.message}
            for related in finding.related
        ],
        "fix": {"title": fix.title, "intent": fix.intent, "is_safe": fix.is_safe, "affects": list(fix.affects)}
        if fix
        else None,
    }


def _place_document(span: SourceSpan, report: Report) -> dict[str, Any]:
    start, end = report.columns(span)
    return {"path": span.path, "line": span.line, "column": start, "end_line": span.end_line, "end_column": end}


# --- SARIF ------------------------------------------------------------------------------------


def as_sarif(report: Report) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run; files that could not be read are notifications of the invocation."""
    codes = sorted({finding.code for finding in report.findings})
    return sarif_log(
        "GraphBus",
        report.root,
        [_sarif_rule(code) for code in codes],
        [_sarif_result(finding, codes.index(finding.code), report) for finding in report.findings],
        {
            "executionSuccessful": not report.errors,
            "toolExecutionNotifications": [_sarif_notification(error) for error in report.errors],
        },
    )


def sarif_log(
    name: str, root: str, rules: Sequence[object], results: Sequence[object], invocation: Mapping[str, object]
) -> dict[str, Any]:
    """Give a SARIF 2.1.0 log with one run of the tool `name`."""
    run = {
        "tool": {"driver": {"name": name, "semanticVersion": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": f"file://{_quoted(root)}/"}},
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(code: str) -> dict[str, Any]:
    rule = REGISTER[code]
    level = _SARIF_LEVELS[rule.severity]
    return {**sarif_rule(code, rule.title, level, rule.title), "fullDescription": {"text": rule.summary}}


def sarif_rule(code: str, name: str, level: str, text: str) -> dict[str, Any]:
    """Give what a log says of a rule; its name is written in one word."""
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in name.split()),
        "shortDescription": {"text": text},
        "defaultConfiguration": {"level": level},
    }


def _sarif_result(finding: Finding, index: int, report: Report) -> dict[str, Any]:
    related = enumerate(finding.related, 1)
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. {finding.hint}".rstrip()},
        "locations": [{"physicalLocation": _sarif_location(finding.span, report)}],
        "relatedLocations": [
            {"id": number, "message": {"text": each.message}, "physicalLocation": _sarif_location(each.span, report)}
            for number, each in related
        ],
        "partialFingerprints": {"finding/v1": _fingerprint(finding)},
    }


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _fingerprint(finding: Finding) -> str:
    from hashlib import sha256

    return sha256("\0".join((finding.span.path, *finding.key)).encode()).hexdigest()[:32]


def _sarif_location(span: SourceSpan, report: Report) -> dict[str, Any]:
    start, end = report.columns(span)
    return sarif_location(span.path, startLine=span.line, startColumn=start, endLine=span.end_line, endColumn=end)


def sarif_location(path: str, **region: int) -> dict[str, Any]:
    """Give a place below the root of the log; a region without numbers is left out."""
    where = {"artifactLocation": {"uri": _quoted(path), "uriBaseId": "SRCROOT"}}
    return {**where, "region": region} if any(region.values()) else where


def _sarif_notification(error: GraphBusError) -> dict[str, Any]:
    notification: dict[str, Any] = {
        "level": "error",
        "message": {"text": f"{error.sentence} {error.hint}".rstrip()},
        "descriptor": {"id": error.code},
    }
    if error.where:
        place = sarif_location(error.where.path, startLine=error.where.line)
        notification["locations"] = [{"physicalLocation": place}]
    return notification


# --- GitHub -----------------------------------------------------------------------------------


def as_github(report: Report) -> Iterator[str]:
    """One workflow command per finding and error: GitHub shows them beside the lines of a pull request."""
    for error in report.errors:
        where = error.where
        at = {"file": annotated(report.root, where.path), "line": where.line, "col": where.column} if where else {}
        yield annotation("error", at, error.code, [error.sentence, error.hint])
    for finding in report.findings:
        start, end = report.columns(finding.span)
        at = {
            "file": annotated(report.root, finding.span.path),
            "line": finding.span.line,
            "endLine": finding.span.end_line,
            "col": start,
            "endColumn": end,
        }
        related = [
            f"{annotated(report.root, each.span.path)}:{each.span.line}: {each.message}" for each in finding.related
        ]
        title = f"{finding.code} {REGISTER[finding.code].title}"
        yield annotation(ANNOTATION_LEVELS[finding.severity], at, title, [finding.message, *related, finding.hint])


def annotation(level: str, at: dict[str, Any], title: str, lines: Sequence[str]) -> str:
    """Give one workflow command; what is empty in `at` is left out."""
    listed = {**{key: value for key, value in at.items() if value}, "title": title}
    properties = ",".join(f"{key}={_escaped(str(value), ',:')}" for key, value in listed.items())
    message = _escaped("\n".join(line for line in lines if line))
    return f"::{level} {properties}::{message}"


def _escaped(text: str, also: str = "") -> str:
    for letter in "%\r\n" + also:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def annotated(root: str, path: str) -> str:
    """Give a path of a project as annotations name it: from the top of the repository, wherever the command runs.

    Without a repository it is the workspace of the job that counts, and without that the working directory.

    Args:
        root: The project; empty if it is no folder but a revision.
        path: Below the project; empty for no file.
    """
    if not path or not root:
        return path
    return Path(os.path.relpath(os.path.join(root, path), _top_of(root))).as_posix()


def _top_of(root: str) -> str:
    folder = os.path.abspath(root)
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return _workspace_of(root)
    return folder


def _workspace_of(root: str) -> str:
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    is_inside = bool(workspace) and os.path.abspath(root).startswith(os.path.join(workspace, ""))
    return workspace if is_inside else os.getcwd()
