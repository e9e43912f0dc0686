"""What a report tells: the record of a session, the edges between its agents, and what only the transcript knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import (
    GateReport,
    ProposalEvaluation,
    ProposalRecord,
    Status,
    TerminationReason,
    VoteDecision,
)
from graphbus_core.negotiation.transcript import Said, SessionRecord
from graphbus_core.schema.json import Json

Fate = Literal["", "written", "undone"]

STATUSES: dict[Status, str] = {
    "accepted": "Accepted",
    "rejected": "Rejected",
    "refused": "Refused",
    "countered": "Countered",
    "superseded": "Superseded",
    "deferred": "Deferred",
    "pending": "Pending",
}
DECISIONS: dict[VoteDecision, str] = {
    "accept": "Accept",
    "reject": "Reject",
    "counter": "Counter",
    "defer": "Defer",
    "abstain": "Abstain",
}
ENDINGS: dict[TerminationReason, str] = {
    "convergence": "Converged after {rounds}",
    "max_rounds": "Stopped after {rounds}, the limit",
    "file_limit": "Stopped after {rounds}: the limit of changed files was reached",
    "manual": "Stopped by hand after {rounds}",
    "budget": "Stopped after {rounds}: the budget is used up",
    "oscillation": "Stopped after {rounds}: the proposals went in circles",
    "error": "Stopped by an error after {rounds}",
}
RUNGS = {
    "G0": "Scope",
    "G1": "Apply",
    "G2": "Parse",
    "G3": "Capability",
    "G4": "Contract",
    "G5": "Import",
    "G6": "Tests",
    "G7": "Checks",
    "G8": "Smoke",
}


class Note(NamedTuple):
    """Something besides the proposals that happened in a round; `agent` said or did it."""

    round: int
    agent: str
    text: str


class Step(NamedTuple):
    """Something that happened to a proposal; `role` is how it is meant: `"good"`, `"bad"`, or nothing in particular."""

    text: str
    role: str = ""


VOTES = Step("votes")
"""Stands where the votes that count were given."""


class _Gated(msgspec.Struct, frozen=True):
    proposal_id: str
    report: GateReport


class _Judged(msgspec.Struct, frozen=True):
    proposal_id: str


class _Evaluated(msgspec.Struct, frozen=True):
    evaluation: _Judged


class _Merged(msgspec.Struct, frozen=True):
    proposal_id: str
    files: tuple[str, ...]


class _SentBack(msgspec.Struct, frozen=True):
    proposal_id: str
    reason: str


class _Reviewed(msgspec.Struct, frozen=True):
    proposal_id: str
    verdict: str
    reason: str = ""


class _Failed(msgspec.Struct, frozen=True):
    agent: str
    task: str
    reason: str


class _Dropped(msgspec.Struct, frozen=True):
    agent: str
    count: int
    reason: str


class _Round(msgspec.Struct, frozen=True):
    round: int


class Case:
    """One proposal and what it has to do with the others.

    Attributes:
        record: Its story.
        anchor: The name of its place in the page, unique there and safe whatever the proposal's id is.
        climbs: Every report of the gate, the last one last.
        steps: What happened between its making and its end, in order.
    """

    def __init__(self, record: ProposalRecord, anchor: str = "", known: Sequence[Step | GateReport] = ()) -> None:
        self.record = record
        self.proposal = record.proposal
        self.anchor = anchor
        told = known or [*([record.gate] if record.gate else ()), *([VOTES] if record.evaluations else ())]
        self.climbs = tuple(each for each in told if isinstance(each, GateReport))
        self.steps = tuple(
            each if isinstance(each, Step) else _climbed(each, is_first=each is self.climbs[0]) for each in told
        )

    @property
    def name(self) -> str:
        """Its id, as people call it."""
        return self.proposal.proposal_id

    @property
    def title(self) -> str:
        """What it wants, in one line."""
        return " ".join((self.proposal.title or self.proposal.intent).split()) or "Without a title"

    @property
    def affected(self) -> tuple[str, ...]:
        """The agents that it addresses or names as affected, without the proposer."""
        proposal = self.proposal
        named = (*([proposal.dst] if proposal.dst else []), *proposal.affects)
        return tuple(name for name in dict.fromkeys(named) if name != proposal.src)

    @cached_property
    def votes(self) -> tuple[ProposalEvaluation, ...]:
        """The last word of each evaluator, arbiters after the others."""
        latest = {(vote.is_arbiter, vote.evaluator): vote for vote in self.record.evaluations}
        return tuple(sorted(latest.values(), key=lambda vote: vote.is_arbiter))

    @property
    def everybody(self) -> tuple[str, ...]:
        """All who have to do with it: the proposer, the affected, the voters."""
        return tuple(
            dict.fromkeys((self.proposal.src, *self.affected, *(vote.evaluator for vote in self.record.evaluations)))
        )

    def count(self, decision: VoteDecision) -> int:
        """Give how many agents, arbiters apart, have decided so."""
        return sum(vote.decision == decision and not vote.is_arbiter for vote in self.votes)


class Story:
    """A whole session.

    Attributes:
        record: What came of it.
        edges: Between its agents, sorted; None when neither artifacts nor sources tell.
        fate: What became of the accepted changes, by the journal.
        cases: The proposals in order.
        notes: What else happened, in order.
    """

    def __init__(
        self, record: SessionRecord, edges: Iterable[Edge] | None, said: Sequence[Said] = (), fate: Fate = ""
    ) -> None:
        self.record = record
        known = set(self.agents)
        self.edges: tuple[Edge, ...] | None = None
        if edges is not None:
            inner = {edge for edge in edges if {edge.source, edge.target} <= known and edge.source != edge.target}
            self.edges = tuple(sorted(inner, key=lambda edge: (edge.source, edge.target, edge.kind, edge.label)))
        self.fate = fate
        steps = _steps(said)
        records = record.negotiations.records
        self.cases = tuple(
            Case(each, anchor, steps.get(each.proposal.proposal_id, ()))
            for each, anchor in zip(records, _anchors(records), strict=True)
        )
        self.notes = tuple(_notes(said))

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """All agents of the session, in the order of activation; then those that only proposals name."""
        records = self.record.negotiations.records
        named = (name for each in records for name in Case(each).everybody)
        return tuple(dict.fromkeys((*self.record.agents, *named)))

    @cached_property
    def agent_numbers(self) -> dict[str, int]:
        """Agent -> its place in `agents`: short and safe to stand in an attribute."""
        return {name: number for number, name in enumerate(self.agents)}

    @cached_property
    def files(self) -> tuple[str, ...]:
        """All files that some proposal wanted to change, sorted."""
        return tuple(sorted({path for case in self.cases for path in case.proposal.files}))

    @cached_property
    def file_numbers(self) -> dict[str, int]:
        """File -> its place in `files`."""
        return {path: number for number, path in enumerate(self.files)}

    @cached_property
    def by_name(self) -> dict[str, Case]:
        """Proposal id -> its case; of two with one id the first."""
        found: dict[str, Case] = {}
        for case in self.cases:
            found.setdefault(case.name, case)
        return found

    @property
    def rounds(self) -> range:
        """The rounds, from 1."""
        rounds = (case.proposal.round for case in self.cases)
        return range(1, max(self.record.negotiations.ending.rounds_executed, *rounds, 0) + 1)

    @cached_property
    def counters(self) -> dict[str, tuple[Case, ...]]:
        """Proposal id -> the proposals that counter it."""
        found: dict[str, tuple[Case, ...]] = {}
        for case in self.cases:
            if case.proposal.parent:
                found[case.proposal.parent] = (*found.get(case.proposal.parent, ()), case)
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """Who negotiated: the distinct models, or the rules."""
        return tuple(dict.fromkeys(self.record.models.values())) or (self.record.backend,)

    @property
    def was_free(self) -> bool:
        """True when no model was asked."""
        spent = self.record.spent
        return not (spent.requests or spent.cost_usd or spent.usage.total_tokens or self.record.costs)

    @property
    def outcome(self) -> str:
        """What became of the accepted changes, in one sentence without its full stop."""
        if not self.record.negotiations.completed:
            return "Nothing was accepted, no file was changed"
        if self.fate == "undone":
            return "The accepted changes were written and undone since"
        if self.fate or self.record.is_applied:
            return "The accepted changes are in the source files"
        return "The accepted changes were not written"


def _anchors(records: Iterable[ProposalRecord]) -> Iterator[str]:
    taken: set[str] = set()
    for number, record in enumerate(records):
        name = record.proposal.proposal_id
        is_usable = re.fullmatch(r"P[0-9]{1,9}", name) and name not in taken
        taken.add(name)
        yield name if is_usable else f"proposal-{number}"


def _steps(said: Iterable[Said]) -> dict[str, list[Step | GateReport]]:
    """Give what happened to each proposal, in order; of several votes on it the last ones count."""
    steps: dict[str, list[Step | GateReport]] = {}
    for event in said:
        kind = event.topic.rpartition("/")[2]
        if kind == "Evaluated":
            own = steps.setdefault(msgspec.convert(event.payload, _Evaluated).evaluation.proposal_id, [])
            own[:] = [*(step for step in own if step is not VOTES), VOTES]
        elif kind == "Gated":
            gated = msgspec.convert(event.payload, _Gated)
            steps.setdefault(gated.proposal_id, []).append(gated.report)
        elif kind in _TOLD:
            name, step = _told(kind, event.payload)
            steps.setdefault(name, []).append(step)
    return steps


_TOLD = ("Merged", "SentBack", "Reviewed")


def _told(kind: str, payload: Json) -> tuple[str, Step]:
    if kind == "Merged":
        merged = msgspec.convert(payload, _Merged)
        return merged.proposal_id, Step(f"Merged with what others changed in {', '.join(merged.files)}")
    if kind == "SentBack":
        back = msgspec.convert(payload, _SentBack)
        return back.proposal_id, Step(f"Sent back: {back.reason}", "bad")
    reviewed = msgspec.convert(payload, _Reviewed)
    reason = f" ({reviewed.reason})" if reviewed.reason else ""
    return reviewed.proposal_id, Step(f"A person said {reviewed.verdict}{reason}", _PERSON.get(reviewed.verdict, ""))


_PERSON = {"yes": "good", "no": "bad"}


def _climbed(report: GateReport, *, is_first: bool) -> Step:
    name = "Gate" if is_first else "Gate again"
    if report.failure:
        return Step(f"{name}: refused at {report.failure.code or report.failure.rung}", "bad")
    return Step(f"{name}: passed", "good") if report.passed else Step(f"{name}: not passed", "bad")


def _notes(said: Iterable[Said]) -> Iterator[Note]:
    round = 0
    for event in said:
        if event.topic == "/Negotiation/Round":
            round = msgspec.convert(event.payload, _Round).round
        elif event.topic == "/Negotiation/Failed":
            failed = msgspec.convert(event.payload, _Failed)
            yield Note(round, failed.agent, f"gave no usable answer ({failed.task}): {failed.reason}")
        elif event.topic == "/Negotiation/Dropped":
            dropped = msgspec.convert(event.payload, _Dropped)
            noun = "proposal" if dropped.count == 1 else "proposals"
            yield Note(round, dropped.agent, f"{dropped.count} {noun} too many: {dropped.reason}")
