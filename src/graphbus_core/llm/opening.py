"""From a name to a client: the provider's, with retries around it. What else surrounds it is added by those who negotiate."""

from __future__ import annotations

from collections.abc import Mapping

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm.client import Clients, LLMClient
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


def open_clients(model: str, config: LLMConfig, environ: Mapping[str, str]) -> Clients:
    """Open the clients of all roles: those that the settings name for a role, else `model`. One client for each distinct model.

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
                opened[spec] = open_client(spec, config, environ)
    except (UsageError, ModelError):
        for client in opened.values():
            client.close()
        raise
    return Clients(*(opened[spec] for spec in specs))
