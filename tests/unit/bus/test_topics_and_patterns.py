"""Topics, wildcards, and what is refused as either."""

from __future__ import annotations

from typing import Any

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError


@pytest.mark.parametrize(
    ("pattern", "heard", "missed"),
    [
        ("/Order/Created", ["/Order/Created"], ["/Order/Creat", "/Order/Created/Late", "/order/created"]),
        ("/Order/*", ["/Order/Created", "/Order/x-1"], ["/Order", "/Order/Created/Late", "/Orders/Created"]),
        ("/*/Created", ["/Order/Created"], ["/Order/Gone", "/Created", "/A/B/Created"]),
        ("/Order/**", ["/Order/Created", "/Order/Created/Late"], ["/Order", "/Orders/Created"]),
        ("/**", ["/Order", "/Order/Created/Late"], []),
        ("/*/*", ["/Order/Created"], ["/Order", "/Order/Created/Late"]),
    ],
)
def test_a_pattern_hears_what_its_wildcards_stand_for(pattern: str, heard: list[str], missed: list[str]) -> None:
    bus = MessageBus()
    topics: list[str] = []
    bus.subscribe(pattern, lambda event: topics.append(event.topic))
    for topic in heard + missed:
        bus.publish(topic)
    assert topics == heard


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "Order",
        "Order/Created",
        "/",
        "//",
        "/Order/",
        "/Order Created",
        "/Order/Ä",
        "/" + "x" * 65,
        "/Order\n",
        None,
        5,
        b"/Order",
    ],
)
def test_a_malformed_topic_is_refused_by_subscribe_and_by_publish(topic: Any) -> None:
    bus = MessageBus()
    with pytest.raises(RunError, match="GBE610"):
        bus.subscribe(topic, lambda: None)
    with pytest.raises(RunError, match="GBE610"):
        bus.publish(topic)


@pytest.mark.parametrize("pattern", ["/**/Created", "/Order/***", "/Order/a*", "/Order/*x"])
def test_a_wildcard_stands_alone_and_the_double_one_last(pattern: str) -> None:
    with pytest.raises(RunError) as refused:
        MessageBus().subscribe(pattern, lambda: None)
    assert refused.value.code == "GBE610"


def test_a_pattern_cannot_be_published_to() -> None:
    bus = MessageBus()
    with pytest.raises(RunError, match="only subscriptions may have wildcards"):
        bus.publish("/Order/*")
    assert bus.statistics().published == 0


def test_a_pattern_that_is_subscribed_after_a_topic_was_used_hears_it() -> None:
    bus = MessageBus()
    heard: list[str] = []
    bus.publish("/Order/Created")
    bus.subscribe("/Order/*", lambda event: heard.append(event.topic))
    bus.publish("/Order/Created")
    assert heard == ["/Order/Created"]


def test_patterns_and_topics_are_served_in_one_order_of_subscription() -> None:
    bus = MessageBus()
    log: list[str] = []
    for topic in ("/A/*", "/A/B", "/**"):
        bus.subscribe(topic, lambda topic=topic: log.append(topic))
    bus.publish("/A/B")
    assert log == ["/A/*", "/A/B", "/**"]


def test_the_bus_keeps_a_bounded_number_of_topics_compiled_and_counts_on() -> None:
    bus = MessageBus(known_topics=10, history=0)
    bus.subscribe("/Many/*", lambda: None, name="all")
    for number in range(95):
        bus.publish(f"/Many/T{number}")
    assert len(bus._dispatches) <= 10
    assert bus.statistics().published == 95
    assert bus.statistics().subscriptions["all <- /Many/*"].delivered == 95


def test_what_nobody_hears_may_be_published() -> None:
    bus = MessageBus()
    bus.publish("/Nobody/Hears", {"n": 1})
    assert [event.topic for event in bus.history()] == ["/Nobody/Hears"]


def test_the_gate_of_topics_is_asked_once_per_topic_and_may_refuse_it() -> None:
    asked: list[str] = []

    def admit(topic: str):
        asked.append(topic)
        if topic == "/Un/Known":
            raise RunError("GBE619", topic=topic, suggestion="")

    bus = MessageBus(admit=admit)
    for _ in range(3):
        bus.publish("/Known/Topic")
    with pytest.raises(RunError, match="GBE619"):
        bus.publish("/Un/Known")
    assert asked == ["/Known/Topic", "/Un/Known"]
    assert bus.statistics().published == 3


def test_the_check_of_a_topic_decides_what_is_delivered() -> None:
    bus = MessageBus(admit=lambda _topic: lambda payload: {"checked": payload})
    got: list[Event] = []
    bus.subscribe("/A/B", got.append)
    bus.publish("/A/B", 1)
    assert [event.payload for event in got] == [{"checked": 1}]
