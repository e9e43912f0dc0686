"""The budget of a session. The worst case of a question is set aside before it is asked; after the answer, its cost is counted.

In this way no limit is exceeded, however many questions are open at the same time.

BudgetMeter   one for a session: calls, tokens, dollars and time against the limits; used from any thread
Bill          one for a question: the amount set aside for it, and the cost of its attempts. Clients called in the thread of
              `Bill.running` find it with `current_bill`.

Dollars are added as whole billionths, so that a sum does not depend on the order of the answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, ModelPrompt, WorstCase
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Price, Spend, Usage, format_usd

NANO = 1_000_000_000
"""Billionths of a dollar in a dollar."""
_FRAME_TOKENS = 1024
"""The most tokens that a provider may add to the text of a request: roles, separators, a preamble."""


class Amount(NamedTuple):
    """A number of tokens, and of billionths of a dollar."""

    tokens: int = 0
    nano_usd: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.tokens + other.tokens, self.nano_usd + other.nano_usd)

    def minus(self, other: Amount) -> Amount:
        """Return the difference, each part at least 0."""
        return Amount(max(self.tokens - other.tokens, 0), max(self.nano_usd - other.nano_usd, 0))


def price_worst_case(bound: WorstCase, price: Price | None) -> Amount:
    """Return the tokens and the price of a worst case, rounded up; the price is 0 if it is not known."""
    usd = (bound.input_tokens * price.input_usd + bound.output_tokens * price.output_usd) / 1e6 if price else 0.0
    return Amount(bound.input_tokens + bound.output_tokens, -int(-usd * NANO // 1))


def worst_case_of_request(prompt: ModelPrompt, max_output_tokens: int) -> WorstCase:
    """Return the worst case of one request: a token for each byte, which no tokenizer exceeds, and a full answer."""
    return WorstCase(1, sum(len(text.encode()) for text in prompt.texts) + _FRAME_TOKENS, max_output_tokens)


class BudgetMeter:
    """Counts questions, tokens, dollars and time of one session against its budget. Any thread may set amounts aside.

    Args:
        budget: The limits.
        clock: Returns seconds.

    Attributes:
        calls: The number of questions reserved so far.
        spend: The cost of answered questions, in the form of the session's record.
        spent: The same cost in tokens and billionths of a dollar.
        held: The amount set aside for open questions.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._start_s = clock()
        self._lock = Lock()
        self.calls = 0
        self.spend = Spend()
        self.spent = self.held = Amount()

    def start(self) -> None:
        """Start the time that `max_seconds` limits. Called when the rounds begin, after the analyses."""
        self._start_s = self._clock()

    @property
    def time_refusal(self) -> str:
        """Why the time is used up, naming the setting; empty while there is time left."""
        limit_s = self._budget.max_seconds
        is_late = limit_s > 0 and self._clock() - self._start_s >= limit_s
        return f"max_seconds is {limit_s:g}" if is_late else ""

    def reserve_calls(self, calls: int) -> str:
        """Reserve a number of questions, all of them or none.

        Returns:
            Why they exceed `max_calls` or `max_seconds`, naming the setting; empty if they are reserved.
        """
        if self.calls + calls > self._budget.max_calls:
            return f"{calls} more calls after {self.calls}, and max_calls is {self._budget.max_calls}"
        if self.time_refusal:
            return self.time_refusal
        self.calls += calls
        return ""

    @property
    def committed(self) -> Amount:
        """The amount that is spent or set aside, together."""
        with self._lock:
            return self.spent.plus(self.held)

    def set_aside(self, amount: Amount, taken: Amount | None = None) -> str:
        """Set tokens and dollars aside, both or neither.

        Args:
            amount: The amount to set aside.
            taken: The amount that counts as spent or set aside before; None for the present one.

        Returns:
            Why the amount exceeds a limit, naming the setting; empty if it is set aside.
        """
        with self._lock:
            taken = self.spent.plus(self.held) if taken is None else taken
            refusal = self._describe_overdraft(taken) or self._refusal_of(amount, taken)
            if not refusal:
                self.held = self.held.plus(amount)
        return refusal

    @property
    def overdraft(self) -> str:
        """Why the budget is exceeded, naming the setting; empty if it is not.

        It can only be exceeded if a server reports more tokens than the worst case of a request.
        """
        return self._describe_overdraft(self.committed)

    def _describe_overdraft(self, taken: Amount) -> str:
        """Return why `taken` exceeds a limit, naming the setting; empty if it does not."""
        budget = self._budget
        cause = "an answer cost more than was reserved for it"
        if budget.max_tokens and taken.tokens > budget.max_tokens:
            return f"{cause}: {taken.tokens} tokens so far, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and taken.nano_usd > budget.max_usd * NANO:
            return f"{cause}: {format_usd(taken.nano_usd / NANO)} so far, and max_usd is {budget.max_usd:g}"
        return ""

    def _refusal_of(self, amount: Amount, taken: Amount) -> str:
        """Return why `amount` after `taken` would exceed a limit, naming the setting; empty if it would not."""
        budget, then = self._budget, taken.plus(amount)
        if budget.max_tokens and then.tokens > budget.max_tokens:
            return f"up to {amount.tokens} more tokens after {taken.tokens}, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and then.nano_usd > budget.max_usd * NANO:
            now, more = taken.nano_usd / NANO, amount.nano_usd / NANO
            return f"up to {format_usd(more)} more after {format_usd(now)}, and max_usd is {budget.max_usd:g}"
        return ""

    def set_aside_beyond(self, amount: Amount) -> None:
        """Set aside an amount without checking the limits, because an answer has already cost that much beyond its worst case."""
        with self._lock:
            self.held = self.held.plus(amount)

    def settle(self, held: Amount, spent: Amount, spend: Spend = Spend()) -> None:  # noqa: B008 - frozen
        """Release the amount `held`, and add what was spent instead: as an amount, and as `spend` for the record."""
        with self._lock:
            self.held = self.held.minus(held)
            self.spent = self.spent.plus(spent)
            self.spend = Spend(
                calls=self.spend.calls + spend.calls,
                requests=self.spend.requests + spend.requests,
                cached=self.spend.cached + spend.cached,
                usage=self.spend.usage + spend.usage,
                cost_usd=self.spent.nano_usd / NANO,
                unpriced=self.spend.unpriced + spend.unpriced,
                unusable=self.spend.unusable + spend.unusable,
            )


class Retry(NamedTuple):
    """An attempt that follows a failed one.

    Attributes:
        attempt: Its number, from 2.
        most: The largest number of attempts.
        wait_s: The seconds before it.
        reason: The sentence of the failure.
    """

    attempt: int
    most: int
    wait_s: float
    reason: str


class UnusableAnswer(NamedTuple):
    """Why an answer cannot be used, and whether it is the last one: the model is not asked this question again."""

    reason: str
    is_last: bool


class Bill:
    """The amount set aside for one question, and its cost so far. One thread adds costs; any thread may settle the bill.

    Args:
        meter: The budget; None for a bill without limits.
        held: The amount that was set aside for the question.

    Attributes:
        spent: The whole cost, `lost` included.
        lost: The amount that failed attempts may have been charged for.
        refusal: Why the budget did not allow an attempt, naming the setting; empty if it allowed all.
        failure: The error of the model because of which there was no usable answer; None if there was one.
        final_error: An error with which every further question would fail too; None if there was none.
        characters_received: The number of characters of the present answer received so far.
        retries: The attempts after failed ones that nobody has read so far; another thread may read them.
        attempt: 1, and one more for each failed attempt and each unusable answer since the last usable one.
        unusable: The answers that could not be used, in order.
        started_s: When the question was begun, in seconds of `time.monotonic`; None before that.
        is_settled: The bill is closed, and counts as a question that was asked.
    """

    def __init__(self, meter: BudgetMeter | None = None, held: Amount = Amount()) -> None:  # noqa: B008 - immutable
        self._meter = meter or BudgetMeter(Budget(max_usd=0, max_tokens=0))
        self._held = held
        self.spent = self.lost = self._running_attempt = Amount()
        self.refusal = ""
        self.failure: ModelError | None = None
        self.final_error: ModelError | None = None
        self.characters_received = 0
        self.retries: SimpleQueue[Retry] = SimpleQueue()
        self.attempt = 1
        self.unusable: list[UnusableAnswer] = []
        self.started_s: float | None = None
        self.is_settled = self._is_closed = False
        self._usage = Usage()
        self._requests = self._cached = self._unpriced = 0
        self._lock = Lock()

    @property
    def spend(self) -> Spend:
        """The cost of this question, in the form of the session's record."""
        return Spend(
            calls=1,
            requests=self._requests,
            cached=self._cached,
            usage=self._usage,
            cost_usd=self.spent.nano_usd / NANO,
            unpriced=self._unpriced,
            unusable=len(self.unusable),
        )

    @property
    def has_usable_answer(self) -> bool:
        """True if a model was asked, and the question was answered usably."""
        return self.is_settled and self._requests > 0 and self.failure is None and not self.refusal

    @property
    def is_running(self) -> bool:
        """True while an agent is working on the question."""
        return self.started_s is not None and not self._is_closed

    def allow_attempt(self, worst: Amount) -> None:
        """Make sure, before an attempt, that its worst case is set aside.

        Raises:
            ModelError: GBE470, the budget does not allow it, or the bill is closed.
        """
        with self._lock:
            refusal = (
                "the session no longer waits for this answer"
                if self._is_closed
                else self._extend_reservation(self.spent.plus(worst))
            )
            if not refusal:
                self._running_attempt = worst
                return
        self.refusal = refusal
        raise ModelError("GBE470", reason=refusal)

    def _extend_reservation(self, needed: Amount) -> str:
        """Set more aside if `needed`, the cost so far and the next attempt, is more than what is held.

        Returns:
            Why that exceeds the budget, naming the setting; empty if it is set aside.
        """
        beyond = self.spent.minus(self._held)  # an answer has cost more than its worst case
        self._meter.set_aside_beyond(beyond)
        self._held = self._held.plus(beyond)
        more = needed.minus(self._held)
        refusal = self._meter.set_aside(more)
        if not refusal:
            self._held = self._held.plus(more)
        return refusal

    def add_answer(self, completion: Completion) -> None:
        """Add the cost of an answer; one from the cache of GraphBus costs nothing. A closed bill is not changed."""
        usage = Usage() if completion.is_cached else completion.usage
        nano_usd = 0 if completion.is_cached else round((completion.cost_usd or 0.0) * NANO)
        self.attempt = 1
        with self._lock:
            if self._is_closed:
                return
            self._running_attempt = Amount()
            self._requests += 1
            self._cached += completion.is_cached
            self._unpriced += completion.cost_usd is None and not completion.is_cached
            self._usage += usage
            self.spent = self.spent.plus(Amount(usage.total_tokens, nano_usd))

    def note_progress(self, characters: int) -> None:
        """Record the number of characters of the answer received so far."""
        self.characters_received = characters

    def note_retry(self, retry: Retry) -> None:
        """Record that another attempt follows, and that what was received of the failed one does not count."""
        self.characters_received = 0
        self.retries.put(retry)

    def note_unusable(self, reason: str, *, is_last: bool = False) -> None:
        """Record that the answer which was added last cannot be used; `is_last` if the model is not asked again."""
        self.unusable.append(UnusableAnswer(reason, is_last))
        self.attempt, self.characters_received = 1 if is_last else 2, 0

    def add_loss(self, amount: Amount) -> None:
        """Add the amount that a failed attempt may have been charged for; on a closed bill it is only added to `lost`."""
        self.attempt, self.characters_received = self.attempt + 1, 0
        with self._lock:
            self.lost = self.lost.plus(amount)
            if not self._is_closed:
                self._running_attempt = Amount()
                self.spent = self.spent.plus(amount)

    @contextmanager
    def running(self) -> Iterator[Bill]:
        """Make this the `current_bill` of the thread in a `with` block; at its end the bill is settled in any case."""
        before = getattr(_thread_local, "bill", None)
        _thread_local.bill, self.started_s = self, time.monotonic()
        try:
            yield self
        finally:
            _thread_local.bill = before
            self.settle()

    def settle(self, *, is_dropped: bool = False) -> None:
        """Close the bill: release what was set aside and not spent, and allow no further attempt. A second call does nothing.

        An attempt that is still running counts with its worst case, because its real cost will not be known.

        Args:
            is_dropped: Nobody waits for the answer any longer. If nothing was spent, the question is not counted.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.spent = self.spent.plus(self._running_attempt)
        self.is_settled = not is_dropped or self.spent != Amount()
        self._meter.settle(self._held, self.spent, self.spend if self.is_settled else Spend())


_thread_local = threading.local()


def current_bill() -> Bill:
    """Return the bill of this thread, or a new one without limits if there is none."""
    bill: Bill | None = getattr(_thread_local, "bill", None)
    return bill or Bill()
