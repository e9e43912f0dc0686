"""Chooses what answers for the agents: the rules, or models with recording, cache, retries and budget around them.

No other module of the negotiation reads environment variables. How a question reaches a model:

agent --> TapedClient -----------> WarmingClient --------------> RetryingClient ----------> provider
          (answers recorded, or    (first request alone,         (retries; the budget is
          from .graphbus/cache)    fills the prefix cache)       asked before each attempt)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from graphbus_core.errors import NegotiationError, UsageError, did_you_mean
from graphbus_core.llm.call_limits import limits_of
from graphbus_core.llm.client import Clients, LLMClient, RecordedClient
from graphbus_core.llm.recorded import AnswerCache, Tape, TapedClient, WarmingClient
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import ActiveAgent, ActiveAgents, choose_arbiters
from graphbus_core.negotiation.freshness import AgentInputs
from graphbus_core.negotiation.rule_agent import RuleAgent
from graphbus_core.negotiation.session_workspace import Reviewer
from graphbus_core.settings import place_of
from graphbus_core.store.cache import CACHE

_NO_KEY = "no key of a model's provider was found"


class Backend:
    """The models or rules behind the agents of one session. A context manager: at its end it closes the clients.

    Args:
        clients: The models, for tests and for embedding; None: chosen by settings and environment.
        environ: The environment variables; None: those of this process.
        prices: Role -> price, used instead of the prices of the clients; a replay passes the recorded ones.
        reviewer: Asks a person before each commit, if the settings say `is_reviewed`.
        is_asked: False for a plan, which only needs prices: then the models need neither keys nor libraries.
        starts_programs: False in a replay: the answers of programs are those on the tape.

    Attributes:
        tape: The recorded answers of the session.
        settled: Agent -> the inputs on which it has settled and need not be asked; None: read from the lock.
        note: Why the rules negotiate although the settings do not choose them; else empty.
    """

    def __init__(
        self,
        clients: Clients | None = None,
        environ: Mapping[str, str] | None = None,
        prices: Mapping[str, Price | None] | None = None,
        reviewer: Reviewer | None = None,
        *,
        is_asked: bool = True,
        starts_programs: bool = True,
    ) -> None:
        self.reviewer = reviewer
        self._starts_programs = starts_programs
        self._is_asked = is_asked
        self._clients = clients
        self._environ = os.environ if environ is None else environ
        self._prices = prices
        self._resources = ExitStack()
        self.tape = Tape()
        self.settled: Mapping[str, AgentInputs] | None = None
        self.note = ""

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the clients and the tape, and release the project for other negotiations."""
        self._resources.close()

    def activate(
        self, config: ResolvedBuild, definitions: Iterable[AgentDefinition], order: Sequence[str]
    ) -> ActiveAgents:
        """Make an active agent for every class.

        Except in a dry run, no other process can negotiate in this project until this backend is closed.

        Raises:
            UsageError: The settings name a model that does not exist.
            ModelError: The model cannot be used, for example because its key is missing.
            NegotiationError: GBE401 or GBE411, an arbiter in the settings is wrong; GBE412, a program is for an agent that does
                not exist; GBE420, another negotiation is running.
        """
        if not config.dry_run:
            from graphbus_core.negotiation.sessions import claim_project

            self._resources.callback(os.close, claim_project(config))
        clients = self.open_clients(config)
        wrapped = self._wrap_clients(clients, config) if clients else None
        agents = activate_agents(definitions, order, config, wrapped)
        self._take_programs(agents, config)
        if clients is None:
            return agents
        known = {role: client.price for role, client in clients._asdict().items()}
        agents.prices = known if self._prices is None else dict(self._prices)
        return agents

    def _take_programs(self, agents: ActiveAgents, config: ResolvedBuild) -> None:
        """Let the programs in the settings represent their agents.

        Raises:
            NegotiationError: GBE412, there is no such agent.
            UsageError: GBE103, a program has no command.
        """
        if not config.settings.agents:
            return
        from graphbus_core.editing.sandboxes import choose_sandbox
        from graphbus_core.negotiation.gbnp.agent import ForeignAgent, ProgramClient, program_name
        from graphbus_core.negotiation.gbnp.messages import ROLES

        root, isolation = Path(config.root), config.settings.gate.isolation
        listeners = []
        for name, settings in config.settings.agents.items():
            if name not in agents:
                where, near = place_of(config.root, "agents", name), did_you_mean(name, agents)
                raise NegotiationError("GBE412", where=where, name=name, suggestion=near, known=", ".join(agents))
            if self._starts_programs and not settings.command:
                where, table = place_of(config.root, "agents", name), f"[tool.graphbus.agents.{name}]"
                raise UsageError(
                    "GBE103", where=where, key="command", table=table, expected="a program and its arguments", got="[]"
                )
            is_arbiter = agents[name].is_arbiter
            client: LLMClient = RecordedClient(program_name(name), Price(0.0, 0.0))
            if self._starts_programs:
                role = ROLES[is_arbiter]
                client = program = ProgramClient(name, role, settings, root, lambda: choose_sandbox(isolation, root))
                self._resources.callback(program.close)
                listeners.append(program.note_event)
            agents[name] = ForeignAgent(name, TapedClient(client, self.tape), is_arbiter=is_arbiter)
        agents.programs, agents.listeners = tuple(config.settings.agents), tuple(listeners)
        self._resources.callback(self.tape.close)

    def open_clients(self, config: ResolvedBuild) -> Clients | None:
        """Open the model of each role that settings and environment choose; return None if the rules have all of them.

        In that case `note` says why, unless the settings choose the rules. Clients that were passed to the constructor are
        returned as they are.

        Raises:
            UsageError: The settings name a model that does not exist.
            ModelError: The model cannot be used, for example because its key is missing.
        """
        if self._clients is not None:
            return self._clients
        from graphbus_core.llm.providers import RULES, choose_model, models_of_roles

        llm = config.settings.llm
        model = choose_model(llm, self._environ)
        if all(spec.provider == RULES for spec in models_of_roles(model, llm).values()):
            self.note = "" if llm.model else _NO_KEY
            return None
        from graphbus_core.llm.opening import open_client, open_clients, price_client

        return open_clients(model, llm, self._environ, open_client if self._is_asked else price_client)

    def _wrap_clients(self, clients: Clients, config: ResolvedBuild) -> Clients:
        """Wrap each distinct client once, with recording, cache and budget; the backend closes them at its end."""
        wrapped: dict[int, LLMClient] = {}
        for client in clients:
            if id(client) not in wrapped:
                self._resources.callback(client.close)
                metered, found = _wrap_with_budget(client, config), config.settings.llm.temperature
                temperature = None if found == "auto" else found
                wrapped[id(client)] = TapedClient(metered, self.tape, _open_cache(config), temperature)
        self._resources.callback(self.tape.close)
        return Clients(*(wrapped[id(client)] for client in clients))


def _wrap_with_budget(client: LLMClient, config: ResolvedBuild) -> LLMClient:
    """Return a client that asks the budget before each attempt, and for Anthropic fills the prefix cache first."""
    from graphbus_core.llm.attempts import RetryingClient
    from graphbus_core.llm.providers import KNOWN

    metered = client if isinstance(client, RetryingClient) else RetryingClient(client, 1, 0, 1024)
    name = client.model.partition(":")[0]
    provider = config.settings.llm.providers.get(name) or KNOWN.get(name)
    return WarmingClient(metered) if provider and provider.wire == "anthropic" else metered


def _open_cache(config: ResolvedBuild) -> AnswerCache | None:
    """Return the cache of answers, which is read-only in a dry run; None if the settings turn it off."""
    if not config.settings.llm.use_cache:
        return None
    return AnswerCache(Path(config.artifacts_dir, CACHE, "answers"), is_read_only=config.dry_run)


def settle_limits(config: ResolvedBuild) -> ResolvedBuild:
    """Return the settings of a negotiation with a number for each limit on which answers depend; see `opening.settle_limits`."""
    llm = config.settings.llm
    if {llm.model, llm.proposer, llm.evaluator, llm.arbiter} <= {"", "rules"} and llm.model:
        return config
    from graphbus_core.llm import opening

    settings = replace(config.settings, llm=opening.settle_limits(llm, os.environ))
    return replace(config, settings=settings)


def activate_agents(
    definitions: Iterable[AgentDefinition], order: Sequence[str], config: ResolvedBuild, clients: Clients | None = None
) -> ActiveAgents:
    """Make an agent for every class: one that asks models if there are `clients`, else a rule agent.

    The result has the order of activation, with the arbiters at the end. A class that `order` lacks comes after the others.

    Raises:
        NegotiationError: GBE401 or GBE411, an arbiter in the settings is wrong.

    Source: seed 001, ACTIVATE_AGENTS.
    """
    place = {name: position for position, name in enumerate(order)}
    ordered = sorted(definitions, key=lambda definition: place.get(definition.name, len(place)))
    arbiters = choose_arbiters(ordered, config)
    names = [*(one.name for one in ordered if one.name not in arbiters), *arbiters]
    active = ActiveAgents({name: _make_agent(name, name in arbiters, config, clients) for name in names})
    active.models = clients.models if clients else {}
    return active


def _make_agent(name: str, is_arbiter: bool, config: ResolvedBuild, clients: Clients | None) -> ActiveAgent:
    """Return a rule agent, or if there are clients an agent that asks them within the limits of the settings."""
    if clients is None:
        return RuleAgent(name, is_arbiter=is_arbiter)
    from graphbus_core.llm.providers import RULES
    from graphbus_core.negotiation.mixed_agent import MixedAgent
    from graphbus_core.negotiation.model_agent import ModelAgent  # imported only if needed: loads prompts and parsers

    limits = limits_of(config.llm_config)
    asking = ModelAgent(
        name,
        clients,
        is_arbiter=is_arbiter,
        max_output_tokens=limits.max_output_tokens,
        max_prompt_tokens=limits.max_prompt_tokens,
    )
    computed = [role for role, model in clients.models.items() if model == RULES]
    return MixedAgent(asking, computed) if computed else asking
