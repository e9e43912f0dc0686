"""The edges of a project: publications, subscriptions, calls and dependencies, and which of them are not fully known.

publication --topic--> subscription        agent --@depends_on--> agent        self.call --> method
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Protocol, TypeVar

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.syntax import ModuleSource, parse
from graphbus_core.compiler.reading.topics import DefinedTopic
from graphbus_core.compiler.rules.register import REGISTER
from graphbus_core.compiler.rules.results import Results
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, Publication, SourceSpan, Subscription
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.schema.types import UNKNOWN, Type

_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})
"""Errors about files that could not be read. Such a file may contain the missing end of any edge."""


class ProjectFacts(Protocol):
    """The facts of a project that the rules use; they do not change."""

    @property
    def config(self) -> ResolvedBuild:
        """The settings of the build."""

    @property
    def index(self) -> ModuleIndex:
        """The Python files of the build."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Path -> SHA-256 of each file that was read."""

    @property
    def definitions(self) -> tuple[AgentDefinition, ...]:
        """The agents in the order in which they are activated."""

    @property
    def errors(self) -> tuple[BuildError, ...]:
        """The errors of reading the files and of connecting the agents."""

    @property
    def topics(self) -> tuple[DefinedTopic, ...]:
        """The `Topic` objects that the files create."""

    @property
    def local_findings(self) -> tuple[Finding, ...]:
        """The findings of the rules that ran while the files were read."""

    def source(self, path: str) -> ModuleSource:
        """Return the source of a file; BuildError if it cannot be read."""

    def ignores(self, path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        """Return the ignore comments of a file: line (0: the whole file) and codes (none: all)."""

    @property
    def wiring(self) -> Wiring:
        """The edges of the project."""

    def with_files(self, changed: Mapping[str, bytes]) -> ProjectFacts:
        """Return the project as it would be if these files (path -> bytes) were changed."""

    @property
    def editable(self) -> Mapping[str, tuple[str, ...]]:
        """Path -> the agents whose class or a base of it is written there, for each file that a proposal may change."""


def trees_with(
    words: Sequence[str], project: ProjectFacts, *, besides: Container[str] = ()
) -> Iterator[ast.Module | None]:
    """Yield the syntax tree of each file that contains all these words, or None if it cannot be read; skip paths in `besides`."""
    for module in (each for each in project.index.files if each.path not in besides):
        try:
            source = project.source(module.path)
            if all(word.encode() in source.data for word in words):
                yield source.parse()
        except BuildError:
            yield None


def last_name(expression: ast.expr) -> str:
    """Return `c` for `a.b.c` and for `c`; the empty text for anything else."""
    return getattr(expression, "attr", "") or getattr(expression, "id", "")


def make_finding(
    code: str,
    agent: str,
    span: SourceSpan,
    message: str,
    hint: str,
    *,
    severity: Severity | None = None,
    related: Iterable[Related] = (),
    data: dict[str, str] | None = None,
) -> Finding:
    """Return a finding of the rule `code`, which is marked as fixable if it has data for the fix or if the rule's fix needs none.

    Args:
        code: The code of the rule, which must be in `REGISTER`.
        agent: The name of the agent; empty if the finding is about no agent.
        span: The place.
        message: What is wrong.
        hint: What to do about it.
        severity: None: that of the rule.
        related: Other places that show why this is wrong.
        data: What the fix needs; its keys depend on the rule.
    """
    return Finding(
        code=code,
        severity=severity or REGISTER[code].severity,
        agent=agent,
        span=span,
        message=message,
        hint=hint,
        related=tuple(related),
        is_fixable=bool(data) or code in _FIXED_WITHOUT_DATA,
        data=data or {},
    )


_FIXED_WITHOUT_DATA = frozenset({"GB302"})
"""Rules whose fixes need no data but the place of the finding."""


class AgentPublication(msgspec.Struct, frozen=True):
    """A publication and the agent that makes it."""

    agent: AgentDefinition
    publication: Publication

    @property
    def topic(self) -> str:
        """The topic, empty if it is computed at run time."""
        return self.publication.topic


class AgentSubscription(msgspec.Struct, frozen=True):
    """A subscription and the agent that has it."""

    agent: AgentDefinition
    subscription: Subscription

    @property
    def topic(self) -> str:
        """The topic or pattern, empty if it is computed at run time."""
        return self.subscription.topic

    @property
    def name(self) -> str:
        """The handler as messages name it, `"Agent.method"`."""
        return f"{self.agent.name}.{self.subscription.method}"


WiringRule = Callable[["Wiring"], Iterator[Finding]]


class Wiring:
    """The edges of a project.

    Args:
        project: The project.
        only: The names of the agents to check; None: all. The edges are those of all agents.

    Attributes:
        agents: Name -> definition, in which types of the kind `result` are replaced by what the other agent returns.
        results: The types that methods and requests return.
        checked_agents: The agents to check; rules report findings about these alone.
        is_partial: True if a file could not be read, so that no rule may report that something is missing from the project.
    """

    def __init__(self, project: ProjectFacts, only: frozenset[str] | None = None) -> None:
        self.project = project
        self._only = only
        self.results = Results({definition.name: definition for definition in project.definitions})
        self.agents = {each.name: self.results.resolve_agent(each) for each in project.definitions}
        self.checked_agents = tuple(agent for agent in self.agents.values() if self.is_checked(agent.name))
        self.is_partial = any(error.code in _UNREADABLE for error in project.errors)
        self._external = project.config.settings.external_topics
        self._findings_by_rule: dict[WiringRule, tuple[Finding, ...]] = {}
        self._callees_by_topic: dict[str, frozenset[str]] = {}
        self._has_attributes: dict[str, bool | None] = {}

    def findings_of(self, rule: WiringRule) -> tuple[Finding, ...]:
        """Return the findings of a rule. It runs only once, although a build asks for the findings of some rules twice."""
        findings = self._findings_by_rule.get(rule)
        if findings is None:
            findings = self._findings_by_rule[rule] = tuple(rule(self))
        return findings

    def narrow_to(self, only: frozenset[str]) -> Wiring:
        """Return a copy in which only these agents are checked. The copy shares what is known about the edges."""
        wiring = copy(self)
        wiring._only = only
        wiring._findings_by_rule = {}
        wiring.checked_agents = tuple(agent for agent in self.agents.values() if agent.name in only)
        wiring.__dict__.pop("checked_publications", None)
        wiring.__dict__.pop("checked_subscriptions", None)
        return wiring

    def is_checked(self, agent: str) -> bool:
        """Return whether an agent is to be checked, so that its findings are reported."""
        return self._only is None or agent in self._only

    @cached_property
    def publications(self) -> tuple[AgentPublication, ...]:
        """All publications. One that subclasses inherit is listed once, unless its topic or payload differs between them."""
        found: dict[tuple[object, ...], AgentPublication] = {}
        for agent in self.agents.values():
            for each in agent.publications:
                key = (each.span, each.is_declared, each.topic, each.prefix, each.payload)
                if (key not in found or is_written_in(agent, each.span)) and not self._is_in_helper(agent, each):
                    found[key] = AgentPublication(agent, each)
        return tuple(found.values())

    def _is_in_helper(self, agent: AgentDefinition, sent: Publication) -> bool:
        """Return whether a publication is in a helper method of a base class, to which callers pass the topic.

        Its calls are read in the subclasses, so the publication itself counts only there.
        """
        is_helper = not sent.topic and not sent.prefix and sent.method and agent.name in self._base_names
        method = agent.method(sent.method) if is_helper else None
        return (
            method is not None
            and not method.has_schema
            and all(sent.method != each.method for each in agent.subscriptions)
        )

    @cached_property
    def _base_names(self) -> frozenset[str]:
        """The names, without module, of all base classes of agents."""
        return frozenset(base.rpartition(".")[2] for agent in self.agents.values() for base in agent.bases)

    @cached_property
    def subscriptions(self) -> tuple[AgentSubscription, ...]:
        """All subscriptions. One that subclasses inherit is listed once, with the agent that contains it if there is one."""
        found: dict[tuple[SourceSpan, str], AgentSubscription] = {}
        for agent in self.agents.values():
            for each in agent.subscriptions:
                if (each.span, each.method) not in found or is_written_in(agent, each.span):
                    found[each.span, each.method] = AgentSubscription(agent, each)
        return tuple(found.values())

    @cached_property
    def checked_publications(self) -> tuple[AgentPublication, ...]:
        """The publications of the checked agents."""
        return tuple(sent for sent in self.publications if self.is_checked(sent.agent.name))

    @cached_property
    def checked_subscriptions(self) -> tuple[AgentSubscription, ...]:
        """The subscriptions of the checked agents."""
        return tuple(handler for handler in self.subscriptions if self.is_checked(handler.agent.name))

    @cached_property
    def _published_on(self) -> dict[str, tuple[AgentPublication, ...]]:
        """Topic -> its publications; the empty string -> the publications whose topic is computed."""
        return _group_by_key((sent.topic, sent) for sent in self.publications)

    @cached_property
    def _subscribed_to(self) -> dict[str, tuple[AgentSubscription, ...]]:
        """Topic or pattern -> its subscriptions; the empty string -> the subscriptions whose topic is computed."""
        return _group_by_key((handler.topic, handler) for handler in self.subscriptions)

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        """The patterns among the topics of subscriptions."""
        return tuple(topic for topic in self._subscribed_to if is_pattern(topic))

    @cached_property
    def topics(self) -> frozenset[str]:
        """All topics of publications, except computed ones."""
        return frozenset(self._published_on) - {""}

    @property
    def computed_topics(self) -> tuple[SourceSpan, ...]:
        """The places of publications and subscriptions with a computed topic, which any topic may match."""
        ends = [each.publication.span for each in self._published_on.get("", ())]
        return tuple(dict.fromkeys([*ends, *(each.subscription.span for each in self._subscribed_to.get("", ()))]))

    @property
    def has_unknown_subscribers(self) -> bool:
        """True if a subscription to any topic may exist that cannot be read: in an unreadable file, or to a computed topic."""
        return self.is_partial or "" in self._subscribed_to

    def has_unknown_publishers(self, topic: str) -> bool:
        """Return whether a subscription to `topic` may get events from an unreadable file or on a computed topic."""
        head = topic.partition("*")[0]  # of a pattern, the part before the first wildcard
        return self.is_partial or any(
            _may_match(sent.publication.prefix, head, is_exact=head == topic) for sent in self._published_on.get("", ())
        )

    def is_external(self, topic: str) -> bool:
        """Return whether the settings say that a topic or pattern is used outside of the graph."""
        return any(matches(pattern, topic) or matches(topic, pattern) for pattern in self._external)

    def publishers(self, topic: str) -> tuple[AgentPublication, ...]:
        """Return every known publication that reaches a subscription to `topic`, which may be a pattern."""
        if not is_pattern(topic):
            return self._published_on.get(topic, ()) if topic else ()
        return tuple(sent for name, found in self._published_on.items() if matches(topic, name) for sent in found)

    @cached_property
    def _fully_declared(self) -> frozenset[tuple[str, str]]:
        """`(agent, topic)` for each topic to which an agent publishes with a declared payload, all of whose fields are known."""
        pairs = ((each.name, sent) for each in self.agents.values() for sent in each.publications if sent.is_declared)
        return frozenset((name, sent.topic) for name, sent in pairs if sent.payload and not sent.payload.is_open)

    def is_declared(self, sent: AgentPublication) -> bool:
        """Return whether the agent of a publication declares all fields of the payloads that it sends to this topic."""
        return (sent.agent.name, sent.topic) in self._fully_declared

    def subscribers(self, topic: str) -> tuple[AgentSubscription, ...]:
        """Return every known subscription that an event of `topic` reaches."""
        patterns = [pattern for pattern in self._patterns if matches(pattern, topic)]
        return tuple(handler for name in (topic, *patterns) for handler in self._subscribed_to.get(name, ()))

    def responders(self, topic: str) -> tuple[AgentSubscription, ...]:
        """Return the subscriptions to exactly this topic; a handler with `-> None` counts only if it is the only one."""
        names = self.results.responders(topic)
        return tuple(
            each for each in self._subscribed_to.get(topic, ()) if (each.agent.name, each.subscription.method) in names
        )

    def all_publishers(self, topic: str) -> tuple[AgentPublication, ...] | None:
        """Return every publication that reaches a subscription to `topic`; None if there may be unknown ones."""
        if not topic or self.has_unknown_publishers(topic) or self.is_external(topic):
            return None
        return self.publishers(topic)

    @cached_property
    def _partners(self) -> dict[str, set[str]]:
        """Agent -> the agents that it depends on, and those that depend on it."""
        partners: dict[str, set[str]] = {name: set() for name in self.agents}
        for agent in self.agents.values():
            for dependency in agent.dependencies:
                if dependency.name in partners and dependency.name != agent.name:
                    partners[agent.name].add(dependency.name)
                    partners[dependency.name].add(agent.name)
        return partners

    def partners(self, agent: str) -> tuple[AgentDefinition, ...]:
        """Return the agents that this one depends on and those that depend on it, sorted by name."""
        return tuple(self.agents[name] for name in sorted(self._partners[agent]))

    def has_attributes(self, record: str) -> bool | None:
        """Return True if the fields of a class are attributes, as of a dataclass, False if they are keys, as of a TypedDict.

        None if that is not known, or if several classes of this name differ. The first call for a name is slow: it reads files.
        """
        if record not in self._has_attributes:
            self._has_attributes[record] = None  # ends the recursion for a class that is its own base
            found = {self._are_fields_attributes(node) for node in _classes_named(record, self)}
            self._has_attributes[record] = found.pop() if len(found) == 1 else None
        return self._has_attributes[record]

    def _are_fields_attributes(self, node: ast.ClassDef) -> bool | None:
        """Return for one class what `has_attributes` returns for a name; it depends on the decorators, bases and methods."""
        bases = set(map(last_name, node.bases))
        makers = {last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}
        if any(getattr(each, "name", "") == "__getitem__" for each in node.body):
            return None  # it may have both
        if "TypedDict" in bases or "dataclass" in makers or bases & {"Struct", "BaseModel"}:
            return "TypedDict" not in bases
        found = {self.has_attributes(each) for each in bases if each}
        return found.pop() if len(found) == 1 else None

    def callees_given(self, topic: str) -> frozenset[str]:
        """Return the names of the functions, such as `publish`, to which files pass a topic; `""` stands for an unreadable file.

        The first call for a topic is slow, as it searches all files: rules only call it for a topic with one end.
        """
        if topic not in self._callees_by_topic:
            self._callees_by_topic[topic] = frozenset(_find_callees(topic, self))
        return self._callees_by_topic[topic]

    @cached_property
    def callees_in_scripts(self) -> Mapping[str, Iterable[str]]:
        """Name of a variable -> the functions to which files without agents pass it: `publish` for `graph.publish(OPENED)`."""
        with_agents = {agent.path for agent in self.project.definitions}
        return _group_by_key(
            (last_name(value), last_name(node.func) or "?")
            for tree in trees_with([], self.project, besides=with_agents)
            for node in (ast.walk(tree) if tree else ())
            if isinstance(node, ast.Call)
            for value in _argument_values(node)
        )

    def callers(self, agent: str, method: str) -> tuple[str, ...]:
        """Return the names of the agents that call a method, or may call it by a computed name or through a subclass."""
        calling = [each for name in ("", method) for each in self._calls_by_method.get(name, ())]
        if not calling:
            return ()
        spec = self.agents[agent].method(method)
        called = {"", agent, *(other.name for other in self.agents.values() if other.method(method) == spec)}
        return tuple(dict.fromkeys(caller for caller, callee in calling if callee in called))

    @cached_property
    def _calls_by_method(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Name of a method, empty if it is computed -> `(caller, callee)` of each call."""
        return _group_by_key(
            (call.method, (name, call.agent)) for name, agent in self.agents.items() for call in agent.calls
        )

    @cached_property
    def called_methods(self) -> frozenset[tuple[str, str]]:
        """`(agent, method)` of every call; either is empty if it is computed."""
        return frozenset((callee, method) for method, calls in self._calls_by_method.items() for _, callee in calls)

    def neighbours(self, agent: str) -> tuple[str, ...]:
        """Return the agents that depend on this one or call it, sorted."""
        dependants = {name for calls in self._calls_by_method.values() for name, callee in calls if callee == agent}
        dependants |= {each.name for each in self.partners(agent) if agent in {item.name for item in each.dependencies}}
        return tuple(sorted(dependants - {agent}))


def _classes_named(name: str, wiring: Wiring) -> Iterator[ast.ClassDef]:
    """Yield the class statements of the project with this name."""
    for tree in trees_with([f"class {name}"], wiring.project) if name else ():
        yield from (
            node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.ClassDef) and node.name == name
        )


def _find_callees(topic: str, wiring: Wiring) -> Iterator[str]:
    """Yield the names of the functions to which files pass a topic or a variable that holds it; `""` for an unreadable file."""
    for tree in trees_with([topic], wiring.project):
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and topic in map(_constant_value, _argument_values(node)):
                called = last_name(node.func) or "?"
                yield from {called} - {"Topic"}  # `Topic(...)` only declares the topic
        for name in _find_variables_with(topic, tree) if tree else ():
            yield from wiring.callees_in_scripts.get(name, ())
        if tree is None:
            yield ""


def _find_variables_with(topic: str, tree: ast.Module) -> Iterator[str]:
    """Yield the variables that hold a topic: `OPENED` for `OPENED = "/Shop/Opened"` or `= Topic("/Shop/Opened", Opened)`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            values = _argument_values(node.value) if isinstance(node.value, ast.Call) else (node.value,)
            if topic in map(_constant_value, values):
                yield from filter(None, map(last_name, getattr(node, "targets", None) or [node.target]))  # type: ignore[union-attr]


def _constant_value(expression: ast.expr) -> object:
    """Return the value of a constant; None for any other expression."""
    return expression.value if isinstance(expression, ast.Constant) else None


def _argument_values(call: ast.Call) -> tuple[ast.expr, ...]:
    return (*call.args, *(keyword.value for keyword in call.keywords))


_Item = TypeVar("_Item")


def _group_by_key(pairs: Iterable[tuple[str, _Item]]) -> dict[str, tuple[_Item, ...]]:
    groups: dict[str, list[_Item]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


def _may_match(prefix: str, head: str, *, is_exact: bool) -> bool:
    """Return whether a topic that begins with `prefix` can be equal to `head`, or without `is_exact`, can begin with `head`."""
    return head.startswith(prefix) or (not is_exact and prefix.startswith(head))


def is_written_in(agent: AgentDefinition, span: SourceSpan) -> bool:
    """Return whether a place is in the class statement of the agent itself, not in a base class."""
    return agent.path == span.path and agent.span.line <= span.line <= agent.span.end_line


class Demand(msgspec.Struct, frozen=True):
    """A field that a handler takes as a parameter, declares in its payload class, or reads; `span` is the place of that."""

    name: str
    type: Type
    span: SourceSpan
    is_parameter: bool = False


def accepted_fields(handler: AgentSubscription) -> dict[str, tuple[Demand, bool]]:
    """Return name -> `(field, whether it is required)` for each field that a handler's parameters or payload class declare."""
    subscription = handler.subscription
    if subscription.shape == "fields":
        return {
            item.name: (Demand(item.name, item.type, item.span, is_parameter=True), not item.has_default)
            for item in subscription.fields
            if item.kind in ("positional", "keyword_only")
        }
    fields = subscription.declared_schema.fields if subscription.declared_schema else ()
    return {field.name: (Demand(field.name, field.type, subscription.span), field.required) for field in fields}


def fields_required_by_signature(handler: AgentSubscription) -> list[Demand]:
    """Return the fields that a handler's signature requires: parameters without default, or fields of its payload class."""
    return [demand for demand, is_needed in accepted_fields(handler).values() if is_needed]


def required_fields(handler: AgentSubscription, project: ProjectFacts) -> tuple[Demand, ...]:
    """Return the fields that every event must have: the signature requires them, or each run of the body reads them."""
    found = {demand.name: demand for demand in fields_required_by_signature(handler)}
    reads = [read for read in handler.subscription.reads if not read.is_optional and read.key not in found]
    method = handler.agent.method(handler.subscription.method)
    certain = set(_find_places_always_reached(method.span, project)) if reads and method else set()
    for read in reads:
        if (read.span.line, read.span.column) in certain:
            found.setdefault(read.key, Demand(read.key, UNKNOWN, read.span))
    return tuple(found.values())


_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Assert)


def _find_places_always_reached(method: SourceSpan, project: ProjectFacts) -> Iterator[tuple[int, int]]:
    """Yield `(line, column)` of each expression in a method that every run evaluates: outside of branches, before any exit."""
    for node in ast.walk(parse(project.source(method.path).text)):
        # the span of a method may begin at a decorator, so it is found by its end
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno == method.end_line:
            for statement in node.body if node.col_offset == method.column else ():
                heads = [getattr(statement, field, None) for field in ("test", "iter", "subject")]
                heads += [item.context_expr for item in getattr(statement, "items", ())]
                parts = [head for head in heads if head] if hasattr(statement, "body") else [statement]
                inside = [inner for part in parts for inner in ast.walk(part)]
                if not any(isinstance(inner, _BRANCHES) for inner in inside):
                    yield from ((inner.lineno, inner.col_offset) for inner in inside if isinstance(inner, ast.expr))
                if any(isinstance(inner, _EXITS) for inner in ast.walk(statement)):
                    return


def describe_publication(sent: AgentPublication) -> Related:
    """Return a publication as a related place of a finding, with a text such as `Orders sends {id: int}`."""
    publication = sent.publication
    verb = "declares" if publication.is_declared else "sends"
    what = publication.payload or (publication.type if publication.type.kind != "unknown" else "a payload")
    return Related(sent.agent.name, publication.span, f"{sent.agent.name} {verb} {what}")
