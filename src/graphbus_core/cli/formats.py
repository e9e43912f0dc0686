"""Reports of findings as text, JSON, SARIF 2.1.0 and annotations of GitHub.

A `Remark` holds the fields that SARIF and annotations have in common; `check`, `gate` and `contract` make remarks of findings.
Nothing is printed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from graphbus_core import __version__
from graphbus_core.cli import console
from graphbus_core.cli.console import Verbatim, pluralize, sanitize, style
from graphbus_core.compiler.rules import REGISTER
from graphbus_core.contracts.edges import VERDICTS, ContractValidation
from graphbus_core.errors import GraphBusError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding, Fix, Severity

_MAX_RELATED = 3
_LEAST_ROOM = 40
"""If a terminal has fewer columns for source lines, they are not shortened."""
_SARIF_LEVELS: Mapping[str, str] = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS: Mapping[str, str] = {"error": "error", "warning": "warning", "info": "notice"}
_GITHUB_KEYS = {"startLine": "line", "endLine": "endLine", "startColumn": "col", "endColumn": "endColumn"}
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}
_ROLES: Mapping[str, console.Role] = {"error": "bad", "warning": "warn", "info": "name"}


class _SourceText(Protocol):
    """The text of a source file and its lines."""

    @property
    def utf8(self) -> bytes:
        """The text in UTF-8."""

    @property
    def line_starts(self) -> tuple[int, ...]:
        """The offset in bytes at which each line begins."""


class CheckReport(msgspec.Struct, frozen=True):
    """The result of a check.

    Attributes:
        findings: All findings, sorted by place.
        errors: Files that could not be read, and other errors that stop a build.
        root: The project root, absolute; all paths are below it.
        source: Path -> source file.
        fix_of: Finding -> its fix, or None.
        fixed: The findings that `--fix` has fixed, with their fixes.
        files: How many files were read.
        agents: How many agents they contain.
        only: The files that are reported; empty means all.
        edges: The edges with an end in the reported files, with their verdicts.
        unread: Places with a topic that is computed at run time and therefore unknown.
    """

    findings: tuple[Finding, ...]
    errors: tuple[GraphBusError, ...]
    root: str
    source: Callable[[str], _SourceText]
    fix_of: Callable[[Finding], Fix | None]
    fixed: tuple[tuple[Finding, Fix], ...] = ()
    files: int = 0
    agents: int = 0
    only: tuple[str, ...] = ()
    edges: ContractValidation = ContractValidation(())
    unread: tuple[SourceSpan, ...] = ()

    def count(self, severity: str) -> int:
        """Return the number of findings with a severity; the errors of the report count as findings of the severity error."""
        unread = len(self.errors) if severity == "error" else 0
        return sum(finding.severity == severity for finding in self.findings) + unread

    @property
    def fixable_counts(self) -> tuple[int, int]:
        """How many findings `--fix` would fix, and how many a negotiation may fix."""
        safe = sum(finding.is_fix_safe for finding in self.findings)
        return safe, sum(finding.is_fixable for finding in self.findings) - safe

    def shown(self, path: str) -> str:
        """Return a path of the project relative to the working directory."""
        return os.path.relpath(os.path.join(self.root, path)) if path else path

    def line(self, span: SourceSpan, number: int = 0) -> str:
        """Return the text of a line, by default the first of the span."""
        source = self.source(span.path)
        number = number or span.line
        starts = source.line_starts
        end = starts[number] if number < len(starts) else len(source.utf8)
        return source.utf8[starts[number - 1] : end].decode().rstrip("\r\n")

    def columns(self, span: SourceSpan) -> tuple[int, int]:
        """Return the first and the end column of a span, in characters that count from 1; the end is exclusive."""
        first, last = self.line(span).encode(), self.line(span, span.end_line).encode()
        start = len(first[: span.column].decode(errors="ignore"))
        return start + 1, len(last[: span.end_column].decode(errors="ignore")) + 1

    def region(self, span: SourceSpan) -> dict[str, int]:
        """Return a span as a SARIF region."""
        start, end = self.columns(span)
        return {"startLine": span.line, "startColumn": start, "endLine": span.end_line, "endColumn": end}


# --- text -------------------------------------------------------------------------------------


def as_text(report: CheckReport) -> Iterator[str]:
    """Yield each finding with its source line, related places, hint and fix; then a summary."""
    for finding in report.findings:
        yield from _finding_lines(finding, report)
        yield ""
    extent = f"{pluralize(report.agents, 'agent')} in {pluralize(report.files, 'file')}"
    if report.findings or report.errors:
        yield _count_findings(report)
    elif report.only:  # the other files were only read for their edges
        names = ", ".join(map(report.shown, report.only))
        yield f"{style('✓', 'good')} {sanitize(names)}: nothing to say. Read with it: {extent}."
    else:
        fits = "nothing wrong was found" if report.edges.count("unknown") else "everything fits together"
        yield f"{style('✓', 'good')} {extent}: {fits if report.agents else 'nothing to check'}."
    yield from _summary_lines(report)


def _summary_lines(report: CheckReport) -> Iterator[str]:
    """Yield the places of topics that are computed at run time, and the number of edges by verdict."""
    if report.unread:
        places = [f"{sanitize(report.shown(span.path))}:{span.line}" for span in report.unread]
        rest = f" and {len(places) - _MAX_RELATED} more" if len(places) > _MAX_RELATED else ""
        topics = f"{pluralize(len(places), 'topic')} computed at run time"
        listed = ", ".join(places[:_MAX_RELATED])
        yield f"Not read: {topics} ({listed}{rest}). What would need {'it' if len(places) == 1 else 'them'} is not reported."
    if report.edges.edges:
        yield report.edges.summary


def _finding_lines(finding: Finding, report: CheckReport) -> Iterator[str]:
    """Yield the lines of one finding."""
    role = _ROLES[finding.severity]
    label = style(finding.code, role) + (" note:" if finding.severity == "info" else "")
    yield f"{style(sanitize(_format_place(finding.span, report)), 'strong')}: {label} {sanitize(finding.message)}"
    related = finding.related[:_MAX_RELATED]
    width = max(len(str(span.line)) for span in (finding.span, *(each.span for each in related)))
    margin = " " * width
    yield from _excerpt_lines(finding.span, "^", role, width, report)
    for each in related:
        yield f"{margin} {style('::', 'dim')} {sanitize(_format_place(each.span, report))}: {sanitize(each.message)}"
        yield from _excerpt_lines(each.span, "-", "name", width, report)
    rest, fix = len(finding.related) - _MAX_RELATED, report.fix_of(finding)
    notes = [f"and {pluralize(rest, 'more place')}"] if rest > 0 else []
    notes += [f"{style('help:', 'name')} {sanitize(finding.hint)}"] if finding.hint else []
    if fix is not None:
        notes.append(
            f"{style('fix:', 'good')} {sanitize(fix.title)} ({'--fix' if fix.is_safe else 'graphbus negotiate'})"
        )
    yield from (f"{margin} {style('=', 'dim')} {note}" for note in notes)


def _format_place(span: SourceSpan, report: CheckReport) -> str:
    return f"{report.shown(span.path)}:{span.line}:{report.columns(span)[0]}"


def _excerpt_lines(span: SourceSpan, mark: str, role: console.Role, width: int, report: CheckReport) -> Iterator[str]:
    """Yield the first line of a span and a mark below it; a narrow terminal shows only the part around the mark."""
    line = report.line(span)
    start, end = report.columns(span)
    if span.end_line > span.line:
        end = len(line) + 1
    line, start, end = _crop_line(line, start, end, console.terminal_width() - width - 3)
    before = "".join("\t" if letter == "\t" else " " for letter in line[: start - 1])
    bar = style("|", "dim")
    yield Verbatim(f"{style(str(span.line).rjust(width), 'dim')} {bar} {sanitize(line)}")
    yield Verbatim(f"{' ' * width} {bar} {before}{style(mark * max(end - start, 1), role)}")


def _crop_line(line: str, start: int, end: int, room: int) -> tuple[str, int, int]:
    """Shorten a line to `room` columns so that the mark stays visible; return it with the columns of the mark, from 1.

    First its indentation is cut, then what is far from the mark.
    """
    if len(line) <= room or room < _LEAST_ROOM:
        return line, start, end
    cut = min(len(line) - len(line.lstrip()), start - 1)
    line, start, end = line[cut:], start - cut, end - cut
    if end > room:
        cut = max(min(end - room, start - _LEAST_ROOM // 2), 0)
        line, start, end = f"…{line[cut + 1 :]}" if cut else line, start - cut, end - cut
    return (line, start, end) if len(line) <= room else (f"{line[: room - 1]}…", start, min(end, room + 1))


def _count_findings(report: CheckReport) -> str:
    """Return `Found 2 errors in 1 file.`, and how many findings can be fixed by which command."""
    places = {finding.span.path for finding in report.findings}
    places |= {error.where.path for error in report.errors if error.where}
    numbers = {noun: report.count(severity) for severity, noun in _NOUNS.items()}
    found = ", ".join(pluralize(number, noun) for noun, number in numbers.items() if number)
    safe, other = report.fixable_counts
    commands = [f"{safe} with `graphbus check --fix`"] if safe else []
    commands += [f"{other} by the agents, with `graphbus negotiate`"] if other else []
    fixable = f" Can be fixed: {', '.join(commands)}." if commands else ""
    return f"Found {found} in {pluralize(len(places), 'file')}.{fixable}"


# --- JSON -------------------------------------------------------------------------------------


def as_json(report: CheckReport) -> dict[str, Any]:
    """Return the report for `--json`: paths relative to `root`, lines and columns in characters from 1, exclusive ends."""
    safe, other = report.fixable_counts
    counts = {f"{noun}s": report.count(severity) for severity, noun in _NOUNS.items()}
    return {
        "root": report.root,
        "findings": [_finding_as_document(finding, report) for finding in report.findings],
        "errors": [console.error_as_json(error) for error in report.errors],
        "fixed": [
            {"code": finding.code, "path": finding.span.path, "agent": finding.agent, "title": fix.title}
            for finding, fix in report.fixed
        ],
        "edges": {"total": len(report.edges.edges), **{each: report.edges.count(each) for each in VERDICTS}},
        "unread": [{"path": span.path, "line": span.line} for span in report.unread],
        "summary": {**counts, "fixable": safe, "negotiable": other, "agents": report.agents, "files": report.files},
    }


def _finding_as_document(finding: Finding, report: CheckReport) -> dict[str, Any]:
    """Return a finding with its place, related places and fix, as in JSON output."""
    fix = report.fix_of(finding)
    fields = {name: getattr(fix, name) for name in ("title", "intent", "is_safe", "affects")} if fix else None
    return {
        "code": finding.code,
        "severity": finding.severity,
        "agent": finding.agent,
        **_place_as_document(finding.span, report),
        "message": finding.message,
        "hint": finding.hint,
        "related": [
            {"agent": related.agent, **_place_as_document(related.span, report), "message": related.message}
            for related in finding.related
        ],
        "fix": fields,
    }


def _place_as_document(span: SourceSpan, report: CheckReport) -> dict[str, Any]:
    start, end = report.columns(span)
    return {"path": span.path, "line": span.line, "column": start, "end_line": span.end_line, "end_column": end}


# --- remarks ----------------------------------------------------------------------------------


class Remark(NamedTuple):
    """A message about a line of a file, a whole file or no file.

    Attributes:
        code: The code of the rule or error; on GitHub the title begins with it.
        title: The name of the rule, or another title.
        path: The file, relative to the root; empty for none.
        region: `startLine`, `startColumn`, `endLine` and `endColumn` of SARIF, those that are known.
        related: Message, path and region of other places.
        key: Identifies the remark in later reports, even if its line has moved.
    """

    severity: Severity
    code: str
    title: str
    message: str
    hint: str = ""
    path: str = ""
    region: Mapping[str, int] = {}
    related: tuple[tuple[str, str, Mapping[str, int]], ...] = ()
    key: tuple[str, ...] = ()


def remarks_of(report: CheckReport) -> Iterator[Remark]:
    """Yield the findings of a check as remarks."""
    for each in report.findings:
        related = tuple((other.message, other.span.path, report.region(other.span)) for other in each.related)
        yield Remark(
            each.severity, each.code, REGISTER[each.code].title, each.message, each.hint, each.span.path,
            report.region(each.span), related, (each.span.path, *each.key),
        )  # fmt: skip


def remark_of(error: GraphBusError) -> Remark:
    """Return an error as a remark; unknown parts of its place are left out of the region."""
    where = error.where
    region = {"startLine": where.line, "startColumn": where.column} if where else {}
    path = where.path if where else ""
    return Remark(
        "error", error.code, "", error.sentence, error.hint, path, {key: at for key, at in region.items() if at}
    )


def as_sarif(
    tool: str, root: str, remarks: Iterable[Remark], errors: Sequence[GraphBusError] = (), about: Mapping[str, str] = {}
) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log with one run.

    Args:
        tool: The name of the tool.
        root: The folder that all paths are relative to.
        remarks: The results; those with the same code have the same title.
        errors: Files that could not be read; they become notifications of the invocation.
        about: Code of a rule -> its description; the default is its title.
    """
    found = list(remarks)
    titles = {each.code: each.title for each in sorted(found, key=lambda each: each.code)}
    rules = [_sarif_rule(code, title, about.get(code, title)) for code, title in titles.items()]
    notes = [_sarif_notification(remark_of(error)) for error in errors]
    run = {
        "tool": {"driver": {"name": tool, "semanticVersion": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": f"file://{_quote_path(root)}/"}},
        "invocations": [{"executionSuccessful": not errors, "toolExecutionNotifications": notes}],
        "results": [_sarif_result(each, [*titles].index(each.code)) for each in found],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _sarif_rule(code: str, title: str, about: str) -> dict[str, Any]:
    """Return a rule as a SARIF `reportingDescriptor`; codes that are no rule of `check` have the level error."""
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in title.split()),
        "shortDescription": {"text": title},
        "fullDescription": {"text": about},
        "defaultConfiguration": {"level": _SARIF_LEVELS[REGISTER[code].severity] if code in REGISTER else "error"},
    }


def _sarif_result(remark: Remark, index: int) -> dict[str, Any]:
    """Return a remark as a SARIF result; `index` is the position of its rule."""
    related = [
        {"id": number, "message": {"text": message}, **_sarif_location(path, region)}
        for number, (message, path, region) in enumerate(remark.related, 1)
    ]
    return {
        "ruleId": remark.code,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[remark.severity],
        "message": {"text": f"{remark.message.rstrip('.')}. {remark.hint}".rstrip()},
        "locations": [_sarif_location(remark.path, remark.region)] if remark.path else [],
        "relatedLocations": related,
        "partialFingerprints": {"finding/v1": sha256_hex("\0".join(remark.key).encode())[:32]},
    }


def _sarif_notification(remark: Remark) -> dict[str, Any]:
    """Return an error of reading as a SARIF notification."""
    return {
        "level": "error",
        "message": {"text": f"{remark.message} {remark.hint}".rstrip()},
        "descriptor": {"id": remark.code},
        "locations": [_sarif_location(remark.path, remark.region)] if remark.path else [],
    }


def _sarif_location(path: str, region: Mapping[str, int]) -> dict[str, Any]:
    where = {"artifactLocation": {"uri": _quote_path(path), "uriBaseId": "SRCROOT"}}
    return {"physicalLocation": {**where, "region": dict(region)} if region else where}


def _quote_path(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


# --- GitHub -----------------------------------------------------------------------------------


def as_github(root: str, remarks: Iterable[Remark]) -> Iterator[str]:
    """Yield one workflow command for each remark; GitHub shows it beside the line in a pull request."""
    for remark in remarks:
        places = {"file": _path_for_annotation(root, remark.path)} if remark.path else {}
        region = {name: remark.region[key] for key, name in _GITHUB_KEYS.items() if key in remark.region}
        title = f"{remark.code} {remark.title}".strip()
        properties = {**places, **region, "title": title}
        listed = ",".join(f"{key}={_escape_for_github(str(value), ',:')}" for key, value in properties.items())
        related = [
            f"{_path_for_annotation(root, path)}:{region['startLine']}: {message}"
            for message, path, region in remark.related
        ]
        message = "\n".join(filter(None, (remark.message, *related, remark.hint)))
        yield Verbatim(f"::{_GITHUB_LEVELS[remark.severity]} {listed}::{_escape_for_github(message)}")


def _escape_for_github(text: str, also: str = "") -> str:
    """Replace `%`, line ends and the letters in `also` by percent codes, as workflow commands require."""
    for letter in "%\r\n" + also:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def _path_for_annotation(root: str, path: str) -> str:
    """Return a path for an annotation: relative to the top of the repository.

    Without a repository it is relative to the workspace of the job, or else to the working directory. Without a root (for a
    revision) the path is returned unchanged.
    """
    if not root:
        return path
    folder = Path(os.path.abspath(root))
    tops = (str(each) for each in (folder, *folder.parents) if os.path.lexists(each / ".git"))
    return Path(os.path.relpath(folder / path, next(tops, None) or _workspace_of(folder))).as_posix()


def _workspace_of(folder: Path) -> str:
    """Return the workspace of the GitHub job if it contains the folder, else the working directory."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    return workspace if workspace and folder.is_relative_to(workspace) else os.getcwd()
