"""What the drivers do when another thread was quicker: each such moment is made by hand."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import RUNNING, Delivery
from graphbus_core.bus.loop import LoopDriver
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.fakes.pausing import comes_true
from tests.fakes.queued_again import deliver_again
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
    core.begin(first, bus._routes.find("/A/B"))
    sync._deliver_round(first)  # it is not in the queue any more
    core.queue.append(second)
    core.begin(first, bus._routes.find("/A/B"))
    sync._deliver_round(first)  # another one has come
    assert (heard, list(core.queue), core.round.event) == ([], [second], None)
    delivery = sync.queue_entry(first, bus.subscriptions[0])
    assert isinstance(delivery, Delivery)
    sync._process_retry(delivery)
    assert heard == []
    bus.publish("/A/B")
    assert heard == ["heard"] * 2


def test_who_closes_may_empty_the_queue_before_another_thread_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, heard = MessageBus(), list[str]()
    sync, core = bus._sync, bus._core
    bus.subscribe("/A/B", lambda: heard.append("heard"))
    core.queue.append(Event("/A/B"))
    with monkeypatch.context() as patch:
        patch.setattr(sync, "deadline", time.monotonic())
        patch.setattr(sync, "is_late", core.queue.clear)
        sync.drain()
    assert heard == []
    bus.publish("/A/B")
    assert heard == ["heard"]


def test_what_another_thread_delivers_meanwhile_is_counted_when_somebody_unsubscribes() -> None:
    with MessageBus() as bus:
        gone, _ = bus.subscribe("/A/B", lambda: None), bus.subscribe("/A/B", lambda: None)
        bus.publish("/A/B")
        assert bus._core.take_turn()
        bus.unsubscribe(gone)
        bus._core.turn.append(None)
        bus.publish("/A/B")
        assert bus.statistics().delivered == 2


def test_a_handler_that_was_unsubscribed_while_it_ran_gives_no_result() -> None:
    async def leaves() -> str:
        bus.unsubscribe(subscription)
        return "nobody asks for it"

    with MessageBus(dispatcher=True) as bus:
        subscription = bus.subscribe("/A/B", leaves)
        receipt = bus.publish("/A/B")
        assert receipt is not None
        assert receipt.wait(PATIENCE_S)
        assert receipt.results == ()


def test_who_looks_whether_all_is_at_rest_wakes_the_dispatcher_that_found_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphbus_core.bus.waiting._LOOK_AGAIN_S", 10 * PATIENCE_S)
    heard, looked = threading.Event(), threading.Event()
    with MessageBus(dispatcher=True) as bus:
        sync, core = bus._sync, bus._core
        bus.subscribe("/A/B", heard.set)
        has_work = sync.has_work

        def looks() -> bool:
            found = has_work()
            if core.queue:
                looked.set()
            return found

        def another_publishes() -> bool:
            core.queue.append(Event("/A/B"))
            bus._notifier.notify()
            return looked.wait(PATIENCE_S)

        monkeypatch.setattr(sync, "has_work", looks)
        comes_true(lambda: bus._notifier.waiting)
        bus._notifier.notify()  # from now on the dispatcher looks by what stands there now
        assert not sync.is_at_rest(another_publishes)
        assert heard.wait(PATIENCE_S)


def test_of_those_who_look_at_once_whether_all_is_at_rest_nobody_sleeps_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbus_core.bus.waiting._LOOK_AGAIN_S", 10 * PATIENCE_S)
    settled: list[bool] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", lambda: None)
        other = threading.Thread(target=lambda: settled.append(bus.settle()), daemon=True)

        def another_settles() -> bool:
            other.start()
            comes_true(lambda: bus._notifier.waiting and bus._sync._must_notify_at_rest)
            time.sleep(0.01)  # it finds no turn, and sleeps
            return False

        assert not bus._sync.is_at_rest(another_settles)
        other.join(PATIENCE_S)
    assert settled == [True]


def test_who_finds_all_at_rest_delivers_what_another_could_not_deliver_meanwhile() -> None:
    heard: list[str] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", lambda: heard.append("heard"))

        class Turn(list[None]):
            def append(self, token: None) -> None:
                bus._core.turn = bus._core.turn_of_callers = turn
                publishes = threading.Thread(target=lambda: bus.publish("/A/B"))
                publishes.start()  # all was at rest just now, and the turn is not given back yet
                publishes.join(PATIENCE_S)
                turn.append(token)

        turn: list[None] = []
        bus._core.turn = bus._core.turn_of_callers = Turn([None])
        assert bus.settle(PATIENCE_S)
        assert heard == ["heard"]


def test_who_is_interrupted_before_the_loop_is_called_lets_the_next_one_call_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def later() -> None: ...

    def interrupt(_work: object) -> None:
        raise KeyboardInterrupt

    with MessageBus() as bus:
        bus.subscribe("/A/B", later)
        bus.publish("/A/B")  # now the loop is there
        driver = bus._sync.loop
        assert driver is not None
        with monkeypatch.context() as patch:
            patch.setattr(driver.loop, "call_soon_threadsafe", interrupt)
            with pytest.raises(KeyboardInterrupt):
                bus.publish("/A/B")
        next_one = threading.Thread(target=bus.publish, args=("/A/B",), daemon=True)
        next_one.start()
        next_one.join(PATIENCE_S)
        assert not next_one.is_alive()


def test_a_further_attempt_that_somebody_else_has_taken_out_is_not_delivered_nor_missed() -> None:
    async def later() -> None: ...

    with MessageBus() as bus:
        gone, on_loop = bus.subscribe("/A/B", lambda: None), bus.subscribe("/A/C", later)
        bus.unsubscribe(gone)
        for subscription in (gone, on_loop):
            delivery = bus._sync.queue_entry(Event("/A/B"), subscription)
            assert isinstance(delivery, Delivery)
            bus._sync._process_retry(delivery)
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
        call = bus.hosting.caller(lambda _nothing: heard.append("called"))
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
        payload = {"n": [1]}
        assert bus._core.take_turn()
        try:
            bus.publish("/A/B", payload)
            payload["n"].append(2)  # it was copied, since it waits
            assert bus._core.queue[0].payload == {"n": [1]}
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
        assert bus._sync.fill_lanes() is None
        bus._sync.deadline = None
        assert bus._core.take_turn()
        assert bus._sync.fill_lanes() is None
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
        deliver_again(bus, receipt.event, subscription)
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


def test_the_loop_begins_with_nothing_while_the_turn_is_taken_and_skips_who_was_unsubscribed() -> None:
    heard: list[str] = []

    async def later() -> None:
        heard.append("later")

    async def program() -> None:
        async with MessageBus() as bus:
            subscription = bus.subscribe("/A/B", later)
            dispatch = bus._routes.compile("/A/B")
            assert bus._core.take_turn()
            assert bus._core.begin_at_once(Event("/A/B"), dispatch) is None
            bus._core.turn.append(None)
            subscription.is_active = False  # another thread is about to take it out
            skipped: list[Event] = []
            dispatch.pairs[0] = subscription, skipped.append
            bus._core.place_in_lanes(Event("/A/B"), dispatch)
            assert len(skipped) == 1

    asyncio.run(program())
    assert heard == []


def test_who_is_interrupted_before_the_handler_leaves_its_agent_free(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    async def later() -> None:
        heard.append("later")

    def interrupt(_driver: LoopDriver, _delivery: Delivery) -> None:
        raise KeyboardInterrupt

    async def program() -> None:
        async with MessageBus() as bus:
            bus.subscribe("/A/B", later)
            with monkeypatch.context() as patch:
                patch.setattr(LoopDriver, "begin_alone", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    await bus.publish_async("/A/B")
            await bus.publish_async("/A/B")

    asyncio.run(program())
    assert heard == ["later"]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_handler_that_cancels_its_own_task_ends_or_goes_on(is_first: bool, goes_on: bool) -> None:
    log: list[object] = []

    async def cancels(event: Event) -> None:
        if not is_first:
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        if event["n"] == 0:
            task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not goes_on:
                raise
            await asyncio.sleep(0.001)
        log.append(event["n"])

    with MessageBus() as bus:
        bus.subscribe("/A/B", cancels)
        try:
            bus.publish("/A/B", {"n": 0})
        except asyncio.CancelledError:
            log.append("cancelled")
        bus.publish("/A/B", {"n": 1})
    assert log == [0 if goes_on else "cancelled", 1]


@pytest.mark.slow
def test_who_waits_for_a_call_behind_a_handler_that_keeps_the_loop_to_itself_is_told() -> None:
    bus, begun, may_end, told = MessageBus(), threading.Event(), threading.Event(), list[str]()

    async def blocks() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    def call() -> None:
        try:
            bus.run(lambda: "never", owner="Other")
        except RunError as error:
            told.append(error.code)

    bus.subscribe("/A/B", blocks, owner="Agent")
    bus.hosting.use_lane("Other")
    threads = [threading.Thread(target=bus.publish, args=("/A/B",)), threading.Thread(target=call)]
    threads[0].start()
    assert begun.wait(PATIENCE_S)
    threads[1].start()
    while len(bus._core.under_way) < 2:
        time.sleep(0.001)
    bus.close(grace_s=0.01)
    threads[1].join(PATIENCE_S)
    assert told == ["GBE618"]
    may_end.set()
    threads[0].join(PATIENCE_S)


def test_an_event_of_a_topic_that_is_not_admitted_any_more_is_delivered() -> None:
    def admit(topic: str) -> None:
        if topic.startswith("/Old/"):
            raise RunError("GBE619", topic=topic, suggestion="")

    heard: list[str] = []
    with MessageBus(admit=admit) as bus:
        bus.subscribe("/**", lambda event: heard.append(event.topic))
        deliver_again(bus, Event("/Old/Topic"), None)
        assert bus.settle(PATIENCE_S)
        assert heard == ["/Old/Topic"]
        assert bus.statistics().published == bus.statistics().delivered == 1


def test_a_failure_of_a_bus_that_plans_nothing_any_more_is_a_dead_letter() -> None:
    def fail() -> None:
        raise ConnectionError

    with MessageBus() as bus:
        bus.subscribe("/A/B", fail, policy=DeliveryPolicy(retries=3))
        bus._core.close()
        bus.publish("/A/B")
        assert [letter.attempts for letter in bus.dead_letters()] == [1]


def test_what_cannot_be_tried_again_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ConnectionError

    with MessageBus(queue=0) as bus:
        bus.subscribe("/A/B", fail, policy=DeliveryPolicy(retries=3))
        for _ in range(30):
            bus.publish("/A/B")
    assert caplog.text.count("is not retried") == 10


def test_who_gives_up_awaiting_what_came_of_an_event_is_not_told_of_its_end() -> None:
    log: list[str] = []

    async def program() -> None:
        may_end = asyncio.Event()

        async def waits() -> None:
            await may_end.wait()
            log.append("ended")

        async with MessageBus() as bus:
            for owner in ("One", "Two"):
                bus.subscribe("/A/B", waits, owner=owner)
            publisher = asyncio.create_task(bus.publish_async("/A/B"))
            await asyncio.sleep(0.001)
            publisher.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publisher
            may_end.set()
            await asyncio.to_thread(bus.settle)

    asyncio.run(program())
    assert log == ["ended"] * 2


def test_an_async_handler_asks_and_others_hear_it() -> None:
    heard: list[object] = []

    async def asks() -> None:
        heard.append(await bus.request("/Stock/Left"))

    async def answers() -> int:
        return 3

    with MessageBus() as bus:
        bus.subscribe("/A/B", asks)
        bus.subscribe("/Stock/Left", answers)
        bus.subscribe("/Stock/*", lambda event: heard.append(event.topic))
        bus.publish("/A/B")
    assert sorted(map(str, heard)) == ["/Stock/Left", "3"]


def test_counts_of_topics_that_are_compiled_anew_are_kept_and_do_not_become_more_and_more() -> None:
    with MessageBus() as bus:
        first = bus.subscribe("/A/B", lambda: None, name="first")
        for _ in range(120):
            bus.publish("/A/B")
            bus.subscribe("/A/C", lambda: None)
            bus.subscribe("/A/*", lambda: None)
        assert len(bus._routes._forgotten) <= 102
        assert bus.statistics().subscriptions["first <- /A/B"].delivered == 120
        bus.unsubscribe(first)
        assert first.delivered == 120


def test_what_comes_while_somebody_only_looks_is_delivered_by_another_thread() -> None:
    heard = threading.Event()
    with MessageBus() as bus:
        bus.subscribe("/A/B", heard.set)
        assert bus._core.take_turn()
        bus.publish("/A/B")
        assert not heard.is_set()
        bus._core.turn.append(None)
        bus._sync.wake_after_change()
        assert heard.wait(PATIENCE_S)
        assert bus.settle(PATIENCE_S)
