"""Plants defects in workers, engines, handlers and upgrades. The simulator finds each within a few seeds and makes it small."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from graphbus_core import Event, GraphBusNode, publishes, subscribe
from graphbus_core.errors import RunError
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import Dead, Done, EngineGone, LeaseLost, Parked, Released, RetryAt
from graphbus_core.ledger.worker import Attempt, Worker
from graphbus_core.simulation.invariants import UserInvariants, View
from graphbus_core.simulation.search import Failure, Simulation
from graphbus_core.simulation.subject import RootEvent, Subject, subject_of_classes
from graphbus_core.simulation.surroundings import ModuleMemory

MOST_SEEDS = 300


# --- a graph that does a bit of everything ---


class Line:
    """A connection that fails at the first try; no plain data, so its content is not compared."""

    def __init__(self) -> None:
        self.tried: set[int] = set()

    def send(self, number: int) -> None:
        if number == 2 and number not in self.tried:
            self.tried.add(number)
            raise ConnectionError("the line was busy")


class Till(GraphBusNode):
    @subscribe("/Sale")
    @publishes("/Sold", {"n": int})
    def on_sale(self, event: Event) -> None:
        self.state["sum"] = self.state.get("sum", 0) + event["n"]
        self.publish("/Sold", {"n": event["n"]})


class Sender(GraphBusNode):
    def on_start(self) -> None:
        self.line = Line()

    @subscribe("/Sold", retries=9)  # each new process fails once
    def on_sold(self, n: int) -> None:
        self.state["sent"] = [*self.state.get("sent", []), n]
        self.line.send(n)


class Slow(GraphBusNode):
    @subscribe("/Sold")
    async def on_sold(self, n: int) -> None:
        await asyncio.sleep(45)
        self.state["slow"] = self.state.get("slow", 0) + n


class Strict(GraphBusNode):
    @subscribe("/Sold", retries=1)
    def on_sold(self, n: int) -> None:
        if n == 3:
            raise ValueError("three is too much")
        self.state["count"] = self.state.get("count", 0) + 1


GRAPH = (Till, Sender, Slow, Strict)
SALES = [RootEvent("/Sale", {"n": number}) for number in range(1, 5)]


# --- defects of workers ---


class SettlesBeforeTheHandler(Worker):
    async def _handle(self, lease: Any) -> None:
        await self._settle(lease, Done())
        await self._attempt(lease)


class LosesWhatIsPublished(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        kept = None if attempt is None else msgspec.structs.replace(attempt, outgoing=())
        return await super()._settle(lease, outcome, kept)


class ForgetsRetries(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        if isinstance(outcome, RetryAt):
            outcome = Dead("handler", outcome.error)
        return await super()._settle(lease, outcome, attempt)


class SwallowsErrors(Worker):
    async def _attempt(self, lease: Any) -> Any:
        return msgspec.structs.replace(await super()._attempt(lease), error=None)


class GivesNoReason(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        if isinstance(outcome, Dead):
            outcome = Dead("handler", "")
        return await super()._settle(lease, outcome, attempt)


class _Relay:
    """Passes everything on to a ledger; planted workers change one method."""

    def __init__(self, ledger: Any) -> None:
        self._to = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


class _WorkerOnRelay(Worker):
    relay: ClassVar[type[_Relay]]

    def __init__(self, bus: Any, ledger: Any, **options: Any) -> None:
        super().__init__(bus, self.relay(ledger), **options)


class MakesRandomIds(_WorkerOnRelay):
    class relay(_Relay):
        async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Sequence[Envelope] = ()) -> None:
            import os

            changed = [msgspec.structs.replace(each, id=os.urandom(8).hex()) for each in outgoing]
            await self._to.settle(lease, outcome, state, changed)


class DropsPayloads(_WorkerOnRelay):
    class relay(_Relay):
        async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Sequence[Envelope] = ()) -> None:
            await self._to.settle(lease, outcome, state, [msgspec.structs.replace(each, data={}) for each in outgoing])


class SettlesInTwoSteps(_WorkerOnRelay):
    class relay(_Relay):
        async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Sequence[Envelope] = ()) -> None:
            await self._to.settle(lease, outcome, state)
            await asyncio.sleep(0.01)
            await self._to.append(outgoing)


class StoresBeforeItSettles(_WorkerOnRelay):
    class relay(_Relay):
        async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Sequence[Envelope] = ()) -> None:
            self._to._engine.states.write_together(state)
            await self._to.settle(lease, outcome, (), outgoing)


class StoresAlthoughTheLeaseIsLost(_WorkerOnRelay):
    class relay(_Relay):
        async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Sequence[Envelope] = ()) -> None:
            try:
                await self._to.settle(lease, outcome, state, outgoing)
            except LeaseLost:
                self._to._engine.states.write_together([msgspec.structs.replace(each, expected={}) for each in state])
                raise


class NeverRenews(Worker):
    async def _renew(self, lease: Any) -> None:
        return


class NeverWakes(Worker):
    async def _wake_workers(self) -> None:
        return


class CountsNoAttempts(Worker):
    async def _handle(self, lease: Any) -> None:
        await super()._handle(msgspec.structs.replace(lease, attempt=1))


class GivesBackWhatIsDone(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        return await super()._settle(lease, Released() if isinstance(outcome, Done) else outcome, Attempt())


WORKERS = [
    SettlesBeforeTheHandler,
    LosesWhatIsPublished,
    ForgetsRetries,
    SwallowsErrors,
    GivesNoReason,
    MakesRandomIds,
    DropsPayloads,
    SettlesInTwoSteps,
    StoresBeforeItSettles,
    StoresAlthoughTheLeaseIsLost,
    NeverRenews,
    NeverWakes,
    CountsNoAttempts,
    GivesBackWhatIsDone,
]


# --- defects of engines ---


class StoresIdsTwice(MemoryLedger):
    async def append(self, events: Sequence[Envelope]) -> None:
        self._ids.difference_update(each.id for each in events)
        await super().append(events)


class NeitherFencesNorCompares(MemoryLedger):
    async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Any = ()) -> Any:
        self.states.write_together([msgspec.structs.replace(each, expected={}, expected_keys=None) for each in state])
        return await super().settle(lease, outcome, (), outgoing)


class GivesTheLatestFirst(MemoryLedger):
    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        for queue in self._queues.values():
            for number in sorted(queue.open, reverse=True):
                queue.open.move_to_end(number)
        return await super().claim(agent, partitions, limit)


class NeverEndsALease(MemoryLedger):
    def __init__(self, clock: Any) -> None:
        super().__init__(clock, lease_s=1e12)


class LetsEventsOvertakeARetry(MemoryLedger):
    async def open(self, subscriptions: Any) -> None:
        await super().open([msgspec.structs.replace(each, on_retry="skip") for each in subscriptions])


class ForgetsWhatIsToBeRetried(MemoryLedger):
    async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Any = ()) -> Any:
        result = await super().settle(lease, outcome, state, outgoing)
        if isinstance(outcome, RetryAt):
            delivery = self.deliveries.pop(lease.delivery)
            self._queue_of(delivery).open.pop(lease.delivery, None)
        return result


class KnowsOneSubscriberOnly(MemoryLedger):
    def _route(self, topic: str) -> Any:
        return super()._route(topic)[:1]


class DropsWhatIsPublished(MemoryLedger):
    async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Any = ()) -> Any:
        return await super().settle(lease, outcome, state, ())


class BreaksInTheMiddleOfASettle(MemoryLedger):
    async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Any = ()) -> Any:
        if outgoing and next(self._numbers) % 2 == 0:
            await super().settle(lease, outcome, state)
            raise EngineGone("the disk was full")
        return await super().settle(lease, outcome, state, outgoing)


class TellsNobody(MemoryLedger):
    async def watch(self) -> Any:
        yield
        await asyncio.Event().wait()


class CountsNoFailures(MemoryLedger):
    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        return [msgspec.structs.replace(each, attempt=1) for each in await super().claim(agent, partitions, limit)]


class CutsNumbers(MemoryLedger):
    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        return [
            msgspec.structs.replace(
                each, envelope=msgspec.structs.replace(each.envelope, data={"n": min(each.envelope.data["n"], 2)})
            )
            for each in await super().claim(agent, partitions, limit)
        ]


class ForgetsWhatWaitsWhenItIsOpenedAgain(MemoryLedger):
    is_open = False

    async def open(self, subscriptions: Any) -> None:
        for queue in self._queues.values() if self.is_open else ():
            for number in queue.open.keys() - queue.leased.keys():
                del queue.open[number]
        await super().open(subscriptions)
        self.is_open = bool(self.deliveries)


class GivesOutWhatIsDone(MemoryLedger):
    async def settle(self, lease: Any, outcome: Any, state: Any = (), outgoing: Any = ()) -> Any:
        result = await super().settle(lease, outcome, state, outgoing)
        if lease.token > 1 and isinstance(outcome, Done):
            self._ids.discard(lease.envelope.id)
            self._append([lease.envelope])
        return result


ENGINES = [
    StoresIdsTwice,
    NeitherFencesNorCompares,
    GivesTheLatestFirst,
    NeverEndsALease,
    LetsEventsOvertakeARetry,
    ForgetsWhatIsToBeRetried,
    KnowsOneSubscriberOnly,
    DropsWhatIsPublished,
    BreaksInTheMiddleOfASettle,
    TellsNobody,
    CountsNoFailures,
    CutsNumbers,
    ForgetsWhatWaitsWhenItIsOpenedAgain,
    GivesOutWhatIsDone,
]


# --- defects of handlers ---


class CountsInAnAttribute(GraphBusNode):
    def __init__(self) -> None:
        self.sales = 0

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.sales += 1
        self.publish("/Number", {"n": self.sales})


class RemembersInTheClass(GraphBusNode):
    seen: ClassVar[list[str]] = []

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        if event.event_id not in self.seen:
            self.seen.append(event.event_id)
            self.state["sum"] = self.state.get("sum", 0) + event["n"]


class Bank:
    charged: ClassVar[list[int]] = []


class ChargesAtEachAttempt(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        Bank.charged.append(event["n"])


class First(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.publish("/Step", {"by": 1})


class Second(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.publish("/Step", {"by": 2})


class KeepsTheLastStep(GraphBusNode):
    @subscribe("/Step")
    def on_step(self, event: Event) -> None:
        self.state["last"] = event["by"]


class ListsStepsAsTheyCome(GraphBusNode):
    @subscribe("/Step")
    def on_step(self, event: Event) -> None:
        self.state["steps"] = [*self.state.get("steps", []), event["by"]]


class WritesFromACache(GraphBusNode):
    def on_start(self) -> None:
        self.cache = {"sum": self.state.get("sum", 0)}

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.cache["sum"] += event["n"]
        self.state["sum"] = self.cache["sum"]


class PublishesFromATask(GraphBusNode):
    @subscribe("/Sale")
    async def on_sale(self, event: Event) -> None:
        self.task = asyncio.ensure_future(self._announce(event["n"]))

    async def _announce(self, number: int) -> None:
        await asyncio.sleep(1)
        self.publish("/Announced", {"n": number})


class CountsAnnouncements(GraphBusNode):
    @subscribe("/Announced")
    def on_announced(self, event: Event) -> None:
        self.state["count"] = self.state.get("count", 0) + 1


class IgnoresWhatIsLate(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        if time.time() - event.timestamp < 10:
            self.state["sum"] = self.state.get("sum", 0) + event["n"]


class FailsWhileItIsCold(GraphBusNode):
    def on_start(self) -> None:
        self.line = Line()

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.line.tried.add(event["n"])
        if event["n"] > 2 and len(self.line.tried) < 2:
            raise ConnectionError("not yet")


class BeginsAnew(GraphBusNode):
    def on_start(self) -> None:
        self.state["sum"] = 0

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.state["sum"] += event["n"]


class Writer(GraphBusNode):
    shared: ClassVar[dict[str, int]] = {}

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.shared["sum"] = self.shared.get("sum", 0) + event["n"]
        self.publish("/Written", {})


class ReadsTheClassOfAnother(GraphBusNode):
    @subscribe("/Written")
    def on_written(self, event: Event) -> None:
        self.state["sum"] = Writer.shared.get("sum", 0)


class NumbersFromItsStart(GraphBusNode):
    def on_start(self) -> None:
        self.line = Line()

    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.line.tried.add(len(self.line.tried))
        self.publish("/Invoice", {"number": len(self.line.tried)})


class IsCaughtInOneCall(GraphBusNode):
    @subscribe("/Sale", retries=3)
    def on_sale(self, event: Event) -> None:
        self.state["sum"] = self.state.get("sum", 0) + event["n"]
        if event["n"] == 2 and time.time() - event.timestamp > 20:
            raise TimeoutError("too late")


def charges_once(view: View) -> bool:
    return len(Bank.charged) == len(set(Bank.charged))


HANDLERS: dict[str, tuple[type[GraphBusNode], ...]] = {
    "counts in an attribute": (CountsInAnAttribute,),
    "remembers in the class": (RemembersInTheClass,),
    "keeps the last of two agents": (First, Second, KeepsTheLastStep),
    "lists what two agents publish": (First, Second, ListsStepsAsTheyCome),
    "writes from a cache": (WritesFromACache,),
    "publishes from a task": (PublishesFromATask, CountsAnnouncements),
    "ignores what is late": (IgnoresWhatIsLate,),
    "fails while it is cold": (FailsWhileItIsCold,),
    "begins anew at each start": (BeginsAnew,),
    "reads the class of another agent": (Writer, ReadsTheClassOfAnother),
    "numbers from its start": (NumbersFromItsStart,),
    "has a deadline of its own": (IsCaughtInOneCall,),
}


def find_failure(subject: Subject, seeds: int = MOST_SEEDS) -> tuple[Failure, int]:
    simulation = Simulation(subject, SALES)
    for seed in range(seeds):
        failure = simulation.find(seed)
        if failure is not None:
            return failure, seed + 1
    raise AssertionError(f"not found with {seeds} seeds")


def check_is_small(found: tuple[Failure, int]) -> None:
    failure, seeds = found
    print(f"{seeds} seeds; {len(failure.faults)} faults, {len(failure.events)} events: {failure.violation.what}")
    assert len(failure.faults) <= 2
    assert len(failure.events) <= 3


@pytest.mark.parametrize("worker", WORKERS, ids=lambda each: each.__name__)
def test_a_defect_of_a_worker_is_found_and_made_small(worker: type[Worker]) -> None:
    check_is_small(find_failure(subject_of_classes(*GRAPH, worker=worker)))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.__name__)
def test_a_defect_of_an_engine_is_found_and_made_small(engine: type[MemoryLedger]) -> None:
    check_is_small(find_failure(subject_of_classes(*GRAPH, ledger=engine)))


@pytest.mark.parametrize("agents", HANDLERS.values(), ids=HANDLERS)
def test_a_defect_of_a_handler_is_found_and_made_small(agents: tuple[type[GraphBusNode], ...]) -> None:
    check_is_small(find_failure(subject_of_classes(*agents)))


def test_an_effect_outside_of_the_graph_is_found_by_an_invariant_of_the_project() -> None:
    users = UserInvariants((charges_once,))
    subject = subject_of_classes(ChargesAtEachAttempt, users=users, memory=ModuleMemory([Bank]))

    failure, _ = find_failure(subject)

    assert failure.violation.invariant == "charges_once holds."
    check_is_small((failure, 0))


# --- two builds side by side ---


class NewTill(GraphBusNode):
    """Publishes one more field, which the old Courier does not look at and the new one needs."""

    @subscribe("/Sale")
    @publishes("/Sold", {"n": int, "unit": str})
    def on_sale(self, event: Event) -> None:
        self.state["sum"] = self.state.get("sum", 0) + event["n"]
        self.publish("/Sold", {"n": event["n"], "unit": "kg"})


class Courier(GraphBusNode):
    @subscribe("/Sold", retries=2)
    def on_sold(self, n: int) -> None:
        self.state["brought"] = self.state.get("brought", 0) + n
        self.publish("/Brought", {"n": n})


class NewCourier(GraphBusNode):
    """Publishes another field than the old one, which the old Porch cannot read; it reads events of both builds."""

    @subscribe("/Sold", retries=2)
    def on_sold(self, n: int, unit: str = "kg") -> None:
        self.state["brought"] = self.state.get("brought", 0) + n
        self.publish("/Brought", {"count": n})


class Porch(GraphBusNode):
    @subscribe("/Brought")
    def on_brought(self, n: int) -> None:
        self.state["there"] = self.state.get("there", 0) + n


class NewPorch(GraphBusNode):
    @subscribe("/Brought")
    def on_brought(self, n: int = 0, count: int = 0) -> None:
        self.state["there"] = self.state.get("there", 0) + n + count


class DemandingPorch(GraphBusNode):
    """Does not read what the old Courier has published."""

    @subscribe("/Brought")
    def on_brought(self, count: int) -> None:
        self.state["there"] = self.state.get("there", 0) + count


for new, old in ((NewTill, Till), (NewCourier, Courier), (NewPorch, Porch), (DemandingPorch, Porch)):
    new.__name__ = old.__name__


def upgrade(*new: type[GraphBusNode], **options: Any) -> Subject:
    old = subject_of_classes(Till, Courier, Porch, build="old", **options)
    return old.upgraded_to(subject_of_classes(*new, build="new", **options))


class BuriesWhatItCannotRead(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        if isinstance(outcome, Parked):
            outcome = Dead("handler", outcome.why)
        return await super()._settle(lease, outcome, attempt)


class DropsWhatItCannotRead(Worker):
    async def _settle(self, lease: Any, outcome: Any, attempt: Any = None) -> bool:
        return await super()._settle(lease, Done() if isinstance(outcome, Parked) else outcome, attempt)


class TakesNothingUp(_WorkerOnRelay):
    class relay(_Relay):
        async def resume(self, build: str = "") -> int:
            return 0


class TakesUpItsOwnOldBuild(_WorkerOnRelay):
    class relay(_Relay):
        async def resume(self, build: str = "") -> int:
            return await self._to.resume("old")


class SignsWithTheWrongBuild(Worker):
    def __init__(self, bus: Any, ledger: Any, *, build: str = "", **options: Any) -> None:
        super().__init__(bus, ledger, build="old", **options)


class ForgetsWhatIsParked(MemoryLedger):
    async def resume(self, build: str = "") -> int:
        for number, each in list(self.deliveries.items()):
            if isinstance(each.outcome, Parked):
                del self.deliveries[number]
        return 0


class ResumesInTheWrongPlace(MemoryLedger):
    """Hands out what was parked as a new delivery, to the first subscription of its topic."""

    async def resume(self, build: str = "") -> int:
        found = [each for each in self.deliveries.values() if isinstance(each.outcome, Parked)]
        for each in found:
            self._ids.discard(each.envelope.id)
            self._append([each.envelope])
        return await super().resume(build)


@pytest.mark.parametrize(
    "options",
    [
        {"worker": BuriesWhatItCannotRead},
        {"worker": DropsWhatItCannotRead},
        {"worker": TakesNothingUp},
        {"worker": TakesUpItsOwnOldBuild},
        {"worker": SignsWithTheWrongBuild},
        {"ledger": ForgetsWhatIsParked},
        {"ledger": ResumesInTheWrongPlace},
    ],
    ids=lambda each: next(iter(each.values())).__name__,
)
def test_a_defect_that_only_an_upgrade_shows_is_found(options: dict[str, Any]) -> None:
    check_is_small(find_failure(upgrade(NewTill, NewCourier, NewPorch, **options)))


def test_events_that_the_new_build_cannot_read_are_found_by_name() -> None:
    failure, _ = find_failure(upgrade(NewTill, NewCourier, DemandingPorch))
    assert failure.violation.invariant == "No event stays parked when all processes run one build."
    assert failure.violation.handler == "Porch.on_brought"


def test_builds_with_other_subscriptions_are_refused() -> None:
    with pytest.raises(RunError, match="the two builds differ in the subscriptions of Porch"):
        upgrade(NewTill, NewCourier)


def test_an_upgrade_half_way_and_back_does_no_harm() -> None:
    """Some events of the new build are parked by the old one, and taken up later; that happens, and nothing else."""
    simulation = Simulation(upgrade(NewTill, NewCourier, NewPorch), SALES)
    parked = 0
    for seed in range(150):
        result = simulation.run(seed)
        assert result.violation is None
        parked += any("parked" in words for words in result.record.outcomes.values())
    assert parked


@pytest.mark.slow
def test_the_product_has_no_defect_for_as_many_seeds_as_fit_in_half_a_minute() -> None:
    simulation = Simulation(subject_of_classes(*GRAPH), SALES)
    ends_at, seed = time.monotonic() + 30, 1_000_000
    while time.monotonic() < ends_at:
        assert simulation.find(seed) is None
        seed += 1
    print(f"{seed - 1_000_000} seeds")
