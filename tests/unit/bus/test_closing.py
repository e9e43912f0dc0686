"""The end of a bus: nothing new, everything old, and nothing dropped in silence."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from tests.patience import PATIENCE_S


def test_a_closed_bus_refuses_events() -> None:
    bus = MessageBus()
    bus.publish("/A/B")
    bus.close()
    with pytest.raises(RunError) as refused:
        bus.publish("/A/B")
    assert refused.value.code == "GBE615"


def test_closing_twice_is_closing_once() -> None:
    calls: list[str] = []
    bus = MessageBus()
    bus.close(last=lambda: calls.append("last"))
    bus.close(last=lambda: calls.append("again"))
    assert calls == ["last"]


def test_who_is_interrupted_before_the_bus_closes_may_close_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    heard: list[int] = []
    bus = MessageBus()
    bus.subscribe("/A/B", lambda event: heard.append(event["n"]))
    bus._core.queue.append(Event("/A/B", {"n": 1}))
    with monkeypatch.context() as patch:
        patch.setattr(bus._routes, "stop_caching", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bus.close()
    bus.close()
    assert heard == [1]


def test_leaving_the_with_statement_closes() -> None:
    with MessageBus() as bus:
        bus.publish("/A/B")
    with pytest.raises(RunError):
        bus.publish("/A/B")


def test_what_waits_is_delivered_with_everything_that_comes_of_it() -> None:
    bus = MessageBus()
    log: list[str] = []

    def interrupt() -> None:
        bus.publish("/A/Waiting")
        raise KeyboardInterrupt

    bus.subscribe("/A/B", interrupt)
    bus.subscribe("/A/Waiting", lambda: (log.append("waiting"), bus.publish("/A/New/Topic")))
    bus.subscribe("/A/New/Topic", lambda: log.append("child"))
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close(last=lambda: log.append("last"))
    assert log == ["waiting", "child", "last"]
    assert bus.dead_letters() == ()


def test_what_is_not_delivered_in_time_is_a_dead_letter() -> None:
    bus = MessageBus()

    def interrupt() -> None:
        for n in range(3):
            bus.publish("/A/Waiting", {"n": n})
        raise KeyboardInterrupt

    bus.subscribe("/A/B", interrupt)
    bus.subscribe("/A/Waiting", lambda: time.sleep(0.06))
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close(grace_s=0.05)
    assert [(letter.reason, letter.event["n"]) for letter in bus.dead_letters()] == [("closed", 1), ("closed", 2)]


def test_an_async_handler_that_takes_too_long_is_cancelled_and_its_events_are_dead_letters() -> None:
    bus = MessageBus()
    log: list[str] = []

    async def slow(event: Event) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    bus.subscribe("/A/B", slow, name="Agent.slow")
    threads = [threading.Thread(target=bus.publish, args=("/A/B", {"n": n}), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    while bus.statistics().published < 2:
        time.sleep(0.001)
    started = time.monotonic()
    bus.close(grace_s=0.05)
    assert time.monotonic() - started < PATIENCE_S
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert log == ["cancelled"]
    letters = bus.dead_letters()
    assert [(letter.reason, letter.subscription) for letter in letters] == [("closed", "Agent.slow")] * 2


def test_a_handler_that_does_not_return_does_not_keep_the_bus_from_closing() -> None:
    bus = MessageBus()
    may_end, is_inside = threading.Event(), threading.Event()
    log: list[str] = []

    def stuck() -> None:
        is_inside.set()
        may_end.wait(PATIENCE_S)

    bus.subscribe("/A/B", stuck)
    publisher = threading.Thread(target=bus.publish, args=("/A/B",), daemon=True)
    publisher.start()
    assert is_inside.wait(PATIENCE_S)
    threading.Thread(target=bus.publish, args=("/A/C", {"n": 1}), daemon=True).start()
    while not bus.statistics().queued:
        time.sleep(0.001)
    bus.close(grace_s=0.05, last=lambda: log.append(bus.run(lambda: "last", owner="Agent")))
    assert log == ["last"]
    assert [letter.event.topic for letter in bus.dead_letters()] == ["/A/B", "/A/C"]
    may_end.set()
    publisher.join(PATIENCE_S)
    assert not publisher.is_alive()


def test_a_handler_cannot_close_the_bus_that_calls_it() -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", lambda event: bus.close())
    bus.publish("/A/B")
    assert "[GBE627]" in bus.dead_letters()[0].error


def test_the_loop_still_runs_for_the_last_call() -> None:
    async def last() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    bus = MessageBus()
    bus.hosting.use_lane("Agent")
    names: list[object] = []
    bus.close(last=lambda: names.append(bus.run(last, owner="Agent")))
    assert names == ["graphbus-loop"]
    assert "graphbus-loop" not in {thread.name for thread in threading.enumerate()}


def test_a_call_that_waits_for_a_cancelled_method_is_refused() -> None:
    bus = MessageBus()
    bus.hosting.use_lane("Agent")
    codes: list[str] = []

    def ask() -> None:
        try:
            bus.run(lambda: asyncio.sleep(60), owner="Agent")
        except RunError as error:
            codes.append(error.code)

    waiting = threading.Thread(target=ask, daemon=True)
    waiting.start()
    while not bus._core.under_way:
        time.sleep(0.001)
    bus.close(grace_s=0.01)
    waiting.join(PATIENCE_S)
    assert codes == ["GBE618"]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_the_grace_ends_for_async_handlers_of_the_thread_that_closes() -> None:
    bus = MessageBus()

    async def slow(event: Event) -> None:
        await asyncio.sleep(60)

    bus.subscribe("/A/B", slow, name="Agent.slow")
    bus.subscribe("/A/B", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close(grace_s=0.05)
    assert [(letter.reason, letter.subscription) for letter in bus.dead_letters()] == [("closed", "Agent.slow")]


def test_a_handler_that_is_cancelled_while_it_awaits_work_lets_the_work_end() -> None:
    bus = MessageBus()
    is_working, may_end = threading.Event(), threading.Event()

    def work() -> None:
        is_working.set()
        may_end.wait(PATIENCE_S)

    async def ask(event: Event) -> None:
        await bus.run(work)

    bus.subscribe("/A/B", ask, name="Agent.ask")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",), daemon=True)
    publisher.start()
    assert is_working.wait(PATIENCE_S)
    threading.Timer(0.3, may_end.set).start()
    bus.close(grace_s=0.01)
    publisher.join(PATIENCE_S)
    assert not publisher.is_alive()
    assert [letter.reason for letter in bus.dead_letters()] == ["closed"]


@pytest.mark.slow
def test_an_async_handler_that_blocks_the_loop_is_left_behind() -> None:
    bus = MessageBus()
    may_end, is_inside = threading.Event(), threading.Event()

    async def blocking(event: Event) -> None:
        is_inside.set()
        may_end.wait(2 * PATIENCE_S)  # what GB310 warns of

    bus.subscribe("/A/B", blocking)
    publisher = threading.Thread(target=bus.publish, args=("/A/B",), daemon=True)
    publisher.start()
    assert is_inside.wait(PATIENCE_S)
    started = time.monotonic()
    bus.close(grace_s=0.01)
    assert time.monotonic() - started < PATIENCE_S
    assert [letter.reason for letter in bus.dead_letters()] == ["closed"]
    may_end.set()
    publisher.join(PATIENCE_S)
    assert not publisher.is_alive()
