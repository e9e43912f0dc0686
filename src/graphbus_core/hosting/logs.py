"""What agents and the bus log, shown on stderr while a graph runs from the command line. A library configures nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_AGENT = "graphbus.agent."


class _Line(logging.Formatter):
    """`[Agent] message` for agents; level and message, with the traceback of a failure, for the rest."""

    def format(self, record: logging.LogRecord) -> str:
        is_agent = record.name.startswith(_AGENT)
        label = record.name.removeprefix(_AGENT) if is_agent else record.levelname
        return f"[{label}] {super().format(record)}"


@contextmanager
def show_logs() -> Iterator[None]:
    """Write the log of `graphbus.*` from INFO on to stderr; afterwards logging is as it was."""
    logger = logging.getLogger("graphbus")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    before, propagated = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagated
