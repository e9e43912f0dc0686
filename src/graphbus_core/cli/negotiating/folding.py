"""Long texts in a terminal: folded to its width, with the following lines under the first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

_LEAST = 20
"""In less room than this, folding makes nothing easier to read."""


def columns() -> int:
    """Give the width of the terminal that stdout is; 0 where it is none, and every line is as long as it is."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def folded(prefix: str, text: str, indent: int, outer: int = 0) -> Iterator[str]:
    """Give a prefix, which may be painted, and a text behind it; all lines but the first are indented.

    Args:
        outer: So many columns will stand before each of the lines.
    """
    from textwrap import wrap

    room = columns() - indent - outer
    lines = [
        part
        for line in text.split("\n")
        for part in (wrap(line, room, break_long_words=False, break_on_hyphens=False) if room >= _LEAST else [line])
        or [""]
    ]
    yield f"{prefix}{lines[0]}"
    yield from (f"{' ' * indent}{line}".rstrip() for line in lines[1:])
