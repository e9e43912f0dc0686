"""Failed deliveries: each gets a further attempt or becomes a dead letter, as `outcomes` decides; receipts note the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import cast

from graphbus_core.bus.core import DEAD, RETRYING, RUNNING, Core, Delivery, DeliveryRound, QueueEntry
from graphbus_core.bus.dead_letters import DeadLetters, describe_failure, error_line
from graphbus_core.bus.outcomes import Dead, Retry, decide_outcome
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.model.messages import Event

_CLOSED = "the bus was closed before it was delivered"
_UNFINISHED = "the bus was closed before the handler returned; what it had done by then is not undone"


class Failures:
    """Handles each failure once, in the same way for all handlers and attempts. Safe from any thread.

    Attributes:
        is_raised: The bus has `on_error="raise"`: the exception is raised to the publisher as well.
        deliver_due: Called when a planned attempt was queued because its time has come.
        is_served: A dispatcher thread delivers; exceptions are not raised there.
    """

    def __init__(self, core: Core, letters: DeadLetters, clock: Clock, *, is_raised: bool) -> None:
        self._core = core
        self._letters = letters
        self._clock = clock
        self._planning = Lock()  # so that a close does not miss an attempt that is just being planned
        self._dead_lettering = Lock()  # so that a close and a failing handler do not make two letters of one delivery
        self.is_raised = is_raised
        self.is_served = False
        self.deliver_due: Callable[[], None] = lambda: None

    # --- failures ---

    def handle_failure_in_place(self, round_: DeliveryRound, error: Exception) -> None:
        """Handle an exception of the handler that the round is calling in place: plan a further attempt or make a dead letter.

        With `on_error="raise"` the exception of the last attempt is raised again, unless a dispatcher delivers.
        """
        event, subscription = cast("Event", round_.event), cast("LiveSubscription", round_.at)
        with self._dead_lettering:
            round_.failing = event, subscription
            is_dead_lettered = round_.is_dead_lettered
        if is_dead_lettered:  # the close did not wait for this handler: there is a dead letter already, so only log
            self._letters.record_failure(
                event, subscription.name, describe_failure(error), attempt=round_.attempt, is_dead=True
            )
            return
        delivery = round_.again
        if delivery is None:
            delivery = Delivery(subscription.call, subscription.lane, event, subscription)
            delivery.state = RUNNING
        if self.handle_failure(delivery, error):
            raise error

    def handle_failure(self, delivery: Delivery, error: Exception) -> bool:
        """Plan a further attempt for a delivery whose handler raised, or make it a dead letter; log it and count it as failed.

        Returns:
            True if the caller must raise the exception: that of the last attempt, if `is_raised` and not `is_served`.
        """
        event, subscription, attempt = delivery.event, delivery.subscription, delivery.attempt
        now = self._clock.monotonic()
        outcome = decide_outcome(subscription.policy, attempt, error, now)
        subscription.failed += 1
        if isinstance(outcome, Retry) and self._plan_retry(delivery, error, outcome, outcome.at - now):
            return False
        failure = describe_failure(error)
        self._letters.record_failure(event, subscription.name, failure, attempt=attempt, failed_at=delivery.failed_at)
        self._core.finish(delivery, outcome if isinstance(outcome, Dead) else Dead("exhausted"))
        receipt = self._core.receipts.of(event) if self._core.receipts.followed else None
        if receipt is not None:
            receipt.note_failure(event, subscription.name, error, is_raised=self.is_raised)
        return self.is_raised and not self.is_served

    def _plan_retry(self, delivery: Delivery, error: Exception, outcome: Retry, delay_s: float) -> bool:
        """Plan a further attempt and log it; False if none was planned, because too many are or the bus is closed.

        If the bus closes just after the attempt was planned, this returns True and logs nothing.
        """
        event, subscription = delivery.event, delivery.subscription
        error_text = error_line(error)
        core = self._core
        with self._planning:
            is_full = len(core.retrying) >= core.capacity
            if not is_full and not core.is_closed:
                failed_at = self._clock.time() if delivery.failed_at is None else delivery.failed_at
                again = delivery.next_attempt(error_text, failed_at, core.receipts.hold(event))
                core.schedule_retry(
                    again, outcome, self._clock.after(delay_s, lambda: self._queue_due_retry(again)).cancel
                )
                delivery.move(RETRYING)
                core.under_way.pop(delivery, None)
        if core.is_closed:  # if the attempt was planned before the close, the close has made it a dead letter
            return delivery.state is RETRYING
        if is_full:
            self._letters.log_not_retried(event, subscription.name, core.capacity)
            return False
        attempts = subscription.policy.retries + 1
        self._letters.log_retry(
            event, subscription.name, error_text, attempt=delivery.attempt, of=attempts, delay_s=delay_s
        )
        return True

    def _queue_due_retry(self, delivery: Delivery) -> None:
        """Queue an attempt whose time has come, and call `deliver_due`; nothing happens if the bus was closed meanwhile."""
        with self._planning:
            is_due = self._core.queue_due_retry(delivery)
        if is_due:
            self.deliver_due()

    def falls_due_by(self, deadline: float) -> bool:
        """True if a planned attempt is due by the deadline; False with the clock of a test, which only the test advances."""
        due = self._core.next_due() if isinstance(self._clock, SystemClock) else None
        return due is not None and due <= deadline

    def drop_retry(self, delivery: Delivery) -> None:
        """Make a planned attempt a dead letter because its handler was unsubscribed."""
        name, attempt = delivery.subscription.name, delivery.attempt
        why = f"{name} was unsubscribed before attempt {attempt}"
        since = delivery.failed_at
        self._letters.record_undelivered(delivery.event, "gone", why, name, attempts=attempt - 1, failed_at=since)
        delivery.move(DEAD)
        self._core.receipts.release(delivery.event)

    # --- the end ---

    def drop_at_close(
        self, event: Event, name: str, attempts: int, *, has_begun: bool = False, failed_at: float | None = None
    ) -> None:
        """Make an event a dead letter because the bus was closed before the handler `name` (empty: any) has handled it.

        `attempts` counts the calls of the handler; with `has_begun`, the last one has not returned.
        """
        why = _UNFINISHED if has_begun else _CLOSED
        self._letters.record_undelivered(event, "closed", why, name, attempts=attempts, failed_at=failed_at)

    def dead_letter_rest(self, *, is_abandoned: bool, left_in_lanes: Callable[[], Iterable[Delivery]]) -> None:
        """Make dead letters of all that is left in the round, the queue, the planned attempts and the lanes; from any thread.

        Args:
            is_abandoned: A handler in place has not returned, and the close does not wait for it any longer.
            left_in_lanes: Empties the lanes, and returns the deliveries that were in them.
        """
        with self._letters.batched():
            self._dead_letter_round(is_abandoned=is_abandoned)
            for entry in self._core.left_in_queue():
                self._dead_letter_entry(entry)
            with self._planning:
                self._core.close()
                waiting = list(self._core.left_to_retry())
            for each in waiting:
                text = f"the bus was closed before attempt {each.attempt}; the last one failed: {each.last_error}"
                name = each.subscription.name
                attempts, since = each.attempt - 1, each.failed_at
                self._letters.record_undelivered(each.event, "closed", text, name, attempts=attempts, failed_at=since)
                self._mark_dead(each)
            for each in left_in_lanes():
                attempts = each.attempt if each.has_begun else each.attempt - 1
                name = each.subscription.name
                self.drop_at_close(each.event, name, attempts, has_begun=each.has_begun, failed_at=each.failed_at)
                self._mark_dead(each)

    def _mark_dead(self, delivery: Delivery) -> None:
        """Set the state of a delivery to DEAD, and count it as ended in its receipt."""
        delivery.move(DEAD)
        self._core.receipts.release(delivery.event)

    def _dead_letter_entry(self, entry: QueueEntry) -> None:
        """Make an entry of the queue a dead letter: an event for all handlers, a further attempt for its one. Give up a job."""
        if isinstance(entry, Event):
            self.drop_at_close(entry, "", 0)
            self._core.receipts.release(entry)
        elif isinstance(entry, Delivery):
            self.drop_at_close(entry.event, entry.subscription.name, entry.attempt - 1, failed_at=entry.failed_at)
            self._mark_dead(entry)
        else:
            entry.give_up()

    def _dead_letter_round(self, *, is_abandoned: bool) -> None:
        """Make dead letters of the rest of the current round, if there is one: a letter for each handler after the current one.

        If the current handler does not return (`is_abandoned`), it gets a letter as well, unless it has just failed or runs on
        the loop. The abandoned thread keeps this round, and the core gets a new one.
        """
        round_ = self._core.round
        with self._dead_lettering:
            event, at = round_.event, round_.at
            if event is None or round_.is_dead_lettered:
                return
            round_.is_dead_lettered = True
            is_unfinished = is_abandoned and round_.failing != (event, at)
        routes, attempt = self._core.routes, round_.attempt
        routes.forget_topic(event.topic)  # the pairs are changed below, and may belong to a dispatch that others use
        is_after_current = at is None
        for index, (each, _) in enumerate(round_.pairs):
            if is_after_current:
                round_.pairs[index] = each, routes.skip(each)
                self.drop_at_close(event, each.name, attempt - 1)
            elif each is at:
                is_after_current = True
                if is_unfinished and not routes.is_async(each):
                    self.drop_at_close(event, each.name, attempt, has_begun=True)
        if is_abandoned:
            self._core.round = DeliveryRound()
        else:
            round_.event = None
            self._core.receipts.release(event)
