"""The file of states from outside of a running graph: looked at, exported, imported and emptied, also while a graph uses it.

What is exported is of one moment. What is changed is changed whole, in one transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import JSONDecodeError, dumps, loads
from typing import Any, NamedTuple

from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.state import check_key, encode, open_database
from graphbus_core.schema.json import Json
from graphbus_core.schema.values import clipped

FORMAT = "graphbus-state"
FORMAT_VERSION = 1

_MOST = (1 << 62) - 1
"""Versions below that; SQLite counts to twice as many."""

_ALL = "SELECT agent, key, value, version FROM state ORDER BY agent, key"
_OF = "SELECT agent, key, value, version FROM state WHERE agent = ? ORDER BY key"
_VERSION = "SELECT version FROM counter"


class Kept(NamedTuple):
    """A value as JSON, and its version."""

    text: str
    version: int

    @property
    def value(self) -> Json:
        """The value itself."""
        return loads(self.text)


Contents = dict[str, dict[str, Kept]]
"""Agent -> key -> what is kept under it; both in their order."""


class Snapshot(NamedTuple):
    """States at one moment; `version` is the last one that was given to a change."""

    version: int
    agents: Contents


class Change(NamedTuple):
    """One key that is set, changed or removed; None: there is no such key."""

    agent: str
    key: str
    before: str | None
    after: str | None


Plan = Callable[[Snapshot], Sequence[Change]]


class StateFile:
    """The file, open.

    Args:
        path: Where it is; made when it is not there.

    Raises:
        RunError: GBE643-645 when it cannot be used; from every method, too.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._database = open_database(path)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def snapshot(self, agents: Iterable[str] | None = None) -> Snapshot:
        """Give the states of these agents, or of all that have one, at one moment."""
        with self._database.look() as connection:
            return self._read(connection, agents)

    def names(self) -> list[str]:
        """The agents that have a state."""
        with self._database.use() as connection:
            return [agent for (agent,) in connection.execute("SELECT DISTINCT agent FROM state ORDER BY agent")]

    def change(
        self, agents: Iterable[str] | None, plan: Plan, keep: Callable[[Snapshot], None], *, after_version: int = 0
    ) -> Sequence[Change]:
        """Make changes, all or none.

        Args:
            agents: Whose states the plan needs to see; None: all.
            plan: From what is there to what shall change.
            keep: Is given what is there before anything is changed, if something will be; what it raises stops everything.
            after_version: The version of the changes is higher than that, and higher than every one before.
        """
        with self._database.change() as connection:
            before = self._read(connection, agents)
            changes = plan(before)
            if not changes:
                return changes
            keep(before)
            version = max(connection.execute(_VERSION).fetchone()[0], after_version) + 1
            connection.execute("UPDATE counter SET version = ?", (version,))
            for agent, key, _, after in changes:
                if after is None:
                    connection.execute("DELETE FROM state WHERE agent = ? AND key = ?", (agent, key))
                else:
                    values = (agent, key, after, version)
                    connection.execute("REPLACE INTO state (agent, key, value, version) VALUES (?, ?, ?, ?)", values)
        return changes

    def _read(self, connection: Any, agents: Iterable[str] | None) -> Snapshot:
        (version,) = connection.execute(_VERSION).fetchone()
        found: dict[str, dict[str, Kept]] = {agent: {} for agent in sorted(agents or ())}
        questions = [(_ALL, ())] if agents is None else [(_OF, (agent,)) for agent in found]
        for question, values in questions:
            for agent, key, text, key_version in connection.execute(question, values):
                found.setdefault(agent, {})[key] = Kept(self._checked(agent, key, text), key_version)
        return Snapshot(version, found)

    def _checked(self, agent: str, key: str, text: str) -> str:
        try:
            loads(text, parse_constant=_refuse_constant)
        except (ValueError, TypeError, RecursionError):
            reason = f"it is damaged (the value of {clipped(agent)} {clipped(key)} is no JSON)"
            raise RunError("GBE643", where=Place(self._path), what="The state of the agents", reason=reason) from None
        return text


# --- plans ----------------------------------------------------------------------------------


def plan_import(wanted: Contents, *, is_merge: bool) -> Plan:
    """Each agent of the import gets its keys, and with `is_merge` keeps those that the import does not name."""

    def plan(now: Snapshot) -> list[Change]:
        changes = []
        for agent, keys in wanted.items():
            old = now.agents.get(agent, {})
            gone = () if is_merge else old.keys() - keys.keys()
            for key in sorted(keys.keys() | gone):
                before = old[key].text if key in old else None
                after = keys[key].text if key in keys else None
                if before != after:
                    changes.append(Change(agent, key, before, after))
        return changes

    return plan


def plan_reset(key: str | None) -> Plan:
    """One key goes, or all do."""

    def plan(now: Snapshot) -> list[Change]:
        return [
            Change(agent, name, kept.text, None)
            for agent, keys in now.agents.items()
            for name, kept in keys.items()
            if key is None or name == key
        ]

    return plan


# --- as a document --------------------------------------------------------------------------


def render(snapshot: Snapshot) -> bytes:
    """Write states as one JSON document, in ASCII: a value may have what no terminal and no UTF-8 takes."""
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": snapshot.version,
        "agents": {
            agent: {key: {"value": kept.value, "version": kept.version} for key, kept in keys.items()}
            for agent, keys in snapshot.agents.items()
        },
    }
    return f"{dumps(document, indent=2)}\n".encode()


def parse(data: bytes, path: str) -> Snapshot:
    """Read what `render` has written; every part of it is looked at before any is used.

    Args:
        data: The document.
        path: Where it is from, for refusals.

    Raises:
        RunError: GBE697 it is no export; GBE641, GBE642 a value that no state can have.
    """
    try:
        text = data.decode("utf-8")
        document = loads(text, parse_constant=_refuse_constant, parse_int=_integer, object_pairs_hook=_unique)
        return _read_document(document)
    except RecursionError:
        reason = "it is nested too deep"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    except ValueError as error:
        reason = str(error)
    raise RunError("GBE697", where=Place(path), reason=reason)


def _read_document(document: Json) -> Snapshot:
    fields = _fields(document, "the document", ("format", "format_version", "version", "agents"))
    if fields["format"] != FORMAT:
        raise ValueError(f"its `format` is not {FORMAT!r}")
    if fields["format_version"] != FORMAT_VERSION:
        raise ValueError(f"its `format_version` is not {FORMAT_VERSION}, the one that this GraphBus knows")
    agents = _mapping(fields["agents"], "`agents`")
    version = _version(fields["version"], "`version`")
    return Snapshot(version, {agent: dict(_read_keys(agent, keys)) for agent, keys in sorted(agents.items())})


def _read_keys(agent: str, keys: Json) -> Iterator[tuple[str, Kept]]:
    check_key(agent, agent)
    for key, entry in sorted(_mapping(keys, f"the state of {clipped(agent)}").items()):
        where = f"{clipped(agent)} {clipped(key)}"
        fields = _fields(entry, where, ("value", "version"))
        yield key, Kept(encode(agent, key, fields["value"]), _version(fields["version"], f"the version of {where}"))


def _fields(value: Json, what: str, names: Sequence[str]) -> Mapping[str, Json]:
    fields = _mapping(value, what)
    for name in names:
        if name not in fields:
            raise ValueError(f"{what} has no `{name}`")
    for name in fields:
        if name not in names:
            raise ValueError(f"{what} has {clipped(name)!r}, which is unknown")
    return fields


def _mapping(value: Json, what: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _version(value: Json, what: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{what} is no version")
    return value


def _integer(text: str) -> Json:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number has {len(text)} digits, which is more than Python reads") from None


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number of JSON")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = iter(found)  # it has each name where it stood first
        twice = next(name for name, _ in pairs if name != next(seen, None))
        raise ValueError(f"the name {clipped(twice)!r} stands twice in one object")
    return found
