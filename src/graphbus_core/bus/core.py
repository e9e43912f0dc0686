"""What a bus has to do, as plain data: it starts no thread, reads no clock, waits for nobody, and knows no event loop.

Theory of operation
===================
Work comes in at the end of one queue, which fixes the total order, and is taken out at its head:

    accept -> queue -- begin --> round: the handlers in place, one after the other
                    '-- place_all --> lane of an agent -- next_in_lane --> one handler at a time

A *delivery* is one event on its way to one subscription, or one call whose result somebody waits for. An event that is still
for all who hear its topic is in the queue as itself; while it is delivered, it is the *round*. A handler of the round that fails
becomes a delivery of its own. These are all the moves of a delivery; `Delivery.move` refuses any other:

    QUEUED    -> RUNNING    its turn has come                    QUEUED, RETRYING -> DEAD   the bus is closed
    RUNNING   -> DONE       the handler has returned             RETRYING -> QUEUED         its time has come
    RUNNING   -> RETRYING   it failed; once more, at a time      RUNNING  -> DEAD           it failed for good

`finish(delivery, outcome, outgoing)` is the end of an attempt. What its handler has published comes into the queue before
that, or with it as `outgoing`: so nothing is at rest that has something to follow.

Two drivers move the core: `sync` on the threads of those who publish, or on one thread, and `loop` on an event loop. Handlers
run outside of both. Who may touch what:

    the turn      A list with one token. Who deletes it has the turn, and appends another one at the end: so one thread at a time
                  takes from the queue, and touches the round, the history and the counts of topics. Nobody waits for the turn.
                  Nothing is called between taking it and `try`, nor before giving it back: there a signal could come.
                  Who only looks, finds it taken and sleeps, says so first, and is woken by who gives it back.
    the queue     Anybody appends, and then tries to get the turn. Who gives the turn back looks at the queue once more. One of
                  the two finds the event: each has changed what it owns before it looks at what the other has changed.
    a lane        Anybody who has the turn, and the loop, appends. Only the thread of the loop takes out, begins and ends.
    a table       Subscriptions, further attempts, dead letters and waits have a small lock each. It is held for some lines
                  in which no code of others runs and nobody waits.
    a receipt     One token for each thing that is left to do. Anybody adds one before, and takes one after; who takes the
                  last one tells, and one more token sees to it that only one does.
    a handler     Runs outside of all of this, but for the turn: that stays with the thread that calls handlers in place.

A step of the turn, the queue or a lane is one operation of a list, deque or dict. Each is safe with threads, with and without a
global lock of the interpreter, and nothing relies on two of them being one. A lock in the place of the turn costs a publish
200 ns more. Whoever sleeps has registered before looking, and who changes something does so before looking at who sleeps.

At rest: nobody has the turn, nothing is queued, nothing is under way in a lane. Who wants to know takes the turn, and looks:
then nobody moves anything from one place to another meanwhile. `Receipt` counts the same for what came of one event.
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
"""Who waits for an answer: its lane, and its name for people."""


class DeliveryState(Enum):
    """Where a delivery stands."""

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

    It is cheap to make and costs half as much again for each field that is written later: what most never need is not written.

    Attributes:
        call: Takes the event if there is one.
        lane: Who the handler or method belongs to.
        event: What the handler is called with; None for a call.
        subscription: Of the handler; None for a call.
        is_awaited: Who published the event awaits it and what comes of it, which nobody follows yet.
        attempt: 1 for the first time that the event goes to this handler.
        receipt: Counts this delivery, if somebody follows the event or what it came of.
        timeout_s: How long it may take.
        chain: Who waits for the end of this call, from the outermost on.
        on_end: Called when it is over, in the place of what the bus does otherwise.
        state: See the theory of operation.
        children: How many events it has published.
        result: What it has given; only kept for a call, and for an event that somebody follows.
        error: What it has raised.
        since: When the first attempt failed; None before that. `told` says in one line what the last one has raised.
        coroutine: What is left of an `async def` that has begun; `worker` goes on with it when it waits for something.
        is_over: It has been carried to its end; only noted where somebody waits for it, who has set `then`.
        is_plain: A `def` of an agent on the loop is running: it cannot await anything.
        is_given_up: Nobody waits for its result any more.
        is_cancelled: The bus was closed first, and nothing more becomes of it.
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
        """The handler, or the agent that is called."""
        return str(self.lane) if self.subscription is None else str(self.subscription.name)

    @property
    def has_begun(self) -> bool:
        """True when the handler was called, or is about to be."""
        return self.state is not QUEUED

    def begin(self) -> Any:
        """Call; what an `async def` gives is to be awaited."""
        subscription = self.subscription
        if self.is_given_up or (subscription is not None and not subscription.is_active):
            return None
        self.is_plain = True  # unless it gives a coroutine, whose body does not run yet either
        try:
            return self.call() if subscription is None else self.call(self.event)
        finally:
            self.is_plain = False

    def next_attempt(self, told: str, failed_at: float, receipt: Receipt | None) -> Delivery:
        """Make the next attempt, which waits for its time; what has the first one of these as its cause stays what it is."""
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
            last_error=told,
        )

    def move(self, state: DeliveryState) -> None:
        """Make one of the moves of `MOVES`, and no other."""
        if (self.state, state) not in MOVES:
            raise AssertionError(f"a delivery never moves from {self.state.name} to {state.name}")
        self.state = state


class DeliveryRound:
    """The event that is delivered in place, by the thread that has the turn.

    Attributes:
        event: None between two rounds. After an interruption it is still there.
        pairs: The subscriptions with what to call; `at` is the one that is called, None before the first.
        again: The delivery, when the event comes to one subscription again.
        is_buried: The bus was closed meanwhile, and what is left of the round is among the dead letters.
        failing: The event and the subscription that have failed last.
        publishing: The last one that has published; None: `next_child` begins to count anew.
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
        """1 for the first time."""
        return 1 if self.again is None else self.again.attempt

    def rest(self) -> list[SubscriptionCall]:
        """Give those that are yet to be called, and forget the others."""
        for index, (each, _) in enumerate(self.pairs):
            if each is self.at:
                self.pairs, self.at = self.pairs[index + 1 :], None
                break
        return self.pairs

    def skip(self, subscription: LiveSubscription, instead: EventCall) -> None:
        """Do not call a handler any more that was unsubscribed."""
        for index, (each, _) in enumerate(self.pairs):
            if each is subscription:
                self.pairs[index] = each, instead

    def next_child(self) -> int:
        """How many events the handler that is called has published before this one."""
        if self.publishing is not self.at or self._of is not self.event:
            self.publishing, self._of, self._children = self.at, self.event, 0
        self._children += 1
        return self._children - 1


class Lane:
    """What waits for an agent on the event loop, or for one subscription that takes several events at once.

    Attributes:
        idle: Workers that have nothing to do; for the loop.
    """

    __slots__ = ("box", "concurrency", "idle", "running")

    def __init__(self, concurrency: int) -> None:
        self.box: deque[Delivery] = deque()
        self.concurrency = concurrency
        self.running = 0
        self.idle: list[Any] = []


class ThreadJob:
    """What an async handler asks of the thread that delivers, on behalf of an agent without a lane."""

    __slots__ = ("do", "owner")

    def __init__(self, owner: Hashable, do: Callable[[], None]) -> None:
        self.owner, self.do = owner, do


QueueEntry = Event | Delivery | Job


NEVER_FREE: list[None] = []
"""A turn that nobody ever gets."""


class Core:
    """The state of a bus, and every move in it.

    Attributes:
        turn: One token, or nothing while somebody delivers. `turn_of_callers` is the same as long as callers deliver.
        deliverer: The thread that has the turn, if it calls handlers; only compared with the thread that asks.
        queue: Events for all who hear them, further attempts, and work of others in its turn.
        errands: Work of async handlers; it goes before the queue.
        ready: A lane for each delivery that was placed in one and may begin.
        under_way: What waits or runs in lanes.
        retrying: What comes again later, with what cancels its timer.
        history: The last events, in the order of their delivery.
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
        """Take the turn if it is free. It is a statement and not a call, so that no signal comes between it and the next one."""
        try:
            del self.turn[0]
        except IndexError:
            return False
        return True

    # --- into the queue ---

    def accept(self, event: Event) -> None:
        """Queue an event from outside.

        Raises:
            BackpressureError: GBE636 too many wait.
        """
        if len(self.queue) >= self.capacity:
            raise BackpressureError("GBE636", topic=event.topic, limit=self.capacity)
        self.queue.append(event)

    def why_refused(self, hops: int, kin: int) -> tuple[Reason, str]:
        """Why an event of a handler goes no further: too long a chain, too large a tree, or too much that waits.

        Args:
            hops: How many events came before it.
            kin: How many events came of its root.
        """
        if hops > self.max_hops:
            return "hops", f"the causal chain has more than {self.max_hops} events"
        if kin > self.max_tree:
            return "tree", f"more than {self.max_tree} events came of one"
        return "full", f"{self.capacity} events wait already"

    # --- out of the queue: by who has the turn ---

    @property
    def has_work(self) -> bool:
        """Something waits for the turn."""
        return bool(self.queue or self.thread_jobs or self.round.event is not None)

    def begin(self, event: Event, dispatch: Dispatch) -> None:
        """Let an event for all who hear its topic be the round."""
        if dispatch.is_forgotten:
            dispatch = self.routes.find(event.topic)
        self.history.append(event)
        dispatch.events += 1
        pairs = self._recording(dispatch, event) if self.receipts.followed else dispatch.pairs
        round_ = self.round
        round_.pairs, round_.at, round_.again, round_.publishing = pairs, None, None, None
        round_.event = event

    def place_in_lanes(self, event: Event, dispatch: Dispatch) -> None:
        """Put an event that only lanes hear into each of them."""
        receipts, under_way = self.receipts, self.under_way
        self.history.append(event)
        dispatch.events += 1
        for each, call in dispatch.pairs:
            if not each.is_active:
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
        """Let a further attempt for one subscription be the round."""
        subscription = delivery.subscription
        self.routes.count(subscription)
        call = self.routes.call_again(subscription, delivery.attempt)
        pairs = [(subscription, call)]
        if self.receipts.followed and self.receipts.has(delivery.event):
            pairs = [(subscription, self._recorded(subscription, call))]
        round_ = self.round
        round_.pairs, round_.at, round_.again, round_.publishing = pairs, None, delivery, None
        delivery.state = RUNNING  # and no call: an interruption comes before both lines or after both
        round_.event = delivery.event

    def _recording(self, dispatch: Dispatch, event: Event) -> list[SubscriptionCall]:
        """The same calls, with what they return in the receipt, if the event has one."""
        if not self.receipts.has(event):
            return dispatch.pairs

        is_async = self.routes.is_async
        return [(each, call if is_async(each) else self._recorded(each, call)) for each, call in dispatch.pairs]

    def _recorded(self, subscription: LiveSubscription, call: EventCall) -> EventCall:
        def record(event: Event) -> None:
            self.receipts.note(event, subscription.name, call(event))

        return record

    # --- lanes ---

    def lane(self, key: Hashable, concurrency: int = 1) -> Lane:
        """Give a lane; it is made when first asked for, and stays."""
        return self.lanes.get(key) or self.lanes.setdefault(key, Lane(concurrency))

    def lane_of(self, subscription: LiveSubscription) -> Lane:
        """Give the lane of a subscription."""
        lane: Lane | None = subscription.mailbox
        if lane is None:
            lane = subscription.mailbox = self.lane(subscription.lane, subscription.policy.concurrency)
        return lane

    def has_room(self, lane: Lane) -> bool:
        """True while one more event may wait in the lane."""
        return len(lane.box) < self.mailbox

    def have_room(self, dispatch: Dispatch) -> bool:
        """True when each lane that hears the topic may take one more event."""
        for each, _ in dispatch.pairs:  # noqa: SIM110 - `all` with a generator costs thrice as much
            if len((each.mailbox or self.lane_of(each)).box) >= self.mailbox:
                return False
        return True

    def place(self, delivery: Delivery, lane: Lane) -> None:
        """Put a delivery into a lane, whether that has room or not."""
        self.under_way[delivery] = None
        lane.box.append(delivery)
        self.ready.append(lane)

    def begin_alone(self, event: Event, dispatch: Dispatch, receipt: Receipt | None = None) -> Delivery | None:
        """Let the only handler of a topic begin with an event at once, if its lane has nothing else; for who has the turn."""
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
        """Do what `begin_alone` does if nothing comes first; for the thread of the loop only."""
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
        """Take a delivery out of a lane that has nothing else in hand; for the thread of the loop only."""
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
        """A delivery has ended; for the thread of the loop only. One that was cancelled with the bus is a dead letter."""
        lane.running -= 1
        if lane.box:
            self.ready.append(lane)
        if delivery.state is RUNNING and not delivery.is_cancelled:
            delivery.state = DONE
        self.under_way.pop(delivery, None)

    # --- the end of an attempt ---

    def finish(self, delivery: Delivery, outcome: AttemptOutcome, outgoing: Sequence[Event] = ()) -> None:
        """End an attempt.

        Args:
            outcome: For `Retry`, `retry` comes in its place when the timer is set.
            outgoing: What the handler has published, where that was not queued before.
        """
        self.queue.extend(outgoing)
        delivery.move(DONE if isinstance(outcome, Done) else DEAD)
        self.under_way.pop(delivery, None)

    def schedule_retry(self, again: Delivery, outcome: Retry, cancel: Callable[[], None]) -> None:
        """Keep the next attempt until its time has come; `cancel` stops the timer that calls `due`."""
        self.retrying[again] = outcome.at, cancel

    def queue_due_retry(self, delivery: Delivery) -> bool:
        """Queue a further attempt whose time has come; False when the bus was closed meanwhile."""
        if delivery not in self.retrying:
            return False
        delivery.move(QUEUED)
        self.queue.append(delivery)  # before it is taken out, so that who looks at both never misses it
        del self.retrying[delivery]
        return True

    def next_due(self) -> float | None:
        """When the next further attempt is due; None when none waits."""
        return min((at for at, _ in list(self.retrying.values())), default=None)

    # --- the end of the bus ---

    def close(self) -> None:
        """No further attempt is planned from now on."""
        self.is_closed = True

    def left_in_queue(self) -> Iterator[QueueEntry]:
        """Take out what will not be delivered."""
        while self.queue:
            yield self.queue.popleft()

    def left_to_retry(self) -> Iterator[Delivery]:
        """Take out what will not come again."""
        while self.retrying:
            delivery, (_, cancel) = self.retrying.popitem()
            cancel()
            yield delivery
