"""`graphbus diff`: every value that differs between two artifact folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Literal, NamedTuple

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.errors import BuildError, UsageError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import Schema, Type
from graphbus_core.store import BuildArtifacts
from graphbus_core.store.migration import find_artifact_folder, load_any

_DIFFERENT = BuildError.exit_status

_Sign = Literal["added", "removed", "changed", "moved"]
_SIGNS: dict[_Sign, tuple[str, console.Role]] = {
    "added": ("+", "good"),
    "removed": ("-", "gone"),
    "changed": ("~", "warn"),
    "moved": (">", "dim"),
}
_WHOLE = (SourceSpan, Schema, Type)
_IDENTITY = ("proposal_id", "commit_id", "path", "source", "target", "kind", "label", "topic", "agent", "method", "key")
"""Fields that identify a member of a list that has no name."""
_MEMBER = 4
"""The length of a path to a part of an agent; what moves inside that part is not listed separately."""
_LONGEST = 72
_DIGEST = 64


class _Difference(NamedTuple):
    """A difference between two builds: a value that is new, gone, different, or only moved in the source.

    Attributes:
        path: The artifact without its suffix, then the keys that lead to the value.
        old: The value before; None for what is new.
        new: The value now; None for what is gone.
    """

    sign: _Sign
    path: tuple[str, ...]
    old: Any = None
    new: Any = None


def compare_builds(
    old: BuildArtifacts, new: BuildArtifacts, unsaid: frozenset[str] = frozenset()
) -> tuple[_Difference, ...]:
    """Return all differences, sorted by path; a part that is new or gone as a whole is one difference.

    Args:
        old: A build.
        new: Another one.
        unsaid: Fields of the manifest that the older format of one build lacks; they are not compared.
    """
    skipped = {("manifest", name) for name in (*unsaid, "artifacts")}  # the digests follow from the rest
    before, after = ({path: each for path, each in _leaves(build) if path[:2] not in skipped} for build in (old, new))
    gone, fresh = _tops(before.keys() - after.keys(), after), _tops(after.keys() - before.keys(), before)
    kept = [path for path in before.keys() & after.keys() if before[path] != after[path]]
    moved = {path[:-1][:_MEMBER] for path in kept if isinstance(before[path], SourceSpan)}
    changes = [_Difference("removed", path) for path in gone] + [_Difference("added", path) for path in fresh]
    changes += [_Difference("moved", path) for path in moved]
    changes += [
        _Difference("changed", path, before[path], after[path])
        for path in kept
        if not isinstance(before[path], SourceSpan)
    ]
    return tuple(sorted(changes, key=lambda change: (change.path, change.sign)))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value of artifacts with its path; None and empty values are left out."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, _WHOLE):
        for name in value.__struct_fields__:
            yield from _leaves(getattr(value, name), path if path == (name,) else (*path, name))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        for name, each in _named(value).items():
            yield from _leaves(each, (*path, name))
    elif value is not None and value != ():
        yield path, value


def _named(members: Iterable[Any]) -> dict[str, Any]:
    """Return name -> member for a list; a second member with the same name gets a number."""
    named: dict[str, Any] = {}
    for member in members:
        of = getattr(member, "proposal", member)
        name = getattr(of, "name", "") or " ".join(str(getattr(of, key)) for key in _IDENTITY if getattr(of, key, ""))
        unique, number = name, 2
        while unique in named:
            unique, number = f"{name} ({number})", number + 1
        named[unique] = member
    return named


def _tops(paths: Iterable[tuple[str, ...]], other: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return the shortest prefixes of paths that the other build does not have."""
    known = {path[:length] for path in other for length in range(1, len(path) + 1)}
    return {
        next((path[:length] for length in range(2, len(path)) if path[:length] not in known), path) for path in paths
    }


@click.command("diff", short_help="List every value that differs between two builds.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default=".graphbus")
@click.option("--exit-code", "tells_status", is_flag=True, help="End with status 3 if there is a difference.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def diff(*, old: str, new: str, tells_status: bool, as_json: bool) -> int:
    """List every value that differs between the artifacts in the folders OLD and NEW (.graphbus by default).

    + is new, - is gone, ~ is different, and > only moved to another line of the source. Artifacts of an older format are
    compared as `graphbus migrate` would convert them; nothing is written.

    `graphbus contract diff` compares only what agents promise each other, says whom a change breaks, and also compares
    git revisions.

    Exit status: 0 whether they differ or not; with --exit-code 3 if they differ; 6 the artifacts cannot be read.

    \b
    Examples:
      graphbus diff build/released
      graphbus diff build/released .graphbus --exit-code
      graphbus diff before/.graphbus after/.graphbus --json
    """
    for each in (old, new):
        if not os.path.isdir(each):
            raise UsageError("GBE150", name=each)
    (before, old_format, old_unsaid), (after, new_format, new_unsaid) = (
        load_any(find_artifact_folder(each)) for each in (old, new)
    )
    unsaid = sorted(old_unsaid | new_unsaid)
    changes = compare_builds(before, after, frozenset(unsaid))
    document = {
        "old": {"artifacts": old, "format": old_format},
        "new": {"artifacts": new, "format": new_format},
        "is_different": bool(changes),
        "not_compared": unsaid,
        "changes": [msgspec.to_builtins(change._asdict()) for change in changes],
    }
    nothing = f"{style('✓', 'good')} No difference between {sanitize(old)} and {sanitize(new)}."
    console.print_result(document, _lines(changes) if changes else [nothing], as_json=as_json)
    if unsaid and not as_json:
        console.print_note(f"Not compared, as an old format does not say it: {', '.join(unsaid)}.")
    return _DIFFERENT if changes and tells_status else 0


def _lines(changes: Iterable[_Difference]) -> Iterator[str]:
    """Yield the differences by artifact. Moved parts are only counted, because one new line moves everything below it."""
    for group, members in groupby(changes, key=lambda change: change.path[0]):
        yield style(group.replace("_", " ").capitalize(), "strong")
        listed = list(members)
        moved = sum(change.sign == "moved" for change in listed)
        yield from (_line(change) for change in listed if change.sign != "moved")
        if moved:
            yield style(f"  > {console.pluralize(moved, 'part')} only moved to other lines", "dim")


def _line(change: _Difference) -> str:
    sign, role = _SIGNS[change.sign]
    head = style(f"  {sign} {sanitize(' '.join(change.path[1:]))}", role)
    if change.sign != "changed":
        return head
    old, new = _shown(change.old), _shown(change.new)
    is_short = old != new and "\n" not in old + new and len(old) + len(new) <= 2 * _LONGEST
    return f"{head}: {sanitize(f'{old} → {new}')}" if is_short else f"{head}: {_members(change)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    text = str(value)
    return text[:12] if len(text) == _DIGEST and text.isalnum() else text


def _members(change: _Difference) -> str:
    """Describe a difference that is too long for a line: the new and removed members of a list, or only that it changed."""
    if not isinstance(change.old, tuple):
        return "changed"
    gone = [style(f"-{sanitize(_shown(each))}", "gone") for each in change.old if each not in change.new]
    added = [style(f"+{sanitize(_shown(each))}", "good") for each in change.new if each not in change.old]
    return ", ".join([*gone, *added]) or "another order"
