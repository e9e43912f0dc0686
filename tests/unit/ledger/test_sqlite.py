"""SqliteLedger passes the suite of all engines, keeps what it has stored through `kill -9`, and is fast with many deliveries."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from graphbus_core.clock import Clock
from graphbus_core.errors import RunError
from graphbus_core.hosting.state import States
from graphbus_core.ledger import sqlite, sqlite_tables
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import (
    AgentMissing,
    Dead,
    Done,
    EngineGone,
    Lease,
    Ledger,
    Parked,
    RetryAt,
    StateChange,
    Subscription,
)
from graphbus_core.ledger.sqlite import SqliteLedger
from graphbus_core.testing import FakeClock
from graphbus_core.testing.ledger_checks import Wakes
from graphbus_core.testing.ledger_suite import BLOCKING, SKIPPING, LedgerSuite
from tests.patience import PATIENCE_S


class TestSqliteLedger(LedgerSuite):
    @pytest.fixture(autouse=True)
    def _use_file(self, path: str) -> Iterator[None]:
        self.path, self.file_states = path, States(path)
        yield
        self.file_states.close()

    def make(self, clock: Clock) -> SqliteLedger:
        return SqliteLedger(self.path, clock, lease_s=self.lease_s)

    async def open_processes(self, ledger: Ledger, subscription: Subscription) -> list[tuple[Ledger, Sequence[int]]]:
        """Return two connections to the file."""
        return [(each, range(subscription.partitions)) for each in (ledger, self.make(self.clock))]

    def reopen(self, ledger: Ledger) -> SqliteLedger:
        return SqliteLedger(self.path, self.clock, lease_s=self.lease_s)

    def states(self, ledger: Ledger) -> States:
        return self.file_states


# --- what is special about the file ---


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state.sqlite3")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(path: str, clock: FakeClock) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path, clock, keep_s=60)
    asyncio.run(ledger.open([BLOCKING, SKIPPING]))
    yield ledger
    asyncio.run(ledger.close())


def event(name: str, topic: str = "/Order") -> Envelope:
    return Envelope(id=name, type=topic, data={"name": name})


async def claim(ledger: SqliteLedger, agent: str = "Stock") -> Lease:
    (lease,) = await ledger.claim(agent, (0,))
    return lease


def rows(path: str, query: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, values).fetchall()


def test_events_and_states_share_the_state_file(path: str) -> None:
    with closing(States(path)) as states:
        states.write("Stock", {"n": "1"})
        ledger = SqliteLedger(path)
        asyncio.run(ledger.open([BLOCKING]))
        assert states.find("Stock", "n")[0] == "1"
        states.write("Stock", {"n": "2"})
        asyncio.run(ledger.close())
    assert rows(path, "SELECT agent, value FROM state") == [("Stock", "2")]


def test_appends_at_the_same_time_are_one_transaction(ledger: SqliteLedger, path: str) -> None:
    async def append_many() -> None:
        await asyncio.gather(*(ledger.append([event(f"e{number}")]) for number in range(50)))

    with closing(sqlite3.connect(path)) as other:
        (before,) = other.execute("PRAGMA data_version").fetchone()
        asyncio.run(append_many())
        (after,) = other.execute("PRAGMA data_version").fetchone()
        assert other.execute("SELECT count(*) FROM ledger_deliveries").fetchone() == (100,)
    assert after == before + 1


def test_a_cancelled_append_does_not_disturb_the_others(ledger: SqliteLedger) -> None:
    async def append_and_cancel() -> None:
        first, second = (asyncio.ensure_future(ledger.append([event(name)])) for name in "ab")
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert (await claim(ledger)).envelope.id in "ab"

    asyncio.run(append_and_cancel())


def test_a_file_that_another_process_holds_is_gone_for_now(
    ledger: SqliteLedger, path: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphbus_core.ledger.sqlite._PATIENCE_S", 0.05)
    asyncio.run(ledger.append([event("a")]))
    lease = asyncio.run(claim(ledger))
    impatient = SqliteLedger(path, clock)
    asyncio.run(impatient.lag())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for call in (impatient.append([event("b")]), impatient.settle(lease, Done()), impatient.extend(lease)):
            with pytest.raises(EngineGone):
                asyncio.run(call)
        other.execute("ROLLBACK")
    asyncio.run(impatient.append([event("b")]))
    asyncio.run(impatient.settle(lease, Done()))
    assert asyncio.run(claim(impatient)).envelope.id == "b"
    asyncio.run(impatient.close())


def test_a_full_disk_is_an_error_and_nothing_is_half_written(ledger: SqliteLedger) -> None:
    large = Envelope(id="out", type="/Order", data="x" * 1_000_000)
    asyncio.run(ledger.append([event("a")]))
    lease = asyncio.run(claim(ledger))
    with ledger._connect().connection() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    for call in (
        ledger.append([event("b"), large]),
        ledger.settle(lease, Done(), [StateChange("Stock", {"n": "1"})], [event("c"), large]),
    ):
        with pytest.raises(RunError) as refused:
            asyncio.run(call)
        assert (refused.value.code, refused.value.hint) == ("GBE645", "Free disk space.")
    with ledger._connect().connection() as connection:
        assert connection.execute("SELECT event_id FROM ledger_events").fetchall() == [("a",)]
        assert connection.execute("SELECT * FROM state").fetchall() == []
    asyncio.run(ledger.settle(lease, Done()))


def test_text_that_utf8_cannot_hold_is_refused_alone(ledger: SqliteLedger) -> None:
    async def append_both() -> list[object]:
        bad = Envelope(id="bad", type="/Order", data={"name": "\ud800"})
        return list(await asyncio.gather(ledger.append([bad]), ledger.append([event("a")]), return_exceptions=True))

    refused, stored = asyncio.run(append_both())
    assert isinstance(refused, RunError)
    assert (refused.code, stored) == ("GBE612", None)


def test_ids_of_done_events_are_forgotten_after_a_while(ledger: SqliteLedger, path: str, clock: FakeClock) -> None:
    async def run() -> None:
        await ledger.append([event(f"{number}", "/Unheard") for number in range(1500)])
        await ledger.append([event("done"), event("open")])
        for agent in ("Stock", "Mail"):
            await ledger.settle(await claim(ledger, agent), Done())
        clock.advance(59)
        await ledger.append([event("x")])
        assert rows(path, "SELECT count(*) FROM ledger_events") == [(1503,)]
        clock.advance(2)
        await ledger.append([event("y")])
        assert rows(path, "SELECT count(*) FROM ledger_events") == [(504,)], "not more than 1000 at a time"
        await ledger.append([event("z")])
        kept = rows(path, "SELECT event_id FROM ledger_events ORDER BY id")
        assert kept == [("open",), ("x",), ("y",), ("z",)]

    asyncio.run(run())


def test_dead_and_parked_deliveries_keep_what_people_need(ledger: SqliteLedger, path: str, clock: FakeClock) -> None:
    async def run() -> None:
        await ledger.append([event("a"), event("b")])
        await ledger.settle(await claim(ledger), RetryAt(clock.time(), "first"))
        clock.advance(1)
        await ledger.settle(await claim(ledger), Dead("handler", "half \ud800", "stock.py:7", "Traceback"))
        await ledger.settle(await claim(ledger), Parked("The build does not know it."))

    asyncio.run(run())
    found = rows(path, "SELECT reason, error, place, traceback, attempts, ended_at - failed_at FROM ledger_deliveries")
    assert found[0] == ("handler", "half \\ud800", "stock.py:7", "Traceback", 2, 1.0)
    assert found[2][:2] == ("The build does not know it.", "")


def test_another_connection_sees_subscriptions_and_events_at_once(
    ledger: SqliteLedger, path: str, clock: FakeClock
) -> None:
    async def run() -> None:
        other = SqliteLedger(path, clock)
        await other.append([event("a")])  # without `open`
        await ledger.open([BLOCKING])
        await other.append([event("b")])
        counts = {each.subscription.agent: each.waiting + each.parked for each in await other.lag()}
        assert counts == {"Stock": 2, "Mail": 1}
        await other.close()

    asyncio.run(run())


def test_watch_sees_what_another_process_appends(ledger: SqliteLedger, path: str, clock: FakeClock) -> None:
    async def run() -> None:
        other, wakes = SqliteLedger(path, clock), Wakes(ledger.watch(), PATIENCE_S)
        await wakes.expect_after("another connection appends", other.append([event("a")]))
        await wakes.close()
        await other.close()

    asyncio.run(run())


def test_a_process_claims_nothing_for_a_handler_that_only_another_build_has(
    ledger: SqliteLedger, path: str, clock: FakeClock
) -> None:
    """While builds replace each other, deliveries of the new handler wait, and those behind them do not."""

    async def run() -> None:
        new = SqliteLedger(path, clock)
        audit = msgspec.structs.replace(BLOCKING, handler=f"{BLOCKING.agent}.audit")
        await new.open([audit, BLOCKING, SKIPPING])
        await new.append([event("a", BLOCKING.topic)])
        [lease] = await ledger.claim(BLOCKING.agent, (0,), 10)
        assert lease.subscription == BLOCKING
        await ledger.settle(lease, Done())
        assert await ledger.claim(BLOCKING.agent, (0,), 10) == []
        assert [each.subscription for each in await new.claim(BLOCKING.agent, (0,), 10)] == [audit]
        await new.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "name", ["FIND_CLAIMABLE", "END_WAITS", "CLAIMABLE", "NEXT_DUE", "DONE", "OWNERS", "FORGET_DONE"]
)
def test_a_claim_reads_no_whole_table(ledger: SqliteLedger, name: str) -> None:
    """Every step on a table is a search with an index, so that it takes as long with a million deliveries."""
    statement = getattr(sqlite_tables, name)
    named = {"agent": "Stock", "partitions": "[0, 1]", "now": 1.0, "limit": 1, "foreign": "[]"}
    named |= {"id": 1, "token": 1}
    with ledger._connect().connection() as connection:
        values = named if ":" in statement else (1,) * statement.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert not [step for step in plan if step.startswith("SCAN") and "ledger" in step]


# --- questions ---


def test_a_question_that_nobody_takes_says_that_no_process_runs_the_agent(
    ledger: SqliteLedger, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_TAKEN_S", 0.05)

    async def run() -> None:
        for missing_s, timeout_s in ((0.0, PATIENCE_S), (0.2, PATIENCE_S), (PATIENCE_S, 0.2)):
            with pytest.raises(AgentMissing):
                await ledger.ask("Stock", "how much?", timeout_s, missing_s)
        assert rows(path, "SELECT count(*) FROM ledger_questions") == [(0,)], "nobody answers it later"

    asyncio.run(run())


def test_a_question_that_was_taken_is_waited_for(
    ledger: SqliteLedger, path: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_TAKEN_S", 0.05)

    async def run() -> None:
        other = SqliteLedger(path, clock)
        asking = asyncio.create_task(ledger.ask("Stock", "how much?", PATIENCE_S, 0.2))
        while not (questions := await other.take_questions(["Stock"])):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        await other.answer(questions[0], "ten")
        assert await asking == "ten"
        await other.close()

    asyncio.run(run())
