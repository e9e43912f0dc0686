"""The right to drain a bus: a token that one thread at a time has taken."""

from __future__ import annotations


class Right:
    """Has a token while nobody drains; without one from the beginning, nobody ever may.

    `del right.token` takes it, and raises AttributeError when somebody has it. `right.token = []` gives back another one: see
    `Drainer._is_at_rest`. Each is one step, so that no other thread comes in between, and no signal before the `try` in the
    next line. A list that holds the token would do the same for twice the price, some twenty nanoseconds more.
    """

    __slots__ = ("token",)

    token: object

    @property
    def present(self) -> object:
        """The token; None while somebody has it."""
        return getattr(self, "token", None)

    @property
    def is_free(self) -> bool:
        """Nobody drains."""
        return hasattr(self, "token")
