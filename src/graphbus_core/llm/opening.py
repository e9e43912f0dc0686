"""Opens the client of a model by its name, and tells `graphbus doctor` which models can be used.

No library of a provider is imported before a client is opened, and only `try_model` sends a request.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm import sdk
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.client import Clients, LLMClient, ModelPrompt, RecordedClient
from graphbus_core.llm.providers import (
    COMMAND,
    RULES,
    ModelSpec,
    Provider,
    choose_model,
    host_of,
    is_loopback,
    parse_model,
    providers_of,
    split_command,
)
from graphbus_core.model.config import LLMConfig
from graphbus_core.model.spending import Price

_FREE = Price(0.0, 0.0)
OpenClient = Callable[[str, LLMConfig, Mapping[str, str]], LLMClient]


def open_client(spec: str, config: LLMConfig, environ: Mapping[str, str]) -> RetryingClient:
    """Open the client of a model, wrapped for retries.

    Raises:
        UsageError: GBE140 to GBE143: there is no such model, or the settings of its provider are refused.
        ModelError: GBE440 its key is missing, GBE441 its library is missing, GBE454 the key has impossible characters.
    """
    meant, provider = _parse_spec(spec, config)
    if provider:
        client: LLMClient = _open_remote(meant, provider, config, environ)
    else:
        from graphbus_core.llm.command import CommandClient  # processes and temporary files

        client = CommandClient(split_command(meant), config.timeout_s, environ, config.pass_env)
    return RetryingClient(client, config.max_attempts, config.requests_per_minute, config.concurrency)


def price_client(spec: str, config: LLMConfig, _environ: Mapping[str, str]) -> RecordedClient:
    """Return a client that only knows its price; it needs neither key nor library.

    Raises:
        UsageError: As `open_client`.
    """
    meant, provider = _parse_spec(spec, config)
    return RecordedClient(str(meant), price_of(provider, meant.model) if provider else _FREE)


def _parse_spec(spec: str, config: LLMConfig) -> tuple[ModelSpec, Provider | None]:
    """Return the model and its provider; None for a program."""
    providers = providers_of(config)
    meant = parse_model(spec, providers)
    if meant.provider == RULES:
        raise UsageError("GBE141", spec=spec, reason="the rule agents use no model")
    return meant, None if meant.provider == COMMAND else providers[meant.provider]


def _open_remote(meant: ModelSpec, provider: Provider, config: LLMConfig, environ: Mapping[str, str]) -> LLMClient:
    key = _key_of(provider, environ)
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


def _key_of(provider: Provider, environ: Mapping[str, str]) -> str:
    return environ.get(provider.key_env, "").strip() if provider.key_env else ""


def open_clients(
    model: str, config: LLMConfig, environ: Mapping[str, str], open_one: OpenClient = open_client
) -> Clients:
    """Open the clients of all roles: the model that the settings name for a role, else `model`. Equal models share a client.

    Args:
        open_one: `price_client` if no question will be asked.

    Raises:
        UsageError: As `open_client`; a role cannot be left to the rules when another has a model.
        ModelError: As `open_client`.
    """
    providers = providers_of(config)
    specs = [str(parse_model(role or model, providers)) for role in (config.proposer, config.evaluator, config.arbiter)]
    opened: dict[str, LLMClient] = {}
    try:
        for spec in dict.fromkeys(specs):
            opened[spec] = open_one(spec, config, environ)
    except (UsageError, ModelError):
        for client in opened.values():
            client.close()
        raise
    return Clients(*(opened[spec] for spec in specs))


def price_of(provider: Provider, model: str) -> Price | None:
    """Return the price of a model, None if it is not known. No network is used.

    It is the price of the settings; else 0 for a server on this machine; else the highest rate that may apply, from the table
    of prices in the installed libraries.
    """
    source = _price_source(provider)
    if source == "settings":
        return Price(provider.input_usd, provider.output_usd)
    if source == "this machine":
        return _FREE
    is_known = source == "table" and not sdk.missing_package(provider)
    return sdk.known_price(provider.prices, model) if is_known else None


# --- for `graphbus doctor` --------------------------------------------------------------

PriceSource = Literal["settings", "this machine", "table", "unknown"]
_SMALLEST = ModelPrompt(shared="", task="Answer with the one word: ok")
_TEST_TOKENS = 64
_TEST_TIMEOUT_S = 60.0
_KNOCK_S = 0.3
NOT_INSTALLED = " is not installed"
"""The end of every reason about a missing library."""
_WITHOUT_EFFECT = (
    *("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"),
)


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider on this machine. Of a key only whether it is set.

    Attributes:
        missing: The reasons why it cannot be used, one sentence each; empty if it can.
    """

    name: str
    address: str
    key_variable: str
    has_key: bool
    default_model: str
    price: PriceSource
    missing: tuple[str, ...]


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The model that would negotiate now.

    Attributes:
        because: Why it is this model.
        roles: Role -> model, for roles with a model of their own.
        missing: The reasons why it cannot be used, one sentence each.
    """

    model: str
    because: str
    roles: dict[str, str]
    missing: tuple[str, ...]


class TrialCall(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the smallest possible call.

    Attributes:
        cost_usd: None if the price is not known; then `input_usd` and `output_usd` are None, too.
        input_usd: The highest price of a million input tokens.
        output_usd: The highest price of a million output tokens.
    """

    model: str
    seconds: float
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    input_usd: float | None
    output_usd: float | None


def examine_providers(config: LLMConfig, environ: Mapping[str, str]) -> tuple[ProviderState, ...]:
    """Return the state of every provider, the well-known ones first.

    Raises:
        UsageError: The settings of a provider are refused.
    """
    return tuple(
        ProviderState(
            name=provider.name,
            address=provider.base_url,
            key_variable=provider.key_env,
            has_key=bool(_key_of(provider, environ)),
            default_model=provider.default_model,
            price=_price_source(provider),
            missing=tuple(_missing(provider, environ)),
        )
        for provider in providers_of(config).values()
    )


def _missing(provider: Provider, environ: Mapping[str, str]) -> Iterator[str]:
    package = sdk.missing_package(provider)
    if package:
        yield f"{package}{NOT_INSTALLED}"
    if provider.key_env and not _key_of(provider, environ):
        yield f"{provider.key_env} is not set"
    if is_loopback(host_of(provider)) and not _is_listening(provider):
        yield "no server answers there"


def _is_listening(provider: Provider) -> bool:
    """Return whether a server on this machine accepts connections at the address of a provider."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(provider.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with suppress(OSError), socket.create_connection((host_of(provider), port), timeout=_KNOCK_S):
        return True
    return False


def _price_source(provider: Provider) -> PriceSource:
    if provider.input_usd or provider.output_usd:
        return "settings"
    if is_loopback(host_of(provider)):
        return "this machine"
    return "table" if provider.prices else "unknown"


def find_ignored_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that are set and would redirect the providers' libraries, but that GraphBus ignores."""
    return tuple(name for name in _WITHOUT_EFFECT if environ.get(name))


def explain_choice(config: LLMConfig, environ: Mapping[str, str]) -> ModelChoice:
    """Return what `graphbus build --enable-agents` would use now, and why.

    Raises:
        UsageError: The settings name a model that there is not.
    """
    providers = providers_of(config)
    model = choose_model(config, environ)
    named = {"proposer": config.proposer, "evaluator": config.evaluator, "arbiter": config.arbiter}
    roles = {role: str(parse_model(text, providers)) for role, text in named.items() if text}
    if config.model.strip():
        because = "the settings or the command line say so"
    elif model == RULES:
        because = "neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set"
    else:
        because = f"{providers[model.partition(':')[0]].key_env} is set"
    missing = (reason for spec in (model, *roles.values()) for reason in _missing_for(spec, providers, environ))
    return ModelChoice(model=model, because=because, roles=roles, missing=tuple(dict.fromkeys(missing)))


def _missing_for(spec: str, providers: Mapping[str, Provider], environ: Mapping[str, str]) -> list[str]:
    meant = parse_model(spec, providers)
    if meant.provider == RULES:
        return []
    if meant.provider == COMMAND:
        program = split_command(meant)[0]
        return [] if shutil.which(program, path=environ.get("PATH")) else [f"there is no program {program}"]
    return [f"{meant.provider}: {reason}" for reason in _missing(providers[meant.provider], environ)]


def try_model(text: str, config: LLMConfig, environ: Mapping[str, str]) -> TrialCall:
    """Make the smallest possible call to a model, which costs at most a fraction of a cent.

    Raises:
        UsageError: There is no such model.
        ModelError: It cannot be asked, or does not answer.
    """
    limits = msgspec.structs.replace(config, max_attempts=1, timeout_s=min(config.timeout_s, _TEST_TIMEOUT_S))
    client, (_, provider) = open_client(text, limits, environ), _parse_spec(text, config)
    try:
        if provider:
            sdk.load_libraries(provider)  # not part of the measured time
        start_s = time.perf_counter()
        completion = client.complete(_SMALLEST, _TEST_TOKENS)
        seconds = round(time.perf_counter() - start_s, 3)
    finally:
        client.close()
    return TrialCall(
        model=completion.model,
        seconds=seconds,
        input_tokens=completion.usage.input_tokens,
        output_tokens=completion.usage.output_tokens,
        cost_usd=completion.cost_usd,
        input_usd=client.price.input_usd if client.price else None,
        output_usd=client.price.output_usd if client.price else None,
    )
