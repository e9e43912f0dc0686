"""A negotiation as lines to read: the events on the bus in the form of seed 000, one block for each proposal.

    [AGENT] OrderProcessor: "I propose to ..."         what is proposed, why, whom it affects, where
    [AGENT] InventoryService: "Accepted — ..."         what the affected agents say to it
    [ARBITER] Consensus (2/2). Committing.             what comes of it

Proposals of one round are judged side by side; a block is given when its proposal is decided, so that blocks never mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.cli.console import Role, counted, one_line, paint, plain
from graphbus_core.model.proposals import (
    CodeChange,
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
from graphbus_core.model.spending import dollars

TOPICS = "/Negotiation/*"

_RULES_NEGOTIATE = "Rules, not a model, negotiate: no key is needed and nothing leaves this machine."
_CHOOSE_A_MODEL = "A model negotiates once its key is exported (ANTHROPIC_API_KEY, OPENAI_API_KEY) or with --model."

_UNVERIFIED_IS_REFUSED = (
    "Nobody knows what this change would break, so that it is not even voted on. Mend what is named above, or let",
    "changes pass unverified with --unsafe-verify (allow_unverified in [tool.graphbus.gate]).",
)
_UNVERIFIED_PASSES = "Unverified changes are let through: --unsafe-verify, or allow_unverified in [tool.graphbus.gate]."

_NO_JAIL = 'Changed code runs without a jail: isolation = "process" in [tool.graphbus.gate].'

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
_MANY_ACCEPT = "The arbiters accept"
_WORDS = {"yes": "Yes", "no": "No", "edit": "In my own words", "quit": "Stop"}
"""What a person says, as it is shown."""

_CLOSINGS: dict[Status, str] = {
    "rejected": "No consensus",
    "refused": "Refused",
    "countered": "Countered",
    "deferred": "Deferred",
    "superseded": "Superseded by its counter-proposal",
}
_ENDINGS: dict[TerminationReason, str] = {
    "convergence": "Converged",
    "max_rounds": "Stopped at the limit of rounds",
    "file_limit": "Stopped at the limit of changed files",
    "manual": "Stopped by hand",
    "budget": "Stopped: the budget is used up",
    "oscillation": "Stopped: the proposals go in circles",
    "error": "Stopped by an error",
}


class _Case:
    """An open proposal: its newest text, what the gate said of it, and who said what, in order."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.is_gated = False
        self.failures: list[RungResult] = []
        self.untried: list[RungResult] = []
        self.untested = ""
        self.evaluations: dict[str, ProposalEvaluation] = {}
        self.has_passed = False
        self.words: list[str] = []
        self.merged: list[str] = []
        self.person = ""

    @property
    def is_refused_by_gate(self) -> bool:
        return bool(self.failures) and not self.evaluations


class Live:
    """Remembers what is still open and turns each event into the lines that it completes. It prints nothing itself."""

    def __init__(self) -> None:
        self.session = ""
        self._cases: dict[str, _Case] = {}
        self._round = 0
        self._shown_round = 0
        self._has_explained = False
        self._untested: dict[str, list[str]] = {}
        self._spent = self._awaited = ""
        self._has_named_price = False
        self._listeners: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
            "Started": self._started,
            "Round": self._enter_round,
            "Proposed": self._proposed,
            "Told": self._hear_code,
            "Gated": self._gated,
            "Merged": self._merged,
            "SentBack": self._sent_back,
            "Reviewed": self._reviewed,
            "Evaluated": self._evaluated,
            "Postponed": self._postponed,
            "Arbitrated": self._arbitrated,
            "Committed": self._committed,
            "Rejected": self._rejected,
            "Dropped": self._dropped,
            "Failed": self._failed,
            "Finished": self._finished,
            "Spent": self._take_spent,
            "Awaited": self._await,
            "Warned": lambda payload: iter([paint(f"Warning: {plain(payload['warning'])}", "warn"), ""]),
        }

    @property
    def status(self) -> str:
        """What is going on in one line, and what it has cost so far; empty while nothing is going on."""
        return " · ".join(part for part in (self._doing, self._awaited, self._spent) if part)

    @property
    def _doing(self) -> str:
        for proposal_id, case in self._cases.items():
            if not case.is_gated:
                return f"Round {self._round}: verifying {proposal_id} of {case.proposal.src}"
        return f"Round {self._round}: voting on {counted(len(self._cases), 'proposal')}" if self._cases else ""

    def _await(self, payload: Mapping[str, Any]) -> Iterator[str]:
        heard = f", {payload['characters']:,} characters so far" if payload["characters"] else ""
        self._awaited = f"{counted(payload['awaited'], 'answer')} awaited{heard}" if payload["awaited"] else ""
        yield from ()

    def _take_spent(self, payload: Mapping[str, Any]) -> Iterator[str]:
        self._spent = spent_so_far(payload)
        if payload["unpriced"] and not self._has_named_price:
            self._has_named_price = True
            yield paint("The price of this model is not known: only calls and tokens count.", "warn")

    def lines(self, topic: str, payload: Mapping[str, Any]) -> list[str]:
        """Give the lines that this event completes; none for an event that only adds to an open proposal."""
        listener = self._listeners.get(topic.rsplit("/", 1)[-1])
        return list(listener(payload)) if listener else []

    def _started(self, payload: Mapping[str, Any]) -> Iterator[str]:
        self.session = payload["session"]
        if payload["backend"] == "rules":
            yield paint(_RULES_NEGOTIATE, "dim")
            if payload.get("note"):
                yield paint(f"That is because {payload['note']}. {_CHOOSE_A_MODEL}", "dim")
        arbiters = payload["arbiters"]
        agents = [name for name in payload["agents"] if name not in arbiters]
        yield _who_negotiates(agents, arbiters) if agents else _who_negotiates(arbiters, [])
        if payload["backend"] != "rules":
            yield paint(f"Their answers come from {one_line(payload['backend'])}.", "dim")
        if payload.get("at_rest"):
            yield paint(
                f"{_names(payload['at_rest'])}: settled, nothing new since; not asked. --force asks everybody.", "dim"
            )
        if payload.get("isolation"):
            yield paint(_NO_JAIL, "warn")
        if payload.get("allow_unverified"):
            yield paint(_UNVERIFIED_PASSES, "warn")

    def _enter_round(self, payload: Mapping[str, Any]) -> Iterator[str]:
        self._round = payload["round"]
        yield from ()

    def _proposed(self, payload: Mapping[str, Any]) -> Iterator[str]:
        proposal = msgspec.convert(payload["proposal"], Proposal)
        case = self._cases.setdefault(proposal.proposal_id, _Case(proposal))
        case.proposal, case.is_gated = proposal, False
        yield from ()

    def _gated(self, payload: Mapping[str, Any]) -> Iterator[str]:
        report = msgspec.convert(payload["report"], GateReport)
        case = self._cases[payload["proposal_id"]]
        case.is_gated, case.has_passed = True, report.passed
        if report.failure:
            case.failures.append(report.failure)
        not_run = [rung for rung in report.rungs if rung.status == "not_run"]
        case.untried = [rung for rung in not_run if rung.code]
        case.untested = next((rung.message for rung in not_run if rung.rung == "G6" and not rung.code), "")
        yield from ()

    def _hear_code(self, payload: Mapping[str, Any]) -> Iterator[str]:
        """Keep what tried code has said for the proposal that is being verified."""
        words = [f"{_INDENT}{paint('|', 'dim')} {plain(line)}" for line in payload["words"].splitlines()]
        case = next((case for case in self._cases.values() if not case.is_gated), None)
        if case is None:
            yield from words
        else:
            case.words = words

    def _merged(self, payload: Mapping[str, Any]) -> Iterator[str]:
        self._cases[payload["proposal_id"]].merged = list(payload["files"])
        yield from ()

    def _sent_back(self, payload: Mapping[str, Any]) -> Iterator[str]:
        case = self._cases[payload["proposal_id"]]
        verdict = "Overtaken. Its author may fit it to what was accepted, and it is voted on again."
        yield from self._block(case, [_verdict("ARBITER", verdict, "warn"), *_because(payload["reason"])])
        case.evaluations.clear()
        case.failures.clear()

    def _reviewed(self, payload: Mapping[str, Any]) -> Iterator[str]:
        reason = f" — {one_line(payload['reason'])}" if payload["reason"] else ""
        self._cases[payload["proposal_id"]].person = f"{_WORDS[payload['verdict']]}{reason}"
        yield from ()

    def _evaluated(self, payload: Mapping[str, Any]) -> Iterator[str]:
        self._hear(msgspec.convert(payload["evaluation"], ProposalEvaluation))
        yield from ()

    def _arbitrated(self, payload: Mapping[str, Any]) -> Iterator[str]:
        evaluation = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        self._hear(msgspec.structs.replace(evaluation, evaluator=payload["arbiter"], is_arbiter=True))
        yield from ()

    def _hear(self, evaluation: ProposalEvaluation) -> None:
        """Keep a vote; the last one of an agent holds."""
        evaluations = self._cases[evaluation.proposal_id].evaluations
        evaluations.pop(evaluation.evaluator, None)
        evaluations[evaluation.evaluator] = evaluation

    def _postponed(self, payload: Mapping[str, Any]) -> Iterator[str]:
        case = self._cases[payload["proposal_id"]]
        verdict = f"{_CLOSINGS[payload['status']]}. To be decided in a later round."
        yield from self._block(case, [_verdict("ARBITER", verdict, "warn"), *_because(payload["reason"])])
        case.evaluations.clear()

    def _committed(self, payload: Mapping[str, Any]) -> Iterator[str]:
        commit = msgspec.convert(payload["commit"], CommitRecord)
        has_many = sum(name.endswith(" (ARBITER)") for name in commit.evaluators) > 1
        consensus = (
            _MANY_ACCEPT if commit.consensus_type == "arbiter" and has_many else _CONSENSUS[commit.consensus_type]
        )
        verdict = f"{consensus} ({payload['accepts']}/{payload['votes']}). Committing."
        case = self._cases.pop(commit.proposal_id)
        if case.untested:
            self._untested.setdefault(case.untested, []).append(commit.proposal_id)
        yield from self._block(case, [_verdict("ARBITER", verdict, "good")])

    def _rejected(self, payload: Mapping[str, Any]) -> Iterator[str]:
        case = self._cases.pop(payload["proposal_id"])
        if case.is_refused_by_gate:
            yield from self._block(case, [*_gate_lines(case.failures), *case.words, *self._explained(case.failures)])
            return
        votes = payload["accepts"] + payload["rejects"]
        count = f" ({payload['accepts']}/{votes})" if votes else ""
        verdict = f"{_CLOSINGS[payload['status']]}{count}. Not committed."
        yield from self._block(case, [_verdict("ARBITER", verdict, "warn"), *_because(payload["reason"])])

    def _explained(self, failures: list[RungResult]) -> Iterator[str]:
        """Say once what to do about changes that nobody can verify."""
        if not self._has_explained and any(failure.code.endswith(".unverified") for failure in failures):
            self._has_explained = True
            yield from (f"{_INDENT}{line}" for line in _UNVERIFIED_IS_REFUSED)

    def _dropped(self, payload: Mapping[str, Any]) -> Iterator[str]:
        count = counted(payload["count"], "proposal")
        yield f"{_tag('AGENT')} {_names([payload['agent']])}: {count} too many: {one_line(payload['reason'])}"

    def _failed(self, payload: Mapping[str, Any]) -> Iterator[str]:
        said = f"gave no usable answer ({payload['task']}): {one_line(payload['reason'])}"
        yield f"{_tag('AGENT')} {_names([payload['agent']])} {paint(said, 'warn')}"

    def _finished(self, payload: Mapping[str, Any]) -> Iterator[str]:
        ending = msgspec.convert(payload["ending"], Ending)
        detail = f" ({one_line(ending.detail)})" if ending.detail else ""
        yield ""
        yield (
            f"{_ENDINGS[ending.reason]}{detail}: {counted(ending.rounds_executed, 'round')}, "
            f"{counted(ending.proposals_made, 'proposal')}, {counted(ending.commits_created, 'commit')}."
        )
        for reason, proposals in self._untested.items():
            yield paint(_untested(reason, proposals), "warn")

    def _block(self, case: _Case, verdict: list[str]) -> Iterator[str]:
        """Give everything about a proposal that has just been decided."""
        if self._shown_round != self._round:
            self._shown_round = self._round
            yield ""
            yield paint(f"Round {self._round}", "strong")
        yield ""
        yield from _proposal_lines(case.proposal)
        yield ""
        if case.evaluations:
            if case.failures and case.has_passed:
                said = f"Passed after it was mended; refused before by {_failure(case.failures[-1])}"
                yield from (f"{_tag('GATE')} {said}", "")
            yield from _evaluation_lines(list(case.evaluations.values()))
            yield ""
        for rung in case.untried:
            yield _verdict("GATE", f"Not verified ({rung.code}): {one_line(rung.message)}", "warn")
        if case.merged:
            yield _verdict("GATE", f"Merged with what was accepted meanwhile: {plain(', '.join(case.merged))}", "dim")
        if case.person:
            yield f'{_tag("PERSON")} "{case.person}"'
        yield from verdict


def _who_negotiates(agents: Sequence[str], arbiters: Sequence[str]) -> str:
    verb, they = ("negotiates", "it") if len(agents) == 1 else ("negotiate", "they")
    settle = "settles" if len(arbiters) == 1 else "settle"
    judges = f"; {_names(arbiters)} {settle} what {they} cannot" if arbiters else ""
    return f"{_names(agents)} {verb}{judges}."


def _untested(reason: str, proposals: list[str]) -> str:
    """Say which accepted changes no test has judged, and why."""
    if reason == "The project has no tests.":
        return "Your tests were not run: the project has none."
    return f"Your tests say nothing about {', '.join(proposals)}: {one_line(reason[:1].lower() + reason[1:])}"


def _proposal_lines(proposal: Proposal) -> Iterator[str]:
    verb = "I propose instead to" if proposal.parent else "I propose to"
    wish = paint(f"{verb} {_uncapitalised(one_line(proposal.title or proposal.intent.replace('_', ' ')))}", "strong")
    number = paint(f"({proposal.proposal_id})", "dim")
    yield f'{_tag("AGENT")} {paint(plain(proposal.src), "name")}: "{wish}" {number}'
    affected = [name for name in dict.fromkeys([proposal.dst, *proposal.affects]) if name]
    if proposal.reason:
        yield f"{_INDENT}rationale: {one_line(proposal.reason)}"
    if affected:
        yield f"{_INDENT}affects: {plain(', '.join(affected))}"
    yield f"{_INDENT}changes: {plain(', '.join(dict.fromkeys(map(_change_place, proposal.code_changes))))}"


def _uncapitalised(text: str) -> str:
    """Give `rename x` for `Rename x`, and `HTTP stays` as it is."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _change_place(change: CodeChange) -> str:
    return f"{change.file_path} ({change.target})" if change.target else change.file_path


def _evaluation_lines(evaluations: list[ProposalEvaluation]) -> Iterator[str]:
    width = max(len(evaluation.evaluator) for evaluation in evaluations) + 1
    for evaluation in evaluations:
        name = plain(evaluation.evaluator)
        reasoning = f" — {one_line(evaluation.reasoning)}" if evaluation.reasoning else ""
        tag = _tag("ARBITER") if evaluation.is_arbiter else _tag("AGENT")
        padding = " " * (width - len(name) - 1)
        doubt = ", unsubstantiated" if _is_in_doubt(evaluation) else ""
        yield f'{tag} {paint(name, "name")}:{padding} "{_VERDICTS[evaluation.decision]}{doubt}{reasoning}"'


def _is_in_doubt(evaluation: ProposalEvaluation) -> bool:
    """Tell whether this is an objection without evidence that holds; an arbiter's word needs none."""
    is_objection = evaluation.decision == "reject" and not evaluation.is_arbiter
    return is_objection and not any(item.is_verified for item in evaluation.evidence)


def _gate_lines(failures: list[RungResult]) -> list[str]:
    """Say why the gate refused; each further failure is one that an attempt to mend the proposal met."""
    return [
        _verdict("GATE", f"{'Refused' if not i else 'Mended, refused again'} by {_failure(failure)}", "warn")
        for i, failure in enumerate(failures)
    ]


def _failure(failure: RungResult) -> str:
    line = f":{failure.line}" if failure.line else ""
    place = f"{failure.path}{line}: " if failure.path else ""
    return f"{failure.code or failure.rung}: {place}{one_line(failure.message)}"


def _verdict(who: str, text: str, role: Role) -> str:
    return f"{_tag(who)} {paint(text, role)}"


def _because(reason: str) -> list[str]:
    return [f"{_INDENT}because: {one_line(reason)}"] if reason else []


def _tag(word: str) -> str:
    return paint(f"[{word}]", "accent")


def _names(names: Iterable[str]) -> str:
    return ", ".join(paint(plain(name), "name") for name in names)


def spent_so_far(amounts: Mapping[str, Any]) -> str:
    """Give `12 calls, 34,567 tokens, $0.12`; dollars only where a price is known."""
    parts = [counted(amounts["calls"], "call"), f"{amounts['tokens']:,} tokens"]
    if amounts["cost_usd"] or not amounts["unpriced"]:
        parts.append(dollars(amounts["cost_usd"]))
    return ", ".join(parts)
