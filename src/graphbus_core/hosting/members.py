"""Describes the agents of a graph, from the artifacts of a build or from the declarations of live classes; and `connect`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphbus_core.bus import MessageBus
from graphbus_core.bus.message_bus import OnError
from graphbus_core.decorators import DeclaredSchema, DeclaredSubscription, DeclaredTopic
from graphbus_core.errors import Place, UsageError
from graphbus_core.hosting.contracts import CheckedMethod, TopicContracts, topics_of_artifacts
from graphbus_core.hosting.graph import LiveGraph, Member
from graphbus_core.hosting.imports import Factory, NodeModules
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import AgentDefinition, MethodSpec, SourceSpan
from graphbus_core.model.config import ResolvedRun, Validation
from graphbus_core.model.deliveries import ONCE, DeliveryPolicy
from graphbus_core.model.topics import name_of
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.live import arguments_of, mark_defaults_optional, result_of, schema_of
from graphbus_core.schema.types import Schema
from graphbus_core.schema.values import format_value
from graphbus_core.store import BuildArtifacts

if TYPE_CHECKING:
    from pathlib import Path

_NOWHERE = SourceSpan("", 0, 0, 0, 0)


def methods_of(node: type[GraphBusNode]) -> tuple[MethodSpec, ...]:
    """Return the contracts of all methods with `@schema_method`, inherited ones included."""
    declared = {name: getattr(getattr(node, name, None), "__graphbus_schema__", None) for name in dir(node)}
    return tuple(_spec_of(node, name, each) for name, each in declared.items() if isinstance(each, DeclaredSchema))


def _spec_of(node: type[GraphBusNode], name: str, declared: DeclaredSchema) -> MethodSpec:
    """Return the contract of a method: the schemas given to the decorator, or else those of the annotations."""
    given, promised, method = schema_of(declared.input_schema), schema_of(declared.output_schema), declared.method
    written = next((vars(kind)[name] for kind in node.__mro__ if name in vars(kind)), method)
    if isinstance(written, staticmethod):  # has no `self` to skip; the plain function would not show that
        method = written
    if method is not None and declared.input_schema is None and declared.output_schema is None:
        given, promised = arguments_of(method), result_of(method)
    elif method is not None and given is not None:
        given = mark_defaults_optional(given, method)
    return MethodSpec(name=name, span=_NOWHERE, has_schema=True, input_schema=given, output_schema=promised)


def declared_topics_of(node: type[GraphBusNode]) -> Iterator[DeclaredTopic]:
    """Yield the `@publishes` declarations of the class and its methods."""
    for holder in (node, *(getattr(node, name, None) for name in dir(node))):
        declared = getattr(holder, "__graphbus_publishes__", ())
        yield from declared if isinstance(declared, tuple) else ()


def topics_of(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Return topic -> payload schema, as `@publishes` declares them."""
    return {each.topic: schema_of(each.schema) for each in declared_topics_of(node)}


def _subscribed_schemas(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Return topic -> payload schema of the `Topic` objects that the class subscribes to."""
    heard = (declared for name in dir(node) for declared in _subscriptions_of(node, name))
    return {each.topic: schema_of(each.payload) for each in heard if each.payload is not None}


def _subscriptions_of(node: type[GraphBusNode], name: str) -> tuple[DeclaredSubscription, ...]:
    """Return the `@subscribe` declarations of one attribute of the class."""
    found = getattr(getattr(node, name, None), "__graphbus_subscriptions__", ())
    return found if isinstance(found, tuple) else ()


_COROUTINE = 0x80
_NO_CODE = (lambda: None).__code__


def connect(
    *agents: type[GraphBusNode] | GraphBusNode,
    validation: Validation = "strict",
    on_error: OnError = "raise",
    middleware: Sequence[Middleware] = (),
    state: str | Path = "",
    factory: Factory | None = None,
) -> LiveGraph:
    """Start a graph of these agents without a build: `with connect(Shop, Stock) as graph: ...`.

    Args:
        agents: Agent classes, or objects of them. Handlers of one topic run in this order.
        validation: Whether arguments, results and payloads that do not fit their schemas raise (`"strict"`), are logged
            (`"warn"`), or are not checked (`"off"`).
        on_error: `"raise"`: the publish or call that caused it raises the first exception of a handler. `"isolate"`: it becomes
            a dead letter.
        middleware: Wraps every handler and call, outermost first.
        state: The file of the agents' state; empty: the state lives in memory, until the graph stops.
        factory: Creates the agents, `make(cls: type[T]) -> T`; None: classes are called without arguments.

    Returns:
        The running graph.

    Raises:
        UsageError: GBE146 for an argument that is no agent.
        RunError: GBE603, GBE605, GBE611, GBE656 or GBE657 for an agent that cannot be started.
    """
    topics, members = compose_from_classes(agents, validation)
    bus = MessageBus(on_error=on_error, admit=topics.admit, learn=topics.learn, middleware=middleware)
    graph = LiveGraph(bus, members, state_path=str(state))
    graph.factory = factory
    graph.start()
    return graph


def compose_from_classes(
    agents: Sequence[type[GraphBusNode] | GraphBusNode], validation: Validation
) -> tuple[TopicContracts, list[Member]]:
    """Return the topics and members of a graph of these agents, as their classes declare them."""
    classes: list[type] = [agent if isinstance(agent, type) else type(agent) for agent in agents]
    schemas: dict[str, Schema | None] = {}
    promised: dict[str, Schema | None] = {}
    for agent, each in zip(agents, classes, strict=True):
        if not issubclass(each, GraphBusNode):
            name = each.__qualname__ if agent is each else format_value(agent)
            raise UsageError(
                "GBE146",
                name=name,
                reason="it is neither an agent nor the class of one",
            )
        schemas |= topics_of(each)
        promised |= _subscribed_schemas(each)
    members = [_from_class(agent, each, validation) for agent, each in zip(agents, classes, strict=True)]
    return TopicContracts(promised | schemas, None, validation), members


def compose_from_build(
    artifacts: BuildArtifacts, modules: NodeModules, config: ResolvedRun
) -> tuple[TopicContracts, list[Member]]:
    """Return the topics and members of a built graph, without agents whose classes could not be imported."""
    validation = config.settings.validation
    found = [each for each in artifacts.agents.agents if each.name in modules.classes]
    members = [_from_definition(each, modules.classes[each.name], validation) for each in found]
    return topics_of_artifacts(artifacts, config.external_topics, validation), members


def _from_definition(definition: AgentDefinition, node: type[GraphBusNode], validation: Validation) -> Member:
    """Return a member as the build has read it, with schemas from the live class where the build could not read them."""
    read = {spec.name: spec for spec in definition.methods if spec.has_schema}
    live = {spec.name: spec for spec in methods_of(node)}
    unread = {name for name, spec in read.items() if spec.input_schema is None or spec.output_schema is None}
    specs = [live.get(name, spec) if name in unread else spec for name, spec in read.items()]
    specs += [spec for name, spec in live.items() if name not in read]
    return Member(
        name=definition.name,
        node=node,
        handlers=tuple(handlers_of(node)),
        methods={
            spec.name: CheckedMethod(definition.name, spec, validation, getattr(node, spec.name, None))
            for spec in specs
        },
        dependencies=frozenset(dependency.name for dependency in definition.dependencies),
        is_async=any(method.is_async for method in definition.methods),
        place=Place(definition.path, definition.span.line),
        shapes={each.method: each.shape for each in definition.subscriptions},
    )


def _from_class(agent: type[GraphBusNode] | GraphBusNode, node: type[GraphBusNode], validation: Validation) -> Member:
    """Return the member for a class or object, as its class declares it."""
    name = node.__name__
    return Member(
        name=name,
        node=agent,
        handlers=tuple(handlers_of(node)),
        methods={
            spec.name: CheckedMethod(name, spec, validation, getattr(node, spec.name)) for spec in methods_of(node)
        },
        dependencies=frozenset(each for kind in node.__mro__ for each in vars(kind).get("__graphbus_depends_on__", ())),
        is_async=any(
            getattr(getattr(node, each, None), "__code__", _NO_CODE).co_flags & _COROUTINE for each in dir(node)
        ),
    )


def handlers_of(node: type[GraphBusNode]) -> Iterator[tuple[str, str, DeliveryPolicy]]:
    """Yield (topic, method, policy) for each subscription in the order of the source, base classes first."""
    names = dict.fromkeys(name for kind in reversed(node.__mro__) for name in vars(kind))
    for name in names:
        for declared in _subscriptions_of(node, name):
            yield declared.topic, name, declared.policy
    for topic in node.SUBSCRIBE:
        yield name_of(topic), "handle_event", ONCE
