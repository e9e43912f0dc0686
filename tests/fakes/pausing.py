"""A thread that stops at the n-th step of some code, so that a test can try every place where others come in between."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from types import FrameType
from typing import Any

from tests.patience import PATIENCE_S

_MOMENT_S = 0.0002

# Python 3.12 tells of opcodes only who begins to trace after some frame has wished for them.
sys._getframe().f_trace_opcodes = True


class Pausing:
    """Counts the steps of the interpreter in files below a folder, and stops a thread before one of them until `go_on`.

    Args:
        folder: Of the code whose steps count.
        step: Which one it stops before, from 1.
        kind: `opcode`, or `line` for code whose lines are each done in one go.
    """

    def __init__(self, folder: str, step: int, kind: str = "opcode") -> None:
        self._kind = kind
        self._folder, self._step = folder, step
        self._count = 0
        self.is_there = Event()
        self._may_go_on = Event()
        self.place = ""

    def trace(self, frame: FrameType, _what: str, _value: object) -> Callable[..., Any] | None:
        """To be given to `sys.settrace` on the thread."""
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        frame.f_trace = self._trace_steps  # Python 3.13 takes the next line only from a frame that is traced
        frame.f_trace_opcodes = True
        return self._trace_steps

    def _trace_steps(self, frame: FrameType, what: str, _value: object) -> Callable[..., Any]:
        if what == self._kind and not self.is_there.is_set():
            self._count += 1
            if self._count == self._step:
                self.place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                self.is_there.set()
                self._may_go_on.wait(PATIENCE_S)
        return self._trace_steps

    def thread(self, work: Callable[[], object]) -> Thread:
        """Start a thread that stops there."""

        def run() -> None:
            sys.settrace(self.trace)
            work()

        thread = Thread(target=run, daemon=True)
        thread.start()
        return thread

    def go_on(self) -> None:
        """Let it go on."""
        self._may_go_on.set()


def comes_true(is_so: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    """Look again and again; False when it was not so in time."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_MOMENT_S)
    return True
