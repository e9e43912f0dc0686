"""What a session may cost: reserved before the questions are put, so that it is never exceeded."""

from __future__ import annotations

import time
from collections.abc import Callable

from graphbus_core.model.config import Budget


class Meter:
    """Counts the questions and the time of one session.

    Attributes:
        calls: The questions reserved so far.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._start_s = clock()
        self.calls = 0

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
    def lateness(self) -> str:
        """Why there is no time left, naming the setting; empty while there is."""
        limit_s = self._budget.max_seconds
        is_late = limit_s > 0 and self._clock() - self._start_s >= limit_s
        return f"max_seconds is {limit_s:g}" if is_late else ""
