"""Middleware: functions that wrap every handler and every call, for example to measure, to log or to refuse them.

    def timed(handling: Handling) -> Iterator[None]:      # a function with one `yield`
        started = perf_counter()
        try:
            yield                                         # the handler runs here, plain or async
        finally:
            record(handling.name, perf_counter() - started)

An exception before the `yield` refuses the event or call. An exception of the handler is raised at the `yield`; middleware that
catches it and returns has handled it. Without middleware there is no cost, because handlers are wrapped when they subscribe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextvars import Context
from types import GeneratorType, TracebackType
from typing import Any, Literal

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt
from graphbus_core.model.messages import Event

Kind = Literal["event", "call"]


class Handling(msgspec.Struct, frozen=True, gc=False):
    """The handler or method call that a middleware wraps.

    Attributes:
        kind: `"event"` for a handler, `"call"` for a method.
        agent: The agent that the handler or method belongs to; empty for a handler without an agent.
        name: `Agent.method`.
        event: The event, for a handler.
        arguments: The arguments, for a method.
        attempt: 1 for the first delivery of this event to this handler; it grows with each retry.
        key: For a handler, the field of the payload by which its subscription keeps events in order; empty without one.
        caller: For a method, the context variables of its caller, because the method may run on another thread.
    """

    kind: Kind
    agent: str
    name: str
    event: Event | None = None
    arguments: Mapping[str, Any] = {}
    attempt: int = 1
    caller: Context | None = None
    key: str = ""


Middleware = Callable[[Handling], Iterator[None]]
"""A generator function with exactly one `yield`, or a callable object that returns such a generator.

An object may also have a method `on_root(event)`. The bus calls it on the publisher's thread for every event that comes from
outside of all handlers and is delivered later or by another thread, before the event is queued.
"""


def run_with_middleware(middleware: Sequence[Middleware], handling: Handling, work: Callable[[], Any]) -> Any:
    """Call `work` inside of all middleware, outermost first, and return its result.

    When the result is an awaitable, this returns an awaitable, and the middleware stays open until that has ended. The result is
    None when a middleware catches the exception at its `yield`. KeyboardInterrupt, the cancellation of a task and everything
    else that is no `Exception` is always raised.

    Raises:
        Exception: What the work or one of the middleware raises.
        RunError: GBE660 for middleware that returns no generator, GBE661 when it does not yield, GBE662 when it yields twice.
    """
    if not middleware:
        return work()
    outermost = _OpenMiddleware(middleware[0], handling)
    result: Any = None
    with outermost:
        result = run_with_middleware(middleware[1:], handling, work)
        # the first two tests only save time: `isinstance` is slow with an abstract class
        outermost.is_left_open = result is not None and type(result) is not dict and isinstance(result, Awaitable)
    return _await_inside(outermost, result) if outermost.is_left_open else result


async def _await_inside(opened: _OpenMiddleware, result: Awaitable[Any]) -> Any:
    """Await the result with the middleware entered again, so that it sees the exception and the end of async work."""
    opened.is_left_open = False
    with opened:
        return await result


def wrap_handler(
    middleware: Sequence[Middleware],
    call: Callable[[Event], object],
    *,
    agent: str,
    name: str,
    is_async: bool,
    attempt: int = 1,
    key: str = "",
) -> Callable[[Event], object]:
    """Return a function of one event that runs the handler `call` inside of the middleware; it is async if `is_async`."""

    def call_inside(event: Event) -> Any:
        return run_with_middleware(
            middleware, Handling("event", agent, name, event, attempt=attempt, key=key), lambda: call(event)
        )

    async def call_inside_async(event: Event) -> Any:
        result = call_inside(event)
        # it is no awaitable if a middleware has refused the event, and another one has handled that exception
        return await result if isinstance(result, Awaitable) else result

    return call_inside_async if is_async else call_inside


def describe_middleware(middleware: Middleware) -> str:
    """Return the name of a middleware for messages, `module.name`; for an object that of its class."""
    named = middleware if hasattr(middleware, "__qualname__") else type(middleware)
    return f"{named.__module__}.{named.__qualname__}"


class _OpenMiddleware:
    """Context manager for one middleware around one piece of work: its generator runs to the `yield`, and on at the end.

    For async work it is entered twice: around the call that returns the awaitable (then `is_left_open` keeps the exit from
    resuming the generator), and around awaiting it.
    """

    __slots__ = ("_generator", "_handling", "_middleware", "is_left_open")

    def __init__(self, middleware: Middleware, handling: Handling) -> None:
        self._middleware = middleware
        self._handling = handling
        self._generator: Generator[None, None, None] | None = None
        self.is_left_open = False

    def __enter__(self) -> None:
        """Run the generator to its `yield`; a second entry does nothing."""
        if self._generator is not None:
            return
        generator = self._middleware(self._handling)
        # the usual type is tested first, because `isinstance` is slow with an abstract class
        if type(generator) is not GeneratorType and not isinstance(generator, Generator):
            raise RunError("GBE660", middleware=describe_middleware(self._middleware), found=type(generator).__name__)
        self._generator = generator
        for _ in generator:  # not `next`: its StopIteration could not be told from one that the work raises
            return
        raise RunError("GBE661", middleware=describe_middleware(self._middleware))

    def __exit__(self, _kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Resume the generator at its `yield`, with the error if there is one; True if the middleware has handled it."""
        generator = self._generator
        if generator is None or self.is_left_open:
            return False
        if error is None:
            for _ in generator:  # it runs once if there is a second `yield`, else not at all
                raise self._second_yield_error(generator)
            return False
        return self._throw_error(generator, error, trace)

    def _throw_error(
        self, generator: Generator[None, None, None], error: BaseException, trace: TracebackType | None
    ) -> bool:
        """Raise the error at the `yield` of the generator.

        Returns:
            True when the middleware has handled it; False when it has raised it again, or may not handle it.

        Raises:
            Exception: Any other exception that the middleware has raised instead, and GBE662 when it yields again.
        """
        _, raised = attempt(lambda: generator.throw(error))
        if raised is None:
            raise self._second_yield_error(generator)
        if raised is error or (isinstance(error, StopIteration) and raised.__cause__ is error):
            error.__traceback__ = trace  # drop the frames of the middleware, which only passed it on
            return False
        if not isinstance(error, Exception):  # KeyboardInterrupt and the like are always raised
            return False
        if isinstance(raised, StopIteration):  # the generator has returned
            return True
        raise raised

    def _second_yield_error(self, generator: Generator[None, None, None]) -> RunError:
        """Close a generator that has yielded twice, and return the error GBE662."""
        attempt(generator.close)
        return RunError("GBE662", middleware=describe_middleware(self._middleware))
