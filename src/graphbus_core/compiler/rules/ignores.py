"""`# graphbus: ignore[GB002]` on the line of a finding, or alone on the line above it; `ignore-file` anywhere in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.model.findings import Finding


def not_ignored(findings: Iterable[Finding], evidence: Evidence) -> Iterator[Finding]:
    """Leave out what a comment in the source silences."""
    for finding in findings:
        comments = evidence.ignores(finding.span.path)
        if not comments or not _is_ignored(finding, comments, evidence):
            yield finding


def _is_ignored(finding: Finding, comments: Sequence[tuple[int, tuple[str, ...]]], evidence: Evidence) -> bool:
    return any(
        (not codes or any(finding.code.startswith(code) for code in codes))
        and (line in (0, finding.span.line) or (line == finding.span.line - 1 and _stands_alone(finding, evidence)))
        for line, codes in comments
    )


def _stands_alone(finding: Finding, evidence: Evidence) -> bool:
    """True when the line above a finding holds a comment only: a comment behind code belongs to that code."""
    source = evidence.source(finding.span.path)
    start, end = source.line_starts[finding.span.line - 2 : finding.span.line]
    return source.utf8[start:end].lstrip().startswith(b"#")
