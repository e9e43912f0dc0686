"""`send`: for a publisher that must not wait, e.g. a server."""

from __future__ import annotations

import threading

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError


def test_an_event_that_is_sent_is_known_at_once_and_delivered_by_another_thread() -> None:
    heard: list[tuple[str, int]] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", lambda event: heard.append((event.event_id, threading.get_ident())))
        event = bus.send("/A/B", {"n": 1}, src="me")
        bus.run(lambda: None)
        bus.settle()
    assert [event_id for event_id, _ in heard] == [event.event_id]
    assert (event.topic, event.payload, event.src, event.hops) == ("/A/B", {"n": 1}, "me", 0)
    assert bus.history() == (event,)


def test_what_is_sent_keeps_its_order() -> None:
    heard: list[int] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", lambda event: heard.append(event["n"]))
        for number in range(500):
            bus.send("/A/B", {"n": number})
        bus.run(lambda: None)
    assert heard == list(range(500))


@pytest.mark.parametrize(
    ("topic", "payload", "code"), [("A", {}, "GBE610"), ("/A/*", {}, "GBE610"), ("/A/B", {"x": object()}, "GBE612")]
)
def test_what_cannot_be_published_cannot_be_sent(topic: str, payload: object, code: str) -> None:
    with MessageBus() as bus, pytest.raises(RunError) as refused:
        bus.send(topic, payload)
    assert refused.value.code == code


def test_a_closed_bus_takes_nothing() -> None:
    bus = MessageBus()
    bus.send("/A/B")
    bus.close()
    with pytest.raises(RunError) as refused:
        bus.send("/A/B")
    assert refused.value.code == "GBE615"
