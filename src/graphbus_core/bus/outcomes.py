"""Outcomes: what is to become of an event after an attempt, decided from the policy, the attempt and the error alone.

    Done()          handled, or nobody's business any more
    Retry(at)       deliver it again to this subscription, not before
    Dead(reason)    keep it as a dead letter

Who delivers, a bus or its dead letters, carries these three out and decides nothing itself.
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
    """The event is to be delivered again at this time, in seconds on the clock that was asked for `now`."""

    at: float


class Dead(msgspec.Struct, frozen=True):
    """The event becomes a dead letter.

    Attributes:
        reason: The same attempt would fail again (`final`), the exception is not in `retry_on` (`unlisted`), or there is no
            further attempt (`exhausted`).
    """

    reason: Literal["final", "unlisted", "exhausted"]


Outcome = Done | Retry | Dead
"""What becomes of an event after an attempt to handle it."""

_LONGEST_S = 1e9
MAX_BACKOFF_S = 300.0
"""No attempt waits longer for its turn than this, unless `backoff` itself is longer."""

FINAL_CODES = frozenset(
    {
        "GBE610",  # malformed topic
        "GBE611",  # a signature that cannot be served
        "GBE612",  # a payload that is not JSON
        "GBE613",  # a payload that is too large
        "GBE614",  # a payload that does not fit its schema
        "GBE617",  # a field that the payload does not have
        "GBE619",  # a topic that nobody knows
        "GBE620",  # an agent that is not there
        "GBE621",  # a method that is not there
        "GBE622",  # arguments that do not fit
        "GBE623",  # a result that does not fit
        "GBE624",  # a dependency that is not declared
        "GBE628",  # a call that cannot be awaited
        "GBE631",  # a request that nobody answers
        "GBE632",  # a request that several would answer
        "GBE633",  # a request that would wait for itself
        "GBE634",  # a receipt that would wait for itself
        "GBE637",  # a request at the end of too long a chain
        "GBE638",  # a bus that has an event loop already
        "GBE639",  # an event loop that is not that of the bus
        "GBE641",  # a state that is not JSON
        "GBE642",  # a state that is too large
        "GBE643",  # a file that is damaged or somebody else's
        "GBE648",  # a handler that would wait for itself
        "GBE650",  # a payload that the class of a handler's parameter does not take
        "GBE660",  # middleware that makes no generator
        "GBE661",  # middleware that does not yield
        "GBE662",  # middleware that yields twice; the handler has run
        "GBE680",  # an agent that was left out
        "GBE696",  # or that runs elsewhere
        "GBE681",  # a person has said so
    }
)
"""Refusals that say that the event, the code or a contract is wrong: the same event would be refused again."""

_DONE = Done()


def decide(policy: DeliveryPolicy, attempt: int, error: Exception | None, now: float = 0.0) -> Outcome:
    """Decide what becomes of an event after an attempt to handle it.

    Args:
        policy: Of the subscription.
        attempt: Which attempt it was, from 1.
        error: What the handler raised, a TimeoutError of its time limit included; None when it returned.
        now: What time it is, in seconds.
    """
    if error is None:
        return _DONE
    kind = type(error)  # `isinstance` would ask the object, which may be of any class
    if issubclass(kind, GraphBusError) and cast("GraphBusError", error).code in FINAL_CODES:
        return Dead(reason="final")
    if not issubclass(kind, policy.retry_on):
        return Dead(reason="unlisted")
    if attempt > policy.retries:
        return Dead(reason="exhausted")
    return Retry(now + backoff_s(policy, attempt))


def backoff_s(policy: DeliveryPolicy, attempt: int) -> float:
    """How long to wait after this failed attempt: twice as long as after the one before, up to a limit.

    There is no jitter: what is due at once is delivered one after the other by a bus, and does not meet in a herd.
    """
    longest = max(MAX_BACKOFF_S, policy.backoff_s)
    doublings = min(attempt - 1, 64)
    return min(longest, policy.backoff_s * 2.0**doublings)


def check_policy(policy: DeliveryPolicy, *, handler: str, is_async: bool, where: Place | None = None) -> None:
    """Raise RunError GBE640 for a policy that cannot be kept; everything that is wrong with it is one sentence."""
    problems = [f"{option}={value!r}: {wanted}" for option, value, is_good, wanted in _options(policy) if not is_good]
    if not is_async and policy.timeout_s is not None:
        problems.append("a plain `def` cannot be stopped after a timeout")
    if not is_async and policy.concurrency != 1:
        problems.append("a plain `def` has one event in hand at a time")
    if problems:
        raise RunError("GBE640", where=where, handler=handler, reason="; ".join(problems))


def _options(policy: DeliveryPolicy) -> Iterator[tuple[str, object, bool, str]]:
    """Each option as `@subscribe` knows it, its value, whether it can be kept, and what it must be."""
    retries, concurrency = policy.retries, policy.concurrency
    yield "retries", retries, _is_whole(retries) and retries >= 0, "a whole number of at least 0 is needed"
    yield "backoff", policy.backoff_s, _is_number(policy.backoff_s) and policy.backoff_s >= 0, "seconds are needed"
    timeout_s = policy.timeout_s
    is_timeout = timeout_s is None or (_is_number(timeout_s) and timeout_s > 0)
    yield "timeout", timeout_s, is_timeout, "more than 0 seconds are needed"
    yield "concurrency", concurrency, _is_whole(concurrency) and concurrency >= 1, "at least 1 is needed"
    yield "retry_on", policy.retry_on, _are_exceptions(policy.retry_on), "exception classes are needed"


def _are_exceptions(kinds: object) -> bool:
    return isinstance(kinds, tuple) and all(isinstance(each, type) and issubclass(each, Exception) for each in kinds)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= _LONGEST_S
