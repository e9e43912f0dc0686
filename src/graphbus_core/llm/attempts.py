"""Attempts at an answer: how many at a time, when to try again, and whether the budget allows it.

complete -> [one of `concurrency` slots] -> [rate limit] -> allow_attempt -> the client
                                                ^------ wait ------- transient failure

Before each attempt its worst case is set aside on the bill of the question (`budget.Bill`), so that retries exceed no budget.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.budget import Amount, current_bill, price_worst_case, worst_case_of_request
from graphbus_core.llm.client import ClientWrapper, Completion, LLMClient, ModelPrompt, Progress

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LONGEST_RETRY_AFTER_S = 300.0
_MINUTE_S = 60.0
_LATE = "GBE447"


class RetryTiming(NamedTuple):
    """The clock and the randomness of retries, replaceable in tests.

    Attributes:
        sleep: None to wait until the time is over or the client is closed.
        chance: Returns a number from 0 up to, but not including, 1.
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] | None = None
    chance: Callable[[], float] = random.random


class RetryingClient(ClientWrapper):
    """A client that tries again, at most `max_attempts` times for one call.

    It waits as long as the server asks for, up to five minutes; otherwise a random time of up to 1, 2, 4 … 60 seconds.

    Args:
        concurrency: How many calls run at the same time; further ones wait.
        requests_per_minute: 0 for no limit. Every attempt counts as a request.
    """

    def __init__(
        self,
        client: LLMClient,
        max_attempts: int = 5,
        requests_per_minute: int = 0,
        concurrency: int = 16,
        clock: RetryTiming | None = None,
    ) -> None:
        super().__init__(client)
        self._max_attempts = max(1, max_attempts)
        self._places = threading.BoundedSemaphore(max(1, concurrency))
        self._is_closed = threading.Event()
        self._clock = clock or RetryTiming()
        self._sleep = self._clock.sleep or self._is_closed.wait
        self._rate = _Rate(requests_per_minute, self._clock.now_s, self._sleep)

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask until there is an answer, a failure that a repetition cannot help, or no attempt left.

        Raises:
            ModelError: The last failure. If every attempt timed out, it ends the session (`is_final`): going on without the
                answer would let the result depend on the speed of a machine.
        """
        with self._places:
            number = 1
            while True:
                try:
                    return self._attempt(prompt, max_output_tokens, progress)
                except ModelError as error:
                    if not self._may_try_again(error, number):
                        error.is_final = error.is_final or error.code == _LATE
                        raise
                    self._sleep(self._wait_s(error, number))
                    if self._is_closed.is_set():
                        raise
                number += 1

    def _may_try_again(self, error: ModelError, number: int) -> bool:
        is_soon = (error.retry_after_s or 0.0) <= _LONGEST_RETRY_AFTER_S
        return error.is_transient and is_soon and number < self._max_attempts and not self._is_closed.is_set()

    def close(self) -> None:
        """Close the client; calls that wait for another attempt end without one."""
        self._is_closed.set()
        super().close()

    def _attempt(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> Completion:
        self._rate.wait()
        bill, worst = current_bill(), price_worst_case(worst_case_of_request(prompt, max_output_tokens), self.price)
        bill.allow_attempt(worst)
        try:
            return self._inner.complete(prompt, max_output_tokens, progress)
        except ModelError as error:
            bill.add_loss(worst if error.may_be_billed else Amount())
            raise

    def _wait_s(self, error: ModelError, number: int) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s + self._clock.chance() * _FIRST_WAIT_S
        return self._clock.chance() * min(_LONGEST_WAIT_S, _FIRST_WAIT_S * float(2 ** (number - 1)))


class _Rate:
    """Limits the number of requests in any minute."""

    def __init__(self, per_minute: int, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._per_minute = per_minute
        self._now_s = now_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._starts_s: deque[float] = deque(maxlen=max(1, per_minute))

    def wait(self) -> None:
        """Reserve the next free moment and sleep until then."""
        if self._per_minute <= 0:
            return
        with self._lock:
            now_s = self._now_s()
            is_full = len(self._starts_s) == self._per_minute
            start_s = max(now_s, self._starts_s[0] + _MINUTE_S) if is_full else now_s
            self._starts_s.append(start_s)
        if start_s > now_s:
            self._sleep(start_s - now_s)
