"""When the grace is over: what is in hand, what comes late, and who waits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import DeadLetterFile, DeadLetterKeeper
from tests.patience import PATIENCE_S


class Stuck:
    """A handler that does not end before it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.has_begun.set()
        self.may_end.wait(PATIENCE_S)


def letters(bus: MessageBus) -> list[tuple[str, str, str]]:
    return [(letter.event.topic, letter.subscription, letter.reason) for letter in bus.dead_letters()]


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("dispatcher", [False, True])
def test_an_event_in_hand_is_a_dead_letter_for_the_handler_that_does_not_end_and_those_after_it(
    dispatcher: bool,
) -> None:
    bus, stuck, log = MessageBus(dispatcher=dispatcher), Stuck(), list[str]()
    bus.subscribe("/A/B", lambda: log.append("first"), name="first")
    bus.subscribe("/A/B", stuck, name="stuck")
    bus.subscribe("/A/B", lambda: log.append("third"), name="third")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02)
    assert letters(bus) == [("/A/B", "stuck", "closed"), ("/A/B", "third", "closed")]
    stuck.may_end.set()
    publisher.join(PATIENCE_S)
    assert log == ["first"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_letter_tells_a_handler_that_had_begun_from_one_that_had_not(is_async: bool) -> None:
    bus, stuck = MessageBus(), Stuck()

    async def sleeping() -> None:
        stuck.has_begun.set()
        await asyncio.sleep(PATIENCE_S)

    bus.subscribe("/A/B", sleeping if is_async else stuck, name="first", owner="one")
    bus.subscribe("/A/B", sleeping if is_async else stuck, name="second", owner="one")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02)
    stuck.may_end.set()
    publisher.join(PATIENCE_S)
    told = {letter.subscription: (letter.attempts, letter.error.partition("; ")[0]) for letter in bus.dead_letters()}
    assert told == {
        "first": (1, "the bus was closed before the handler returned"),
        "second": (0, "the bus was closed before it was delivered"),
    }


def test_what_was_not_delivered_is_logged_with_its_handler_and_its_id(caplog: pytest.LogCaptureFixture) -> None:
    bus, stuck = MessageBus(), Stuck()
    bus.subscribe("/A/B", stuck, name="stuck")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02)
    stuck.may_end.set()
    publisher.join(PATIENCE_S)
    (letter,) = bus.dead_letters()
    assert f"/A/B (event {letter.event.event_id}) was not delivered to stuck: " in caplog.text


def test_what_a_handler_that_was_left_behind_publishes_is_a_dead_letter() -> None:
    bus, stuck = MessageBus(), Stuck()

    def late() -> None:
        stuck()
        bus.publish("/A/Late")

    bus.subscribe("/A/B", late, name="late")
    bus.publish("/A/Known")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02)
    stuck.may_end.set()
    publisher.join(PATIENCE_S)
    assert letters(bus) == [("/A/B", "late", "closed"), ("/A/Late", "", "closed")]


def test_handlers_that_an_interruption_has_kept_from_their_turn_have_it_before_the_end() -> None:
    bus, log = MessageBus(), list[str]()
    bus.subscribe("/A/B", interrupt)
    bus.subscribe("/A/B", lambda: log.append("second"))
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close()
    assert log == ["second"]


def test_without_any_grace_they_are_dead_letters() -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", interrupt)
    bus.subscribe("/A/B", lambda: None, name="second")
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close(grace_s=0)
    assert letters(bus) == [("/A/B", "second", "closed")]


def test_a_handler_that_ends_the_process_while_the_bus_closes_keeps_nothing_from_being_done() -> None:
    bus, log = MessageBus(), list[str]()

    def leave(event: Event) -> None:
        log.append(event["n"])
        raise SystemExit(3)

    def begin() -> None:
        for n in "12":
            bus.publish("/A/Leave", {"n": n})
        raise KeyboardInterrupt

    bus.subscribe("/A/B", begin)
    bus.subscribe("/A/Leave", leave)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    with pytest.raises(SystemExit):
        bus.close(last=lambda: log.append("last"))
    assert log == ["1", "2", "last"]


def test_an_impatient_person_ends_the_grace_and_nothing_else() -> None:
    bus, log = MessageBus(), list[str]()

    def begin() -> None:
        bus.publish("/A/Interrupt")
        bus.publish("/A/Waits")
        raise KeyboardInterrupt

    bus.subscribe("/A/B", begin)
    bus.subscribe("/A/Interrupt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    with pytest.raises(KeyboardInterrupt):
        bus.close(last=lambda: log.append("last"))
    assert log == ["last"]
    assert letters(bus) == [("/A/Waits", "", "closed")]


def test_what_is_delivered_while_the_bus_closes_is_counted() -> None:
    bus = MessageBus()

    def begin() -> None:
        bus.publish("/A/C")
        raise KeyboardInterrupt

    bus.subscribe("/A/B", begin)
    bus.subscribe("/A/C", lambda: None, name="later")
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/B")
    bus.close()
    assert bus.statistics().published == 2
    assert bus.statistics().subscriptions["later <- /A/C"].delivered == 1


def test_the_end_of_an_async_agent_is_awaited_also_when_a_handler_of_another_does_not_end() -> None:
    bus, stuck, log = MessageBus(dispatcher=True), Stuck(), list[str]()
    bus.subscribe("/A/B", stuck)
    bus.hosting.use_lane("Agent")
    bus.publish("/A/B")
    assert stuck.has_begun.wait(PATIENCE_S)

    async def on_stop() -> None:
        await asyncio.sleep(0)
        log.append("stopped")

    def last() -> None:
        bus.run(on_stop, owner="Agent")

    bus.close(grace_s=0.02, last=last)
    assert log == ["stopped"]
    stuck.may_end.set()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["does not let itself be cancelled", "keeps the loop to itself"])
def test_an_async_agent_that_cannot_be_stopped_is_refused_its_end_and_keeps_nobody_else_from_it(way: str) -> None:
    bus, begun, may_end, log = MessageBus(), threading.Event(), threading.Event(), list[str]()

    async def stubborn() -> None:
        begun.set()
        while not may_end.is_set():
            try:
                if way == "keeps the loop to itself":
                    may_end.wait(PATIENCE_S)
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                log.append("cancelled")

    async def on_stop() -> None:
        log.append("stopped")

    def last() -> None:
        with pytest.raises(RunError, match="GBE618"):
            bus.run(on_stop, owner="Stubborn")
        log.append("last")

    bus.subscribe("/A/B", stubborn, name="stubborn", owner="Stubborn")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02, last=last)
    publisher.join(PATIENCE_S)
    assert not publisher.is_alive()
    assert letters(bus) == [("/A/B", "stubborn", "closed")]
    assert "last" in log
    assert "stopped" not in log
    may_end.set()


@pytest.mark.parametrize("way", ["call", "request"])
def test_who_waits_for_the_turn_of_a_call_is_told_that_it_does_not_come(way: str) -> None:
    bus, stuck, told = MessageBus(), Stuck(), list[str]()
    bus.subscribe("/A/B", stuck)
    bus.subscribe("/A/Ask", lambda: "answer")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)

    def ask() -> None:
        try:
            if way == "call":
                bus.run(lambda: "result")
            else:
                bus.request("/A/Ask", timeout_s=None)
        except RunError as error:
            told.append(error.code)

    asker = threading.Thread(target=ask)
    asker.start()
    while not bus.statistics().queued:
        time.sleep(0.001)
    bus.close(grace_s=0.02)
    asker.join(PATIENCE_S)
    assert told == ["GBE618"]
    stuck.may_end.set()
    publisher.join(PATIENCE_S)


def test_who_waits_for_all_to_be_quiet_does_not_outwait_the_bus() -> None:
    bus, stuck, quiet = MessageBus(), Stuck(), list[bool]()
    bus.subscribe("/A/B", stuck)
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    assert stuck.has_begun.wait(PATIENCE_S)
    waiting = threading.Thread(target=lambda: quiet.append(bus.settle()))
    waiting.start()
    while not bus._notifier.waiting:
        time.sleep(0.001)
    bus.close(grace_s=0.02)
    waiting.join(PATIENCE_S)
    assert quiet == [False]
    stuck.may_end.set()
    publisher.join(PATIENCE_S)


def test_dead_letters_of_a_bus_that_is_closed_are_written_together(tmp_path: Path) -> None:
    path = str(tmp_path / "dead_letters.sqlite3")
    bus, stuck, sizes = MessageBus(dispatcher=True), Stuck(), list[int]()

    class Counting(DeadLetterKeeper):
        def _write_pending(self) -> None:
            sizes.append(len(self._pending))
            super()._write_pending()

    keeper = Counting(path)
    bus.hosting.letters.keeper = keeper
    bus.subscribe("/A/B", stuck)
    for n in range(2_500):
        bus.publish("/A/B", {"n": n})
    bus.close(grace_s=0.02)
    stuck.may_end.set()
    keeper.close()
    assert sizes == [1000, 1000, 500]
    with closing(DeadLetterFile(path)) as file:
        assert len(file.numbers()) == 2_500


def test_who_only_looks_when_the_grace_ends_is_not_taken_for_a_handler_that_does_not_end() -> None:
    bus, heard = MessageBus(), list[str]()
    bus.subscribe("/A/B", lambda: heard.append("heard"), owner="second")
    assert bus._core.take_turn()

    def give_back() -> None:
        bus._core.turn.append(None)
        bus._notifier.notify()

    later = threading.Timer(0.05, give_back)
    later.start()
    bus.close(grace_s=0, ends=[("first", lambda: bus.publish("/A/B")), ("second", lambda: None)])
    later.join()
    assert heard == ["heard"]
