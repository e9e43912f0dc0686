"""Dead letters on disk: the file, the keeper that writes to it while a graph runs, and replays.

A dead letter is an event that a handler could not handle after all attempts. The file is `dead_letters.sqlite3` in the state
folder. A replay delivers the event again, to the subscription that failed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Lock
from time import monotonic
from typing import Any, Protocol

import msgspec

from graphbus_core import strict_json
from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.errors import RunError
from graphbus_core.hosting.database import Database
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event, once_more, restore_event
from graphbus_core.model.topics import matches
from graphbus_core.schema.json import Json

Note = Callable[[DeadLetter, tuple[DeadLetter, ...]], None]
"""Called with a replayed letter and the new dead letters of its event; these are empty if the event was handled."""

_MOST_WAITING = 1000
"""How many replayed letters may wait for retries at a time; then the next delivery waits for them."""


class _Graph(Protocol):
    """What a replay needs of a running graph."""

    bus: MessageBus

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until the event is done or, with `is_rest_enough`, only retries are left; False if it is not done then."""


class Replayer:
    """Replays dead letters one after the other, each with all events that follow from it; only retries may overlap.

    Args:
        graph: The graph that delivers them.
        note: Called with each result, in the order in which the deliveries end. By then the letter has been removed from the
            bus; new dead letters of the event are on the bus, but its keeper has not been called with them.
    """

    def __init__(self, graph: _Graph, note: Note) -> None:
        self._graph = graph
        self._note = note
        self._running: list[tuple[DeadLetter, Event, Receipt]] = []

    def deliver(self, letter: DeadLetter) -> None:
        """Deliver the event of a letter again, with the same ids and a new set of attempts.

        It goes to the subscription that failed; an event that never reached a handler goes to all its subscriptions. Returns
        when only retries are left, or, while `_MOST_WAITING` letters wait for retries, when the event is done.

        Raises:
            RunError: GBE649 for a letter whose handler is gone, GBE615 on a closed bus, GBE648 inside a handler.
        """
        subscription = find_subscription(self._graph.bus, letter)
        event = once_more(letter.event)
        receipt = self._graph.bus.hosting.deliver_once_more(event, subscription)
        self._running.append((letter, event, receipt))
        self._graph.wait_for(receipt, is_rest_enough=len(self._running) < _MOST_WAITING)
        self.note_finished()

    def wait(self) -> None:
        """Wait until all deliveries that have begun are done or the graph stops; call `note` for those that are done."""
        all(self._graph.wait_for(receipt) for _, _, receipt in list(self._running))  # `all` ends when the graph stops
        self.note_finished()

    def note_finished(self) -> None:
        """Call `note` for each finished delivery, and remove its letter from the bus.

        If the bus was closed during the delivery, the letter stays, and its new dead letters are removed instead.
        """
        bus, running, self._running = self._graph.bus, self._running, []
        for letter, event, receipt in running:
            if not receipt.is_done:
                self._running.append((letter, event, receipt))
                continue
            new_letters = bus.hosting.letters.release(event)
            is_stopped = any(each.reason == "closed" for each in new_letters)
            for each in new_letters if is_stopped else (letter,):
                bus.hosting.letters.forget(each)
            if not is_stopped:
                self._note(letter, new_letters)


def replay_all(graph: _Graph, letters: Iterable[DeadLetter] | None) -> tuple[DeadLetter, ...]:
    """Replay letters and wait until all are done; deliver nothing if the handler of one of them is gone.

    Args:
        letters: The letters; None: those that the bus remembers.

    Returns:
        The new dead letters of the events that failed again.

    Raises:
        RunError: What `Replayer.deliver` raises, and GBE615 when the bus is closed before all are done.
    """
    bus, results = graph.bus, dict[int, tuple[DeadLetter, ...]]()

    def note(letter: DeadLetter, new_letters: tuple[DeadLetter, ...]) -> None:
        results[id(letter)] = new_letters
        if isinstance(bus.hosting.letters.keeper, DeadLetterKeeper):
            bus.hosting.letters.keeper.write_replay_result(letter, new_letters)

    selected = tuple(bus.dead_letters() if letters is None else letters)
    for letter in selected:
        find_subscription(bus, letter)
    replayer = Replayer(graph, note)
    for letter in selected:
        replayer.deliver(letter)
    replayer.wait()
    unfinished = [letter for letter in selected if id(letter) not in results]
    if unfinished:
        raise RunError("GBE615", topic=unfinished[0].event.topic)
    return tuple(dead for letter in selected for dead in results[id(letter)])


def find_subscription(bus: MessageBus, letter: DeadLetter) -> LiveSubscription | None:
    """Return the subscription that failed; None when the event never reached one.

    Raises:
        RunError: GBE649 when the subscription does not exist any more.
    """
    topic = letter.event.topic
    found = (each for each in bus.subscriptions if each.name == letter.subscription and matches(each.topic, topic))
    if not letter.subscription:
        return None
    if (subscription := next(found, None)) is None:
        raise RunError("GBE649", subscription=letter.subscription, topic=topic)
    return subscription


FILE = "dead_letters.sqlite3"
MOST_LETTERS = 10_000

_log = Log("graphbus.dead_letters")

_PATIENCE_S = 0.25
"""How long a delivery waits while another process writes to the file."""
_PAUSE_S = 1.0
"""Seconds without another attempt after the file could not be written."""
_MOST_PENDING = 1000
"""How many letters that could not be written are held in memory; the oldest are dropped beyond it."""

_EVENT_FIELDS = ("topic", "src", "hops", "event_id", "causation_id", "correlation_id")
_EVENT_COLUMNS = {name: name for name in _EVENT_FIELDS} | {"event_time": "timestamp"}
"""Column -> the field of an event that is kept in it."""
_LETTER_FIELDS = ("subscription", "reason", "error", "place", "attempts", "traceback")
_LETTER_COLUMNS = {name: name for name in _LETTER_FIELDS} | {"first_time": "first_timestamp", "last_time": "timestamp"}
"""Column -> the field of a dead letter."""
_WRITTEN_COLUMNS = (*_EVENT_COLUMNS, *_LETTER_COLUMNS, "trail", "payload")
_READ_COLUMNS = (*_WRITTEN_COLUMNS, "id", "replays", "has_payload")
_TABLES = (  # `is_replaying` was used by earlier versions; it stays because a change of the tables needs a new version
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
_INSERT = f"INSERT INTO letters ({', '.join(_WRITTEN_COLUMNS)}) VALUES (:{', :'.join(_WRITTEN_COLUMNS)})"  # noqa: S608 - our own names
_SELECT = f"SELECT {', '.join(_READ_COLUMNS[:-1])}, payload IS NOT NULL FROM letters"  # noqa: S608 - our own names
_UPDATE_FAILED = (
    "UPDATE letters SET error = :error, place = :place, traceback = :traceback, reason = :reason, last_time = :last_time,"
    " attempts = attempts + :attempts WHERE id = :id"
)
_FIND_NEWEST_TO_DROP = "SELECT id FROM letters ORDER BY id DESC LIMIT 1 OFFSET ?"


class StoredLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in the file.

    Attributes:
        id: Its number in the file; never reused.
        letter: The letter itself.
        replays: How many replays of it have begun.
        has_payload: False when the payload was not JSON and could not be stored.
    """

    id: int
    letter: DeadLetter
    replays: int
    has_payload: bool


class DeadLetterFile:
    """The open file of dead letters. May be used from any thread.

    Args:
        path: The file; created when it is missing.
        kept: How many letters it holds at most; beyond that the oldest are dropped and counted.
        timeout_s: How long to wait while another process writes to it.

    Raises:
        RunError: GBE643-645 when the file cannot be used; every method may raise these, too.
    """

    def __init__(self, path: str, *, kept: int = MOST_LETTERS, timeout_s: float = 5.0) -> None:
        self.path = path
        self._kept = kept
        self._database = Database(path, "The file of dead letters", 0x4742444C, _TABLES, timeout_s=timeout_s)

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Add letters in one transaction, and drop the oldest beyond the limit."""
        rows = [_row_of(letter) for letter in letters]
        with self._database.write_transaction() as connection:
            connection.executemany(_INSERT, rows)
            self._drop_the_oldest(connection)

    def letters(self, *, topic: str = "", limit: int = 0) -> list[StoredLetter]:
        """Return the letters, oldest first.

        Args:
            topic: Only letters of this topic; empty: of all topics.
            limit: Only so many of the newest; 0: all.
        """
        rows = self._query(f"{_SELECT} WHERE ? IN ('', topic) ORDER BY id DESC LIMIT ?", topic, limit or -1)
        return [_letter_of(row) for row in reversed(rows)]

    def numbers(self, *, topic: str = "") -> list[int]:
        """Return the numbers of all letters, or of those of a topic, oldest first."""
        return [number for (number,) in self._query("SELECT id FROM letters WHERE ? IN ('', topic) ORDER BY id", topic)]

    @property
    def dropped(self) -> int:
        """How many letters were dropped because the file was full."""
        return int(self._query("SELECT number FROM dropped")[0][0])

    def find(self, number: int) -> StoredLetter | None:
        """Return the letter with this number, or None."""
        return next(map(_letter_of, self._query(f"{_SELECT} WHERE id = ?", number)), None)

    def find_by_event(self, letter: DeadLetter) -> StoredLetter | None:
        """Return the newest stored letter of the same event and subscription, or None."""
        query = f"{_SELECT} WHERE event_id = ? AND subscription = ? ORDER BY id DESC LIMIT 1"
        return next(map(_letter_of, self._query(query, letter.event.event_id, letter.subscription)), None)

    def _query(self, query: str, *values: object) -> list[Sequence[Any]]:
        """Run a SELECT statement with these values, and return all rows."""
        with self._database.connection() as connection:
            found: list[Sequence[Any]] = connection.execute(query, values).fetchall()
            return found

    def remove(self, numbers: Iterable[int]) -> int:
        """Delete the letters with these numbers, and return how many existed."""
        with self._database.write_transaction() as connection:
            before = connection.total_changes
            connection.executemany("DELETE FROM letters WHERE id = ?", [(number,) for number in numbers])
            return int(connection.total_changes - before)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Within the block, hold the lock of the one process that may replay; a crash of the process releases it.

        Raises:
            RunError: GBE644 when another process holds it.
        """
        lock = Database(f"{self.path}.replay", "The replay of dead letters", 0x47425250, (), timeout_s=0)
        with closing(lock), lock.write_transaction():
            yield

    def begin_replay(self, number: int) -> None:
        """Count a replay; call it before the letter is delivered."""
        with self._database.write_transaction() as connection:
            connection.execute("UPDATE letters SET replays = replays + 1 WHERE id = ?", (number,))

    def end_replay(self, kept: StoredLetter, failed: Sequence[DeadLetter]) -> None:
        """Write the result of a replay in one transaction: delete a letter that was handled, update one that failed again.

        Args:
            kept: The letter that was replayed.
            failed: The new dead letters of its event; empty if it was handled. If the letter has no subscription, they replace
                it; otherwise it gets the error of the last one, and their attempts are added.
        """
        with self._database.write_transaction() as connection:
            if not kept.letter.subscription or not failed:
                connection.executemany(_INSERT, [_row_of(letter) for letter in failed])
                connection.execute("DELETE FROM letters WHERE id = ?", (kept.id,))
                self._drop_the_oldest(connection)
                return
            attempts = sum(letter.attempts for letter in failed)
            connection.execute(_UPDATE_FAILED, {**_row_of(failed[-1]), "attempts": attempts, "id": kept.id})

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _drop_the_oldest(self, connection: Any) -> None:
        """Delete the oldest letters beyond the limit, and add their number to `dropped`."""
        last = connection.execute(_FIND_NEWEST_TO_DROP, (self._kept,)).fetchone()
        if last is not None:
            dropped = connection.execute("DELETE FROM letters WHERE id <= ?", last).rowcount
            connection.execute("UPDATE dropped SET number = number + ?", (dropped,))


class DeadLetterKeeper:
    """Writes the dead letters of a running graph to their file; the bus calls it with each one. Only `open` raises.

    If the file cannot be written, that is logged, and the letters wait in memory. They are written with a later letter or in
    `close`. A delivery waits for the file for at most a quarter of a second.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: DeadLetterFile | None = None
        self._pending: deque[DeadLetter] = deque()
        self._writing = Lock()
        self._not_before = 0.0
        self._is_closed = False
        self._open_batches = 0

    def open(self) -> None:
        """Open the file at the start of a graph, so that the graph does not start if the file is unusable.

        Raises:
            RunError: GBE643, GBE645. A file that another process holds at the moment is opened later.
        """
        try:
            self._open_file()
        except RunError as error:
            if error.code != "GBE644":
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Within the block, collect letters, and write them in few transactions: closing a bus may make 100,000 letters."""
        with self._writing:
            self._open_batches += 1
        try:
            yield
        finally:
            with self._writing:
                self._open_batches -= 1
                if self._pending and monotonic() >= self._not_before:
                    self._write_pending()

    def __call__(self, letter: DeadLetter) -> None:
        """Write a letter, or hold it in memory until the file can be written.

        A letter that comes after `close` is lost; of more than `_MOST_PENDING` held letters, the oldest is. Both are logged.
        """
        with self._writing:
            if self._is_closed:
                _log.error("a dead letter of %s was not saved: it came after the graph had stopped", letter.event.topic)
                return
            self._pending.append(letter)
            if len(self._pending) > _MOST_PENDING:
                lost = self._pending.popleft()
                _log.error("a dead letter of %s was not saved: too many wait to be written", lost.event.topic)
            if monotonic() >= self._not_before and (not self._open_batches or len(self._pending) == _MOST_PENDING):
                self._write_pending()

    def write_replay_result(self, letter: DeadLetter, new_letters: Sequence[DeadLetter]) -> None:
        """Write the result of a replay: remove or update the letter, or replace it by `new_letters`, see `end_replay`.

        If the file cannot be written, that is logged, and the letter stays in the file.
        """
        with self._writing:
            for index, each in enumerate(self._pending):
                if each is letter:  # it is not in the file yet
                    del self._pending[index]
                    self._pending.extend(new_letters)
                    return
            _, error = attempt(lambda: self._update_file(letter, new_letters))
            if error is not None:
                _log.error("the result of a replay was not written to %s: %s", self._path, _error_text(error))

    def _update_file(self, letter: DeadLetter, new_letters: Sequence[DeadLetter]) -> None:
        """Write the result of a replay to the file. If the letter is not in the file any more, only add the new ones."""
        file = self._open_file()
        kept = file.find_by_event(letter)
        if kept is None:
            file.add(new_letters)
            return
        file.begin_replay(kept.id)
        file.end_replay(kept, new_letters)

    def close(self) -> None:
        """Make a last attempt to write the letters that wait, and close the file."""
        with self._writing:
            self._is_closed = True
            if self._pending:
                self._write_pending()
            if self._pending:
                _log.error("%s not saved; the log above names them", _describe_count(self._pending))
            if self._file is not None:
                self._file.close()

    def _write_pending(self) -> None:
        """Write the pending letters. After an error, which is logged, keep them, and allow no attempt for `_PAUSE_S`."""
        _, error = attempt(lambda: self._open_file().add(self._pending))
        if error is None:
            self._pending.clear()
            return
        self._not_before = monotonic() + _PAUSE_S
        _log.error("%s not saved to %s yet: %s", _describe_count(self._pending), self._path, _error_text(error))

    def _open_file(self) -> DeadLetterFile:
        """Return the file, which the first call opens; raise what `DeadLetterFile` raises."""
        if self._file is None:
            self._file = DeadLetterFile(self._path, timeout_s=_PATIENCE_S)
        return self._file


def _error_text(error: Exception) -> str:
    return error.sentence if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def _describe_count(letters: deque[DeadLetter]) -> str:
    return "1 dead letter is" if len(letters) == 1 else f"{len(letters)} dead letters are"


def _row_of(letter: DeadLetter) -> dict[str, Any]:
    """Return column -> value of the row for a letter; the payload is None if it cannot be written as JSON."""
    event = letter.event
    payload, error = attempt(lambda: _encode_json(event.payload))
    row = {column: getattr(event, field) for column, field in _EVENT_COLUMNS.items()}
    row |= {column: getattr(letter, field) for column, field in _LETTER_COLUMNS.items()}
    row |= {"trail": _encode_json(event.trail), "payload": None if error else payload}
    return {column: _escape_surrogates(cell) if isinstance(cell, str) else cell for column, cell in row.items()}


def _escape_surrogates(text: str) -> str:
    """Return the text with lone surrogates escaped, which Python strings may hold but UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _letter_of(cells: Sequence[Any]) -> StoredLetter:
    """Return the letter in a row of `_SELECT`; `has_payload` is False if the payload is missing or not JSON."""
    row = dict(zip(_READ_COLUMNS, cells, strict=True))
    payload = row["payload"]
    value, payload_error = attempt(lambda: None if payload is None else strict_json.loads(payload, any_text=True))
    trail = [(topic, handler) for topic, handler in json.loads(row["trail"])]
    of_event = {field: row[column] for column, field in _EVENT_COLUMNS.items()}
    of_letter = {field: row[column] for column, field in _LETTER_COLUMNS.items()}
    return StoredLetter(
        id=row["id"],
        letter=DeadLetter(event=restore_event(payload=value, trail=trail, **of_event), **of_letter),
        replays=row["replays"],
        has_payload=bool(row["has_payload"] and payload_error is None),
    )


def _encode_json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))  # unlike msgspec, it accepts lone surrogates and NaN
