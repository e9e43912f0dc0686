"""GB001 and GB002: topics with one end only."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.elsewhere import is_sent_elsewhere
from graphbus_core.compiler.rules.names import are_near_topics, is_slip_of_topic, near_topic
from graphbus_core.compiler.rules.wiring import Heard, Sent, Wiring
from graphbus_core.errors import did_you_mean
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic, is_topic_or_pattern


def check_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find subscriptions that hear nothing and publications that nobody hears."""
    silent = [heard for heard in wiring.asked_heard if _is_silent(heard, wiring)]
    for heard in silent:
        yield _no_topic(heard, wiring) if _is_no_topic(heard) else _without_publisher(heard, wiring)
    if not wiring.has_unknown_subscribers:
        yield from _without_subscriber(wiring, silent)


def _is_silent(heard: Heard, wiring: Wiring) -> bool:
    return _is_no_topic(heard) or _hears_nothing(heard, wiring)


def _is_no_topic(heard: Heard) -> bool:
    return bool(heard.topic) and not is_topic_or_pattern(heard.topic)


def _no_topic(heard: Heard, wiring: Wiring) -> Finding:
    """A graph with such a subscription does not start at all."""
    meant = meant_topic(heard.topic, wiring)
    shape = "A topic is one or more segments of letters, digits, '-' and '_', each behind a slash: '/Order/Placed'."
    return Finding(
        code="GB001",
        severity="error",
        agent=heard.agent.name,
        span=heard.subscription.span,
        message=f"{heard.name} subscribes to {heard.topic!r}, which is no topic: a run refuses it",
        hint=f"Did you mean {meant!r}? {shape}" if is_topic(meant) else shape,
        related=tuple(_publisher(sent) for sent in wiring.publishers(meant)) if is_topic(meant) else (),
        is_fixable=is_topic(meant),
        data={"old": heard.topic, "new": meant, "rename": "subscriber"} if is_topic(meant) else {},
    )


def _hears_nothing(heard: Heard, wiring: Wiring) -> bool:
    return wiring.all_publishers(heard.topic) == () and not is_sent_elsewhere(heard.topic, wiring.evidence)


def _without_publisher(heard: Heard, wiring: Wiring) -> Finding:
    meant = meant_topic(heard.topic, wiring)
    guess = f"Did you mean {meant!r}?" if meant else did_you_mean(heard.topic, wiring.topics).strip()
    outside = f"it comes from outside, {_line_to_add(heard.topic, wiring)}"
    mendable = end_to_rename(heard.topic, meant, wiring) if meant else ""
    return Finding(
        code="GB001",
        severity="warning",
        agent=heard.agent.name,
        span=heard.subscription.span,
        message=f"{heard.name} subscribes to {heard.topic!r}, which no agent publishes",
        hint=f"{guess} If {outside}" if guess else f"Publish it; if {outside}",
        related=tuple(_publisher(sent) for sent in wiring.publishers(meant)) if meant else (),
        is_fixable=bool(mendable),
        data={"old": heard.topic, "new": meant, "rename": mendable} if meant else {},
    )


def meant_topic(topic: str, wiring: Wiring) -> str:
    """Give the one published topic that a subscription without publisher is likely meant for, or the empty string.

    A published topic that somebody hears already is only meant when a single slip lies between the two.
    """
    near = {name for name in wiring.topics if are_near_topics(topic, name)}
    unheard = {name for name in near if not wiring.hearers(name)}
    return near_topic(topic, unheard) or near_topic(topic, {name for name in near if is_slip_of_topic(topic, name)})


def end_to_rename(topic: str, meant: str, wiring: Wiring) -> str:
    """Say whose topic has to be renamed: `"publisher"` when several agents hear the one name and one place sends the other."""
    subscribers = {heard.agent.name for heard in wiring.heard if heard.topic == topic}
    senders = wiring.publishers(meant)
    if len(subscribers) > 1 and len(senders) == 1 and not wiring.hearers(meant):
        return "publisher"
    return "subscriber"


def _publisher(sent: Sent) -> Related:
    return Related(sent.agent.name, sent.publication.span, f"{sent.agent.name} publishes {sent.topic!r}")


def _without_subscriber(wiring: Wiring, silent: list[Heard]) -> Iterator[Finding]:
    """Find what nobody hears; a topic that is nearly one that hears nothing is reported at that end."""
    unheard = [sent for sent in wiring.asked_sent if not sent.publication.is_request and _is_unheard(sent, wiring)]
    if not unheard:
        return
    others = (heard for heard in wiring.heard if not wiring.asks_about(heard.agent.name))
    dangling = {heard.topic for heard in (*silent, *(heard for heard in others if _is_silent(heard, wiring)))}
    reported: set[tuple[str, str]] = set()
    for sent in unheard:
        key = (sent.agent.name, sent.topic)
        if key in reported or any(are_near_topics(sent.topic, topic) for topic in dangling):
            continue
        reported.add(key)
        yield Finding(
            code="GB002",
            severity="info",
            agent=sent.agent.name,
            span=sent.publication.span,
            message=f"{sent.agent.name} publishes {sent.topic!r}, which no agent subscribes to",
            hint=f"Subscribe to it or stop publishing it; if it is heard outside, {_line_to_add(sent.topic, wiring)}",
        )


def _line_to_add(topic: str, wiring: Wiring) -> str:
    """Say what to write for a topic whose other end is outside of the graph: the whole line, ready to be copied."""
    listed = ", ".join(f'"{each}"' for each in (*wiring.evidence.config.settings.external_topics, topic))
    return f"write external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."


def _is_unheard(sent: Sent, wiring: Wiring) -> bool:
    return is_topic(sent.topic) and not wiring.hearers(sent.topic) and not wiring.is_external(sent.topic)
