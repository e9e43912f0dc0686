"""SqliteLedger: the engine in one SQLite file, for several processes on one host. It needs no server and survives `kill -9`.

The file is the state file of the graph, so that a handler's outcome, the changes of its state, what it published and its dead
letter are one transaction. Each call runs SQLite on the event loop itself, `settle_here` on the thread of a handler: a
transaction takes about 0.1 ms, and at most `_PATIENCE_S` when another process writes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from math import inf
from sqlite3 import Connection
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import RunError
from graphbus_core.hosting.database import Database
from graphbus_core.hosting.state import APPLICATION_ID, WHAT, write_states
from graphbus_core.hosting.state import TABLES as STATE_TABLES
from graphbus_core.isolation import attempt
from graphbus_core.ledger import sqlite_tables as sql
from graphbus_core.ledger.changes import Changes
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.processes import has_ended, own_identity
from graphbus_core.ledger.seam import (
    REMOVED,
    AgentMissing,
    Capabilities,
    Dead,
    Done,
    EngineGone,
    Entry,
    EntryState,
    Lag,
    Lease,
    LeaseLost,
    Outcome,
    Parked,
    Question,
    Released,
    ReplayRequest,
    RetryAt,
    Settled,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.ledger.sqlite_history import apply_replay, find_entries, plan_replay
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.topics import matches

if TYPE_CHECKING:
    import asyncio

_PATIENCE_S = 2.0
"""How long a call waits while another process writes; after that it raises EngineGone."""
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.01, 0.1
_SHORTEST_ANSWER_POLL_S, _LONGEST_ANSWER_POLL_S = 0.001, 0.02
_OWNERS_POLL_S = _FORGET_S = 1.0
_TAKEN_S = 1.0
"""Within this time, a process takes a question to one of its agents."""
_QUIET_PER_POLL = 10
"""How many times longer than the pause between two looks at the file the time since the last change must be."""

_STATEMENTS: dict[type[Outcome], str] = {
    RetryAt: sql.RETRY,
    Released: sql.RELEASE,
    Dead: sql.BURY,
    Parked: sql.PARK,
    Done: sql.DONE,
}
_LETTER = ("subscription", "reason", "error", "timestamp", "place", "first_timestamp", "attempts", "traceback")
"""The fields of a dead letter in the order of their columns in `DEAD_LETTERS`."""

_decoder = msgspec.json.Decoder(Envelope)

_Stored = tuple[Envelope, str]
"""An event and its JSON text."""


class SqliteLedger:
    """A `Ledger` in an SQLite file, which several processes may use. What it has stored survives a crash of all of them.

    A power cut may undo the last transactions, latest first, each as a whole. All calls but
    `settle_here` come from one event loop.

    Args:
        path: The file, created when it is missing; it may hold the states of the graph already.
        clock: The clock of leases and retries. All processes must have the same time.
        lease_s: How long a lease lasts.
        keep_s: How long the id of an event that is done is kept, to recognize the event when it is appended again.
    """

    capabilities = Capabilities(atomic_settle=True, survives="process", several_processes=True, replay=True)
    is_reachable = True
    _tables: tuple[str, ...] = sql.TABLES

    def __init__(
        self, path: str, clock: Clock | None = None, lease_s: float = 30.0, *, keep_s: float = 86_400.0
    ) -> None:
        self._path = path
        self._now = (SystemClock() if clock is None else clock).time
        self._lease_s = lease_s
        self._keep_s = keep_s
        self._database: Database | None = None
        self._generation: int | None = None
        self._subscriptions: dict[int, Subscription] = {}  # all, by row number
        self._open: dict[int, Subscription] = {}  # those that get deliveries, in their order
        self._declared: frozenset[tuple[str, str, str]] | None = (
            None  # the keys of those that this process has declared
        )
        self._routes: dict[str, list[tuple[int, Subscription]]] = {}
        self._pending: list[tuple[Sequence[_Stored], asyncio.Future[None]]] = []
        self._changes = Changes(self._poll)
        self._data_version = 0
        self._looked_at = 0.0  # until when, on the clock of the engine, due times have been noted
        self._active_at = 0.0  # when something was last noted, monotonic
        self._polled_at = 0.0  # when the file was last looked at, monotonic
        self._owner = own_identity()
        self._owners_seen_at = 0.0  # monotonic
        self._forget_at = 0.0  # when to look for events to forget, on the clock of the engine

    # --- the file ---

    def _connect(self) -> Database:
        """Return the file, which the first call opens."""
        if self._database is None:
            database = Database(self._path, WHAT, APPLICATION_ID, STATE_TABLES, timeout_s=_PATIENCE_S)
            with database.write_transaction() as connection:
                for statement in self._tables:
                    connection.execute(statement)
            self._database = database
        return self._database

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield the connection in a transaction that is written at the end, and undone after an exception."""
        with _translate_busy(), self._connect().write_transaction() as connection:
            yield connection

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._connect().connection()

    async def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        if self._database is not None:
            self._database.close()

    # --- subscriptions ---

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        """Open the file, and replace the subscriptions; see `Ledger.open`."""
        wanted = {each.key: each for each in subscriptions}
        self._declared = frozenset(wanted)
        with self._transaction() as connection:
            self._load_subscriptions(connection)
            if wanted == {each.key: each for each in self._open.values()}:
                return
            known = {each.key: (number, each) for number, each in self._subscriptions.items()}
            _write_subscriptions(connection, wanted.values(), self._now())
            for key, new in wanted.items():
                if key in known:
                    _adapt_deliveries(connection, *known[key], new)
        self._note()

    def _load_subscriptions(self, connection: Connection) -> None:
        """Read the subscriptions if another process may have changed them."""
        row = connection.execute(sql.GENERATION).fetchone()
        if row is None or row[0] == self._generation:
            return
        rows = connection.execute(sql.SUBSCRIPTIONS).fetchall()
        fields = Subscription.__struct_fields__
        self._subscriptions = {
            number: Subscription(**dict(zip(fields, rest, strict=True))) for number, _, *rest in rows
        }
        self._open = {number: self._subscriptions[number] for number, is_open, *_ in rows if is_open}
        self._routes.clear()
        self._generation = row[0]

    # --- events ---

    async def append(self, events: Sequence[Envelope]) -> None:
        """Store events; see `Ledger.append`. Calls that are made at the same time share a transaction.

        Raises:
            RunError: GBE612, a text cannot be written as UTF-8. GBE643, GBE645 for the file.
        """
        from asyncio import get_running_loop

        stored = [_encode(event) for event in events]
        if not stored:
            return
        loop = get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._pending.append((stored, done))
        loop.call_soon(self._write_pending)  # the first of these writes for all; the others find nothing to write
        await done

    def _write_pending(self) -> None:
        """Write the events of all waiting calls in one transaction, and let the calls return or raise."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        _, error = attempt(lambda: self._write_events([event for stored, _ in pending for event in stored]))
        for _, done in pending:
            if done.done():  # the call was cancelled
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def _write_events(self, events: Iterable[_Stored]) -> None:
        with self._transaction() as connection:
            agents = self._insert(connection, events)
            self._forget_done(connection)
        self._note(agents)

    def _forget_done(self, connection: Connection) -> None:
        """Once a second: forget events that were done long ago, some at a time."""
        now = self._now()
        if now >= self._forget_at:
            is_all = connection.execute(sql.FORGET_DONE, (now - self._keep_s,)).rowcount < sql.FORGET_AT_ONCE
            self._forget_at = now + _FORGET_S * is_all

    def _insert(self, connection: Connection, events: Iterable[_Stored]) -> set[str]:
        """Insert those events whose ids are new, with their deliveries; return the agents that get any."""
        self._load_subscriptions(connection)
        now, deliveries = self._now(), list[tuple[Any, ...]]()
        for event, body in events:
            route = self._route(event.type)
            cursor = connection.execute(sql.ADD_EVENT, (event.id, body, len(route), now))
            if cursor.rowcount:
                deliveries += [
                    (
                        cursor.lastrowid,
                        number,
                        each.agent,
                        each.partition_of(event),
                        event.time,
                    )
                    for number, each in route
                ]
        connection.executemany(sql.ADD_DELIVERY, deliveries)
        return {agent for _, _, agent, *_ in deliveries}

    def _route(self, topic: str) -> list[tuple[int, Subscription]]:
        """Return the subscriptions that get the events of a topic, with their row numbers."""
        route = self._routes.get(topic)
        if route is None:
            route = [(number, each) for number, each in self._open.items() if matches(each.topic, topic)]
            self._routes[topic] = route
        return route

    # --- leases ---

    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        """Return leases for the next deliveries; see `Ledger.claim`. If there are none, nothing is locked."""
        wanted = {"agent": agent, "partitions": json.dumps(list(partitions)), "now": self._now()}
        with _translate_busy(), self._reading() as connection:
            if limit < 1 or not any(connection.execute(sql.FIND_CLAIMABLE, wanted).fetchone()):
                return ()
        with self._transaction() as connection:
            return self._claim(connection, agent, partitions, limit)

    def _claim(self, connection: Connection, agent: str, partitions: Collection[int], limit: int) -> Sequence[Lease]:
        """Claim in a transaction."""
        now = self._now()
        wanted: dict[str, Any] = {"agent": agent, "partitions": json.dumps(list(partitions)), "now": now}
        is_any_ready, is_any_due = connection.execute(sql.FIND_CLAIMABLE, wanted).fetchone()
        if not is_any_ready and not is_any_due:
            return ()
        self._load_subscriptions(connection)
        if is_any_due:
            connection.execute(sql.END_WAITS, wanted)
        wanted |= {"limit": limit, "foreign": json.dumps(self._foreign())}
        rows, ends_at = connection.execute(sql.CLAIMABLE, wanted).fetchall(), now + self._lease_s
        connection.executemany(sql.LEASE, [(ends_at, self._owner, row[0]) for row in rows])
        return [self._lease_of(row, ends_at) for row in rows]

    def _foreign(self) -> list[int]:
        """Return the row numbers of the subscriptions that only a process of another build has declared."""
        declared = self._declared
        return [] if declared is None else [number for number, each in self._open.items() if each.key not in declared]

    def _lease_of(self, row: Sequence[Any], ends_at: float) -> Lease:
        number, subscription, partition, attempts, unfinished, token, failed_at, error, body = row
        return Lease(
            delivery=number,
            envelope=_decoder.decode(body),
            subscription=self._subscriptions[subscription],
            partition=partition,
            attempt=attempts + 1,
            unfinished=unfinished,
            token=token + 1,
            ends_at=ends_at,
            failed_at=failed_at,
            last_error=error,
        )

    async def extend(self, lease: Lease) -> Lease:
        """Return the lease with a later end; see `Ledger.extend`."""
        ends_at = self._now() + self._lease_s
        with self._transaction() as connection:
            _change_leased(connection, sql.EXTEND, lease, {"now": ends_at})
        return msgspec.structs.replace(lease, ends_at=ends_at)

    async def settle(
        self, lease: Lease, outcome: Outcome, state: Sequence[StateChange] = (), outgoing: Sequence[Envelope] = ()
    ) -> None:
        """End a lease, in one transaction; see `Ledger.settle`."""
        note, _ = self.settle_here(lease, outcome, state, outgoing)
        note()

    def settle_here(
        self,
        lease: Lease,
        outcome: Outcome,
        state: Sequence[StateChange],
        outgoing: Sequence[Envelope],
        limit: int = 0,
    ) -> Settled:
        """Settle a lease on any thread, and claim what follows; see `SettlesHere`."""
        stored = [_encode(event) for event in outgoing]
        agent, is_done, now = lease.subscription.agent, isinstance(outcome, Done), self._now()
        values = {name: _make_storable(value) for name, value in msgspec.structs.asdict(outcome).items()}
        with self._transaction() as connection:
            event = _change_leased(connection, _STATEMENTS[type(outcome)], lease, values | {"now": now})
            if is_done:
                connection.execute(sql.COUNT_DOWN, (now, event))
            conflict = write_states(connection, state)
            if conflict is not None:
                raise StateConflict(conflict)
            agents = self._insert_outgoing(connection, lease, stored) if stored else set()
            more = self._claim(connection, agent, (lease.partition,), limit) if limit else ()
        return Settled(partial(self._note_settled, agent, agents, is_done=is_done), more)

    def _note_settled(self, agent: str, agents: Collection[str], *, is_done: bool) -> None:
        self._note(agents)
        if is_done:
            self._changes.note_later(agent)  # who settles claims next anyway
        else:
            self._note([agent])

    def _insert_outgoing(self, connection: Connection, lease: Lease, events: Iterable[_Stored]) -> set[str]:
        """Insert what the handler of a lease has published; return the agents that get it here."""
        return self._insert(connection, events)

    async def dead_letters(self, agents: Collection[str]) -> Sequence[tuple[int, DeadLetter]]:
        """Return the dead letters of these agents; see `Ledger.dead_letters`."""
        with _translate_busy(), self._reading() as connection:
            rows = connection.execute(sql.DEAD_LETTERS, (json.dumps(list(agents)),)).fetchall()
        return [
            (number, DeadLetter(event=_decoder.decode(body).to_event(), **dict(zip(_LETTER, fields, strict=True))))
            for number, body, *fields in rows
        ]

    async def forget(self, deliveries: Collection[int]) -> None:
        """Forget dead letters; see `Ledger.forget`."""
        with self._transaction() as connection:
            for number in deliveries:
                for (event,) in connection.execute(sql.FORGET_DEAD, (number,)).fetchall():
                    connection.execute(sql.COUNT_DOWN, (self._now(), event))

    async def resume(self, build: str = "") -> int:
        """Hand out again what is parked; see `Ledger.resume`."""
        with self._transaction() as connection:
            count = connection.execute(sql.RESUME, {"build": build, "removed": REMOVED}).rowcount
        if count:
            self._note()
        return count

    # --- what people look at ---

    async def entries(self, topic: str, states: Collection[EntryState], limit: int) -> Sequence[Entry]:
        """Return the latest events; see `History.entries`."""
        with _translate_busy(), self._connect().read_transaction() as connection:
            return find_entries(connection, self._now(), topic, states, limit)

    async def replay(self, request: ReplayRequest, *, is_dry: bool = False) -> Sequence[Entry]:
        """Hand out again what handlers are done with; see `History.replay`. It is kept for `keep_s`."""
        with _translate_busy(), self._connect().read_transaction() if is_dry else self._transaction() as connection:
            self._load_subscriptions(connection)
            plan = plan_replay(connection, self._open, request)
            if not is_dry:
                apply_replay(connection, self._open, plan)
        self._note()
        return [
            Entry(envelope=event, state="done", handler=self._open[number].handler)
            for _, event, number in plan.deliveries
        ]

    # --- questions ---

    async def ask(self, agent: str, text: str, timeout_s: float, missing_s: float) -> str:
        """Put a question to the process that hosts an agent, and return the answer; see `Questions.ask`.

        Who runs an agent takes the questions to it, so one that nobody has taken after a second tells that there is no process.
        """
        from asyncio import sleep, timeout

        began_at, deadline = monotonic(), self._now() + timeout_s
        with self._transaction() as connection:
            (number,) = connection.execute(sql.ASK, (agent, text, deadline)).fetchone()
        self._note()
        missing_at = began_at + max(missing_s, _TAKEN_S)
        try:
            async with timeout(timeout_s):
                while True:
                    if monotonic() >= missing_at:
                        missing_at = inf
                        self._withdraw(number, agent)
                    with self._reading() as connection:
                        row = connection.execute(sql.FIND_ANSWER, (number,)).fetchone()
                    if row is not None and row[0] is not None:
                        return str(row[0])
                    pause_s = (monotonic() - began_at) / _QUIET_PER_POLL
                    await sleep(min(max(pause_s, _SHORTEST_ANSWER_POLL_S), _LONGEST_ANSWER_POLL_S))
        except TimeoutError:
            if monotonic() - began_at >= _TAKEN_S:
                self._withdraw(number, agent)
            raise
        finally:
            with self._transaction() as connection:
                connection.execute(sql.FORGET_QUESTIONS, (number, self._now()))

    def _withdraw(self, number: int, agent: str) -> None:
        """Take back a question that nobody has taken, and raise AgentMissing; do nothing if somebody has."""
        with self._transaction() as connection:
            if connection.execute(sql.WITHDRAW, (number,)).rowcount:
                raise AgentMissing(agent)

    async def take_questions(self, agents: Collection[str]) -> Sequence[Question]:
        """Return the questions that wait; see `Questions.take_questions`. If there are none, nothing is locked."""
        with _translate_busy(), self._reading() as connection:
            if not connection.execute(sql.HAS_QUESTIONS).fetchone()[0]:
                return ()
        with self._transaction() as connection:
            rows = connection.execute(sql.TAKE_QUESTIONS, (self._now(), json.dumps(list(agents)))).fetchall()
        return [Question(*row) for row in sorted(rows)]

    async def answer(self, question: Question, text: str) -> None:
        """Answer a question; see `Questions.answer`."""
        with self._transaction() as connection:
            connection.execute(sql.ANSWER, (text, question.number))

    async def leave_questions(self) -> None:
        """Do nothing: a question waits in the file until a process takes it."""

    # --- watching ---

    def watch(self) -> AsyncIterator[Collection[str]]:
        """Yield whenever a delivery may have become due; see `Ledger.watch`. Looks at the file every 10 to 100 ms."""
        return self._changes.watch()

    def _note(self, agents: Collection[str] | None = None) -> None:
        """Wake those who watch, if any of these agents may have something to do; None: any agent may."""
        if agents is None or agents:
            self._active_at = monotonic()
            self._changes.note(*(agents or ()))

    def _end_leases_of_ended_processes(self) -> None:
        """Once a second: end the leases of processes that were killed, which would last until their time has passed."""
        if monotonic() - self._owners_seen_at < _OWNERS_POLL_S:
            return
        self._owners_seen_at = monotonic()
        with self._reading() as connection:
            ended = [owner for (owner,) in connection.execute(sql.OWNERS) if owner and has_ended(owner)]
        if ended:
            with self._transaction() as connection:
                connection.executemany(sql.END_LEASES_OF, [(self._now(), owner) for owner in ended])
            self._note()

    def _poll(self) -> float:
        """Note changes of other processes and due times that have passed; return after how many seconds to look again."""
        rest_s = self._polled_at + _SHORTEST_POLL_S - monotonic()
        if rest_s > 0:
            return rest_s
        self._polled_at = monotonic()
        self._end_leases_of_ended_processes()
        now = self._now()
        self._looked_at = min(self._looked_at, now)  # a clock may have been set back
        with _translate_busy(), self._reading() as connection:
            (version,) = connection.execute(sql.DATA_VERSION).fetchone()
            (due,) = connection.execute(sql.NEXT_DUE, (self._looked_at,)).fetchone()
        self._looked_at = now
        if version != self._data_version or (due is not None and due <= now):
            self._data_version = version
            self._note()
        pause_s = min(max((monotonic() - self._active_at) / _QUIET_PER_POLL, _SHORTEST_POLL_S), _LONGEST_POLL_S)
        return pause_s if due is None or due <= now else min(pause_s, due - now)

    async def lag(self) -> Sequence[Lag]:
        """Return the open deliveries of each subscription, and of removed ones that have any."""
        now = self._now()
        with _translate_busy(), self._connect().read_transaction() as connection:
            self._load_subscriptions(connection)
            rows = connection.execute(sql.LAG, {"now": now}).fetchall()
        counts: dict[int, dict[str, Any]] = {number: {} for number in self._open}
        for number, kind, count, time in rows:
            fields = counts.setdefault(number, {})
            fields[kind] = count
            if kind == "waiting":
                fields["oldest_s"] = max(0.0, now - time)
        return [Lag(subscription=self._subscriptions[number], **fields) for number, fields in counts.items()]


def _write_subscriptions(connection: Connection, wanted: Iterable[Subscription], now: float) -> None:
    """Replace the subscriptions; park the deliveries of those that are gone, and take up those of returned ones."""
    connection.execute(sql.REMOVE_SUBSCRIPTIONS)
    connection.executemany(
        sql.ADD_SUBSCRIPTION,
        [(*msgspec.structs.astuple(each), position) for position, each in enumerate(wanted)],
    )
    connection.execute(sql.NEXT_GENERATION)
    connection.execute(sql.PARK_REMOVED, {"why": REMOVED, "now": now})
    connection.execute(sql.TAKE_UP_RETURNED, {"why": REMOVED})


def _adapt_deliveries(connection: Connection, number: int, old: Subscription, new: Subscription) -> None:
    """Give the open deliveries of a subscription the partitions and the kind of retry that it has now."""
    if (old.partition_key, old.partitions) != (new.partition_key, new.partitions):
        rows = connection.execute(sql.EVENTS_OF_SUBSCRIPTION, (number,)).fetchall()
        moves = [(new.partition_of(_decoder.decode(body)), delivery) for delivery, body in rows]
        connection.executemany(sql.MOVE, moves)
    if old.on_retry != new.on_retry:
        connection.execute(sql.CHANGE_WAITS, (sql.SKIPPING if new.on_retry == "skip" else sql.BLOCKING, number))


def _change_leased(connection: Connection, statement: str, lease: Lease, values: dict[str, Any]) -> int:
    """Execute a statement on the delivery of a lease, and return the row number of its event; raise LeaseLost if it has ended."""
    rows = connection.execute(statement, {**values, "id": lease.delivery, "token": lease.token}).fetchall()
    if not rows:
        raise LeaseLost(lease.envelope.id)
    return int(rows[0][0])


def _encode(event: Envelope) -> _Stored:
    """Return an event with its JSON text; raise GBE612 if a text in it cannot be written as UTF-8."""
    try:
        return event, msgspec.json.encode(event).decode()
    except UnicodeEncodeError:
        reason = "text with half of a surrogate pair"
        raise RunError("GBE612", path=f"a value of {event.type}", found=reason) from None


def _make_storable(value: Any) -> Any:
    """Return a text with lone surrogates escaped, which errors may contain and SQLite refuses; other values as they are."""
    is_plain = not isinstance(value, str) or value.isascii()
    return value if is_plain else value.encode("utf-8", "backslashreplace").decode()


@contextmanager
def _translate_busy() -> Iterator[None]:
    """Turn the error about a file that another process holds into EngineGone: the call may be repeated."""
    try:
        yield
    except RunError as error:
        if error.code == "GBE644":
            raise EngineGone(error.sentence) from error
        raise
