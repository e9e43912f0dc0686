"""What answering one question costs: a tab for each question, filled by the clients that are asked in its thread.

An attempt goes out only if the tab permits its worst case, so that not even retries can overdraw a budget.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Bound, Completion, Price, Prompt
from graphbus_core.llm.retrying import Attempt, OnAttempt
from graphbus_core.model.spending import Spend, Usage

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


def allow_all(_worst: Amount) -> str:
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

    def __init__(self, permit: Callable[[Amount], str] = allow_all) -> None:
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
        """Let no further attempt go out; one that is under way counts with its worst case, for nobody will hear what it costs.

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
    """Give the tab of this thread; one that nobody will read if there is none."""
    tab: Tab | None = getattr(_open, "tab", None)
    return tab or Tab()


class _Watched:
    """One attempt, written to the tab of the thread that makes it."""

    def __init__(self, tab: Tab, worst: Amount) -> None:
        self._tab = tab
        self._worst = worst

    def answered(self, completion: Completion) -> None:
        """The answer itself is written down once, by the tape."""

    def failed(self, error: ModelError) -> None:
        """Expect the worst of a request that may be charged for."""
        self._tab.lose(self._worst if error.may_be_billed else Amount())


def watch(price: Price | None) -> OnAttempt:
    """Give what asks for permission before each attempt and notes what failed ones may cost, for `retrying.RetryingClient`."""

    def on_attempt(prompt: Prompt, max_output_tokens: int) -> Attempt:
        tab = current_tab()
        worst = priced(worst_request(prompt, max_output_tokens), price)
        tab.permit(worst)
        return _Watched(tab, worst)

    return on_attempt
