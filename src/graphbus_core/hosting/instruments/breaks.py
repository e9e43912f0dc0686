"""Breakpoints: an instrument that stops the graph before a handler or method and lets a person look, in the debugger of Python.

    thread of the handler:  middleware -> sys.settrace -> the first line of the handler -> pdb at the terminal -> on it goes

Whatever else shares that thread stands meanwhile.
"""

from __future__ import annotations

import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import current_thread, main_thread

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.hosting.instruments.held import Held
from graphbus_core.middleware import Handling

Terminal = Callable[[], AbstractContextManager[Held | None]]
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

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Stop before what is handled, if it is named or the person hops."""
        if not self._hops and handling.name not in self.names:
            yield
            return
        from graphbus_core.hosting.instruments.debugger import Debugger

        before = sys.gettrace()
        sys.settrace(Debugger(handling, self).wait_for_handler)
        try:
            yield
        finally:
            sys.settrace(before)

    def remove(self, names: Iterable[str] = ()) -> None:
        """Stop at these no more; without names, nowhere."""
        self.names.difference_update(list(names) or list(self.names))
        self._hops = False

    def terminal(self) -> AbstractContextManager[Held | None]:
        """Give the terminal to who enters it."""
        return self._terminal()

    def stopped(self) -> None:
        """The graph stands: nobody hops any more."""
        self._hops = False

    def hop(self) -> None:
        """Stop before whatever comes next."""
        self._hops = True

    def quit(self) -> None:
        """The person has left the handler."""
        self._hops = False
        if self._quits_for_good:
            self.names.clear()
            if current_thread() is not main_thread():
                interrupt_main()


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise RunError GBE682 for the first name that no handler and no method has."""
    candidates = sorted(set(known))
    for name in names:
        if name not in candidates:
            raise RunError(
                "GBE682", name=name, suggestion=did_you_mean(name, candidates), known=", ".join(candidates) or "none"
            )
