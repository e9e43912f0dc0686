"""What agents, gate, workspace and person answer: each reply has the key of its question. Data only."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation

PersonVerdict = Literal["yes", "no", "edit", "quit"]


class Proposed(msgspec.Struct, frozen=True, tag=True):
    """What an agent would change; `failure` says why there is nothing, if it failed.

    A draft may name another draft of the same reply in its dependencies, by the `proposal_id` that its author gave to it.
    """

    agent: str
    proposals: tuple[Proposal, ...] = ()
    failure: str = ""


class Repaired(msgspec.Struct, frozen=True, tag=True):
    """The mended proposal, or None when its author gives up."""

    proposal_id: str
    proposal: Proposal | None = None
    failure: str = ""


class Evaluated(msgspec.Struct, frozen=True, tag=True):
    """One agent's judgements; a proposal that is missing here, or is there twice, counts as an abstention."""

    agent: str
    evaluations: tuple[ProposalEvaluation, ...] = ()
    failure: str = ""


class Arbitrated(msgspec.Struct, frozen=True, tag=True):
    """An arbiter's word; None or anything but accept and reject is none."""

    proposal_id: str
    arbiter: str
    evaluation: ProposalEvaluation | None = None
    failure: str = ""


class Gated(msgspec.Struct, frozen=True, tag=True):
    """What the gate says.

    Attributes:
        edges: The graph as it would be after the change.
        merged: The files in which the change was written for an earlier text, and was merged into the present one.
    """

    proposal_id: str
    report: GateReport
    edges: tuple[Edge, ...] = ()
    merged: tuple[str, ...] = ()


class Applied(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The workspace after a change.

    Attributes:
        resolution: Path -> unified diff of every file that is really different now; empty: nothing happened.
        digest: The state of the whole workspace.
        edges: The graph as it is now.
        refusal: Why the change could not be made; empty when it was.
    """

    proposal_id: str
    digest: str
    resolution: dict[str, str] = {}
    edges: tuple[Edge, ...] = ()
    refusal: str = ""


class Answered(msgspec.Struct, frozen=True, tag=True):
    """A person's word on a change; with `edit`, `proposal` is the person's own text in its place."""

    proposal_id: str
    verdict: PersonVerdict
    proposal: Proposal | None = None
    reason: str = ""


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """The world ends the negotiation, in whatever phase it is: the budget is spent, a person says so, the gate is broken."""

    reason: Literal["manual", "budget", "error"]
    detail: str = ""


Reply = Proposed | Repaired | Evaluated | Arbitrated | Gated | Applied | Answered | Stopped
