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
from graphbus_core.hosting.serving.address import Token, find_token
from graphbus_core.hosting.signals import SIGNAL_POLL_S, StopRequested, raise_missed_signal, stop_on_signals
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding

_BEYOND_GRACE_S = 5.0
"""An old process is killed this long after its grace period, because `on_stop` of an agent has no time limit."""
_DRAIN_S = 1.0
"""How long to wait for the last messages of a process that has ended."""
# Errors of a file that cannot be read or parsed.
_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})


class Save(msgspec.Struct, kw_only=True):
    """The result of one save.

    Attributes:
        paths: The saved files, relative to the project root; empty for the first start.
        began: When the save was noticed, by `perf_counter`.
        findings: The new findings of `graphbus check`, compared with the save before.
        gone: The findings that have disappeared since the save before.
        errors: The errors because of which the new code does not run; empty if it does.
        agents: The agents of the build.
    """

    paths: tuple[str, ...] = ()
    began: float = msgspec.field(default_factory=perf_counter)
    findings: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    errors: tuple[GraphBusError, ...] = ()
    agents: tuple[str, ...] = ()


class Builder:
    """Builds a project after each save, and compares its findings with those of the build before.

    Args:
        paths: The files and folders to build.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.request = BuildConfig(paths=tuple(paths))
        self.config = settings.resolve_build(self.request)
        self._findings: tuple[Finding, ...] = ()

    def build(self, paths: tuple[str, ...] = ()) -> Save:
        """Check and build after these files were saved; errors of the build are returned, not raised."""
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
        save.findings, save.gone = (
            _findings_not_among(self._findings, before),
            _findings_not_among(before, self._findings),
        )
        return save


def _findings_not_among(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are not among the others. A finding that only moved to another line counts as the same."""
    known = {each.key for each in others}
    return tuple(each for each in findings if each.key not in known)


class _GraphProcess:
    """A process that runs a graph or waits to run one.

    Args:
        events: The queue for the messages of the process and its end: (this object, kind, content).
        modules: The modules that the process imports in advance.

    Attributes:
        save: The save for which the process was started.
        was_ready: True once its graph has run.
        status: Its exit status after its end; 128 plus the number of a signal that ended it.
    """

    def __init__(self, events: SimpleQueue[Any], modules: Sequence[str]) -> None:
        self.save = Save()
        self.was_ready = False
        self.status = 0
        self._has_ended = Event()
        self._connection, remote = Pipe()
        command = [sys.executable, "-c", supervised.COMMAND, str(remote.fileno()), " ".join(modules), *sys.path]
        with remote:
            before = signal.pthread_sigmask(
                signal.SIG_BLOCK, {signal.SIGINT}
            )  # the new process inherits the mask, and unblocks Ctrl-C when it can handle it
            self._process = subprocess.Popen(command, pass_fds=[remote.fileno()])
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        listener = Thread(target=self._forward_messages, args=(events,), daemon=True)
        listener.start()
        Thread(target=self._report_end, args=(events, listener), daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message to the process; do nothing if the process has ended."""
        with suppress(OSError):
            self._connection.send(message)

    def end(self, limit_s: float) -> None:
        """Let the process finish its handlers and stop its agents; kill it after the limit."""
        self.send("end")
        if not self._has_ended.wait(limit_s):
            console.print_note(f"The process of the graph did not end within {limit_s:.0f} s and is killed.")
            self.kill()

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._has_ended.wait()

    def _forward_messages(self, events: SimpleQueue[Any]) -> None:
        """Put the messages of the process into the queue until the connection ends."""
        with suppress(EOFError, OSError):
            while True:
                events.put((self, *self._connection.recv()))

    def _report_end(self, events: SimpleQueue[Any], listener: Thread) -> None:
        """Wait for the end of the process, and put its exit status into the queue after its last messages."""
        status = self._process.wait()
        listener.join(_DRAIN_S)  # a subprocess that the graph left behind may keep the connection open
        self.status = status if status >= 0 else 128 - status
        events.put((self, "ended", self.status))
        self._has_ended.set()


class Supervisor:
    """Runs a graph in a process of its own, and replaces the process after each save.

    Args:
        builder: Builds the project after each save.
        options: The options with which the process runs the graph.
        as_json: Write one JSON object per line, for editors.
    """

    def __init__(self, builder: Builder, options: RunOptions, *, as_json: bool = False) -> None:
        self._builder = builder
        self._options = options
        self._as_json = as_json
        self._has_terminal = options.is_interactive or bool(options.breaks)
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._modules: tuple[str, ...] = ()
        self._spare: _GraphProcess | None = None
        self._pending: _GraphProcess | None = None
        self._current: _GraphProcess | None = None
        self._is_building = self._has_run = False
        self._page = ""
        self._status: int | None = None

    def run(self, first: Save | None = None) -> int:
        """Build and run until a signal or the end of the prompt, and return the exit status.

        Args:
            first: Start with the existing artifacts instead of a build.

        Raises:
            UsageError: The first start fails because of its options; GBE164 when files cannot be watched.
        """
        token = _export_generated_token(self._options)
        if self._options.is_view_implied:
            query = f"?token={token.text}" if token.is_shown else ""
            self._page = f"http://{self._options.host}:{self._options.port}/view/{query}"
        self._spare = _GraphProcess(self._events, ())
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
                self._start_process_for(first or self._build())
                while self._status is None:
                    raise_missed_signal()
                    with suppress(Empty):
                        self._handle_event(self._events.get(timeout=SIGNAL_POLL_S))
        except StopRequested as stopped:
            self._status = self._stop_current(stopped)
        finally:
            for child in filter(None, (self._spare, self._pending, self._current)):
                child.kill()
        return self._status

    def _handle_event(self, event: Any) -> None:
        """Handle an event of the queue: saved paths or an error of the watcher, or a message of a process."""
        if isinstance(event, UsageError):  # files are no longer watched; a graph that runs keeps running
            console.print_error(event)
            self._status = event.status if self._current is None else None
        elif isinstance(event[0], _GraphProcess):
            child, kind, content = event
            steps: dict[str, Callable[[_GraphProcess, Any], None]] = {
                "imported": self._handle_imported,
                "ready": self._handle_ready,
                "failed": self._handle_failed,
                "ended": self._handle_ended,
            }
            steps[kind](child, content)
        else:
            self._start_process_for(self._build(event))

    def _build(self, paths: tuple[str, ...] = ()) -> Save:
        """Build the project; a signal that comes meanwhile is handled afterwards."""
        self._is_building = True
        try:
            return self._builder.build(paths)
        finally:
            self._is_building = False

    def _start_process_for(self, save: Save) -> None:
        """Let the spare process import the new build. If the build failed, report that; the old process keeps running."""
        if save.errors:
            self._report_failure(save, is_running=self._current is not None)
            return
        if self._pending is not None:
            self._pending.kill()
        self._pending, self._spare = self._spare or _GraphProcess(self._events, self._modules), None
        self._pending.save = save
        # Files saved since the build belong to the next save, so they are not drift.
        options = msgspec.structs.replace(self._options, allow_drift=True)
        self._pending.send(supervised.Order(options, sys.argv))

    def _handle_imported(self, child: _GraphProcess, _content: object) -> None:
        """After the imports of a new process have succeeded, end the old one and let the new one start its agents."""
        if child is not self._pending:
            return  # a later save has started another process
        if self._current is not None:
            self._current.end(self._end_timeout_s)
        self._current, self._pending = child, None
        child.send("go")

    @property
    def _end_timeout_s(self) -> float:
        """How long an old process may take to end before it is killed."""
        return self._builder.config.settings.runtime.grace_s + _BEYOND_GRACE_S

    def _handle_ready(self, child: _GraphProcess, content: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        """Report that the graph runs, let it proceed, and start the next spare process.

        `content` holds the lines to print and the modules that the next process imports in advance.
        """
        lines, self._modules = content
        duration = f"{(perf_counter() - child.save.began) * 1000:.0f} ms"
        if self._has_run:
            line = f"{_saved_text(child.save)} checked, built, restarted {console.style(f'in {duration}', 'dim')}"
            self._report_save("reloaded", child.save, line)
        else:
            watched = ", ".join(map(os.path.relpath, self._builder.request.paths)) or "this folder"
            line = f"Watching {console.sanitize(watched)} {console.style(f'(ready in {duration})', 'dim')}."
            link = [f"View at {self._page}"] if self._page else []
            self._report_save("ready", child.save, *lines, *link, line)
        self._has_run = child.was_ready = True
        child.send("proceed")
        self._spare = self._spare or _GraphProcess(self._events, self._modules)

    def _handle_failed(self, child: _GraphProcess, errors: tuple[GraphBusError, ...]) -> None:
        """Report that the imports or the start have failed; on the first start, raise errors of the options instead."""
        if child not in (self._pending, self._current):
            return  # a later save has started another process
        if not self._has_run and isinstance(errors[0], UsageError):
            raise_all(errors)
        child.save.errors = errors
        self._report_failure(child.save, is_running=child is self._pending and self._current is not None)

    def _handle_ended(self, child: _GraphProcess, status: int) -> None:
        """Forget a process that has ended; end the command if the graph had finished, otherwise wait for the next save."""
        if child is self._spare:
            self._spare = None
        elif child is self._pending or child is self._current:
            if child is self._pending:
                self._pending = None
            else:
                self._current = None
            # The person has left the prompt, or the graph has done its work.
            if child.was_ready and (self._has_terminal or (status == 0 and not self._options.stays_up)):
                self._status = status
            elif not child.save.errors:
                line = f"The graph ended with status {status}. Save a file to start it again."
                self._write_report({"event": "ended", "status": status}, [line])

    def _stop_current(self, stopped: StopRequested) -> int:
        """Stop the current process after a signal, and return the exit status of the command."""
        status = 0
        if self._current is not None:
            self._current.end(self._end_timeout_s)
            status, self._current = self._current.status, None
        self._write_report({"event": "stopped"}, ["\nStopped."])
        return stopped.exit_status if status > 128 else status  # above 128 a signal ended the process

    # --- output for a person or an editor ---

    def _report_failure(self, save: Save, *, is_running: bool) -> None:
        """Report that the new code does not run, and whether the old code still does."""
        if is_running:
            self._report_save(
                "failed", save, f"{_saved_text(save)} {console.style('the old code keeps running', 'bad')}"
            )
        else:
            self._report_save("waiting", save, "Nothing is running: correct the errors and save.")

    def _report_save(self, event: str, save: Save, *lines: str) -> None:
        """Report the result of a save, with its errors and findings."""
        document = {
            "event": event,
            "saved": save.paths,
            "agents": save.agents,
            "seconds": round(perf_counter() - save.began, 4),
            "errors": [console.error_as_json(error) for error in save.errors],
            "findings": _as_documents(save.findings),
            "gone": _as_documents(save.gone),
            **({"view": self._page} if self._page and event == "ready" else {}),
        }
        self._write_report(document, [*_problem_lines(save), *lines])

    def _write_report(self, document: dict[str, Any], lines: Iterable[str]) -> None:
        """Print the lines, or with `as_json` the document; a process with a prompt prints them instead."""
        text = console.Verbatim(msgspec.json.encode(document).decode()) if self._as_json else "\n".join(lines)
        if self._options.is_interactive and self._current is not None and self._current.was_ready:
            self._current.send(text)  # the process with the prompt prints it above the line being typed
        else:
            (console.print_note if self._options.as_json else console.print_line)(text)
            console.flush()


def _saved_text(save: Save) -> str:
    """Return the beginning of a line about a save: its files."""
    return f"saved {console.sanitize(', '.join(save.paths))} ->"


def _as_documents(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as the artifacts store them, with `path`, `line` and `column` by name."""
    return [msgspec.structs.asdict(each) | msgspec.structs.asdict(each.span) for each in findings]


def _problem_lines(save: Save) -> Iterator[str]:
    """Yield the errors and the new findings of a save."""
    for error in save.errors:
        yield from console.error_lines(error)
    for finding in save.findings:
        place = console.style(console.sanitize(f"{finding.span.path}:{finding.span.line}:"), "strong")
        yield f"{place} {console.style(finding.code, 'warn')} {console.sanitize(finding.message)}"
        if finding.hint:
            yield f"  {console.style('hint:', 'name')} {console.sanitize(finding.hint)}"


def _export_generated_token(options: RunOptions) -> Token:
    """Return the token of the server, and set its environment variable if it had to be generated.

    Otherwise each restart would generate another one. Without a server there is none.
    """
    config = settings.resolve_run(options.request())
    serve = config.settings.serve
    if not options.is_served or not serve.token_env:
        return Token("")
    serve = msgspec.structs.replace(serve, host=options.host or serve.host)
    token = find_token(serve, settings.find_root([Path(config.artifacts_dir).parent]), Path(config.state_dir))
    if token.notice:
        os.environ[serve.token_env] = token.text
        if not options.is_view_implied:
            console.print_note(f"[RUNTIME] {token.notice}")
    return token
