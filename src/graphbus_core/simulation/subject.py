"""Subject: the graph that is simulated, from a build or from classes; and how its agents are divided into nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from graphbus_core.clock import Clock
from graphbus_core.errors import RunError
from graphbus_core.hosting.contracts import TopicContracts
from graphbus_core.hosting.graph import GraphOrigin, Member
from graphbus_core.hosting.imports import Factory
from graphbus_core.hosting.members import compose_from_build, compose_from_classes
from graphbus_core.ledger.attached import digest_of, wanted_types
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import Subscription
from graphbus_core.ledger.worker import Wanted, Worker
from graphbus_core.middleware import Middleware
from graphbus_core.model.topics import Topic
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.json import Json
from graphbus_core.simulation.invariants import UserInvariants
from graphbus_core.simulation.surroundings import ModuleMemory
from graphbus_core.store import BuildArtifacts


class RootEvent(msgspec.Struct, frozen=True):
    """An event that the publisher appends."""

    topic: str
    payload: Json = None


class KnownTopics:
    """The topics of a graph; unlike `TopicContracts` it compiles the check of each topic once for all processes."""

    def __init__(self, contracts: TopicContracts) -> None:
        self._contracts = contracts
        self.admit = cache(contracts.admit)

    def learn(self, topic: Topic[Any]) -> bool:
        """See `TopicContracts.learn`."""
        is_new = self._contracts.learn(topic)
        if is_new:
            self.admit.cache_clear()
        return is_new

    def check(self, topic: str, payload: Json) -> None:
        """Raise RunError GBE614 or GBE619 for a payload or topic that does not fit."""
        check = self.admit(topic)
        if check is not None:
            check(payload)


class Subject(msgspec.Struct):
    """The graph that is simulated.

    Attributes:
        members: Its agents; a class each, never an object.
        topics: Its topics with their schemas.
        nodes: Name -> the agents that run there in one process.
        subscriptions: All subscriptions, as the ledger knows them.
        memory: The variables of its modules and classes.
        users: The invariants of the project.
        worker: Makes the worker of each process.
        ledger: Makes the engine.
        build: What tells its events from those of the other build.
        wanted: See `Worker`.
        upgrade: The other build of the graph, which all processes run in the end; None: there is none.
    """

    members: Sequence[Member]
    topics: KnownTopics
    nodes: Mapping[str, Sequence[Member]]
    subscriptions: Sequence[Subscription]
    memory: ModuleMemory
    users: UserInvariants = UserInvariants()
    middleware: Sequence[Middleware] = ()
    factory: Factory | None = None
    partitions: int = 1
    max_hops: int = 64
    max_tree: int = 10_000
    worker: Callable[..., Worker] = Worker
    ledger: Callable[[Clock], MemoryLedger] = MemoryLedger
    build: str = ""
    wanted: Mapping[tuple[str, str], Wanted] = MappingProxyType({})
    upgrade: Subject | None = None

    def upgraded_to(self, other: Subject) -> Subject:
        """Return this graph with another build of it.

        Raises:
            RunError: GBE667, the other build has other subscriptions or other processes.
        """
        differing = set(self.subscriptions) ^ set(other.subscriptions)
        if differing:
            name = min(each.handler for each in differing)
            raise RunError("GBE667", reason=f"the two builds differ in the subscriptions of {name}")
        if self.nodes.keys() != other.nodes.keys():
            raise RunError("GBE667", reason="the agents of the two builds must share processes in different ways")
        return msgspec.structs.replace(self, upgrade=other)


def subject_of_classes(*agents: type[GraphBusNode], nodes: int = 0, **options: Any) -> Subject:
    """Return the graph of these agent classes, divided as `divide` does; `options` are further attributes of `Subject`."""
    topics, members = compose_from_classes(agents, "strict")
    return _make_subject(topics, members, [each.dependencies | {each.name} for each in members], nodes, agents, options)


def subject_of_build(origin: GraphOrigin, nodes: int = 0, **options: Any) -> Subject:
    """Return the graph of a build whose modules are imported; see `subject_of_classes`."""
    artifacts, modules, config = origin.artifacts, origin.modules, origin.config
    topics, members = compose_from_build(artifacts, modules, config)
    own = [each for each in sys.modules.values() if modules.is_from_project(each)]
    limits = {name: getattr(config.settings, name) for name in ("partitions", "max_hops", "max_tree")}
    builds = {"build": digest_of(artifacts), "wanted": wanted_types(artifacts)}
    chosen = limits | builds | {"middleware": modules.middleware, "factory": modules.factory} | options
    return _make_subject(topics, members, _groups_of(artifacts), nodes, [*own, *modules.classes.values()], chosen)


def _make_subject(  # noqa: PLR0917 - it has two callers, here
    topics: TopicContracts,
    members: Sequence[Member],
    groups: Iterable[Collection[str]],
    nodes: int,
    holders: Iterable[Any],
    options: Mapping[str, Any],
) -> Subject:
    subscriptions = [
        Subscription(
            agent=member.name,
            handler=f"{member.name}.{method}",
            topic=topic,
            partition_key=policy.key,
            partitions=options.get("partitions", 1),
            on_retry=policy.on_retry,
        )
        for member in members
        for topic, method, policy in member.handlers
    ]
    chosen = {"memory": ModuleMemory(holders), **options}
    return Subject(members, KnownTopics(topics), divide(members, groups, nodes), subscriptions, **chosen)


def _groups_of(artifacts: BuildArtifacts) -> list[set[str]]:
    """Return the sets of agents that must share a process: those that call, or answer requests of, each other."""
    agents = artifacts.agents.agents
    groups = [{each.name, *(dependency.name for dependency in each.dependencies)} for each in agents]
    return groups + [
        {asking.name, each.name}
        for asking in agents
        for asked in asking.publications
        for each in agents
        if asked.is_request and any(one.topic == asked.topic for one in each.subscriptions)
    ]


def divide(members: Sequence[Member], groups: Iterable[Collection[str]], nodes: int = 0) -> dict[str, Sequence[Member]]:
    """Divide agents into at most this many nodes (0: as many as possible), and return node -> its agents.

    Args:
        groups: Sets of names that stay together.
    """
    together = {each.name: {each.name} for each in members}
    for group in groups:
        merged = set().union(*(together[name] for name in group if name in together))
        together |= dict.fromkeys(merged, merged)
    parts = list({id(each): each for each in together.values()}.values())
    while nodes and len(parts) > nodes:
        parts.sort(key=lambda part: (len(part), sorted(part)))
        parts[:2] = [parts[0] | parts[1]]
    divided = [[each for each in members if each.name in part] for part in parts]
    divided.sort(key=lambda part: members.index(part[0]))
    return {"+".join(each.name for each in part): part for part in divided}
