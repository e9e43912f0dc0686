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
    return tuple(_contract_of(node, name, each) for name, each in declared.items() if isinstance(each, DeclaredSchema))


def _contract_of(node: type[GraphBusNode], name: str, declared: DeclaredSchema) -> MethodSpec:
    """Return the contract of a method: the schemas that the decorator names; if it names none, those of the annotations."""
    arguments, result, method = schema_of(declared.input_schema), schema_of(declared.output_schema), declared.method
    attribute = next((vars(kind)[name] for kind in node.__mro__ if name in vars(kind)), method)
    if isinstance(attribute, staticmethod):  # passed on as it is: its plain function would look like one with `self`
        method = attribute
    if method is not None and declared.input_schema is None and declared.output_schema is None:
        arguments, result = arguments_of(method), result_of(method)
    elif method is not None and arguments is not None:
        arguments = mark_defaults_optional(arguments, method)
    return MethodSpec(name=name, span=_NOWHERE, has_schema=True, input_schema=arguments, output_schema=result)


def declared_topics_of(node: type[GraphBusNode]) -> Iterator[DeclaredTopic]:
    """Yield the `@publishes` declarations of the class and its methods."""
    for holder in (node, *(getattr(node, name, None) for name in dir(node))):
        declared = getattr(holder, "__graphbus_publishes__", ())  # an attribute of another class may return any value
        yield from declared if isinstance(declared, tuple) else ()


def topics_of(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Return topic -> payload schema, as `@publishes` declares them."""
    return {each.topic: schema_of(each.schema) for each in declared_topics_of(node)}


def _subscribed_schemas(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Return topic -> payload schema of the `Topic` objects that the class subscribes to."""
    declared = (each for name in dir(node) for each in _subscriptions_of(node, name))
    return {each.topic: schema_of(each.payload) for each in declared if each.payload is not None}


def _subscriptions_of(node: type[GraphBusNode], name: str) -> tuple[DeclaredSubscription, ...]:
    """Return the `@subscribe` declarations of one attribute of the class."""
    found = getattr(getattr(node, name, None), "__graphbus_subscriptions__", ())
    return found if isinstance(found, tuple) else ()


_COROUTINE = 0x80  # the flag of `async def` in a code object
_NO_CODE = (lambda: None).__code__  # stands in for the code of attributes that are not functions


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
        on_error: `"raise"`: a publish or call raises the first exception of a handler that it causes. `"isolate"`: an event
            whose handler fails becomes a dead letter.
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
    """Return the topics and members of a graph of these agents, as their classes declare them.

    Raises:
        UsageError: GBE146 for an argument that is no agent.
    """
    classes: list[type] = [agent if isinstance(agent, type) else type(agent) for agent in agents]
    schemas: dict[str, Schema | None] = {}
    subscribed: dict[str, Schema | None] = {}
    for agent, each in zip(agents, classes, strict=True):
        if not issubclass(each, GraphBusNode):
            name = each.__qualname__ if agent is each else format_value(agent)
            reason = "it is neither an agent class nor an agent object"
            advice = "Pass a subclass of GraphBusNode, or an object of one."
            raise UsageError("GBE146", name=name, reason=reason, advice=advice)
        schemas |= topics_of(each)
        subscribed |= _subscribed_schemas(each)
    members = [_member_from_class(agent, each, validation) for agent, each in zip(agents, classes, strict=True)]
    return TopicContracts(subscribed | schemas, None, validation), members  # `@publishes` takes precedence


def compose_from_build(
    artifacts: BuildArtifacts, modules: NodeModules, config: ResolvedRun
) -> tuple[TopicContracts, list[Member]]:
    """Return the topics and members of a built graph, without agents whose classes could not be imported."""
    validation = config.settings.validation
    found = [each for each in artifacts.agents.agents if each.name in modules.classes]
    members = [_member_from_build(each, modules.classes[each.name], validation) for each in found]
    return topics_of_artifacts(artifacts, config.external_topics, validation), members


def _member_from_build(definition: AgentDefinition, node: type[GraphBusNode], validation: Validation) -> Member:
    """Return the member for an agent of the build. The live class has the contracts that the build could not fully read."""
    built = {spec.name: spec for spec in definition.methods if spec.has_schema}
    live = {spec.name: spec for spec in methods_of(node)}
    incomplete = {name for name, spec in built.items() if spec.input_schema is None or spec.output_schema is None}
    specs = [live.get(name, spec) if name in incomplete else spec for name, spec in built.items()]
    specs += [spec for name, spec in live.items() if name not in built]
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


def _member_from_class(
    agent: type[GraphBusNode] | GraphBusNode, node: type[GraphBusNode], validation: Validation
) -> Member:
    """Return the member for an agent, which is a class or an object; `node` is the class, whose declarations are read."""
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
    """Yield (topic, method, policy) for each `@subscribe` in source order, base classes first, then for those in `SUBSCRIBE`."""
    names = dict.fromkeys(name for kind in reversed(node.__mro__) for name in vars(kind))
    for name in names:
        for declared in _subscriptions_of(node, name):
            yield declared.topic, name, declared.policy
    for topic in node.SUBSCRIBE:
        yield name_of(topic), "handle_event", ONCE
