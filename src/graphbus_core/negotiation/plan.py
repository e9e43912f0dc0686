"""Computes what a negotiation costs at most, and what a usual one takes, without asking a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.llm.budget import NANO, price_worst_case
from graphbus_core.llm.call_limits import limits_of
from graphbus_core.llm.client import ModelPrompt, WorstCase
from graphbus_core.llm.providers import COMMAND, RULES, providers_of
from graphbus_core.llm.speed import ModelSpeed, load_speed
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.spending import Price, Usage
from graphbus_core.negotiation.agents import ActiveAgents, AgentView, Analysis
from graphbus_core.negotiation.asking import AskAnalysis, PaidAgent
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.engine import max_questions
from graphbus_core.negotiation.freshness import SettledAgents, describe_models
from graphbus_core.negotiation.lock import settled_agents
from graphbus_core.negotiation.prompts import ask_analysis, ask_evaluations, ask_proposals
from graphbus_core.negotiation.protocol import AskProposals
from graphbus_core.negotiation.rule_agent import find_for_agents
from graphbus_core.negotiation.sample_question import make_sample_question

_LINE_BYTES = 60
"""An estimate of the length of a changed line in a prompt."""
_PROMPT_COPIES = 2
"""A worst case counts every prompt twice, because a malformed answer is sent back once."""
_OTHER_ROLES = {"evaluate": "evaluator", "arbitrate": "arbiter"}
_ANSWER_TOKENS = {"analyze": 200, "propose": 350, "evaluate": 150, "nothing": 15}
"""Usual tokens of an answer, scaled by those of the measured evaluation; `nothing` is that of an agent without a proposal."""
_USUAL_BYTES_PER_TOKEN = 4.0


class TaskCost(msgspec.Struct, frozen=True, kw_only=True):
    """The most that all questions of one kind can cost.

    Attributes:
        calls: The largest number of such questions.
        tokens: Input and output together.
        cost_usd: None if the price is not known.
    """

    task: str
    model: str
    calls: int
    tokens: int
    cost_usd: float | None


class ExpectedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A usual session: each agent makes one proposal in the first round, its neighbours vote once, and no answer is sent back.

    Attributes:
        tokens: Input and output together.
        seconds: None if the speed of a model was not measured.
        cost_usd: None if the price of a model is not known.
    """

    questions: int
    tokens: int
    seconds: float | None
    cost_usd: float | None


class CostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The worst case of a negotiation.

    Attributes:
        agents: The number of all agents, arbiters included.
        asked: The number of agents that have not settled; if it is 0, no question is asked.
        prices: Model -> dollars for a million tokens of input and of output; null if not known.
        phases: The cost of each kind of question, without regard to the budget.
        expected: What a usual session takes; None if no model is asked.
        max_calls: The budget, as are `max_tokens` and `max_usd`, where 0 means no limit.
        note: Why the rules negotiate although the settings do not choose them; else empty.
        programs: The agents that programs represent; what these spend is not known.
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
    expected: ExpectedSession | None = None
    note: str = ""
    programs: tuple[str, ...] = ()

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The models whose cost in dollars cannot be limited: their price is not known, or they are programs."""
        return tuple(model for model, price in self.prices.items() if price is None)

    @property
    def calls(self) -> int:
        """The largest number of questions, within the budget."""
        return min(sum(phase.calls for phase in self.phases), self.max_calls)

    @property
    def tokens(self) -> int:
        """The largest number of tokens in all phases together, within the budget."""
        tokens = sum(phase.tokens for phase in self.phases)
        return min(tokens, self.max_tokens) if self.max_tokens else tokens

    @property
    def cost_usd(self) -> float | None:
        """The highest cost of all phases together, within the budget; None if a price is not known."""
        known = [phase.cost_usd for phase in self.phases if phase.cost_usd is not None]
        if len(known) < len(self.phases):
            return None
        return min(sum(known), self.max_usd) if self.max_usd else sum(known)


def plan_costs(
    config: ResolvedBuild, project: Project, backend: Backend, speeds: Mapping[str, ModelSpeed] | None = None
) -> CostPlan:
    """Return the worst case of a negotiation, and what a usual one takes. No model is asked, and nothing is written.

    Args:
        config: The configuration.
        project: The project.
        backend: Names the models and their prices.
        speeds: Model -> its speed; None: those that were measured in this project.

    Raises:
        UsageError: The settings name a model that does not exist.
        NegotiationError: GBE401 or GBE411, an arbiter in the settings is wrong.
    """
    agents = backend.activate(msgspec.structs.replace(config, dry_run=True), project.definitions, project.order.order)
    # What a program spends is not known: its price of 0 only says that GraphBus pays nothing.
    agents.prices = {
        role: None if agents.models[role].startswith(f"{COMMAND}:") else price for role, price in agents.prices.items()
    }
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
    calls = (
        _count_questions(config, agents) if asked else {}
    )  # if all have settled, no proposal is made and no question follows
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
        expected=_expect_session(config, agents, [view for view in views if not settled.has_settled(view)], speeds),
        note=backend.note,
        programs=agents.programs,
    )


def _count_questions(config: ResolvedBuild, agents: ActiveAgents) -> dict[str, int]:
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
    """Return the worst case of one kind of question: the longest prompt of any agent, times `calls`.

    For questions about a proposal, the largest change that the gate allows is added to the prompt.
    """
    role = _OTHER_ROLES.get(task, "proposer")
    price = agents.prices.get(role)
    is_asked = agents.models.get(role, RULES) != RULES
    bounds = (_worst_case_of_question(task, agents, view) for view in views if is_asked)
    worst = max(bounds, key=lambda bound: bound.input_tokens, default=WorstCase())
    if is_asked and task not in {"analyze", "propose"}:
        lines = config.settings.gate.max_changed_lines
        worst = worst._replace(input_tokens=worst.input_tokens + lines * _LINE_BYTES * _PROMPT_COPIES)
    most = price_worst_case(WorstCase(*(number * calls for number in worst)), price)
    return TaskCost(
        task=task,
        model=agents.models.get(role, RULES),
        calls=calls,
        tokens=most.tokens,
        cost_usd=most.nano_usd / NANO if price or not agents.models else None,
    )


def _worst_case_of_question(task: str, agents: ActiveAgents, view: AgentView) -> WorstCase:
    """Return the worst case of one question to an agent. Other tasks than `analyze` are computed as `propose`."""
    agent = agents[view.name]
    if not isinstance(agent, PaidAgent):
        return WorstCase()
    question = AskAnalysis(view.name) if task == "analyze" else AskProposals(1, view.name, 1)
    return agent.worst_case(question, view, ())


# --- a usual session -------------------------------------------------------------------------


def _expect_session(
    config: ResolvedBuild,
    agents: ActiveAgents,
    asked: Sequence[AgentView],
    speeds: Mapping[str, ModelSpeed] | None,
) -> ExpectedSession | None:
    """Return what a usual session takes in which these agents are asked; None if no model is asked."""
    if not agents.models:
        return None
    known = (
        {model: load_speed(config.artifacts_dir, model) for model in agents.models.values()}
        if speeds is None
        else speeds
    )
    count = tokens = 0
    seconds: float | None = 0.0
    cost_usd: float | None = 0.0
    for task, answer, sizes in _usual_phases(config, agents, asked):
        role = _OTHER_ROLES.get(task, "proposer")
        model, price = agents.models[role], agents.prices.get(role)
        speed = known.get(model)
        scale = speed.answer_tokens / _ANSWER_TOKENS["evaluate"] if speed else 1.0
        usages = [
            Usage(
                input_tokens=round(size / (speed.bytes_per_token if speed else _USUAL_BYTES_PER_TOKEN)),
                output_tokens=round(_ANSWER_TOKENS[answer] * scale),
            )
            for size in sizes
        ]
        count, tokens = count + len(usages), tokens + sum(usage.total_tokens for usage in usages)
        width = max(min(_count_slots(config, model), len(usages)), 1)
        times = [speed.seconds_for(usage.input_tokens, usage.output_tokens) for usage in usages] if speed else None
        seconds = None if seconds is None or times is None else seconds + sum(times) / width
        cost_usd = None if cost_usd is None or price is None else cost_usd + sum(price.of(usage) for usage in usages)
    return ExpectedSession(questions=count, tokens=tokens, seconds=seconds, cost_usd=cost_usd)


def _usual_phases(
    config: ResolvedBuild, agents: ActiveAgents, asked: Sequence[AgentView]
) -> Iterator[tuple[str, str, list[int]]]:
    """Yield, for each phase of a usual session, its task, the kind of answer, and the size of each prompt in bytes."""
    safety = config.settings.safety
    authors = [msgspec.structs.replace(view, limit=1) for view in asked if view.name not in agents.arbiters]
    voters = [view for view in authors if view.neighbours]
    sample = make_sample_question(authors[0].project) if authors else None
    yield "analyze", "analyze", [_size_of(ask_analysis(view)) for view in asked]
    proposals = [_size_of(ask_proposals(view)) for view in authors]
    if safety.max_negotiation_rounds > 0:
        yield "propose", "propose", proposals
        yield "evaluate", "evaluate", [_size_of(ask_evaluations(view, (sample.trial,))) for view in voters if sample]
    for _ in range(min(safety.max_negotiation_rounds - 1, safety.convergence_threshold)):
        yield "propose", "nothing", proposals


def _size_of(prompt: ModelPrompt) -> int:
    """Return the size of a prompt in bytes."""
    return sum(len(text.encode()) for text in prompt.texts)


def _count_slots(config: ResolvedBuild, model: str) -> int:
    """Return how many questions a model is asked at a time; 1 for a server on this machine, which is not asked for its slots."""
    llm = config.settings.llm
    return limits_of(llm, providers_of(llm).get(model.partition(":")[0])).concurrency
