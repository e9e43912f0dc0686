"""`graphbus cluster up`: run the agents of a graph in several processes on this machine, connected by a ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

import click

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.console import Role, sanitize_line, style
from graphbus_core.cli.process_options import groups_option, ledger_option
from graphbus_core.hosting.arguments import LEDGER_VARIABLE
from graphbus_core.hosting.imports import select_agents
from graphbus_core.hosting.signals import StopRequested, stop_on_signals
from graphbus_core.model.config import RuntimeConfig

_COLOURS: tuple[Role, ...] = ("accent", "good", "warn", "name")
_UP_AFTER_S = 15.0
"""A process that has run for this long is up: it is started again when it ends. One that ends earlier ends the cluster."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0
"""The pauses before a process that has ended is started again."""
_PATIENCE_S = 2.0
"""How much longer than its own grace a process may take to stop before it is killed."""
_POLL_S = 0.1


@click.group("cluster", short_help="Run agents in several processes on this machine.")
def cluster() -> None:
    """Run the agents of a graph in several processes on this machine, connected by a ledger.

    \b
    Examples:
      graphbus cluster up
    """


@cluster.command("up")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@groups_option("Run these agents in one process; may be repeated. By default each agent has a process of its own.")
@ledger_option("The ledger that connects the processes ($GRAPHBUS_LEDGER, that of the settings, or sqlite).")
def up(*, artifacts: str, groups: tuple[tuple[str, ...], ...], ledger: str | None) -> int:
    """Start one process for each agent, or for each --agents, and show their output with the names of the agents before it.

    A process that ends is started again. Ctrl-C stops all of them: each handles what it has begun, and the events that
    wait stay in the ledger. For development; in production, let the service manager or Kubernetes start the processes:
    `graphbus run --ledger sqlite --only AGENT`.

    Exit status: 0 stopped by Ctrl-C or SIGTERM; otherwise that of a process that could not start.

    \b
    Examples:
      graphbus cluster up
      graphbus cluster up --agents Checkout,Payments --agents Books
    """
    config = runtime.load_runtime_config(RuntimeConfig(artifacts=artifacts))
    known = runtime.load_build_artifacts(config).agents.agents
    select_agents(known, [name for group in groups for name in group])
    chosen = groups or [(agent.name,) for agent in known if not agent.is_arbiter]
    ledger = ledger or config.settings.ledger or "sqlite"
    members = [
        _Member(group, artifacts, ledger, colour) for group, colour in zip(chosen, cycle(_COLOURS), strict=False)
    ]
    return _Cluster(members, config.settings.grace_s).run()


class _Member:
    """A process of the cluster.

    Attributes:
        name: Its agents.
        starts_at: When it is to be started, on the monotonic clock; None while it runs.
    """

    def __init__(self, agents: Sequence[str], artifacts: str, ledger: str, colour: Role) -> None:
        self.name = ",".join(agents)
        self.starts_at: float | None = 0.0
        self._colour = colour
        only = (f"--only={agent}" for agent in agents)
        self._command = [sys.executable, "-m", "graphbus_core", "run", artifacts, *only]
        self._environment = {**os.environ, LEDGER_VARIABLE: ledger}  # its password is not on the command line
        self._process: subprocess.Popen[str] | None = None
        self._reader: Thread | None = None
        self._started_at = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def start(self, lines: SimpleQueue[tuple[_Member, str]]) -> None:
        """Start the process, in a group of its own, so that Ctrl-C reaches only the cluster; its output goes to `lines`."""
        self._started_at, self.starts_at = time.monotonic(), None
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        output: IO[str] = self._process.stdout  # type: ignore[assignment]  # it is a pipe
        self._reader = Thread(target=self._read, args=(output, lines), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str], lines: SimpleQueue[tuple[_Member, str]]) -> None:
        with output:
            for line in output:
                lines.put((self, line.rstrip("\n")))

    def wait_for_output(self) -> None:
        """Wait until all that the ended process has written was read; a process that it has started may keep the pipe open."""
        if self._reader is not None:
            self._reader.join(_PATIENCE_S)

    def ended_with(self) -> int | None:
        """Return the exit status of a process that has just ended, and plan its next start; None while it runs."""
        status = None if self._process is None or self.starts_at is not None else self._process.poll()
        if status is not None:
            now = time.monotonic()
            self._pause_s = _FIRST_PAUSE_S if self.has_been_up else min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self.starts_at = now + self._pause_s
        return status

    @property
    def has_been_up(self) -> bool:
        """True if the process has run for a while."""
        return time.monotonic() - self._started_at >= _UP_AFTER_S

    @property
    def runs(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None and self.runs:
            self._process.send_signal(number)

    def prefix(self, width: int) -> str:
        """Return the name before each line of output."""
        return style(f"{self.name:<{width}} │ ", self._colour)


class _Cluster:
    """Starts, watches and stops the processes; one thread prints."""

    def __init__(self, members: Sequence[_Member], grace_s: float) -> None:
        self._members, self._grace_s = members, grace_s
        self._lines: SimpleQueue[tuple[_Member, str]] = SimpleQueue()
        self._width = max((len(member.name) for member in members), default=0)

    def run(self) -> int:
        """Run until a signal comes or a process cannot start; return the exit status."""
        status = 0
        try:
            with stop_on_signals() as patience:
                patience.is_busy = lambda: False
                while not status:
                    self._start_what_is_due()
                    self._print_lines()
                    status = next(self._failures(), 0)
        except StopRequested:
            console.print_note("Stopping ...")
        self._stop()
        return status

    def _start_what_is_due(self) -> None:
        for member in self._members:
            if member.starts_at is not None and member.starts_at <= time.monotonic():
                member.start(self._lines)

    def _failures(self) -> Iterator[int]:
        """Yield the status of each process that has ended before it was up; announce the restart of the others."""
        for member in self._members:
            status = member.ended_with()
            if status is None:
                continue
            if status > 0 and not member.has_been_up:
                yield status
            console.print_line(f"{member.prefix(self._width)}{style(f'ended with {status}, is started again', 'warn')}")

    def _print_lines(self) -> None:
        """Print what the processes have written, and wait a moment if that is nothing."""
        try:
            member, line = self._lines.get(timeout=_POLL_S)
            while True:
                console.print_line(f"{member.prefix(self._width)}{sanitize_line(line)}")
                member, line = self._lines.get_nowait()
        except Empty:
            console.flush()

    def _stop(self) -> None:
        """Let every process stop, and kill those that do not; print what they still write."""
        for member in self._members:
            member.send(signal.SIGTERM)
        ends_at = time.monotonic() + self._grace_s + _PATIENCE_S
        while any(member.runs for member in self._members):
            self._print_lines()
            if time.monotonic() > ends_at:
                for member in self._members:
                    member.send(signal.SIGKILL)
        for member in self._members:
            member.wait_for_output()
        self._print_lines()
