"""The states of the agents of a graph, in one SQLite file that is opened when an agent first uses its state.

    self.state["stock"] = {...}       one commit
    with self.state.transaction():    collects changes; commits them at the end if no key that was read has changed since

Theory of operation. Transactions are optimistic. Each change of the file takes the next number of a counter as the version of its
keys. A transaction records the version of each key that it reads, and the set of keys if it lists them; at its end, one SQL
transaction compares these records with the file and then writes, or refuses with GBE646. No lock is held while code of an agent
runs, so a transaction may last over an `await`, and other processes, such as `graphbus state`, may use the file at the same time.
Operations that read and write (`pop`, `setdefault`, `clear`) are transactions that are repeated until there was no conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from graphbus_core.errors import Place, RunError
from graphbus_core.errors.system import MOVE_AWAY
from graphbus_core.model.state import AgentState
from graphbus_core.schema.json import Json, freeze
from graphbus_core.schema.values import clip_text, format_value

FILE = "state.sqlite3"

WHAT = "The state of the agents"
APPLICATION_ID = 0x47425354
_FIND = "SELECT value, version FROM state WHERE agent = ? AND key = ?"
_KEYS = "SELECT key FROM state WHERE agent = ? ORDER BY key"
_ALL = "SELECT agent, key, value, version FROM state ORDER BY agent, key"
_OF_AGENT = "SELECT agent, key, value, version FROM state WHERE agent = ? ORDER BY key"
_VERSION = "SELECT version FROM counter"
_NEXT_VERSION = "UPDATE counter SET version = max(version, ?) + 1 RETURNING version"
_SET = "REPLACE INTO state (agent, key, value, version) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM state WHERE agent = ? AND key = ?"
TABLES = (
    "CREATE TABLE state (agent TEXT, key TEXT, value TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (agent, key))"
    " WITHOUT ROWID",
    "CREATE TABLE counter (version INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0)",
)

_NOTHING: Any = object()

T = TypeVar("T")
Texts = Mapping[str, str | None]
"""Key -> its value as JSON text, or None for a key to delete."""


class StoredValue(NamedTuple):
    """A value in the file, as JSON text, and its version."""

    text: str
    version: int

    @property
    def value(self) -> Json:
        """The decoded value."""
        return _decode(self.text)


class StateSnapshot(NamedTuple):
    """All states at one moment: the highest version in use, and agent -> key -> value, both sorted."""

    version: int
    agents: dict[str, dict[str, StoredValue]]


class StateChange(NamedTuple):
    """A change of one key; `before` and `after` are JSON texts, or None while the key does not exist."""

    agent: str
    key: str
    before: str | None
    after: str | None


class StateWrite(Protocol):
    """A write to the state of one agent that depends on what was read there; see `States.write` for the fields."""

    @property
    def agent(self) -> str:
        """The agent whose keys change."""

    @property
    def changes(self) -> Texts:
        """The keys to set and delete."""

    @property
    def expected(self) -> Mapping[str, int]:
        """Key -> the version that it must have."""

    @property
    def expected_keys(self) -> Iterable[str] | None:
        """The exact set of keys that must exist; None: not checked."""


class _PlannedWrite(NamedTuple):
    agent: str
    changes: Texts
    expected: Mapping[str, int] = MappingProxyType({})
    expected_keys: Iterable[str] | None = None


class States:
    """The states of all agents of one graph. Thread-safe.

    Every method except `of` opens the file, and raises RunError GBE643-645 when it cannot be used, GBE647 after `close`.

    Args:
        path: The file, created when it is missing; empty: the states live in memory until the graph stops.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._database: Any = None
        self._by_agent: dict[str, _StoredState] = {}
        self._opening = Lock()
        self._is_closed = False

    def of(self, agent: str) -> AgentState:
        """Return the state of an agent, without opening the file."""
        state = self._by_agent.get(agent)
        if state is None:
            state = self._by_agent.setdefault(agent, _StoredState(self, agent))
        return state

    def close(self) -> None:
        """Close the file; every later use of a state raises GBE647."""
        with self._opening:
            self._is_closed = True
            if self._database is not None:
                self._database.close()

    def find(self, agent: str, key: str) -> tuple[str | None, int]:
        """Return a value as JSON text and its version; (None, 0) for a key that does not exist."""
        with self.open(agent).connection() as connection:
            row = connection.execute(_FIND, (agent, key)).fetchone()
        return (None, 0) if row is None else row

    def keys(self, agent: str) -> list[str]:
        """Return the sorted keys of an agent."""
        with self.open(agent).connection() as connection:
            return [key for (key,) in connection.execute(_KEYS, (agent,))]

    def write(
        self,
        agent: str,
        changes: Texts,
        expected: Mapping[str, int] = MappingProxyType({}),
        expected_keys: Iterable[str] | None = None,
    ) -> str | None:
        """Write changes of one agent in one SQL transaction, if the file is as expected.

        Args:
            agent: The agent whose keys change.
            changes: The keys to set and delete.
            expected: Key -> the version that it must have; 0 for a key that must not exist.
            expected_keys: The exact set of keys that must exist; None: not checked.

        Returns:
            None when all is written. Otherwise nothing is written, and this is a key that is not as expected.
        """
        return self.write_together((_PlannedWrite(agent, changes, expected, expected_keys),))

    def write_together(self, writes: Sequence[StateWrite]) -> str | None:
        """Make several writes in one SQL transaction, if the file is as all of them expect.

        Returns:
            None when all is written. Otherwise nothing is written, and this is a key that is not as expected.
        """
        with self.open(writes[0].agent if writes else "A command").write_transaction() as connection:
            return write_states(connection, writes)

    def snapshot(self, agents: Collection[str] | None = None) -> StateSnapshot:
        """Return the states of these agents at one moment; None: of all agents that have one. An agent without one is empty."""
        with self.open().read_transaction() as connection:
            return self._read_states(connection, agents)

    def change(
        self,
        wanted: Mapping[str, Texts] | None,
        keep: Callable[[StateSnapshot], None],
        *,
        is_merge: bool,
        after_version: int = 0,
    ) -> list[StateChange]:
        """Make the changes that `plan_changes` finds in one transaction, and return them; `graphbus state` uses this.

        Args:
            wanted: See `plan_changes`; None: delete all keys of all agents.
            keep: Called with the present states before they are changed, to save a backup; an exception of it prevents the
                changes. It is not called if there are none.
            is_merge: See `plan_changes`.
            after_version: The changes get a version that is higher than this one and than all versions in the file.
        """
        with self.open().write_transaction() as connection:
            before = self._read_states(connection, wanted)
            if wanted is None:
                wanted = {agent: {} for agent in before.agents}
            changes = plan_changes(before, wanted, is_merge=is_merge)
            if changes:
                keep(before)
                _write_changes(connection, ((each.agent, each.key, each.after) for each in changes), after_version)
        return changes

    def open(self, agent: str = "A command") -> Any:
        """Return the `Database`, which the first call opens; raise GBE643-645 or, after `close`, GBE647, which names `agent`."""
        with self._opening:
            if self._is_closed:
                raise RunError("GBE647", agent=agent)
            if self._database is None:
                from graphbus_core.hosting.database import MEMORY, Database  # sqlite3 takes a while to import

                self._database = Database(self._path or MEMORY, WHAT, APPLICATION_ID, TABLES)
            return self._database

    def _read_states(self, connection: Any, agents: Collection[str] | None) -> StateSnapshot:
        """Return the states of these agents (None: of all) within a transaction; raise GBE643 for a value that is not JSON."""
        (version,) = connection.execute(_VERSION).fetchone()
        found: dict[str, dict[str, StoredValue]] = {agent: {} for agent in sorted(agents or ())}
        queries = [(_ALL, ())] if agents is None else [(_OF_AGENT, (agent,)) for agent in found]
        for query, values in queries:
            for agent, key, text, key_version in connection.execute(query, values):
                self._check_value(agent, key, text)
                found.setdefault(agent, {})[key] = StoredValue(text, key_version)
        return StateSnapshot(version, found)

    def _check_value(self, agent: str, key: str, text: object) -> None:
        """Raise GBE643 for a value that is not JSON."""
        from graphbus_core.strict_json import loads

        try:
            loads(str(text), any_text=True)
        except ValueError:
            reason = f"it is damaged (the value of {clip_text(agent)} {clip_text(key)} is not JSON)"
            raise RunError("GBE643", where=Place(self._path), what=WHAT, reason=reason, advice=MOVE_AWAY) from None


def plan_changes(before: StateSnapshot, wanted: Mapping[str, Texts], *, is_merge: bool) -> list[StateChange]:
    """Return the changes that turn the present states into the wanted ones, in the order of `wanted`.

    Args:
        before: The present states.
        wanted: Agent -> its keys and values; agents that are not named do not change.
        is_merge: Keys that `wanted` does not name stay; otherwise they are deleted.
    """
    changes = []
    for agent, keys in wanted.items():
        old = {key: kept.text for key, kept in before.agents.get(agent, {}).items()}
        names = sorted(keys if is_merge else {*old, *keys})
        changes += [StateChange(agent, key, old.get(key), keys.get(key)) for key in names]
    return [change for change in changes if change.before != change.after]


def write_states(connection: Any, writes: Iterable[StateWrite]) -> str | None:
    """Make writes within an SQL transaction of the caller; return a key that is not as expected, and write nothing then."""
    writes = tuple(writes)
    for each in writes:
        conflict = _find_conflict(connection, each)
        if conflict is not None:
            return conflict
    for each in writes:
        if each.changes:
            _write_changes(connection, ((each.agent, key, text) for key, text in each.changes.items()))
    return None


def _find_conflict(connection: Any, write: StateWrite) -> str | None:
    """Return a key of the agent that is not as the write expects; None if there is none."""
    for key, version in write.expected.items():
        row = connection.execute(_FIND, (write.agent, key)).fetchone()
        if (0 if row is None else row[1]) != version:
            return key
    if write.expected_keys is None:
        return None
    keys = {key for (key,) in connection.execute(_KEYS, (write.agent,))}
    return min(keys.symmetric_difference(write.expected_keys), default=None)


def _write_changes(connection: Any, changes: Iterable[tuple[str, str, str | None]], after_version: int = 0) -> None:
    """Set keys (agent, key, JSON text), or delete them (None), all with the next version, which is above `after_version`."""
    (version,) = connection.execute(_NEXT_VERSION, (after_version,)).fetchone()
    for agent, key, text in changes:
        if text is None:
            connection.execute(_DELETE, (agent, key))
        else:
            connection.execute(_SET, (agent, key, text, version))


class _StoredState(AgentState):
    """The state of one agent: a mutable mapping over the file; see `AgentState`."""

    def __init__(self, states: States, agent: str) -> None:
        self._states = states
        self._agent = agent

    def __repr__(self) -> str:
        return f"<state of {self._agent}>"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Compare two states by identity, and a state with any other mapping by content."""
        return self is other if isinstance(other, _StoredState) else dict(self) == other

    def __getitem__(self, key: str) -> Json:
        text, _ = self._find_text(key)
        if text is None:
            raise KeyError(key)
        return _decode(text)

    def __setitem__(self, key: str, value: Json) -> None:
        self._set_text(key, encode_value(self._agent, key, value))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._set_text(key, None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find_text(key)[0] is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the sorted keys; a transaction notes that they were listed, and includes its own changes."""
        transaction = self._current_transaction()
        if transaction is None:
            return iter(self._states.keys(self._agent))
        if transaction.keys is None:
            transaction.keys = frozenset(self._states.keys(self._agent))
        keys = transaction.keys.union(transaction.changes)
        # A key that is not in `changes` gets "" here, a key that the transaction deletes None.
        return iter(sorted(key for key in keys if transaction.changes.get(key, "") is not None))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def update(self, other: Any = (), /, **named: Json) -> None:
        """Set several keys in one transaction."""
        with self.transaction():
            super().update(other, **named)

    def clear(self) -> None:
        """Delete all keys in one transaction."""

        def delete_all() -> None:
            for key in self:
                self._set_text(key, None)

        self._repeat_until_committed(delete_all)

    def pop(self, key: str, /, default: Any = _NOTHING) -> Any:
        """Remove a key and return its value; of several concurrent calls, only one gets the value.

        If the key does not exist, return the default; without a default, raise KeyError.
        """

        def take() -> Any:
            value = self.get(key, _NOTHING)
            if value is not _NOTHING:
                self._set_text(key, None)
            return value

        value = self._repeat_until_committed(take)
        if value is _NOTHING and default is _NOTHING:
            raise KeyError(key)
        return default if value is _NOTHING else value

    def popitem(self) -> tuple[str, Json]:
        """Remove the first key and return it with its value; of several concurrent calls, only one gets it.

        Raises:
            KeyError: The state is empty.
        """
        for key in self:
            value = self.pop(key, _NOTHING)
            if value is not _NOTHING:
                return key, value
        raise KeyError("popitem(): the state is empty")

    def setdefault(self, key: str, default: Json = None, /) -> Json:
        """Return the value of a key, and set it to the default first if it is missing; concurrent calls agree on one value."""

        def find_or_set() -> Json:
            if key not in self:
                self[key] = default
            return self[key]

        return self._repeat_until_committed(find_or_set)

    def version(self, key: str) -> int:
        """Return the version of a key, 0 if it does not exist. Changes of the current transaction do not alter it."""
        return self._find_text(key)[1]

    def read(self, key: str) -> tuple[Json, int]:
        """Return the value of a key and its version, read at the same moment; (None, 0) for a key that does not exist."""
        text, version = self._find_text(key)
        return (None if text is None else _decode(text)), version

    def update_if(self, key: str, value: Json, version: int) -> bool:
        """Set the value if the key has this version; 0: if the key does not exist. Return True if the value was set."""
        text = encode_value(self._agent, key, value)
        if self._current_transaction() is None:
            return self._states.write(self._agent, {key: text}, {key: version}) is None
        if self._find_text(key)[1] != version:
            return False
        self._set_text(key, text)
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Collect the changes in the block and write them together at its end.

        An exception in the block discards them. A transaction inside of another one is a part of it.

        Raises:
            RunError: GBE646 when a key that was read has changed in the meantime.
        """
        current = self._current_transaction()
        if current is not None:
            with current.discarding_on_error():
                yield
            return
        transaction, before = _Transaction(), _transactions.get()
        _transactions.set({**before, self: transaction})
        try:
            yield
        finally:
            transaction.is_over = True
            _transactions.set(before)
        if not transaction.changes:
            return
        expected = {key: version for key, (_, version) in transaction.read.items()}
        conflict = self._states.write(self._agent, transaction.changes, expected, transaction.keys)
        if conflict is not None:
            raise RunError("GBE646", agent=self._agent, key=clip_text(conflict))

    def _repeat_until_committed(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction, and repeat it as long as there is a conflict; return its result."""
        while True:
            try:
                with self.transaction():
                    return work()
            except RunError as refused:
                if refused.code != "GBE646":
                    raise

    def _find_text(self, key: str) -> tuple[str | None, int]:
        """Return the JSON text and version of a key; (None, 0) if it does not exist.

        In a transaction, the text is that of its own change if there is one, and the version is that of the first read.
        """
        check_key(self._agent, key)
        transaction = self._current_transaction()
        if transaction is None:
            return self._states.find(self._agent, key)
        if key not in transaction.read:
            transaction.read[key] = self._states.find(self._agent, key)
        text, version = transaction.read[key]
        return transaction.changes.get(key, text), version

    def _set_text(self, key: str, text: str | None) -> None:
        """Set (JSON text) or delete (None) a key, within the current transaction if there is one."""
        transaction = self._current_transaction()
        if transaction is None:
            self._states.write(self._agent, {key: text})
        else:
            transaction.changes[key] = text

    def _current_transaction(self) -> _Transaction | None:
        """Return the open transaction of the running code on this state; None if there is none."""
        transaction = _transactions.get().get(self)
        if transaction is not None and not transaction.is_over:
            return transaction
        capture = _capture.get()
        return None if capture is None or capture.is_over else capture.transaction_on(self)


class _Transaction:
    """The reads and pending changes of a transaction.

    Attributes:
        changes: Key -> JSON text to write, or None for a key to delete.
        read: Key -> the JSON text and version that were read.
        keys: All keys in the file when they were listed; None if they were not.
        is_over: True after the end. A task that was started in the transaction inherits the context variable, and may run on.
    """

    __slots__ = ("changes", "is_over", "keys", "read")

    def __init__(self) -> None:
        self.changes: dict[str, str | None] = {}
        self.read: dict[str, tuple[str | None, int]] = {}
        self.keys: frozenset[str] | None = None
        self.is_over = False

    @contextmanager
    def discarding_on_error(self) -> Iterator[None]:
        """Discard the changes that are made in the block if it ends with an exception."""
        before, is_complete = dict(self.changes), False
        try:
            yield
            is_complete = True
        finally:
            if not is_complete:
                self.changes = before


class StateCapture:
    """Collects all that the running code changes in states, so that it can be committed together with something else."""

    def __init__(self) -> None:
        self.is_over = False
        self._transactions: dict[_StoredState, _Transaction] = {}

    def transaction_on(self, state: _StoredState) -> _Transaction:
        """Return the transaction that collects the changes of one state; the first call makes it."""
        return self._transactions.get(state) or self._transactions.setdefault(state, _Transaction())

    def changes(self) -> list[CapturedChange]:
        """Return what was changed, with what was read there; states that were only read are left out."""
        return [
            CapturedChange(
                state._agent, each.changes, {key: version for key, (_, version) in each.read.items()}, each.keys
            )
            for state, each in self._transactions.items()
            if each.changes
        ]


class CapturedChange(NamedTuple):
    """What `StateCapture` has collected for one agent; the fields are the arguments of `States.write`."""

    agent: str
    changes: Texts
    expected: Mapping[str, int]
    expected_keys: frozenset[str] | None


@contextmanager
def capture_changes() -> Iterator[StateCapture]:
    """Yield an object that collects the changes of states in the block, and reads back there; none of them is written."""
    capture = StateCapture()
    token = _capture.set(capture)
    try:
        yield capture
    finally:
        capture.is_over = True
        _capture.reset(token)


_capture: ContextVar[StateCapture | None] = ContextVar("graphbus_state_capture", default=None)

_transactions: ContextVar[Mapping[_StoredState, _Transaction]] = ContextVar(
    "graphbus_transactions", default=MappingProxyType({})
)
"""State -> the transaction of the running code; one that `is_over` does not count."""


def encode_value(agent: str, key: str, value: Json) -> str:
    """Return a value as JSON text.

    Raises:
        RunError: GBE641 for a key or value that is not JSON, GBE642 for a value that is too large.
    """
    from json import dumps

    check_key(agent, key)
    try:
        frozen = freeze({key: value}, is_kept=True)
    except RunError as refusal:
        if refusal.code == "GBE613":
            raise RunError("GBE642", agent=agent, key=clip_text(key), limit=refusal.data["limit"]) from None
        path, found = refusal.data.get("path", clip_text(key)), refusal.data.get("found", "not JSON")
        raise RunError("GBE641", agent=agent, path=path, found=found) from None
    return dumps(frozen[key], allow_nan=False, separators=(",", ":"))


def check_key(agent: str, key: object) -> None:
    """Check a key of a state.

    Raises:
        RunError: GBE641 for a key that is not a string, or that contains a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(key, str):
        raise RunError("GBE641", agent=agent, path=f"the key {format_value(key)}", found=f"a {type(key).__name__}")
    if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
        raise RunError("GBE641", agent=agent, path=f"the key {format_value(key)}", found="half of a surrogate pair")


def _decode(text: str) -> Json:
    """Return the value of a JSON text."""
    from json import loads

    return loads(text)
