"""First in, first out, run to completion: one total order for all handlers."""

from __future__ import annotations

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus

Log = list[tuple[str, object]]


@pytest.fixture
def log() -> Log:
    return []


def recorder(log: Log, name: str):
    return lambda event: log.append((name, event["n"]))


def test_handlers_are_called_in_the_order_of_their_subscriptions(log: Log) -> None:
    bus = MessageBus()
    for name in ("first", "second", "third"):
        bus.subscribe("/A/B", recorder(log, name))
    bus.publish("/A/B", {"n": 1})
    assert [name for name, _ in log] == ["first", "second", "third"]


def test_a_publish_inside_a_handler_is_delivered_after_the_handler_returns() -> None:
    bus = MessageBus()
    log = []

    def outer(event: Event) -> None:
        log.append("outer begins")
        bus.publish("/In/Ner")
        log.append("outer ends")

    bus.subscribe("/Out/Er", outer)
    bus.subscribe("/In/Ner", lambda: log.append("inner"))
    bus.publish("/Out/Er")
    assert log == ["outer begins", "outer ends", "inner"]


def test_what_a_handler_publishes_comes_after_the_other_handlers_of_its_own_event(log: Log) -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", lambda event: bus.publish("/A/C", {"n": event["n"] + 1}))
    bus.subscribe("/A/B", recorder(log, "b"))
    bus.subscribe("/A/C", recorder(log, "c"))
    bus.publish("/A/B", {"n": 1})
    assert log == [("b", 1), ("c", 2)]


def test_all_subscribers_see_the_events_in_the_same_order(log: Log) -> None:
    bus = MessageBus()
    bus.subscribe("/A/Start", lambda: [bus.publish(f"/A/{n % 2}", {"n": n}) for n in range(20)])
    bus.subscribe("/A/0", recorder(log, "x"))
    bus.subscribe("/A/*", lambda event: log.append(("y", event.get("n"))))
    bus.subscribe("/A/1", recorder(log, "x"))
    bus.publish("/A/Start")
    assert [n for name, n in log if name == "x"] == list(range(20))
    assert [n for name, n in log if name == "y"] == [None, *range(20)]


def test_the_outermost_publish_returns_when_all_is_quiet() -> None:
    bus = MessageBus()
    seen = []
    bus.subscribe("/Count/Down", lambda n: seen.append(n) or (n and bus.publish("/Count/Down", {"n": n - 1})))
    bus.publish("/Count/Down", {"n": 5})
    assert seen == [5, 4, 3, 2, 1, 0]
    assert bus.statistics().queued == 0


def test_a_handler_is_never_entered_again_while_it_runs() -> None:
    bus = MessageBus()
    depth = deepest = 0

    def handler(event: Event) -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        if event["n"]:
            bus.publish("/A/B", {"n": event["n"] - 1})
        depth -= 1

    bus.subscribe("/A/B", handler)
    bus.publish("/A/B", {"n": 10})
    assert deepest == 1


@pytest.mark.slow
def test_a_chain_of_a_hundred_thousand_events_needs_no_stack() -> None:
    hops = 100_000
    bus = MessageBus(max_hops=hops, max_tree=hops, history=0)
    seen = 0

    def step(event: Event) -> None:
        nonlocal seen
        seen += 1
        if event["left"]:
            bus.publish("/Chain/Step", {"left": event["left"] - 1})

    bus.subscribe("/Chain/Step", step)
    bus.publish("/Chain/Step", {"left": hops})
    assert seen == hops + 1
    assert bus.dead_letters() == ()


def test_a_handler_that_is_subscribed_during_a_delivery_gets_the_next_event() -> None:
    bus = MessageBus()
    log = []

    def first(event: Event) -> None:
        bus.subscribe("/A/B", lambda event: log.append(event["n"]))

    subscription = bus.subscribe("/A/B", first)
    bus.publish("/A/B", {"n": 1})
    bus.unsubscribe(subscription)
    bus.publish("/A/B", {"n": 2})
    assert log == [2]


def test_a_handler_that_is_unsubscribed_during_a_delivery_is_not_called_any_more(log: Log) -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", lambda: bus.unsubscribe(later))
    bus.subscribe("/A/B", recorder(log, "stays"))
    later = bus.subscribe("/A/B", recorder(log, "goes"))
    bus.publish("/A/B", {"n": 1})
    bus.publish("/A/B", {"n": 2})
    assert log == [("stays", 1), ("stays", 2)]
    assert later.delivered == 0


def test_a_handler_that_unsubscribes_itself_is_called_once_and_disturbs_nobody(log: Log) -> None:
    bus = MessageBus()

    def once(event: Event) -> None:
        log.append(("once", event["n"]))
        bus.unsubscribe(own)
        bus.unsubscribe(own)

    own = bus.subscribe("/A/B", once)
    bus.subscribe("/A/B", recorder(log, "always"))
    bus.publish("/A/B", {"n": 1})
    bus.publish("/A/B", {"n": 2})
    assert log == [("once", 1), ("always", 1), ("always", 2)]
    assert own.delivered == 1
    assert [each.name for each in bus.subscriptions] == [recorder(log, "").__qualname__]


def test_unsubscribing_from_another_topic_during_a_delivery_counts_nothing_wrong() -> None:
    bus = MessageBus()
    other = bus.subscribe("/A/Other", lambda: None, name="other")
    bus.subscribe("/A/B", lambda: bus.unsubscribe(other), name="b")
    bus.publish("/A/Other")
    bus.publish("/A/B")
    assert other.delivered == 1
    assert bus.statistics().published == 2
