"""What a debugger and the terminal that it has say to each other."""

from __future__ import annotations

from typing import Protocol


class Held(Protocol):
    """A terminal that somebody has.

    Attributes:
        asked: What was written before the line that is waited for; empty while none is.
    """

    asked: str
