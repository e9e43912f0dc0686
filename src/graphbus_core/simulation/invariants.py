"""What must hold after each run: the invariants that need no test, and those of a project in its `simulation.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Dead
from graphbus_core.schema.json import Json
from graphbus_core.schema.values import clip_text
from graphbus_core.simulation.record import LOST, REASON, SAME, SCHEMA, Record, Violation
from graphbus_core.simulation.topics import KnownTopics

MEMORY = "What an agent remembers outlives its process."

States = Mapping[str, Mapping[str, Json]]
"""Agent -> key -> value."""


class View(msgspec.Struct, frozen=True):
    """What an invariant of a project may look at after a run; reading only.

    Attributes:
        states: Agent -> key -> value.
        events: All events, in the order in which they were appended.
        dead_letters: Event, handler and reason of each dead letter.
    """

    states: States
    events: Sequence[Envelope]
    dead_letters: Sequence[tuple[Envelope, str, Dead]]


Invariant = Callable[[View], object]


def invariant(function: Invariant) -> Invariant:
    """Declare a function of `simulation.py` as an invariant; it raises AssertionError or returns False if it does not hold."""
    function.__graphbus_invariant__ = True  # type: ignore[attr-defined]  # `UserInvariants` looks for it
    return function


class UserInvariants(msgspec.Struct, frozen=True):
    """What a project says about its simulation.

    Attributes:
        functions: Its invariants.
        not_compared: Patterns of `Agent.key` and `Agent.attribute` that may differ from a run without faults.
    """

    functions: Sequence[Invariant] = ()
    not_compared: Sequence[str] = ()

    def check(self, view: View) -> Iterator[Violation]:
        """Yield the invariants that do not hold."""
        for each in self.functions:
            result, error = attempt(lambda each=each: each(view))  # type: ignore[misc]  # its type is inferred as Never
            if error is None and result is not False:
                continue
            what = "it returned False" if error is None else clip_text(f"{type(error).__name__}: {error}")
            verb = "holds" if error is None or isinstance(error, AssertionError) else "can be checked"
            yield Violation(f"{each.__name__} {verb}.", what)

    def is_compared(self, agent: str, name: str) -> bool:
        """True if this key or attribute must be as it is without faults."""
        return not any(fnmatchcase(f"{agent}.{name}", pattern) for pattern in self.not_compared)


def invariants_of(module: ModuleType | None) -> UserInvariants:
    """Return what the module `simulation` of a project declares."""
    found = {} if module is None else vars(module)
    marked = [each for each in found.values() if hasattr(each, "__graphbus_invariant__")]
    return UserInvariants(marked, tuple(found.get("NOT_COMPARED", ())))


class Snapshot(msgspec.Struct):
    """What a run has led to.

    Attributes:
        events: Id -> event, of all that the given events have caused.
        states: What the agents stored.
        attributes: Agent -> attribute -> value, of those that are JSON-like.
        dead: (event, handler) -> the error of a dead letter.
    """

    events: dict[str, Envelope]
    states: dict[str, dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    dead: dict[tuple[str, str], str]


class Expected(msgspec.Struct):
    """What a run without faults leads to, and which parts of it are the same in each such run.

    Attributes:
        snapshot: The first run.
        changing: `Agent.key`, `Agent.attribute` and ids of events whose values depend on a clock or on chance.
    """

    snapshot: Snapshot
    changing: set[str]


def expect(first: Snapshot, second: Snapshot) -> Expected:
    """Compare two runs without faults that differ in their clock and their chance only."""
    changing = {
        key for key in first.events.keys() & second.events.keys() if first.events[key].data != second.events[key].data
    }
    for one, other in ((first.states, second.states), (first.attributes, second.attributes)):
        for agent in one.keys() | other.keys():
            old, new = one.get(agent, {}), other.get(agent, {})
            changing |= {f"{agent}.{key}" for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return Expected(first, changing)


def check_record(record: Record, topics: KnownTopics) -> Iterator[Violation]:
    """Yield what is wrong with the events and deliveries of a run, without comparing it with another run."""
    yield from record.violations
    for event, handler, _ in record.left():
        yield Violation(LOST, f"event {event} was never settled by {handler}", event, handler)
    for envelope, handler, dead in record.dead:
        if not dead.error or not dead.reason:
            yield Violation(
                REASON, f"the dead letter of {handler} on event {envelope.id} has none", envelope.id, handler
            )
    for envelope in record.events.values():
        _, error = attempt(lambda envelope=envelope: topics.check(envelope.type, envelope.data))  # type: ignore[misc]  # as above
        if isinstance(error, RunError):
            yield Violation(SCHEMA, error.sentence, envelope.id)


def check_against(expected: Expected, found: Snapshot, users: UserInvariants) -> Iterator[Violation]:
    """Yield how a run differs from one without faults."""
    yield from _check_events(expected, found)
    yield from _compare(SAME, expected.snapshot.states, found.states, expected.changing, users)
    yield from _compare(MEMORY, expected.snapshot.attributes, found.attributes, expected.changing, users)


def _check_events(expected: Expected, found: Snapshot) -> Iterator[Violation]:
    before, after = expected.snapshot, found
    for key, event in before.events.items():
        if key not in after.events:
            yield Violation(LOST, f"event {key} on {event.type} was not published", event.causationid, event.source)
        elif key not in expected.changing and event.data != after.events[key].data:
            what = f"event {key} on {event.type} is {_show(after.events[key].data)}, and without faults {_show(event.data)}"
            yield Violation(SAME, what, key, event.source)
    for key, event in after.events.items():
        if key not in before.events:
            what = f"event {key} on {event.type} is not published without faults"
            yield Violation(SAME, what, key, event.source)
    for (key, handler), error in after.dead.items():
        if (key, handler) not in before.dead:
            yield Violation(
                LOST, f"event {key} is a dead letter of {handler} ({error}), but not without faults", key, handler
            )
    for key, handler in sorted(before.dead.keys() - after.dead.keys()):
        yield Violation(SAME, f"event {key} is a dead letter of {handler} without faults only", key, handler)


def _compare(
    name: str, before: States, after: States, changing: set[str], users: UserInvariants
) -> Iterator[Violation]:
    for agent in sorted(before.keys() | after.keys()):
        old, new = before.get(agent, {}), after.get(agent, {})
        for key in sorted(old.keys() | new.keys()):
            values = old.get(key), new.get(key)
            if values[0] == values[1] or _OPAQUE in values:
                continue
            if f"{agent}.{key}" in changing or not users.is_compared(agent, key):
                continue
            kind = "state" if name == SAME else "attribute"
            what = f"{kind} {key!r} of {agent} is {_show(new.get(key))}, and without faults {_show(old.get(key))}"
            yield Violation(name, what, handler=agent)


def _show(value: object) -> str:
    """Return a value for a message, the same in every process: the order of a set depends on the process."""
    return clip_text(repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value))


_OPAQUE = "<an object>"


def plain_attributes(node: object) -> dict[str, Any]:
    """Return the attributes of an agent; `_OPAQUE` stands for values that are not JSON-like, which are not compared."""
    own = {name: value for name, value in vars(node).items() if name != "_connection"}
    return {name: value if _is_plain(value) else _OPAQUE for name, value in own.items()}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, list | set | frozenset | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
