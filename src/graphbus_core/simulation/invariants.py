"""What must hold after each run: the invariants that need no test, and those of a project in its `simulation.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Dead
from graphbus_core.schema.json import Json
from graphbus_core.schema.values import clip_text
from graphbus_core.simulation.record import LOST, SAME, Violation

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
        changing: `Agent.key`, `Agent.attribute` and ids of events whose values depend on a clock, on chance, or on the build.
        optional: Ids of events, and (event, handler) of dead letters, that there are in one of two builds only.
    """

    events: Mapping[str, Envelope]
    states: States
    attributes: States
    dead: Mapping[tuple[str, str], str]
    changing: Collection[str] = ()
    optional: Collection[str | tuple[str, str]] = ()

    def or_else(self, other: Snapshot) -> Snapshot:
        """Return what may come of two builds side by side: what is the same in both is expected, the rest may be of either."""
        changing = {*self.changing, *other.changing, *find_changing(self, other)}
        optional = {*(self.events.keys() ^ other.events.keys()), *(self.dead.keys() ^ other.dead.keys())}
        return msgspec.structs.replace(self, changing=changing, optional=optional)


def find_changing(first: Snapshot, second: Snapshot) -> set[str]:
    """Return what differs between two runs without faults that differ in their clock and their chance only."""
    common = first.events.keys() & second.events.keys()
    changing = {key for key in common if first.events[key].data != second.events[key].data}
    for before, after in ((first.states, second.states), (first.attributes, second.attributes)):
        changing |= {f"{agent}.{key}" for agent, key, _, _ in _differences(before, after)}
    return changing


def _differences(before: States, after: States) -> Iterator[tuple[str, str, Json, Json]]:
    """Yield each agent and key with its two values, if these differ."""
    for agent in sorted(before.keys() | after.keys()):
        old, new = before.get(agent, {}), after.get(agent, {})
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield agent, key, old.get(key), new.get(key)


def check_against(expected: Snapshot, found: Snapshot, users: UserInvariants) -> Iterator[Violation]:
    """Yield how a run differs from one without faults."""
    yield from _check_events(expected, found)
    compared = (
        (SAME, "state", expected.states, found.states),
        (MEMORY, "attribute", expected.attributes, found.attributes),
    )
    for name, kind, before, after in compared:
        for agent, key, old, new in _differences(before, after):
            is_known = f"{agent}.{key}" in expected.changing or _OPAQUE in (old, new)
            if not is_known and users.is_compared(agent, key):
                what = f"{kind} {key!r} of {agent} is {_show(new)}, and without faults {_show(old)}"
                yield Violation(name, what, handler=agent)


def _check_events(before: Snapshot, after: Snapshot) -> Iterator[Violation]:
    for key, event in before.events.items():
        named = f"event {key} on {event.type}"
        if key not in after.events:
            if key not in before.optional:
                yield Violation(LOST, f"{named} was not published", event.causationid, event.source)
        elif key not in before.changing and event.data != after.events[key].data:
            what = f"{named} is {_show(after.events[key].data)}, and without faults {_show(event.data)}"
            yield Violation(SAME, what, key, event.source)
    for key, event in after.events.items():
        if key not in before.events and key not in before.optional:
            what = f"event {key} on {event.type} is not published without faults"
            yield Violation(SAME, what, key, event.source)
    for (key, handler), error in after.dead.items():
        if (key, handler) not in before.dead and (key, handler) not in before.optional:
            what = f"event {key} is a dead letter of {handler} ({error}), but not without faults"
            yield Violation(LOST, what, key, handler)
    for key, handler in sorted(before.dead.keys() - after.dead.keys() - {*before.optional}):
        yield Violation(SAME, f"event {key} is a dead letter of {handler} without faults only", key, handler)


def _show(value: object) -> str:
    """Return a value for a message, the same in every process: the order of a set depends on the process."""
    return clip_text(repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value))


_OPAQUE = "<an object>"


def plain_attributes(node: object) -> dict[str, Any]:
    """Return the attributes of an agent; `_OPAQUE` stands for values that are not JSON-like, which are not compared."""
    return {name: value if _is_plain(value) else _OPAQUE for name, value in vars(node).items()}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, list | set | frozenset | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
