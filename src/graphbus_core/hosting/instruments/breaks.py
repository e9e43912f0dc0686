"""Breakpoints: an instrument that stops the graph before a handler or method and lets a person look, in the debugger of Python.

    thread of the handler:  middleware -> sys.settrace -> the first line of the handler -> pdb at the terminal -> on it goes

Whatever else shares that thread stands meanwhile. Imported only where somebody may stop.
"""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from types import FrameType
from typing import Any, cast

import msgspec

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event

_SKIPPED_MODULES = ("graphbus_core.*", "asyncio.*", "threading", "contextlib", "functools", "logging")
_SHOWN_CHARACTERS = 400
_PROMPT = "(graphbus) "
_HELP = (
    "c(ontinue), hop (to the next handler of anyone), skip, causes, q(uit), and all of pdb: `event`, `node`, n, s, l, h"
)

Terminal = Callable[[], AbstractContextManager[object]]
"""Gives the terminal to who enters it, and takes it back."""


class Breakpoints:
    """Middleware that stops. Names may be added and removed while the graph runs.

    Args:
        names: `Agent.method`.
        terminal: Entered whenever a person is asked.
        quits_for_good: After `quit` it stops nowhere any more; else the breakpoints stay.
    """

    def __init__(
        self, names: Iterable[str] = (), *, terminal: Terminal = nullcontext, quits_for_good: bool = True
    ) -> None:
        self.names = set(names)
        self._terminal = terminal
        self._quits_for_good = quits_for_good
        self._hops = False
        self._one_at_a_time = RLock()

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Stop before what is handled, if it is named or the person hops."""
        if not self._hops and handling.name not in self.names:
            yield
            return
        before = sys.gettrace()
        debugger = _Debugger(handling, self._terminal)
        with self._one_at_a_time:
            sys.settrace(debugger.wait_for_handler)
        try:
            yield
        finally:
            sys.settrace(before)
            self._take_over(debugger)

    def clear(self) -> None:
        """Stop nowhere any more."""
        self.names.clear()
        self._hops = False

    def _take_over(self, debugger: _Debugger) -> None:
        """What the person has asked for holds from now on."""
        if debugger.has_stopped:
            self._hops = debugger.hops
        if debugger.has_quit:
            self._hops = False
            if self._quits_for_good:
                self.names.clear()


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise RunError GBE682 for the first name that no handler and no method has."""
    candidates = sorted(set(known))
    for name in names:
        if name not in candidates:
            raise RunError(
                "GBE682", name=name, suggestion=did_you_mean(name, candidates), known=", ".join(candidates) or "none"
            )


class _Debugger(pdb.Pdb):
    """pdb for one handler: it stops at the first line of it, and knows a few words more."""

    def __init__(self, handling: Handling, terminal: Terminal) -> None:
        super().__init__(skip=_SKIPPED_MODULES, nosigint=True, readrc=False)
        self.prompt = _PROMPT
        self.has_stopped = False
        self.hops = False
        self.has_quit = False
        self._handling = handling
        self._terminal = terminal
        self._frame: FrameType | None = None
        self._leaving: BaseException = KeyboardInterrupt()

    def wait_for_handler(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Trace function until the handler is called."""
        if event != "call" or not self._is_handler(frame):
            return None
        self.reset()
        self.botframe = None
        self.set_step()
        self._frame = frame
        sys.settrace(self.trace_dispatch)
        return self.trace_dispatch(frame, event, None)

    def _is_handler(self, frame: FrameType) -> bool:
        code = frame.f_code
        agent, _, method = self._handling.name.rpartition(".")
        if code.co_name != method or not code.co_argcount:
            return False
        return type(frame.f_locals.get(code.co_varnames[0])).__name__ == agent

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise self._leaving from None

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        with self._terminal():
            if not self.has_stopped:
                self.has_stopped = True
                for line in welcome(self._handling):
                    self.message(line)
            super().interaction(frame, traceback)

    def setup(self, f: FrameType | None, tb: Any) -> Any:
        stops = super().setup(f, tb)
        shown = cast("dict[str, Any]", self.curframe_locals)
        shown.setdefault("event", self._handling.event)
        shown.setdefault("node", self._node())
        return stops

    def _node(self) -> object:
        return None if self._frame is None else self._frame.f_locals.get(self._frame.f_code.co_varnames[0])

    # --- the words that pdb does not know ---

    def do_hop(self, arg: str) -> bool:
        """hop
        Go on, and stop before the next handler or method of anyone.
        """
        self.hops = True
        self.set_continue()
        return True

    def do_skip(self, arg: str) -> bool:
        """skip
        Leave the handler here. An event goes to the dead letters; who has made a call gets an error.
        """
        self._leaving = RunError("GBE681", name=self._handling.name)
        self.set_quit()
        return True

    def do_causes(self, arg: str) -> None:
        """causes
        Show how the event came here, from the first to the last.
        """
        for line in causes(self._handling.event):
            self.message(line)

    def do_quit(self, arg: str) -> bool:
        """q(uit)
        Leave the handler as Ctrl-C does: the graph stops, or the prompt comes back.
        """
        self.has_quit = True
        self.set_quit()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name that cmd looks for
        """EOF
        As quit.
        """
        self.message("")
        return self.do_quit(arg)


def welcome(handling: Handling) -> Iterator[str]:
    """What a person sees first when the graph has stopped."""
    yield f"Stopped before {handling.name}"
    event = handling.event
    if event is None:
        yield f"  arguments  {_shown(dict(handling.arguments))}"
    else:
        source = f"from {event.published_by or event.src}" if event.published_by or event.src else "from outside"
        yield f"  event    {event.topic}  {event.event_id[:8]}  {source}"
        yield f"  payload  {_shown(event.payload)}"
        if event.trail:
            yield f"  causes   {' > '.join(_links(event))}"
        if handling.attempt > 1:
            yield f"  attempt  {handling.attempt}"
    yield f"  {_HELP}"


def causes(event: Event | None) -> Iterator[str]:
    """The causal chain of an event, one link in a line."""
    if event is None:
        yield "A call has no event that caused it."
        return
    for topic, handler in event.trail:
        yield f"{topic} > {handler}"
    yield f"{event.topic}  (this one; root {event.correlation_id[:8]})"


def _links(event: Event) -> Iterator[str]:
    for topic, handler in event.trail[-3:]:
        yield f"{topic} > {handler}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
