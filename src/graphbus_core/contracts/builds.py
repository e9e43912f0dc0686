"""What changed between two builds, as their artifacts tell it: every field that differs is in the answer, and nothing else.

Methods, subscriptions and the like are compared one by one for agents of both builds; an agent that is new or gone is one change.
A change that only moves text to other lines is told apart from one that changes what the text says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.artifacts import BuildArtifacts, Manifest

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
