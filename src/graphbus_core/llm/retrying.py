"""Tries again what may succeed later, and keeps within the limits of calls at a time and of requests in a minute.

complete -> [a place among `concurrency`] -> [the rate] -> on_attempt -> the client
                                                ^------ wait ------- transient failure
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, LLMClient, Price, Progress, Prompt

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0
_MINUTE_S = 60.0
_LATE = "GBE447"


class Attempt(Protocol):
    """One request that is about to be sent, as a budget sees it."""

    def answered(self, completion: Completion) -> object:
        """It was answered."""

    def failed(self, error: ModelError) -> object:
        """It was not; `error.may_be_billed` says whether it may cost something all the same."""


class _Unwatched:
    def answered(self, completion: Completion) -> object:
        return None

    def failed(self, error: ModelError) -> object:
        return None


OnAttempt = Callable[[Prompt, int], Attempt]
"""Called before each request with the prompt and `max_output_tokens`; what it raises keeps the request from being sent."""


def unwatched(_prompt: Prompt, _max_output_tokens: int) -> Attempt:
    """Let every attempt pass."""
    return _Unwatched()


class Clock(NamedTuple):
    """Time and chance, so that tests can have their own.

    Attributes:
        sleep: None: until the time is over or the client is closed.
        chance: A number from 0 to 1, not 1.
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] | None = None
    chance: Callable[[], float] = random.random


class RetryingClient:
    """A client that tries again, at most `max_attempts` times for one call.

    It waits as long as the server asks for (up to five minutes), else up to 1, 2, 4 … 60 seconds by chance.

    Args:
        concurrency: Calls at the same time; the others wait for a place.
        requests_per_minute: 0: no limit. Attempts count, not calls.
        on_attempt: See `OnAttempt`; may be set later, before the first call.
    """

    def __init__(
        self,
        client: LLMClient,
        max_attempts: int = 5,
        requests_per_minute: int = 0,
        concurrency: int = 16,
        *,
        on_attempt: OnAttempt = unwatched,
        clock: Clock | None = None,
    ) -> None:
        self.on_attempt = on_attempt
        self._client = client
        self._max_attempts = max(1, max_attempts)
        self._places = threading.BoundedSemaphore(max(1, concurrency))
        self._is_closed = threading.Event()
        self._clock = clock or Clock()
        self._sleep = self._clock.sleep or self._is_closed.wait
        self._rate = _Rate(requests_per_minute, self._clock.now_s, self._sleep)

    def __repr__(self) -> str:
        return f"RetryingClient({self._client!r})"

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        return self._client.model

    @property
    def price(self) -> Price | None:
        """What a call costs at most."""
        return self._client.price

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask until there is an answer, a failure that no repetition mends, or no attempt left.

        Raises:
            ModelError: The last failure. An answer that never came in time ends a session: to go on without it would let the
                result depend on how fast a machine is.
        """
        with self._places:
            number = 1
            while True:
                try:
                    return self._attempt(prompt, max_output_tokens, progress)
                except ModelError as error:
                    if not self._is_worth_another(error, number):
                        error.is_final = error.is_final or error.code == _LATE
                        raise
                    self._sleep(self._wait_s(error, number))
                    if self._is_closed.is_set():
                        raise
                number += 1

    def _is_worth_another(self, error: ModelError, number: int) -> bool:
        is_soon = (error.retry_after_s or 0.0) <= LONGEST_RETRY_AFTER_S
        return error.is_transient and is_soon and number < self._max_attempts and not self._is_closed.is_set()

    def close(self) -> None:
        """Close the client; who waits for another attempt makes none."""
        self._is_closed.set()
        self._client.close()

    def _attempt(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None) -> Completion:
        self._rate.wait()
        watched = self.on_attempt(prompt, max_output_tokens)
        try:
            completion = self._client.complete(prompt, max_output_tokens, progress)
        except ModelError as error:
            watched.failed(error)
            raise
        watched.answered(completion)
        return completion

    def _wait_s(self, error: ModelError, number: int) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s + self._clock.chance() * FIRST_WAIT_S
        highest = min(LONGEST_WAIT_S, FIRST_WAIT_S * float(2 ** (number - 1)))
        return self._clock.chance() * highest


class _Rate:
    """At most so many requests in any minute."""

    def __init__(self, per_minute: int, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._per_minute = per_minute
        self._now_s = now_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._starts_s: deque[float] = deque(maxlen=max(1, per_minute))

    def wait(self) -> None:
        """Take the next free moment and wait for it."""
        if self._per_minute <= 0:
            return
        with self._lock:
            now_s = self._now_s()
            is_full = len(self._starts_s) == self._per_minute
            start_s = max(now_s, self._starts_s[0] + _MINUTE_S) if is_full else now_s
            self._starts_s.append(start_s)
        if start_s > now_s:
            self._sleep(start_s - now_s)
