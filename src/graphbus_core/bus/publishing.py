"""Publishing beyond the fast path of `MessageBus.publish`: inside handlers, with an event loop, or while others deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import get_ident

from graphbus_core.bus.core import RUNNING, Core, Delivery, DeliveryRound
from graphbus_core.bus.dead_letters import DeadLetters
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.loop import LoopDriver, current_delivery
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import Dispatch
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.errors import BackpressureError
from graphbus_core.model.messages import Event, child_of, count_descendant
from graphbus_core.schema.json import Json, freeze

_THREADS = "the threads of handlers"
"""The lane under which events are queued that threads of `async def` handlers publish."""


class Publisher:
    """Queues events and makes sure that they are delivered.

    Attributes:
        outlet: With a ledger: called with each event, instead of queuing it; the outbox of a delivery comes first.

    Args:
        on_root: The middleware functions to call with every event that no handler caused.
    """

    def __init__(
        self,
        core: Core,
        sync: SyncDriver,
        letters: DeadLetters,
        failures: Failures,
        *,
        on_root: Iterable[Callable[[Event], object]],
    ) -> None:
        self._core, self._sync, self._letters, self._failures = core, sync, letters, failures
        self._on_root = tuple(on_root)
        self.outlet: Callable[[Event], None] | None = None

    def publish(self, dispatch: Dispatch, topic: str, payload: Json, src: str) -> Receipt | None:
        """Publish an event that cannot take the fast path, and return what `MessageBus.publish` returns.

        Inside a handler the event becomes a child of the handler's event. Else this thread delivers it and waits for the loop,
        if there is one; or the loop starts the only handler at once; or the event is queued for the thread that delivers.
        """
        core, loop, here = self._core, self._sync.loop, get_ident()
        cause: DeliveryRound | Delivery | None = None
        if core.deliverer == here:
            cause = self._sync.inner or core.round
        elif loop is not None:
            cause = current_delivery()
        if cause is not None and cause.event is not None:
            frozen = freeze(payload)
            if core.deliverer == here or loop is None or loop.home == here or self._sync.is_over:
                self._publish_child(cause, topic, frozen, src)
            else:
                self._publish_on_loop(cause, topic, frozen, src)
            return None
        if self.outlet is not None:
            return self.accept(Event(topic, freeze(payload), src, self._sync.time()))
        is_outermost = loop is not None and self._sync.dispatcher is None and loop.home != here
        if is_outermost and not self._sync.is_handling() and self._try_publish_and_wait(dispatch, topic, payload, src):
            return None
        event = Event(topic, freeze(payload), src, self._sync.time())
        if loop is not None and loop.home == here and self._try_begin_on_loop(loop, event, dispatch):
            return None
        return self.accept(event)

    def _try_begin_on_loop(self, loop: LoopDriver, event: Event, dispatch: Dispatch) -> bool:
        """On the loop, outside of handlers: start the topic's only handler at once; False if that is not possible."""
        if loop.is_stepping or self._sync.dispatcher is not None or self._sync.is_closing:
            return False
        begun = self._core.begin_at_once(event, dispatch)
        if begun is None:
            return False
        self.notify_middleware_of_root(event)
        loop.pump(begun)
        return True

    def _try_publish_and_wait(self, dispatch: Dispatch, topic: str, payload: Json, src: str) -> bool:
        """Deliver an event from outside, and wait until everything that it caused has ended, on the event loop too.

        Returns:
            False, without publishing, if another thread delivers.
        """
        core, sync = self._core, self._sync
        others = core.under_way.copy()  # earlier deliveries, which this publisher does not wait for

        def deliver() -> None:
            event = Event(topic, payload, src, sync.time())
            self.notify_middleware_of_root(event)
            if core.has_work:
                core.queue.append(event)
            else:
                core.begin(event, dispatch)
            sync.drain()

        if not sync.deliver(deliver):
            return False
        sync.wait_for_all_but(others)
        return True

    def accept(self, event: Event) -> Receipt | None:
        """Queue an event that no handler caused, and wake a thread that delivers it; return a receipt if there is a dispatcher.

        Raises:
            BackpressureError: GBE636 too many events wait.
        """
        receipt = None
        if self.outlet is not None:
            self.notify_middleware_of_root(event)
            self.outlet(event)
            return None if self._sync.dispatcher is None else Receipt(event, self._sync.is_handling)
        if self._sync.dispatcher is not None:
            receipt = Receipt(event, self._sync.is_handling)
            self._core.receipts.open(receipt)
        self.notify_middleware_of_root(event)
        try:
            self._core.accept(event)
        except BackpressureError:
            self._core.receipts.followed.pop(id(event), None)
            raise
        if self._core.deliverer != get_ident():
            self._sync.wake_deliverer()
        return receipt

    def notify_middleware_of_root(self, event: Event) -> None:
        """Call the `on_root` functions of the middleware with an event that no handler caused."""
        for tell in self._on_root:
            tell(event)

    def current_cause(self) -> DeliveryRound | Delivery | None:
        """Return the round or delivery whose handler runs this code; None outside of handlers of events."""
        found: DeliveryRound | Delivery | None = None
        if self._sync.is_inside:
            found = self._sync.inner or self._core.round
        elif self._sync.loop is not None:
            found = current_delivery()
        return found if found is not None and found.event is not None else None

    def _publish_child(self, cause: DeliveryRound | Delivery, topic: str, payload: Json, src: str) -> None:
        """Queue an event that a handler publishes. It is delivered later, or becomes a dead letter if a limit is exceeded."""
        core, loop = self._core, self._sync.loop
        event = self.make_child(cause, topic, payload, src)
        is_inside = core.deliverer != 0 and core.deliverer == get_ident()
        hops, kin = count_descendant(event, core.max_hops, on_loop=not is_inside)
        queue = core.queue
        if hops > core.max_hops or kin > core.max_tree or len(queue) >= core.capacity:
            self._letters.record_undelivered(event, *core.why_refused(hops, kin))
            return
        if self.outlet is not None:
            # What a task of a handler publishes after the handler has ended is too late for its outbox.
            outbox = cause.outbox if type(cause) is Delivery and not cause.is_over else None
            (self.outlet if outbox is None else outbox.append)(event)
            return
        if core.receipts.followed:
            core.receipts.hold(event)
        queue.append(event)
        if not is_inside and (loop is None or not loop.is_stepping):
            self._sync.wake_deliverer()

    def _publish_on_loop(self, cause: DeliveryRound | Delivery, topic: str, payload: Json, src: str) -> None:
        """Let the loop publish an event of a thread that an `async def` handler has started, e.g. with `asyncio.to_thread`.

        The loop does so before the handler learns that the thread has ended, or makes it a dead letter if the bus is closed.
        """
        core, loop = self._core, self._sync.ready_loop()

        def drop(_delivery: Delivery) -> None:
            self._failures.drop_at_close(self.make_child(cause, topic, payload, src), "", 0)

        publishing = Delivery(lambda: None, _THREADS, state=RUNNING, on_end=drop)

        def publish() -> None:
            if not publishing.is_given_up:
                self._publish_child(cause, topic, payload, src)
                core.under_way.pop(publishing, None)
                core.receipts.release(cause.event)  # type: ignore[arg-type]
                self._sync.wake_after_change()

        core.under_way[publishing] = None  # so that the bus is not at rest before the event is in the queue
        core.receipts.hold(cause.event)  # type: ignore[arg-type]
        with suppress(RuntimeError):  # the loop has ended: `close` finds the entry in `under_way`
            loop.loop.call_soon_threadsafe(publish)

    def make_child(self, cause: DeliveryRound | Delivery, topic: str, payload: Json, src: str) -> Event:
        """Create the next event that a handler publishes, as a child of the event that it handles, and count it."""
        if type(cause) is Delivery:
            by, ordinal = cause.subscription.name, cause.children
            cause.children = ordinal + 1
            if cause.is_awaited and ordinal == 0 and cause in self._core.under_way:
                self._core.receipts.follow(cause.event)  # its publisher waits in `publish_async` for this child too
        else:
            by, ordinal = cause.at.name, cause.next_child()  # type: ignore[union-attr]
        return child_of(cause.event, topic, payload, src, by, ordinal, self._sync.time())  # type: ignore[arg-type]

    def refuse_if_too_long(self, child: Event) -> bool:
        """Make the event of a request a dead letter if its chain is too long or its tree too large; True if so."""
        core = self._core
        hops, kin = count_descendant(child, core.max_hops, on_loop=not self._sync.is_inside)
        is_stopped = hops > core.max_hops or kin > core.max_tree
        if is_stopped:
            self._letters.record_undelivered(child, *core.why_refused(hops, kin))
        return is_stopped
