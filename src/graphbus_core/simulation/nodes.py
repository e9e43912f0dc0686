"""Nodes of a simulation: each stands for a process with some agents, which may crash and start again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, get_args

from graphbus_core.bus import MessageBus
from graphbus_core.hosting.graph import LiveGraph, Member
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.state import States
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import EngineGone, LeaseLost, StateConflict, Subscription
from graphbus_core.ledger.worker import Worker
from graphbus_core.simulation.faults import OUTSIDE, Fault, Operation
from graphbus_core.simulation.loop import NOBODY, Process, SimulationLoop, StuckError
from graphbus_core.simulation.record import Record, Violation
from graphbus_core.simulation.subject import Subject

_SLOW_OPERATIONS, _SLOWEST_S = 0.2, 0.02
"""The share of operations that take time although nothing is wrong, and how long at most."""
_FEW_OPERATIONS, _OPERATIONS_OF_AN_EVENT = 2_000, 200
"""A run whose nodes do more than this at the ledger does not come to rest."""
_TWIN_AFTER_S, _TWIN_LASTS_S = 5.0, 300.0


class ProcessClock:
    """The clock of one process: that of the loop, and how far it is wrong."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._loop.now + self.offset_s

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._loop.now

    def after(self, delay_s: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `work` after `delay_s` seconds."""
        return self._loop.call_later(max(0.0, delay_s), work)

    def close(self) -> None:
        """Do nothing: the callbacks of a dead process never run."""


class Incarnation(Process):
    """One start of a node: a bus with fresh agents."""

    def __init__(self, subject: Subject, members: Sequence[Member], loop: SimulationLoop, states: States) -> None:
        self.subject = subject
        self.clock = ProcessClock(loop)
        self.worker: Worker | None = None
        self._starting = ""
        self.bus = MessageBus(
            admit=subject.topics.admit,
            learn=subject.topics.learn,
            middleware=subject.middleware,
            max_hops=subject.max_hops,
            max_tree=subject.max_tree,
            clock=self.clock,
        )
        self.bus.hosting.use_no_threads(
            loop.call_soon, lambda: loop.refuse("an agent with `async def` handlers from a plain `def`, and blocks")
        )
        self.graph = LiveGraph(self.bus, members, states=states)
        self.graph.factory = subject.factory

    def running_handler(self) -> str:
        """Return the name of the handler that runs now; empty if none does."""
        return self.bus.hosting.running_handler or self._starting

    async def start_agents(self) -> None:
        """Create, subscribe and start the agents; raise what one of them raises."""
        self.graph.make_nodes()
        self.bus.adopt_loop()
        for name, node in self.graph.nodes.items():
            self._starting = f"{name}.on_start"
            await self.bus.run(node.on_start, owner=name)  # type: ignore[misc]  # on a loop it is awaitable
        self._starting = ""


class World:
    """A run: what all its nodes share, and what came of it.

    Attributes:
        nodes: The processes with agents.
        outside: The node of the publisher.
        chance: Decides how long operations take.
        record: All that was observed.
        operations: How many operations have begun.
        most_operations: A run in which more is done at the ledger does not come to rest.
        gone_until: The engine applies nothing before this time.
        violation: The first invariant that did not hold; None if all did.
    """

    def __init__(
        self, subject: Subject, loop: SimulationLoop, chance: Random, faults: Sequence[Fault], events: int
    ) -> None:
        self.operations, self.most_operations = 0, _FEW_OPERATIONS + _OPERATIONS_OF_AN_EVENT * events
        self.subject, self.loop, self.chance = subject, loop, chance
        self.engine: MemoryLedger = subject.ledger(ProcessClock(loop))
        self.record = Record(subject.subscriptions)
        self.faults = faults
        self.gone_until = 0.0
        self.violation: Violation | None = None
        self.nodes = [Node(self, name) for name in subject.nodes]
        self.outside = Node(self, OUTSIDE)

    @property
    def counts(self) -> Mapping[str, Mapping[Operation, int]]:
        """Node -> operation -> how many of these were begun."""
        return {each.name: each.counts for each in (*self.nodes, self.outside)}

    def note(self, who: str, what: str) -> None:
        """Add a line to the transcript."""
        self.record.lines.append((self.loop.now, who, what))


class Node:
    """A place where some agents run, in one process or, for a while, in two.

    Attributes:
        counts: Operation -> how many of these were begun.
        live: The processes that have not ended, the latest last.
        started: Set when a process has started.
        subject: The build that the next process runs.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.counts: dict[Operation, int] = {}
        self.live: list[Incarnation] = []
        self.started: asyncio.Future[None] = world.loop.create_future()
        self.subject = world.subject

    @property
    def is_up(self) -> bool:
        """True if a process is running, and its agents have started."""
        return bool(self.live) and self.live[-1].worker is not None

    def start(self) -> None:
        """Start a process."""
        members = self.subject.nodes[self.name]
        incarnation = Incarnation(self.subject, members, self.world.loop, self.world.engine.states)
        self.live.append(incarnation)
        task = self.world.loop.create_task(self._live(incarnation), process=incarnation, name=self.name)
        task.add_done_callback(self._note_end)

    async def _live(self, incarnation: Incarnation) -> None:
        subject = incarnation.subject
        agents = {each.name for each in subject.nodes[self.name]}
        others = [each for each in subject.subscriptions if each.agent not in agents]
        worker = subject.worker(
            incarnation.bus,
            FaultyLedger(self, incarnation),
            others=others,
            clock=incarnation.clock,
            partitions=subject.partitions,
            build=subject.build,
            wanted=subject.wanted,
        )
        await incarnation.start_agents()
        await worker.open()
        worker.start()
        incarnation.worker = worker
        if not self.started.done():
            self.started.set_result(None)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.loop.fail(StuckError(f"an agent cannot start again ({describe_exception(error)})"))

    # --- faults ---

    def crash(self, incarnation: Incarnation, seconds: float) -> None:
        """End a process at once, and start another one after some time."""
        self._end(incarnation)
        self.world.note(self.name, "crashes")
        if not self.live:
            self._later(seconds, self.start)

    def add_twin(self, incarnation: Incarnation, after_s: float) -> None:
        """Start a second process after some time, and end the first one later without a warning."""
        self._later(after_s, self.start)
        self._later(after_s + _TWIN_LASTS_S, lambda: self.crash(incarnation, 0.0))

    def restart(self, incarnation: Incarnation, seconds: float) -> None:
        """Ask a process to stop, and start another one after some time."""
        worker = incarnation.worker

        async def stop() -> None:
            if worker is not None:
                await worker.drain()
                await worker.close()

        def end(_task: object) -> None:
            self._end(incarnation)
            self._later(seconds, self.start)

        self.world.note(self.name, "is asked to stop")
        self.world.loop.create_task(stop(), process=incarnation).add_done_callback(end)

    def upgrade(self, incarnation: Incarnation, seconds: float) -> None:
        """Ask a process to stop, and start one of the other build after some time."""
        old, new = self.world.subject, self.world.subject.upgrade
        if new is not None:
            self.subject = new if incarnation.subject is old else old
            self.restart(incarnation, seconds)

    def finish_upgrade(self) -> bool:
        """Replace what runs the old build; False if nothing does."""
        new = self.world.subject.upgrade
        late = [each for each in self.live if new is not None and each.subject is not new]
        for each in late:
            self.upgrade(each, 1.0)
        return bool(late)

    def _end(self, incarnation: Incarnation) -> None:
        incarnation.is_dead = True
        if incarnation in self.live:
            self.live.remove(incarnation)
        incarnation.subject.memory.restore([type(each) for each in incarnation.graph.nodes.values()])

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        loop = self.world.loop
        here, loop.here = loop.here, NOBODY  # a timer of the process would die with it
        loop.call_later(seconds, work)
        loop.here = here


class FaultyLedger:
    """The connection of one process to the engine: a `Ledger` that injects the faults of the plan and notes what is applied."""

    def __init__(self, node: Node, incarnation: Incarnation | None) -> None:
        self._node, self._world, self._engine = node, node.world, node.world.engine
        self._incarnation: Any = incarnation  # None for the publisher, which no fault of a process hits
        self._faults = [each for each in node.world.faults if each.node == node.name]
        for each in get_args(Operation):
            setattr(self, each, partial(self._do, each))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        """See `Ledger.open`."""
        self._refuse_if_gone()
        await self._engine.open(subscriptions)

    async def watch(self) -> AsyncIterator[Collection[str]]:
        """See `Ledger.watch`."""
        watching = self._engine.watch()
        while True:
            agents = await anext(watching)
            gone_s = self._world.gone_until - self._world.loop.now
            if gone_s > 0:
                await asyncio.sleep(gone_s)
                raise EngineGone("it has restarted")
            yield agents

    async def resume(self, build: str = "") -> int:
        """See `Ledger.resume`."""
        return int(await self._apply("resume", [build]))

    def _refuse_if_gone(self) -> None:
        if self._world.loop.now < self._world.gone_until:
            raise EngineGone("it restarts")

    async def _do(self, operation: Any, *arguments: Any) -> Any:
        """Apply an operation, with the faults that the plan has for it."""
        world, counts = self._world, self._node.counts
        world.operations += 1
        if world.operations > world.most_operations:
            world.loop.fail(StuckError(f"after {world.most_operations:,} operations there is more to do"))
            await world.loop.create_future()
        counts[operation] = number = counts.get(operation, 0) + 1
        if world.chance.random() < _SLOW_OPERATIONS:
            await asyncio.sleep(world.chance.random() * _SLOWEST_S)
        faults = [each for each in self._faults if each.number == number and each.operation == operation]
        for each in faults:
            await self._inject_before(each)
        self._refuse_if_gone()
        result = await self._apply(operation, arguments)
        for each in faults:
            await self._inject_after(each, result, lambda: self._apply(operation, arguments))
        return result

    async def _apply(self, operation: str, arguments: Sequence[Any]) -> Any:
        result = await getattr(self._engine, operation)(*arguments)
        build = self._incarnation.subject.build if self._incarnation is not None else ""
        self._world.record.note(self._world.loop.now, self._node.name, operation, arguments, result, build=build)
        return result

    async def _inject_before(self, fault: Fault) -> None:
        node, incarnation, world = self._node, self._incarnation, self._world
        match fault.kind:
            case "refused":
                raise EngineGone("a connection was refused")
            case "delay":
                await asyncio.sleep(fault.seconds)
            case "engine":
                world.note("the engine", f"is gone for {fault.seconds:g} s")
                world.gone_until = max(world.gone_until, world.loop.now + fault.seconds)
            case "crash" if not fault.is_after:
                node.crash(incarnation, fault.seconds)
                await world.loop.create_future()
            case "slow":
                incarnation.held_until = world.loop.now + fault.seconds
                node.add_twin(incarnation, _TWIN_AFTER_S)
                world.note(node.name, "stands still")
                await asyncio.sleep(0)
            case "clock":
                incarnation.clock.offset_s += fault.seconds
            case "restart":
                node.restart(incarnation, fault.seconds)
            case "upgrade":
                node.upgrade(incarnation, fault.seconds)

    async def _inject_after(self, fault: Fault, result: Any, again: Callable[[], Awaitable[Any]]) -> None:
        node, incarnation, world = self._node, self._incarnation, self._world
        match fault.kind:
            case "lost":
                raise EngineGone("the connection broke")
            case "duplicate":
                with suppress(LeaseLost, StateConflict):
                    await again()
            case "crash" if fault.is_after:
                node.crash(incarnation, fault.seconds)
                await world.loop.create_future()
            case "lease" if result:
                for lease in result:
                    world.engine.deliveries[lease.delivery].due = world.loop.now
                node.add_twin(incarnation, fault.seconds)
