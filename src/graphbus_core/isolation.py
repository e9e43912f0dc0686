"""Calls code of users so that an Exception becomes a value; other exceptions, such as KeyboardInterrupt, are raised.

Theory of operation. All broad `except` clauses of the runtime are here, one function for each shape of call: one function
(`attempt`), a sequence (`run_each`, `run_round`), a check before a call (`make_fast_check`, `make_fast_call`), and coroutines
(`begin_coroutine`, `begin_work`, `resume_work`, `drive_to_end`). The shapes differ because most of them run once per event, where
each frame and closure costs measurable time. Coroutines also catch BaseException, and hand it to the thread that waits for them:
raised inside a task, KeyboardInterrupt would end the event loop while other coroutines still run.

`kill_marked_processes` ends processes that user code has started and left behind.
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
"""Turns an exception into the one that messages show. A confined process replaces this function, to name the missing power."""


def run_each(calls: Iterator[Callable[[T], object]], argument: T, failed: Callable[[Exception], object]) -> None:
    """Call each of `calls` with the argument; pass an Exception to `failed` and continue with the next call."""
    while True:
        try:  # around the loop, not inside: entering it for each call costs time
            for call in calls:
                call(argument)
            return
        except Exception as error:  # noqa: BLE001 - a failed handler must not stop the others
            failed(error)


def attempt(work: Callable[[], R]) -> tuple[R | None, Exception | None]:
    """Call `work`; return (its result, None), or (None, the Exception that it raised)."""
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - as above
        return None, error


def make_fast_check(
    accept: Callable[[Any, T], object], argument: T, kinds: Container[type], otherwise: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Make a function that returns a value unchanged if `accept` raises nothing for it, else `otherwise(value)`.

    Args:
        accept: Called with a value and `argument`; raises for a value that is not valid.
        argument: Passed to `accept`; binding it with `partial` would double the time of a short check.
        kinds: The exact classes of values that `accept` can judge.
        otherwise: Called with values of other classes, and with those for which `accept` raised.
    """

    def check(value: Any) -> Any:
        if type(value) in kinds:
            try:
                accept(value, argument)
            except Exception:  # noqa: BLE001, S110 - the value itself may raise anything; that counts as not valid
                pass
            else:
                return value
        return otherwise(value)

    return check


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
    """Make a function that checks a dict of arguments, calls `call` and checks its result, in one frame instead of three.

    Args:
        accept: Raises for a dict that is not valid; called with (arguments, `wanted`) and then with (result, `promised`).
        wanted: Describes the arguments, for `accept`.
        take: Returns the positional arguments of `call`, given the dict.
        call: The function; its exceptions are raised.
        promised: Describes the result, for `accept`; None passes every result to `release`.
        otherwise: Called instead of `call` with arguments that are not valid; its result is returned.
        release: Called with a result that is not valid or no dict; its result is returned.
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
    """Holds a coroutine that runs step by step, and then its result or error. `bus.loop` implements it."""

    coroutine: Any
    result: Any
    error: BaseException | None


_UnderwayT = TypeVar("_UnderwayT", bound=Underway)


class _Ended:
    """The class of `ENDED`, which a step returns when the coroutine has ended and waits for nothing more."""


ENDED = _Ended()


def begin_coroutine(
    work: _UnderwayT, enter: Callable[[_UnderwayT], object], call: Callable[[T], Any], argument: T
) -> Any:
    """Run an `async def` function up to its first `await`, without a task.

    Args:
        work: Receives the coroutine, and any exception, BaseException included, as `error`. The result is not stored.
        enter: Called with `work` first.
        call: The `async def` function.
        argument: Its argument.

    Returns:
        The object that the coroutine waits for, or `ENDED`.
    """
    try:
        enter(work)
        coroutine = call(argument)
        if type(coroutine) is not CoroutineType:
            coroutine = _as_coroutine(coroutine)
        work.coroutine = coroutine
        for awaited in coroutine.__await__():  # takes half the time of `send`, which ends with StopIteration
            return awaited
    except BaseException as error:  # noqa: BLE001 - passed on through `work.error`
        work.error = error
    return ENDED


def begin_work(work: _UnderwayT, enter: Callable[[_UnderwayT], object], call: Callable[[], Any]) -> Any:
    """Do what `begin_coroutine` does for a function that may be async or not, and store its result in `work.result`."""
    try:
        enter(work)
        coroutine = call()
        if not isinstance(coroutine, Awaitable):
            work.result = coroutine
            return ENDED
        work.coroutine = coroutine if type(coroutine) is CoroutineType else _as_coroutine(coroutine)
        return resume_work(work, None, None)
    except BaseException as error:  # noqa: BLE001 - as above
        work.error = error
    return ENDED


def resume_work(work: Underway, value: Any, error: BaseException | None) -> Any:
    """Resume a coroutine with the value that it waited for, or with an error; return what it waits for next, or `ENDED`."""
    try:
        return work.coroutine.send(value) if error is None else work.coroutine.throw(error)
    except StopIteration as end:
        work.result = end.value
    except BaseException as raised:  # noqa: BLE001 - as above
        work.error = raised
    return ENDED


@coroutine
def drive_to_end(awaited: Any, resume: Callable[[Any, BaseException | None], Any]) -> Generator[Any, Any, None]:
    """Await `awaited`, pass its value or error to `resume`, await what that returns, and so on until it returns `ENDED`.

    `begin_coroutine` or `begin_work` has returned `awaited`. A cancellation of this coroutine is passed on as an error.
    """
    while awaited is not ENDED:
        try:
            value, error = (yield awaited), None
        except BaseException as raised:  # noqa: BLE001 - raised again inside of the coroutine by `resume`
            value, error = None, raised
        awaited = resume(value, error)


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    """Wrap an awaitable that is not a coroutine in one."""
    return await work


class CallRound(Protocol):
    """The handlers of one event that a thread calls in order. `bus.core.DeliveryRound` implements it.

    Attributes:
        at: The first half of the pair whose call is running or ran last.
        pairs: (owner, function of the event), in order.
    """

    at: Any
    pairs: list[tuple[Any, Callable[[Any], object]]]

    def rest(self) -> list[tuple[Any, Callable[[Any], object]]]:
        """Remove from `pairs` the one that `at` names and those before it, and return the remaining ones."""


_RoundT = TypeVar("_RoundT", bound=CallRound)


def run_round(round_: _RoundT, argument: object, failed: Callable[[_RoundT, Exception], object]) -> None:
    """Call every function of the round with the argument, and set `at` before each call.

    An Exception is passed to `failed` with the round; then the next function is called.
    """
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
    """Call `work` as the outermost function of a thread, and return the exception of any kind that it raised, or None."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - as above
        return error
    return None


class Job:
    """A function that one thread passes to another one, and its result. One `perform` or `give_up` ends it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._result: Any = None
        self._error: Exception | None = None
        self._is_done = False
        self.is_over = False

    def perform(self) -> None:
        """Call the function on the current thread, unless it was called before or the job was given up."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._result, self._error = attempt(work)
                self._is_done = True
        finally:
            self.is_over = True

    def give_up(self) -> None:
        """Cancel the job if it has not begun."""
        if self._work is not None:
            self._work = None
            self.is_over = True

    @property
    def is_refused(self) -> bool:
        """True when the job was given up before it began, or an exception such as KeyboardInterrupt ended it."""
        return self.is_over and not self._is_done

    def result(self) -> Any:
        """Return the result, or raise the Exception of the function; RunError GBE618 for a job that was refused."""
        if not self._is_done:
            raise RunError("GBE618")
        if self._error is not None:
            raise self._error
        return self._result


def kill_marked_processes(variable: str, value: str) -> None:
    """Kill all processes whose environment has `variable=value`, and those that they start in the meantime.

    This also finds processes that have left the process group and session of their parent. It does not find processes with a new
    environment, and none at all on systems without /proc.
    """
    for _ in range(50):  # a process may fork between the search and the kill
        left = _find_pids(f"{variable}={value}".encode())
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _find_pids(mark: bytes) -> list[int]:
    """Return the ids of the processes whose environment contains the entry `mark`, as `NAME=value`."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            # Such a process may have ended meanwhile, or belong to another user.
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    found.append(int(name))
    return found
