"""What a negotiation can cost, before anybody is asked: the bound that the engine keeps, and what is to be expected."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.llm.client import Bound, Price
from graphbus_core.llm.metered import NANO, priced
from graphbus_core.model.config import BuildConfig
from graphbus_core.negotiation.accounts import Costly
from graphbus_core.negotiation.agents import ActiveAgents
from graphbus_core.negotiation.asking import AskAnalysis
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.engine import call_bound
from graphbus_core.negotiation.finding import find_for_agents
from graphbus_core.negotiation.lock import settled_agents
from graphbus_core.negotiation.protocol import AskProposals
from graphbus_core.negotiation.views import Analysis, View
from graphbus_core.negotiation.waking import Resting

_BYTES_PER_TOKEN = 4
_ANSWER_TOKENS = 700
_LINE_BYTES = 60
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
        asked: Of the agents, those that have something to say: the others have settled.
        note: Why the rules negotiate, if nobody has chosen them.
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


def plan(config: BuildConfig, project: Project, backend: Backend) -> Plan:
    """Say what a negotiation can cost. No model is asked, and nothing is written."""
    quiet = msgspec.structs.replace(config, dry_run=True)
    agents = backend.activate(quiet, project.definitions, project.order.order)
    safety, budget = config.settings.safety, config.settings.budget
    arbiters, voters = len(agents.arbiters), len(agents) - len(agents.arbiters)
    views = _views(config, project, agents)
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
    return Plan(
        agents=len(agents),
        arbiters=arbiters,
        asked=len(views),
        rounds=rounds,
        models=agents.models,
        prices={model: agents.prices.get(role) for role, model in agents.models.items()},
        phases=tuple(_phase(task, *numbers, config, agents, views) for task, numbers in calls.items()),
        max_calls=budget.max_calls,
        max_tokens=budget.max_tokens,
        max_usd=budget.max_usd,
        note=backend.note,
    )


def _views(config: BuildConfig, project: Project, agents: ActiveAgents) -> list[View]:
    """Give what each agent would see that has something to say."""
    findings = find_for_agents(project)
    resting = Resting({} if config.force or not agents.models else settled_agents(config), agents.backend)
    settings = config.settings
    views = [
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
    return [view for view in views if not resting.is_resting(view)]


def _phase(  # noqa: PLR0917 - one line of a table
    task: str, calls: int, expected: int, config: BuildConfig, agents: ActiveAgents, views: list[View]
) -> Phase:
    role = {"evaluate": "evaluator", "arbitrate": "arbiter"}.get(task, "proposer")
    price = agents.prices.get(role)
    bounds = [_bound(task, config, agents, view) for view in views]
    worst = max(bounds, key=lambda bound: bound.input_tokens, default=Bound())
    typical = _typical(bounds)
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


def _bound(task: str, config: BuildConfig, agents: ActiveAgents, view: View) -> Bound:
    """Give the worst case of one question: of the prompts as they are, and room for the changes that they will show."""
    agent = agents[view.name]
    if not isinstance(agent, Costly):
        return Bound()
    question = AskAnalysis(view.name) if task == "analyze" else AskProposals(1, view.name, 1)
    bound = agent.worst_case(question, view, ())
    shown = 0 if task in {"analyze", "propose"} else config.settings.gate.max_changed_lines * _LINE_BYTES * _REQUESTS
    return bound._replace(input_tokens=bound.input_tokens + shown)


def _typical(bounds: list[Bound]) -> Bound:
    """Give one request of middling length, at four bytes a token and with a short answer."""
    if not any(bound.requests for bound in bounds):
        return Bound()
    input_tokens = sum(bound.input_tokens for bound in bounds) // len(bounds) // _REQUESTS // _BYTES_PER_TOKEN
    return Bound(1, input_tokens, _ANSWER_TOKENS)


def _times(bound: Bound, count: int) -> Bound:
    return Bound(*(number * count for number in bound))
