"""The event loop of simulations: time that jumps, an order that a seed decides, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from threading import Lock
from typing import ClassVar

import pytest

from graphbus_core.simulation import surroundings
from graphbus_core.simulation.loop import START, RefusedError, SimulationLoop, StuckError
from graphbus_core.simulation.surroundings import ModuleMemory, controlled_surroundings

Work = Callable[[], Awaitable[object]]


class Process:
    is_dead = False
    held_until = 0.0

    def running_handler(self) -> str:
        return "Shop.on_order"


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    made = SimulationLoop(Random(1))
    yield made
    made.end()


def test_time_jumps_to_the_next_timer(loop: SimulationLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == START + 86_400


def test_a_time_limit_ends_what_takes_too_long(loop: SimulationLoop) -> None:
    async def wait() -> None:
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        loop.run_until_complete(wait())
    assert loop.time() == START + 5


def order_of(seed: int, starts: int = 6) -> list[tuple[int, int]]:
    loop, seen = SimulationLoop(Random(seed)), []

    async def step_twice(number: int) -> None:
        for step in range(2):
            seen.append((number, step))
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(loop.create_task(step_twice(n), process=Process()) for n in range(starts)))

    loop.run_until_complete(main())
    loop.end()
    return seen


def test_the_same_seed_gives_the_same_order_of_nodes() -> None:
    assert order_of(7) == order_of(7)


def test_different_seeds_give_different_orders_of_nodes() -> None:
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 1


def test_the_callbacks_of_one_node_keep_their_order(loop: SimulationLoop) -> None:
    seen: list[int] = []

    async def main() -> None:
        for number in range(20):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert seen == list(range(20))


def test_nothing_of_a_dead_node_runs_any_more(loop: SimulationLoop) -> None:
    process, seen = Process(), []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("after")
        finally:
            seen.append("finally")

    async def main() -> list[str]:
        loop.create_task(work(), process=process)
        await asyncio.sleep(0.5)
        process.is_dead = True
        await asyncio.sleep(5)
        return list(seen)

    assert loop.run_until_complete(main()) == []


def test_a_node_that_is_held_goes_on_later(loop: SimulationLoop) -> None:
    process = Process()

    async def work() -> float:
        process.held_until = loop.time() + 70
        await asyncio.sleep(0)
        return loop.time()

    async def main() -> float:
        return await loop.create_task(work(), process=process)

    assert loop.run_until_complete(main()) == START + 70


def test_a_loop_that_can_never_go_on_names_what_waits(loop: SimulationLoop) -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await loop.create_task(wait_for_ever(), name="the dealer")

    with pytest.raises(StuckError, match=r"the dealer waits at .*:\d+"):
        loop.run_until_complete(main())


async def use_a_thread() -> None:
    await asyncio.to_thread(print)


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def start_a_program() -> None:
    await asyncio.create_subprocess_exec("true")


@pytest.mark.parametrize(
    ("work", "what"), [(use_a_thread, "thread"), (connect, "socket"), (start_a_program, "process")]
)
def test_what_cannot_be_simulated_is_refused_and_names_the_handler(loop: SimulationLoop, work: Work, what: str) -> None:
    async def main() -> None:
        await loop.create_task(work(), process=Process())  # type: ignore[arg-type]

    with pytest.raises(RefusedError, match=rf"Shop\.on_order uses .*{what}"):
        loop.run_until_complete(main())


def test_a_refusal_ends_the_simulation_even_if_the_handler_catches_it(loop: SimulationLoop) -> None:
    async def main() -> None:
        try:
            await asyncio.to_thread(print)
        except RefusedError:
            await asyncio.sleep(1)

    with pytest.raises(RefusedError):
        loop.run_until_complete(main())


@pytest.mark.parametrize(
    ("event", "arguments", "named"),
    [
        ("open", ("orders.txt", "w"), ["Shop.on_order uses a file (orders.txt)"]),
        ("open", ("orders.txt", "rb+"), ["Shop.on_order uses a file (orders.txt)"]),
        ("open", ("orders.txt", "r"), []),
        ("open", ("orders.txt", None), []),
        ("sqlite3.connect", ("shop.db",), ["Shop.on_order uses a database (shop.db)"]),
        ("import", ("json",), []),
    ],
)
def test_what_a_handler_writes_is_named_while_a_simulation_runs(
    loop: SimulationLoop, event: str, arguments: tuple[object, ...], named: list[str]
) -> None:
    """The audit hook is called as Python calls it, but so that its lines are measured."""
    with controlled_surroundings(loop, Random(1)):
        surroundings._audit(event, arguments)  # nothing runs
        assert list(loop.named) == []
        loop.here = Process()
        surroundings._audit(event, arguments)
    surroundings._audit(event, arguments)  # the simulation is over
    assert list(loop.named) == named


@pytest.mark.parametrize(("event", "what"), [("socket.connect", "a socket"), ("os.fork", "another process")])
def test_what_leaves_the_simulation_is_refused(loop: SimulationLoop, event: str, what: str) -> None:
    with controlled_surroundings(loop, Random(1)):
        loop.here = Process()
        with pytest.raises(RefusedError, match=what):
            surroundings._audit(event, ("",))


def test_what_cannot_be_copied_stays_and_the_rest_is_restored() -> None:
    class Shelf:
        locks: ClassVar[list[object]] = [Lock()]
        mugs: ClassVar[list[int]] = [1]

    memory, locks, mugs = ModuleMemory([Shelf]), Shelf.locks, Shelf.mugs
    locks.append(2)
    mugs.append(2)
    memory.restore()
    assert (len(Shelf.locks), Shelf.mugs) == (2, [1])
    assert Shelf.mugs is mugs
