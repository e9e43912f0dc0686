"""GB312 to GB324: code that Python accepts, and that has no effect or fails when the graph runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from graphbus_core.compiler.reading.annotations import annotation_kind
from graphbus_core.compiler.reading.classes import Methods, is_abstract, is_node_class
from graphbus_core.compiler.reading.constants import keys_without, text_of
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.methods import Decorator, MethodSource, annotated_arguments, read_decorators
from graphbus_core.compiler.reading.modules import (
    NODE,
    ClassSite,
    DefinedName,
    Library,
    NameScope,
    class_chain,
    family_of,
    resolve,
)
from graphbus_core.compiler.reading.syntax import call_argument, own_nodes, span_of
from graphbus_core.compiler.rules.awaiting import check_awaits
from graphbus_core.compiler.rules.bodies import check_class, methods_of
from graphbus_core.compiler.rules.bus_calls import check_bus_calls, check_own_calls
from graphbus_core.compiler.rules.declared import check_annotations, check_topics
from graphbus_core.compiler.rules.graphbus_imports import check_imports
from graphbus_core.compiler.rules.names import near_match_in_closed_set
from graphbus_core.compiler.rules.wiring import Wiring, last_name, make_finding, trees_with
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.schema.types import UNKNOWN

_METHOD_DECORATORS = _SUBSCRIBE, _SCHEMA, _PUBLISHES = tuple(
    f"graphbus_core.{name}" for name in ("subscribe", "schema_method", "publishes")
)
_Found = tuple[str, ClassSite, ast.expr | ast.stmt, str, str, dict[str, str] | None]
"""The code of a finding, the class that it is in, the place, the message, the hint, and the data for a fix."""


class _Agent(NamedTuple):
    """An agent class with its syntax tree.

    Attributes:
        all_methods: Its methods, inherited ones included, each with the class that defines it.
        methods: The same without the methods of base classes that are agents themselves: they are reported there.
        chain: The class and its bases, in the order of lookup.
    """

    library: Library
    definition: AgentDefinition
    all_methods: Methods
    methods: Methods
    chain: Sequence[ClassSite]

    def bases_of(self, home: ClassSite) -> Sequence[ClassSite]:
        """Return the classes after `home` in the order of lookup."""
        return self.chain[next(place for place, each in enumerate(self.chain, 1) if each.node is home.node) :]

    @property
    def are_bases_known(self) -> bool:
        """False if a base class is outside of the project: it may define a constructor, `request` or `state` of its own."""
        return family_of(self.library, self.chain[0]).external <= {NODE, "abc.ABC", "typing.Generic", "typing.Protocol"}

    def scope(self, home: ClassSite) -> NameScope:
        """Return the scope of the body of a class, in which the decorators of its methods are resolved."""
        return NameScope(self.library, home.module, (home,), in_class_body=True)

    def scope_of_methods(self, home: ClassSite) -> NameScope:
        """Return the scope of what is written in the methods of a class, without their own names."""
        return NameScope(self.library, home.module, tuple(self.chain))


def check_file(file: ReadFile) -> tuple[Finding, ...]:
    """Return the findings of all rules that need the syntax tree of a file."""
    found = [*check_imports(file), *check_topics(file), *check_annotations(file)]
    for tree, definition, methods in file.agents:
        found += check_class(tree, definition, file.module.source, {each.node.name: each.body for _, each in methods})
        # methods of a base class that is an agent are reported there
        others = {id(home.node) for home, _ in methods if home.node is not tree and _is_agent(home, file.library)}
        own = tuple((home, method) for home, method in methods if id(home.node) not in others)
        sites = class_chain(file.library, ClassSite(file.module, tree))
        agent = _Agent(file.library, definition, methods, own, sites)
        owned = {name for _, each in methods for name in (each.node.name, *each.body.written)}
        owned |= {name for each in sites for name in each.module.class_bindings(each.node).first}
        found += check_bus_calls(definition.name, own, owned)
        found += check_own_calls(definition.name, own, agent.scope_of_methods)
        for code, home, node, message, hint, data in chain.from_iterable(check(agent) for check in _CHECKS):
            span = span_of(home.module.path, node)
            found.append(make_finding(code, definition.name, span, message, hint, data=data))
    return tuple(found)


def _is_agent(home: ClassSite, library: Library) -> bool:
    """Return whether a class is an agent: it derives from `GraphBusNode` and is not abstract."""
    return is_node_class(library, home) and not is_abstract(library, home)


# --- GB312, GB313, GB317: decorators and topics ---------------------------------------------------


def _check_decorators(agent: _Agent) -> Iterator[_Found]:
    """Find decorators without effect (GB317), and those without a valid topic (GB312, GB313)."""
    for home, method in agent.methods:
        effective = method.effective if method.is_callable else ()
        for decorator in method.decorators:
            name = decorator.name.removeprefix("graphbus_core.")
            if decorator.name in _METHOD_DECORATORS and decorator not in effective:
                message = f"@{name} in {home.node.name} is lost at a property, `@classmethod` or `@staticmethod`"
                hint = f"Write it directly above `def {method.node.name}`, which must not be a property."
                yield "GB317", home, decorator.node, message, hint, {"moved": name} if method.is_callable else None
            if decorator.name in (_SUBSCRIBE, _PUBLISHES):
                yield from _check_decorator_topics(agent, home, decorator, name)


def _check_decorator_topics(agent: _Agent, home: ClassSite, decorator: Decorator, name: str) -> Iterator[_Found]:
    """Find a decorator without a topic, and arguments that are no topics: lists, tuples, sets, numbers and the like."""
    positional = decorator.call.args if decorator.call else []
    named = [each for each in decorator.call.keywords if each.arg in ("topic", None)] if decorator.call else []
    topics = [*positional, *(each.value for each in named if each.arg)]
    if not (positional or named):
        message = f"@{name} in {home.node.name} is given no topic"
        data = {"decorator": name} if decorator.name == _SUBSCRIBE else None
        yield "GB312", home, decorator.node, message, f'Write `@{name}("/Order/Created")`.', data
    for topic in topics if decorator.name == _SUBSCRIBE else topics[:1]:
        if isinstance(topic, ast.Subscript):
            yield from _check_topic_key(home, topic, agent.scope(home))
        constant = topic.id if isinstance(topic, ast.Name) else ""
        target = resolve(topic, agent.scope(home)) if constant else None
        is_known = isinstance(target, DefinedName) and constant not in target.module.bindings.rebound
        value = target.node if is_known and isinstance(target, DefinedName) else topic
        is_constant = isinstance(topic, ast.Constant) and not isinstance(topic.value, str)
        if is_constant or isinstance(value, ast.List | ast.Tuple | ast.Set):
            message = f"@{name} in {home.node.name} takes {ast.unparse(value)} where a topic belongs"
            several = f"Write `@subscribe({f'*{constant}' if constant else 'A, B'})`."
            hint = several if decorator.name == _SUBSCRIBE else "Write one line for each topic."
            is_several = decorator.name == _SUBSCRIBE and not is_constant
            yield "GB313", home, topic, message, hint, {"unpacked": constant or "display"} if is_several else None


def _check_published_topics(agent: _Agent) -> Iterator[_Found]:
    """Find topics of `publish` and `request` that are looked up in a constant dict which does not have the key."""
    for home, method in agent.methods:
        scope = agent.scope(home)._replace(hidden=frozenset(method.body.bound))
        for name, call in method.body.calls:
            topic = call_argument(call, 0, "topic") if name in ("publish", "request") else None
            if isinstance(topic, ast.Subscript):
                yield from _check_topic_key(home, topic, scope, getattr(call_argument(call, 1, "payload"), "id", ""))


def _check_topic_key(home: ClassSite, topic: ast.Subscript, scope: NameScope, payload: str = "") -> Iterator[_Found]:
    """Find a key that a constant dict of topics lacks. `payload`, the name of the variable that is sent, may be the right key."""
    keys = keys_without(topic, scope)
    if keys:
        key = ast.unparse(topic.slice)
        message = f"{ast.unparse(topic.value)} has no key {key}, so that there is no topic"
        written = topic.slice.value if isinstance(topic.slice, ast.Constant) else ""
        right = near_match_in_closed_set(str(written), keys) or (payload if payload in keys else "")
        hint = f"Did you mean {right!r}?" if right else f"Use one of its keys: {', '.join(map(repr, keys))}."
        yield "GB313", home, topic, message, hint, {"old": str(written), "new": right} if right else None


def _check_agents_by_name(agent: _Agent) -> Iterator[_Found]:
    """Find `self.agent("Pricing")`, which fails in a run: `self.agent` takes the class, not a name."""
    own = {method.node.name for _, method in agent.all_methods}
    for home, method in agent.methods if "agent" not in own else ():
        scope = agent.scope(home)._replace(hidden=frozenset(method.body.bound), in_class_body=False)
        for name, call in method.body.calls:
            argument = call_argument(call, 0, "kind") if name == "agent" else None
            text = text_of(argument, scope)
            if argument is not None and text is not None:
                message = f"{home.node.name}.{method.node.name} gives self.agent the text {text!r}, which a run refuses"
                hint = f"Give the class: `self.agent({text})`; by its name an agent is called with `self.call({text!r}, ...)`."
                yield "GB324", home, argument, message, hint, {"name": text}


# --- GB314, GB315, GB316: missing awaits, constructors, use before the agent is connected -----------


def _check_awaits(agent: _Agent) -> Iterator[_Found]:
    """Run `check_awaits` on each `async def` of a class whose bases are known."""
    own = frozenset(method.node.name for _, method in agent.all_methods)
    exposed = {spec.name for spec in agent.definition.methods if spec.has_schema}
    exposed |= {handler.method for handler in agent.definition.subscriptions}
    for home, method in agent.methods if agent.are_bases_known else ():
        if isinstance(method.node, ast.AsyncFunctionDef) and method.body.calls:
            for node, message, hint in check_awaits(method, own, method.node.name in exposed, agent.scope(home)):
                data = {"instead": hint.rpartition("`")[0].rpartition("`")[2]}
                yield "GB314", home, node, f"{home.node.name}.{method.node.name} {message}", hint, data


_CONSTRUCTORS = frozenset({"__init__", "__post_init__"})


def _check_use_in_constructors(agent: _Agent) -> Iterator[_Found]:
    """Find a constructor that uses `publish`, `request`, `call` or `state`, itself or through a method that it calls."""
    methods = {method.node.name: method for _, method in agent.all_methods}
    for home, method in agent.methods if agent.are_bases_known else ():
        if method.node.name not in _CONSTRUCTORS:
            continue
        owned = {name for _, each in agent.all_methods for name in (each.node.name, *each.body.written)}
        owned |= {name for each in agent.chain for name in each.module.class_bindings(each.node).first}
        wanted = {"publish", "request", "call", "state"} - owned
        for node, name in _uses_of_self(method):
            helper = methods.get(name) if name not in _CONSTRUCTORS else None
            used = (
                {name} if name in wanted else {each for _, each in _uses_of_self(helper)} & wanted if helper else set()
            )
            if used:
                described_use = f"self.{name}, and by that self.{min(used)}," if helper else f"self.{name}"
                message = f"{home.node.name}.{method.node.name} uses {described_use} before the agent is connected"
                hint = "Do it in `on_start`, which is called when all agents are connected."
                yield "GB316", home, node, message, hint, {"used": name} if name == "publish" else None


def _uses_of_self(method: MethodSource) -> Iterator[tuple[ast.expr, str]]:
    """Yield `(node, name)` for each method that is called on `self`, and for `self.state`, except in inner functions."""
    for node in own_nodes(method.node):
        used = node.func if isinstance(node, ast.Call) else node
        is_own = isinstance(used, ast.Attribute) and getattr(used.value, "id", "") == method.body.self_name != ""
        if is_own and isinstance(used, ast.Attribute) and (used is not node or used.attr == "state"):
            yield used, used.attr


_NOT_CREATING = frozenset({"connect", "agent", "depends_on", "isinstance", "issubclass", "super", "cast"})
"""Functions that take a class and do not create an object of it with arguments."""
_NO_BUS = (
    "Remove the parameter, here and from `super().__init__()`: an agent gets no bus. It publishes with "
    "`self.publish(...)`, from `on_start` on."
)
_NO_ARGUMENTS = (
    "Set it up in `on_start`, give a default, or name a `factory` in [tool.graphbus.runtime] that creates the agents."
)


def check_constructors(wiring: Wiring) -> Iterator[Finding]:
    """Find agents whose constructor needs arguments, which a graph does not pass; nothing if the settings name a `factory`."""
    if wiring.project.config.settings.runtime.factory:
        return
    seen: set[SourceSpan] = set()
    for agent in wiring.checked_agents:
        init = agent.method("__init__")
        required = [each for each in (init.parameters if init else ()) if not each.has_default]
        needed = [each.name for each in required if not each.kind.startswith("var")]
        if init and needed and init.span not in seen and not _may_be_created_elsewhere(agent.name, wiring):
            seen.add(init.span)
            message = f"{agent.name} needs {', '.join(needed)} to be created, but a graph creates its agents without arguments"
            hint = _NO_BUS if {*needed} <= {"bus", "message_bus", "event_bus"} else _NO_ARGUMENTS
            yield make_finding("GB315", agent.name, init.span, message, hint, data={"needed": " ".join(needed)})


def _may_be_created_elsewhere(name: str, wiring: Wiring) -> bool:
    """Return whether other code may create the agent: a file calls the class with arguments, passes it on, or cannot be read."""
    for tree in trees_with([name], wiring.project):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ():
            arguments = [*call.args, *(each.value for each in call.keywords)]
            called = last_name(call.func)
            if (called == name and arguments) or (called not in _NOT_CREATING and name in map(last_name, arguments)):
                return True
        if tree is None:
            return True
    return False


# --- GB318, GB320, GB321: overrides, files that are not read, events ---------------------------------


def _check_overrides(agent: _Agent) -> Iterator[_Found]:
    """Find methods that override a method with `@subscribe` or `@schema_method` and lack that decorator."""
    for home, method in agent.methods if len(agent.chain) > 1 else ():
        name, kept = method.node.name, {decorator.name for decorator in method.effective}
        written = ((base, each) for base in agent.bases_of(home) for each in methods_of(base.node.body))
        # if nothing is overridden, `base` is `home`
        base, overridden = next((pair for pair in written if pair[1].name == name), (home, method.node))
        for decorator in read_decorators(overridden.decorator_list, agent.scope(base)) if base is not home else ():
            if decorator.name in (_SUBSCRIBE, _SCHEMA) and decorator.name not in kept:
                loss = "receives no events" if decorator.name == _SUBSCRIBE else "cannot be called over the bus"
                message = f"{home.node.name}.{name} overrides {base.node.name}.{name} without its decorator, and {loss}"
                hint = (
                    f"Write `@{ast.unparse(decorator.node)}` above it as well; `{name} = None` says that this is meant."
                )
                text = base.module.source.span_bytes(span_of(base.module.path, decorator.node)).decode()
                yield "GB318", home, method.node, message, hint, {"decorator": text}


def _check_event_beside_fields(agent: _Agent) -> Iterator[_Found]:
    """Find handlers that take fields of the payload and also have a parameter annotated as the event."""
    fields = {handler.method for handler in agent.definition.subscriptions if handler.shape == "fields"}
    for home, method in agent.methods:
        for name, annotation in annotated_arguments(method) if method.node.name in fields else ():
            parts = [annotation.left, annotation.right] if isinstance(annotation, ast.BinOp) else [annotation]
            if annotation and any(annotation_kind(part, agent.scope(home), UNKNOWN) == "event" for part in parts):
                message = f"{home.node.name}.{method.node.name} takes the event {name!r} beside fields of the payload"
                hint = f"Take `{name}: Event` alone and read {name}['field'], or take the fields alone."
                yield "GB321", home, annotation, message, hint, {"event": name}


_TEST_CODE = re.compile(
    rb"\b(def test|class Test\w*[ \t]*:|pytest|unittest|hypothesis|graphbus_core\.testing|import[^\n]*\bconnect)\b"
)


def check_skipped(wiring: Wiring) -> Iterator[Finding]:
    """Find agents in files that a build skips because they are named like tests, unless the file contains test code."""
    for path in wiring.project.index.skipped:
        try:
            source = wiring.project.source(path)
            tree = source.parse() if b"GraphBusNode" in source.data and not _TEST_CODE.search(source.data) else None
        except BuildError:
            continue
        for node in tree.body if tree else ():
            bases = map(last_name, node.bases) if isinstance(node, ast.ClassDef) else ()
            if "GraphBusNode" in bases and isinstance(node, ast.ClassDef) and node.name not in wiring.agents:
                message = f"{node.name} is in no graph: {path} is not read, since its name is that of a test"
                hint = "Give the file another name."
                yield make_finding("GB320", "", span_of(path, node), message, hint)


_CHECKS: tuple[Callable[[_Agent], Iterable[_Found]], ...] = (
    *(_check_decorators, _check_published_topics, _check_agents_by_name, _check_awaits),
    *(_check_use_in_constructors, _check_overrides, _check_event_beside_fields),
)
