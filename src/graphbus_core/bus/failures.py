"""What becomes of a delivery that has failed: it comes again, or is a dead letter. Whoever follows the event is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import cast

from graphbus_core.bus.core import DEAD, RETRYING, RUNNING, Core, Delivery, DeliveryRound, QueueEntry
from graphbus_core.bus.dead_letters import DeadLetters, error_line
from graphbus_core.bus.outcomes import Dead, Retry, decide_outcome
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.model.messages import Event

_CLOSED = "the bus was closed first"
_BEGUN = "the bus was closed before the handler came to its end; what it did until then is done"


class Failures:
    """Judges each failure once, in the same way for all handlers and attempts. Safe from any thread.

    Attributes:
        is_raised: `on_error="raise"`: an exception goes up as well.
        deliver_due: Called when a further attempt was queued because its time has come.
        is_served: One thread delivers, and no exception goes up to it.
    """

    def __init__(self, core: Core, letters: DeadLetters, clock: Clock, *, is_raised: bool) -> None:
        self._core = core
        self._letters = letters
        self._clock = clock
        self._planning = Lock()
        self._dead_lettering = Lock()
        self.is_raised = is_raised
        self.is_served = False
        self.deliver_due: Callable[[], None] = lambda: None

    # --- judging ---

    def handle_failure_in_place(self, round_: DeliveryRound, error: Exception) -> None:
        """A handler that was called in place has raised."""
        event, subscription = cast("Event", round_.event), cast("LiveSubscription", round_.at)
        with self._dead_lettering:
            round_.failing = event, subscription
            is_dead_lettered = round_.is_dead_lettered
        if is_dead_lettered:
            self._letters.record_failure(event, subscription.name, error, attempt=round_.attempt, is_dead=True)
            return
        delivery = round_.again
        if delivery is None:
            delivery = Delivery(subscription.call, subscription.lane, event, subscription)
            delivery.state = RUNNING
        if self.handle_failure(delivery, error):
            raise error

    def handle_failure(self, delivery: Delivery, error: Exception) -> bool:
        """Decide what becomes of a delivery whose handler has raised.

        Returns:
            True when the error has to go up nevertheless.
        """
        event, subscription, attempt = delivery.event, delivery.subscription, delivery.attempt
        now = self._clock.monotonic()
        outcome = decide_outcome(subscription.policy, attempt, error, now)
        subscription.failed += 1
        if isinstance(outcome, Retry) and self._plan(delivery, error, outcome, outcome.at - now):
            return False
        self._letters.record_failure(event, subscription.name, error, attempt=attempt, failed_at=delivery.failed_at)
        self._core.finish(delivery, outcome if isinstance(outcome, Dead) else Dead("exhausted"))
        receipt = self._core.receipts.of(event) if self._core.receipts.followed else None
        if receipt is not None:
            receipt.note_failure(event, subscription.name, error, is_raised=self.is_raised)
        return self.is_raised and not self.is_served

    def _plan(self, delivery: Delivery, error: Exception, outcome: Retry, delay_s: float) -> bool:
        """Let the event come again at its time; False when that cannot be."""
        event, subscription = delivery.event, delivery.subscription
        told = error_line(error)
        core = self._core
        with self._planning:
            is_full = len(core.retrying) >= core.capacity
            if not is_full and not core.is_closed:
                failed_at = self._clock.time() if delivery.failed_at is None else delivery.failed_at
                again = delivery.next_attempt(told, failed_at, core.receipts.hold(event))
                core.schedule_retry(again, outcome, self._clock.after(delay_s, lambda: self._fall_due(again)).cancel)
                delivery.move(RETRYING)
                core.under_way.pop(delivery, None)
        if core.is_closed:
            return delivery.state is RETRYING
        if is_full:
            self._letters.log_not_retried(event, subscription.name, core.capacity)
            return False
        of = subscription.policy.retries + 1
        self._letters.log_retry(event, subscription.name, told, attempt=delivery.attempt, of=of, delay_s=delay_s)
        return True

    def _fall_due(self, delivery: Delivery) -> None:
        with self._planning:
            is_due = self._core.queue_due_retry(delivery)
        if is_due:
            self.deliver_due()

    def falls_due_by(self, deadline: float) -> bool:
        """True when a further attempt will come in time; the clock of a test does not pass by itself."""
        due = self._core.next_due() if isinstance(self._clock, SystemClock) else None
        return due is not None and due <= deadline

    def drop_retry(self, delivery: Delivery) -> None:
        """The handler has gone while a further attempt waited: what it could not handle is kept."""
        name, attempt = delivery.subscription.name, delivery.attempt
        why = f"{name} was unsubscribed before attempt {attempt}"
        self._letters.record_undelivered(
            delivery.event, "gone", why, name, attempts=attempt - 1, failed_at=delivery.failed_at
        )
        delivery.move(DEAD)
        self._core.receipts.release(delivery.event)

    # --- the end ---

    def dead_letter_unfinished(
        self, event: Event, name: str, attempts: int, *, has_begun: bool = False, failed_at: float | None = None
    ) -> None:
        """The bus is closed before an event has come to its end with a handler, or with all."""
        self._letters.record_undelivered(
            event, "closed", _BEGUN if has_begun else _CLOSED, name, attempts=attempts, failed_at=failed_at
        )

    def dead_letter_rest(self, *, is_abandoned: bool, left_in_lanes: Callable[[], Iterable[Delivery]]) -> None:
        """What was not delivered, or not as often as it should, becomes dead letters. Safe from any thread.

        Args:
            is_abandoned: A handler that is called in place does not end.
            left_in_lanes: Empties the lanes, and gives what was in them.
        """
        with self._letters.batched():
            self._dead_letter_round(is_abandoned=is_abandoned)
            for entry in self._core.left_in_queue():
                self._dead_letter_entry(entry)
            with self._planning:
                self._core.close()
                waiting = list(self._core.left_to_retry())
            for each in waiting:
                told = f"the bus was closed before attempt {each.attempt}; the last one failed: {each.last_error}"
                name = each.subscription.name
                self._letters.record_undelivered(
                    each.event, "closed", told, name, attempts=each.attempt - 1, failed_at=each.failed_at
                )
                self._end(each)
            for each in left_in_lanes():
                attempts = each.attempt if each.has_begun else each.attempt - 1
                name = each.subscription.name
                self.dead_letter_unfinished(
                    each.event, name, attempts, has_begun=each.has_begun, failed_at=each.failed_at
                )
                self._end(each)

    def _end(self, delivery: Delivery) -> None:
        delivery.move(DEAD)
        self._core.receipts.release(delivery.event)

    def _dead_letter_entry(self, entry: QueueEntry) -> None:
        if isinstance(entry, Event):
            self.dead_letter_unfinished(entry, "", 0)
            self._core.receipts.release(entry)
        elif isinstance(entry, Delivery):
            self.dead_letter_unfinished(
                entry.event, entry.subscription.name, entry.attempt - 1, failed_at=entry.failed_at
            )
            self._end(entry)
        else:
            entry.give_up()

    def _dead_letter_round(self, *, is_abandoned: bool) -> None:
        """The event in hand: the handler that does not end is left behind, and those after it are not called any more."""
        round_ = self._core.round
        with self._dead_lettering:
            event, at = round_.event, round_.at
            if event is None or round_.is_dead_lettered:
                return
            round_.is_dead_lettered = True
            is_in_hand = is_abandoned and round_.failing != (event, at)
        routes, attempt = self._core.routes, round_.attempt
        routes.let_go(event.topic)  # others who publish to the topic are not to miss these handlers
        is_left = at is None
        for index, (each, _) in enumerate(round_.pairs):
            if is_left:
                round_.pairs[index] = each, routes.skip(each)
                self.dead_letter_unfinished(event, each.name, attempt - 1)
            elif each is at:
                is_left = True
                if is_in_hand and not routes.is_async(each):
                    self.dead_letter_unfinished(event, each.name, attempt, has_begun=True)
        if is_abandoned:
            self._core.round = DeliveryRound()
        else:
            round_.event = None
            self._core.receipts.release(event)
