"""Reads errors of model servers: the message, its root cause, and by how many tokens a prompt is too long."""

from __future__ import annotations

import os
import re
from typing import Any

from graphbus_core.llm.client import ModelPrompt, estimate_tokens

_TOO_LARGE = re.compile(
    r"context.{0,20}(length|window|size)|(prompt|request|input).{0,20}too (long|large)|exceeds? the (available )?context"
    r"|longer than the maximum model length",
    re.IGNORECASE,
)
"""Matches messages about a prompt that is too long. The status does not tell: some servers use an unusual one, or a stream."""
_UNKNOWN_MODEL = re.compile(
    r"(?:model\b[^.]{0,120}|no such model\b.{0,0})(?:not found|does not exist|not exist|unknown|is not loaded|no such model)"
    r"|(?:unknown|invalid|no such) model\b",
    re.IGNORECASE,
)
_NUMBER = r"(\d[\d,]*)"
_PROMPT_SIZES = (
    rf"{_NUMBER} in (?:the|your) (?:messages|prompt|input)",
    rf"(?:request has|passed|contains(?: at least)?) {_NUMBER} input tokens",
    rf"(?:request|prompt|input|messages)[^\d]{{0,24}}{_NUMBER}",
    rf"(?:requested|with) {_NUMBER} tokens",
)
_CONTEXT_SIZES = (
    rf"context (?:length|size|window)(?: is| of|:)? ?(?:only )?\(?{_NUMBER}",
    rf"maximum (?:model |input )?length (?:is|of) {_NUMBER}",
    rf"> {_NUMBER}",
)
"""Patterns for the tokens of the prompt and of the context in messages, the most specific first."""


def is_prompt_too_long(reason: str) -> bool:
    """Return whether the message of a server is about a prompt that does not fit its context."""
    return _TOO_LARGE.search(reason) is not None


def is_model_unknown(reason: str) -> bool:
    """Return whether the message of a server is about a model that it does not have; not every server answers with 404."""
    return _UNKNOWN_MODEL.search(reason) is not None


def describe_excess(failure: Exception, reason: str, prompt: ModelPrompt) -> tuple[str, str]:
    """Return `tokens` and `limit` of GBE462 for a prompt that the server found too long.

    The numbers are from the fields of the error (llama.cpp) or from its message (vLLM and others). If it does not tell how many
    tokens the prompt has, they are estimated.
    """
    body = getattr(failure, "body", None)
    error = body.get("error", body) if isinstance(body, dict) else None
    fields = error if isinstance(error, dict) else {}
    tokens = _number_in(fields.get("n_prompt_tokens"), _PROMPT_SIZES, reason)
    size = _number_in(fields.get("n_ctx"), _CONTEXT_SIZES, reason)
    limit = f"the context of the model has {size}" if size else "the server does not say how many its context has"
    return tokens or f"about {estimate_tokens(*prompt.texts)}", limit


def _number_in(field: object, patterns: tuple[str, ...], message: str) -> str:
    """Return the number in a field, else the one that the first matching pattern finds in a message; empty if there is none."""
    if isinstance(field, int):
        return str(field)
    found = (re.search(pattern, message, re.IGNORECASE) for pattern in patterns)
    return next((match[1].replace(",", "") for match in found if match), "")


def extract_message(failure: Exception) -> str:
    """Return the message of the server in an exception; else its own text, or that of its root cause for a connection error."""
    body: Any = getattr(failure, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        inner = inner.get("message")
    if isinstance(inner, str) and inner.strip():
        return inner
    message = str(getattr(failure, "message", "") or failure)
    return _describe_root_cause(failure) if message.startswith("Connection error") else message


def _describe_root_cause(failure: BaseException) -> str:
    """Return the text of the first exception in a chain of causes."""
    cause = failure.__cause__ or failure.__context__
    if cause is not None:
        return _describe_root_cause(cause)
    if isinstance(failure, OSError) and failure.errno and failure.errno > 0:
        return os.strerror(failure.errno)
    return str(getattr(failure, "strerror", "") or failure) or type(failure).__name__
