"""Every attempt at an answer: how many at a time, when again, and what it may cost.

complete -> [a place among `concurrency`] -> [the rate] -> on_attempt -> the client
                                                ^------ wait ------- transient failure

Each question has a tab, filled by the clients that are asked in its thread. An attempt goes out only if the tab permits its worst
case, so that not even retries can overdraw a budget.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Bound, ClientWrapper, Completion, LLMClient, Progress, Prompt
from graphbus_core.model.spending import Price, Spend, Usage

# --- limits and retries ------------------------------------------------------------------------


FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0
_MINUTE_S = 60.0
_LATE = "GBE447"


OnFailure = Callable[[ModelError], object]
OnAttempt = Callable[[Prompt, int], OnFailure]
"""Called before each request with the prompt and `max_output_tokens`; what it raises keeps the request from being sent. The
result is called if the request fails; `error.may_be_billed` says whether it may cost something all the same."""


def unwatched(_prompt: Prompt, _max_output_tokens: int) -> OnFailure:
    """Let every attempt pass."""
    return lambda _error: None


class Clock(NamedTuple):
    """Time and chance, so that tests can have their own.

    Attributes:
        sleep: None: until the time is over or the client is closed.
        chance: A number from 0 to 1, not 1.
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] | None = None
    chance: Callable[[], float] = random.random


class RetryingClient(ClientWrapper):
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
        super().__init__(client)
        self.on_attempt = on_attempt
        self._max_attempts = max(1, max_attempts)
        self._places = threading.BoundedSemaphore(max(1, concurrency))
        self._is_closed = threading.Event()
        self._clock = clock or Clock()
        self._sleep = self._clock.sleep or self._is_closed.wait
        self._rate = _Rate(requests_per_minute, self._clock.now_s, self._sleep)

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
        super().close()

    def _attempt(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None) -> Completion:
        self._rate.wait()
        note_failure = self.on_attempt(prompt, max_output_tokens)
        try:
            return self._inner.complete(prompt, max_output_tokens, progress)
        except ModelError as error:
            note_failure(error)
            raise

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


# --- what answering one question costs ---------------------------------------------------------


NANO = 1_000_000_000
"""Dollars are added up as whole billionths: the sum does not depend on the order of the answers."""

_FRAME_TOKENS = 1024
"""What a provider may add around the text of a request: roles, separators, its own preamble."""


class Amount(NamedTuple):
    """Tokens and billionths of a dollar."""

    tokens: int = 0
    nano_usd: int = 0

    def plus(self, other: Amount) -> Amount:
        """Give the sum."""
        return Amount(self.tokens + other.tokens, self.nano_usd + other.nano_usd)

    def minus(self, other: Amount) -> Amount:
        """Give what is left; below nothing there is nothing."""
        return Amount(max(self.tokens - other.tokens, 0), max(self.nano_usd - other.nano_usd, 0))


def priced(bound: Bound, price: Price | None) -> Amount:
    """Give what a bound amounts to, rounded up; without a known price only tokens count."""
    usd = (bound.input_tokens * price.input_usd + bound.output_tokens * price.output_usd) / 1e6 if price else 0.0
    return Amount(bound.input_tokens + bound.output_tokens, -int(-usd * NANO // 1))


def worst_request(prompt: Prompt, max_output_tokens: int) -> Bound:
    """Give the most that one request can need: no tokenizer makes more tokens than a text has bytes."""
    texts = (prompt.shared, prompt.own, prompt.task, *(turn.text for turn in prompt.turns))
    return Bound(1, sum(len(text.encode()) for text in texts) + _FRAME_TOKENS, max_output_tokens)


def _allow_all(_worst: Amount) -> str:
    """Refuse nothing."""
    return ""


class Tab:
    """What one question has cost so far. Written by the thread that answers it, closed by any.

    Attributes:
        spent: All of it, what was lost included.
        lost: What attempts that failed may have been charged for.
        refusal: Why an attempt was not made, naming the setting; empty when all were.
        final_error: After it no further question has a chance.
        heard: Characters of the answer that is coming just now.
    """

    def __init__(self, permit: Callable[[Amount], str] = _allow_all) -> None:
        self._permit = permit
        self.spent = Amount()
        self.lost = Amount()
        self.refusal = ""
        self.final_error: ModelError | None = None
        self.heard = 0
        self._usage = Usage()
        self._requests = self._cached = self._unpriced = 0
        self._under_way = Amount()
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def spend(self) -> Spend:
        """What it comes to, as records say it."""
        return Spend(
            calls=1,
            requests=self._requests,
            cached=self._cached,
            usage=self._usage,
            cost_usd=self.spent.nano_usd / NANO,
            unpriced=self._unpriced,
        )

    def permit(self, worst: Amount) -> None:
        """Let an attempt go out that costs so much at most.

        Raises:
            ModelError: GBE470, the budget does not allow it.
        """
        with self._lock:
            refusal = (
                "nobody waits for the answer any more" if self._is_closed else self._permit(self.spent.plus(worst))
            )
            if not refusal:
                self._under_way = worst
                return
        self.refusal = refusal
        raise ModelError("GBE470", reason=refusal)

    def take(self, completion: Completion) -> None:
        """Write an answer down; one from our own cache costs nothing."""
        usage = Usage() if completion.is_cached else completion.usage
        nano_usd = 0 if completion.is_cached else round((completion.cost_usd or 0.0) * NANO)
        with self._lock:
            if self._is_closed:
                return
            self._under_way = Amount()
            self._requests += 1
            self._cached += completion.is_cached
            self._unpriced += completion.cost_usd is None and not completion.is_cached
            self._usage += usage
            self.spent = self.spent.plus(Amount(usage.total_tokens, nano_usd))

    def hear(self, characters: int) -> None:
        """Note how much of an answer has come."""
        self.heard = characters

    def lose(self, amount: Amount) -> None:
        """Write down what a failed attempt may have been charged for."""
        with self._lock:
            self.lost = self.lost.plus(amount)
            if not self._is_closed:
                self._under_way = Amount()
                self.spent = self.spent.plus(amount)

    def close(self) -> bool:
        """Allow no further attempt; one that is under way counts with its worst case, because its real cost will not be known.

        Returns:
            Whether it was open.
        """
        with self._lock:
            was_open, self._is_closed = not self._is_closed, True
            self.spent = self.spent.plus(self._under_way)
            self._under_way = Amount()
        return was_open


_open = threading.local()


@contextmanager
def tab_open(tab: Tab) -> Iterator[Tab]:
    """Let the clients that are called in this thread write to a tab."""
    before = getattr(_open, "tab", None)
    _open.tab = tab
    try:
        yield tab
    finally:
        _open.tab = before


def current_tab() -> Tab:
    """Return the tab of this thread, or a new one without a reader."""
    tab: Tab | None = getattr(_open, "tab", None)
    return tab or Tab()


def watch(price: Price | None) -> OnAttempt:
    """Give what asks for permission before each attempt and notes what failed ones may cost, for `attempts.RetryingClient`."""

    def on_attempt(prompt: Prompt, max_output_tokens: int) -> OnFailure:
        tab = current_tab()
        worst = priced(worst_request(prompt, max_output_tokens), price)
        tab.permit(worst)
        return lambda error: tab.lose(worst if error.may_be_billed else Amount())

    return on_attempt
