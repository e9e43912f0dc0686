"""The states of the agents of a graph: one SQLite file, opened when the first agent uses its state.

    self.state["stock"] = {...}       one commit
    with self.state.transaction():    what is set is collected, and committed at the end if nobody has changed what was read

No lock is held while an agent's code runs, so that a transaction may go on over an `await` and holds nobody up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import MappingProxyType
from typing import Any

from graphbus_core.errors import RunError
from graphbus_core.model.state import State
from graphbus_core.schema.json import Json, freeze
from graphbus_core.schema.values import clipped, shown

FILE = "state.sqlite3"

_FIND = "SELECT value, version FROM state WHERE agent = ? AND key = ?"
_KEYS = "SELECT key FROM state WHERE agent = ? ORDER BY key"
_COUNT = "SELECT count(*) FROM state WHERE agent = ?"
_NEXT_VERSION = "UPDATE counter SET version = version + 1 RETURNING version"
_SET = "REPLACE INTO state (agent, key, value, version) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM state WHERE agent = ? AND key = ?"
_CLEAR = "DELETE FROM state WHERE agent = ?"
_TABLES = (
    "CREATE TABLE state (agent TEXT, key TEXT, value TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (agent, key))"
    " WITHOUT ROWID",
    "CREATE TABLE counter (version INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0)",
)

_NOTHING: Any = object()

Texts = Mapping[str, str | None]
"""Key -> its value as JSON, or None for one that is deleted."""


class States:
    """The states of the agents of one graph, by agent. Safe from any thread.

    Args:
        path: The file; empty: in memory, until the graph stops.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._database: Any = None
        self._by_agent: dict[str, AgentState] = {}
        self._opening = Lock()
        self._is_closed = False

    def of(self, agent: str) -> State:
        """Give the state of an agent; nothing is opened yet."""
        state = self._by_agent.get(agent)
        if state is None:
            state = self._by_agent.setdefault(agent, AgentState(self, agent))
        return state

    def close(self) -> None:
        """Let go of the file; whoever uses a state afterwards is refused."""
        with self._opening:
            self._is_closed = True
            if self._database is not None:
                self._database.close()

    def find(self, agent: str, key: str) -> tuple[str | None, int]:
        """Give a value as JSON and its version; None and 0 for none."""
        with self._open(agent).use() as connection:
            row = connection.execute(_FIND, (agent, key)).fetchone()
        return (None, 0) if row is None else row

    def keys(self, agent: str) -> list[str]:
        """Give the keys in their order."""
        with self._open(agent).use() as connection:
            return [key for (key,) in connection.execute(_KEYS, (agent,))]

    def count(self, agent: str) -> int:
        """Count the keys."""
        with self._open(agent).use() as connection:
            (number,) = connection.execute(_COUNT, (agent,)).fetchone()
        return int(number)

    def write(
        self,
        agent: str,
        changes: Texts,
        expected: Mapping[str, int] = MappingProxyType({}),
        expected_keys: Iterable[str] | None = None,
    ) -> str | None:
        """Make all changes or none.

        Args:
            expected: Key -> the version that it must have.
            expected_keys: The keys that there must be, and no others; None: whichever there are.

        Returns:
            The first key that is not as expected; None when all is written.
        """
        with self._open(agent).change() as connection:
            for key, version in expected.items():
                row = connection.execute(_FIND, (agent, key)).fetchone()
                if (0 if row is None else row[1]) != version:
                    return key
            if expected_keys is not None:
                others = {key for (key,) in connection.execute(_KEYS, (agent,))}.symmetric_difference(expected_keys)
                if others:
                    return min(others)
            (version,) = connection.execute(_NEXT_VERSION).fetchone()
            for key, text in changes.items():
                if text is None:
                    connection.execute(_DELETE, (agent, key))
                else:
                    connection.execute(_SET, (agent, key, text, version))
        return None

    def clear(self, agent: str) -> None:
        """Delete all keys."""
        with self._open(agent).change() as connection:
            connection.execute(_NEXT_VERSION)
            connection.execute(_CLEAR, (agent,))

    def _open(self, agent: str) -> Any:
        with self._opening:
            if self._is_closed:
                raise RunError("GBE647", agent=agent)
            if self._database is None:
                from graphbus_core.hosting.database import MEMORY

                self._database = open_database(self._path or MEMORY)
            return self._database


def open_database(path: str) -> Any:
    """Open the file of states as it is, a `Database`; it is made when it is not there.

    Raises:
        RunError: GBE643, GBE644, GBE645.
    """
    from graphbus_core.hosting.database import Database, Layout

    return Database(path, Layout("The state of the agents", 0x47425354, 1, _TABLES))


class AgentState(State):
    """The state of one agent; see `State`."""

    def __init__(self, states: States, agent: str) -> None:
        self._states = states
        self._agent = agent

    def __repr__(self) -> str:
        return f"<state of {self._agent}>"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, AgentState) else dict(self) == other

    def __getitem__(self, key: str) -> Json:
        text, _ = self._find(key)
        if text is None:
            raise KeyError(key)
        return _decode(text)

    def __setitem__(self, key: str, value: Json) -> None:
        self._write(key, encode(self._agent, key, value))

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key)[0] is not None

    def __iter__(self) -> Iterator[str]:
        transaction = self._transaction()
        if transaction is None:
            return iter(self._states.keys(self._agent))
        if transaction.keys is None:
            transaction.keys = frozenset(self._states.keys(self._agent))
        keys = transaction.keys.union(transaction.changes)
        return iter(sorted(key for key in keys if transaction.changes.get(key, "") is not None))

    def __len__(self) -> int:
        return self._states.count(self._agent) if self._transaction() is None else sum(1 for _ in self)

    def update(self, other: Any = (), /, **named: Json) -> None:
        """Set several keys, all or none."""
        with self.transaction():
            super().update(other, **named)

    def clear(self) -> None:
        """Delete all keys, all or none."""
        if self._transaction() is None:
            self._states.clear(self._agent)
            return
        for key in list(self):
            self._write(key, None)

    def pop(self, key: str, /, default: Any = _NOTHING) -> Any:
        """Take a value out; of several who do so at once, one gets it."""
        while True:
            text, version = self._find(key)
            if text is None:
                if default is _NOTHING:
                    raise KeyError(key)
                return default
            if self._write_if(key, None, version):
                return _decode(text)

    def popitem(self) -> tuple[str, Json]:
        """Take out the first key with its value; of several who do so at once, one gets it."""
        for key in self:
            value = self.pop(key, _NOTHING)
            if value is not _NOTHING:
                return key, value
        raise KeyError("popitem(): the state is empty")

    def setdefault(self, key: str, default: Json = None, /) -> Json:
        """Give the value of a key, which is set if it is not there; of several who do so at once, one sets it."""
        encoded = encode(self._agent, key, default)
        while True:
            text, version = self._find(key)
            if text is not None:
                return _decode(text)
            if self._write_if(key, encoded, version):
                return _decode(encoded)

    def version(self, key: str) -> int:
        """Give the version of a key; inside of a transaction the one before it."""
        return self._find(key)[1]

    def read(self, key: str) -> tuple[Json, int]:
        """Give the value of a key and its version, both of one moment; None and 0 for a key that is not there."""
        text, version = self._find(key)
        return (None if text is None else _decode(text)), version

    def update_if(self, key: str, value: Json, version: int) -> bool:
        """Set the value if the key still has this version (0: it is not there); False, and no change, if it has another."""
        return self._write_if(key, encode(self._agent, key, value), version)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Collect what is set and deleted, and write it at the end: all of it, or nothing."""
        if self._transaction() is not None:
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
        changed = self._states.write(self._agent, transaction.changes, transaction.seen, transaction.keys)
        if changed is not None:
            raise RunError("GBE646", agent=self._agent, key=clipped(changed))

    def _find(self, key: str) -> tuple[str | None, int]:
        check_key(self._agent, key)
        transaction = self._transaction()
        if transaction is None:
            return self._states.find(self._agent, key)
        if key not in transaction.seen:
            text, version = self._states.find(self._agent, key)
            transaction.seen[key] = version
            transaction.texts[key] = text
        return transaction.changes.get(key, transaction.texts[key]), transaction.seen[key]

    def _write(self, key: str, text: str | None) -> None:
        transaction = self._transaction()
        if transaction is None:
            self._states.write(self._agent, {key: text})
        else:
            transaction.changes[key] = text

    def _write_if(self, key: str, text: str | None, version: int) -> bool:
        """Set or delete a key that still has this version; False, and no change, if it has another."""
        transaction = self._transaction()
        if transaction is None:
            return self._states.write(self._agent, {key: text}, {key: version}) is None
        if self._find(key)[1] != version:
            return False
        transaction.changes[key] = text
        return True

    def _transaction(self) -> _Transaction | None:
        transaction = _transactions.get().get(self)
        return None if transaction is None or transaction.is_over else transaction


def encode(agent: str, key: str, value: Json) -> str:
    """Give a value as JSON, proved to be just that and not too large.

    Raises:
        RunError: GBE641, GBE642.
    """
    from json import dumps

    check_key(agent, key)
    try:
        frozen = freeze({key: value})
    except RunError as refusal:
        if refusal.code == "GBE613":
            raise RunError("GBE642", agent=agent, key=clipped(key), limit=refusal.data["limit"]) from None
        path, found = refusal.data.get("path", clipped(key)), refusal.data.get("found", "no JSON")
        raise RunError("GBE641", agent=agent, path=path, found=found) from None
    return dumps(frozen[key], allow_nan=False, separators=(",", ":"))


def check_key(agent: str, key: object) -> None:
    """Refuse what can be no key.

    Raises:
        RunError: GBE641.
    """
    if not isinstance(key, str):
        raise RunError("GBE641", agent=agent, path=f"the key {shown(key)}", found=f"a {type(key).__name__}")
    if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
        raise RunError("GBE641", agent=agent, path=f"the key {shown(key)}", found="half of a character")


class _Transaction:
    """What a transaction has read and wants to write.

    Attributes:
        seen: Key -> the version that was read.
        texts: Key -> what was read.
        keys: All keys that there were, if somebody has asked for them.
        is_over: A task that was started inside may still run after it.
    """

    __slots__ = ("changes", "is_over", "keys", "seen", "texts")

    def __init__(self) -> None:
        self.changes: dict[str, str | None] = {}
        self.seen: dict[str, int] = {}
        self.texts: dict[str, str | None] = {}
        self.keys: frozenset[str] | None = None
        self.is_over = False


_transactions: ContextVar[Mapping[AgentState, _Transaction]] = ContextVar(
    "graphbus_transactions", default=MappingProxyType({})
)


def _decode(text: str) -> Json:
    from json import loads

    return loads(text)
