"""Changes of states from the command line: shown, asked about, kept in a file that takes them back, and made."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.running.state_text import changes_as_lines
from graphbus_core.errors import Place, RunError, UsageError
from graphbus_core.hosting.state_file import Change, Plan, Snapshot, StateFile, render
from graphbus_core.store.writing import refuse_special


class Wish(NamedTuple):
    """How a change is made.

    Attributes:
        command: `import` or `reset`.
        is_sure: Nobody is asked.
        is_dry: Nothing is changed.
        has_backup: What is there before is kept in a file.
        as_json: Nothing is shown meanwhile.
    """

    command: str
    is_sure: bool
    is_dry: bool
    has_backup: bool
    as_json: bool


class Made(NamedTuple):
    """What was changed, and the file with what was there before, if there is one."""

    changes: Sequence[Change]
    backup: Path | None = None


def preview(path: Path, agents: Collection[str] | None, plan: Plan) -> Sequence[Change]:
    """What a plan would change now; no file is made."""
    if not path.exists():
        return plan(Snapshot(0, {}))
    with closing(StateFile(str(path))) as file:
        return plan(file.snapshot(agents))


def make(
    path: Path,
    agents: Collection[str] | None,
    plan: Plan,
    wish: Wish,
    *,
    kept: Callable[[Snapshot], Snapshot] = lambda before: before,
    after_version: int = 0,
) -> Made:
    """Show what a plan changes, ask, and do it; who changes the states meanwhile is not lost, but seen by the plan.

    Args:
        path: The file of states.
        agents: Those that the plan looks at; None: all.
        plan: What changes.
        wish: How.
        kept: What of the states before goes into the backup.
        after_version: As `StateFile.change` takes it.

    Raises:
        UsageError: GBE177 there is nobody to ask.
        RunError: GBE699 the backup cannot be written; GBE643-645. Nothing is changed then.
    """
    expected = preview(path, agents, plan)
    if not wish.as_json:
        for line in changes_as_lines(expected):
            console.out(line)
    if not expected or wish.is_dry:
        return Made(expected)
    if not wish.is_sure:
        _ask(wish.command)
    backup = _Backup(path.parent, kept) if wish.has_backup else None
    is_done = False
    try:
        with closing(StateFile(str(path))) as file:
            changes = file.change(agents, plan, backup or _forget, after_version=after_version)
        is_done = True
    finally:
        if backup is not None and not is_done:
            backup.discard()
    return Made(changes, backup.path if backup is not None else None)


class _Backup:
    """What was there before a change, in a file beside the states."""

    def __init__(self, folder: Path, kept: Callable[[Snapshot], Snapshot]) -> None:
        self._folder = folder
        self._kept = kept
        self.path: Path | None = None

    def __call__(self, before: Snapshot) -> None:
        path = self._folder / f"state-backup-{before.version}.json"
        number = 2
        while path.exists():
            path = self._folder / f"state-backup-{before.version}-{number}.json"
            number += 1
        write_private(path, render(self._kept(before)))
        self.path = path

    def discard(self) -> None:
        """Nothing was changed: there is nothing to take back."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()


def _forget(_before: Snapshot) -> None:
    """No backup is wanted."""


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read, whole or not at all; where a link is, the file behind it.

    Raises:
        RunError: GBE699.
    """
    file = Path(os.path.realpath(path))
    beside = file.parent / f".{file.name}.{os.getpid()}.tmp"
    try:
        refuse_special(file)
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        reason = (error.strerror or str(error)).lower()
        raise RunError("GBE699", where=Place(str(path)), reason=reason) from None


def _ask(command: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("GBE177", command=command)
    click.confirm("Go on?", abort=True, err=True)
