"""How fast a model answers: measured by `graphbus doctor --test`, kept in `.graphbus/cache/`, and read by `--plan`."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from graphbus_core.llm.budget import current_bill
from graphbus_core.llm.client import ClientWrapper, Completion, LLMClient, ModelPrompt, Progress
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.spending import Usage
from graphbus_core.store import cache

_LEAST_READ_TOKENS = 64
"""A prompt of fewer tokens, without those that the server has cached, is too short to measure how fast a model reads."""
_LEAST_S = 0.05
"""Less time than this between the first text of an answer and its end means that the answer did not come as a stream."""


class ModelSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of a model on its server, as measured with one question.

    Attributes:
        read_per_s: Tokens of the prompt that it reads in a second; 0 if not measurable, because the answer did not come as a
            stream, and `write_per_s` includes the reading, or because the server had the prompt in its cache.
        write_per_s: Tokens of the answer that it writes in a second.
        bytes_per_token: Bytes of the prompt for each of its tokens.
        answer_tokens: Tokens of its answer to an evaluation.
    """

    read_per_s: float
    write_per_s: float
    bytes_per_token: float
    answer_tokens: int

    def seconds_for(self, input_tokens: float, output_tokens: float) -> float:
        """Return the seconds that a question of this size takes."""
        return (input_tokens / self.read_per_s if self.read_per_s else 0.0) + output_tokens / self.write_per_s


class MeasuringClient(ClientWrapper):
    """Measures each call of another client.

    Attributes:
        seconds: The time of all calls.
        usage: The tokens of all answers.
        speed: The speed in the first call in which reading could be measured, else in the first; None before the first answer.
    """

    def __init__(self, inner: LLMClient) -> None:
        super().__init__(inner)
        self.seconds = 0.0
        self.usage = Usage()
        self.speed: ModelSpeed | None = None

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer of the inner client, and measure how long it takes.

        Raises:
            ModelError: As the inner client.
        """
        begun_s, first_s, tell = time.perf_counter(), 0.0, progress or current_bill().note_progress

        def note(characters: int) -> None:
            nonlocal first_s
            first_s = first_s or time.perf_counter()
            tell(characters)

        try:
            completion = self._inner.complete(prompt, max_output_tokens, note)
        finally:
            ended_s = time.perf_counter()
            self.seconds += ended_s - begun_s
        self.usage += completion.usage
        size_bytes = sum(len(text.encode()) for text in prompt.texts)
        first_s = first_s or ended_s
        speed = _measure(completion.usage, size_bytes, first_s - begun_s, ended_s - first_s)
        if self.speed is None or (speed.read_per_s and not self.speed.read_per_s):
            self.speed = speed
        return completion


def _measure(usage: Usage, prompt_bytes: int, read_s: float, write_s: float) -> ModelSpeed:
    """Return the speed in one call, from the seconds until the first text of the answer and from there to its end."""
    fresh = usage.input_tokens - usage.cache_read_tokens
    is_streamed = write_s >= _LEAST_S
    return ModelSpeed(
        read_per_s=fresh / read_s if is_streamed and fresh >= _LEAST_READ_TOKENS else 0.0,
        write_per_s=max(usage.output_tokens, 1) / max(write_s if is_streamed else read_s + write_s, 1e-6),
        bytes_per_token=prompt_bytes / max(usage.input_tokens, 1),
        answer_tokens=usage.output_tokens,
    )


def save_speed(artifacts_dir: str | Path, model: str, speed: ModelSpeed) -> None:
    """Keep the speed of a model in the cache of a project; errors of the disk are ignored.

    If the speed of reading could not be measured this time, the one that was measured before is kept.
    """
    before = load_speed(artifacts_dir, model)
    if before and not speed.read_per_s:
        speed = msgspec.structs.replace(speed, read_per_s=before.read_per_s)
    cache.write_cache(_path(artifacts_dir, model), speed, _place(model))


def load_speed(artifacts_dir: str | Path, model: str) -> ModelSpeed | None:
    """Return the measured speed of a model; None if `graphbus doctor --test` has not measured it in this project."""
    return cache.read_cache(_path(artifacts_dir, model), ModelSpeed, _place(model))


def _path(artifacts_dir: str | Path, model: str) -> Path:
    return Path(artifacts_dir, cache.CACHE, "speeds", f"{sha256_hex(model.encode())[:32]}.speed")


def _place(model: str) -> str:
    """Return what the seal of a speed is tied to."""
    return f"speed/{model}"
