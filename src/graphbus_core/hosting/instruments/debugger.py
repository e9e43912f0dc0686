"""The debugger of Python for one handler. This module is imported when the graph stops for the first time: pdb is not free."""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Protocol, cast

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.held import Held
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event

_SKIPPED_MODULES = ("graphbus_core.*", "asyncio.*", "threading", "contextlib", "functools", "logging")
_SHOWN_CHARACTERS = 400
_PROMPT = "(graphbus) "
_HELP = (
    "c(ontinue), hop (to the next handler of anyone), skip, causes, q(uit), and all of pdb: `event`, `node`, n, s, l, h"
)


class Person(Protocol):
    """Who is asked, and is told what came of it."""

    def terminal(self) -> AbstractContextManager[Held | None]:
        """Give the terminal to who enters it."""

    def stopped(self) -> None:
        """The graph stands."""

    def hop(self) -> None:
        """Stop before whatever comes next."""

    def quit(self) -> None:
        """The person has left the handler."""


class Debugger(pdb.Pdb):
    """pdb for one handler: it stops at the first line of it, and knows a few words more."""

    def __init__(self, handling: Handling, person: Person) -> None:
        super().__init__(skip=_SKIPPED_MODULES, nosigint=True, readrc=False)
        self.prompt = _PROMPT
        self._has_stopped = False
        self._person = person
        self._handling = handling
        self._frame: FrameType | None = None
        self._held: Held | None = None
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
        """Trace; who has quit leaves as they wished, and not with an exception of the debugger."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise self._leaving from None

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        """Let the person look around, at the terminal; the first time they are told where they are."""
        with self._person.terminal() as self._held:
            if not self._has_stopped:
                self._has_stopped = True
                self._person.stopped()
                for line in welcome(self._handling):
                    self.message(line)
            super().interaction(frame, traceback)

    def preloop(self) -> None:
        """A line is about to be waited for."""
        super().preloop()
        self._asks(self.prompt)

    def precmd(self, line: str) -> str:
        """A line has come."""
        self._asks("")
        return str(super().precmd(line))

    def postcmd(self, stop: bool, line: str) -> bool:
        """What it says is done; unless the handler goes on, another one is waited for."""
        stops = bool(super().postcmd(stop, line))
        self._asks("" if stops else self.prompt)
        return stops

    def _asks(self, prompt: str) -> None:
        if self._held is not None:
            self._held.asked = prompt

    def setup(self, f: FrameType | None, tb: Any) -> Any:
        """Look at a frame; `event` and `node` are always known in it."""
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
        self._person.hop()
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
        if current_thread() is not main_thread():  # such a thread has nobody who would catch an interrupt
            self._leaving = RunError("GBE681", name=self._handling.name)
        self._person.quit()
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
