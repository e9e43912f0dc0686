"""`graphbus check`: what is wrong between agents and within them, and what would mend it.

register   what there is to find          wiring     who sends what to whom
topics reads agreement handoff dependencies contracts error_shapes handlers     rules on the definitions
local (defaults exceptions event_use blocking)                                  rules on the syntax tree of a class
validation   the one rule that is off by default        mending    findings -> changes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.compiler.rules.agreement import check_agreement
from graphbus_core.compiler.rules.contracts import check_contracts
from graphbus_core.compiler.rules.dependencies import COVERED_ERRORS, check_dependencies
from graphbus_core.compiler.rules.error_shapes import check_error_shapes
from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.handlers import check_handlers
from graphbus_core.compiler.rules.handoff import check_handoff
from graphbus_core.compiler.rules.ignores import not_ignored
from graphbus_core.compiler.rules.reads import check_reads
from graphbus_core.compiler.rules.register import REGISTER, Rule, selected
from graphbus_core.compiler.rules.requests import check_requests
from graphbus_core.compiler.rules.topics import check_topics
from graphbus_core.compiler.rules.wiring import Wiring, WiringRule
from graphbus_core.model.findings import Finding, Fix

__all__ = ["COVERED_ERRORS", "REGISTER", "Evidence", "Rule", "check", "fix_for", "place_of", "selected"]

_CHECKS: tuple[tuple[str, WiringRule], ...] = (
    ("GB001 GB002", check_topics),
    ("GB003", check_reads),
    ("GB004", check_agreement),
    ("GB010 GB011", check_dependencies),
    ("GB101 GB102 GB103 GB104 GB105 GB201 GB202", check_contracts),
    ("GB110", check_handoff),
    ("GB120", check_error_shapes),
    ("GB005", check_requests),
    ("GB310 GB311", check_handlers),
)


def check(
    project: Evidence,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    all_fixable: bool = False,
    has_text: bool = True,
    wiring: Wiring | None = None,
) -> tuple[Finding, ...]:
    """Find everything that is wrong with a project, by path, line and code.

    Args:
        project: What was read.
        select: Codes or prefixes to report; none: what the settings select, else every rule that is on by default.
        ignore: Codes or prefixes to leave out, besides those of the settings.
        all_fixable: Report what can be mended although its rule is off by default.
        has_text: False: the sources are not at hand, so that nothing can be mended.
        wiring: The edges of the project, if they are known, and the agents whose findings are asked for.

    Raises:
        UsageError: GBE120 for a code that does not exist.
    """
    settings = project.config.settings
    wanted = selected(tuple(select) or settings.select, (*settings.ignore, *ignore))
    if all_fixable:
        wanted |= selected(["ALL"], (*settings.ignore, *ignore)) & {
            c for c, rule in REGISTER.items() if rule.is_fixable
        }
    found = {
        (finding.code, finding.span, finding.message): finding
        for finding in _findings(wiring or Wiring(project), wanted)
    }
    kept = not_ignored(found.values(), project)
    exact = (_with_exact_fix(finding, project) if has_text else finding for finding in kept)
    return tuple(sorted(exact, key=place_of))


def place_of(finding: Finding) -> tuple[str, int, int, str, str]:
    """Give the order of findings: by path, line and code."""
    span = finding.span
    return span.path, span.line, span.column, finding.code, finding.message


def _findings(wiring: Wiring, wanted: frozenset[str]) -> Iterator[Finding]:
    for finding in _all_findings(wiring, wanted):
        if finding.code in wanted and wiring.asks_about(finding.agent):
            yield finding


def _all_findings(wiring: Wiring, wanted: frozenset[str]) -> Iterator[Finding]:
    for codes, rule in _CHECKS:
        if wanted & set(codes.split()):
            yield from wiring.found(rule)
    yield from wiring.evidence.local_findings
    if "GB210" in wanted:
        from graphbus_core.compiler.rules.validation import check_validation

        yield from check_validation(wiring)


def _with_exact_fix(finding: Finding, project: Evidence) -> Finding:
    """A finding is called fixable only when its fix can really be made."""
    if not finding.is_fixable:
        return finding
    from msgspec.structs import replace

    fix = fix_for(finding, project)
    return replace(finding, is_fixable=fix is not None, is_fix_safe=fix is not None and fix.is_safe)


def fix_for(finding: Finding, project: Evidence) -> Fix | None:
    """Give the change that mends a finding, or None when there is none that is surely right."""
    if not finding.is_fixable:
        return None
    from graphbus_core.compiler.rules.fixes.mending import mend

    return mend(finding, project)
