"""`graphbus check`: finds what is wrong between agents and within them, and fixes it.

wiring     the edges of a project, and what handlers need      edges      rules on topics, payloads and dependencies
contracts  rules on schemas, calls and error shapes            bodies     rules on the code of an agent's own methods
misuse     valid Python that has no effect or fails in a run   awaiting   answers that nothing awaits
graphbus_imports  imports of names that GraphBus lacks         declared   Topics and annotations
names      whether one name may be a misspelling of another    again      the findings after a change of a few files

`fixes` and the modules that it imports turn findings into changes. They are imported only when a fix is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from weakref import WeakKeyDictionary

from graphbus_core.compiler.rules.agreement import check_agreement, check_types_of_topics
from graphbus_core.compiler.rules.bodies import check_handlers
from graphbus_core.compiler.rules.contracts import check_error_shapes, check_handoff, check_results
from graphbus_core.compiler.rules.edges import (
    COVERED_ERRORS,
    check_dependencies,
    check_reads,
    check_requests,
    check_topics,
)
from graphbus_core.compiler.rules.misuse import check_constructors, check_skipped
from graphbus_core.compiler.rules.names import edit_distance
from graphbus_core.compiler.rules.own_contract import check_contracts
from graphbus_core.compiler.rules.register import REGISTER, CheckRule
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring, WiringRule
from graphbus_core.errors import UsageError
from graphbus_core.model.findings import Finding, Fix


def selected_codes(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
    """Return the codes of the rules to report.

    Args:
        select: Codes or prefixes such as `"GB1"`; empty: every rule that is on by default. `"GB"` and `"ALL"` mean all rules.
        ignore: Codes or prefixes to leave out. If both match a code, the longer one wins, and `ignore` if they are equally long.

    Raises:
        UsageError: GBE120, no code begins with one of these.
    """
    wanted, unwanted = _parse_prefixes(select), _parse_prefixes(ignore)

    def is_selected(rule: CheckRule) -> bool:
        # compares the lengths of the longest prefixes that match; without a selection, a rule that is on by default counts as 1
        chosen = max((len(prefix) for prefix in wanted if rule.code.startswith(prefix)), default=0)
        left_out = max((len(prefix) for prefix in unwanted if rule.code.startswith(prefix)), default=0)
        return (chosen or int(not wanted and rule.is_default)) > left_out

    return frozenset(code for code, rule in REGISTER.items() if is_selected(rule))


def _parse_prefixes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of codes in upper case, `"GB"` for `"all"`; raise UsageError if a prefix begins no code."""
    prefixes = tuple("GB" if name.strip().upper() == "ALL" else name.strip().upper() for name in names if name.strip())
    for prefix in prefixes:
        if not any(code.startswith(prefix) for code in REGISTER):
            nearest = min(REGISTER, key=lambda code: edit_distance(prefix, code))
            suggestion = f" Did you mean {nearest!r}?" if edit_distance(prefix, nearest) < 3 else ""
            raise UsageError("GBE120", name=prefix, suggestion=suggestion, known=", ".join(REGISTER))
    return prefixes


__all__ = ["COVERED_ERRORS", "REGISTER", "CheckRule", "ProjectFacts", "check", "fix_for", "place_of", "selected_codes"]

_CHECKS: tuple[tuple[str, WiringRule], ...] = (
    ("GB001 GB002", check_topics),
    ("GB003", check_reads),
    ("GB004", check_agreement),
    ("GB010 GB011", check_dependencies),
    ("GB006", check_types_of_topics),
    ("GB101 GB102 GB103 GB104 GB105 GB106 GB201 GB202", check_contracts),
    ("GB110", check_handoff),
    ("GB111", check_results),
    ("GB120", check_error_shapes),
    ("GB005", check_requests),
    ("GB310 GB311", check_handlers),
    ("GB315", check_constructors),
    ("GB320", check_skipped),
)


def check(
    project: ProjectFacts,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    all_fixable: bool = False,
    has_text: bool = True,
    wiring: Wiring | None = None,
) -> tuple[Finding, ...]:
    """Return the findings of a project, sorted by path, line and code; those that comments ignore are left out.

    Args:
        project: The facts that were read from the project.
        select: Codes or prefixes to report; empty: what the settings select, else every rule that is on by default.
        ignore: Codes or prefixes to leave out, besides those of the settings.
        all_fixable: Also report findings of rules that are off by default, if the rule has fixes.
        has_text: False: make no fixes; `is_fixable` then only says that the rule of the finding has a fix.
        wiring: The edges of the project, if the caller has them; only the agents that they are narrowed to are checked.

    Raises:
        UsageError: GBE120, no code begins with one of these.
    """
    settings = project.config.settings
    wanted = selected_codes(tuple(select) or settings.select, (*settings.ignore, *ignore))
    if all_fixable:
        every = selected_codes(["ALL"], (*settings.ignore, *ignore))
        wanted |= {code for code in every if REGISTER[code].is_fixable}
    found = {
        (finding.code, finding.span, finding.message): finding
        for finding in _run_rules(wiring or Wiring(project), wanted)
        if not _is_ignored(finding, project)
    }
    exact = (_mark_fixability(finding, project) if has_text else finding for finding in found.values())
    return tuple(sorted(exact, key=place_of))


def place_of(finding: Finding) -> tuple[str, int, int, str, str]:
    """Return the sort key of a finding: path, line, column, code and message."""
    span = finding.span
    return span.path, span.line, span.column, finding.code, finding.message


def _run_rules(wiring: Wiring, wanted: frozenset[str]) -> Iterator[Finding]:
    """Yield the findings with a wanted code about checked agents, also those that were made when a single file was read."""
    rules = (rule for codes, rule in _CHECKS if wanted & set(codes.split()))
    for finding in (*chain.from_iterable(map(wiring.findings_of, rules)), *wiring.project.local_findings):
        if finding.code in wanted and wiring.is_checked(finding.agent):
            yield finding


def _is_ignored(finding: Finding, project: ProjectFacts) -> bool:
    """Return whether a comment ignores a finding: on its line, alone on the line above it, or for the whole file (line 0)."""
    above = finding.span.line - 1
    for line, codes in project.ignores(finding.span.path):
        if not codes or finding.code.startswith(codes):  # a comment without codes ignores every rule
            source = project.source(finding.span.path)
            is_alone = line == above != 0 and source.utf8[source.line_starts[line - 1] :].lstrip(b" \t").startswith(
                b"#"
            )
            if line in (0, finding.span.line) or is_alone:
                return True
    return False


def _mark_fixability(finding: Finding, project: ProjectFacts) -> Finding:
    """Return the finding, marked as fixable only if a fix can be made, and as safely fixable only if that fix is safe."""
    if not finding.is_fixable:
        return finding
    from msgspec.structs import replace

    fix = fix_for(finding, project)
    return replace(finding, is_fixable=fix is not None, is_fix_safe=fix is not None and fix.is_safe)


def fix_for(finding: Finding, project: ProjectFacts, *others: Finding, is_narrow: bool = False) -> Fix | None:
    """Return the change that fixes a finding, or None if no change is certain to be right. Results are cached by project.

    Args:
        finding: The finding to fix.
        project: The project in which it was found.
        others: Findings of missing annotations in the same method. The change that is returned fixes them too.
        is_narrow: Change as few files as possible, even if other files have the same error.
    """
    if not finding.is_fixable:
        return None
    from graphbus_core.compiler.rules.fixes import make_fix

    known = _FIXES.setdefault(project, {})
    cache_key = (tuple((each.key, each.span) for each in (finding, *others)), is_narrow)
    if cache_key not in known:
        known[cache_key] = make_fix((finding, *others), project, is_narrow=is_narrow)
    return known[cache_key]


_FIXES: WeakKeyDictionary[ProjectFacts, dict[object, Fix | None]] = WeakKeyDictionary()
"""The cache of `fix_for`: to make a fix, the whole project is checked again, and callers ask for each fix several times."""
