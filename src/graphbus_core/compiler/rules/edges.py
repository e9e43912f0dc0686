"""GB001 to GB006, GB010, GB011: topics with one end, payloads that do not fit, requests, and circles of dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from graphbus_core.compiler.graph import components, find_circle
from graphbus_core.compiler.rules.names import are_near_topics, choices_of, is_slip_of_topic, near_match, near_topic
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Wiring,
    demands_of,
    described,
    is_written_in,
    make_finding,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import KeyRead
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic, is_topic_or_pattern

COVERED_ERRORS = frozenset({"GBE211", "GBE212", "GBE214", "GBE215"})
"""What stops a build and is reported as a finding (GB010, GB011, GB310, GB001): a check must not say it twice."""


# --- GB010, GB011: dependencies and calls -------------------------------------------------------


def check_dependencies(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on unknown agents, calls that a running graph refuses, and circular dependencies."""
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


# --- GB005: requests ----------------------------------------------------------------------------


def check_requests(wiring: Wiring) -> Iterator[Finding]:
    """Find requests without a handler, with several handlers, or that only the requesting agent answers."""
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
        declared = {field.name for field in heard.subscription.payload.fields}  # what is declared is compared by GB110
        reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in declared]
        known = _known_fields(heard, wiring) if is_asked and reads else None
        for first in {read.key: read for read in reversed(reads)}.values() if is_asked else ():
            if known is not None and first.key not in known[1]:
                yield _unsent_key(heard, heard.topic, first, known[0], known[1])
            else:
                yield from _unsent_to_one_topic(heard, first, wiring)


def _unsent_to_one_topic(heard: AgentSubscription, read: KeyRead, wiring: Wiring) -> Iterator[Finding]:
    """Find a key that a handler reads of every event, and that is never sent to one of the topics that it hears."""
    topics = [each.topic for each in heard.agent.subscriptions if each.method == heard.subscription.method]
    topic, sent = next(filter(None, (lacking_topic(each, read.key, wiring) for each in topics)), ("", ()))
    if topic and any(each.name == read.key for each in demands_of(heard, wiring.project)):
        yield _unsent_key(heard, topic, read, sent, sent_names(sent))


def lacking_topic(topic: str, name: str, wiring: Wiring) -> tuple[str, tuple[AgentPublication, ...]] | None:
    """Return a topic to which all publications are known and none sends a field, with these.

    Args:
        topic: What a handler subscribes to, which may be a pattern of several topics.
        name: The field.
        wiring: The graph.
    """
    groups: dict[str, list[AgentPublication]] = {}
    for each in wiring.publishers(topic) if not wiring.is_partial else ():
        groups.setdefault(each.topic, []).append(each)
    for one, sent in groups.items():
        if name not in sent_names(sent) and _are_known(sent, wiring) and not wiring.is_external(one):
            return one, tuple(sent)
    return None


def _are_known(sent: Iterable[AgentPublication], wiring: Wiring) -> bool:
    """True when the fields of all these are known; what an agent declares stands for what it sends."""
    return all(
        (each.publication.payload and not each.publication.payload.is_open) or wiring.is_declared(each) for each in sent
    )


def _known_fields(
    heard: AgentSubscription, wiring: Wiring
) -> tuple[tuple[AgentPublication, ...], frozenset[str]] | None:
    """Return what a handler can be sent, and the names in it: those that are sent, and those that its Topics promise."""
    topics = [each for each in heard.agent.subscriptions if each.method == heard.subscription.method]
    promised = frozenset(field.name for each in topics for field in each.promised.fields)
    sent = everything_sent_to(heard, wiring)
    if sent:
        return sent, sent_names(sent) | promised
    return ((), promised) if all(each.promised.kind == "record" for each in topics) else None


def _unsent_key(
    heard: AgentSubscription, topic: str, read: KeyRead, sent: tuple[AgentPublication, ...], known: frozenset[str]
) -> Finding:
    meant = near_match(read.key, known)
    guess = f"Did you mean {meant!r}?" if meant else did_you_mean(read.key, known).strip()
    lacks = f"which no publisher of {topic!r} sends" if sent else f"which the Topic {topic!r} does not have"
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
    """Return every publication that reaches a handler by any of its topics, or None when one of them is not fully known.

    What an agent declares stands for what it sends, whatever expression makes that.
    """
    found: dict[AgentPublication, None] = {}
    for subscription in heard.agent.subscriptions:
        if subscription.method == heard.subscription.method:
            publishers = wiring.all_publishers(subscription.topic)
            if publishers is None:
                return None
            if not _are_known(publishers, wiring):
                return None
            found |= dict.fromkeys(
                each for each in publishers if each.publication.payload and not each.publication.payload.is_open
            )
    return tuple(found)


def sent_names(sent: Iterable[AgentPublication]) -> frozenset[str]:
    """Return the names of all fields that are sent."""
    return frozenset(name for each in sent if each.publication.payload for name in each.publication.payload.names)


# --- GB001, GB002: topics with one end ----------------------------------------------------------


def check_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find subscriptions that hear nothing and publications that nobody hears."""
    for heard in wiring.asked_subscriptions:
        if _is_silent(heard, wiring):
            yield _deaf(heard, wiring)
    if not wiring.has_unknown_subscribers:
        yield from _without_subscriber(wiring)


def _is_silent(heard: AgentSubscription, wiring: Wiring) -> bool:
    """True for a subscription to a malformed topic, or to one that no agent and no call in any file publishes."""
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
    """Return the one published topic that a subscription without publisher is likely meant for, or the empty string.

    A published topic that somebody hears already is only meant when a single slip lies between the two.
    """
    near = {name for name in wiring.topics if is_topic(name) and are_near_topics(topic, name)}
    unheard = {name for name in near if not wiring.subscribers(name)}
    return near_topic(topic, unheard) or near_topic(topic, {name for name in near if is_slip_of_topic(topic, name)})


def _without_subscriber(wiring: Wiring) -> Iterator[Finding]:
    """Find publications without a subscriber. A likely misspelling of a subscribed topic is reported at the subscription."""
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
    """Return the line of configuration for a topic that is also used outside of the graph."""
    listed = ", ".join(f'"{each}"' for each in (*wiring.project.config.settings.external_topics, topic))
    return f"write external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."
