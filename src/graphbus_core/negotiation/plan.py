"""The most that a negotiation can cost, before any model is asked: the engine's limits, and the prompts of today."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.llm.budget import NANO, price_worst_case
from graphbus_core.llm.client import WorstCase
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import ActiveAgents, AgentView, Analysis
from graphbus_core.negotiation.asking import AskAnalysis, PaidAgent
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.engine import max_questions
from graphbus_core.negotiation.freshness import SettledAgents, describe_models
from graphbus_core.negotiation.lock import settled_agents
from graphbus_core.negotiation.protocol import AskProposals
from graphbus_core.negotiation.rule_agent import find_for_agents

_LINE_BYTES = 60
_PROMPTS = 2
"""A worst case counts every prompt twice, because a malformed answer is sent back once."""
_OTHER_ROLES = {"evaluate": "evaluator", "arbitrate": "arbiter"}


class TaskCost(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one kind of question can cost; `cost_usd` is None if the price is not known."""

    task: str
    model: str
    calls: int
    tokens: int
    cost_usd: float | None


class CostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case of a negotiation.

    Attributes:
        asked: How many agents have not settled, and so are asked.
        note: Why the rules negotiate although they were not chosen.
        prices: Model -> dollars for a million tokens of input and of output; null where it is not known.
    """

    agents: int
    arbiters: int
    asked: int
    rounds: int
    models: dict[str, str]
    prices: dict[str, Price | None]
    phases: tuple[TaskCost, ...]
    max_calls: int
    max_tokens: int
    max_usd: float
    note: str = ""

    @property
    def calls(self) -> int:
        """No session of these agents puts more questions."""
        return min(sum(phase.calls for phase in self.phases), self.max_calls)

    @property
    def tokens(self) -> int:
        """At most, in all phases together and within the budget."""
        tokens = sum(phase.tokens for phase in self.phases)
        return min(tokens, self.max_tokens) if self.max_tokens else tokens

    @property
    def cost_usd(self) -> float | None:
        """At most, in all phases together and within the budget; None where a price is not known."""
        known = [phase.cost_usd for phase in self.phases if phase.cost_usd is not None]
        if len(known) < len(self.phases):
            return None
        return min(sum(known), self.max_usd) if self.max_usd else sum(known)


def plan_costs(config: ResolvedBuild, project: Project, backend: Backend) -> CostPlan:
    """Return the worst case of a negotiation. No model is asked, and nothing is written."""
    agents = backend.activate(msgspec.structs.replace(config, dry_run=True), project.definitions, project.order.order)
    safety, budget = config.settings.safety, config.settings.budget
    findings, settings = find_for_agents(project), config.settings
    views = [
        AgentView(
            name=name,
            project=project,
            findings=findings,
            round=1,
            limit=1,
            intent=settings.intent,
            goals=settings.refactoring_goals,
            analysis=Analysis(),
        )
        for name in agents
    ]
    known = {} if config.force or not agents.models else settled_agents(config)
    settled = SettledAgents(known, describe_models(agents.models))
    asked = sum(not settled.has_settled(view) for view in views)
    calls = _calls(config, agents) if asked else {}  # if all have settled, no proposal is made and no question follows
    return CostPlan(
        agents=len(agents),
        arbiters=len(agents.arbiters),
        asked=asked,
        rounds=max(safety.max_negotiation_rounds, 0),
        models=agents.models,
        prices={model: agents.prices.get(role) for role, model in agents.models.items()},
        phases=tuple(_task_cost(task, count, config, agents, views) for task, count in calls.items()),
        max_calls=budget.max_calls,
        max_tokens=budget.max_tokens,
        max_usd=budget.max_usd,
        note=backend.note,
    )


def _calls(config: ResolvedBuild, agents: ActiveAgents) -> dict[str, int]:
    """Return task -> the largest number of its questions."""
    safety, arbiters = config.settings.safety, len(agents.arbiters)
    rounds, voters = max(safety.max_negotiation_rounds, 0), len(agents) - arbiters
    proposals = voters * max(min(safety.max_proposals_per_agent, rounds * safety.max_proposals_per_round), 0)
    calls = {
        "analyze": len(agents),
        "propose": rounds * voters,
        "evaluate": rounds * voters,
        "repair": proposals * max(safety.max_repairs, 0),
    }
    return {**calls, "arbitrate": max_questions(safety, len(agents), arbiters) - sum(calls.values())}


def _task_cost(
    task: str, calls: int, config: ResolvedBuild, agents: ActiveAgents, views: Iterable[AgentView]
) -> TaskCost:
    """Return the worst case of one kind of question: its longest prompt, with the largest change if it shows one."""
    role = _OTHER_ROLES.get(task, "proposer")
    price = agents.prices.get(role)
    bounds = (_bound(task, agents, view) for view in views)
    worst = max(bounds, key=lambda bound: bound.input_tokens, default=WorstCase())
    if agents.models and task not in {"analyze", "propose"}:
        lines = config.settings.gate.max_changed_lines
        worst = worst._replace(input_tokens=worst.input_tokens + lines * _LINE_BYTES * _PROMPTS)
    most = price_worst_case(WorstCase(*(number * calls for number in worst)), price)
    return TaskCost(
        task=task,
        model=agents.models.get(role, "rules"),
        calls=calls,
        tokens=most.tokens,
        cost_usd=most.nano_usd / NANO if price or not agents.models else None,
    )


def _bound(task: str, agents: ActiveAgents, view: AgentView) -> WorstCase:
    """Return the worst case of one question to an agent, by the prompt that it would get."""
    agent = agents[view.name]
    if not isinstance(agent, PaidAgent):
        return WorstCase()
    question = AskAnalysis(view.name) if task == "analyze" else AskProposals(1, view.name, 1)
    return agent.worst_case(question, view, ())
