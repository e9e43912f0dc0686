"""Tries many seeds, and makes the first failure as small as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import TypeVar

import msgspec

from graphbus_core.simulation.faults import KINDS, Fault, Kind, make_faults
from graphbus_core.simulation.invariants import Snapshot
from graphbus_core.simulation.nodes import World
from graphbus_core.simulation.record import Violation
from graphbus_core.simulation.runs import find_expected, run_once
from graphbus_core.simulation.subject import RootEvent, Subject

T = TypeVar("T")

_MOST_RUNS = 150
"""How many runs the shrinking of one list may take."""
_MOST_EARLIER = 20
"""How many earlier operations are tried for a fault."""


class Failure(msgspec.Struct, frozen=True):
    """A seed with which an invariant does not hold, as small as it was found.

    Attributes:
        seed: The seed.
        faults: The faults that are left.
        events: The events that are left.
        result: The run with these.
        all_faults: How many faults the seed had chosen.
        all_events: How many events there were.
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

    Args:
        subject: The graph.
        events: The events that are published in each run.
        kinds: The kinds of faults.

    Attributes:
        expected: What the events lead to without faults.
        named: What handlers did that a simulation cannot repeat.

    Raises:
        RunError: GBE667, the graph cannot be simulated.
    """

    def __init__(self, subject: Subject, events: Sequence[RootEvent], kinds: Collection[Kind] = KINDS) -> None:
        self._subject, self._events, self._kinds = subject, tuple(events), tuple(kinds)
        self.expected = find_expected(subject, events)
        calm = run_once(subject, events, 0, (), self.expected)
        self.named = calm.named
        self._counts = calm.counts

    def faults_of(self, seed: int) -> list[Fault]:
        """Return the faults that a seed chooses."""
        return make_faults(Random(f"faults {seed}"), self._counts, self._kinds)

    def run(self, seed: int) -> World:
        """Run the graph under a seed."""
        return run_once(self._subject, self._events, seed, self.faults_of(seed), self.expected)

    def find(self, seed: int) -> Failure | None:
        """Run the graph under a seed; return its failure with as few faults and events as possible, None if there is none."""
        result = self.run(seed)
        return None if result.violation is None else self._shrink(seed, result.violation)

    def _shrink(self, seed: int, violation: Violation) -> Failure:
        """Remove the faults, and then the events, without which the same invariant is still violated."""
        chosen = self.faults_of(seed)
        name = violation.invariant

        def fails(faults: Sequence[Fault], events: Sequence[RootEvent]) -> bool:
            found = run_once(self._subject, events, seed, faults, self._expect(events)).violation
            return found is not None and found.invariant == name

        faults = shrink(chosen, lambda some: fails(some, self._events))
        faults = make_early(faults, lambda some: fails(some, self._events))
        events = shrink(self._events, lambda some: fails(faults, some))
        faults = shrink(faults, lambda some: fails(some, events))
        result = run_once(self._subject, events, seed, faults, self._expect(events))
        return Failure(seed, faults, events, result, result.violation or violation, len(chosen), len(self._events))

    def _expect(self, events: Sequence[RootEvent]) -> Snapshot:
        return self.expected if len(events) == len(self._events) else find_expected(self._subject, events)


def make_early(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Return faults that still fail, at earlier operations where possible: then fewer events lead to them.

    Args:
        faults: Faults that fail.
        fails: True if these faults fail.
    """
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

    Source: delta debugging (Zeller, Hildebrandt 2002), with complements only.

    Args:
        items: A list that fails.
        fails: True if a list fails.
        most_runs: After so many calls of `fails`, the smallest list so far is returned.
    """
    kept, size = list(items), len(items)
    runs = 0
    while size and kept:
        start, has_shrunk = 0, False
        while start < len(kept) and runs < most_runs:
            candidate = kept[:start] + kept[start + size :]
            runs += 1
            if fails(candidate):
                kept, has_shrunk = candidate, True
            else:
                start += size
        if runs >= most_runs:
            break
        size = min(size, len(kept)) if has_shrunk and size == 1 else size // 2
    return kept
