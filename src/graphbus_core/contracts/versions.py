"""The next version, from what has changed: semantic versioning, as Python projects write their versions (PEP 440).

1.4.2 -> 2.0.0 when the public contract breaks, 1.5.0 when it grows, 1.4.3 else; before 1.0.0 one place further right.
A pre-release counts as the release that it stands before: what 2.0.0 announces, 2.0.0rc1 announces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from graphbus_core.contracts.changes import ChangeKind, ContractChange
from graphbus_core.errors import UsageError

Level = Literal["major", "minor", "patch", "none"]

_Release = tuple[int, int, int]

_PLACE: dict[Level, int] = {"major": 0, "minor": 1, "patch": 2}
_GROWING: frozenset[ChangeKind] = frozenset(
    {"agent-added", "method-added", "field-added", "field-optional", "field-required", "fields-opened", "type-changed",
     "topic-added", "handler-added", "schema-known"}
)  # fmt: skip
_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,3})(?P<pre>[-_.]?(?:a|b|rc|alpha|beta|c|pre|dev)[-_.]?\d{0,9})?"
    r"(?:[-_.]?(?:post|dev)\d{0,9})*(?:\+[a-z0-9.]+)?",
    re.IGNORECASE,
)


class Suggestion(NamedTuple):
    """What the next version should be.

    Attributes:
        level: What kind of step that is, by what has changed alone.
        current: The version before; empty if none is known.
        least: The lowest version that says enough; empty if none is known.
        found: The version of the new state; empty if none is known.
        is_enough: The version of the new state says enough; None where that cannot be told.
        because: The decisive changes in one clause.
    """

    level: Level
    current: str
    least: str
    found: str
    is_enough: bool | None
    because: str


def parse_version(text: str) -> tuple[_Release, bool]:
    """Read the release of a version, and whether the version is one before it.

    Raises:
        UsageError: GBE170, it is none.
    """
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise UsageError("GBE170", version=text)
    major, minor, patch = [*map(int, found["release"].split(".")), 0, 0][:3]
    return (major, minor, patch), bool(found["pre"])


def suggest_version(changes: Sequence[ContractChange], current: str, found: str = "") -> Suggestion:
    """Return the next version.

    Args:
        changes: What has changed.
        current: The version of the old state.
        found: The version of the new state, as far as somebody has raised it already.

    Raises:
        UsageError: GBE170 for a version that is none.
    """
    level, because = _judged(changes)
    now = parse_version(found)[0] if found else None
    if not current:
        return Suggestion(level, "", "", found, None, because)
    least = _next_release(*parse_version(current), level)
    is_enough = None if now is None else now >= least
    return Suggestion(level, current.strip(), ".".join(map(str, least)), found.strip(), is_enough, because)


def _judged(changes: Sequence[ContractChange]) -> tuple[Level, str]:
    """Describe how much the public contract has changed, and what is decisive."""
    broken = [change for change in changes if change.breaks_outside]
    if broken:
        return "major", f"{_listed(broken)} {'breaks' if len(broken) == 1 else 'break'} the public contract"
    grown = [each for each in changes if each.is_public and each.kind in _GROWING and each.effect == "compatible"]
    if grown:
        return "minor", f"the public contract grows: {_listed(grown)}"
    if not changes:
        return "none", "no contract has changed"
    if any(each.effect == "breaking" for each in changes):
        return "patch", "only agents of this graph rely on what breaks"
    return "patch", "nothing that others rely on has changed"


def _listed(changes: Sequence[ContractChange]) -> str:
    titles = list(dict.fromkeys(change.title for change in changes))
    rest = len(titles) - 2
    return ", ".join(titles[:2]) + (f" and {rest} more" if rest > 0 else "")


def _next_release(current: _Release, is_before: bool, level: Level) -> _Release:
    """Return the lowest release after `current` that announces a change of this level; itself if it is still to come and does."""
    major, minor, patch = current
    place = min(_PLACE.get(level, 2) + (major == 0), 2)  # before 1.0.0 each level is one place further right
    if level == "none" or (is_before and not any(current[place + 1 :])):
        return current
    return ((major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1))[place]
