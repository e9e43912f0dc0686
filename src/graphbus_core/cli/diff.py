"""`graphbus diff`: what changed between two artifact folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import counted, paint, plain
from graphbus_core.errors import BuildError, UsageError
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.artifacts import BuildArtifacts, Manifest
from graphbus_core.schema.types import Schema, Type
from graphbus_core.store.migration import folder_in, load_any

Sign = Literal["added", "removed", "changed", "moved"]
Group = Literal[
    "agents",
    "methods",
    "subscriptions",
    "publications",
    "calls",
    "dependencies",
    "topics",
    "edges",
    "order",
    "packages",
    "imports",
    "sources",
    "build",
    "negotiation",
    "proposals",
    "commits",
    "modified files",
]
GROUPS: tuple[Group, ...] = get_args(Group)
_DESCRIBED: Mapping[str, frozenset[str]] = {
    "agents.json": frozenset({"agents", "methods", "subscriptions", "publications", "calls", "dependencies"}),
    "graph.json": frozenset({"edges", "order"}),
    "topics.json": frozenset({"topics"}),
    "negotiations.json": frozenset({"negotiation", "proposals", "commits"}),
    "modified_files.json": frozenset({"modified files"}),
}
"""Artifact -> the groups that tell what is in it."""
_PARTS: Mapping[Group, Callable[[Any], str]] = {
    "methods": lambda method: f".{method.name}",
    "subscriptions": lambda entry: f".{entry.method} hears {entry.topic or '?'}",
    "publications": lambda entry: f"{entry.method and '.'}{entry.method} says {entry.topic or f'{entry.prefix}?'}",
    "calls": lambda call: f" calls {call.agent}.{call.method}",
    "dependencies": lambda needed: f" needs {needed.name}",
}
"""The parts of an agent that are compared one by one, and what each is called after the name of the agent."""
_MEMBERS: Mapping[Group, Callable[[BuildArtifacts], Mapping[str, Any]]] = {
    "topics": lambda build: {topic.name: topic for topic in build.topics.topics},
    "edges": lambda build: {
        f"{edge.source} → {edge.target} ({edge.kind}{edge.label and ' '}{edge.label})": edge
        for edge in build.graph.edges
    },
    "modified files": lambda build: {file.path: file for file in build.modified_files.files},
}
"""What else has members that are compared one by one, by name."""
_LISTED = {"edges", "files", "completed", "records", "ending", "third_party", "imports", "sources", "artifacts"}
"""Fields whose members are compared one by one, and so not as a whole."""


class FieldChange(NamedTuple):
    """One field of something that is in both builds; the name is empty where there is but one."""

    name: str
    old: Any
    new: Any


class Change(NamedTuple):
    """Something that is new, gone, different, or at another place in the source."""

    group: Group
    sign: Sign
    name: str
    fields: tuple[FieldChange, ...] = ()


def compare(old: BuildArtifacts, new: BuildArtifacts, unsaid: frozenset[str] = frozenset()) -> tuple[Change, ...]:
    """Give everything that differs, by groups and names.

    Args:
        old: A build.
        new: Another one.
        unsaid: Fields of the manifest that one of them does not say, as its format is too old: they are not compared.
    """
    changes = [*_agents(old, new), *_negotiations(old, new)]
    changes += _whole("modified files", old.modified_files, new.modified_files)
    for group, members in _MEMBERS.items():
        changes += _each(group, members(old), members(new))
    come_and_gone = {each.name for each in changes if each.group == "agents" and each.sign in ("added", "removed")}
    for change in _whole("order", old.graph, new.graph):
        (field,) = change.fields
        if change.name != "nodes" or set(field.old) ^ set(field.new) != come_and_gone:
            changes.append(change)
    if old.manifest and new.manifest:
        changes += _manifests(old.manifest, new.manifest, unsaid, {change.group for change in changes})
    return tuple(sorted(changes, key=lambda change: GROUPS.index(change.group)))


def bare(value: Any) -> Any:
    """Give a value as data, without where it stands in the source."""
    if isinstance(value, SourceSpan):
        return None
    if isinstance(value, msgspec.Struct):
        return {name: bare(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [bare(part) for part in value]
    return value


def _agents(old: BuildArtifacts, new: BuildArtifacts) -> Iterator[Change]:
    before, after = ({agent.name: agent for agent in build.agents.agents} for build in (old, new))
    yield from _each("agents", before, after, frozenset(_PARTS))
    for name in before:
        for group in _PARTS if name in after else ():
            yield from _each(group, _parts(group, before[name]), _parts(group, after[name]))


def _parts(group: Group, agent: AgentDefinition) -> dict[str, Any]:
    """Name each part; a second one of the same name gets a number."""
    named: dict[str, Any] = {}
    for part in getattr(agent, group):
        name, number = f"{agent.name}{_PARTS[group](part)}", 2
        unique = name
        while unique in named:
            unique, number = f"{name} ({number})", number + 1
        named[unique] = part
    return named


def _manifests(old: Manifest, new: Manifest, unsaid: frozenset[str], told: set[Group]) -> Iterator[Change]:
    if "third_party" not in unsaid:
        yield from _each("packages", dict.fromkeys(old.third_party), dict.fromkeys(new.third_party))
    if "imports" not in unsaid:
        yield from _each("imports", old.imports, new.imports)
    yield from _each("sources", old.sources, new.sources)
    yield from _whole("build", old, new)
    for change in _each("build", old.artifacts, new.artifacts):
        if not _DESCRIBED.get(change.name, frozenset()) & told:
            yield change


def _negotiations(old: BuildArtifacts, new: BuildArtifacts) -> Iterator[Change]:
    before, after = old.negotiations.last, new.negotiations.last
    if before is None or after is None:
        known = [{each.session: each} if each else {} for each in (before, after)]
        yield from _each("negotiation", known[0], known[1])
        return
    fields = (*_fields(before, after), *_fields(before.ending, after.ending))
    if fields:
        yield Change("negotiation", "changed", after.session, fields)
    records = [{one.proposal.proposal_id: one for one in each.records} for each in (before, after)]
    commits = [{one.commit_id: one for one in each.completed} for each in (before, after)]
    yield from _each("proposals", records[0], records[1])
    yield from _each("commits", commits[0], commits[1])


# --- one thing and another ------------------------------------------------------------------


def _whole(group: Group, old: msgspec.Struct, new: msgspec.Struct) -> Iterator[Change]:
    """Each field of something that a build has once."""
    for name, before, after in _fields(old, new):
        yield Change(group, "changed", name, (FieldChange("", before, after),))


def _each(
    group: Group, old: Mapping[str, Any], new: Mapping[str, Any], skipped: frozenset[str] = frozenset()
) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield Change(group, "removed", name)
        elif name not in old:
            yield Change(group, "added", name)
        elif fields := [each for each in _all_fields(old[name], new[name]) if each.name not in skipped]:
            yield Change(group, "moved" if all(map(_is_place, fields)) else "changed", name, tuple(fields))


def _fields(old: msgspec.Struct | None, new: msgspec.Struct | None) -> Iterable[FieldChange]:
    return (each for each in _all_fields(old, new) if each.name not in _LISTED)


def _all_fields(old: Any, new: Any) -> Iterator[FieldChange]:
    if old == new:
        return
    if not isinstance(old, msgspec.Struct):
        yield FieldChange("", old, new)
        return
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield FieldChange(name, before, after)


def _is_place(field: FieldChange) -> bool:
    return field.name in ("path", "module") or (bool(field.name) and bare(field.old) == bare(field.new))


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
