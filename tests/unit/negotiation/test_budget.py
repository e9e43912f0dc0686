from __future__ import annotations

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.attempts import NANO, Amount
from graphbus_core.llm.client import Completion
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Usage
from graphbus_core.negotiation.budget import Bill, Meter


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_calls_are_reserved_before_they_are_made_and_never_beyond_the_limit() -> None:
    meter = Meter(Budget(max_calls=3))
    assert meter.reserve(2) == ""
    assert meter.reserve(2) == "2 more calls after 2, and max_calls is 3"
    assert meter.calls == 2, "what is refused is not charged"
    assert meter.reserve(1) == ""


def test_the_time_runs_from_the_start_of_the_loop() -> None:
    clock = Clock()
    meter, unlimited = Meter(Budget(max_seconds=5.0), clock), Meter(Budget(max_seconds=0.0), clock)
    clock.now_s += 60
    meter.start()
    clock.now_s += 4.9
    assert meter.reserve(1) == ""
    clock.now_s += 0.1
    assert meter.reserve(1) == "max_seconds is 5"
    assert unlimited.reserve(1) == ""


def test_an_answer_beyond_its_worst_case_leaves_room_for_nothing_not_even_for_what_was_set_aside() -> None:
    meter = Meter(Budget(max_usd=1.0))
    lying, waiting = Bill(meter, Amount(10, NANO // 2)), Bill(meter, Amount())
    meter.hold(Amount(10, NANO // 2))
    usage = Usage(input_tokens=5, output_tokens=10**9)
    with lying.running() as tab:
        tab.take(Completion(text="", model="stub:m", usage=usage, cost_usd=2.5))
        with pytest.raises(ModelError, match=r"more than was set aside for an answer: \$2.50 so far, and max_usd is 1"):
            tab.permit(Amount(1, 1))
    assert (meter.held, meter.spent.nano_usd) == (Amount(), 2.5 * NANO)
    with waiting.running() as tab, pytest.raises(ModelError):
        tab.permit(Amount())
    assert meter.overdraft
