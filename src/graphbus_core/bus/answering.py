"""Work whose result somebody waits for: calls of methods, and requests, which exactly one handler answers.

Where it runs depends on who asks and who answers:

    who asks \\ who answers      in place                                   on a lane
    a thread from outside       in its turn of the queue, by who drains    put there in its turn of the queue
    a `def` handler             at once, in the middle of the handler      put there; the handler waits
    an `async def` handler      an errand for a thread; awaited            put there; awaited
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, TypeVar, cast

from graphbus_core.bus import lanes as loop
from graphbus_core.bus.delivering import Deliverer
from graphbus_core.bus.lanes import Delivery, Lanes
from graphbus_core.bus.queueing import Asker, Errand
from graphbus_core.bus.routing import Dispatch, Subscription
from graphbus_core.errors import DeadlockError, RequestTimeoutError, RunError, did_you_mean
from graphbus_core.isolation import Job, attempt
from graphbus_core.model.messages import Event, child_of
from graphbus_core.schema.json import Json, freeze

R = TypeVar("R")


class Answerer(Deliverer):
    """Runs work for those who wait for its result."""

    def run(self, work: Callable[[], R], *, owner: str = "") -> R | Awaitable[R]:
        """Run a function while no handler runs, deliver what it has published, and give its result.

        Inside a handler it runs at once; inside an async handler it gives an awaitable. From another thread it waits its turn.

        Args:
            work: May give an awaitable if its owner has async handlers.
            owner: The agent that the function belongs to.

        Raises:
            DeadlockError: GBE633 when the owner, whose work runs on the event loop one after the other, waits for this already.
        """
        is_async = owner in self._routes.async_lanes
        lanes = self._lanes
        is_on_loop = lanes is not None and lanes.is_here
        chain = self._refuse_deadlock(owner, owner, owner, is_awaited=is_async or is_on_loop)
        delivery = Delivery(work, owner, chain=chain, then=_nothing)
        if lanes is not None and is_on_loop:
            return self._await(
                lanes, delivery, lambda: self._begin(delivery, is_async=is_async), None, is_async=is_async
            )
        result: R
        if self._is_inside or self._closer == get_ident():
            if is_async:
                with self._waiting_for(delivery, owner):
                    self._begin(delivery, is_async=True)
                    self._wait_here(lambda: delivery.is_over)
            else:
                self._begin(delivery, is_async=False)
            result = _outcome(delivery)
            return result

        def begin_in_turn() -> None:  # a handler subscribed meanwhile may have made its owner one of the other kind
            self._begin(delivery, is_async=owner in self._routes.async_lanes)

        if not self._ask_from_outside(delivery, begin_in_turn, None):
            raise RunError("GBE618")  # the bus was closed
        result = _outcome(delivery)
        return result

    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any:
        """Send an event to the one handler that answers it, and give what that returns; inside an async handler, to be awaited.

        The exception of the handler is raised here and is no dead letter. A `def` handler that runs in place of the one who asks
        cannot be interrupted: it is waited for however long it takes.

        Args:
            topic: Exactly one handler must be subscribed to it.
            payload: A JSON-shaped value.
            timeout_s: How long to wait; None: for ever.
            src: The agent that asks.

        Raises:
            RunError: GBE631 no handler, GBE632 several, GBE637 too long a chain, and what `publish` raises.
            RequestTimeoutError: GBE635. A handler that has begun goes on; what it raises then is a dead letter.
            DeadlockError: GBE633 when who would answer waits for this already.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        if dispatch.check is not None:
            payload = dispatch.check(payload)
        responder = self._responder(topic, dispatch)
        chain = self._refuse_deadlock(responder.lane, responder.name, topic)
        event = self._caused(topic, freeze(payload), src)
        delivery = Delivery(
            responder.call,
            responder.lane,
            event,
            responder,
            chain=chain,
            timeout_s=responder.policy.timeout_s,
            then=self._answered,
        )

        is_async = self._routes.is_async(responder)

        def begin() -> None:
            self._history.append(event)
            self._routes.count_request(responder)
            if self._followed:
                self._receipts.hold(event)
            self._begin(delivery, is_async=is_async)

        def begin_in_turn() -> None:
            nonlocal responder, is_async
            try:  # who answers may have changed while this has waited
                responder = self._responder(topic, self._dispatches.get(topic) or self._routes.compile(topic))
            except RunError as gone:
                delivery.error, delivery.is_over = gone, True
                return
            is_async = self._routes.is_async(responder)
            delivery.call, delivery.lane, delivery.subscription = responder.call, responder.lane, responder
            delivery.timeout_s = responder.policy.timeout_s
            begin()

        lanes = self._lanes
        if lanes is not None and lanes.is_here:
            return self._await(lanes, delivery, begin, timeout_s, is_async=is_async)
        if self._is_inside:
            with self._waiting_for(delivery, topic):
                begin()
                is_in_time = self._wait_here(lambda: delivery.is_over, timeout_s)
        else:
            is_in_time = self._ask_from_outside(delivery, begin_in_turn, timeout_s)
        if not is_in_time:
            raise self._gives_up(delivery, timeout_s)
        return _outcome(delivery)

    def _responder(self, topic: str, dispatch: Dispatch) -> Subscription:
        found = dispatch.subscriptions
        if not found:
            known = [each.topic for each in self._routes.subscriptions]
            raise RunError("GBE631", topic=topic, suggestion=did_you_mean(topic, known))
        if len(found) > 1:
            raise RunError("GBE632", topic=topic, count=len(found), names=", ".join(each.name for each in found))
        return found[0]

    def _caused(self, topic: str, payload: Json, src: str) -> Event:
        """The event of a request."""
        cause = self._cause()
        if cause is None:
            event = Event(topic, payload, src, self._time())
            for tell in self._on_root:
                tell(event)
            return event
        by, name, ordinal = cause
        event = child_of(by, topic, payload, src, name, ordinal, self._time())
        if self._is_stopped_by_guards(event):
            raise RunError("GBE637", topic=topic)
        return event

    def _refuse_deadlock(self, lane: Hashable, name: str, topic: str, *, is_awaited: bool = True) -> tuple[Asker, ...]:
        """Give who waits, unless who is to answer is among them, or waits for one of them on another thread or lane.

        Work that is not awaited runs in the middle of who asks, and so may go to an agent that is at work there itself.
        """
        chain = self._chain()
        if (is_awaited and any(waiting == lane for waiting, _ in chain)) or (
            chain and self._waits and self._waits.leads_back(lane, self._held(chain))
        ):
            raise self._deadlock(chain, name, topic)
        return chain

    def _held(self, chain: tuple[Asker, ...]) -> frozenset[Hashable]:
        """Those of a chain who take nothing else in hand meanwhile."""
        lanes = {} if self._lanes is None else self._lanes.by_key
        return frozenset(lane for lane, _ in chain if lane not in lanes or lanes[lane].concurrency == 1)

    @contextmanager
    def _waiting_for(self, delivery: Delivery, topic: str) -> Iterator[None]:
        """Note who waits for the delivery as long as they do.

        Raises:
            DeadlockError: GBE633 when who is to answer has begun to wait for one of them meanwhile.
        """
        held = self._held(delivery.chain)
        if not self._waits.enter(held, delivery.lane):
            delivery.is_given_up = True
            raise self._deadlock(delivery.chain, delivery.name, topic)
        try:
            yield
        finally:
            self._waits.leave(held, delivery.lane)

    @staticmethod
    def _deadlock(chain: tuple[Asker, ...], name: str, topic: str) -> DeadlockError:
        return DeadlockError("GBE633", topic=topic, chain=" > ".join([*(waiting for _, waiting in chain), name]))

    # --- where it runs ---

    def _begin(self, delivery: Delivery, *, is_async: bool) -> None:
        """Put it into its lane, or do it here and now."""
        if is_async:
            subscription = delivery.subscription
            lanes = self._ready_lanes()
            if lanes.is_stuck(delivery.lane) or self._is_over:
                delivery.error, delivery.is_over = RunError("GBE618"), True
                cast("Callable[[Delivery], None]", delivery.then)(delivery)
            else:
                concurrency = 1 if subscription is None else subscription.policy.concurrency
                lanes.put(delivery, lanes.lane(delivery.lane, concurrency))
            return
        before = self._inner, self._called
        try:
            if delivery.event is not None:
                self._inner, self._called = delivery, ()
            elif delivery.lane != "":
                self._called = (*self._called, (delivery.lane, delivery.name))
            delivery.result, delivery.error = attempt(delivery.begin)
            delivery.is_over = True
        finally:
            self._inner, self._called = before
            if not delivery.is_over:
                delivery.error, delivery.is_over = RunError("GBE618"), True
            cast("Callable[[Delivery], None]", delivery.then)(delivery)

    def _ask_from_outside(self, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None) -> bool:
        """Let it begin in its turn, and wait until it is over; False when it was not in time."""
        drainers: list[int] = []

        others = [] if self._lanes is None else self._lanes.now_under_way()

        def work() -> None:
            drainers.append(get_ident())
            begin()

        job = Job(work)
        try:
            self._queue.append(job)
            self._announce()
            is_in_time = self._until(
                lambda: job.is_over and (delivery.is_over or job.is_refused), loop.now_plus(timeout_s)
            )
        finally:
            job.give_up()
        if not is_in_time:
            return False
        job.result()
        if drainers == [get_ident()] and self._dispatcher is None:
            self._until_all_but(others)
        return True

    def _await(
        self, lanes: Lanes, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None, *, is_async: bool
    ) -> Awaitable[Any]:
        """From the loop: let it begin where it belongs, and give what can be awaited.

        Raises:
            RunError: GBE628 for a plain `def`, which cannot wait for it.
        """
        asker = loop.current()
        if asker is not None and asker.is_plain:
            raise RunError("GBE628")
        answered = lanes.loop.create_future()
        then = delivery.then

        def settle(delivery: Delivery) -> None:
            if not answered.done():
                answered.set_result(None)

        def tell(delivery: Delivery) -> None:
            if then is not None:
                then(delivery)
            with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                lanes.loop.call_soon_threadsafe(settle, delivery)

        delivery.then = tell
        if is_async:
            begin()
        else:
            self._errands.append(Errand(delivery.lane, lambda: self._on_behalf_of(asker, begin)))
            self._ask_a_thread()

        async def wait() -> Any:
            try:
                with self._waiting_for(delivery, delivery.name):
                    async with lanes.limit(timeout_s):
                        await answered
            except TimeoutError:
                raise self._gives_up(delivery, timeout_s) from None
            return _outcome(delivery)

        return wait()

    def _on_behalf_of(self, asker: Delivery | None, begin: Callable[[], None]) -> None:
        before = self._inner, self._called
        self._inner, self._called = asker, ()
        try:
            begin()
        finally:
            self._inner, self._called = before

    # --- how it ends ---

    def _answered(self, delivery: Delivery) -> None:
        """A request is over: its error goes to who asked, if somebody still waits."""
        event, responder = delivery.event, delivery.subscription
        if isinstance(delivery.error, Exception):
            if delivery.is_given_up:
                self._judge(event, responder, delivery.error, 1)
            else:
                responder.failed += 1
                delivery.error.add_note(f"{responder.name} raised it, which was asked for {event.topic}")
        if self._followed:
            self._receipts.release(event)

    def _gives_up(self, delivery: Delivery, timeout_s: float | None) -> RunError:
        delivery.is_given_up = True
        if timeout_s is None or self._is_late():
            return RunError("GBE618")  # the bus was closed first
        return RequestTimeoutError("GBE635", responder=delivery.name, topic=delivery.event.topic, timeout_s=timeout_s)


def _nothing(_delivery: Delivery) -> None:
    """Whoever waits for it sees that it is over."""


def _outcome(delivery: Delivery) -> Any:
    if delivery.error is not None:
        raise delivery.error
    return delivery.result
