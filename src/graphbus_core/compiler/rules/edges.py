"""GB001 to GB003, GB005, GB010, GB011: topics with one end, keys that nobody sends, requests, and circular dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from itertools import pairwise

from graphbus_core.compiler.graph import components, find_circle
from graphbus_core.compiler.rules.names import (
    are_near_topics,
    choice_data,
    differ_by_one_letter,
    near_match,
    near_topic,
)
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Wiring,
    describe_publication,
    is_written_in,
    make_finding,
    required_fields,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import KeyRead, Publication
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic, is_topic_or_pattern

COVERED_ERRORS = frozenset({"GBE211", "GBE212", "GBE214", "GBE215"})
"""Errors of a build that are also findings (GB010, GB011, GB310, GB001), so that `graphbus check` does not report both."""

_WORD = re.compile(r"\w+")

# --- GB010, GB011: dependencies and calls -------------------------------------------------------


def check_dependencies(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on unknown agents, calls that a running graph refuses, and circular dependencies."""
    if not wiring.is_partial:
        yield from _check_agent_names(wiring)
    if any(agent.dependencies for agent in wiring.checked_agents):
        yield from _check_cycles(wiring)


def _check_agent_names(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on unknown agents, and calls of agents that are unknown or that the caller does not depend on."""
    for agent in wiring.checked_agents:
        for each in agent.dependencies:
            if each.name not in wiring.agents and is_written_in(agent, each.span):
                message = f"{agent.name} depends on {each.name}, which is not an agent of this graph"
                hint = "Correct the name, or check the folder that holds the agent as well."
                suggestion = did_you_mean(each.name, wiring.agents).strip()
                data = _data_for_renaming(each.name, near_match(each.name, wiring.agents))
                yield make_finding("GB010", agent.name, each.span, message, suggestion or hint, data=data)
        declared = {each.name for each in agent.dependencies} | {"", agent.name}  # `""`: a computed name
        for call in agent.calls:
            if call.agent not in declared and is_written_in(agent, call.span):
                is_known = call.agent in wiring.agents
                what = "without depending on it" if is_known else "which is not an agent of this graph"
                hint = f'Add @depends_on("{call.agent}") to {agent.name}.' if is_known else ""
                suggestion = did_you_mean(call.agent, wiring.agents).strip()
                data = (
                    {"new": call.agent}
                    if is_known
                    else _data_for_renaming(call.agent, near_match(call.agent, wiring.agents))
                )
                message = f"{agent.name} calls {call.agent}, {what}"
                yield make_finding("GB010", agent.name, call.span, message, hint or suggestion, data=data)


def _data_for_renaming(old: str, new: str) -> dict[str, str] | None:
    """Return the data with which a fix renames `old` to `new`; None if `new` is empty, so that there is no fix."""
    return {"old": old, "new": new} if new else None


def _check_cycles(wiring: Wiring) -> Iterator[Finding]:
    """Find one cycle in each group of agents that depend on each other."""
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
                f"The dependencies form a cycle: {' -> '.join(circle)}",
                "Remove one of these @depends_on. Events may form a cycle; dependencies may not.",
                related=[Related(one, spans[one][other], f"{one} depends on {other}") for one, other in others],
            )


# --- GB005: requests ----------------------------------------------------------------------------


def check_requests(wiring: Wiring) -> Iterator[Finding]:
    """Find requests without a handler, with several handlers, or that only the requesting agent answers."""
    for sent in wiring.checked_publications:
        if sent.publication.is_request and is_topic(sent.topic) and not wiring.is_external(sent.topic):
            answering = wiring.responders(sent.topic)
            problem, hint, similar = _describe_request_problem(sent, answering, wiring)
            if problem:
                message = f"{sent.agent.name} requests {sent.topic!r}, {problem}"
                related = [
                    Related(each.agent.name, each.subscription.span, f"{each.name} answers") for each in answering
                ]
                place = sent.publication.span
                data = _data_for_renaming(sent.topic, similar)
                yield make_finding("GB005", sent.agent.name, place, message, hint, related=related, data=data)


def _describe_request_problem(
    sent: AgentPublication, answering: tuple[AgentSubscription, ...], wiring: Wiring
) -> tuple[str, str, str]:
    """Return what is wrong with a request, a hint, and a similar topic or `""`; three empty strings if nothing is wrong."""
    if len(answering) > 1:
        *names, last = (handler.name for handler in answering)
        hint = "A request has one answer: keep one of these handlers, or publish the event instead."
        return f"which {', '.join(names)} and {last} answer", hint, ""
    if answering:
        if answering[0].agent.name != sent.agent.name:
            return "", "", ""
        return "which it answers itself: the request would never return", "Call the method directly.", ""
    if wiring.has_unknown_subscribers or {"", "subscribe"} & wiring.callees_given(sent.topic):
        return "", "", ""  # a handler may exist
    similar = near_topic(sent.topic, {handler.topic for handler in wiring.subscriptions if is_topic(handler.topic)})
    suggestion = f"Did you mean {similar!r}? " if similar else ""
    problem = "which only handlers of patterns receive" if wiring.subscribers(sent.topic) else "which no agent answers"
    return problem, f"{suggestion}Give one agent a handler of it that returns the answer.", similar


# --- GB003: keys that nobody sends --------------------------------------------------------------


def check_reads(wiring: Wiring) -> Iterator[Finding]:
    """Find keys that handlers read and no publication sends; where a publication may be unknown, nothing is reported."""
    seen: set[object] = set()
    for handler in wiring.subscriptions:  # each handler once, though it may subscribe to several topics
        method = handler.agent.method(handler.subscription.method)
        place = (method.span if method else handler.subscription.span, handler.subscription.method)
        is_first = wiring.is_checked(handler.agent.name) and place not in seen
        seen.add(place)
        declared = {field.name for field in handler.subscription.payload.fields}  # GB110 compares declared fields
        reads = [read for read in handler.subscription.reads if not read.is_optional and read.key not in declared]
        known = _publications_and_known_fields(handler, wiring) if is_first and reads else None
        for first in {read.key: read for read in reversed(reads)}.values() if is_first else ():
            if known is not None and first.key not in known[1]:
                yield _make_unsent_key_finding(handler, handler.topic, first, known[0], known[1])
            else:  # publications of other topics may be unknown, or send the key
                yield from _check_each_topic(handler, first, wiring)


def _check_each_topic(handler: AgentSubscription, read: KeyRead, wiring: Wiring) -> Iterator[Finding]:
    """Find a key that a handler reads from every event, if no publication to one of the handler's topics sends the key."""
    topics = [each.topic for each in handler.agent.subscriptions if each.method == handler.subscription.method]
    topic, sent = next(filter(None, (find_topic_without_field(each, read.key, wiring) for each in topics)), ("", ()))
    if topic and any(each.name == read.key for each in required_fields(handler, wiring.project)):
        yield _make_unsent_key_finding(handler, topic, read, sent, field_names_sent(sent))


def find_topic_without_field(topic: str, name: str, wiring: Wiring) -> tuple[str, tuple[AgentPublication, ...]] | None:
    """Return the first topic whose publications are all known and never send a field, and these publications; else None.

    Args:
        topic: The topic of a subscription, which may be a pattern for several topics.
        name: The field.
        wiring: The graph.
    """
    groups: dict[str, list[AgentPublication]] = {}
    for each in wiring.publishers(topic) if not wiring.is_partial else ():
        groups.setdefault(each.topic, []).append(each)
    for one, sent in groups.items():
        if name not in field_names_sent(sent) and _are_fields_known(sent, wiring) and not wiring.is_external(one):
            return one, tuple(sent)
    return None


def _are_fields_known(sent: Iterable[AgentPublication], wiring: Wiring) -> bool:
    """Return whether the fields of every publication are known, from its payload or from a declaration of its agent."""
    return all(
        (each.publication.payload and not each.publication.payload.is_open) or wiring.is_declared(each) for each in sent
    )


def _publications_and_known_fields(
    handler: AgentSubscription, wiring: Wiring
) -> tuple[tuple[AgentPublication, ...], frozenset[str]] | None:
    """Return the publications that reach a handler, and the fields that they send or its Topics declare; None: not known."""
    topics = [each for each in handler.agent.subscriptions if each.method == handler.subscription.method]
    promised = frozenset(field.name for each in topics for field in each.promised.fields)
    sent = everything_sent_to(handler, wiring)
    if sent:
        return sent, field_names_sent(sent) | promised
    return ((), promised) if all(each.promised.kind == "record" for each in topics) else None


def _make_unsent_key_finding(
    handler: AgentSubscription, topic: str, read: KeyRead, sent: tuple[AgentPublication, ...], known: frozenset[str]
) -> Finding:
    """Return the finding that a handler reads a key that is not `known`, with a similar key or all known keys in its hint.

    `read.key` may be a path such as `lines[].sku`; `sent` is empty if the known keys are those of the handler's Topics.
    """
    similar = near_match(read.key, known)
    suggestion = f"Did you mean {similar!r}?" if similar else did_you_mean(read.key, known).strip()
    data = _data_for_renaming(read.key, similar) or {
        "missing": read.key,
        "below": " ".join(read.below),
        **choice_data(known, handler.subscription.named - {read.key}),
    }
    if not read.key.isidentifier():
        names = {name for each in sent for name in _list_field_names(each.publication)}
        suggestion, part = _suggest_correct_part(read.key, names)
        data = part or data
    lacks = f"which no publisher of {topic!r} sends" if sent else f"which the Topic {topic!r} does not have"
    return make_finding(
        "GB003",
        handler.agent.name,
        read.span,
        f"{handler.name} reads {read.key!r}, {lacks}",
        suggestion
        or f"Read a key that is sent ({', '.join(sorted(known)) or 'there is none'}), or send {read.key!r} as well.",
        related=list({each.publication.span: describe_publication(each) for each in reversed(sent)}.values())[::-1],
        data=data,
    )


def _suggest_correct_part(read: str, names: Set[str]) -> tuple[str, dict[str, str]]:
    """Return a hint and the data for a fix of the last part of a read such as `line["dihs"]`; `("", {})` if none is known."""
    part = _WORD.findall(read)[-1]
    if part in names:
        access = f".{part}" if read.endswith("]") else f'["{part}"]'
        return f"Write `{access}`.", {"access": access}
    similar = near_match(part, names)
    return (f"Did you mean {similar!r}?", {"part": part, "new": similar}) if similar else ("", {})


def _list_field_names(publication: Publication) -> Iterator[str]:
    """Yield the names of all fields of a payload and of the records within it, however deep."""
    types = [field.type for field in publication.payload.fields] if publication.payload else [publication.type]
    yield from publication.payload.names if publication.payload else ()
    while types:
        each = types.pop()
        yield from (field.name for field in each.fields)
        types += [*each.args, *(field.type for field in each.fields)]


def everything_sent_to(handler: AgentSubscription, wiring: Wiring) -> tuple[AgentPublication, ...] | None:
    """Return every publication that reaches a handler on any of its topics; None if one of them may be unknown.

    A publication without a known payload is left out if its agent declares the payload: the declaration is in the result as well.
    """
    found: dict[AgentPublication, None] = {}
    for subscription in handler.agent.subscriptions:
        if subscription.method == handler.subscription.method:
            publishers = wiring.all_publishers(subscription.topic)
            if publishers is None or not _are_fields_known(publishers, wiring):
                return None
            found |= dict.fromkeys(
                each for each in publishers if each.publication.payload and not each.publication.payload.is_open
            )
    return tuple(found)


def field_names_sent(sent: Iterable[AgentPublication]) -> frozenset[str]:
    """Return the names of all fields that these publications are known to send."""
    return frozenset(name for each in sent if each.publication.payload for name in each.publication.payload.names)


# --- GB001, GB002: topics with one end ----------------------------------------------------------


def check_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find subscriptions without a publication, and publications without a subscription."""
    for handler in wiring.checked_subscriptions:
        if _is_unpublished(handler, wiring):
            yield _make_unpublished_topic_finding(handler, wiring)
    if not wiring.has_unknown_subscribers:
        yield from _check_unsubscribed(wiring)


def _is_unpublished(handler: AgentSubscription, wiring: Wiring) -> bool:
    """Return whether the topic of a subscription is malformed, or nothing in the project publishes it or may do so."""
    if handler.topic and not is_topic_or_pattern(handler.topic):
        return True
    if wiring.all_publishers(handler.topic) != ():
        return False
    return wiring.callees_given(handler.topic) <= {"subscribe", "unsubscribe"}


def _make_unpublished_topic_finding(handler: AgentSubscription, wiring: Wiring) -> Finding:
    """Return the finding (GB001) that nothing publishes the topic of a subscription, or that the topic is malformed."""
    topic, similar = handler.topic, _suggest_topic(handler.topic, wiring)
    suggestion = f"Did you mean {similar!r}?" if similar else did_you_mean(topic, wiring.topics).strip()
    if is_topic_or_pattern(topic):
        outside = f"other programs publish it, {_advise_external_topic(topic, wiring)}"
        what = "which no agent publishes"
        hint = f"{suggestion} If {outside}" if suggestion else f"Publish it in an agent; if {outside}"
    else:  # a graph with such a subscription does not start
        shape = "A topic is one or more segments of letters, digits, '-' and '_', each behind a slash: '/Order/Placed'."
        what, hint = "but this is not a valid topic", f"{suggestion} {shape}" if similar else shape
    return make_finding(
        "GB001",
        handler.agent.name,
        handler.subscription.span,
        f"{handler.name} subscribes to {topic!r}, {what}",
        hint,
        severity="warning" if is_topic_or_pattern(topic) else "error",
        related=[
            Related(sent.agent.name, sent.publication.span, f"{sent.agent.name} publishes {sent.topic!r}")
            for sent in wiring.publishers(similar)
        ],
        data=_data_for_renaming(topic, similar),
    )


def _suggest_topic(topic: str, wiring: Wiring) -> str:
    """Return the one published topic that a subscription without publisher seems to misspell, or the empty string.

    A published topic without a subscriber is preferred. One that has a subscriber must differ by a single typing error.
    """
    near = {name for name in wiring.topics if is_topic(name) and are_near_topics(topic, name)}
    unused = {name for name in near if not wiring.subscribers(name)}
    return near_topic(topic, unused) or near_topic(topic, {each for each in near if differ_by_one_letter(topic, each)})


def _check_unsubscribed(wiring: Wiring) -> Iterator[Finding]:
    """Find publications without a subscriber, except on topics that a subscription without publication (GB001) may misspell."""
    unsubscribed = {
        (sent.agent.name, sent.topic): sent
        for sent in reversed(wiring.checked_publications)
        if not (sent.publication.is_request or wiring.subscribers(sent.topic) or wiring.is_external(sent.topic))
        and is_topic(sent.topic)
    }
    dangling = {each.topic for each in wiring.subscriptions if _is_unpublished(each, wiring)} if unsubscribed else set()
    for (agent, topic), sent in unsubscribed.items():
        if not any(are_near_topics(topic, other) for other in dangling):
            message = f"{agent} publishes {topic!r}, which no agent subscribes to"
            advice = _advise_external_topic(topic, wiring)
            hint = f"Subscribe to it or stop publishing it; if other programs subscribe to it, {advice}"
            yield make_finding("GB002", agent, sent.publication.span, message, hint)


def _advise_external_topic(topic: str, wiring: Wiring) -> str:
    """Return the clause of a hint that says how to list a topic in `external_topics`, the topics that other programs use too."""
    listed = ", ".join(f'"{each}"' for each in (*wiring.project.config.settings.external_topics, topic))
    return f"write external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."
