"""The providers of models: names, addresses, and to which of them a key may be sent. All functions are pure.

A key is sent only to the provider that issued it: `check_provider` refuses other settings (docs/models.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from graphbus_core.errors import UsageError, did_you_mean
from graphbus_core.errors.machine_paths import cut_path, remove_paths
from graphbus_core.model.config import LLMConfig, Wire

RULES = "rules"
COMMAND = "command"
_CLAUDE = "claude-"
_PYTHON_ONLY = {"scripted": "ScriptedClient", "recorded": "RecordedClient"}
_MODEL_EXAMPLES = "Choose another model, e.g. `anthropic:claude-sonnet-5-5`, `ollama:qwen3-coder` or `rules`."


class Provider(NamedTuple):
    """A provider of models.

    Attributes:
        wire: The protocol that its server speaks.
        key_env: The environment variable with its key; empty if it needs none.
        default_model: The model if none is named; empty if one must be named.
        prices: Its name in the price table; empty if it is not listed.
        input_usd: Configured price of a million input tokens; 0 if none is configured.
        output_usd: Configured price of a million output tokens; 0 if none is configured.
        is_configured: True if it is from pyproject.toml, False if it is built in.
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
        provider: The name of its provider; or `"rules"`, or `"command"` for a program.
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
_CHOSEN_BY_KEY = ("anthropic", "openai")
"""If no model is configured, the first of these providers whose key is set is used."""

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
"""Environment variable -> the only hosts to which its key may be sent; a name with a leading dot stands for its subdomains."""


def providers_of(config: LLMConfig) -> dict[str, Provider]:
    """Return name -> provider: the built-in ones, and those of the settings, which replace built-in ones of the same name.

    Raises:
        UsageError: GBE141, GBE142 or GBE143, a configured provider is not allowed, see `check_provider`.
    """
    own = {
        name: Provider(name=name, is_configured=True, **msgspec.structs.asdict(settings))
        for name, settings in config.providers.items()
    }
    for provider in own.values():
        check_provider(provider)
    return {**KNOWN, **own}


def check_provider(provider: Provider) -> None:
    """Check that a configured provider has an allowed name and address, and sends no key to the wrong host.

    Raises:
        UsageError: GBE141, the name is reserved or malformed; GBE142, the key belongs to another provider; GBE143, the address is
            invalid, or a key would be sent to another machine over plain HTTP.
    """
    if provider.name in (RULES, COMMAND, *_PYTHON_ONLY) or not provider.name.replace("-", "_").isidentifier():
        advice = f"Rename the table [tool.graphbus.llm.providers.{provider.name}]: use letters, digits, `-` and `_`."
        raise UsageError("GBE141", spec=provider.name, reason="a provider cannot have this name", advice=advice)
    host = host_of(provider)
    owners = KEY_OWNERS.get(provider.key_env.upper())
    if owners is not None and not (is_https(provider) and _is_owned_host(provider, host, owners)):
        owner = " or ".join(name.removeprefix(".") for name in owners) or "its own service"
        raise UsageError("GBE142", name=provider.name, variable=provider.key_env, owner=owner)
    if provider.key_env and not is_https(provider) and not is_loopback(host):
        raise _make_address_error(provider, "a key must not be sent to another machine over plain http")


def _is_owned_host(provider: Provider, host: str, owners: tuple[str, ...]) -> bool:
    """Return whether a provider's host, on the usual port, is one of the hosts to which a key may be sent."""
    from urllib.parse import urlsplit

    has_usual_port = urlsplit(provider.base_url).port in (None, 443)
    return has_usual_port and any(host.endswith(name) if name.startswith(".") else host == name for name in owners)


def is_https(provider: Provider) -> bool:
    """Return whether the address of a provider begins with https."""
    return provider.base_url.lower().startswith("https://")


def host_of(provider: Provider) -> str:
    """Return the host of a provider's address in lower case.

    Raises:
        UsageError: GBE143, the address is invalid.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(provider.base_url)
        host, _port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise _make_address_error(provider, "it is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not host or not provider.base_url.isascii():
        raise _make_address_error(provider, "it must begin with https:// or http:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _make_address_error(provider, "it must not contain a user name or password")
    if parts.query or parts.fragment or any(sign in provider.base_url for sign in "\\ \t\r\n"):
        raise _make_address_error(provider, "it must contain nothing but host, port and path")
    return host


def _make_address_error(provider: Provider, reason: str) -> UsageError:
    """Return GBE143 about an address, from which a user name and password are removed."""
    address = "…@" + provider.base_url.rpartition("@")[2] if "@" in provider.base_url else provider.base_url
    return UsageError("GBE143", address=address, name=provider.name, reason=reason)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine."""
    numbers = host.split(".")
    is_127 = len(numbers) == 4 and numbers[0] == "127" and all(number.isdigit() for number in numbers)
    return host in ("localhost", "::1") or host.endswith(".localhost") or is_127


def parse_model(text: str, providers: Mapping[str, Provider]) -> ModelSpec:
    """Return the model in a text: `provider:name`, `provider` for its default model, `command:PROGRAM ARGUMENTS` or `rules`.

    `claude-…` without a provider is a model of Anthropic; other models need the name of their provider.

    Raises:
        UsageError: GBE140, the provider is unknown; GBE141, the model is missing or malformed, or can only be used from Python.
    """
    name, colon, model = (part.strip() for part in text.partition(":"))
    if name in _PYTHON_ONLY:
        reason = f"{_PYTHON_ONLY[name]} can be passed only from Python code"
        raise UsageError("GBE141", spec=text, reason=reason, advice=_MODEL_EXAMPLES)
    if name == RULES and not colon:
        return ModelSpec(RULES)
    if name == COMMAND:
        split_command(ModelSpec(COMMAND, model))
        return ModelSpec(COMMAND, model)
    if name not in providers and name.startswith(_CLAUDE) and not colon:
        name, model = "anthropic", name
    if name not in providers:
        raise _make_unknown_error(name, text, providers)
    model = model or providers[name].default_model
    if not model:
        advice = f"Write the name of a model after a colon: `{name}:MODEL`."
        raise UsageError("GBE141", spec=text, reason=f"{name} has no default model", advice=advice)
    if not model.isprintable() or " " in model:
        reason = "the name of a model cannot contain spaces or invisible characters"
        raise UsageError("GBE141", spec=text, reason=reason, advice="Remove these characters from the name.")
    return ModelSpec(name, model)


def _make_unknown_error(name: str, text: str, providers: Mapping[str, Provider]) -> UsageError:
    """Return GBE140 about an unknown provider, with a suggestion."""
    makers = {"gpt": "openai", "deepseek": "deepseek"}
    maker = makers.get(name.partition("-")[0])
    known = sorted([*providers, COMMAND, RULES])
    suggestion = f" Did you mean '{maker}:{text.strip()}'?" if maker and name != maker else did_you_mean(name, known)
    return UsageError("GBE140", name=name, suggestion=suggestion, known=", ".join(known))


def split_command(spec: ModelSpec) -> tuple[str, ...]:
    """Return the program and the arguments of a `command:` model, split by the quoting rules of a shell; no shell is used.

    Raises:
        UsageError: GBE141, there is no program, or a quotation mark is not closed.
    """
    import shlex

    try:
        words = tuple(shlex.split(spec.model))
    except ValueError as error:
        reason = str(error).lower().rstrip(".")
        raise UsageError("GBE141", spec=str(spec), reason=reason, advice="Close the quotation mark.") from None
    if not words:
        advice = "Write the program and its arguments, e.g. `command:claude -p`."
        raise UsageError("GBE141", spec=str(spec), reason="there is no program after `command:`", advice=advice)
    return words


def choose_model(config: LLMConfig, environ: Mapping[str, str]) -> str:
    """Return the model for a negotiation, as `"provider:name"`, or `"rules"`.

    It is the model in the settings, or the default model of Anthropic or OpenAI if its key is in the environment, or the rules.

    Raises:
        UsageError: As `parse_model` and `providers_of`.
    """
    providers = providers_of(config)
    if config.model.strip():
        return str(parse_model(config.model, providers))
    for provider in (providers[name] for name in _CHOSEN_BY_KEY):
        if provider.key_env and provider.default_model and environ.get(provider.key_env, "").strip():
            return str(ModelSpec(provider.name, provider.default_model))
    return RULES


def models_of_roles(model: str, config: LLMConfig) -> dict[str, ModelSpec]:
    """Return role -> its model, which may be the rules: the one in the settings of the role, else `model`.

    Raises:
        UsageError: As `parse_model` and `providers_of`.
    """
    providers = providers_of(config)
    roles = {"proposer": config.proposer, "evaluator": config.evaluator, "arbiter": config.arbiter}
    return {role: parse_model(named.strip() or model, providers) for role, named in roles.items()}


# --- removing keys from text -------------------------------------------------------------


MAX_ANSWER_BYTES = 4_000_000
_MAX_REASON_CHARS = 300
_MIN_KEY_CHARS = 12
_SECRETS = re.compile(r"\b(?:(?:sk|pk|gsk|xai|hf|ghp)[-_]|AIza)[\w*.…-]{6,}|(?i:bearer)\s+\S+")


def remove_secrets(text: str, key: str) -> str:
    """Return a text for an error message: one line of at most 300 characters, without `key` and all that looks like a key."""
    if len(key) >= 4:
        text = text.replace(key, "***")
    text = _SECRETS.sub("***", " ".join(text.split()))
    text = "".join(sign for sign in text if sign.isprintable()).rstrip(". ")
    return text if len(text) <= _MAX_REASON_CHARS else text[:_MAX_REASON_CHARS] + "…"


def remove_key(answer: str, key: str) -> str:
    """Return an answer without the key. A key of less than 12 characters, such as `ollama`, stays: it may be an ordinary word."""
    return answer.replace(key, "***") if len(key) >= _MIN_KEY_CHARS else answer


def public_name(spec: ModelSpec) -> str:
    """Return the name of a model for files that are shared: of a program its command line without paths and keys."""
    if spec.provider != COMMAND:
        return str(spec)
    import shlex

    program, *arguments = split_command(spec)
    shown = (cut_path(word) if word[:1] in ("/", "~") else remove_paths(f" {word}")[1:] for word in arguments)
    return f"{COMMAND}:" + remove_secrets(shlex.join([program.rpartition("/")[2], *shown]), "")


_CUT = "…/"
"""Stands for the folders of a program that `recorded_name` leaves out."""


def recorded_name(model: str) -> str:
    """Return a model as the inputs of a session name it: of a program without the folders of absolute paths and without keys."""
    spec = ModelSpec(COMMAND, model.partition(":")[2].strip())
    is_public = remove_paths(f" {spec.model}") == f" {spec.model}" and remove_secrets(spec.model, "") == spec.model
    if not is_program(model) or is_public:
        return model
    return public_name(spec).replace(":", f":{_CUT}", 1)


def is_cut(model: str) -> bool:
    """True for a program of which `recorded_name` has left out the folders."""
    return model.startswith(f"{COMMAND}:{_CUT}")


def is_program(model: str) -> bool:
    """True for `command:PROGRAM`."""
    return model.strip().startswith(f"{COMMAND}:")


def advice_on_form(model: str) -> str:
    """Return the advice for a model whose answers cannot be used."""
    if is_program(model):
        return "Let the program print only the answer, in the form that its prompt describes (docs/answer-format.md)."
    return 'Choose a larger model or, if its server can force a form on answers, set `answers = "json"` in [tool.graphbus.llm].'


def command_to_test(model: str) -> str:
    """Return the command that tests a model; the public name of a program lacks its path."""
    return f"graphbus doctor --test {f'{COMMAND}:PROGRAM' if is_program(model) else model}"
