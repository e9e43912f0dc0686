"""Breakpoints: middleware that stops in pdb at the first line of a handler or method.

    thread of the handler:  middleware -> sys.settrace -> first line of the handler -> pdb at the terminal -> continue

While the debugger waits for commands, this thread delivers nothing else.
"""

from __future__ import annotations

import bdb
import pdb
import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, cast

import msgspec

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.middleware import Handling

_SKIPPED_MODULES = ("graphbus_core.*", "asyncio.*", "threading", "contextlib", "functools", "logging")
_SHOWN_CHARACTERS = 400
_HELP = "c(ontinue), skip, q(uit), and all of pdb: n, s, l, h, `event`"


def _use_stdin(_prompt: str, _reason: str) -> AbstractContextManager[object]:
    """Return a context manager that does nothing: the debugger reads from stdin."""
    return nullcontext()


class Breakpoints:
    """Middleware that stops at the named handlers and methods.

    Args:
        names: The handlers and methods, each as `Agent.method`.
        terminal: Called with the prompt and the reason why the debugger stops; returns a context manager in which the debugger
            reads its commands.

    Attributes:
        names: The same names, as a set that may be changed while the graph runs.
    """

    def __init__(
        self, names: Iterable[str] = (), terminal: Callable[[str, str], AbstractContextManager[object]] = _use_stdin
    ) -> None:
        self.names = set(names)
        self.terminal = terminal

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Run one handler or call, in the debugger if it is named."""
        if handling.name not in self.names:
            yield
            return
        before = sys.gettrace()
        sys.settrace(_Debugger(handling, self).wait_for_handler)
        try:
            yield
        finally:
            sys.settrace(before)


class _Debugger(pdb.Pdb):
    """pdb for one handler: stops at its first line, has a command `skip`, and defines `event` in each frame."""

    def __init__(self, handling: Handling, breakpoints: Breakpoints) -> None:
        super().__init__(skip=_SKIPPED_MODULES, nosigint=True, readrc=False)
        self.prompt = "(graphbus) "
        self._has_stopped = False
        self._breakpoints = breakpoints
        self._handling = handling
        self._leaving: BaseException = RunError("GBE681", name=handling.name)

    def wait_for_handler(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Trace function for `sys.settrace`: start the debugger when the handler is called, and ignore all calls before."""
        if event != "call" or not self._is_handler_call(frame):
            return None
        self.reset()
        self.botframe = None  # bdb then takes the caller of this frame as the outermost one
        self.set_step()
        sys.settrace(self.trace_dispatch)
        return self.trace_dispatch(frame, event, None)

    def _is_handler_call(self, frame: FrameType) -> bool:
        """True if the frame runs the handler or method that is debugged, on an object of its agent's class."""
        code = frame.f_code
        agent, _, method = self._handling.name.rpartition(".")
        if code.co_name != method or not code.co_argcount:
            return False
        return type(frame.f_locals.get(code.co_varnames[0])).__name__ == agent

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Trace function of the debugger. After `skip` and `quit` it raises an exception that the bus handles, not BdbQuit."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise self._leaving from None

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        """Read commands at the terminal; the first time, print the handler and its event."""
        with self._breakpoints.terminal(self.prompt, f"Stopped before {self._handling.name}"):
            if not self._has_stopped:
                self._has_stopped = True
                for line in _describe_stop(self._handling):
                    self.message(line)
            super().interaction(frame, traceback)

    def setup(self, f: FrameType | None, tb: Any) -> Any:
        """Select a frame, as pdb does, and define `event` as a local name in it, unless the frame has that name."""
        stops = super().setup(f, tb)
        cast("dict[str, Any]", self.curframe_locals).setdefault("event", self._handling.event)
        return stops

    def do_skip(self, arg: str) -> bool:
        """skip
        End the handler now. Its event becomes a dead letter; the caller of a method gets an error.
        """
        self.set_quit()
        return True

    def do_quit(self, arg: str) -> bool:
        """q(uit)
        Remove all breakpoints and end the handler as Ctrl-C does: the graph stops, or the prompt returns.
        """
        self._breakpoints.names.clear()
        if current_thread() is main_thread():
            self._leaving = KeyboardInterrupt()
        else:  # nothing on this thread would catch a KeyboardInterrupt
            interrupt_main()
        self.set_quit()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name that cmd looks for
        """EOF
        Same as quit.
        """
        self.message("")
        return self.do_quit(arg)


def _describe_stop(handling: Handling) -> Iterator[str]:
    """Yield the lines to print when the debugger stops: the handler and its event or arguments."""
    yield f"Stopped before {handling.name}"
    event = handling.event
    if event is None:
        yield f"  arguments  {_shorten_value(dict(handling.arguments))}"
    else:
        yield f"  event    {event.topic}  {event.event_id[:8]}  from {event.published_by or event.src or 'outside'}"
        yield f"  payload  {_shorten_value(event.payload)}"
        if event.trail:
            yield f"  causes   {' > '.join(name for link in event.trail[-3:] for name in link)}"
    yield f"  {_HELP}"


def _shorten_value(value: Any) -> str:
    """Return a value as JSON text of at most `_SHOWN_CHARACTERS`; parts that are not JSON appear as their repr."""
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise RunError GBE682 for the first name that no handler and no method has."""
    candidates = sorted(set(known))
    for name in names:
        if name not in candidates:
            raise RunError(
                "GBE682", name=name, suggestion=did_you_mean(name, candidates), known=", ".join(candidates) or "none"
            )
