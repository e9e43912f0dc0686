"""SQLite files of a running graph. A file of another program is refused, and never written over.

Every failure of SQLite becomes a refusal that names the file. This module is imported only where such a file is used.
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
"""Of the tables of our files; raised when they change."""
_COMPANIONS = ("-journal", "-wal", "-shm")
"""What SQLite calls the files beside one of its own."""

_PRIMARY = 0xFF
"""The part of an error code that names its kind."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class Database:
    """One open file. Safe from any thread: one uses it at a time.

    What was committed survives the end of the process in any way; a power cut may take the last commits back, in their order.

    Args:
        path: The file, made with its folder when it is not there; or `MEMORY`.
        what: What it is, as the begin of a sentence: `The state of the agents`.
        application_id: Tells our files from others, and this kind of ours from other kinds.
        tables: The statements that make the tables in an empty file.
        timeout_s: How long to wait for other processes that write to it.

    Raises:
        RunError: GBE643 it is damaged, of another program or of a newer GraphBus, GBE644 another process holds it, GBE645 it
            cannot be opened or made.
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
        """Give the connection for a moment; outside of `write_transaction` it commits each statement by itself.

        Raises:
            RunError: GBE643, GBE644, GBE645.
        """
        with self._in_use, self._refusals():
            yield self._connection

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for reading a snapshot; writers do not wait for it.

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
        """Give the connection in a transaction, which is committed at the end and taken back after an exception.

        Raises:
            RunError: GBE643, GBE644, GBE645; nothing is changed then.
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
        try:
            yield
        except sqlite3.Error as error:
            raise self._refusal_of(error) from None

    def _refusal_of(self, error: sqlite3.Error) -> RunError:
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
        self._connection.execute("BEGIN")  # the three pragmas are read from one snapshot
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
        """True when the tables are there, False for an empty file."""
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
        """Make the tables, all or none; another process may do the same at this moment."""
        with self.write_transaction() as connection:
            if self._is_ours():
                return
            for statement in self._tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _use_wal(self, timeout_s: float) -> None:
        """Let readers and a writer not wait for each other. SQLite itself does not wait for the right to change this."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY not in _BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)
