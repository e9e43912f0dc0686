"""Answers that were given before: a request that is repeated word for word costs nothing. Never committed, safe to delete.

Whoever can put a file into a project could otherwise speak for the model: entries are sealed (`store.seals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphbus_core.llm.client import Completion, LLMClient, Price, Progress, Prompt
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.spending import Usage
from graphbus_core.store import cache

PROTOCOL_VERSION = 1
"""Goes up when a prompt of the same words means something else."""
_PLACE = "answers"
"""What an entry belongs to: an answer that was paid for is as good in any project of this user."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One answer on disk; nothing of the prompt is in it."""

    key: str
    text: str
    model: str
    usage: Usage


def request_key(model: str, parameters: Mapping[str, int | float | str | bool], prompt: Prompt) -> str:
    """Give the sha256 of all that decides about an answer: protocol version, model, parameters, messages."""
    turns = [list(turn) for turn in prompt.turns]
    parts = [PROTOCOL_VERSION, model, sorted(parameters.items()), prompt.shared, prompt.own, prompt.task, turns]
    return sha256_hex(msgspec.json.encode(parts))


class CachedClient:
    """Answers from a folder what was answered before, and keeps what is new there.

    Only whole answers are kept: no failures, nothing cut off, no refusals. An entry that cannot be read, or that this user
    has not written, is as good as none.
    """

    def __init__(self, client: LLMClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def __repr__(self) -> str:
        return f"CachedClient({self._client!r})"

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        return self._client.model

    @property
    def price(self) -> Price | None:
        """What a call costs at most."""
        return self._client.price

    def lookup(self, prompt: Prompt, max_output_tokens: int) -> Completion | None:
        """Give the answer if there is one, and None if the client would have to be asked."""
        key = self._key(prompt, max_output_tokens)
        entry = cache.read_cache(self._path(key), Entry, _PLACE)
        if entry is None or entry.key != key:
            return None
        return Completion(text=entry.text, model=entry.model, usage=entry.usage, cost_usd=0.0, is_cached=True)

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Give the kept answer, else ask.

        Raises:
            ModelError: As the client.
        """
        known = self.lookup(prompt, max_output_tokens)
        if known is not None:
            return known
        completion = self._client.complete(prompt, max_output_tokens, progress)
        self.keep(prompt, max_output_tokens, completion)
        return completion

    def keep(self, prompt: Prompt, max_output_tokens: int, completion: Completion) -> None:
        """Keep a new answer, if it is a whole one."""
        if completion.stop == "end" and completion.text.strip() and not completion.is_cached:
            key = self._key(prompt, max_output_tokens)
            entry = Entry(key=key, text=completion.text, model=completion.model, usage=completion.usage)
            cache.write_cache(self._path(key), entry, _PLACE)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _key(self, prompt: Prompt, max_output_tokens: int) -> str:
        return request_key(self._client.model, {"max_output_tokens": max_output_tokens}, prompt)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}.answer"
