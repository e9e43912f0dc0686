"""An agent without a model: it proposes the fixes of the rules, and computes its votes from their findings.

It is deterministic and needs no key, and it takes part in the same protocol as agents with models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import REGISTER, check, fix_for
from graphbus_core.compiler.rules.again import check_again
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import NEW_DEPENDS_ON, Finding, Fix, Severity
from graphbus_core.model.proposals import (
    CodeChange,
    Counterexample,
    GateReport,
    ImpactAssessment,
    Proposal,
    ProposalEvaluation,
    ProposalRecord,
    VoteDecision,
)
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal, has_part_in

_PRIORITY: dict[Severity, int] = {"error": 30, "warning": 20, "info": 10}
_CONFLICT = 5
"""Schema conflicts come before other findings of their severity (seed 002, SEED_INITIAL_PROPOSALS)."""

_WANTED = 100
"""Priority for each word of the intent that a proposal matches; more than that of any severity."""

_ANNOTATIONS = frozenset({"GB201", "GB202"})

_IDLE_WORDS = (
    " all and any are but code each every everywhere fix for from has have into make more not our out please shall should"
    " that the this use want with "
)
_STEM = 5


class RuleAgent:
    """See `ActiveAgent` for what its methods promise."""

    def __init__(self, name: str, *, is_arbiter: bool = False) -> None:
        self.name = name
        self.is_arbiter = is_arbiter

    def analyze(self, view: AgentView) -> Analysis:
        """Return the facts that the definition of the class states."""
        definition = view.definition
        if definition is None:
            return Analysis()
        return Analysis(
            responsibilities=_responsibilities(definition),
            dependencies=tuple(sorted(view.project.graph.providers(self.name))),
            schema_expectations=_expectations(definition),
            potential_issues=tuple(finding.message for finding in view.findings if finding.agent == self.name),
        )

    def propose(self, view: AgentView) -> tuple[Proposal, ...]:
        """Propose fixes of its most important findings, except those that were rejected before."""
        mine = [finding for finding in view.findings if finding.agent == self.name and finding.is_fixable]
        proposals: dict[tuple[CodeChange, ...], Proposal] = {}
        for finding in sorted(mine, key=lambda finding: _rank(finding, view)):
            if len(proposals) >= view.limit:
                break
            along = _missing_annotations_of(finding, mine)
            fix = _fix_within_limits(finding, view.project, along)
            if fix is None or fix.intent == NEW_DEPENDS_ON or fix.changes in proposals:
                continue
            if _is_proposed_by_another(finding, fix, view):
                continue
            if not any(_was_turned_down(each, fix, view.history) for each in (finding, *along)):
                proposals[fix.changes] = self._draft((finding, *along), fix, view)
        return tuple(proposals.values())

    def _draft(self, findings: Sequence[Finding], fix: Fix, view: AgentView) -> Proposal:
        finding, reason = findings[0], "; ".join(each.message for each in findings)
        answered = matching_words(_wishes(view), " ".join(map(_words_of, findings)))
        what = "intent" if view.intent else "goals"
        owners = {owner for change in fix.changes for owner in view.project.editable[change.file_path]}
        others = sorted(owners - {self.name})
        return Proposal(
            proposal_id="",
            round=view.round,
            src=self.name,
            dst=others[0] if len(others) == 1 and self.name not in owners else None,
            affects=fix.affects,
            intent=fix.intent,
            title=fix.title,
            reason=reason + (f"; it answers the {what} ({', '.join(answered)})" if answered else ""),
            priority=_priority(finding, view) + _WANTED * len(answered),
            finding=finding.code,
        ).with_changes(fix.changes)

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> None:
        """Give up: each rule has only one fix."""
        return

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        """Accept, unless the change causes a finding that involves this agent; then reject with it as evidence."""
        return tuple(self._judge(trial, view.round) for trial in trials)

    def _judge(self, trial: TriedProposal, round_: int) -> ProposalEvaluation:
        broken = [finding for finding in trial.added if has_part_in(finding, self.name)]
        mended = [finding for finding in trial.mended if has_part_in(finding, self.name)]
        if broken:
            return self._evaluation(
                trial,
                round_,
                "reject",
                f"it would break my side: {broken[0].message}",
                concerns=tuple(finding.message for finding in broken),
                impact_assessment=ImpactAssessment(
                    breaks_contracts=True, affects_dependencies=(self.name,), estimated_risk="high"
                ),
                evidence=tuple(Counterexample("contract", finding.message) for finding in broken),
            )
        if mended:
            return self._evaluation(trial, round_, "accept", f"it mends {_codes(mended)} on my side")
        return self._evaluation(trial, round_, "accept", self._why_unharmed(trial))

    def _why_unharmed(self, trial: TriedProposal) -> str:
        if self.name in {change.method.partition(".")[0] for change in trial.report.schema_changes}:
            return "my contract changes as it says, and all my edges still fit"
        if any(self.name in trial.after.owners(path) for path in trial.proposal.files):
            return "my code changes, my contracts do not"
        return "no schema impact on my side"

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Accept what passed the gate, causes no finding and removes at least one; reject everything else."""
        votes = [vote.decision for vote in evaluations if not vote.is_arbiter]
        counted = f"({votes.count('accept')} for, {votes.count('reject')} against)"
        if not trial.report.passed:
            return self._evaluation(trial, view.round, "reject", f"the gate refused it {counted}")
        if trial.added:
            return self._evaluation(
                trial, view.round, "reject", f"it breaks something: {trial.added[0].message} {counted}"
            )
        if not trial.mended:
            return self._evaluation(
                trial, view.round, "reject", f"it mends nothing, and any change is a risk {counted}"
            )
        why = f"it passed the gate, mends {_codes(trial.mended)} and breaks no contract {counted}"
        return self._evaluation(trial, view.round, "accept", why)

    def _evaluation(
        self,
        trial: TriedProposal,
        round_: int,
        decision: VoteDecision,
        reasoning: str,
        *,
        concerns: tuple[str, ...] = (),
        impact_assessment: ImpactAssessment = ImpactAssessment(),  # noqa: B008 - frozen
        evidence: tuple[Counterexample, ...] = (),
    ) -> ProposalEvaluation:
        return ProposalEvaluation(
            proposal_id=trial.proposal.proposal_id,
            evaluator=self.name,
            round=round_,
            decision=decision,
            reasoning=reasoning,
            concerns=concerns,
            impact_assessment=impact_assessment,
            evidence=evidence,
        )


def matching_words(intent: str, text: str) -> tuple[str, ...]:
    """Return the words of an intent that occur in a text, in the order of the intent; `validate` matches `validation`."""
    wanted = dict.fromkeys(_words(intent))
    stems = {word[:_STEM] for word in _words(text)}
    return tuple(word for word in wanted if word[:_STEM] in stems)


def _words(text: str) -> list[str]:
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    found = re.findall(r"[^\W_]+", spread)
    return [word.lower() for word in found if len(word) > 2 and f" {word.lower()} " not in _IDLE_WORDS]


def _wishes(view: AgentView) -> str:
    return view.intent or " ".join(view.goals)


def _words_of(finding: Finding) -> str:
    title = REGISTER[finding.code].title
    return " ".join((finding.code, title, finding.agent, finding.message, *finding.data.values()))


def _rank(finding: Finding, view: AgentView) -> tuple[object, ...]:
    answered = len(matching_words(_wishes(view), _words_of(finding)))
    return (-answered, -_priority(finding, view), finding.span.path, finding.span.line, finding.code, finding.message)


def _priority(finding: Finding, view: AgentView) -> int:
    is_conflict = any(conflict.finding.key == finding.key for conflict in view.conflicts)
    return _PRIORITY[finding.severity] + _CONFLICT * is_conflict


def _missing_annotations_of(finding: Finding, others: Iterable[Finding]) -> list[Finding]:
    """Return the findings about other missing annotations of the same method: one change adds all of them."""
    if finding.code not in _ANNOTATIONS:
        return []
    method = finding.data["method"]
    found = (each for each in others if each.code in _ANNOTATIONS and each.span.path == finding.span.path)
    return [each for each in found if each.data["method"] == method and each.key != finding.key]


def _fix_within_limits(finding: Finding, project: Project, along: Iterable[Finding] = ()) -> Fix | None:
    """Return the fix in all its files, or in one file if a proposal may not change so many."""
    fix = fix_for(finding, project, *along)
    limit = project.config.settings.safety.max_file_changes_per_commit
    if fix and len({change.file_path for change in fix.changes}) > limit:
        return fix_for(finding, project, is_narrow=True)
    return fix


def _is_proposed_by_another(finding: Finding, fix: Fix, view: AgentView) -> bool:
    """Return whether an earlier agent proposes the same change: a finding at several ends leads to one proposal."""
    names = {agent.name for agent in view.project.definitions if agent.name < finding.agent and not agent.is_arbiter}
    alike = (
        each for each in view.findings if each.agent in names and each.is_fixable and _pair(each) == _pair(finding)
    )
    return any((other := _fix_within_limits(each, view.project)) and other.changes == fix.changes for each in alike)


def _pair(finding: Finding) -> tuple[str, str]:
    return finding.data.get("old") or finding.data.get("missing", ""), finding.data.get("new", "")


def _was_turned_down(finding: Finding, fix: Fix, history: Iterable[ProposalRecord]) -> bool:
    """Return whether a fix of this finding was rejected, or exactly this change was refused by a limit or the gate.

    A change that was refused as stale may be proposed again: it is written for another text now.
    """
    for record in history:
        is_same = finding.message in record.proposal.reason
        if is_same and (record.status != "refused" or record.proposal.code_changes == fix.changes):
            return True
    return False


def _codes(findings: Iterable[Finding]) -> str:
    return ", ".join(sorted({finding.code for finding in findings}))


def _responsibilities(definition: AgentDefinition) -> tuple[str, ...]:
    text = definition.doc or definition.system_prompt
    first = " ".join(text.split()).partition(". ")[0].rstrip(".")
    offers = (f"offers {method.name}" for method in definition.methods if method.has_schema)
    hears = (f"hears {topic}" for topic in dict.fromkeys(s.topic for s in definition.subscriptions if s.topic))
    says = (f"publishes {topic}" for topic in dict.fromkeys(p.topic for p in definition.publications if p.topic))
    return tuple(line for line in (first, *offers, *hears, *says) if line)


def _expectations(definition: AgentDefinition) -> dict[str, str]:
    heard = {
        subscription.topic: ", ".join(dict.fromkeys(read.key for read in subscription.reads))
        for subscription in definition.subscriptions
        if subscription.topic and subscription.reads
    }
    called = {f"{call.agent}.{call.method}": str(call.arguments) for call in definition.calls}
    return {**heard, **called}


# --- findings --------------------------------------------


def find_selected(project: Project) -> tuple[Finding, ...]:
    """Return the findings of the rules that the settings select."""
    return check(project, wiring=project.wiring)


def find_for_agents(project: Project) -> tuple[Finding, ...]:
    """Return these findings, and those of rules off by default that match the intent or the goals."""
    return _for_agents(project, _check(project))


class _RuleFindings(msgspec.Struct, frozen=True):
    """Findings of the rules: those that are reported, and with an intent or goals all that are fixable."""

    reported: tuple[Finding, ...]
    fixable: tuple[Finding, ...] = ()


def _check(project: Project) -> _RuleFindings:
    return _RuleFindings(find_selected(project), check(project, all_fixable=True) if _wishes_of(project) else ())


def _check_again(after: Project, before: Project, found: _RuleFindings) -> _RuleFindings:
    fixable = check_again(after, before, found.fixable, all_fixable=True) if _wishes_of(after) else ()
    return _RuleFindings(check_again(after, before, found.reported), fixable)


def _wishes_of(project: Project) -> str:
    settings = project.config.settings
    return " ".join((settings.intent, *settings.refactoring_goals))


def _for_agents(project: Project, found: _RuleFindings) -> tuple[Finding, ...]:
    keys = {finding.key for finding in found.reported}
    others = (finding for finding in found.fixable if finding.key not in keys)
    wishes = _wishes_of(project)
    wished = (finding for finding in others if matching_words(wishes, REGISTER[finding.code].title))
    return (*found.reported, *wished)


class FindingsCache:
    """Caches the findings for agents by project; projects never change."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Project, _RuleFindings] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Project, tuple[Finding, ...]] = WeakKeyDictionary()

    def findings_in(self, project: Project, before: Project | None = None) -> tuple[Finding, ...]:
        """Return the findings for agents in a project.

        Args:
            project: The project to check.
            before: The project before a change; then only agents that the change can affect are checked again.
        """
        known = self._known.get(project)
        if known is None:
            known = self._known[project] = _for_agents(project, self._check(project, before))
        return known

    def _check(self, project: Project, before: Project | None) -> _RuleFindings:
        found = self._found.get(project)
        if found is None and before is not None:
            found = _check_again(project, before, self._check(before, None))
        elif found is None:
            found = _check(project)
        self._found[project] = found
        return found
