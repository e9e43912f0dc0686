"""A model at its provider, with its key and limits; its answers, and the errors about it."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import StopReason
from graphbus_core.llm.providers import MAX_ANSWER_BYTES, Provider, remove_secrets
from graphbus_core.model.spending import Usage

FINAL, TRANSIENT, BILLED = "is_final", "is_transient", "may_be_billed"
"""Flags of a `ModelError`: end the session, try again, the request may have been charged."""


class ModelEndpoint(NamedTuple):
    """A model at its provider, with key and limits.

    Attributes:
        timeout_s: The seconds for an answer from its first token on.
        first_token_timeout_s: The seconds to wait for its first token.
        temperature: None: that of the provider.
    """

    provider: Provider
    model: str
    key: str
    timeout_s: float
    first_token_timeout_s: float = 600.0
    temperature: float | None = None

    def error(self, code: str, reason: str, *meaning: str, retry_after_s: float | None = None) -> ModelError:
        """Return an error about this model, with the key removed from `reason`; `meaning` are the flags to set."""
        provider, flags = self.provider, cast("dict[str, Any]", dict.fromkeys(meaning, True))
        return ModelError(
            code,
            provider=provider.name,
            model=self.model,
            variable=provider.key_env or "no variable (`key_env` is not set)",
            address=provider.base_url,
            timeout_s=self.first_token_timeout_s if code == "GBE455" else self.timeout_s,
            limit_bytes=MAX_ANSWER_BYTES,
            reason=remove_secrets(reason, self.key),
            retry_after_s=retry_after_s,
            **flags,
        )

    @property
    def closed_error(self) -> ModelError:
        """The error for a call on a client that was closed before or during the call."""
        return self.error("GBE448", "the client was closed", FINAL, BILLED)


class ModelAnswer(NamedTuple):
    """A finished answer, as the libraries return it."""

    text: str
    usage: Usage
    stop: StopReason
