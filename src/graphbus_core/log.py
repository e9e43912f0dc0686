"""The loggers of GraphBus: `Log("graphbus.bus")` is the logger of this name in `logging`."""

from __future__ import annotations

from logging import INFO
from logging import getLogger as Log

__all__ = ["INFO", "Log"]
