"""Publishing from other threads is safe: nothing is lost, nothing overlaps, nobody waits for ever."""

from __future__ import annotations

import threading
import time

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from tests.patience import PATIENCE_S


def in_threads(count: int, work) -> None:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_no_event_of_many_threads_is_lost_and_no_two_handlers_overlap() -> None:
    bus = MessageBus(history=0)
    running = overlaps = 0
    seen: list[tuple[int, int]] = []

    def handler(event: Event) -> None:
        nonlocal running, overlaps
        running += 1
        overlaps += running > 1
        seen.append((event["thread"], event["n"]))
        if event["thread"] >= 0 and event["n"] % 10 == 0:
            bus.publish("/A/Nested", {"thread": -1, "n": 0})
        running -= 1

    bus.subscribe("/A/*", handler)
    in_threads(6, lambda number: [bus.publish("/A/B", {"thread": number, "n": n}) for n in range(300)])
    bus.close()
    assert overlaps == 0
    assert len(seen) == 6 * 300 + 6 * 30
    for number in range(6):
        assert [n for thread, n in seen if thread == number] == list(range(300))


def test_a_publish_from_another_thread_during_a_delivery_only_queues() -> None:
    bus = MessageBus()
    log: list[str] = []

    def handler() -> None:
        other = threading.Thread(target=lambda: (bus.publish("/A/Other"), log.append("published")))
        other.start()
        other.join(PATIENCE_S)
        log.append("handler ends")

    bus.subscribe("/A/B", handler)
    bus.subscribe("/A/Other", lambda event: log.append(f"other, {event.hops} hops"))
    bus.publish("/A/B")
    assert log == ["published", "handler ends", "other, 0 hops"]


def test_work_of_another_thread_waits_for_its_turn_and_gives_its_result() -> None:
    bus = MessageBus()
    log: list[str] = []
    is_inside, may_end = threading.Event(), threading.Event()

    def handler() -> None:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        log.append("handler")

    bus.subscribe("/A/B", handler)
    publisher = threading.Thread(target=lambda: bus.publish("/A/B"), daemon=True)
    publisher.start()
    assert is_inside.wait(PATIENCE_S)
    threading.Timer(0.05, may_end.set).start()
    assert bus.run(lambda: log.append("work") or 7) == 7
    publisher.join(PATIENCE_S)
    assert log == ["handler", "work"]


def test_work_that_fails_raises_where_it_was_asked_for_and_hurts_nobody_else() -> None:
    bus = MessageBus()
    with pytest.raises(ZeroDivisionError):
        bus.run(lambda: 1 // 0)
    log: list[str] = []
    bus.subscribe("/A/B", lambda: log.append("b"))
    bus.publish("/A/B")
    assert log == ["b"]


def test_what_work_publishes_is_delivered_before_it_returns_but_after_it_ended() -> None:
    bus = MessageBus()
    log: list[str] = []
    bus.subscribe("/A/B", lambda: log.append("b"))
    bus.run(lambda: (bus.publish("/A/B"), log.append("work ends")))
    assert log == ["work ends", "b"]


def test_work_inside_a_handler_runs_at_once() -> None:
    bus = MessageBus()
    log: list[object] = []
    bus.subscribe("/A/B", lambda: log.append(bus.run(lambda: "inside")))
    bus.publish("/A/B")
    assert log == ["inside"]


def test_work_that_is_interrupted_in_another_thread_does_not_wait_for_ever() -> None:
    bus = MessageBus()
    outcome: list[object] = []

    def leave() -> None:
        raise SystemExit

    def handler() -> None:
        waiting = threading.Thread(target=ask, daemon=True)
        waiting.start()
        while not bus.statistics().queued:
            time.sleep(0.001)
        threads.append(waiting)

    def ask() -> None:
        try:
            bus.run(leave)
        except RunError as error:
            outcome.append(error.code)

    threads: list[threading.Thread] = []
    bus.subscribe("/A/B", handler)
    with pytest.raises(SystemExit):
        bus.publish("/A/B")
    threads[0].join(PATIENCE_S)
    assert outcome == ["GBE618"]
    bus.publish("/A/B2")
    assert bus.statistics().queued == 0


def test_work_that_nobody_waits_for_any_more_is_not_done_later() -> None:
    bus = MessageBus()
    log: list[str] = []

    def stop() -> None:
        raise KeyboardInterrupt

    bus.subscribe("/A/Stop", stop)
    bus._queue.append(Event("/A/Stop"))
    with pytest.raises(KeyboardInterrupt):
        bus.run(lambda: log.append("done late"))
    bus.publish("/A/B")
    assert log == []
    assert bus.statistics().queued == 0


def test_subscribing_and_publishing_at_once_loses_no_subscription() -> None:
    bus = MessageBus(history=0)
    stop = threading.Event()

    def publish(_number: int) -> None:
        while not stop.is_set():
            bus.publish("/A/B")

    publisher = threading.Thread(target=publish, args=(0,), daemon=True)
    publisher.start()
    heard: list[int] = []
    for number in range(200):
        bus.subscribe("/A/B", lambda number=number: heard.append(number))
    stop.set()
    publisher.join(PATIENCE_S)
    heard.clear()
    bus.publish("/A/B")
    assert heard == list(range(200))


def test_an_event_that_another_thread_queues_while_the_turn_ends_is_not_left_behind() -> None:
    bus = MessageBus()
    heard: list[str] = []

    class Late(list[None]):
        def append(self, token: None) -> None:
            if not heard:
                bus._queue.append(Event("/A/Late"))
            super().append(token)

    bus.subscribe("/A/Late", lambda: heard.append("late"))
    bus._core.turn = bus._core.turn_of_callers = Late([None])
    bus.publish("/A/B")
    assert heard == ["late"]
