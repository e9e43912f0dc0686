"""A graph on a ledger: its agents handle what the engine hands out, and what they publish and store is settled together."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from graphbus_core import Event, GraphBusNode, schema_method, subscribe
from graphbus_core.clock import SystemClock
from graphbus_core.errors import RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.members import connect
from graphbus_core.hosting.metrics import HandlerMetrics, render_metrics
from graphbus_core.hosting.serving.probes import Status
from graphbus_core.ledger import worker as worker_module
from graphbus_core.ledger.attached import AttachedLedger
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.handling import Attempt
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import (
    Dead,
    Done,
    EngineGone,
    Lag,
    Lease,
    LeaseLost,
    Parked,
    Released,
    RetryAt,
    Subscription,
)
from graphbus_core.ledger.sqlite import SqliteLedger
from graphbus_core.ledger.worker import (
    LONGEST_RENEWAL_S,
    MOST_AT_ONCE,
    MOST_UNFINISHED,
    SHORTEST_RENEWAL_S,
    decide_outcome_of,
    pause_before_renewal,
)
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S


def count(graph: LiveGraph, name: str) -> int:
    """Return what the worker has counted of something, for all subscriptions."""
    return sum(getattr(each, name) for each in graph.ledger.worker.counts.values())  # type: ignore[union-attr]


FILES: list[str] = []
"""The file of the engine that `running` uses; empty: it is one in memory."""


@pytest.fixture(params=["memory", "file"])
def each_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    if request.param == "file":
        FILES.append(str(tmp_path / "state"))
    yield
    FILES.clear()


@contextmanager
def running(*agents: Any, ledger: Any = None, partitions: int = 1, **options: Any) -> Iterator[LiveGraph]:
    """Run these agents on a ledger, in the way of `graphbus run --ledger`."""
    path = FILES[0] if FILES and ledger is None else ""
    graph = connect(*agents, on_error="isolate", **{"state": path, **options})
    engine = ledger or (SqliteLedger(path) if path else MemoryLedger(SystemClock(), graph._states))
    graph.ledger = AttachedLedger(graph, engine, partitions=partitions)
    graph.at_end(graph.ledger.close)
    try:
        graph.bus.hosting.start_dispatcher()
        graph.ledger.begin()
        yield graph
    finally:
        graph.stop()


def lag_of(graph: LiveGraph, handler: str) -> Lag:
    assert isinstance(graph.ledger, AttachedLedger)
    found = asyncio.run_coroutine_threadsafe(graph.ledger.engine.lag(), graph.ledger._loop).result()
    return next(each for each in found if each.subscription.handler == handler)


class Shop(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_placed(self, event: Event) -> None:
        self.state["placed"] = self.state.get("placed", 0) + 1
        self.publish("/Order/Accepted", {"n": event["n"]})


class Books(GraphBusNode):
    @subscribe("/Order/Accepted")
    async def on_accepted(self, event: Event) -> None:
        await asyncio.sleep(0)
        self.state["seen"] = [*self.state.get("seen", []), event["n"]]


@pytest.mark.usefixtures("each_engine")
def test_events_travel_through_the_ledger_in_their_order() -> None:
    with running(Shop, Books) as graph:
        for n in range(20):
            graph.publish("/Order/Placed", {"n": n})
        assert graph.settle(10)
        assert graph.state_of("Shop")["placed"] == 20
        assert graph.state_of("Books")["seen"] == list(range(20))
        assert lag_of(graph, "Books.on_accepted").is_idle


class Flaky(GraphBusNode):
    """Fails at each event until the third attempt, after it has published and stored."""

    attempts = 0

    @subscribe("/Job", retries=5, backoff=0.01)
    def on_job(self, event: Event) -> None:
        self.publish("/Tried", {"n": event["n"]})
        self.state["done"] = self.state.get("done", 0) + 1
        type(self).attempts += 1
        if type(self).attempts % 3:
            raise OSError("the line is down")


class Witness(GraphBusNode):
    @subscribe("/Tried")
    def on_tried(self, event: Event) -> None:
        self.state["tried"] = self.state.get("tried", 0) + 1


@pytest.mark.usefixtures("each_engine")
def test_nothing_of_a_failed_attempt_is_kept() -> None:
    Flaky.attempts = 0
    with running(Flaky, Witness) as graph:
        graph.publish("/Job", {"n": 1})
        graph.publish("/Job", {"n": 2})
        assert graph.settle(10)
        assert Flaky.attempts == 6
        assert graph.state_of("Flaky")["done"] == 2
        assert graph.state_of("Witness")["tried"] == 2


class Broken(GraphBusNode):
    @subscribe("/Job")
    def on_job(self, event: Event) -> None:
        raise ValueError("never")


@pytest.mark.usefixtures("each_engine")
def test_a_delivery_that_fails_for_good_is_a_dead_letter_with_its_reason() -> None:
    with running(Broken) as graph:
        graph.publish("/Job", {"n": 1})
        assert graph.settle(10)
        assert lag_of(graph, "Broken.on_job").dead == 1
        (letter,) = graph.bus.dead_letters()
        assert (letter.subscription, letter.error) == ("Broken.on_job", "ValueError: never")
        assert letter.place.startswith(__file__)


class Cancelled(GraphBusNode):
    """Awaits a task that is cancelled."""

    @subscribe("/Job")
    async def on_job(self, event: Event) -> None:
        task = asyncio.create_task(asyncio.sleep(PATIENCE_S))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task


@pytest.mark.usefixtures("each_engine")
def test_a_handler_that_a_cancelled_task_ends_has_failed() -> None:
    with running(Cancelled) as graph:
        graph.publish("/Job", {"n": 1})
        assert graph.settle(10)
        (letter,) = graph.bus.dead_letters()
        assert letter.error == "RuntimeError: the handler was ended by CancelledError"


class Counter(GraphBusNode):
    """Changes a state that others change at the same time, through another object."""

    others: Any = None

    @subscribe("/Add")
    def on_add(self) -> None:
        value = self.state.get("n", 0)
        if self.others is not None:
            others, type(self).others = type(self).others, None
            others()
        self.state["n"] = value + 1


@pytest.mark.usefixtures("each_engine")
def test_a_state_that_changed_meanwhile_lets_the_handler_run_again() -> None:
    with running(Counter) as graph:
        states = graph._states
        Counter.others = staticmethod(lambda: states.write("Counter", {"n": "41"}))
        graph.publish("/Add")
        assert graph.settle(10)
        assert graph.state_of("Counter")["n"] == 42
        assert isinstance(graph.ledger, AttachedLedger)
        assert count(graph, "conflicts") == 1


class Starter(GraphBusNode):
    def on_start(self) -> None:
        self.publish("/Started")

    @subscribe("/Started")
    def on_started(self) -> None:
        self.state["started"] = True

    @schema_method
    def twice(self, n: int) -> int:
        self.publish("/Started")
        return 2 * n


@pytest.mark.usefixtures("each_engine")
def test_what_is_published_at_the_start_and_by_calls_arrives_too() -> None:
    with running(Starter) as graph:
        assert graph.call("Starter", "twice", n=4) == 8
        assert graph.settle(10)
        assert graph.state_of("Starter")["started"] is True


class Asker(GraphBusNode):
    @subscribe("/Ask")
    def on_ask(self, event: Event) -> None:
        self.state["answer"] = self.request("/Double", {"n": event["n"]})


class Answerer(GraphBusNode):
    @subscribe("/Double")
    def on_double(self, event: Event) -> int:
        self.publish("/Doubled", {"n": event["n"]})
        return 2 * int(event["n"])

    @subscribe("/Doubled")
    def on_doubled(self) -> None:
        self.state["doubled"] = True


@pytest.mark.usefixtures("each_engine")
def test_a_request_inside_a_handler_is_answered_and_what_it_causes_is_settled_with_it() -> None:
    with running(Asker, Answerer) as graph:
        graph.publish("/Ask", {"n": 21})
        assert graph.settle(10)
        assert graph.state_of("Asker")["answer"] == 42
        assert graph.state_of("Answerer")["doubled"] is True


class ByCustomer(GraphBusNode):
    @subscribe("/Order", key="customer")
    def on_order(self, event: Event) -> None:
        key = str(event["customer"])
        self.state[key] = [*self.state.get(key, []), event["n"]]


@pytest.mark.usefixtures("each_engine")
def test_events_of_one_key_stay_in_order() -> None:
    with running(ByCustomer, partitions=4) as graph:
        for n in range(40):
            graph.publish("/Order", {"customer": f"c{n % 5}", "n": n})
        assert graph.settle(10)
        for customer in range(5):
            assert graph.state_of("ByCustomer")[f"c{customer}"] == list(range(customer, 40, 5))


class Unreliable(MemoryLedger):
    """Does what it is asked, and says every second time that it cannot be reached."""

    calls = 0

    def _fail(self) -> None:
        self.calls += 1
        if self.calls % 2:
            raise EngineGone("the line is down")

    async def append(self, events: Any) -> None:
        await super().append(events)
        self._fail()

    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        self._fail()
        return await super().claim(agent, partitions, limit)


def test_an_engine_that_is_gone_for_a_moment_loses_nothing() -> None:
    ledger = Unreliable(SystemClock())
    with running(Shop, Books, ledger=ledger) as graph:
        graph._states = ledger.states
        for n in range(3):
            graph.publish("/Order/Placed", {"n": n})
        assert graph.settle(20)
        assert graph.state_of("Books")["seen"] == [0, 1, 2]


LEASE = Lease(delivery=1, envelope=None, subscription=None)  # type: ignore[arg-type]  # neither is read here


@pytest.mark.parametrize(
    ("error", "retries", "outcome"),
    [
        (None, 0, Done()),
        (ValueError("no"), 1, RetryAt(10.1, "ValueError: no")),
        (ValueError("no"), 0, Dead("handler", "ValueError: no", traceback="ValueError: no\n")),
        (RunError("GBE618"), 1, Released()),
    ],
)
def test_the_outcome_follows_from_the_error_and_the_policy(error: Any, retries: int, outcome: Any) -> None:
    assert decide_outcome_of(Attempt(error), LEASE, DeliveryPolicy(retries=retries), 10.0) == outcome


@pytest.mark.parametrize(("build", "is_parked"), [("", False), ("ours", False), ("theirs", True)])
def test_a_payload_that_only_another_build_could_have_sent_is_parked(build: str, is_parked: bool) -> None:
    lease = msgspec.structs.replace(LEASE, envelope=Envelope(id="a", type="/Job", build=build))
    misfit = RunError("GBE614", topic="/Job", reason="n is missing", path="n", expected="int", found="nothing")
    outcome = decide_outcome_of(Attempt(misfit), lease, DeliveryPolicy(retries=3), 10.0, build="ours")
    assert isinstance(outcome, Parked if is_parked else Dead)


class Slow(GraphBusNode):
    """Takes longer than a lease lasts."""

    ended: Any = None

    @subscribe("/Long")
    def on_long(self) -> None:
        Slow.ended.wait()
        self.state["done"] = self.state.get("done", 0) + 1


class CountsExtensions(MemoryLedger):
    extended: Any = None

    async def extend(self, lease: Lease) -> Lease:
        self.extended.set()
        return await super().extend(lease)


def test_a_lease_is_extended_while_its_handler_runs() -> None:
    ledger = CountsExtensions(SystemClock(), lease_s=0.3)
    ledger.extended = Slow.ended = threading.Event()  # the handler ends when its lease is extended
    with running(Slow, ledger=ledger) as graph:
        graph._states = ledger.states
        graph.publish("/Long")
        assert graph.settle(20)
        assert graph.state_of("Slow")["done"] == 1


class Poisoned(MemoryLedger):
    """Hands out deliveries as if each had ended its process again and again."""

    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        leases = await super().claim(agent, partitions, limit)
        return [msgspec.structs.replace(each, unfinished=MOST_UNFINISHED) for each in leases]


def test_an_event_that_ends_processes_again_and_again_is_a_dead_letter() -> None:
    with running(Broken, ledger=Poisoned(SystemClock())) as graph:
        graph.publish("/Job")
        assert graph.settle(20)
        (letter,) = graph.bus.dead_letters()
    assert (letter.reason, letter.attempts) == ("unfinished", 0)
    assert letter.error == "5 times a process ended, or lost the delivery, while it handled it"


class Twice(MemoryLedger):
    """Hands the lease of each delivery out to somebody else before it is settled for the first time."""

    taken: Any = ()

    async def settle(self, lease: Lease, *rest: Any) -> None:
        if lease.token == 1:
            raise LeaseLost(lease.envelope.id)
        await super().settle(lease, *rest)


def test_what_is_done_under_a_lost_lease_is_not_kept() -> None:
    ledger = Twice(SystemClock(), lease_s=0.1)
    with running(Shop, Books, ledger=ledger) as graph:
        graph._states = ledger.states
        graph.publish("/Order/Placed", {"n": 1})
        assert graph.settle(20)
        assert graph.state_of("Shop")["placed"] == 1
        assert graph.state_of("Books")["seen"] == [1]
        assert isinstance(graph.ledger, AttachedLedger)
        assert count(graph, "lost") == 2


@pytest.mark.usefixtures("each_engine")
def test_settling_a_graph_inside_of_a_handler_is_refused() -> None:
    class Waits(GraphBusNode):
        graph: Any = None

        @subscribe("/Job")
        def on_job(self) -> None:
            Waits.graph.settle()

    with running(Waits) as graph:
        Waits.graph = graph
        graph.publish("/Job")
        assert graph.settle(20)
        (letter,) = graph.bus.dead_letters()
    assert "[GBE648]" in letter.error


class Gone(MemoryLedger):
    """Cannot be reached until `is_back` is set."""

    is_back = False

    async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
        if not self.is_back:
            raise EngineGone("nobody listens")
        return await super().claim(agent, partitions, limit)


def test_a_graph_that_cannot_reach_its_ledger_is_not_ready() -> None:
    ledger = Gone(SystemClock())
    with running(Broken, ledger=ledger) as graph:
        status = Status(graph, HandlerMetrics(), stuck_after_s=0, queue=0)
        while status.check_ready()[0] != 503:
            time.sleep(0.001)
        assert status.check_ready()[1] == {"status": "disconnected"}
        ledger.is_back = True
        while status.check_ready()[0] != 200:
            time.sleep(0.001)


def test_metrics_say_for_each_subscription_what_waits_and_what_went_wrong() -> None:
    with running(Broken) as graph:
        graph.publish("/Job")
        assert graph.settle(20)
        page = render_metrics(graph.bus.statistics(), HandlerMetrics(), graph.ledger_metrics()).decode()
    labels = 'messaging_destination_name="/Job",graphbus_handler="Broken.on_job"'
    assert f'graphbus_ledger_deliveries{{{labels},state="dead"}} 1' in page
    for name, value in (("repeated_total", 0), ("lost_total", 0), ("conflicts_total", 0), ("dead_total", 1)):
        assert f"graphbus_ledger_{name}{{{labels}}} {value}" in page
    assert f"graphbus_ledger_oldest_seconds{{{labels}}} 0" in page


@pytest.mark.parametrize(
    ("clock_is_ahead_s", "pause_s"),
    [(0.0, 10.0), (15.0, 5.0), (3600.0, SHORTEST_RENEWAL_S), (-3600.0, LONGEST_RENEWAL_S)],
)
def test_a_lease_is_renewed_in_time_however_wrong_the_clock_of_the_process_is(
    clock_is_ahead_s: float, pause_s: float
) -> None:
    lease = Lease(
        delivery=1,
        envelope=Envelope(id="1", type="/A"),
        subscription=Subscription(agent="A", handler="A.on_a", topic="/A"),
        ends_at=1_000_030.0,
    )
    assert pause_before_renewal(lease, 1_000_000.0 + clock_is_ahead_s) == pause_s


class Later(GraphBusNode):
    """Starts a task that publishes when the handler has ended."""

    @subscribe("/Job")
    async def on_job(self, event: Event) -> None:
        self.task = asyncio.ensure_future(self._publish())

    async def _publish(self) -> None:
        await asyncio.sleep(0.01)
        self.publish("/Tried", {"n": 1})
        self.has_published.set()

    has_published = threading.Event()


@pytest.mark.usefixtures("each_engine")
def test_what_a_task_publishes_after_its_handler_is_not_lost() -> None:
    with running(Later, Witness) as graph:
        graph.publish("/Job", {"n": 1})
        assert Later.has_published.wait(10)
        assert graph.settle(10)
        deadline = time.monotonic() + 10
        while "tried" not in graph.state_of("Witness") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert graph.state_of("Witness")["tried"] == 1


def test_a_graph_stops_while_its_ledger_cannot_be_reached() -> None:
    class Refuses(MemoryLedger):
        async def append(self, events: Any) -> None:
            raise EngineGone("nobody listens")

    failed: list[BaseException] = []

    def publish() -> None:
        try:
            graph.publish("/Job")
        except RunError as error:
            failed.append(error)

    with running(Broken, ledger=Refuses(SystemClock())) as graph:
        assert isinstance(graph.ledger, AttachedLedger)
        publishing = threading.Thread(target=publish)
        publishing.start()
        while graph.ledger.is_reachable:
            time.sleep(0.001)
    publishing.join()
    assert [error.code for error in failed if isinstance(error, RunError)] == ["GBE615"]


class Picky(MemoryLedger):
    """Refuses what a handler publishes, for good."""

    async def settle(self, lease: Lease, outcome: Any, state: Any = (), outgoing: Any = ()) -> None:
        if outgoing:
            raise RunError("GBE613", limit=1, found=2, path="n")
        await super().settle(lease, outcome, state, outgoing)


def test_an_event_whose_effects_the_engine_refuses_is_a_dead_letter() -> None:
    with running(Shop, ledger=Picky(SystemClock())) as graph:
        graph.publish("/Order/Placed", {"n": 1})
        assert graph.settle(20)
        (letter,) = graph.bus.dead_letters()
    assert (letter.subscription, "[GBE613]" in letter.error) == ("Shop.on_placed", True)


class FullDisk(MemoryLedger):
    """Cannot write what handlers have done for a while."""

    left = 2

    async def settle(self, lease: Lease, *rest: Any) -> None:
        if self.left:
            self.left -= 1
            raise RunError("GBE645", what="The state of the agents", reason="disk full", advice="Free space.")
        await super().settle(lease, *rest)


def test_a_disk_that_is_full_for_a_while_loses_nothing() -> None:
    ledger = FullDisk(SystemClock())
    with running(Shop, ledger=ledger) as graph:
        graph._states = ledger.states
        graph.publish("/Order/Placed", {"n": 1})
        assert graph.settle(20)
        assert graph.state_of("Shop")["placed"] == 1


def test_a_worker_that_ends_is_reported_and_the_graph_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    class Breaks(MemoryLedger):
        async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
            raise LookupError("a bug of the engine")

    with running(Broken, ledger=Breaks(SystemClock())) as graph:
        assert isinstance(graph.ledger, AttachedLedger)
        while graph.ledger.is_reachable:
            time.sleep(0.001)
    assert "its events wait for another process" in caplog.text
    assert "a bug of the engine" in caplog.text


# --- several at once ---


class Watchful(GraphBusNode):
    """Notes how many deliveries of its own are leased whenever it handles one; fails once at those that it is to fail at."""

    engine: Any = None
    seen: ClassVar[list[int]] = []
    leased: ClassVar[list[int]] = []
    failing: ClassVar[set[int]] = set()
    slow: int | None = None
    may_end = threading.Event()

    @subscribe("/Job", retries=3, backoff=0.001)
    def on_job(self, event: Event) -> None:
        if event["n"] == self.slow:
            self.may_end.wait(PATIENCE_S)
        self.leased.append(len(self.engine._queues["Watchful", 0].leased))
        if event["n"] in self.failing:
            self.failing.remove(event["n"])
            raise OSError("the line is down")
        self.seen.append(event["n"])


JOBS = 100


@contextmanager
def watched(
    engine: MemoryLedger, *failing: int, slow: int | None = None, longest_s: float = PATIENCE_S
) -> Iterator[LiveGraph]:
    """Run `Watchful` on an engine that has all jobs before the worker begins."""
    Watchful.engine, Watchful.seen, Watchful.leased, Watchful.failing = engine, [], [], set(failing)
    Watchful.slow, Watchful.may_end = slow, threading.Event()
    subscription = Subscription(agent="Watchful", handler="Watchful.on_job", topic="/Job")
    asyncio.run(engine.open([subscription]))
    asyncio.run(engine.append([Envelope(id=f"{n}", type="/Job", data={"n": n}) for n in range(JOBS)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_module, "LONGEST_AT_ONCE_S", longest_s)
        with running(Watchful, ledger=engine) as graph:
            yield graph


def test_several_deliveries_are_claimed_at_once() -> None:
    with watched(MemoryLedger(SystemClock())) as graph:
        assert graph.settle(PATIENCE_S)
    assert Watchful.seen == list(range(JOBS))
    assert max(Watchful.leased) == MOST_AT_ONCE


def test_those_behind_a_retry_are_given_back_and_wait() -> None:
    with watched(MemoryLedger(SystemClock()), 0, 40, 41) as graph:
        assert graph.settle(PATIENCE_S)
        assert isinstance(graph.ledger, AttachedLedger)
        assert count(graph, "repeated") == 0
    assert Watchful.seen == list(range(JOBS))


@pytest.mark.parametrize("unfinished", [{40}, set(range(30, 60))], ids=["one", "many"])
def test_a_delivery_that_may_have_ended_its_process_is_handled_without_others(unfinished: set[int]) -> None:
    claimed = collections.Counter[int]()

    class LeftUnfinished(MemoryLedger):
        async def append(self, events: Any) -> None:
            await super().append(events)
            for number, each in enumerate(self.deliveries.values()):
                each.unfinished = int(number in unfinished)

        async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
            leases = await super().claim(agent, partitions, limit)
            claimed.update(each.delivery for each in leases)
            return leases

    with watched(LeftUnfinished(SystemClock())) as graph:
        assert graph.settle(PATIENCE_S)
    assert max(claimed.values()) <= 2  # together, and then alone
    assert {Watchful.leased[each] for each in unfinished} == {1}
    assert Watchful.leased[min(unfinished) - 1] > 1


def test_deliveries_that_take_long_are_claimed_one_by_one() -> None:
    with watched(MemoryLedger(SystemClock()), longest_s=0.0) as graph:
        assert graph.settle(PATIENCE_S)
    assert Watchful.leased == [1] * JOBS


def test_all_leases_of_a_claim_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "LONGEST_RENEWAL_S", 0.01)
    renewed: set[int] = set()

    class Noting(MemoryLedger):
        async def extend(self, lease: Lease) -> Lease:
            extended = await super().extend(lease)
            renewed.add(lease.delivery)
            if len(renewed) > 1:
                Watchful.may_end.set()
            return extended

    with watched(Noting(SystemClock()), slow=JOBS // 2) as graph:
        assert graph.settle(PATIENCE_S)
        assert Watchful.may_end.is_set()
        assert isinstance(graph.ledger, AttachedLedger)
        assert count(graph, "lost") == 0
    assert Watchful.seen == list(range(JOBS))


# --- settled on the thread of the handlers ---


class Jobs(GraphBusNode):
    """Notes the threads on which it runs, fails once at some jobs, and counts what it has done in its state."""

    failing: ClassVar[set[int]] = set()

    @subscribe("/Job", retries=3, backoff=0.001)
    def on_job(self, event: Event) -> None:
        self.state["done"] = [*self.state.get("done", []), event["n"]]
        if event["n"] in self.failing:
            self.failing.remove(event["n"])
            raise OSError("the line is down")
        if event["n"] % 10 == 0:
            self.publish("/Tenth", {"n": event["n"]})


class Tenths(GraphBusNode):
    @subscribe("/Tenth")
    def on_tenth(self, event: Event) -> None:
        self.state["seen"] = [*self.state.get("seen", []), event["n"]]


class NotesThreads(SqliteLedger):
    """Notes on which threads it settles, and lets every `refused`th one there be refused."""

    refused = 0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.threads = collections.Counter[str]()

    def settle_here(self, *arguments: Any) -> Any:
        thread = threading.current_thread().name
        self.threads[thread] += 1
        if self.refused and thread != "graphbus-ledger" and self.threads[thread] % self.refused == 0:
            raise EngineGone("another process writes")
        return super().settle_here(*arguments)


@pytest.mark.parametrize(("failing", "refused"), [(set(), 0), ({0, 40, 41, 99}, 0), ({7}, 3)])
def test_what_succeeds_is_settled_on_the_thread_of_its_handler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: set[int], refused: int
) -> None:
    monkeypatch.setattr(worker_module, "LONGEST_AT_ONCE_S", PATIENCE_S)
    engine, count = NotesThreads(str(tmp_path / "state")), len(failing)
    engine.refused, Jobs.failing = refused, failing
    subscriptions = [Subscription(agent="Jobs", handler="Jobs.on_job", topic="/Job")]
    asyncio.run(engine.open(subscriptions))
    asyncio.run(engine.append([Envelope(id=f"{n}", type="/Job", data={"n": n}) for n in range(JOBS)]))
    with running(Jobs, Tenths, ledger=engine, state=str(tmp_path / "state")) as graph:
        assert graph.settle(PATIENCE_S)
        assert graph.state_of("Jobs")["done"] == list(range(JOBS))
        assert graph.state_of("Tenths")["seen"] == list(range(0, JOBS, 10))
    on_loop, elsewhere = engine.threads.pop("graphbus-ledger", 0), engine.threads.total()
    assert elsewhere >= JOBS
    assert on_loop <= (40 * count if not refused else JOBS)  # a failure gives back those behind it


def test_an_event_lets_nobody_claim_but_those_who_get_it() -> None:
    class Counts(MemoryLedger):
        claims: ClassVar[collections.Counter[str]] = collections.Counter()

        async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
            self.claims[agent] += 1
            return await super().claim(agent, partitions, limit)

    engine = Counts(SystemClock())
    with running(Shop, Books, Witness, ledger=engine) as graph:
        graph._states = engine.states
        for n in range(50):
            graph.publish("/Order/Placed", {"n": n})
            assert graph.settle(PATIENCE_S)
        assert graph.state_of("Books")["seen"] == list(range(50))
    assert engine.claims["Books"] >= 50
    assert engine.claims["Witness"] <= 3  # when all begin


def test_behind_a_delivery_that_may_have_ended_its_process_nothing_is_claimed_with_it(tmp_path: Path) -> None:
    class LeavesUnfinished(SqliteLedger):
        claimed: ClassVar[list[tuple[int, int]]] = []

        async def claim(self, agent: str, partitions: Any, limit: int = 1) -> Any:
            leases = await super().claim(agent, partitions, limit)
            return [msgspec.structs.replace(each, unfinished=1) for each in leases]

        def settle_here(self, lease: Lease, *arguments: Any) -> Any:
            settled = super().settle_here(lease, *arguments)
            self.claimed.append((lease.unfinished, len(settled.leases)))
            return settled

    path = str(tmp_path / "state")
    with running(Shop, ledger=LeavesUnfinished(path), state=path) as graph:
        for n in range(30):
            graph.publish("/Order/Placed", {"n": n})
        assert graph.settle(PATIENCE_S)
        assert graph.state_of("Shop")["placed"] == 30
    assert set(LeavesUnfinished.claimed) == {(1, 0)}
