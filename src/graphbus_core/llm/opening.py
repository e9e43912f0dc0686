"""Opens the client of a model by its name, and finds out for `graphbus doctor` which models can be used.

The libraries of a provider are imported only when a client is used, and only `try_model` sends a request.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.isolation import attempt
from graphbus_core.llm import sdk
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.call_limits import CallLimits, is_local, limits_of
from graphbus_core.llm.client import Clients, LLMClient, ModelPrompt, RecordedClient
from graphbus_core.llm.providers import (
    COMMAND,
    RULES,
    ModelSpec,
    Provider,
    choose_model,
    host_of,
    is_loopback,
    models_of_roles,
    parse_model,
    providers_of,
    public_name,
    split_command,
)
from graphbus_core.model.config import LLMConfig
from graphbus_core.model.spending import Price

_FREE = Price(0.0, 0.0)
OpenClient = Callable[[str, LLMConfig, Mapping[str, str]], LLMClient]


def open_client(spec: str, config: LLMConfig, environ: Mapping[str, str]) -> RetryingClient:
    """Open the client of a model, wrapped for retries.

    Raises:
        UsageError: GBE140 to GBE143, there is no such model, or the settings of its provider are refused.
        ModelError: GBE440, its key is missing; GBE441, its library is missing; GBE454, its key has characters that no key has.
    """
    parsed, provider = _parse_spec(spec, config)
    if provider:
        client: LLMClient = _open_remote(parsed, provider, config, environ)
    else:
        from graphbus_core.llm.command import CommandClient  # processes and temporary files

        client = CommandClient(split_command(parsed), limits_of(config).timeout_s, environ, config.pass_env)
    concurrency = limits_of(config, provider).concurrency
    return RetryingClient(client, config.max_attempts, config.requests_per_minute, concurrency)


def settle_limits(config: LLMConfig, environ: Mapping[str, str]) -> LLMConfig:
    """Return the settings with numbers for the limits that are `"auto"` and on which answers depend, before a negotiation.

    Local servers are asked for the size of their context and their number of slots. If the roles have several models, all keep to
    the smallest limits. A model that cannot be opened is left out here; the error is raised when it is used.
    """
    models = {role or config.model for role in (config.proposer, config.evaluator, config.arbiter)} - {"", RULES}
    answers = (attempt(partial(_ask_for_limits, model, config, environ)) for model in sorted(models))
    found = [limits for limits, _ in answers if limits]
    found = found or [limits_of(config)]
    is_one = len(found) == len(models) == 1
    return msgspec.structs.replace(
        config,
        max_prompt_tokens=min(limits.max_prompt_tokens for limits in found),
        max_output_tokens=min(limits.max_output_tokens for limits in found),
        concurrency=found[0].concurrency if is_one else config.concurrency,
    )


def _ask_for_limits(model: str, config: LLMConfig, environ: Mapping[str, str]) -> CallLimits:
    """Return the limits of a model, after asking its server if that is local and speaks the protocol of OpenAI."""
    parsed, provider = _parse_spec(model, config)
    if provider is None or not is_local(provider) or provider.wire != "openai":
        return limits_of(config, provider)
    client = _open_remote(parsed, provider, config, environ)
    try:
        return limits_of(config, provider, client.fetch_facts())
    finally:
        client.close()


def price_client(spec: str, config: LLMConfig, _environ: Mapping[str, str]) -> RecordedClient:
    """Return a client that knows the price of a model and cannot answer. It needs neither key nor library.

    Raises:
        UsageError: As `open_client`.
    """
    parsed, provider = _parse_spec(spec, config)
    return RecordedClient(public_name(parsed), price_of(provider, parsed.model) if provider else _FREE)


def _parse_spec(spec: str, config: LLMConfig) -> tuple[ModelSpec, Provider | None]:
    """Return the model and its provider, which is None for a program; raise UsageError if there is no such model."""
    providers = providers_of(config)
    parsed = parse_model(spec, providers)
    if parsed.provider == RULES:
        advice = "Choose a model, e.g. `anthropic:claude-sonnet-5-5` or `command:PROGRAM ARGUMENTS`."
        raise UsageError("GBE141", spec=spec, reason="the rule agents use no model", advice=advice)
    return parsed, None if parsed.provider == COMMAND else providers[parsed.provider]


def _open_remote(
    parsed: ModelSpec, provider: Provider, config: LLMConfig, environ: Mapping[str, str]
) -> sdk.RemoteClient:
    """Return a client that asks a server; raise ModelError if its key or library is missing, or the key is malformed."""
    key = _read_key(provider, environ)
    if provider.key_env and not key:
        raise ModelError("GBE440", is_final=True, provider=provider.name, variable=provider.key_env)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ModelError("GBE454", is_final=True, variable=provider.key_env)
    package = sdk.missing_package(provider)
    if package:
        raise ModelError("GBE441", is_final=True, provider=provider.name, package=package)
    price = price_of(provider, parsed.model)
    # `price` is the highest rate. Where the price table knows a model, calls are priced by it: cached input costs less.
    known = price is not None and bool(provider.prices) and not (provider.input_usd or provider.output_usd)
    limits = limits_of(config, provider)
    return sdk.RemoteClient(
        provider,
        parsed.model,
        key,
        limits.timeout_s,
        first_token_timeout_s=limits.first_token_timeout_s,
        temperature=limits.temperature,
        price=price,
        has_known_price=known,
        answers=config.answers,
    )


def _read_key(provider: Provider, environ: Mapping[str, str]) -> str:
    """Return the key of a provider from the environment; empty if it is not set, or the provider needs none."""
    return environ.get(provider.key_env, "").strip() if provider.key_env else ""


def open_clients(
    model: str, config: LLMConfig, environ: Mapping[str, str], open_one: OpenClient = open_client
) -> Clients:
    """Open the client of each role: for the model in the settings of the role, else for `model`. Equal models share a client.

    A role of the rules gets a client that cannot answer, whose model is `"rules"`.

    Args:
        model: `"provider:name"` or `"rules"`.
        config: The settings.
        environ: The environment variables.
        open_one: `open_client`, or `price_client` if no question will be asked.

    Raises:
        UsageError: As `open_client`.
        ModelError: As `open_client`. Clients that were opened before are closed.
    """
    specs = [str(spec) for spec in models_of_roles(model, config).values()]
    opened: dict[str, LLMClient] = {}
    try:
        for spec in dict.fromkeys(specs):
            opened[spec] = RecordedClient(RULES, _FREE) if spec == RULES else open_one(spec, config, environ)
    except (UsageError, ModelError):
        for client in opened.values():
            client.close()
        raise
    return Clients(*(opened[spec] for spec in specs))


def price_of(provider: Provider, model: str) -> Price | None:
    """Return the price of a model, None if it is not known. No network is used.

    It is the price in the settings; else 0 for a server on this machine; else the highest possible rate in the price table of the
    installed libraries.
    """
    source = _find_price_source(provider)
    if source == "settings":
        return Price(provider.input_usd, provider.output_usd)
    if source == "this machine":
        return _FREE
    is_known = source == "table" and not sdk.missing_package(provider)
    return sdk.highest_price(provider.prices, model) if is_known else None


# --- for `graphbus doctor` --------------------------------------------------------------

PriceSource = Literal["settings", "this machine", "table", "unknown"]
_TEST_PROMPT = ModelPrompt(shared="", task="Answer with the one word: ok")
_TEST_TOKENS = 16
_TEST_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 0.3
NOT_INSTALLED = " is not installed"
"""The end of each reason in `missing` that is about a library."""
_IGNORED_VARIABLES = (
    *("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"),
)


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a provider on this machine.

    Attributes:
        address: Its base URL.
        key_variable: The environment variable with its key; empty if it needs none.
        has_key: True if that variable is set; the key itself is not included.
        price: Where the price of its models is from.
        missing: The reasons why it cannot be used, without full stops; empty if it can.
    """

    name: str
    address: str
    key_variable: str
    has_key: bool
    default_model: str
    price: PriceSource
    missing: tuple[str, ...]


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The model that a negotiation would use now.

    Attributes:
        because: Why it is this model, as part of a sentence.
        roles: Role -> model, for roles with a model of their own.
        missing: The reasons why these models cannot be used, without full stops; empty if they can.
    """

    model: str
    because: str
    roles: dict[str, str]
    missing: tuple[str, ...]


class TrialCall(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test call.

    Attributes:
        seconds: How long it took.
        cost_usd: Its cost in dollars; None, like `input_usd` and `output_usd`, if the price is not known.
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
    """Return the state of every provider, those built into GraphBus first.

    Raises:
        UsageError: The settings of a provider are refused.
    """
    return tuple(
        ProviderState(
            name=provider.name,
            address=provider.base_url,
            key_variable=provider.key_env,
            has_key=bool(_read_key(provider, environ)),
            default_model=provider.default_model,
            price=_find_price_source(provider),
            missing=tuple(_find_missing(provider, environ)),
        )
        for provider in providers_of(config).values()
    )


def _find_missing(provider: Provider, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield each reason why a provider cannot be used: library, key or local server."""
    package = sdk.missing_package(provider)
    if package:
        yield f"{package}{NOT_INSTALLED}"
    if provider.key_env and not _read_key(provider, environ):
        yield f"{provider.key_env} is not set"
    if is_loopback(host_of(provider)) and not _is_listening(provider):
        yield "no server answers there"


def _is_listening(provider: Provider) -> bool:
    """Return whether a server on this machine accepts connections at the address of a provider."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(provider.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with suppress(OSError), socket.create_connection((host_of(provider), port), timeout=_CONNECT_TIMEOUT_S):
        return True
    return False


def _find_price_source(provider: Provider) -> PriceSource:
    """Return where the price of a provider's models is from; `"table"` does not mean that the table lists every model."""
    if provider.input_usd or provider.output_usd:
        return "settings"
    if is_loopback(host_of(provider)):
        return "this machine"
    return "table" if provider.prices else "unknown"


def find_ignored_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the environment variables that are set and that the libraries of providers would obey, but GraphBus ignores."""
    return tuple(name for name in _IGNORED_VARIABLES if environ.get(name))


def explain_choice(config: LLMConfig, environ: Mapping[str, str]) -> ModelChoice:
    """Return the model that `graphbus build --enable-agents` would use now, and why.

    Raises:
        UsageError: The settings name a model that does not exist.
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
    missing = (
        reason for spec in (model, *roles.values()) for reason in _find_missing_for_model(spec, providers, environ)
    )
    return ModelChoice(model=model, because=because, roles=roles, missing=tuple(dict.fromkeys(missing)))


def _find_missing_for_model(spec: str, providers: Mapping[str, Provider], environ: Mapping[str, str]) -> list[str]:
    """Return the reasons why a model cannot be used; empty if it can."""
    parsed = parse_model(spec, providers)
    if parsed.provider == RULES:
        return []
    if parsed.provider == COMMAND:
        program = split_command(parsed)[0]
        return [] if shutil.which(program, path=environ.get("PATH")) else [f"there is no program {program}"]
    return [f"{parsed.provider}: {reason}" for reason in _find_missing(providers[parsed.provider], environ)]


def try_model(text: str, config: LLMConfig, environ: Mapping[str, str]) -> TrialCall:
    """Make a test call to a model, as small as possible: it costs at most a fraction of a cent.

    Raises:
        UsageError: There is no such model.
        ModelError: The model cannot be asked; GBE456, it does not answer within ten seconds.
    """
    _, provider = _parse_spec(text, config)
    time_s = min(limits_of(config, provider).timeout_s, _TEST_TIMEOUT_S)
    limits = msgspec.structs.replace(config, max_attempts=1, timeout_s=time_s, first_token_timeout_s=time_s)
    client = open_client(text, limits, environ)
    try:
        if provider:
            sdk.load_libraries(provider)  # before the clock starts: the first import takes seconds
        start_s = time.perf_counter()
        completion = client.complete(_TEST_PROMPT, _TEST_TOKENS)
        seconds = round(time.perf_counter() - start_s, 3)
    except ModelError as error:
        if error.code not in ("GBE447", "GBE455"):
            raise
        data: dict[str, Any] = {name: error.data.get(name) for name in ("provider", "address", "timeout_s")}
        raise ModelError("GBE456", is_final=True, **data) from None
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
