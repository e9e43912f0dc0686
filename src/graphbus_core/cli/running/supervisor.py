"""`graphbus dev` and `graphbus run --watch`: watches, builds, and replaces the process that runs the graph after each save.

    save -> build -> a new process imports the project -> the old process stops -> the new process starts its agents

A spare process is started in advance, so that a save does not wait for an interpreter. The old process keeps running until the
imports of the new one have succeeded. All decisions are made on the main thread, one event after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import perf_counter
from typing import Any

import msgspec

from graphbus_core import settings
from graphbus_core.build import run_build_pipeline
from graphbus_core.cli import console
from graphbus_core.cli.running import supervised
from graphbus_core.cli.running.execution import RunOptions
from graphbus_core.cli.running.watching import Watcher
from graphbus_core.errors import GraphBusError, SeveralErrors, UsageError, raise_all
from graphbus_core.hosting.signals import SIGNAL_POLL_S, StopRequested, raise_missed_signal, stop_on_signals
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding

_BEYOND_GRACE_S = 5.0
"""How much longer than its grace an old process may take to end before it is killed: `on_stop` has no limit of its own."""
_DRAIN_S = 1.0
_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})


class Save(msgspec.Struct, kw_only=True):
    """The result of one save.

    Attributes:
        paths: The saved files, relative to the project root; empty for the first start.
        began: When the save was noticed, by `perf_counter`.
        findings: The new findings of `graphbus check`, compared with the save before.
        gone: The findings that have disappeared since.
        errors: Why the new code does not run.
        agents: The agents of the build.
    """

    paths: tuple[str, ...] = ()
    began: float = msgspec.field(default_factory=perf_counter)
    findings: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    errors: tuple[GraphBusError, ...] = ()
    agents: tuple[str, ...] = ()


class Builder:
    """Builds a project again and again, and compares the findings.

    Args:
        paths: The files and folders to build.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.request = BuildConfig(paths=tuple(paths))
        self.config = settings.resolve_build(self.request)
        self._findings: tuple[Finding, ...] = ()

    def build(self, paths: tuple[str, ...] = ()) -> Save:
        """Check and build after these files were saved; errors of the build are part of the result."""
        save, before = Save(paths=paths), self._findings
        try:
            self.config = settings.resolve_build(self.request)
            built = run_build_pipeline(self.request)
            self._findings = built.findings
            save.agents = tuple(each.name for each in built.artifacts.agents.agents)
        except GraphBusError as error:
            errors = tuple(error.errors) if isinstance(error, SeveralErrors) else (error,)
            # A file that cannot be read causes errors in others, so only its own error is shown.
            save.errors = tuple(each for each in errors if each.code in _UNREADABLE) or errors
        save.findings, save.gone = _without(self._findings, before), _without(before, self._findings)
        return save


def _without(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are not among the others; one that only moved counts as the same."""
    known = {each.key for each in others}
    return tuple(each for each in findings if each.key not in known)


class _Child:
    """A process that runs a graph or will run one; its reports go to the queue, each with the child itself."""

    def __init__(self, events: SimpleQueue[Any], modules: Sequence[str]) -> None:
        self.save = Save()
        self.was_ready = False
        self.status = 0
        self._ended = Event()
        self._connection, theirs = Pipe()
        command = [sys.executable, "-c", supervised.COMMAND, str(theirs.fileno()), " ".join(modules), *sys.path]
        with theirs:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it can handle Ctrl-C
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        listener = Thread(target=self._listen, args=(events,), daemon=True)
        listener.start()
        Thread(target=self._wait, args=(events, listener), daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message; a process that has just ended is ignored."""
        with suppress(OSError):
            self._connection.send(message)

    def end(self, limit_s: float) -> None:
        """Let the process finish its handlers and stop its agents; kill it after the limit."""
        self.send("end")
        if not self._ended.wait(limit_s):
            console.print_note(f"The process of the graph has not ended after {limit_s:.0f} s, and is killed.")
            self.kill()

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._ended.wait()

    def _listen(self, events: SimpleQueue[Any]) -> None:
        with suppress(EOFError, OSError):
            while True:
                events.put((self, *self._connection.recv()))

    def _wait(self, events: SimpleQueue[Any], listener: Thread) -> None:
        status = self._process.wait()
        listener.join(_DRAIN_S)  # a subprocess that the graph left behind may keep the connection open
        self.status = status if status >= 0 else 128 - status
        events.put((self, "ended", self.status))
        self._ended.set()


class Supervisor:
    """Runs a graph in a process of its own, and replaces the process after each save.

    Args:
        builder: Builds after each save.
        options: What the process runs.
        as_json: Report in one JSON object per line, for editors.
    """

    def __init__(self, builder: Builder, options: RunOptions, *, as_json: bool = False) -> None:
        self._builder = builder
        self._options = options
        self._as_json = as_json
        self._has_terminal = options.is_interactive or bool(options.breaks)
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._modules: tuple[str, ...] = ()
        self._spare: _Child | None = None
        self._pending: _Child | None = None
        self._current: _Child | None = None
        self._is_building = self._has_run = False
        self._status: int | None = None

    def run(self, first: Save | None = None) -> int:
        """Build and run until a signal or the end of the prompt, and return the exit status.

        Args:
            first: Start with the existing artifacts instead of a build.

        Raises:
            UsageError: The first start fails because of its options; GBE164 when files cannot be watched.
        """
        _keep_token(self._options)
        self._spare = _Child(self._events, ())
        root = os.path.realpath(self._builder.config.root)
        try:
            with (
                stop_on_signals() as patience,
                Watcher(root, self._events.put, lambda: self._builder.config.settings.exclude),
            ):
                if self._has_terminal:  # Ctrl-C belongs to the prompt or the debugger while there is one
                    signal.signal(
                        signal.SIGINT, lambda *given: None if self._current else patience.handle_signal(*given)
                    )
                patience.is_busy = lambda: self._is_building
                self._take(first or self._build())
                while self._status is None:
                    raise_missed_signal()
                    with suppress(Empty):
                        self._handle(self._events.get(timeout=SIGNAL_POLL_S))
        except StopRequested as stopped:
            self._status = self._end(stopped)
        finally:
            for child in filter(None, (self._spare, self._pending, self._current)):
                child.kill()
        return self._status

    def _handle(self, event: Any) -> None:
        if isinstance(event, UsageError):  # nothing is watched any more
            console.print_error(event)
            self._status = event.status if self._current is None else None
        elif isinstance(event[0], _Child):
            child, kind, content = event
            steps: dict[str, Callable[[_Child, Any], None]] = {
                "imported": self._replace,
                "ready": self._ready,
                "failed": self._failed,
                "ended": self._ended,
            }
            steps[kind](child, content)
        else:
            self._take(self._build(event))

    def _build(self, paths: tuple[str, ...] = ()) -> Save:
        """Build; a signal is handled only afterwards."""
        self._is_building = True
        try:
            return self._builder.build(paths)
        finally:
            self._is_building = False

    def _take(self, save: Save) -> None:
        """Start a new process with what was built; after an error the old process keeps running."""
        if save.errors:
            self._tell_failed(save, is_running=self._current is not None)
            return
        if self._pending is not None:
            self._pending.kill()
        self._pending, self._spare = self._spare or _Child(self._events, self._modules), None
        self._pending.save = save
        # Files saved since the build belong to the next save, so they are not drift.
        options = msgspec.structs.replace(self._options, allow_drift=True)
        self._pending.send(supervised.Order(options, sys.argv))

    def _replace(self, child: _Child, _content: object) -> None:
        """After successful imports, end the old process and let the new one start its agents."""
        if child is not self._pending:
            return  # a later save has replaced it
        if self._current is not None:
            self._current.end(self._limit_s)
        self._current, self._pending = child, None
        child.send("go")

    @property
    def _limit_s(self) -> float:
        return self._builder.config.settings.runtime.grace_s + _BEYOND_GRACE_S

    def _ready(self, child: _Child, content: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        lines, self._modules = content
        took = f"{(perf_counter() - child.save.began) * 1000:.0f} ms"
        if self._has_run:
            line = f"{_saved(child.save)} checked, built, restarted {console.style(f'in {took}', 'dim')}"
            self._tell_save("reloaded", child.save, line)
        else:
            watched = ", ".join(map(os.path.relpath, self._builder.request.paths)) or "this folder"
            line = f"Watching {console.sanitize(watched)} {console.style(f'(ready in {took})', 'dim')}."
            self._tell_save("ready", child.save, *lines, line)
        self._has_run = child.was_ready = True
        child.send("proceed")
        self._spare = self._spare or _Child(self._events, self._modules)

    def _failed(self, child: _Child, errors: tuple[GraphBusError, ...]) -> None:
        if child not in (self._pending, self._current):
            return  # a later save has replaced it
        if not self._has_run and isinstance(errors[0], UsageError):
            raise_all(errors)
        child.save.errors = errors
        self._tell_failed(child.save, is_running=child is self._pending and self._current is not None)

    def _ended(self, child: _Child, status: int) -> None:
        if child is self._spare:
            self._spare = None
        elif child is self._pending or child is self._current:
            if child is self._pending:
                self._pending = None
            else:
                self._current = None
            # The prompt was left, or a run with an end has finished.
            if child.was_ready and (self._has_terminal or (status == 0 and not self._options.stays_up)):
                self._status = status
            elif not child.save.errors:
                line = f"The graph has ended with status {status}: waiting for a save that starts it again."
                self._tell({"event": "ended", "status": status}, [line])

    def _end(self, stopped: StopRequested) -> int:
        """Stop the current process, and return the exit status."""
        status = 0
        if self._current is not None:
            self._current.end(self._limit_s)
            status, self._current = self._current.status, None
        self._tell({"event": "stopped"}, ["\nStopped."])
        return stopped.exit_status if status > 128 else status

    # --- output for a person or an editor ---

    def _tell_failed(self, save: Save, *, is_running: bool) -> None:
        if is_running:
            self._tell_save("failed", save, f"{_saved(save)} {console.style('the old code keeps running', 'bad')}")
        else:
            self._tell_save("waiting", save, "Nothing runs: waiting for a save that mends this.")

    def _tell_save(self, event: str, save: Save, *lines: str) -> None:
        """Report the result of a save, with its errors and findings."""
        document = {
            "event": event,
            "saved": save.paths,
            "agents": save.agents,
            "seconds": round(perf_counter() - save.began, 4),
            "errors": [console.error_as_json(error) for error in save.errors],
            "findings": _with_places(save.findings),
            "gone": _with_places(save.gone),
        }
        self._tell(document, [*_lines(save), *lines])

    def _tell(self, document: dict[str, Any], lines: Iterable[str]) -> None:
        text = console.Verbatim(msgspec.json.encode(document).decode()) if self._as_json else "\n".join(lines)
        if self._options.is_interactive and self._current is not None and self._current.was_ready:
            self._current.send(text)  # the process with the prompt prints it above the line being typed
        else:
            (console.print_note if self._options.as_json else console.print_line)(text)
            console.flush()


def _saved(save: Save) -> str:
    return f"saved {console.sanitize(', '.join(save.paths))} ->"


def _with_places(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as the artifacts store them, with `path`, `line` and `column` by name."""
    return [msgspec.structs.asdict(each) | msgspec.structs.asdict(each.span) for each in findings]


def _lines(save: Save) -> Iterator[str]:
    for error in save.errors:
        yield from console.error_lines(error)
    for finding in save.findings:
        place = console.style(console.sanitize(f"{finding.span.path}:{finding.span.line}:"), "strong")
        yield f"{place} {console.style(finding.code, 'warn')} {console.sanitize(finding.message)}"
        if finding.hint:
            yield f"  {console.style('hint:', 'name')} {console.sanitize(finding.hint)}"


def _keep_token(options: RunOptions) -> None:
    """Pass a generated token to all restarts in its environment variable; otherwise each restart would generate another one."""
    config = settings.resolve_run(options.request())
    serve = config.settings.serve
    if options.is_served and serve.token_env:
        from graphbus_core.hosting.serving.address import find_token

        wanted = msgspec.structs.replace(serve, host=options.host or serve.host)
        token = find_token(wanted, settings.find_root([Path(config.artifacts_dir).parent]), Path(config.state_dir))
        if token.notice:
            os.environ[serve.token_env] = token.text
            console.print_note(f"[RUNTIME] {token.notice}")
