"""InboxLedger: the local file of a process whose events come from a broker, with a transactional inbox and outbox.

    broker -> inbox -> deliveries -> settle: outcome, states, outbox -> broker

It is the engine in a file, with two more tables. What arrives for an agent becomes deliveries of that agent alone, in the
order of arrival, with the receipt by which the broker knows it. What handlers publish goes to the outbox in the transaction of
their outcome, instead of to the subscriptions in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from graphbus_core.ledger import sqlite_tables as sql
from graphbus_core.ledger.envelope import Envelope, encode_envelope
from graphbus_core.ledger.seam import Lease
from graphbus_core.ledger.sqlite import SqliteLedger

_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger_inbox (agent TEXT NOT NULL, number INTEGER NOT NULL, origin TEXT NOT NULL,"
    " event_id TEXT NOT NULL, receipt TEXT NOT NULL, PRIMARY KEY (agent, number)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ledger_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL,"
    " topic TEXT NOT NULL, event_id TEXT NOT NULL, body TEXT NOT NULL)",
)
_ADD_RECEIPT = "INSERT OR REPLACE INTO ledger_inbox (agent, number, origin, event_id, receipt) VALUES (?, ?, ?, ?, ?)"
_RECEIPTS = "SELECT number, event_id, receipt FROM ledger_inbox WHERE agent = ? AND origin = ? ORDER BY number"
_COUNT_RECEIPTS = "SELECT agent, count(*) FROM ledger_inbox GROUP BY agent"
_FORGET_RECEIPT = "DELETE FROM ledger_inbox WHERE agent = ? AND number = ?"
_FORGET_OTHER_ORIGINS = "DELETE FROM ledger_inbox WHERE agent = ? AND origin <> ?"
_OPEN_DELIVERIES = (
    "SELECT e.event_id, count(*) FROM ledger_deliveries d JOIN ledger_events e ON e.id = d.event"
    " WHERE d.agent = ? AND d.status < ? GROUP BY e.event_id"
)
_ADD_OUTGOING = "INSERT INTO ledger_outbox (agent, topic, event_id, body) VALUES (?, ?, ?, ?)"
_OUTGOING = "SELECT id, topic, event_id, body FROM ledger_outbox WHERE agent IN (%s) ORDER BY id LIMIT ?"
_FORGET_OUTGOING = "DELETE FROM ledger_outbox WHERE id = ?"


class Source(NamedTuple):
    """Where events for an agent come from.

    Attributes:
        agent: The agent.
        partition: Only deliveries in this partition are taken from there; None: all.
        name: What the source is called, in the file too.
    """

    agent: str
    partition: int | None
    name: str


class Arrival(NamedTuple):
    """An event from the broker: its number in the stream there, and the receipt that acknowledges it."""

    number: int
    receipt: str
    envelope: Envelope


class Receipt(NamedTuple):
    """The receipt of an event that is not acknowledged, and how many deliveries of it are open."""

    number: int
    event_id: str
    receipt: str
    open_deliveries: int


class Outgoing(NamedTuple):
    """An event in the outbox, with its body as the broker gets it."""

    number: int
    topic: str
    event_id: str
    body: str


class InboxLedger(SqliteLedger):
    """The file of a process. Several processes may share it if each hosts other agents.

    Args:
        path: The state file of the graph.
        clock: See `SqliteLedger`.
        lease_s: See `SqliteLedger`.
    """

    _tables = (*sql.TABLES, *_TABLES)

    def note(self) -> None:
        """Wake those who watch: a question has come."""
        self._note()

    # --- inbox ---

    def receive(
        self, source: Source, origin: str, arrivals: Sequence[Arrival], acknowledged: Iterable[int] = ()
    ) -> list[int]:
        """Store events with their deliveries to one agent; return for each how many of its deliveries are open.

        An event that the agent has got before is not stored again.

        Args:
            source: Where they come from.
            origin: What tells this stream from an earlier one with the same name.
            arrivals: The events.
            acknowledged: Numbers of events whose receipts are no longer needed.
        """
        with self._transaction() as connection:
            self._load_subscriptions(connection)
            counts = [self._receive(connection, source, each.envelope) for each in arrivals]
            connection.executemany(
                _ADD_RECEIPT,
                [
                    (source.name, each.number, origin, each.envelope.id, each.receipt)
                    for each, count in zip(arrivals, counts, strict=True)
                    if count
                ],
            )
            connection.executemany(_FORGET_RECEIPT, [(source.name, number) for number in acknowledged])
            self._forget_done(connection)
        self._note([source.agent] if any(counts) else ())
        return counts

    def _receive(self, connection: Connection, source: Source, event: Envelope) -> int:
        places = [
            (number, partition)
            for number, each in self._route(event.type)
            for partition in [each.partition_of(event)]
            if each.agent == source.agent and source.partition in (None, partition)
        ]
        if not places:
            return 0
        body = msgspec.json.encode(event).decode()
        cursor = connection.execute(sql.ADD_EVENT, (_key(source, event.id), body, len(places), self._now()))
        if not cursor.rowcount:
            return self._count_open(connection, source).get(event.id, 0)
        connection.executemany(
            sql.ADD_DELIVERY,
            [(cursor.lastrowid, number, source.agent, partition, event.time) for number, partition in places],
        )
        return len(places)

    def receipts(self, source: Source, origin: str) -> list[Receipt]:
        """Return the receipts of a source in the order of their numbers, and forget those of other origins."""
        with self._transaction() as connection:
            connection.execute(_FORGET_OTHER_ORIGINS, (source.name, origin))
            open_deliveries = self._count_open(connection, source)
            rows = connection.execute(_RECEIPTS, (source.name, origin)).fetchall()
        return [
            Receipt(number, event_id, receipt, open_deliveries.get(event_id, 0)) for number, event_id, receipt in rows
        ]

    def count_open(self, source: Source) -> dict[str, int]:
        """Return the id of each event from a source that has open deliveries, and their number."""
        with self._reading() as connection:
            return self._count_open(connection, source)

    def _count_open(self, connection: Connection, source: Source) -> dict[str, int]:
        prefix = _key(source, "")
        rows = connection.execute(_OPEN_DELIVERIES, (source.agent, sql.PARKED))
        return {key.removeprefix(prefix): count for key, count in rows if key.startswith(prefix)}

    def count_receipts(self) -> dict[str, int]:
        """Return the name of each source -> how many of its events are in the file and not acknowledged."""
        with self._reading() as connection:
            return dict(connection.execute(_COUNT_RECEIPTS).fetchall())

    # --- outbox ---

    def _insert_outgoing(
        self, connection: Connection, lease: Lease, events: Iterable[tuple[Envelope, str]]
    ) -> set[str]:
        """Put what the handler of a lease has published into the outbox."""
        agent = lease.subscription.agent
        rows = [(agent, event.type, event.id, encode_envelope(event)) for event, _ in events]
        connection.executemany(_ADD_OUTGOING, rows)
        return set()

    def outgoing(self, agents: Collection[str], limit: int) -> list[Outgoing]:
        """Return the oldest events that handlers of these agents have published and `forget_outgoing` was not called for."""
        marks = ", ".join("?" * len(agents))
        with self._reading() as connection:
            return [Outgoing(*row) for row in connection.execute(_OUTGOING % marks, (*agents, limit))]

    def forget_outgoing(self, numbers: Iterable[int]) -> None:
        """Delete events from the outbox."""
        with self._transaction() as connection:
            connection.executemany(_FORGET_OUTGOING, [(number,) for number in numbers])


def _key(source: Source, event_id: str) -> str:
    """Return what an event is stored under: the agents and partitions of a process get it independently of each other."""
    return f"{source.name}/{event_id}"
