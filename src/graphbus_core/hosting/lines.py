"""How a line of the log looks on stderr."""

from __future__ import annotations

import logging
from copy import copy
from typing import Any

from graphbus_core.errors.legible import legible

_AGENT = "graphbus.agent."


class Line(logging.Formatter):
    """`[Agent] message` for agents; level and message, with the traceback of a failure, for the rest."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with who says it."""
        is_agent = record.name.startswith(_AGENT)
        label = record.name.removeprefix(_AGENT) if is_agent else record.levelname
        return f"[{label}] {super().format(record)}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        """The traceback; what an exception says is often text from outside."""
        return legible(super().formatException(ei))


class BriefLine(Line):
    """The same without the traceback, as long as the level is above DEBUG: for a person who types meanwhile."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and no more than that."""
        if record.exc_info and not logging.getLogger("graphbus").isEnabledFor(logging.DEBUG):
            record = copy(record)
            record.exc_info = record.exc_text = None
        return super().format(record)
