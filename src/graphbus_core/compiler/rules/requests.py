"""GB005: a request must have exactly one handler that answers it."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.elsewhere import is_heard_elsewhere
from graphbus_core.compiler.rules.names import near_topic
from graphbus_core.compiler.rules.wiring import Heard, Sent, Wiring
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic


def check_requests(wiring: Wiring) -> Iterator[Finding]:
    """Find requests that nobody, more than one handler, or only the asking agent itself answers."""
    for sent in wiring.asked_sent:
        if sent.publication.is_request and is_topic(sent.topic) and not wiring.is_external(sent.topic):
            yield from _check(sent, wiring.hearers(sent.topic), wiring)


def _check(sent: Sent, answering: tuple[Heard, ...], wiring: Wiring) -> Iterator[Finding]:
    if len(answering) > 1:
        *names, last = (heard.name for heard in answering)
        problem = f"which {', '.join(names)} and {last} answer"
        hint = "A request has one answer: keep one of these handlers, or publish the event instead."
        yield _finding(sent, answering, problem, hint)
    elif answering and answering[0].agent.name == sent.agent.name:
        problem = "which it answers itself: that would wait for ever"
        yield _finding(sent, answering, problem, "Call the method directly.")
    elif not answering and not wiring.has_unknown_subscribers and not is_heard_elsewhere(sent.topic, wiring.evidence):
        meant = near_topic(sent.topic, {heard.topic for heard in wiring.heard if is_topic(heard.topic)})
        guess = f"Did you mean {meant!r}? " if meant else ""
        hint = f"{guess}Give one agent a handler of it that returns the answer."
        yield _finding(sent, (), "which no agent answers", hint)


def _finding(sent: Sent, answering: tuple[Heard, ...], problem: str, hint: str) -> Finding:
    return Finding(
        code="GB005",
        severity="error",
        agent=sent.agent.name,
        span=sent.publication.span,
        message=f"{sent.agent.name} requests {sent.topic!r}, {problem}",
        hint=hint,
        related=tuple(Related(each.agent.name, each.subscription.span, f"{each.name} answers") for each in answering),
    )
