"""Who sends what to whom, as far as it is known, and what cannot be known.

publication --topic--> subscription        agent --@depends_on--> agent        self.call --> method
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Protocol, TypeVar

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading import syntax
from graphbus_core.compiler.reading.syntax import SourceFile, parse
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, Publication, SourceSpan, Subscription
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.schema.types import UNKNOWN, Type


def is_sent_elsewhere(topic: str, evidence: Evidence) -> bool:
    """Tell whether some file of the build passes the topic to a call other than one that subscribes, or may do so.

    Only asked when no publication is known, so that reading a file once more costs nothing in a project without findings.
    """
    return any(name not in ("subscribe", "unsubscribe") for name in _given_to(topic, evidence))


def is_heard_elsewhere(topic: str, evidence: Evidence) -> bool:
    """Tell whether some file of the build subscribes to the topic by a call, e.g. of a bus; asked as rarely."""
    return any(name in ("", "subscribe") for name in _given_to(topic, evidence))


def _given_to(topic: str, evidence: Evidence) -> Iterator[str]:
    """Give the last name of everything that is called with a topic; the empty name for a file that cannot be read."""
    for tree in trees_with([topic], evidence):
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call):
                values = (*node.args, *(keyword.value for keyword in node.keywords))
                if any(isinstance(value, ast.Constant) and value.value == topic for value in values):
                    yield _last_name(node.func) or "?"
        if tree is None:
            yield ""


def _last_name(expression: ast.expr) -> str:
    """Give `c` for `a.b.c` and for `c`; the empty text for anything else."""
    return getattr(expression, "attr", "") or getattr(expression, "id", "")


_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})
"""A file that could not be read may hold the missing end of any edge."""


class Evidence(Protocol):
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
    def local_findings(self) -> tuple[Finding, ...]:
        """What the rules that need the syntax tree found."""

    def source(self, path: str) -> SourceFile:
        """Give a file."""

    def ignores(self, path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        """Give the ignore comments of a file: line (0: the whole file) and codes (none: all)."""


def trees_with(words: Sequence[str], evidence: Evidence) -> Iterator[ast.Module | None]:
    """Give the tree of each file whose bytes hold all these words, None for one that holds them but cannot be read."""
    needles = [word.encode() for word in words]
    for module in evidence.index.files:
        try:
            source = evidence.source(module.path)
        except BuildError:
            yield None
            continue
        if all(needle in source.data for needle in needles):
            yield _tree(source)


def _tree(source: SourceFile) -> ast.Module | None:
    try:
        return syntax.parse(source.text)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return None


def report(
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
    """Give a finding; one with data for a fix is fixable unless it is said otherwise."""
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


class Sent(msgspec.Struct, frozen=True):
    """A publication and the agent that makes it."""

    agent: AgentDefinition
    publication: Publication

    @property
    def topic(self) -> str:
        """What it is published to, empty when computed."""
        return self.publication.topic


class Heard(msgspec.Struct, frozen=True):
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
        evidence: The project.
        only: The agents whose findings are asked for; the edges are those of all. None: all agents.

    Attributes:
        agents: By name.
        asked: Of these, those whose findings are asked for.
        is_partial: True when some file could not be read; then nothing can be concluded from what is absent.
    """

    def __init__(self, evidence: Evidence, only: frozenset[str] | None = None) -> None:
        self.evidence = evidence
        self._only = only
        self.agents = {definition.name: definition for definition in evidence.definitions}
        self.asked = tuple(agent for agent in self.agents.values() if self.asks_about(agent.name))
        self.is_partial = any(error.code in _UNREADABLE for error in evidence.errors)
        self._external = evidence.config.settings.external_topics
        self._found: dict[WiringRule, tuple[Finding, ...]] = {}

    def found(self, rule: WiringRule) -> tuple[Finding, ...]:
        """Give what a rule finds. It is asked once: a build looks for conflicts first, and for everything in the end."""
        findings = self._found.get(rule)
        if findings is None:
            findings = self._found[rule] = tuple(rule(self))
        return findings

    def narrowed(self, only: frozenset[str]) -> Wiring:
        """Give the same edges, asked about fewer agents; what is known of the edges is not worked out again."""
        wiring = copy(self)
        wiring._only = only
        wiring._found = {}
        wiring.asked = tuple(agent for agent in self.agents.values() if agent.name in only)
        wiring.__dict__.pop("asked_sent", None)
        wiring.__dict__.pop("asked_heard", None)
        return wiring

    def asks_about(self, agent: str) -> bool:
        """Tell whether the findings at an agent are asked for."""
        return self._only is None or agent in self._only

    @cached_property
    def sent(self) -> tuple[Sent, ...]:
        """All publications, each place once, though subclasses inherit it; more than once where it differs between them."""
        found: dict[tuple[object, ...], Sent] = {}
        for agent in self.agents.values():
            for publication in agent.publications:
                key = (
                    publication.span,
                    publication.is_declared,
                    publication.topic,
                    publication.prefix,
                    publication.payload,
                )
                if key not in found or owns(agent, publication.span):
                    found[key] = Sent(agent, publication)
        return tuple(found.values())

    @cached_property
    def heard(self) -> tuple[Heard, ...]:
        """All subscriptions, each place once, though subclasses inherit it."""
        found: dict[tuple[SourceSpan, str], Heard] = {}
        for agent in self.agents.values():
            for subscription in agent.subscriptions:
                key = (subscription.span, subscription.method)
                if key not in found or owns(agent, subscription.span):
                    found[key] = Heard(agent, subscription)
        return tuple(found.values())

    @cached_property
    def asked_sent(self) -> tuple[Sent, ...]:
        """The publications of the agents that are asked about."""
        return tuple(sent for sent in self.sent if self.asks_about(sent.agent.name))

    @cached_property
    def asked_heard(self) -> tuple[Heard, ...]:
        """The subscriptions of the agents that are asked about."""
        return tuple(heard for heard in self.heard if self.asks_about(heard.agent.name))

    @cached_property
    def _sent_to(self) -> dict[str, tuple[Sent, ...]]:
        """Topic -> its known publications; under the empty topic those whose topic is computed."""
        return _grouped((sent.topic, sent) for sent in self.sent)

    @cached_property
    def _heard_at(self) -> dict[str, tuple[Heard, ...]]:
        return _grouped((heard.topic, heard) for heard in self.heard)

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(topic for topic in self._heard_at if is_pattern(topic))

    @cached_property
    def topics(self) -> frozenset[str]:
        """Every topic that is published to, as far as it is known."""
        return frozenset(self._sent_to) - {""}

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

    def publishers(self, topic: str) -> tuple[Sent, ...]:
        """Give every known publication that reaches a subscription to `topic`, which may be a pattern."""
        if not is_pattern(topic):
            return self._sent_to.get(topic, ()) if topic else ()
        return tuple(sent for name in self._sent_to if matches(topic, name) for sent in self._sent_to[name])

    def hearers(self, topic: str) -> tuple[Heard, ...]:
        """Give every known subscription that an event of `topic` reaches."""
        patterns = [pattern for pattern in self._patterns if matches(pattern, topic)]
        return tuple(heard for name in (topic, *patterns) for heard in self._heard_at.get(name, ()))

    def all_publishers(self, topic: str) -> tuple[Sent, ...] | None:
        """Give every publication that reaches `topic`, or None when there may be others."""
        if not topic or self.has_unknown_publishers(topic) or self.is_external(topic):
            return None
        return self.publishers(topic)

    @cached_property
    def called(self) -> frozenset[tuple[str, str]]:
        """Agent and method of every call; either is empty when it is computed."""
        return frozenset((call.agent, call.method) for agent in self.agents.values() for call in agent.calls)

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
        """Give the agents that this one depends on and those that depend on it, by name."""
        return tuple(self.agents[name] for name in sorted(self._partners[agent]))

    def callers(self, agent: str, method: str) -> Iterator[AgentDefinition]:
        """Give the agents that call a method with `self.call`, or may do so: a computed name may be any."""
        callers = [definition for name in ("", method) for definition in self._calling.get(name, ())]
        if not callers:
            return
        spec = self.agents[agent].method(method) if agent in self.agents else None
        heirs = {other.name for other in self.agents.values() if spec and other.method(method) == spec}
        called = {"", agent, *heirs}
        for definition in {caller.name: caller for caller in callers}.values():
            if any(call.agent in called and call.method in ("", method) for call in definition.calls):
                yield definition

    @cached_property
    def _calling(self) -> dict[str, tuple[AgentDefinition, ...]]:
        """Method name -> the agents that call a method of this name; under the empty name those that compute it."""
        return _grouped((call.method, agent) for agent in self.agents.values() for call in agent.calls)

    def neighbours(self, agent: str) -> tuple[str, ...]:
        """Give the agents that depend on this one or call it, sorted."""
        return tuple(
            sorted(
                definition.name
                for definition in self.agents.values()
                if definition.name != agent
                and (
                    any(dependency.name == agent for dependency in definition.dependencies)
                    or any(call.agent == agent for call in definition.calls)
                )
            )
        )


Found = TypeVar("Found")


def _grouped(pairs: Iterable[tuple[str, Found]]) -> dict[str, tuple[Found, ...]]:
    groups: dict[str, list[Found]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


def _may_meet(prefix: str, head: str, *, is_whole: bool) -> bool:
    """Tell whether a text that begins with `prefix` can be `head` (`is_whole`), or begin with it."""
    return head.startswith(prefix) or (not is_whole and prefix.startswith(head))


def owns(agent: AgentDefinition, span: SourceSpan) -> bool:
    """True when the place lies in the class statement of the agent itself, not in a base class."""
    return agent.path == span.path and agent.span.line <= span.line <= agent.span.end_line


_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.BoolOp,
    ast.Match,
    ast.While,
    ast.For,
    ast.AsyncFor,
    ast.Try,
    ast.TryStar,
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Assert,
)
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Demand(msgspec.Struct, frozen=True):
    """A field without which the handler fails."""

    name: str
    type: Type
    span: SourceSpan
    is_parameter: bool = False


def declared_demands(heard: Heard) -> Iterator[Demand]:
    """Give the fields that the signature of a handler asks for: its parameters, or the fields of its typed payload."""
    subscription = heard.subscription
    if subscription.shape == "fields":
        for parameter in subscription.fields:
            if not parameter.has_default and parameter.kind in ("positional", "keyword_only"):
                yield Demand(parameter.name, parameter.type, parameter.span, is_parameter=True)
    elif subscription.payload.kind == "record":
        for field in subscription.payload.fields:
            if field.required:
                yield Demand(field.name, field.type, subscription.span)


def accepted_fields(heard: Heard) -> Iterator[Demand]:
    """Give every field that the signature gives a type, required or not."""
    subscription = heard.subscription
    if subscription.shape == "fields":
        for parameter in subscription.fields:
            if parameter.kind in ("positional", "keyword_only"):
                yield Demand(parameter.name, parameter.type, parameter.span, is_parameter=True)
    elif subscription.payload.kind == "record":
        for field in subscription.payload.fields:
            yield Demand(field.name, field.type, subscription.span)


def demands(heard: Heard, evidence: Evidence) -> tuple[Demand, ...]:
    """Give the fields that every single event must have: what the signature asks for, and what the body reads in any case."""
    found = {demand.name: demand for demand in declared_demands(heard)}
    reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in found]
    if reads:
        certain = _certain_places(heard, evidence)
        for read in reads:
            if (read.span.line, read.span.column) in certain:
                found.setdefault(read.key, Demand(read.key, UNKNOWN, read.span))
    return tuple(found.values())


def _certain_places(heard: Heard, evidence: Evidence) -> set[tuple[int, int]]:
    """The places in the body of a handler that no branch, loop or early exit can pass by."""
    method = heard.agent.method(heard.subscription.method)
    if method is None:
        return set()
    for node in ast.walk(parse(evidence.source(method.span.path).text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == method.name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= method.span.line <= node.lineno:
                return set(_straight(node.body))
    return set()


def _straight(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    for statement in body:
        yield from _unconditional(statement)
        if any(isinstance(node, _EXITS) for node in ast.walk(statement)):
            return


def _unconditional(node: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(node, _BRANCHES):
        certain = _always_evaluated(node)
        if certain is not None:
            yield from _unconditional(certain)
        return
    if isinstance(node, ast.expr):
        yield node.lineno, node.col_offset
    for child in ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _always_evaluated(node: ast.AST) -> ast.expr | None:
    """The part of a branch that runs in any case: what it tests, what it loops over."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.Match):
        return node.subject
    return None
