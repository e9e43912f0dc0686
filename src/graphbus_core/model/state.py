"""AgentState: the values that an agent keeps from one event to the next, and from one run to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import MutableMapping
from contextlib import AbstractContextManager

from graphbus_core.schema.json import Json


class AgentState(MutableMapping[str, Json]):
    """The state of one agent: a mapping of text to JSON values that outlives the process.

    Reading returns a copy: to change a value, set it again. Every change is written at once, or at the end of its `transaction`.
    Each key has a version: a number that differs after every change, and is 0 for a missing key.
    """

    @abstractmethod
    def version(self, key: str) -> int:
        """Return the version of a key."""

    @abstractmethod
    def read(self, key: str) -> tuple[Json, int]:
        """Return the value and the version of a key, read together; None and 0 for a missing key."""

    @abstractmethod
    def update_if(self, key: str, value: Json, version: int) -> bool:
        """Set the value if the key still has this version (0 for a missing key), and return True; else return False."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Write all changes inside of the `with` statement at its end, or none of them after an exception.

        Reading inside of it returns the new values. It may contain `await`; an inner transaction is part of the outer one.

        Raises:
            RunError: GBE646 at the end, if a value that was read inside has been changed elsewhere; then nothing is written.
        """
