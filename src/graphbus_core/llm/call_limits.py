"""The limits of calls to a model: the settings, and for each that is `"auto"` what fits a local server or a remote provider.

A local server is slow, may answer one request at a time, and has a small context, whose size most of them report.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.llm.providers import Provider, host_of, is_loopback
from graphbus_core.model.config import LLMConfig

_LOCAL_PROVIDERS = frozenset({"ollama", "vllm", "llamacpp", "lmstudio"})
_LEAST_CONTEXT, _MOST_CONTEXT = 256, 100_000_000
_MOST_SLOTS = 64
_MOST_OUTPUT_TOKENS = 8192
_OUTPUT_TOKENS_IN_UNKNOWN_CONTEXT = 2048
_OUTPUT_SHARE = 4
"""A quarter of the context is left for the answer."""

Number = TypeVar("Number", int, float)


class ServerFacts(NamedTuple):
    """What a local server reports about itself; None for what it does not.

    Attributes:
        context_tokens: The size of the context of one request, prompt and answer together.
        slots: The number of requests that it answers at the same time.
    """

    context_tokens: int | None = None
    slots: int | None = None


class CallLimits(NamedTuple):
    """The limits of calls to one model. Attributes are described in `LLMConfig`; a `temperature` of None is not sent."""

    max_prompt_tokens: int
    max_output_tokens: int
    temperature: float | None
    timeout_s: float
    first_token_timeout_s: float
    concurrency: int


def is_local(provider: Provider) -> bool:
    """Return whether a provider is a server on this machine, or one of the kinds that people run themselves."""
    return provider.name in _LOCAL_PROVIDERS or is_loopback(host_of(provider))


def limits_of(config: LLMConfig, provider: Provider | None = None, facts: ServerFacts = ServerFacts()) -> CallLimits:  # noqa: B008 - immutable
    """Return the limits of calls to a model.

    Args:
        config: The settings; a value in them takes precedence.
        provider: The provider of the model; None: a program, which has the limits of a remote provider.
        facts: What its server reports, if it is local.
    """
    local = provider is not None and is_local(provider)
    most, room = (_MOST_OUTPUT_TOKENS, 150_000)
    if local:
        most = _OUTPUT_TOKENS_IN_UNKNOWN_CONTEXT
        if facts.context_tokens:
            most = min(_MOST_OUTPUT_TOKENS, facts.context_tokens // _OUTPUT_SHARE)
    output = _choose(config.max_output_tokens, most)
    if local and facts.context_tokens:
        room = max(1, facts.context_tokens - output)
    temperature = 0.0 if local and provider and provider.wire == "openai" else None  # models of Anthropic take none
    return CallLimits(
        max_prompt_tokens=_choose(config.max_prompt_tokens, room),
        max_output_tokens=output,
        temperature=temperature if config.temperature == "auto" else config.temperature,
        timeout_s=_choose(config.timeout_s, 1200.0 if local else 180.0),
        first_token_timeout_s=_choose(config.first_token_timeout_s, 1800.0 if local else 600.0),
        concurrency=_choose(config.concurrency, (facts.slots or 1) if local else 16),
    )


def _choose(value: Number | Literal["auto"], automatic: Number) -> Number:
    return automatic if value == "auto" else value


# --- what servers report ---------------------------------------------------------------------------


class _ListedMeta(msgspec.Struct):
    n_ctx: int | None = None


class _ListedModel(msgspec.Struct):
    id: str = ""
    max_model_len: int | None = None
    meta: _ListedMeta | None = None


class _ModelList(msgspec.Struct):
    data: tuple[_ListedModel, ...] = ()


class _Generation(msgspec.Struct):
    n_ctx: int | None = None


class _ServerProperties(msgspec.Struct):
    total_slots: int | None = None
    default_generation_settings: _Generation | None = None


_MODELS, _PROPERTIES = msgspec.json.Decoder(_ModelList), msgspec.json.Decoder(_ServerProperties)


def read_facts(model: str, models: bytes, properties: bytes) -> ServerFacts:
    """Return what the answers of a server say; what is missing, malformed or implausible counts as not reported.

    Args:
        model: The name of the model; if the server does not list it, its first model counts.
        models: The answer to `GET /v1/models`: `max_model_len` of vLLM, or `meta.n_ctx` of llama.cpp.
        properties: The answer to `GET /props` of llama.cpp: `total_slots`, and `n_ctx`, the context of each slot.
    """
    listed = (attempt(lambda: _MODELS.decode(models))[0] or _ModelList()).data
    entry = next((each for each in listed if each.id == model), listed[0] if listed else _ListedModel())
    props = attempt(lambda: _PROPERTIES.decode(properties))[0] or _ServerProperties()
    slot, meta = props.default_generation_settings or _Generation(), entry.meta or _ListedMeta()
    sizes = (slot.n_ctx, entry.max_model_len, meta.n_ctx)
    slots = props.total_slots or 0
    return ServerFacts(
        context_tokens=next((size for size in sizes if size and _LEAST_CONTEXT <= size <= _MOST_CONTEXT), None),
        slots=min(slots, _MOST_SLOTS) if slots > 0 else None,
    )
