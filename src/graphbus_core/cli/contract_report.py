"""Edges and changes of contracts as text, Markdown, JSON and annotations of GitHub. Nothing is printed here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark, as_github
from graphbus_core.contracts.changes import Broken, ContractChange, Effect
from graphbus_core.contracts.edges import VERDICTS, ContractEdge, ContractValidation, Verdict
from graphbus_core.contracts.versions import Suggestion
from graphbus_core.errors import GraphBusError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Severity

_MARKS: Mapping[Verdict | Effect, tuple[str, console.Role]] = {
    "proven": ("✓", "good"),
    "broken": ("✗", "bad"),
    "unknown": ("?", "warn"),
    "compatible": ("✓", "good"),
    "breaking": ("✗", "bad"),
    "settled": ("~", "warn"),
}
_EFFECTS: tuple[Effect, ...] = ("breaking", "settled", "compatible")
_KINDS = {"method": "method", "call": "call", "depends_on": "depends on", "topic": "event", "request": "request"}
_WIDEST = 90
_PLACE_WIDTH = 50
"""On a terminal without this much room beside the titles, places are not aligned."""


class Comparison(NamedTuple):
    """Two states, what differs between them, what that means for the version, and what the command line allows.

    Attributes:
        root: Of the new state, on disk; empty if it is a revision.
        is_allowed: Breaking changes do not fail.
        may_announce: Raising the version far enough would allow them.
        checks_version: A version that is too low fails.
    """

    old: str
    new: str
    changes: tuple[ContractChange, ...]
    suggestion: Suggestion
    root: str = ""
    is_allowed: bool = False
    may_announce: bool = False
    checks_version: bool = False

    def of(self, effect: Effect) -> tuple[ContractChange, ...]:
        """The changes of one effect."""
        return tuple(change for change in self.changes if change.effect == effect)

    @property
    def is_version_low(self) -> bool:
        """True when the version fails."""
        return self.checks_version and self.suggestion.is_enough is False

    @property
    def fails(self) -> bool:
        """True when the command fails."""
        return self.is_version_low or bool(self.of("breaking") and not self.is_allowed)

    @property
    def way_out(self) -> str:
        """A sentence on how to announce breaking changes with the version; empty if that is not possible or not needed."""
        if not self.of("breaking") or not self.may_announce or self.is_allowed:
            return ""
        found, least = self.suggestion.found, self.suggestion.least
        if not self.suggestion.current or not found:
            return "If it is meant, it can be announced once pyproject.toml gives a `version`, before and after."
        return f"If it is meant, raise `version` in pyproject.toml from {found} to {least} at least."


# --- text -------------------------------------------------------------------------------------


def as_text(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield the report as text: edges (only open ones if there are changes to show), then changes and the next version."""
    if validation:
        lines = [*_edge_lines(validation, root, only_open=comparison is not None)]
        yield from (*lines, "") if lines else ()
        yield _edge_summary(validation)
        yield from ("",) if comparison else ()
    if comparison:
        yield from _change_lines(comparison)


def as_markdown(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield the report for a comment on a pull request, as a code block, so that nothing in it becomes markup."""
    text = click.unstyle("\n".join(as_text(comparison, validation, root)))
    fence = "```"
    while fence in text:
        fence += "`"
    yield from ("### Contracts", "", f"{fence}text", text, fence)


def _edge_title(edge: ContractEdge) -> str:
    """Return `Pricing → /Price/Set → Board.on_price`; for a method its name."""
    return " → ".join(filter(None, (edge.source, edge.topic, edge.target))) if edge.kind != "method" else edge.target


def _edge_lines(validation: ContractValidation, root: str, *, only_open: bool) -> Iterator[str]:
    """Yield a line for each edge, with its findings below; with `only_open` leave out proven edges."""
    shown = [edge for edge in validation.edges if not (only_open and edge.verdict == "proven")]
    widest = min(max((len(_edge_title(edge)) for edge in shown), default=0), _WIDEST)
    width = widest if not 0 < console.terminal_width() < widest + _PLACE_WIDTH else 0
    for edge in shown:
        mark, role = _MARKS[edge.verdict]
        note = f"  {style(sanitize(edge.unknown), 'warn')}" if edge.verdict == "unknown" else ""
        title = f"{style(f'{_KINDS[edge.kind]:<10}', 'dim')} {sanitize(_edge_title(edge)):<{width}}"
        yield f"{style(mark, role)} {title}  {_place(edge.spans[0], root)}{note}"
        for finding in edge.findings:
            yield from _finding_lines(finding, root)
    for finding in validation.others:
        yield from _finding_lines(finding, root)


def _finding_lines(finding: Finding, root: str) -> Iterator[str]:
    is_note = finding.severity == "info"
    label = f"{style(finding.code, 'name' if is_note else 'bad')}{' note:' if is_note else ''}"
    yield f"      {label} {sanitize(finding.message)}  {_place(finding.span, root)}"
    if finding.hint and not is_note:
        yield f"      {style('help:', 'name')} {sanitize(finding.hint)}"


def _edge_summary(validation: ContractValidation) -> str:
    """`41 edges: 38 proven, 3 unknown`."""
    mark = style(*_MARKS["proven" if validation.is_clean else "broken"])
    return f"{mark} {validation.summary}."


def _change_lines(comparison: Comparison) -> Iterator[str]:
    """Yield all changes, breaking ones first, each with whom it breaks; then the next version."""
    suggestion = comparison.suggestion
    yield style(f"{sanitize(comparison.old)} → {sanitize(comparison.new)}", "strong")
    yield ""
    for change in comparison.changes:
        yield from _lines_of(change, comparison.root)
    yield from ("",) if comparison.changes else ()
    yield f"{style(*_MARKS['breaking' if comparison.of('breaking') else 'compatible'])} {_counts(comparison)}."
    yield _version(suggestion)
    if comparison.is_version_low:
        yield f"{style('✗', 'bad')} pyproject.toml says {suggestion.found}: it has to be {suggestion.least} at least."
    elif comparison.way_out:
        yield comparison.way_out


def _lines_of(change: ContractChange, root: str) -> Iterator[str]:
    is_clause = change.kind.startswith(("field", "schema", "type"))
    title = f"{style(sanitize(change.title), 'strong')} " if is_clause else ""
    doubt = "" if change.is_certain else style(" (not certain)", "warn")
    where = _place(change.span, root if change.is_new_place else "")
    yield f"{style(*_MARKS[change.effect])} {title}{sanitize(change.why)}{doubt}  {where}"
    if change.breaks_outside:
        yield f"    {_outside(change)}"
    for broken in change.breaks if change.effect != "compatible" else ():
        yield f"    {sanitize(_broken(broken))}  {_place(broken.span, root)}"
    if change.effect == "settled":
        yield "    breaks nobody: nothing in the graph needs it as it was"


def _outside(change: ContractChange) -> str:
    """Say who relies on it besides the agents of the graph."""
    is_topic = change.place.startswith("/")
    return f"breaks outside: {'external_topics names it' if is_topic else 'it can be called over HTTP and from Python'}"


def _broken(broken: Broken) -> str:
    return f"{'breaks' if broken.is_certain else 'may break'} {broken.edge}: {broken.why}"


def _counts(comparison: Comparison) -> str:
    """`1 breaking, 2 compatible`."""
    found = [f"{len(comparison.of(effect))} {effect}" for effect in _EFFECTS if comparison.of(effect)]
    return f"{pluralize(len(comparison.changes), 'change')}: {', '.join(found)}" if found else "No contract has changed"


def _version(suggestion: Suggestion) -> str:
    """Say what the version should be, and whether it is high enough already."""
    enough = f"; {suggestion.found} is enough" if suggestion.is_enough else ""
    step = f"{suggestion.current} → {suggestion.least}" if suggestion.current else suggestion.level
    return f"Version: {step}, because {suggestion.because}{enough}."


def _place(span: SourceSpan, root: str) -> str:
    """Return a place relative to the working directory; without a root relative to the project."""
    path = os.path.relpath(os.path.join(root, span.path)) if root else span.path
    return style(sanitize(f"{path}:{span.line}"), "dim")


# --- JSON -------------------------------------------------------------------------------------------


def document(
    comparison: Comparison | None, validation: ContractValidation | None, root: str, errors: Sequence[GraphBusError]
) -> dict[str, Any]:
    """Return the report for `--json`: edges with verdicts, and changes. Paths are relative to the root, lines count from 1."""
    changes = _changes_document(comparison) if comparison else None
    if validation is None:
        return changes or {}
    return {
        "root": root,
        "edges": [
            {
                **_fields(edge, "kind", "source", "topic", "target", "verdict", "unknown"),
                "places": [_fields(span, "path", "line") for span in edge.spans],
                "findings": [_finding(each) for each in edge.findings],
            }
            for edge in validation.edges
        ],
        "others": [_finding(finding) for finding in validation.others],
        "summary": {verdict: validation.count(verdict) for verdict in VERDICTS},
        "errors": [console.error_as_json(error) for error in errors],
        "comparison": changes,
    }


def _fields(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _finding(finding: Finding) -> dict[str, Any]:
    return {**_fields(finding, "code", "severity", "message", "hint"), **_fields(finding.span, "path", "line")}


def _changes_document(comparison: Comparison) -> dict[str, Any]:
    """Return all changes and the next version; `breaks` lists agents of this graph, `outside` is about other users."""
    suggestion = comparison.suggestion
    names = {"current": suggestion.current, "suggested": suggestion.least, "found": suggestion.found}
    return {
        "old": comparison.old,
        "new": comparison.new,
        "changes": [_change(change) for change in comparison.changes],
        "summary": {effect: len(comparison.of(effect)) for effect in _EFFECTS},
        "version": {
            **_fields(suggestion, "level", "is_enough", "because"),
            **{key: version or None for key, version in names.items()},
        },
    }


def _change(change: ContractChange) -> dict[str, Any]:
    names = ("kind", "effect", "place", "part", "field", "before", "after", "why", "is_certain")
    state = "new" if change.is_new_place else "old"
    return {
        **_fields(change, *names),
        "outside": change.breaks_outside,
        "breaks": [
            {**_fields(each, "edge", "agent", "why", "is_certain"), **_fields(each.span, "path", "line")}
            for each in change.breaks
        ],
        "at": {**_fields(change.span, "path", "line"), "state": state},
    }


# --- GitHub -----------------------------------------------------------------------------------


def for_github(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield annotations for the lines of a pull request; each finding once, with the first edge that it concerns."""
    found = [(_edge_title(edge), each) for edge in validation.edges for each in edge.findings] if validation else []
    found += [("", each) for each in validation.others] if validation else []
    once = {(each.span, each.message): (title, each) for title, each in reversed(found)}
    remarks = [
        Remark(each.severity, each.code, title, each.message, each.hint, each.span.path, _lines(each.span))
        for title, each in reversed(once.values())
    ]
    yield from as_github(root, remarks)
    if comparison:
        yield from as_github(comparison.root, _change_remarks(comparison))


def _change_remarks(comparison: Comparison) -> Iterator[Remark]:
    """Yield an error at each breaking change, and a warning at each line that it breaks; then the version and what to do.

    An allowed breaking change is only a warning.
    """
    for change in comparison.of("breaking"):
        message = change.why + (f"\n{_outside(change)}" if change.breaks_outside else "")
        path, region = (change.span.path, _lines(change.span)) if change.is_new_place else ("", {})
        broken = tuple((_broken(each), each.span.path, _lines(each.span)) for each in change.breaks)
        level: Severity = "warning" if comparison.is_allowed else "error"
        yield Remark(level, "", f"Contract broken: {change.title}", message, "", path, region, broken)
        for each in change.breaks:
            message = f"{_broken(each)}, for {change.title} {change.why}"
            yield Remark("warning", "", "Contract broken", message, "", each.span.path, _lines(each.span))
    if comparison.suggestion.is_enough is False:
        yield Remark("error" if comparison.checks_version else "info", "", "Version", _version(comparison.suggestion))
    if comparison.way_out:
        yield Remark("info", "", "If it is meant", comparison.way_out)


def _lines(span: SourceSpan) -> dict[str, int]:
    return {"startLine": span.line, "endLine": span.end_line}
