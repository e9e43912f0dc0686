"""The tables of the engine in an SQLite file, and the statements on them.

An event has one row in `ledger_events`, and one in `ledger_deliveries` for each subscription that gets it, until that is done.
Dead and parked deliveries stay there, with what `DeadLetter` and people need to know. An open delivery has one of the first four
status numbers; `due` is when its lease or its wait for a retry ends, NULL if it has neither.
"""

# ruff: noqa: S608 - the only values that are written into these statements are numbers of this module

from __future__ import annotations

READY, LEASED, BLOCKING, SKIPPING, PARKED, DEAD = range(6)
"""The status numbers. A delivery that waits for a retry is BLOCKING or SKIPPING, as its subscription says."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS ledger_subscriptions (id INTEGER PRIMARY KEY, agent TEXT NOT NULL, handler TEXT NOT NULL,"
    " topic TEXT NOT NULL, partition_key TEXT NOT NULL, partitions INTEGER NOT NULL, on_retry TEXT NOT NULL,"
    " position INTEGER,"  # NULL: it was removed
    " generation INTEGER NOT NULL,"  # the same in all rows, and changed with any of them
    " UNIQUE (agent, handler, topic))",
    "CREATE TABLE IF NOT EXISTS ledger_events (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, body TEXT NOT NULL,"
    " deliveries INTEGER NOT NULL,"  # how many are left; 0: it is done
    " changed_at REAL NOT NULL)",
    # AUTOINCREMENT, so that no number comes twice: an old lease must not fit a new delivery.
    "CREATE TABLE IF NOT EXISTS ledger_deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, event INTEGER NOT NULL,"
    " subscription INTEGER NOT NULL, agent TEXT NOT NULL, partition INTEGER NOT NULL, time REAL NOT NULL,"
    " status INTEGER NOT NULL DEFAULT 0, due REAL, token INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,"
    " unfinished INTEGER NOT NULL DEFAULT 0, failed_at REAL, error TEXT NOT NULL DEFAULT '',"
    " owner TEXT,"  # of the last lease: see `processes`
    " reason TEXT,"  # of a dead letter; or why it is parked
    " place TEXT, traceback TEXT, ended_at REAL)",
    "CREATE TABLE IF NOT EXISTS ledger_questions (id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, text TEXT NOT NULL,"
    " deadline REAL NOT NULL, is_taken INTEGER NOT NULL DEFAULT 0, answer TEXT)",
    "CREATE INDEX IF NOT EXISTS ledger_order ON ledger_deliveries (agent, partition, status, due)",
    "CREATE INDEX IF NOT EXISTS ledger_due ON ledger_deliveries (due) WHERE due IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS ledger_done ON ledger_events (changed_at) WHERE deliveries = 0",
)

# --- subscriptions ---

GENERATION = "SELECT generation FROM ledger_subscriptions LIMIT 1"
SUBSCRIPTIONS = (
    "SELECT id, position IS NOT NULL, agent, handler, topic, partition_key, partitions, on_retry FROM ledger_subscriptions"
    " ORDER BY position IS NULL, position, id"
)
REMOVE_SUBSCRIPTIONS = "UPDATE ledger_subscriptions SET position = NULL"
ADD_SUBSCRIPTION = (
    "INSERT INTO ledger_subscriptions (agent, handler, topic, partition_key, partitions, on_retry, position, generation)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (agent, handler, topic) DO UPDATE"
    " SET partition_key = excluded.partition_key, partitions = excluded.partitions, on_retry = excluded.on_retry,"
    " position = excluded.position"
)
NEXT_GENERATION = "UPDATE ledger_subscriptions SET generation = (SELECT max(generation) + 1 FROM ledger_subscriptions)"
PARK_REMOVED = (
    f"UPDATE ledger_deliveries SET status = {PARKED}, due = NULL, reason = :why, ended_at = :now"
    f" WHERE status < {PARKED} AND subscription IN (SELECT id FROM ledger_subscriptions WHERE position IS NULL)"
)
TAKE_UP_RETURNED = (
    f"UPDATE ledger_deliveries SET status = {READY}, reason = NULL, ended_at = NULL"
    f" WHERE status = {PARKED} AND reason = :why"
    " AND subscription IN (SELECT id FROM ledger_subscriptions WHERE position IS NOT NULL)"
)
EVENTS_OF_SUBSCRIPTION = (
    "SELECT d.id, e.body FROM ledger_deliveries d JOIN ledger_events e ON e.id = d.event WHERE d.subscription = ?"
)
RESUME = (
    f"UPDATE ledger_deliveries SET status = {READY}, reason = NULL, ended_at = NULL"
    f" WHERE status = {PARKED} AND reason <> :removed"
    " AND (:build = '' OR (SELECT json_extract(body, '$.build') FROM ledger_events WHERE id = event) = :build)"
)
MOVE = "UPDATE ledger_deliveries SET partition = ? WHERE id = ?"
CHANGE_WAITS = f"UPDATE ledger_deliveries SET status = ? WHERE subscription = ? AND status IN ({BLOCKING}, {SKIPPING})"

# --- events ---

ADD_EVENT = "INSERT OR IGNORE INTO ledger_events (event_id, body, deliveries, changed_at) VALUES (?, ?, ?, ?)"
ADD_DELIVERY = "INSERT INTO ledger_deliveries (event, subscription, agent, partition, time) VALUES (?, ?, ?, ?, ?)"
FORGET_AT_ONCE = 1000
FORGET_DONE = (
    "DELETE FROM ledger_events WHERE id IN"
    f" (SELECT id FROM ledger_events WHERE deliveries = 0 AND changed_at < ? ORDER BY changed_at LIMIT {FORGET_AT_ONCE})"
)

# --- claims ---

_IN = "agent = :agent AND partition ="
_HELD = f"SELECT 1 FROM ledger_deliveries WHERE {_IN} %s AND status = {LEASED} AND due > :now"
_TIMED = f"status IN ({LEASED}, {BLOCKING}, {SKIPPING})"

FIND_CLAIMABLE = (
    f"SELECT max(EXISTS (SELECT 1 FROM ledger_deliveries WHERE {_IN} p.value AND status = {READY})),"
    f" max(EXISTS (SELECT 1 FROM ledger_deliveries WHERE {_IN} p.value AND {_TIMED} AND due <= :now))"
    f" FROM json_each(:partitions) p WHERE NOT EXISTS ({_HELD % 'p.value'})"
)
"""Whether anything is ready, and whether waits have ended; this needs no lock. It does not look whether a retry blocks."""
END_WAITS = (
    f"UPDATE ledger_deliveries SET unfinished = unfinished + (status = {LEASED}), status = {READY}, due = NULL"
    f" WHERE agent = :agent AND partition IN (SELECT value FROM json_each(:partitions)) AND {_TIMED} AND due <= :now"
    f" AND NOT EXISTS ({_HELD.replace('ledger_deliveries', 'ledger_deliveries h') % 'ledger_deliveries.partition'})"
)
"""Make ready what is due, and what had leases that have ended, except in partitions that have a lease."""
CLAIMABLE = (
    "SELECT d.id, d.subscription, d.partition, d.attempts, d.unfinished, d.token, d.failed_at, d.error, e.body"
    " FROM json_each(:partitions) p CROSS JOIN ledger_deliveries d CROSS JOIN ledger_events e"
    f" WHERE NOT EXISTS ({_HELD % 'p.value'}) AND e.id = d.event AND d.id IN ("
    f"SELECT id FROM ledger_deliveries WHERE {_IN} p.value AND status = {READY} AND due IS NULL"
    " AND subscription NOT IN (SELECT value FROM json_each(:foreign)) AND id < coalesce("
    f"(SELECT min(id) FROM ledger_deliveries WHERE {_IN} p.value AND status = {BLOCKING}), 1 << 62)"
    " ORDER BY id LIMIT :limit) ORDER BY d.id LIMIT :limit"
)
"""The next deliveries of the partitions that have no lease, up to the first retry that blocks; without foreign subscriptions."""
LEASE = f"UPDATE ledger_deliveries SET status = {LEASED}, token = token + 1, due = ?, owner = ? WHERE id = ?"
OWNERS = f"SELECT DISTINCT owner FROM ledger_deliveries WHERE due IS NOT NULL AND status = {LEASED}"
END_LEASES_OF = f"UPDATE ledger_deliveries SET due = ? WHERE due IS NOT NULL AND owner = ? AND status = {LEASED}"

# --- what is done with a delivery that is leased ---

_LEASED = f"WHERE id = :id AND token = :token AND status = {LEASED} RETURNING event"
EXTEND = f"UPDATE ledger_deliveries SET due = :now {_LEASED}"
DONE = f"DELETE FROM ledger_deliveries {_LEASED}"
RELEASE = f"UPDATE ledger_deliveries SET status = {READY}, due = NULL {_LEASED}"
RETRY = (
    "UPDATE ledger_deliveries SET status = CASE"
    " (SELECT on_retry FROM ledger_subscriptions s WHERE s.id = ledger_deliveries.subscription)"
    f" WHEN 'skip' THEN {SKIPPING} ELSE {BLOCKING} END, due = :at,"
    f" error = :error, attempts = attempts + 1, failed_at = coalesce(failed_at, :now) {_LEASED}"
)
BURY = (
    f"UPDATE ledger_deliveries SET status = {DEAD}, due = NULL, reason = :reason, error = :error, place = :place,"
    f" traceback = :traceback, attempts = attempts + 1, failed_at = coalesce(failed_at, :now), ended_at = :now {_LEASED}"
)
PARK = f"UPDATE ledger_deliveries SET status = {PARKED}, due = NULL, reason = :why, ended_at = :now {_LEASED}"
COUNT_DOWN = "UPDATE ledger_events SET deliveries = deliveries - 1, changed_at = ? WHERE id = ?"

# --- what people and watchers look at ---

_KIND = (
    f"CASE WHEN status = {DEAD} THEN 'dead' WHEN status = {PARKED} THEN 'parked'"
    f" WHEN status = {READY} OR due <= :now THEN 'waiting' WHEN status = {LEASED} THEN 'leased' ELSE 'retrying' END AS kind"
)
LAG = f"SELECT subscription, {_KIND}, count(*), min(time) FROM ledger_deliveries GROUP BY subscription, kind"
ENTRIES = (
    f"SELECT e.body, {_KIND}, s.handler, CASE WHEN status = {PARKED} THEN d.reason ELSE d.error END, e.id AS event"
    " FROM ledger_deliveries d JOIN ledger_events e ON e.id = d.event JOIN ledger_subscriptions s ON s.id = d.subscription"
    " UNION ALL SELECT body, 'done', '', '', id FROM ledger_events WHERE deliveries = 0 ORDER BY event DESC"
)
OPEN = "SELECT event, subscription FROM ledger_deliveries"
EVENTS = "SELECT id, deliveries, body FROM ledger_events ORDER BY id"
ADD_TO_EVENT = "UPDATE ledger_events SET deliveries = deliveries + 1 WHERE id = ?"
FORGET_EVENT = "DELETE FROM ledger_events WHERE id = ? AND deliveries = 0"
DEAD_LETTERS = (
    "SELECT d.id, e.body, s.handler, d.reason, d.error, d.ended_at, d.place, d.failed_at, d.attempts, d.traceback"
    " FROM ledger_deliveries d JOIN ledger_events e ON e.id = d.event JOIN ledger_subscriptions s ON s.id = d.subscription"
    f" WHERE d.status = {DEAD} AND d.agent IN (SELECT value FROM json_each(?)) ORDER BY d.id"
)
FORGET_DEAD = f"DELETE FROM ledger_deliveries WHERE id = ? AND status = {DEAD} RETURNING event"
DATA_VERSION = "PRAGMA data_version"
"""A number that changes when another connection has written to the file."""
NEXT_DUE = "SELECT min(due) FROM ledger_deliveries WHERE due > ?"

# --- questions ---

ASK = "INSERT INTO ledger_questions (agent, text, deadline) VALUES (?, ?, ?) RETURNING id"
TAKE_QUESTIONS = (
    "UPDATE ledger_questions SET is_taken = 1 WHERE is_taken = 0 AND deadline > ?"
    " AND agent IN (SELECT value FROM json_each(?)) RETURNING id, agent, text"
)
HAS_QUESTIONS = "SELECT EXISTS (SELECT 1 FROM ledger_questions WHERE is_taken = 0)"
ANSWER = "UPDATE ledger_questions SET answer = ? WHERE id = ?"
FIND_ANSWER = "SELECT answer FROM ledger_questions WHERE id = ?"
WITHDRAW = "DELETE FROM ledger_questions WHERE id = ? AND is_taken = 0"
FORGET_QUESTIONS = "DELETE FROM ledger_questions WHERE id = ? OR deadline < ?"
