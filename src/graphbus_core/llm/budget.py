"""The budget of a session. The worst case of a question is set aside before it is asked, and settled after the answer.

So no limit is exceeded, however many questions are open at the same time.

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
from threading import Lock
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, ModelPrompt, WorstCase
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Price, Spend, Usage, format_usd

NANO = 1_000_000_000
"""Billionths of a dollar in a dollar."""
_FRAME_TOKENS = 1024
"""What a provider may add around the text of a request: roles, separators, its own preamble."""


class Amount(NamedTuple):
    """Tokens and billionths of a dollar."""

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
    """Return the worst case of one request. No tokenizer makes more tokens of a text than it has bytes."""
    return WorstCase(1, sum(len(text.encode()) for text in prompt.texts) + _FRAME_TOKENS, max_output_tokens)


class BudgetMeter:
    """Counts questions, tokens, dollars and time of one session against its budget. Amounts may be set aside from any thread.

    Attributes:
        calls: The number of questions reserved so far.
        spend: The cost of answered questions, as records show it.
        spent: The same in tokens and billionths of a dollar.
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
        """Start to measure the time of the negotiation loop, which `max_seconds` limits."""
        self._start_s = self._clock()

    @property
    def time_refusal(self) -> str:
        """Why no time is left, naming the setting; empty while time is left."""
        limit_s = self._budget.max_seconds
        is_late = limit_s > 0 and self._clock() - self._start_s >= limit_s
        return f"max_seconds is {limit_s:g}" if is_late else ""

    def reserve_calls(self, calls: int) -> str:
        """Reserve calls, all of them or none.

        Returns:
            Why they exceed a limit, naming the setting; empty if they are reserved.
        """
        if self.calls + calls > self._budget.max_calls:
            return f"{calls} more calls after {self.calls}, and max_calls is {self._budget.max_calls}"
        if self.time_refusal:
            return self.time_refusal
        self.calls += calls
        return ""

    @property
    def committed(self) -> Amount:
        """The amount that is spent or set aside."""
        with self._lock:
            return self.spent.plus(self.held)

    def set_aside(self, amount: Amount, taken: Amount | None = None) -> str:
        """Set tokens and dollars aside, both or neither.

        Args:
            taken: The amount to count as spent or set aside; None for the present one.

        Returns:
            Why the amount exceeds a limit, naming the setting; empty if it is set aside.
        """
        with self._lock:
            taken = self.spent.plus(self.held) if taken is None else taken
            refusal = self._overdraft(taken) or self._refuse(amount, taken)
            if not refusal:
                self.held = self.held.plus(amount)
        return refusal

    @property
    def overdraft(self) -> str:
        """Why the budget is exceeded although every question fitted, naming the setting; empty if it is not.

        It happens if a server reports more tokens than an answer can have.
        """
        return self._overdraft(self.committed)

    def _overdraft(self, taken: Amount) -> str:
        budget = self._budget
        cause = "an answer cost more than was reserved for it"
        if budget.max_tokens and taken.tokens > budget.max_tokens:
            return f"{cause}: {taken.tokens} tokens so far, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and taken.nano_usd > budget.max_usd * NANO:
            return f"{cause}: {format_usd(taken.nano_usd / NANO)} so far, and max_usd is {budget.max_usd:g}"
        return ""

    def _refuse(self, amount: Amount, taken: Amount) -> str:
        budget, then = self._budget, taken.plus(amount)
        if budget.max_tokens and then.tokens > budget.max_tokens:
            return f"up to {amount.tokens} more tokens after {taken.tokens}, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and then.nano_usd > budget.max_usd * NANO:
            now, more = taken.nano_usd / NANO, amount.nano_usd / NANO
            return f"up to {format_usd(more)} more after {format_usd(now)}, and max_usd is {budget.max_usd:g}"
        return ""

    def set_aside_beyond(self, amount: Amount) -> None:
        """Set aside what an answer has cost beyond its worst case, without a check: it is spent already."""
        with self._lock:
            self.held = self.held.plus(amount)

    def settle(self, held: Amount, spent: Amount, spend: Spend = Spend()) -> None:  # noqa: B008 - frozen
        """Replace an amount that was set aside by what was really spent."""
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
            )


class Bill:
    """The amount set aside for one question, and its cost so far. The thread that answers it writes; any thread may settle it.

    Args:
        meter: None for a bill without limits.

    Attributes:
        spent: The whole cost, `lost` included.
        lost: The amount that failed attempts may have been charged for.
        refusal: Why an attempt was not made, naming the setting; empty if all were made.
        final_error: A failure that every further question would meet too.
        characters_received: Characters received so far of the present answer.
        is_settled: It counts as a question that was asked.
    """

    def __init__(self, meter: BudgetMeter | None = None, held: Amount = Amount()) -> None:  # noqa: B008 - immutable
        self._meter = meter or BudgetMeter(Budget(max_usd=0, max_tokens=0))
        self._held = held
        self.spent = self.lost = self._under_way = Amount()
        self.refusal = ""
        self.final_error: ModelError | None = None
        self.characters_received = 0
        self.is_settled = self._is_closed = False
        self._usage = Usage()
        self._requests = self._cached = self._unpriced = 0
        self._lock = Lock()

    @property
    def spend(self) -> Spend:
        """The cost as records show it."""
        return Spend(
            calls=1,
            requests=self._requests,
            cached=self._cached,
            usage=self._usage,
            cost_usd=self.spent.nano_usd / NANO,
            unpriced=self._unpriced,
        )

    def allow_attempt(self, worst: Amount) -> None:
        """Set aside the worst case of an attempt before it is made.

        Raises:
            ModelError: GBE470, the budget does not allow it.
        """
        with self._lock:
            refusal = (
                "the session no longer waits for this answer"
                if self._is_closed
                else self._set_more_aside(self.spent.plus(worst))
            )
            if not refusal:
                self._under_way = worst
                return
        self.refusal = refusal
        raise ModelError("GBE470", reason=refusal)

    def _set_more_aside(self, needed: Amount) -> str:
        """Set more aside if repairs or retries need more than the bill has."""
        beyond = self.spent.minus(self._held)
        self._meter.set_aside_beyond(beyond)
        self._held = self._held.plus(beyond)
        more = needed.minus(self._held)
        refusal = self._meter.set_aside(more)
        if not refusal:
            self._held = self._held.plus(more)
        return refusal

    def add_answer(self, completion: Completion) -> None:
        """Add the cost of an answer; one from our own cache costs nothing."""
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

    def note_progress(self, characters: int) -> None:
        """Record how many characters of the answer have arrived."""
        self.characters_received = characters

    def add_loss(self, amount: Amount) -> None:
        """Add what a failed attempt may have been charged for."""
        with self._lock:
            self.lost = self.lost.plus(amount)
            if not self._is_closed:
                self._under_way = Amount()
                self.spent = self.spent.plus(amount)

    @contextmanager
    def running(self) -> Iterator[Bill]:
        """Make this the `current_bill` of the thread; at the end it is settled, also after an exception."""
        before = getattr(_open, "bill", None)
        _open.bill = self
        try:
            yield self
        finally:
            _open.bill = before
            self.settle()

    def settle(self, *, is_dropped: bool = False) -> None:
        """Release what was set aside and not spent, and allow no further attempt.

        An attempt that is still running counts with its worst case, because its real cost will not be known.

        Args:
            is_dropped: There is no answer. A question without any attempt costs nothing and is not counted.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.spent = self.spent.plus(self._under_way)
        self.is_settled = not is_dropped or self.spent != Amount()
        self._meter.settle(self._held, self.spent, self.spend if self.is_settled else Spend())


_open = threading.local()


def current_bill() -> Bill:
    """Return the bill of this thread, or a new one that belongs to no session."""
    bill: Bill | None = getattr(_open, "bill", None)
    return bill or Bill()
