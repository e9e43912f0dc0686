"""What happens to an event after an attempt to handle it, decided from the policy, the number of the attempt and the error.

    Done()          the event is handled
    Retry(at)       deliver it again to this subscription, not before this time
    Dead(reason)    keep it as a dead letter

The functions are pure. The bus carries the outcome out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

import msgspec

from graphbus_core.errors import GraphBusError, Place, RunError
from graphbus_core.model.deliveries import DeliveryPolicy


class Done(msgspec.Struct, frozen=True):
    """The event is handled."""


class Retry(msgspec.Struct, frozen=True):
    """The event is delivered again at this time, in seconds on the clock that gave `now`."""

    at: float


class Dead(msgspec.Struct, frozen=True):
    """The event becomes a dead letter.

    Attributes:
        reason: The same attempt would fail again (`final`), the exception is not in `retry_on` (`unlisted`), or there is no
            further attempt (`exhausted`).
    """

    reason: Literal["final", "unlisted", "exhausted"]


AttemptOutcome = Done | Retry | Dead
"""What happens to an event after an attempt to handle it."""

_LONGEST_S = 1e9
MAX_BACKOFF_S = 300.0
"""The longest pause between two attempts, unless `backoff` itself is longer."""

FINAL_CODES = frozenset(
    {
        "GBE610",  # malformed topic
        "GBE611",  # a signature that cannot be served
        "GBE612",  # a payload that is not JSON
        "GBE613",  # a payload that is too large
        "GBE614",  # a payload that does not fit its schema
        "GBE617",  # a field that the payload does not have
        "GBE619",  # a topic that no agent declares
        "GBE620",  # an agent that does not exist
        "GBE621",  # a method that does not exist
        "GBE622",  # arguments that do not fit the schema of the method
        "GBE623",  # a result that does not fit the schema of the method
        "GBE624",  # a dependency that is not declared
        "GBE628",  # a call that cannot be awaited
        "GBE631",  # a request that nobody answers
        "GBE632",  # a request that several would answer
        "GBE633",  # a request that would wait for itself
        "GBE634",  # a receipt that would wait for itself
        "GBE637",  # a request at the end of too long a chain
        "GBE638",  # a bus that has an event loop already
        "GBE639",  # `publish_async` on an event loop that is not that of the bus
        "GBE641",  # a state that is not JSON
        "GBE642",  # a state that is too large
        "GBE643",  # a file that is damaged or belongs to another program
        "GBE648",  # a handler that would wait for itself
        "GBE650",  # a payload that the class of a handler's parameter does not take
        "GBE660",  # middleware that makes no generator
        "GBE661",  # middleware that does not yield
        "GBE662",  # middleware that yields twice; the handler has run
        "GBE680",  # an agent that was left out when the graph started
        "GBE696",  # an agent that runs in another process
        "GBE681",  # a handler that a person skipped in the debugger
    }
)
"""Errors in the event, the code or a contract: a further attempt with the same event would fail again."""

_DONE = Done()


def decide_outcome(policy: DeliveryPolicy, attempt: int, error: Exception | None, now: float = 0.0) -> AttemptOutcome:
    """Decide what happens to an event after an attempt to handle it.

    Args:
        policy: The policy of the subscription.
        attempt: The number of the attempt, from 1.
        error: The exception of the handler, TimeoutError for its time limit; None when it returned.
        now: The current time in seconds; the time of a `Retry` is on the same clock.
    """
    if error is None:
        return _DONE
    kind = type(error)  # `isinstance` could call code of the user: an exception may define `__class__`
    if issubclass(kind, GraphBusError) and cast("GraphBusError", error).code in FINAL_CODES:
        return Dead(reason="final")
    if not issubclass(kind, policy.retry_on):
        return Dead(reason="unlisted")
    if attempt > policy.retries:
        return Dead(reason="exhausted")
    return Retry(now + backoff_s(policy, attempt))


def backoff_s(policy: DeliveryPolicy, attempt: int) -> float:
    """Return the seconds to wait after this failed attempt: twice as many as after the one before, up to `MAX_BACKOFF_S`.

    There is no jitter: a bus delivers one event after the other, so that attempts due at the same time do not collide.
    """
    longest = max(MAX_BACKOFF_S, policy.backoff_s)
    doublings = min(attempt - 1, 64)
    return min(longest, policy.backoff_s * 2.0**doublings)


def check_policy(policy: DeliveryPolicy, *, handler: str, is_async: bool, where: Place | None = None) -> None:
    """Raise RunError GBE640 for a policy that the bus cannot carry out; the message names every wrong option."""
    problems = [
        f"{option}={value!r}: {rule}" for option, value, is_valid, rule in _check_options(policy) if not is_valid
    ]
    if not is_async and policy.timeout_s is not None:
        problems.append("`timeout` needs an `async def` handler: a plain `def` cannot be stopped")
    if not is_async and policy.concurrency != 1:
        problems.append("`concurrency` needs an `async def` handler: a plain `def` handles one event at a time")
    if problems:
        raise RunError("GBE640", where=where, handler=handler, reason="; ".join(problems))


def _check_options(policy: DeliveryPolicy) -> Iterator[tuple[str, object, bool, str]]:
    """Yield for each option of `@subscribe`: its name, its value, whether that is valid, and the condition in words."""
    retries, concurrency = policy.retries, policy.concurrency
    yield "retries", retries, _is_whole(retries) and retries >= 0, "it must be a whole number of at least 0"
    yield (
        "backoff",
        policy.backoff_s,
        _is_number(policy.backoff_s) and policy.backoff_s >= 0,
        "it must be a number of seconds",
    )
    timeout_s = policy.timeout_s
    is_timeout = timeout_s is None or (_is_number(timeout_s) and timeout_s > 0)
    yield "timeout", timeout_s, is_timeout, "it must be more than 0 seconds"
    yield "concurrency", concurrency, _is_whole(concurrency) and concurrency >= 1, "it must be at least 1"
    yield "on_retry", policy.on_retry, policy.on_retry in ("block", "skip"), 'it must be "block" or "skip"'
    yield "key", policy.key, isinstance(policy.key, str), "it must be the name of a field of the payload"
    yield "retry_on", policy.retry_on, _are_exceptions(policy.retry_on), "it must be exception classes"


def _are_exceptions(kinds: object) -> bool:
    return isinstance(kinds, tuple) and all(isinstance(each, type) and issubclass(each, Exception) for each in kinds)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """True for a number of at most `_LONGEST_S`; False for NaN and for a bool."""
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= _LONGEST_S
