"""What states look like: agents and keys as rows, values on one line, changes as a list. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from json import dumps, loads

from graphbus_core.cli.console import Role, paint, plain
from graphbus_core.hosting.state_file import Change, Kept

_LONGEST_CELL = 60
_MOST_LINES = 20


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
    legible = dumps(loads(text), ensure_ascii=False) if len(text) <= 10 * _LONGEST_CELL else text
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


def count(number: int, noun: str) -> str:
    """`1 key`, `2 keys`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Collection[str]) -> str:
    """Names in one line."""
    return ", ".join(map(_on_one_line, names))


def _on_one_line(text: str) -> str:
    cut = text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
    return plain(cut).replace("\n", " ")
