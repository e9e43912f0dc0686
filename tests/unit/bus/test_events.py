"""Event: a read-only mapping over its payload, with ids that are made when somebody asks."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Mapping

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus

ORDER = {"order_id": "1", "total": 2.5}


def test_an_event_is_a_mapping_over_its_payload() -> None:
    event = Event("/Order/Created", ORDER, "Shop")
    assert isinstance(event, Mapping)
    assert event["order_id"] == "1"
    assert event.get("total") == 2.5
    assert event.get("missing") is None
    assert event.get("missing", 7) == 7
    assert "total" in event
    assert "missing" not in event
    assert dict(event) == {**event} == ORDER
    assert list(event) == list(event.keys()) == ["order_id", "total"]
    assert list(event.values()) == ["1", 2.5]
    assert list(event.items()) == list(ORDER.items())
    assert len(event) == 2
    with pytest.raises(KeyError):
        event["missing"]


@pytest.mark.parametrize("payload", [None, "text", 3, [1, 2]])
def test_an_event_without_fields_is_an_empty_mapping_and_still_true(payload: object) -> None:
    event = Event("/A/B", payload)
    assert event.payload == payload
    assert list(event) == []
    assert event.get("x") is None
    assert len(event) == 0
    assert event


def test_an_event_shows_what_it_is() -> None:
    assert repr(Event("/A/B", {"n": 1}, "Shop")) == "Event('/A/B', {'n': 1}, src='Shop')"


def test_an_event_knows_when_it_was_published() -> None:
    before = time.time()
    event = Event("/A/B")
    bus = MessageBus()
    bus.publish("/A/B")
    assert before <= event.timestamp <= bus.history()[0].timestamp <= time.time()


def lineage(bus: MessageBus) -> list[Event]:
    """Three generations: /A/One -> /A/Two (twice) -> /A/Three (of each)."""
    bus.subscribe("/A/One", lambda: [bus.publish("/A/Two"), bus.publish("/A/Two")], name="one")
    bus.subscribe("/A/Two", lambda: bus.publish("/A/Three"), name="two")
    bus.publish("/A/One")
    return list(bus.history())


def test_an_event_that_a_handler_publishes_knows_its_cause_and_its_root() -> None:
    root, first, second, *grandchildren = lineage(MessageBus())
    assert root.causation_id == ""
    assert root.correlation_id == root.event_id
    assert first.causation_id == second.causation_id == root.event_id
    assert [event.causation_id for event in grandchildren] == [first.event_id, second.event_id]
    assert {event.correlation_id for event in (root, first, second, *grandchildren)} == {root.event_id}
    assert [event.hops for event in (root, first, second, *grandchildren)] == [0, 1, 1, 2, 2]
    assert grandchildren[0].trail == (("/A/One", "one"), ("/A/Two", "two"))
    assert root.trail == ()


def test_ids_are_unique_and_do_not_change() -> None:
    events = lineage(MessageBus()) + lineage(MessageBus())
    ids = [event.event_id for event in events]
    assert len(set(ids)) == len(ids)
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in ids)
    assert ids == [event.event_id for event in events]


def test_ids_are_the_same_in_whatever_order_they_are_asked_for() -> None:
    events = lineage(MessageBus())
    last = [event.event_id for event in reversed(events)]
    assert [event.event_id for event in events] == last[::-1]


def test_a_redelivered_event_makes_the_same_children() -> None:
    bus = MessageBus()
    made: list[str] = []
    bus.subscribe("/A/One", lambda: [bus.publish("/A/Two", {"n": n}) for n in range(2)], name="one")
    bus.subscribe("/A/Two", lambda event: made.append(event.event_id))
    bus.publish("/A/One")
    (again,) = [event for event in bus.history() if event.topic == "/A/One"]
    bus._queue.append(again)
    bus.publish("/A/Nothing")
    assert len(made) == 4
    assert made[:2] == made[2:]


def test_children_of_different_handlers_of_one_event_have_different_ids() -> None:
    bus = MessageBus()
    ids: list[str] = []
    for name in ("one", "two"):
        bus.subscribe("/A/B", lambda: bus.publish("/A/C"), name=name)
    bus.subscribe("/A/C", lambda event: ids.append(event.event_id))
    bus.publish("/A/B")
    assert len(set(ids)) == 2


def test_a_chain_without_end_keeps_a_bounded_number_of_events_alive() -> None:
    bus = MessageBus(max_hops=3000, max_tree=3000, history=0)
    most = 0

    def step(event: Event) -> None:
        nonlocal most
        if event.hops and event.hops % 500 == 0:
            gc.collect()
            most = max(most, sum(isinstance(each, Event) for each in gc.get_objects()))
        bus.publish("/Chain/Step", {"left": [event.hops]})

    bus.subscribe("/Chain/Step", step)
    gc.freeze()  # what other tests have left is not looked at again and again
    bus.publish("/Chain/Step", {"left": [0]})
    assert 0 < most < 200


def test_a_long_chain_keeps_its_correlation_and_its_causes() -> None:
    bus = MessageBus(max_hops=500)
    bus.subscribe("/Chain/Step", lambda: bus.publish("/Chain/Step"))
    bus.publish("/Chain/Step")
    events = bus.history()
    assert {event.correlation_id for event in events} == {events[0].event_id}
    assert [event.causation_id for event in events[1:]] == [event.event_id for event in events[:-1]]


def test_threads_that_ask_for_an_id_at_once_get_the_same() -> None:
    for _ in range(50):
        event = Event("/A/B")
        barrier = threading.Barrier(4)
        ids: list[str] = []

        def ask(event: Event = event, barrier: threading.Barrier = barrier, ids: list[str] = ids) -> None:
            barrier.wait()
            ids.append(event.event_id)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(ids)) == 1


def test_the_history_is_bounded_and_can_be_off() -> None:
    short, none = MessageBus(history=3), MessageBus(history=0)
    for n in range(5):
        short.publish("/A/B", {"n": n})
        none.publish("/A/B", {"n": n})
    assert [event["n"] for event in short.history()] == [2, 3, 4]
    assert none.history() == ()
    assert none.statistics().published == 5
