"""A negotiation as lines of text: one block for each proposal, in the form of seed 000, from the events on the bus.

    [AGENT] OrderProcessor: "I propose to ..."         what is proposed, why, whom it affects, where
    [AGENT] InventoryService: "Accepted — ..."         what the affected agents say to it
    [ARBITER] Consensus (2/2). Committing.             how it is decided

The proposals of a round are decided in parallel; a block is printed when its proposal is decided, so that blocks never mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.cli.console import Role, pluralize, sanitize, sanitize_line, style
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

TOPICS = "/Negotiation/*"

_RULES_NEGOTIATE = "Rules, not a model, negotiate: no key is needed and nothing leaves this machine."
_CHOOSE_A_MODEL = "A model negotiates once its key is exported (ANTHROPIC_API_KEY, OPENAI_API_KEY) or with --model."
_UNVERIFIED_IS_REFUSED = (
    "Nobody knows what this change would break, so that it is not even voted on. Mend what is named above, or let",
    "changes pass unverified with --unsafe-verify (allow_unverified in [tool.graphbus.gate]).",
)
_UNVERIFIED_PASSES = "Unverified changes are let through: --unsafe-verify, or allow_unverified in [tool.graphbus.gate]."
_NO_JAIL = 'Changed code runs without a sandbox: isolation = "process" in [tool.graphbus.gate].'
_UNKNOWN_PRICE = "The price of this model is not known: only calls and tokens count."
_OVERTAKEN = "Overtaken. Its author may fit it to what was accepted, and it is voted on again."

_INDENT = " " * 9
_VERDICTS: dict[VoteDecision, str] = {
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
_WORDS = {"yes": "Yes", "no": "No", "edit": "In my own words", "quit": "Stop"}
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


class _OpenProposal:
    """An open proposal: its latest text, the report of the gate, and the votes in order."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.report: GateReport | None = None
        self.failures: list[RungResult] = []
        self.evaluations: dict[str, ProposalEvaluation] = {}
        self.code_said: list[str] = []
        self.remarks: list[str] = []

    def hear(self, evaluation: ProposalEvaluation) -> None:
        """Store a vote; it replaces an earlier one of the same agent."""
        self.evaluations.pop(evaluation.evaluator, None)
        self.evaluations[evaluation.evaluator] = evaluation

    def forget(self) -> None:
        """Remove all votes and failures, for a new vote."""
        self.evaluations.clear()
        self.failures.clear()


class NegotiationLines:
    """Stores open proposals and converts each event to the lines that it completes. It prints nothing itself.

    The event `/Negotiation/SentBack` is handled by `_on_sentback`; an event without such a method is ignored.
    """

    def __init__(self) -> None:
        self.session = ""
        self._cases: dict[str, _OpenProposal] = {}
        self._round = self._shown_round = 0
        self._explained: set[str] = set()
        self._untested: dict[str, list[str]] = {}
        self._spent = self._awaited = ""

    @property
    def status(self) -> str:
        """The current activity and the cost so far in one line; empty if there is none."""
        doing = f"voting on {pluralize(len(self._cases), 'proposal')}" if self._cases else ""
        verifying = self._verified()
        if verifying:
            doing = f"verifying {verifying.proposal.proposal_id} of {verifying.proposal.src}"
        return " · ".join(filter(None, (doing and f"Round {self._round}: {doing}", self._awaited, self._spent)))

    def lines(self, topic: str, payload: _Payload) -> list[str]:
        """Return the lines that this event completes; empty for an event that only adds to an open proposal."""
        listener = getattr(self, f"_on_{topic.rsplit('/', 1)[-1].lower()}", None)
        return list(listener(payload) or ()) if listener else []

    def _verified(self) -> _OpenProposal | None:
        """Return the proposal that the gate is verifying, or None."""
        return next((case for case in self._cases.values() if case.report is None), None)

    def _case(self, payload: _Payload) -> _OpenProposal:
        return self._cases[payload["proposal_id"]]

    # --- the session ---------------------------------------------------------------------------

    def _on_started(self, payload: _Payload) -> Iterator[str]:
        self.session = payload["session"]
        if payload["backend"] == "rules":
            yield style(_RULES_NEGOTIATE, "dim")
            if payload.get("note"):
                yield style(f"That is because {payload['note']}. {_CHOOSE_A_MODEL}", "dim")
        arbiters = payload["arbiters"]
        agents = [name for name in payload["agents"] if name not in arbiters]
        yield _who_negotiates(agents, arbiters) if agents else _who_negotiates(arbiters, [])
        if payload["backend"] != "rules":
            yield style(f"Their answers come from {sanitize_line(payload['backend'])}.", "dim")
        if payload.get("at_rest"):
            rest = f"{_names(payload['at_rest'])}: settled, nothing new since; not asked. --force asks everybody."
            yield style(rest, "dim")
        if payload.get("isolation"):
            yield style(_NO_JAIL, "warn")
        if payload.get("allow_unverified"):
            yield style(_UNVERIFIED_PASSES, "warn")

    def _on_round(self, payload: _Payload) -> None:
        self._round = payload["round"]

    def _on_warned(self, payload: _Payload) -> Iterable[str]:
        return style(f"Warning: {sanitize(payload['warning'])}", "warn"), ""

    def _on_awaited(self, payload: _Payload) -> None:
        heard = f", {payload['characters']:,} characters so far" if payload["characters"] else ""
        self._awaited = f"{pluralize(payload['awaited'], 'answer')} awaited{heard}" if payload["awaited"] else ""

    def _on_spent(self, payload: _Payload) -> Iterator[str]:
        self._spent = spent_so_far(payload)
        if payload["unpriced"]:
            yield from self._once(style(_UNKNOWN_PRICE, "warn"))

    def _on_dropped(self, payload: _Payload) -> Iterator[str]:
        count = pluralize(payload["count"], "proposal")
        yield f"{_tag('AGENT')} {_names([payload['agent']])}: {count} too many: {sanitize_line(payload['reason'])}"

    def _on_failed(self, payload: _Payload) -> Iterator[str]:
        said = f"gave no usable answer ({payload['task']}): {sanitize_line(payload['reason'])}"
        yield f"{_tag('AGENT')} {_names([payload['agent']])} {style(said, 'warn')}"

    def _on_finished(self, payload: _Payload) -> Iterator[str]:
        ending = msgspec.convert(payload["ending"], Ending)
        detail = f" ({sanitize_line(ending.detail)})" if ending.detail else ""
        yield ""
        yield (
            f"{_ENDINGS[ending.reason]}{detail}: {pluralize(ending.rounds_executed, 'round')}, "
            f"{pluralize(ending.proposals_made, 'proposal')}, {pluralize(ending.commits_created, 'commit')}."
        )
        for reason, proposals in self._untested.items():
            yield style(f"No test has judged {', '.join(proposals)}: {sanitize_line(reason)}", "warn")

    # --- what is kept of an open proposal --------------------------------------------------------

    def _on_proposed(self, payload: _Payload) -> None:
        proposal = msgspec.convert(payload["proposal"], Proposal)
        case = self._cases.setdefault(proposal.proposal_id, _OpenProposal(proposal))
        case.proposal, case.report = proposal, None

    def _on_gated(self, payload: _Payload) -> None:
        case = self._case(payload)
        case.report = msgspec.convert(payload["report"], GateReport)
        case.failures += [case.report.failure] if case.report.failure else []

    def _on_told(self, payload: _Payload) -> Iterable[str]:
        """Store the output of changed code with the proposal that is being verified."""
        said = [f"{_INDENT}{style('|', 'dim')} {sanitize(line)}" for line in payload["words"].splitlines()]
        case = self._verified()
        if case is None:
            return said
        case.code_said = said
        return ()

    def _on_merged(self, payload: _Payload) -> None:
        merged = f"Merged with what was accepted meanwhile: {sanitize(', '.join(payload['files']))}"
        self._case(payload).remarks.append(_verdict("GATE", merged, "dim"))

    def _on_reviewed(self, payload: _Payload) -> None:
        reason = f" — {sanitize_line(payload['reason'])}" if payload["reason"] else ""
        self._case(payload).remarks.append(f'{_tag("PERSON")} "{_WORDS[payload["verdict"]]}{reason}"')

    def _on_evaluated(self, payload: _Payload) -> None:
        evaluation = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        self._cases[evaluation.proposal_id].hear(evaluation)

    def _on_arbitrated(self, payload: _Payload) -> None:
        evaluation = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        self._cases[evaluation.proposal_id].hear(evaluation)

    # --- what decides a proposal -----------------------------------------------------------------

    def _on_sentback(self, payload: _Payload) -> Iterator[str]:
        yield from self._block(self._case(payload), _decided(_OVERTAKEN, payload["reason"]))
        self._case(payload).forget()

    def _on_postponed(self, payload: _Payload) -> Iterator[str]:
        verdict = f"{_CLOSINGS[payload['status']]}. To be decided in a later round."
        yield from self._block(self._case(payload), _decided(verdict, payload["reason"]))
        self._case(payload).forget()

    def _on_committed(self, payload: _Payload) -> Iterator[str]:
        commit = msgspec.convert(payload["commit"], CommitRecord)
        case = self._cases.pop(commit.proposal_id)
        for rung in case.report.rungs if case.report else ():
            if rung.rung == "G6" and rung.status == "not_run" and not rung.code:
                self._untested.setdefault(rung.message, []).append(commit.proposal_id)
        has_many = sum(name.endswith(ARBITER) for name in commit.evaluators) > 1
        is_by_many = commit.consensus_type == "arbiter" and has_many
        consensus = "The arbiters accept" if is_by_many else _CONSENSUS[commit.consensus_type]
        verdict = f"{consensus} ({payload['accepts']}/{payload['votes']}). Committing."
        yield from self._block(case, [_verdict("ARBITER", verdict, "good")])

    def _on_rejected(self, payload: _Payload) -> Iterator[str]:
        case = self._cases.pop(payload["proposal_id"])
        if case.failures and not case.evaluations:
            yield from self._block(case, [*_gate_lines(case.failures), *case.code_said])
            if any(failure.code.endswith(".unverified") for failure in case.failures):
                yield from self._once(*(f"{_INDENT}{line}" for line in _UNVERIFIED_IS_REFUSED))
            return
        votes = payload["accepts"] + payload["rejects"]
        count = f" ({payload['accepts']}/{votes})" if votes else ""
        verdict = f"{_CLOSINGS[payload['status']]}{count}. Not committed."
        yield from self._block(case, _decided(verdict, payload["reason"]))

    def _once(self, *lines: str) -> Iterator[str]:
        """Yield an explanation only the first time."""
        if self._explained.isdisjoint(lines):
            self._explained.update(lines)
            yield from lines

    def _block(self, case: _OpenProposal, verdict: Iterable[str]) -> Iterator[str]:
        """Yield the block of a proposal that has just been decided."""
        if self._shown_round != self._round:
            self._shown_round = self._round
            yield from ("", style(f"Round {self._round}", "strong"))
        yield ""
        yield from _proposal_lines(case.proposal)
        yield ""
        if case.evaluations:
            if case.failures and case.report and case.report.passed:
                said = f"Passed after it was mended; refused before by {_failure(case.failures[-1])}"
                yield from (f"{_tag('GATE')} {said}", "")
            yield from _evaluation_lines(list(case.evaluations.values()))
            yield ""
        for rung in case.report.rungs if case.report else ():
            if rung.status == "not_run" and rung.code:
                yield _verdict("GATE", f"Not verified ({rung.code}): {sanitize_line(rung.message)}", "warn")
        yield from case.remarks
        yield from verdict


def _who_negotiates(agents: Sequence[str], arbiters: Sequence[str]) -> str:
    verb, they = ("negotiates", "it") if len(agents) == 1 else ("negotiate", "they")
    settle = "settles" if len(arbiters) == 1 else "settle"
    judges = f"; {_names(arbiters)} {settle} what {they} cannot" if arbiters else ""
    return f"{_names(agents)} {verb}{judges}."


def _proposal_lines(proposal: Proposal) -> Iterator[str]:
    title = sanitize_line(proposal.title or proposal.intent.replace("_", " "))
    if title[1:2].islower():  # `Rename x`, but not `HTTP stays`
        title = title[:1].lower() + title[1:]
    wish = style(f"I propose {'instead ' if proposal.parent else ''}to {title}", "strong")
    yield f'{_tag("AGENT")} {_names([proposal.src])}: "{wish}" {style(f"({proposal.proposal_id})", "dim")}'
    affected = [name for name in dict.fromkeys([proposal.dst, *proposal.affects]) if name]
    if proposal.reason:
        yield f"{_INDENT}rationale: {sanitize_line(proposal.reason)}"
    if affected:
        yield f"{_INDENT}affects: {sanitize(', '.join(affected))}"
    changes = proposal.code_changes
    places = (f"{each.file_path} ({each.target})" if each.target else each.file_path for each in changes)
    yield f"{_INDENT}changes: {sanitize(', '.join(dict.fromkeys(places)))}"


def _evaluation_lines(evaluations: list[ProposalEvaluation]) -> Iterator[str]:
    width = max(len(evaluation.agent) for evaluation in evaluations)
    for evaluation in evaluations:
        name = evaluation.agent
        reasoning = f" — {sanitize_line(evaluation.reasoning)}" if evaluation.reasoning else ""
        tag = _tag("ARBITER") if evaluation.is_arbiter else _tag("AGENT")
        is_proven = evaluation.is_arbiter or any(item.is_verified for item in evaluation.evidence)
        doubt = ", unsubstantiated" if evaluation.decision == "reject" and not is_proven else ""
        said = f'"{_VERDICTS[evaluation.decision]}{doubt}{reasoning}"'
        yield f"{tag} {_names([name])}:{' ' * (width - len(sanitize(name)))} {said}"


def _gate_lines(failures: list[RungResult]) -> list[str]:
    """Say why the gate refused the proposal; each further failure is that of an attempt to repair it."""
    return [
        _verdict("GATE", f"{'Refused' if not i else 'Mended, refused again'} by {_failure(failure)}", "warn")
        for i, failure in enumerate(failures)
    ]


def _failure(failure: RungResult) -> str:
    line = f":{failure.line}" if failure.line else ""
    place = f"{failure.path}{line}: " if failure.path else ""
    return f"{failure.code or failure.rung}: {place}{sanitize_line(failure.message)}"


def _decided(verdict: str, reason: str) -> list[str]:
    """Say how a proposal was decided that was not accepted, and why."""
    because = [f"{_INDENT}because: {sanitize_line(reason)}"] if reason else []
    return [_verdict("ARBITER", verdict, "warn"), *because]


def _verdict(who: str, text: str, role: Role) -> str:
    return f"{_tag(who)} {style(text, role)}"


def _tag(word: str) -> str:
    return style(f"[{word}]", "accent")


def _names(names: Iterable[str]) -> str:
    return ", ".join(style(sanitize(name), "name") for name in names)


def spent_so_far(amounts: Mapping[str, Any]) -> str:
    """Return `12 calls, 34,567 tokens, $0.12`; with dollars only if a price is known."""
    parts = [pluralize(amounts["calls"], "call"), f"{amounts['tokens']:,} tokens"]
    if amounts["cost_usd"] or not amounts["unpriced"]:
        parts.append(format_usd(amounts["cost_usd"]))
    return ", ".join(parts)
