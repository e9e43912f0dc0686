"""How questions reach the agents: the seam between the driver and whoever runs the agents.

An `Ask` takes all questions of a phase at once and gives the replies as they come, in any order: in turn here, concurrently
where an answer takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.json import Decoder

from graphbus_core.isolation import attempt
from graphbus_core.model.proposals import Proposal, ProposalEvaluation
from graphbus_core.negotiation.agents import ActiveAgent
from graphbus_core.negotiation.protocol import (
    AgentQuestion,
    Arbitrated,
    AskEvaluations,
    AskProposals,
    AskRepair,
    Evaluated,
    Proposed,
    Repaired,
    Reply,
)
from graphbus_core.negotiation.views import Analysis, Trial, View

T = TypeVar("T")

_DRAFTS: Decoder[tuple[Proposal, ...]] = Decoder(tuple[Proposal, ...])
_MENDED: Decoder[Proposal | None] = Decoder(Proposal | None)
_VOTES: Decoder[tuple[ProposalEvaluation, ...]] = Decoder(tuple[ProposalEvaluation, ...])
_WORD: Decoder[ProposalEvaluation] = Decoder(ProposalEvaluation)
_ANALYSIS: Decoder[Analysis] = Decoder(Analysis)


class Asked(NamedTuple):
    """A question with all that is needed to answer it; `trials` are the proposals that it is about, in their order."""

    agent: ActiveAgent
    question: AgentQuestion
    view: View
    trials: tuple[Trial, ...] = ()


class Ask(Protocol):
    """Answers a batch of questions, each exactly once."""

    def __call__(self, batch: Sequence[Asked]) -> Iterable[Reply]:
        """Give the replies as they come."""


def ask_in_turn(batch: Sequence[Asked]) -> Iterator[Reply]:
    """Answer one question after another, each when its reply is wanted."""
    for asked in batch:
        yield answer(asked)


def answer(asked: Asked) -> Reply:
    """Let an agent answer. Whatever it raises or gives amiss becomes a failed reply: no proposal, or an abstention."""
    agent, question, view, trials = asked
    if isinstance(question, AskProposals):
        drafts = _hear(lambda: agent.propose(view), _DRAFTS)
        return Proposed(question.agent, drafts[0] or (), drafts[1])
    if isinstance(question, AskRepair):
        mended = _hear(lambda: agent.repair(view, question.proposal, question.report), _MENDED)
        return Repaired(question.proposal.proposal_id, *mended)
    if isinstance(question, AskEvaluations):
        votes = _hear(lambda: agent.evaluate(view, trials), _VOTES)
        return Evaluated(question.agent, votes[0] or (), votes[1])
    word = _hear(lambda: agent.arbitrate(view, trials[0], question.evaluations), _WORD)
    return Arbitrated(question.review.proposal.proposal_id, question.arbiter, *word)


def study(agent: ActiveAgent, view: View) -> tuple[Analysis, str]:
    """Let an agent analyse its class: an empty analysis and the reason when it fails."""
    analysis = _hear(lambda: agent.analyze(view), _ANALYSIS)
    return analysis[0] or Analysis(), analysis[1]


def _hear(speak: Callable[[], object], decoder: Decoder[T]) -> tuple[T | None, str]:
    """Give what an agent says if it is of the right kind through and through, else why it is nothing."""
    said, error = attempt(lambda: decoder.decode(msgspec.json.encode(speak())))
    return said, f"{type(error).__name__}: {error}" if error else ""
