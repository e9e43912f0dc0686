"""Publishing from a program that owns an event loop: the bus lives on that loop, and who publishes awaits.

    async with MessageBus() as bus:
        await bus.publish_async("/Order/Placed", {"order_id": "1"})     # delivered, and everything that came of it

An event with one `async def` handler whose agent is free is awaited by the publisher itself: no task, no future, no other thread.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from graphbus_core.bus.answering import Answerer
from graphbus_core.bus.lanes import Delivery, Lane, Lanes, become, current
from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import BackpressureError, RunError
from graphbus_core.isolation import carry
from graphbus_core.model.messages import Event
from graphbus_core.schema.json import Json


class Awaiter(Answerer):
    """Lets a program await what becomes of its events."""

    def adopt_loop(self) -> None:
        """Run all async handlers on the event loop that is running here, in the place of one on a thread of its own.

        Raises:
            RunError: GBE638 when there is one already.
        """
        if self._lanes is not None:
            raise RunError("GBE638")
        self._lanes = Lanes(self._mailbox, self._ended, self._bell, is_adopted=True)

    async def publish_async(self, topic: str, payload: Json = None, *, src: str = "") -> None:
        """Send an event, and be back when everything that came of it is delivered, further attempts included.

        For a program whose loop the bus has adopted (`async with bus`). Inside a handler it only queues, like `publish`. A `def`
        handler never runs on the loop: it gets a thread.

        Raises:
            RunError: GBE639 on another loop, and what `publish` raises.
            Exception: On a bus with `on_error="raise"`, the first that a handler has raised.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        lanes = self._lanes
        if lanes is None or lanes.home != get_ident():
            raise RunError("GBE639", topic=topic)
        if current() is not None:
            self._enqueue(topic, payload, src)
            return
        event = Event(topic, payload, src, self._time())
        alone = dispatch.alone
        if alone is None:
            await self._deliver_with_others(lanes, event)
            return
        lane = alone.mailbox or self._mailbox_of(lanes, alone)
        delivery = Delivery(alone.call, alone.lane, event, alone, True)
        if lane.workers or lane.box or self._queue or self._event is not None:
            await self._deliver_with_others(lanes, event)
            return
        try:
            del self._right_to_drain.token
        except AttributeError:
            await self._deliver_with_others(lanes, event)
            return
        try:
            self._history.append(event)
            dispatch.events += 1
            lane.workers = 1  # this task does what a worker would do
            lanes.under_way[delivery] = None
        finally:
            self._right_to_drain.token = []
        try:
            if self._waiting:
                self._bell.ring()
            if self._queue:  # another thread has queued it meanwhile, and counts on us
                self._drain_on_loop(lanes)
            become(delivery)
            await carry(alone.call, event, delivery)
        finally:
            become(None)
            receipt = self._end_alone(lanes, lane, delivery)
        if receipt is not None:
            await self._end_of(lanes, receipt)

    async def _deliver_with_others(self, lanes: Lanes, event: Event) -> None:
        if len(self._queue) >= self._capacity:
            raise BackpressureError("GBE636", topic=event.topic, limit=self._capacity)
        receipt = Receipt(event)
        self._receipts.open(receipt)
        self._queue.append(event)
        self._announce()
        await self._end_of(lanes, receipt)

    def _end_alone(self, lanes: Lanes, lane: Lane, delivery: Delivery) -> Receipt | None:
        """The handler that was awaited has ended; give the receipt if it has published, or failed."""
        receipt = None
        if delivery.children or delivery.error is not None:
            delivery.receipt = receipt = self._receipts.follow(delivery.event)
            self._settle(delivery)
        del lanes.under_way[delivery]
        lane.workers = 0
        if lane.box:
            lanes.start(lane)
        if self._waiting:
            self._bell.ring()
        return receipt

    async def _end_of(self, lanes: Lanes, receipt: Receipt) -> None:
        ended = lanes.loop.create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        receipt.then(lambda: _tell(lanes, settle))
        await ended
        self._raise_what_was_raised()


def _tell(lanes: Lanes, settle: Callable[[], None]) -> None:
    lanes.loop.call_soon_threadsafe(settle)
