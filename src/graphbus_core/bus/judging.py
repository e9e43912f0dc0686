"""What becomes of a delivery: it is done, comes again, or is a dead letter. Whoever follows the event is told."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from graphbus_core.bus.lanes import Delivery
from graphbus_core.bus.ledger import tell
from graphbus_core.bus.queueing import Queueing, Redelivery
from graphbus_core.bus.redelivery import decide
from graphbus_core.bus.retries import Retries, Waiting
from graphbus_core.bus.routing import Subscription
from graphbus_core.clock import SystemClock
from graphbus_core.isolation import Job
from graphbus_core.model.deliveries import Retry
from graphbus_core.model.messages import Event

_CLOSED = "the bus was closed first"
_BEGUN = "the bus was closed before the handler came to its end; what it did until then is done"


class Judging(Queueing):
    """Judges each call of a handler once, in the same way for all handlers and attempts."""

    def _watch(self) -> None:
        """Begin to keep what waits for a further attempt."""
        self._retries = Retries(self._clock, self._enqueue_again, self._deliver_due, self._capacity)
        self._late_error: Exception | None = None
        self._buried: Event | None = None  # was in hand when the grace was over
        self._failing: tuple[Event | None, int] = None, -1  # the last that failed in place, and which handler

    @abstractmethod
    def _deliver_due(self) -> None:
        """Something has fallen due and was queued."""

    def _enqueue_again(self, waiting: Waiting) -> None:
        self._queue.append(Redelivery(waiting.event, waiting.subscription, waiting.attempt))

    def _miss(self, item: Redelivery) -> None:
        """The handler has gone while a further attempt waited: what it could not handle is kept."""
        event, subscription, attempt = item
        since = self._retries.first_failure(event, subscription)
        why = f"{subscription.name} was unsubscribed before attempt {attempt}"
        self._stop(event, "gone", why, subscription.name, attempts=attempt - 1, since=since)

    def _judge(self, event: Event, subscription: Subscription, error: Exception, attempt: int) -> bool:
        """Decide what becomes of an event that a handler could not handle.

        Returns:
            True when the error has to go up nevertheless.
        """
        decision = decide(subscription.policy, attempt, error)
        with self._judging:
            subscription.failed += 1
            if isinstance(decision, Retry) and self._try_again(event, subscription, error, attempt, decision.delay_s):
                return False
            since = self._retries.first_failure(event, subscription) if attempt > 1 else None
            self._ledger.failed(event, subscription.name, error, attempt=attempt, since=since)
        self._retries.forget(event, subscription)
        is_raised = self._on_error == "raise"
        receipt = self._receipts.of(event) if self._followed else None
        if receipt is not None:
            receipt.note_failure(event, subscription.name, error, is_raised=is_raised)
        return is_raised and self._dispatcher is None

    def _try_again(
        self, event: Event, subscription: Subscription, error: Exception, attempt: int, delay_s: float
    ) -> bool:
        told = tell(error)
        if self._followed:
            self._receipts.hold(event)
        if not self._retries.plan(event, subscription, attempt=attempt + 1, delay_s=delay_s, error=told):
            self._receipts.release(event)
            return False
        of = subscription.policy.retries + 1
        self._ledger.retrying(event, subscription.name, told, attempt=attempt, of=of, delay_s=delay_s)
        return True

    def _settle(self, delivery: Delivery) -> None:
        """A delivery on the loop is over."""
        event, subscription, error, receipt = delivery.event, delivery.subscription, delivery.error, delivery.receipt
        if error is not None:
            if not isinstance(error, Exception) or self._judge(event, subscription, error, delivery.attempt):
                self._raised.append(error)
                self._bell.ring()
        else:
            if delivery.attempt > 1:
                self._retries.forget(event, subscription)
            if receipt is not None and receipt.event is event and subscription.is_active:
                receipt.note(subscription.name, delivery.result)
        if receipt is not None and receipt.release():
            self._followed.pop(id(receipt.event), None)

    def _falls_due_by(self, deadline: float) -> bool:
        """True when a further attempt will come in time; the clock of a test does not pass by itself."""
        due = self._retries.next_due() if isinstance(self._clock, SystemClock) else None
        return due is not None and due <= deadline

    # --- the end ---

    def _bury(self) -> None:
        """What was not delivered, or not as often as it should, becomes dead letters. Safe from any thread."""
        with self._ledger.together():
            self._bury_all()
        self._bell.ring()

    def _bury_all(self) -> None:
        self._bury_round()
        for item in self._left_in_queue():
            if isinstance(item, Event):
                if item is not self._buried:
                    self._stop(item, "closed", _CLOSED)
                    self._receipts.release(item)
            elif isinstance(item, Redelivery):
                event, subscription, attempt = item
                since = self._retries.first_failure(event, subscription)
                self._stop(event, "closed", _CLOSED, subscription.name, attempts=attempt - 1, since=since)
                self._retries.forget(event, subscription)
                self._receipts.release(event)
            else:
                item.give_up()
        for waiting, since in self._retries.cancel():
            told = f"the bus was closed before attempt {waiting.attempt}; the last one failed: {waiting.error}"
            name, attempts = waiting.subscription.name, waiting.attempt - 1
            self._stop(waiting.event, "closed", told, name, attempts=attempts, since=since)
            self._receipts.release(waiting.event)
        for delivery in self._lanes.cancel() if self._lanes is not None else ():
            event, subscription = delivery.event, delivery.subscription
            self._retries.forget(event, subscription)
            has_begun = delivery.task is not None
            why, attempts = (_BEGUN, delivery.attempt) if has_begun else (_CLOSED, delivery.attempt - 1)
            self._stop(event, "closed", why, subscription.name, attempts=attempts)
            self._receipts.release(event)

    def _left_in_queue(self) -> Iterator[Event | Job | Redelivery]:
        with suppress(IndexError):  # somebody else may be quicker
            while True:
                yield self._queue.popleft()

    def _bury_round(self) -> None:
        """The event in hand: the handler that does not end is left behind, and those after it are not called any more."""
        event = self._event
        if event is None or event is self._buried:
            return
        with self._judging:
            self._buried = event
            dispatch, position = self._dispatch, self._position
            is_in_hand = self._is_abandoned and self._failing != (event, position)
        self._routes.let_go(event.topic)  # others who publish to the topic are not to miss these handlers
        for index, each in enumerate(dispatch.subscriptions):
            if index > position:
                dispatch.take_out(each, after=position)
            if index > position or (index == position and is_in_hand and not self._routes.is_async(each)):
                self._retries.forget(event, each)
                why, attempts = (_BEGUN, self._attempt) if index == position else (_CLOSED, self._attempt - 1)
                self._stop(event, "closed", why, each.name, attempts=attempts)
        if not self._is_abandoned:
            self._event = None
            self._receipts.release(event)
