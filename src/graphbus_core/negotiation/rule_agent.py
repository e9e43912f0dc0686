"""An agent without a model: it proposes the fixes of the rules, and computes its votes from their findings.

It is deterministic, needs no key, and follows the same protocol as agents with models.
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

_PRIORITY_BY_SEVERITY: dict[Severity, int] = {"error": 30, "warning": 20, "info": 10}
_CONFLICT = 5
"""Added for a schema conflict, which comes before other findings of its severity."""

_WISHED_WORD = 100
"""Added for each word of the intent that a finding matches. It exceeds the priority of any severity."""

_ANNOTATIONS = frozenset({"GB201", "GB202"})
"""Rules that ask for annotations."""

_IDLE_WORDS = (
    " all and any are but code each every everywhere fix for from has have into make more not our out please shall should"
    " that the this use want with "
)
_STEM_CHARS = 5


class RuleAgent:
    """An active agent that asks no model. `ActiveAgent` describes its methods."""

    def __init__(self, name: str, *, is_arbiter: bool = False) -> None:
        self.name = name
        self.is_arbiter = is_arbiter

    def analyze(self, view: AgentView) -> Analysis:
        """Return what the definition of the class states; an empty analysis if a change has removed the class."""
        definition = view.definition
        if definition is None:
            return Analysis()
        return Analysis(
            responsibilities=_describe_responsibilities(definition),
            dependencies=tuple(sorted(view.project.graph.providers(self.name))),
            schema_expectations=_describe_expectations(definition),
            potential_issues=tuple(finding.message for finding in view.findings if finding.agent == self.name),
        )

    def propose(self, view: AgentView) -> tuple[Proposal, ...]:
        """Return fixes of the agent's most important findings, up to `view.limit`.

        Some fixes are left out: those that were rejected before, those that another agent proposes, and those that add a
        `@depends_on`.
        """
        mine = [finding for finding in view.findings if finding.agent == self.name and finding.is_fixable]
        proposals: dict[tuple[CodeChange, ...], Proposal] = {}
        for finding in sorted(mine, key=lambda finding: _rank_finding(finding, view)):
            if len(proposals) >= view.limit:
                break
            also_fixed = _other_missing_annotations(finding, mine)
            fix = _find_fix_within_limits(finding, view.project, also_fixed)
            if fix is None or fix.intent == NEW_DEPENDS_ON or fix.changes in proposals:
                continue
            if _is_proposed_by_another(finding, fix, view):
                continue
            if not any(_was_turned_down(each, fix, view.history) for each in (finding, *also_fixed)):
                proposals[fix.changes] = self._make_proposal((finding, *also_fixed), fix, view)
        return tuple(proposals.values())

    def _make_proposal(self, findings: Sequence[Finding], fix: Fix, view: AgentView) -> Proposal:
        """Return a proposal, without a number, for a fix that removes these findings; the first one is named in `finding`."""
        finding, reason = findings[0], "; ".join(each.message for each in findings)
        answered = matching_words(_wishes_in_view(view), " ".join(map(_text_of_finding, findings)))
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
            priority=_priority_of(finding, view) + _WISHED_WORD * len(answered),
            finding=finding.code,
        ).with_changes(fix.changes)

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> None:
        """Return None, which gives up the proposal: each rule has only one fix."""
        return

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        """Accept each proposal, unless it causes findings that involve this agent: then reject it, with these as evidence."""
        return tuple(self._evaluate_trial(trial, view.round) for trial in trials)

    def _evaluate_trial(self, trial: TriedProposal, round_: int) -> ProposalEvaluation:
        """Return the evaluation of one proposal, as `evaluate` describes."""
        broken = [finding for finding in trial.added if has_part_in(finding, self.name)]
        removed = [finding for finding in trial.removed if has_part_in(finding, self.name)]
        if broken:
            return self._make_evaluation(
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
        if removed:
            return self._make_evaluation(trial, round_, "accept", f"it fixes {_join_codes(removed)} on my side")
        return self._make_evaluation(trial, round_, "accept", self._explain_acceptance(trial))

    def _explain_acceptance(self, trial: TriedProposal) -> str:
        """Return the reason for accepting a proposal that neither causes nor removes a finding of this agent."""
        if self.name in {change.method.partition(".")[0] for change in trial.report.schema_changes}:
            return "my contract changes as it says, and all my edges still fit"
        if any(self.name in trial.after.owners(path) for path in trial.proposal.files):
            return "my code changes, my contracts do not"
        return "no schema impact on my side"

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Accept a proposal that passed the gate, causes no finding and removes at least one; reject any other."""
        votes = [vote.decision for vote in evaluations if not vote.is_arbiter]
        counted = f"({votes.count('accept')} for, {votes.count('reject')} against)"
        if not trial.report.passed:
            return self._make_evaluation(trial, view.round, "reject", f"the gate refused it {counted}")
        if trial.added:
            return self._make_evaluation(
                trial, view.round, "reject", f"it breaks something: {trial.added[0].message} {counted}"
            )
        if not trial.removed:
            return self._make_evaluation(
                trial, view.round, "reject", f"it fixes nothing, and any change is a risk {counted}"
            )
        why = f"it passed the gate, fixes {_join_codes(trial.removed)} and breaks no contract {counted}"
        return self._make_evaluation(trial, view.round, "accept", why)

    def _make_evaluation(
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
        """Return an evaluation of a proposal by this agent."""
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
    """Return the words of an intent that occur in a text, in the order of the intent.

    Words match if their first five letters are equal, as in `validate` and `validation`.
    """
    wanted = dict.fromkeys(_split_words(intent))
    stems = {word[:_STEM_CHARS] for word in _split_words(text)}
    return tuple(word for word in wanted if word[:_STEM_CHARS] in stems)


def _split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without frequent ones and those of one or two letters.

    A name in CamelCase is split into its words.
    """
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    found = re.findall(r"[^\W_]+", spread)
    return [word.lower() for word in found if len(word) > 2 and f" {word.lower()} " not in _IDLE_WORDS]


def _wishes_in_view(view: AgentView) -> str:
    """Return the intent of the user, or if there is none the goals, as one text."""
    return view.intent or " ".join(view.goals)


def _text_of_finding(finding: Finding) -> str:
    """Return everything that a finding says, and the title of its rule, as the text to compare with the intent."""
    title = REGISTER[finding.code].title
    return " ".join((finding.code, title, finding.agent, finding.message, *finding.data.values()))


def _rank_finding(finding: Finding, view: AgentView) -> tuple[object, ...]:
    """Return the sort key of a finding: more words of the intent first, then higher priority, then place."""
    answered = len(matching_words(_wishes_in_view(view), _text_of_finding(finding)))
    return (
        -answered,
        -_priority_of(finding, view),
        finding.span.path,
        finding.span.line,
        finding.code,
        finding.message,
    )


def _priority_of(finding: Finding, view: AgentView) -> int:
    """Return the priority of a finding: that of its severity, and `_CONFLICT` more for a schema conflict."""
    is_conflict = any(conflict.finding.key == finding.key for conflict in view.conflicts)
    return _PRIORITY_BY_SEVERITY[finding.severity] + _CONFLICT * is_conflict


def _other_missing_annotations(finding: Finding, others: Iterable[Finding]) -> list[Finding]:
    """Return the findings in `others` about other missing annotations of the same method: one fix adds all of them.

    Empty if the finding is not about an annotation.
    """
    if finding.code not in _ANNOTATIONS:
        return []
    method = finding.data["method"]
    found = (each for each in others if each.code in _ANNOTATIONS and each.span.path == finding.span.path)
    return [each for each in found if each.data["method"] == method and each.key != finding.key]


def _find_fix_within_limits(finding: Finding, project: Project, also_fixed: Iterable[Finding] = ()) -> Fix | None:
    """Return the fix of a finding, or if it changes too many files its variant for one file; None if there is none.

    `also_fixed` are other findings that the same fix is to remove.
    """
    fix = fix_for(finding, project, *also_fixed)
    limit = project.config.settings.safety.max_file_changes_per_commit
    if fix and len({change.file_path for change in fix.changes}) > limit:
        return fix_for(finding, project, is_narrow=True)
    return fix


def _is_proposed_by_another(finding: Finding, fix: Fix, view: AgentView) -> bool:
    """Return whether an agent with an earlier name in the alphabet proposes the same change.

    A problem of an edge is often found at both ends, but must lead to only one proposal.
    """
    names = {agent.name for agent in view.project.definitions if agent.name < finding.agent and not agent.is_arbiter}
    alike = (
        each
        for each in view.findings
        if each.agent in names and each.is_fixable and _names_in_finding(each) == _names_in_finding(finding)
    )
    return any(
        (other := _find_fix_within_limits(each, view.project)) and other.changes == fix.changes for each in alike
    )


def _names_in_finding(finding: Finding) -> tuple[str, str]:
    """Return the old and the new name in a finding, empty where it has none. Findings at both ends of an edge have the same."""
    return finding.data.get("old") or finding.data.get("missing", ""), finding.data.get("new", "")


def _was_turned_down(finding: Finding, fix: Fix, history: Iterable[ProposalRecord]) -> bool:
    """Return whether the agent has proposed to fix this finding before, so that it does not propose it again.

    A refused proposal in its `history` counts only if it made the same change.
    """
    for record in history:
        is_same = finding.message in record.proposal.reason
        if is_same and (record.status != "refused" or record.proposal.code_changes == fix.changes):
            return True
    return False


def _join_codes(findings: Iterable[Finding]) -> str:
    """Return the codes of findings as text, each once."""
    return ", ".join(sorted({finding.code for finding in findings}))


def _describe_responsibilities(definition: AgentDefinition) -> tuple[str, ...]:
    """Return the first sentence about a class, and a line for each method with a schema and each topic."""
    text = definition.doc or definition.system_prompt
    first = " ".join(text.split()).partition(". ")[0].rstrip(".")
    offers = (f"offers {method.name}" for method in definition.methods if method.has_schema)
    handles = (f"hears {topic}" for topic in dict.fromkeys(s.topic for s in definition.subscriptions if s.topic))
    publishes = (f"publishes {topic}" for topic in dict.fromkeys(p.topic for p in definition.publications if p.topic))
    return tuple(line for line in (first, *offers, *handles, *publishes) if line)


def _describe_expectations(definition: AgentDefinition) -> dict[str, str]:
    """Return topic -> the keys that handlers read, and `Agent.method` -> the arguments that calls pass, as text."""
    handled = {
        subscription.topic: ", ".join(dict.fromkeys(read.key for read in subscription.reads))
        for subscription in definition.subscriptions
        if subscription.topic and subscription.reads
    }
    called = {f"{call.agent}.{call.method}": str(call.arguments) for call in definition.calls}
    return {**handled, **called}


# --- findings --------------------------------------------


def find_selected(project: Project) -> tuple[Finding, ...]:
    """Return the findings of the rules that the settings select."""
    return check(project, wiring=project.wiring)


def find_for_agents(project: Project) -> tuple[Finding, ...]:
    """Return the findings for agents: those of the selected rules, and others that a fix could remove as the user wishes.

    The others are fixable findings of rules whose titles match the intent or the goals.
    """
    return _select_for_agents(project, _find_all_findings(project))


class _RuleFindings(msgspec.Struct, frozen=True):
    """Findings in one project.

    Attributes:
        reported: Those of the rules that the settings select.
        fixable: All that have a fix, of any rule; empty without intent and goals.
    """

    reported: tuple[Finding, ...]
    fixable: tuple[Finding, ...] = ()


def _find_all_findings(project: Project) -> _RuleFindings:
    """Return the findings in a project, computed anew."""
    return _RuleFindings(
        find_selected(project), check(project, all_fixable=True) if _wishes_in_settings(project) else ()
    )


def _find_all_after_change(after: Project, before: Project, found: _RuleFindings) -> _RuleFindings:
    """Return the findings in `after`. `found` are those in `before`; those that the change cannot affect are reused."""
    fixable = check_again(after, before, found.fixable, all_fixable=True) if _wishes_in_settings(after) else ()
    return _RuleFindings(check_again(after, before, found.reported), fixable)


def _wishes_in_settings(project: Project) -> str:
    """Return the intent and the goals of the settings as one text."""
    settings = project.config.settings
    return " ".join((settings.intent, *settings.refactoring_goals))


def _select_for_agents(project: Project, found: _RuleFindings) -> tuple[Finding, ...]:
    """Return the reported findings, and the other fixable ones of rules whose titles match the intent or the goals."""
    keys = {finding.key for finding in found.reported}
    others = (finding for finding in found.fixable if finding.key not in keys)
    wishes = _wishes_in_settings(project)
    wished = (finding for finding in others if matching_words(wishes, REGISTER[finding.code].title))
    return (*found.reported, *wished)


class FindingsCache:
    """Caches the findings for agents by project, which is possible because a `Project` is immutable."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Project, _RuleFindings] = WeakKeyDictionary()
        self._for_agents: WeakKeyDictionary[Project, tuple[Finding, ...]] = WeakKeyDictionary()

    def findings_in(self, project: Project, before: Project | None = None) -> tuple[Finding, ...]:
        """Return the findings for agents in a project.

        Args:
            project: The project to check.
            before: The project before a change; then only agents that the change can affect are checked again.
        """
        known = self._for_agents.get(project)
        if known is None:
            known = self._for_agents[project] = _select_for_agents(project, self._find_all_findings(project, before))
        return known

    def _find_all_findings(self, project: Project, before: Project | None) -> _RuleFindings:
        """Return all findings in a project, from the cache if it has them.

        Otherwise they are computed: from those in `before`, the project before a change, or if it is None anew.
        """
        found = self._found.get(project)
        if found is None and before is not None:
            found = _find_all_after_change(project, before, self._find_all_findings(before, None))
        elif found is None:
            found = _find_all_findings(project)
        self._found[project] = found
        return found
