"""Programs of others that take what is generated: found on PATH, started with a list, heard as they speak."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core.cli import console
from graphbus_core.errors import DeployError


def find(names: Sequence[str], *, otherwise: str) -> str:
    """Give the first of these programs that is on PATH.

    Raises:
        DeployError: GBE704.
    """
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise DeployError("GBE704", program=" or ".join(names), otherwise=otherwise)


_NOT_STARTED = 126
"""What a shell says of a file that it cannot execute."""


class Answer(NamedTuple):
    """What a program has said: its output, and the last line of its complaint."""

    status: int
    text: str
    reason: str


def ask(command: Sequence[str], cwd: Path) -> Answer:
    """Run a program and take what it says; a status other than 0 is for the caller to judge."""
    try:
        finished = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        return Answer(_NOT_STARTED, "", _lacking(error))
    complaint = finished.stderr.strip().splitlines()
    reason = complaint[-1].removeprefix("error: ").rstrip(".") if complaint else f"status {_said(finished.returncode)}"
    return Answer(finished.returncode, finished.stdout, reason)


def run(command: Sequence[str], cwd: Path) -> None:
    """Run a program at this terminal: what it says is seen at once, and goes to stderr, so that stdout stays ours.

    Raises:
        DeployError: GBE705 it failed.
    """
    import shlex

    console.say(console.paint(f"$ {console.plain(shlex.join(command))}", "dim"))
    console.flush()
    shown = shlex.join(command[:3])
    try:
        status = _run_to_its_end(command, cwd)
    except OSError as error:
        raise DeployError("GBE705", command=shown, status=f"{_NOT_STARTED}, {_lacking(error)}") from None
    if status:
        raise DeployError("GBE705", command=shown, status=_said(status))


def _run_to_its_end(command: Sequence[str], cwd: Path) -> int:
    """Give its status. Who ends us ends it first: a build that nobody waits for any more would go on. Ctrl-C it hears itself."""
    import os
    import signal
    import sys

    received: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, _frame: object) -> None:
        received.append(number)
        for process in started:
            process.send_signal(number)

    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {
        number: signal.signal(number, hand_on) for number in heard
    }  # first: it may be ended as soon as it has begun
    try:
        with subprocess.Popen(command, cwd=cwd, stdout=sys.stderr) as process:
            started.append(process)
            for number in received:  # while it was started
                process.send_signal(number)
            try:
                status = process.wait()
            finally:
                if process.poll() is None:  # this wait has been broken off
                    process.kill()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        os.kill(os.getpid(), received[0])
    return status


def _lacking(error: OSError) -> str:
    return f"it cannot be started: {error.strerror}"


def _said(status: int) -> str:
    """As a shell has it: what a signal has ended is 128 and its number."""
    import signal

    return str(status) if status >= 0 else f"{128 - status}, by {signal.Signals(-status).name}"
