"""Dead letters once more, while the graph runs: each once, whatever else goes on."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core import Event, GraphBusNode, connect, subscribe
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import DeadLetterFile, DeadLetterKeeper, StoredLetter
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.testing import FakeClock, run_graph
from tests.patience import PATIENCE_S


class Carrier(GraphBusNode):
    is_down = True

    def on_start(self) -> None:
        self.booked: list[str] = []
        self.told: list[tuple[str, str, str]] = []

    @subscribe("/Order/Placed")
    def book(self, order_id: str) -> None:
        if self.is_down:
            raise ConnectionError(f"no line for {order_id}")
        self.booked.append(order_id)
        self.publish("/Parcel/Booked", {"order_id": order_id})

    @subscribe("/Parcel/Booked")
    def tell(self, event: Event) -> None:
        self.told.append((event.event_id, event.causation_id, event.correlation_id))

    @subscribe("/Other/Thing")
    def other(self) -> None:
        raise ValueError("other")

    @subscribe("/Tick")
    def on_tick(self) -> None:
        time.sleep(0.001)


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture
def graph(carrier: Carrier) -> Iterator[LiveGraph]:
    with connect(carrier, on_error="isolate") as graph:
        yield graph


def fail(graph: LiveGraph, *orders: str) -> None:
    for order in orders:
        graph.publish("/Order/Placed", {"order_id": order})
    assert graph.settle(5)


def orders(letters: tuple[DeadLetter, ...]) -> list[str]:
    return [letter.event["order_id"] for letter in letters]


# --- the ring ---------------------------------------------------------------------------------


def test_what_was_handled_at_last_is_not_replayed_again(graph: LiveGraph, carrier: Carrier) -> None:
    fail(graph, "1", "2")
    carrier.is_down = False
    assert graph.replay_dead_letters() == ()
    assert graph.replay_dead_letters() == ()
    assert carrier.booked == ["1", "2"]
    assert graph.bus.dead_letters() == ()
    assert graph.bus.statistics().dead_letters == 2, "that they were is still counted"


# --- others at the same time ----------------------------------------------------------------------


def test_two_replays_at_once_deliver_each_letter_once(graph: LiveGraph, carrier: Carrier) -> None:
    fail(graph, *(str(number) for number in range(50)))
    carrier.is_down = False
    graph.bus.hosting.start_dispatcher()
    threads = [threading.Thread(target=graph.replay_dead_letters) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(carrier.booked) == sorted(str(number) for number in range(50))


@pytest.mark.parametrize("has_dispatcher", [True, False])
def test_a_replay_ends_although_others_never_stop_publishing(
    graph: LiveGraph, carrier: Carrier, has_dispatcher: bool
) -> None:
    fail(graph, "1", "2")
    carrier.is_down = False
    if has_dispatcher:
        graph.bus.hosting.start_dispatcher()
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.is_set():
            if graph.bus.statistics().queued < 20:
                graph.publish("/Tick")

    replayed = threading.Thread(target=graph.replay_dead_letters)
    publishers = [threading.Thread(target=publish) for _ in range(2)]
    for thread in (*publishers, replayed):
        thread.start()
    replayed.join(PATIENCE_S)
    is_stuck = replayed.is_alive()
    is_over.set()
    for thread in (*publishers, replayed):
        thread.join(PATIENCE_S)
    assert not is_stuck
    assert carrier.booked == ["1", "2"]


def test_letters_that_fail_again_wait_for_their_further_attempts_together() -> None:
    log: list[str] = []

    class Slow(GraphBusNode):
        @subscribe("/A/B", retries=2, backoff=60)
        def on_b(self, n: int) -> None:
            log.append(f"{n}")
            if n != 2 or len(log) < 20:
                raise ConnectionError
            self.publish("/A/C", {"n": n})

        @subscribe("/A/C")
        def on_c(self, n: int) -> None:
            log.append(f"child of {n}")

    clock = FakeClock()
    with run_graph(Slow, clock=clock, on_error="isolate") as graph:
        for number in range(5):
            graph.publish("/A/B", {"n": number})
        graph.settle()
        began = clock.monotonic()
        assert len(log) == 15
        died = graph.replay_dead_letters()
        assert clock.monotonic() - began == 180
        assert log[15:] == [*"01234", *"012", "child of 2", *"34", *"0134"]
        assert [letter.event["n"] for letter in died] == [0, 1, 3, 4]


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_dispatcher", [True, False])
def test_a_letter_that_is_not_handled_when_the_graph_stops_is_left(has_dispatcher: bool) -> None:
    begun = threading.Event()
    refused: list[str] = []

    class Endless(GraphBusNode):
        is_well = False

        @subscribe("/A/B")
        async def on_b(self) -> None:
            if Endless.is_well:
                begun.set()
                await asyncio.sleep(60)
            raise ConnectionError

    graph = connect(Endless, on_error="isolate")
    graph.grace_s = 0.05
    graph.publish("/A/B")
    Endless.is_well = True
    if has_dispatcher:
        graph.bus.hosting.start_dispatcher()

    def replay() -> None:
        try:
            graph.replay_dead_letters()
        except RunError as error:
            refused.append(error.code)

    replaying = threading.Thread(target=replay)
    replaying.start()
    assert begun.wait(PATIENCE_S)
    graph.stop()
    replaying.join(PATIENCE_S)
    assert refused == ["GBE615"]
    assert "ConnectionError" in [letter.error for letter in graph.bus.dead_letters()]


# --- on disk ----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "dead_letters.sqlite3")


@pytest.fixture
def keeper(graph: LiveGraph, path: str) -> Iterator[DeadLetterKeeper]:
    keeper = DeadLetterKeeper(path)
    graph.bus.hosting.letters.keeper = keeper
    yield keeper
    keeper.close()


def on_disk(path: str) -> list[StoredLetter]:
    with closing(DeadLetterFile(path)) as file:
        return file.letters()


def test_what_is_handled_at_last_leaves_the_disk_too(
    graph: LiveGraph, carrier: Carrier, keeper: DeadLetterKeeper, path: str
) -> None:
    fail(graph, "1", "2")
    carrier.is_down = False
    graph.replay_dead_letters(graph.bus.dead_letters()[:1])
    (left,) = on_disk(path)
    assert left.letter.event["order_id"] == "2"


def test_a_letter_that_waits_for_the_disk_is_replayed_likewise(
    graph: LiveGraph, carrier: Carrier, keeper: DeadLetterKeeper, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    fail(graph, "1")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        fail(graph, "2", "3")
        carrier.is_down = False
        graph.replay_dead_letters(graph.bus.dead_letters()[1:2])
        carrier.is_down = True
        graph.replay_dead_letters(graph.bus.dead_letters()[1:2])
        carrier.is_down = False
        with caplog.at_level(logging.ERROR, "graphbus.dead_letters"):
            graph.replay_dead_letters(graph.bus.dead_letters()[:1])
        assert "the result of a replay was not written" in caplog.text
        holder.execute("ROLLBACK")
    keeper.close()
    left = [(each.letter.event["order_id"], each.letter.attempts) for each in on_disk(path)]
    assert left == [("1", 1), ("3", 1)], "what could not be told to the disk is delivered again: at least once"
