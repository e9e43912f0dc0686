"""Who waits for whom, over all threads and lanes: a wait that would never end is seen before it begins.

D waits for E:  D -> E        E asks D:  D -> E is there, and E is who asks
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from threading import Lock


class Waits:
    """Edges from agents that are in the middle of something to those that they wait for."""

    __slots__ = ("_changing", "_edges")

    def __init__(self) -> None:
        self._edges: dict[Hashable, list[Hashable]] = {}
        self._changing = Lock()

    def __bool__(self) -> bool:
        return bool(self._edges)

    def leads_back(self, target: Hashable, held: Iterable[Hashable]) -> bool:
        """True when the target waits, directly or through others, for one of those who are held."""
        with self._changing:
            return self._leads_back(target, frozenset(held))

    def enter(self, held: Iterable[Hashable], target: Hashable) -> bool:
        """Note that all who are held wait for the target; False, and nothing is noted, when it waits for one of them."""
        held = frozenset(held)
        with self._changing:
            if self._leads_back(target, held):
                return False
            for each in held - {target}:
                self._edges.setdefault(each, []).append(target)
        return True

    def leave(self, held: Iterable[Hashable], target: Hashable) -> None:
        """The wait is over."""
        with self._changing:
            for each in frozenset(held) - {target}:
                targets = self._edges[each]
                targets.remove(target)
                if not targets:
                    del self._edges[each]

    def _leads_back(self, target: Hashable, held: frozenset[Hashable]) -> bool:
        seen: set[Hashable] = set()
        ahead = [target]
        while ahead:
            here = ahead.pop()
            for further in self._edges.get(here, ()):
                if further in held:
                    return True
                if further not in seen:
                    seen.add(further)
                    ahead.append(further)
        return False
