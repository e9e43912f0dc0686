"""What handlers can reach besides their bus during a simulation: clocks, chance, variables of modules, and input and output.

`time.time`, `time.monotonic` and `time.sleep` follow the simulated time, `random` and `os.urandom` follow the seed. Names that a
module has imported from there (`from time import time`) and `datetime.now` are not replaced. Sockets, threads and other processes
are refused; files that are opened for writing, and databases, are named.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from io import StringIO
from random import Random
from threading import Thread
from typing import Any

from graphbus_core.isolation import attempt
from graphbus_core.simulation.loop import SimulationLoop

_REFUSED = {
    "socket.connect": "a socket",
    "socket.bind": "a socket",
    "socket.getaddrinfo": "a socket",
    "subprocess.Popen": "another process",
    "os.system": "another process",
    "os.fork": "another process",
    "os.posix_spawn": "another process",
}
_NAMED = {"open": "a file", "sqlite3.connect": "a database"}
_MUTABLE = (list, dict, set, deque, bytearray)
_PLAIN = (int, float, str, bytes, bool, tuple, frozenset, type(None))


class _Nowhere(StringIO):
    """Takes what handlers print, and forgets it."""

    def write(self, text: str) -> int:
        return len(text)


class _Watch:
    """Whom the audit hook reports to; Python cannot remove a hook, so it stays and does nothing between simulations."""

    loop: SimulationLoop | None = None
    is_installed = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    loop = _Watch.loop
    if loop is None or (event not in _REFUSED and event not in _NAMED):
        return
    handler = loop.here.running_handler()
    if not handler:
        return
    if event in _REFUSED:
        loop.refuse(_REFUSED[event])
    mode = arguments[1] if event == "open" else "w"
    if isinstance(mode, str) and not set(mode).isdisjoint("wax+"):
        loop.named.setdefault(f"{handler} uses {_NAMED[event]} ({arguments[0]})")


@contextmanager
def controlled_surroundings(loop: SimulationLoop, chance: Random) -> Iterator[None]:
    """Replace clocks and chance while the block runs, and note in `loop.named` what handlers do that cannot be repeated.

    What handlers log and print is dropped: it would be the same thousands of times.
    """
    if not _Watch.is_installed:
        _Watch.is_installed = True
        sys.addaudithook(_audit)
    before, start = (time.time, time.monotonic, time.sleep, os.urandom), Thread.start
    state, level = random.getstate(), logging.root.manager.disable

    def sleep(seconds: float) -> None:
        loop.now += max(0.0, seconds)

    random.seed(chance.getrandbits(64))
    time.time, time.monotonic, time.sleep, os.urandom = loop.time, loop.time, sleep, chance.randbytes  # type: ignore[assignment]  # the same arguments by position
    Thread.start = lambda _thread: loop.refuse("a thread")  # type: ignore[assignment, method-assign]  # Python 3.11 does not audit it
    _Watch.loop = loop
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(_Nowhere()):
            yield
    finally:
        logging.disable(level)
        _Watch.loop = None
        time.time, time.monotonic, time.sleep, os.urandom = before
        Thread.start = start  # type: ignore[method-assign]  # as above
        random.setstate(state)


class ModuleMemory:
    """The variables of modules and classes as they were at the beginning, so that no run and no restart sees those of another.

    Args:
        holders: Modules and classes. Only plain values and containers are kept; what cannot be copied stays as it is.
    """

    def __init__(self, holders: Iterable[Any]) -> None:
        self._kept: list[tuple[Any, str, Any, Any]] = []
        for holder in holders:
            for name, value in vars(holder).items():
                if name.startswith("__") or not isinstance(value, _MUTABLE + _PLAIN):
                    continue
                copied, error = attempt(lambda value=value: deepcopy(value))  # type: ignore[misc]  # its type is inferred as Never
                if error is None:
                    self._kept.append((holder, name, value, copied))

    def restore(self, holders: Iterable[Any] | None = None) -> None:
        """Give the variables of these holders (None: of all) their first values, in the same containers."""
        chosen = None if holders is None else set(map(id, holders))
        for holder, name, value, copied in self._kept:
            if chosen is not None and id(holder) not in chosen:
                continue
            if getattr(holder, name, None) is not value:
                setattr(holder, name, value)
            if isinstance(value, _MUTABLE) and value != copied:
                _refill(value, deepcopy(copied))


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, dict | set):
        container.update(content)
    else:
        container.extend(content)
