"""Middleware: what goes around every handler and every call, e.g. to measure, to log, or to refuse.

    def timed(handling: Handling) -> Iterator[None]:      # a function with one `yield`
        started = perf_counter()
        try:
            yield                                         # the handler runs here, plain or async
        finally:
            record(handling.name, perf_counter() - started)

An exception before the `yield` refuses the event or call; one that the handler raises comes out of the `yield`.
A bus without middleware pays nothing for it: what is wrapped is decided when a topic comes into use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from graphbus_core.model.messages import Event

Kind = Literal["event", "call"]


class Handling(msgspec.Struct, frozen=True, gc=False):
    """What is about to run.

    Attributes:
        kind: A handler gets an `event`, or a method a `call`.
        agent: The agent that it belongs to; empty for a handler that belongs to none.
        name: `Agent.method`.
        event: The event, for a handler.
        arguments: The arguments, for a method.
        attempt: 1 for the first time that this event goes to this handler.
    """

    kind: Kind
    agent: str
    name: str
    event: Event | None = None
    arguments: Mapping[str, Any] = {}
    attempt: int = 1


Middleware = Callable[[Handling], Iterator[None]]
"""A generator function with exactly one `yield`, or a callable object that gives such a generator."""


def surround(middleware: Sequence[Middleware], handling: Handling, work: Callable[[], Any]) -> Any:
    """Do the work inside of all the middleware, outermost first; async work gives an awaitable that does.

    Raises:
        Exception: What the work or one of the middleware raises.
    """
    raise NotImplementedError


__all__ = ["Awaitable", "Handling", "Kind", "Middleware", "surround"]
