"""The worker of one process: claims what a ledger hands out to the agents of a graph, runs their handlers, and settles.

    claim -> lease -> handler (on the bus of the graph) -> outcome -> settle, with changes of states and published events

It has one task for each agent and partition, so that an agent handles one event at a time in each of its partitions. What an
attempt leads to is decided in `decide_outcome_of`, a pure function.

The worker runs on any event loop: on a thread of its own (see `attached`), or on the loop of the simulator. Handlers run on the
thread of the bus. If the engine can settle there, too, an attempt that succeeds is settled at once, and the next delivery of the
same claim follows: only the end of a claim, and what has gone wrong, comes back to the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.bus.dead_letters import describe_failure
from graphbus_core.bus.outcomes import Retry, decide_outcome
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt as try_to
from graphbus_core.ledger.envelope import Envelope, envelope_of
from graphbus_core.ledger.handling import Attempt, run_handler
from graphbus_core.ledger.seam import (
    Dead,
    Done,
    EngineGone,
    Lease,
    LeaseLost,
    Ledger,
    Outcome,
    Parked,
    Released,
    RetryAt,
    Settled,
    SettlesHere,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.model.messages import Event
from graphbus_core.schema.types import UNKNOWN, Type
from graphbus_core.schema.validation import misfit_error, problems_in

R = TypeVar("R")

MOST_UNFINISHED = 5
"""After this many leases that were neither settled nor given back, a delivery is a dead letter: it may end the process."""
MOST_AT_ONCE, LONGEST_AT_ONCE_S = 32, 0.1
"""How many deliveries are claimed at once while handlers are quick, and after how long the rest of them is given back."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
"""The pauses between two attempts to reach an engine that is gone."""
SHORTEST_RENEWAL_S, LONGEST_RENEWAL_S = 0.25, 10.0
"""The pauses before a lease is renewed, however wrong the clock of this process is."""

_UNUSABLE_FILE = "GBE645"

_log = Log("graphbus.ledger")


class Wanted(NamedTuple):
    """What a handler takes.

    Attributes:
        declared: The declared type of the payload: the handler is not run for another one. Unknown if nothing is declared.
        needed: The same with what was read from the code. Only if the handler fails, a payload of another type is the reason.
    """

    declared: Type
    needed: Type


_ANYTHING = Wanted(UNKNOWN, UNKNOWN)


class WorkerCounts(msgspec.Struct):
    """What a worker has counted since its start, for one subscription.

    Attributes:
        repeated: Deliveries that an earlier lease had left unfinished.
        lost: Leases that ended before they were settled; nothing of these attempts was kept.
        conflicts: Attempts that were repeated because a state had changed meanwhile.
        dead: Dead letters.
    """

    repeated: int = 0
    lost: int = 0
    conflicts: int = 0
    dead: int = 0


def decide_outcome_of(attempt: Attempt, lease: Lease, policy: DeliveryPolicy, now: float, build: str = "") -> Outcome:
    """Decide how the lease of an attempt is settled.

    Args:
        attempt: The attempt.
        lease: Its lease, with the number of the attempt.
        policy: The policy of the subscription.
        now: The time of the engine.
        build: The digest of the build that has handled the event.
    """
    if attempt.error is None:
        return Done()
    if attempt.is_cut_off:
        return Released()
    place, line, traceback, *_ = attempt.failure or describe_failure(attempt.error)
    if attempt.is_misfit and lease.envelope.build not in ("", build):
        return Parked(
            f"Another build ({lease.envelope.build[:12]}) has published it, and this one cannot read it: {line}"
        )
    decided = decide_outcome(policy, lease.attempt, attempt.error, now)
    return RetryAt(decided.at, line) if isinstance(decided, Retry) else Dead("handler", line, place, traceback)


class Worker:
    """Handles the deliveries of the agents that one bus hosts.

    Args:
        bus: The bus whose subscriptions handle the events. From now on, what is published there goes to the ledger.
        ledger: The engine.
        others: The subscriptions of agents that other processes host; they get deliveries too.
        build: The digest of the build, which each event carries.
        clock: The clock of the engine.
        partitions: How many partitions the deliveries of a subscription with a `key` have.
        divided: Agent -> how many they are instead for the subscriptions of this agent.
        wanted: (handler, topic) -> what the payload of an event of another build must be.

    Attributes:
        counts: (handler, topic) -> what was counted for this subscription.
        on_wake: Called when the engine says that anything may have changed.
        is_reachable: False while the engine cannot be reached, and after a failure of the worker itself.
    """

    def __init__(
        self,
        bus: MessageBus,
        ledger: Ledger,
        *,
        others: Sequence[Subscription] = (),
        build: str = "",
        clock: Clock | None = None,
        partitions: int = 1,
        divided: Mapping[str, int] = MappingProxyType({}),
        wanted: Mapping[tuple[str, str], Wanted] = MappingProxyType({}),
    ) -> None:
        self.counts: dict[tuple[str, str], WorkerCounts] = {}
        self.on_wake: Callable[[], Awaitable[None]] | None = None
        self.is_reachable = True
        self._has_failed = False
        self._bus, self._ledger, self._others, self._build = bus, ledger, tuple(others), build
        self._settling = ledger if isinstance(ledger, SettlesHere) else None
        self._partitions, self._divided, self._wanted = partitions, divided, wanted
        self._clock = clock or SystemClock()
        self._hosted: dict[tuple[str, str], LiveSubscription] = {}
        self._wakes: list[tuple[str, asyncio.Event]] = []
        self._unsent: list[Envelope] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._appending: set[asyncio.Task[Any]] = set()
        bus.hosting.use_ledger(self.publish)

    # --- life ---

    async def open(self) -> None:
        """Connect to the engine, and declare all subscriptions of the graph."""
        self._loop = asyncio.get_running_loop()
        self._hosted = {(each.name, each.topic): each for each in self._bus.subscriptions}
        self.counts = {key: self.counts.get(key, WorkerCounts()) for key in self._hosted}
        own = [
            Subscription(
                agent=agent_of(name),
                handler=name,
                topic=topic,
                partition_key=each.policy.key,
                partitions=self._divided.get(agent_of(name), self._partitions),
                on_retry=each.policy.on_retry,
            )
            for (name, topic), each in self._hosted.items()
        ]
        await self._reach(lambda: self._ledger.open([*own, *self._others]))
        await self._hand_over_dead_letters()
        if self._build:
            await self._reach(lambda: self._ledger.resume(self._build))
        await self.flush()

    async def _hand_over_dead_letters(self) -> None:
        """Pass dead letters that an ended process has left in the engine to the keeper of the bus."""
        keeper, agents = self._bus.hosting.letters.keeper, sorted({agent_of(name) for name, _ in self._hosted})
        if keeper is None:
            return
        for number, letter in await self._reach(lambda: self._ledger.dead_letters(agents)):
            keeper(letter)
            await self._forget(number)

    async def _forget(self, number: int) -> None:
        await self._reach(lambda: self._ledger.forget((number,)))

    def start(self) -> None:
        """Begin to claim and handle deliveries; the bus must have its agents by now."""
        places = {(agent_of(name), 0): None for name, _ in self._hosted}
        keyed = (agent_of(name) for (name, _), each in self._hosted.items() if each.policy.key)
        counts = {agent: self._divided.get(agent, self._partitions) for agent in keyed}
        places |= {(agent, number): None for agent, count in counts.items() for number in range(count)}
        self._tasks = [asyncio.create_task(self._wake_workers(), name="graphbus-watch")]
        self._tasks += [asyncio.create_task(self._work(*place), name=f"graphbus-{place}") for place in places]
        for each in self._tasks:
            each.add_done_callback(self._report_end)

    def _report_end(self, task: asyncio.Task[None]) -> None:
        """Log the exception that has ended a task, after which the graph is not ready any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._stopping.is_set():
            self._has_failed, self.is_reachable = True, False
            _log.error("%s has ended, and its events wait for another process", task.get_name(), exc_info=error)

    async def drain(self, grace_s: float = 10.0) -> None:
        """Claim nothing more, and wait up to `grace_s` for handlers that run; leases of those that did not end run out."""
        self._stopping.set()
        self._wake()
        if self._tasks:
            watch, *workers = self._tasks
            watch.cancel()
            _, late = await asyncio.wait(workers, timeout=grace_s) if workers else (None, set())
            for each in late:
                each.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Append what was published last, and disconnect."""
        await asyncio.wait([asyncio.create_task(self.flush()), *self._appending])
        if self._unsent:
            _log.error("%d events that were published last are lost: the ledger cannot be reached", len(self._unsent))
        await self._ledger.close()

    # --- publishing ---

    def publish(self, event: Event) -> None:
        """Append an event that no handler under this worker has published; return when it is safe.

        On the loop of the worker itself it cannot wait: the event is appended with the next `flush`.

        Raises:
            RunError: GBE615, the worker stops, and its engine cannot be reached.
        """
        envelope = envelope_of(event, build=self._build)
        loop = self._loop
        if loop is None or _is_running_here(loop):
            self._unsent.append(envelope)
            if loop is not None:
                loop.call_soon(self._flush_soon)
            return
        try:
            asyncio.run_coroutine_threadsafe(self._append([envelope]), loop).result()
        except EngineGone:
            raise RunError("GBE615", topic=event.topic) from None

    async def flush(self) -> None:
        """Append the events that were published on the loop of the worker."""
        unsent, self._unsent = self._unsent, []
        if unsent:
            with suppress(EngineGone):
                await self._append(unsent)
                return
            self._unsent = unsent + self._unsent

    def _flush_soon(self) -> None:
        if self._unsent and self._loop is not None:
            self._keep(self._loop.create_task(self.flush()))

    def _keep(self, appending: asyncio.Task[Any]) -> None:
        """Let `close` wait for a task that appends events."""
        self._appending.add(appending)
        appending.add_done_callback(self._appending.discard)

    async def _append(self, envelopes: Sequence[Envelope]) -> None:
        self._keep(cast("asyncio.Task[Any]", asyncio.current_task()))
        await self._reach(lambda: self._ledger.append(envelopes))

    # --- handling ---

    async def _wake_workers(self) -> None:
        """Wake the workers whenever the engine says that a delivery may be due."""
        while True:
            with suppress(EngineGone):
                async for agents in self._ledger.watch():
                    self._wake(agents)
                    if self.on_wake is not None and not agents:
                        await self.on_wake()
            self._wake()
            await asyncio.sleep(FIRST_PAUSE_S)

    def _wake(self, agents: Collection[str] = ()) -> None:
        """Let the tasks of these agents claim; of all, if none is named."""
        for agent, wake in self._wakes:
            if not agents or agent in agents:
                wake.set()

    async def _work(self, agent: str, partition: int) -> None:
        """Claim and handle the deliveries of one agent and partition, until the worker stops."""
        wake, limit = asyncio.Event(), 1
        self._wakes.append((agent, wake))
        while not self._stopping.is_set():
            wake.clear()
            leases = await self._reach(partial(self._ledger.claim, agent, (partition,), limit))
            if leases:
                limit = _next_limit(len(leases)) if await self._handle_all(leases) else 1
            elif not self._stopping.is_set():
                await wake.wait()

    async def _handle_all(self, leases: Sequence[Lease]) -> bool:
        """Handle deliveries in their order, and give back those behind one that must be repeated or takes long.

        Return whether several may be claimed at once next.
        """
        held, loop = deque(leases), asyncio.get_running_loop()
        ends_at = loop.time() + LONGEST_AT_ONCE_S
        renewing: asyncio.TimerHandle | asyncio.Task[None]

        def renew() -> None:
            nonlocal renewing
            renewing = loop.create_task(self._renew(held))

        renewing = loop.call_later(pause_before_renewal(leases[0], self._clock.time()), renew)
        is_quick = may_follow = True
        try:
            while held and may_follow and is_quick and not self._stopping.is_set():
                if held[0].unfinished:  # if it ends the process again, that must not count for the others
                    is_quick = False
                    while len(held) > 1:
                        await self._give_back(held.pop())
                may_follow = await self._handle(held, ends_at)
                is_quick = is_quick and loop.time() < ends_at
        finally:
            renewing.cancel()
        while held:
            await self._give_back(held.pop())
        return is_quick

    async def _give_back(self, lease: Lease) -> None:
        with suppress(LeaseLost):
            await self._reach(lambda: self._ledger.settle(lease, Released()))

    async def _handle(self, held: deque[Lease], ends_at: float) -> bool:
        """Handle the first delivery, and those behind it that succeed before `ends_at` on the clock of the loop.

        Their leases are taken out of `held`, and the next ones are claimed into it. A handler runs as often as a state conflicts.
        Return whether later deliveries may follow.
        """
        lease = held[0]
        self._counts_of(lease).repeated += bool(lease.unfinished)
        if lease.unfinished >= MOST_UNFINISHED:
            why = f"{lease.unfinished} times a process ended, or lost the delivery, while it handled it"
            return await self._settle(held.popleft(), Dead("unfinished", why))
        while (attempt := await self._attempt(held, ends_at)) is not None:
            attempt = attempt.described()
            outcome = decide_outcome_of(attempt, held[0], self._policy_of(held[0]), self._clock.time(), self._build)
            with suppress(StateConflict):
                may_follow = await self._settle(held[0], outcome, attempt)
                held.popleft()
                return may_follow
        return True

    async def _attempt(self, held: deque[Lease], ends_at: float) -> Attempt | None:
        """Run handlers as `_handle` says; return the attempt that has to be settled, of the first lease that is left, if any."""
        loop, notes, count = asyncio.get_running_loop(), deque[Callable[[], None]](), len(held)
        ended: asyncio.Future[Attempt | None] = loop.create_future()

        def end(attempt: Attempt) -> None:
            nonlocal count
            if ended.done():  # the task was cancelled: the lease runs out
                return
            left_s = 0.0 if self._stopping.is_set() else ends_at - loop.time()
            is_last_and_quick = len(held) == 1 and not held[0].unfinished and left_s > LONGEST_AT_ONCE_S / 2
            limit = _next_limit(count) if is_last_and_quick else 0  # late, so that little must be given back
            settled = self._settle_here(held[0], attempt, loop, limit)
            if settled is None:
                _hand_over(ended, attempt)
                return
            held.popleft()
            held.extend(settled.leases)
            count = len(settled.leases) or count
            notes.append(settled.note)
            if attempt.outgoing or len(notes) == 1:  # the next handler may take long
                with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                    loop.call_soon_threadsafe(_call_all, notes)
            if held and not held[0].unfinished and left_s > 0:
                self._begin(held[0], end)
            else:
                _hand_over(ended, None)

        self._begin(held[0], end)
        attempt = await ended
        _call_all(notes)
        if attempt is not None and attempt.error is not None and not attempt.is_cut_off:
            misfit = self._find_misfit(held[0], self._wanted_by(held[0]).needed)
            return attempt if misfit is None else Attempt(misfit)
        return attempt

    def _begin(self, lease: Lease, end: Callable[[Attempt], None]) -> None:
        """Let the bus run the handler of a lease; what another build has published may be a misfit."""
        misfit = self._find_misfit(lease, self._wanted_by(lease).declared)
        if misfit is not None:
            end(Attempt(misfit))
            return
        subscription = self._hosted[lease.subscription.handler, lease.subscription.topic]
        run_handler(self._bus, subscription, lease.envelope.to_event(), lease.attempt, end)

    def _settle_here(
        self, lease: Lease, attempt: Attempt, loop: asyncio.AbstractEventLoop, limit: int
    ) -> Settled | None:
        """Settle a successful attempt if this is the thread of the bus and the engine can settle there, and claim what follows.

        Return None if it is to be settled on the loop, which also says why that was refused here.
        """
        ledger = self._settling
        if attempt.error is not None or ledger is None or _is_running_here(loop):
            return None
        if not self._bus.hosting.is_drained_by(get_ident()):
            return None  # it is the event loop of `async def` handlers
        settled, _ = try_to(lambda: ledger.settle_here(lease, Done(), *self._effects_of(attempt), limit))
        return settled

    def _effects_of(self, attempt: Attempt) -> tuple[Sequence[StateChange], Sequence[Envelope]]:
        """Return the changes of states and the events of an attempt."""
        state = [StateChange(*change) for change in attempt.state]
        return state, [envelope_of(event, build=self._build) for event in attempt.outgoing]

    def _wanted_by(self, lease: Lease) -> Wanted:
        return self._wanted.get((lease.subscription.handler, lease.subscription.topic), _ANYTHING)

    def _find_misfit(self, lease: Lease, wanted: Type) -> RunError | None:
        """Return the error about an event of another build that does not fit a type; None if it fits, or is of this build."""
        if lease.envelope.build in ("", self._build):
            return None
        payload = {} if lease.envelope.data is None else lease.envelope.data  # None is a payload without fields
        problems = problems_in(wanted, payload)
        data = {"handler": lease.subscription.handler, "topic": lease.envelope.type}
        return misfit_error("GBE650", problems, **data) if problems else None

    async def _renew(self, held: Collection[Lease]) -> None:
        """Extend the leases now and again in time, as long as there are any that are not lost."""
        latest = next(iter(held), None)
        while latest is not None:
            with suppress(EngineGone):
                extended = [await self._extend(lease) for lease in tuple(held)]
                latest = next((each for each in extended if each is not None), None)
            if latest is not None:
                await asyncio.sleep(pause_before_renewal(latest, self._clock.time()))

    async def _extend(self, lease: Lease) -> Lease | None:
        """Extend a lease; None if it is lost, which `settle` will say: a handler that runs cannot be stopped."""
        with suppress(LeaseLost):
            return await self._ledger.extend(lease)
        return None

    async def _settle(self, lease: Lease, outcome: Outcome, attempt: Attempt | None = None) -> bool:
        """Settle a lease; False if later deliveries must wait.

        What a handler has published and stored is kept only if it succeeded.

        Raises:
            StateConflict: The handler must run again, because a state has changed meanwhile.
        """
        effects = self._effects_of(attempt if attempt is not None and isinstance(outcome, Done) else Attempt())
        try:
            await self._reach(lambda: self._ledger.settle(lease, outcome, *effects))
        except LeaseLost:
            self._counts_of(lease).lost += 1
            _log.warning("the lease of %s on event %s was lost", lease.subscription.handler, lease.envelope.id)
            return False
        except StateConflict:
            self._counts_of(lease).conflicts += 1
            raise
        except RunError as refused:  # e.g. for an event that is too large
            if not isinstance(outcome, Done):
                raise
            place, line, traceback, *_ = failure = describe_failure(refused)
            return await self._settle(lease, Dead("handler", line, place, traceback), Attempt(refused, failure=failure))
        else:
            self._counts_of(lease).dead += isinstance(outcome, Dead)
            self._record(lease, outcome, attempt)
            if isinstance(outcome, Dead) and self._bus.hosting.letters.keeper is not None:
                await self._forget(lease.delivery)
        return isinstance(outcome, Done | Dead | Parked) or (
            isinstance(outcome, RetryAt) and lease.subscription.on_retry == "skip"
        )

    def _policy_of(self, lease: Lease) -> DeliveryPolicy:
        return self._hosted[lease.subscription.handler, lease.subscription.topic].policy

    def _record(self, lease: Lease, outcome: Outcome, attempt: Attempt | None) -> None:
        """Log a failure as a bus without a ledger does, and keep a dead letter in its memory, too."""
        if isinstance(outcome, Done):
            return
        letters, event, handler = self._bus.hosting.letters, lease.envelope.to_event(), lease.subscription.handler
        if isinstance(outcome, RetryAt):
            attempts, delay_s = self._policy_of(lease).retries + 1, outcome.at - self._clock.time()
            letters.log_retry(event, handler, outcome.error, attempt=lease.attempt, of=attempts, delay_s=delay_s)
        elif isinstance(outcome, Parked):
            _log.warning("%s (event %s) is parked for %s: %s", event.topic, event.event_id, handler, outcome.why)
        elif isinstance(outcome, Dead) and attempt is not None and attempt.failure is not None:
            letters.record_failure(event, handler, attempt.failure, attempt=lease.attempt, failed_at=lease.failed_at)
        elif isinstance(outcome, Dead):
            attempts = lease.attempt - 1
            letters.record_undelivered(event, outcome.reason, outcome.error, handler, attempts=attempts)

    def _counts_of(self, lease: Lease) -> WorkerCounts:
        return self.counts[lease.subscription.handler, lease.subscription.topic]

    # --- the engine ---

    async def _reach(self, work: Callable[[], Awaitable[R]]) -> R:
        """Repeat an operation until the engine can be reached; every operation may be repeated.

        A file that cannot be used, for instance because the disk is full, is tried again as well, but not at the start.

        Raises:
            EngineGone: The worker stops, and the engine still cannot be reached.
            RunError: The engine refuses the operation.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                result = await work()
            except (EngineGone, RunError) as gone:
                if isinstance(gone, RunError) and not (self._tasks and gone.code == _UNUSABLE_FILE):
                    raise
                if self.is_reachable:
                    _log.error("the ledger cannot be reached: %s", gone)
                self.is_reachable = False
                if self._stopping.is_set():
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if not self.is_reachable and not self._has_failed:
                _log.warning("the ledger can be reached again")
                self.is_reachable = True
            return result


def _next_limit(count: int) -> int:
    """Return how many deliveries are claimed after this many whose handlers were quick."""
    return min(2 * count, MOST_AT_ONCE)


def pause_before_renewal(lease: Lease, now: float) -> float:
    """Return the seconds until a lease is renewed: a third of its rest, within limits, since two clocks may disagree."""
    return min(max(SHORTEST_RENEWAL_S, (lease.ends_at - now) / 3), LONGEST_RENEWAL_S)


def agent_of(handler: str) -> str:
    """Return the agent of a handler, which is named `Agent.method`."""
    return handler.partition(".")[0]


def _hand_over(ended: asyncio.Future[Attempt | None], attempt: Attempt | None) -> None:
    """Give a future of the worker its result, from any thread."""

    def hand_over() -> None:
        if not ended.done():
            ended.set_result(attempt)

    loop = ended.get_loop()
    if _is_running_here(loop):
        hand_over()
        return
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(hand_over)


def _call_all(notes: deque[Callable[[], None]]) -> None:
    """Call what waits for that, in its order, and take it out."""
    while notes:
        notes.popleft()()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """True on the thread on which this loop runs."""
    return asyncio._get_running_loop() is loop
