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
from graphbus_core.errors.system import MOVE_AWAY, UPGRADE, advise_on, reason_of
from graphbus_core.store.folders import make_private

MEMORY = ":memory:"
_VERSION = 1
"""The version of the tables, stored as `user_version`; to be increased when the tables change."""
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
        with self._translate_errors():
            self._connection = sqlite3.connect(
                path, timeout=timeout_s, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        with ExitStack() as on_failure, self._translate_errors():
            on_failure.callback(self._connection.close)
            self._prepare(timeout_s)
            on_failure.pop_all()  # it succeeded: keep the connection open

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for this thread and yield its connection in autocommit mode: each statement commits by itself.

        Raises:
            RunError: GBE643, GBE644, GBE645.
        """
        with self._in_use, self._translate_errors():
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
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite in the block into RunErrors that name the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate_error(error) from None

    def _translate_error(self, error: sqlite3.Error) -> RunError:
        """Return the RunError for an error of SQLite."""
        kind = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if kind in _BUSY:
            return self._make_error("GBE644")
        if kind in _DAMAGED:
            return self._make_error("GBE643", reason=f"it is damaged ({error})", advice=MOVE_AWAY)
        is_full = kind == sqlite3.SQLITE_FULL
        advice = "Free disk space." if is_full else "Check that you may read and write this file and its folder."
        return self._make_error("GBE645", reason=str(error), advice=advice)

    def _make_error(self, code: str, **data: object) -> RunError:
        """Make an error about this file; `data` are the further fields of its message."""
        where = None if self._path == MEMORY else Place(self._path)
        return RunError(code, where=where, what=self._what, **data)

    def _make_file(self) -> None:
        """Create the file and its folder if they are missing, for the owner only; raise GBE645 if the file cannot be used."""
        try:
            make_private(self._path, _COMPANIONS)
        except OSError as error:
            raise self._make_error("GBE645", reason=reason_of(error), advice=advise_on(error, self._path)) from None

    def _prepare(self, timeout_s: float) -> None:
        """Verify that the file is ours, create the tables in an empty one, and choose the journal mode.

        Raises:
            RunError: GBE643 when the file belongs to another program or a newer GraphBus.
        """
        self._connection.execute("BEGIN")  # so that `_has_own_tables` reads its pragmas from one snapshot
        try:
            has_tables = self._has_own_tables()
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        if not has_tables:
            self._make_tables()
        self._use_wal(timeout_s)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _has_own_tables(self) -> bool:
        """True for a file with our tables, False for an empty file; raise GBE643 for any other."""
        application_id, version, tables = (
            self._connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not tables and not application_id:
            return False
        if application_id != self._application_id:
            raise self._make_error("GBE643", reason="it belongs to another program", advice=MOVE_AWAY)
        if version > _VERSION:
            raise self._make_error("GBE643", reason="a newer GraphBus has written it", advice=UPGRADE)
        return True

    def _make_tables(self) -> None:
        """Create the tables in one transaction, unless another process has done so in the meantime."""
        with self.write_transaction() as connection:
            if self._has_own_tables():
                return
            for statement in self._tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._application_id}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _use_wal(self, timeout_s: float) -> None:
        """Set the journal mode WAL, in which readers and a writer do not block each other.

        SQLite's own timeout does not cover this statement. So it is repeated here while the file is busy, for `timeout_s`; after
        that the error of SQLite is raised.
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
