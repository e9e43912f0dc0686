"""What `docker`, `k8s` and `ci` share: reading the built project, running programs, and writing generated files.

Files with other content are overwritten only by force, and either all files are written or none. Programs are found on PATH,
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
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.settings import project_table, resolve_run
from graphbus_core.store import BuildArtifacts
from graphbus_core.store.folders import Folder

_Function = TypeVar("_Function", bound=Callable[..., Any])
_State = Literal["new", "same", "changed"]

_SAID: Mapping[_State, tuple[str, console.Role]] = {
    "new": ("written", "good"),
    "same": ("as it was", "dim"),
    "changed": ("overwritten", "warn"),
}


_NOT_STARTED = 126
"""The status by which a shell says that a file cannot be executed."""


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
    """Run a program and capture its output. A failing status does not raise."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=nothing, capture_output=True, errors="replace", timeout=timeout_s, check=False
        )
    except OSError as error:
        return ProgramResult(_NOT_STARTED, "", f"it cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired as error:
        return ProgramResult(_NOT_STARTED, "", f"nothing in {error.timeout:.0f} seconds")
    complaint = done.stderr.strip().splitlines() or [f"status {_said(done.returncode)}"]
    return ProgramResult(done.returncode, done.stdout, complaint[-1].removeprefix("error: ").rstrip("."))


def run_at_terminal(command: Sequence[str], cwd: Path) -> None:
    """Run a program at this terminal, with its output on stderr, so that stdout is left for our results.

    Raises:
        DeployError: GBE705 it failed, or could not be started.
    """
    _show(command)
    try:
        with subprocess.Popen(command, cwd=cwd, stdout=sys.stderr) as process:
            status = _wait(process)
    except OSError as error:
        reason = f"{_NOT_STARTED} (it cannot be started: {error.strerror})"
        raise DeployError("GBE705", command=shlex.join(command[:3]), status=reason) from None
    if status:
        raise DeployError("GBE705", command=shlex.join(command[:3]), status=_said(status))


def replace_process(command: list[str], cwd: Path) -> NoReturn:
    """Replace this process by a program, so that Ctrl-C and SIGTERM reach it directly.

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
    console.print_note(console.style(f"$ {console.sanitize(shlex.join(command))}", "dim"))
    console.flush()


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program; a signal to this process is passed on before this process ends."""
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
    """Return a status as a shell shows it: 128 plus the number of the signal that ended the program."""
    return str(status) if status >= 0 else f"{128 - status} (killed by {signal.Signals(-status).name})"


# --- Generated files on their way to disk ------------------------------------------------------------------------------


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
    """Return a command line that repeats the running command with these values, without empty and default ones.

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


def write_files(folder: Path, files: Files, wish: WriteOptions) -> dict[str, _State]:
    """Write files below a folder and print the result for each; with --json only the caller prints.

    Returns:
        Path -> whether the file is new, the same or changed.

    Raises:
        DeployError: GBE701 a file would be overwritten, GBE702 one cannot be written, GBE706 with `is_check`, one differs.
    """
    data = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
    before = {path: _read(folder / path) for path in data}
    states: dict[str, _State] = {
        path: "new" if before[path] is None else "same" if before[path] == data[path] else "changed" for path in data
    }
    stale = [path for path, state in states.items() if state != "same"]
    changed = [path for path in stale if states[path] == "changed"]
    if wish.is_diff or (wish.is_forced and changed):
        to = console.print_line if wish.is_diff and not wish.as_json else console.print_note
        for path in stale:
            console.print_diff(_difference(path, before[path], data[path]), to)
    if wish.is_diff:
        return states
    if wish.is_check and stale:
        raise DeployError("GBE706", count=_count(stale), names=", ".join(stale))
    if changed and not wish.is_forced:
        raise DeployError("GBE701", count=_count(changed), names=", ".join(changed))
    _write_all(folder, {path: data[path] for path in stale})
    if not wish.as_json:
        for path, state in states.items():
            said, role = _SAID[state]
            console.print_line(f"{style(f'{said:<12}', role)} {sanitize(os.path.normpath(folder / path))}")
    return states


def _read(place: Path) -> bytes | None:
    try:
        if place.is_symlink() and not place.exists():
            raise OSError("A link that leads nowhere")
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise OSError("Not a file")
        return place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(place, error) from None


def _unwritable(place: Path, error: OSError) -> DeployError:
    return DeployError("GBE702", where=Place(str(place)), path=place.name, reason=error.strerror or str(error))


def _difference(path: str, before: bytes | None, after: bytes) -> str:
    from difflib import unified_diff

    try:
        new, old = after.decode(), (before or b"").decode(errors="replace")
    except UnicodeDecodeError:
        return f"{'New' if before is None else 'Changed'} file of bytes: {path}"
    names = "/dev/null" if before is None else f"a/{path}", f"b/{path}"
    return "\n".join(unified_diff(old.splitlines(), new.splitlines(), *names, lineterm=""))


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write temporary files first, so that a full disk or a missing permission is noticed before any file is replaced."""
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
            raise _unwritable(place, error) from None
        finally:
            for above, beside, _ in ready:
                with suppress(OSError):  # already renamed, or it cannot be removed
                    above.remove(beside)


def _count(paths: list[str]) -> str:
    return f"{len(paths)} file{'' if len(paths) == 1 else 's'}"
