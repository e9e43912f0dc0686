"""Receipts: they tell a publisher when an event that another thread delivers is handled, and with what results.

A receipt counts the deliveries of its event and of every event that handlers publish because of it. It is done when none is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

import msgspec

from graphbus_core.errors import DeadlockError
from graphbus_core.model.messages import Event


class HandlerOutcome(msgspec.Struct, frozen=True):
    """The result of one handler for an event: the value that it returned, or the exception of its last attempt."""

    handler: str
    value: Any = None
    error: Exception | None = None


class Receipt:
    """Follows one event and every event that its handlers publish, further attempts included. Safe from any thread.

    Attributes:
        event: The event.
    """

    __slots__ = ("_done", "_is_waiting_forbidden", "_outcomes", "_pending", "_raised", "_then", "_untold", "event")

    def __init__(self, event: Event, is_waiting_forbidden: Callable[[], bool] = lambda: False) -> None:
        self.event = event
        self._is_waiting_forbidden = is_waiting_forbidden
        self._pending: list[None] = [None]  # one token for each open delivery; adding or removing one needs no lock
        self._untold = [None]  # the thread that removes this token announces the end, so that only one does
        self._outcomes: list[HandlerOutcome] = []
        self._raised: Exception | None = None
        self._done = Lock()  # held until all is done; creating it takes a tenth of the time of a threading.Event
        self._done.acquire()
        self._then: deque[Callable[[], object]] = deque()

    @property
    def is_done(self) -> bool:
        """True when the event and every event that came of it is handled or has become a dead letter."""
        return not self._pending

    @property
    def results(self) -> tuple[HandlerOutcome, ...]:
        """The results of the event's handlers so far, in the order in which they ended."""
        return tuple(self._outcomes)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all is done; False if `timeout_s` passed first.

        Raises:
            DeadlockError: GBE634 inside a handler: the bus could not deliver what the handler waits for.
            Exception: On a bus with `on_error="raise"`, the first exception of a handler.
        """
        if self._pending and self._is_waiting_forbidden():
            raise DeadlockError("GBE634", topic=self.event.topic)
        if not self._done.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            return False
        self._done.release()
        self.raise_what_was_raised()
        return True

    def raise_what_was_raised(self) -> None:
        """Raise the first exception of a handler, if the bus has `on_error="raise"`."""
        if self._raised is not None:
            raise self._raised

    # --- for the bus ---

    def hold(self) -> None:
        """Count one more delivery."""
        self._pending.append(None)

    def release(self) -> bool:
        """Count one delivery as ended; True for the last one."""
        pending = self._pending
        try:
            del pending[-1]
        except IndexError:  # `end` was called before
            return False
        return not pending and self._announce()

    def end(self) -> None:
        """Give up: whatever is open will never end."""
        self._pending.clear()
        self._announce()

    def _announce(self) -> bool:
        """Wake all who wait; False if another thread has done so."""
        try:
            del self._untold[0]
        except IndexError:
            return False
        self._done.release()
        self._call_those_who_wait()
        return True

    def call_when_done(self, tell: Callable[[], object]) -> None:
        """Call a function when all is done, on the thread that ends the last delivery; at once if all is done already."""
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
        """Note what a handler of the event has returned."""
        self._outcomes.append(HandlerOutcome(handler, value))

    def note_failure(self, event: Event, handler: str, error: Exception, *, is_raised: bool) -> None:
        """Note the last failure of a handler, for the event itself or for one that came of it."""
        if event is self.event:
            self._outcomes.append(HandlerOutcome(handler, error=error))
        if is_raised and self._raised is None:
            self._raised = error


class Receipts:
    """The open receipts of a bus.

    Attributes:
        followed: `id(event)` -> receipt. The receipt keeps its event alive, so that the id stays unique.
    """

    __slots__ = ("followed",)

    def __init__(self) -> None:
        self.followed: dict[int, Receipt] = {}

    def open(self, receipt: Receipt) -> None:
        """Register a receipt; its event is followed from now on."""
        self.followed[id(receipt.event)] = receipt

    def follow(self, event: Event) -> Receipt:
        """Return the receipt of an event that no handler caused; the first call, on any thread, creates it."""
        return self.followed.setdefault(id(event), Receipt(event))

    def of(self, event: Event) -> Receipt | None:
        """Return the receipt of the event's root, if that is followed."""
        lineage = event._lineage
        root = event if lineage is None or lineage.root is None else lineage.root
        return self.followed.get(id(root))

    def has(self, event: Event) -> bool:
        """True if the event itself is followed, not only its root."""
        return id(event) in self.followed

    def note(self, event: Event, handler: str, value: object) -> None:
        """Note in the receipt of the event, if any, what a handler has returned."""
        receipt = self.followed.get(id(event))
        if receipt is not None:
            receipt.note(handler, value)

    def hold(self, event: Event) -> Receipt | None:
        """Count one more delivery of this event, and return the receipt that counts it, if any."""
        receipt = self.of(event)
        if receipt is not None:
            receipt._pending.append(None)
        return receipt

    def release(self, event: Event) -> None:
        """Count a delivery that `hold` has counted as ended, or as one that will never be made."""
        receipt = self.followed.get(id(event.root))
        if receipt is not None and receipt.release():
            self.close(receipt)

    def close(self, receipt: Receipt) -> None:
        """Forget a receipt that is done."""
        self.followed.pop(id(receipt.event), None)

    def end(self) -> None:
        """End all receipts when the bus is closed, so that no thread waits for a handler that does not return."""
        while self.followed:
            self.followed.popitem()[1].end()
