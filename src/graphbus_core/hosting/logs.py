"""Shows the log of agents and bus on stderr while a graph runs from the command line; otherwise GraphBus leaves logging alone."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from graphbus_core.errors.legible import escape_unprintable

_AGENT = "graphbus.agent."


class _LogFormatter(logging.Formatter):
    """Formats a record of an agent as `[Agent] message`, any other as `[LEVEL] message`, followed by a traceback if it has one.

    Args:
        is_brief: Leave tracebacks out unless the level is DEBUG, so that they do not flood an interactive prompt.
    """

    def __init__(self, *, is_brief: bool) -> None:
        super().__init__()
        self._is_brief = is_brief

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record with its label."""
        if self._is_brief and record.exc_info and not logging.getLogger("graphbus").isEnabledFor(logging.DEBUG):
            record = copy(record)
            record.exc_info = record.exc_text = None
        is_agent = record.name.startswith(_AGENT)
        label = record.name.removeprefix(_AGENT) if is_agent else record.levelname
        return f"[{label}] {super().format(record)}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        """Return the traceback with control characters escaped: messages of exceptions often quote external text."""
        return escape_unprintable(super().formatException(ei))


@contextmanager
def show_logs(stream: Any = None, *, is_brief: bool = False) -> Iterator[None]:
    """Within the block, write records of `graphbus.*` from INFO on to a stream; restore the logging settings afterwards.

    A level that the project sets on a logger in the meantime takes effect.

    Args:
        stream: An object with `write` and `flush`; None: stderr.
        is_brief: Leave tracebacks out unless the level is DEBUG.
    """
    logger = logging.getLogger("graphbus")
    before = logger.level, logger.propagate
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_LogFormatter(is_brief=is_brief))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        level, logger.propagate = before
        logger.setLevel(level)
