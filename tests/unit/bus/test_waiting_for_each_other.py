"""Agents that wait for each other, over threads and lanes: whoever would close the circle is told at once, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from graphbus_core import Event, GraphBusNode, connect, depends_on, schema_method, subscribe
from graphbus_core.bus import MessageBus
from graphbus_core.bus.waiting import WaitGraph
from graphbus_core.errors import DeadlockError
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S


@pytest.fixture(params=["callers deliver", "a dispatcher delivers"])
def bus(request: pytest.FixtureRequest) -> Iterator[MessageBus]:
    with MessageBus(dispatcher=request.param == "a dispatcher delivers") as bus:
        yield bus


def publish_after(began: threading.Event, bus: MessageBus, first: str, second: str) -> None:
    """Publish `second` once the handler of `first` has begun; one dispatcher that took it first might never come to the other."""
    thread = threading.Thread(target=bus.publish, args=(first,))
    thread.start()
    assert began.wait(PATIENCE_S)
    publish_beside(bus, second)
    thread.join(PATIENCE_S)


def publish_beside(bus: MessageBus, *topics: str) -> None:
    threads = [threading.Thread(target=bus.publish, args=(topic,)) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert bus.settle(PATIENCE_S)


def test_two_that_ask_each_other_at_the_same_moment_do_not_wait_for_ever(bus: MessageBus) -> None:
    both_are_at_work, later_is_at_work = threading.Barrier(2, timeout=PATIENCE_S), threading.Event()
    log: list[object] = []

    def plain(event: Event) -> None:
        both_are_at_work.wait()
        try:
            log.append(bus.request("/Later/Ask", timeout_s=None))
        except DeadlockError as refusal:
            log.append(refusal.code)

    async def later(event: Event) -> None:
        later_is_at_work.set()
        await asyncio.to_thread(both_are_at_work.wait)
        try:
            log.append(await bus.request("/Plain/Ask", timeout_s=None))
        except DeadlockError as refusal:
            log.append(refusal.code)

    async def answer_later(event: Event) -> str:
        return "later"

    bus.subscribe("/Later/Go", later, owner="Later", name="Later.go")
    bus.subscribe("/Later/Ask", answer_later, owner="Later", name="Later.ask")
    bus.subscribe("/Plain/Go", plain, owner="Plain", name="Plain.go")
    bus.subscribe("/Plain/Ask", lambda event: "plain", owner="Plain", name="Plain.ask")
    publish_after(later_is_at_work, bus, "/Later/Go", "/Plain/Go")
    assert log in (["GBE633", "plain"], ["GBE633", "later"], ["GBE633", "GBE633"])


@depends_on("Bank")
class Till(GraphBusNode):
    @subscribe("/Till/Open")
    def on_open(self) -> None:
        self.call("Bank", "ask_back")

    @schema_method()
    def count(self) -> dict[str, int]:
        raise AssertionError("it is in the middle of something")


@depends_on("Till")  # a build would refuse the circle
class Bank(GraphBusNode):
    @schema_method()
    async def ask_back(self) -> object:
        return await self.call("Till", "count")


def test_an_async_method_that_calls_back_who_waits_for_it_is_refused() -> None:
    with connect(Till, Bank) as graph, pytest.raises(DeadlockError, match=r"Till\.on_open waits for Bank"):
        graph.publish("/Till/Open")


def test_a_handler_is_not_re_entered_by_what_is_done_on_its_stack_meanwhile(bus: MessageBus) -> None:
    plain_waits, errand_began, has_asked = threading.Event(), threading.Event(), asyncio.Event()
    log: list[str] = []

    def wait_for_slow(event: Event) -> None:
        plain_waits.set()
        log.append(bus.request("/Slow/Ask", timeout_s=PATIENCE_S))

    async def slow(event: Event) -> str:
        await has_asked.wait()
        return "slow"

    async def errand(event: Event) -> None:
        errand_began.set()
        await asyncio.to_thread(plain_waits.wait, PATIENCE_S)
        try:
            log.append(await bus.request("/Helper/Ask", timeout_s=PATIENCE_S))
        except DeadlockError as refusal:
            log.append(refusal.code)
        has_asked.set()

    bus.subscribe("/Errand/Go", errand, owner="Errand", name="Errand.go")
    bus.subscribe("/Plain/Go", wait_for_slow, owner="Plain", name="Plain.go")
    bus.subscribe("/Slow/Ask", slow, owner="Slow", name="Slow.ask")
    bus.subscribe("/Helper/Ask", lambda event: bus.request("/Plain/Ask"), owner="Helper", name="Helper.ask")
    bus.subscribe("/Plain/Ask", lambda event: "re-entered", owner="Plain", name="Plain.ask")
    publish_after(errand_began, bus, "/Errand/Go", "/Plain/Go")
    assert sorted(log) == ["GBE633", "slow"]


def test_who_takes_several_events_at_once_keeps_nobody_waiting(bus: MessageBus) -> None:
    log: list[str] = []

    async def ask(event: Event) -> None:
        log.append(await bus.request("/Stock/Ask", timeout_s=PATIENCE_S))

    async def stock(event: Event) -> str:
        return await bus.request("/Price/Ask", timeout_s=PATIENCE_S)

    several = DeliveryPolicy(concurrency=4)
    bus.subscribe("/Shop/Go", ask, owner="Shop", name="Shop.go", policy=several)
    bus.subscribe("/Stock/Ask", stock, owner="Stock", name="Stock.ask", policy=several)
    bus.subscribe("/Price/Ask", lambda event: "12.5", owner="Price", name="Price.ask")
    publish_beside(bus, *["/Shop/Go"] * 8)
    assert log == ["12.5"] * 8


def test_a_circle_is_found_through_others_and_gone_when_a_wait_is_over() -> None:
    waits = WaitGraph()
    assert waits.enter(["A"], "B")
    assert waits.enter(["B", "X"], "C")
    assert waits.leads_back("A", ["C"])
    assert not waits.enter(["C"], "A")
    assert not waits.leads_back("C", ["A"])
    assert waits.enter(["A"], "B")  # a second event of A, in another lane
    waits.leave(["A"], "B")
    assert waits.leads_back("A", ["C"])
    waits.leave(["A"], "B")
    assert not waits.leads_back("A", ["C"])
    waits.leave(["B", "X"], "C")
    assert not waits


def test_waits_that_go_round_without_who_asks_are_looked_through_once() -> None:
    waits = WaitGraph()
    assert waits.enter(["A"], "B")
    assert waits.enter(["A"], "C")
    assert waits.enter(["B"], "D")
    assert waits.enter(["C"], "D")
    assert not waits.leads_back("A", ["E"])
    assert waits.enter(["E"], "E")  # an agent that is at work there itself notes nothing
    assert not waits.leads_back("E", ["A"])
