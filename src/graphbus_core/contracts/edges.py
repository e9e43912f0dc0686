"""The edges of a graph with the findings of `graphbus check` about each, and whether both of its ends fit together.

method      Agent.method                          its schemas and its own code, called or not
call        Caller → Agent.method                 the arguments and the input schema
depends_on  Consumer → Agent
topic       Publisher → topic → Agent.handler     the payload and the needs of the handler
request     Requester → topic → Agent.handler     the same, and that exactly one handler answers

An edge is broken if and only if a rule reports an error or warning at one of its ends. It is proven if both ends are known and
every value that may be passed fits. All other edges are unknown, with a doubt: the reason in one clause. That is no error.

`published` are the publications of one agent to one topic; together they are one end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec.structs import replace

from graphbus_core.compiler.rules.results import Results
from graphbus_core.compiler.rules.wiring import AgentPublication, Wiring
from graphbus_core.contracts.surface import Surface, TopicHandler
from graphbus_core.model.agent import (
    BELOW_UNKNOWN,
    AgentDefinition,
    Call,
    KeyRead,
    MethodSpec,
    PartUse,
    Publication,
    SourceSpan,
)
from graphbus_core.model.findings import Finding
from graphbus_core.schema.compatibility import fit_of
from graphbus_core.schema.paths import container_of, has_path, split_path, type_at
from graphbus_core.schema.shapes import may_use, shapes_of
from graphbus_core.schema.types import NULL, UNKNOWN, Schema, Type, is_unspecific

_EdgeKind = Literal["method", "call", "depends_on", "topic", "request"]
Verdict = Literal["proven", "unknown", "broken"]

VERDICTS: tuple[Verdict, ...] = ("proven", "unknown", "broken")
_OUTSIDE = "(outside)"
_NOBODY = "(nobody)"

_KINDS: tuple[_EdgeKind, ...] = ("method", "call", "depends_on", "topic", "request")
_EVENTS: frozenset[_EdgeKind] = frozenset({"topic", "request"})
_ABOUT: Mapping[str, frozenset[_EdgeKind]] = {
    **dict.fromkeys(("GB001", "GB002", "GB004", "GB005", "GB006", "GB310", "GB311"), _EVENTS),
    **dict.fromkeys(("GB003", "GB110", "GB111"), _EVENTS | {"call"}),
    **dict.fromkeys(("GB314", "GB316", "GB324"), _EVENTS | {"call"}),
    **dict.fromkeys(("GB010", "GB011"), frozenset({"call", "depends_on"})),
    **dict.fromkeys(("GB101", "GB102", "GB103", "GB104", "GB105", "GB106"), frozenset({"method"})),
}
"""Code of a rule -> the kinds of edges to which its findings belong."""
_IN_BODY = frozenset({"GB001", "GB310", "GB311", "GB324"})
"""Rules that may report at any line of a handler."""

CODES = frozenset(_ABOUT)
"""The rules about contracts between agents; the others are about style and method bodies."""


class ContractEdge(NamedTuple):
    """One edge.

    Attributes:
        source: The agent that calls, publishes, requests or depends; for a method its agent. `?`: unknown.
        topic: The topic of an event or request, `?` if it is computed; empty for other kinds.
        target: The method, handler or agent at the other end; `?`: unknown.
        spans: The places of both ends, as far as they are known, the source first; for a method its declaration.
        findings: The findings about it, notes included.
        unknown: The doubt why it is not proven, one clause; empty if there is none.
    """

    kind: _EdgeKind
    source: str
    topic: str
    target: str
    spans: tuple[SourceSpan, ...]
    findings: tuple[Finding, ...] = ()
    unknown: str = ""

    @property
    def verdict(self) -> Verdict:
        """`broken` if a rule reports an error or warning about the edge, else `unknown` if there is a doubt, else `proven`."""
        if any(finding.severity != "info" for finding in self.findings):
            return "broken"
        return "unknown" if self.unknown else "proven"


class ContractValidation(NamedTuple):
    """The edges to show, the findings about no edge, and the `hidden` edges, which are counted but not shown."""

    edges: tuple[ContractEdge, ...]
    others: tuple[Finding, ...] = ()
    hidden: tuple[ContractEdge, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """Return the number of edges with a verdict, hidden ones included."""
        return sum(edge.verdict == verdict for edge in (*self.edges, *self.hidden))

    def with_verdict(self, verdict: Verdict) -> ContractValidation:
        """Return a copy that shows only the edges with a verdict and hides the others; other findings are dropped."""
        shown = tuple(edge for edge in self.edges if edge.verdict == verdict)
        return ContractValidation(shown, hidden=tuple(edge for edge in self.edges if edge.verdict != verdict))

    def within(self, paths: Collection[str] | None) -> ContractValidation:
        """Return a copy with only the edges that have an end in one of these files; None: all edges."""
        if paths is None:
            return self
        return self._replace(edges=tuple(each for each in self.edges if any(span.path in paths for span in each.spans)))

    @property
    def summary(self) -> str:
        """The counts for people: `41 edges: 38 proven, 3 unknown`."""
        counts = [f"{self.count(verdict)} {verdict}" for verdict in VERDICTS if self.count(verdict)]
        number = len(self.edges) + len(self.hidden)
        return f"{number} edge{'s' * (number != 1)}{': ' * bool(counts)}{', '.join(counts)}"

    @property
    def is_clean(self) -> bool:
        """True if there is no error or warning, hidden edges included."""
        found = [*self.others, *(each for edge in (*self.edges, *self.hidden) for each in edge.findings)]
        return all(finding.severity == "info" for finding in found)


class _PlacedEdge(NamedTuple):
    """An edge, the places at which findings about it are reported, and the method of the handler at its end, if it has one."""

    edge: ContractEdge
    places: Set[SourceSpan]
    handler: MethodSpec | None = None

    def has(self, finding: Finding) -> bool:
        """Return whether a finding is about this kind of edge and at one of its places, or for some rules, in its handler."""
        if self.edge.kind not in _ABOUT[finding.code]:
            return False
        is_inside = self.handler and finding.code in _IN_BODY and _begins_inside(finding.span, self.handler.span)
        is_call = finding.code == "GB324" and any(each.span in self.places for each in finding.related)
        return bool(is_inside or is_call) or finding.span in self.places


def _begins_inside(span: SourceSpan, method: SourceSpan) -> bool:
    """Return whether a span begins on a line of a method."""
    return span.path == method.path and method.line <= span.line <= method.end_line


def validate_contracts(wiring: Wiring, findings: Sequence[Finding]) -> ContractValidation:
    """Return every edge with the findings about it.

    Args:
        wiring: The edges of the project, as the rules use them.
        findings: The findings of `rules.check` for it; those with a code that is not in `CODES` are ignored.
    """
    surface = Surface(wiring.agents.values(), ())
    unawaited = [each for each in findings if each.code == "GB314"]
    calls = _call_edges(surface, wiring.results)
    placed = [
        *_method_edges(surface, unawaited),
        *calls,
        *_dependency_edges(surface),
        *_TopicEdges(surface, wiring, unawaited).edges(),
    ]
    index = _EdgeIndex(placed)
    found: dict[int, list[Finding]] = defaultdict(list)
    others = []
    for finding in (each for each in findings if each.code in CODES):
        numbers = index.edges_of(finding)
        for number in numbers:
            found[number].append(finding)
        if not numbers:
            others.append(finding)
    edges = (each.edge._replace(findings=tuple(found.get(number, ()))) for number, each in enumerate(placed))
    return ContractValidation(tuple(sorted(edges, key=_sort_key)), tuple(others))


def _sort_key(edge: ContractEdge) -> tuple[object, ...]:
    return _KINDS.index(edge.kind), edge.topic, edge.source, edge.target, edge.spans[0].line


class _EdgeIndex:
    """Finds the edges that a finding is about, by its place. The number of an edge is its position in `placed`."""

    def __init__(self, placed: Sequence[_PlacedEdge]) -> None:
        self._placed = placed

    @cached_property
    def _numbers_at(self) -> dict[SourceSpan | str, list[int]]:
        """Place of an edge, or path of the file of its handler -> the numbers of the edges."""
        found: dict[SourceSpan | str, list[int]] = defaultdict(list)
        for number, each in enumerate(self._placed):
            for place in (*each.places, *([each.handler.span.path] if each.handler else ())):
                found[place].append(number)
        return found

    def edges_of(self, finding: Finding) -> list[int]:
        """Return the numbers of the edges that a finding is about; if some have one of its related places, only those."""
        places = (finding.span.path, finding.span, *(each.span for each in finding.related))
        near = {number for place in places for number in self._numbers_at.get(place, ())}  # type: ignore[call-overload]
        here = sorted(number for number in near if self._placed[number].has(finding))
        others = {related.span for related in finding.related} - {finding.span}
        return [number for number in here if others & self._placed[number].places] or here


# --- methods, calls, dependencies ----------------------------------------------------------------


def _doubt_await(agent: AgentDefinition, name: str, unawaited: Sequence[Finding]) -> str:
    """Return the doubt about the method `name` if one of the `unawaited` findings (GB314) is in its body; else empty."""
    method = agent.method(name) if unawaited else None
    is_unawaited = method is not None and any(_begins_inside(each.span, method.span) for each in unawaited)
    return f"{agent.name}.{name} uses an answer without awaiting it" if is_unawaited else ""


def _method_edges(surface: Surface, unawaited: Sequence[Finding]) -> Iterator[_PlacedEdge]:
    """Yield an edge for each method with a schema."""
    for agent in surface.agents.values():
        for method in surface.methods(agent.name).values():
            span = method.schema_span or method.span
            doubt = _doubt_method(method) or _doubt_await(agent, method.name, unawaited)
            edge = ContractEdge("method", agent.name, "", f"{agent.name}.{method.name}", (span,), unknown=doubt)
            inside = {each.span for each in method.parameters} | {each.span for each in method.returned}
            yield _PlacedEdge(edge, inside | {method.span, span})


def _doubt_method(method: MethodSpec) -> str:
    """Return why it is not proven that a method keeps its contract; empty if it is proven."""
    if method.input_schema is None:
        return "its input schema cannot be read" if method.output_schema else "it declares no schema that can be read"
    wanted = _record_of(method.output_schema) if method.output_schema and method.output_schema.fields else UNKNOWN
    for each in method.returned:
        given = _fill_unknown_fields(each.type, method.returns)
        # where the type of the value is not known, the return annotation is trusted
        if not _fits(wanted, given) and not (given.kind == "unknown" and _fits(wanted, method.returns)):
            return _describe_doubt(f"what it returns in line {each.span.line}", wanted, given)
    return ""


def _fill_unknown_fields(given: Type, declared: Type) -> Type:
    """Return a record in which fields of unknown type have their types from `declared`; any other type is unchanged."""
    if given.kind != "record" or declared.kind not in ("record", "dict"):
        return given
    known = {field.name: field.type for field in declared.fields}
    rest = declared.args[1] if declared.args else UNKNOWN
    fields = (
        replace(each, type=known.get(each.name, rest)) if each.type.kind == "unknown" else each for each in given.fields
    )
    return Type("record", fields=tuple(fields))


def _record_of(schema: Schema) -> Type:
    return Type("record", fields=schema.fields)


def _fits(wanted: Type, given: Type) -> bool:
    return fit_of(wanted, given, is_narrowed=True).verdict == "fits"


def _describe_doubt(what: str, wanted: Type, given: Type) -> str:
    """Return, as a clause about `what`, why it is not known whether a value of the given type fits the wanted one."""
    if given.kind == "unknown":
        return f"{what} is not known"
    return f"{what} may not fit: {fit_of(wanted, given, is_narrowed=True).reason}"


def _call_edges(surface: Surface, results: Results) -> Iterator[_PlacedEdge]:
    """Yield an edge for each call of another agent."""
    for agent in surface.agents.values():
        own = [each for each in agent.calls if each.agent == agent.name]
        # results that the agent passes to its own methods: findings about them belong to the call that gave the result
        handed_on = [(result.name, each.span) for each in own for result in each.arguments.rest]
        for call in (each for each in agent.calls if each not in own):
            callee = surface.agents.get(call.agent)
            method = callee.method(call.method) if callee else None
            target = f"{call.agent or '?'}.{call.method or '?'}"
            spans = (call.span, *([method.schema_span or method.span] if method else []))
            unknown = _doubt_call(call, callee, method) or _doubt_result(call.reads, target, results)
            yield _PlacedEdge(
                ContractEdge("call", agent.name, "", target, spans, unknown=unknown),
                {call.span, *(each.span for each in call.reads), *(span for name, span in handed_on if name == target)},
            )


def _doubt_call(call: Call, callee: AgentDefinition | None, method: MethodSpec | None) -> str:
    """Return why it is not proven that a call reaches a method and that its arguments fit; empty if it is proven."""
    if not call.agent or not call.method:
        return "what is called is computed at run time"
    if callee is None:
        return "the agent is not in this graph"
    if method is None or not method.has_schema:
        return "the method cannot be called"
    if method.input_schema is None:
        return f"the input schema of {call.agent}.{call.method} cannot be read"
    return _doubt_argument(call, method.input_schema)


def _doubt_argument(call: Call, wanted: Schema) -> str:
    """Return why it is not known whether the arguments of a call fit a schema; empty if they fit."""
    if call.has_unknown:
        return "some of the arguments are computed at run time"
    for field in wanted.fields:
        given = call.arguments.get(field.name)
        if given and not _fits(field.type, given.type):
            return _describe_doubt(f"the argument {field.name!r}", field.type, given.type)
    return ""


def _doubt_result(reads: Sequence[KeyRead], name: str, results: Results) -> str:
    """Return why it is not known whether the result `name` has the keys that are read of it; empty if no doubt is left."""
    whole = results.type_of(name) if reads else NULL
    for each in reads:  # an optional key may be missing, unless only a guard that may always fail makes it optional
        if not each.is_optional or each.is_guarded:
            container, key = container_of(whole, each.key)
            if container.kind != "record":
                return f"what {name} gives is not known"
            if each.is_guarded and key not in {field.name for field in container.fields}:
                return f"whether what {name} gives has {each.key!r} is not known"
    return ""


def _dependency_edges(surface: Surface) -> Iterator[_PlacedEdge]:
    """Yield an edge for each declared dependency."""
    for agent in surface.agents.values():
        for dependency in agent.dependencies:
            other = surface.agents.get(dependency.name)
            spans = (dependency.span, *([other.name_span] if other else []))
            unknown = "" if other else "the agent is not in this graph"
            edge = ContractEdge("depends_on", agent.name, "", dependency.name, spans, unknown=unknown)
            yield _PlacedEdge(edge, {dependency.span})


# --- topics --------------------------------------------------------------------------------------


class _TopicEdges:
    """Finds the edges of events and requests: from each publisher to each handler that it reaches, and those with one end."""

    def __init__(self, surface: Surface, wiring: Wiring, unawaited: Sequence[Finding]) -> None:
        self._surface = surface
        self._unawaited = unawaited
        self._wiring = wiring

    def edges(self) -> Iterator[_PlacedEdge]:
        """Yield all edges; the publications of one agent to one topic form one end of an edge."""
        groups: dict[tuple[str, str], list[AgentPublication]] = defaultdict(list)
        for agent in self._surface.agents.values():
            for each in agent.publications:
                groups[agent.name, each.topic or f"{each.prefix}?"].append(AgentPublication(agent, each))
        reached: set[tuple[str, str]] = set()
        for (source, topic), published in groups.items():
            handlers = self._surface.handlers_of(topic) if published[0].publication.topic else ()
            reached.update((each.name, each.subscription.topic) for each in handlers)
            for handler in handlers:
                doubt = self._find_doubt(published, handler) or self._doubt_answer(published)
                yield _make_topic_edge(source, topic, published, handler, doubt)
            if not handlers or self._wiring.is_external(topic):
                yield self._make_edge_without_handler(source, topic, published)
        for handler in self._surface.handlers:
            heard = handler.subscription.topic
            if (handler.name, heard) not in reached or self._wiring.is_external(heard):
                yield self._make_edge_without_publisher(handler)

    def _find_doubt(self, published: Sequence[AgentPublication], handler: TopicHandler) -> str:
        """Return the first doubt about publications and a handler that they reach; empty if there is none."""
        doubts = (_doubt_await(each.agent, each.publication.method, self._unawaited) for each in published)
        doubt = _doubt_payload(published, handler) or _doubt_paths(published, handler) or self._doubt_guarded(handler)
        return doubt or next(filter(None, doubts), "")

    def _doubt_guarded(self, handler: TopicHandler) -> str:
        """Return the doubt about a key that a handler reads only if it is there, and that no publisher is known to send."""
        schema = handler.subscription.declared_schema
        required = {field.name for field in schema.fields if field.required} if schema else frozenset[str]()
        guarded = [each.key for each in handler.subscription.reads if each.is_guarded and each.key not in required]
        if not guarded:
            return ""
        topics = {each.topic for each in handler.agent.subscriptions if each.method == handler.subscription.method}
        published = [each.publication.payload for topic in topics for each in self._surface.publications_to(topic)]
        sent = {field.name for payload in published if payload for field in payload.fields}
        unsent = next((key for key in guarded if key not in sent), "")
        return f"{handler.name} may read {unsent!r}, which no publisher is known to send" if unsent else ""

    def _doubt_answer(self, published: Sequence[AgentPublication]) -> str:
        """Return why it is not known whether the answers to requests have the keys that are read of them; empty if they do."""
        found = (
            _doubt_result(each.publication.reads, each.publication.topic, self._wiring.results) for each in published
        )
        return next(filter(None, found), "")

    def _make_edge_without_handler(self, source: str, topic: str, published: Sequence[AgentPublication]) -> _PlacedEdge:
        """Return the edge of publications without a handler here: to the outside, to `?` for a computed topic, or to nobody."""
        is_computed, unknown = not published[0].publication.topic, _doubt_payload(published)
        if self._wiring.is_external(topic):
            return _make_topic_edge(source, topic, published, _OUTSIDE, unknown)
        if is_computed:
            unknown = "the topic is computed at run time"
        elif self._wiring.has_unknown_subscribers:
            unknown = "a subscription whose topic is computed may hear it"
        return _make_topic_edge(source, topic, published, "?" if is_computed else _NOBODY, unknown)

    def _make_edge_without_publisher(self, handler: TopicHandler) -> _PlacedEdge:
        """Return the edge of a handler without a publisher here: from the outside, from `?` if a topic is computed, or nobody."""
        topic = handler.subscription.topic
        source, unknown = _NOBODY, "nobody in this graph publishes it; other code may"
        if not topic:
            source, unknown = "?", "the topic is computed at run time"
        elif self._wiring.is_external(topic):
            source, unknown = _OUTSIDE, "" if handler.is_whole else f"what {handler.name} needs is not known"
        elif self._wiring.has_unknown_publishers(topic):
            source, unknown = "?", "a topic that is computed at run time may be this one"
        return _make_topic_edge(source, topic or "?", (), handler, unknown)


def _make_topic_edge(
    source: str, topic: str, published: Sequence[AgentPublication], target: TopicHandler | str, doubt: str
) -> _PlacedEdge:
    """Return the edge of an event or a request, with the places at which findings about it are reported.

    Args:
        source: The agent that publishes, or a placeholder such as `?`.
        topic: The topic; `?` if it is computed.
        published: The publications of the source to the topic; empty without a publisher in this graph.
        target: The handler, or a placeholder such as `(nobody)`.
        doubt: Why the edge is not proven; empty if it is.
    """
    kind: _EdgeKind = "request" if any(each.publication.is_request for each in published) else "topic"
    source_spans = [
        span for each in published for span in (each.publication.span, each.publication.payload_span) if span
    ]
    source_spans += [read.span for each in published for read in each.publication.reads]
    first = (*source_spans[:1],)
    if isinstance(target, str):
        return _PlacedEdge(ContractEdge(kind, source, topic, target, first, unknown=doubt), {*source_spans})
    subscription = target.subscription
    target_spans = {subscription.span} | {each.span for each in subscription.reads}
    target_spans |= {each.span for each in subscription.fields}
    edge = ContractEdge(kind, source, topic, target.name, (*first, subscription.span), unknown=doubt)
    return _PlacedEdge(edge, target_spans.union(source_spans), target.method)


def _doubt_payload(published: Sequence[AgentPublication], handler: TopicHandler | None = None) -> str:
    """Return why it is not proven that published payloads fit their declarations and the handler; empty if it is proven.

    If no code of the agent publishes, but only a declaration says so, that is a doubt as well. A handler of None is ignored.
    """
    if handler and not (handler.is_whole and not handler.subscription.is_handed_on):
        return f"what {handler.name} needs of the payload is not known"
    declared = [each.publication.payload_type for each in published if each.publication.is_declared]
    wanted = handler.wanted if handler else next(iter(declared), UNKNOWN)
    sent = [each for each in published if not each.publication.is_declared]
    for agent, publication in ((each.agent, each.publication) for each in sent):
        given = _sent_type(publication)
        unmet = next((each for each in declared if not _fits(each, given)), None)
        if unmet is not None:  # a running graph refuses it, whatever the handler needs
            return _describe_payload_doubt(agent.name, publication, unmet, given)
        # a payload that fits a declaration also fits a handler for which the declaration is enough
        is_declaration_enough = any(_fits(wanted, each) for each in declared)
        if given.kind == "unknown" or not (is_declaration_enough or fit_of(wanted, given).verdict == "fits"):
            return _describe_payload_doubt(agent.name, publication, wanted, given)
    return "" if sent else f"where {published[0].agent.name} publishes it is not known"


def _doubt_paths(published: Sequence[AgentPublication], handler: TopicHandler) -> str:
    """Return why it is not known whether fields of payloads contain what a handler reads below them; empty if they do."""
    subscription = handler.subscription
    declared = [each.publication.payload_type for each in published if each.publication.is_declared]
    schema = subscription.declared_schema
    fields = {each.name: each.type for each in schema.fields} if schema else {}
    # a precise type of a field says already what is below it
    reads = [each for each in subscription.reads if is_unspecific(fields.get(each.key, UNKNOWN))]
    for given in (_sent_type(each.publication) for each in published if not each.publication.is_declared):
        known = [given, *(each for each in declared if _fits(each, given))]
        for read in reads:
            if not all(any(_has_path(of, read.key, path) for of in known) for path in read.below):
                return f"whether all is there that {handler.name} reads of {read.key!r} is not known"
            if not all(any(_allows(of, read.key, use) for of in known) for use in read.uses):
                return f"whether {handler.name} can do with {read.key!r} what it does is not known"
    return ""


def _has_path(given: Type, first: str, path: str) -> bool:
    """Return whether a payload certainly has a path whose first field is `first`; an unknown use needs no missing field."""
    return has_path(given, path) or (path.endswith(BELOW_UNKNOWN) and first not in {each.name for each in given.fields})


def _allows(given: Type, first: str, use: PartUse) -> bool:
    """Return whether a payload certainly allows what is done with a part of its field `first`, or has no such field."""
    shapes = shapes_of(type_at(given, split_path(use.path)))
    is_missing = bool(given.fields) and first not in {each.name for each in given.fields}
    return is_missing or may_use(shapes, frozenset(use.shapes), is_guarded=use.is_guarded)


def _sent_type(publication: Publication) -> Type:
    """Return the type of the payload of a publication; if some of its fields are known, a record of these."""
    return publication.payload_type if publication.payload is None else _record_of(publication.payload)


def _describe_payload_doubt(agent: str, publication: Publication, wanted: Type, given: Type) -> str:
    """Return why it is not known whether a payload fits; it names a required field that an open payload may lack."""
    payload = publication.payload
    for field in wanted.fields if payload is not None and payload.is_open else ():
        if field.required and payload and field.name not in payload.names:
            return f"whether {agent} sends {field.name!r} is not known"
    return _describe_doubt(f"what {agent} publishes", wanted, given)
