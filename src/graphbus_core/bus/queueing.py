"""The queue of a bus: what waits, who has caused it, and when there is too much of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import length_hint
from threading import Lock, Thread, get_ident
from time import time
from typing import Literal, NamedTuple

from graphbus_core.bus import lanes as loop
from graphbus_core.bus.doorbell import Doorbell
from graphbus_core.bus.lanes import Delivery, Lanes
from graphbus_core.bus.ledger import Ledger
from graphbus_core.bus.receipts import Receipt, Receipts
from graphbus_core.bus.right import Right
from graphbus_core.bus.routing import Admit, Call, Dispatch, Routes, Subscription
from graphbus_core.bus.waits import Waits
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import BackpressureError
from graphbus_core.isolation import Job
from graphbus_core.middleware import Middleware
from graphbus_core.model.deliveries import Reason
from graphbus_core.model.messages import Event, child_of, count_descendant
from graphbus_core.schema.json import Json, freeze

OnError = Literal["isolate", "raise"]

Asker = tuple[Hashable, str]
"""Who waits for an answer: its lane, and its name for people."""


class Redelivery(NamedTuple):
    """A further attempt to deliver one event to one subscription."""

    event: Event
    subscription: Subscription
    attempt: int


class Errand(NamedTuple):
    """What an async handler asks of a thread, on behalf of an agent without a lane."""

    owner: Hashable
    do: Callable[[], None]


class Queueing(ABC):
    """The state of a bus, and how an event comes into its queue. See `MessageBus` for the arguments."""

    __slots__ = (  # what every publish touches; an object with more than thirty attributes is slow to read without
        "__dict__",
        "_bell",
        "_called",
        "_calls",
        "_children",
        "_dispatch",
        "_dispatches",
        "_drainer",
        "_errands",
        "_event",
        "_followed",
        "_history",
        "_inner",
        "_lanes",
        "_max_hops",
        "_max_tree",
        "_on_failure",
        "_publishing",
        "_queue",
        "_right_of_callers",
        "_right_to_drain",
        "_time",
        "_waiting",
    )

    def __init__(
        self,
        *,
        history: int,
        on_error: OnError,
        queue: int,
        mailbox: int,
        max_hops: int,
        max_tree: int,
        dead_letters: int,
        known_topics: int,
        admit: Admit | None,
        middleware: Sequence[Middleware],
        clock: Clock,
    ) -> None:
        self._on_error = on_error
        self._capacity = queue
        self._mailbox = mailbox
        self._max_hops = max_hops
        self._max_tree = max_tree
        self._clock = clock
        self._time = time if type(clock) is SystemClock else clock.time  # the machine's, without a call in between
        self._routes = Routes(self._put, admit, known_topics, middleware)
        self._dispatches = self._routes.dispatches
        self._on_root = tuple(each.on_root for each in middleware if hasattr(each, "on_root"))
        self._ledger = Ledger(history, dead_letters, clock)
        self._history = self._ledger.history
        self._queue: deque[Event | Job | Redelivery] = deque()
        self._errands: deque[Errand] = deque()  # of async handlers; they go before the queue
        self._right_to_drain = Right()
        self._right_to_drain.token = []
        self._right_of_callers = self._right_to_drain  # with a dispatcher: one without a token
        self._drainer = 0
        self._event: Event | None = None  # being delivered; still set after an interruption
        self._attempt = 1
        self._dispatch = Dispatch([], [], None)
        self._calls: Iterator[Call] = iter(())
        # the delivery, by its event and iterator, and the handler that published last
        self._publishing: tuple[Event | None, Iterator[Call], int] = (None, self._calls, -1)
        self._children = 0  # how many it has published
        self._inner: Delivery | None = (
            None  # what the thread that drains does inside of a handler, or on behalf of a lane
        )
        self._called: tuple[Asker, ...] = ()  # the agents whose methods it calls there
        self._lanes: Lanes | None = None
        self._bell = Doorbell()
        self._waiting = self._bell.waiting
        self._receipts = Receipts()
        self._followed = self._receipts.followed  # empty on a bus whose callers deliver
        self._raised: deque[BaseException] = deque()  # of async handlers; it goes up where somebody waits
        self._dispatcher: Thread | None = None
        self._is_stopping = False
        self.interruption: BaseException | None = None
        self._is_closing = False
        self._on_failure = self._failed  # bound once: binding costs as much as a handler
        self._judging = Lock()
        self._deadline: float | None = None
        self._is_abandoned = False  # somebody drains, in a handler that did not end with the grace
        self._closer = 0  # the thread that does in its place what is still to be done
        self._waits = Waits()
        self._suspended: frozenset[Hashable] = frozenset()  # whose handlers wait on the stack of who drains
        self._is_over = False  # nothing is delivered any more
        self._watch()

    # --- queueing ---

    def _enqueue(self, topic: str, payload: Json, src: str) -> Receipt | None:
        frozen = freeze(payload)
        cause = self._cause()
        receipt = None
        if cause is not None:
            by, name, ordinal = cause
            event = child_of(by, topic, frozen, src, name, ordinal, self._time())
            if self._is_stopped_by_guards(event) or self._is_stopped_by_fullness(event):
                return None
            if self._followed:
                self._receipts.hold(event)
        else:
            event = Event(topic, frozen, src, self._time())
            if len(self._queue) >= self._capacity:
                raise BackpressureError("GBE636", topic=topic, limit=self._capacity)
            if self._dispatcher is not None:
                receipt = Receipt(event, self._is_handling)
                self._receipts.open(receipt)
            for tell in self._on_root:
                tell(event)
        self._queue.append(event)
        if self._drainer != get_ident():
            self._announce()
        return receipt

    def _cause(self) -> tuple[Event, str, int] | None:
        """The event whose handler is publishing, the handler, and how many it has published before."""
        is_inside = self._drainer == get_ident()
        delivery = self._inner if is_inside else loop.current()
        if delivery is not None:
            return None if delivery.event is None else self._caused_on_loop(delivery)
        event = self._event
        if event is None or not is_inside:
            return None
        position = self._position
        last, calls, place = self._publishing
        if last is not event or calls is not self._calls or place != position:
            self._publishing, self._children = (event, self._calls, position), 0
        ordinal = self._children
        self._children += 1
        return event, self._dispatch.subscriptions[position].name, ordinal

    def _caused_on_loop(self, delivery: Delivery) -> tuple[Event, str, int]:
        # No other thread comes in between reading and writing in a line without a call: `async def` handlers start threads.
        ordinal, delivery.children = delivery.children, delivery.children + 1
        if delivery.is_awaited and self._lanes is not None and delivery in self._lanes.under_way:
            self._receipts.follow(delivery.event)
            delivery.is_awaited = False
        return delivery.event, delivery.subscription.name, ordinal

    def _is_stopped_by_guards(self, child: Event) -> bool:
        if child.hops > self._max_hops:
            self._stop(child, "hops", f"the causal chain has more than {self._max_hops} events")
        elif count_descendant(child) > self._max_tree:
            self._stop(child, "tree", f"more than {self._max_tree} events came of one")
        else:
            return False
        return True

    def _is_stopped_by_fullness(self, child: Event) -> bool:
        if len(self._queue) < self._capacity:
            return False
        self._stop(child, "full", f"{self._capacity} events wait already")
        return True

    def _stop(
        self,
        event: Event,
        reason: Reason,
        why: str,
        subscription: str = "",
        *,
        attempts: int = 0,
        since: float | None = None,
    ) -> None:
        with self._judging:
            self._ledger.stopped(event, reason, why, subscription, attempts=attempts, since=since)

    @property
    def _is_inside(self) -> bool:
        return self._drainer == get_ident()

    def _is_handling(self) -> bool:
        """True in a handler, or in what it has started: there nobody may wait for a delivery."""
        return self._is_inside or loop.current() is not None

    @property
    def _position(self) -> int:
        """Which call of the dispatch is running: a list iterator knows how much of it is left."""
        return len(self._dispatch.calls) - length_hint(self._calls) - 1

    @abstractmethod
    def _watch(self) -> None:
        """Begin to keep what waits for a further attempt."""

    @abstractmethod
    def _announce(self) -> None:
        """Something was queued: let it be delivered by whom it may concern."""

    @abstractmethod
    def _put(self, subscription: Subscription, call: Call, event: Event, attempt: int) -> None:
        """Send the event to a handler that runs on the event loop."""

    @abstractmethod
    def _failed(self, error: Exception) -> None:
        """A handler that was called in place has raised."""
