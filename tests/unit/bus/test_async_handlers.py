"""`async def` handlers: one loop thread, one lane per agent, and an outermost publish that waits for all of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from threading import get_ident

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S


@pytest.fixture
def bus():
    with MessageBus() as bus:
        yield bus


def test_a_publish_returns_when_its_async_handlers_are_done(bus: MessageBus) -> None:
    log: list[str] = []

    async def handler(event: Event) -> None:
        await asyncio.sleep(0.01)
        log.append(event["n"])

    bus.subscribe("/A/B", handler)
    bus.publish("/A/B", {"n": 1})
    assert log == [1]
    bus.publish("/A/B", {"n": 2})
    assert log == [1, 2]


def test_async_handlers_run_on_one_thread_that_is_not_the_publishers(bus: MessageBus) -> None:
    threads: set[int] = set()

    async def one(event: Event) -> None:
        threads.add(threading.get_ident())

    async def two(event: Event) -> None:
        threads.add(threading.get_ident())

    bus.subscribe("/A/B", one)
    bus.subscribe("/A/B", two)
    bus.publish("/A/B")
    bus.publish("/A/B")
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_events_reach_an_async_handler_one_by_one_and_in_order(bus: MessageBus) -> None:
    log: list[tuple[str, int]] = []

    async def slow(event: Event) -> None:
        log.append(("begin", event["n"]))
        await asyncio.sleep(0.002 * (3 - event["n"]))
        log.append(("end", event["n"]))

    bus.subscribe("/A/Start", lambda: [bus.publish("/A/B", {"n": n}) for n in range(4)])
    bus.subscribe("/A/B", slow)
    bus.publish("/A/Start")
    assert log == [(word, n) for n in range(4) for word in ("begin", "end")]


class Agent:
    """Mixes plain and async handlers."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.log: list[str] = []

    async def slow(self, event: Event) -> None:
        self._enter("slow")
        await asyncio.sleep(0.005)
        self.running -= 1

    def quick(self, event: Event) -> None:
        self._enter("quick")
        time.sleep(0.001)
        self.running -= 1

    def _enter(self, name: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(name)


def test_no_two_handlers_of_one_agent_run_at_once_whether_async_or_not(bus: MessageBus) -> None:
    agent = Agent()
    bus.subscribe("/A/B", agent.slow)
    bus.subscribe("/A/*", agent.quick)
    bus.subscribe("/A/Start", lambda: [bus.publish("/A/B") for _ in range(5)])
    bus.publish("/A/Start")
    assert agent.most == 1
    assert agent.log == ["quick"] + ["slow", "quick"] * 5


def test_handlers_of_different_agents_overlap(bus: MessageBus) -> None:
    both = [threading.Event(), threading.Event()]

    def meet(own: threading.Event, other: threading.Event):
        async def handler(event: Event) -> None:
            own.set()
            for _ in range(500):
                if other.is_set():
                    return
                await asyncio.sleep(0.01)
            raise TimeoutError

        return handler

    bus.subscribe("/A/B", meet(*both))
    bus.subscribe("/A/B", meet(*both[::-1]))
    bus.publish("/A/B")
    assert bus.dead_letters() == ()


def test_what_an_async_handler_publishes_is_delivered_and_knows_its_cause(bus: MessageBus) -> None:
    seen: list[Event] = []

    async def handler(event: Event) -> None:
        bus.publish("/A/C", {"n": 1})
        await asyncio.sleep(0)
        bus.publish("/A/C", {"n": 2})

    bus.subscribe("/A/B", handler, name="Agent.handler")
    bus.subscribe("/A/C", seen.append)
    bus.publish("/A/B")
    root = bus.history()[0]
    assert [event["n"] for event in seen] == [1, 2]
    assert {event.causation_id for event in seen} == {root.event_id}
    assert seen[0].event_id != seen[1].event_id
    assert [event.hops for event in seen] == [1, 1]
    assert seen[0].trail == (("/A/B", "Agent.handler"),)


def test_a_thread_that_an_async_handler_starts_publishes_on_its_behalf(bus: MessageBus) -> None:
    seen: list[Event] = []

    async def handler(event: Event) -> None:
        await asyncio.to_thread(bus.publish, "/A/C")

    bus.subscribe("/A/B", handler)
    bus.subscribe("/A/C", seen.append)
    bus.publish("/A/B")
    assert [event.hops for event in seen] == [1]


def test_a_failing_async_handler_is_isolated_like_any_other(bus: MessageBus) -> None:
    log: list[int] = []

    async def fail(event: Event) -> None:
        await asyncio.sleep(0)
        raise ValueError("late")

    async def good(event: Event) -> None:
        log.append(event["n"])

    bus.subscribe("/A/B", fail, name="Agent.fail")
    bus.subscribe("/A/B", good)
    for n in range(3):
        bus.publish("/A/B", {"n": n})
    assert log == [0, 1, 2]
    assert [(letter.subscription, letter.error) for letter in bus.dead_letters()] == [
        ("Agent.fail", "ValueError: late")
    ] * 3
    assert bus.statistics().subscriptions["Agent.fail <- /A/B"].failed == 3


def test_for_tests_the_exception_of_an_async_handler_comes_out_of_the_publish() -> None:
    async def fail(event: Event) -> None:
        raise ValueError("async")

    with MessageBus(on_error="raise") as bus:
        bus.subscribe("/A/B", fail)
        with pytest.raises(ValueError, match="async"):
            bus.publish("/A/B")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_ends_an_async_handler_without_being_an_exception_goes_up(
    bus: MessageBus, kind: type[BaseException]
) -> None:
    log: list[str] = []

    async def leave(event: Event) -> None:
        raise kind

    async def good(event: Event) -> None:
        log.append("good")

    leaving = bus.subscribe("/A/B", leave)
    with pytest.raises(kind):
        bus.publish("/A/B")
    bus.unsubscribe(leaving)
    bus.subscribe("/A/B", good)
    bus.publish("/A/B")
    assert log == ["good"]


def test_a_handler_that_is_unsubscribed_while_its_event_waits_is_not_called(bus: MessageBus) -> None:
    log: list[int] = []

    async def handler(event: Event) -> None:
        bus.unsubscribe(subscription)
        log.append(event["n"])

    subscription = bus.subscribe("/A/B", handler)
    bus.subscribe("/A/Start", lambda: [bus.publish("/A/B", {"n": n}) for n in range(3)])
    bus.publish("/A/Start")
    assert log == [0]


def test_a_full_mailbox_makes_the_delivery_wait_and_loses_nothing() -> None:
    log: list[int] = []

    async def slow(event: Event) -> None:
        await asyncio.sleep(0.0005)
        log.append(event["n"])

    with MessageBus(mailbox=2) as bus:
        bus.subscribe("/A/Start", lambda: [bus.publish("/A/B", {"n": n}) for n in range(50)])
        bus.subscribe("/A/B", slow)
        bus.publish("/A/Start")
    assert log == list(range(50))


def test_an_event_that_a_task_left_behind_publishes_later_is_delivered(bus: MessageBus) -> None:
    heard = threading.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def later() -> None:
        await asyncio.sleep(0.05)
        bus.publish("/A/Later")

    async def handler(event: Event) -> None:
        task = asyncio.get_running_loop().create_task(later())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    bus.subscribe("/A/B", handler)
    bus.subscribe("/A/Later", lambda event: heard.set())
    bus.publish("/A/B")
    assert heard.wait(PATIENCE_S)


def test_work_for_an_agent_with_async_handlers_runs_on_its_lane(bus: MessageBus) -> None:
    async def compute() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    bus.hosting.use_lane("Agent")
    where = bus.run(compute, owner="Agent")
    assert where != threading.get_ident()
    assert bus.run(threading.get_ident, owner="Agent") == where
    with pytest.raises(ZeroDivisionError):
        bus.run(lambda: 1 // 0, owner="Agent")


def test_an_async_handler_awaits_work_of_others(bus: MessageBus) -> None:
    results: list[object] = []

    async def answer() -> int:
        await asyncio.sleep(0)
        return 2

    async def ask(event: Event) -> None:
        results.append(await bus.run(threading.get_ident))
        results.append(await bus.run(answer, owner="Other"))
        try:
            await bus.run(lambda: 1 // 0)
        except ZeroDivisionError:
            results.append("refused")

    bus.hosting.use_lane("Other")
    bus.subscribe("/A/B", ask, owner="Asker")
    bus.publish("/A/B")
    assert results == [threading.get_ident(), 2, "refused"]
    assert bus.dead_letters() == ()


def test_a_plain_handler_and_an_async_one_may_ask_each_other_without_a_deadlock(bus: MessageBus) -> None:
    log: list[object] = []
    is_busy = threading.Event()

    async def busy(event: Event) -> None:
        is_busy.set()
        await asyncio.sleep(0.02)
        log.append(await bus.run(lambda: "plain answers"))

    def plain(event: Event) -> None:
        assert is_busy.wait(PATIENCE_S)
        log.append(bus.run(lambda: "async answers", owner="Busy"))

    bus.subscribe("/A/B", busy, owner="Busy")
    bus.subscribe("/A/B", plain, owner="Plain")
    bus.publish("/A/B")
    assert log == ["plain answers", "async answers"]


def test_no_event_of_a_storm_between_plain_and_async_handlers_is_lost() -> None:
    counts = {"plain": 0, "async": 0}

    async def ping(event: Event) -> None:
        counts["async"] += 1
        if event["n"]:
            await asyncio.sleep(0)
            bus.publish("/P/Pong", {"n": event["n"] - 1})

    def pong(event: Event) -> None:
        counts["plain"] += 1
        bus.publish("/P/Ping", {"n": event["n"]})

    with MessageBus(max_hops=1000, max_tree=100_000) as bus:
        bus.subscribe("/P/Ping", ping, owner="A")
        bus.subscribe("/P/Pong", pong, owner="B")
        threads = [threading.Thread(target=bus.publish, args=("/P/Ping", {"n": 50}), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert counts == {"plain": 200, "async": 204}


@pytest.mark.slow
def test_without_an_async_handler_asyncio_is_not_even_imported() -> None:
    program = """
import sys
from graphbus_core.bus import MessageBus
bus = MessageBus()
bus.subscribe("/A/B", lambda event: None)
bus.publish("/A/B", {"n": 1})
bus.close()
print("asyncio" in sys.modules)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"


def test_an_async_handler_may_give_up_waiting_for_work_of_others(bus: MessageBus) -> None:
    log: list[str] = []

    async def impatient(event: Event) -> None:
        try:
            await asyncio.wait_for(bus.run(lambda: time.sleep(0.1)), timeout=0.01)
        except TimeoutError:
            log.append("gave up")
        await asyncio.sleep(0.15)

    bus.subscribe("/A/B", impatient)
    bus.publish("/A/B")
    assert log == ["gave up"]
    assert bus.dead_letters() == ()


def test_what_belongs_to_no_agent_leaves_nothing_behind_when_it_is_unsubscribed(bus: MessageBus) -> None:
    async def once(event: Event) -> None:
        bus.unsubscribe(own)

    async def named(event: Event) -> None: ...

    own, of_agent = bus.subscribe("/A/B", once), bus.subscribe("/A/B", named, owner="Agent")
    bus.publish("/A/B")
    comes_true(lambda: list(bus._core.lanes) == ["Agent"])
    bus.unsubscribe(of_agent)
    places: list[int] = []
    for _ in range(20):  # sooner or later a handler has the identity of one that has gone
        bus.unsubscribe(bus.subscribe("/A/B", _a_handler()))
        in_place = bus.subscribe("/A/C", lambda: places.append(get_ident()))
        bus.publish("/A/C")
        bus.unsubscribe(in_place)
    assert set(places) == {get_ident()}
    assert (bus._routes.async_lanes, list(bus._core.lanes)) == ({"Agent"}, ["Agent"])


def _a_handler() -> Callable[[], object]:
    async def handler() -> None: ...

    return handler
