"""The providers of models: their names, addresses, and which key each may get. Pure.

A key goes only to its own provider: `check_provider` refuses settings that would send one elsewhere, see docs/models.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from graphbus_core.errors import UsageError, did_you_mean
from graphbus_core.model.config import LLMConfig, Wire

RULES = "rules"
COMMAND = "command"
_CLAUDE = "claude-"
_FROM_PYTHON = {"scripted": "ScriptedClient", "recorded": "RecordedClient"}


class Provider(NamedTuple):
    """A provider of models.

    Attributes:
        key_env: The environment variable with its key; empty: it needs none.
        prices: Its name in the table of prices; empty if it is not listed.
        is_configured: It comes from pyproject.toml.
    """

    name: str
    wire: Wire
    base_url: str
    key_env: str = ""
    default_model: str = ""
    prices: str = ""
    input_usd: float = 0.0
    output_usd: float = 0.0
    is_configured: bool = False


class ModelSpec(NamedTuple):
    """A model by provider and name.

    Attributes:
        provider: Its name; `"rules"` and `"command"` are not in the table of providers.
        model: The name of the model at the provider; for a program its whole command line.
    """

    provider: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


KNOWN: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "anthropic",
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            "claude-sonnet-5-5",
            "anthropic",
        ),
        Provider("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-6.1-sol", "openai"),
        Provider(
            "openrouter",
            "openai",
            "https://openrouter.ai/api/v1",
            "OPENROUTER_API_KEY",
            "anthropic/claude-sonnet-5.5",
            "openrouter",
        ),
        Provider("deepseek", "openai", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek-v4-pro", "deepseek"),
        Provider("mistral", "openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "", "mistral"),
        Provider("groq", "openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "", "groq"),
        Provider("ollama", "openai", "http://localhost:11434/v1"),
        Provider("vllm", "openai", "http://localhost:8000/v1"),
        Provider("llamacpp", "openai", "http://localhost:8080/v1"),
        Provider("lmstudio", "openai", "http://localhost:1234/v1"),
    )
}
_BY_KEY = ("anthropic", "openai")
"""Without a configured model, the first of these providers whose key is set negotiates."""

KEY_OWNERS: Mapping[str, tuple[str, ...]] = {
    **{provider.key_env: (provider.base_url.split("/")[2],) for provider in KNOWN.values() if provider.key_env},
    "ANTHROPIC_AUTH_TOKEN": ("api.anthropic.com",),
    "OPENAI_ADMIN_KEY": ("api.openai.com",),
    "AZURE_OPENAI_API_KEY": (".openai.azure.com", ".services.ai.azure.com"),
    "GEMINI_API_KEY": (".googleapis.com",),
    "GOOGLE_API_KEY": (".googleapis.com",),
    "XAI_API_KEY": ("api.x.ai",),
    "TOGETHER_API_KEY": ("api.together.xyz", "api.together.ai"),
    "FIREWORKS_API_KEY": ("api.fireworks.ai",),
    "CEREBRAS_API_KEY": ("api.cerebras.ai",),
    "HF_TOKEN": (".huggingface.co",),
    "GITHUB_TOKEN": ("models.github.ai",),
    "GH_TOKEN": ("models.github.ai",),
    "AWS_SECRET_ACCESS_KEY": (),
    "AWS_SESSION_TOKEN": (),
    "AWS_ACCESS_KEY_ID": (),
}
"""Variable -> the only hosts to which its key may be sent; a name that begins with a dot stands for all hosts below it."""


def providers_of(config: LLMConfig) -> dict[str, Provider]:
    """Return all providers by name: the well-known ones, and those of the settings, which replace one of the same name.

    Raises:
        UsageError: GBE141, GBE142 or GBE143, see `check_provider`.
    """
    own = {
        name: Provider(name=name, is_configured=True, **msgspec.structs.asdict(settings))
        for name, settings in config.providers.items()
    }
    for provider in own.values():
        check_provider(provider)
    return {**KNOWN, **own}


def check_provider(provider: Provider) -> None:
    """Refuse a configured provider that would send a key to the wrong host.

    Raises:
        UsageError: GBE141 for a reserved name, GBE142 for the key of another provider, GBE143 for an invalid address, or for
            a key over plain HTTP to another machine.
    """
    if provider.name in (RULES, COMMAND, *_FROM_PYTHON) or not provider.name.replace("-", "_").isidentifier():
        raise UsageError("GBE141", spec=provider.name, reason="this name is not allowed for a provider")
    host = host_of(provider)
    owners = KEY_OWNERS.get(provider.key_env.upper())
    if owners is not None and not (is_https(provider) and _is_host_of(provider, host, owners)):
        owner = " or ".join(name.removeprefix(".") for name in owners) or "its own service"
        raise UsageError("GBE142", name=provider.name, variable=provider.key_env, owner=owner)
    if provider.key_env and not is_https(provider) and not is_loopback(host):
        raise _bad_address(provider, "a key must not be sent to another machine over plain http")


def _is_host_of(provider: Provider, host: str, owners: tuple[str, ...]) -> bool:
    from urllib.parse import urlsplit

    has_usual_port = urlsplit(provider.base_url).port in (None, 443)
    return has_usual_port and any(host.endswith(name) if name.startswith(".") else host == name for name in owners)


def is_https(provider: Provider) -> bool:
    """Return whether the connection to the provider is encrypted."""
    return provider.base_url.lower().startswith("https://")


def host_of(provider: Provider) -> str:
    """Return the host of a provider's address in lower case.

    Raises:
        UsageError: GBE143 for an invalid address.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(provider.base_url)
        host, _port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise _bad_address(provider, "it is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not host or not provider.base_url.isascii():
        raise _bad_address(provider, "it must begin with https:// or http:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _bad_address(provider, "it must not contain a user name or password")
    if parts.query or parts.fragment or any(sign in provider.base_url for sign in "\\ \t\r\n"):
        raise _bad_address(provider, "it must contain nothing but host, port and path")
    return host


def _bad_address(provider: Provider, reason: str) -> UsageError:
    address = "…@" + provider.base_url.rpartition("@")[2] if "@" in provider.base_url else provider.base_url
    return UsageError("GBE143", address=address, name=provider.name, reason=reason)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by name or address."""
    numbers = host.split(".")
    is_127 = len(numbers) == 4 and numbers[0] == "127" and all(number.isdigit() for number in numbers)
    return host in ("localhost", "::1") or host.endswith(".localhost") or is_127


def parse_model(text: str, providers: Mapping[str, Provider]) -> ModelSpec:
    """Read `provider:name`, `provider` alone for its default model, `command:PROGRAM ARGUMENTS` or `rules`.

    `claude-…` alone is a model of Anthropic, as in seed 001; other models need the name of their provider.

    Raises:
        UsageError: GBE140 for an unknown provider, GBE141 for a missing or impossible model.
    """
    name, colon, model = (part.strip() for part in text.partition(":"))
    if name in _FROM_PYTHON:
        raise UsageError("GBE141", spec=text, reason=f"{_FROM_PYTHON[name]} can only be given from Python")
    if name == RULES and not colon:
        return ModelSpec(RULES)
    if name == COMMAND:
        split_command(ModelSpec(COMMAND, model))
        return ModelSpec(COMMAND, model)
    if name not in providers and name.startswith(_CLAUDE) and not colon:
        name, model = "anthropic", name
    if name not in providers:
        raise _unknown(name, text, providers)
    model = model or providers[name].default_model
    if not model:
        raise UsageError("GBE141", spec=text, reason=f"{name} has no default model, so name one after a colon")
    if not model.isprintable() or " " in model:
        raise UsageError("GBE141", spec=text, reason="a model name cannot contain blanks or invisible characters")
    return ModelSpec(name, model)


def _unknown(name: str, text: str, providers: Mapping[str, Provider]) -> UsageError:
    makers = {"gpt": "openai", "deepseek": "deepseek"}
    maker = makers.get(name.partition("-")[0])
    known = sorted([*providers, COMMAND, RULES])
    suggestion = f" Did you mean '{maker}:{text.strip()}'?" if maker and name != maker else did_you_mean(name, known)
    return UsageError("GBE140", name=name, suggestion=suggestion, known=", ".join(known))


def split_command(spec: ModelSpec) -> tuple[str, ...]:
    """Return the words of a `command:`, split like a shell does; no shell runs them.

    Raises:
        UsageError: GBE141 if there is no word, or a quotation mark is not closed.
    """
    import shlex

    try:
        words = tuple(shlex.split(spec.model))
    except ValueError as error:
        raise UsageError("GBE141", spec=str(spec), reason=str(error).lower().rstrip(".")) from None
    if not words:
        raise UsageError("GBE141", spec=str(spec), reason="there is no program after `command:`")
    return words


def choose_model(config: LLMConfig, environ: Mapping[str, str]) -> str:
    """Return the model that negotiates, as `"provider:name"`, or `"rules"`.

    It is the model of the settings; without one, the default model of the first provider whose key is in the environment.

    Raises:
        UsageError: As `parse` and `providers_of`.
    """
    providers = providers_of(config)
    if config.model.strip():
        return str(parse_model(config.model, providers))
    for provider in (providers[name] for name in _BY_KEY):
        if provider.key_env and provider.default_model and environ.get(provider.key_env, "").strip():
            return str(ModelSpec(provider.name, provider.default_model))
    return RULES


# --- removing keys from text -------------------------------------------------------------


MAX_ANSWER_BYTES = 4_000_000
_MAX_REASON = 300
_LIKE_A_KEY = 12
_SECRETS = re.compile(r"\b(?:(?:sk|pk|gsk|xai|hf|ghp)[-_]|AIza)[\w*.…-]{6,}|(?i:bearer)\s+\S+")


def remove_secrets(text: str, key: str) -> str:
    """Return text for an error message: one line, without the key and whatever looks like one, and not too long."""
    if len(key) >= 4:
        text = text.replace(key, "***")
    text = _SECRETS.sub("***", " ".join(text.split()))
    text = "".join(sign for sign in text if sign.isprintable()).rstrip(". ")
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "…"


def remove_key(answer: str, key: str) -> str:
    """Remove the key from an answer. A short one such as `ollama` stays, because it may be an ordinary word."""
    return answer.replace(key, "***") if len(key) >= _LIKE_A_KEY else answer
