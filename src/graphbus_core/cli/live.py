"""The events of a negotiation as lines of text, in one block for each proposal.

    [AGENT] OrderProcessor: "I propose to ..."         the proposal, its reason, the agents and files it affects
    [AGENT] InventoryService: "Accepted — ..."         the evaluations of the affected agents
    [ARBITER] Consensus (2/2). Committing.             the decision

The proposals of a round are decided in parallel; a block is printed when its proposal is decided, so that blocks never mix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.cli.console import Role, format_duration, pluralize, sanitize, sanitize_line, style
from graphbus_core.model.proposals import (
    ARBITER,
    CommitRecord,
    Consensus,
    Ending,
    GateReport,
    Proposal,
    ProposalEvaluation,
    RungResult,
    Status,
    TerminationReason,
    VoteDecision,
)
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.freshness import describe_models, describe_rule_votes

TOPICS = "/Negotiation/*"

_PROGRAMS_NEGOTIATE = "Rules and programs, not a model, negotiate: no key is needed."
_RULES_NEGOTIATE = "Rules, not a model, negotiate: no key is needed and nothing leaves this machine."
_CHOOSE_A_MODEL = "A model negotiates once its key is exported (ANTHROPIC_API_KEY, OPENAI_API_KEY) or with --model."
_UNVERIFIED_IS_REFUSED = (
    "This change cannot be verified, so the agents do not vote on it. Correct what is named above, or let unverified",
    "changes pass with --unsafe-verify (allow_unverified in [tool.graphbus.gate]).",
)
_UNVERIFIED_PASSES = "Unverified changes are let through: --unsafe-verify, or allow_unverified in [tool.graphbus.gate]."
_NO_SANDBOX = 'Changed code runs without a sandbox: isolation = "process" in [tool.graphbus.gate].'
_UNKNOWN_PRICE = "The price of this model is not known: only calls and tokens count."
_SENT_BACK = "Sent back: it conflicts with an accepted change. Its author may adapt it, then the agents vote again."

_CHARACTERS_PER_TOKEN = 4
_REASON_CHARACTERS = 160
_INDENT = " " * 9
_DECISIONS: dict[VoteDecision, str] = {
    "accept": "Accepted",
    "reject": "Rejected",
    "counter": "Countered",
    "defer": "Deferred",
    "abstain": "Abstained",
}
_CONSENSUS: dict[Consensus, str] = {
    "unanimous": "Consensus",
    "majority": "Majority",
    "arbiter": "The arbiter accepts",
    "override": "A person accepts",
}
_PERSON_VERDICTS = {"yes": "Yes", "no": "No", "edit": "In my own words", "quit": "Stop"}
"""The verdict of a person -> how it is shown."""
_CLOSINGS: dict[Status, str] = {
    "rejected": "No consensus",
    "refused": "Refused",
    "countered": "Countered",
    "deferred": "Deferred",
    "superseded": "Superseded by its counter-proposal",
}
_ENDINGS: dict[TerminationReason, str] = {
    "convergence": "CONVERGENCE DETECTED",
    "max_rounds": "Stopped at the limit of rounds",
    "file_limit": "Stopped at the limit of changed files",
    "manual": "Stopped by hand",
    "budget": "Stopped: the budget is used up",
    "oscillation": "Stopped: the proposals go in circles",
    "error": "Stopped by an error",
}
_Payload = Mapping[str, Any]
"""The payload of an event; its keys are those of the event's topic."""


class _OpenProposal:
    """An open proposal with its gate report, evaluations by agent, gate failures, output of its code, and further lines."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.report: GateReport | None = None
        self.failures: list[RungResult] = []
        self.evaluations: dict[str, ProposalEvaluation] = {}
        self.code_output: list[str] = []
        self.remarks: list[str] = []

    def add_evaluation(self, evaluation: ProposalEvaluation) -> None:
        """Store a vote; it replaces an earlier one of the same agent."""
        self.evaluations.pop(evaluation.evaluator, None)
        self.evaluations[evaluation.evaluator] = evaluation

    def clear_votes(self) -> None:
        """Remove all votes and failures, for a new vote."""
        self.evaluations.clear()
        self.failures.clear()


_TOLD_ONCE = frozenset({"[GBE462]", "[GBE463]"})
"""Ends of the reasons that are the same for many questions: the context of a model is too small, a model is asked no longer."""


class NegotiationLines:
    """Collects the events of open proposals, and returns the lines to print once a proposal is decided.

    The event `/Negotiation/SentBack` is handled by `_on_sentback`; an event without such a method is ignored.
    """

    def __init__(self) -> None:
        self.session = ""
        self._open_proposals: dict[str, _OpenProposal] = {}
        self._round = self._shown_round = 0
        self._explained: set[str] = set()
        self._untested: dict[str, list[str]] = {}
        self._untried: list[str] = []
        self._spent = self._awaited = ""
        self._requests = 0
        self._unusable: Counter[str] = Counter()
        self._given_up: set[tuple[str, str]] = set()

    @property
    def status(self) -> str:
        """The current activity and the cost so far in one line; empty if there is none."""
        doing = f"voting on {pluralize(len(self._open_proposals), 'proposal')}" if self._open_proposals else ""
        verifying = self._find_proposal_at_gate()
        if verifying:
            doing = f"verifying {verifying.proposal.proposal_id} of {verifying.proposal.src}"
        return " · ".join(filter(None, (self._awaited or (doing and f"Round {self._round}: {doing}"), self._spent)))

    def lines(self, topic: str, payload: _Payload) -> list[str]:
        """Return the lines that this event completes; empty for an event that only adds to an open proposal."""
        listener = getattr(self, f"_on_{topic.rsplit('/', 1)[-1].lower()}", None)
        return list(listener(payload) or ()) if listener else []

    def _find_proposal_at_gate(self) -> _OpenProposal | None:
        """Return the first open proposal that has no gate report yet, or None."""
        return next((entry for entry in self._open_proposals.values() if entry.report is None), None)

    def _open_proposal(self, payload: _Payload) -> _OpenProposal:
        return self._open_proposals[payload["proposal_id"]]

    # --- the session ---------------------------------------------------------------------------

    def _on_started(self, payload: _Payload) -> Iterator[str]:
        """Yield who negotiates, with which model, which agents are settled, and settings that make verification weaker."""
        self.session = payload["session"]
        programs = payload.get("programs", ())
        is_computed = payload["backend"] in ("rules", "rules, programs")
        if is_computed:
            yield style(_PROGRAMS_NEGOTIATE if programs else _RULES_NEGOTIATE, "dim")
            if payload.get("note"):
                yield style(f"That is because {payload['note']}. {_CHOOSE_A_MODEL}", "dim")
        arbiters = payload["arbiters"]
        agents = [name for name in payload["agents"] if name not in arbiters]
        yield _sentence_on_participants(agents, arbiters) if agents else _sentence_on_participants(arbiters, [])
        if not is_computed:
            models = payload.get("models", {})
            answering = describe_models(models) if models else payload["backend"]
            yield style(f"Their answers come from {sanitize_line(answering)}.", "dim")
            if describe_rule_votes(models):
                yield style(describe_rule_votes(models), "dim")
        if programs:
            speak = "A program speaks" if len(programs) == 1 else "Programs speak"
            yield style(f"{speak} for {_join_names(programs)}, as [tool.graphbus.agents] says.", "dim")
        if payload.get("at_rest"):
            rest = f"{_join_names(payload['at_rest'])}: settled on unchanged inputs, so not asked. --force asks all agents."
            yield style(rest, "dim")
        if payload.get("isolation"):
            yield style(_NO_SANDBOX, "warn")
        if payload.get("allow_unverified"):
            yield style(_UNVERIFIED_PASSES, "warn")

    def _on_round(self, payload: _Payload) -> None:
        self._round = payload["round"]

    def _on_warned(self, payload: _Payload) -> Iterable[str]:
        return style(f"Warning: {sanitize(payload['warning'])}", "warn"), ""

    def _on_awaited(self, payload: _Payload) -> None:
        """Keep, for the status, the question that has been under way for the longest time, and the number of the others."""
        self._awaited = pluralize(payload["awaited"], "answer") + " awaited" if payload["awaited"] else ""
        for first in payload.get("asked", ())[:1]:
            attempt = f"attempt {first['attempt']}" if first["attempt"] > 1 else ""
            received = f"~{-(-first['characters'] // _CHARACTERS_PER_TOKEN):,} tokens" if first["characters"] else ""
            others = f"{payload['awaited'] - 1} more to answer" if payload["awaited"] > 1 else ""
            parts = (
                f"{first['agent']}: {_describe_task(first)}",
                format_duration(first["seconds"]),
                attempt,
                received,
                others,
            )
            self._awaited = ", ".join(filter(None, parts))

    def _on_unusable(self, payload: _Payload) -> Iterator[str]:
        """Yield which answer cannot be used, why, and whether the model is asked again."""
        agent, reason = payload["agent"], sanitize_line(payload["reason"])
        self._unusable[agent] += 1
        if payload["is_last"]:
            self._given_up.add((agent, payload["task"]))
        reason = reason if len(reason) <= _REASON_CHARACTERS else f"{reason[: _REASON_CHARACTERS - 1]}…"
        which = "second unusable answer" if payload["is_last"] else "unusable answer, asked again"
        yield (
            f"{_style_tag('AGENT')} {_join_names([agent])}: "
            f"{style(f'{which} ({sanitize(_describe_task(payload))}): {reason}', 'warn')}"
        )

    def _on_retried(self, payload: _Payload) -> Iterator[str]:
        again = f"Attempt {payload['attempt']} of {payload['most']} in {payload['wait_s']:.0f} s"
        yield style(f"{again}: {sanitize_line(payload['reason'])}", "warn")

    def _on_spent(self, payload: _Payload) -> Iterator[str]:
        self._spent, self._requests = spent_so_far(payload), payload["requests"]
        if payload["unpriced"]:
            yield from self._explain_once(style(_UNKNOWN_PRICE, "warn"))

    def _on_dropped(self, payload: _Payload) -> Iterator[str]:
        count = pluralize(payload["count"], "proposal")
        yield f"{_style_tag('AGENT')} {_join_names([payload['agent']])}: {count} too many: {sanitize_line(payload['reason'])}"

    def _on_failed(self, payload: _Payload) -> Iterator[str]:
        """Yield why an agent gave no usable answer.

        Nothing is yielded if its unusable answers were shown when they came, or if the error is one that is told only once in
        a session and was told before.
        """
        if (payload["agent"], payload["task"]) in self._given_up:  # both answers were shown when they came
            self._given_up.discard((payload["agent"], payload["task"]))
            return
        failure = f"gave no usable answer ({payload['task']}): {sanitize_line(payload['reason'])}"
        code = payload["reason"][-len("[GBE462]") :]
        if code in _TOLD_ONCE and code in self._explained:
            return
        self._explained.add(code)
        yield f"{_style_tag('AGENT')} {_join_names([payload['agent']])} {style(failure, 'warn')}"

    def _on_finished(self, payload: _Payload) -> Iterator[str]:
        """Yield why the session ended, its totals, and the proposals that no test could verify."""
        ending = msgspec.convert(payload["ending"], Ending)
        detail = f" ({sanitize_line(ending.detail)})" if ending.detail else ""
        yield ""
        yield (
            f"{_ENDINGS[ending.reason]}{detail}: {pluralize(ending.rounds_executed, 'round')}, "
            f"{pluralize(ending.proposals_made, 'proposal')}, {pluralize(ending.commits_created, 'commit')}."
        )
        if self._unusable:
            by_agent = ", ".join(f"{sanitize(name)} {count}" for name, count in self._unusable.items())
            total = f"{self._unusable.total()} of {pluralize(self._requests, 'answer')}"
            yield style(f"{total} could not be used: {by_agent}.", "warn")
        for reason, proposals in self._untested.items():
            yield style(f"No test was run on {', '.join(proposals)}: {sanitize_line(reason)}", "warn")
        if self._untried:
            count = f"{len(self._untried)} of {pluralize(ending.commits_created, 'commit')}"
            yield style(f"Nothing could be tried for {count}: {', '.join(self._untried)} (G8.untried)", "warn")

    # --- events that are stored with an open proposal ---------------------------------------------

    def _on_proposed(self, payload: _Payload) -> None:
        proposal = msgspec.convert(payload["proposal"], Proposal)
        entry = self._open_proposals.setdefault(proposal.proposal_id, _OpenProposal(proposal))
        entry.proposal, entry.report = proposal, None

    def _on_gated(self, payload: _Payload) -> None:
        entry = self._open_proposal(payload)
        entry.report = msgspec.convert(payload["report"], GateReport)
        entry.failures += [entry.report.failure] if entry.report.failure else []

    def _on_told(self, payload: _Payload) -> Iterable[str]:
        """Store the output of changed code with the proposal that the gate verifies; without one, return its lines at once."""
        output = [f"{_INDENT}{style('|', 'dim')} {sanitize(line)}" for line in payload["words"].splitlines()]
        entry = self._find_proposal_at_gate()
        if entry is None:
            return output
        entry.code_output = output
        return ()

    def _on_merged(self, payload: _Payload) -> None:
        merged = f"Merged with other accepted changes: {sanitize(', '.join(payload['files']))}"
        self._open_proposal(payload).remarks.append(_tagged_line("GATE", merged, "dim"))

    def _on_reviewed(self, payload: _Payload) -> None:
        reason = f" — {sanitize_line(payload['reason'])}" if payload["reason"] else ""
        self._open_proposal(payload).remarks.append(
            f'{_style_tag("PERSON")} "{_PERSON_VERDICTS[payload["verdict"]]}{reason}"'
        )

    def _on_evaluated(self, payload: _Payload) -> None:
        evaluation = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        self._open_proposals[evaluation.proposal_id].add_evaluation(evaluation)

    def _on_arbitrated(self, payload: _Payload) -> None:
        evaluation = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        self._open_proposals[evaluation.proposal_id].add_evaluation(evaluation)

    # --- events that decide a proposal ------------------------------------------------------------

    def _on_sentback(self, payload: _Payload) -> Iterator[str]:
        yield from self._proposal_block(self._open_proposal(payload), _decision_lines(_SENT_BACK, payload["reason"]))
        self._open_proposal(payload).clear_votes()

    def _on_postponed(self, payload: _Payload) -> Iterator[str]:
        verdict = f"{_CLOSINGS[payload['status']]}. To be decided in a later round."
        yield from self._proposal_block(self._open_proposal(payload), _decision_lines(verdict, payload["reason"]))
        self._open_proposal(payload).clear_votes()

    def _on_committed(self, payload: _Payload) -> Iterator[str]:
        """Yield the block of an accepted proposal; remember it if no test was run (G6), or nothing could be tried (G8)."""
        commit = msgspec.convert(payload["commit"], CommitRecord)
        entry = self._open_proposals.pop(commit.proposal_id)
        for rung in entry.report.rungs if entry.report else ():
            if rung.rung == "G6" and rung.status == "not_run" and not rung.code:
                self._untested.setdefault(rung.message, []).append(commit.proposal_id)
            elif rung.code == "G8.untried":
                self._untried.append(commit.proposal_id)
        has_many = sum(name.endswith(ARBITER) for name in commit.evaluators) > 1
        is_by_many = commit.consensus_type == "arbiter" and has_many
        consensus = "The arbiters accept" if is_by_many else _CONSENSUS[commit.consensus_type]
        verdict = f"{consensus} ({payload['accepts']}/{payload['votes']}). Committing."
        yield from self._proposal_block(entry, [_tagged_line("ARBITER", verdict, "good")])

    def _on_rejected(self, payload: _Payload) -> Iterator[str]:
        """Yield the block of a rejected proposal; if the gate refused it before any vote, with its refusals."""
        entry = self._open_proposals.pop(payload["proposal_id"])
        if entry.failures and not entry.evaluations:
            yield from self._proposal_block(entry, [*_gate_lines(entry.failures), *entry.code_output])
            if any(failure.code.endswith(".unverified") for failure in entry.failures):
                yield from self._explain_once(*(f"{_INDENT}{line}" for line in _UNVERIFIED_IS_REFUSED))
            return
        votes = payload["accepts"] + payload["rejects"]
        count = f" ({payload['accepts']}/{votes})" if votes else ""
        verdict = f"{_CLOSINGS[payload['status']]}{count}. Not committed."
        yield from self._proposal_block(entry, _decision_lines(verdict, payload["reason"]))

    def _explain_once(self, *lines: str) -> Iterator[str]:
        """Yield the lines, unless this explanation was yielded before."""
        if self._explained.isdisjoint(lines):
            self._explained.update(lines)
            yield from lines

    def _proposal_block(self, entry: _OpenProposal, decision: Iterable[str]) -> Iterator[str]:
        """Yield the block of a decided proposal, which ends with the lines of the decision.

        If it is the first block of its round, the heading `Round N` comes before it.
        """
        if self._shown_round != self._round:
            self._shown_round = self._round
            yield from ("", style(f"Round {self._round}", "strong"))
        yield ""
        yield from _proposal_lines(entry.proposal)
        yield ""
        if entry.evaluations:
            if entry.failures and entry.report and entry.report.passed:
                passed = f"Passed after a correction; before, refused by {_failure_text(entry.failures[-1])}"
                yield from (f"{_style_tag('GATE')} {passed}", "")
            yield from _evaluation_lines(list(entry.evaluations.values()))
            yield ""
        for rung in entry.report.rungs if entry.report else ():
            if rung.status == "not_run" and rung.code:
                yield _tagged_line("GATE", f"Not verified ({rung.code}): {sanitize_line(rung.message)}", "warn")
        yield from entry.remarks
        yield from decision


def _describe_task(payload: _Payload) -> str:
    """Return the task of a question with the ids of its proposals: `propose`, `evaluate P001, P002`."""
    return f"{payload['task']} {', '.join(payload['proposals'])}".rstrip()


def _sentence_on_participants(agents: Sequence[str], arbiters: Sequence[str]) -> str:
    """Return `A, B negotiate; C settles what they cannot.`"""
    verb, they = ("negotiates", "it") if len(agents) == 1 else ("negotiate", "they")
    settle = "settles" if len(arbiters) == 1 else "settle"
    judges = f"; {_join_names(arbiters)} {settle} what {they} cannot" if arbiters else ""
    return f"{_join_names(agents)} {verb}{judges}."


def _proposal_lines(proposal: Proposal) -> Iterator[str]:
    """Yield the title of a proposal, its rationale, the agents it affects, and the places it changes."""
    title = sanitize_line(proposal.title or proposal.intent.replace("_", " "))
    if title[1:2].islower():  # `Rename x`, but not `HTTP stays`
        title = title[:1].lower() + title[1:]
    intention = style(f"I propose {'instead ' if proposal.parent else ''}to {title}", "strong")
    yield f'{_style_tag("AGENT")} {_join_names([proposal.src])}: "{intention}" {style(f"({proposal.proposal_id})", "dim")}'
    affected = [name for name in dict.fromkeys([proposal.dst, *proposal.affects]) if name]
    if proposal.reason:
        yield f"{_INDENT}rationale: {sanitize_line(proposal.reason)}"
    if affected:
        yield f"{_INDENT}affects: {sanitize(', '.join(affected))}"
    changes = proposal.code_changes
    places = (f"{each.file_path} ({each.target})" if each.target else each.file_path for each in changes)
    yield f"{_INDENT}changes: {sanitize(', '.join(dict.fromkeys(places)))}"


def _evaluation_lines(evaluations: list[ProposalEvaluation]) -> Iterator[str]:
    """Yield a line for each evaluation; a rejection without verified evidence is marked as unsubstantiated."""
    width = max(len(evaluation.agent) for evaluation in evaluations)
    for evaluation in evaluations:
        name = evaluation.agent
        reasoning = f" — {sanitize_line(evaluation.reasoning)}" if evaluation.reasoning else ""
        tag = _style_tag("ARBITER") if evaluation.is_arbiter else _style_tag("AGENT")
        is_proven = evaluation.is_arbiter or any(item.is_verified for item in evaluation.evidence)
        doubt = ", unsubstantiated" if evaluation.decision == "reject" and not is_proven else ""
        quote = f'"{_DECISIONS[evaluation.decision]}{doubt}{reasoning}"'
        yield f"{tag} {_join_names([name])}:{' ' * (width - len(sanitize(name)))} {quote}"


def _gate_lines(failures: list[RungResult]) -> list[str]:
    """Return a line for each refusal by the gate: the first is of the proposal, each further one of a correction of it."""
    return [
        _tagged_line(
            "GATE", f"{'Refused' if not i else 'Corrected, refused again'} by {_failure_text(failure)}", "warn"
        )
        for i, failure in enumerate(failures)
    ]


def _failure_text(failure: RungResult) -> str:
    line = f":{failure.line}" if failure.line else ""
    place = f"{failure.path}{line}: " if failure.path else ""
    return f"{failure.code or failure.rung}: {place}{sanitize_line(failure.message)}"


def _decision_lines(verdict: str, reason: str) -> list[str]:
    """Return the lines on a proposal that was not accepted: the decision, and the reason if there is one."""
    because = [f"{_INDENT}because: {sanitize_line(reason)}"] if reason else []
    return [_tagged_line("ARBITER", verdict, "warn"), *because]


def _tagged_line(tag: str, text: str, role: Role) -> str:
    return f"{_style_tag(tag)} {style(text, role)}"


def _style_tag(word: str) -> str:
    return style(f"[{word}]", "accent")


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(style(sanitize(name), "name") for name in names)


def spent_so_far(amounts: Mapping[str, Any]) -> str:
    """Return `12 calls, 34,567 tokens, $0.12`; with dollars only if a price is known."""
    parts = [pluralize(amounts["calls"], "call"), f"{amounts['tokens']:,} tokens"]
    if amounts["cost_usd"] or not amounts["unpriced"]:
        parts.append(format_usd(amounts["cost_usd"]))
    return ", ".join(parts)
