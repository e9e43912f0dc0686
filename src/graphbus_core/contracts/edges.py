"""The edges of a graph, and whether both of their ends fit: what the rules of `graphbus check` find, by edge.

method      Agent.method                          its schemas against its own code, called or not
call        Caller → Agent.method                 arguments against the input schema
depends_on  Consumer → Agent
topic       Publisher → topic → Agent.handler     payload against what the handler needs
request     Asker → topic → Agent.handler         the same, and that exactly one answers

An edge is broken exactly when a rule finds something at one of its ends. It is proven when both ends are known, and every value
that may be given is wanted. All else is unknown, with the reason, and is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec.structs import replace

from graphbus_core.compiler.rules.results import Results, container_of
from graphbus_core.compiler.rules.wiring import AgentPublication, Wiring
from graphbus_core.contracts.surface import Surface, TopicHandler
from graphbus_core.model.agent import BELOW_UNKNOWN, AgentDefinition, Call, KeyRead, MethodSpec, Publication, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.schema.compatibility import fit_of
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
    **dict.fromkeys(("GB314", "GB316"), _EVENTS | {"call"}),
    **dict.fromkeys(("GB010", "GB011"), frozenset({"call", "depends_on"})),
    **dict.fromkeys(("GB101", "GB102", "GB103", "GB104", "GB105", "GB106"), frozenset({"method"})),
}
"""Rule -> the edges that it speaks of."""
_IN_BODY = frozenset({"GB001", "GB310", "GB311"})
"""Rules that may report at any line of a handler."""

CODES = frozenset(_ABOUT)
"""The rules that speak of promises between agents; the others are about style and bodies."""


class ContractEdge(NamedTuple):
    """One edge.

    Attributes:
        source: Who calls, publishes, asks or depends; for a method the agent.
        topic: Of an event or request; empty for the others, `?` for a computed one.
        target: Who answers, handles or is depended on.
        spans: The places of both ends, the source first; for a method its declaration.
        findings: What the rules find, notes included.
        unknown: What cannot be known of it, one clause; empty if all is known.
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
        """`broken` if a rule finds an error or warning here."""
        if any(finding.severity != "info" for finding in self.findings):
            return "broken"
        return "unknown" if self.unknown else "proven"


class ContractValidation(NamedTuple):
    """All edges, and what the rules find besides them; `hidden` ones are counted, and not shown."""

    edges: tuple[ContractEdge, ...]
    others: tuple[Finding, ...] = ()
    hidden: tuple[ContractEdge, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """Count the edges of a verdict."""
        return sum(edge.verdict == verdict for edge in (*self.edges, *self.hidden))

    def with_verdict(self, verdict: Verdict) -> ContractValidation:
        """Show the edges of a verdict alone."""
        shown = tuple(edge for edge in self.edges if edge.verdict == verdict)
        return ContractValidation(shown, hidden=tuple(edge for edge in self.edges if edge.verdict != verdict))

    def within(self, paths: Collection[str] | None) -> ContractValidation:
        """Return the edges with an end in one of these files; None: all."""
        if paths is None:
            return self
        return self._replace(edges=tuple(each for each in self.edges if any(span.path in paths for span in each.spans)))

    @property
    def summary(self) -> str:
        """`41 edges: 38 proven, 3 unknown`."""
        counts = [f"{self.count(verdict)} {verdict}" for verdict in VERDICTS if self.count(verdict)]
        number = len(self.edges) + len(self.hidden)
        return f"{number} edge{'s' * (number != 1)}{': ' * bool(counts)}{', '.join(counts)}"

    @property
    def is_clean(self) -> bool:
        """True when no rule finds an error or warning."""
        found = [*self.others, *(each for edge in (*self.edges, *self.hidden) for each in edge.findings)]
        return all(finding.severity == "info" for finding in found)


class _Placed(NamedTuple):
    """An edge, the places of its ends, and its handler."""

    edge: ContractEdge
    places: Set[SourceSpan]
    handler: MethodSpec | None = None

    def has(self, finding: Finding) -> bool:
        """True when a finding of a rule that speaks of such edges is reported at one of its ends."""
        if self.edge.kind not in _ABOUT[finding.code]:
            return False
        body, line = self.handler.span if self.handler and finding.code in _IN_BODY else None, finding.span.line
        is_inside = body is not None and body.path == finding.span.path and body.line <= line <= body.end_line
        return is_inside or finding.span in self.places


def validate_contracts(wiring: Wiring, findings: Sequence[Finding]) -> ContractValidation:
    """Return every edge with what was found about it.

    Args:
        wiring: The graph.
        findings: What `rules.check` finds in it; codes outside of `CODES` are left out.
    """
    surface = Surface(wiring.agents.values(), ())
    calls = _calls(surface, wiring.results)
    placed = [*_methods(surface), *calls, *_dependencies(surface), *_Topics(surface, wiring).edges()]
    index = _Index(placed)
    found: dict[int, list[Finding]] = defaultdict(list)
    others = []
    for finding in (each for each in findings if each.code in CODES):
        numbers = index.about(finding)
        for number in numbers:
            found[number].append(finding)
        if not numbers:
            others.append(finding)
    edges = (each.edge._replace(findings=tuple(found.get(number, ()))) for number, each in enumerate(placed))
    return ContractValidation(tuple(sorted(edges, key=_order)), tuple(others))


def _order(edge: ContractEdge) -> tuple[object, ...]:
    return _KINDS.index(edge.kind), edge.topic, edge.source, edge.target, edge.spans[0].line


class _Index:
    """The edges by the places of their ends, so that a finding is not compared with all of them."""

    def __init__(self, placed: Sequence[_Placed]) -> None:
        self._placed = placed

    @cached_property
    def _at(self) -> dict[SourceSpan | str, list[int]]:
        """Place of an end, or path of a handler -> the numbers of the edges."""
        found: dict[SourceSpan | str, list[int]] = defaultdict(list)
        for number, each in enumerate(self._placed):
            for place in (*each.places, *([each.handler.span.path] if each.handler else ())):
                found[place].append(number)
        return found

    def about(self, finding: Finding) -> list[int]:
        """The numbers of the edges that a finding is about: those with both of its places, else with the one it stands at."""
        near = {*self._at.get(finding.span, ()), *self._at.get(finding.span.path, ())}
        here = sorted(number for number in near if self._placed[number].has(finding))
        others = {related.span for related in finding.related} - {finding.span}
        return [number for number in here if others & self._placed[number].places] or here


# --- methods, calls, dependencies ----------------------------------------------------------------


def _methods(surface: Surface) -> Iterator[_Placed]:
    for agent in surface.agents.values():
        for method in surface.methods(agent.name).values():
            span = method.schema_span or method.span
            edge = ContractEdge(
                "method", agent.name, "", f"{agent.name}.{method.name}", (span,), unknown=_unread(method)
            )
            inside = {each.span for each in method.parameters} | {each.span for each in method.returned}
            yield _Placed(edge, inside | {method.span, span})


def _unread(method: MethodSpec) -> str:
    """Return why the contract of a method cannot be proven; empty if it can."""
    if method.input_schema is None:
        return "its input schema cannot be read" if method.output_schema else "it declares no schema that can be read"
    wanted = _record(method.output_schema) if method.output_schema and method.output_schema.fields else UNKNOWN
    for each in method.returned:
        given = _filled(each.type, method.returns)
        if not _fits(wanted, given) and not (given.kind == "unknown" and _fits(wanted, method.returns)):
            return _in_words(f"what it returns in line {each.span.line}", wanted, given)
    return ""


def _filled(given: Type, declared: Type) -> Type:
    """What is returned, with what the annotation says of fields whose values are not known."""
    if given.kind != "record" or declared.kind not in ("record", "dict"):
        return given
    known = {field.name: field.type for field in declared.fields}
    rest = declared.args[1] if declared.args else UNKNOWN
    fields = (
        replace(each, type=known.get(each.name, rest)) if each.type.kind == "unknown" else each for each in given.fields
    )
    return Type("record", fields=tuple(fields))


def _record(schema: Schema) -> Type:
    return Type("record", fields=schema.fields)


def _fits(wanted: Type, given: Type) -> bool:
    return fit_of(wanted, given, is_narrowed=True).verdict == "fits"


def _in_words(what: str, wanted: Type, given: Type) -> str:
    """Return why it is not known whether a given type fits a wanted one."""
    if given.kind == "unknown":
        return f"{what} is not known"
    return f"{what} may not fit: {fit_of(wanted, given, is_narrowed=True).reason}"


def _calls(surface: Surface, results: Results) -> Iterator[_Placed]:
    for agent in surface.agents.values():
        own = [each for each in agent.calls if each.agent == agent.name]
        handed_on = [(result.name, each.span) for each in own for result in each.arguments.rest]
        for call in (each for each in agent.calls if each not in own):
            callee = surface.agents.get(call.agent)
            method = callee.method(call.method) if callee else None
            target = f"{call.agent or '?'}.{call.method or '?'}"
            spans = (call.span, *([method.schema_span or method.span] if method else []))
            unknown = _unknown_call(call, callee, method) or _unknown_result(call.reads, target, results)
            yield _Placed(
                ContractEdge("call", agent.name, "", target, spans, unknown=unknown),
                {call.span, *(each.span for each in call.reads), *(span for name, span in handed_on if name == target)},
            )


def _unknown_call(call: Call, callee: AgentDefinition | None, method: MethodSpec | None) -> str:
    if not call.agent or not call.method:
        return "what is called is computed at run time"
    if callee is None:
        return "the agent is not in this graph"
    if method is None or not method.has_schema:
        return "the method cannot be called"
    if method.input_schema is None:
        return f"the input schema of {call.agent}.{call.method} cannot be read"
    return _unknown_argument(call, method.input_schema)


def _unknown_argument(call: Call, wanted: Schema) -> str:
    if call.has_unknown:
        return "some of the arguments are computed at run time"
    for field in wanted.fields:
        given = call.arguments.get(field.name)
        if given and not _fits(field.type, given.type):
            return _in_words(f"the argument {field.name!r}", field.type, given.type)
    return ""


def _unknown_result(reads: Sequence[KeyRead], name: str, results: Results) -> str:
    """Return why the keys that are read of a result are not known to exist; empty if they are."""
    whole = results.type_of(name) if reads else NULL
    for each in reads:
        if not each.is_optional or each.is_guarded:
            container, key = container_of(whole, each.key)
            if container.kind != "record":
                return f"what {name} gives is not known"
            if each.is_guarded and key not in {field.name for field in container.fields}:
                return f"whether what {name} gives has {each.key!r} is not known"
    return ""


def _dependencies(surface: Surface) -> Iterator[_Placed]:
    for agent in surface.agents.values():
        for dependency in agent.dependencies:
            other = surface.agents.get(dependency.name)
            spans = (dependency.span, *([other.name_span] if other else []))
            unknown = "" if other else "the agent is not in this graph"
            edge = ContractEdge("depends_on", agent.name, "", dependency.name, spans, unknown=unknown)
            yield _Placed(edge, {dependency.span})


# --- topics --------------------------------------------------------------------------------------


class _Topics:
    """The edges of events: each publisher with each handler that it reaches, and ends without a partner in this graph."""

    def __init__(self, surface: Surface, wiring: Wiring) -> None:
        self._surface = surface
        self._wiring = wiring

    def edges(self) -> Iterator[_Placed]:
        """All of them; the publications of one agent to one topic are one end."""
        groups: dict[tuple[str, str], list[AgentPublication]] = defaultdict(list)
        for agent in self._surface.agents.values():
            for each in agent.publications:
                groups[agent.name, each.topic or f"{each.prefix}?"].append(AgentPublication(agent, each))
        reached: set[tuple[str, str]] = set()
        for (source, topic), said in groups.items():
            hearers = self._surface.handlers_of(topic) if said[0].publication.topic else ()
            reached.update((each.name, each.subscription.topic) for each in hearers)
            for hearer in hearers:
                yield _event(source, topic, said, hearer, self._doubt(said, hearer) or self._unknown_answer(said))
            if not hearers or self._wiring.is_external(topic):
                yield self._open_end(source, topic, said)
        for hearer in self._surface.handlers:
            heard = hearer.subscription.topic
            if (hearer.name, heard) not in reached or self._wiring.is_external(heard):
                yield self._open_start(hearer)

    def _doubt(self, said: Sequence[AgentPublication], hearer: TopicHandler) -> str:
        return _doubt(said, hearer) or _doubt_below(said, hearer) or self._unsent(hearer)

    def _unsent(self, hearer: TopicHandler) -> str:
        """Return the doubt about a key that is read behind a guard and sent by no publisher; empty if there is none."""
        guarded = [each.key for each in hearer.subscription.reads if each.is_guarded]
        if not guarded or hearer.subscription.declared_schema is not None:
            return ""
        topics = {each.topic for each in hearer.agent.subscriptions if each.method == hearer.subscription.method}
        said = [each.publication.payload for topic in topics for each in self._surface.publications_to(topic)]
        sent = {field.name for payload in said if payload for field in payload.fields}
        unsent = next((key for key in guarded if key not in sent), "")
        return f"{hearer.name} may read {unsent!r}, which no publisher is known to send" if unsent else ""

    def _unknown_answer(self, said: Sequence[AgentPublication]) -> str:
        found = (_unknown_result(each.publication.reads, each.publication.topic, self._wiring.results) for each in said)
        return next(filter(None, found), "")

    def _open_end(self, source: str, topic: str, said: Sequence[AgentPublication]) -> _Placed:
        is_computed, unknown = not said[0].publication.topic, _doubt(said)
        if self._wiring.is_external(topic):
            return _event(source, topic, said, _OUTSIDE, unknown)
        if is_computed:
            unknown = "the topic is computed at run time"
        elif self._wiring.has_unknown_subscribers:
            unknown = "a subscription whose topic is computed may hear it"
        return _event(source, topic, said, "?" if is_computed else _NOBODY, unknown)

    def _open_start(self, hearer: TopicHandler) -> _Placed:
        topic = hearer.subscription.topic
        source, unknown = _NOBODY, "nobody in this graph publishes it; other code may"
        if not topic:
            source, unknown = "?", "the topic is computed at run time"
        elif self._wiring.is_external(topic):
            source, unknown = _OUTSIDE, "" if hearer.is_whole else f"what {hearer.name} needs is not known"
        elif self._wiring.has_unknown_publishers(topic):
            source, unknown = "?", "a topic that is computed at run time may be this one"
        return _event(source, topic or "?", (), hearer, unknown)


def _event(
    source: str, topic: str, said: Sequence[AgentPublication], target: TopicHandler | str, unknown: str
) -> _Placed:
    kind: _EdgeKind = "request" if any(each.publication.is_request for each in said) else "topic"
    given = [span for each in said for span in (each.publication.span, each.publication.payload_span) if span]
    given += [read.span for each in said for read in each.publication.reads]
    if isinstance(target, str):
        return _Placed(ContractEdge(kind, source, topic, target, (*given[:1],), unknown=unknown), {*given})
    heard = target.subscription
    taken = {heard.span} | {each.span for each in heard.reads} | {each.span for each in heard.fields}
    edge = ContractEdge(kind, source, topic, target.name, (*given[:1], heard.span), unknown=unknown)
    return _Placed(edge, taken.union(given), target.method)


def _doubt(said: Sequence[AgentPublication], hearer: TopicHandler | None = None) -> str:
    """Return why it is not proven that a payload fits its handler; empty if it is. Without a handler, anything fits."""
    if hearer and not hearer.is_whole:
        return f"what {hearer.name} needs of the payload is not known"
    declared = [each.publication.payload_type for each in said if each.publication.is_declared]
    wanted = hearer.wanted if hearer else next(iter(declared), UNKNOWN)
    sent = [each for each in said if not each.publication.is_declared]
    for agent, publication in ((each.agent, each.publication) for each in sent):
        given = _sent(publication)
        broken = next((each for each in declared if not _fits(each, given)), None)
        if broken is not None:  # a running graph refuses what is not as declared, whatever the handler needs of it
            return _why(agent.name, publication, broken, given)
        is_promised = any(_fits(wanted, each) for each in declared)
        if given.kind == "unknown" or not (is_promised or fit_of(wanted, given).verdict == "fits"):
            return _why(agent.name, publication, wanted, given)
    return "" if sent else f"where {said[0].agent.name} publishes it is not known"


def _doubt_below(said: Sequence[AgentPublication], hearer: TopicHandler) -> str:
    """Why it is not known whether the values have all that a handler reads of them."""
    heard, declared = (
        hearer.subscription,
        [each.publication.payload_type for each in said if each.publication.is_declared],
    )
    fields = {each.name: each.type for each in heard.declared_schema.fields} if heard.declared_schema else {}
    below = {each.key: each.below for each in heard.reads if each.below}
    if heard.shape == "fields" and not heard.reads_all_known:
        below = {name: (f"{name}.{BELOW_UNKNOWN}",) for name in fields}
    below = {key: paths for key, paths in below.items() if is_unspecific(fields.get(key, UNKNOWN))}
    for given in (_sent(each.publication) for each in said if below and not each.publication.is_declared):
        known = [given, *(each for each in declared if _fits(each, given))]
        for key, paths in below.items():
            if not all(any(_has(of, key, path) for of in known) for path in paths):
                return f"whether all is there that {hearer.name} reads of {key!r} is not known"
    return ""


def _has(given: Type, of: str, path: str) -> bool:
    container, key = container_of(given, path)
    if key == BELOW_UNKNOWN:
        return _is_flat(container) or of not in {field.name for field in given.fields}
    return container.kind == "record" and any(field.name == key and field.required for field in container.fields)


def _is_flat(of: Type) -> bool:
    """True for a value, or a list of values, that no key leads into."""
    if of.kind in ("list", "set", "tuple", "union"):
        return bool(of.args) and all(map(_is_flat, of.args))
    return of.kind in ("str", "int", "float", "bool", "bytes", "null", "literal")


def _sent(publication: Publication) -> Type:
    """What is sent; where further fields may be sent, those that are known."""
    return publication.payload_type if publication.payload is None else _record(publication.payload)


def _why(agent: str, publication: Publication, wanted: Type, given: Type) -> str:
    payload = publication.payload
    for field in wanted.fields if payload is not None and payload.is_open else ():
        if field.required and payload and field.name not in payload.names:
            return f"whether {agent} sends {field.name!r} is not known"
    return _in_words(f"what {agent} publishes", wanted, given)
