"""Breakpoints: middleware that stops the graph before a handler or method, in pdb at its first line.

    thread of the handler:  middleware -> sys.settrace -> the first line of the handler -> pdb at the terminal -> on it goes

Everything else that runs on this thread waits meanwhile.
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
from graphbus_core.model.messages import Event

Terminal = Callable[[str, str], AbstractContextManager[object]]
"""Gives the terminal for a block, to read lines after this prompt and for this reason."""

_SKIPPED_MODULES = ("graphbus_core.*", "asyncio.*", "threading", "contextlib", "functools", "logging")
_SHOWN_CHARACTERS = 400
_HELP = (
    "c(ontinue), hop (to the next handler of anyone), skip, causes, q(uit), and all of pdb: `event`, `node`, n, s, l, h"
)


def _use_stdin(_prompt: str, _reason: str) -> AbstractContextManager[object]:
    return nullcontext()


class Breakpoints:
    """Middleware that stops. Names may be added and removed while the graph runs.

    Args:
        names: `Agent.method`.
        terminal: Entered whenever the debugger reads lines.
        quits_for_good: After `quit` it stops nowhere any more; else the breakpoints stay.

    Attributes:
        hops: Stop before whatever comes next.
    """

    def __init__(
        self, names: Iterable[str] = (), *, terminal: Terminal = _use_stdin, quits_for_good: bool = True
    ) -> None:
        self.names = set(names)
        self.hops = False
        self.terminal = terminal
        self._quits_for_good = quits_for_good

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Stop before what is handled, if it is named or `hop` was typed."""
        if not self.hops and handling.name not in self.names:
            yield
            return
        before = sys.gettrace()
        sys.settrace(Debugger(handling, self).wait_for_handler)
        try:
            yield
        finally:
            sys.settrace(before)

    def remove(self, names: Iterable[str] = ()) -> None:
        """Stop at these no more; without names, nowhere."""
        self.names.difference_update(list(names) or list(self.names))
        self.hops = False

    def quit(self) -> None:
        """Let go of the graph after `quit`."""
        self.hops = False
        if self._quits_for_good:
            self.names.clear()
            if current_thread() is not main_thread():
                interrupt_main()


class Debugger(pdb.Pdb):
    """pdb for one handler: it stops at the first line of it, and knows a few commands more."""

    def __init__(self, handling: Handling, breakpoints: Breakpoints) -> None:
        super().__init__(skip=_SKIPPED_MODULES, nosigint=True, readrc=False)
        self.prompt = "(graphbus) "
        self._has_stopped = False
        self._breakpoints = breakpoints
        self._handling = handling
        self._node: object = None
        self._leaving: BaseException = KeyboardInterrupt()

    def wait_for_handler(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Trace function until the handler is called."""
        if event != "call" or not self._is_handler(frame):
            return None
        self.reset()
        self.botframe = None
        self.set_step()
        self._node = frame.f_locals[frame.f_code.co_varnames[0]]
        sys.settrace(self.trace_dispatch)
        return self.trace_dispatch(frame, event, None)

    def _is_handler(self, frame: FrameType) -> bool:
        code = frame.f_code
        agent, _, method = self._handling.name.rpartition(".")
        if code.co_name != method or not code.co_argcount:
            return False
        return type(frame.f_locals.get(code.co_varnames[0])).__name__ == agent

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Trace; `skip` and `quit` leave the handler with an exception of ours instead of one of the debugger."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise self._leaving from None

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        """Read commands at the terminal; the first time, say where the graph has stopped."""
        with self._breakpoints.terminal(self.prompt, f"Stopped before {self._handling.name}"):
            if not self._has_stopped:
                self._has_stopped = True
                self._breakpoints.hops = False
                for line in _welcome(self._handling):
                    self.message(line)
            super().interaction(frame, traceback)

    def setup(self, f: FrameType | None, tb: Any) -> Any:
        """Look at a frame; `event` and `node` are always known in it."""
        stops = super().setup(f, tb)
        shown = cast("dict[str, Any]", self.curframe_locals)
        shown.setdefault("event", self._handling.event)
        shown.setdefault("node", self._node)
        return stops

    # --- commands that pdb does not have ---

    def do_hop(self, arg: str) -> bool:
        """hop
        Go on, and stop before the next handler or method of anyone.
        """
        self._breakpoints.hops = True
        self.set_continue()
        return True

    def do_skip(self, arg: str) -> bool:
        """skip
        Leave the handler here. An event goes to the dead letters; the caller of a method gets an error.
        """
        self._leaving = RunError("GBE681", name=self._handling.name)
        self.set_quit()
        return True

    def do_causes(self, arg: str) -> None:
        """causes
        Show how the event came here, from the first to the last.
        """
        event = self._handling.event
        if event is None:
            self.message("A call has no event that caused it.")
            return
        for link in _links(event):
            self.message(link)
        self.message(f"{event.topic}  (this one; root {event.correlation_id[:8]})")

    def do_quit(self, arg: str) -> bool:
        """q(uit)
        Leave the handler as Ctrl-C does: the graph stops, or the prompt comes back.
        """
        if current_thread() is not main_thread():  # nothing there would catch a KeyboardInterrupt
            self._leaving = RunError("GBE681", name=self._handling.name)
        self._breakpoints.quit()
        self.set_quit()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:  # noqa: N802 - the name that cmd looks for
        """EOF
        As quit.
        """
        self.message("")
        return self.do_quit(arg)


def _welcome(handling: Handling) -> Iterator[str]:
    yield f"Stopped before {handling.name}"
    event = handling.event
    if event is None:
        yield f"  arguments  {_shown(dict(handling.arguments))}"
    else:
        source = f"from {event.published_by or event.src}" if event.published_by or event.src else "from outside"
        yield f"  event    {event.topic}  {event.event_id[:8]}  {source}"
        yield f"  payload  {_shown(event.payload)}"
        if event.trail:
            yield f"  causes   {' > '.join(_links(event)[-3:])}"
        if handling.attempt > 1:
            yield f"  attempt  {handling.attempt}"
    yield f"  {_HELP}"


def _links(event: Event) -> list[str]:
    return [f"{topic} > {handler}" for topic, handler in event.trail]


def _shown(value: Any) -> str:
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
