"""What a report tells: the record of a session, the edges between its agents, and what only the transcript knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import GateReport, ProposalEvaluation, ProposalRecord, VoteDecision
from graphbus_core.negotiation.transcript import Said, SessionRecord

GENERATOR = "GraphBus report"
Fate = Literal["", "written", "undone"]
_PERSON = {"yes": "good", "no": "bad"}


class _Note(NamedTuple):
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


class _Judged(msgspec.Struct, frozen=True):
    proposal_id: str


class _Event(msgspec.Struct, frozen=True):
    """The parts of the events of a negotiation that a report shows; each event has some of them."""

    proposal_id: str = ""
    agent: str = ""
    report: GateReport | None = None
    evaluation: _Judged | None = None
    files: tuple[str, ...] = ()
    verdict: str = ""
    reason: str = ""
    task: str = ""
    round: int = 0
    count: int = 0


class Case:
    """One proposal and its relation to the others.

    Attributes:
        record: Its story.
        anchor: The id of its element in the page, unique there and safe whatever the proposal's id is.
        climbs: Every report of the gate, the last one last.
        steps: What happened between proposal and outcome, in order.
    """

    def __init__(self, record: ProposalRecord, anchor: str = "", known: Sequence[Step | GateReport] = ()) -> None:
        self.record = record
        self.proposal = record.proposal
        self.anchor = anchor
        told = known or [*([record.gate] if record.gate else ()), *([VOTES] if record.evaluations else ())]
        self.climbs = tuple(each for each in told if isinstance(each, GateReport))
        first = self.climbs[0] if self.climbs else None
        self.steps = tuple(each if isinstance(each, Step) else _climbed(each, is_first=each is first) for each in told)

    @property
    def name(self) -> str:
        """The id of the proposal."""
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
        """The last vote of each evaluator, arbiters after the others."""
        latest = {(vote.is_arbiter, vote.evaluator): vote for vote in self.record.evaluations}
        return tuple(sorted(latest.values(), key=lambda vote: vote.is_arbiter))

    @property
    def concerned(self) -> tuple[str, ...]:
        """The proposer, the affected agents and the voters."""
        voters = (vote.evaluator for vote in self.record.evaluations)
        return tuple(dict.fromkeys((self.proposal.src, *self.affected, *voters)))

    def count(self, decision: VoteDecision) -> int:
        """Count the agents, without arbiters, that decided so."""
        return sum(vote.decision == decision and not vote.is_arbiter for vote in self.votes)


class Story:
    """A whole session.

    Attributes:
        record: Its outcome.
        edges: Between its agents, sorted; None when neither artifacts nor sources tell them.
        fate: What became of the accepted changes, by the journal.
        cases: The proposals in order.
        notes: What else happened, in order.
        agents: All agents in the order of activation, then those that only proposals name.
        files: All files that a proposal wanted to change, sorted.
        rounds: From 1.
    """

    def __init__(
        self, record: SessionRecord, edges: Iterable[Edge] | None, said: Sequence[Said] = (), fate: Fate = ""
    ) -> None:
        self.record = record
        self.fate = fate
        steps, self.notes = _read(said)
        records = record.negotiations.records
        self.cases = tuple(
            Case(each, anchor, steps.get(each.proposal.proposal_id, ()))
            for each, anchor in zip(records, _anchors(records), strict=True)
        )
        named = (name for case in self.cases for name in case.concerned)
        self.agents = tuple(dict.fromkeys((*record.agents, *named)))
        self.files = tuple(sorted({path for case in self.cases for path in case.proposal.files}))
        last = max(record.negotiations.ending.rounds_executed, *(case.proposal.round for case in self.cases), 0)
        self.rounds = range(1, last + 1)
        self.edges = None if edges is None else self._inner(edges)

    def _inner(self, edges: Iterable[Edge]) -> tuple[Edge, ...]:
        known = set(self.agents)
        inner = {edge for edge in edges if {edge.source, edge.target} <= known and edge.source != edge.target}
        return tuple(sorted(inner, key=lambda edge: (edge.source, edge.target, edge.kind, edge.label)))

    @cached_property
    def by_name(self) -> dict[str, Case]:
        """Proposal id -> its case; of two with one id the first."""
        return {case.name: case for case in reversed(self.cases)}

    def counters(self, name: str) -> list[str]:
        """Give the proposals that counter one."""
        return [case.name for case in self.cases if case.proposal.parent and case.proposal.parent == name]

    @property
    def models(self) -> tuple[str, ...]:
        """The distinct models that negotiated, or the rules."""
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

    def facts(self) -> dict[str, Any]:
        """Give what the page shows, for programs: one JSON document, its keys in a fixed order."""
        record = self.record
        commits = record.negotiations.completed
        return {
            "generator": GENERATOR,
            "session": record.session,
            "outcome": {
                "ending": msgspec.to_builtins(record.negotiations.ending),
                "is_applied": record.is_applied,
                "fate": self.fate,
                "refusal": record.refusal,
                "commits": [commit.commit_id for commit in commits],
                "files": sorted({path for commit in commits for path in commit.files_modified}),
            },
            **{name: getattr(record, name) for name in ("intent", "backend", "models")},
            "agents": self.agents,
            "arbiters": record.arbiters,
            "edges": msgspec.to_builtins(self.edges),
            "cost": {
                "spent": {**msgspec.structs.asdict(record.spent), "usage": msgspec.structs.asdict(record.spent.usage)},
                "by_proposal_usd": record.costs,
            },
            "rounds": [
                {
                    "round": number,
                    "proposals": [case.name for case in self.cases if case.proposal.round == number],
                    "notes": [{"agent": note.agent, "text": note.text} for note in self.notes if note.round == number],
                }
                for number in self.rounds
            ],
            "proposals": [
                {"id": case.name, **msgspec.to_builtins(case.record), "climbs": msgspec.to_builtins(case.climbs)}
                for case in self.cases
            ],
        }


def _anchors(records: Iterable[ProposalRecord]) -> Iterator[str]:
    taken: set[str] = set()
    for number, record in enumerate(records):
        name = record.proposal.proposal_id
        is_usable = re.fullmatch(r"P[0-9]{1,9}", name) and name not in taken
        taken.add(name)
        yield name if is_usable else f"proposal-{number}"


def _read(said: Iterable[Said]) -> tuple[dict[str, list[Step | GateReport]], tuple[_Note, ...]]:
    """Give what happened to each proposal, in order, and the notes; of several votes on a proposal the last ones count."""
    steps: dict[str, list[Step | GateReport]] = {}
    notes: list[_Note] = []
    round = 0
    for each in said:
        kind = each.topic.removeprefix("/Negotiation/")
        if kind not in _SHOWN:
            continue
        event = msgspec.convert(each.payload, _Event)
        own = steps.setdefault(event.evaluation.proposal_id if event.evaluation else event.proposal_id, [])
        if kind == "Round":
            round = event.round
        elif kind == "Evaluated":
            own[:] = [*(step for step in own if step is not VOTES), VOTES]
        elif event.report:
            own.append(event.report)
        elif kind in ("Failed", "Dropped"):
            notes.append(_Note(round, event.agent, _noted(kind, event)))
        else:
            own.append(_told(kind, event))
    return steps, tuple(notes)


_SHOWN = ("Round", "Evaluated", "Gated", "Merged", "SentBack", "Reviewed", "Failed", "Dropped")


def _noted(kind: str, event: _Event) -> str:
    if kind == "Failed":
        return f"gave no usable answer ({event.task}): {event.reason}"
    return f"{event.count} proposal{'' if event.count == 1 else 's'} too many: {event.reason}"


def _told(kind: str, event: _Event) -> Step:
    if kind == "Merged":
        return Step(f"Merged with what others changed in {', '.join(event.files)}")
    if kind == "SentBack":
        return Step(f"Sent back: {event.reason}", "bad")
    reason = f" ({event.reason})" if event.reason else ""
    return Step(f"A person said {event.verdict}{reason}", _PERSON.get(event.verdict, ""))


def _climbed(report: GateReport, *, is_first: bool) -> Step:
    name = "Gate" if is_first else "Gate again"
    if report.failure:
        return Step(f"{name}: refused at {report.failure.code or report.failure.rung}", "bad")
    return Step(f"{name}: passed", "good") if report.passed else Step(f"{name}: not passed", "bad")
