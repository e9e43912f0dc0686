"""Clients that save money without changing an answer."""

from __future__ import annotations

import threading

from graphbus_core.llm.cache import CachedClient
from graphbus_core.llm.client import Completion, LLMClient, Price, Progress, Prompt

_WORTH_BYTES = 4 * 1024
"""Providers cache no prefix of fewer than about 1,024 tokens."""


class WarmingClient:
    """Lets one request go ahead before the others of the same shared prefix: the provider's cache holds it from then on.

    Once for each prefix, whatever came of that request.
    """

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._warm: dict[str, threading.Event] = {}

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        return self._inner.model

    @property
    def price(self) -> Price | None:
        """That of the model."""
        return self._inner.price

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask, after the first of this prefix has been answered.

        Raises:
            ModelError: As the model.
        """
        if len(prompt.shared.encode()) < _WORTH_BYTES:
            return self._inner.complete(prompt, max_output_tokens, progress)
        with self._lock:
            is_first = prompt.shared not in self._warm
            is_warm = self._warm.setdefault(prompt.shared, threading.Event())
        if not is_first:
            is_warm.wait()
        try:
            return self._inner.complete(prompt, max_output_tokens, progress)
        finally:
            is_warm.set()

    def close(self) -> None:
        """Close the model, and let nobody wait."""
        self._inner.close()
        with self._lock:
            for is_warm in self._warm.values():
                is_warm.set()


class PeekingClient:
    """Answers from the cache and writes nothing to it: for dry runs."""

    def __init__(self, cache: CachedClient, inner: LLMClient) -> None:
        self._cache = cache
        self._inner = inner

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        return self._inner.model

    @property
    def price(self) -> Price | None:
        """That of the model."""
        return self._inner.price

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Give the kept answer, else ask.

        Raises:
            ModelError: As the model.
        """
        known = self._cache.lookup(prompt, max_output_tokens)
        return known or self._inner.complete(prompt, max_output_tokens, progress)

    def close(self) -> None:
        """Close the model."""
        self._inner.close()
