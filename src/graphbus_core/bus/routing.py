"""Who gets the events of which topic: the subscriptions, and for each topic in use the compiled list of calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock

from graphbus_core.bus.lanes import Lane
from graphbus_core.bus.redelivery import check_policy
from graphbus_core.bus.signatures import BoundHandler, Handler, bind, describe, place_of
from graphbus_core.errors import RunError
from graphbus_core.middleware import Middleware, around_handler
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, Counts, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import is_pattern, is_topic, is_topic_or_pattern, matches
from graphbus_core.schema.json import Json

PayloadCheck = Callable[[Json], Json]
"""Gives the payload as it is to be delivered, or raises RunError."""

Admit = Callable[[str], PayloadCheck | None]
"""Asked when a topic comes into use: raises RunError for an unknown one, or gives the check of its payloads, or None."""

Call = Callable[[Event], object]


class Subscription:
    """One handler of one topic or pattern: what `subscribe` gives and `unsubscribe` takes.

    Attributes:
        owner: The agent, or what stands for one.
        lane: Who the handler belongs to: two handlers of one lane never run at once. One that takes several events at once has
            a lane of its own.
        call: What is called with an event, middleware included.
        is_async: The handler is an `async def`.
        again: Gives what is called for a further attempt; None: the same.
        mailbox: Where its events wait if it runs on the event loop; None before the first. It is always the same one.
    """

    __slots__ = (
        "again",
        "call",
        "delivered",
        "failed",
        "is_active",
        "is_async",
        "lane",
        "mailbox",
        "name",
        "owner",
        "policy",
        "topic",
    )

    def __init__(self, topic: str, name: str, owner: Hashable, call: Call, policy: DeliveryPolicy = ONCE) -> None:
        self.topic = topic
        self.name = name
        self.owner = owner
        # one that takes several events at once is in nobody's way
        self.lane = owner if policy.concurrency == 1 else (owner, name, topic)
        self.call = call
        self.again: Callable[[int], Call] | None = None
        self.policy = policy
        self.is_active = True
        self.is_async = False
        self.mailbox: Lane | None = None
        self.delivered = 0
        self.failed = 0


class Dispatch:
    """One topic, compiled: whom to call, in order, and for each call its subscription; `events` counts how often.

    `only` is the call if there is no other; `is_on_loop` says that nobody of them is called in place, and `alone` is the only
    subscription if it is an `async def` that takes one event at a time and as long as it wants.
    """

    __slots__ = ("alone", "calls", "check", "events", "is_on_loop", "only", "subscriptions")

    def __init__(self, calls: list[Call], subscriptions: list[Subscription], check: PayloadCheck | None) -> None:
        self.calls = calls
        self.subscriptions = subscriptions
        self.check = check
        self.events = 0
        self.only: Call | None = None
        self.is_on_loop = False
        self.alone: Subscription | None = None

    def take_out(self, subscription: Subscription, *, after: int) -> None:
        """Skip the subscription in the round that is going on, if its turn comes after this position."""
        for index, each in enumerate(self.subscriptions):
            if each is subscription and index > after:
                self.calls[index], self.only = _skip, None
                subscription.delivered -= 1


def _skip(_event: Event) -> None:
    """Takes the place of a handler that was unsubscribed while an event was on its way to it."""


class Routes:
    """The subscriptions of a bus. Safe from any thread.

    Args:
        put: How an event goes to a subscription whose lane is on the event loop.
        admit: See `Admit`.
        limit: How many topics are kept compiled.
        middleware: What goes around every handler, outermost first.
    """

    def __init__(
        self,
        put: Callable[[Subscription, Call, Event, int], None],
        admit: Admit | None,
        limit: int,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.dispatches: dict[str, Dispatch] = {}
        self.subscriptions: tuple[Subscription, ...] = ()
        self.async_lanes: set[Hashable] = set()
        self._put = put
        self.admit = admit
        self._limit = limit
        self._middleware = tuple(middleware)
        self._published = 0
        self._compiled = self.dispatches  # once the bus is closing: a dict of its own
        self._changing = Lock()

    def add(
        self, topic: str, handler: Handler, *, name: str, owner: str, shape: HandlerShape | None, policy: DeliveryPolicy
    ) -> Subscription:
        """Subscribe; see `MessageBus.subscribe`."""
        subscription, is_async = self.make(topic, handler, name=name, owner=owner, shape=shape, policy=policy)
        with self._changing:
            self.subscriptions = (*self.subscriptions, subscription)
            if is_async and subscription.lane not in self.async_lanes:
                self.async_lanes.add(subscription.lane)
                self._forget_all()
            elif is_pattern(topic):
                self._forget_all()
            elif topic in self._compiled:
                self._forget(topic)
        return subscription

    def make(
        self, topic: str, handler: Handler, *, name: str, owner: str, shape: HandlerShape | None, policy: DeliveryPolicy
    ) -> tuple[Subscription, bool]:
        """Prepare a subscription that is not served yet, and tell whether its handler is async."""
        if not is_topic_or_pattern(topic):
            raise RunError("GBE610", topic=topic, reason="it is no topic and no pattern")
        bound = bind(handler, shape=shape)
        if policy is not ONCE:
            check_policy(policy, handler=name or describe(handler), is_async=bound.is_async, where=place_of(handler))
        whose: Hashable = owner or id(getattr(handler, "__self__", handler))
        name = name or describe(handler)
        call = self._surrounded(bound, owner, name, 1)
        subscription = Subscription(topic, name, whose, call, policy)
        subscription.is_async = bound.is_async
        if self._middleware:
            subscription.again = lambda attempt: self._surrounded(bound, owner, name, attempt)
        return subscription, bound.is_async

    def remove(self, subscription: Subscription) -> bool:
        """Unsubscribe; False when it was done before."""
        with self._changing:
            if not subscription.is_active:
                return False
            subscription.is_active = False
            self.subscriptions = tuple(each for each in self.subscriptions if each is not subscription)
            for topic, dispatch in list(self._compiled.items()):
                if subscription in dispatch.subscriptions:
                    self._forget(topic)
        return True

    def use_lane(self, owner: str) -> None:
        """Let everything of this owner run on the event loop, as if it had an async handler."""
        with self._changing:
            self.async_lanes.add(owner)
            self._forget_all()

    def compile(self, topic: str) -> Dispatch:
        """Find out who gets the events of the topic.

        Raises:
            RunError: GBE610 for what is no topic, and what `admit` refuses.
        """
        if not is_topic(topic):
            reason = "only subscriptions may have wildcards" if is_topic_or_pattern(topic) else "it is malformed"
            raise RunError("GBE610", topic=topic, reason=reason)
        check = self.admit(topic) if self.admit is not None else None
        with self._changing:
            known = self._compiled.get(topic)
            if known is not None:  # another thread was faster, and counts on it
                return known
            dispatch = Dispatch([], [], check)
            self._connect(dispatch, topic)
            if len(self._compiled) >= self._limit:
                self._forget_all()
            self._compiled[topic] = dispatch
        return dispatch

    def _connect(self, dispatch: Dispatch, topic: str) -> None:
        subscriptions = [each for each in self.subscriptions if matches(each.topic, topic)]
        dispatch.subscriptions[:] = subscriptions
        dispatch.calls[:] = [self._placed(each, each.call) for each in subscriptions]
        dispatch.only = dispatch.calls[0] if len(subscriptions) == 1 else None
        dispatch.is_on_loop = all(map(self.is_async, subscriptions))
        only = subscriptions[0] if len(subscriptions) == 1 else None
        is_alone = only is not None and only.is_async and only.policy.concurrency == 1 and only.policy.timeout_s is None
        dispatch.alone = only if is_alone else None

    def is_async(self, subscription: Subscription) -> bool:
        """True for a handler that runs on the event loop."""
        return subscription.lane in self.async_lanes or subscription.policy.concurrency > 1

    def count_request(self, subscription: Subscription) -> None:
        """Count an event that went to its one handler without the queue."""
        with self._changing:
            self._published += 1
            subscription.delivered += 1

    def stop_caching(self) -> None:
        """From now on no publisher finds a topic compiled, so that a closing bus is asked about each event."""
        with self._changing:
            self._forget_all()
            self._compiled = {}

    def let_go(self, topic: str) -> None:
        """Compile a topic anew for the next event."""
        with self._changing:
            if topic in self._compiled:
                self._forget(topic)

    def statistics(self, *, queued: int, dead_letters: int) -> Statistics:
        """Count what was delivered to the present subscriptions, beside what the bus itself counts."""
        with self._changing:
            dispatches = list(self._compiled.values())
            counts: dict[str, Counts] = {}
            for each in self.subscriptions:
                name = f"{each.name} <- {each.topic}"
                before = counts.get(name, Counts(0, 0))
                now = sum(dispatch.events for dispatch in dispatches if each in dispatch.subscriptions)
                counts[name] = Counts(before.delivered + each.delivered + now, before.failed + each.failed)
            published = self._published + sum(dispatch.events for dispatch in dispatches)
        return Statistics(
            published=published,
            queued=queued,
            delivered=sum(count.delivered for count in counts.values()),
            failed=sum(count.failed for count in counts.values()),
            dead_letters=dead_letters,
            subscriptions=counts,
        )

    def only(self, subscription: Subscription, attempt: int) -> Dispatch:
        """Compile a further attempt for one subscription; nobody is called when it is not subscribed any more."""
        if not subscription.is_active:
            return Dispatch([], [], None)
        call = subscription.call if subscription.again is None else subscription.again(attempt)
        return Dispatch([self._placed(subscription, call, attempt)], [subscription], None)

    def _surrounded(self, bound: BoundHandler, owner: str, name: str, attempt: int) -> Call:
        """The handler with the middleware around it; without any, the handler itself."""
        if not self._middleware:
            return bound.call
        return around_handler(
            self._middleware, bound.call, agent=owner, name=name, is_async=bound.is_async, attempt=attempt
        )

    def _placed(self, subscription: Subscription, call: Call, attempt: int = 1) -> Call:
        """The call itself where it runs in place, else what sends the event to its lane."""
        if not self.is_async(subscription):
            return call
        return lambda event: self._put(subscription, call, event, attempt)

    def _forget_all(self) -> None:
        for topic in list(self._compiled):
            self._forget(topic)

    def _forget(self, topic: str) -> None:
        dispatch = self._compiled.pop(topic)
        self._published += dispatch.events
        for subscription in dispatch.subscriptions:
            subscription.delivered += dispatch.events
