"""Into the mailboxes of the event loop: from whoever drains, and from the loop itself, where there is a shorter way.

    who drains      event of the queue -- put -->  mailboxes, one after the other; a thread waits while one is full
    a handler       what it publishes  -- place -->  mailboxes, all at once, if nothing waits and each of them has room;
      on the loop                                  else into the queue, like anything else

The shorter way does what the queue would do: it takes the right to drain, asks who hears the topic, and gives the right back.
"""

from __future__ import annotations

from threading import get_ident

from graphbus_core.bus.draining import Drainer
from graphbus_core.bus.lanes import Delivery, Lane, Lanes, current
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routing import Call, Dispatch, Subscription
from graphbus_core.model.messages import Event, child_of
from graphbus_core.schema.json import Json, freeze


class Placer(Drainer):
    """Fills mailboxes, and judges what comes out of them."""

    def _publish_on_loop(self, lanes: Lanes, topic: str, payload: Json, src: str) -> Receipt | None:
        """What is published on the thread of the loop, or by a thread that an async handler has started."""
        delivery, here = current(), get_ident()
        if delivery is None or delivery.event is None or lanes.home != here or self._drainer == here:
            return self._enqueue(topic, payload, src)
        frozen = freeze(payload)
        by, name, ordinal = self._caused_on_loop(delivery)
        event = child_of(by, topic, frozen, src, name, ordinal, self._time())
        if not self._is_stopped_by_guards(event) and not self._place(lanes, event):
            self._queue_on_loop(lanes, event)
        return None

    def _place(self, lanes: Lanes, event: Event) -> bool:
        """Put an event into its mailboxes at once; False when something else comes first, or one of them has no room."""
        if self._queue or self._event is not None or self._deadline is not None or not self._capacity:
            return False
        try:
            del self._right_to_drain.token
        except AttributeError:
            return False
        try:
            dispatch = self._dispatches.get(event.topic) or self._routes.compile(event.topic)
            if not self._has_room(lanes, dispatch):
                return False
            self._history.append(event)
            dispatch.events += 1
            for each in dispatch.subscriptions:
                self._put_now(lanes, each, each.call, event)
        finally:
            self._right_to_drain.token = []
        if self._queue or self._errands or self._is_over or not dispatch.subscriptions:
            self._look_again(lanes)
        return True

    def _look_again(self, lanes: Lanes) -> None:
        """What came while a handler on the loop had the right to drain has found nobody to deliver it.

        Without anything of the kind nobody has to be woken: who waits for rest is told when this handler ends, or the next.
        """
        if self._is_over:
            self._bury()
        if self._errands:
            self._ask_a_thread()
        self._drain_on_loop(lanes)
        self._bell.ring()

    def _queue_on_loop(self, lanes: Lanes, event: Event) -> None:
        if self._is_stopped_by_fullness(event):
            self._look_again(lanes)
            return
        if self._followed:
            self._receipts.hold(event)
        self._queue.append(event)
        self._announce()

    def _has_room(self, lanes: Lanes, dispatch: Dispatch) -> bool:
        """True for a topic that only lanes hear, each of which may take one more event."""
        if not dispatch.is_on_loop:
            return False
        for each in dispatch.subscriptions:  # `all` with a generator costs thrice as much
            lane = each.mailbox or self._mailbox_of(lanes, each)
            if len(lane.box) >= lanes.capacity:
                return False
        return True

    def _put(self, subscription: Subscription, call: Call, event: Event, attempt: int) -> None:
        """Send the event to a handler that runs on the event loop; a thread waits while its mailbox is full."""
        lanes = self._ready_lanes()
        lane = subscription.mailbox or self._mailbox_of(lanes, subscription)
        if not lanes.has_room(lane) and not lanes.is_here:
            self._wait_here(lambda: lanes.has_room(lane) or self._is_abandoned)
        if self._is_abandoned:
            self._stop(event, "closed", "the bus was closed first", subscription.name, attempts=attempt - 1)
            return
        self._put_now(lanes, subscription, call, event, attempt)
        if self._is_over:
            self._bury()

    def _put_now(self, lanes: Lanes, subscription: Subscription, call: Call, event: Event, attempt: int = 1) -> None:
        receipt = self._receipts.hold(event) if self._followed else None
        timeout_s = subscription.policy.timeout_s
        delivery = Delivery(call, subscription.lane, event, subscription, False, attempt, receipt, (), timeout_s)
        lanes.put(delivery, subscription.mailbox or self._mailbox_of(lanes, subscription))

    def _ready_lanes(self) -> Lanes:
        self._lanes = self._lanes or Lanes(self._mailbox, self._ended, self._bell)
        return self._lanes

    @staticmethod
    def _mailbox_of(lanes: Lanes, subscription: Subscription) -> Lane:
        lane = subscription.mailbox = lanes.lane(subscription.lane, subscription.policy.concurrency)
        return lane

    def _ended(self, delivery: Delivery) -> None:
        """A delivery on the loop is over."""
        if delivery.then is not None:
            delivery.then(delivery)
        elif delivery.error is not None or delivery.attempt > 1 or delivery.receipt is not None:
            self._settle(delivery)
