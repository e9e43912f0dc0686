"""What a provider's failure means for us: shall the call be tried again, is every further one in vain, may it be billed?"""

from __future__ import annotations

import re
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.providers import Provider

MAX_ANSWER_BYTES = 4_000_000
_MAX_REASON = 300
_LIKE_A_KEY = 12
_SECRETS = re.compile(r"\b(?:(?:sk|pk|gsk|xai|hf|ghp)[-_]|AIza)[\w*.…-]{6,}|(?i:bearer)\s+\S+")
_TOO_LARGE = re.compile(
    r"context.{0,20}(length|window|size)|(prompt|request|input).{0,20}too (long|large)|exceeds? the (available )?context",
    re.IGNORECASE,
)
"""Some servers say it within a stream, or with a status of their own."""
_BUSY = frozenset({408, 409, 425, 429})
_LATE = frozenset({504, 524})
"""Somebody in between has lost patience: the model may have answered, and may have been paid for it."""


class Told(NamedTuple):
    """A failure as the libraries report it.

    Attributes:
        kind: `"timeout"`, `"connection"`, `"key"`, `"quota"`, `"model"`, `"refused"`, `"long"`, `"status"` or `"nonsense"`.
        status: Of HTTP; 0: none.
        is_in_stream: It came after the answer had begun.
        phase: Where the connection failed: `"pool"`, `"connect"`, `"write"`, `"read"` or unknown.
    """

    kind: str
    status: int = 0
    message: str = ""
    retry_after_s: float | None = None
    is_in_stream: bool = False
    phase: str = ""


def scrub(text: str, key: str) -> str:
    """Take out the key and what looks like one, line breaks and signs that nobody can see, and what is too long."""
    if len(key) >= 4:
        text = text.replace(key, "***")
    text = _SECRETS.sub("***", " ".join(text.split()))
    text = "".join(sign for sign in text if sign.isprintable()).rstrip(". ")
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "…"


def without(answer: str, key: str) -> str:
    """Take out of an answer the key that a server or a program repeats in it; a word such as `ollama` is no key."""
    return answer.replace(key, "***") if len(key) >= _LIKE_A_KEY else answer


def explain(told: Told, provider: Provider, model: str, timeout_s: float, key: str) -> ModelError:
    """Give the refusal for a failure."""
    reason = scrub(told.message, key) or f"status {told.status}"
    name = provider.name
    if told.kind == "connection":
        return _unreachable(told, provider, reason)
    if told.kind == "long":
        return ModelError("GBE450", may_be_billed=True, provider=name, limit_bytes=MAX_ANSWER_BYTES)
    if told.kind == "status":
        return _by_status(told, name, reason)
    return _final(told.kind, provider, model, reason) or _unfinished(told.kind, name, timeout_s, reason)


def _final(kind: str, provider: Provider, model: str, reason: str) -> ModelError | None:
    """What no repetition mends."""
    name = provider.name
    if kind == "key":
        variable = provider.key_env or "no variable, as `key_env` is not set"
        return ModelError("GBE442", is_final=True, provider=name, variable=variable, reason=reason)
    if kind == "quota":
        return ModelError("GBE451", is_final=True, provider=name, reason=reason)
    if kind == "model":
        return ModelError("GBE443", is_final=True, provider=name, model=model, reason=reason)
    return ModelError("GBE444", is_final=True, provider=name, reason=reason) if kind == "refused" else None


def _unfinished(kind: str, name: str, timeout_s: float, reason: str) -> ModelError:
    if kind == "timeout":
        return ModelError("GBE447", is_transient=True, may_be_billed=True, provider=name, timeout_s=timeout_s)
    return ModelError("GBE449", is_transient=True, may_be_billed=True, provider=name, reason=reason)


def _unreachable(told: Told, provider: Provider, reason: str) -> ModelError:
    if told.phase in ("pool", "connect"):
        address = provider.base_url
        return ModelError("GBE446", is_transient=True, provider=provider.name, address=address, reason=reason)
    return ModelError("GBE448", is_transient=True, may_be_billed=True, provider=provider.name, reason=reason)


def _by_status(told: Told, name: str, reason: str) -> ModelError:
    is_hopeless = _TOO_LARGE.search(reason) is not None and told.status not in _BUSY
    if not is_hopeless and (told.status in _BUSY or told.status >= 500 or told.is_in_stream):
        return ModelError(
            "GBE445",
            is_transient=True,
            retry_after_s=told.retry_after_s,
            may_be_billed=told.is_in_stream or told.status in _LATE,
            provider=name,
            reason=reason,
        )
    return ModelError("GBE444", may_be_billed=told.is_in_stream, provider=name, reason=reason)


def broken_off(provider: Provider, reason: str) -> ModelError:
    """The refusal of an answer that ended before its end."""
    return ModelError("GBE448", is_transient=True, may_be_billed=True, provider=provider.name, reason=reason)


def too_long(provider: Provider, limit_bytes: int) -> ModelError:
    """The refusal of an answer without end."""
    return ModelError("GBE450", may_be_billed=True, provider=provider.name, limit_bytes=limit_bytes)


def dropped(provider: Provider) -> ModelError:
    """The refusal of a call on a client that was closed, before or meanwhile."""
    reason = "the client was closed"
    return ModelError("GBE448", is_final=True, may_be_billed=True, provider=provider.name, reason=reason)
