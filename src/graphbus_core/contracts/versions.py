"""The next version, from what has changed: semantic versioning, as Python projects write their versions (PEP 440).

1.4.2 -> 2.0.0 when the public contract breaks, 1.5.0 when it grows, 1.4.3 else; before 1.0.0 one place further right.
A pre-release of a version that is high enough stays one: 2.0.0rc1 -> 2.0.0rc2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from graphbus_core.contracts.changes import Change, ChangeKind
from graphbus_core.errors import UsageError

Level = Literal["major", "minor", "patch", "none"]

_PLACE: dict[Level, int] = {"major": 0, "minor": 1, "patch": 2}
_GROWING: frozenset[ChangeKind] = frozenset(
    {"agent-added", "method-added", "field-added", "field-optional", "field-required", "fields-opened", "type-changed",
     "topic-added", "handler-added", "schema-known"}
)  # fmt: skip
_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,3})(?:[-_.]?(?P<pre>a|b|rc|alpha|beta|c|pre|dev)[-_.]?(?P<number>\d{0,9}))?"
    r"(?:[-_.]?(?:post|dev)\d{0,9})*(?:\+[a-z0-9.]+)?",
    re.IGNORECASE,
)
_MARKS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "dev": ".dev"}
_FINAL = "~"


class _Version(NamedTuple):
    """A version; versions compare as tuples, for the mark `.dev` sorts before `a`, and that of no pre-release last."""

    release: tuple[int, int, int]
    mark: str = _FINAL
    number: int = 0

    def __str__(self) -> str:
        return ".".join(map(str, self.release)) + (f"{self.mark}{self.number}" if self.mark != _FINAL else "")


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


def parse(text: str) -> _Version:
    """Read a version.

    Raises:
        UsageError: GBE170, it is none.
    """
    found = _VERSION.fullmatch(text.strip())
    if not found:
        raise UsageError("GBE170", version=text)
    major, minor, patch = [*map(int, found["release"].split(".")), 0, 0][:3]
    mark = (found["pre"] or _FINAL).lower()
    return _Version((major, minor, patch), _MARKS.get(mark, mark), int(found["number"] or 0))


def suggest(changes: Sequence[Change], current: str, found: str = "") -> Suggestion:
    """Give the next version.

    Args:
        changes: What has changed.
        current: The version of the old state.
        found: The version of the new state, as far as somebody has raised it already.

    Raises:
        UsageError: GBE170 for a version that is none.
    """
    level, because = _judged(changes)
    now = parse(found) if found else None
    if not current:
        return Suggestion(level, "", "", found, None, because)
    before = parse(current)
    least = _next_version(before, level)
    is_enough = None if now is None else _says_enough(now, least)
    return Suggestion(level, str(before), str(least), str(now or ""), is_enough, because)


def _judged(changes: Sequence[Change]) -> tuple[Level, str]:
    """Say how much the public contract has changed, and what is decisive."""
    broken = [change for change in changes if change.breaks_outside]
    if broken:
        return "major", f"{_listed(broken)} {'breaks' if len(broken) == 1 else 'break'} the public contract"
    grown = [each for each in changes if each.is_public and each.kind in _GROWING and each.effect == "compatible"]
    if grown:
        return "minor", f"the public contract grows: {_listed(grown)}"
    return ("patch", "nothing that others rely on has changed") if changes else ("none", "no contract has changed")


def _listed(changes: Sequence[Change]) -> str:
    titles = list(dict.fromkeys(change.title for change in changes))
    rest = len(titles) - 2
    return ", ".join(titles[:2]) + (f" and {rest} more" if rest > 0 else "")


def _says_enough(now: _Version, least: _Version) -> bool:
    """A pre-release of a release that would be high enough is high enough, unless the least is a later pre-release."""
    is_announced = now.mark != _FINAL == least.mark and now.release >= least.release
    return is_announced or now >= least


def _next_version(current: _Version, level: Level) -> _Version:
    """Give the lowest version after `current` that announces a change of this level."""
    if level == "none":
        return current
    major, minor, patch = current.release
    place = min(_PLACE[level] + (major == 0), 2)  # before 1.0.0 each level is one place further right
    if current.mark != _FINAL and not any(current.release[place + 1 :]):  # the release to come is such a step already
        return current._replace(number=current.number + 1)
    return _Version(((major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1))[place])
