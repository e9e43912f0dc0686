"""What the drivers do when another thread was quicker: each such moment is made by hand."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import RUNNING, Delivery
from tests.patience import PATIENCE_S


def test_what_is_queued_when_all_is_over_is_a_dead_letter() -> None:
    bus = MessageBus()
    bus.close()
    bus._publisher.accept(Event("/A/B"))
    assert [letter.reason for letter in bus.dead_letters()] == ["closed"]


def test_who_closes_may_empty_the_queue_while_another_thread_takes_from_it() -> None:
    bus, heard = MessageBus(), list[str]()
    sync, core = bus._sync, bus._core
    bus.subscribe("/A/B", lambda: heard.append("heard"))
    first, second = Event("/A/B"), Event("/A/B")
    assert sync._take_next(), "there is nothing to take"
    core.begin(first, bus._routes.find("/A/B"))
    sync._go_on(first)  # it is not in the queue any more
    core.queue.append(second)
    core.begin(first, bus._routes.find("/A/B"))
    sync._go_on(first)  # another one has come
    assert (heard, list(core.queue), core.round.event) == ([], [second], None)
    delivery = sync.entry(first, bus.subscriptions[0])
    assert isinstance(delivery, Delivery)
    sync._take_again(delivery)
    assert heard == []
    bus.publish("/A/B")
    assert heard == ["heard"] * 2


def test_a_further_attempt_that_somebody_else_has_taken_out_is_not_delivered_nor_missed() -> None:
    async def later() -> None: ...

    with MessageBus() as bus:
        gone, on_loop = bus.subscribe("/A/B", lambda: None), bus.subscribe("/A/C", later)
        bus.unsubscribe(gone)
        for subscription in (gone, on_loop):
            delivery = bus._sync.entry(Event("/A/B"), subscription)
            assert isinstance(delivery, Delivery)
            bus._sync._take_again(delivery)
        assert bus.dead_letters() == ()
        assert not bus._core.under_way


def test_the_turn_may_be_taken_between_looking_and_taking(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(list[None]):
        def __bool__(self) -> bool:
            return True

    with MessageBus() as bus:
        heard: list[str] = []
        bus.subscribe("/A/B", lambda: heard.append("heard"))
        bus.publish("/A/B")
        turn = bus._core.turn
        bus._core.turn_of_callers = Gone()
        bus._core.turn = []
        bus.publish("/A/B")
        call = bus.caller(lambda _nothing: heard.append("called"))
        bus._core.turn = bus._core.turn_of_callers = turn
        bus._sync.drain_if_free()
        assert heard == ["heard"] * 2
        bus._core.turn_of_callers = Gone()
        call(None)
        bus._core.turn_of_callers = turn
        assert heard == ["heard", "heard", "called"]


def test_a_thread_that_finds_the_turn_taken_leaves_its_event_to_who_has_it() -> None:
    async def later() -> None: ...

    with MessageBus() as bus:
        bus.subscribe("/A/B", later)
        bus.publish("/A/B")
        dispatch = bus._routes.find("/A/B")
        assert bus._core.take_turn()
        try:
            bus._publisher._publish_and_wait(dispatch, "/A/B", None, "")
            assert not bus._sync.is_quiet()
            bus.subscribe("/A/C", later)  # its counts are settled by who has the turn
        finally:
            bus._core.turn.append(None)
        assert bus.settle(PATIENCE_S)
        assert bus.statistics().published == 2


def test_an_event_for_a_full_lane_of_an_abandoned_bus_is_a_dead_letter() -> None:
    async def later() -> None: ...

    bus = MessageBus()
    bus.subscribe("/A/B", later, name="later")
    bus._sync.is_abandoned = True
    bus.publish("/A/B")
    assert [(each.reason, each.subscription) for each in bus.dead_letters()] == [("closed", "later")]
    bus._sync.is_abandoned = False
    bus.close()


def test_a_bus_that_is_late_or_whose_turn_is_taken_fills_no_lane() -> None:
    async def later() -> None: ...

    with MessageBus() as bus:
        bus.subscribe("/A/B", later)
        bus.publish("/A/B")
        bus._core.queue.append(Event("/A/B"))
        bus._sync.deadline = time.monotonic() - 1
        assert bus._sync.fill() is None
        bus._sync.deadline = None
        assert bus._core.take_turn()
        assert bus._sync.fill() is None
        bus._core.turn.append(None)
        assert len(bus._core.queue) == 1
        assert bus.settle(PATIENCE_S)


def test_what_nobody_hears_leaves_nobody_asleep_on_the_loop() -> None:
    async def program() -> None:
        async with MessageBus() as bus:

            async def publishes() -> None:
                await asyncio.sleep(0)
                bus.publish("/No/Body")

            bus.subscribe("/A/B", publishes)
            settled = asyncio.create_task(asyncio.to_thread(bus.settle))
            await bus.publish_async("/A/B")
            assert await settled

    asyncio.run(program())


def test_what_is_delivered_again_while_somebody_follows_it_is_followed_too() -> None:
    begun, may_end = threading.Event(), threading.Event()
    heard: list[str] = []

    def first(event: Event) -> None:
        heard.append(event.event_id)
        begun.set()
        may_end.wait(PATIENCE_S)

    with MessageBus(dispatcher=True) as bus:
        subscription = bus.subscribe("/A/B", first)
        receipt = bus.publish("/A/B")
        assert receipt is not None
        assert begun.wait(PATIENCE_S)
        bus.deliver_again(receipt.event, subscription)
        may_end.set()
        assert receipt.wait(PATIENCE_S)
    assert heard == [receipt.event.event_id] * 2
    assert len(receipt.results) == 2


def test_a_delivery_that_nobody_has_begun_is_not_resumed() -> None:
    async def later() -> None: ...

    async def program() -> None:
        async with MessageBus() as bus:
            subscription = bus.subscribe("/A/B", later)
            await bus.publish_async("/A/B")
            (worker,) = subscription.mailbox.idle
            before = worker.resume(None, None)
            assert before is worker.resume(None, None)
            worker.cancel()

    asyncio.run(program())


def test_a_delivery_in_a_lane_is_running_from_its_first_step() -> None:
    states: list[object] = []

    async def program() -> None:
        async with MessageBus() as bus:

            async def hears() -> None:
                states.extend(each.state for each in bus._core.under_way)

            bus.subscribe("/A/B", hears)
            await bus.publish_async("/A/B")
            bus.publish("/A/B")

    asyncio.run(program())
    assert states == [RUNNING] * 2
