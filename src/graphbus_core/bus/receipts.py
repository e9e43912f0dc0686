"""Receipts: what becomes of an event that somebody else delivers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

import msgspec

from graphbus_core.errors import DeadlockError
from graphbus_core.model.messages import Event


class HandlerOutcome(msgspec.Struct, frozen=True):
    """What one handler gave for an event: the value that it returned, or the exception that nothing more was tried after."""

    handler: str
    value: Any = None
    error: Exception | None = None


class Receipt:
    """Follows one event and everything that comes of it, further attempts included. Safe from any thread.

    Attributes:
        event: The event.
    """

    __slots__ = ("_done", "_is_waiting_forbidden", "_outcomes", "_pending", "_raised", "_then", "_untold", "event")

    def __init__(self, event: Event, is_waiting_forbidden: Callable[[], bool] = lambda: False) -> None:
        self.event = event
        self._is_waiting_forbidden = is_waiting_forbidden
        self._pending: list[None] = [None]  # one for each thing to be done; to add or take one needs no lock
        self._untold = [None]  # whoever takes this one tells that all is done
        self._outcomes: list[HandlerOutcome] = []
        self._raised: Exception | None = None
        self._done = Lock()  # held until all is done: a tenth of the price of an Event
        self._done.acquire()
        self._then: deque[Callable[[], None]] = deque()

    @property
    def is_done(self) -> bool:
        """True when the event and everything that came of it is delivered, or has become a dead letter."""
        return not self._pending

    @property
    def results(self) -> tuple[HandlerOutcome, ...]:
        """What the handlers of the event have given so far, in the order in which they ended."""
        return tuple(self._outcomes)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all is done; False when it was not done in time.

        Raises:
            DeadlockError: GBE634 inside a handler, which would keep from happening what it waits for.
            Exception: On a bus with `on_error="raise"`, the first that a handler has raised.
        """
        if self._pending and self._is_waiting_forbidden():
            raise DeadlockError("GBE634", topic=self.event.topic)
        if not self._done.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            return False
        self._done.release()
        self.raise_what_was_raised()
        return True

    def raise_what_was_raised(self) -> None:
        """Raise the first Exception that a handler has raised, on a bus that lets it go up."""
        if self._raised is not None:
            raise self._raised

    # --- for the bus ---

    def hold(self) -> None:
        """One more thing has to be done."""
        self._pending.append(None)

    def release(self) -> bool:
        """One thing is done; True when it was the last."""
        pending = self._pending
        try:
            del pending[-1]
        except IndexError:  # it has been ended before
            return False
        return not pending and self._tell()

    def end(self) -> None:
        """Nothing more will be done."""
        self._pending.clear()
        self._tell()

    def _tell(self) -> bool:
        try:
            del self._untold[0]
        except IndexError:
            return False
        self._done.release()
        self._call_those_who_wait()
        return True

    def call_when_done(self, tell: Callable[[], None]) -> None:
        """Have a function called when all is done, on whatever thread; at once if it is."""
        self._then.append(tell)
        if not self._pending:
            self._call_those_who_wait()

    def _call_those_who_wait(self) -> None:
        while self._then:
            try:
                tell = self._then.popleft()
            except IndexError:  # another thread was quicker
                return
            tell()

    def note(self, handler: str, value: object) -> None:
        """A handler of the event has returned."""
        self._outcomes.append(HandlerOutcome(handler, value))

    def note_failure(self, event: Event, handler: str, error: Exception, *, is_raised: bool) -> None:
        """A handler has failed for good, of the event itself or of one that came of it."""
        if event is self.event:
            self._outcomes.append(HandlerOutcome(handler, error=error))
        if is_raised and self._raised is None:
            self._raised = error


class Receipts:
    """The receipts of a bus that are not done.

    Attributes:
        followed: Them, by the identity of their events, which they keep alive.
    """

    __slots__ = ("followed",)

    def __init__(self) -> None:
        self.followed: dict[int, Receipt] = {}

    def open(self, receipt: Receipt) -> None:
        """Follow an event from now on."""
        self.followed[id(receipt.event)] = receipt

    def follow(self, event: Event) -> Receipt:
        """Give the receipt of an event that has no cause; it is opened when first asked for, by whatever thread."""
        return self.followed.setdefault(id(event), Receipt(event))

    def of(self, event: Event) -> Receipt | None:
        """The receipt of the tree that the event belongs to."""
        lineage = event._lineage
        root = event if lineage is None or lineage.root is None else lineage.root
        return self.followed.get(id(root))

    def has(self, event: Event) -> bool:
        """True for an event that is followed itself."""
        return id(event) in self.followed

    def note(self, event: Event, handler: str, value: object) -> None:
        """A handler has returned."""
        receipt = self.followed.get(id(event))
        if receipt is not None:
            receipt.note(handler, value)

    def hold(self, event: Event) -> Receipt | None:
        """One more delivery of this event, or its child, has to be made; give the receipt that counts it, if any."""
        receipt = self.of(event)
        if receipt is not None:
            receipt._pending.append(None)
        return receipt

    def release(self, event: Event) -> None:
        """A delivery that was held is made, or will never be."""
        receipt = self.followed.get(id(event.root))
        if receipt is not None and receipt.release():
            self.close(receipt)

    def close(self, receipt: Receipt) -> None:
        """Nothing is left to follow."""
        self.followed.pop(id(receipt.event), None)

    def end(self) -> None:
        """Nothing more will be done: whoever waits for a handler that did not end has waited long enough."""
        while self.followed:
            self.followed.popitem()[1].end()
