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
_WHOLE = (SourceSpan, Schema, Type)  # compared as one value, not field by field
_IDENTITY = ("proposal_id", "commit_id", "path", "source", "target", "kind", "label", "topic", "agent", "method", "key")
"""Fields that identify a member of a list that has no name."""
_MEMBER_DEPTH = 4
"""The length of a path to a part of an agent; moves inside that part are listed as one."""
_MAX_VALUE_LENGTH = 72
_DIGEST_LENGTH = 64


class _Difference(NamedTuple):
    """A difference between two builds: a value that was added, removed or changed, or whose place in the source moved.

    Attributes:
        path: The artifact without its suffix, then the keys that lead to the value.
        old: The value before, if the sign is "changed"; otherwise None.
        new: The value now, likewise.
    """

    sign: _Sign
    path: tuple[str, ...]
    old: Any = None
    new: Any = None


def compare_builds(
    old: BuildArtifacts, new: BuildArtifacts, unsaid: frozenset[str] = frozenset()
) -> tuple[_Difference, ...]:
    """Return all differences, sorted by path; a part that was added or removed as a whole is one difference.

    Args:
        old: The artifacts of one build.
        new: The artifacts of the other build.
        unsaid: Fields of the manifest that are not compared, because the older format of one build lacks them.
    """
    skipped = {
        ("manifest", name) for name in (*unsaid, "artifacts")
    }  # digests of artifacts, which differ whenever anything else does
    before, after = (
        {path: each for path, each in _walk_values(build) if path[:2] not in skipped} for build in (old, new)
    )
    gone, fresh = (
        _shortest_new_prefixes(before.keys() - after.keys(), after),
        _shortest_new_prefixes(after.keys() - before.keys(), before),
    )
    kept = [path for path in before.keys() & after.keys() if before[path] != after[path]]
    # All moves inside one part of an agent become one difference.
    moved = {path[:-1][:_MEMBER_DEPTH] for path in kept if isinstance(before[path], SourceSpan)}
    changes = [_Difference("removed", path) for path in gone] + [_Difference("added", path) for path in fresh]
    changes += [_Difference("moved", path) for path in moved]
    changes += [
        _Difference("changed", path, before[path], after[path])
        for path in kept
        if not isinstance(before[path], SourceSpan)
    ]
    return tuple(sorted(changes, key=lambda change: (change.path, change.sign)))


def _walk_values(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and value of each field, list member and key of artifacts; None and empty tuples are left out."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, _WHOLE):
        # An artifact such as `agents` has a field of the same name: the path contains that name only once.
        for name in value.__struct_fields__:
            yield from _walk_values(getattr(value, name), path if path == (name,) else (*path, name))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _walk_values(each, (*path, name))
    elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        for name, each in _name_members(value).items():
            yield from _walk_values(each, (*path, name))
    elif value is not None and value != ():
        yield path, value


def _name_members(members: Iterable[Any]) -> dict[str, Any]:
    """Return name -> member for a list. A member without a name is named by the fields of `_IDENTITY`.

    Further members with the same name get a number: `name (2)`.
    """
    named: dict[str, Any] = {}
    for member in members:
        owner = getattr(member, "proposal", member)  # the record of a proposal is identified by the proposal
        identity = (str(getattr(owner, key)) for key in _IDENTITY if getattr(owner, key, ""))
        name = getattr(owner, "name", "") or " ".join(identity)
        unique, number = name, 2
        while unique in named:
            unique, number = f"{name} ({number})", number + 1
        named[unique] = member
    return named


def _shortest_new_prefixes(paths: Iterable[tuple[str, ...]], other: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return for each path its shortest prefix, of at least two keys, that the other build does not have."""
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

    + was added, - removed, ~ changed, and > only moved to another line of the source. Artifacts of an older format are
    compared as `graphbus migrate` would convert them; nothing is written.

    `graphbus contract diff` compares only what agents promise each other, lists the agents that a change breaks, and also
    compares Git revisions.

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
    console.print_result(document, _difference_lines(changes) if changes else [nothing], as_json=as_json)
    if unsaid and not as_json:
        console.print_note(f"Not compared, because the old format does not contain it: {', '.join(unsaid)}.")
    return _DIFFERENT if changes and tells_status else 0


def _difference_lines(changes: Iterable[_Difference]) -> Iterator[str]:
    """Yield the differences by artifact. Moved parts are only counted, because one new line moves everything below it."""
    for group, members in groupby(changes, key=lambda change: change.path[0]):
        yield style(group.replace("_", " ").capitalize(), "strong")
        listed = list(members)
        moved = sum(change.sign == "moved" for change in listed)
        yield from (_difference_line(change) for change in listed if change.sign != "moved")
        if moved:
            yield style(f"  > {console.pluralize(moved, 'part')} only moved to other lines", "dim")


def _difference_line(change: _Difference) -> str:
    """Return a difference as one line; for a change, with both values or, if they are long, a description."""
    sign, role = _SIGNS[change.sign]
    head = style(f"  {sign} {sanitize(' '.join(change.path[1:]))}", role)
    if change.sign != "changed":
        return head
    old, new = _format_value(change.old), _format_value(change.new)
    is_short = old != new and "\n" not in old + new and len(old) + len(new) <= 2 * _MAX_VALUE_LENGTH
    return f"{head}: {sanitize(f'{old} → {new}')}" if is_short else f"{head}: {_describe_long_change(change)}"


def _format_value(value: Any) -> str:
    """Return a value as text; digests are shortened to 12 characters."""
    if isinstance(value, tuple):
        return ", ".join(map(_format_value, value))
    text = str(value)
    return text[:12] if len(text) == _DIGEST_LENGTH and text.isalnum() else text


def _describe_long_change(change: _Difference) -> str:
    """Return the removed and added members of a list, or `changed` for any other value that is too long for a line."""
    if not isinstance(change.old, tuple):
        return "changed"
    gone = [style(f"-{sanitize(_format_value(each))}", "gone") for each in change.old if each not in change.new]
    added = [style(f"+{sanitize(_format_value(each))}", "good") for each in change.new if each not in change.old]
    return ", ".join([*gone, *added]) or "only the order changed"
