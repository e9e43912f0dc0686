"""The events of a simulation: read from a file with one JSON object on each line, or made up from the schemas of topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphbus_core.errors import Place, RunError, raise_all
from graphbus_core.isolation import attempt
from graphbus_core.schema.json import Json
from graphbus_core.schema.types import Schema
from graphbus_core.simulation.subject import KnownTopics, RootEvent
from graphbus_core.store import BuildArtifacts
from graphbus_core.strict_json import loads

_MADE_UP = 3
"""How many events are made up for each topic."""


def read_events(path: str, topics: KnownTopics) -> list[RootEvent]:
    """Return the events in a file: a line for each, `{"topic": "/Order/Placed", "payload": {...}}`; empty lines are skipped.

    Raises:
        RunError: GBE666 for a file that cannot be read or has no event, and for a line that is no event of this graph.
        SeveralErrors: For more than one such line.
    """
    text, error = attempt(lambda: Path(path).read_text(encoding="utf-8"))
    if text is None:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise _refusal(path, 0, f"it cannot be read: {reason}")
    problems: list[RunError] = []
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            events += [_read_event(line, topics)] if line.strip() else []
        except RunError as misfit:
            problems.append(_refusal(path, number, misfit.sentence.rstrip(".")))
        except ValueError as no_event:
            problems.append(_refusal(path, number, str(no_event)))
    raise_all(problems)
    if not events:
        raise _refusal(path, 0, "it contains no event")
    return events


def _refusal(path: str, line: int, reason: str) -> RunError:
    advice = 'Write one event on each line: {"topic": "/Order/Placed", "payload": {"order_id": "1"}}.'
    return RunError("GBE666", where=Place(path, line), reason=reason, advice=advice)


def _read_event(line: str, topics: KnownTopics) -> RootEvent:
    """Return the event in a line; raise ValueError or RunError if it is none, or not one of this graph."""
    found: Any = loads(line)
    if not isinstance(found, dict) or not isinstance(found.get("topic"), str) or found.keys() - {"topic", "payload"}:
        raise ValueError("the line is not an object with `topic` and `payload`")
    topic, payload = found["topic"], found.get("payload")
    topics.check(topic, payload)
    return RootEvent(topic, payload)


def make_up_events(artifacts: BuildArtifacts, topics: KnownTopics) -> list[RootEvent]:
    """Return made-up events for the topics that agents subscribe to and no agent publishes, as far as their fields are known.

    Raises:
        RunError: GBE666 if there is no such topic.
    """
    events = []
    for topic, schema in _entry_topics(artifacts).items():
        for number in range(1, _MADE_UP + 1):
            event, _ = attempt(lambda topic=topic, schema=schema, n=number: _make_up(topic, schema, n, topics))  # type: ignore[misc]  # as above
            if event is not None:
                events.append(event)
    if not events:
        reason = "no topic has subscribers, a known payload, and no publisher in the graph"
        raise RunError("GBE666", reason=reason, advice="Pass a file with events: --events FILE.")
    return events


def _entry_topics(artifacts: BuildArtifacts) -> dict[str, Schema]:
    """Return topic -> schema of the topics at which events enter the graph."""
    agents = artifacts.agents.agents
    published = {each.topic for agent in agents for each in agent.publications if each.method}
    known = {each.name: each.schema for each in artifacts.topics.topics}
    found: dict[str, Schema] = {}
    for each in (subscription for agent in agents for subscription in agent.subscriptions):
        schema = known.get(each.topic) or each.declared_schema
        if schema is not None and each.topic and "*" not in each.topic and each.topic not in published:
            found.setdefault(each.topic, schema)
    return found


def _make_up(topic: str, schema: Schema, number: int, topics: KnownTopics) -> RootEvent:
    """Return an event; texts differ from one number to the next. Raise what `sample_values` or the check of the topic raises."""
    from graphbus_core.editing.rungs.smoke import sample_values

    payload: dict[str, Json] = {}
    for field in schema.fields:
        samples = sample_values(field.type)
        is_plain_text = field.type.kind == "str" and not field.type.name and not field.type.values
        payload[field.name] = f"{field.name}-{number}" if is_plain_text else samples[number % len(samples)]
    topics.check(topic, payload)
    return RootEvent(topic, payload)
