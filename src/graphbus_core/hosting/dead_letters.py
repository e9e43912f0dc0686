"""Dead letters on disk: `dead_letters.sqlite3` in the state folder, and the one who writes them there while a graph runs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import Any

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import restore_event
from graphbus_core.schema.json import Json
from graphbus_core.store.beneath import Folder

FILE = "dead_letters.sqlite3"
KEPT = 10_000

_log = Log("graphbus.dead_letters")

_PATIENCE_S = 0.25
"""How long a running graph waits for other processes that write to the file."""
_PAUSE_S = 1.0
"""How long it does not try again after that."""
_PENDING = 1000
"""So many letters wait in memory for the disk."""

_MOST = (1 << 63) - 1
"""No letter has a larger number, and SQLite knows none."""

_SHORT = (
    "topic, src, event_time, hops, event_id, causation_id, correlation_id, trail, subscription, reason, error, place,"
    " attempts, first_time, last_time"
)
_COLUMNS = f"{_SHORT}, traceback, payload"
_TABLES = (  # what is long stands at the end of a row, so that the rest is read without it
    "CREATE TABLE letters (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, src TEXT NOT NULL,"
    " event_time REAL NOT NULL, hops INTEGER NOT NULL, event_id TEXT NOT NULL, causation_id TEXT NOT NULL,"
    " correlation_id TEXT NOT NULL, trail TEXT NOT NULL, subscription TEXT NOT NULL, reason TEXT NOT NULL,"
    " error TEXT NOT NULL, place TEXT NOT NULL, attempts INTEGER NOT NULL, first_time REAL NOT NULL,"
    " last_time REAL NOT NULL, replays INTEGER NOT NULL DEFAULT 0, is_replaying INTEGER NOT NULL DEFAULT 0,"
    " traceback TEXT NOT NULL, payload TEXT)",
    "CREATE INDEX letters_by_event ON letters (event_id)",
    "CREATE TABLE dropped (number INTEGER NOT NULL)",
    "INSERT INTO dropped VALUES (0)",
)
_INSERT = f"INSERT INTO letters ({_COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - our own names
_STANDING = "id, replays, is_replaying, payload IS NOT NULL"
_SELECT = f"SELECT {_STANDING}, {_COLUMNS} FROM letters"  # noqa: S608 - our own names
_LIST = f"SELECT {_STANDING}, {_SHORT}, '', NULL FROM letters"  # noqa: S608 - our own names
_FAILED_AGAIN = (
    "UPDATE letters SET error = ?, place = ?, traceback = ?, reason = ?, last_time = ?, attempts = attempts + ?,"
    " is_replaying = 0 WHERE id = ?"
)
_TOO_MANY = "SELECT id FROM letters ORDER BY id DESC LIMIT 1 OFFSET ?"


class KeptLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in the file.

    Attributes:
        id: Its number; never used twice.
        replays: How often somebody has tried to replay it.
        is_replaying: It is being replayed, or was when a process ended.
        has_payload: False when the payload was no JSON, and so could not be kept.
    """

    id: int
    letter: DeadLetter
    replays: int
    is_replaying: bool
    has_payload: bool


class DeadLetterFile:
    """The file, open. Safe from any thread.

    Args:
        path: Where it is; made when it is not there.
        kept: How many letters it holds; the oldest are dropped and counted.
        timeout_s: How long to wait for other processes that write to it.

    Raises:
        RunError: GBE643-645 when it cannot be used; from every method, too.
    """

    def __init__(self, path: str, *, kept: int = KEPT, timeout_s: float = 5.0) -> None:
        from graphbus_core.hosting.database import Database, Layout  # sqlite3 is not free

        self.path = path
        self._kept = kept
        self._database = Database(path, Layout("The file of dead letters", 0x4742444C, 1, _TABLES), timeout_s=timeout_s)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Write letters, all or none, and drop the oldest beyond the limit."""
        rows = [_row_of(letter) for letter in letters]
        with self._database.change() as connection:
            connection.executemany(_INSERT, rows)
            self._drop_the_oldest(connection)

    def letters(self, *, topic: str = "", limit: int = 0, is_short: bool = False) -> list[KeptLetter]:
        """Give the letters, oldest first.

        Args:
            topic: Only of this topic.
            limit: Only the last so many; 0: all.
            is_short: Without payloads and tracebacks, which may be large.
        """
        condition, values = (" WHERE topic = ?", [topic]) if topic else ("", [])
        query = f"{_LIST if is_short else _SELECT}{condition} ORDER BY id DESC LIMIT ?"
        with self._database.use() as connection:
            rows = connection.execute(query, [*values, min(limit, _MOST) or -1]).fetchall()
        return [_letter_of(row) for row in reversed(rows)]

    def numbers(self) -> list[int]:
        """Give the numbers of all letters, oldest first."""
        with self._database.use() as connection:
            return [number for (number,) in connection.execute("SELECT id FROM letters ORDER BY id")]

    def count(self, *, topic: str = "") -> int:
        """Count the letters, of all topics or one."""
        condition, values = (" WHERE topic = ?", [topic]) if topic else ("", [])
        with self._database.use() as connection:
            (number,) = connection.execute(f"SELECT count(*) FROM letters{condition}", values).fetchone()  # noqa: S608
        return int(number)

    @property
    def dropped(self) -> int:
        """How many letters there was no room for."""
        with self._database.use() as connection:
            (number,) = connection.execute("SELECT number FROM dropped").fetchone()
        return int(number)

    def find(self, number: int) -> KeptLetter | None:
        """Give one letter, or None."""
        if number > _MOST:
            return None
        with self._database.use() as connection:
            row = connection.execute(f"{_SELECT} WHERE id = ?", (number,)).fetchone()
        return None if row is None else _letter_of(row)

    def remove(self, numbers: Iterable[int]) -> int:
        """Delete letters, and give how many there were."""
        with self._database.change() as connection:
            before = connection.total_changes
            connection.executemany("DELETE FROM letters WHERE id = ?", [(number,) for number in numbers])
            return int(connection.total_changes - before)

    def find_by_event(self, letter: DeadLetter) -> KeptLetter | None:
        """Give what is kept of the same event for the same subscription, or None."""
        condition = "WHERE event_id = ? AND subscription = ? ORDER BY id DESC LIMIT 1"
        with self._database.use() as connection:
            row = connection.execute(f"{_SELECT} {condition}", (letter.event.event_id, letter.subscription)).fetchone()
        return None if row is None else _letter_of(row)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Be the only process that replays; the end of this one, however it comes, lets the next one in.

        Raises:
            RunError: GBE644 when another one is at it.
        """
        import fcntl

        what, place = "The replay of dead letters", Place(self.path)
        above, name = os.path.split(os.path.abspath(f"{self.path}.replay"))
        try:
            with Folder.at(above) as folder:
                lock = folder.open_own(name)
        except OSError as error:
            raise RunError("GBE645", where=place, what=what, reason=error.strerror or str(error)) from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError("GBE644", where=place, what=what) from None
            yield
        finally:
            os.close(lock)

    def begin_replay(self, number: int) -> None:
        """Note that a letter is about to be delivered: after the end of the process it can be seen what was under way."""
        with self._database.change() as connection:
            connection.execute("UPDATE letters SET is_replaying = 1, replays = replays + 1 WHERE id = ?", (number,))

    def end_replay(self, kept: KeptLetter, failed: Sequence[DeadLetter]) -> None:
        """Write down what came of a replay, all or nothing: the letter goes, and what has failed stays.

        Args:
            kept: What was replayed.
            failed: What has died of its event meanwhile; for a letter with a subscription its own further attempts.
        """
        with self._database.change() as connection:
            if not kept.letter.subscription or not failed:
                connection.executemany(_INSERT, [_row_of(letter) for letter in failed])
                connection.execute("DELETE FROM letters WHERE id = ?", (kept.id,))
                self._drop_the_oldest(connection)
                return
            last, attempts = failed[-1], sum(letter.attempts for letter in failed)
            values = (last.error, last.place, last.traceback, last.reason, last.timestamp, attempts, kept.id)
            connection.execute(_FAILED_AGAIN, values)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _drop_the_oldest(self, connection: Any) -> None:
        last = connection.execute(_TOO_MANY, (self._kept,)).fetchone()
        if last is not None:
            dropped = connection.execute("DELETE FROM letters WHERE id <= ?", last).rowcount
            connection.execute("UPDATE dropped SET number = number + ?", (dropped,))


class Keeper:
    """Writes the dead letters of a running graph to their file. Only `open` raises.

    What cannot be written is logged and tried again with later letters and at the end, without holding up deliveries for long.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: DeadLetterFile | None = None
        self._pending: deque[DeadLetter] = deque()
        self._writing = Lock()
        self._not_before = 0.0
        self._is_closed = False
        self._gathering = 0

    def open(self) -> None:
        """Open the file before the first letter, so that no graph starts whose letters could not be kept.

        Raises:
            RunError: GBE643, GBE645. A file that others hold at the moment is opened later.
        """
        try:
            self._opened()
        except RunError as error:
            if error.code != "GBE644":
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write what is kept meanwhile in few goes: a bus that is closed may leave a hundred thousand."""
        with self._writing:
            self._gathering += 1
        try:
            yield
        finally:
            with self._writing:
                self._gathering -= 1
                if self._pending and monotonic() >= self._not_before:
                    self._write()

    def __call__(self, letter: DeadLetter) -> None:
        """Keep a letter."""
        with self._writing:
            if self._is_closed:
                _log.error("a dead letter of %s came after the end and is not on disk", letter.event.topic)
                return
            self._pending.append(letter)
            if len(self._pending) > _PENDING:
                lost = self._pending.popleft()
                _log.error("a dead letter of %s is lost to the disk: too many wait for it", lost.event.topic)
            if monotonic() >= self._not_before and (not self._gathering or len(self._pending) == _PENDING):
                self._write()

    def replayed(self, letter: DeadLetter, died: Sequence[DeadLetter]) -> None:
        """Note what came of a letter that was delivered once more: it goes, or has failed again, and what has died is kept.

        What cannot be noted is logged; the letter stays on disk then, and what has died of it is in it.
        """
        with self._writing:
            for index, each in enumerate(self._pending):
                if each is letter:
                    del self._pending[index]
                    self._pending.extend(died)
                    return
            _, error = attempt(lambda: self._note(letter, died))
            if error is not None:
                _log.error("what came of a replay is not written to %s: %s", self._path, _tell(error))

    def _note(self, letter: DeadLetter, died: Sequence[DeadLetter]) -> None:
        file = self._opened()
        kept = file.find_by_event(letter)
        if kept is None:
            file.add(died)
            return
        file.begin_replay(kept.id)
        file.end_replay(kept, died)

    def close(self) -> None:
        """Try a last time to write what waits, and let go of the file."""
        with self._writing:
            self._is_closed = True
            if self._pending:
                self._write()
            if self._pending:
                _log.error("%s lost to the disk; the log above tells what they were", _count(self._pending))
            if self._file is not None:
                self._file.close()

    def _write(self) -> None:
        _, error = attempt(self._write_or_raise)
        if error is None:
            self._pending.clear()
            return
        self._not_before = monotonic() + _PAUSE_S
        _log.error("%s not written to %s: %s", _count(self._pending), self._path, _tell(error))

    def _write_or_raise(self) -> None:
        self._opened().add(self._pending)

    def _opened(self) -> DeadLetterFile:
        if self._file is None:
            self._file = DeadLetterFile(self._path, timeout_s=_PATIENCE_S)
        return self._file


def _tell(error: Exception) -> str:
    return error.sentence if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def _count(letters: deque[DeadLetter]) -> str:
    return "1 dead letter is" if len(letters) == 1 else f"{len(letters)} dead letters are"


def _row_of(letter: DeadLetter) -> tuple[Any, ...]:
    event = letter.event
    payload, error = attempt(lambda: _encode(event.payload))
    row = (
        event.topic,
        event.src,
        event.timestamp,
        event.hops,
        event.event_id,
        event.causation_id,
        event.correlation_id,
        _encode(event.trail),
        letter.subscription,
        letter.reason,
        letter.error,
        letter.place,
        letter.attempts,
        letter.first_timestamp,
        letter.timestamp,
        letter.traceback,
        None if error else payload,
    )
    return tuple(_storable(cell) if isinstance(cell, str) else cell for cell in row)


def _storable(text: str) -> str:
    """A text as UTF-8 can hold it: half of a character, which Python knows, is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _letter_of(row: Sequence[Any]) -> KeptLetter:
    number, replays, is_replaying, has_payload, topic, src, event_time, hops, *rest = row
    event_id, causation_id, correlation_id, trail, subscription, reason, error, place, *figures = rest
    attempts, first_time, last_time, traceback, payload = figures
    value, wrong = attempt(lambda: None if payload is None else _decode(payload))
    event = restore_event(
        topic,
        value,
        src,
        event_time,
        hops=hops,
        event_id=event_id,
        causation_id=causation_id,
        correlation_id=correlation_id,
        trail=[(heard, by) for heard, by in _decode(trail)],
    )
    letter = DeadLetter(
        event=event,
        subscription=subscription,
        reason=reason,
        error=error,
        timestamp=last_time,
        place=place,
        first_timestamp=first_time,
        attempts=attempts,
        traceback=traceback,
    )
    return KeptLetter(
        id=number,
        letter=letter,
        replays=replays,
        is_replaying=bool(is_replaying),
        has_payload=bool(has_payload and wrong is None),
    )


def _encode(value: Json) -> str:
    from json import dumps  # it takes every text and number that Python has, as they are

    return dumps(value, separators=(",", ":"))


def _decode(text: str) -> Json:
    from json import loads

    return loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Json:
    """NaN and the infinities: files have them from when they were taken for JSON."""
    raise ValueError(name)
