"""The next version, from what has changed: semantic versioning, as Python projects write their versions (PEP 440).

1.4.2 -> 2.0.0 when the public contract breaks, 1.5.0 when it grows, 1.4.3 else; before 1.0.0 one place further right.
A pre-release of a version that is high enough stays one: 2.0.0rc1 -> 2.0.0rc2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from graphbus_core.contracts.changes import Change, ChangeKind
from graphbus_core.errors import UsageError

Level = Literal["major", "minor", "patch", "none"]

_GROWING: frozenset[ChangeKind] = frozenset(
    {"agent-added", "method-added", "field-added", "field-optional", "field-required", "fields-opened", "type-changed",
     "topic-added", "handler-added", "schema-known"}
)  # fmt: skip
_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,3})(?:[-_.]?(?P<pre>a|b|rc|alpha|beta|c|pre|dev)[-_.]?(?P<number>\d{0,9}))?"
    r"(?:[-_.]?(?:post|dev)\d{0,9})*(?:\+[a-z0-9.]+)?",
    re.IGNORECASE,
)


_MARKS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc"}


class Version(NamedTuple):
    """A version: three numbers, and for a pre-release its mark and number."""

    release: tuple[int, int, int]
    mark: str = ""
    number: int = 0

    def __str__(self) -> str:
        mark = f".{self.mark}" if self.mark == "dev" else self.mark
        return ".".join(map(str, self.release)) + (f"{mark}{self.number}" if mark else "")

    @property
    def order(self) -> tuple[tuple[int, int, int], bool, str, int]:
        """What versions are compared by: a pre-release comes before its release, `dev` before `a`."""
        return self.release, not self.mark, "" if self.mark == "dev" else self.mark, self.number


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


def parse(text: str) -> Version:
    """Read a version.

    Raises:
        UsageError: GBE170, it is none.
    """
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise UsageError("GBE170", version=text)
    major, minor, patch = [*map(int, found["release"].split(".")), 0, 0][:3]
    mark = (found["pre"] or "").lower()
    return Version((major, minor, patch), _MARKS.get(mark, mark), int(found["number"] or 0) if mark else 0)


def _level_of(changes: Iterable[Change]) -> Level:
    """Say how much the public contract has changed: it breaks, grows, or stays what it was."""
    listed = list(changes)
    if any(change.breaks_outside for change in listed):
        return "major"
    if any(change.is_public and change.kind in _GROWING and change.effect == "compatible" for change in listed):
        return "minor"
    return "patch" if listed else "none"


def suggest(changes: Sequence[Change], current: str, found: str = "") -> Suggestion:
    """Give the next version.

    Args:
        changes: What has changed.
        current: The version of the old state.
        found: The version of the new state, as far as somebody has raised it already.

    Raises:
        UsageError: GBE170 for a version that is none.
    """
    level = _level_of(changes)
    why = _because(changes, level)
    now = parse(found) if found else None
    if not current:
        return Suggestion(level, "", "", found, None, why)
    before = parse(current)
    least = _next_version(before, level)
    is_enough = None if now is None else _says_enough(now, least)
    return Suggestion(level, str(before), str(least), str(now or ""), is_enough, why)


def _says_enough(now: Version, least: Version) -> bool:
    """A pre-release of a release that would be high enough is high enough, unless the least is a later pre-release."""
    is_announced = bool(now.mark) and not least.mark and now.release >= least.release
    return is_announced or now.order >= least.order


def _next_version(current: Version, level: Level) -> Version:
    """Give the lowest version after `current` that announces a change of this level."""
    if level == "none":
        return current
    major, minor, patch = current.release
    steps = {"major": (major + 1, 0, 0), "minor": (major, minor + 1, 0), "patch": (major, minor, patch + 1)}
    if not major:  # before 1.0.0 each level is one place further right
        steps["minor"], steps["major"] = steps["patch"], steps["minor"]
    if current.mark and _announces(current, level):
        return current._replace(number=current.number + 1)
    return Version(steps[level])


def _announces(current: Version, level: Level) -> bool:
    """Tell whether the release that a pre-release stands before is a step of this level already."""
    major, minor, patch = current.release
    if level == "major":
        return patch == 0 and (minor == 0 or major == 0)
    return patch == 0 if level == "minor" and major else True


def _because(changes: Sequence[Change], level: Level) -> str:
    """Say what is decisive for a level, in one clause."""
    if level == "major":
        broken = [change for change in changes if change.breaks_outside]
        return f"{_listed(broken)} {'breaks' if len(broken) == 1 else 'break'} the public contract"
    if level == "minor":
        grown = [change for change in changes if change.is_public and change.kind in _GROWING]
        return f"the public contract grows: {_listed(grown)}"
    return "nothing that others rely on has changed" if level == "patch" else "no contract has changed"


def _listed(changes: Sequence[Change]) -> str:
    titles = list(dict.fromkeys(change.title for change in changes))
    rest = len(titles) - 2
    return ", ".join(titles[:2]) + (f" and {rest} more" if rest > 0 else "")
