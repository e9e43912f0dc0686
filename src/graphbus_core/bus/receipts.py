"""Receipts: from one, a publisher learns when its event was handled by another thread, and what the handlers returned.

A receipt counts the open deliveries of its event and of all events that follow from it. It is done when none is left.
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

    Args:
        event: The event to follow.
        is_waiting_forbidden: Called by `wait`; if it returns True, `wait` raises DeadlockError instead of waiting.
    """

    __slots__ = ("_done", "_is_waiting_forbidden", "_outcomes", "_pending", "_raised", "_then", "_unannounced", "event")

    def __init__(self, event: Event, is_waiting_forbidden: Callable[[], bool] = lambda: False) -> None:
        self.event = event
        self._is_waiting_forbidden = is_waiting_forbidden
        self._pending: list[None] = [None]  # one token for each open delivery; adding or removing one needs no lock
        self._unannounced = [None]  # the thread that removes this token announces the end, so that only one does
        self._outcomes: list[HandlerOutcome] = []
        self._raised: Exception | None = None
        self._done = Lock()  # held until all is done; creating it takes a tenth of the time of a threading.Event
        self._done.acquire()
        self._then: deque[Callable[[], object]] = deque()

    @property
    def is_done(self) -> bool:
        """True when the event and every event that it caused is handled or has become a dead letter."""
        return not self._pending

    @property
    def results(self) -> tuple[HandlerOutcome, ...]:
        """The results of the handlers of the event itself so far, in the order in which the handlers ended."""
        return tuple(self._outcomes)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the receipt is done; False if `timeout_s` passed first. None waits for ever.

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
        """Count one delivery as ended; True if it was the last one. After `end` this does nothing and returns False."""
        pending = self._pending
        try:
            del pending[-1]
        except IndexError:
            return False
        return not pending and self._announce()

    def end(self) -> None:
        """Mark the receipt as done although some deliveries are open: the bus is closed, and they will never end."""
        self._pending.clear()
        self._announce()

    def _announce(self) -> bool:
        """Wake all waiting threads and call the registered functions; False if another thread has done so."""
        try:
            del self._unannounced[0]
        except IndexError:
            return False
        self._done.release()
        self._call_waiting_functions()
        return True

    def call_when_done(self, function: Callable[[], object]) -> None:
        """Call a function once when the receipt is done, on the thread that ends the last delivery; at once if it is done now."""
        self._then.append(function)
        if not self._pending:
            self._call_waiting_functions()

    def _call_waiting_functions(self) -> None:
        """Call the functions that `call_when_done` has registered, each once."""
        while self._then:
            try:
                function = self._then.popleft()
            except IndexError:  # another thread has taken the last one
                return
            function()

    def note(self, handler: str, value: object) -> None:
        """Note what a handler of the event has returned."""
        self._outcomes.append(HandlerOutcome(handler, value))

    def note_failure(self, event: Event, handler: str, error: Exception, *, is_raised: bool) -> None:
        """Note the exception of a handler's last attempt. It appears in `results` only if it handled the event itself.

        Args:
            event: The event that was handled: that of this receipt, or one that it caused.
            is_raised: Let `wait` raise the exception, if no other was noted for this before.
        """
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
        """Return the receipt that counts the deliveries of this event: that of its root. None if there is none."""
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
        """Count one delivery of this event as ended; `hold` has counted it before. Also for one that will never be made."""
        receipt = self.followed.get(id(event.root))
        if receipt is not None and receipt.release():
            self.close(receipt)

    def close(self, receipt: Receipt) -> None:
        """Forget a receipt that is done."""
        self.followed.pop(id(receipt.event), None)

    def end(self) -> None:
        """End and forget all receipts when the bus is closed, so that no thread waits for a handler that does not return."""
        while self.followed:
            self.followed.popitem()[1].end()
