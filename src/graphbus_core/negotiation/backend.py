"""Chooses who answers for the agents: the rules, or models behind tape, cache, retries and budget.

The environment is read here and in no other module of the negotiation.

agent --> TapedClient ------> WarmingClient --> RetryingClient --> provider
          (record, then       (prefix once)     (budget before each attempt)
          .graphbus/cache)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from graphbus_core.llm.client import Clients, LLMClient
from graphbus_core.llm.recorded import AnswerCache, Tape, TapedClient, WarmingClient
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import ActiveAgent, ActiveAgents, choose_arbiters
from graphbus_core.negotiation.freshness import AgentInputs
from graphbus_core.negotiation.rule_agent import RuleAgent
from graphbus_core.negotiation.session_workspace import Reviewer
from graphbus_core.store.cache import CACHE

_NO_KEY = "no key of a model's provider was found"


class Backend:
    """The models or rules behind the agents of one session. A context manager, which closes all clients at its end.

    Args:
        clients: The models, for tests and for embedding; None: as settings and environment say.
        environ: The environment variables; None: those of this process.
        prices: Role -> price, in place of the prices of the clients; a replay uses the recorded ones.
        reviewer: Asks a person before each commit, if the request says `is_reviewed`.
        is_asked: False for a plan, which needs only prices and therefore neither keys nor libraries.

    Attributes:
        tape: The recorded answers of the session.
        settled: Agent -> the inputs on which it has settled and need not be asked; None: as the lock says.
        note: Why the rules negotiate although nobody chose them; else empty.
    """

    def __init__(
        self,
        clients: Clients | None = None,
        environ: Mapping[str, str] | None = None,
        prices: Mapping[str, Price | None] | None = None,
        reviewer: Reviewer | None = None,
        *,
        is_asked: bool = True,
    ) -> None:
        self.reviewer = reviewer
        self._is_asked = is_asked
        self._clients = clients
        self._environ = os.environ if environ is None else environ
        self._prices = prices
        self._open = ExitStack()
        self.tape = Tape()
        self.settled: Mapping[str, AgentInputs] | None = None
        self.note = ""

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the clients and the tape, and release the project for other negotiations."""
        self._open.close()

    def activate(
        self, config: ResolvedBuild, definitions: Iterable[AgentDefinition], order: Sequence[str]
    ) -> ActiveAgents:
        """Make an active agent for every class. Except in a dry run, this claims the project until the end of the backend.

        Raises:
            UsageError: The settings name a model that there is not.
            ModelError: It cannot be asked.
            NegotiationError: GBE401, see `choose_arbiters`; GBE420, another negotiation is running.
        """
        if not config.dry_run:
            from graphbus_core.negotiation.sessions import claim_project

            self._open.callback(os.close, claim_project(config))
        clients = self.open_clients(config)
        if clients is None:
            return activate_agents(definitions, order, config)
        agents = activate_agents(definitions, order, config, self._surrounded(clients, config))
        known = {role: client.price for role, client in clients._asdict().items()}
        agents.prices = known if self._prices is None else dict(self._prices)
        return agents

    def open_clients(self, config: ResolvedBuild) -> Clients | None:
        """Open the model of each role as settings and environment say; None if the rules negotiate.

        Raises:
            UsageError: The settings name a model that there is not.
            ModelError: It cannot be asked.
        """
        if self._clients is not None:
            return self._clients
        from graphbus_core.llm.providers import RULES, choose_model

        llm = config.settings.llm
        model = choose_model(llm, self._environ)
        if model == RULES:
            self.note = "" if llm.model == RULES else _NO_KEY
            return None
        from graphbus_core.llm.opening import open_client, open_clients, price_client

        return open_clients(model, llm, self._environ, open_client if self._is_asked else price_client)

    def _surrounded(self, clients: Clients, config: ResolvedBuild) -> Clients:
        """Wrap each distinct client with tape, cache and budget, and close it at the end of the backend."""
        done: dict[int, LLMClient] = {}
        for client in clients:
            if id(client) not in done:
                self._open.callback(client.close)
                done[id(client)] = TapedClient(_with_budget(client, config), self.tape, _cache_of(config))
        self._open.callback(self.tape.close)
        return Clients(*(done[id(client)] for client in clients))


def _with_budget(client: LLMClient, config: ResolvedBuild) -> LLMClient:
    """Wrap a client so that the budget sees each attempt; for Anthropic, also so that its prefix cache is filled once."""
    from graphbus_core.llm.attempts import RetryingClient
    from graphbus_core.llm.providers import KNOWN

    metered = client if isinstance(client, RetryingClient) else RetryingClient(client, 1, 0, 1024)
    name = client.model.partition(":")[0]
    provider = config.settings.llm.providers.get(name) or KNOWN.get(name)
    return WarmingClient(metered) if provider and provider.wire == "anthropic" else metered


def _cache_of(config: ResolvedBuild) -> AnswerCache | None:
    """Return the cache of answers, read-only in a dry run; None if the settings turn it off."""
    if not config.settings.llm.use_cache:
        return None
    return AnswerCache(Path(config.artifacts_dir, CACHE, "answers"), is_read_only=config.dry_run)


def activate_agents(
    definitions: Iterable[AgentDefinition], order: Sequence[str], config: ResolvedBuild, clients: Clients | None = None
) -> ActiveAgents:
    """Make an agent for every class, in the order of activation: a rule agent, or one that asks models.

    Source: seed 001, ACTIVATE_AGENTS.

    Raises:
        NegotiationError: GBE401, see `choose_arbiters`.
    """
    place = {name: position for position, name in enumerate(order)}
    ordered = sorted(definitions, key=lambda definition: place.get(definition.name, len(place)))
    arbiters = choose_arbiters(ordered, config)
    names = [*(one.name for one in ordered if one.name not in arbiters), *arbiters]
    active = ActiveAgents({name: _agent(name, name in arbiters, config, clients) for name in names})
    active.models = clients.models if clients else {}
    return active


def _agent(name: str, is_arbiter: bool, config: ResolvedBuild, clients: Clients | None) -> ActiveAgent:
    if clients is None:
        return RuleAgent(name, is_arbiter=is_arbiter)
    from graphbus_core.negotiation.model_agent import ModelAgent  # loads the prompts and the reader of answers

    most = {name: getattr(config.llm_config, name) for name in ("max_output_tokens", "max_prompt_tokens")}
    return ModelAgent(name, clients, is_arbiter=is_arbiter, **most)
