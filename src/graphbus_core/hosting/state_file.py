"""The file of states from outside of a running graph: read, exported, imported and emptied, also while a graph uses it.

What is exported is of one moment. What is changed is changed whole, in one transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from json import JSONDecodeError, dumps, loads
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.state import check_key, encode, open_database
from graphbus_core.schema.json import Json
from graphbus_core.schema.values import clipped

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


T = TypeVar("T")
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
        """Close the file."""
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
        changes: list[Change] = []
        for agent, keys in wanted.items():
            old = {key: kept.text for key, kept in now.agents.get(agent, {}).items()}
            new = {key: kept.text for key, kept in keys.items()}
            names = sorted(new if is_merge else {*old, *new})
            changes += [Change(agent, key, old.get(key), new.get(key)) for key in names]
        return [change for change in changes if change.before != change.after]

    return plan


def plan_reset(key: str | None) -> Plan:
    """One key goes, or all do."""

    def plan(now: Snapshot) -> list[Change]:
        kept = ((agent, name, kept.text) for agent, keys in now.agents.items() for name, kept in keys.items())
        return [Change(agent, name, text, None) for agent, name, text in kept if key in (None, name)]

    return plan


# --- as a document --------------------------------------------------------------------------

_Version = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key in an export."""

    value: Any
    version: _Version


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An export; the states are converted one by one, so that a refusal names agent and key."""

    format: Literal["graphbus-state"]
    format_version: Literal[1]
    version: _Version
    agents: dict[str, Any]


def render(snapshot: Snapshot) -> bytes:
    """Write states as one JSON document, in ASCII: a value may have what no terminal and no UTF-8 takes."""
    agents = {
        agent: {key: {"value": kept.value, "version": kept.version} for key, kept in keys.items()}
        for agent, keys in snapshot.agents.items()
    }
    head = {"format": "graphbus-state", "format_version": 1, "version": snapshot.version}
    return f"{dumps({**head, 'agents': agents}, indent=2)}\n".encode()


def parse(data: bytes, path: str) -> Snapshot:
    """Read what `render` has written; all of it is checked before any of it is used.

    Args:
        data: The document.
        path: Where it is from, for refusals.

    Raises:
        RunError: GBE697 it is no export; GBE641, GBE642 a value that no state can have.
    """
    try:
        return _read(_decoded(data))
    except RecursionError:
        reason = "it is nested too deep"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
    except ValueError as error:
        reason = str(error)
    raise RunError("GBE697", where=Place(path), reason=reason)


def _decoded(data: bytes) -> Json:
    """Decode JSON as the standard library does, which reads integers of any size; what it lets pass is refused here."""
    return loads(
        data.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_integer, object_pairs_hook=_without_repetition
    )


def _read(content: Json) -> Snapshot:
    document = _converted(content, _Document, "the document")
    agents = sorted(document.agents.items())
    return Snapshot(document.version, {agent: _read_keys(agent, keys) for agent, keys in agents})


def _read_keys(agent: str, content: Json) -> dict[str, Kept]:
    check_key(agent, agent)
    found = {}
    for key, value in sorted(_converted(content, dict[str, Any], clipped(agent)).items()):
        entry = _converted(value, _Entry, f"{clipped(agent)} {clipped(key)}")
        found[key] = Kept(encode(agent, key, entry.value), entry.version)
    return found


def _converted(content: Json, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from None


def _integer(text: str) -> Json:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number has {len(text)} digits, which is more than Python reads") from None


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number of JSON")


def _without_repetition(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {clipped(twice)!r} stands twice in one object")
    return found
