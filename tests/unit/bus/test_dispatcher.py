"""A bus with a dispatcher: one thread delivers, publishers only queue, and a receipt says what became of an event."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Iterator

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import HandlerOutcome, Receipt
from graphbus_core.errors import DeadlockError, RunError
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S


async def until(flag: threading.Event) -> None:
    for _ in iter(flag.is_set, True):
        await asyncio.sleep(0.001)


@pytest.fixture
def bus() -> Iterator[MessageBus]:
    with MessageBus(dispatcher=True) as bus:
        yield bus


def receipt_of(bus: MessageBus, topic: str, payload: object = None) -> Receipt:
    receipt = bus.publish(topic, payload)
    assert receipt is not None
    return receipt


def test_handlers_run_on_one_thread_that_is_not_the_publishers(bus: MessageBus) -> None:
    names: list[str] = []
    bus.subscribe("/A/B", lambda: names.append(threading.current_thread().name))
    receipts = [receipt_of(bus, "/A/B") for _ in range(3)]
    assert all(receipt.wait(PATIENCE_S) for receipt in receipts)
    assert names == ["graphbus-dispatcher"] * 3


def test_a_publish_does_not_wait_and_its_receipt_does(bus: MessageBus) -> None:
    may_end = threading.Event()
    bus.subscribe("/A/B", lambda: may_end.wait(PATIENCE_S))
    receipt = receipt_of(bus, "/A/B")
    assert not receipt.wait(0.01)
    assert not receipt.is_done
    may_end.set()
    assert receipt.wait(PATIENCE_S)
    assert receipt.wait(0)
    assert receipt.is_done


def test_a_receipt_waits_for_everything_that_came_of_the_event_further_attempts_included(bus: MessageBus) -> None:
    log: list[str] = []

    def first(event: Event) -> None:
        bus.publish("/A/Second")

    async def second(event: Event) -> None:
        await asyncio.sleep(0.01)
        bus.publish("/A/Third")

    def third(event: Event) -> None:
        log.append("third")
        if len(log) < 3:
            raise ConnectionError

    bus.subscribe("/A/First", first)
    bus.subscribe("/A/Second", second)
    bus.subscribe("/A/Third", third, policy=DeliveryPolicy(retries=2, backoff_s=0.01))
    assert receipt_of(bus, "/A/First").wait(PATIENCE_S)
    assert log == ["third"] * 3
    assert bus.dead_letters() == ()


def test_a_receipt_holds_what_each_handler_of_the_event_gave(bus: MessageBus) -> None:
    async def slow(event: Event) -> int:
        await asyncio.sleep(0.01)
        return 2

    def fail(event: Event) -> None:
        raise ValueError("bad")

    bus.subscribe("/A/B", lambda: 1, name="Agent.plain")
    bus.subscribe("/A/B", fail, name="Agent.fail")
    bus.subscribe("/A/B", slow, name="Agent.slow")
    bus.subscribe("/A/Child", lambda: "not of this event")
    bus.subscribe("/A/B", lambda: bus.publish("/A/Child"), name="Agent.parent")
    receipt = receipt_of(bus, "/A/B")
    assert receipt.wait(PATIENCE_S)
    results = {each.handler: (each.value, repr(each.error)) for each in receipt.results}
    assert results == {
        "Agent.plain": (1, "None"),
        "Agent.fail": (None, "ValueError('bad')"),
        "Agent.slow": (2, "None"),
        "Agent.parent": (None, "None"),
    }


def test_results_can_be_pickled_refusals_too(bus: MessageBus) -> None:
    def needs(order_id: str) -> None: ...

    bus.subscribe("/A/B", needs, name="Agent.needs")
    bus.subscribe("/A/B", lambda: {"n": 1}, name="Agent.gives")
    receipt = receipt_of(bus, "/A/B", {})
    assert receipt.wait(PATIENCE_S)
    refused, given = pickle.loads(pickle.dumps(receipt.results))
    assert given == HandlerOutcome("Agent.gives", {"n": 1})
    assert isinstance(refused.error, RunError)
    assert (refused.error.code, str(refused.error)) == ("GBE617", str(receipt.results[0].error))


def test_a_further_attempt_that_works_is_the_result(bus: MessageBus) -> None:
    attempts: list[int] = []

    def flaky(event: Event) -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        return len(attempts)

    bus.subscribe("/A/B", flaky, name="Agent.flaky", policy=DeliveryPolicy(retries=1, backoff_s=0))
    receipt = receipt_of(bus, "/A/B")
    assert receipt.wait(PATIENCE_S)
    assert receipt.results == (HandlerOutcome("Agent.flaky", 2),)


def test_for_tests_a_receipt_raises_what_a_handler_has_raised() -> None:
    def fail(event: Event) -> None:
        raise ValueError("bad")

    with MessageBus(dispatcher=True, on_error="raise") as bus:
        bus.subscribe("/A/B", lambda: bus.publish("/A/Child"))
        bus.subscribe("/A/Child", fail)
        with pytest.raises(ValueError, match="bad"):
            receipt_of(bus, "/A/B").wait(PATIENCE_S)
        assert receipt_of(bus, "/A/Nobody").wait(PATIENCE_S), "it delivers on"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_handler_cannot_wait_for_a_receipt(bus: MessageBus, kind: str) -> None:
    refused: list[str] = []
    box: list[Receipt] = []

    def wait() -> None:
        while not box:
            time.sleep(0.001)
        try:
            box[0].wait(PATIENCE_S)
        except DeadlockError as error:
            refused.append(error.code)

    async def wait_later() -> None:
        wait()

    bus.subscribe("/A/B", wait if kind == "plain" else wait_later)
    box.append(receipt_of(bus, "/A/B"))
    assert box[0].wait(PATIENCE_S)
    assert refused == ["GBE634"]


def test_a_publish_inside_a_handler_gives_no_receipt(bus: MessageBus) -> None:
    given: list[object] = []
    bus.subscribe("/A/B", lambda: given.append(bus.publish("/A/C")))
    assert receipt_of(bus, "/A/B").wait(PATIENCE_S)
    assert given == [None]


def test_a_call_from_outside_takes_its_turn_and_runs_where_the_handlers_run(bus: MessageBus) -> None:
    log: list[object] = []
    bus.subscribe("/A/B", lambda: log.append("event"))
    bus.publish("/A/B")
    log.append(bus.run(lambda: threading.current_thread().name))
    assert log == ["event", "graphbus-dispatcher"]


def test_an_async_call_does_not_keep_the_dispatcher_from_delivering(bus: MessageBus) -> None:
    has_come = threading.Event()

    async def wait_for_event() -> bool:
        await until(has_come)
        return True

    bus.hosting.use_lane("Agent")
    bus.subscribe("/A/B", has_come.set)
    threading.Timer(0.05, lambda: bus.publish("/A/B")).start()
    assert bus.run(wait_for_event, owner="Agent") is True


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_exception_ends_the_dispatcher_and_keeps_the_queue(
    kind: type[BaseException], is_async: bool
) -> None:
    told = threading.Event()
    log: list[str] = []

    def leave(event: Event) -> None:
        bus.publish("/A/Later")
        raise kind

    async def leave_later(event: Event) -> None:
        raise kind

    bus = MessageBus()
    bus.hosting.start_dispatcher(told.set)
    bus.subscribe("/A/B", leave_later if is_async else leave)
    bus.subscribe("/A/Later", lambda: log.append("later"))
    bus.publish("/A/B")
    assert told.wait(PATIENCE_S)
    assert isinstance(bus.hosting.interruption, kind)
    assert log == []
    if is_async:
        bus.publish("/A/Later")
    assert bus.statistics().queued == 1
    bus.close()
    assert log == ["later"]
    assert bus.dead_letters() == ()


def test_closing_delivers_what_waits_and_buries_what_comes_too_late() -> None:
    may_end = threading.Event()
    bus = MessageBus(dispatcher=True)
    bus.subscribe("/A/B", lambda: may_end.wait(PATIENCE_S))
    receipts = [receipt_of(bus, "/A/B", {"n": n}) for n in range(3)]
    bus.close(grace_s=0.05)
    assert [(letter.reason, letter.event["n"]) for letter in bus.dead_letters()] == [("closed", n) for n in range(3)]
    assert all(receipt.is_done for receipt in receipts)
    may_end.set()
    with pytest.raises(RunError):
        bus.publish("/A/B")


def test_closing_waits_for_attempts_and_async_handlers_that_end_in_time() -> None:
    log: list[int] = []

    async def flaky(event: Event) -> None:
        await asyncio.sleep(0.01)
        log.append(1)
        if len(log) == 1:
            raise ConnectionError

    bus = MessageBus(dispatcher=True)
    bus.subscribe("/A/B", flaky, policy=DeliveryPolicy(retries=1, backoff_s=0.01))
    receipt = receipt_of(bus, "/A/B")
    bus.close()
    assert len(log) == 2
    assert receipt.is_done
    assert not [each for each in threading.enumerate() if each.name.startswith("graphbus-")]


def test_many_threads_publish_and_every_receipt_comes_to_its_end(bus: MessageBus) -> None:
    seen: list[tuple[int, int]] = []

    async def hear(event: Event) -> None:
        seen.append((event["thread"], event["n"]))

    bus.subscribe("/A/B", hear)
    receipts: list[Receipt] = []

    def publish(thread: int) -> None:
        receipts.extend([receipt_of(bus, "/A/B", {"thread": thread, "n": n}) for n in range(200)])

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    assert all(receipt.wait(PATIENCE_S) for receipt in receipts)
    for thread in range(4):
        assert [n for each, n in seen if each == thread] == list(range(200))
