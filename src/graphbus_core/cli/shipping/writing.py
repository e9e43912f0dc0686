"""Generated files on their way to disk: nothing of other content is overwritten unasked, and all are written or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any, Literal, NamedTuple, TypeVar

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.deploy.facts import Files
from graphbus_core.errors import DeployError, Place
from graphbus_core.store.beneath import Folder

Function = TypeVar("Function", bound=Callable[..., Any])
State = Literal["new", "same", "changed"]

_ROLES: Mapping[State, console.Role] = {"new": "good", "same": "dim", "changed": "warn"}
_SAID: Mapping[State, str] = {"new": "written", "same": "as it was", "changed": "overwritten"}


class Wish(NamedTuple):
    """How files are to be written: the options that `options` adds to a command."""

    is_forced: bool = False
    is_check: bool = False
    is_diff: bool = False
    as_json: bool = False


def options(command: Function) -> Function:
    """Add --force, --check, --diff and --json to a command, by the names of the fields of `Wish`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout."),
        click.option("--diff", "is_diff", is_flag=True, help="Show what would change; write nothing."),
        click.option(
            "--check", "is_check", is_flag=True, help="Write nothing; fail if a file differs from what it would be."
        ),
        click.option(
            "--force", "is_forced", is_flag=True, help="Overwrite files of other content, and show what changes."
        ),
    ):
        command = option(command)
    return command


def write(folder: Path, files: Files, wish: Wish) -> dict[str, State]:
    """Write files below a folder, and say what became of each; with --json the caller says it.

    Returns:
        Path -> what it is beside the file that was there.

    Raises:
        DeployError: GBE701 a file would be overwritten, GBE702 one cannot be written, GBE706 with `is_check`, one differs.
    """
    states = {path: _state(folder / path, content) for path, content in files.items()}
    changed = [path for path, state in states.items() if state == "changed"]
    if wish.is_diff or (wish.is_forced and changed):
        _show_changes(folder, {path: files[path] for path, state in states.items() if state != "same"}, wish)
    if wish.is_diff:
        return states
    if wish.is_check:
        stale = [path for path, state in states.items() if state != "same"]
        if stale:
            raise DeployError("GBE706", count=_count(len(stale)), names=", ".join(stale))
    elif changed and not wish.is_forced:
        raise DeployError("GBE701", count=_count(len(changed)), names=", ".join(changed))
    else:
        _write_all(folder, {path: _bytes(files[path]) for path, state in states.items() if state != "same"})
    if not wish.as_json:
        for path, state in states.items():
            shown = plain(os.path.normpath(os.path.join(folder, path)))
            console.out(f"{paint(f'{_SAID[state]:<12}', _ROLES[state])} {shown}")
    return states


def _state(place: Path, content: str | bytes) -> State:
    try:
        if place.is_symlink() and not place.exists():
            raise OSError("A link that leads nowhere")
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise OSError("Not a file")
        before = place.read_bytes()
    except FileNotFoundError:
        return "new"
    except OSError as error:
        raise DeployError(
            "GBE702", where=Place(str(place)), path=place.name, reason=error.strerror or str(error)
        ) from None
    return "same" if before == _bytes(content) else "changed"


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _show_changes(folder: Path, files: Files, wish: Wish) -> None:
    """On stdout, if that is what is asked for; else as talk, beside the result."""
    from difflib import unified_diff

    for path, content in files.items():
        place = folder / path
        is_new = not place.exists()
        if isinstance(content, bytes):
            lines = [f"{'New' if is_new else 'Changed'} file of bytes: {path}"]
        else:
            before = [] if is_new else place.read_text(encoding="utf-8", errors="replace").splitlines()
            names = "/dev/null" if is_new else f"a/{path}", f"b/{path}"
            lines = list(unified_diff(before, content.splitlines(), *names, lineterm=""))
        console.diff("\n".join(lines), console.out if wish.is_diff and not wish.as_json else console.say)


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all beside their places first: a full disk or a missing permission is met before anything is replaced."""
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
            raise DeployError(
                "GBE702", where=Place(str(place)), path=place.name, reason=error.strerror or str(error)
            ) from None
        finally:
            for above, beside, _ in ready:
                with suppress(OSError):  # it is not there, or nothing can be done
                    above.remove(beside)


def _count(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"
