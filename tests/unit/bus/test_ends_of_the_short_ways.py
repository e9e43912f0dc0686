"""What a publish and a call owe to others when they end, although neither has been in the queue.

How long a missed ring would cost is made so long here that who is not woken is found asleep.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus, waiting
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _nobody_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_AGAIN_S", 100 * PATIENCE_S)


@pytest.fixture
def bus() -> Iterator[MessageBus]:
    with MessageBus() as bus:
        yield bus


def publishing(bus: MessageBus, work: Callable[[], object]) -> Callable[[], object]:
    """A publish in whose only handler the work is done."""
    bus.subscribe("/A/A", lambda event: work(), name="only")
    return lambda: bus.publish("/A/A")


def publishing_to_several(bus: MessageBus, work: Callable[[], object]) -> Callable[[], object]:
    bus.subscribe("/A/A", lambda event: None, name="first")
    return publishing(bus, work)


def calling(bus: MessageBus, work: Callable[[], object]) -> Callable[[], object]:
    """A call that does the work."""
    call: Callable[[Any], object] = bus.hosting.caller(lambda _nothing: work(), owner="Plain")
    return lambda: call(None)


WAYS = pytest.mark.parametrize("way", [publishing, publishing_to_several, calling])
Way = Callable[[MessageBus, Callable[[], object]], Callable[[], object]]


@WAYS
def test_who_settles_meanwhile_is_woken_at_the_end(bus: MessageBus, way: Way) -> None:
    settled = threading.Thread(target=bus.settle, daemon=True)

    def let_another_settle() -> None:
        settled.start()
        while not bus._notifier.waiting:
            pass

    way(bus, let_another_settle)()
    settled.join(PATIENCE_S)
    assert not settled.is_alive(), "it was not told that all is quiet"


@WAYS
def test_what_another_thread_publishes_meanwhile_is_delivered_before_the_end(bus: MessageBus, way: Way) -> None:
    heard: list[str] = []
    bus.subscribe("/B/B", lambda event: heard.append(event.topic), name="late")

    def let_another_publish() -> None:
        other = threading.Thread(target=bus.publish, args=("/B/B",))
        other.start()
        other.join()  # it only queues
        assert heard == []

    way(bus, let_another_publish)()
    assert heard == ["/B/B"]


@WAYS
def test_an_async_handler_of_what_came_of_it_has_ended_at_the_end(bus: MessageBus, way: Way) -> None:
    ended: list[str] = []

    async def on_child(event: Event) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        ended.append(event.topic)

    bus.subscribe("/B/B", on_child, name="async")
    way(bus, lambda: bus.publish("/B/B"))()
    assert ended == ["/B/B"]


@WAYS
def test_an_async_handler_that_was_under_way_before_is_not_waited_for(bus: MessageBus, way: Way) -> None:
    begun, may_end, done = threading.Event(), threading.Event(), threading.Event()

    async def on_long(event: Event) -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE_S)

    bus.subscribe("/Long/Work", on_long, name="long")
    before = threading.Thread(target=bus.publish, args=("/Long/Work",))
    before.start()
    assert begun.wait(PATIENCE_S)
    go = way(bus, lambda: None)

    def go_and_tell() -> None:
        go()
        done.set()

    later = threading.Thread(target=go_and_tell)
    later.start()
    is_done_before = done.wait(PATIENCE_S)
    may_end.set()
    before.join()
    later.join()
    assert is_done_before, "it has waited for what others had brought about"


def test_a_round_that_was_interrupted_is_ended_before_a_call_runs(bus: MessageBus) -> None:
    heard: list[str] = []

    def stop(event: Event) -> None:
        heard.append("stops")
        raise KeyboardInterrupt

    bus.subscribe("/A/A", stop, name="stops")
    bus.subscribe("/A/A", lambda event: heard.append("rest"), name="rest")
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/A")
    bus.hosting.caller(lambda _nothing: heard.append("called"), owner="Plain")(None)
    assert heard == ["stops", "rest", "called"]


def test_who_was_called_may_be_asked_by_what_came_of_the_call(bus: MessageBus) -> None:
    answers: list[object] = []
    bus.subscribe("/A/Asked", lambda event: "answer", name="Plain.on_asked", owner="Plain")
    bus.subscribe("/A/Child", lambda event: answers.append(bus.request("/A/Asked")), name="Other.asks", owner="Other")
    bus.hosting.caller(lambda _nothing: bus.publish("/A/Child"), owner="Plain")(None)
    assert bus.dead_letters() == ()
    assert answers == ["answer"]


def test_who_waits_for_room_is_woken_when_there_is_room_and_not_when_all_is_done() -> None:
    last, given_up = 4, threading.Event()
    with MessageBus(mailbox=1) as bus:

        async def until_the_next_is_here(event: Event) -> None:
            while True:
                await asyncio.sleep(0.001)
                if event["n"] == last or (subscription.mailbox and subscription.mailbox.box) or given_up.is_set():
                    return

        subscription = bus.subscribe("/B/B", until_the_next_is_here, name="slow")
        bus.subscribe("/A/A", lambda event: [bus.publish("/B/B", {"n": n}) for n in range(last + 1)], name="many")
        publisher = threading.Thread(target=bus.publish, args=("/A/A",), daemon=True)
        publisher.start()
        publisher.join(PATIENCE_S)
        is_asleep = publisher.is_alive()
        given_up.set()
        assert not is_asleep, "it was not told that a mailbox has room again"
        assert bus.statistics().subscriptions["slow <- /B/B"].delivered == last + 1


def test_a_dispatcher_is_woken_by_an_event_from_outside() -> None:
    with MessageBus(dispatcher=True) as bus:
        bus.subscribe("/A/A", lambda event: None, name="only")
        for _ in range(20):
            receipt = bus.publish("/A/A")
            assert receipt is not None
            assert receipt.wait(PATIENCE_S), "nobody was told that an event waits"
            while not bus._notifier.waiting:
                pass


def test_a_plain_handler_on_the_loop_that_is_unsubscribed_while_its_event_waits_is_not_called(bus: MessageBus) -> None:
    heard: list[str] = []

    async def first(event: Event) -> None:
        bus.unsubscribe(second)

    bus.subscribe("/A/A", first, name="Agent.first", owner="Agent")
    second = bus.subscribe("/A/A", lambda event: heard.append("second"), name="Agent.second", owner="Agent")
    bus.subscribe("/A/A", lambda event: heard.append("third"), name="Agent.third", owner="Agent")
    bus.publish("/A/A")
    assert heard == ["third"]
