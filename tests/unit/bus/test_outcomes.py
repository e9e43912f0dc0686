"""What becomes of an event after an attempt: decided from policy, attempt and error, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.bus import MessageBus
from graphbus_core.bus.outcomes import (
    FINAL_CODES,
    MAX_BACKOFF_S,
    AttemptOutcome,
    Dead,
    Done,
    Retry,
    backoff_s,
    check_policy,
    decide_outcome,
)
from graphbus_core.errors import Place, RunError
from graphbus_core.errors.register import REGISTER
from graphbus_core.model.deliveries import ONCE, DeliveryPolicy

THRICE = DeliveryPolicy(retries=2, backoff_s=0.5)
NETWORK = DeliveryPolicy(retries=2, backoff_s=0.5, retry_on=(ConnectionError, TimeoutError))
WRONG_SHAPE = RunError("GBE614", topic="/A/B", reason="total: expected int, got nothing")


@pytest.mark.parametrize(
    ("policy", "attempt", "error", "expected"),
    [
        (ONCE, 1, None, Done()),
        (ONCE, 1, ValueError("x"), Dead("exhausted")),
        (THRICE, 1, ValueError("x"), Retry(0.5)),
        (THRICE, 2, ValueError("x"), Retry(1.0)),
        (THRICE, 3, ValueError("x"), Dead("exhausted")),
        (THRICE, 3, None, Done()),
        (THRICE, 1, WRONG_SHAPE, Dead("final")),
        (THRICE, 1, RunError("GBE618"), Retry(0.5)),
        (NETWORK, 1, ConnectionResetError("gone"), Retry(0.5)),
        (NETWORK, 1, TimeoutError(), Retry(0.5)),
        (NETWORK, 1, ValueError("x"), Dead("unlisted")),
        (DeliveryPolicy(retries=2, retry_on=()), 1, ValueError("x"), Dead("unlisted")),
        (DeliveryPolicy(retries=1, backoff_s=0), 1, ValueError("x"), Retry(0.0)),
    ],
)
def test_an_attempt_ends_in_done_retry_or_dead(
    policy: DeliveryPolicy, attempt: int, error: Exception | None, expected: AttemptOutcome
) -> None:
    assert decide_outcome(policy, attempt, error) == expected


def test_a_refusal_that_would_come_again_is_never_tried_again() -> None:
    assert {"GBE612", "GBE613", "GBE614", "GBE617", "GBE622", "GBE623"} <= FINAL_CODES <= REGISTER.keys()


@given(retries=st.integers(0, 50), error=st.sampled_from([ValueError("x"), TimeoutError(), RunError("GBE618")]))
def test_a_handler_is_never_called_more_often_than_once_and_its_retries(retries: int, error: Exception) -> None:
    policy = DeliveryPolicy(retries=retries)
    attempt = 1
    while isinstance(decide_outcome(policy, attempt, error), Retry):
        attempt += 1
    assert attempt == retries + 1


@given(first=st.just(0.0) | st.floats(0.001, 1e6), attempts=st.integers(1, 2000))
def test_waits_double_up_to_a_limit_and_are_the_same_each_time(first: float, attempts: int) -> None:
    policy = DeliveryPolicy(retries=attempts, backoff_s=first)
    now, later = backoff_s(policy, attempts), backoff_s(policy, attempts + 1)
    assert now == backoff_s(policy, attempts)
    assert first <= now <= later <= max(MAX_BACKOFF_S, first)
    assert later in (now * 2, max(MAX_BACKOFF_S, first))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": -1}, "retries=-1: it must be a whole number of at least 0"),
        ({"retries": 1.5}, "retries=1.5"),
        ({"retries": True}, "retries=True"),
        ({"backoff_s": -0.1}, "backoff=-0.1: it must be a number of seconds"),
        ({"backoff_s": math.nan}, "backoff=nan"),
        ({"backoff_s": "1"}, "backoff='1'"),
        ({"timeout_s": 0}, "timeout=0: it must be more than 0 seconds"),
        ({"timeout_s": math.inf}, "timeout=inf"),
        ({"concurrency": 0}, "concurrency=0: it must be at least 1"),
        ({"retry_on": (ValueError, KeyboardInterrupt)}, "retry_on="),
        ({"retry_on": ("ValueError",)}, "exception classes"),
        ({"retries": -1, "concurrency": 0}, "at least 0; concurrency=0"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_with_its_place(options: dict[str, Any], said: str) -> None:
    place = Place("agents/shop.py", 12)
    with pytest.raises(RunError) as refusal:
        check_policy(DeliveryPolicy(**options), handler="Shop.on_order", is_async=True, where=place)
    assert refusal.value.code == "GBE640"
    assert refusal.value.where == place
    assert said in refusal.value.sentence
    assert "Shop.on_order" in refusal.value.sentence


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout_s": 1.0}, "`timeout` needs an `async"),
        ({"concurrency": 2}, "`concurrency` needs an `async"),
    ],
)
def test_a_plain_def_can_keep_neither_a_timeout_nor_concurrency(options: dict[str, Any], said: str) -> None:
    policy = DeliveryPolicy(**options)
    check_policy(policy, handler="Shop.on_order", is_async=True)
    with pytest.raises(RunError, match="GBE640") as refusal:
        check_policy(policy, handler="Shop.on_order", is_async=False)
    assert said in refusal.value.sentence


@pytest.mark.parametrize("seconds", [10**400, 1e300, float("nan"), -1, True])
def test_seconds_that_no_clock_can_count_are_refused(seconds: float) -> None:
    for policy in (DeliveryPolicy(backoff_s=seconds), DeliveryPolicy(timeout_s=seconds)):
        with pytest.raises(RunError, match="GBE640"):
            check_policy(policy, handler="x", is_async=True)


def test_a_policy_that_can_be_kept_passes() -> None:
    check_policy(ONCE, handler="x", is_async=False)
    check_policy(DeliveryPolicy(retries=10, backoff_s=2, retry_on=(OSError,)), handler="x", is_async=False)
    check_policy(DeliveryPolicy(timeout_s=5, concurrency=8), handler="x", is_async=True)


def test_a_bus_refuses_a_subscription_whose_options_cannot_be_kept_with_its_line() -> None:
    def on_order() -> None: ...

    with pytest.raises(RunError) as refusal:
        MessageBus().subscribe("/Order/Placed", on_order, policy=DeliveryPolicy(timeout_s=1))
    assert refusal.value.code == "GBE640"
    assert refusal.value.where == Place(__file__, on_order.__code__.co_firstlineno)
