"""The connection between a process that runs a graph and its supervisor, which watches the files and replaces it.

    supervisor                          the process
    (starts it)                         imports GraphBus
    Order(options, arguments)     ->    imports the modules of the project
                                  <-    Imported | Failed
    "go"                          ->    makes and starts the agents
                                  <-    Ready | Failed
    "proceed"                     ->    does what the options ask for, and stays up
    Show(text)                    ->    writes it above the line that is being typed
    "end", or it is gone          ->    ends as after SIGTERM

Everything up to `Imported` happens while the old code still runs, so a module that cannot be imported does no harm.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from graphbus_core.cli import console
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.signals import Patience, Stopped

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Show(NamedTuple):
    """What is to be shown above the line of the prompt."""

    text: str


class Imported(NamedTuple):
    """The modules of the project are imported."""


class Ready(NamedTuple):
    """The graph runs.

    Attributes:
        lines: What a person is to know of it.
        modules: The modules of GraphBus that it needs, so that the next process has them before it is needed.
    """

    lines: tuple[str, ...]
    modules: tuple[str, ...]


class Failed(NamedTuple):
    """The graph could not start, or did not end well."""

    errors: tuple[GraphBusError, ...]


class SupervisorLink:
    """The supervisor, as seen from the process that runs the graph.

    Attributes:
        show: Writes text that it sends while somebody may be typing.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.show: Callable[[str], None] = console.out
        self._connection = connection
        self._may_proceed = Event()

    def wait(self) -> Any:
        """Give its next message.

        Raises:
            Stopped: It wants this process to end, or is gone.
        """
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = "end"
        if message == "end":
            raise Stopped(signal.SIGTERM)
        return message

    def tell(self, message: Imported | Ready | Failed) -> None:
        """Send a message; nobody may be left to read it."""
        try:
            self._connection.send(message)
        except OSError:
            return

    def listen(self, patience: Patience) -> None:
        """From now on end the graph when it says so, whatever the main thread does."""

        def listen() -> None:
            try:
                while True:
                    message = self.wait()
                    if isinstance(message, Show):
                        self.show(message.text)
                    else:
                        self._may_proceed.set()
            except Stopped:
                patience.ask()

        Thread(target=listen, name="graphbus-supervisor", daemon=True).start()

    def ready(self, lines: tuple[str, ...]) -> None:
        """Report that the graph runs, and go on when that has been shown."""
        modules = tuple(name for name in sys.modules.copy() if name.startswith("graphbus_core."))
        self.tell(Ready(lines, modules))
        self._may_proceed.wait()
