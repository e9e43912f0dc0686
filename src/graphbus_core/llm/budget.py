"""What a session may cost: set aside before a question is put, settled after it is answered, so that no limit is ever passed.

Meter   one for a session: calls, tokens, dollars and time against the limits; used from any thread
Bill    one for a question: what is set aside for it, and what its attempts have cost. The clients that are asked in the thread
        of `Bill.running` find it with `current_bill`.

Dollars are added up as whole billionths, so that a sum does not depend on the order of the answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Bound, Completion, Prompt
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Price, Spend, Usage, dollars

NANO = 1_000_000_000
"""Billionths of a dollar in a dollar."""
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
    return Bound(1, sum(len(text.encode()) for text in prompt.texts) + _FRAME_TOKENS, max_output_tokens)


class Meter:
    """Counts the questions, the tokens, the dollars and the time of one session. Money is counted from any thread.

    Attributes:
        calls: The questions reserved so far.
        spend: What answered questions have cost, as records say it.
        spent: The same in tokens and billionths of a dollar.
        held: What is set aside for questions that are being answered.
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
        """Begin to measure the time of the negotiation loop."""
        self._start_s = self._clock()

    @property
    def lateness(self) -> str:
        """Why there is no time left, naming the setting; empty while there is."""
        limit_s = self._budget.max_seconds
        is_late = limit_s > 0 and self._clock() - self._start_s >= limit_s
        return f"max_seconds is {limit_s:g}" if is_late else ""

    def reserve(self, calls: int) -> str:
        """Set calls aside, all of them or none.

        Returns:
            Why they are too many, naming the setting; empty when they are set aside.
        """
        if self.calls + calls > self._budget.max_calls:
            return f"{calls} more calls after {self.calls}, and max_calls is {self._budget.max_calls}"
        if self.lateness:
            return self.lateness
        self.calls += calls
        return ""

    @property
    def taken(self) -> Amount:
        """What is spent or set aside."""
        with self._lock:
            return self.spent.plus(self.held)

    def hold(self, amount: Amount, taken: Amount | None = None) -> str:
        """Set tokens and dollars aside, both or neither.

        Args:
            taken: What counts as spent or set aside; None: what is so now.

        Returns:
            Why they are too many, naming the setting; empty when they are set aside.
        """
        with self._lock:
            taken = self.spent.plus(self.held) if taken is None else taken
            refusal = self._overdraft(taken) or self._refuse(amount, taken)
            if not refusal:
                self.held = self.held.plus(amount)
        return refusal

    @property
    def overdraft(self) -> str:
        """Why nothing more may be spent though every question fitted, naming the setting: a server claims more than can be."""
        return self._overdraft(self.taken)

    def _overdraft(self, taken: Amount) -> str:
        budget = self._budget
        cause = "an answer cost more than was reserved for it"
        if budget.max_tokens and taken.tokens > budget.max_tokens:
            return f"{cause}: {taken.tokens} tokens so far, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and taken.nano_usd > budget.max_usd * NANO:
            return f"{cause}: {dollars(taken.nano_usd / NANO)} so far, and max_usd is {budget.max_usd:g}"
        return ""

    def _refuse(self, amount: Amount, taken: Amount) -> str:
        budget, then = self._budget, taken.plus(amount)
        if budget.max_tokens and then.tokens > budget.max_tokens:
            return f"up to {amount.tokens} more tokens after {taken.tokens}, and max_tokens is {budget.max_tokens}"
        if budget.max_usd and then.nano_usd > budget.max_usd * NANO:
            now, more = taken.nano_usd / NANO, amount.nano_usd / NANO
            return f"up to {dollars(more)} more after {dollars(now)}, and max_usd is {budget.max_usd:g}"
        return ""

    def exceed(self, amount: Amount) -> None:
        """Set aside what an answer has cost beyond its worst case: it is spent, whether it fits or not."""
        with self._lock:
            self.held = self.held.plus(amount)

    def settle(self, held: Amount, spent: Amount, spend: Spend = Spend()) -> None:  # noqa: B008 - frozen
        """Put what was spent in the place of what was set aside for it."""
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
    """What is set aside for one question, and what it has cost so far. Written by the thread that answers it, closed by any.

    Args:
        meter: None: nothing is refused.

    Attributes:
        spent: All of it, what was lost included.
        lost: What attempts that failed may have been charged for.
        refusal: Why an attempt was not made, naming the setting; empty when all were.
        final_error: After it no further question has a chance.
        heard: Characters of the answer that is coming just now.
        is_settled: It counts as a question that was put.
    """

    def __init__(self, meter: Meter | None = None, held: Amount = Amount()) -> None:  # noqa: B008 - immutable
        self._meter = meter or Meter(Budget(max_usd=0, max_tokens=0))
        self._held = held
        self.spent = self.lost = self._under_way = Amount()
        self.refusal = ""
        self.final_error: ModelError | None = None
        self.heard = 0
        self.is_settled = self._is_closed = False
        self._usage = Usage()
        self._requests = self._cached = self._unpriced = 0
        self._lock = Lock()

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
            refusal = "the request was cancelled" if self._is_closed else self._hold(self.spent.plus(worst))
            if not refusal:
                self._under_way = worst
                return
        self.refusal = refusal
        raise ModelError("GBE470", reason=refusal)

    def _hold(self, needed: Amount) -> str:
        """Set more aside when repairs or retries need more than was foreseen."""
        beyond = self.spent.minus(self._held)
        self._meter.exceed(beyond)
        self._held = self._held.plus(beyond)
        more = needed.minus(self._held)
        refusal = self._meter.hold(more)
        if not refusal:
            self._held = self._held.plus(more)
        return refusal

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

    @contextmanager
    def running(self) -> Iterator[Bill]:
        """Let the clients that are called in this thread write to the bill; it is settled at the end, whatever happens."""
        before = getattr(_open, "bill", None)
        _open.bill = self
        try:
            yield self
        finally:
            _open.bill = before
            self.settle()

    def settle(self, *, is_dropped: bool = False) -> None:
        """Give back what was set aside and not spent, and allow no further attempt.

        An attempt that is under way counts with its worst case, because its real cost will not be known.

        Args:
            is_dropped: The answer has not come. A question that was not even put costs nothing and is not counted.
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
    """Return the bill of this thread, or a new one without a reader."""
    bill: Bill | None = getattr(_open, "bill", None)
    return bill or Bill()
