"""Which models could be asked from here, and what is missing for the others. Imports no library and sends no request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from graphbus_core.llm.client import Completion, Prompt
from graphbus_core.llm.opening import open_client
from graphbus_core.llm.providers import (
    COMMAND,
    RULES,
    Provider,
    choose_model,
    host_of,
    is_loopback,
    parse,
    providers_of,
    split_command,
)
from graphbus_core.model.config import LLMConfig
from graphbus_core.model.spending import Price

PriceSource = Literal["settings", "this machine", "table", "unknown"]
_SMALLEST = Prompt(shared="", task="Answer with the one word: ok")
_TEST_TOKENS = 64
_TEST_TIMEOUT_S = 60.0
_KNOCK_S = 0.3
_WITHOUT_EFFECT = (
    *("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
    *("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"),
)


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as seen from here; of a key nothing but whether it is there.

    Attributes:
        missing: What keeps it from being asked, one sentence each; empty: it can be asked.
    """

    name: str
    address: str
    key_variable: str
    has_key: bool
    default_model: str
    price: PriceSource
    missing: tuple[str, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What would negotiate now.

    Attributes:
        roles: Role -> model, of those that have one of their own.
        missing: What keeps it from being asked, one sentence each.
    """

    model: str
    because: str
    roles: dict[str, str]
    missing: tuple[str, ...]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What the smallest call came to.

    Attributes:
        cost_usd: None when the price is not known, as are both prices then; those are for a million tokens, at most.
    """

    model: str
    seconds: float
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    input_usd: float | None
    output_usd: float | None


def is_listening(host: str, port: int) -> bool:
    """True when a server of this machine takes connections there."""
    import socket

    with suppress(OSError), socket.create_connection((host, port), timeout=_KNOCK_S):
        return True
    return False


Knock = Callable[[str, int], bool]


def examine(config: LLMConfig, environ: Mapping[str, str], knock: Knock = is_listening) -> tuple[ProviderState, ...]:
    """Look at every provider, the well-known ones first.

    Raises:
        UsageError: The settings hold a provider that may not be like this.
    """
    return tuple(_state_of(provider, environ, knock) for provider in providers_of(config).values())


def _state_of(provider: Provider, environ: Mapping[str, str], knock: Knock) -> ProviderState:
    return ProviderState(
        name=provider.name,
        address=provider.base_url,
        key_variable=provider.key_env,
        has_key=_has_key(provider, environ),
        default_model=provider.default_model,
        price=_price_source(provider),
        missing=tuple(_missing(provider, environ, knock)),
    )


def _has_key(provider: Provider, environ: Mapping[str, str]) -> bool:
    return bool(provider.key_env and environ.get(provider.key_env, "").strip())


def _missing(provider: Provider, environ: Mapping[str, str], knock: Knock) -> list[str]:
    from graphbus_core.llm import sdk

    found = []
    package = sdk.missing_package(provider)
    if package:
        found.append(f"{package} is not installed: pip install 'graphbus[llm]'")
    if provider.key_env and not _has_key(provider, environ):
        found.append(f"{provider.key_env} is not set")
    if is_loopback(host_of(provider)) and not knock(host_of(provider), _port_of(provider)):
        found.append("no server answers there")
    return found


def _port_of(provider: Provider) -> int:
    from urllib.parse import urlsplit

    parts = urlsplit(provider.base_url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _price_source(provider: Provider) -> PriceSource:
    if provider.input_usd or provider.output_usd:
        return "settings"
    if is_loopback(host_of(provider)):
        return "this machine"
    return "table" if provider.prices else "unknown"


def without_effect(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the variables that are set and would turn the libraries elsewhere, if GraphBus let them."""
    return tuple(name for name in _WITHOUT_EFFECT if environ.get(name))


def choice(config: LLMConfig, environ: Mapping[str, str], knock: Knock = is_listening) -> Choice:
    """Say what `graphbus build --enable-agents` would use now, and why.

    Raises:
        UsageError: The settings name a model that there is not.
    """
    providers = providers_of(config)
    model = choose_model(config, environ)
    named = {"proposer": config.proposer, "evaluator": config.evaluator, "arbiter": config.arbiter}
    roles = {role: str(parse(text, providers)) for role, text in named.items() if text}
    missing: dict[str, None] = {}
    for spec in dict.fromkeys([model, *roles.values()]):
        missing |= dict.fromkeys(_missing_for(spec, config, environ, knock))
    return Choice(model=model, because=_because(model, config), roles=roles, missing=tuple(missing))


def _because(model: str, config: LLMConfig) -> str:
    if config.model.strip():
        return "the settings or the command line say so"
    if model == RULES:
        return "neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set"
    return f"{providers_of(config)[model.partition(':')[0]].key_env} is set"


def _missing_for(spec: str, config: LLMConfig, environ: Mapping[str, str], knock: Knock) -> list[str]:
    import shutil

    providers = providers_of(config)
    meant = parse(spec, providers)
    if meant.provider == RULES:
        return []
    if meant.provider == COMMAND:
        program = split_command(meant)[0]
        return [] if shutil.which(program, path=environ.get("PATH")) else [f"there is no program {program}"]
    return [f"{meant.provider}: {reason}" for reason in _missing(providers[meant.provider], environ, knock)]


def try_model(text: str, config: LLMConfig, environ: Mapping[str, str]) -> Tried:
    """Make the smallest call to a model: it costs a fraction of a cent, if anything.

    Raises:
        UsageError: There is no such model.
        ModelError: It cannot be asked, or does not answer.
    """
    limits = msgspec.structs.replace(config, max_attempts=1, timeout_s=min(config.timeout_s, _TEST_TIMEOUT_S))
    client = open_client(text, limits, environ)
    try:
        _load_for(text, config)
        start_s = time.perf_counter()
        completion = client.complete(_SMALLEST, _TEST_TOKENS)
        return _tried(completion, client.price, time.perf_counter() - start_s)
    finally:
        client.close()


def _load_for(text: str, config: LLMConfig) -> None:
    """Import libraries before the clock starts."""
    from graphbus_core.llm import sdk

    providers = providers_of(config)
    meant = parse(text, providers)
    if meant.provider != COMMAND:
        sdk.load(providers[meant.provider])


def _tried(completion: Completion, price: Price | None, seconds: float) -> Tried:
    return Tried(
        model=completion.model,
        seconds=round(seconds, 3),
        input_tokens=completion.usage.input_tokens,
        output_tokens=completion.usage.output_tokens,
        cost_usd=completion.cost_usd,
        input_usd=price.input_usd if price else None,
        output_usd=price.output_usd if price else None,
    )
