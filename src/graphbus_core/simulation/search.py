"""Tries many seeds, and makes the first failure as small as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import TypeVar

import msgspec

from graphbus_core.simulation.faults import KINDS, Fault, Kind, make_faults
from graphbus_core.simulation.nodes import World
from graphbus_core.simulation.record import Violation
from graphbus_core.simulation.runs import find_expected, run_once
from graphbus_core.simulation.subject import RootEvent, Subject

T = TypeVar("T")

_MOST_RUNS = 150
"""How many runs the shrinking of one list may take."""
_MOST_EARLIER = 20
"""How many earlier operations are tried for a fault."""
_ORDERS = 4
"""In how many orders fewer events are tried, since what fails because of its order alone may need another one then."""


class Failure(msgspec.Struct, frozen=True):
    """A seed with which an invariant does not hold.

    Attributes:
        faults: The faults that are left of `all_faults`.
        events: The events that are left of `all_events`.
        result: The run with these.
    """

    seed: int
    faults: Sequence[Fault]
    events: Sequence[RootEvent]
    result: World
    violation: Violation
    all_faults: int
    all_events: int


class Simulation:
    """A graph, the events for it, and what they lead to without faults.

    Attributes:
        expected: What the events lead to without faults.
        named: What handlers did that a simulation cannot repeat.

    Raises:
        RunError: GBE667, the graph cannot be simulated.
    """

    def __init__(self, subject: Subject, events: Sequence[RootEvent], kinds: Collection[Kind] = KINDS) -> None:
        self._subject, self._events = subject, tuple(events)
        self._kinds = tuple(each for each in kinds if each != "upgrade" or subject.upgrade is not None)
        self.expected = find_expected(subject, events)
        calm = self._run(0, (), self._events)
        self.named, self._counts = calm.loop.named, calm.counts

    def _run(self, seed: int, faults: Sequence[Fault], events: Sequence[RootEvent]) -> World:
        is_whole = len(events) == len(self._events)
        expected = self.expected if is_whole else find_expected(self._subject, events)
        return run_once(self._subject, events, seed, faults, expected)

    def faults_of(self, seed: int) -> list[Fault]:
        """Return the faults that a seed chooses."""
        return make_faults(Random(f"faults {seed}"), self._counts, self._kinds)

    def run(self, seed: int) -> World:
        """Run the graph under a seed."""
        return self._run(seed, self.faults_of(seed), self._events)

    def find(self, seed: int) -> Failure | None:
        """Run the graph under a seed; return its failure with as few faults and events as possible, None if there is none."""
        violation = self.run(seed).violation
        return None if violation is None else self._shrink(seed, violation)

    def _shrink(self, seed: int, violation: Violation) -> Failure:
        """Remove the faults, and then the events, without which the same invariant is still violated."""

        def fails(faults: Sequence[Fault], events: Sequence[RootEvent], order: int) -> bool:
            found = self._run(order, faults, events).violation
            return found is not None and found.invariant == violation.invariant

        chosen = self.faults_of(seed)
        faults = shrink(chosen, lambda some: fails(some, self._events, seed))
        faults = make_early(faults, lambda some: fails(some, self._events, seed))
        orders = range(seed, seed + _ORDERS)
        events = shrink(self._events, lambda some: any(fails(faults, some, each) for each in orders))
        order = next(each for each in orders if fails(faults, events, each))
        faults = shrink(faults, lambda some: fails(some, events, order))
        result = self._run(order, faults, events)
        return Failure(seed, faults, events, result, result.violation or violation, len(chosen), len(self._events))


def make_early(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Return faults that still fail, at earlier operations where possible: then fewer events lead to them."""
    found = list(faults)
    for index, fault in enumerate(faults):
        for number in range(1, min(fault.number, _MOST_EARLIER)):
            candidate = [*found[:index], msgspec.structs.replace(fault, number=number), *found[index + 1 :]]
            if fails(candidate):
                found = candidate
                break
    return found


def shrink(items: Sequence[T], fails: Callable[[Sequence[T]], bool], most_runs: int = _MOST_RUNS) -> list[T]:
    """Return a part of a list, in its order, that still fails, and of which no single item can be left out.

    After `most_runs` calls of `fails` it returns the smallest list so far.

    Source: delta debugging (Zeller, Hildebrandt 2002), with complements only.
    """
    kept, size, runs = list(items), len(items), 0
    while size and kept:
        start, has_shrunk = 0, False
        while start < len(kept):
            if runs == most_runs:
                return kept
            candidate = kept[:start] + kept[start + size :]
            runs += 1
            if fails(candidate):
                kept, has_shrunk = candidate, True
            else:
                start += size
        size = size if has_shrunk and size == 1 else size // 2
    return kept
