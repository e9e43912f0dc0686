"""From a name to a client: the provider's, with retries around it, or only its price."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.client import Clients, LLMClient, UnaskableClient
from graphbus_core.llm.providers import (
    COMMAND,
    RULES,
    Provider,
    Spec,
    host_of,
    is_loopback,
    parse,
    providers_of,
    split_command,
)
from graphbus_core.model.config import LLMConfig
from graphbus_core.model.spending import Price

FREE = Price(0.0, 0.0)


def open_client(spec: str, config: LLMConfig, environ: Mapping[str, str]) -> RetryingClient:
    """Open the client of a model.

    Raises:
        UsageError: GBE140 to GBE143: there is no such model, or its provider may not be like this.
        ModelError: GBE440 when its key is missing, GBE441 when its library is.
    """
    meant, provider = _meant(spec, config)
    if provider:
        client: LLMClient = _open_remote(meant, provider, config, environ)
    else:
        from graphbus_core.llm.command import CommandClient  # processes and their pipes

        client = CommandClient(split_command(meant), config.timeout_s, environ, config.pass_env)
    return RetryingClient(client, config.max_attempts, config.requests_per_minute, config.concurrency)


class PricedClient(UnaskableClient):
    """A model whose price is wanted and not its answer: it needs neither key nor library."""

    code = "GBE455"


def price_client(spec: str, config: LLMConfig, _environ: Mapping[str, str]) -> PricedClient:
    """Give a model that can only be asked what it costs.

    Raises:
        UsageError: As `open_client`.
    """
    meant, provider = _meant(spec, config)
    return PricedClient(str(meant), price_of(provider, meant.model) if provider else FREE)


def _meant(spec: str, config: LLMConfig) -> tuple[Spec, Provider | None]:
    """Give the model that is meant and its provider; None for a program."""
    providers = providers_of(config)
    meant = parse(spec, providers)
    if meant.provider == RULES:
        raise UsageError("GBE141", spec=spec, reason="the rules are no model and give no answers")
    return meant, None if meant.provider == COMMAND else providers[meant.provider]


def _open_remote(meant: Spec, provider: Provider, config: LLMConfig, environ: Mapping[str, str]) -> LLMClient:
    from graphbus_core.llm import sdk

    key = environ.get(provider.key_env, "").strip() if provider.key_env else ""
    if provider.key_env and not key:
        raise ModelError("GBE440", is_final=True, provider=provider.name, variable=provider.key_env)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelError("GBE454", is_final=True, variable=provider.key_env)
    package = sdk.missing_package(provider)
    if package:
        raise ModelError("GBE441", is_final=True, provider=provider.name, package=package)
    price = price_of(provider, meant.model)
    # Only the table knows the rate of what is read from the provider's cache, so a call is priced by it, not by `price`.
    known = price is not None and bool(provider.prices) and not (provider.input_usd or provider.output_usd)
    return sdk.RemoteClient(provider, meant.model, key, config.timeout_s, price=price, has_known_price=known)


Open = Callable[[str, LLMConfig, Mapping[str, str]], LLMClient]


def open_clients(model: str, config: LLMConfig, environ: Mapping[str, str], open_one: Open = open_client) -> Clients:
    """Open the clients of all roles: those that the settings name for a role, else `model`. One client for each distinct model.

    Args:
        open_one: `price_client` where no question will follow.

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


# --- what a call can cost at most, known before it is made -------------------------------------


def price_of(provider: Provider, model: str) -> Price | None:
    """Give the price of a model: what the settings say, else nothing for a server on this machine, else the table of prices that
    comes with the installed libraries, at the highest rate that may apply. None: it is not known. Asks no network.
    """
    from graphbus_core.llm import sdk

    if provider.input_usd or provider.output_usd:
        return Price(provider.input_usd, provider.output_usd)
    if is_loopback(host_of(provider)):
        return FREE
    return sdk.known_price(provider.prices, model) if provider.prices and not sdk.missing_package(provider) else None
