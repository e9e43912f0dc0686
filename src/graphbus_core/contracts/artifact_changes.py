"""What changed between two builds, as their artifacts tell it: every field that differs is in the answer, and nothing else.

Methods, subscriptions and the like are compared one by one for agents of both builds; an agent that is new or gone is one change.
A change that only moves text to other lines is told apart from one that changes what the text says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.artifacts import BuildArtifacts, Edge, GraphArtifact, Manifest
from graphbus_core.model.proposals import Negotiations

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
_Sides = tuple[Mapping[str, Any], Mapping[str, Any]]
T = TypeVar("T")
GROUPS: tuple[Group, ...] = get_args(Group)
_DESCRIBED: Mapping[str, frozenset[str]] = {
    "agents.json": frozenset({"agents", "methods", "subscriptions", "publications", "calls", "dependencies"}),
    "graph.json": frozenset({"edges", "order"}),
    "topics.json": frozenset({"topics"}),
    "negotiations.json": frozenset({"negotiation", "proposals", "commits"}),
    "modified_files.json": frozenset({"modified files"}),
}
"""Artifact -> the groups that tell what is in it."""
_PLACE = frozenset({"path", "module"})
_PARTS: Mapping[Group, Callable[[Any], str]] = {
    "methods": lambda method: f".{method.name}",
    "subscriptions": lambda entry: f".{entry.method} hears {entry.topic or '?'}",
    "publications": lambda entry: f"{entry.method and '.'}{entry.method} says {entry.topic or f'{entry.prefix}?'}",
    "calls": lambda call: f" calls {call.agent}.{call.method}",
    "dependencies": lambda needed: f" needs {needed.name}",
}
"""The parts of an agent that are compared one by one, and what each is called after the name of the agent."""


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
    changes = [*_agents(old, new), *_keyed("topics", (_by(old.topics.topics), _by(new.topics.topics)))]
    changes += _graph(old.graph, new.graph, _names(changes))
    changes += _negotiations(old.negotiations.last, new.negotiations.last)
    changes += _modified(old, new)
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


# --- agents and graph -----------------------------------------------------------------------


def _agents(old: BuildArtifacts, new: BuildArtifacts) -> Iterator[Change]:
    before, after = _by(old.agents.agents), _by(new.agents.agents)
    yield from _keyed("agents", (before, after), frozenset(_PARTS))
    for name in before:
        if name in after:
            yield from _parts(before[name], after[name])


def _parts(before: AgentDefinition, after: AgentDefinition) -> Iterator[Change]:
    for group, called in _PARTS.items():
        sides = (
            _unique(before.name, getattr(before, group), called),
            _unique(after.name, getattr(after, group), called),
        )
        yield from _keyed(group, sides)


def _unique(agent: str, parts: Iterable[Any], called: Callable[[Any], str]) -> dict[str, Any]:
    """Name each part; a second one of the same name gets a number."""
    named: dict[str, Any] = {}
    for part in parts:
        name = f"{agent}{called(part)}"
        named[next(each for each in (name, *_numbered(name, len(named))) if each not in named)] = part
    return named


def _numbered(name: str, most: int) -> Iterator[str]:
    return (f"{name} ({number})" for number in range(2, most + 2))


def _names(changes: Iterable[Change]) -> frozenset[str]:
    """The agents that are new or gone."""
    return frozenset(
        change.name for change in changes if change.group == "agents" and change.sign in ("added", "removed")
    )


def _graph(old: GraphArtifact, new: GraphArtifact, told: frozenset[str]) -> Iterator[Change]:
    yield from _keyed("edges", _both(lambda graph: {_arrow(edge): edge for edge in graph.edges}, old, new))
    for field in _fields(old, new, frozenset({"edges"})):
        if field.name != "nodes" or set(field.old) ^ set(field.new) != told:
            yield Change("order", "changed", field.name, (FieldChange("", field.old, field.new),))


def _arrow(edge: Edge) -> str:
    return f"{edge.source} → {edge.target} ({edge.kind}{edge.label and ' '}{edge.label})"


# --- manifest -------------------------------------------------------------------------------


def _manifests(old: Manifest, new: Manifest, unsaid: frozenset[str], told: set[Group]) -> Iterator[Change]:
    if "third_party" not in unsaid:
        yield from _keyed("packages", (dict.fromkeys(old.third_party), dict.fromkeys(new.third_party)))
    if "imports" not in unsaid:
        yield from _keyed("imports", (old.imports, new.imports))
    yield from _keyed("sources", (old.sources, new.sources))
    for field in _fields(old, new, frozenset({"third_party", "imports", "sources", "artifacts"})):
        yield Change("build", "changed", field.name, (FieldChange("", field.old, field.new),))
    for change in _keyed("build", (old.artifacts, new.artifacts)):
        if not _DESCRIBED.get(change.name, frozenset()) & told:
            yield change


# --- negotiations ---------------------------------------------------------------------------


def _negotiations(old: Negotiations | None, new: Negotiations | None) -> Iterator[Change]:
    if old is None or new is None:
        yield from _keyed("negotiation", _both(lambda each: {each.session: each} if each else {}, old, new))
        return
    fields = (*_fields(old, new, frozenset({"completed", "records", "ending"})), *_fields(old.ending, new.ending))
    if fields:
        yield Change("negotiation", "changed", new.session, fields)
    yield from _keyed(
        "proposals", _both(lambda each: {one.proposal.proposal_id: one for one in each.records}, old, new)
    )
    yield from _keyed("commits", _both(lambda each: {one.commit_id: one for one in each.completed}, old, new))


def _modified(old: BuildArtifacts, new: BuildArtifacts) -> Iterator[Change]:
    before, after = old.modified_files, new.modified_files
    for field in _fields(before, after, frozenset({"files"})):
        yield Change("modified files", "changed", field.name, (FieldChange("", field.old, field.new),))
    yield from _keyed("modified files", _both(lambda each: {file.path: file for file in each.files}, before, after))


# --- one thing and another ------------------------------------------------------------------


def _by(items: Iterable[Any]) -> dict[str, Any]:
    return {item.name: item for item in items}


def _both(named: Callable[[T], dict[str, Any]], old: T, new: T) -> _Sides:
    return named(old), named(new)


def _keyed(group: Group, sides: _Sides, skipped: frozenset[str] = frozenset()) -> Iterator[Change]:
    old, new = sides
    for name in sorted({*old, *new}):
        if name not in new:
            yield Change(group, "removed", name)
        elif name not in old:
            yield Change(group, "added", name)
        else:
            fields = _fields(old[name], new[name], skipped)
            if fields:
                yield Change(group, "moved" if all(map(_is_place, fields)) else "changed", name, fields)


def _fields(old: Any, new: Any, skipped: frozenset[str] = frozenset()) -> tuple[FieldChange, ...]:
    if old == new:
        return ()
    if not isinstance(old, msgspec.Struct):
        return (FieldChange("", old, new),)
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in old.__struct_fields__ if name not in skipped)
    return tuple(FieldChange(name, before, after) for name, before, after in pairs if before != after)


def _is_place(field: FieldChange) -> bool:
    return field.name in _PLACE or (bool(field.name) and bare(field.old) == bare(field.new))
