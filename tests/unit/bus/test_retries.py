"""A failed delivery comes again: later, to this handler only, with the same ids, and never in the way of others."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.clock import SystemClock
from graphbus_core.errors import Place, RunError
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.testing.clock import FakeClock, FakeTimer
from tests.patience import PATIENCE_S

TWICE = DeliveryPolicy(retries=2, backoff_s=1.0)
AT_ONCE = DeliveryPolicy(retries=3, backoff_s=0.0)
SOON = DeliveryPolicy(retries=2, backoff_s=0.02)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bus(clock: FakeClock) -> Iterator[MessageBus]:
    with MessageBus(clock=clock) as bus:
        yield bus


class Flaky:
    """Fails so many times, then works."""

    def __init__(self, failures: int, log: list[str], name: str = "flaky") -> None:
        self.failures = failures
        self.log = log
        self.name = name

    def __call__(self, event: Event) -> None:
        self.failures -= 1
        self.log.append(f"{self.name} {event.topic}")
        if self.failures >= 0:
            raise ConnectionError("not yet")


def test_a_handler_that_fails_twice_and_then_works_has_handled_the_event(bus: MessageBus, clock: FakeClock) -> None:
    log: list[str] = []
    bus.subscribe("/A/B", Flaky(2, log), policy=TWICE)
    bus.subscribe("/A/B", lambda: log.append("other"))
    bus.publish("/A/B")
    assert log == ["flaky /A/B", "other"], "publish does not wait for further attempts"
    clock.advance(0.9)
    assert len(log) == 2
    clock.advance(0.1)
    assert log[2:] == ["flaky /A/B"], "only the handler that failed is called"
    clock.advance(1.9)
    assert len(log) == 3
    clock.advance(0.1)
    assert len(log) == 4
    assert bus.dead_letters() == ()
    clock.advance(1000)
    assert len(log) == 4
    assert (bus.statistics().published, bus.statistics().failed) == (1, 2)


def test_what_fails_too_often_is_a_dead_letter_with_its_attempts_and_times(bus: MessageBus, clock: FakeClock) -> None:
    log: list[str] = []
    bus.subscribe("/A/B", Flaky(9, log), name="Agent.flaky", policy=TWICE)
    began = clock.time()
    bus.publish("/A/B", {"n": 1})
    clock.advance(100)
    (letter,) = bus.dead_letters()
    assert len(log) == 3
    assert letter.attempts == 3
    assert letter.error == "ConnectionError: not yet"
    assert letter.first_timestamp == began
    assert letter.timestamp == pytest.approx(began + 3)
    assert letter.event.payload == {"n": 1}
    assert 'raise ConnectionError("not yet")' in letter.traceback
    assert "graphbus_core" not in letter.traceback
    assert letter.place.startswith(__file__)


def test_a_single_attempt_has_one_time(bus: MessageBus, clock: FakeClock) -> None:
    bus.subscribe("/A/B", Flaky(1, []))
    bus.publish("/A/B")
    (letter,) = bus.dead_letters()
    assert (letter.attempts, letter.first_timestamp, letter.timestamp) == (1, clock.time(), clock.time())


def test_other_events_keep_their_order_while_one_waits(bus: MessageBus, clock: FakeClock) -> None:
    log: list[str] = []
    bus.subscribe("/A/*", Flaky(1, log), policy=TWICE)
    for topic in ("/A/One", "/A/Two", "/A/Three"):
        bus.publish(topic)
    clock.advance(1)
    assert log == ["flaky /A/One", "flaky /A/Two", "flaky /A/Three", "flaky /A/One"]


def test_an_event_that_is_delivered_again_makes_the_same_children(bus: MessageBus, clock: FakeClock) -> None:
    ids: list[str] = []
    attempts: list[str] = []

    def parent(event: Event) -> None:
        attempts.append(event.event_id)
        bus.publish("/A/Child", {"n": 1})
        bus.publish("/A/Child", {"n": 2})
        if len(attempts) < 3:
            raise ConnectionError

    bus.subscribe("/A/B", parent, policy=TWICE)
    bus.subscribe("/A/Child", lambda event: ids.append(event.event_id))
    bus.publish("/A/B")
    clock.advance(10)
    assert len(set(attempts)) == 1
    assert ids[:2] == ids[2:4] == ids[4:6]
    assert len(set(ids)) == 2


def test_every_handler_that_fails_has_attempts_of_its_own(bus: MessageBus, clock: FakeClock) -> None:
    log: list[str] = []
    bus.subscribe("/A/B", Flaky(1, log, "one"), policy=TWICE)
    bus.subscribe("/A/B", Flaky(2, log, "two"), policy=DeliveryPolicy(retries=2, backoff_s=5))
    bus.publish("/A/B")
    clock.advance(100)
    assert log == ["one /A/B", "two /A/B", "one /A/B", "two /A/B", "two /A/B"]


def test_what_does_not_fit_its_schema_is_never_tried_again(bus: MessageBus, clock: FakeClock) -> None:
    def needs(order_id: str) -> None: ...

    bus.subscribe("/A/B", needs, policy=TWICE)
    bus.publish("/A/B", {})
    (letter,) = bus.dead_letters()
    assert "GBE617" in letter.error
    assert letter.attempts == 1
    assert clock.waiting == []


def test_a_handler_that_is_unsubscribed_meanwhile_is_not_called_again(bus: MessageBus, clock: FakeClock) -> None:
    log: list[str] = []
    subscription = bus.subscribe("/A/B", Flaky(1, log), policy=TWICE)
    bus.publish("/A/B")
    bus.unsubscribe(subscription)
    clock.advance(10)
    assert len(log) == 1
    assert bus._core.retrying == {}


def test_what_a_handler_could_not_handle_is_kept_when_the_handler_goes(bus: MessageBus, clock: FakeClock) -> None:
    subscription = bus.subscribe("/A/B", Flaky(9, []), name="Agent.flaky", policy=TWICE)
    began = clock.time()
    bus.publish("/A/B", {"n": 1})
    clock.advance(1)
    bus.unsubscribe(subscription)
    clock.advance(10)
    (letter,) = bus.dead_letters()
    assert (letter.reason, letter.subscription, letter.attempts) == ("gone", "Agent.flaky", 2)
    assert letter.error == "Agent.flaky was unsubscribed before attempt 3"
    assert letter.first_timestamp == began


def test_no_more_attempts_wait_than_events_may(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    with MessageBus(clock=clock, queue=3) as bus:
        bus.subscribe("/A/B", Flaky(5, log), name="Agent.flaky", policy=TWICE)
        for number in range(5):
            bus.publish("/A/B", {"n": number})
        assert len(clock.waiting) == 3
        told = [(letter.event["n"], letter.reason, letter.attempts, letter.error) for letter in bus.dead_letters()]
        assert told == [(3, "handler", 1, "ConnectionError: not yet"), (4, "handler", 1, "ConnectionError: not yet")]
        assert caplog.text.count("Agent.flaky is not retried on /A/B: 3 further attempts are already waiting") == 2
        clock.advance(1)
        assert len(log) == 8
        assert bus.statistics().dead_letters == 2
        assert bus._core.retrying == {}


def test_each_attempt_that_is_not_the_last_is_one_line_in_the_log(
    bus: MessageBus, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    bus.subscribe("/A/B", Flaky(9, []), name="Agent.flaky", policy=TWICE)
    with caplog.at_level(logging.WARNING, "graphbus.bus"):
        bus.publish("/A/B")
        clock.advance(10)
    first, second, last = caplog.records
    assert "Agent.flaky failed on /A/B" in first.getMessage()
    assert "attempt 1 of 3, the next in 1 s" in first.getMessage()
    assert "attempt 2 of 3, the next in 2 s" in second.getMessage()
    assert first.exc_info is None
    assert "(3 attempts)" in last.getMessage()
    assert last.exc_info


# --- with the real clock and the event loop -----------------------------------------------------


@pytest.mark.parametrize("policy", [AT_ONCE, SOON])
def test_async_handlers_are_tried_again_too(policy: DeliveryPolicy) -> None:
    log: list[int] = []

    async def flaky(event: Event) -> None:
        await asyncio.sleep(0)
        log.append(1)
        if len(log) < 3:
            raise ConnectionError

    with MessageBus() as bus:
        bus.subscribe("/A/B", flaky, policy=policy)
        bus.publish("/A/B")
        assert bus.settle(PATIENCE_S)
        assert len(log) == 3
        assert bus.dead_letters() == ()
        assert bus._core.retrying == {}


def test_an_async_handler_that_takes_too_long_fails_with_a_timeout() -> None:
    log: list[str] = []

    async def slow(event: Event) -> None:
        log.append("begun")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            log.append("stopped")
            raise

    with MessageBus() as bus:
        bus.subscribe("/A/B", slow, policy=DeliveryPolicy(timeout_s=0.02, retries=1, backoff_s=0))
        bus.subscribe("/A/C", slow, policy=DeliveryPolicy(timeout_s=0.02, retries=1, retry_on=(ConnectionError,)))
        bus.publish("/A/B")
        bus.publish("/A/C")
        assert bus.settle(PATIENCE_S)
        assert log == ["begun", "stopped"] * 3
        assert sorted((each.event.topic, each.attempts) for each in bus.dead_letters()) == [("/A/B", 2), ("/A/C", 1)]
        assert bus.dead_letters()[0].error == "TimeoutError: it took more than 0.02 s"


def test_nobody_sleeps_while_an_attempt_waits() -> None:
    with MessageBus() as bus:
        bus.subscribe("/A/B", Flaky(1, []), policy=DeliveryPolicy(retries=1, backoff_s=1000))
        began = time.monotonic()
        bus.publish("/A/B")
        bus.publish("/A/C")
        assert time.monotonic() - began < PATIENCE_S
        bus.close(grace_s=0)


def test_settle_waits_for_attempts_and_says_when_it_takes_too_long() -> None:
    log: list[str] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", Flaky(2, log), policy=SOON)
        bus.subscribe("/A/Late", Flaky(1, log), policy=DeliveryPolicy(retries=1, backoff_s=60))
        assert bus.settle(0)
        bus.publish("/A/B")
        assert bus.settle(PATIENCE_S)
        assert len(log) == 3
        bus.publish("/A/Late")
        assert not bus.settle(0.05)
        bus.close(grace_s=0)
    (letter,) = bus.dead_letters()
    assert letter.reason == "closed"


def test_settle_in_a_handler_would_wait_for_itself() -> None:
    refused: list[str] = []

    def waits() -> None:
        try:
            bus.settle()
        except RunError as error:
            refused.append(error.code)

    async def waits_too() -> None:
        waits()

    with MessageBus() as bus:
        bus.subscribe("/A/B", waits)
        bus.subscribe("/A/B", waits_too)
        bus.publish("/A/B")
    assert refused == ["GBE648"] * 2


def test_settle_gives_up_on_a_handler_that_another_thread_is_in() -> None:
    release, begun = threading.Event(), threading.Event()

    def blocks() -> None:
        begun.set()
        release.wait(PATIENCE_S)

    with MessageBus() as bus:
        bus.subscribe("/A/B", blocks)
        publisher = threading.Thread(target=bus.publish, args=("/A/B",))
        publisher.start()
        begun.wait(PATIENCE_S)
        assert not bus.settle(0.02)
        release.set()
        publisher.join()
        assert bus.settle(PATIENCE_S)


@pytest.mark.parametrize("way", ["publishes", "calls"])
def test_who_settles_is_told_when_another_thread_has_done(way: str) -> None:
    is_in, may_end = threading.Event(), threading.Event()

    def blocks() -> None:
        is_in.set()
        may_end.wait(PATIENCE_S)

    with MessageBus() as bus:
        bus.subscribe("/A/B", blocks)
        call = bus.hosting.caller(lambda _nothing: blocks())
        is_quiet: list[bool] = []
        working = threading.Thread(target=lambda: bus.publish("/A/B") if way == "publishes" else call(None))
        settling = threading.Thread(target=lambda: is_quiet.append(bus.settle(PATIENCE_S)))
        working.start()
        assert is_in.wait(PATIENCE_S)
        settling.start()
        while not bus._notifier.waiting:
            time.sleep(0.001)
        may_end.set()
        settling.join(PATIENCE_S)
        assert is_quiet == [True]
        working.join(PATIENCE_S)


def test_what_an_attempt_raises_comes_out_of_settle_when_errors_are_raised(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    with MessageBus(on_error="raise") as bus:
        bus.subscribe("/A/B", Flaky(9, log), policy=SOON)
        bus.publish("/A/B")
        with pytest.raises(ConnectionError, match="not yet"):
            bus.settle(PATIENCE_S)
        assert len(log) == 3
        assert bus.settle(PATIENCE_S)


# --- closing --------------------------------------------------------------------------------


def test_close_waits_for_what_comes_due_within_the_grace() -> None:
    log: list[str] = []
    with MessageBus() as bus:
        bus.subscribe("/A/B", Flaky(2, log), policy=SOON)
        bus.publish("/A/B")
    assert len(log) == 3
    assert bus.dead_letters() == ()


def test_close_waits_for_nothing_that_comes_later_and_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    bus = MessageBus()
    bus.subscribe("/A/B", Flaky(9, log), name="Agent.flaky", policy=DeliveryPolicy(retries=3, backoff_s=2000))
    bus.publish("/A/B", {"n": 1})
    began = time.monotonic()
    bus.close(grace_s=1000)
    assert time.monotonic() - began < PATIENCE_S
    (letter,) = bus.dead_letters()
    assert (letter.reason, letter.subscription, letter.attempts) == ("closed", "Agent.flaky", 1)
    assert letter.error == "the bus was closed before attempt 2; the last one failed: ConnectionError: not yet"
    assert 0 < letter.first_timestamp <= letter.timestamp
    assert not [thread for thread in threading.enumerate() if thread.name == "graphbus-timer"]


def test_close_does_not_wait_for_the_clock_of_a_test(clock: FakeClock) -> None:
    bus = MessageBus(clock=clock)
    bus.subscribe("/A/B", Flaky(9, []), policy=TWICE)
    bus.publish("/A/B")
    bus.close(grace_s=60)
    assert [letter.reason for letter in bus.dead_letters()] == ["closed"]
    assert clock.waiting == []


def test_an_attempt_that_is_queued_when_the_grace_ends_is_kept() -> None:
    begun, release = threading.Event(), threading.Event()

    def blocks() -> None:
        begun.set()
        release.wait(PATIENCE_S)

    bus = MessageBus()
    flaky = bus.subscribe("/A/B", Flaky(1, []), name="Agent.flaky", policy=DeliveryPolicy(retries=1, backoff_s=0.02))
    bus.subscribe("/A/B", blocks, name="blocks")
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    begun.wait(PATIENCE_S)
    while bus._core.retrying:
        time.sleep(0.005)
    bus.close(grace_s=0.05)
    release.set()
    publisher.join()
    assert flaky.failed == 1
    (letter,) = [each for each in bus.dead_letters() if each.subscription == "Agent.flaky"]
    assert (letter.reason, letter.attempts) == ("closed", 1)
    assert letter.first_timestamp < letter.timestamp


def test_a_failure_after_the_end_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    begun, release = threading.Event(), threading.Event()

    def blocks() -> None:
        begun.set()
        release.wait(PATIENCE_S)
        raise ConnectionError("late")

    bus = MessageBus()
    bus.subscribe("/A/B", blocks, policy=TWICE)
    publisher = threading.Thread(target=bus.publish, args=("/A/B",))
    publisher.start()
    begun.wait(PATIENCE_S)
    bus.close(grace_s=0.02)
    release.set()
    publisher.join()
    assert [(letter.reason, letter.attempts) for letter in bus.dead_letters()] == [("closed", 1)]
    assert "ConnectionError: late" in caplog.text


def test_a_clock_that_was_given_lives_longer_than_the_bus() -> None:
    clock = SystemClock()
    try:
        with MessageBus(clock=clock) as bus:
            bus.subscribe("/A/B", Flaky(1, []), policy=AT_ONCE)
            bus.publish("/A/B")
            assert bus.settle(PATIENCE_S)
        done = threading.Event()
        clock.after(0, done.set)
        assert done.wait(PATIENCE_S)
    finally:
        clock.close()


def test_a_timeout_that_a_handler_raises_itself_stays_what_it_is() -> None:
    async def asks(event: Event) -> None:
        raise TimeoutError("the server is slow")

    with MessageBus() as bus:
        bus.subscribe("/A/B", asks, policy=DeliveryPolicy(timeout_s=5))
        bus.publish("/A/B")
        assert bus.dead_letters()[0].error == "TimeoutError: the server is slow"


def test_a_timer_that_fires_too_late_delivers_nothing(clock: FakeClock) -> None:
    late: list[Callable[[], None]] = []
    set_timer = clock.after

    def after(delay_s: float, work: Callable[[], None]) -> FakeTimer:
        late.append(work)
        return set_timer(delay_s, work)

    clock.after = after  # type: ignore[method-assign]
    log: list[str] = []
    bus = MessageBus(clock=clock)
    bus.subscribe("/A/B", Flaky(1, log), policy=TWICE)
    bus.publish("/A/B")
    bus.close(grace_s=0)
    late[0]()
    assert len(log) == 1
    assert len(bus.dead_letters()) == 1


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unspeakable(), "Unspeakable: (its str() fails)"),
        (ValueError("one\n  two\x00\n"), r"ValueError: one two\x00"),
        (ValueError("x" * 100_000), f"ValueError: {'x' * 987}…"),
        (KeyError(), "KeyError"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "ExceptionGroup: both (2 sub-exceptions)"),
    ],
    ids=["mute", "of several lines", "long", "without words", "a group"],
)
@pytest.mark.parametrize("retries", [0, 1])
def test_whatever_is_raised_is_told_in_one_line_and_stops_nobody(
    bus: MessageBus, clock: FakeClock, error: Exception, told: str, retries: int
) -> None:
    log: list[str] = []

    def fails() -> None:
        raise error

    bus.subscribe("/A/B", fails, policy=DeliveryPolicy(retries=retries))
    bus.subscribe("/A/B", lambda: log.append("other"))
    bus.publish("/A/B")
    clock.advance(10)
    assert log == ["other"]
    assert [letter.error for letter in bus.dead_letters()] == [told]
    assert len(bus.dead_letters()[0].traceback) <= 20_000


def test_the_traceback_of_an_endless_recursion_is_kept_short(bus: MessageBus) -> None:
    def one(depth: int) -> None:
        two(depth + 1, "x" * 100)

    def two(depth: int, text: str) -> None:
        one(depth)

    bus.subscribe("/A/B", lambda: one(0))
    bus.publish("/A/B")
    (letter,) = bus.dead_letters()
    assert "RecursionError" in letter.error
    assert len(letter.traceback) <= 20_000
    assert letter.traceback.endswith(f"{letter.error}\n")


def test_a_refusal_is_logged_with_its_place(bus: MessageBus, caplog: pytest.LogCaptureFixture) -> None:
    def refuses() -> None:
        raise RunError("GBE643", where=Place("kept/state.sqlite3"), what="The state", reason="it is damaged", advice="")

    bus.subscribe("/A/B", refuses)
    bus.publish("/A/B")
    assert "kept/state.sqlite3: The state cannot be read: it is damaged. [GBE643]" in caplog.text
    assert bus.dead_letters()[0].place == "kept/state.sqlite3"
