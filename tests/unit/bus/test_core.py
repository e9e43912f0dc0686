"""The core alone: no thread, no clock, no loop. A test moves it, as the drivers do."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core import Event
from graphbus_core.bus.core import DONE, MOVES, QUEUED, RETRYING, RUNNING, Core, Delivery, DeliveryState
from graphbus_core.bus.outcomes import Dead, Done, Retry
from graphbus_core.bus.routes import Routes
from graphbus_core.errors import BackpressureError
from graphbus_core.model.deliveries import ONCE, DeliveryPolicy
from graphbus_core.model.messages import child_of, count_descendant


def a_core(**limits: int) -> Core:
    routes = Routes(lambda _subscription, _call, _event: None, None, 10)
    return Core(routes, **{"history": 10, "capacity": 3, "mailbox": 2, "max_hops": 2, "max_tree": 3, **limits})


def a_delivery(event: Event, policy: DeliveryPolicy = ONCE) -> Delivery:
    routes = Routes(lambda _subscription, _call, _event: None, None, 10)
    subscription = routes.add("/A/A", lambda event: None, name="Agent.hears", owner="Agent", shape=None, policy=policy)
    return Delivery(subscription.call, subscription.lane, event, subscription)


@given(states=st.lists(st.sampled_from(list(DeliveryState)), min_size=1, max_size=6))
def test_a_delivery_makes_the_moves_of_the_table_and_no_others(states: list[DeliveryState]) -> None:
    delivery = a_delivery(Event("/A/A"))
    for before, after in pairwise([QUEUED, *states]):
        if (before, after) in MOVES:
            delivery.move(after)
            assert delivery.state is after
        else:
            with pytest.raises(AssertionError, match=f"from {before.name} to {after.name}"):
                delivery.move(after)
            return


def test_what_is_done_or_dead_moves_no_more() -> None:
    ends = {state for state in DeliveryState if not any((state, after) in MOVES for after in DeliveryState)}
    assert ends == {DeliveryState.DONE, DeliveryState.DEAD}
    assert {after for _, after in MOVES} | {QUEUED} == set(DeliveryState)
    assert (QUEUED, DONE) not in MOVES
    assert len(MOVES) < len(list(product(DeliveryState, DeliveryState)))


def test_the_turn_is_taken_once() -> None:
    core = a_core()
    assert core.take_turn()
    assert not core.take_turn()
    core.turn.append(None)
    assert core.take_turn()


def test_a_full_queue_refuses_from_outside_and_says_why_to_a_handler() -> None:
    core = a_core()
    root = Event("/A/A")
    for _ in range(3):
        core.accept(root)
    with pytest.raises(BackpressureError):
        core.accept(root)
    assert core.why_refused(1, 1) == ("full", "3 events are already waiting in the queue")


def test_a_chain_and_a_tree_have_an_end_and_what_is_too_deep_does_not_count_for_the_tree() -> None:
    core, root = a_core(), Event("/A/A")
    child = child_of(root, "/A/B", None, "", "a", 0)
    grandchild = child_of(child, "/A/B", None, "", "a", 0)
    too_deep = child_of(grandchild, "/A/B", None, "", "a", 0)
    kin = [count_descendant(each, core.max_hops) for each in (child, grandchild, too_deep)]
    assert kin == [(1, 1), (2, 2), (3, 2)]
    assert core.why_refused(*kin[-1]) == ("hops", "the causal chain has more than 2 events")
    assert count_descendant(child, core.max_hops, on_loop=True) == (1, 3)
    assert core.why_refused(1, 4) == ("tree", "one event has caused more than 3 events")


def test_what_a_handler_has_published_is_queued_when_it_has_finished() -> None:
    core, delivery = a_core(), a_delivery(Event("/A/A"))
    delivery.move(RUNNING)
    outgoing = [Event("/A/B"), Event("/A/C")]
    core.finish(delivery, Done(), outgoing)
    assert list(core.queue) == outgoing
    assert delivery.state is DONE


def test_a_further_attempt_waits_for_its_time_and_is_queued_once() -> None:
    core, delivery = a_core(), a_delivery(Event("/A/A"))
    delivery.move(RUNNING)
    again = delivery.next_attempt("ValueError", 5.0, None)
    core.schedule_retry(again, Retry(7.0), lambda: None)
    assert (again.state, again.attempt, core.next_due()) == (RETRYING, 2, 7.0)
    assert core.queue_due_retry(again)
    assert not core.queue_due_retry(again)
    assert (list(core.queue), core.next_due(), again.state) == ([again], None, QUEUED)


def test_what_is_left_at_the_end_can_be_taken_out_and_its_timers_are_cancelled() -> None:
    core, delivery, cancelled = a_core(), a_delivery(Event("/A/A")), list[str]()
    delivery.move(RUNNING)
    again = delivery.next_attempt("ValueError", 5.0, None)
    core.schedule_retry(again, Retry(7.0), lambda: cancelled.append("timer"))
    core.finish(delivery, Dead("exhausted"), [Event("/A/B")])
    assert [entry.topic for entry in core.left_in_queue() if isinstance(entry, Event)] == ["/A/B"]
    assert list(core.left_to_retry()) == [again]
    assert cancelled == ["timer"]
    assert not core.has_work


def test_a_lane_gives_one_delivery_at_a_time_and_the_next_when_that_has_ended() -> None:
    core = a_core()
    first, second = a_delivery(Event("/A/A")), a_delivery(Event("/A/A"))
    lane = core.lane("Agent")
    for each in (first, second):
        core.place(each, lane)
    assert not core.has_room(lane)
    assert core.next_in_lane() == (first, lane)
    assert core.next_in_lane() is None
    core.leave_lane(first, lane)
    assert core.next_in_lane() == (second, lane)
    core.leave_lane(second, lane)
    assert (first.state, core.under_way, lane.running) == (DONE, {}, 0)
