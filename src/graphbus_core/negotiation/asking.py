"""How questions reach the agents: the seam between the driver and whoever runs the agents.

An `Ask` takes all questions of a phase at once and gives the replies as they come, in any order: in turn here, concurrently
where an answer takes a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

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
from graphbus_core.negotiation.views import Trial, View


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
    """Let an agent answer. Whatever it raises becomes a failed reply: no proposal, or an abstention."""
    try:
        return _put(asked)
    except Exception as error:  # noqa: BLE001 - an agent is foreign to the engine: its failure means no, never an end
        return _failed(asked.question, f"{type(error).__name__}: {error}")


def _put(asked: Asked) -> Reply:
    agent, question, view, trials = asked
    if isinstance(question, AskProposals):
        return Proposed(question.agent, tuple(agent.propose(view)))
    if isinstance(question, AskRepair):
        return Repaired(question.proposal.proposal_id, agent.repair(view, question.proposal, question.report))
    if isinstance(question, AskEvaluations):
        return Evaluated(question.agent, tuple(agent.evaluate(view, trials)))
    word = agent.arbitrate(view, trials[0], question.evaluations)
    return Arbitrated(question.review.proposal.proposal_id, word)


def _failed(question: AgentQuestion, why: str) -> Reply:
    if isinstance(question, AskProposals):
        return Proposed(question.agent, failure=why)
    if isinstance(question, AskRepair):
        return Repaired(question.proposal.proposal_id, failure=why)
    if isinstance(question, AskEvaluations):
        return Evaluated(question.agent, failure=why)
    return Arbitrated(question.review.proposal.proposal_id, failure=why)
