"""The state of a bus as plain data, and every change to it. It starts no thread, reads no clock and knows no event loop.

Theory of operation
===================
Events enter at the end of one queue, which fixes the total order, and leave it at its head:

    accept -> queue -- begin ----------> round: `def` handlers, called in place one after the other
                    '-- place_in_lanes -> lane of an agent -- next_in_lane --> one `async def` handler at a time, on the loop

    delivery   one event on its way to one subscription, or one call whose result the caller waits for
    round      the event that is being delivered in place to all subscriptions of its topic; a handler that fails then gets a
               delivery of its own, for its further attempts
    lane       the deliveries that wait for one agent on the event loop
    receipt    counts what is left to do for one event and everything that its handlers publish
    turn       the right to deliver; one thread at a time has it

An event waits in the queue once for all its subscriptions, not once for each. A delivery changes its state only in these ways;
`Delivery.move` refuses any other:

    QUEUED   -> RUNNING    it starts                             QUEUED, RETRYING -> DEAD   the bus is closed
    RUNNING  -> DONE       the handler returned                  RETRYING -> QUEUED         its time has come
    RUNNING  -> RETRYING   it failed and is tried again later    RUNNING  -> DEAD           it failed for good

`finish(delivery, outcome, outgoing)` ends an attempt. Events that the handler published are in the queue before that, or enter it
as `outgoing`. So the bus never looks idle while a finished handler has left events behind.

Two drivers call the core: `sync` delivers on the thread that publishes or on one dispatcher thread, `loop` on an event loop.
Which thread may touch what:

    the turn     `Core.turn` is a list with one token. The thread that deletes the token has the turn, and appends a token when
                 it is done. Only that thread takes from the queue and changes the round, the history and the counts of topics.
                 No thread waits for the turn. No function is called between `del turn[0]` and `try`, nor before the token is
                 given back: a signal handler could run there and raise. A thread that needs the turn only to look at the state
                 and does not get it leaves a note before it sleeps, and is woken when the turn is given back.
    the queue    Any thread appends an event and then tries to take the turn. The thread that has the turn gives it back and then
                 looks at the queue again. Each writes first and reads second, so at least one of the two sees the event.
    a lane       The thread with the turn and the loop append. Only the thread of the loop takes out, begins and ends.
    a table      Subscriptions, planned attempts, dead letters and waits have a small lock each. It is held for a few lines
                 that call no user code and wait for nothing.
    a receipt    Holds one token for each thing left to do. Any thread adds a token before and removes one after. The thread
                 that removes the last one announces the end; a further token makes sure that only one thread does.
    a handler    Runs without any lock. The thread that calls handlers in place keeps the turn meanwhile.

Each step on the turn, the queue or a lane is one operation on a list, deque or dict. These are atomic with and without the
interpreter's global lock, and no code relies on two of them happening together. A lock in place of the turn would cost each
publish 200 ns more. A thread that sleeps registers before it looks at the state; a thread that changes the state does so before
it looks for sleeping threads.

The bus is at rest when nobody has the turn, nothing is queued and nothing is under way in a lane. To find out, a thread takes the
turn and looks: meanwhile nobody can move an event from one place to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from graphbus_core.bus.outcomes import AttemptOutcome, Done, Retry
from graphbus_core.bus.receipts import Receipt, Receipts
from graphbus_core.bus.routes import Dispatch, EventCall, LiveSubscription, Routes, SubscriptionCall
from graphbus_core.errors import BackpressureError
from graphbus_core.isolation import Job
from graphbus_core.model.deliveries import Reason
from graphbus_core.model.messages import Event

Waiter = tuple[Hashable, str]
"""An agent that waits for an answer: the key of its lane, and its name for messages."""


class DeliveryState(Enum):
    """The state of a delivery; the head of this module lists the allowed changes."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    DONE = "done"
    DEAD = "dead"


QUEUED, RUNNING, RETRYING, DONE, DEAD = DeliveryState
MOVES = frozenset(
    {
        (QUEUED, RUNNING),
        (RUNNING, DONE),
        (RUNNING, RETRYING),
        (RUNNING, DEAD),
        (RETRYING, QUEUED),
        (QUEUED, DEAD),
        (RETRYING, DEAD),
    }
)


class Delivery(msgspec.Struct, eq=False):
    """One event on its way to one subscription, or one call of a method.

    Most fields keep their defaults: each further write would add half the cost of creating the object.

    Attributes:
        call: The function to call, with the event if there is one.
        lane: The key of the lane, i.e. of the agent that the handler or method belongs to.
        event: The argument of the handler; None for a call of a method.
        subscription: The subscription of the handler; None for a call of a method.
        state: See the head of this module.
        receipt: The receipt that counts this delivery, if the event is followed.
        is_awaited: The publisher awaits this event in `publish_async`. A receipt is opened only when the handler publishes or
            fails.
        attempt: 1 for the first attempt.
        timeout_s: The time limit of the handler.
        chain: The agents that wait for the end of this call, outermost first.
        on_end: Called at the end, instead of what the bus does with a delivery otherwise.
        children: How many events the handler has published.
        outbox: With a ledger: collects the events that the handler publishes, instead of the queue.
        result: The value that was returned; kept only for a call, and for an event that has a receipt of its own.
        error: The exception that was raised.
        failed_at: When the first attempt failed; None before that.
        last_error: The exception of the last attempt, in one line.
        coroutine: The rest of an `async def` that has begun; `worker` continues it when it waits for something.
        is_over: The delivery has ended; set only where `on_end` is.
        is_plain: A `def` handler is running on the event loop, so that it cannot await anything.
        is_given_up: Nobody waits for the result any more.
        is_cancelled: The bus was closed before the handler ended.
    """

    call: Callable[..., Any]
    lane: Hashable = ""
    event: Any = None
    subscription: Any = None
    state: DeliveryState = QUEUED
    receipt: Receipt | None = None
    is_awaited: bool = False
    attempt: int = 1
    timeout_s: float | None = None
    chain: tuple[Waiter, ...] = ()
    on_end: Callable[[Delivery], None] | None = None
    children: int = 0
    outbox: list[Event] | None = None
    result: Any = None
    error: BaseException | None = None
    failed_at: float | None = None
    last_error: str = ""
    coroutine: Any = None
    worker: Any = None
    is_over: bool = False
    is_plain: bool = False
    is_given_up: bool = False
    is_cancelled: bool = False

    @property
    def name(self) -> str:
        """The name of the handler, or of the agent whose method is called."""
        return str(self.lane) if self.subscription is None else str(self.subscription.name)

    @property
    def has_begun(self) -> bool:
        """True once the handler has been called or is about to be."""
        return self.state is not QUEUED

    def begin(self) -> Any:
        """Call the handler or method, and return its result; for an `async def` that is a coroutine that the caller must await.

        It is not called, and None is returned, if nobody waits for the result any more or the handler was unsubscribed.
        """
        subscription = self.subscription
        if self.is_given_up or (subscription is not None and not subscription.is_active):
            return None
        self.is_plain = True  # for an `async def` too: the call below only creates its coroutine
        try:
            return self.call() if subscription is None else self.call(self.event)
        finally:
            self.is_plain = False

    def next_attempt(self, error_text: str, failed_at: float, receipt: Receipt | None) -> Delivery:
        """Return a delivery for the next attempt, in the state RETRYING. This delivery stays as it is."""
        return Delivery(
            self.call,
            self.lane,
            self.event,
            self.subscription,
            attempt=self.attempt + 1,
            receipt=receipt,
            timeout_s=self.subscription.policy.timeout_s,
            state=RETRYING,
            failed_at=failed_at,
            last_error=error_text,
        )

    def move(self, state: DeliveryState) -> None:
        """Change the state; raise AssertionError for a change that is not in `MOVES`, which would be a bug of the bus."""
        if (self.state, state) not in MOVES:
            raise AssertionError(f"a delivery never moves from {self.state.name} to {state.name}")
        self.state = state


class DeliveryRound:
    """The delivery of one event in place to all its subscriptions, by the thread that has the turn.

    Attributes:
        event: None between two rounds. It stays set when a KeyboardInterrupt or the like ends the round early.
        pairs: Each subscription with the function to call.
        at: The subscription whose handler is being called; None before the first.
        again: The delivery of a further attempt, if the round is one for a single subscription; else None.
        is_dead_lettered: The bus was closed meanwhile, and the rest of the round became dead letters.
        failing: The event and the subscription that failed last.
        publishing: The subscription that published last; None makes `next_child` count from 0.
    """

    __slots__ = ("_children", "_of", "again", "at", "event", "failing", "is_dead_lettered", "pairs", "publishing")

    def __init__(self) -> None:
        self.event: Event | None = None
        self.pairs: list[SubscriptionCall] = []
        self.at: LiveSubscription | None = None
        self.again: Delivery | None = None
        self.failing: tuple[Event, LiveSubscription] | None = None
        self.is_dead_lettered = False
        self._of: Event | None = None
        self.publishing: LiveSubscription | None = None
        self._children = 0

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return 1 if self.again is None else self.again.attempt

    def rest(self) -> list[SubscriptionCall]:
        """Remove from `pairs` the pair of the current handler (`at`) and all before it, and return the remaining ones."""
        for index, (each, _) in enumerate(self.pairs):
            if each is self.at:
                self.pairs, self.at = self.pairs[index + 1 :], None
                break
        return self.pairs

    def skip(self, subscription: LiveSubscription, instead: EventCall) -> None:
        """Let the round call `instead` in place of the handler of a subscription that was removed during the round."""
        for index, (each, _) in enumerate(self.pairs):
            if each is subscription:
                self.pairs[index] = each, instead

    def next_child(self) -> int:
        """Return how many events the current handler has published so far, and count one more."""
        if self.publishing is not self.at or self._of is not self.event:
            self.publishing, self._of, self._children = self.at, self.event, 0
        self._children += 1
        return self._children - 1


class Lane:
    """The deliveries that wait for one agent on the event loop, or for one subscription with `concurrency` above 1.

    Attributes:
        box: The waiting deliveries.
        running: How many are being handled.
        concurrency: How many may be handled at once.
        idle: Workers of the loop that have nothing to do.
    """

    __slots__ = ("box", "concurrency", "idle", "running")

    def __init__(self, concurrency: int) -> None:
        self.box: deque[Delivery] = deque()
        self.concurrency = concurrency
        self.running = 0
        self.idle: list[Any] = []


class ThreadJob:
    """A call that an `async def` handler makes to an agent without a lane: the thread that delivers runs it.

    Attributes:
        owner: The agent that is called.
        do: Runs the call.
    """

    __slots__ = ("do", "owner")

    def __init__(self, owner: Hashable, do: Callable[[], None]) -> None:
        self.owner, self.do = owner, do


QueueEntry = Event | Delivery | Job


NEVER_FREE: list[None] = []
"""A turn without a token, so that no thread ever gets it."""


class Core:
    """The state of a bus, and every change to it.

    Attributes:
        turn: One token, or empty while a thread delivers.
        turn_of_callers: The same list while publishers deliver themselves, else `NEVER_FREE`.
        deliverer: The id of the thread that has the turn and calls handlers, else 0.
        queue: New events, further attempts for one subscription, and jobs of other threads, in order.
        thread_jobs: Calls that `async def` handlers make to agents without a lane; they go before the queue.
        ready: The lanes in which a delivery may begin, one entry for each.
        under_way: The deliveries that wait or run in lanes.
        retrying: Each planned attempt with its time and the function that cancels its timer.
        history: The last events, in the order of their delivery.

    Args:
        capacity: How many entries may wait in the queue, and how many attempts may be planned. For the others see `MessageBus`.
    """

    def __init__(
        self, routes: Routes, *, history: int, capacity: int, mailbox: int, max_hops: int, max_tree: int
    ) -> None:
        self.routes = routes
        self.receipts = Receipts()
        self.turn: list[None] = [None]
        self.turn_of_callers = self.turn
        self.deliverer = 0
        self.queue: deque[QueueEntry] = deque()
        self.thread_jobs: deque[ThreadJob] = deque()
        self.round = DeliveryRound()
        self.history: deque[Event] = deque(maxlen=history)
        self.lanes: dict[Hashable, Lane] = {}
        self.ready: deque[Lane] = deque()
        self.under_way: dict[Delivery, None] = {}
        self.retrying: dict[Delivery, tuple[float, Callable[[], None]]] = {}
        self.capacity, self.mailbox, self.max_hops, self.max_tree = capacity, mailbox, max_hops, max_tree
        self.is_closed = False

    def take_turn(self) -> bool:
        """Take the turn if it is free; False if another thread has it.

        Some callers repeat this code inline, followed by `try`. A KeyboardInterrupt can come when this method returns, and then
        nobody would give the turn back; it cannot come between `del` and the next statement.
        """
        try:
            del self.turn[0]
        except IndexError:
            return False
        return True

    # --- into the queue ---

    def accept(self, event: Event) -> None:
        """Queue an event that no handler has published.

        Raises:
            BackpressureError: GBE636 too many events wait.
        """
        if len(self.queue) >= self.capacity:
            raise BackpressureError("GBE636", topic=event.topic, limit=self.capacity)
        self.queue.append(event)

    def why_refused(self, hops: int, kin: int) -> tuple[Reason, str]:
        """Return why an event of a handler is refused: its chain is too long, its tree is too large, or else the queue is full.

        Args:
            hops: The number of events before it in its chain.
            kin: The number of events in its tree.

        Returns:
            The reason of the dead letter, and a sentence for its text.
        """
        if hops > self.max_hops:
            return "hops", f"the causal chain has more than {self.max_hops} events"
        if kin > self.max_tree:
            return "tree", f"one event has caused more than {self.max_tree} events"
        return "full", f"{self.capacity} events are already waiting in the queue"

    # --- out of the queue, by the thread that has the turn ---

    @property
    def has_work(self) -> bool:
        """True while something waits for a thread that takes the turn."""
        return bool(self.queue or self.thread_jobs or self.round.event is not None)

    def begin(self, event: Event, dispatch: Dispatch) -> None:
        """Start the round of a new event. The caller then calls the handlers in `round.pairs`."""
        if dispatch.is_forgotten:  # the subscriptions have changed since the caller looked it up
            dispatch = self.routes.find(event.topic)
        self.history.append(event)
        dispatch.events += 1
        pairs = self._make_recording_pairs(dispatch, event) if self.receipts.followed else dispatch.pairs
        round_ = self.round
        round_.pairs, round_.at, round_.again, round_.publishing = pairs, None, None, None
        round_.event = event

    def place_in_lanes(self, event: Event, dispatch: Dispatch) -> None:
        """Put an event whose handlers all run on the event loop into the lane of each handler, even into a full one."""
        receipts, under_way = self.receipts, self.under_way
        self.history.append(event)
        dispatch.events += 1
        for each, call in dispatch.pairs:
            if not each.is_active:  # `call` is then what `Routes.skip` has put here
                call(event)
                continue
            lane = each.mailbox or self.lane_of(each)
            receipt = receipts.hold(event) if receipts.followed else None
            delivery = Delivery(each.call, each.lane, event, each, QUEUED, receipt, timeout_s=each.policy.timeout_s)
            under_way[delivery] = None
            lane.box.append(delivery)
            self.ready.append(lane)
        if receipts.followed:
            receipts.release(event)

    def begin_retry(self, delivery: Delivery) -> None:
        """Start the round of a further attempt, for its one subscription. The caller then calls the handler in `round.pairs`."""
        subscription = delivery.subscription
        self.routes.count(subscription)
        call = self.routes.call_again(subscription, delivery.attempt)
        pairs = [(subscription, call)]
        if self.receipts.followed and self.receipts.has(delivery.event):
            pairs = [(subscription, self._make_recording_call(subscription, call))]
        round_ = self.round
        round_.pairs, round_.at, round_.again, round_.publishing = pairs, None, delivery, None
        delivery.state = RUNNING  # not `move`: a KeyboardInterrupt at its return could keep the next line from running
        round_.event = delivery.event

    def _make_recording_pairs(self, dispatch: Dispatch, event: Event) -> list[SubscriptionCall]:
        """Return the calls of a dispatch; if the event has a receipt, they also note in it what the handlers return."""
        if not self.receipts.has(event):
            return dispatch.pairs

        is_async = self.routes.is_async
        return [
            (each, call if is_async(each) else self._make_recording_call(each, call)) for each, call in dispatch.pairs
        ]

    def _make_recording_call(self, subscription: LiveSubscription, call: EventCall) -> EventCall:
        """Return a function that calls `call` with an event, and notes the result in the receipt of the event."""

        def record(event: Event) -> None:
            self.receipts.note(event, subscription.name, call(event))

        return record

    # --- lanes ---

    def lane(self, key: Hashable, concurrency: int = 1) -> Lane:
        """Return the lane with this key; the first call creates it, with this `concurrency`."""
        return self.lanes.get(key) or self.lanes.setdefault(key, Lane(concurrency))

    def lane_of(self, subscription: LiveSubscription) -> Lane:
        """Return the lane of a subscription."""
        lane: Lane | None = subscription.mailbox
        if lane is None:
            lane = subscription.mailbox = self.lane(subscription.lane, subscription.policy.concurrency)
        return lane

    def has_room(self, lane: Lane) -> bool:
        """True if fewer than `mailbox` events wait in the lane."""
        return len(lane.box) < self.mailbox

    def have_room(self, dispatch: Dispatch) -> bool:
        """True if the lane of each handler of the topic has room for one more event."""
        for each, _ in dispatch.pairs:  # noqa: SIM110 - `all` with a generator costs thrice as much
            if len((each.mailbox or self.lane_of(each)).box) >= self.mailbox:
                return False
        return True

    def place(self, delivery: Delivery, lane: Lane) -> None:
        """Put a delivery into a lane, even into a full one. The caller then wakes the loop."""
        self.under_way[delivery] = None
        lane.box.append(delivery)
        self.ready.append(lane)

    def begin_alone(self, event: Event, dispatch: Dispatch, receipt: Receipt | None = None) -> Delivery | None:
        """Reserve the free lane of a topic's only handler for an event; for the thread that has the turn.

        Returns:
            The delivery, in the state RUNNING: the caller must call its handler on the loop now. None, and nothing has changed,
            if the dispatch has no `alone` or is outdated, or if the lane is busy.
        """
        alone = dispatch.alone
        if alone is None or dispatch.is_forgotten:
            return None
        lane: Lane = alone.mailbox or self.lane_of(alone)
        if lane.running or lane.box:
            return None
        self.history.append(event)
        dispatch.events += 1
        lane.running = 1
        delivery = Delivery(alone.call, alone.lane, event, alone, RUNNING, receipt)
        self.under_way[delivery] = None
        return delivery

    def begin_at_once(self, event: Event, dispatch: Dispatch) -> Delivery | None:
        """Do what `begin_alone` does for a thread without the turn: that of the loop. None also if other work comes first.

        Other work is an entry in the queue, a job, an unfinished round, or a thread that has the turn.
        """
        if self.queue or self.thread_jobs or self.round.event is not None or dispatch.alone is None:
            return None
        try:
            del self.turn[0]  # see `take_turn`
        except IndexError:
            return None
        try:
            return self.begin_alone(event, dispatch)
        finally:
            self.turn.append(None)

    def next_in_lane(self) -> tuple[Delivery, Lane] | None:
        """Remove the next delivery whose lane has room for it, and return both; None if there is none.

        Called in the thread of the loop only.
        """
        ready = self.ready
        while ready:
            lane = ready.popleft()
            if lane.running < lane.concurrency and lane.box:
                lane.running += 1
                delivery = lane.box.popleft()
                delivery.state = RUNNING
                return delivery, lane
        return None

    def leave_lane(self, delivery: Delivery, lane: Lane) -> None:
        """On the loop: free the place of an ended delivery in its lane. It becomes DONE unless it failed or was cancelled."""
        lane.running -= 1
        if lane.box:
            self.ready.append(lane)
        if delivery.state is RUNNING and not delivery.is_cancelled:
            delivery.state = DONE
        self.under_way.pop(delivery, None)

    # --- the end of an attempt ---

    def finish(self, delivery: Delivery, outcome: AttemptOutcome, outgoing: Sequence[Event] = ()) -> None:
        """End the last attempt of a delivery; for a further attempt `schedule_retry` is called instead.

        Args:
            delivery: In the state RUNNING.
            outcome: `Done` or `Dead`.
            outgoing: Events that the handler published and that are not in the queue yet.
        """
        self.queue.extend(outgoing)
        delivery.move(DONE if isinstance(outcome, Done) else DEAD)
        self.under_way.pop(delivery, None)

    def schedule_retry(self, again: Delivery, outcome: Retry, cancel: Callable[[], None]) -> None:
        """Keep the next attempt until its time has come; `cancel` stops the timer that calls `queue_due_retry`."""
        self.retrying[again] = outcome.at, cancel

    def queue_due_retry(self, delivery: Delivery) -> bool:
        """Queue a planned attempt whose time has come; False if it is not planned any more, because the bus was closed."""
        if delivery not in self.retrying:
            return False
        delivery.move(QUEUED)
        self.queue.append(delivery)  # appended first, so that a thread that looks at both always finds it
        del self.retrying[delivery]
        return True

    def next_due(self) -> float | None:
        """Return when the next planned attempt is due, on the monotonic clock of the bus; None if none is planned."""
        return min((at for at, _ in list(self.retrying.values())), default=None)

    # --- the end of the bus ---

    def close(self) -> None:
        """Plan no further attempts from now on."""
        self.is_closed = True

    def left_in_queue(self) -> Iterator[QueueEntry]:
        """Empty the queue, and yield what was in it."""
        while self.queue:
            yield self.queue.popleft()

    def left_to_retry(self) -> Iterator[Delivery]:
        """Cancel all planned attempts, and yield them."""
        while self.retrying:
            delivery, (_, cancel) = self.retrying.popitem()
            cancel()
            yield delivery
