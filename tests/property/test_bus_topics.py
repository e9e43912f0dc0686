"""Wildcards and payloads, for all topics and all JSON."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.bus import MessageBus
from graphbus_core.model.topics import is_topic, is_topic_or_pattern, matches
from graphbus_core.schema.json import freeze, thaw

SEGMENTS = st.text(st.sampled_from("AbZ09_-"), min_size=1, max_size=3)
TOPICS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def by_hand(pattern: list[str], topic: list[str]) -> bool:
    """What the wildcards mean, word for word."""
    if not pattern or not topic:
        return pattern == topic
    if pattern == ["**"]:
        return True
    return pattern[0] in ("*", topic[0]) and by_hand(pattern[1:], topic[1:])


@given(TOPICS, st.data())
def test_a_pattern_matches_exactly_what_its_words_say(topic: str, data: st.DataObject) -> None:
    parts = topic.split("/")[1:]
    pattern = [data.draw(st.sampled_from(["*", part, "x"])) for part in parts]
    if data.draw(st.booleans()):
        pattern = [*pattern[: data.draw(st.integers(0, len(pattern) - 1))], "**"]
    text = "/" + "/".join(pattern)
    assert is_topic(topic)
    assert is_topic_or_pattern(text)
    assert matches(text, topic) == by_hand(pattern, parts)


@given(st.lists(TOPICS, min_size=1, max_size=8), st.lists(TOPICS, max_size=8))
def test_every_event_reaches_exactly_the_subscriptions_that_match(subscribed: list[str], published: list[str]) -> None:
    bus = MessageBus(known_topics=2)
    got: list[tuple[int, str]] = []
    for number, topic in enumerate(subscribed):
        bus.subscribe(topic, partial(lambda number, event: got.append((number, event.topic)), number))
    for topic in published:
        bus.publish(topic)
    assert got == [(number, topic) for topic in published for number, each in enumerate(subscribed) if each == topic]


@given(JSON)
def test_freezing_keeps_every_json_value_and_thawing_gives_it_back(value: Any) -> None:
    before = copy.deepcopy(value)
    frozen = freeze(value)
    assert frozen == value == before
    assert thaw(frozen) == value
    assert json.loads(json.dumps(frozen)) == json.loads(json.dumps(value))
    assert freeze(frozen) is frozen


@given(JSON, st.integers(1, 4))
def test_every_subscriber_gets_the_payload_that_was_published(value: Any, count: int) -> None:
    bus = MessageBus(on_error="raise")
    got: list[Any] = []
    for _ in range(count):
        bus.subscribe("/A/B", lambda payload: got.append(copy.deepcopy(payload)))
    bus.publish("/A/B", value)
    assert got == [value] * count
