"""What a negotiation can cost, before anybody is asked: the bound that the engine keeps, and what is to be expected."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.llm.attempts import NANO, priced
from graphbus_core.llm.client import Bound
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import ActiveAgents, Analysis, View
from graphbus_core.negotiation.asking import AskAnalysis, Costly
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.engine import call_bound
from graphbus_core.negotiation.freshness import SettledAgents, who_answers
from graphbus_core.negotiation.llm_agent import SENT_BACK_TOKENS
from graphbus_core.negotiation.lock import settled_agents
from graphbus_core.negotiation.protocol import AskProposals
from graphbus_core.negotiation.rule_agent import find_for_agents

_BYTES_PER_TOKEN = 4
_ANSWER_TOKENS = 700
_LINE_BYTES = 60
_SHOWN_LINES = 40
"""So many lines has the diff of a middling change."""
_REQUESTS = 2
"""A worst case counts every prompt twice: a malformed answer is sent back once."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of question can cost.

    Attributes:
        calls: At most; the engine never puts more.
        tokens: At most, input and output, with the prompts as they are now.
        cost_usd: At most; None where the price is not known.
        expected_calls: In a session in which each agent proposes once.
    """

    task: str
    model: str
    calls: int
    tokens: int
    cost_usd: float | None
    expected_calls: int
    expected_tokens: int
    expected_usd: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a negotiation can cost.

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
    phases: tuple[Phase, ...]
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
        cost = _sum(phase.cost_usd for phase in self.phases)
        return min(cost, self.max_usd) if cost is not None and self.max_usd else cost

    @property
    def expected_usd(self) -> float | None:
        """What is to be expected; None where a price is not known."""
        return _sum(phase.expected_usd for phase in self.phases)


def _sum(costs: Iterable[float | None]) -> float | None:
    known = list(costs)
    return None if None in known else sum(cost for cost in known if cost is not None)


def plan(config: ResolvedBuild, project: Project, backend: Backend) -> Plan:
    """Say what a negotiation can cost. No model is asked, and nothing is written."""
    quiet = msgspec.structs.replace(config, dry_run=True)
    agents = backend.activate(quiet, project.definitions, project.order.order)
    safety, budget = config.settings.safety, config.settings.budget
    arbiters, voters = len(agents.arbiters), len(agents) - len(agents.arbiters)
    everyone = _views(config, project, agents)
    views = _awake(config, agents, everyone)
    rounds = max(safety.max_negotiation_rounds, 0)
    proposals = voters * max(min(safety.max_proposals_per_agent, rounds * safety.max_proposals_per_round), 0)
    calls = {
        "analyze": (len(agents), len(views)),
        "propose": (rounds * voters, min(rounds, 2) * sum(not agents[view.name].is_arbiter for view in views)),
        "evaluate": (rounds * voters, min(voters, 2 * len(views)) if voters > 1 else 0),
        "repair": (proposals * max(safety.max_repairs, 0), len(views) // 5),
    }
    known = sum(most for most, _ in calls.values())
    calls["arbitrate"] = (
        call_bound(safety, len(agents), arbiters) - known,
        min(len(views) // 5, arbiters and len(views)),
    )
    if not views:  # without a proposal there is nothing to ask the others about
        calls = dict.fromkeys(calls, (0, 0))
    return Plan(
        agents=len(agents),
        arbiters=arbiters,
        asked=len(views),
        rounds=rounds,
        models=agents.models,
        prices={model: agents.prices.get(role) for role, model in agents.models.items()},
        phases=tuple(_phase(task, *numbers, config, agents, (everyone, views)) for task, numbers in calls.items()),
        max_calls=budget.max_calls,
        max_tokens=budget.max_tokens,
        max_usd=budget.max_usd,
        note=backend.note,
    )


def _views(config: ResolvedBuild, project: Project, agents: ActiveAgents) -> list[View]:
    """Give what each agent would see."""
    findings = find_for_agents(project)
    settings = config.settings
    return [
        View(
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


def _awake(config: ResolvedBuild, agents: ActiveAgents, views: list[View]) -> list[View]:
    """Give the views of those that have something to say."""
    settled = SettledAgents(
        {} if config.force or not agents.models else settled_agents(config), who_answers(agents.models)
    )
    return [view for view in views if not settled.has_settled(view)]


def _phase(  # noqa: PLR0917 - one line of a table
    task: str,
    calls: int,
    expected: int,
    config: ResolvedBuild,
    agents: ActiveAgents,
    views: tuple[list[View], list[View]],
) -> Phase:
    """Sum up one kind of question; the worst is that of all agents, the middling one that of those who have something to say."""
    role = {"evaluate": "evaluator", "arbitrate": "arbiter"}.get(task, "proposer")
    price = agents.prices.get(role)
    everyone, awake = views
    bounds = {view.name: _bound(task, agents, view) for view in everyone}
    lines = 0 if task in {"analyze", "propose"} else config.settings.gate.max_changed_lines
    largest = max(bounds.values(), key=lambda bound: bound.input_tokens, default=Bound())
    worst = (
        largest._replace(input_tokens=largest.input_tokens + lines * _LINE_BYTES * _REQUESTS)
        if agents.models
        else largest
    )
    typical = _typical([bounds[view.name] for view in awake], min(lines, _SHOWN_LINES))
    most, likely = priced(_times(worst, calls), price), priced(_times(typical, expected), price)
    has_price = bool(price) or not agents.models
    return Phase(
        task=task,
        model=agents.models.get(role, "rules"),
        calls=calls,
        tokens=most.tokens,
        cost_usd=most.nano_usd / NANO if has_price else None,
        expected_calls=expected,
        expected_tokens=likely.tokens,
        expected_usd=likely.nano_usd / NANO if has_price else None,
    )


def _bound(task: str, agents: ActiveAgents, view: View) -> Bound:
    """Give the worst case of one question, with the prompts as they are."""
    agent = agents[view.name]
    if not isinstance(agent, Costly):
        return Bound()
    question = AskAnalysis(view.name) if task == "analyze" else AskProposals(1, view.name, 1)
    return agent.worst_case(question, view, ())


def _typical(bounds: list[Bound], lines: int) -> Bound:
    """Give one request of middling length, at four bytes a token, with so many changed lines and a short answer."""
    if not any(bound.requests for bound in bounds):
        return Bound()
    prompts = [(bound.input_tokens - bound.output_tokens - SENT_BACK_TOKENS) // _REQUESTS for bound in bounds]
    middling_bytes = sum(prompts) // len(prompts) + lines * _LINE_BYTES
    return Bound(1, middling_bytes // _BYTES_PER_TOKEN, _ANSWER_TOKENS)


def _times(bound: Bound, count: int) -> Bound:
    return Bound(*(number * count for number in bound))
