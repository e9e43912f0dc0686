"""Active agents: who answers the engine's questions. They live only in Build Mode. Source: seed 002, chapter 4.

An agent of any kind answers the same five questions with typed data. It never applies a change and never decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from graphbus_core.errors import NegotiationError, did_you_mean
from graphbus_core.llm.client import Clients, Price
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation.rule_agent import RuleAgent
from graphbus_core.negotiation.views import Analysis, Trial, View


class ActiveAgent(Protocol):
    """One agent of a negotiation. Whatever goes wrong in it is an abstention or no proposal, never an accept."""

    @property
    def name(self) -> str:
        """The name of its class."""

    @property
    def is_arbiter(self) -> bool:
        """True for those who settle disputes."""

    def analyze(self, view: View) -> Analysis:
        """Say what its class is there for, what it relies on and what is wrong with it."""

    def propose(self, view: View) -> Sequence[Proposal]:
        """Give drafts, the most important first; the engine numbers them and takes `view.limit` of them."""

    def repair(self, view: View, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Mend its own proposal that the gate refused, or give up."""

    def evaluate(self, view: View, trials: Sequence[Trial]) -> Sequence[ProposalEvaluation]:
        """Judge proposals of others: one evaluation for each."""

    def arbitrate(self, view: View, trial: Trial, evaluations: Sequence[ProposalEvaluation]) -> ProposalEvaluation:
        """Settle a dispute; only arbiters are asked."""


class ActiveAgents(dict[str, ActiveAgent]):
    """Name -> agent, in the order of activation.

    Attributes:
        models: Role (`"proposer"`, `"evaluator"`, `"arbiter"`) -> `"provider:name"`; empty for rule agents.
        prices: Role -> what its model costs, None where that is not known; empty for rule agents.
    """

    models: dict[str, str] = {}  # noqa: RUF012 - replaced, never filled
    prices: dict[str, Price | None] = {}  # noqa: RUF012 - replaced, never filled

    @property
    def backend(self) -> str:
        """Who negotiates: `"rules"`, or the models."""
        return ", ".join(dict.fromkeys(self.models.values())) or "rules"

    @property
    def arbiters(self) -> tuple[str, ...]:
        """The names of those who settle disputes, the first one first."""
        return tuple(agent.name for agent in self.values() if agent.is_arbiter)


def choose_arbiters(definitions: Iterable[AgentDefinition], config: BuildConfig) -> tuple[str, ...]:
    """Give the arbiters: those that the settings name, in that order, else the classes with `IS_ARBITER = True`.

    Raises:
        NegotiationError: GBE401, the settings name an agent that is not there; GBE411, they give a domain to one that is no
            arbiter.
    """
    known = {definition.name: definition for definition in definitions}
    named = config.settings.safety.arbiter_agents
    for name in named:
        if name not in known:
            raise NegotiationError("GBE401", name=name, suggestion=did_you_mean(name, known), known=", ".join(known))
    arbiters = tuple(dict.fromkeys(named)) or tuple(name for name, one in known.items() if one.is_arbiter)
    for name in config.settings.safety.arbiter_domains:
        if name not in arbiters:
            shown = ", ".join(arbiters) or "none"
            raise NegotiationError("GBE411", name=name, suggestion=did_you_mean(name, arbiters), known=shown)
    return arbiters


def activate(
    definitions: Iterable[AgentDefinition], order: Sequence[str], config: BuildConfig, clients: Clients | None = None
) -> ActiveAgents:
    """Make an agent of every class, in the order of activation: by rules, or with models behind it.

    Source: seed 001, ACTIVATE_AGENTS.

    Raises:
        NegotiationError: GBE401, see `choose_arbiters`.
    """
    place = {name: position for position, name in enumerate(order)}
    ordered = sorted(definitions, key=lambda definition: place.get(definition.name, len(place)))
    arbiters = choose_arbiters(ordered, config)
    agents = {one.name: _agent(one.name, one.name in arbiters, config, clients) for one in ordered}
    first = [agents[name] for name in arbiters]
    active = ActiveAgents({agent.name: agent for agent in [*(a for a in agents.values() if not a.is_arbiter), *first]})
    active.models = clients.models if clients else {}
    return active


def _agent(name: str, is_arbiter: bool, config: BuildConfig, clients: Clients | None) -> ActiveAgent:
    if clients is None:
        return RuleAgent(name, is_arbiter=is_arbiter)
    from graphbus_core.negotiation.llm_agent import LLMAgent  # prompts and how answers are read

    llm = config.llm_config
    return LLMAgent(
        name,
        clients,
        is_arbiter=is_arbiter,
        max_output_tokens=llm.max_output_tokens,
        max_prompt_tokens=llm.max_prompt_tokens,
    )
