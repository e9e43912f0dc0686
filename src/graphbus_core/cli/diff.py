"""`graphbus diff`: what changed between two artifact folders."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.contracts.artifact_changes import Change, FieldChange, Sign, bare, compare
from graphbus_core.errors import BuildError, UsageError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.schema.types import Schema, Type
from graphbus_core.store.migration import folder_in, load_any

DIFFERENT = BuildError.exit_status
_SIGNS: Mapping[Sign, tuple[str, console.Role]] = {
    "added": ("+", "good"),
    "removed": ("-", "gone"),
    "changed": ("~", "warn"),
    "moved": (">", "dim"),
}
_WORDS = {"source_digest": "text", "contract_digest": "contract"}
"""Digests say no more to a person than that something is different."""
_LONGEST = 72
_DIGEST = 64


@click.command("diff", short_help="Tell what changed between two artifact folders.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default=".graphbus")
@click.option("--exit-code", "tells_status", is_flag=True, help="End with status 3 if there is a difference.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def diff(*, old: str, new: str, tells_status: bool, as_json: bool) -> int:
    """Tell what changed in the graph between the artifacts in the folders OLD and NEW (.graphbus by default).

    + is new, - is gone, ~ is different, and > only stands at another place in the source. Folders of an older format are compared
    as they would be after `graphbus migrate`; nothing is written. `graphbus contract diff` says which of the changes break whom,
    and compares git revisions, too.

    Exit status: 0, whether they differ or not; with --exit-code 3 if they differ; 6 artifacts that cannot be read.

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
        load_any(folder_in(each)) for each in (old, new)
    )
    unsaid = old_unsaid | new_unsaid
    changes = compare(before, after, unsaid)
    if as_json:
        console.emit_json(
            {
                "old": {"artifacts": old, "format": old_format},
                "new": {"artifacts": new, "format": new_format},
                "is_different": bool(changes),
                "not_compared": sorted(unsaid),
                "changes": [_data(change) for change in changes],
            }
        )
    else:
        _show(changes, before, after)
        if unsaid:
            console.say(f"Not compared, as an old format does not say it: {', '.join(sorted(unsaid))}.")
        if not changes:
            console.out(f"{paint('✓', 'good')} No difference between {plain(old)} and {plain(new)}.")
    return DIFFERENT if changes and tells_status else 0


def _data(change: Change) -> dict[str, object]:
    fields = [
        {"field": field.name, "old": msgspec.to_builtins(field.old), "new": msgspec.to_builtins(field.new)}
        for field in change.fields
    ]
    return {"group": change.group, "sign": change.sign, "name": change.name, "fields": fields}


# --- for people ---------------------------------------------------------------------------


def _show(changes: Sequence[Change], old: BuildArtifacts, new: BuildArtifacts) -> None:
    sizes = {agent.name: agent for each in (old, new) for agent in each.agents.agents}
    for group, members in groupby(changes, key=lambda change: change.group):
        console.out(paint(group[:1].upper() + group[1:], "strong"))
        told, moved = _apart(group, list(members))
        for change in told:
            sign, role = _SIGNS[change.sign]
            size = _size(sizes[change.name]) if group == "agents" and change.sign in ("added", "removed") else ""
            console.out(f"  {paint(f'{sign} {plain(change.name)}', role)}{size}")
            for line in _lines(change):
                console.out(f"      {line}")
        if moved:
            console.out(f"  {paint(f'> {moved} only moved to other lines', 'dim')}")
    if changes:
        console.out(_summary(changes))


def _apart(group: str, changes: list[Change]) -> tuple[list[Change], int]:
    """Count the parts of agents that only moved, instead of showing each: one new line at the top of a file moves them all."""
    if group == "agents":
        return changes, 0
    told = [change for change in changes if change.sign != "moved"]
    return told, len(changes) - len(told)


def _size(agent: Any) -> str:
    counts = {"method": agent.methods, "subscription": agent.subscriptions, "publication": agent.publications}
    said = [f"{len(found)} {name}{'' if len(found) == 1 else 's'}" for name, found in counts.items() if found]
    return f"  {paint(', '.join(said), 'dim')}" if said else ""


def _lines(change: Change) -> list[str]:
    """Say what is different, a line for a field; an agent that only moved is somewhere else."""
    if change.group in ("sources", "imports") and change.sign == "changed":
        return []
    if change.sign == "moved":
        return [_line(field) for field in change.fields if field.name in ("path", "module", "span")]
    said = [field for field in change.fields if not field.name or bare(field.old) != bare(field.new)]
    return [_line(field) for field in said]


def _line(field: FieldChange) -> str:
    name = _WORDS.get(field.name) or field.name.replace("_", " ")
    if field.name in _WORDS:
        return f"{name}: changed"
    old, new = _shown(field.old), _shown(field.new)
    if name and (old is None or new is None or old == new or len(old) + len(new) > 2 * _LONGEST):
        return f"{plain(name)}: {_difference(field)}"
    return f"{plain(name)}{name and ': '}{plain(old or '')} → {plain(new or '')}"


def _difference(field: FieldChange) -> str:
    """For what is too much for a line: which members are new or gone, or only that it is different."""
    old, new = (list(map(_called, side)) if isinstance(side, tuple) else [] for side in (field.old, field.new))
    gone = [paint(f"-{plain(each)}", "gone") for each in old if each and each not in new]
    added = [paint(f"+{plain(each)}", "good") for each in new if each and each not in old]
    return ", ".join([*gone, *added]) or "changed"


def _called(member: Any) -> str:
    """Give the name of a key, parameter or field; nothing for what has none."""
    return member if isinstance(member, str) else getattr(member, "key", getattr(member, "name", ""))


def _shown(value: Any) -> str | None:
    """Give a value in words; None when it is too much for a line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, tuple):
        return _members(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, SourceSpan):
        return f"{value.path}:{value.line}"
    if value is None:
        return "none"
    return str(value) if isinstance(value, int | float | Schema | Type) else None


def _text(value: str) -> str | None:
    if len(value) == _DIGEST and value.isalnum():
        return value[:12]
    return None if "\n" in value else value or "nothing"


def _members(value: tuple[Any, ...]) -> str | None:
    if all(isinstance(part, str) for part in value):
        return ", ".join(value) or "nothing"
    if all(isinstance(part, tuple) for part in value):
        return " | ".join(", ".join(map(str, part)) for part in value)
    return None


def _summary(changes: Sequence[Change]) -> str:
    counts = {sign: sum(change.sign == sign for change in changes) for sign in _SIGNS}
    return ", ".join(f"{paint(f'{number} {sign}', _SIGNS[sign][1])}" for sign, number in counts.items() if number)
