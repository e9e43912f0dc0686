"""GB001 to GB006, GB010, GB011: topics with one end, payloads that do not fit, requests, and circles of dependencies."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.graph import components, find_circle
from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.compiler.rules.names import are_near_topics, choices_of, is_slip_of_topic, near_match, near_topic
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Demand,
    ProjectFacts,
    Wiring,
    demands_of,
    is_written_in,
    make_finding,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import KeyRead, SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic, is_topic_or_pattern, matches
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import UNKNOWN, Schema, Type

COVERED_ERRORS = frozenset({"GBE211", "GBE212", "GBE214", "GBE215"})
"""What stops a build and is reported as a finding (GB010, GB011, GB310, GB001): a check must not say it twice."""


# --- GB010, GB011: dependencies and calls -------------------------------------------------------


def check_dependencies(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on nobody, calls that a running graph refuses, and circles of dependencies."""
    if not wiring.is_partial:
        yield from _unknown_agents(wiring)
    if any(agent.dependencies for agent in wiring.asked_agents):
        yield from _circles(wiring)


def _unknown_agents(wiring: Wiring) -> Iterator[Finding]:
    for agent in wiring.asked_agents:
        for each in agent.dependencies:
            if each.name not in wiring.agents and is_written_in(agent, each.span):
                message = f"{agent.name} depends on {each.name}, which is no agent of this graph"
                hint = "Correct the name, or check the folder that holds the agent as well."
                guess = did_you_mean(each.name, wiring.agents).strip()
                data = _named(each.name, near_match(each.name, wiring.agents))
                yield make_finding("GB010", agent.name, each.span, message, guess or hint, data=data)
        declared = {each.name for each in agent.dependencies} | {"", agent.name}
        for call in agent.calls:
            if call.agent not in declared and is_written_in(agent, call.span):
                is_known = call.agent in wiring.agents
                what = "without depending on it" if is_known else "which is no agent of this graph"
                hint = f'Add @depends_on("{call.agent}") to {agent.name}.' if is_known else ""
                guess = did_you_mean(call.agent, wiring.agents).strip()
                data = {"new": call.agent} if is_known else _named(call.agent, near_match(call.agent, wiring.agents))
                message = f"{agent.name} calls {call.agent}, {what}"
                yield make_finding("GB010", agent.name, call.span, message, hint or guess, data=data)


def _named(old: str, new: str) -> dict[str, str] | None:
    return {"old": old, "new": new} if new else None


def _circles(wiring: Wiring) -> Iterator[Finding]:
    spans = {
        name: {each.name: each.span for each in reversed(agent.dependencies) if each.name in wiring.agents}
        for name, agent in wiring.agents.items()
    }
    for group in components(spans):
        if len(group) > 1 or group[0] in spans[group[0]]:
            circle = find_circle(group, spans)
            first, *others = pairwise(circle)
            yield make_finding(
                "GB011",
                circle[0],
                spans[first[0]][first[1]],
                f"The dependencies form a circle: {' -> '.join(circle)}",
                "Remove one @depends_on; events may go round, dependencies may not.",
                related=[Related(one, spans[one][other], f"{one} depends on {other}") for one, other in others],
            )


# --- GB004: publishers of one topic -------------------------------------------------------------


class _Known(msgspec.Struct, frozen=True):
    """A publication whose payload is known."""

    sent: AgentPublication
    payload: Schema

    @property
    def is_declared(self) -> bool:
        return self.sent.publication.is_declared

    def says(self, other: _Known) -> str:
        """Who says so, in a sentence about another publication."""
        if self.is_declared and self.sent.agent.name == other.sent.agent.name:
            return "its own declaration has"
        return f"{self.sent.agent.name} {'declares' if self.is_declared else 'sends'}"


_ONE_TYPE = "Make both ends of the topic agree on one type."
_Needs = dict[str, tuple[AgentSubscription, Demand]]


def check_agreement(wiring: Wiring) -> Iterator[Finding]:
    """Compare the publications of each topic with the declared payload, else with the one that most others look like."""
    for topic in sorted({sent.topic for sent in wiring.asked_publications if sent.topic}):
        publishers = wiring.publishers(topic)
        yield from _against_own_declaration(publishers)
        known = [_Known(sent, sent.publication.payload) for sent in publishers if sent.publication.payload is not None]
        if len(known) < 2:
            continue
        shapes = Counter(each.payload.names for each in known)
        usual = max(known, key=lambda each: shapes[each.payload.names])
        model = next((each for each in known if each.is_declared), usual)
        own = {each.sent.agent.name: each for each in reversed(known) if each.is_declared}
        needs = _needs(known, wiring)
        for other in known:
            yield from _compared(
                other, model if other.is_declared else own.get(other.sent.agent.name, model), needs, wiring
            )


def _compared(other: _Known, model: _Known, needs: _Needs, wiring: Wiring) -> Iterator[Finding]:
    is_of_types = all(each.sent.publication.promised.kind != "unknown" for each in (model, other))  # GB006
    is_same = other is model or is_of_types
    found = [*_different_types(model, other), *_missing_keys(model, other, needs)] if not is_same else []
    if found and (model.is_declared or not _are_told_apart(model, other, wiring.project)):
        yield from found


def _against_own_declaration(publishers: tuple[AgentPublication, ...]) -> Iterator[Finding]:
    """Find payloads that are of another kind than their agent declares; fields are compared by themselves."""
    own = {each.agent.name: each for each in reversed(publishers) if each.publication.is_declared}
    for sent in publishers:
        declared, publication = own.get(sent.agent.name), sent.publication
        if (
            declared is None
            or publication.is_declared
            or None not in (publication.payload, declared.publication.payload)
        ):
            continue
        wanted, given = declared.publication.payload_type, publication.payload_type
        if misfit_reason(wanted, given, is_narrowed=True):
            message = f"{sent.agent.name} sends {given} to {sent.topic!r}, but its own declaration says {wanted}"
            place = publication.payload_span or publication.span
            hint = "Send what is declared, or correct the declaration."
            yield make_finding(
                "GB004", sent.agent.name, place, message, hint, related=[described(declared)], data={"unfit": ""}
            )


def _needs(known: list[_Known], wiring: Wiring) -> _Needs:
    """What the handlers of a topic cannot do without, if some publication sends it and some other does not."""
    names = [each.payload.names for each in known]
    contested = frozenset().union(*names) - frozenset.intersection(*map(frozenset, names))
    needs: _Needs = {}
    for heard in wiring.subscribers(known[0].sent.topic) if contested else ():
        for demand in demands_of(heard, wiring.project):
            if demand.name in contested:
                needs.setdefault(demand.name, (heard, demand))
    return needs


def _different_types(model: _Known, other: _Known) -> Iterator[Finding]:
    """Find keys whose values are of one type here and of another there."""
    for field in model.payload.fields:
        found = other.payload.get(field.name)
        given = found.type if found else UNKNOWN
        if misfit_reason(field.type, given, is_narrowed=True) if model.is_declared else is_disjoint(field.type, given):
            message = (
                f"sends {field.name!r} to {other.sent.topic!r} as {given}, but {model.says(other)} it as {field.type}"
            )
            is_own = model.is_declared and model.sent.agent.name == other.sent.agent.name
            hint = "Send what is declared, or correct the declaration." if is_own else _ONE_TYPE
            yield _disagreement(other, model, message, hint, data={"unfit": field.name})


def _missing_keys(model: _Known, other: _Known, needs: _Needs) -> Iterator[Finding]:
    """Find keys that go by another name, and keys that are left out though somebody needs them."""
    renamed = dict(_misnamed(model, other))
    for name, meant in renamed.items():
        if meant in needs and name not in needs and not model.is_declared:
            yield _wrong_name(name, meant, other, model, needs)
        else:
            yield _wrong_name(meant, name, model, other, needs)
    yield from _left_out(model, other, set(renamed), needs)
    if not model.is_declared:
        yield from _left_out(other, model, set(renamed.values()), needs)


def _misnamed(model: _Known, other: _Known) -> Iterator[tuple[str, str]]:
    """Give `(key of the model, key of the other)` for what is nearly the same name and may hold the same values."""
    if model.payload.is_open or other.payload.is_open:
        return
    mine, theirs = model.payload.names - other.payload.names, other.payload.names - model.payload.names
    for name in sorted(mine):
        near = near_match(name, theirs)
        if near and near_match(near, mine) == name:
            one, two = model.payload.get(name), other.payload.get(near)
            if not is_disjoint(one.type if one else UNKNOWN, two.type if two else UNKNOWN):
                yield name, near


def _wrong_name(old: str, new: str, full: _Known, lacking: _Known, needs: _Needs) -> Finding:
    message = f"sends {old!r} to {lacking.sent.topic!r}, but {full.says(lacking)} {new!r}"
    data = {"old": old, "new": new}
    return _disagreement(lacking, full, message, f"Rename {old!r} to {new!r}.", need=needs.get(new), data=data)


def _left_out(full: _Known, lacking: _Known, renamed: set[str], needs: _Needs) -> Iterator[Finding]:
    for field in full.payload.fields if not lacking.payload.is_open else ():
        need = needs.get(field.name)
        is_owed = need or (full.is_declared and field.required)
        if is_owed and field.name not in lacking.payload.names | renamed:
            message = f"sends no {field.name!r} to {lacking.sent.topic!r}, but {full.says(lacking)} it"
            message += f" and {need[0].name} needs it" if need else ""
            hint = f"Send {field.name!r} as well, or let the handlers do without."
            yield _disagreement(lacking, full, message, hint, need=need, data={"missing": field.name})


def _disagreement(
    at: _Known,
    other: _Known,
    message: str,
    hint: str,
    *,
    need: tuple[AgentSubscription, Demand] | None = None,
    data: dict[str, str] | None = None,
) -> Finding:
    related = [described(other.sent)]
    if need:
        related.append(Related(need[0].agent.name, need[1].span, f"{need[0].name} needs {need[1].name!r}"))
    name, publication = at.sent.agent.name, at.sent.publication
    place = publication.payload_span or publication.span
    return make_finding("GB004", name, place, f"{name} {message}", hint, related=related, data=data)


def _are_told_apart(one: _Known, other: _Known, project: ProjectFacts) -> bool:
    """Tell whether a handler can see which of two payloads it got: a key holds another constant in each, or may do so."""
    mine, theirs = _labels(one, project), _labels(other, project)
    if mine is None or theirs is None:
        return True
    return any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys())


def _labels(known: _Known, project: ProjectFacts) -> dict[str, str] | None:
    """The keys of a dict display that hold a constant which may serve as a label; None when it is no display."""
    span = known.sent.publication.payload_span
    if span is None:
        return {}
    for node in ast.walk(parse(project.source(span.path).text)):
        if isinstance(node, ast.Dict) and (node.lineno, node.col_offset) == (span.line, span.column):
            pairs = zip(node.keys, node.values, strict=True)
            labels = ((ast.unparse(key), value) for key, value in pairs if key and _is_label(value))
            return {key: ast.unparse(value) for key, value in labels if key.strip("'") not in _FREE_TEXT}
    return None


_FREE_TEXT = frozenset(
    {"body", "comment", "content", "description", "greeting", "message", "msg", "note", "text", "title"}
)
"""Keys whose values are written for people, who do not tell payloads apart by them."""


def _is_label(value: ast.expr) -> bool:
    """One word, a truth value, or a name that stands for one: `ADDED`, `Kind.ADDED`."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return len(value.value.split()) == 1
    if isinstance(value, ast.Constant):
        return isinstance(value.value, bool)
    return isinstance(value, ast.Attribute | ast.Name) and ast.unparse(value).rpartition(".")[2].isupper()


# --- GB006: one topic, two types ----------------------------------------------------------------


class _Promise(NamedTuple):
    """Where a `Topic` is used, and the type that it says."""

    agent: str
    topic: str
    span: SourceSpan
    type: Type


def check_types_of_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find Topics of one name with different types, and Topics of patterns that do not take what is sent to one of theirs."""
    promises = list({(each.topic, each.type): each for each in reversed([*_promises(wiring)])}.values())[::-1]
    for number, each in enumerate(promises if any(wiring.asks_about(one.agent) for one in promises) else ()):
        others = [one for one in promises[:number] if one.topic == each.topic]
        others += [one for one in promises if one.topic != each.topic and matches(each.topic, one.topic)]
        for other in others:
            is_alike = other.topic == each.topic
            reason = misfit_reason(each.type, other.type) or (
                misfit_reason(other.type, each.type) if is_alike else None
            )
            if reason:
                message = (
                    f"The Topic {each.topic!r} is of {each.type} here, but {other.topic!r} is of {other.type}: {reason}"
                )
                hint = "Use one Topic object for one topic; the type of a pattern has what all its topics have."
                related = [Related(other.agent, other.span, f"{other.agent} uses {other.topic!r} of {other.type}")]
                yield make_finding("GB006", each.agent, each.span, message, hint, related=related)


def _promises(wiring: Wiring) -> Iterator[_Promise]:
    for sent in wiring.publications:
        if sent.topic and sent.publication.promised.kind != "unknown":
            yield _Promise(sent.agent.name, sent.topic, sent.publication.span, sent.publication.promised)
    for heard in wiring.subscriptions:
        if heard.topic and heard.subscription.promised.kind != "unknown":
            yield _Promise(heard.agent.name, heard.topic, heard.subscription.span, heard.subscription.promised)


# --- GB005: requests ----------------------------------------------------------------------------


def check_requests(wiring: Wiring) -> Iterator[Finding]:
    """Find requests that nobody, more than one handler, or only the asking agent itself answers."""
    for sent in wiring.asked_publications:
        if sent.publication.is_request and is_topic(sent.topic) and not wiring.is_external(sent.topic):
            answering = wiring.responders(sent.topic)
            problem, hint, meant = _request_problem(sent, answering, wiring)
            if problem:
                message = f"{sent.agent.name} requests {sent.topic!r}, {problem}"
                related = [
                    Related(each.agent.name, each.subscription.span, f"{each.name} answers") for each in answering
                ]
                place = sent.publication.span
                data = _named(sent.topic, meant)
                yield make_finding("GB005", sent.agent.name, place, message, hint, related=related, data=data)


def _request_problem(
    sent: AgentPublication, answering: tuple[AgentSubscription, ...], wiring: Wiring
) -> tuple[str, str, str]:
    if len(answering) > 1:
        *names, last = (heard.name for heard in answering)
        hint = "A request has one answer: keep one of these handlers, or publish the event instead."
        return f"which {', '.join(names)} and {last} answer", hint, ""
    if answering:
        is_own = answering[0].agent.name == sent.agent.name
        return (
            ("which it answers itself: that would wait for ever", "Call the method directly.", "")
            if is_own
            else ("", "", "")
        )
    if wiring.has_unknown_subscribers or {"", "subscribe"} & wiring.calls_with(sent.topic):
        return "", "", ""
    meant = near_topic(sent.topic, {heard.topic for heard in wiring.subscriptions if is_topic(heard.topic)})
    guess = f"Did you mean {meant!r}? " if meant else ""
    problem = "which only handlers of patterns hear" if wiring.subscribers(sent.topic) else "which no agent answers"
    return problem, f"{guess}Give one agent a handler of it that returns the answer.", meant


# --- GB003: keys that nobody sends --------------------------------------------------------------


def check_reads(wiring: Wiring) -> Iterator[Finding]:
    """Compare what handlers read with everything that can reach them; silent where anything of that is unknown."""
    seen: set[object] = set()
    for heard in wiring.subscriptions:  # each handler once, though it may listen to several topics
        method = heard.agent.method(heard.subscription.method)
        place = (method.span if method else heard.subscription.span, heard.subscription.method)
        is_asked = wiring.asks_about(heard.agent.name) and place not in seen
        seen.add(place)
        known = _known_fields(heard, wiring) if is_asked else None
        if known is None:
            continue
        sent, names = known
        declared = {field.name for field in heard.subscription.payload.fields}  # what is declared is compared by GB110
        reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in names | declared]
        for first in {read.key: read for read in reversed(reads)}.values():
            yield _unsent_key(heard, first, sent, names)


def _known_fields(
    heard: AgentSubscription, wiring: Wiring
) -> tuple[tuple[AgentPublication, ...], frozenset[str]] | None:
    """Give what a handler can be sent, and the names in it: those that are sent, and those that its Topics promise."""
    topics = [each for each in heard.agent.subscriptions if each.method == heard.subscription.method]
    promised = frozenset(field.name for each in topics for field in each.promised.fields)
    sent = everything_sent_to(heard, wiring)
    if sent:
        return sent, sent_names(sent) | promised
    return ((), promised) if all(each.promised.kind == "record" for each in topics) else None


def _unsent_key(
    heard: AgentSubscription, read: KeyRead, sent: tuple[AgentPublication, ...], known: frozenset[str]
) -> Finding:
    meant = near_match(read.key, known)
    guess = f"Did you mean {meant!r}?" if meant else did_you_mean(read.key, known).strip()
    lacks = f"which no publisher of {heard.topic!r} sends" if sent else f"which the Topic {heard.topic!r} does not have"
    return make_finding(
        "GB003",
        heard.agent.name,
        read.span,
        f"{heard.name} reads {read.key!r}, {lacks}",
        guess or f"What is sent: {', '.join(sorted(known)) or 'nothing'}.",
        related=[described(each) for each in sent],
        data=_named(read.key, meant)
        or {"missing": read.key, **choices_of(known, heard.subscription.named - {read.key})},
    )


def everything_sent_to(heard: AgentSubscription, wiring: Wiring) -> tuple[AgentPublication, ...] | None:
    """Give every publication that reaches a handler by any of its topics, or None when one of them is not fully known.

    What an agent declares stands for what it sends, whatever expression makes that.
    """
    found: dict[AgentPublication, None] = {}
    for subscription in heard.agent.subscriptions:
        if subscription.method == heard.subscription.method:
            publishers = wiring.all_publishers(subscription.topic)
            if publishers is None:
                return None
            known = [each for each in publishers if each.publication.payload and not each.publication.payload.is_open]
            if not all(each in known or wiring.is_declared(each) for each in publishers):
                return None
            found |= dict.fromkeys(known)
    return tuple(found)


def sent_names(sent: tuple[AgentPublication, ...]) -> frozenset[str]:
    """Give the names of all fields that are sent."""
    return frozenset(name for each in sent if each.publication.payload for name in each.publication.payload.names)


def described(sent: AgentPublication) -> Related:
    """Show a publication with what it sends."""
    publication = sent.publication
    verb = "declares" if publication.is_declared else "sends"
    what = publication.payload or (publication.type if publication.type.kind != "unknown" else "a payload")
    return Related(sent.agent.name, publication.span, f"{sent.agent.name} {verb} {what}")


# --- GB001, GB002: topics with one end ----------------------------------------------------------


def check_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find subscriptions that hear nothing and publications that nobody hears."""
    for heard in wiring.asked_subscriptions:
        if _is_silent(heard, wiring):
            yield _deaf(heard, wiring)
    if not wiring.has_unknown_subscribers:
        yield from _without_subscriber(wiring)


def _is_silent(heard: AgentSubscription, wiring: Wiring) -> bool:
    """True for what is no topic, and for what neither an agent nor a call in any file publishes."""
    if heard.topic and not is_topic_or_pattern(heard.topic):
        return True
    if wiring.all_publishers(heard.topic) != ():
        return False
    return wiring.calls_with(heard.topic) <= {"subscribe", "unsubscribe"}


def _deaf(heard: AgentSubscription, wiring: Wiring) -> Finding:
    topic, meant = heard.topic, _meant_topic(heard.topic, wiring)
    guess = f"Did you mean {meant!r}?" if meant else did_you_mean(topic, wiring.topics).strip()
    if is_topic_or_pattern(topic):
        outside = f"it comes from outside, {_line_to_add(topic, wiring)}"
        what, hint = "which no agent publishes", f"{guess} If {outside}" if guess else f"Publish it; if {outside}"
    else:  # a graph with such a subscription does not start at all
        shape = "A topic is one or more segments of letters, digits, '-' and '_', each behind a slash: '/Order/Placed'."
        what, hint = "which is no topic: a run refuses it", f"{guess} {shape}" if meant else shape
    return make_finding(
        "GB001",
        heard.agent.name,
        heard.subscription.span,
        f"{heard.name} subscribes to {topic!r}, {what}",
        hint,
        severity="warning" if is_topic_or_pattern(topic) else "error",
        related=[
            Related(sent.agent.name, sent.publication.span, f"{sent.agent.name} publishes {sent.topic!r}")
            for sent in wiring.publishers(meant)
        ],
        data=_named(topic, meant),
    )


def _meant_topic(topic: str, wiring: Wiring) -> str:
    """Give the one published topic that a subscription without publisher is likely meant for, or the empty string.

    A published topic that somebody hears already is only meant when a single slip lies between the two.
    """
    near = {name for name in wiring.topics if is_topic(name) and are_near_topics(topic, name)}
    unheard = {name for name in near if not wiring.subscribers(name)}
    return near_topic(topic, unheard) or near_topic(topic, {name for name in near if is_slip_of_topic(topic, name)})


def _without_subscriber(wiring: Wiring) -> Iterator[Finding]:
    """Find what nobody hears; a topic that is nearly one that hears nothing is reported at that end."""
    unheard = {
        (sent.agent.name, sent.topic): sent
        for sent in reversed(wiring.asked_publications)
        if not (sent.publication.is_request or wiring.subscribers(sent.topic) or wiring.is_external(sent.topic))
        and is_topic(sent.topic)
    }
    dangling = {heard.topic for heard in wiring.subscriptions if _is_silent(heard, wiring)} if unheard else set()
    for (agent, topic), sent in unheard.items():
        if not any(are_near_topics(topic, other) for other in dangling):
            message = f"{agent} publishes {topic!r}, which no agent subscribes to"
            hint = f"Subscribe to it or stop publishing it; if it is heard outside, {_line_to_add(topic, wiring)}"
            yield make_finding("GB002", agent, sent.publication.span, message, hint, severity="info")


def _line_to_add(topic: str, wiring: Wiring) -> str:
    """Say what to write for a topic whose other end is outside of the graph: the whole line, ready to be copied."""
    listed = ", ".join(f'"{each}"' for each in (*wiring.project.config.settings.external_topics, topic))
    return f"write external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."
