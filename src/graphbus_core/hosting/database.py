"""SQLite files of a running graph: the states of agents and the dead letters. A file of another program is never overwritten.

Every error of SQLite becomes a RunError that names the file. Modules import this one only when they open a file, because sqlite3
takes a while to import.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock

from graphbus_core.errors import Place, RunError
from graphbus_core.store.folders import make_private

MEMORY = ":memory:"
_VERSION = 1
"""The version of the tables, stored as `user_version`; raised when they change."""
_COMPANIONS = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite creates beside a database."""

_PRIMARY = 0xFF
"""The bits of an extended error code of SQLite that hold its primary code."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class Database:
    """An open SQLite file. May be used from any thread; one thread uses it at a time.

    Commits survive a crash of the process. A power cut may undo the last commits, latest first.

    Args:
        path: The file, created with its folder when it is missing; or `MEMORY`.
        what: Its content, as the beginning of a sentence for messages: `The state of the agents`.
        application_id: A number in the file that marks it as ours and distinguishes the kinds of our files.
        tables: The SQL statements that create the tables in an empty file.
        timeout_s: How long to wait while another process writes to it.

    Raises:
        RunError: GBE643 when the file is damaged or belongs to another program or a newer GraphBus, GBE644 when another process
            holds it, GBE645 when it cannot be opened or created.
    """

    def __init__(
        self, path: str, what: str, application_id: int, tables: Sequence[str], *, timeout_s: float = 5.0
    ) -> None:
        self._path = path
        self._what = what
        self._application_id = application_id
        self._tables = tables
        self._in_use = Lock()
        if path != MEMORY:
            self._make_file()
        with self._refusals():
            self._connection = sqlite3.connect(
                path, timeout=timeout_s, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        with ExitStack() as on_failure, self._refusals():
            on_failure.callback(self._connection.close)
            self._prepare(timeout_s)
            on_failure.pop_all()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for this thread and yield its connection in autocommit mode: each statement commits by itself.

        Raises:
            RunError: GBE643, GBE644, GBE645.
        """
        with self._in_use, self._refusals():
            yield self._connection

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction that reads one snapshot; it does not block writers of other processes.

        Raises:
            RunError: GBE643, GBE644, GBE645.
        """
        with self.connection() as connection:
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, which is committed at the end and rolled back after an exception.

        Raises:
            RunError: GBE643, GBE644, GBE645; the file is unchanged then.
        """
        with self.connection() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        with self._in_use:
            self._connection.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors of SQLite in the block into RunErrors that name the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._refusal_of(error) from None

    def _refusal_of(self, error: sqlite3.Error) -> RunError:
        """Return the RunError for an error of SQLite."""
        kind = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if kind in _BUSY:
            return self._refuse("GBE644")
        if kind in _DAMAGED:
            return self._refuse("GBE643", reason=f"it is damaged ({error})")
        return self._refuse("GBE645", reason=str(error))

    def _refuse(self, code: str, **data: object) -> RunError:
        where = None if self._path == MEMORY else Place(self._path)
        return RunError(code, where=where, what=self._what, **data)

    def _make_file(self) -> None:
        try:
            make_private(self._path, _COMPANIONS)
        except OSError as error:
            raise self._refuse("GBE645", reason=(error.strerror or str(error)).lower()) from None

    def _prepare(self, timeout_s: float) -> None:
        """Verify that the file is ours, create the tables in an empty one, and choose the journal mode."""
        self._connection.execute("BEGIN")  # so that `_is_ours` reads its pragmas from one snapshot
        try:
            is_ours = self._is_ours()
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if not is_ours:
            self._make_tables()
        self._use_wal(timeout_s)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _is_ours(self) -> bool:
        """True for a file with our tables, False for an empty file; raise GBE643 for any other."""
        application_id, version, tables = (
            self._connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not tables and not application_id:
            return False
        if application_id != self._application_id:
            raise self._refuse("GBE643", reason="it belongs to another program")
        if version > _VERSION:
            raise self._refuse("GBE643", reason="a newer GraphBus has written it")
        return True

    def _make_tables(self) -> None:
        """Create the tables in one transaction, unless another process has done so in the meantime."""
        with self.write_transaction() as connection:
            if self._is_ours():
                return
            for statement in self._tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _use_wal(self, timeout_s: float) -> None:
        """Set the journal mode WAL, in which readers and a writer do not block each other.

        SQLite's own timeout does not cover this statement, so it is repeated here while the file is busy.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY not in _BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)
