"""Trying again: what for, how long to wait, how many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.attempts import RetryingClient, RetryTiming
from graphbus_core.llm.budget import Bill, BudgetMeter, price_worst_case, worst_case_of_request
from graphbus_core.llm.client import ModelPrompt, ScriptedClient
from graphbus_core.model.config import Budget
from graphbus_core.model.spending import Price
from tests.patience import PATIENCE_S

PROMPT = ModelPrompt(shared="", task="say ok")


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self, chance: float = 0.5) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []
        self.clock = RetryTiming(now_s=lambda: self.now_s, sleep=self.sleep, chance=lambda: chance)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now_s += seconds


def busy(retry_after_s: float | None = None, *, may_be_billed: bool = False) -> ModelError:
    return ModelError(
        "GBE445",
        is_transient=True,
        retry_after_s=retry_after_s,
        may_be_billed=may_be_billed,
        provider="stub",
        reason="overloaded",
    )


def failing(*failures: ModelError) -> Callable[[ModelPrompt], str]:
    left = list(failures)

    def speak(_prompt: ModelPrompt) -> str:
        if left:
            raise left.pop(0)
        return "ok"

    return speak


def client_of(time: Time, *failures: ModelError, attempts: int = 5, per_minute: int = 0) -> RetryingClient:
    return RetryingClient(ScriptedClient(failing(*failures)), attempts, per_minute, clock=time.clock)


def test_what_is_transient_is_tried_again_after_a_wait_that_doubles_with_jitter() -> None:
    time = Time(chance=0.5)
    assert client_of(time, *[busy()] * 4).complete(PROMPT, 10).text == "ok"
    assert time.slept == [0.5, 1.0, 2.0, 4.0]


def test_no_wait_is_longer_than_a_minute_and_no_attempt_follows_the_last() -> None:
    time = Time(chance=0.999)
    with pytest.raises(ModelError):
        client_of(time, *[busy()] * 10, attempts=9).complete(PROMPT, 10)
    assert time.slept == [pytest.approx(0.999 * high, abs=0.01) for high in (1, 2, 4, 8, 16, 32, 60, 60)]


def test_the_server_says_how_long_to_wait() -> None:
    time = Time(chance=0.0)
    client_of(time, busy(7.0), busy(0.0)).complete(PROMPT, 10)
    assert time.slept == [7.0, 0.0]


def test_an_answer_that_is_late_each_time_is_the_last_word() -> None:
    """To go on without it would let the result of a session depend on speed; other failures count as no answer."""
    time = Time()
    late = [ModelError("GBE447", is_transient=True, provider="stub", timeout_s=9.0) for _ in range(3)]
    assert client_of(time, *late[:2], attempts=3).complete(PROMPT, 10).text == "ok"
    for failures, is_final in ((late, True), ([busy()] * 3, False)):
        with pytest.raises(ModelError) as caught:
            client_of(time, *failures, attempts=3).complete(PROMPT, 10)
        assert caught.value.is_final == is_final


def test_each_attempt_is_set_aside_on_the_bill_and_each_failure_that_may_be_billed_is_lost() -> None:
    price = Price(1.0, 1.0)
    worst = price_worst_case(worst_case_of_request(PROMPT, 10), price)
    final = ModelError("GBE440", is_final=True, provider="stub", variable="STUB_API_KEY")
    client = RetryingClient(
        ScriptedClient(failing(busy(), busy(may_be_billed=True), final), price=price), clock=Time().clock
    )
    with Bill().running() as bill, pytest.raises(ModelError) as caught:
        client.complete(PROMPT, 10)
    assert (caught.value, bill.lost, bill.spent) == (final, worst, worst)
    with (
        Bill(BudgetMeter(Budget(max_tokens=10))).running() as poor,
        pytest.raises(ModelError, match="max_tokens is 10"),
    ):
        client.complete(PROMPT, 10)
    assert (poor.spent, poor.spend.requests) == ((0, 0), 0)


def test_no_minute_has_more_requests_than_the_setting_allows() -> None:
    time, starts_s = Time(), list[float]()
    speak = failing(busy(7.0), busy(20.0))

    def timed(prompt: ModelPrompt) -> str:
        starts_s.append(time.now_s)
        return speak(prompt)

    client = RetryingClient(ScriptedClient(timed), 5, 3, clock=time.clock)
    for _ in range(10):
        client.complete(PROMPT, 10)
    assert len(starts_s) == 12
    assert all(later - earlier >= 60 for earlier, later in zip(starts_s, starts_s[3:], strict=False))
    assert starts_s[3] - starts_s[0] == 60.0


def test_no_more_calls_than_allowed_are_under_way_at_once() -> None:
    lock, under_way, most = threading.Lock(), [0], [0]
    gate = threading.Event()

    def speak(_prompt: ModelPrompt) -> str:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            if most[0] == 3:
                gate.set()
        gate.wait(PATIENCE_S)
        with lock:
            under_way[0] -= 1
        return "ok"

    client = RetryingClient(ScriptedClient(speak), concurrency=3)
    threads = [threading.Thread(target=client.complete, args=(PROMPT, 10)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert most[0] == 3


def test_closing_ends_a_wait_for_the_next_attempt() -> None:
    client = RetryingClient(ScriptedClient(failing(*[busy(200.0)] * 5)), concurrency=2)
    failures: list[str] = []

    def ask() -> None:
        try:
            client.complete(PROMPT, 10)
        except ModelError as error:
            failures.append(error.code)

    thread = threading.Thread(target=ask)
    thread.start()
    client.close()
    thread.join(PATIENCE_S)
    assert failures == ["GBE445"]
