"""The next version of a project after changes of its contracts: semantic versioning with the version numbers of PEP 440.

1.4.2 -> 2.0.0 if the public contract breaks, 1.5.0 if it grows, 1.4.3 otherwise; before 1.0.0 one place further right.
A pre-release counts as its release: 2.0.0rc1 announces the same changes as 2.0.0.
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
    """The version that the new state should have.

    Attributes:
        level: The part of the version that the changes require to be raised.
        current: The version of the old state; empty if it is not known.
        least: The lowest sufficient version; empty if `current` is not known.
        found: The version of the new state; empty if it is not known.
        is_enough: True if `found` is sufficient; None if that is not known.
        because: The changes that decide the level, in one clause.
    """

    level: Level
    current: str
    least: str
    found: str
    is_enough: bool | None
    because: str


def parse_version(text: str) -> tuple[_Release, bool]:
    """Return the first three numbers of a version, and whether it is a pre-release.

    Raises:
        UsageError: GBE170, the text is not a version.
    """
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise UsageError("GBE170", version=text)
    major, minor, patch = [*map(int, found["release"].split(".")), 0, 0][:3]
    return (major, minor, patch), bool(found["pre"])


def suggest_version(changes: Sequence[ContractChange], current: str, found: str = "") -> Suggestion:
    """Return the lowest version that the changes allow, and whether the version of the new state is high enough.

    Args:
        changes: The changes of the contracts.
        current: The version of the old state, or empty.
        found: The version of the new state, which may have been raised already, or empty.

    Raises:
        UsageError: GBE170, `current` or `found` is not a version.
    """
    level, because = _find_level(changes)
    now = parse_version(found)[0] if found else None
    if not current:
        return Suggestion(level, "", "", found, None, because)
    least = _next_release(*parse_version(current), level)
    is_enough = None if now is None else now >= least
    return Suggestion(level, current.strip(), ".".join(map(str, least)), found.strip(), is_enough, because)


def _find_level(changes: Sequence[ContractChange]) -> tuple[Level, str]:
    """Return the part of the version that the changes require to be raised, and the reason as a clause."""
    broken = [change for change in changes if change.breaks_outside]
    if broken:
        return "major", f"{_list_titles(broken)} {'breaks' if len(broken) == 1 else 'break'} the public contract"
    grown = [each for each in changes if each.is_public and each.kind in _GROWING and each.effect == "compatible"]
    if grown:
        return "minor", f"the public contract grows: {_list_titles(grown)}"
    if not changes:
        return "none", "no contract has changed"
    if any(each.effect == "breaking" for each in changes):
        return "patch", "only agents of this graph rely on what breaks"
    return "patch", "nothing that others rely on has changed"


def _list_titles(changes: Sequence[ContractChange]) -> str:
    """Return the titles of the first two changes, and the number of further titles: `"A.f: input x, A.g and 3 more"`."""
    titles = list(dict.fromkeys(change.title for change in changes))
    rest = len(titles) - 2
    return ", ".join(titles[:2]) + (f" and {rest} more" if rest > 0 else "")


def _next_release(current: _Release, is_pre_release: bool, level: Level) -> _Release:
    """Return the lowest release that is sufficient for changes of this level.

    That is `current` itself for "none", and if `current` is a pre-release (2.0.0rc1) of a release that is high enough.
    """
    major, minor, patch = current
    place = min(_PLACE.get(level, 2) + (major == 0), 2)  # before 1.0.0 each level is one place further right
    if level == "none" or (is_pre_release and not any(current[place + 1 :])):
        return current
    return ((major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1))[place]
