"""Programs of others that take what is generated: found on PATH, started with a list of words, shown as they run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from graphbus_core import store
from graphbus_core.cli import console
from graphbus_core.deploy.names import as_label, check_image
from graphbus_core.errors import DeployError, raise_all
from graphbus_core.model.artifacts import BuildArtifacts, Manifest
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.settings import project_table, resolve_run

_NOT_STARTED = 126
"""The status by which a shell says that a file cannot be executed."""


class Project(NamedTuple):
    """A project that was built.

    Attributes:
        root: Where it is.
        folder: Its artifact folder, as it was named.
        run: How Runtime Mode would run it.
        about: The table `[project]` of its pyproject.toml.
    """

    root: Path
    folder: str
    artifacts: BuildArtifacts
    manifest: Manifest
    run: ResolvedRun
    about: Mapping[str, object]


def read_project(folder: str) -> Project:
    """Read what a build has written into a folder, and the project that it belongs to.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        UsageError: What reading the settings raises.
    """
    artifacts = store.load(folder, without=("negotiations.json", "modified_files.json"))
    manifest = store.load_manifest(folder)
    raise_all(store.find_drift(folder, manifest))
    root = Path(store.project_root(folder, manifest))
    run = resolve_run(RuntimeConfig(artifacts=folder))
    return Project(root, folder, artifacts, manifest, run, project_table(root))


def text_of(about: Mapping[str, object], key: str) -> str:
    """Return the text under a key of `[project]`; empty where there is none."""
    value = about.get(key)
    return value if isinstance(value, str) else ""


def name_image(root: Path, *, option: str = "--tag") -> str:
    """Return the name that an image of this project has: `name:version`.

    Args:
        root: The project.
        option: The option of the command that gives another name.

    Raises:
        DeployError: GBE716 when the project does not say one of them.
    """
    about = project_table(root)
    name, version = as_label(text_of(about, "name")), text_of(about, "version")
    if not name or not version:
        missing = "`version`" if name else "`name`"
        raise DeployError("GBE716", missing=missing, option=option, example="shop:1.4.2")
    return check_image(f"{name}:{version.replace('+', '-')}")


class Answer(NamedTuple):
    """How a program ended: its status, its output, and the last line of its complaint."""

    status: int
    text: str
    reason: str


def find(name: str, *, otherwise: str) -> str:
    """Return the path of a program.

    Raises:
        DeployError: GBE704.
    """
    found = shutil.which(name)
    if not found:
        raise DeployError("GBE704", program=name, otherwise=otherwise)
    return found


def ask(command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None) -> Answer:
    """Run a program and return what it says; a status other than 0 is for the caller to judge."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=nothing, capture_output=True, errors="replace", timeout=timeout_s, check=False
        )
    except OSError as error:
        return Answer(_NOT_STARTED, "", f"it cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as error:
        return Answer(_NOT_STARTED, "", f"nothing in {error.timeout:.0f} seconds")
    complaint = done.stderr.strip().splitlines() or [f"status {_said(done.returncode)}"]
    return Answer(done.returncode, done.stdout, complaint[-1].removeprefix("error: ").rstrip("."))


def run(command: Sequence[str], cwd: Path) -> None:
    """Run a program at this terminal. What it says is seen at once, and goes to stderr, so that stdout stays ours.

    Raises:
        DeployError: GBE705 it failed, or could not be started.
    """
    _show(command)
    try:
        with subprocess.Popen(command, cwd=cwd, stdout=sys.stderr) as process:
            status = _wait(process)
    except OSError as error:
        reason = f"{_NOT_STARTED}, it cannot be started: {error.strerror}"
        raise DeployError("GBE705", command=shlex.join(command[:3]), status=reason) from None
    if status:
        raise DeployError("GBE705", command=shlex.join(command[:3]), status=_said(status))


def become(command: list[str], cwd: Path) -> NoReturn:
    """Let a program replace this process, so that Ctrl-C and SIGTERM reach it directly.

    Raises:
        DeployError: GBE705 it cannot be started.
    """
    _show(command)
    os.chdir(cwd)
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell is what it must not have
    except OSError:
        raise DeployError("GBE705", command=shlex.join(command[:2]), status=_NOT_STARTED) from None


def _show(command: Sequence[str]) -> None:
    console.say(console.paint(f"$ {console.plain(shlex.join(command))}", "dim"))
    console.flush()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program. A signal that ends this process ends the program first."""
    received: list[int] = []

    def end(number: int, _frame: object) -> None:
        received.append(number)
        process.terminate()

    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            os.kill(os.getpid(), received[0])


def _said(status: int) -> str:
    """Name a status as a shell does: what a signal has ended is 128 and its number."""
    return str(status) if status >= 0 else f"{128 - status}, by {signal.Signals(-status).name}"
