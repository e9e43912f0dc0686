"""Generated files on their way to disk: nothing of other content is overwritten unasked, and all are written or none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any, Literal, NamedTuple, TypeVar

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.deploy.render import Files
from graphbus_core.errors import DeployError, Place
from graphbus_core.store.beneath import Folder

Function = TypeVar("Function", bound=Callable[..., Any])
State = Literal["new", "same", "changed"]

_SAID: Mapping[State, tuple[str, console.Role]] = {
    "new": ("written", "good"),
    "same": ("as it was", "dim"),
    "changed": ("overwritten", "warn"),
}


class Wish(NamedTuple):
    """How files are to be written: the options that `options` adds to a command."""

    is_forced: bool = False
    is_check: bool = False
    is_diff: bool = False
    as_json: bool = False


def options(command: Function) -> Function:
    """Add --force, --check, --diff and --json to a command, by the names of the fields of `Wish`."""
    for words, text in (
        (("--json", "as_json"), "Write one JSON document to stdout."),
        (("--diff", "is_diff"), "Show what would change; write nothing."),
        (("--check", "is_check"), "Write nothing; fail if a file differs from what it would be."),
        (("--force", "is_forced"), "Overwrite files of other content, and show what changes."),
    ):
        command = click.option(*words, is_flag=True, help=text)(command)
    return command


def command_line(command: str, values: Mapping[str, object]) -> str:
    """Return the line that calls the running command with these values again; what is empty or a default is left out.

    Args:
        command: The words before the options.
        values: The values by the names of the parameters, in the order in which they are written.
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


def write(folder: Path, files: Files, wish: Wish) -> dict[str, State]:
    """Write files below a folder, and print what became of each; with --json the caller prints it.

    Returns:
        Path -> what it is beside the file that was there.

    Raises:
        DeployError: GBE701 a file would be overwritten, GBE702 one cannot be written, GBE706 with `is_check`, one differs.
    """
    data = {path: content.encode() if isinstance(content, str) else content for path, content in files.items()}
    before = {path: _read(folder / path) for path in data}
    states: dict[str, State] = {
        path: "new" if before[path] is None else "same" if before[path] == data[path] else "changed" for path in data
    }
    stale = [path for path, state in states.items() if state != "same"]
    changed = [path for path in stale if states[path] == "changed"]
    if wish.is_diff or (wish.is_forced and changed):
        to = console.out if wish.is_diff and not wish.as_json else console.say
        for path in stale:
            console.diff(_difference(path, before[path], data[path]), to)
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
            console.out(f"{paint(f'{said:<12}', role)} {plain(os.path.normpath(folder / path))}")
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
    """Write all beside their places first, so that a full disk or a missing permission is met before anything is replaced."""
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
                    above.give(beside, mode=S_IMODE(known.st_mode))
            for above, beside, name in ready:
                above.replace(beside, name)
        except OSError as error:
            raise _unwritable(place, error) from None
        finally:
            for above, beside, _ in ready:
                with suppress(OSError):  # it is not there, or nothing can be done
                    above.remove(beside)


def _count(paths: list[str]) -> str:
    return f"{len(paths)} file{'' if len(paths) == 1 else 's'}"
