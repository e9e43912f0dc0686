"""Middleware: what goes around every handler and every call, e.g. to measure, to log, or to refuse.

    def timed(handling: Handling) -> Iterator[None]:      # a function with one `yield`
        started = perf_counter()
        try:
            yield                                         # the handler runs here, plain or async
        finally:
            record(handling.name, perf_counter() - started)

An exception before the `yield` refuses the event or call; one that the handler raises comes out of the `yield`, and who
catches it and returns has handled it. A bus without middleware pays nothing: what is wrapped is decided at `subscribe`.
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
    """What is about to run.

    Attributes:
        kind: A handler gets an `event`, or a method a `call`.
        agent: The agent that it belongs to; empty for a handler that belongs to none.
        name: `Agent.method`.
        event: The event, for a handler.
        arguments: The arguments, for a method.
        attempt: 1 for the first time that this event goes to this handler.
        caller: The context variables of who calls, for a method: it may run on another thread than the one that calls it.
    """

    kind: Kind
    agent: str
    name: str
    event: Event | None = None
    arguments: Mapping[str, Any] = {}
    attempt: int = 1
    caller: Context | None = None


Middleware = Callable[[Handling], Iterator[None]]
"""A generator function with exactly one `yield`, or a callable object that gives such a generator.

An object may have a method `on_root(event)` as well: it is called with every event that no handler has caused and that waits for
its delivery by another thread or a later turn, on the thread of its publisher, before it waits.
"""


def run_with_middleware(middleware: Sequence[Middleware], handling: Handling, work: Callable[[], Any]) -> Any:
    """Do the work inside of all the middleware, outermost first; async work gives an awaitable that does.

    The middleware of async work stays open until the work is awaited to its end. An exception that one catches at its `yield`
    without raising goes no further outwards, and the result is None then; what is no `Exception`, like KeyboardInterrupt or the
    cancellation of a task, goes on up whatever the middleware does.

    Raises:
        Exception: What the work or one of the middleware raises.
        RunError: GBE660 middleware that makes no generator, GBE661 that does not yield, GBE662 that yields twice.
    """
    if not middleware:
        return work()
    around = _Around(middleware[0], handling)
    result: Any = None
    with around:
        result = run_with_middleware(middleware[1:], handling, work)
        around.is_left_open = result is not None and type(result) is not dict and isinstance(result, Awaitable)
    return _finish(around, result) if around.is_left_open else result


async def _finish(around: _Around, result: Awaitable[Any]) -> Any:
    around.is_left_open = False
    with around:
        return await result


def wrap_handler(
    middleware: Sequence[Middleware],
    call: Callable[[Event], object],
    *,
    agent: str,
    name: str,
    is_async: bool,
    attempt: int = 1,
) -> Callable[[Event], object]:
    """Give what to call in the place of a handler that takes an event; an async one stays async."""

    def call_inside(event: Event) -> Any:
        return run_with_middleware(
            middleware, Handling("event", agent, name, event, attempt=attempt), lambda: call(event)
        )

    async def await_inside(event: Event) -> Any:
        result = call_inside(event)
        return await result if isinstance(result, Awaitable) else result  # refused, and the refusal handled

    return await_inside if is_async else call_inside


def describe_middleware(middleware: Middleware) -> str:
    """Name a middleware for people: `module.name`, as far as it has one."""
    named = middleware if hasattr(middleware, "__qualname__") else type(middleware)
    return f"{named.__module__}.{named.__qualname__}"


class _Around:
    """One middleware around one piece of work. It begins when it is entered first; entered again it goes on."""

    __slots__ = ("_generator", "_handling", "_middleware", "is_left_open")

    def __init__(self, middleware: Middleware, handling: Handling) -> None:
        self._middleware = middleware
        self._handling = handling
        self._generator: Generator[None, None, None] | None = None
        self.is_left_open = False

    def __enter__(self) -> None:
        if self._generator is not None:
            return
        generator = self._middleware(self._handling)
        if type(generator) is not GeneratorType and not isinstance(generator, Generator):  # the latter takes its time
            raise RunError("GBE660", middleware=describe_middleware(self._middleware), found=type(generator).__name__)
        self._generator = generator
        for _ in generator:  # unlike `next` it raises no StopIteration, which would look like one of the work
            return
        raise RunError("GBE661", middleware=describe_middleware(self._middleware))

    def __exit__(self, _kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        generator = self._generator
        if generator is None or self.is_left_open:
            return False
        if error is None:
            for _ in generator:
                raise self._yields_again(generator)
            return False
        return self._throw(generator, error, trace)

    def _throw(self, generator: Generator[None, None, None], error: BaseException, trace: TracebackType | None) -> bool:
        """Let the error come out of the `yield`; True when it was handled there."""
        _, raised = attempt(lambda: generator.throw(error))
        if raised is None:
            raise self._yields_again(generator)
        if raised is error or (isinstance(error, StopIteration) and raised.__cause__ is error):
            error.__traceback__ = trace  # without the way through the middleware
            return False
        if not isinstance(error, Exception):
            return False
        if isinstance(raised, StopIteration):
            return True
        raise raised

    def _yields_again(self, generator: Generator[None, None, None]) -> RunError:
        attempt(generator.close)
        return RunError("GBE662", middleware=describe_middleware(self._middleware))
