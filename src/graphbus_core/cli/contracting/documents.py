"""Edges and changes of contracts for programs: one JSON document, or annotations of GitHub. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphbus_core.cli.checking.annotations import annotated, annotation
from graphbus_core.cli.contracting.text import Comparison, edge_title, outside, place, verb
from graphbus_core.contracts.changes import Broken, Change
from graphbus_core.contracts.edges import Edge, Validation
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
_EDGE = ("kind", "source", "topic", "target", "verdict", "unknown")
_CHANGE = ("kind", "effect", "place", "part", "field", "before", "after", "why", "is_certain")


def edges_document(validation: Validation) -> dict[str, Any]:
    """All edges with their verdicts; paths are relative to the project root, lines count from 1."""
    return {
        "edges": [_edge(edge) for edge in validation.edges],
        "others": [_finding(finding) for finding in validation.others],
        "summary": {verdict: validation.count(verdict) for verdict in ("fits", "unfit", "unknown")},
    }


def _edge(edge: Edge) -> dict[str, Any]:
    places, findings = [_place(span) for span in edge.spans], [_finding(each) for each in edge.findings]
    return {**_fields(edge, _EDGE), "places": places, "findings": findings}


def _finding(finding: Finding) -> dict[str, Any]:
    head, tail = _fields(finding, ("code", "severity")), _fields(finding, ("message", "hint"))
    return {**head, **_place(finding.span), **tail}


def _fields(of: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _place(span: SourceSpan) -> dict[str, Any]:
    return {"path": span.path, "line": span.line}


def changes_document(comparison: Comparison) -> dict[str, Any]:
    """All changes, and what the version should be; `breaks` is about this graph, `outside` about others."""
    suggestion = comparison.suggestion
    return {
        "old": comparison.old,
        "new": comparison.new,
        "changes": [_change(change) for change in comparison.changes],
        "summary": {effect: len(comparison.of(effect)) for effect in ("breaking", "settled", "compatible")},
        "version": {
            "level": suggestion.level,
            "current": suggestion.current or None,
            "suggested": suggestion.least or None,
            "found": suggestion.found or None,
            "is_enough": suggestion.is_enough,
            "because": suggestion.because,
        },
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        **_fields(change, _CHANGE),
        "outside": change.breaks_outside,
        "breaks": [_broken(broken) for broken in change.breaks],
        "example": list(change.example) if _is_json(change.example) else [],
        "at": {**_place(change.span), "state": "new" if change.is_new_place else "old"},
    }


def _broken(broken: Broken) -> dict[str, Any]:
    head, tail = _fields(broken, ("edge", "agent")), _fields(broken, ("why", "is_certain"))
    return {**head, **_place(broken.span), **tail}


def _is_json(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)


# --- GitHub -----------------------------------------------------------------------------------


def edge_annotations(validation: Validation, root: str) -> Iterator[str]:
    """One for each finding at its line, with the first edge that it concerns."""
    edges = [(edge_title(edge), finding) for edge in validation.edges for finding in edge.findings]
    told: set[tuple[str, str]] = set()
    for title, finding in [*edges, *(("", finding) for finding in validation.others)]:
        key = (place(finding.span, root), finding.message)
        if key not in told:
            told.add(key)
            at, head = _at(finding.span, root), f"{finding.code} {title}".rstrip()
            yield annotation(_LEVELS[finding.severity], at, head, [finding.message, finding.hint])


def change_annotations(comparison: Comparison) -> Iterator[str]:
    """An error for each change that breaks somebody, beside the change, and a warning at each line that it breaks.

    What is allowed to break somebody is a warning itself. The version and what to do come last.
    """
    level, root = "warning" if comparison.is_allowed else "error", comparison.root
    for change in comparison.of("breaking"):
        lines = [change.why, *([f"Breaks {outside(change)}."] if change.breaks_outside else [])]
        lines += [
            f"{verb(each).capitalize()} {each.edge}: {each.why} ({annotated(root, each.span.path)}:{each.span.line})."
            for each in change.breaks
        ]
        at = _at(change.span, root) if change.is_new_place else {}
        yield annotation(level, at, f"Contract broken: {change.title}", lines)
        for broken in change.breaks:
            title = f"{'Broken' if broken.is_certain else 'Perhaps broken'} by {change.title}"
            yield annotation("warning", _at(broken.span, root), title, [f"{broken.edge}: {broken.why}"])
    suggestion = comparison.suggestion
    if suggestion.is_enough is False:
        text = f"{suggestion.current} → {suggestion.least} because {suggestion.because}"
        yield annotation("error" if comparison.checks_version else "notice", {}, "Version", [text])
    if comparison.way_out:
        yield annotation("notice", {}, "If it is meant", [comparison.way_out])


def _at(span: SourceSpan, root: str) -> dict[str, Any]:
    return {"file": annotated(root, span.path), "line": span.line, "endLine": span.end_line}
