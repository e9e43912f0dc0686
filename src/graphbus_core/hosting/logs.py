"""What agents and the bus log, shown on stderr while a graph runs from the command line. A library configures nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from graphbus_core.errors.legible import escape_unprintable

_AGENT = "graphbus.agent."


class _Line(logging.Formatter):
    """`[Agent] message` for agents; level and message for the rest, with the traceback of a failure.

    Args:
        is_brief: No traceback, as long as the level is above DEBUG: for a person who types meanwhile.
    """

    def __init__(self, *, is_brief: bool) -> None:
        super().__init__()
        self._is_brief = is_brief

    def format(self, record: logging.LogRecord) -> str:
        """The line, with who says it."""
        if self._is_brief and record.exc_info and not logging.getLogger("graphbus").isEnabledFor(logging.DEBUG):
            record = copy(record)
            record.exc_info = record.exc_text = None
        is_agent = record.name.startswith(_AGENT)
        label = record.name.removeprefix(_AGENT) if is_agent else record.levelname
        return f"[{label}] {super().format(record)}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        """The traceback; what an exception says is often text from outside."""
        return escape_unprintable(super().formatException(ei))


@contextmanager
def show_logs(stream: Any = None, *, is_brief: bool = False) -> Iterator[None]:
    """Write the log of `graphbus.*` from INFO on to stderr or the stream; afterwards logging is as it was.

    A level that a module of the project sets meanwhile counts.

    Args:
        stream: Where lines go: an object with `write` and `flush`.
        is_brief: Failures without their tracebacks, unless somebody sets the level to DEBUG.
    """
    logger = logging.getLogger("graphbus")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Line(is_brief=is_brief))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate = before
        logger.setLevel(level)
