"""Counts for the view, by handler and topic: those of the bus, its dead letters, and what waits in the bus or in the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from time import monotonic, time

import msgspec

from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.topics import matches
from graphbus_core.view.messages import Counts

_LEDGER_S = 1.0
"""The ledger is asked at most that often."""


class Counting:
    """The counts of one running graph, and which of them have changed since the last call."""

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self._dead: Counter[str] = Counter()
        self._letters_seen = 0
        self._last: dict[str, Counts] = {}
        self._in_ledger: dict[str, dict[str, int]] = {}
        self._asked_at = 0.0

    def counts(self, *, every: bool) -> dict[str, Counts]:
        """Return `Agent.method <- /Topic` -> its counts, only those that have changed since the last call unless `every`."""
        statistics = self._graph.bus.statistics()
        names = list(statistics.subscriptions)
        self._count_dead(names)
        waiting, oldest = self._find_waiting()
        retrying = Counter(_name_of(each.subscription) for each in self._graph.bus.hosting.planned_attempts())
        counts = {
            name: Counts(
                delivered=each.delivered,
                failed=each.failed,
                dead=self._dead[name],
                retrying=retrying[name],
                waiting=waiting[name],
                lag_s=round(max(0.0, time() - oldest[name]), 1) if name in oldest else 0.0,
            )
            for name, each in statistics.subscriptions.items()
        }
        if self._graph.ledger is not None:
            counts |= self._counts_of_ledger(counts)
        changed = counts if every else {name: each for name, each in counts.items() if each != self._last.get(name)}
        self._last = counts
        return changed

    def _count_dead(self, names: Sequence[str]) -> None:
        """Add the dead letters since the last call to the counts of their handlers, as far as the bus still has them."""
        letters = self._graph.bus.hosting.letters
        new = letters.count - self._letters_seen
        self._letters_seen += new
        for letter in self._graph.bus.dead_letters()[-new:] if new > 0 else ():
            self._dead.update(_names_matching(names, letter.subscription, letter.event.topic))

    def _find_waiting(self) -> tuple[Counter[str], dict[str, float]]:
        """Return how many events wait for each handler on the event loop, and when the oldest of them was published."""
        waiting: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        for subscription, event in self._graph.bus.hosting.waiting_in_lanes():
            name = _name_of(subscription)
            waiting[name] += 1
            oldest[name] = min(oldest.get(name, event.timestamp), event.timestamp)
        return waiting, oldest

    def _counts_of_ledger(self, counts: dict[str, Counts]) -> dict[str, Counts]:
        """Return the counts with what waits in the ledger; it counts by handler, so the first subscription of each has it all."""
        if monotonic() - self._asked_at > _LEDGER_S:
            self._in_ledger, self._asked_at = self._ask_ledger(), monotonic()
        states = dict(self._in_ledger)
        found: dict[str, Counts] = {}
        for name, each in counts.items():
            state = states.pop(name.partition(" <- ")[0], {})
            waiting, retrying, dead = (state.get(kind, 0) for kind in ("waiting", "retrying", "dead"))
            found[name] = msgspec.structs.replace(
                each, waiting=each.waiting + waiting, retrying=each.retrying + retrying, dead=max(each.dead, dead)
            )
        return found

    def _ask_ledger(self) -> dict[str, dict[str, int]]:
        """Return handler -> state -> how many deliveries are in it."""
        states: dict[str, dict[str, int]] = defaultdict(dict)
        for metric in self._graph.ledger_metrics():
            for labels, value in metric.samples if metric.name == "graphbus_ledger_deliveries" else ():
                states[labels["graphbus_handler"]][labels["state"]] = int(value)
        return states


def _name_of(subscription: LiveSubscription) -> str:
    """Return the key of a subscription in the statistics of its bus."""
    return f"{subscription.name} <- {subscription.topic}"


def _names_matching(names: Sequence[str], handler: str, topic: str) -> list[str]:
    """Return the key of the subscription by which a handler got an event; empty if there is none."""
    found = (name for name in names if name.startswith(f"{handler} <- ") and matches(name.partition(" <- ")[2], topic))
    return [next(found, "")] if handler else []
