"""Runs the handler of a lease on the bus of a graph: what it publishes and stores is collected, and nothing of it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import Delivery
from graphbus_core.bus.dead_letters import Failure, describe_failure
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.state import CapturedChange, capture_changes
from graphbus_core.model.messages import Event

_MISFITS = frozenset({"GBE614", "GBE617", "GBE650"})
"""The errors of a payload that does not fit its schema, lacks a field, or does not fit the class of a parameter."""


class Attempt(msgspec.Struct, frozen=True):
    """What one call of a handler has led to: its exception, or the events that it published and its changes of states."""

    error: Exception | None = None
    outgoing: Sequence[Event] = ()
    state: Sequence[CapturedChange] = ()
    failure: Failure | None = None

    def described(self) -> Attempt:
        """Return the attempt with a description of its error as `failure`, if it has one."""
        if self.error is None:
            return self
        return msgspec.structs.replace(self, failure=describe_failure(self.error))

    @property
    def is_cut_off(self) -> bool:
        """True if the bus was closed before the handler ended."""
        return isinstance(self.error, GraphBusError) and self.error.code == "GBE618"

    @property
    def is_misfit(self) -> bool:
        """True if the payload does not fit what the handler takes."""
        return isinstance(self.error, GraphBusError) and self.error.code in _MISFITS


def run_handler(
    bus: MessageBus,
    subscription: LiveSubscription,
    event: Event,
    number: int,
    on_end: Callable[[Attempt], None],
) -> None:
    """Let a bus deliver an event to one subscription, and call `on_end` with the result, perhaps on another thread.

    Changes of states and published events are collected, and nothing of them is written here.

    Args:
        bus: The bus.
        subscription: One of its subscriptions.
        event: The event.
        number: The number of the attempt, from 1, which middleware sees.
        on_end: Called once.
    """
    changes: list[CapturedChange] = []
    handler = subscription.call if subscription.again is None else subscription.again(number)

    def call(event: Event) -> Any:
        with capture_changes() as capture:
            result = handler(event)
            changes[:] = capture.changes()
            return result

    async def call_async(event: Event) -> Any:
        with capture_changes() as capture:
            result = await handler(event)  # type: ignore[misc]  # it is an `async def`
            changes[:] = capture.changes()
            return result

    def end(delivery: Delivery) -> None:
        error = delivery.error
        if error is None:
            on_end(Attempt(None, outbox, changes))
        elif isinstance(error, Exception):
            on_end(Attempt(error))
        else:  # such as the CancelledError of a task that the handler awaits
            failed = RuntimeError(f"the handler was ended by {type(error).__name__}")
            failed.__cause__ = error
            on_end(Attempt(failed))

    outbox: list[Event] = []
    policy = subscription.policy
    bus.hosting.deliver(
        Delivery(
            call_async if subscription.is_async else call,
            subscription.lane,
            event,
            subscription,
            attempt=number,
            timeout_s=policy.timeout_s,
            on_end=end,
            outbox=outbox,
        )
    )
