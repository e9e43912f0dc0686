"""Limits the calls to a model: how many run at a time, when a failed one is tried again, and whether the budget allows it.

complete -> [one of `concurrency` slots] -> [rate limit] -> allow_attempt -> the client
                                                ^------ wait ------- transient failure

Before each attempt its worst case is reserved on the bill of the question (`budget.Bill`), so retries cannot exceed the budget.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.budget import Amount, Retry, current_bill, price_worst_case, worst_case_of_request
from graphbus_core.llm.client import ClientWrapper, Completion, LLMClient, ModelPrompt, Progress

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LONGEST_RETRY_AFTER_S = 300.0
_MINUTE_S = 60.0
_TIMED_OUT = frozenset({"GBE447", "GBE455"})
_UNREACHABLE = "GBE446"
_NO_PROPER_ANSWER = frozenset({"GBE448", "GBE449"})
"""No HTTP, or no answer of a model: what a program at a wrong port sends."""
_DEAD_AFTER_S = 4.0
"""A server that cannot be reached, or that has never answered properly, is not tried again after this time."""


class RetryTiming(NamedTuple):
    """The clock and the random numbers of retries, which tests replace.

    Attributes:
        now_s: Returns the time in seconds.
        sleep: Waits for some seconds; None: `close` ends the wait early.
        chance: Returns a random number from 0 up to, but not including, 1.
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] | None = None
    chance: Callable[[], float] = random.random


class RetryingClient(ClientWrapper):
    """A client that makes up to `max_attempts` attempts for one call.

    Between two attempts it waits as long as the server asks for, otherwise a random time of up to 1, 2, 4 … 60 seconds. If the
    server asks for more than five minutes, it gives up. A server that seems dead ends the session after a few seconds.

    Args:
        client: The client that makes one attempt.
        max_attempts: The largest number of attempts for one call.
        requests_per_minute: The largest number of attempts in a minute; 0 for no limit.
        concurrency: The largest number of calls at the same time; further ones wait.
        clock: For tests.
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
        self._slots = threading.BoundedSemaphore(max(1, concurrency))
        self._is_closed = threading.Event()
        self._clock = clock or RetryTiming()
        self._sleep = self._clock.sleep or self._is_closed.wait
        self._rate = _RateLimit(requests_per_minute, self._clock.now_s, self._sleep)
        self._has_answered = False

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer of the first attempt that succeeds.

        Raises:
            ModelError: The last failure: it is not transient, or there is no attempt left. A timeout ends the session
                (`is_final`); otherwise the result would depend on the speed of a machine. So does a server that seems dead.
        """
        with self._slots:
            number, start_s = 1, self._clock.now_s()
            while True:
                try:
                    completion = self._attempt_once(prompt, max_output_tokens, progress)
                    self._has_answered = True
                    return completion
                except ModelError as error:
                    wait_s, seems_dead = self._choose_wait_s(error, number), self._seems_dead(error)
                    is_late = seems_dead and self._clock.now_s() + wait_s - start_s > _DEAD_AFTER_S
                    if is_late or not self._may_retry(error, number):
                        error.is_final = (
                            error.is_final or error.code in _TIMED_OUT or (seems_dead and (is_late or number > 1))
                        )
                        raise
                    current_bill().note_retry(Retry(number + 1, self._max_attempts, wait_s, error.sentence))
                    self._sleep(wait_s)
                    if self._is_closed.is_set():
                        raise
                number += 1

    def _seems_dead(self, error: ModelError) -> bool:
        """Return whether a failure looks as if there were no server of models at all."""
        return error.code == _UNREACHABLE or (not self._has_answered and error.code in _NO_PROPER_ANSWER)

    def _may_retry(self, error: ModelError, number: int) -> bool:
        """Return whether another attempt may follow after attempt `number` has failed."""
        is_soon = (error.retry_after_s or 0.0) <= _LONGEST_RETRY_AFTER_S
        return error.is_transient and is_soon and number < self._max_attempts and not self._is_closed.is_set()

    def close(self) -> None:
        """Close the client; calls that wait for another attempt end without one."""
        self._is_closed.set()
        super().close()

    def _attempt_once(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> Completion:
        """Wait for the rate limit, reserve the worst case, and ask once. A failure that may be billed counts fully."""
        self._rate.wait()
        bill, worst = current_bill(), price_worst_case(worst_case_of_request(prompt, max_output_tokens), self.price)
        bill.allow_attempt(worst)
        try:
            return self._inner.complete(prompt, max_output_tokens, progress)
        except ModelError as error:
            bill.add_loss(worst if error.may_be_billed else Amount())
            raise

    def _choose_wait_s(self, error: ModelError, number: int) -> float:
        """Return the seconds to wait after attempt `number` has failed, random so that clients do not retry all at once."""
        if error.retry_after_s is not None:
            return error.retry_after_s + self._clock.chance() * _FIRST_WAIT_S
        return self._clock.chance() * min(_LONGEST_WAIT_S, _FIRST_WAIT_S * float(2 ** (number - 1)))


class _RateLimit:
    """Limits the number of requests in any minute."""

    def __init__(self, per_minute: int, now_s: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._per_minute = per_minute
        self._now_s = now_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._starts_s: deque[float] = deque(maxlen=max(1, per_minute))

    def wait(self) -> None:
        """Reserve the earliest time at which the limit allows a request, and sleep until then."""
        if self._per_minute <= 0:
            return
        with self._lock:
            now_s = self._now_s()
            is_full = len(self._starts_s) == self._per_minute
            start_s = max(now_s, self._starts_s[0] + _MINUTE_S) if is_full else now_s
            self._starts_s.append(start_s)
        if start_s > now_s:
            self._sleep(start_s - now_s)
