"""Every stack of up to three ways to write middleware, around every kind of work: as `with` statements would have it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any

from graphbus_core.errors import RunError
from graphbus_core.middleware import Handling, run_with_middleware

HERE = Handling("event", "Shop", "Shop.on_order")
Log = list[str]
Make = Callable[[Log], Callable[[Handling], Iterator[None]]]


def lets_pass(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        log.append("pass+")
        try:
            yield
        finally:
            log.append("pass-")

    return middleware


def refuses(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        log.append("refuse")
        raise PermissionError
        yield

    return middleware


def swallows(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        with suppress(Exception):
            yield
        log.append("swallow-")

    return middleware


def replaces(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            log.append("replace")
            raise ValueError from error

    return middleware


def fails_afterwards(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        yield
        log.append("late")
        raise LookupError

    return middleware


def does_not_yield(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        log.append("none")
        return
        yield

    return middleware


def yields_twice(log: Log) -> Any:
    def middleware(_handling: Handling) -> Iterator[None]:
        with suppress(LookupError):
            yield
        log.append("twice")
        yield

    return middleware


WAYS: list[Make] = [lets_pass, refuses, swallows, replaces, fails_afterwards, does_not_yield, yields_twice]


def give(log: Log) -> str:
    log.append("work")
    return "given"


def fail(log: Log) -> str:
    log.append("work")
    raise LookupError


def expected(stack: list[Make], work: Callable[[Log], str]) -> tuple[Any, Log]:
    """What nested `with` statements do; a generator that does not yield once is a RuntimeError there."""
    log: Log = []

    def nested(rest: list[Make]) -> str | None:
        if not rest:
            return work(log)
        with contextmanager(rest[0](log))(HERE):
            return nested(rest[1:])
        return None

    try:
        result = nested(stack)
    except RuntimeError as error:
        return "GBE661" if "didn't yield" in str(error) else "GBE662", log
    except (PermissionError, ValueError, LookupError) as error:
        return type(error), log
    return result, log


def outcome(stack: list[Make], work: Callable[[Log], Any]) -> tuple[Any, Log]:
    log: Log = []
    try:
        result = run_with_middleware([make(log) for make in stack], HERE, lambda: work(log))
        return (asyncio.run(_await(result)) if isinstance(result, Awaitable) else result), log
    except RunError as error:
        return error.code, log
    except (PermissionError, ValueError, LookupError) as error:
        return type(error), log


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def later(work: Callable[[Log], str]) -> Callable[[Log], Awaitable[str]]:
    async def wait(log: Log) -> str:
        return work(log)

    return wait


def stacks(most: int) -> list[list[Make]]:
    return [list(stack) for size in range(most + 1) for stack in product(WAYS, repeat=size)]


def test_plain_work_is_surrounded_as_by_with_statements() -> None:
    for stack, work in product(stacks(3), (give, fail)):
        assert outcome(stack, work) == expected(stack, work), ([make.__name__ for make in stack], work.__name__)


def test_async_work_is_surrounded_as_plain_work_is() -> None:
    for stack, work in product(stacks(2), (give, fail)):
        assert outcome(stack, later(work)) == expected(stack, work), ([make.__name__ for make in stack], work.__name__)
