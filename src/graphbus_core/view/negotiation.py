"""A negotiation as the page shows it: made from its events, as they come on the bus or as a transcript has kept them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec

from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.errors import NegotiationError
from graphbus_core.model.proposals import (
    CommitRecord,
    Ending,
    GateReport,
    Proposal,
    ProposalEvaluation,
    RungResult,
    Status,
)
from graphbus_core.negotiation.transcript import TRANSCRIPT, list_sessions, load_session, load_transcript, sessions_dir
from graphbus_core.view.messages import Cost, NegotiationPicture, ProposalPicture, Rung, Vote

TOPICS = "/Negotiation/*"

_NO_SESSION = "No negotiation has been recorded here: `graphbus build --enable-agents` starts one."
_NO_TRANSCRIPT = "The transcript is missing, so only the outcome of the session is shown."
_Stage = Literal["proposed", "gate", "votes", "arbiter", "decided"]
_Payload = Mapping[str, Any]
_ENDINGS = {
    "convergence": "Convergence: no agent has anything left to propose",
    "max_rounds": "Stopped at the limit of rounds",
    "file_limit": "Stopped at the limit of changed files",
    "manual": "Stopped by hand",
    "budget": "Stopped: the budget is used up",
    "oscillation": "Stopped: the proposals go in circles",
    "error": "Stopped by an error",
}


class _Case:
    """One proposal so far."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.status: Status = "pending"
        self.stage: _Stage = "gate"
        self.reports: list[GateReport] = []
        self.checked: list[RungResult] = []
        self.votes: dict[tuple[str, bool], ProposalEvaluation] = {}
        self.steps: list[str] = []
        self.outcome = ""
        self.diff = ""
        self.cost_usd: float | None = None

    def picture(self) -> ProposalPicture:
        """Return it as the page shows it."""
        proposal = self.proposal
        named = (proposal.dst or "", *proposal.affects)
        return ProposalPicture(
            id=proposal.proposal_id,
            src=proposal.src,
            title=" ".join((proposal.title or proposal.intent).split()),
            reason=proposal.reason,
            round=proposal.round,
            files=proposal.files,
            affects=tuple(dict.fromkeys(name for name in named if name and name != proposal.src)),
            status=self.status,
            stage=self.stage,
            checks=(
                *(_rungs_of(each.rungs) for each in self.reports),
                *([_climb(self.checked)] if self.stage == "gate" else []),
            ),
            votes=tuple(
                Vote(evaluator=each.agent, decision=each.decision, is_arbiter=each.is_arbiter, reason=each.reasoning)
                for each in self.votes.values()
            ),
            steps=tuple(self.steps),
            outcome=self.outcome,
            parent=proposal.parent or "",
            diff=self.diff or "\n".join(filter(None, (change.diff for change in proposal.code_changes))),
            cost_usd=self.cost_usd,
        )


def _rungs_of(results: Iterable[RungResult]) -> tuple[Rung, ...]:
    return tuple(
        Rung(rung=each.rung, name=RUNGS.get(each.rung, ""), status=each.status, code=each.code, message=each.message)
        for each in results
    )


def _climb(checked: Sequence[RungResult]) -> tuple[Rung, ...]:
    """Return the rungs of a check that goes on: after those that have ended, one runs and the others wait."""
    rest = list(RUNGS.items())[len(checked) :]
    ahead = (Rung(rung=rung, name=name, status="waiting" if i else "running") for i, (rung, name) in enumerate(rest))
    return (*_rungs_of(checked), *ahead)


class Board:
    """A negotiation so far. One thread adds its events, any thread asks for the picture.

    The event `/Negotiation/SentBack` is handled by `_on_sentback`; one without such a method is ignored.

    Args:
        cap_usd: The most that it may cost; 0: no limit, or it is not known.

    Attributes:
        changes: How many events it has taken.
    """

    def __init__(self, cap_usd: float = 0.0) -> None:
        self._lock = Lock()
        self._cases: dict[str, _Case] = {}
        self._picture = NegotiationPicture(session="", state="none", cost=Cost(cap_usd=cap_usd))
        self._notes: list[str] = []
        self.changes = 0

    def add(self, topic: str, payload: Any) -> None:
        """Take one event; called with the topic and the payload as they were published."""
        listener = getattr(self, f"_on_{topic.rpartition('/')[2].lower()}", None)
        if listener is not None:
            with self._lock:
                listener(payload)
                self.changes += 1

    def picture(self) -> NegotiationPicture:
        """Return the negotiation so far."""
        with self._lock:
            proposals = tuple(case.picture() for case in self._cases.values())
            return msgspec.structs.replace(self._picture, proposals=proposals, notes=tuple(self._notes))

    def _change(self, **fields: Any) -> None:
        self._picture = msgspec.structs.replace(self._picture, **fields)

    def _case(self, payload: _Payload) -> _Case:
        return self._cases[payload["proposal_id"]]

    # --- the session ---

    def _on_started(self, payload: _Payload) -> None:
        self._change(
            session=payload["session"],
            state="running",
            intent=payload["intent"],
            backend=payload["backend"],
            agents=tuple(payload["agents"]),
            arbiters=tuple(payload["arbiters"]),
        )

    def _on_round(self, payload: _Payload) -> None:
        self._change(round=payload["round"], activity=f"Round {payload['round']}: the agents are asked for proposals.")

    def _on_spent(self, payload: _Payload) -> None:
        self._change(
            cost=Cost(
                spent_usd=payload["cost_usd"],
                cap_usd=payload["of_usd"],
                calls=payload["calls"],
                requests=payload["requests"],
                cached=payload["cached"],
                tokens=payload["tokens"],
                unpriced=payload["unpriced"],
            )
        )

    def _on_awaited(self, payload: _Payload) -> None:
        first = next(iter(payload.get("asked", ())), None)
        who = f", {first['agent']} for {first['seconds']:.0f} s" if first else ""
        count = payload["awaited"]
        self._change(activity=f"{count} answer{'' if count == 1 else 's'} awaited{who}." if count else "")

    def _on_warned(self, payload: _Payload) -> None:
        self._notes.append(payload["warning"])

    def _on_failed(self, payload: _Payload) -> None:
        self._notes.append(f"{payload['agent']} gave no usable answer ({payload['task']}): {payload['reason']}")

    def _on_dropped(self, payload: _Payload) -> None:
        self._notes.append(f"{payload['agent']} made {payload['count']} proposals too many: {payload['reason']}")

    def _on_finished(self, payload: _Payload) -> None:
        ending = msgspec.convert(payload["ending"], Ending)
        detail = f" ({ending.detail})" if ending.detail else ""
        counts = (
            f"{ending.rounds_executed} rounds, {ending.proposals_made} proposals, {ending.commits_created} accepted"
        )
        self._change(state="ended", activity="", ending=f"{_ENDINGS[ending.reason]}{detail}: {counts}.")

    # --- a proposal ---

    def _on_proposed(self, payload: _Payload) -> None:
        proposal = msgspec.convert(payload["proposal"], Proposal)
        case = self._cases.setdefault(proposal.proposal_id, _Case(proposal))
        case.proposal, case.stage = proposal, "gate"

    def _on_checked(self, payload: _Payload) -> None:
        case = self._case(payload)
        case.stage = "gate"
        case.checked.append(msgspec.convert(payload["result"], RungResult))
        self._change(activity=f"The gate checks {case.proposal.proposal_id}.")

    def _on_gated(self, payload: _Payload) -> None:
        report = msgspec.convert(payload["report"], GateReport)
        case = self._case(payload)
        case.reports.append(report)
        case.checked.clear()
        case.stage = "votes" if report.passed else "proposed"

    def _on_merged(self, payload: _Payload) -> None:
        self._case(payload).steps.append(f"Merged with other accepted changes in {', '.join(payload['files'])}.")

    def _on_sentback(self, payload: _Payload) -> None:
        case = self._case(payload)
        case.stage = "proposed"
        case.votes.clear()
        case.steps.append(f"Sent back: {payload['reason']}")

    def _on_evaluated(self, payload: _Payload) -> None:
        self._change(activity="The agents vote.")
        self._add_vote(payload)

    def _on_arbitrated(self, payload: _Payload) -> None:
        self._add_vote(payload).stage = "arbiter"

    def _add_vote(self, payload: _Payload) -> _Case:
        vote = msgspec.convert(payload["evaluation"], ProposalEvaluation)
        case = self._cases[vote.proposal_id]
        case.votes[vote.agent, vote.is_arbiter] = vote
        return case

    def _on_postponed(self, payload: _Payload) -> None:
        case = self._case(payload)
        case.steps.append(f"Postponed to a later round: {payload['reason']}")

    def _on_reviewed(self, payload: _Payload) -> None:
        reason = f" ({payload['reason']})" if payload["reason"] else ""
        self._case(payload).steps.append(f"A person answered {payload['verdict']}{reason}.")

    def _on_committed(self, payload: _Payload) -> None:
        commit = msgspec.convert(payload["commit"], CommitRecord)
        case = self._cases[commit.proposal_id]
        case.status, case.stage = "accepted", "decided"
        case.diff = "\n".join(commit.resolution.values())
        case.outcome = f"Accepted ({commit.consensus_type}, {payload['accepts']} of {payload['votes']} votes)."

    def _on_rejected(self, payload: _Payload) -> None:
        case = self._case(payload)
        case.status, case.stage = payload["status"], "decided"
        case.outcome = payload["reason"] or f"Closed: {payload['status']}."


def show_session(artifacts_dir: str | Path, session: str) -> NegotiationPicture:
    """Return a session of the past as the page shows it, by default the last one.

    Raises:
        NegotiationError: GBE404, there is no session of this name; GBE405, it cannot be read.
    """
    names = list_sessions(artifacts_dir)
    if not names and not session:
        return NegotiationPicture(session="", state="none", note=_NO_SESSION)
    record = load_session(artifacts_dir, session)
    board, note = Board(), ""
    if (sessions_dir(artifacts_dir) / record.session / TRANSCRIPT).exists():
        try:
            for event in load_transcript(artifacts_dir, record.session):
                board.add(event.topic, event.payload)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise NegotiationError(
                "GBE405", session=record.session, reason=f"its transcript is damaged: {error}"
            ) from None
    else:
        note = _NO_TRANSCRIPT
        _add_record(board, record.negotiations.records)
    picture = board.picture()
    spent = record.spent
    diffs = {name: "\n".join(files.values()) for name, files in record.diffs.items()}
    return msgspec.structs.replace(
        picture,
        session=record.session,
        state="ended",
        sessions=names,
        intent=record.intent,
        backend=record.backend,
        agents=record.agents,
        arbiters=record.arbiters,
        round=record.negotiations.ending.rounds_executed,
        proposals=tuple(
            msgspec.structs.replace(each, cost_usd=record.costs.get(each.id), diff=diffs.get(each.id, each.diff))
            for each in picture.proposals
        ),
        cost=Cost(
            spent_usd=spent.cost_usd,
            calls=spent.calls,
            requests=spent.requests,
            cached=spent.cached,
            tokens=spent.usage.total_tokens,
            unpriced=spent.unpriced,
        ),
        note=note,
    )


def _add_record(board: Board, records: Iterable[Any]) -> None:
    """Give the events to a board that follow from the record of a session alone."""
    for each in records:
        name = each.proposal.proposal_id
        gated = [("Gated", {"proposal_id": name, "report": each.gate})] if each.gate else []
        votes = [("Evaluated", {"evaluation": vote}) for vote in each.evaluations]
        accepts = sum(vote.decision == "accept" for vote in each.evaluations)
        end = (
            ("Committed", {"commit": each.commit, "accepts": accepts, "votes": len(votes)})
            if each.commit
            else ("Rejected", {"proposal_id": name, "status": each.status, "reason": each.refusal})
        )
        for kind, payload in chain([("Proposed", {"proposal": each.proposal})], gated, votes, [end]):
            board.add(f"/Negotiation/{kind}", msgspec.to_builtins(payload))
