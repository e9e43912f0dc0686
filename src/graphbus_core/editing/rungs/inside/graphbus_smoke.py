"""Calls methods of fresh agents with made-up values: `graphbus_smoke.py [[root, ...], [trial, ...]]`.

A trial is `[module, class, method, kind, topic, shape, values]`. What an agent publishes is kept; what it asks of others, or of
the world, ends that call as `needs` and proves nothing.
"""

from __future__ import annotations

import importlib
import json
import opcode
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import graphbus_line  # type: ignore[import-not-found,unused-ignore]
import graphbus_raised  # type: ignore[import-not-found,unused-ignore]

_LONGEST_S = 10


class NeedsMoreError(BaseException):
    """The agent asks for something that is not here."""


class Alone:
    """What ties a node to a graph in which it is alone."""

    def publish(self, topic: str, payload: object = None, *, src: str = "") -> None:
        """Let the payload be written, as a bus would."""
        json.dumps(payload, default=str)

    def __getattr__(self, name: str) -> Any:
        raise NeedsMoreError(name)


def main() -> None:
    """Make the calls in a process of their own."""
    say, leave = graphbus_line.connect(), os._exit
    roots, trials = graphbus_line.take_work()
    sys.path[:1] = [*roots, ""]
    del sys.modules["graphbus_line"], sys.modules["graphbus_raised"]
    call(trials, say)
    leave(0)


def call(trials: list[list[Any]], say: Callable[[object], None]) -> None:
    """Say for each trial and each value: `ok` and the result, `raises` and the error, or `needs`.

    The process is ended after 10 s of processor time.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, _LONGEST_S)
    for trial in trials:
        for value in trial[-1]:
            answer = _try(trial, value, starts=False)
            say(_try(trial, value, starts=True) if answer[0] == "raises" else answer)
    signal.setitimer(signal.ITIMER_PROF, 0)
    say(["end"])


def _try(trial: list[Any], value: Any, *, starts: bool) -> list[Any]:
    module, name, method, kind = trial[:4]
    try:
        node = getattr(importlib.import_module(module), name)()
        node._connection = Alone()
        if starts:
            node.on_start()
    except BaseException as error:  # noqa: BLE001 - an agent that cannot be made cannot be tried
        return ["needs", type(error).__name__]
    try:
        result = _call(getattr(node, method), trial, value)
    except _WRONG as error:
        is_said = isinstance(error, KeyError) and bool(error.args) and repr(error.args[0]) in repr(value)
        return ["needs" if is_said or _is_meant(error) else "raises", _tell(error)]
    except BaseException as error:  # noqa: BLE001 - the value may be refused, or something may be missing here
        return ["needs", type(error).__name__]
    try:
        return ["ok", json.loads(json.dumps(result)) if kind == "call" else None]
    except (TypeError, ValueError):
        return ["needs", "result"]


_tell = graphbus_raised.teller()
_WRONG = (NameError, AttributeError, TypeError, KeyError, RecursionError, NotImplementedError)


def _is_meant(error: BaseException) -> bool:
    """Tell whether a `raise` of the code itself said so: it refuses the value, and may have reason to."""
    if isinstance(error, NotImplementedError) or error.__traceback__ is None:
        return False
    step = error.__traceback__
    while step.tb_next:
        step = step.tb_next
    return opcode.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _call(function: Any, trial: list[Any], value: Any) -> Any:
    kind, topic, shape = trial[3:6]
    if kind == "call":
        result = function(**value)
    else:
        from graphbus_core.bus.signatures import bind
        from graphbus_core.model.messages import Event

        result = bind(function, shape="topic_payload" if shape == "topic_payload" else None).call(Event(topic, value))
    if hasattr(result, "__await__"):
        import asyncio

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())
    return result


if __name__ == "__main__":
    main()
