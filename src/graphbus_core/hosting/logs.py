"""What agents and the bus log, shown on stderr while a graph runs from the command line. A library configures nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from graphbus_core.log import before_first_line, forget


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object:
        """Take a line."""

    def flush(self) -> object:
        """Keep nothing back."""


@contextmanager
def show_logs(stream: Stream | None = None, *, is_brief: bool = False) -> Iterator[None]:
    """Write the log of `graphbus.*` from INFO on to stderr or the stream; afterwards logging is as it was.

    A level that a module of the project has set counts.

    Args:
        stream: Where lines go.
        is_brief: Failures without their tracebacks, unless somebody sets the level to DEBUG.
    """
    lines = _Lines(stream or sys.stderr, is_brief=is_brief)
    before_first_line(lines.show)
    try:
        yield
    finally:
        if not forget(lines.show):
            lines.hide()


class _Lines:
    """The handler that writes the lines, made when there is a first one."""

    def __init__(self, stream: Stream, *, is_brief: bool) -> None:
        self._stream = stream
        self._is_brief = is_brief
        self._is_late = "logging" not in sys.modules

    def show(self) -> None:
        import logging

        from graphbus_core.hosting.lines import BriefLine, Line

        logger = self._logger = logging.getLogger("graphbus")
        self._before = logger.level, logger.propagate
        self._handler = logging.StreamHandler(self._stream)
        self._handler.setFormatter(BriefLine() if self._is_brief else Line())
        logger.addHandler(self._handler)
        if not (self._is_late and logger.level):  # who has loaded `logging` since may have set one
            logger.setLevel(logging.INFO)
        logger.propagate = False

    def hide(self) -> None:
        self._logger.removeHandler(self._handler)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)
