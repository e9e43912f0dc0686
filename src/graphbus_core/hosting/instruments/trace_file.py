"""`trace.sqlite3`: the last deliveries, in the order in which they ended. One writes, any number of processes read.

This module is imported only where a trace is written or read: sqlite3 is not free.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.database import COMPANIONS
from graphbus_core.hosting.instruments.traced import Delivery
from graphbus_core.store.beneath import make_private

FILE = "trace.sqlite3"
VERSION = 1
"""Raised with every change of the table; traces from before traces had a version have 0, and the same table."""

_BUSY_S = 5.0
_PRIMARY = 0xFF
"""The part of an error code that names its kind."""
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS deliveries (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL, causation_id TEXT NOT NULL, correlation_id TEXT NOT NULL,
    topic TEXT NOT NULL, src TEXT NOT NULL, published_by TEXT NOT NULL, published REAL NOT NULL,
    handler TEXT NOT NULL, attempt INTEGER NOT NULL, started REAL NOT NULL, duration_s REAL NOT NULL,
    outcome TEXT NOT NULL, error TEXT NOT NULL, payload TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_event ON deliveries (event_id);
CREATE INDEX IF NOT EXISTS by_root ON deliveries (correlation_id);
"""


COLUMNS = Delivery.__struct_fields__
_INSERT = f"INSERT INTO deliveries ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - our own names
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM deliveries"  # noqa: S608 - our own names


class TraceFile:
    """The file, open. Usable from one thread at a time.

    Args:
        kept: How many deliveries the file holds; the oldest are forgotten.

    Raises:
        RunError: GBE683 when it cannot be opened; GBE643 when it is damaged or a newer GraphBus has written it.
    """

    def __init__(self, path: Path, *, kept: int) -> None:
        self._kept = kept
        self._added = 0
        try:
            make_private(path, COMPANIONS)  # payloads are nobody else's business
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)  # sqlite3 has no other words
            raise RunError("GBE683", where=Place(str(path)), what="The trace", reason=reason) from None
        try:
            _refuse_newer(self._database, path)
            self._database.execute("PRAGMA journal_mode = WAL")  # a reader does not hold up the graph
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(_SCHEMA)
            self._database.execute(f"PRAGMA user_version = {VERSION}")
        except RunError:
            self._database.close()
            raise
        except sqlite3.Error as error:
            self._database.close()
            raise _refusal_of(error, path) or RunError(
                "GBE683", where=Place(str(path)), what="The trace", reason=str(error)
            ) from None

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Write deliveries, all or none, and forget the oldest.

        Raises:
            RunError: GBE683 when they cannot be written.
        """
        rows = [msgspec.structs.astuple(each) for each in deliveries]
        try:
            with self._database:
                self._database.execute("BEGIN")
                self._database.executemany(_INSERT, rows)
            self._added += len(rows)
            if self._added * 100 >= self._kept:
                self._added = 0
                self.forget()
        except sqlite3.Error as error:
            raise RunError("GBE683", what="The trace", reason=str(error)) from None

    def forget(self) -> None:
        """Delete the oldest beyond the limit."""
        self._database.execute("DELETE FROM deliveries WHERE n <= (SELECT max(n) FROM deliveries) - ?", (self._kept,))

    def close(self) -> None:
        """Close the file; nothing is lost."""
        try:
            self.forget()
        finally:
            self._database.close()


def _refuse_newer(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise _unreadable(path, "a newer GraphBus has written it")


def _refusal_of(error: sqlite3.Error, path: Path) -> RunError | None:
    """The refusal of a file that has to be moved away before anything can be done; None when its content is not the matter."""
    kind = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    return _unreadable(path, f"it is damaged ({error})") if kind in _DAMAGED else None


def _unreadable(path: Path, reason: str) -> RunError:
    return RunError("GBE643", where=Place(str(path)), what="The trace", reason=reason)


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One event from outside, with what came of it as far as the file still knows.

    Attributes:
        topic: That of the root; empty if its own deliveries are forgotten or it had none.
        published: When the root, or else the first event of its tree, was published.
        busy_s: The durations of all handlers together.
    """

    event_id: str
    topic: str
    src: str
    published: float
    events: int
    deliveries: int
    failed: int
    busy_s: float


class TraceReader:
    """What a trace file tells; a graph may be writing to it. Use it in a `with` statement.

    Raises:
        RunError: GBE684 when there is no such file or it holds no trace; GBE643 when it is damaged or a newer GraphBus has
            written it. Also from every method.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise RunError("GBE684", reason="no graph has written one yet")
        self._path = path
        try:
            make_private(path, COMPANIONS)  # SQLite writes beside what it reads
            self._database = sqlite3.connect(path, timeout=_BUSY_S)
        except (OSError, sqlite3.Error) as error:
            raise RunError("GBE684", reason=getattr(error, "strerror", None) or str(error)) from None
        is_ready = False
        try:
            _refuse_newer(self._database, path)
            is_ready = True
        except sqlite3.Error as error:
            raise self._refusal_of(error) from None
        finally:
            if not is_ready:
                self._database.close()

    def __enter__(self) -> TraceReader:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._database.close()

    def roots(self, limit: int) -> list[Root]:
        """Give the last roots, newest first."""
        rows = self._rows(
            """
            SELECT correlation_id,
                   max(CASE WHEN event_id = correlation_id THEN topic ELSE '' END),
                   max(CASE WHEN event_id = correlation_id THEN src ELSE '' END),
                   min(published), count(DISTINCT event_id), count(*), sum(outcome != 'done'), sum(duration_s)
            FROM deliveries GROUP BY correlation_id ORDER BY max(n) DESC LIMIT ?
            """,
            (limit,),
        )
        return [msgspec.convert(dict(zip(Root.__struct_fields__, row, strict=True)), Root) for row in rows]

    def tree(self, correlation_id: str) -> list[Delivery]:
        """Give all deliveries below a root, in the order in which they ended."""
        return list(self._deliveries(f"{_SELECT} WHERE correlation_id = ? ORDER BY n", (correlation_id,)))

    def matching(self, prefix: str, limit: int) -> list[str]:
        """Give the ids of events that begin so, newest first; an event that had no delivery itself may be one's cause."""
        known = []
        for column in ("event_id", "correlation_id", "causation_id"):
            known += self._rows(
                f"SELECT {column}, max(n) FROM deliveries WHERE {column} >= ? AND {column} < ? "  # noqa: S608 - our own names
                f"AND {column} != '' GROUP BY 1 LIMIT ?",
                (prefix, f"{prefix}g", limit),
            )
        newest = sorted(known, key=lambda row: -int(str(row[1])))
        return list(dict.fromkeys(str(row[0]) for row in newest))[:limit]

    def root_of(self, event_id: str) -> str:
        """Give the id of the root of an event that `matching` has given."""
        rows = self._rows(
            "SELECT correlation_id FROM deliveries WHERE event_id = ? OR causation_id = ? OR correlation_id = ? LIMIT 1",
            (event_id,) * 3,  # Python 3.12.1 takes `?1` for a name, which it deprecates
        )
        return str(next(iter(rows))[0])

    def last_ids(self, limit: int) -> list[str]:
        """Give the ids of the last events."""
        rows = self._rows("SELECT event_id FROM deliveries GROUP BY 1 ORDER BY max(n) DESC LIMIT ?", (limit,))
        return [str(row[0]) for row in rows]

    def _deliveries(self, query: str, values: Sequence[object]) -> Iterator[Delivery]:
        for row in self._rows(query, values):
            yield msgspec.convert(dict(zip(COLUMNS, row, strict=True)), Delivery)

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[object, ...]]:
        try:
            with closing(self._database.execute(query, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            raise self._refusal_of(error) from None

    def _refusal_of(self, error: sqlite3.Error) -> RunError:
        return _refusal_of(error, self._path) or RunError("GBE684", reason=str(error))
