"""An agent of which models fill some roles and the rules the others: for example, a model proposes and rules vote."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphbus_core.llm.client import WorstCase
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation.agents import ActiveAgent, AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.asking import AskAnalysis, PaidAgent, role_of
from graphbus_core.negotiation.model_agent import ModelAgent
from graphbus_core.negotiation.protocol import AgentQuestion
from graphbus_core.negotiation.rule_agent import RuleAgent


class MixedAgent:
    """An active agent that passes each question to the agent of its role. `ActiveAgent` describes its methods.

    Args:
        asking: The agent that asks models.
        computed: The roles (`"proposer"`, `"evaluator"`, `"arbiter"`) that the rules fill.
    """

    def __init__(self, asking: ModelAgent, computed: Collection[str]) -> None:
        self.name = asking.name
        self.is_arbiter = asking.is_arbiter
        self._asking = asking
        self._computed = frozenset(computed)
        self._rules = RuleAgent(asking.name, is_arbiter=asking.is_arbiter)

    def _agent_of(self, role: str) -> ActiveAgent:
        return self._rules if role in self._computed else self._asking

    def analyze(self, view: AgentView) -> Analysis:
        """Return the analysis by the proposer."""
        return self._agent_of("proposer").analyze(view)

    def propose(self, view: AgentView) -> Sequence[Proposal]:
        """Return the proposals of the proposer."""
        return self._agent_of("proposer").propose(view)

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Return the repaired proposal of the proposer, or None."""
        return self._agent_of("proposer").repair(view, proposal, report)

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Sequence[ProposalEvaluation]:
        """Return the votes of the evaluator."""
        return self._agent_of("evaluator").evaluate(view, trials)

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Return the decision of the arbiter."""
        return self._agent_of("arbiter").arbitrate(view, trial, evaluations)

    def worst_case(
        self, question: AgentQuestion | AskAnalysis, view: AgentView, trials: Sequence[TriedProposal]
    ) -> WorstCase:
        """Return the most that a question can use, as `ModelAgent.worst_case`; nothing if the rules answer it."""
        agent = self._agent_of(role_of(question))
        return self._asking.worst_case(question, view, trials) if isinstance(agent, PaidAgent) else WorstCase()
