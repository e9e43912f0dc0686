"""The common parts of `docker`, `k8s` and `ci`: reading the built project, running programs, and writing generated files.

Files with other content are overwritten only with --force, and either all files are written or none. Programs are found on PATH,
started without a shell, and shown as they run.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from errno import EINVAL, ELOOP
from itertools import takewhile
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import click

from graphbus_core import store
from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.deploy.names import check_image, make_label
from graphbus_core.deploy.render import Files
from graphbus_core.errors import DeployError, Place, raise_all
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.settings import project_table, resolve_run
from graphbus_core.store import BuildArtifacts
from graphbus_core.store.folders import Folder

_Function = TypeVar("_Function", bound=Callable[..., Any])
_State = Literal["new", "same", "changed"]

_STATE_WORDS: Mapping[_State, tuple[str, console.Role]] = {
    "new": ("written", "good"),
    "same": ("as it was", "dim"),
    "changed": ("overwritten", "warn"),
}


_NOT_STARTED = 126
"""The status that shells return for a file that cannot be executed."""


class BuiltProject(NamedTuple):
    """A project that was built.

    Attributes:
        root: The project root.
        folder: Its artifact folder, as given on the command line.
        run: Its configuration for Runtime Mode.
        about: The table `[project]` of its pyproject.toml.
    """

    root: Path
    folder: str
    artifacts: BuildArtifacts
    manifest: Manifest
    run: ResolvedRun
    about: Mapping[str, object]


def read_project(folder: str) -> BuiltProject:
    """Read the artifacts in a folder and the project that they belong to.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        UsageError: The settings cannot be read.
    """
    artifacts = store.load(folder, without=("negotiations.json", "modified_files.json"))
    manifest = store.load_manifest(folder)
    raise_all(store.find_drift(folder, manifest))
    root = Path(store.project_root(folder, manifest))
    run = resolve_run(RuntimeConfig(artifacts=folder))
    return BuiltProject(root, folder, artifacts, manifest, run, project_table(root))


def text_of(about: Mapping[str, object], key: str) -> str:
    """Return the text under a key of `[project]`; empty where there is none."""
    value = about.get(key)
    return value if isinstance(value, str) else ""


def name_image(root: Path, *, option: str = "--tag") -> str:
    """Return the default name of the project's image: `name:version`.

    Args:
        root: The project.
        option: The option that sets another name, for the hint.

    Raises:
        DeployError: GBE716 if pyproject.toml lacks one of them.
    """
    about = project_table(root)
    name, version = make_label(text_of(about, "name")), text_of(about, "version")
    if not name or not version:
        missing = "`version`" if name else "`name`"
        raise DeployError("GBE716", missing=missing, option=option, example="shop:1.4.2")
    return check_image(f"{name}:{version.replace('+', '-')}")


class ProgramResult(NamedTuple):
    """The result of a program: exit status, stdout, and the last line of stderr."""

    status: int
    text: str
    reason: str


def run_captured(command: Sequence[str], cwd: Path | None = None, timeout_s: float | None = None) -> ProgramResult:
    """Run a program and capture its output. Nothing is raised.

    If the program cannot be started, or runs longer than `timeout_s`, the status is 126 and `reason` says so.
    """
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=nothing, capture_output=True, errors="replace", timeout=timeout_s, check=False
        )
    except OSError as error:
        return ProgramResult(_NOT_STARTED, "", f"it cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as error:
        return ProgramResult(_NOT_STARTED, "", f"it did not answer within {error.timeout:.0f} seconds")
    error_lines = done.stderr.strip().splitlines() or [f"status {_format_status(done.returncode)}"]
    return ProgramResult(done.returncode, done.stdout, error_lines[-1].removeprefix("error: ").rstrip("."))


def run_at_terminal(command: Sequence[str], cwd: Path) -> None:
    """Run a program, with its output on stderr, so that stdout holds only the results of GraphBus.

    Raises:
        DeployError: GBE705 it failed, or could not be started.
    """
    _print_command(command)
    shown = shlex.join(takewhile(lambda word: not word.startswith("-"), command))  # the whole command was just printed
    try:
        with subprocess.Popen(command, cwd=cwd, stdout=sys.stderr) as process:
            status = _wait_and_pass_signals(process)
    except OSError as error:
        reason = f"{_NOT_STARTED} (it cannot be started: {reason_of(error)})"
        advice = f"Install `{command[0]}`, or make it executable."
        raise DeployError("GBE705", command=shown, status=reason, advice=advice) from None
    if status:
        advice = _advise_on_status(status)
        raise DeployError("GBE705", command=shown, status=_format_status(status), advice=advice)


def replace_process(command: list[str], cwd: Path) -> NoReturn:
    """Replace this process by a program, so that Ctrl-C and SIGTERM reach it directly.

    Raises:
        DeployError: GBE705 it cannot be started.
    """
    _print_command(command)
    os.chdir(cwd)
    try:
        os.execvp(command[0], command)  # noqa: S606 - without a shell, so that no argument is interpreted
    except OSError as error:
        reason = f"{_NOT_STARTED} (it cannot be started: {reason_of(error)})"
        advice = f"Install `{command[0]}`, or make it executable."
        raise DeployError("GBE705", command=shlex.join(command[:2]), status=reason, advice=advice) from None


def _print_command(command: Sequence[str]) -> None:
    console.print_note(console.style(f"$ {console.sanitize(shlex.join(command))}", "dim"))
    console.flush()


def _wait_and_pass_signals(process: subprocess.Popen[bytes]) -> int:
    """Return the status of a program. On SIGTERM or SIGHUP terminate it, and end this process by the same signal afterwards."""
    received: list[int] = []

    def terminate(number: int, _frame: object) -> None:
        received.append(number)
        process.terminate()

    passed_on = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, terminate) for number in passed_on}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            os.kill(os.getpid(), received[0])


def _advise_on_status(status: int) -> str:
    """Return the hint for a program that ended with this status; a program that a signal has ended seldom explains why."""
    if status == -signal.SIGKILL:
        return "It may have run out of memory. Free memory or raise the limit, then run `graphbus` again."
    if status < 0:
        return "Another process stopped it, or it crashed. Run `graphbus` again."
    return "Correct the problem that its output above describes, then run `graphbus` again."


def _format_status(status: int) -> str:
    """Return a status as a shell shows it: for a program that a signal ended, 128 plus its number, with its name."""
    return str(status) if status >= 0 else f"{128 - status} (killed by {signal.Signals(-status).name})"


# --- Generated files on their way to disk ---------------------------------------------------------


class WriteOptions(NamedTuple):
    """How to write files: the options that `writing_options` adds to a command."""

    is_forced: bool = False
    is_check: bool = False
    is_diff: bool = False
    as_json: bool = False


def writing_options(command: _Function) -> _Function:
    """Add --force, --check, --diff and --json to a command, by the names of the fields of `WriteOptions`."""
    for words, text in (
        (("--json", "as_json"), "Write one JSON document to stdout."),
        (("--diff", "is_diff"), "Show what would change; write nothing."),
        (("--check", "is_check"), "Write nothing; fail if a file is not up to date."),
        (("--force", "is_forced"), "Overwrite files with other content, and show the changes."),
    ):
        command = click.option(*words, is_flag=True, help=text)(command)
    return command


def command_line(command: str, values: Mapping[str, object]) -> str:
    """Return a command line that runs the current command with these values; empty and default values are left out.

    Args:
        command: The words before the options.
        values: Parameter name -> value, in the order in which they are written.
    """
    context = click.get_current_context()
    parameters = {parameter.name: parameter for parameter in context.command.params}
    words = shlex.split(command)
    for name, value in values.items():
        parameter = parameters[name]
        if value == parameter.get_default(context) or value in ("", (), None):
            continue
        option = [] if isinstance(parameter, click.Argument) else [parameter.opts[0]]
        each = value if isinstance(value, tuple) else (value,)
        words += option if isinstance(value, bool) else [word for one in each for word in (*option, str(one))]
    return shlex.join(words)


def write_files(folder: Path, files: Files, write_options: WriteOptions) -> dict[str, _State]:
    """Write the files into a folder and print what was done with each; with --json the caller prints.

    With --diff the changes are only shown, and with --check nothing is written.

    Returns:
        Path -> whether the file is new, the same or changed.

    Raises:
        DeployError: GBE701 a file would be overwritten, GBE702 one cannot be written, GBE706 a file differs, with --check.
    """
    data = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
    before = {path: _read_existing(folder / path) for path in data}
    states: dict[str, _State] = {
        path: "new" if before[path] is None else "same" if before[path] == data[path] else "changed" for path in data
    }
    stale = [path for path, state in states.items() if state != "same"]
    changed = [path for path in stale if states[path] == "changed"]
    if write_options.is_diff or (write_options.is_forced and changed):
        to = console.print_line if write_options.is_diff and not write_options.as_json else console.print_note
        for path in stale:
            console.print_diff(_make_diff(path, before[path], data[path]), to)
    if write_options.is_diff:
        return states
    if write_options.is_check and stale:
        raise DeployError("GBE706", count=_count_files(stale), names=", ".join(stale))
    if changed and not write_options.is_forced:
        raise DeployError("GBE701", count=_count_files(changed), names=", ".join(changed))
    _write_all(folder, {path: data[path] for path in stale})
    if not write_options.as_json:
        for path, state in states.items():
            word, role = _STATE_WORDS[state]
            console.print_line(f"{style(f'{word:<12}', role)} {sanitize(os.path.normpath(folder / path))}")
    return states


def _read_existing(place: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist. Anything but a readable file raises GBE702."""
    try:
        if place.is_symlink() and not place.exists():
            raise OSError(ELOOP, "it is a link to a file that does not exist")
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise OSError(EINVAL, "it is not a regular file")
        return place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _write_error(place, error) from None


def _write_error(place: Path, error: OSError) -> DeployError:
    return DeployError("GBE702", where=Place(str(place)), reason=reason_of(error), advice=advise_on(error, place))


def _make_diff(path: str, before: bytes | None, after: bytes) -> str:
    """Return a unified diff, or one line for a binary file; `before` is None for a new file."""
    from difflib import unified_diff

    try:
        new, old = after.decode(), (before or b"").decode(errors="replace")
    except UnicodeDecodeError:
        return f"{'New' if before is None else 'Changed'} binary file: {path}"
    names = "/dev/null" if before is None else f"a/{path}", f"b/{path}"
    return "\n".join(unified_diff(old.splitlines(), new.splitlines(), *names, lineterm=""))


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files; path below the folder -> content.

    Temporary files are written first, so that a full disk or a missing permission is noticed before any file is replaced.

    Raises:
        DeployError: GBE702, a file cannot be written.
    """
    ready: list[tuple[Folder, str, str]] = []
    place = folder
    with ExitStack() as opened:
        try:
            for path, data in files.items():
                place = folder / path
                above = opened.enter_context(Folder.at(folder.resolve() / Path(path).parent, make=True))
                beside = f".{place.name}.{os.getpid()}.tmp"
                ready.append((above, beside, place.name))
                known = above.status(place.name)
                above.write(beside, data)
                if known and S_ISREG(known.st_mode):
                    above.set_mode(beside, mode=S_IMODE(known.st_mode))
            for above, beside, name in ready:
                above.replace(beside, name)
        except OSError as error:
            raise _write_error(place, error) from None
        finally:
            for above, beside, _ in ready:
                with suppress(OSError):  # already renamed, or it cannot be removed
                    above.remove(beside)


def _count_files(paths: list[str]) -> str:
    return f"{len(paths)} file{'' if len(paths) == 1 else 's'}"
