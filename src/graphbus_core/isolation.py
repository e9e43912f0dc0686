"""Calls the code of users: an Exception is an outcome and does not spread; everything else, e.g. KeyboardInterrupt, is raised.

What it has started as processes can be found by a mark, and ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable, Container, Generator, Iterable, Iterator
from contextlib import suppress
from types import CoroutineType, coroutine
from typing import Any, Protocol, TypeVar

from graphbus_core.errors import RunError

T = TypeVar("T")
R = TypeVar("R")

explain_exception: Callable[[Exception], Exception] = lambda error: error  # noqa: E731 - the one place to exchange it
"""Changes an exception before it is shown; a confined process adds which power was missing."""


def run_each(calls: Iterator[Callable[[T], object]], argument: T, failed: Callable[[Exception], object]) -> None:
    """Call each of `calls`; the Exception of one goes to `failed` and does not keep the next from being called."""
    while True:
        try:  # around the loop: inside of it, it would cost each call a step
            for call in calls:
                call(argument)
            return
        except Exception as error:  # noqa: BLE001 - what a handler raises is its own affair: isolation
            failed(error)


def attempt(work: Callable[[], R]) -> tuple[R | None, Exception | None]:
    """Call `work` and give its result and None, or None and the Exception that it raised."""
    results: list[R] = []
    errors: list[Exception] = []
    run_each(iter([lambda _nothing: results.append(work())]), None, errors.append)
    return (results[0], None) if results else (None, errors[0])


def make_fast_check(
    accept: Callable[[Any, T], object], argument: T, kinds: Container[type], otherwise: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Make a function that gives back what `accept` takes without an Exception, and else what `otherwise` makes of it.

    Args:
        accept: Looks at a value, and raises if it is not right.
        argument: Its second argument; to bind it with `partial` would double the time of a short check.
        kinds: The classes whose objects it is called with.
        otherwise: Gets all other values, and those that were refused.
    """

    def gate(value: Any) -> Any:
        if type(value) in kinds:
            try:
                accept(value, argument)
            except Exception:  # noqa: BLE001, S110 - what a value raises when it is looked at is a refusal
                pass
            else:
                return value
        return otherwise(value)

    return gate


def make_fast_call(
    accept: Callable[[Any, Any], object],
    wanted: Any,
    take: Callable[[dict[str, Any]], Iterable[Any]],
    call: Callable[..., Any],
    promised: Any,
    *,
    otherwise: Callable[[Any], Any],
    release: Callable[[Any], Any],
) -> Callable[[dict[str, Any]], Any]:
    """Make a function of a dict that does what `make_fast_check` does before and after a call, in one frame instead of three.

    Args:
        accept: Raises for a dict that is not right; its second argument is `wanted` before the call and `promised` after it.
        take: Gives the arguments of the call out of the dict.
        call: What it raises is raised.
        promised: None: every result is for `release`.
        otherwise: Gets a dict that was refused, and `call` is not called.
        release: Gets a result that was refused or is no dict.
    """

    def run(arguments: dict[str, Any]) -> Any:
        try:
            accept(arguments, wanted)
        except Exception:  # noqa: BLE001, S110 - as above
            pass
        else:
            result = call(*take(arguments))
            if promised is not None and type(result) is dict:
                try:
                    accept(result, promised)
                except Exception:  # noqa: BLE001, S110 - as above
                    pass
                else:
                    return result
            return release(result)
        return otherwise(arguments)

    return run


class Underway(Protocol):
    """Work that may have to be awaited, and its result or error."""

    coroutine: Any
    result: Any
    error: BaseException | None


_UnderwayT = TypeVar("_UnderwayT", bound=Underway)


class _Ended:
    """What a step gives in the place of what it waits for, when there is no further step."""


ENDED = _Ended()


def begin_coroutine(
    work: _UnderwayT, enter: Callable[[_UnderwayT], object], call: Callable[[T], Any], argument: T
) -> Any:
    """Take the first step of an `async def`, after `enter`: `ENDED`, or what it waits for. Whatever it raised is noted.

    Unlike with `run_each`, that is anything: a task that raised KeyboardInterrupt would end the loop while others are at work.
    What it returns is not kept if it ends with this step.
    """
    try:
        enter(work)
        coroutine = call(argument)
        if type(coroutine) is not CoroutineType:
            coroutine = _await(coroutine)
        work.coroutine = coroutine
        for awaited in coroutine.__await__():  # costs half of `send`, which raises StopIteration
            return awaited
    except BaseException as error:  # noqa: BLE001 - it is handed to the thread that has to do with it
        work.error = error
    return ENDED


def begin_work(work: _UnderwayT, enter: Callable[[_UnderwayT], object], call: Callable[[], Any]) -> Any:
    """Do what `begin_coroutine` does with what may be `async def` or not, and keep what it returns."""
    try:
        enter(work)
        coroutine = call()
        if not isinstance(coroutine, Awaitable):
            work.result = coroutine
            return ENDED
        work.coroutine = coroutine if type(coroutine) is CoroutineType else _await(coroutine)
        return resume_work(work, None, None)
    except BaseException as error:  # noqa: BLE001 - as above
        work.error = error
    return ENDED


def resume_work(work: Underway, value: Any, error: BaseException | None) -> Any:
    """Take the next step of work that has begun: with the value that it has waited for, or with this error."""
    try:
        return work.coroutine.send(value) if error is None else work.coroutine.throw(error)
    except StopIteration as end:
        work.result = end.value
    except BaseException as raised:  # noqa: BLE001 - as above
        work.error = raised
    return ENDED


@coroutine
def drive_to_end(awaited: Any, resume: Callable[[Any, BaseException | None], Any]) -> Generator[Any, Any, None]:
    """Wait for what work waits for, `resume` it, and so on until it has ended; a cancellation goes to the work."""
    while awaited is not ENDED:
        try:
            value, error = (yield awaited), None
        except BaseException as raised:  # noqa: BLE001 - the work decides about it
            value, error = None, raised
        awaited = resume(value, error)


async def _await(work: Awaitable[Any]) -> Any:
    return await work


class CallRound(Protocol):
    """A round of calls; `at` says whom the last one belongs to, and `rest` gives those that come after it."""

    at: Any
    pairs: list[tuple[Any, Callable[[Any], object]]]

    def rest(self) -> list[tuple[Any, Callable[[Any], object]]]:
        """What is left."""


_RoundT = TypeVar("_RoundT", bound=CallRound)


def run_round(round_: _RoundT, argument: object, failed: Callable[[_RoundT, Exception], object]) -> None:
    """Do what `run_each` does with a round."""
    pairs = round_.pairs
    while True:
        try:
            for round_.at, call in pairs:
                call(argument)
            return
        except Exception as error:  # noqa: BLE001 - as above
            failed(round_, error)
        pairs = round_.rest()


def attempt_anything(work: Callable[[], object]) -> BaseException | None:
    """Call `work` at the bottom of a thread, where nobody above could hear of it, and give what it raised, if anything."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - as above
        return error
    return None


class Job:
    """Work that another thread does and this one waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._result: Any = None
        self._error: Exception | None = None
        self._is_done = False
        self.is_over = False

    def perform(self) -> None:
        """Do the work, once."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._result, self._error = attempt(work)
                self._is_done = True
        finally:
            self.is_over = True

    def give_up(self) -> None:
        """Nobody waits any more, or nobody will do it: what has not begun is not done."""
        if self._work is not None:
            self._work = None
            self.is_over = True

    @property
    def is_refused(self) -> bool:
        """It was interrupted, or nobody will do it."""
        return self.is_over and not self._is_done

    def result(self) -> Any:
        """Give the result, or raise the Exception that the work has raised, or GBE618 when it was interrupted."""
        if not self._is_done:
            raise RunError("GBE618")
        if self._error is not None:
            raise self._error
        return self._result


def kill_marked_processes(variable: str, value: str) -> None:
    """Kill the processes that bear a mark in their environment, and those that they start meanwhile.

    Who has left the group and the session of its parent is found by it; who has given up its environment is not, nor is anybody
    where there is no /proc.
    """
    for _ in range(50):
        left = _marked(f"{variable}={value}".encode())
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _marked(mark: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with (
                suppress(OSError),
                open(f"/proc/{name}/environ", "rb") as environ,
            ):  # it may be somebody else's, or gone
                if mark in environ.read().split(b"\0"):
                    found.append(int(name))
    return found
