"""Handlers and topics that a running graph would refuse: a build says so before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.topics import is_topic, is_topic_or_pattern


def find_wrong_ends(definitions: Iterable[AgentDefinition]) -> tuple[BuildError, ...]:
    """Give GBE214 to GBE216, one for each place, though subclasses inherit it."""
    found: dict[tuple[str, str], BuildError] = {}
    for agent in definitions:
        for error in _wrong_ends(agent):
            found.setdefault((error.code, str(error.where)), error)
    return tuple(found.values())


def _wrong_ends(agent: AgentDefinition) -> Iterator[BuildError]:
    uncallable: set[str] = set()
    for heard in agent.subscriptions:
        handler = f"{agent.name}.{heard.method}"
        if heard.shape == "invalid" and heard.method not in uncallable:
            uncallable.add(heard.method)
            yield BuildError("GBE214", where=heard.span.place, handler=handler)
        if heard.topic and not is_topic_or_pattern(heard.topic):
            yield BuildError("GBE215", where=heard.span.place, handler=handler, topic=heard.topic)
    for sent in agent.publications:
        if sent.topic and not is_topic(sent.topic):
            yield BuildError("GBE216", where=sent.span.place, agent=agent.name, topic=sent.topic)
