"""A session with all that is known about it: record, transcript, whether its changes were written, edges of its agents.

The report and `graphbus inspect-negotiation` show the same `Story`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.errors import NegotiationError, Place
from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import CodeChange, GateReport, ProposalEvaluation, ProposalRecord, VoteDecision
from graphbus_core.negotiation.transcript import (
    TRANSCRIPT,
    SessionRecord,
    TranscriptEvent,
    load_session,
    load_transcript,
    sessions_dir,
)

Fate = Literal["", "written", "undone"]


class Note(NamedTuple):
    """A remark about an agent in a round, not about a proposal."""

    round: int
    agent: str
    text: str


class ProposalStep(NamedTuple):
    """A step of a proposal through the negotiation; `role` is its colour: `"good"`, `"bad"` or empty for neutral."""

    text: str
    role: str = ""


VOTES = ProposalStep("votes")
"""Marks where the final votes stand among the steps of a proposal."""


class _VotedOn(msgspec.Struct, frozen=True):
    """The field of an evaluation that is used here."""

    proposal_id: str


class _Event(msgspec.Struct, frozen=True):
    """The fields of negotiation events that are used here; each event has some of them."""

    proposal_id: str = ""
    agent: str = ""
    report: GateReport | None = None
    evaluation: _VotedOn | None = None
    files: tuple[str, ...] = ()
    verdict: str = ""
    reason: str = ""
    task: str = ""
    round: int = 0
    count: int = 0

    @property
    def about(self) -> str:
        """The ID of the proposal that the event is about."""
        return self.evaluation.proposal_id if self.evaluation else self.proposal_id


class ProposalStory:
    """One proposal with its votes, gate reports and steps.

    Args:
        known: The steps and gate reports of the transcript, in order; if empty, those of the record are used.

    Attributes:
        record: The proposal as the session recorded it.
        anchor: The HTML id of its element: unique in the page, and safe for any proposal ID.
        reports: The reports of the gate, in order.
        steps: The steps between proposal and outcome, in order.
    """

    def __init__(
        self, record: ProposalRecord, anchor: str = "", known: Sequence[ProposalStep | GateReport] = ()
    ) -> None:
        self.record = record
        self.proposal = record.proposal
        self.anchor = anchor
        recorded = known or [*([record.gate] if record.gate else ()), *([VOTES] if record.evaluations else ())]
        self.reports = tuple(each for each in recorded if isinstance(each, GateReport))
        first = self.reports[0] if self.reports else None
        self.steps = tuple(
            each if isinstance(each, ProposalStep) else _gate_step(each, is_first=each is first) for each in recorded
        )

    @property
    def name(self) -> str:
        """The id of the proposal."""
        return self.proposal.proposal_id

    @property
    def title(self) -> str:
        """The title, or else the intent, in one line."""
        return " ".join((self.proposal.title or self.proposal.intent).split()) or "Without a title"

    @property
    def affected(self) -> tuple[str, ...]:
        """The agents that the proposal names as recipient or as affected, without the proposer."""
        proposal = self.proposal
        named = (*([proposal.dst] if proposal.dst else []), *proposal.affects)
        return tuple(name for name in dict.fromkeys(named) if name != proposal.src)

    @cached_property
    def votes(self) -> tuple[ProposalEvaluation, ...]:
        """The last vote of each evaluator, arbiters after the others."""
        latest = {(vote.is_arbiter, vote.agent): vote for vote in self.record.evaluations}
        return tuple(sorted(latest.values(), key=lambda vote: vote.is_arbiter))

    @property
    def concerned(self) -> tuple[str, ...]:
        """The proposer, the affected agents and the voters."""
        voters = (vote.agent for vote in self.record.evaluations)
        return tuple(dict.fromkeys((self.proposal.src, *self.affected, *voters)))

    def count(self, decision: VoteDecision) -> int:
        """Count the agents with this decision, without arbiters."""
        return sum(vote.decision == decision and not vote.is_arbiter for vote in self.votes)


class Story:
    """A whole session.

    Attributes:
        record: The record of the session.
        edges: The edges between its agents, sorted; None if they are unknown.
        fate: `"written"` or `"undone"` if the journal says so about the accepted changes; otherwise empty.
        cases: The proposals in order.
        notes: Remarks that belong to no proposal, in order.
        agents: The agents in activation order, then those that only proposals name.
        files: The files that proposals change, sorted.
        rounds: The numbers of the rounds, from 1.
    """

    def __init__(
        self,
        record: SessionRecord,
        edges: Iterable[Edge] | None,
        events: Iterable[TranscriptEvent] = (),
        fate: Fate = "",
    ) -> None:
        self.record = record
        self.fate = fate
        steps, self.notes = _read_transcript(events)
        records = record.negotiations.records
        self.cases = tuple(
            ProposalStory(each, anchor, steps.get(each.proposal.proposal_id, ()))
            for each, anchor in zip(records, _make_anchors(records), strict=True)
        )
        named = (name for case in self.cases for name in case.concerned)
        self.agents = tuple(dict.fromkeys((*record.agents, *named)))
        self.files = tuple(sorted({path for case in self.cases for path in case.proposal.files}))
        last = max(record.negotiations.ending.rounds_executed, *(case.proposal.round for case in self.cases), 0)
        self.rounds = range(1, last + 1)
        self.edges = None if edges is None else self._edges_between_agents(edges)

    def _edges_between_agents(self, edges: Iterable[Edge]) -> tuple[Edge, ...]:
        """Return the edges between two different agents of the session, each once, sorted."""
        known = set(self.agents)
        inner = {edge for edge in edges if {edge.source, edge.target} <= known and edge.source != edge.target}
        return tuple(sorted(inner, key=lambda edge: (edge.source, edge.target, edge.kind, edge.label)))

    @cached_property
    def by_id(self) -> dict[str, ProposalStory]:
        """Proposal ID -> proposal; if several have the same ID, the first."""
        return {case.name: case for case in reversed(self.cases)}

    def diffs_of(self, entry: ProposalStory) -> dict[str, str]:
        """Return path -> the unified diff that the voters saw; empty if there is none in the record."""
        commit = entry.record.commit
        return self.record.diffs.get(entry.name) or (commit.resolution if commit else {})

    def counters(self, name: str) -> list[str]:
        """Return the IDs of the proposals that counter this one."""
        return [case.name for case in self.cases if name and case.proposal.parent == name]

    @property
    def was_free(self) -> bool:
        """True if no model was asked."""
        spent = self.record.spent
        return not (spent.requests or spent.cost_usd or spent.usage.total_tokens or self.record.costs)

    @property
    def outcome(self) -> str:
        """Whether the accepted changes were written, as a sentence without a full stop."""
        if not self.record.negotiations.completed:
            return "Nothing was accepted, no file was changed"
        if self.fate == "undone":
            return "The accepted changes were written and later undone"
        if self.fate or self.record.is_applied:
            return "The accepted changes are in the source files"
        return "The accepted changes were not written"

    def facts(self) -> dict[str, Any]:
        """Return the facts of the page as one JSON document with a fixed order of keys."""
        record = self.record
        commits = record.negotiations.completed
        return {
            "generator": "GraphBus report",
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
                {"id": case.name, **msgspec.to_builtins(case.record), "climbs": msgspec.to_builtins(case.reports)}
                for case in self.cases
            ],
        }


def load_story(
    config: ResolvedBuild, session: str = "", edges: Iterable[Edge] | None = None, *, has_transcript: bool = True
) -> Story:
    """Load a session, by default the last one; without a transcript only its record is used.

    Raises:
        NegotiationError: GBE403 there are no sessions, GBE404 there is no such session, GBE405 it cannot be read.
        EditError: The journal cannot be read.
    """
    from graphbus_core.editing.promotion import fate_of

    record = load_session(config.artifacts_dir, session)
    folder = sessions_dir(config.artifacts_dir) / record.session
    is_recorded = has_transcript and (folder / TRANSCRIPT).exists()
    events = load_transcript(config.artifacts_dir, record.session) if is_recorded else ()
    fate: Fate = fate_of(config, record.session)
    try:
        return Story(record, edges, events, fate)
    except msgspec.ValidationError as error:
        where = Place(str(folder))
        raise NegotiationError("GBE405", session=record.session, reason=str(error), where=where) from error


def diff_of(change: CodeChange) -> str:
    """Return the unified diff of a change against the text that it was written for."""
    from graphbus_core.editing.edits import unified_diff

    texts = (f"{code}\n" if code and code[-1] != "\n" else code for code in (change.old_code, change.new_code))
    return unified_diff(change.file_path, *(text.encode(errors="replace") for text in texts)) or change.diff


def _make_anchors(records: Iterable[ProposalRecord]) -> Iterator[str]:
    """Yield an HTML id for each proposal: its own ID if that is safe and new, otherwise `proposal-` and a number."""
    taken: set[str] = set()
    for number, record in enumerate(records):
        name = record.proposal.proposal_id
        is_usable = re.fullmatch(r"P[0-9]{1,9}", name) and name not in taken
        taken.add(name)
        yield name if is_usable else f"proposal-{number}"


def _read_transcript(
    events: Iterable[TranscriptEvent],
) -> tuple[dict[str, list[ProposalStep | GateReport]], tuple[Note, ...]]:
    """Return proposal ID -> steps in order, and the notes. Only the last votes on a proposal are among its steps."""
    steps: dict[str, list[ProposalStep | GateReport]] = {}
    notes: list[Note] = []
    round = 0
    for each in events:
        kind = each.topic.rpartition("/")[2]
        if kind not in _READ_KINDS:
            continue
        event = msgspec.convert(each.payload, _Event)
        own = steps.setdefault(event.about, [])
        if kind == "Round":
            round = event.round
        elif kind == "Evaluated":
            own[:] = [*(step for step in own if step is not VOTES), VOTES]
        elif kind == "Gated":
            own += [event.report] if event.report else []
        elif kind in _NOTED:
            notes.append(Note(round, event.agent, _make_step(_NOTED[kind], event).text))
        else:
            own.append(_make_step(_STEPS[kind], event))
    return steps, tuple(notes)


_NOTED = {
    "Failed": "gave no usable answer ({0.task}): {0.reason}",
    "Dropped": "{0.count} proposal{plural} too many: {0.reason}",
}
_STEPS = {
    "Merged": "Merged with other accepted changes in {files}",
    "SentBack": "Sent back: {0.reason}",
    "Reviewed": "A person answered {0.verdict}{reason}",
}
_VERDICT_ROLES = {"yes": "good", "no": "bad"}
_READ_KINDS = {"Round", "Evaluated", "Gated", *_NOTED, *_STEPS}


def _make_step(form: str, event: _Event) -> ProposalStep:
    """Return the step for an event; `form` is its text in `_NOTED` or `_STEPS`, with places for the fields."""
    reason = f" ({event.reason})" if event.reason else ""
    text = form.format(event, files=", ".join(event.files), reason=reason, plural="" if event.count == 1 else "s")
    return ProposalStep(text, "bad" if form == _STEPS["SentBack"] else _VERDICT_ROLES.get(event.verdict, ""))


def _gate_step(report: GateReport, *, is_first: bool) -> ProposalStep:
    """Return the step for a gate report; further reports of a proposal begin with `Gate again`."""
    name = "Gate" if is_first else "Gate again"
    if report.failure:
        return ProposalStep(f"{name}: refused at {report.failure.code or report.failure.rung}", "bad")
    return ProposalStep(f"{name}: passed", "good") if report.passed else ProposalStep(f"{name}: not passed", "bad")
