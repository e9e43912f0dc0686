"""Edges and changes of contracts as text, Markdown, JSON, SARIF and annotations of GitHub. Nothing is printed here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click

from graphbus_core.cli import both_ways_report, console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark, as_github, as_sarif
from graphbus_core.contracts.both_ways import BothWays
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
"""If a terminal has fewer columns beside the titles, places are not aligned."""


class Comparison(NamedTuple):
    """Two states, the changes between them, the version that these require, and what the options allow.

    Attributes:
        root: The project root of the new state; empty if it is a revision.
        is_allowed: The command does not fail for breaking changes.
        is_forced: Nor for messages that break, which no version number saves.
        may_announce: It would not fail for them if the version were raised far enough.
        checks_version: The command fails if the version is too low.
        both_ways: Whether each state handles the messages of the other one; None: that was not asked.
    """

    old: str
    new: str
    changes: tuple[ContractChange, ...]
    suggestion: Suggestion
    root: str = ""
    is_allowed: bool = False
    is_forced: bool = False
    may_announce: bool = False
    checks_version: bool = False
    both_ways: BothWays | None = None

    def of(self, effect: Effect) -> tuple[ContractChange, ...]:
        """Return the changes with this effect."""
        return tuple(change for change in self.changes if change.effect == effect)

    @property
    def is_version_low(self) -> bool:
        """True if the version is too low and `--check-version` was passed."""
        return self.checks_version and self.suggestion.is_enough is False

    @property
    def fails(self) -> bool:
        """True if the command fails: the version is too low, or breaking changes are not allowed."""
        loses_messages = self.both_ways is not None and bool(self.both_ways.breaks) and not self.is_forced
        return self.is_version_low or loses_messages or bool(self.of("breaking") and not self.is_allowed)

    @property
    def builds(self) -> both_ways_report.Builds | None:
        """The comparison both ways with the names of the states; None if it was not asked."""
        return both_ways_report.Builds(self.old, self.new, self.both_ways, self.root) if self.both_ways else None

    @property
    def way_out(self) -> str:
        """A sentence on how to announce breaking changes with the version; empty if that is not possible or not needed."""
        if not self.of("breaking") or not self.may_announce or self.is_allowed:
            return ""
        found, least = self.suggestion.found, self.suggestion.least
        if not self.suggestion.current or not found:
            return "If the change is intended, announce it by a `version` in pyproject.toml, both before and after it."
        return f"If the change is intended, raise `version` in pyproject.toml from {found} to at least {least}."


# --- text -------------------------------------------------------------------------------------


def as_text(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield the report as text: edges (without proven ones if states are compared), then changes and the next version."""
    if validation:
        lines = [*_edge_lines(validation, root, only_open=comparison is not None)]
        yield from (*lines, "") if lines else ()
        yield _edge_summary(validation)
        yield from ("",) if comparison else ()
    if comparison:
        yield from _change_lines(comparison)


def as_markdown(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield the report for a comment on a pull request."""
    return as_fenced("Contracts", as_text(comparison, validation, root))


def as_fenced(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield a report in Markdown: a title, and its lines as a code block, so that nothing in them becomes markup."""
    text = click.unstyle("\n".join(lines))
    fence = "```"
    while fence in text:
        fence += "`"
    yield from (f"### {title}", "", f"{fence}text", text, fence)


def _edge_title(edge: ContractEdge) -> str:
    """Return `Pricing → /Price/Set → Board.on_price`; for a method its name."""
    return " → ".join(filter(None, (edge.source, edge.topic, edge.target))) if edge.kind != "method" else edge.target


def _edge_lines(validation: ContractValidation, root: str, *, only_open: bool) -> Iterator[str]:
    """Yield a line for each edge, with its findings below; with `only_open` leave out proven edges.

    Places are aligned unless the terminal is too narrow for that.
    """
    shown = [edge for edge in validation.edges if not (only_open and edge.verdict == "proven")]
    widest = min(max((len(_edge_title(edge)) for edge in shown), default=0), _WIDEST)
    width = widest if not 0 < console.terminal_width() < widest + _PLACE_WIDTH else 0
    for edge in shown:
        mark, role = _MARKS[edge.verdict]
        note = f"  {style(sanitize(edge.unknown), 'warn')}" if edge.verdict == "unknown" else ""
        title = f"{style(f'{_KINDS[edge.kind]:<10}', 'dim')} {sanitize(_edge_title(edge)):<{width}}"
        yield f"{style(mark, role)} {title}  {_format_place(edge.spans[0], root)}{note}"
        for finding in edge.findings:
            yield from _finding_lines(finding, root)
    for finding in validation.others:
        yield from _finding_lines(finding, root)


def _finding_lines(finding: Finding, root: str) -> Iterator[str]:
    """Yield a finding with its place, and its hint unless it is only a note."""
    is_note = finding.severity == "info"
    label = f"{style(finding.code, 'name' if is_note else 'bad')}{' note:' if is_note else ''}"
    yield f"      {label} {sanitize(finding.message)}  {_format_place(finding.span, root)}"
    if finding.hint and not is_note:
        yield f"      {style('help:', 'name')} {sanitize(finding.hint)}"


def _edge_summary(validation: ContractValidation) -> str:
    """Return `✓ 41 edges: 38 proven, 3 unknown.`"""
    mark = style(*_MARKS["proven" if validation.is_clean else "broken"])
    return f"{mark} {validation.summary}."


def _change_lines(comparison: Comparison) -> Iterator[str]:
    """Yield all changes, each with the agents that it breaks; then the next version."""
    suggestion = comparison.suggestion
    yield style(f"{sanitize(comparison.old)} → {sanitize(comparison.new)}", "strong")
    yield ""
    for change in comparison.changes:
        yield from _lines_of_change(change, comparison.root)
    yield from ("",) if comparison.changes else ()
    yield f"{style(*_MARKS['breaking' if comparison.of('breaking') else 'compatible'])} {_count_changes(comparison)}."
    yield _version_sentence(suggestion)
    if comparison.is_version_low:
        yield f"{style('✗', 'bad')} The version in pyproject.toml is {suggestion.found}; it must be at least {suggestion.least}."
    elif comparison.way_out:
        yield comparison.way_out
    if comparison.builds:
        yield ""
        yield from both_ways_report.as_lines(comparison.builds)


def _lines_of_change(change: ContractChange, root: str) -> Iterator[str]:
    """Yield a change with its reason and place, and below it the users outside and the agents that it breaks."""
    is_clause = change.kind.startswith(("field", "schema", "type"))
    title = f"{style(sanitize(change.title), 'strong')} " if is_clause else ""
    doubt = "" if change.is_certain else style(" (not certain)", "warn")
    where = _format_place(change.span, root if change.is_new_place else "")
    yield f"{style(*_MARKS[change.effect])} {title}{sanitize(change.why)}{doubt}  {where}"
    if change.breaks_outside:
        yield f"    {_describe_outside_breakage(change)}"
    for broken in change.breaks if change.effect != "compatible" else ():
        yield f"    {sanitize(_breakage_text(broken))}  {_format_place(broken.span, root)}"
    if change.effect == "settled":
        yield "    breaks nothing: no agent of the graph relies on it"


def _describe_outside_breakage(change: ContractChange) -> str:
    """Return the line on a change that breaks users outside of the graph: why they may rely on the topic or method."""
    is_topic = change.place.startswith("/")
    return f"breaks outside: {'external_topics names it' if is_topic else 'it can be called over HTTP and from Python'}"


def _breakage_text(broken: Broken) -> str:
    """Return which edge a change breaks or may break, and why."""
    return f"{'breaks' if broken.is_certain else 'may break'} {broken.edge}: {broken.why}"


def _count_changes(comparison: Comparison) -> str:
    """Return `3 changes: 1 breaking, 2 compatible`."""
    found = [f"{len(comparison.of(effect))} {effect}" for effect in _EFFECTS if comparison.of(effect)]
    return f"{pluralize(len(comparison.changes), 'change')}: {', '.join(found)}" if found else "No contract has changed"


def _version_sentence(suggestion: Suggestion) -> str:
    """Return a sentence on the version that is required, and whether the present one is enough."""
    enough = f"; {suggestion.found} is enough" if suggestion.is_enough else ""
    step = f"{suggestion.current} → {suggestion.least}" if suggestion.current else suggestion.level
    return f"Version: {step}, because {suggestion.because}{enough}."


def _format_place(span: SourceSpan, root: str) -> str:
    """Return a place relative to the working directory; without a root relative to the project."""
    path = os.path.relpath(os.path.join(root, span.path)) if root else span.path
    return style(sanitize(f"{path}:{span.line}"), "dim")


# --- JSON -----------------------------------------------------------------------------------------


def document(
    comparison: Comparison | None, validation: ContractValidation | None, root: str, errors: Sequence[GraphBusError]
) -> dict[str, Any]:
    """Return the report for `--json`: edges with verdicts, and changes. Paths are relative to the root, lines count from 1."""
    changes = _changes_as_document(comparison) if comparison else None
    if validation is None:
        return changes or {}
    return {
        "root": root,
        "edges": [
            {
                **_pick_fields(edge, "kind", "source", "topic", "target", "verdict", "unknown"),
                "places": [_pick_fields(span, "path", "line") for span in edge.spans],
                "findings": [_finding_as_document(each) for each in edge.findings],
            }
            for edge in validation.edges
        ],
        "others": [_finding_as_document(finding) for finding in validation.others],
        "summary": {verdict: validation.count(verdict) for verdict in VERDICTS},
        "errors": [console.error_as_json(error) for error in errors],
        "comparison": changes,
    }


def _pick_fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _finding_as_document(finding: Finding) -> dict[str, Any]:
    return {
        **_pick_fields(finding, "code", "severity", "message", "hint"),
        **_pick_fields(finding.span, "path", "line"),
    }


def _changes_as_document(comparison: Comparison) -> dict[str, Any]:
    """Return all changes and the next version; `breaks` lists edges of this graph, `outside` is true if other users may break."""
    suggestion = comparison.suggestion
    names = {"current": suggestion.current, "suggested": suggestion.least, "found": suggestion.found}
    return {
        "old": comparison.old,
        "new": comparison.new,
        "changes": [_change_as_document(change) for change in comparison.changes],
        "summary": {effect: len(comparison.of(effect)) for effect in _EFFECTS},
        **({"both_ways": both_ways_report.as_document(comparison.both_ways)} if comparison.both_ways else {}),
        "version": {
            **_pick_fields(suggestion, "level", "is_enough", "because"),
            **{key: version or None for key, version in names.items()},
        },
    }


def _change_as_document(change: ContractChange) -> dict[str, Any]:
    """Return one change with the edges that it breaks; `state` says whether its place is in the old or the new state."""
    names = ("kind", "effect", "place", "part", "field", "before", "after", "why", "is_certain")
    state = "new" if change.is_new_place else "old"
    return {
        **_pick_fields(change, *names),
        "outside": change.breaks_outside,
        "breaks": [
            {**_pick_fields(each, "edge", "agent", "why", "is_certain"), **_pick_fields(each.span, "path", "line")}
            for each in change.breaks
        ],
        "at": {**_pick_fields(change.span, "path", "line"), "state": state},
    }


# --- GitHub and SARIF ---------------------------------------------------------------------------

_RULES = {"contract-breaks": "Contract broken", "message-breaks": "Message broken"}
"""Rule of SARIF -> its title, for what a change breaks and for messages that the other build cannot handle."""


def for_github(comparison: Comparison | None, validation: ContractValidation | None, root: str) -> Iterator[str]:
    """Yield GitHub annotations."""
    yield from as_github(root, _finding_remarks(validation))
    if comparison:
        yield from as_github(comparison.root, _change_remarks(comparison))


def sarif_log(
    comparison: Comparison | None, validation: ContractValidation | None, root: str, errors: Sequence[GraphBusError]
) -> dict[str, Any]:
    """Return the findings, and what a change breaks, as SARIF."""
    broken = (each for each in _change_remarks(comparison) if each.severity != "info") if comparison else ()
    remarks = [*_finding_remarks(validation), *map(with_rule, broken)]
    return as_sarif(
        "GraphBus contract", root or os.path.realpath(comparison.root if comparison else "."), remarks, errors
    )


def with_rule(remark: Remark) -> Remark:
    """Return a remark about a change with its rule, and its title in the message."""
    code = "message-breaks" if remark.key else "contract-breaks"
    key = remark.key or (remark.title, remark.path, remark.message)
    link = " " if remark.message[:1].islower() else ". "  # a clause follows on its title, a sentence does not
    return remark._replace(code=code, title=_RULES[code], message=f"{remark.title}{link}{remark.message}", key=key)


def _finding_remarks(validation: ContractValidation | None) -> list[Remark]:
    """Return the findings; one that concerns several edges comes once, with the first of them."""
    found = [(_edge_title(edge), each) for edge in validation.edges for each in edge.findings] if validation else []
    found += [("", each) for each in validation.others] if validation else []
    # Reversed twice: the first edge of each finding replaces the later ones, and the order stays.
    once = {(each.span, each.message): (title, each) for title, each in reversed(found)}
    return [
        Remark(each.severity, each.code, title, each.message, each.hint, each.span.path, _region_of(each.span))
        for title, each in reversed(once.values())
    ]


def _change_remarks(comparison: Comparison) -> Iterator[Remark]:
    """Yield an error at each breaking change and a warning at each place that it breaks; then what the version must be.

    An allowed breaking change is only a warning.
    """
    for change in comparison.of("breaking"):
        message = change.why + (f"\n{_describe_outside_breakage(change)}" if change.breaks_outside else "")
        path, region = (change.span.path, _region_of(change.span)) if change.is_new_place else ("", {})
        broken = tuple((_breakage_text(each), each.span.path, _region_of(each.span)) for each in change.breaks)
        level: Severity = "warning" if comparison.is_allowed else "error"
        yield Remark(level, "", f"Contract broken: {change.title}", message, "", path, region, broken)
        for each in change.breaks:
            message = f"{_breakage_text(each)}, because {change.title} {change.why}"
            yield Remark("warning", "", "Contract broken", message, "", each.span.path, _region_of(each.span))
    if comparison.builds:
        yield from both_ways_report.as_remarks(comparison.builds, is_allowed=comparison.is_forced)
    if comparison.suggestion.is_enough is False:
        yield Remark(
            "error" if comparison.checks_version else "info", "", "Version", _version_sentence(comparison.suggestion)
        )
    if comparison.way_out:
        yield Remark("info", "", "If the change is intended", comparison.way_out)


def _region_of(span: SourceSpan) -> dict[str, int]:
    return {"startLine": span.line, "endLine": span.end_line}
