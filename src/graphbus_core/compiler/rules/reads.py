"""GB003: a handler reads a key that no publisher of its topics sends."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.wiring import Heard, Sent, Wiring
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import KeyRead
from graphbus_core.model.findings import Finding, Related


def check_reads(wiring: Wiring) -> Iterator[Finding]:
    """Compare what handlers read with everything that can reach them; silent where anything of that is unknown."""
    for heard in _by_handler(wiring):
        sent = everything_sent_to(heard, wiring) if wiring.asks_about(heard.agent.name) else None
        if sent:
            yield from _unsent_keys(heard, sent)


def _by_handler(wiring: Wiring) -> Iterator[Heard]:
    """Each handler once, though it may listen to several topics."""
    seen: set[tuple[str, int, str]] = set()
    for heard in wiring.heard:
        method = heard.agent.method(heard.subscription.method)
        place = method.span if method else heard.subscription.span
        key = (place.path, place.line, heard.subscription.method)
        if key not in seen:
            seen.add(key)
            yield heard


def everything_sent_to(heard: Heard, wiring: Wiring) -> tuple[Sent, ...] | None:
    """Give every publication that reaches a handler by any of its topics, or None when one of them is not fully known."""
    found: list[Sent] = []
    for subscription in heard.agent.subscriptions:
        if subscription.method == heard.subscription.method:
            sent = wiring.all_publishers(subscription.topic)
            if sent is None or any(each.publication.payload is None for each in sent):
                return None
            found.extend(sent)
    if any(each.publication.payload is not None and each.publication.payload.is_open for each in found):
        return None
    return tuple(dict.fromkeys(found))


def sent_names(sent: tuple[Sent, ...]) -> frozenset[str]:
    """Give the names of all fields that are sent."""
    return frozenset(name for each in sent if each.publication.payload for name in each.publication.payload.names)


def _unsent_keys(heard: Heard, sent: tuple[Sent, ...]) -> Iterator[Finding]:
    known = sent_names(sent)
    declared = {field.name for field in heard.subscription.payload.fields}  # what is declared is compared by GB110
    reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in known | declared]
    for key in dict.fromkeys(read.key for read in reads):
        yield _finding(heard, [read for read in reads if read.key == key], sent, known)


def _finding(heard: Heard, reads: list[KeyRead], sent: tuple[Sent, ...], known: frozenset[str]) -> Finding:
    key = reads[0].key
    meant = near_match(key, known)
    keys = ", ".join(sorted(known)) or "nothing"
    return Finding(
        code="GB003",
        severity="error",
        agent=heard.agent.name,
        span=reads[0].span,
        message=f"{heard.name} reads {key!r}, which no publisher of {heard.topic!r} sends",
        hint=f"Did you mean {meant!r}?" if meant else did_you_mean(key, known).strip() or f"What is sent: {keys}.",
        related=tuple(described(each) for each in sent),
        is_fixable=bool(meant),
        data={"old": key, "new": meant} if meant else {},
    )


def described(sent: Sent) -> Related:
    """Show a publication with what it sends."""
    publication = sent.publication
    verb = "declares" if publication.is_declared else "sends"
    return Related(sent.agent.name, publication.span, f"{sent.agent.name} {verb} {publication.payload or 'a payload'}")
