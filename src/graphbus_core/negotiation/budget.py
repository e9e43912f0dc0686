"""What a session may cost: reserved before the questions are put, settled after, so that it is never exceeded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from graphbus_core.llm.attempts import NANO, Amount, Tab, tab_open
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import dollars


class Meter:
    """Counts the questions, the tokens, the dollars and the time of one session. Money is counted from any thread.

    Attributes:
        calls: The questions reserved so far.
        spent: What answered questions have cost.
        held: What is set aside for questions that are being answered.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._start_s = clock()
        self._lock = Lock()
        self.calls = 0
        self.spent = self.held = Amount()

    def start(self) -> None:
        """Begin to measure the time of the negotiation loop."""
        self._start_s = self._clock()

    def reserve(self, calls: int) -> str:
        """Set calls aside, all of them or none.

        Returns:
            Why they are too many, naming the setting; empty when they are set aside.
        """
        budget = self._budget
        if self.calls + calls > budget.max_calls:
            return f"{calls} more calls after {self.calls}, and max_calls is {budget.max_calls}"
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
        cause = "a model's server counts more than was set aside for an answer"
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

    def settle(self, held: Amount, spent: Amount) -> None:
        """Put what was spent in the place of what was set aside for it."""
        with self._lock:
            self.held = self.held.minus(held)
            self.spent = self.spent.plus(spent)

    @property
    def lateness(self) -> str:
        """Why there is no time left, naming the setting; empty while there is."""
        limit_s = self._budget.max_seconds
        is_late = limit_s > 0 and self._clock() - self._start_s >= limit_s
        return f"max_seconds is {limit_s:g}" if is_late else ""


class Bill:
    """What is set aside for one question, and what its answer has cost.

    Attributes:
        tab: What the clients that are asked write to.
    """

    def __init__(self, meter: Meter, held: Amount) -> None:
        self._meter = meter
        self._held = held
        self.tab = Tab(self._permit)
        self.is_settled = False

    def _permit(self, needed: Amount) -> str:
        """Set more aside when repairs or retries need more than was foreseen."""
        beyond = self.tab.spent.minus(self._held)
        self._meter.exceed(beyond)
        self._held = self._held.plus(beyond)
        more = needed.minus(self._held)
        refusal = self._meter.hold(more)
        if not refusal:
            self._held = self._held.plus(more)
        return refusal

    @contextmanager
    def running(self) -> Iterator[Tab]:
        """Let this thread answer the question; what it has cost is settled at the end, whatever happens."""
        try:
            with tab_open(self.tab):
                yield self.tab
        finally:
            self.settle()

    def settle(self) -> None:
        """Give back what was set aside and not spent."""
        if self.tab.close():
            self._meter.settle(self._held, self.tab.spent)
            self.is_settled = True

    def drop(self) -> None:
        """Settle though the answer has not come; a question that has not been put costs nothing and is not counted."""
        if self.tab.close():
            self._meter.settle(self._held, self.tab.spent)
            self.is_settled = self.tab.spent != Amount()
