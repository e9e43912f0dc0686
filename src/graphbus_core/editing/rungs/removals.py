"""What a change removes: what a handler or method does before it and not after it, computed from both versions of the project.

Voters get this in words (`GateReport.removed`). That a handler does nothing of what it did must be declared (G4).
What a method does includes what the methods do that it calls on `self`, so that moved code counts as kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading.below import key_access
from graphbus_core.compiler.reading.bodies import CHANGING_METHODS, FunctionNode
from graphbus_core.editing.rungs.capability.sources import AllowedPackages, AnalyzedFile, AnalyzedFiles
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.effects import EVERYTHING, Course, follow
from graphbus_core.editing.text.source_text import definitions
from graphbus_core.model.agent import AgentDefinition, MethodSpec, SourceSpan, Subscription
from graphbus_core.model.proposals import DEEDS, Removal, SchemaChange, describe_removals

_Deeds = dict[str, set[str]]
"""What a method does: a key of `DEEDS` -> names. Not shown to voters: what else it calls (`other`), which attributes of `self`
it uses (`may set`), and whether it may read any key (`any reads`)."""
_COMPUTED_TOPIC = "a computed topic"
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


class _Function(NamedTuple):
    """A method with its file and class."""

    file: AnalyzedFile
    node: FunctionNode
    owner: ast.ClassDef | None


def find_removals(before: Project, after: Project) -> tuple[Removal, ...]:
    """Return what each handler and public method that a change concerns no longer does, in the order of the agents."""
    found: list[Removal] = []
    files = [AnalyzedFiles(each.index, each.reader, AllowedPackages(frozenset())) for each in (before, after)]
    for old in before.definitions:
        new = after.agent(old.name)
        if new is not None and new is not old:
            sides = _AgentDeeds(old, before, files[0]), _AgentDeeds(new, after, files[1])
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
        now = new.handlers(topic, {each.method for each in handlers})
        did, does = _compared(old.of_handlers(handlers), new.of_handlers(now))
        lost = _lost(did, does, new)
        keeps_nothing = not _keeps_something(old, handlers, new, now)
        if lost or keeps_nothing:
            method = f"{old.agent.name}.{handlers[0].method}"
            yield Removal(method=method, topic=topic, keeps_nothing=keeps_nothing, lost=lost)


def _removals_of_methods(old: _AgentDeeds, new: _AgentDeeds) -> Iterator[Removal]:
    """Yield what the public methods of an agent that are no handlers no longer do; a method that is gone does nothing."""
    handlers = {each.method for each in old.agent.subscriptions}
    for method in old.agent.methods:
        if method.name not in handlers and (method.has_schema or not method.name.startswith("_")):
            lost = _lost(*_compared(old.of_method(method.name), new.of_method(method.name)), new)
            if lost:
                yield Removal(method=f"{old.agent.name}.{method.name}", lost=lost)


def _compared(did: _Deeds, does: _Deeds) -> tuple[_Deeds, _Deeds]:
    """Return both, where an event of a topic that can be read now stands for one of a computed topic."""
    if _COMPUTED_TOPIC in did.get("publishes", ()) and does.get("publishes"):
        does = {**does, "publishes": does["publishes"] | {_COMPUTED_TOPIC}}
    return did, does


def _lost(did: _Deeds, does: _Deeds, new: _AgentDeeds) -> dict[str, tuple[str, ...]]:
    """Return the deeds that are shown to voters and that are done no longer; none that depend on what is unknown now."""
    lost = {kind: sorted(did.get(kind, set()) - does.get(kind, set())) for kind in DEEDS}
    lost["reads"] = [] if does.get("any reads") else lost["reads"]
    lost["sets"] = [name for name in lost["sets"] if name not in does.get("may set", ())]
    own = {method.name for method in new.agent.methods}  # a method that is gone has moved, or is named as lost itself
    lost["runs"] = [name for name in lost["runs"] if name in own]
    return {kind: tuple(names) for kind, names in lost.items() if names}


def _keeps_something(old: _AgentDeeds, handlers: list[Subscription], new: _AgentDeeds, now: list[Subscription]) -> bool:
    """True if something that a handler did still takes effect, or if it did nothing but log."""
    did, does = _compared(old.of_handlers(handlers, only_effective=True), new.of_handlers(now, only_effective=True))
    acts, acts_now = (
        {(kind, name) for kind in deeds.keys() - {"reads", *_HIDDEN} for name in deeds[kind]} for deeds in (did, does)
    )
    if not acts:
        read, reads = old.of_handlers(handlers).get("reads"), new.of_handlers(now)
        return not read or bool(reads.get("reads")) or bool(reads.get("any reads"))
    is_read = did.get("reads", set()) & does.get("reads", set()) or does.get("any reads")
    return bool(acts_now) and bool(acts & acts_now or is_read)


class _AgentDeeds:
    """What the methods of an agent do, in one version of the project."""

    def __init__(self, agent: AgentDefinition, project: Project, files: AnalyzedFiles) -> None:
        self.agent = agent
        self._project = project
        self._files = files
        self._functions: dict[str, dict[int, _Function]] = {}
        self._courses: dict[str, Course] = {}

    def handlers(self, topic: str, methods: Set[str] = frozenset()) -> list[Subscription]:
        """Return the subscriptions of a topic, and those of these methods, whose topic may have another name now."""
        return [each for each in self.agent.subscriptions if each.topic == topic or each.method in methods]

    def of_handlers(self, handlers: list[Subscription], *, only_effective: bool = False) -> _Deeds:
        """Return what the handlers of a topic do together, the reading of the payload included.

        `only_effective` leaves out what has no effect, such as a key that is read for nothing.
        """
        found: _Deeds = {}
        for each in handlers:
            _add(found, self.of_method(each.method, only_effective=only_effective))
            method = self.agent.method(each.method)
            function = self._function(method.span) if method else None
            keys, is_all = _keys_read_of_arguments(function.node if function else None)
            reads, used = {*each.named, *keys}, self._course(method).used if method else frozenset()
            if only_effective and used != EVERYTHING:
                reads = {key for key in reads if not used.isdisjoint((key, f"[{key}]"))}
            _add(found, {"reads": reads, "any reads": set() if is_all or each.reads_all_known else {"?"}})
        return found

    def of_method(self, name: str, *, only_effective: bool = False) -> _Deeds:
        """Return what a method does, together with the functions that it calls; nothing for one that does not exist."""
        method = self.agent.method(name)
        return self._deeds(method, only_effective=only_effective) if method else {}

    @cached_property
    def _methods(self) -> frozenset[str]:
        return frozenset(method.name for method in self.agent.methods)

    def _deeds(self, method: MethodSpec, *, only_effective: bool) -> _Deeds:
        """Return what can run with a method; `only_effective`: and takes effect."""
        agent, course = self.agent, self._course(method)
        effective = course.effective | {node.func for node in course.effective if isinstance(node, ast.Call)}
        nodes = {node: path for node, path in course.live.items() if not only_effective or node in effective}
        lines = {(path, line) for node, path in nodes.items() if isinstance(node, ast.expr) for line in _lines_of(node)}
        found: _Deeds = {
            "publishes": {
                each.topic or _COMPUTED_TOPIC
                for each in agent.publications
                if not each.is_declared and (each.span.path, each.span.line) in lines
            },
            "calls": {
                f"{each.agent}.{each.method}" for each in agent.calls if (each.span.path, each.span.line) in lines
            },
            "returns": {field.name for each in method.returned if each.shape for field in each.shape.fields},
        }
        for node in nodes:
            for kind, name in self._deeds_of(node, is_effective=node in course.effective):
                found.setdefault(kind, set()).add(name)
        return found

    def _course(self, method: MethodSpec) -> Course:
        """Return what a call of a method may do; nothing if its file cannot be read."""
        if method.name not in self._courses:
            function = self._function(method.span)
            nothing = Course(False, False, False, False, {}, frozenset(), frozenset())
            self._courses[method.name] = follow(function.file, function.node, function.owner) if function else nothing
        return self._courses[method.name]

    def _deeds_of(self, node: ast.AST, *, is_effective: bool) -> Iterator[tuple[str, str]]:
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
            elif getattr(node.func.value, "id", "") != "self" and is_effective:
                yield "other", ast.unparse(node.func)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and is_effective:
            yield "other", node.func.id

    def _function(self, span: SourceSpan) -> _Function | None:
        """Return the method at a place; None if its file cannot be read."""
        if span.path not in self._functions:
            file = self._files.file(span.path)
            sites = list(definitions(file.tree)) if file else []
            classes = {site.name: site.node for site in sites if isinstance(site.node, ast.ClassDef)}
            self._functions[span.path] = {
                min([site.node.lineno, *(each.lineno for each in site.node.decorator_list)]): _Function(
                    file, site.node, classes.get(site.name.rpartition(".")[0])
                )
                for site in sites
                if file and isinstance(site.node, _FUNCTIONS)
            }
        found = self._functions[span.path]
        return found.get(span.line) or next((each for each in found.values() if each.node.lineno == span.line), None)


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


def _add(found: _Deeds, more: _Deeds) -> None:
    """Add what another method does."""
    for kind, names in more.items():
        found.setdefault(kind, set()).update(names)


def _lines_of(node: ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
