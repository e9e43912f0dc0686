"""`graphbus dev` and `graphbus run --watch`: watches, builds, and replaces the process that runs the graph after each save.

    save -> build -> a new process imports the project -> the old one ends in good order -> the new one starts its agents

The new process is started before it is needed, so that a save does not wait for an interpreter. Until its imports have succeeded
the old one keeps running. All decisions are made on the main thread, one event after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.running import supervised
from graphbus_core.cli.running.development import Development, Saved
from graphbus_core.cli.running.execution import Failed, Imported, Ready, RunOptions, Show, servers
from graphbus_core.cli.running.narrators import JsonNarrator, TextNarrator
from graphbus_core.cli.running.supervised import Order
from graphbus_core.cli.running.watching import Watcher
from graphbus_core.errors import GraphBusError, UsageError, raise_all
from graphbus_core.hosting.signals import LOOK_S, Patience, Stopped, look_for_signal, stop_on_signals
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.settings import find_root, resolve_run

_BEYOND_GRACE_S = 5.0
"""How much longer than its grace an old process may take to end before it is killed: `on_stop` has no limit of its own."""
_DRAIN_S = 1.0


class Ended(NamedTuple):
    """A process has ended by itself, or because it was told to."""

    status: int


class Child:
    """A process that runs a graph, or will do so; what it reports goes to the queue, with the child itself.

    Attributes:
        saved: The save that it is started for.
        began: When that was noticed.
        was_ready: Its graph has run.
    """

    def __init__(self, events: SimpleQueue[Any], modules: Sequence[str]) -> None:
        self.saved = Saved(paths=())
        self.began = 0.0
        self.was_ready = False
        self._ended = Event()
        self._connection, theirs = Pipe()
        command = [sys.executable, "-c", supervised.COMMAND, str(theirs.fileno()), " ".join(modules), *sys.path]
        with theirs, _interrupts_blocked():
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        listener = Thread(target=self._listen, args=(events,), daemon=True)
        listener.start()
        Thread(target=self._wait, args=(events, listener), daemon=True).start()

    @property
    def outcome(self) -> Saved:
        """What has come of the save until now."""
        return msgspec.structs.replace(self.saved, seconds=perf_counter() - self.began)

    def send(self, message: Order | Show | str) -> None:
        """Send a message; a process that has just ended does not read it."""
        with suppress(OSError):
            self._connection.send(message)

    def end(self, limit_s: float) -> None:
        """Let it finish what it handles and stop its agents; kill it after the limit."""
        self.send("end")
        if not self._ended.wait(limit_s):
            console.say(f"The process of the graph has not ended after {limit_s:.0f} s, and is killed.")
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._ended.wait()

    def _listen(self, events: SimpleQueue[Any]) -> None:
        with suppress(EOFError, OSError):
            while True:
                events.put((self, self._connection.recv()))

    def _wait(self, events: SimpleQueue[Any], listener: Thread) -> None:
        status = self._process.wait()
        listener.join(_DRAIN_S)  # a process that the graph has left behind may keep the connection open
        events.put((self, Ended(status if status >= 0 else 128 - status)))
        self._ended.set()


class Supervisor:
    """Runs a graph in a process of its own, and replaces the process after each save.

    Args:
        development: What is built.
        options: What the process runs.
        narrator: Shows what happens.
        is_patient: Wait for a save when not even the first start succeeds; otherwise that ends the command.
    """

    def __init__(
        self, development: Development, options: RunOptions, narrator: TextNarrator | JsonNarrator, *, is_patient: bool
    ) -> None:
        self._development = development
        self._options = _with_steady_address(options)
        self._narrator = narrator
        self._is_patient = is_patient
        self._has_terminal = options.is_interactive or bool(options.breaks)
        if options.is_interactive and isinstance(narrator, TextNarrator):
            narrator.write = self._write_above_the_prompt
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._modules: tuple[str, ...] = ()
        self._spare: Child | None = None
        self._pending: Child | None = None
        self._current: Child | None = None
        self._is_building = False
        self._has_run = False
        self._status: int | None = None

    def run(self, first: Saved | None = None) -> int:
        """Build and run until somebody ends it, and give the exit status.

        Args:
            first: Run the artifacts that there are, instead of a build.

        Raises:
            GraphBusError: What prevents the first start, unless it is patient; and GBE164 when files cannot be watched.
        """
        config = self._development.config
        self._spare = self._start_process()
        try:
            with (
                stop_on_signals() as patience,
                Watcher(Path(config.root), self._events.put, self._events.put, exclude=self._development.excluded),
            ):
                self._leave_interrupts_to_the_prompt(patience)
                patience.is_busy = lambda: self._is_building
                began = perf_counter()
                self._take(first or self._build(), began)
                while self._status is None:
                    self._handle(self._next())
        except Stopped as stopped:
            self._status = self._end(stopped)
        finally:
            for child in (self._spare, self._pending, self._current):
                if child is not None:
                    child.kill()
        return self._status

    @property
    def limit_s(self) -> float:
        """How long the end of a process may take."""
        grace_s = 0.0
        with suppress(GraphBusError):
            grace_s = self._development.config.settings.runtime.grace_s
        return grace_s + _BEYOND_GRACE_S

    def _next(self) -> Any:
        while True:
            look_for_signal()
            with suppress(Empty):
                return self._events.get(timeout=LOOK_S)

    def _handle(self, event: Any) -> None:
        if isinstance(event, UsageError):
            self._narrator.failed([event])
            self._status = event.status if self._current is None else None
        elif isinstance(event[0], Child):
            self._hear(*event)
        else:
            began = perf_counter()
            self._take(self._build(event), began)

    def _build(self, paths: tuple[str, ...] = ()) -> Saved:
        """Build; a signal waits for the end of it."""
        self._is_building = True
        try:
            return self._development.build(paths)
        finally:
            self._is_building = False

    def _take(self, saved: Saved, began: float) -> None:
        """Bring what was built into a new process; after an error the old one goes on."""
        if saved.errors:
            self._narrator.saved(saved, is_running=self._current is not None)
            return
        if self._pending is not None:
            self._pending.kill()
        self._pending, self._spare = self._spare or self._start_process(), None
        self._pending.saved, self._pending.began = saved, began
        _forget_bytecode(self._development.root, saved.paths)
        self._pending.send(Order(self._options, sys.argv))

    def _hear(self, child: Child, message: Imported | Ready | Failed | Ended) -> None:
        if isinstance(message, Imported) and child is self._pending:
            if self._current is not None:
                self._current.end(self.limit_s)
            self._current, self._pending = self._pending, None
            self._current.send("go")
        elif isinstance(message, Ready) and child is self._current:
            self._ready(child, message)
        elif isinstance(message, Failed):
            self._failed(child, message.errors)
        elif isinstance(message, Ended):
            self._ended(child, message.status)

    def _ready(self, child: Child, message: Ready) -> None:
        self._modules = message.modules
        if self._has_run:
            self._narrator.saved(child.outcome, is_running=True)
        else:
            self._has_run = True
            self._narrator.ready(child.outcome, message.lines)
        child.was_ready = True
        child.send("proceed")
        if self._spare is None:
            self._spare = self._start_process()

    def _failed(self, child: Child, errors: tuple[GraphBusError, ...]) -> None:
        if child.was_ready:
            self._narrator.failed(errors)
            return
        if child not in (self._pending, self._current):
            return  # another save has taken its place
        if not self._has_run and not self._is_patient:
            raise_all(errors)
        if child.saved.paths and all(error.code == "GBE508" for error in errors):
            self._take(self._build(child.saved.paths), child.began)  # saved once more while it was built
            return
        self._development.has_failed = True
        child.saved = msgspec.structs.replace(child.saved, errors=errors)
        self._narrator.saved(child.outcome, is_running=child is self._pending and self._current is not None)

    def _ended(self, child: Child, status: int) -> None:
        if child is self._spare:
            self._spare = None
        elif child is self._pending:
            self._pending = None
            if not child.saved.errors:  # it was not even able to say why
                self._narrator.ended(status)
        elif child is self._current:
            self._current = None
            if self._is_over(child, status):
                self._status = status
            elif child.was_ready or not child.saved.errors:
                self._narrator.ended(status)

    def _is_over(self, child: Child, status: int) -> bool:
        """Has somebody left the prompt, or has a run with an end come to its end?"""
        if not child.was_ready:
            return not self._is_patient and not self._has_run
        return self._has_terminal or (status == 0 and not self._options.stays_up)

    def _write_above_the_prompt(self, text: str) -> None:
        """Let the process that has the prompt write, as long as there is one."""
        if self._current is not None and self._current.was_ready:
            self._current.send(Show(text))
        else:
            console.out(text)

    def _end(self, stopped: Stopped) -> int:
        """End in good order, show what goes wrong with that, and give the exit status."""
        status = 0
        child, self._current = self._current, None
        if child is not None:
            child.end(self.limit_s)
            for event in iter(self._events.get, None):
                if not (isinstance(event, tuple) and event[0] is child):
                    continue
                if isinstance(event[1], Failed):
                    self._narrator.failed(event[1].errors)
                elif isinstance(event[1], Ended):
                    status = event[1].status
                    break
        self._narrator.stopped()
        return stopped.exit_status if status > 128 else status

    def _start_process(self) -> Child:
        return Child(self._events, self._modules)

    def _leave_interrupts_to_the_prompt(self, patience: Patience) -> None:
        """At a prompt Ctrl-C cancels a line, or ends the graph; this process then follows the one that has the terminal."""
        if not self._has_terminal:
            return

        def receive(number: int, frame: Any) -> None:
            if self._current is None:
                patience.receive(number, frame)

        signal.signal(signal.SIGINT, receive)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process that is started meanwhile does not hear Ctrl-C until it is ready to."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forget_bytecode(root: str, paths: Sequence[str]) -> None:
    """Remove the bytecode of saved files: Python takes it for theirs if they were saved within the second that it is from."""
    from importlib.util import cache_from_source

    for path in paths:
        if path.endswith(".py"):
            with suppress(OSError):
                os.unlink(cache_from_source(os.path.join(root, path)))


def _with_steady_address(options: RunOptions) -> RunOptions:
    """Listen at the same place, with the same token, after every restart.

    Raises:
        UsageError: GBE131, GBE155-157 for what was given or a token that cannot be used.
        RunError: GBE671, GBE672 when the servers cannot be had.
    """
    with ExitStack() as stack:
        _keep_token(options)
        ports = servers(
            stack,
            options.artifacts,
            is_served=options.is_served,
            host=options.host,
            port=options.port,
            health=options.health,
        ).ports
    host = options.health.rpartition(":")[0]
    return msgspec.structs.replace(
        options,
        port=ports.get("serve", options.port),
        health=f"{host}{':' * bool(host)}{ports['health']}" if "health" in ports else "",
    )


def _keep_token(options: RunOptions) -> None:
    """A token that nobody has given would be another one after every restart; the variable for it hands it down."""
    config = resolve_run(RuntimeConfig(artifacts=options.artifacts))
    serve = config.settings.serve
    if not options.is_served or not serve.token_env:
        return
    from graphbus_core.hosting.serving.address import find_token

    root = find_root([Path(config.artifacts_dir).parent])
    wanted = msgspec.structs.replace(serve, host=options.host or serve.host)
    token = find_token(wanted, root, Path(config.state_dir))
    if token.notice:
        os.environ[serve.token_env] = token.text
        console.say(f"[RUNTIME] {token.notice}")
