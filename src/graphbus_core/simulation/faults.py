"""Faults of a simulation as plain values, and the plan of a run: which faults hit which operation of which node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Literal, get_args

import msgspec

Kind = Literal[
    "crash", "lost", "refused", "duplicate", "delay", "lease", "slow", "engine", "clock", "restart", "upgrade"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
Operation = Literal["append", "claim", "extend", "settle"]

OUTSIDE = "the publisher"
"""The node that appends the events of the run; it has no agents and does not crash."""

_MOST_FAULTS = 4
"""So that no delivery loses so many leases that the worker gives it up."""
_AT_OUTSIDE: tuple[Kind, ...] = ("lost", "refused", "duplicate", "delay", "engine")
_OPERATIONS_HIT: dict[Kind, tuple[Operation, ...]] = {"lease": ("claim",), "duplicate": ("append", "settle")}
_SECONDS: dict[Kind, tuple[float, ...]] = {
    "crash": (0.1, 5.0, 40.0),
    "delay": (0.05, 2.0, 45.0),
    "slow": (35.0, 70.0),
    "engine": (0.2, 10.0, 45.0),
    "clock": (-3600.0, -20.0, 20.0, 3600.0),
    "lease": (1.0,),
    "restart": (1.0,),
    "upgrade": (1.0,),
}


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong.

    Attributes:
        kind: What goes wrong; `sentence` tells it.
        node: The node.
        operation: The operation of the node that it hits.
        number: Which of these operations, from 1.
        seconds: How long it takes, or how far the clock jumps.
        is_after: For `crash`: after the operation was applied.
    """

    kind: Kind
    node: str
    operation: Operation
    number: int
    seconds: float = 0.0
    is_after: bool = False

    @property
    def sentence(self) -> str:
        """The fault in plain words."""
        when = f"its {_ordinal(self.number)} {self.operation}"
        before_or_after, length = "after" if self.is_after else "before", f"{abs(self.seconds):g} s"
        direction = "ahead" if self.seconds > 0 else "back"
        texts: dict[Kind, str] = {
            "crash": f"crashes {before_or_after} {when}, and starts again {length} later",
            "lost": f"does not hear that {when} was applied",
            "refused": f"cannot reach the ledger for {when}",
            "duplicate": f"sends {when} twice",
            "delay": f"is {length} late with {when}",
            "lease": f"loses the lease of {when} at once, and a second process takes over",
            "slow": f"stands still for {length} at {when}, and a second process takes over",
            "engine": f"finds the ledger gone for {length} at {when}",
            "clock": f"has a clock that goes {length} {direction} at {when}",
            "restart": f"is asked to stop at {when}, and another process starts",
            "upgrade": f"is asked to stop at {when}, and a process of the other build starts",
        }
        return f"{self.node} {texts[self.kind]}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def make_faults(chance: Random, counts: Mapping[str, Mapping[Operation, int]], kinds: Collection[Kind]) -> list[Fault]:
    """Return the faults of one run, in no order.

    Args:
        counts: Node -> operation -> how many of these it does in a run without faults.
    """
    nodes = sorted(counts)
    wanted = chance.randint(0, _MOST_FAULTS) if kinds and nodes else 0
    found = [_make_fault(chance, chance.choice(nodes), counts, sorted(kinds)) for _ in range(wanted)]
    return list(dict.fromkeys(each for each in found if each is not None))


def _make_fault(
    chance: Random, node: str, counts: Mapping[str, Mapping[Operation, int]], kinds: Sequence[Kind]
) -> Fault | None:
    possible = [each for each in kinds if node != OUTSIDE or each in _AT_OUTSIDE]
    if not possible:
        return None
    kind = chance.choice(possible)
    operations = sorted(counts[node].keys() & set(_OPERATIONS_HIT.get(kind, get_args(Operation))))
    if not operations:
        return None
    operation = chance.choice(operations)
    number = chance.randint(1, counts[node][operation])
    seconds = chance.choice(_SECONDS.get(kind, (0.0,)))
    return Fault(kind, node, operation, number, seconds, kind == "crash" and chance.random() < 0.5)
