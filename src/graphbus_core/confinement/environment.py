"""The environment of a process without the variables that nobody has declared."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from graphbus_core.confinement import kernel

KEPT = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TMPDIR", "PYTHON*", "GRAPHBUS_CONFIG"),
    *("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
)
"""What Python, its time zone, the terminal and GraphBus read, and no secret is kept in."""


def withhold(declared: Collection[str], refuse: Callable[[str], object]) -> None:
    """Take every other variable out of this process.

    Args:
        declared: Names, or beginnings of names with `*` at their end.
        refuse: Called with the name of a variable that was there, whenever somebody asks for it; may raise.
    """
    taken = frozenset(name for name in os.environ if not any(_fits(name, each) for each in (*KEPT, *declared)))
    kernel.forget_variables(taken)
    kind = type(os.environ)

    class Environment(kind):  # type: ignore[valid-type, misc]
        """Tells whoever asks for a variable that was taken away."""

        def __getitem__(self, name: str) -> str:
            try:
                return super().__getitem__(name)  # type: ignore[no-any-return]
            except KeyError:
                if name in taken:
                    refuse(name)
                raise

    os.environ.__class__ = Environment


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
