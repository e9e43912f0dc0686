"""The loggers of GraphBus. `logging` is loaded with the first line: it takes a sixth of the time in which a graph is ready."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

INFO = 20
"""The level of that name in `logging`."""

_set_ups: list[Callable[[], None]] = []
_setting_up = RLock()


class Log:
    """A logger by its name. Lines bear the place of who writes them."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def warning(self, message: str, *arguments: object) -> None:
        """Say that something is not as it should be."""
        self._logger().warning(message, *arguments, stacklevel=2)

    def error(self, message: str, *arguments: object, exc_info: object = None) -> None:
        """Say that something has failed."""
        self._logger().error(message, *arguments, exc_info=exc_info, stacklevel=2)  # type: ignore[arg-type]

    def log(self, level: int, message: object, *arguments: object, stacklevel: int = 1) -> None:
        """Write a line of any level; its place is that of the caller, or so many above."""
        self._logger().log(level, message, *arguments, stacklevel=stacklevel + 1)

    def _logger(self) -> Logger:
        from logging import getLogger

        set_up_if_loaded()
        return getLogger(self._name)


def before_first_line(set_up: Callable[[], None]) -> None:
    """Have something done before the first line is written, at once if `logging` is there already."""
    with _setting_up:
        _set_ups.append(set_up)
    set_up_if_loaded()


def forget(set_up: Callable[[], None]) -> bool:
    """Do it no more; False when it is done."""
    with _setting_up:
        if set_up not in _set_ups:
            return False
        _set_ups.remove(set_up)
        return True


def set_up_if_loaded() -> None:
    """Do what is to be done first, if anybody has loaded `logging`: modules of a project may log under our names."""
    if _set_ups and "logging" in sys.modules:
        with _setting_up:  # another thread waits until it is done
            while _set_ups:
                _set_ups[0]()
                del _set_ups[0]
