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
from graphbus_core.compiler.rules.results import Results
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, Publication, SourceSpan, Subscription
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.schema.types import UNKNOWN, Type

_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})
"""A file that could not be read may hold the missing end of any edge."""


class ProjectFacts(Protocol):
    """The facts of a project."""

    @property
    def config(self) -> ResolvedBuild:
        """What is built."""

    @property
    def index(self) -> ModuleIndex:
        """The files."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Path -> sha256 of all that was read."""

    @property
    def definitions(self) -> tuple[AgentDefinition, ...]:
        """The agents in the order of activation."""

    @property
    def errors(self) -> tuple[BuildError, ...]:
        """What could not be read or connected."""

    @property
    def topics(self) -> tuple[DefinedTopic, ...]:
        """The Topics that the files make."""

    @property
    def local_findings(self) -> tuple[Finding, ...]:
        """What the rules that need the syntax tree found."""

    def source(self, path: str) -> ModuleSource:
        """Return a file."""

    def ignores(self, path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        """Return the ignore comments of a file: line (0: the whole file) and codes (none: all)."""

    @property
    def wiring(self) -> Wiring:
        """The edges."""

    def with_files(self, changed: Mapping[str, bytes]) -> ProjectFacts:
        """Give the project in which these files have these bytes."""

    @property
    def editable(self) -> Mapping[str, tuple[str, ...]]:
        """Path -> the agents whose class or a base of it is written there, for each file that a proposal may change."""


def trees_with(
    words: Sequence[str], project: ProjectFacts, *, besides: Container[str] = ()
) -> Iterator[ast.Module | None]:
    """Return the tree of each file whose bytes hold all these words, None for one that holds them but cannot be read."""
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
    severity: Severity = "error",
    related: Iterable[Related] = (),
    data: dict[str, str] | None = None,
    is_fixable: bool | None = None,
    is_fix_safe: bool = False,
) -> Finding:
    """Return a finding; one with data for a fix is fixable unless it is said otherwise."""
    return Finding(
        code=code,
        severity=severity,
        agent=agent,
        span=span,
        message=message,
        hint=hint,
        related=tuple(related),
        is_fixable=bool(data) if is_fixable is None else is_fixable,
        is_fix_safe=is_fix_safe,
        data=data or {},
    )


class AgentPublication(msgspec.Struct, frozen=True):
    """A publication and the agent that makes it."""

    agent: AgentDefinition
    publication: Publication

    @property
    def topic(self) -> str:
        """What it is published to, empty when computed."""
        return self.publication.topic


class AgentSubscription(msgspec.Struct, frozen=True):
    """A subscription and the agent that has it."""

    agent: AgentDefinition
    subscription: Subscription

    @property
    def topic(self) -> str:
        """What it listens to, empty when computed."""
        return self.subscription.topic

    @property
    def name(self) -> str:
        """The handler for people, `"Agent.method"`."""
        return f"{self.agent.name}.{self.subscription.method}"


WiringRule = Callable[["Wiring"], Iterator[Finding]]


class Wiring:
    """The edges of a project.

    Args:
        project: The project.
        only: The agents whose findings are asked for; the edges are those of all. None: all agents.

    Attributes:
        agents: By name, with what they get from each other filled in.
        results: What methods and requests give.
        asked_agents: Of these, those whose findings are asked for.
        is_partial: True when some file could not be read; then nothing can be concluded from what is absent.
    """

    def __init__(self, project: ProjectFacts, only: frozenset[str] | None = None) -> None:
        self.project = project
        self._only = only
        self.results = Results({definition.name: definition for definition in project.definitions})
        self.agents = {each.name: self.results.resolved_agent(each) for each in project.definitions}
        self.asked_agents = tuple(agent for agent in self.agents.values() if self.asks_about(agent.name))
        self.is_partial = any(error.code in _UNREADABLE for error in project.errors)
        self._external = project.config.settings.external_topics
        self._found: dict[WiringRule, tuple[Finding, ...]] = {}
        self._given: dict[str, frozenset[str]] = {}
        self._has_attributes: dict[str, bool | None] = {}

    def findings_of(self, rule: WiringRule) -> tuple[Finding, ...]:
        """Return what a rule finds. It is asked once: a build looks for conflicts first, and for everything in the end."""
        findings = self._found.get(rule)
        if findings is None:
            findings = self._found[rule] = tuple(rule(self))
        return findings

    def narrow_to(self, only: frozenset[str]) -> Wiring:
        """Return the same edges, asked about fewer agents; what is known of the edges is not worked out again."""
        wiring = copy(self)
        wiring._only = only
        wiring._found = {}
        wiring.asked_agents = tuple(agent for agent in self.agents.values() if agent.name in only)
        wiring.__dict__.pop("asked_publications", None)
        wiring.__dict__.pop("asked_subscriptions", None)
        return wiring

    def asks_about(self, agent: str) -> bool:
        """Return whether the findings at an agent are asked for."""
        return self._only is None or agent in self._only

    @cached_property
    def publications(self) -> tuple[AgentPublication, ...]:
        """All publications, each place once, though subclasses inherit it; more than once where it differs between them."""
        found: dict[tuple[object, ...], AgentPublication] = {}
        for agent in self.agents.values():
            for each in agent.publications:
                key = (each.span, each.is_declared, each.topic, each.prefix, each.payload)
                if (key not in found or is_written_in(agent, each.span)) and not self._is_for_heirs(agent, each):
                    found[key] = AgentPublication(agent, each)
        return tuple(found.values())

    def _is_for_heirs(self, agent: AgentDefinition, sent: Publication) -> bool:
        """True for a helper of a base class that publishes to any topic: its calls are read in the subclasses."""
        is_helper = not sent.topic and not sent.prefix and sent.method and agent.name in self._bases
        method = agent.method(sent.method) if is_helper else None
        return (
            method is not None
            and not method.has_schema
            and all(sent.method != each.method for each in agent.subscriptions)
        )

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(base.rpartition(".")[2] for agent in self.agents.values() for base in agent.bases)

    @cached_property
    def subscriptions(self) -> tuple[AgentSubscription, ...]:
        """All subscriptions, each place once, though subclasses inherit it."""
        found: dict[tuple[SourceSpan, str], AgentSubscription] = {}
        for agent in self.agents.values():
            for each in agent.subscriptions:
                if (each.span, each.method) not in found or is_written_in(agent, each.span):
                    found[each.span, each.method] = AgentSubscription(agent, each)
        return tuple(found.values())

    @cached_property
    def asked_publications(self) -> tuple[AgentPublication, ...]:
        """The publications of the agents that are asked about."""
        return tuple(sent for sent in self.publications if self.asks_about(sent.agent.name))

    @cached_property
    def asked_subscriptions(self) -> tuple[AgentSubscription, ...]:
        """The subscriptions of the agents that are asked about."""
        return tuple(heard for heard in self.subscriptions if self.asks_about(heard.agent.name))

    @cached_property
    def _sent_to(self) -> dict[str, tuple[AgentPublication, ...]]:
        """Topic -> its known publications; under the empty topic those whose topic is computed."""
        return _grouped((sent.topic, sent) for sent in self.publications)

    @cached_property
    def _heard_at(self) -> dict[str, tuple[AgentSubscription, ...]]:
        return _grouped((heard.topic, heard) for heard in self.subscriptions)

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(topic for topic in self._heard_at if is_pattern(topic))

    @cached_property
    def topics(self) -> frozenset[str]:
        """Every topic that is published to, as far as it is known."""
        return frozenset(self._sent_to) - {""}

    @property
    def computed_topics(self) -> tuple[SourceSpan, ...]:
        """The places of computed topics; rules that could be wrong because of them are silent."""
        ends = [each.publication.span for each in self._sent_to.get("", ())]
        return tuple(dict.fromkeys([*ends, *(each.subscription.span for each in self._heard_at.get("", ()))]))

    @property
    def has_unknown_subscribers(self) -> bool:
        """True when events of any topic may be heard at a place that cannot be read."""
        return self.is_partial or "" in self._heard_at

    def has_unknown_publishers(self, topic: str) -> bool:
        """True when an event that reaches a subscription to `topic` may come from a place that cannot be read."""
        head = topic.partition("*")[0]
        return self.is_partial or any(
            _may_meet(sent.publication.prefix, head, is_whole=head == topic) for sent in self._sent_to.get("", ())
        )

    def is_external(self, topic: str) -> bool:
        """True when the configuration says that the topic is published or heard outside of the graph."""
        return any(matches(pattern, topic) or matches(topic, pattern) for pattern in self._external)

    def publishers(self, topic: str) -> tuple[AgentPublication, ...]:
        """Return every known publication that reaches a subscription to `topic`, which may be a pattern."""
        if not is_pattern(topic):
            return self._sent_to.get(topic, ()) if topic else ()
        return tuple(sent for name in self._sent_to if matches(topic, name) for sent in self._sent_to[name])

    @cached_property
    def _declared(self) -> frozenset[tuple[str, str]]:
        said = ((agent.name, each) for agent in self.agents.values() for each in agent.publications if each.is_declared)
        return frozenset((name, each.topic) for name, each in said if each.payload and not each.payload.is_open)

    def is_declared(self, sent: AgentPublication) -> bool:
        """True when the agent declares all fields of what it publishes there."""
        return (sent.agent.name, sent.topic) in self._declared

    def subscribers(self, topic: str) -> tuple[AgentSubscription, ...]:
        """Return every known subscription that an event of `topic` reaches."""
        patterns = [pattern for pattern in self._patterns if matches(pattern, topic)]
        return tuple(heard for name in (topic, *patterns) for heard in self._heard_at.get(name, ()))

    def responders(self, topic: str) -> tuple[AgentSubscription, ...]:
        """Return the handlers that answer requests: those of this exact topic; of several, those not annotated `-> None`."""
        names = self.results.responders(topic)
        return tuple(
            each for each in self._heard_at.get(topic, ()) if (each.agent.name, each.subscription.method) in names
        )

    def all_publishers(self, topic: str) -> tuple[AgentPublication, ...] | None:
        """Return every publication that reaches `topic`, or None when there may be others."""
        if not topic or self.has_unknown_publishers(topic) or self.is_external(topic):
            return None
        return self.publishers(topic)

    @cached_property
    def _partners(self) -> dict[str, set[str]]:
        partners: dict[str, set[str]] = {name: set() for name in self.agents}
        for agent in self.agents.values():
            for dependency in agent.dependencies:
                if dependency.name in partners and dependency.name != agent.name:
                    partners[agent.name].add(dependency.name)
                    partners[dependency.name].add(agent.name)
        return partners

    def partners(self, agent: str) -> tuple[AgentDefinition, ...]:
        """Return the agents that this one depends on and those that depend on it, by name."""
        return tuple(self.agents[name] for name in sorted(self._partners[agent]))

    def has_attributes(self, record: str) -> bool | None:
        """Return whether the fields of a class are attributes, as of a dataclass, or keys, as of a TypedDict; None: not known.

        It reads files once more, and is asked of classes whose objects are used across agents alone.
        """
        if record not in self._has_attributes:
            self._has_attributes[record] = None  # of a class that is its own base
            found = {self._is_of_attributes(node) for node in _classes_named(record, self)}
            self._has_attributes[record] = found.pop() if len(found) == 1 else None
        return self._has_attributes[record]

    def _is_of_attributes(self, node: ast.ClassDef) -> bool | None:
        bases = set(map(last_name, node.bases))
        makers = {last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}
        if any(getattr(each, "name", "") == "__getitem__" for each in node.body):
            return None
        if "TypedDict" in bases or "dataclass" in makers or bases & {"Struct", "BaseModel"}:
            return "TypedDict" not in bases
        found = {self.has_attributes(each) for each in bases if each}
        return found.pop() if len(found) == 1 else None

    def calls_with(self, topic: str) -> frozenset[str]:
        """Return the last name of everything that some file of the build calls with a topic; "" for a file that cannot be read.

        Only asked when an end of the topic is missing: it reads files once more.
        """
        if topic not in self._given:
            self._given[topic] = frozenset(_calls_with(topic, self))
        return self._given[topic]

    @cached_property
    def calls_in_scripts(self) -> Mapping[str, Iterable[str]]:
        """Name -> the last name of everything that a file without agents calls with it, e.g. `graph.publish(OPENED)`."""
        with_agents = {agent.path for agent in self.project.definitions}
        return _grouped(
            (last_name(value), last_name(node.func) or "?")
            for tree in trees_with([], self.project, besides=with_agents)
            for node in (ast.walk(tree) if tree else ())
            if isinstance(node, ast.Call)
            for value in _values_of(node)
        )

    def callers(self, agent: str, method: str) -> tuple[str, ...]:
        """Return the names of agents that call a method, or may call it by a computed name or through a subclass."""
        calling = [each for name in ("", method) for each in self._calling.get(name, ())]
        if not calling:
            return ()
        spec = self.agents[agent].method(method)
        called = {"", agent, *(other.name for other in self.agents.values() if other.method(method) == spec)}
        return tuple(dict.fromkeys(caller for caller, callee in calling if callee in called))

    @cached_property
    def _calling(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Method name, empty when it is computed -> caller and callee of each call."""
        return _grouped(
            (call.method, (name, call.agent)) for name, agent in self.agents.items() for call in agent.calls
        )

    @cached_property
    def called_methods(self) -> frozenset[tuple[str, str]]:
        """Agent and method of every call; either is empty when it is computed."""
        return frozenset((callee, method) for method, calls in self._calling.items() for _, callee in calls)

    def neighbours(self, agent: str) -> tuple[str, ...]:
        """Return the agents that depend on this one or call it, sorted."""
        tied = {name for calls in self._calling.values() for name, callee in calls if callee == agent}
        tied |= {each.name for each in self.partners(agent) if agent in {item.name for item in each.dependencies}}
        return tuple(sorted(tied - {agent}))


def _classes_named(name: str, wiring: Wiring) -> Iterator[ast.ClassDef]:
    for tree in trees_with([f"class {name}"], wiring.project) if name else ():
        yield from (
            node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.ClassDef) and node.name == name
        )


def _calls_with(topic: str, wiring: Wiring) -> Iterator[str]:
    for tree in trees_with([topic], wiring.project):
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and topic in map(_text_of, _values_of(node)):
                called = last_name(node.func) or "?"
                yield from {called} - {"Topic"}
        for name in _names_of(topic, tree) if tree else ():
            yield from wiring.calls_in_scripts.get(name, ())
        if tree is None:
            yield ""


def _names_of(topic: str, tree: ast.Module) -> Iterator[str]:
    """`OPENED` of `OPENED = "/Shop/Opened"` and of `OPENED = Topic("/Shop/Opened", Opened)`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            values = _values_of(node.value) if isinstance(node.value, ast.Call) else (node.value,)
            if topic in map(_text_of, values):
                yield from filter(None, map(last_name, getattr(node, "targets", None) or [node.target]))  # type: ignore[union-attr]


def _text_of(expression: ast.expr) -> object:
    return expression.value if isinstance(expression, ast.Constant) else None


def _values_of(call: ast.Call) -> tuple[ast.expr, ...]:
    return (*call.args, *(keyword.value for keyword in call.keywords))


_Found = TypeVar("_Found")


def _grouped(pairs: Iterable[tuple[str, _Found]]) -> dict[str, tuple[_Found, ...]]:
    groups: dict[str, list[_Found]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


def _may_meet(prefix: str, head: str, *, is_whole: bool) -> bool:
    """Return whether a text that begins with `prefix` can be `head` (`is_whole`), or begin with it."""
    return head.startswith(prefix) or (not is_whole and prefix.startswith(head))


def is_written_in(agent: AgentDefinition, span: SourceSpan) -> bool:
    """True when the place lies in the class statement of the agent itself, not in a base class."""
    return agent.path == span.path and agent.span.line <= span.line <= agent.span.end_line


class Demand(msgspec.Struct, frozen=True):
    """A field that a handler cannot do without."""

    name: str
    type: Type
    span: SourceSpan
    is_parameter: bool = False


def accepted_fields(heard: AgentSubscription) -> dict[str, tuple[Demand, bool]]:
    """Return every field that the signature of a handler gives a type, by name, and whether the handler fails without it."""
    subscription = heard.subscription
    if subscription.shape == "fields":
        return {
            item.name: (Demand(item.name, item.type, item.span, is_parameter=True), not item.has_default)
            for item in subscription.fields
            if item.kind in ("positional", "keyword_only")
        }
    fields = subscription.declared_schema.fields if subscription.declared_schema else ()
    return {field.name: (Demand(field.name, field.type, subscription.span), field.required) for field in fields}


def declared_demands(heard: AgentSubscription) -> list[Demand]:
    """Return the fields that the signature of a handler asks for: its parameters, or the fields of its typed payload."""
    return [demand for demand, is_needed in accepted_fields(heard).values() if is_needed]


def demands_of(heard: AgentSubscription, project: ProjectFacts) -> tuple[Demand, ...]:
    """Return the fields that every single event must have: what the signature asks for, and what the body reads in any case."""
    found = {demand.name: demand for demand in declared_demands(heard)}
    reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in found]
    method = heard.agent.method(heard.subscription.method)
    certain = set(_certain_places(method.span, project)) if reads and method else set()
    for read in reads:
        if (read.span.line, read.span.column) in certain:
            found.setdefault(read.key, Demand(read.key, UNKNOWN, read.span))
    return tuple(found.values())


_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Assert)


def _certain_places(method: SourceSpan, project: ProjectFacts) -> Iterator[tuple[int, int]]:
    """Yield the places in a method that every run reaches: outside of branches and loops, before any early exit."""
    for node in ast.walk(parse(project.source(method.path).text)):
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


def described(sent: AgentPublication) -> Related:
    """Show a publication with what it sends."""
    publication = sent.publication
    verb = "declares" if publication.is_declared else "sends"
    what = publication.payload or (publication.type if publication.type.kind != "unknown" else "a payload")
    return Related(sent.agent.name, publication.span, f"{sent.agent.name} {verb} {what}")
