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


def edges_document(validation: Validation) -> dict[str, Any]:
    """All edges with their verdicts; paths are relative to the project root, lines count from 1."""
    return {
        "edges": [_edge_document(edge) for edge in validation.edges],
        "others": [_finding_document(finding) for finding in validation.others],
        "summary": {verdict: validation.count(verdict) for verdict in ("fits", "unfit", "unknown")},
    }


def _edge_document(edge: Edge) -> dict[str, Any]:
    return {
        "kind": edge.kind,
        "source": edge.source,
        "topic": edge.topic,
        "target": edge.target,
        "verdict": edge.verdict,
        "unknown": edge.unknown,
        "places": [_place_document(span) for span in edge.spans],
        "findings": [_finding_document(finding) for finding in edge.findings],
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        **_place_document(finding.span),
        "message": finding.message,
        "hint": finding.hint,
    }


def _place_document(span: SourceSpan) -> dict[str, Any]:
    return {"path": span.path, "line": span.line}


def changes_document(comparison: Comparison) -> dict[str, Any]:
    """All changes, and what the version should be; `breaks` is about this graph, `outside` about others."""
    suggestion = comparison.suggestion
    return {
        "old": comparison.old,
        "new": comparison.new,
        "changes": [_change_document(change) for change in comparison.changes],
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


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "effect": change.effect,
        "place": change.place,
        "part": change.part,
        "field": change.field,
        "before": change.before,
        "after": change.after,
        "why": change.why,
        "is_certain": change.is_certain,
        "outside": change.breaks_outside,
        "breaks": [_broken_document(broken) for broken in change.breaks],
        "example": list(change.example) if _is_json(change.example) else [],
        "at": {**_place_document(change.span), "state": "new" if change.is_new_place else "old"},
    }


def _broken_document(broken: Broken) -> dict[str, Any]:
    return {
        "edge": broken.edge,
        "agent": broken.agent,
        **_place_document(broken.span),
        "why": broken.why,
        "is_certain": broken.is_certain,
    }


def _is_json(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)


# --- GitHub -----------------------------------------------------------------------------------


def edge_annotations(validation: Validation, root: str) -> Iterator[str]:
    """One for each finding, at its line, and one for each end that it concerns."""
    told: set[tuple[str, str]] = set()
    edges = [(edge_title(edge), finding) for edge in validation.edges for finding in edge.findings]
    for title, finding in [*edges, *(("", finding) for finding in validation.others)]:
        where = place(finding.span, root)
        if (where, finding.message) not in told:
            told.add((where, finding.message))
            yield annotation(
                _LEVELS[finding.severity],
                _at(finding.span, root),
                f"{finding.code} {title}".rstrip(),
                [finding.message, finding.hint],
            )


def change_annotations(
    comparison: Comparison, *, checks_version: bool = False, is_allowed: bool = False
) -> Iterator[str]:
    """An error for each change that breaks somebody, beside the change; a warning at each line that it breaks.

    Args:
        comparison: What has changed.
        checks_version: A version that is too low is an error.
        is_allowed: What breaks somebody is no error, but a warning.
    """
    for change in comparison.of("breaking"):
        at = _at(change.span, comparison.root) if change.is_new_place else {}
        lines = [change.why, *([f"Breaks {outside(change)}."] if change.breaks_outside else [])]
        lines += [
            f"{verb(each).capitalize()} {each.edge}: {each.why} ({annotated(comparison.root, each.span.path)}:{each.span.line})."
            for each in change.breaks
        ]
        yield annotation("warning" if is_allowed else "error", at, f"Contract broken: {change.title}", lines)
        for broken in change.breaks:
            title = f"{'Broken' if broken.is_certain else 'Perhaps broken'} by {change.title}"
            yield annotation("warning", _at(broken.span, comparison.root), title, [f"{broken.edge}: {broken.why}"])
    suggestion = comparison.suggestion
    if suggestion.is_enough is False:
        text = f"{suggestion.current} → {suggestion.least} because {suggestion.because}"
        yield annotation("error" if checks_version else "notice", {}, "Version", [text])


def _at(span: SourceSpan, root: str) -> dict[str, Any]:
    return {"file": annotated(root, span.path), "line": span.line, "endLine": span.end_line}
