"""State: what an agent keeps from one event to the next, and from one run to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import MutableMapping
from contextlib import AbstractContextManager

from graphbus_core.schema.json import Json


class AgentState(MutableMapping[str, Json]):
    """The state of one agent: a mapping of text to JSON values that outlives the process.

    What is read is a copy: to change a value, set it again. Every change is written at once, or with the others of its
    `transaction`. Each key has a version: a number that is another after every change, and 0 for a key that is not there.
    """

    @abstractmethod
    def version(self, key: str) -> int:
        """Return the version of a key."""

    @abstractmethod
    def read(self, key: str) -> tuple[Json, int]:
        """Return the value of a key and its version, both of one moment; None and 0 for a key that is not there."""

    @abstractmethod
    def update_if(self, key: str, value: Json, version: int) -> bool:
        """Set the value if the key still has this version (0: it is not there); False, and no change, if it has another."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Write what is set and deleted inside of the `with` statement at its end: all of it, or nothing after an exception.

        Inside of it, what was set is read back. It may go on over an `await`; a transaction in another one is part of that.

        Raises:
            RunError: GBE646 at the end, when somebody else has changed what was read inside; nothing is written then.
        """
