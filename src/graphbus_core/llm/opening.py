"""From a name to a client: the provider's, with retries around it. What else surrounds it is added by those who negotiate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm.client import Clients, Completion, LLMClient, Price, Progress, Prompt
from graphbus_core.llm.prices import is_from_table, price_of
from graphbus_core.llm.providers import COMMAND, RULES, Provider, Spec, parse, providers_of, split_command
from graphbus_core.llm.retrying import RetryingClient
from graphbus_core.model.config import LLMConfig


def open_client(spec: str, config: LLMConfig, environ: Mapping[str, str]) -> RetryingClient:
    """Open the client of a model.

    Raises:
        UsageError: GBE140 to GBE143: there is no such model, or its provider may not be like this.
        ModelError: GBE440 when its key is missing, GBE441 when its library is.
    """
    providers = providers_of(config)
    meant = parse(spec, providers)
    if meant.provider == RULES:
        raise UsageError("GBE141", spec=spec, reason="the rules are no model and give no answers")
    if meant.provider == COMMAND:
        from graphbus_core.llm.command import CommandClient  # processes and their pipes

        client: LLMClient = CommandClient(split_command(meant), config.timeout_s, environ, config.pass_env)
    else:
        client = _open_remote(meant, providers[meant.provider], config, environ)
    return RetryingClient(client, config.max_attempts, config.requests_per_minute, config.concurrency)


class PricedClient:
    """A model whose price is wanted and not its answer: it needs neither key nor library."""

    def __init__(self, model: str, price: Price | None) -> None:
        self.model = model
        self.price = price

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Give no answer.

        Raises:
            ModelError: GBE455, always.
        """
        raise ModelError("GBE455", is_final=True, model=self.model)

    def close(self) -> None:
        """There is nothing to give back."""


def price_client(spec: str, config: LLMConfig, _environ: Mapping[str, str]) -> PricedClient:
    """Give a model that can only be asked what it costs.

    Raises:
        UsageError: As `open_client`.
    """
    providers = providers_of(config)
    meant = parse(spec, providers)
    if meant.provider == RULES:
        raise UsageError("GBE141", spec=spec, reason="the rules are no model and give no answers")
    is_program = meant.provider == COMMAND
    return PricedClient(str(meant), Price(0.0, 0.0) if is_program else price_of(providers[meant.provider], meant.model))


def _open_remote(meant: Spec, provider: Provider, config: LLMConfig, environ: Mapping[str, str]) -> LLMClient:
    from graphbus_core.llm import remote, sdk

    key = environ.get(provider.key_env, "").strip() if provider.key_env else ""
    if provider.key_env and not key:
        raise ModelError("GBE440", is_final=True, provider=provider.name, variable=provider.key_env)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelError("GBE454", is_final=True, variable=provider.key_env)
    package = sdk.missing_package(provider)
    if package:
        raise ModelError("GBE441", is_final=True, provider=provider.name, package=package)
    price = price_of(provider, meant.model)
    known = is_from_table(provider) and price is not None
    return remote.RemoteClient(provider, meant.model, key, config.timeout_s, price=price, has_known_price=known)


Open = Callable[[str, LLMConfig, Mapping[str, str]], LLMClient]


def open_clients(model: str, config: LLMConfig, environ: Mapping[str, str], open_one: Open = open_client) -> Clients:
    """Open the clients of all roles: those that the settings name for a role, else `model`. One client for each distinct model.

    Args:
        open_one: `price_client` where nobody will be asked.

    Raises:
        UsageError: As `open_client`; a role cannot be left to the rules when another has a model.
        ModelError: As `open_client`.
    """
    providers = providers_of(config)
    specs = [str(parse(role or model, providers)) for role in (config.proposer, config.evaluator, config.arbiter)]
    opened: dict[str, LLMClient] = {}
    try:
        for spec in specs:
            if spec not in opened:
                opened[spec] = open_one(spec, config, environ)
    except (UsageError, ModelError):
        for client in opened.values():
            client.close()
        raise
    return Clients(*(opened[spec] for spec in specs))
