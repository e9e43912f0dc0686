"""The driver on threads: the thread that has the turn delivers one event after the other and calls their handlers in place.

    publish -> queue -> the turn -> round: `def` handlers, called in place     lane: agents with `async def` handlers, see `loop`

A thread that publishes takes the turn if it is free, and delivers. With a dispatcher, only the dispatcher's thread delivers. A
publish inside a handler, or while another thread delivers, only queues the event. A handler in place runs in the contextvars
context of the thread that delivers. `core` explains the turn, the round and the lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock, Thread, get_ident
from time import monotonic, time
from typing import cast

from graphbus_core.bus.core import (
    DONE,
    NEVER_FREE,
    QUEUED,
    RUNNING,
    Core,
    Delivery,
    DeliveryRound,
    QueueEntry,
    ThreadJob,
    Waiter,
)
from graphbus_core.bus.dead_letters import without_own_frames
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.loop import LoopDriver, current_delivery
from graphbus_core.bus.routes import EventCall, LiveSubscription
from graphbus_core.bus.waiting import Notifier, WaitGraph, now_plus
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import RunError
from graphbus_core.isolation import Job, attempt_anything, run_round
from graphbus_core.isolation import attempt as try_to
from graphbus_core.log import Log
from graphbus_core.model.messages import Event

_log = Log("graphbus.bus")


class SyncDriver:
    """Delivers on threads, and lets threads wait for conditions meanwhile.

    Attributes:
        start_thread: Calls a function on a new thread.
        wait_for_change: See `Notifier.wait`.
        loop: The driver on the event loop, once one is needed.
        inner: The request whose handler the thread with the turn is calling, or the delivery on the loop for which it runs a
            job; None otherwise. It takes the place of the round as the cause of what is published.
        called: The agents whose methods that thread is calling inside of `inner` or the round, outermost first.
        raised: Exceptions of handlers on the loop that a waiting thread has to raise.
        late_error: The exception of a further attempt, for a thread that waits in `settle` or `wait_for`.
        dispatcher: The one thread that delivers, if there is one.
        interruption: The exception that ended the dispatcher.
        closer: The id of the thread that closes the bus while a handler is left behind, else 0.
        deadline: When the grace of the close ends, on the monotonic clock; None while the bus is open.
        is_abandoned: A handler in place did not return within the grace; its thread still has the turn.
        is_over: The bus is closed and delivers nothing any more.
        waits: Which agents wait for which.
        on_failure: Called with each delivery that failed on the loop, before the failure is handled.
        suspended: The lanes whose handlers wait on the stack of the thread that delivers.
    """

    def __init__(self, core: Core, failures: Failures, notifier: Notifier, clock: Clock) -> None:
        self._core, self._failures, self._notifier, self._clock = core, failures, notifier, clock
        self.start_thread: Callable[[Callable[[], None]], object] = _start_thread
        self.wait_for_change = notifier.wait
        self.time = time if isinstance(clock, SystemClock) else clock.time
        self.loop: LoopDriver | None = None
        self.inner: Delivery | None = None
        self.called: tuple[Waiter, ...] = ()
        self.raised: deque[BaseException] = deque()
        self.late_error: Exception | None = None
        self.dispatcher: Thread | None = None
        self.is_stopping = False  # the dispatcher must end
        self.is_closing = self.is_abandoned = self.is_over = False
        self.interruption: BaseException | None = None
        self.closer = 0
        self.deadline: float | None = None
        self.waits = WaitGraph()
        self.on_failure: Callable[[Delivery], None] = lambda _delivery: None
        self.suspended: frozenset[Hashable] = frozenset()
        self.handle_failure_in_place = (
            failures.handle_failure_in_place
        )  # bound once: binding costs as much as a handler
        self._must_notify_at_rest = False  # a thread that checks for rest has found the turn taken, and may sleep
        self._making_loop = Lock()
        self._on_interruption: Callable[[], None] = lambda: None
        failures.deliver_due = self._deliver_due

    # --- which thread delivers ---

    def queue_entry(self, event: Event, subscription: LiveSubscription | None) -> Event | Delivery:
        """Return the queue entry that delivers an event to one subscription, or to all subscriptions of its topic (None)."""
        if subscription is None:
            return event
        timeout_s = subscription.policy.timeout_s
        return Delivery(subscription.call, subscription.lane, event, subscription, timeout_s=timeout_s)

    @property
    def is_inside(self) -> bool:
        """True on the thread that has the turn."""
        return self._core.deliverer == get_ident()

    def is_handling(self) -> bool:
        """True inside a handler, and in tasks and threads that one on the loop started: code there must not wait for events."""
        return self._core.deliverer == get_ident() or (self.loop is not None and current_delivery() is not None)

    def wake_deliverer(self) -> None:
        """Make sure that something just queued is delivered; if neither the loop nor another thread does it, deliver it here."""
        loop = self.loop
        if self.is_over:  # the bus was closed meanwhile
            self.dead_letter_rest()
        elif loop is not None and (loop.is_here or current_delivery() is not None):
            loop.wake()
        else:
            self._notifier.notify()
            self.drain_if_free()

    def wake_other_thread(self) -> None:
        """Make another thread deliver: wake those that wait, or start one if none waits and the turn is free."""
        if self.dispatcher is None and not self._notifier.waiting and self._core.turn:
            self.start_thread(self.drain_if_free)
        self._notifier.notify()

    def _may_deliver(self) -> bool:
        """True if this thread may take the turn.

        If there is a dispatcher that works, only its thread may. After the grace of a close, no thread may.
        """
        dispatcher = self.dispatcher
        is_any_allowed = dispatcher is None or (self.is_closing and self.interruption is not None)
        return (is_any_allowed or (dispatcher is not None and dispatcher.ident == get_ident())) and not self.is_late()

    def is_late(self) -> bool:
        """True when the grace of a closing bus is over."""
        deadline = self.deadline  # read once: another thread may set it to None meanwhile
        return deadline is not None and monotonic() >= deadline

    def has_work(self) -> bool:
        """True if this thread can deliver now: something waits, the turn is free and this thread may take it."""
        return bool(self._core.has_work and self._core.turn and self._may_deliver())

    def drain_if_free(self, drain: Callable[[], None] | None = None) -> None:
        """Deliver all that waits, unless another thread delivers or this one may not; `drain` replaces the method `drain`."""
        while self.has_work() and self.deliver(drain or self.drain):
            pass

    def deliver(self, work: Callable[[], None]) -> bool:
        """Take the turn, run `work` and give the turn back; False, without running it, if another thread has the turn.

        The caller must look at the queue afterwards: other threads may have left events to this one meanwhile.
        """
        core = self._core
        if not core.take_turn():
            return False
        try:
            core.deliverer = get_ident()
            work()
        finally:  # no call before the turn is given back: a KeyboardInterrupt could come there
            core.deliverer = 0
            core.turn.append(None)
            self._notifier.notify()
        return True

    def wake_after_change(self) -> None:
        """Let work that waits go on: begin handlers if this is the loop's thread, else wake a thread that delivers."""
        if self.loop is not None and self.loop.is_here:
            self.loop.pump()
        elif self._core.has_work:
            self.wake_other_thread()
        self._notifier.notify()

    def drain(self) -> None:
        """Deliver all waiting events, attempts and jobs until the queue is empty or the grace of a close ends.

        For the thread that has the turn. It stops early if a job has started a dispatcher, which then delivers the rest.
        """
        core = self._core
        core.routes.settle_counts()
        if core.round.event is not None:
            self._resume_round()
        dispatches, find = core.routes.dispatches, core.routes.find
        while (core.thread_jobs or core.queue) and not (self.deadline is not None and self.is_late()):
            if core.thread_jobs:
                core.thread_jobs.popleft().do()
                continue
            try:
                entry = core.queue[0]
            except IndexError:  # the close has emptied the queue on another thread
                return
            if type(entry) is not Event:
                if self._process_entry(entry):
                    return
                continue
            core.begin(entry, dispatches.get(entry.topic) or find(entry.topic))
            self._deliver_round(entry)
        if self.is_over:
            self.dead_letter_rest()  # a handler that was left behind at the close has published

    def _process_entry(self, entry: QueueEntry) -> bool:
        """Deliver a further attempt or run a job, which is the first entry of the queue, and take it out.

        Returns:
            True if this thread must leave the rest of the queue to another one.
        """
        if isinstance(entry, Delivery):
            self._process_retry(entry)
            return False
        try:
            cast("Job", entry).perform()
        finally:
            self._take_out_of_queue(entry)
            self._notifier.notify()
        return not self._may_deliver()  # the job may have started a dispatcher

    def _process_retry(self, delivery: Delivery) -> None:
        """Make a further attempt: in place, or in its lane on the loop. If its handler was unsubscribed, it is a dead letter."""
        core, subscription = self._core, delivery.subscription
        if not subscription.is_active:
            if self._take_out_of_queue(delivery):
                self._failures.drop_retry(delivery)
        elif core.routes.is_async(subscription):
            if self._take_out_of_queue(delivery):
                core.routes.count(subscription)
                delivery.call = core.routes.call_again(subscription, delivery.attempt)
                delivery.receipt = core.receipts.of(delivery.event)
                self._put_delivery(delivery)
        else:
            core.begin_retry(delivery)
            self._deliver_round(delivery)

    def _deliver_round(self, entry: Event | Delivery) -> None:
        """Take the first entry, whose round has begun, out of the queue, and call the handlers of the round."""
        core = self._core
        round_ = core.round
        if not self._take_out_of_queue(entry):  # the close has made it a dead letter
            round_.event = None
            return
        run_round(round_, round_.event, self.handle_failure_in_place)
        self._end_round(round_)

    def _take_out_of_queue(self, entry: object) -> bool:
        """Take this entry, the first one, out of the queue; False if a close on another thread has already taken it out."""
        queue = self._core.queue
        try:
            first = queue.popleft()
        except IndexError:
            return False
        if first is entry:
            return True
        queue.appendleft(first)
        return False

    def _resume_round(self) -> None:
        """Finish a round that a KeyboardInterrupt or the like has ended early: call its remaining handlers."""
        round_, queue = self._core.round, self._core.queue
        entry = round_.again or round_.event
        if round_.at is None and queue and queue[0] is entry:
            self._deliver_round(queue[0])  # the interruption came before the event left the queue
            return
        round_.rest()  # drops the handlers that were called already
        run_round(round_, round_.event, self.handle_failure_in_place)
        self._end_round(round_)

    def _end_round(self, round_: DeliveryRound) -> None:
        """End the round after its last handler, and count its delivery as ended in the receipt of the event."""
        event, again = round_.event, round_.again
        round_.event = round_.again = None
        if again is not None and again.state is RUNNING:
            again.move(DONE)
        if self._core.receipts.followed and event is not None and not round_.is_dead_lettered:
            self._core.receipts.release(event)

    # --- the event loop ---

    def ready_loop(self) -> LoopDriver:
        """Return the driver on the event loop; the first call creates it."""
        with self._making_loop:
            return self.loop or self._make_loop(is_adopted=False)

    def _make_loop(self, *, is_adopted: bool) -> LoopDriver:
        """Create the driver, on this thread's running loop if `is_adopted`; from now on publishers do not take the fast path."""
        self._core.turn_of_callers = NEVER_FREE
        self.loop = LoopDriver(self._core, self.settle_on_loop, self.fill_lanes, self._notifier, is_adopted=is_adopted)
        return self.loop

    def adopt_loop(self) -> None:
        """Use the event loop that is running on this thread; RunError GBE638 if the bus has a loop already."""
        if self.loop is not None:
            raise RunError("GBE638")
        self._make_loop(is_adopted=True)

    def put_in_lane(self, subscription: LiveSubscription, call: EventCall, event: Event) -> None:
        """Put an event into the lane of a subscription. A thread other than that of the loop waits while the lane is full."""
        receipt = self._core.receipts.hold(event) if self._core.receipts.followed else None
        timeout_s = subscription.policy.timeout_s
        self._put_delivery(Delivery(call, subscription.lane, event, subscription, QUEUED, receipt, timeout_s=timeout_s))

    def _put_delivery(self, delivery: Delivery) -> None:
        """Put a delivery into its lane once there is room. If the grace of a close ends before that, make it a dead letter."""
        loop, core = self.ready_loop(), self._core
        lane = core.lane_of(delivery.subscription)
        if not core.has_room(lane) and not loop.is_here:
            self.wait_in_handler(lambda: core.has_room(lane) or self.is_abandoned)
        if self.is_abandoned:
            self._failures.drop_at_close(delivery.event, delivery.subscription.name, delivery.attempt - 1)
            core.receipts.release(delivery.event)
            return
        loop.put(delivery, lane)

    def fill_lanes(self) -> Delivery | None:
        """Move events from the head of the queue into lanes, while all their handlers run on the loop; for the loop's thread.

        At the first other entry it wakes a thread that delivers that entry.

        Returns:
            A delivery that the caller must begin now, before it calls this again; None if nothing more can be moved.
        """
        core = self._core
        queue, turn, receipts = core.queue, core.turn, core.receipts
        while queue:
            try:
                del turn[0]  # see `Core.take_turn`
            except IndexError:
                return None  # a thread delivers, and looks at the queue again before it ends
            try:
                entry = queue[0] if queue else None
                if self.deadline is not None and self.is_late():
                    return None
                if type(entry) is Event and core.round.event is None:
                    dispatch = core.routes.dispatches.get(entry.topic) or core.routes.find(entry.topic)
                    if dispatch.is_on_loop:
                        receipt = receipts.of(entry) if receipts.followed else None
                        begun = core.begin_alone(entry, dispatch, receipt)
                        if begun is None and not core.have_room(dispatch):
                            return None  # called again when a handler ends
                        if self._take_out_of_queue(entry) and begun is None:
                            core.place_in_lanes(entry, dispatch)
                        if begun is not None:
                            return begun
                        continue
            finally:
                turn.append(None)
            self.wake_other_thread()
            return None
        if self._notifier.waiting and not core.under_way:
            self._notifier.notify()
        return None

    def settle_on_loop(self, delivery: Delivery) -> None:
        """Process the end of a delivery on the loop: handle its failure, and note its result in the receipt, if it needs one."""
        event, subscription, error = delivery.event, delivery.subscription, delivery.error
        if error is not None:
            self.on_failure(delivery)
        if delivery.is_awaited and (delivery.children or error is not None):
            delivery.receipt = self._core.receipts.follow(event)
        receipt = delivery.receipt
        if error is not None:
            if not isinstance(error, Exception) or self._failures.handle_failure(delivery, error):  # e.g. SystemExit
                self.raised.append(error)
                self._notifier.notify()
        elif receipt is not None and subscription.is_active:
            receipt.note(subscription.name, delivery.result)
        if receipt is not None and receipt.release():
            self._core.receipts.close(receipt)

    # --- planned attempts ---

    def _deliver_due(self) -> None:
        """Deliver attempts whose time has come: on this thread, which is that of the timer, if no other thread does.

        With the clock of a test it is the test's thread; it also waits for the handlers on the loop.
        """
        self._notifier.notify()
        if self.is_handling() or self.dispatcher is not None:
            return
        self.drain_if_free(lambda: self._keep_error(self.drain))
        if not isinstance(self._clock, SystemClock):
            self._keep_error(lambda: self.wait_until(self.is_quiet))

    def _keep_error(self, work: Callable[[], object]) -> None:
        """Call `work`; keep its exception in `late_error` for a thread that waits, and raise it here as well."""
        _, error = try_to(work)
        if error is not None:  # only with `on_error="raise"`
            self.late_error = self.late_error or error
            self._notifier.notify()
            raise error

    # --- the dispatcher ---

    def start_dispatcher(self, on_interruption: Callable[[], None] = lambda: None) -> None:
        """Start a thread that delivers from now on; a publish outside of handlers then only queues.

        Args:
            on_interruption: Called on that thread after a KeyboardInterrupt, SystemExit or CancelledError in a handler has ended
                it. The queue is kept, and `close` delivers it.
        """
        self._on_interruption = on_interruption
        self._failures.is_served = True
        self._core.turn_of_callers = NEVER_FREE
        self.dispatcher = Thread(target=self._run_dispatcher, name="graphbus-dispatcher", daemon=True)
        self.dispatcher.start()

    def _run_dispatcher(self) -> None:
        """Deliver until the bus closes, or until a KeyboardInterrupt or the like in a handler; keep it as `interruption`."""
        self.interruption = attempt_anything(self._deliver_until_stopped)
        if self.interruption is not None:
            self._notifier.notify()  # the thread that closes the bus delivers now
            _log.error("a handler ended the dispatcher thread", exc_info=without_own_frames(self.interruption))
            self._on_interruption()

    def _deliver_until_stopped(self) -> None:
        """Deliver events until `is_stopping` is set; raise the first of the exceptions in `raised`, if there is one."""
        while not self.is_stopping:
            self.drain_if_free()
            raised = self.first_raised()
            if raised is not None:
                raise raised
            self.wait_for_change(lambda: self.is_stopping or self.raised or self.has_work())

    # --- waiting ---

    def is_at_rest(self, is_idle: Callable[[], object]) -> bool:
        """True if, at one moment, `is_idle` holds, nothing is queued and no thread delivers. It takes the turn to find out."""
        core = self._core
        if not core.take_turn():
            self._must_notify_at_rest = True
            if not core.take_turn():  # once more: its holder may have given it back before it saw the note
                return False
        try:
            is_resting = bool(is_idle()) and not core.has_work
        finally:
            core.turn.append(None)
            if self._must_notify_at_rest or core.has_work:  # a thread may have found the turn taken just now
                self._must_notify_at_rest = False
                self._notifier.notify()
        return is_resting and not core.has_work  # a publisher that found the turn taken has left its event to others

    def is_quiet(self) -> bool:
        """True when nothing is queued, being delivered or on the loop; planned attempts may wait."""
        return self.is_at_rest(self.is_loop_idle)

    def is_loop_idle(self) -> bool:
        """True when no delivery waits or runs in a lane."""
        return not self._core.under_way

    def wait_for_all_but(self, others: dict[Delivery, None]) -> None:
        """Deliver, and wait until the bus is quiet except for `others`, deliveries in lanes that this call does not wait for."""
        loop, under_way = self.loop, self._core.under_way
        if loop is None or not others:
            self.wait_until(self.is_quiet)
            return
        loop.watchers += 1  # so that the loop notifies this thread of each end, not only of the last one
        try:
            self.wait_until(lambda: self.is_at_rest(lambda: under_way.copy().keys() <= others.keys()))
        finally:
            loop.watchers -= 1

    def wait_until(self, is_so: Callable[[], object], deadline: float | None = None) -> bool:
        """Wait until a condition holds, and deliver meanwhile; raise the first exception in `raised`, if no dispatcher does so.

        Returns:
            False if the deadline (monotonic; None: no limit) or the grace of a close passed first.
        """
        while True:
            self.drain_if_free()
            self.raise_what_was_raised()
            if is_so():
                return True
            ends = [each for each in (deadline, self.deadline) if each is not None]
            left_s = min(ends) - monotonic() if ends else None
            if left_s is not None and left_s <= 0:
                return False
            self.wait_for_change(lambda: is_so() or self.has_work() or self._must_raise() or self.is_over, left_s)

    def _must_raise(self) -> bool:
        """True if this thread must raise an exception of a handler on the loop; with a dispatcher, that thread raises it."""
        return bool(self.raised) and self.dispatcher is None

    def raise_what_was_raised(self) -> None:
        """Raise the first exception of a handler on the loop that a waiting thread has to raise, if there is one."""
        raised = self.first_raised() if self._must_raise() else None
        if raised is not None:
            raise raised

    def first_raised(self) -> BaseException | None:
        """Take the first exception out of `raised`; None if there is none."""
        try:
            return self.raised.popleft()
        except IndexError:
            return None

    def wait_until_or_raise(self, is_so: Callable[[], object], timeout_s: float | None) -> bool:
        """Wait as `wait_until` does, and raise the exception of a further attempt (`late_error`) if there is one meanwhile."""

        def is_so_without_error() -> object:
            error, self.late_error = self.late_error, None
            if error is not None:
                raise error
            return is_so()

        return self.wait_until(is_so_without_error, now_plus(timeout_s))

    def refuse_in_handler(self) -> None:
        """Raise RunError GBE648 inside a handler: waiting there for deliveries would wait for the handler itself."""
        if self.is_handling():
            raise RunError("GBE648")

    # --- waiting in the middle of a handler ---

    def wait_in_handler(self, is_so: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait for a condition in the middle of a handler in place; False if `timeout_s` passed first, None waits for ever.

        Meanwhile this thread runs the calls that `async def` handlers make to agents that are not waiting on this stack.
        """
        deadline = now_plus(timeout_s)
        before = self.suspended
        self.suspended = busy = before.union(owner for owner, _ in self.waiting_chain())
        try:
            while not is_so():
                thread_job = self._take_job_for_others(busy)
                if thread_job is not None:
                    self._run_thread_job(thread_job, busy)
                    continue
                left_s = None if deadline is None else deadline - monotonic()
                if not self.wait_for_change(lambda: is_so() or self._has_job_for_others(busy), left_s):
                    return False
        finally:
            self.suspended = before
        return True

    def _run_thread_job(self, thread_job: ThreadJob, busy: frozenset[Hashable]) -> None:
        """Run a job, and note in `waits` meanwhile that the agents in `busy`, whose handlers are on this stack, wait for it."""
        is_noted = thread_job.owner != "" and self.waits.enter(busy, thread_job.owner)
        try:
            thread_job.do()
        finally:
            if is_noted:
                self.waits.leave(busy, thread_job.owner)

    def _has_job_for_others(self, busy: frozenset[Hashable]) -> bool:
        """True if a job waits whose agent is not in `busy`."""
        return any(thread_job.owner not in busy for thread_job in self._core.thread_jobs.copy())

    def _take_job_for_others(self, busy: frozenset[Hashable]) -> ThreadJob | None:
        """Take out the first job whose agent is not in `busy`; None if there is none."""
        found = next((each for each in self._core.thread_jobs.copy() if each.owner not in busy), None)
        if found is not None:
            self._core.thread_jobs.remove(found)
        return found

    def waiting_chain(self) -> tuple[Waiter, ...]:
        """Return the agents that wait for the code on this thread, outermost first, then the agent of the code itself, if any."""
        is_inside = self.is_inside
        inner = self.inner if is_inside else current_delivery() if self.loop is not None else None
        called = self.called if is_inside else ()
        if inner is not None:
            own: Waiter = (inner.lane, inner.name)
            return (*inner.chain, own, *called)
        current = self._core.round.at
        if not is_inside or self._core.round.event is None or current is None:
            return called
        return ((current.lane, current.name), *called)

    # --- the end ---

    def dead_letter_rest(self) -> None:
        """Make dead letters of everything that was not delivered, and cancel the handlers on the loop."""

        def left_in_lanes() -> list[Delivery]:
            return [] if self.loop is None else self.loop.cancel()

        self._failures.dead_letter_rest(is_abandoned=self.is_abandoned, left_in_lanes=left_in_lanes)
        self._notifier.notify()


def _start_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="graphbus-drain").start()
