"""`graphbus diff`: what changed between two artifact folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import counted, paint, plain
from graphbus_core.contracts.builds import Change, FieldChange, Sign, bare, compare
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
    unsaid = sorted(old_unsaid | new_unsaid)
    changes = compare(before, after, frozenset(unsaid))
    document = {
        "old": {"artifacts": old, "format": old_format},
        "new": {"artifacts": new, "format": new_format},
        "is_different": bool(changes),
        "not_compared": unsaid,
        "changes": list(map(_data, changes)),
    }
    nothing = f"{paint('✓', 'good')} No difference between {plain(old)} and {plain(new)}."
    console.result(document, _lines(changes, before, after) if changes else [nothing], as_json=as_json)
    if unsaid and not as_json:
        console.say(f"Not compared, as an old format does not say it: {', '.join(unsaid)}.")
    return DIFFERENT if changes and tells_status else 0


def _data(change: Change) -> dict[str, object]:
    sides = msgspec.to_builtins
    fields = [{"field": each.name, "old": sides(each.old), "new": sides(each.new)} for each in change.fields]
    return {"group": change.group, "sign": change.sign, "name": change.name, "fields": fields}


# --- for people ---------------------------------------------------------------------------


def _lines(changes: Sequence[Change], old: BuildArtifacts, new: BuildArtifacts) -> Iterator[str]:
    """Give what changed by groups; parts of agents that only moved are counted: one new line at the top moves them all."""
    agents = {agent.name: agent for each in (old, new) for agent in each.agents.agents}
    for group, members in groupby(changes, key=lambda change: change.group):
        yield paint(group[:1].upper() + group[1:], "strong")
        moved = 0
        for change in members:
            if change.sign == "moved" and group != "agents":
                moved += 1
                continue
            sign, role = _SIGNS[change.sign]
            is_whole = group == "agents" and change.sign in ("added", "removed")
            size = _size(agents[change.name]) if is_whole else ""
            yield f"  {paint(f'{sign} {plain(change.name)}', role)}{size}"
            yield from (f"      {_line(field)}" for field in _told(change))
        if moved:
            yield f"  {paint(f'> {moved} only moved to other lines', 'dim')}"
    counts = {sign: sum(change.sign == sign for change in changes) for sign in _SIGNS}
    yield ", ".join(paint(f"{number} {sign}", _SIGNS[sign][1]) for sign, number in counts.items() if number)


def _size(agent: Any) -> str:
    counts = {"method": agent.methods, "subscription": agent.subscriptions, "publication": agent.publications}
    said = ", ".join(counted(len(found), name) for name, found in counts.items() if found)
    return f"  {paint(said, 'dim')}" if said else ""


def _told(change: Change) -> Sequence[FieldChange]:
    """Choose what is different; an agent that only moved is somewhere else."""
    if change.group in ("sources", "imports") and change.sign == "changed":
        return []
    if change.sign == "moved":
        return [field for field in change.fields if field.name in ("path", "module", "span")]
    return [field for field in change.fields if not field.name or bare(field.old) != bare(field.new)]


def _line(field: FieldChange) -> str:
    if field.name in _WORDS:
        return f"{_WORDS[field.name]}: changed"
    name = plain(field.name.replace("_", " "))
    old, new = _shown(field.old), _shown(field.new)
    if name and (old is None or new is None or old == new or len(old) + len(new) > 2 * _LONGEST):
        return f"{name}: {_difference(field)}"
    return f"{name}{name and ': '}{plain(old or '')} → {plain(new or '')}"


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
        is_digest = len(value) == _DIGEST and value.isalnum()
        return value[:12] if is_digest else None if "\n" in value else value or "nothing"
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return ", ".join(value) or "nothing"
    if isinstance(value, tuple):
        return " | ".join(", ".join(map(str, part)) for part in value) if isinstance(value[0], tuple) else None
    if isinstance(value, SourceSpan):
        return f"{value.path}:{value.line}"
    words = {None: "none", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return words[value]
    return str(value) if isinstance(value, int | float | Schema | Type) else None
