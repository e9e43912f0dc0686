"""Hot reload: the agents of a running graph get new code while nothing is handled. All of it, or nothing has changed.

    quiet -> modules imported beside the old ones -> handlers bound -> on_stop -> classes and subscriptions exchanged -> on_start

An agent stays the object that it was, with its attributes, its threads and all who hold on to it; its class becomes another one.
So `on_start` is called again only if its own text has changed, after the old version's `on_stop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core.bus.routing import Routes
from graphbus_core.errors import GraphBusError, RunError, raise_all
from graphbus_core.hosting.contracts import topics_of_artifacts
from graphbus_core.hosting.exchange import Prepared, Undo, Version, prepare, serve
from graphbus_core.hosting.graph import LiveGraph, Member, Origin
from graphbus_core.hosting.imports import attempt_or_exit, describe_exception
from graphbus_core.hosting.members import from_definition
from graphbus_core.hosting.renewal import ProjectModules
from graphbus_core.isolation import attempt
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.node import GraphBusNode


class Reloaded(NamedTuple):
    """What a reload has done.

    Attributes:
        replaced: Agents that run new code.
        restarted: Those of them whose `on_stop` and `on_start` were called.
        added: Agents that are new.
        removed: Agents that are gone.
        modules: What was imported again.
        notes: What a person should know, in a sentence each.
    """

    replaced: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Reloader:
    """Gives a running graph new code. Use it from one thread, which is none of the graph's.

    Args:
        graph: A graph that was started from artifacts, and whose source files are still those that it was started from.
        patience_s: How long handlers on the event loop may take to come to their end.

    Raises:
        RunError: GBE690 for a graph without artifacts.
    """

    def __init__(self, graph: LiveGraph, *, patience_s: float = 10.0) -> None:
        if graph.origin is None:
            raise RunError("GBE690", reason="it was not started from a build")
        self._graph = graph
        self._origin = graph.origin
        self._patience_s = patience_s
        manifest = self._origin.artifacts.manifest
        self._modules = ProjectModules(Path(self._origin.modules.root), manifest.sources if manifest else {})

    def reload(self, artifacts: BuildArtifacts, config: RuntimeConfig | None = None) -> Reloaded:
        """Bring the graph to what the artifacts describe and the source files say.

        Events that are published meanwhile wait, and go to the new version. Agents that are new are made and started, those that
        are gone are stopped.

        Args:
            artifacts: A build of the files as they are now.
            config: Another list of external topics; the rest of the configuration stays.

        Raises:
            RunError: GBE690 the graph is not to be had now, GBE691 a module does not import, GBE602 a class is gone, GBE604,
                GBE611 a handler that cannot be served, GBE692 an agent that cannot be made or exchanged, GBE693 an `on_start`
                that failed. The old code runs on, and nothing has changed.
            SeveralErrors: More than one of these, or besides: GBE609 an old `on_stop` that failed before, GBE694 an old
                `on_start` that failed, too.
        """
        if self._graph.is_stopped:
            raise RunError("GBE690", reason="it has stopped")
        goal = Origin(artifacts, self._origin.modules, config or self._origin.config)
        return self._graph.bus.run_quiet(lambda routes: self._reload(routes, goal), self._patience_s)

    def _reload(self, routes: Routes, goal: Origin) -> Reloaded:
        names = self._modules.with_dependants(self._modules.changed())
        if not names and _is_same(goal, self._origin):
            return Reloaded()
        with _all_or_nothing() as undo:
            definitions = self._definitions(goal)
            modules = self._renew(names, goal, definitions, undo)
            classes = goal.modules.find_again(definitions)
            members = self._members(goal, definitions, classes)
            done = _Exchange(self._graph, routes, members, goal, undo).perform(modules)
        goal.modules.classes = classes
        self._origin = self._graph.origin = goal
        self._modules.look()
        return done

    def _definitions(self, goal: Origin) -> list[AgentDefinition]:
        """The agents of the new graph; one that could not start stays left out until its file is saved."""
        known, found = (each.artifacts.manifest for each in (self._origin, goal))
        before, now = (each.sources if each else {} for each in (known, found))
        return [
            each
            for each in goal.artifacts.agents.agents
            if (not goal.config.only or each.name in goal.config.only)
            and (each.name not in self._graph.left_out or before.get(each.path) != now.get(each.path))
        ]

    def _renew(
        self, names: tuple[str, ...], goal: Origin, definitions: list[AgentDefinition], undo: Undo
    ) -> tuple[str, ...]:
        manifest = goal.artifacts.manifest
        goal.modules.use_roots(manifest.import_roots if manifest else ())
        present = self._modules.imported()
        further = {each.module: None for each in definitions if each.module not in present}
        renewed = self._modules.renew(names, tuple(further))
        if renewed.error is not None:
            reason = describe_exception(renewed.error)
            where = self._graph.place_of(renewed.error)
            raise RunError("GBE691", where=where, module=renewed.failed, reason=reason) from renewed.error
        undo.append(renewed.undo)
        return renewed.names

    def _members(
        self, goal: Origin, definitions: list[AgentDefinition], classes: Mapping[str, type[GraphBusNode]]
    ) -> dict[str, Member]:
        """What the new graph is made of; agents of which nothing has changed stay what they are."""
        before = {each.name: each for each in self._origin.artifacts.agents.agents}
        present = self._graph.members
        members: dict[str, Member] = {}
        for definition in definitions:
            name = definition.name
            known = present.get(name)
            if known is None or known.node is not classes[name] or definition != before.get(name):
                known = from_definition(definition, classes[name], goal.config.settings.validation)
            members[name] = known
        return members


class _Exchange:
    """One reload after its modules are imported."""

    def __init__(
        self, graph: LiveGraph, routes: Routes, members: Mapping[str, Member], goal: Origin, undo: Undo
    ) -> None:
        self._graph = graph
        self._routes = routes
        self._members = members
        self._goal = goal
        self._undo = undo
        self._old = dict(graph.members)
        self._nodes = dict(graph.nodes)
        self._versions: list[Version] = []
        self._prepared: dict[str, Prepared] = {}
        self._added = tuple(name for name in members if name not in self._nodes)
        self._removed = tuple(name for name in self._nodes if name not in members)
        self._notes: list[str] = []

    def perform(self, modules: tuple[str, ...]) -> Reloaded:
        nodes = self._prepare()
        restarted = tuple(each.name for each in self._versions if each.restarts)
        self._stop((*self._removed, *restarted))
        self._take_over(nodes)
        self._start((*self._added, *restarted))
        replaced = tuple(each.name for each in self._versions)
        for each in self._versions:
            self._notes += each.notes(modules)
        self._notes += _late(self._goal, modules)
        return Reloaded(replaced, restarted, self._added, self._removed, modules, tuple(self._notes))

    def _prepare(self) -> dict[str, GraphBusNode]:
        """Make what is new and try whether it can be served. No agent notices."""
        problems: list[GraphBusError] = []
        nodes: dict[str, GraphBusNode] = {}
        for name, member in self._members.items():
            old = self._nodes.get(name)
            if old is not None and member is self._old.get(name):
                nodes[name] = old
                continue
            node, error = attempt_or_exit(lambda member=member, old=old: self._prepare_one(member, old))  # type: ignore[misc]
            if node is not None:
                nodes[name] = node
            elif isinstance(error, GraphBusError):
                error.where = self._goal.modules.shown(error.where)
                problems.append(error)
            else:
                problems.append(self._refuse("GBE692", member, error))
        raise_all(problems)
        return nodes

    def _prepare_one(self, member: Member, old: GraphBusNode | None) -> GraphBusNode:
        def bind(node: GraphBusNode) -> None:
            self._prepared[member.name] = prepare(self._routes, member, node)

        if old is not None and type(old) is member.node:  # the file was imported before it was built
            bind(old)
            return old
        if old is not None:
            version = Version(member.name, old, _class_of(member))
            self._versions.append(version)
            return version.try_out(bind)
        node = _class_of(member)()
        node._connection = self._graph
        bind(node)
        return node

    def _take_over(self, nodes: Mapping[str, GraphBusNode]) -> None:
        """From here on the new version is there; `undo` brings the old one back."""
        for version in self._versions:
            self._undo.append(version.revert)
            version.apply()
        before = dict(self._graph.nodes)
        self._undo.append(lambda: self._graph.exchange(self._old, before))
        self._graph.exchange(self._members, {name: nodes[name] for name in self._members})
        config = self._goal.config
        topics = topics_of_artifacts(self._goal.artifacts, config.external_topics, config.settings.validation)
        serve(self._routes, self._old.keys(), list(self._members), self._prepared, admit=topics.admit, undo=self._undo)

    def _stop(self, names: Iterable[str]) -> None:
        for name in [each for each in reversed(self._nodes) if each in set(names)]:
            error = _why_not(lambda name=name: self._graph.stop_node(name))  # type: ignore[misc]
            self._undo.append(lambda name=name: self._start_again(name))  # type: ignore[misc]
            if error is not None:
                self._notes.append(f"`on_stop` of the old {name} failed: {describe_exception(error)}.")
                self._undo.append(lambda name=name, error=error: self._tell_why_it_holds_on(name, error))  # type: ignore[misc]

    def _tell_why_it_holds_on(self, name: str, error: BaseException) -> None:
        """Nothing of the reload is left but this: a new `on_start` may have failed because of it."""
        raise self._refuse("GBE609", self._old[name], error)

    def _start_again(self, name: str) -> None:
        """The old version was stopped, and goes on."""
        error = _why_not(lambda: self._graph.start_node(name))
        if error is not None:
            raise self._refuse("GBE694", self._old[name], error)

    def _start(self, names: Iterable[str]) -> None:
        wanted = set(names)
        hooked = {each.name for each in self._versions if each.has_hook}
        for name in [each for each in self._members if each in wanted | hooked]:
            if name in wanted:
                error = _why_not(lambda name=name: self._graph.start_node(name))  # type: ignore[misc]
                self._undo.append(lambda name=name: self._graph.stop_node(name))  # type: ignore[misc]
            else:
                error = self._call_hook(name)
            if error is not None:
                method = "on_start" if name in wanted else "on_reload"
                raise self._refuse("GBE693", self._members[name], error, method=method)

    def _call_hook(self, name: str) -> BaseException | None:
        hook: Callable[[], Any] = self._graph.nodes[name].on_reload  # type: ignore[attr-defined]
        return attempt_or_exit(lambda: self._graph.bus.run(hook, owner=name))[1]

    def _refuse(self, code: str, member: Member, error: BaseException | None, **data: str) -> RunError:
        where = self._graph.place_of(error) or member.place
        refusal = RunError(code, where=where, name=member.name, reason=describe_exception(error), **data)
        refusal.__cause__ = error
        return refusal


def _why_not(work: Callable[[], Exception | None]) -> BaseException | None:
    """What the agent's code has raised; one that wants to end the process does not end the reload halfway."""
    error, exit_ = attempt_or_exit(work)
    return exit_ or error


def _class_of(member: Member) -> type[GraphBusNode]:
    return member.node if isinstance(member.node, type) else type(member.node)


def _is_same(one: Origin, other: Origin) -> bool:
    """Do both describe the same graph? What a negotiation did is no part of that."""
    a, b = one.artifacts, other.artifacts
    return (a.agents, a.topics, one.config.external_topics) == (b.agents, b.topics, other.config.external_topics)


def _late(goal: Origin, modules: Iterable[str]) -> Iterator[str]:
    """What was imported again, and is held by those who have taken it before."""
    held = {goal.config.entrypoint.partition(":")[0]: "the entry point"}
    held |= {each.partition(":")[0]: "middleware" for each in goal.config.settings.middleware}
    for name in modules:
        if name in held:
            yield f"{name} holds {held[name]}: its new code counts from the next start."


@contextmanager
def _all_or_nothing() -> Iterator[Undo]:
    """Collect how to take things back; when the body fails, do so, last first, and report what could not be."""
    undo: Undo = []
    problems: list[GraphBusError] = []
    is_done = False
    try:
        yield undo
        is_done = True
    except GraphBusError as error:
        problems.append(error)
        raise
    finally:
        if not is_done:
            failed = len(problems)
            for step in reversed(undo):
                _, wrong = attempt(step)
                if isinstance(wrong, GraphBusError):
                    problems.append(wrong)
            if len(problems) > failed:
                raise_all(problems)
