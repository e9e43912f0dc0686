"""What a change removes: what a handler or method does before it and not after it, computed from both versions of the project.

Voters get this in words (`GateReport.removed`). That a handler does nothing of what it did must be declared (G4).
What a method does includes what the methods do that it calls on `self`, so that moved code counts as kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading.below import key_access
from graphbus_core.compiler.reading.bodies import CHANGING_METHODS, FunctionNode
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.nonsense import is_idle_call, live_nodes
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, MethodSpec, SourceSpan, Subscription
from graphbus_core.model.proposals import DEEDS, Removal, SchemaChange, describe_removals

_Deeds = dict[str, set[str]]
"""What a method does: a key of `DEEDS` -> names. Not shown to voters: what else it calls (`other`), which attributes of `self`
it uses (`may set`), and whether it may read any key (`any reads`)."""
_HIDDEN = frozenset({"may set", "any reads"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CHANGING = CHANGING_METHODS | {
    "append",
    "extend",
    "insert",
    "remove",
    "add",
    "discard",
    "appendleft",
    "put",
    "put_nowait",
}


def find_removals(before: Project, after: Project) -> tuple[Removal, ...]:
    """Return what each handler and public method that a change concerns no longer does, in the order of the agents."""
    found: list[Removal] = []
    for old in before.definitions:
        new = after.agent(old.name)
        if new is not None and new is not old:
            sides = _AgentDeeds(old, before), _AgentDeeds(new, after)
            found += _removals_of_handlers(*sides)
            found += _removals_of_methods(*sides)
    return tuple(found)


def check_dropped(removals: tuple[Removal, ...], declared: tuple[SchemaChange, ...], after: Project) -> Refusal | None:
    """Refuse a change after which a handler does nothing of what it did, unless the handler or its topic is declared."""
    for removal in removals:
        if removal.keeps_nothing and not is_declared(removal, declared):
            agent = after.agent(removal.method.partition(".")[0])
            method = agent.method(removal.method.partition(".")[2]) if agent else None
            span = method.span if method else agent.span if agent else None
            message = (
                f"{describe_removals([removal])[0]} Keep what it does, or declare it: `contract: {removal.method}`."
            )
            return Refusal("G4.dropped", message, span.path if span else "", span.line if span else 0)
    return None


def is_declared(removal: Removal, declared: tuple[SchemaChange, ...]) -> bool:
    """True if a proposal declares the method that loses something, or its topic."""
    return any(change.method in (removal.method, removal.topic) for change in declared)


def _removals_of_handlers(old: _AgentDeeds, new: _AgentDeeds) -> Iterator[Removal]:
    """Yield what an agent no longer does with the events of a topic, whichever of its methods did it."""
    for topic in dict.fromkeys(each.topic for each in old.agent.subscriptions if each.topic):
        handlers = old.handlers(topic)
        did, does = old.of_handlers(handlers), new.of_handlers(new.handlers(topic, {each.method for each in handlers}))
        lost = _lost(did, does, new)
        keeps_nothing = not _keeps_something(did, does)
        if lost or keeps_nothing:
            method = f"{old.agent.name}.{handlers[0].method}"
            yield Removal(method=method, topic=topic, keeps_nothing=keeps_nothing, lost=lost)


def _removals_of_methods(old: _AgentDeeds, new: _AgentDeeds) -> Iterator[Removal]:
    """Yield what the public methods of an agent that are no handlers no longer do; a method that is gone does nothing."""
    handlers = {each.method for each in old.agent.subscriptions}
    for method in old.agent.methods:
        if method.name not in handlers and (method.has_schema or not method.name.startswith("_")):
            lost = _lost(old.of_method(method.name), new.of_method(method.name), new)
            if lost:
                yield Removal(method=f"{old.agent.name}.{method.name}", lost=lost)


def _lost(did: _Deeds, does: _Deeds, new: _AgentDeeds) -> dict[str, tuple[str, ...]]:
    """Return the deeds that are shown to voters and that are done no longer; none that depend on what is unknown now."""
    lost = {kind: sorted(did.get(kind, set()) - does.get(kind, set())) for kind in DEEDS}
    lost["reads"] = [] if does.get("any reads") else lost["reads"]
    lost["sets"] = [name for name in lost["sets"] if name not in does.get("may set", ())]
    own = {method.name for method in new.agent.methods}  # a method that is gone has moved, or is named as lost itself
    lost["runs"] = [name for name in lost["runs"] if name in own]
    return {kind: tuple(names) for kind, names in lost.items() if names}


def _keeps_something(did: _Deeds, does: _Deeds) -> bool:
    """True if a handler still does something of what it did, or did nothing but log."""
    acts, acts_now = (
        {(kind, name) for kind in deeds.keys() - {"reads", *_HIDDEN} for name in deeds[kind]} for deeds in (did, does)
    )
    reads, reads_now = did.get("reads", set()), does.get("reads", set())
    if not acts:
        return not reads or bool(reads_now) or bool(does.get("any reads"))
    return bool(acts_now) and bool(acts & acts_now or reads & reads_now or does.get("any reads"))


class _AgentDeeds:
    """What the methods of an agent do, in one version of the project."""

    def __init__(self, agent: AgentDefinition, project: Project) -> None:
        self.agent = agent
        self._project = project
        self._trees: dict[str, dict[int, FunctionNode]] = {}

    def handlers(self, topic: str, methods: Set[str] = frozenset()) -> list[Subscription]:
        """Return the subscriptions of a topic, and those of these methods, whose topic may have another name now."""
        return [each for each in self.agent.subscriptions if each.topic == topic or each.method in methods]

    def of_handlers(self, handlers: list[Subscription]) -> _Deeds:
        """Return what the handlers of a topic do together, the reading of the payload included."""
        found: _Deeds = {}
        for each in handlers:
            _add(found, self.of_method(each.method))
            method = self.agent.method(each.method)
            keys, is_all = _keys_read_of_arguments(self._function(method.span) if method else None)
            _add(
                found, {"reads": {*each.named, *keys}, "any reads": set() if is_all or each.reads_all_known else {"?"}}
            )
        return found

    def of_method(self, name: str, seen: frozenset[str] = frozenset()) -> _Deeds:
        """Return what a method does, together with the methods that it calls on `self`; nothing for one that does not exist."""
        found: _Deeds = {}
        method = self.agent.method(name)
        if method is None or name in seen:
            return found
        _add(found, self._own_deeds(method))
        for inner in list(found.get("runs", ())):
            _add(found, {**self.of_method(inner, seen | {name}), "returns": set()})
        return found

    @cached_property
    def _methods(self) -> frozenset[str]:
        return frozenset(method.name for method in self.agent.methods)

    def _own_deeds(self, method: MethodSpec) -> _Deeds:
        """Return what the body of a method does, without the methods that it calls on `self`."""
        agent, function = self.agent, self._function(method.span)
        nodes = _nodes_that_run(function) if function else []
        lines = {line for node in nodes if isinstance(node, ast.expr) for line in _lines_of(node)}
        found: _Deeds = {
            "publishes": {
                each.topic or "a computed topic"
                for each in agent.publications
                if each.method == method.name and not each.is_declared and each.span.line in lines
            },
            "calls": {
                f"{each.agent}.{each.method}"
                for each in agent.calls
                if _is_inside(each.span, method.span) and each.span.line in lines
            },
            "returns": {field.name for each in method.returned if each.shape for field in each.shape.fields},
        }
        for node in nodes:
            for kind, name in self._deeds_of(node):
                found.setdefault(kind, set()).add(name)
        return found

    def _deeds_of(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield kind and name of what one node does: raise, use or set an attribute of `self`, or call something."""
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield "raises", ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            name = _attribute_of_self(node)
            kind = "runs" if name in self._methods else "sets" if not isinstance(node.ctx, ast.Load) else "may set"
            yield from [(kind, name)] if name else ()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = _attribute_of_self(node.func.value)
            if owner and node.func.attr in _CHANGING:
                yield "sets", owner
            elif getattr(node.func.value, "id", "") != "self" and not is_idle_call(node, set()):
                yield "other", ast.unparse(node.func)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not is_idle_call(node, set()):
            yield "other", node.func.id

    def _function(self, span: SourceSpan) -> FunctionNode | None:
        """Return the syntax tree of the method at a place; None if its file cannot be read."""
        if span.path not in self._trees:
            try:
                nodes = ast.walk(self._project.source(span.path).parse())
            except BuildError:
                nodes = iter(())
            self._trees[span.path] = {
                min([node.lineno, *(each.lineno for each in node.decorator_list)]): node
                for node in nodes
                if isinstance(node, _FUNCTIONS)
            }
        found = self._trees[span.path]
        return found.get(span.line) or next((each for each in found.values() if each.lineno == span.line), None)


def _keys_read_of_arguments(function: FunctionNode | None) -> tuple[set[str], bool]:
    """Return the constant keys that a function reads of its arguments, and whether it does nothing else with them."""
    if function is None:
        return set(), False
    names = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} - {"self"}
    nodes = [inner for statement in function.body for inner in ast.walk(statement)]
    accesses = [key_access(node) for node in nodes]
    read = {
        id(owner): key.value for owner, key in accesses if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id in names]
    return {read[id(node)] for node in uses if id(node) in read}, all(id(node) in read for node in uses)


def _attribute_of_self(node: ast.AST) -> str:
    """Return the attribute of `self` with which an expression such as `self.sent[0].name` begins; empty if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
        node = node.value
    return ""


def _is_inside(inner: SourceSpan, outer: SourceSpan) -> bool:
    """True if a place lies in another one."""
    return inner.path == outer.path and outer.line <= inner.line <= outer.end_line


def _add(found: _Deeds, more: _Deeds) -> None:
    """Add what another method does."""
    for kind, names in more.items():
        found.setdefault(kind, set()).update(names)


def _nodes_that_run(function: FunctionNode) -> list[ast.AST]:
    """Return the nodes of a function that can run with it: not code behind a `return`, nor inner functions that nobody names."""
    nodes = list(live_nodes(function.body))
    for node in nodes:  # grows while it is read
        if isinstance(node, ast.Lambda):
            nodes += ast.walk(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            isinstance(each, ast.Name) and each.id == node.name for each in nodes
        ):
            nodes += live_nodes(node.body)
    return nodes


def _lines_of(node: ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
