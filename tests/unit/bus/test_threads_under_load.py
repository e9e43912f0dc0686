"""Eight threads publish 5,000 events each while the interpreter changes threads a million times a second; and long chains."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import Receipt
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S

THREADS, EVENTS = 8, 5_000


@pytest.fixture(autouse=True)
def restless_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Agent:
    """Two handlers, one of which publishes now and then if it shall; counts how many run at once."""

    def __init__(self, bus: MessageBus, *, echoing: bool) -> None:
        self.bus, self.echoing = bus, echoing
        self.running = self.most = 0
        self.seen: list[tuple[int, int]] = []
        self.echoes: list[tuple[int, int]] = []

    def on_work(self, event: Event) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.seen.append((event["thread"], event["number"]))
        if self.echoing and event["number"] % 10 == 0:
            self.bus.publish("/Load/Echo", {"thread": event["thread"], "number": event["number"]})
        self.running -= 1

    def on_echo(self, event: Event) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.echoes.append((event["thread"], event["number"]))
        self.running -= 1


class AsyncAgent(Agent):
    """The same on the event loop."""

    async def on_work(self, event: Event) -> None:
        Agent.on_work(self, event)

    async def on_echo(self, event: Event) -> None:
        Agent.on_echo(self, event)


def ends(thread: threading.Thread) -> bool:
    thread.join(PATIENCE_S)
    return not thread.is_alive()


def comes_in_time(bus: MessageBus, waits: Callable[[], bool]) -> None:
    """Wait as long as anything is delivered meanwhile."""
    before = -1
    while not waits():
        now = bus.statistics().published
        assert now > before, f"nobody delivers, or waits for ever: {now} delivered, {len(bus._queue)} queued"
        before = now


def publish_from_threads(bus: MessageBus) -> None:
    """All threads begin at once; a standstill is a failure."""
    begin = threading.Barrier(THREADS)
    receipts: list[list[Receipt | None]] = [[] for _ in range(THREADS)]

    def work(thread: int) -> None:
        begin.wait(PATIENCE_S)
        for number in range(EVENTS):
            receipts[thread].append(bus.publish("/Load/Work", {"thread": thread, "number": number}))

    threads = [threading.Thread(target=work, args=(thread,), daemon=True) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        comes_in_time(bus, partial(ends, thread))
    comes_in_time(bus, partial(bus.settle, PATIENCE_S))
    assert all(receipt.wait(PATIENCE_S) for mine in receipts for receipt in mine if receipt is not None)


def assert_all_came_once_and_in_order(agent: Agent) -> None:
    assert Counter(agent.seen) == Counter((thread, number) for thread in range(THREADS) for number in range(EVENTS))
    for thread in range(THREADS):
        mine = [number for each, number in agent.seen if each == thread]
        echoed = [number for each, number in agent.echoes if each == thread]
        assert mine == list(range(EVENTS)), f"thread {thread} was overtaken by itself"
        assert echoed == list(range(0, EVENTS, 10))
    assert agent.most == 1, "two handlers of one agent ran at once"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("dispatcher", [False, True], ids=["the caller drains", "a dispatcher drains"])
@pytest.mark.parametrize("kind", [Agent, AsyncAgent])
def test_nothing_is_lost_or_delivered_twice_and_no_two_handlers_of_an_agent_run_at_once(
    kind: type[Agent], dispatcher: bool
) -> None:
    with MessageBus(history=0, dispatcher=dispatcher) as bus:
        agents = kind(bus, echoing=True), Agent(bus, echoing=False)
        for agent in agents:
            bus.subscribe("/Load/Work", agent.on_work)
            bus.subscribe("/Load/Echo", agent.on_echo)
        publish_from_threads(bus)
        assert bus.dead_letters() == ()
        assert bus.statistics().published == THREADS * (EVENTS + EVENTS // 10)
    for agent in agents:
        assert_all_came_once_and_in_order(agent)


@pytest.mark.slow
def test_a_hundred_thousand_nested_publishes_need_no_deeper_stack_than_one() -> None:
    hops, depths = 100_000, set()

    def depth() -> int:
        frame, count = sys._getframe(), 0
        while frame is not None:
            frame, count = frame.f_back, count + 1
        return count

    def step(event: Event) -> None:
        if event["left"] % 1_000 == 0:
            depths.add(depth())
        if event["left"]:
            bus.publish("/Chain/Step", {"left": event["left"] - 1})

    with MessageBus(max_hops=hops, max_tree=hops, history=1) as bus:
        bus.subscribe("/Chain/Step", step, name="step")
        bus.publish("/Chain/Step", {"left": hops})
        assert bus.statistics().subscriptions["step <- /Chain/Step"].delivered == hops + 1
        assert bus.dead_letters() == ()
    assert max(depths) - min(depths) < 10  # what is published from outside takes a shorter way than what waits


@pytest.mark.parametrize("dispatcher", [False, True])
def test_who_settles_overlooks_nothing_on_its_way_between_threads_and_the_loop(dispatcher: bool) -> None:
    """Each event goes from a thread to the loop, from there to a thread, and to the loop again; one attempt fails."""
    ended: Counter[int] = Counter()
    failed: set[int] = set()

    async def on_first(event: Event) -> None:
        bus.publish("/Way/Second", {"n": event["n"]})

    def on_second(event: Event) -> None:
        bus.publish("/Way/Third", {"n": event["n"]})

    async def on_third(event: Event) -> None:
        if event["n"] % 10 == 0 and event["n"] not in failed:
            failed.add(event["n"])
            raise ConnectionError
        ended[event["n"]] += 1

    def publish(start: int) -> None:
        for n in range(start, start + 50):
            bus.publish("/Way/First", {"n": n})
            if n % 10 == 5:
                assert bus.settle(PATIENCE_S)
                assert ended[n] == 1

    with MessageBus(dispatcher=dispatcher) as bus:
        bus.subscribe("/Way/First", on_first, owner="One")
        bus.subscribe("/Way/Second", on_second, owner="Two")
        bus.subscribe("/Way/Third", on_third, owner="Three", policy=DeliveryPolicy(retries=1, backoff_s=0))
        with ThreadPoolExecutor(max_workers=4) as threads:
            published = [threads.submit(publish, start) for start in range(0, 200, 50)]
            for each in published:
                each.result(PATIENCE_S)  # raises what ended the thread
        assert bus.settle(PATIENCE_S)
        assert bus.dead_letters() == ()
    assert ended == Counter(range(200))
