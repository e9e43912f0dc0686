"""The edges of a graph, and whether both of their ends fit: what the rules of `graphbus check` find, told by edge.

method      Agent.method                          its schemas against its own code, called or not
call        Caller → Agent.method                 arguments against the input schema
depends_on  Consumer → Agent
topic       Publisher → topic → Agent.handler     payload against what the handler needs
request     Asker → topic → Agent.handler         the same, and that exactly one answers

An edge is unfit exactly when a rule finds something at one of its ends. What is not known is said, and is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from graphbus_core.compiler.rules.wiring import Heard, Sent, Wiring
from graphbus_core.contracts.surface import needs_of
from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import is_pattern, matches

EdgeKind = Literal["method", "call", "depends_on", "topic", "request"]
Verdict = Literal["fits", "unfit", "unknown"]

CODES = frozenset(
    {"GB001", "GB002", "GB003", "GB004", "GB005", "GB010", "GB011", "GB101", "GB102", "GB103", "GB104", "GB105", "GB110",
     "GB310", "GB311"}
)  # fmt: skip
"""The rules that speak of promises between agents; the others are about style and bodies."""

OUTSIDE = "(outside)"
NOBODY = "(nobody)"
ELSEWHERE = "(other code)"


class Edge(NamedTuple):
    """One edge.

    Attributes:
        source: Who calls, publishes, asks or depends; for a method the agent.
        topic: Of an event or request; empty for the others, `?` for a computed one.
        target: Who answers, handles or is depended on.
        spans: The places of both ends, the source first; for a method its declaration.
        findings: What the rules find, notes included.
        unknown: What cannot be known of it, one clause; empty if all is known.
    """

    kind: EdgeKind
    source: str
    topic: str
    target: str
    spans: tuple[SourceSpan, ...]
    findings: tuple[Finding, ...] = ()
    unknown: str = ""

    @property
    def verdict(self) -> Verdict:
        """`unfit` if a rule finds an error or warning here."""
        if any(finding.severity != "info" for finding in self.findings):
            return "unfit"
        return "unknown" if self.unknown else "fits"


class Validation(NamedTuple):
    """All edges, and what the rules find besides them."""

    edges: tuple[Edge, ...]
    others: tuple[Finding, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """Count the edges of a verdict."""
        return sum(edge.verdict == verdict for edge in self.edges)

    @property
    def holds(self) -> bool:
        """True when no rule finds an error or warning."""
        found = [*self.others, *(each for edge in self.edges for each in edge.findings)]
        return all(finding.severity == "info" for finding in found)


class _Ends(NamedTuple):
    """An edge, and where a finding must be to be about it; `partners`: agents of a `depends_on` edge."""

    edge: Edge
    given: frozenset[SourceSpan] = frozenset()
    taken: frozenset[SourceSpan] = frozenset()
    body: SourceSpan | None = None


def validate(wiring: Wiring, findings: Sequence[Finding]) -> Validation:
    """Give every edge with what was found about it.

    Args:
        wiring: The graph.
        findings: What `rules.check` finds in it; codes outside of `CODES` are left out.
    """
    ends = [*_methods(wiring), *_calls(wiring), *_dependencies(wiring), *_topics(wiring)]
    in_file: dict[str, list[int]] = {}
    for number, each in enumerate(ends):
        bodies = [each.body] if each.body else []
        for path in {span.path for span in (*each.given, *each.taken, *bodies)}:
            in_file.setdefault(path, []).append(number)
    told: dict[int, list[Finding]] = {}
    others = []
    for finding in (each for each in findings if each.code in CODES):
        places = _places(finding, ends, in_file.get(finding.span.path, ()))
        for place in places:
            told.setdefault(place, []).append(finding)
        if not places:
            others.append(finding)
    edges = (each.edge._replace(findings=tuple(told.get(number, ()))) for number, each in enumerate(ends))
    return Validation(tuple(sorted(edges, key=_order)), tuple(others))


_ORDER = ("method", "call", "depends_on", "topic", "request")


def _order(edge: Edge) -> tuple[object, ...]:
    return _ORDER.index(edge.kind), edge.topic, edge.source, edge.target, edge.spans[0].line


# --- findings to edges -------------------------------------------------------------------------


def _places(finding: Finding, ends: Sequence[_Ends], near: Sequence[int]) -> list[int]:
    """The numbers of the edges that a finding is about: those with both of its places, else with the one it is reported at.

    Args:
        finding: What was found.
        ends: All edges.
        near: The numbers of those that have an end in the file of the finding.
    """
    here = [number for number in near if _is_at(finding, ends[number])]
    others = {related.span for related in finding.related}
    both = [number for number in here if others & (ends[number].given | ends[number].taken) - {finding.span}]
    if finding.code == "GB011":
        return here + [
            number for number, each in enumerate(ends) if each.edge.kind == "depends_on" and others & each.given
        ]
    return both if both and finding.code in ("GB003", "GB110") else here or _handed_on(finding, ends)


def _is_at(finding: Finding, ends: _Ends) -> bool:
    span, kind, code = finding.span, ends.edge.kind, finding.code
    if code in ("GB310", "GB311", "GB001"):
        is_inside = bool(ends.body) and _holds(ends.body, span)
        return kind in ("topic", "request") and (span in ends.taken or is_inside)
    if code.startswith("GB10"):
        return kind == "method" and span in ends.given
    if code in ("GB002", "GB004", "GB005"):
        return kind in ("topic", "request") and span in ends.given
    if code in ("GB010", "GB011"):
        return kind in ("call", "depends_on") and span in ends.given
    return (kind == "call" and span in ends.given) or (kind in ("topic", "request") and span in ends.taken)


def _holds(body: SourceSpan | None, span: SourceSpan) -> bool:
    return body is not None and body.path == span.path and body.line <= span.line <= body.end_line


def _handed_on(finding: Finding, ends: Sequence[_Ends]) -> list[int]:
    """A result that is handed on without a word in the code: it goes along the dependency between the two."""
    agents = {finding.agent, *(related.agent for related in finding.related)}
    return [
        number
        for number, each in enumerate(ends)
        if finding.code == "GB110" and each.edge.kind == "depends_on" and {each.edge.source, each.edge.target} == agents
    ]


# --- methods, calls, dependencies ----------------------------------------------------------------


def _methods(wiring: Wiring) -> Iterator[_Ends]:
    for agent in wiring.agents.values():
        for method in agent.methods:
            if method.has_schema:
                span = method.schema_span or method.span
                edge = Edge("method", agent.name, "", f"{agent.name}.{method.name}", (span,), unknown=_unread(method))
                places = [method.span, span, *(each.span for each in method.parameters)]
                yield _Ends(edge, frozenset([*places, *(each.span for each in method.returned)]))


def _unread(method: MethodSpec) -> str:
    """A method without an output schema promises no result: there is nothing to be known of it."""
    if method.input_schema is not None:
        return ""
    return "its input schema cannot be read" if method.output_schema else "it declares no schema that can be read"


def _calls(wiring: Wiring) -> Iterator[_Ends]:
    for agent in wiring.agents.values():
        for call in agent.calls:
            callee = wiring.agents.get(call.agent)
            method = callee.method(call.method) if callee else None
            target = f"{call.agent or '?'}.{call.method or '?'}"
            spans = (call.span, *([method.schema_span or method.span] if method else []))
            edge = Edge("call", agent.name, "", target, spans, unknown=_unknown_call(call, callee, method))
            yield _Ends(edge, frozenset([call.span]))


def _unknown_call(call: Call, callee: AgentDefinition | None, method: MethodSpec | None) -> str:
    if not call.agent or not call.method:
        return "what is called is computed at run time"
    if callee is None:
        return "the agent is not in this graph"
    if method is None or not method.has_schema:
        return "the method cannot be called"
    if method.input_schema is None:
        return f"the input schema of {call.agent}.{call.method} cannot be read"
    return "some of the arguments are computed at run time" if call.has_unknown else ""


def _dependencies(wiring: Wiring) -> Iterator[_Ends]:
    for agent in wiring.agents.values():
        for dependency in agent.dependencies:
            other = wiring.agents.get(dependency.name)
            spans = (dependency.span, *([other.name_span] if other else []))
            unknown = "" if other else "the agent is not in this graph"
            edge = Edge("depends_on", agent.name, "", dependency.name, spans, unknown=unknown)
            yield _Ends(edge, frozenset([dependency.span]))


# --- topics --------------------------------------------------------------------------------------


def _topics(wiring: Wiring) -> Iterator[_Ends]:
    sent = [Sent(agent, each) for agent in wiring.agents.values() for each in agent.publications]
    heard = [Heard(agent, each) for agent in wiring.agents.values() for each in agent.subscriptions]
    by_topic: dict[str, list[Heard]] = {}
    for each_heard in heard:
        by_topic.setdefault(each_heard.topic, []).append(each_heard)
    patterns = [topic for topic in by_topic if is_pattern(topic)]
    groups: dict[tuple[str, str], list[Sent]] = {}
    for each in sent:
        key = (each.agent.name, each.topic or f"{each.publication.prefix}?")
        groups.setdefault(key, []).append(each)
    reached: set[tuple[str, str, str]] = set()
    for (_, topic), publications in groups.items():
        is_known = bool(publications[0].topic)
        names = [topic, *(name for name in patterns if matches(name, topic))] if is_known else []
        hearers = [each for name in names for each in by_topic.get(name, ())]
        reached.update((each.agent.name, each.subscription.method, each.topic) for each in hearers)
        for hearer in hearers:
            yield _topic_edge(topic, publications, hearer)
        if not hearers or wiring.is_external(topic):
            yield _open_end(topic, publications, wiring)
    for hearer in heard:
        key_of = (hearer.agent.name, hearer.subscription.method, hearer.topic)
        if key_of not in reached or wiring.is_external(hearer.topic):
            yield _open_start(hearer, wiring)


def _topic_edge(topic: str, publications: Sequence[Sent], hearer: Heard) -> _Ends:
    unknown = _unknown_payload(publications) or _unknown_needs(publications, hearer)
    return _event(topic, publications, hearer, (publications[0].agent.name, hearer.name), unknown)


def _open_end(topic: str, publications: Sequence[Sent], wiring: Wiring) -> _Ends:
    is_external = wiring.is_external(topic)
    unknown = _unknown_payload(publications)
    if not publications[0].topic:
        unknown = "the topic is computed at run time"
    elif not is_external and wiring.has_unknown_subscribers:
        unknown = "a subscription whose topic is computed may hear it"
    target = OUTSIDE if is_external else "?" if not publications[0].topic else NOBODY
    return _event(topic, publications, None, (publications[0].agent.name, target), unknown)


def _open_start(hearer: Heard, wiring: Wiring) -> _Ends:
    source, unknown = NOBODY, "nobody in this graph publishes it; other code may"
    if not hearer.topic:
        source, unknown = "?", "the topic is computed at run time"
    elif wiring.is_external(hearer.topic):
        source, unknown = OUTSIDE, "" if needs_of(hearer.subscription)[1] else f"what {hearer.name} needs is not known"
    elif wiring.has_unknown_publishers(hearer.topic):
        source, unknown = "?", "a topic that is computed at run time may be this one"
    elif not wiring.publishers(hearer.topic):
        source = ELSEWHERE
    return _event(hearer.topic or "?", (), hearer, (source, hearer.name), unknown)


def _event(
    topic: str, publications: Sequence[Sent], hearer: Heard | None, ends: tuple[str, str], unknown: str
) -> _Ends:
    said = [each.publication for each in publications]
    kind: EdgeKind = "request" if said and any(each.is_request for each in said) else "topic"
    given = [span for each in said for span in (each.span, each.payload_span) if span]
    taken = list(_taken(hearer)) if hearer else []
    spans = (*given[:1], *taken[:1])
    method = hearer.agent.method(hearer.subscription.method) if hearer else None
    source, target = ends
    edge = Edge(kind, source, topic, target, spans, unknown=unknown)
    return _Ends(edge, frozenset(given), frozenset(taken), method.span if method else None)


def _taken(hearer: Heard) -> Iterator[SourceSpan]:
    yield hearer.subscription.span
    yield from (each.span for each in hearer.subscription.reads)
    yield from (each.span for each in hearer.subscription.fields)


def _unknown_payload(publications: Sequence[Sent]) -> str:
    """What is declared is kept at run time, whatever is passed to `publish`."""
    if any(each.publication.is_declared and each.publication.payload is not None for each in publications):
        return ""
    for each in publications:
        if each.publication.payload is None:
            return f"what {each.agent.name} publishes is not known"
    return ""


def _unknown_needs(publications: Sequence[Sent], hearer: Heard) -> str:
    needs, is_whole = needs_of(hearer.subscription)
    if not is_whole:
        return f"what {hearer.name} needs of the payload is not known"
    for each in publications:
        payload = each.publication.payload
        if payload is not None and payload.is_open:
            missing = [field.name for field in needs.fields if field.required and field.name not in payload.names]
            if missing:
                return f"whether {each.agent.name} sends {missing[0]!r} is not known"
    return ""
