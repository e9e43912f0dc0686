"""Runs of a simulation: the reference, in which events are handled one after the other, and a run with a ledger and faults."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from random import Random

import msgspec

from graphbus_core.bus.outcomes import Retry, decide_outcome
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.isolation import attempt
from graphbus_core.ledger.envelope import Envelope, envelope_of
from graphbus_core.ledger.handling import Attempt, run_handler
from graphbus_core.ledger.memory_states import MemoryStates
from graphbus_core.ledger.seam import EngineGone, StateChange
from graphbus_core.ledger.worker import FIRST_PAUSE_S, LONGEST_PAUSE_S
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import matches
from graphbus_core.simulation.faults import Fault
from graphbus_core.simulation.invariants import Snapshot, View, check_against, find_changing, plain_attributes
from graphbus_core.simulation.loop import START, RefusedError, SimulationLoop, StuckError
from graphbus_core.simulation.nodes import FaultyLedger, Incarnation, World
from graphbus_core.simulation.record import REST, Violation
from graphbus_core.simulation.subject import RootEvent, Subject
from graphbus_core.simulation.surroundings import controlled_surroundings

_GAP_S = 0.01
_PATIENCE_S = 60.0
"""How long tasks that handlers have started may take before a run is over."""
_LONGEST_S = 30 * 86400.0
"""A run that lasts longer, in simulated time, does not come to rest."""
_MOST_EVENTS = 20_000
"""A reference with more events does not come to rest."""
_OTHER_START = START + 98_765.4321


@contextmanager
def _loop_for(
    subject: Subject, chance: Random | None, surroundings: Random, starts_at: float
) -> Iterator[SimulationLoop]:
    """Yield a loop in controlled surroundings; refusals become RunError GBE667."""
    for each in filter(None, (subject, subject.upgrade)):
        each.memory.restore()
    loop = SimulationLoop(chance, starts_at)
    try:
        with controlled_surroundings(loop, surroundings):
            yield loop
    except RefusedError as refusal:
        raise RunError("GBE667", reason=str(refusal)) from None
    finally:
        loop.end()


# --- the reference ---


def find_expected(subject: Subject, roots: Sequence[RootEvent]) -> Snapshot:
    """Return what the events lead to without faults.

    Raises:
        RunError: GBE667, the graph cannot be simulated.
    """
    found, other = _run_reference(subject, roots, START, 1), _run_reference(subject, roots, _OTHER_START, 2)
    expected = msgspec.structs.replace(found, changing=find_changing(found, other))
    return expected if subject.upgrade is None else expected.or_else(find_expected(subject.upgrade, roots))


def _run_reference(subject: Subject, roots: Sequence[RootEvent], starts_at: float, seed: int) -> Snapshot:
    with _loop_for(subject, None, Random(seed), starts_at) as loop:
        states = MemoryStates()
        process = Incarnation(subject, subject.members, loop, states)
        handling = _handle_in_order(process, states, _envelopes(roots, starts_at), loop)
        task: asyncio.Task[Snapshot] = loop.create_task(handling, process=process)
        snapshot, error = attempt(lambda: loop.run_until_complete(task))
        if snapshot is not None:
            return snapshot
        if isinstance(error, RefusedError | GraphBusError):
            raise error
        what = "without faults it never ends" if isinstance(error, StuckError) else "an agent cannot start"
        raise RunError("GBE667", reason=f"{what} ({describe_exception(error)})") from error


def _envelopes(roots: Sequence[RootEvent], now: float) -> list[Envelope]:
    """Return the given events with ids that are the same in every run."""
    return [
        Envelope(id=f"event-{number}", type=each.topic, data=each.payload, time=now, correlationid=f"event-{number}")
        for number, each in enumerate(roots, 1)
    ]


async def _handle_in_order(
    process: Incarnation, states: MemoryStates, roots: Sequence[Envelope], loop: SimulationLoop
) -> Snapshot:
    """Handle events in one process, one after the other; what each handler publishes comes after all that waits."""
    waiting: deque[Event] = deque()
    process.bus.hosting.use_ledger(waiting.append)
    await process.start_agents()
    waiting.extend(each.to_event() for each in roots)
    events: dict[str, Envelope] = {}
    dead: dict[tuple[str, str], str] = {}
    while waiting or await _is_woken(waiting):
        if loop.now > _OTHER_START + _LONGEST_S or len(events) > _MOST_EVENTS:
            raise StuckError(f"after {len(events)} events it still publishes")
        event = waiting.popleft()
        events[event.event_id] = envelope_of(event)
        for each in process.bus.subscriptions:
            if matches(each.topic, event.topic):
                outcome = await _try(process, each, event, states)
                if isinstance(outcome, Attempt):
                    waiting.extend(outcome.outgoing)
                else:
                    dead[event.event_id, each.name] = outcome
    return _snapshot(roots, events, states, [process], dead)


async def _is_woken(waiting: Collection[object]) -> bool:
    """Give tasks that handlers have started some time; True if they have published."""
    await asyncio.sleep(_PATIENCE_S)
    return bool(waiting)


async def _try(
    process: Incarnation, subscription: LiveSubscription, event: Event, states: MemoryStates
) -> Attempt | str:
    """Let a handler handle an event, as often as its policy says; return the attempt that succeeded, or the last error."""
    for number in range(1, subscription.policy.retries + 2):
        ended: asyncio.Future[Attempt] = asyncio.get_running_loop().create_future()
        run_handler(process.bus, subscription, event, number, ended.set_result)
        ran = await ended
        if ran.error is None:
            states.write_together([StateChange(*each) for each in ran.state])
            return ran
        now = process.clock.time()
        outcome = decide_outcome(subscription.policy, number, ran.error, now)
        if not isinstance(outcome, Retry):
            break
        await asyncio.sleep(outcome.at - now)
    return describe_exception(ran.error)


def _snapshot(
    roots: Sequence[Envelope],
    events: Mapping[str, Envelope],
    states: MemoryStates,
    processes: Sequence[Incarnation],
    dead: dict[tuple[str, str], str],
) -> Snapshot:
    given = {each.id for each in roots}
    kept = states.snapshot().agents
    return Snapshot(
        {key: each for key, each in events.items() if each.correlationid in given},
        {agent: {key: each.value for key, each in values.items()} for agent, values in kept.items()},
        {name: plain_attributes(node) for process in processes for name, node in process.graph.nodes.items()},
        {(key, handler): error for (key, handler), error in dead.items() if events[key].correlationid in given},
    )


# --- a run with faults ---


def run_once(
    subject: Subject, roots: Sequence[RootEvent], seed: int, faults: Sequence[Fault], expected: Snapshot
) -> World:
    """Run the graph on a ledger under a seed and with these faults, and compare the result with what is expected of these events.

    Raises:
        RunError: GBE667, the graph cannot be simulated.
    """
    with _loop_for(subject, Random(f"order {seed}"), Random(f"chance {seed}"), START) as loop:
        world = World(subject, loop, Random(f"latency {seed}"), faults, len(expected.events))
        envelopes = [msgspec.structs.replace(each, build=subject.build) for each in _envelopes(roots, START)]
        stuck = ""
        try:
            loop.run_until_complete(_publish_and_rest(world, envelopes))
        except StuckError as problem:
            stuck = str(problem)
        world.violation = _check(world, envelopes, stuck, expected)
        return world


async def _publish_and_rest(world: World, roots: Sequence[Envelope]) -> None:
    """Start all nodes, append the events in their order, and return when no delivery is open and all nodes run one build."""
    connection = FaultyLedger(world.outside, None)
    await connection.open(world.subject.subscriptions)
    for each in world.nodes:
        each.start()
    await asyncio.gather(*(each.started for each in world.nodes))
    for root in roots:
        await asyncio.sleep(_GAP_S)
        await _append(connection, root)
    await _rest(world)
    while any(each.finish_upgrade() for each in world.nodes):  # one by one
        await _rest(world)


async def _rest(world: World) -> None:
    """Return when no delivery is open and all nodes are up."""
    loop, record = world.loop, world.record
    seen, pause_s = -1, _PATIENCE_S
    while record.is_open or len(record.lines) != seen or not all(each.is_up for each in world.nodes):
        if loop.now > START + _LONGEST_S:
            raise StuckError("it goes on for days")
        pause_s = 2 * pause_s if len(record.lines) == seen else _PATIENCE_S
        seen = len(record.lines)
        await asyncio.sleep(pause_s)  # tasks that handlers have started may publish meanwhile


async def _append(connection: FaultyLedger, root: Envelope) -> None:
    pause_s = FIRST_PAUSE_S
    while True:
        with suppress(EngineGone):
            await connection.append([root])
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _check(world: World, roots: Sequence[Envelope], stuck: str, expected: Snapshot) -> Violation | None:
    """Return the first violation of a run that has ended."""
    record, subject, users = world.record, world.subject, world.subject.users
    topics = {each.build: each.topics for each in (subject.upgrade, subject) if each is not None}
    violation = next(record.violations(lambda event: topics[event.build].check(event.type, event.data)), None)
    if violation is not None or stuck:
        return violation or Violation(REST, stuck)
    dead = {(event.id, handler): each.error for event, handler, each in record.dead}
    states: MemoryStates = world.engine.states  # type: ignore[assignment]  # its default
    found = _snapshot(roots, record.events, states, [each.live[-1] for each in world.nodes if each.live], dead)
    view = View(found.states, tuple(record.events.values()), tuple(record.dead))
    return next(chain(check_against(expected, found, users), users.check(view)), None)
