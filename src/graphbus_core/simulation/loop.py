"""An event loop for simulations: no sockets, no threads, and time that jumps to the next timer when nothing else is to do.

Each callback belongs to a node, which stands for a process, or to nobody. The callbacks of one node run in the order in which
they were scheduled, as asyncio promises. Which node goes next is decided by the seed. Callbacks of a node that has crashed never
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, NoReturn

START = 1_767_225_600.0
"""The time at which every simulation begins: the first day of 2026."""


class Process:
    """Whom callbacks belong to.

    Attributes:
        is_dead: Its callbacks never run again.
        held_until: They do not run before this time.
    """

    is_dead = False
    held_until = 0.0

    def running_handler(self) -> str:
        """Return the name of the handler that runs now; empty if none does."""
        return ""


NOBODY = Process()
"""Owns the callbacks that belong to no node."""

_process: ContextVar[Process | None] = ContextVar("graphbus_simulated_process", default=None)


class StuckError(Exception):
    """Nothing can ever run again, but the simulation is not over. Its text names the tasks that wait."""


class RefusedError(Exception):
    """Code has used a thread, a socket or another thing that a simulation cannot control. Its text names it and the handler."""


class SimulationLoop(asyncio.BaseEventLoop):
    """See the head of this module. `asyncio.Runner` and `run_until_complete` work as with any loop.

    Args:
        chance: Decides which node goes next; None: always the one whose callback was scheduled first.
        starts_at: The time of `time` at the beginning.

    Attributes:
        now: Seconds since the epoch.
        here: The node whose callback is running.
        named: What handlers did that a simulation cannot repeat, as sentences.
    """

    def __init__(self, chance: Random | None = None, starts_at: float = START) -> None:
        super().__init__()
        self.now = starts_at
        self.here: Process = NOBODY
        self.named: dict[str, None] = {}
        self._problem: RefusedError | StuckError | None = None
        self._chance = chance
        self._ready: list[tuple[Process, asyncio.Handle]] = []
        self._timers: list[tuple[float, int, Process, asyncio.TimerHandle]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []  # without it, tasks of crashed nodes would be collected at any moment

    def time(self) -> float:
        """Return the time of the simulation."""
        return self.now

    # --- scheduling ---

    def call_soon(  # type: ignore[override]  # typeshed binds the types of `args`
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback for the node that its context belongs to, or else for the one that runs now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((self._owner_of(context), handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heappush(self._timers, (when, self._count, self._owner_of(context), handle))
        return handle

    def _owner_of(self, context: Context | None) -> Process:
        owner = None if context is None else context.get(_process)
        return self.here if owner is None else owner

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers leave the heap when their time comes."""

    def create_task(self, coro: Any, *, process: Process | None = None, **options: Any) -> asyncio.Task[Any]:
        """Create a task that belongs to a node; by default to the one that runs now."""
        context = options.pop("context", None) or copy_context()
        if process is not None or context.get(_process) is None:
            context = context.copy()
            context.run(_process.set, process or self.here)
        task = super().create_task(coro, context=context, **options)
        self._tasks.append(task)
        return task

    # --- running ---

    def _run_once(self) -> None:
        if self._problem is not None:
            raise self._problem
        taken = self._take()
        if taken is None:
            self._advance()
        elif not taken[1].cancelled():
            self.here = taken[0]
            taken[1]._run()
            self.here = NOBODY

    def _take(self) -> tuple[Process, asyncio.Handle] | None:
        """Take out and return the next callback; None if no node has one that may run now."""
        ready, first = self._ready, dict[Process, int]()
        if len(ready) == 1 and not ready[0][0].is_dead and ready[0][0].held_until <= self.now:
            return ready.pop()
        for index, (process, _) in enumerate(ready):
            if process not in first and not process.is_dead and process.held_until <= self.now:
                first[process] = index
        if not first:
            return None
        choices = [*first.values()]
        return ready.pop(choices[0] if self._chance is None else choices[int(self._chance.random() * len(choices))])

    def _advance(self) -> None:
        """Let time pass until the next timer is due or a node that is held may go on; raise StuckError if there is neither."""
        timers = self._timers
        while timers and (timers[0][3].cancelled() or timers[0][2].is_dead):
            heappop(timers)
        self._ready = [each for each in self._ready if not each[0].is_dead]
        times = [process.held_until for process, _ in self._ready] + [each[0] for each in timers[:1]]
        if not times:
            waiting = sorted(asyncio.all_tasks(self), key=lambda each: each.get_name())
            raise StuckError("; ".join(map(_describe_waiting, waiting)) or "no task is left")
        self.now = max(self.now, min(times))
        while timers and timers[0][0] <= self.now:
            self._ready.append(heappop(timers)[2:])

    def end(self) -> None:
        """Drop everything that was left to do, and close the loop; no code of a task runs any more, except its `finally`."""
        for task in self._tasks:
            if task.done():
                _ = task.cancelled() or task.exception()  # otherwise asyncio logs that nobody has asked for it
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # crashed nodes leave tasks behind
            try:
                task.get_coro().close()
            except RuntimeError:  # it awaits in a `finally`
                continue
        self.close()

    # --- what ends it ---

    def fail(self, problem: RefusedError | StuckError) -> None:
        """Raise this at the next step, unless something else is to be raised there."""
        self._problem = self._problem or problem

    def refuse(self, what: str) -> NoReturn:
        """Remember and raise that the running handler has used something that cannot be simulated.

        Raises:
            RefusedError: Always.
        """
        refusal = RefusedError(f"{self.here.running_handler() or 'Code outside of handlers'} uses {what}")
        self.fail(refusal)
        raise refusal

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]  # as above
        """Refuse threads."""
        self.refuse("a thread (`run_in_executor` or `to_thread`)")

    def _write_to_self(self) -> None:
        """Do nothing: no other thread waits to be heard."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there are no sockets."""


def _describe_waiting(task: asyncio.Task[Any]) -> str:
    """Return the name of a task that waits, with its innermost line."""
    frames = task.get_stack()
    where = f" at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return f"{task.get_name()} waits{where}"


def _refuse_io(name: str) -> Callable[..., NoReturn]:
    def refuse(self: SimulationLoop, *_args: Any, **_named: Any) -> NoReturn:
        self.refuse(f"a socket, pipe or process (`{name}`)")

    return refuse


for _name in (
    "add_reader", "add_writer", "add_signal_handler", "connect_read_pipe", "connect_write_pipe", "create_connection",
    "create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo",
    "sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_sendall", "sock_sendto",
    "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(SimulationLoop, _name, _refuse_io(_name))
