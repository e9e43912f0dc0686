"""Changes of states from the command line: shown, asked about, kept in a file that takes them back, and made."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from json import dumps, loads
from pathlib import Path
from typing import NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.console import Role, paint, plain
from graphbus_core.cli.running.kept_files import LONGEST_CELL, ask
from graphbus_core.errors import Place, RunError, UsageError
from graphbus_core.hosting.state_file import Change, Kept, Plan, Snapshot, StateFile, render
from graphbus_core.store.writing import refuse_special

_MOST_LINES = 20


class Wish(NamedTuple):
    """How a change is made.

    Attributes:
        command: `import` or `reset`; the other names are those of the options.
        is_sure: Nobody is asked.
        is_dry: Nothing is changed.
        no_backup: What is there before is not kept in a file.
        as_json: Nothing is shown meanwhile.
    """

    command: str
    is_sure: bool
    is_dry: bool
    no_backup: bool
    as_json: bool


class Made(NamedTuple):
    """What was changed, and the file with what was there before, if there is one."""

    changes: Sequence[Change]
    backup: Path | None = None


def make(path: Path, agents: Collection[str] | None, plan: Plan, wish: Wish, *, after_version: int = 0) -> Made:
    """Show what a plan changes, ask, and do it; the plan is made again from what the file has then.

    Args:
        path: The file of states.
        agents: Those that the plan looks at; None: all.
        plan: What changes.
        wish: How.
        after_version: As `StateFile.change` takes it.

    Raises:
        UsageError: GBE177 there is no terminal to ask on.
        RunError: GBE699 the backup cannot be written; GBE643-645. Nothing is changed then.
    """
    expected = preview(path, agents, plan)
    if not wish.as_json:
        for line in changes_as_lines(expected):
            console.out(line)
    if not expected or wish.is_dry:
        return Made(expected)
    if not wish.is_sure:
        ask("Go on?", UsageError("GBE177", command=wish.command))
    backups: list[Path] = []

    def keep(before: Snapshot) -> None:
        if not wish.no_backup:
            backups.append(_backup(path.parent, before, plan, wish))
            on_failure.callback(_remove, backups[-1])

    with ExitStack() as on_failure, closing(StateFile(str(path))) as file:
        changes = file.change(agents, plan, keep, after_version=after_version)
        on_failure.pop_all()
    return Made(changes, next(iter(backups), None))


def preview(path: Path, agents: Collection[str] | None, plan: Plan) -> Sequence[Change]:
    """What a plan would change now; no file is made."""
    if not path.exists():
        return plan(Snapshot(0, {}))
    with closing(StateFile(str(path))) as file:
        return plan(file.snapshot(agents))


def _backup(folder: Path, before: Snapshot, plan: Plan, wish: Wish) -> Path:
    """Write what is there before a change beside the states: of a reset what it removes, so that what comes later stays."""
    if wish.command == "reset":
        gone = {(change.agent, change.key) for change in plan(before)}
        agents = {
            agent: {key: kept for key, kept in keys.items() if (agent, key) in gone}
            for agent, keys in before.agents.items()
        }
        before = before._replace(agents=agents)
    path, number = folder / f"state-backup-{before.version}.json", 2
    while path.exists():
        path, number = folder / f"state-backup-{before.version}-{number}.json", number + 1
    write_private(path, render(before))
    return path


def _remove(backup: Path) -> None:
    with suppress(OSError):
        backup.unlink()


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


# --- text -----------------------------------------------------------------------------------


def size_of(keys: Mapping[str, Kept]) -> int:
    """Bytes of all values together; their JSON is ASCII."""
    return sum(len(kept.text) for kept in keys.values())


def agent_row(agent: str, keys: Mapping[str, Kept]) -> tuple[str, ...]:
    """Agent, keys, size, version of the last change."""
    last = max((kept.version for kept in keys.values()), default=0)
    return _on_one_line(agent), str(len(keys)), size(size_of(keys)), str(last)


def key_row(key: str, kept: Kept) -> tuple[str, ...]:
    """Key, version, size, the begin of the value."""
    return _on_one_line(key), str(kept.version), size(len(kept.text)), shortly(kept.text)


def size(number: int) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def shortly(text: str) -> str:
    """A value on one line, cut off where it is long."""
    legible = dumps(loads(text), ensure_ascii=False) if len(text) <= 10 * LONGEST_CELL else text
    return _on_one_line(legible)


def at_length(text: str) -> str:
    """A value with all its lines."""
    return plain(dumps(loads(text), indent=2, ensure_ascii=False))


def changes_as_lines(changes: Sequence[Change]) -> Iterator[str]:
    """`+ agent key  value`, `~` and `-`; of many the first."""
    for change in changes[:_MOST_LINES]:
        role, sign = _sign_of(change)
        shown = "" if change.after is None else f"  {shortly(change.after)}"
        yield f"{paint(f'{sign} {_on_one_line(change.agent)} {_on_one_line(change.key)}', role)}{shown}"
    if len(changes) > _MOST_LINES:
        yield paint(f"and {len(changes) - _MOST_LINES} more", "dim")


def _sign_of(change: Change) -> tuple[Role, str]:
    if change.before is None:
        return "good", "+"
    return ("gone", "-") if change.after is None else ("warn", "~")


def listed(names: Collection[str]) -> str:
    """Names in one line."""
    return ", ".join(map(_on_one_line, names))


def _on_one_line(text: str) -> str:
    cut = text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
    return plain(cut).replace("\n", " ")
