"""AgentState: the values that an agent keeps from one event to the next, and from one run to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import MutableMapping
from contextlib import AbstractContextManager

from graphbus_core.schema.json import Json


class AgentState(MutableMapping[str, Json]):
    """The state of one agent: a mapping from text to JSON values, kept on disk when the process ends.

    Reading returns a copy; to change a value, set it again. A change is written at once, or at the end of its `transaction`. Each
    key has a version, a number that changes with every change of its value and is 0 for a missing key.
    """

    @abstractmethod
    def version(self, key: str) -> int:
        """Return the version of a key; 0 for a missing key."""

    @abstractmethod
    def read(self, key: str) -> tuple[Json, int]:
        """Return the value and the version of a key, read together; None and 0 for a missing key."""

    @abstractmethod
    def update_if(self, key: str, value: Json, version: int) -> bool:
        """Set a value if the key still has this version (0 for a missing key). Return whether it was set."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Return a context manager that writes all changes in its block at the end, or none of them after an exception.

        Reading in the block returns the new values. The block may contain `await`. A nested transaction is part of the outer one.

        Raises:
            RunError: GBE646 at the end, a value that was read in the block was changed elsewhere; nothing is written.
        """
