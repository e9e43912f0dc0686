"""Changes: lets those who watch an engine in this process wait for the next change of what may be claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Changes:
    """Counts the changes of an engine, and wakes its watchers, in the order in which they began to wait.

    Args:
        poll: Looks for changes that nobody has noted, such as a retry that has become due, and notes them; returns after how many
            seconds to look again, None: never.
    """

    def __init__(self, poll: Callable[[], float | None]) -> None:
        self.number = 0
        self.poll = poll
        self._agents: dict[str, int] = {}  # the number of the last change that concerned this agent alone
        self._all = 0  # and of the last one that may have concerned any
        self._waiting: list[asyncio.Future[None]] = []

    def note(self, *agents: str) -> None:
        """Wake all watchers: a delivery of these agents, or of any if none is named, may have become due."""
        self.note_later(*agents)
        self.look_again()

    def note_later(self, *agents: str) -> None:
        """Wake all watchers when they look again by themselves, for which `poll` must have given them a time."""
        self.number += 1
        self._agents |= dict.fromkeys(agents, self.number)
        if not agents:
            self._all = self.number

    def since(self, number: int) -> Collection[str]:
        """Return the agents that the changes after this one concerned; empty: any."""
        return () if number < self._all else [agent for agent, at in self._agents.items() if at > number]

    def look_again(self) -> None:
        """Let all watchers call `poll` again, because something may become due earlier than they know."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            _wake(future)

    def watch(self) -> AsyncIterator[Collection[str]]:
        """Return what `Ledger.watch` returns. Nothing must be closed; a cancelled wait may be repeated."""
        return _Watcher(self)

    async def wait(self, timeout_s: float | None) -> None:
        """Return at the next change, or after the timeout."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, future)
        self._waiting.append(future)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if future in self._waiting:
                self._waiting.remove(future)


class _Watcher:
    """Yields once for all changes since the last time; the first time at once."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._seen = -1

    def __aiter__(self) -> AsyncIterator[Collection[str]]:
        return self

    async def __anext__(self) -> Collection[str]:
        while True:
            timeout_s = self._changes.poll()
            seen, self._seen = self._seen, self._changes.number
            if seen != self._seen:
                return self._changes.since(seen)
            await self._changes.wait(timeout_s)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
