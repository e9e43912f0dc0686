"""Which subscriptions get the events of a topic. They are found once for each topic in use, and kept as its `Dispatch`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from threading import Lock
from typing import Any

from graphbus_core.bus.outcomes import check_policy
from graphbus_core.bus.signatures import BoundHandler, Handler, bind_handler, handler_name, handler_place
from graphbus_core.errors import RunError
from graphbus_core.middleware import Middleware, wrap_handler
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, Counts, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import is_pattern, is_topic, is_topic_or_pattern, matches
from graphbus_core.schema.json import Json

PayloadCheck = Callable[[Json], Json]
"""Returns the payload in the form in which it is delivered, or raises RunError."""

AdmitTopic = Callable[[str], PayloadCheck | None]
"""Called with a topic when it is first used: returns the check of its payloads or None, or raises RunError if it is unknown."""

_MOST_FORGOTTEN = 100
"""With more outdated dispatches than this, their events are added to the counts of subscriptions."""

EventCall = Callable[[Event], object]
SubscriptionCall = tuple["LiveSubscription", EventCall]


class LiveSubscription:
    """One handler of one topic or pattern: the value that `subscribe` returns and `unsubscribe` takes.

    Attributes:
        owner: The name of the agent, or the id of the object or function where there is none.
        lane: The key of its lane. Two handlers of one lane never run at once; a handler with `concurrency` above 1 has a lane
            of its own.
        call: The function that is called with an event, middleware included.
        again: Returns the function to call for a further attempt, given the number of the attempt; None if that is `call`.
        is_active: False once the subscription was removed.
        is_async: The handler is an `async def`.
        answers: False if the signature says `-> None`. Where several handlers have the same topic, the one that returns a value
            answers a request.
        mailbox: The lane itself if the handler runs on the event loop; None before the first event.
        delivered: How often the handler was called; the calls that a dispatch counts are added by `Routes.settle_counts`.
        failed: How many of these calls raised an exception.
    """

    __slots__ = (
        "again",
        "answers",
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

    def __init__(self, topic: str, name: str, owner: Hashable, call: EventCall, policy: DeliveryPolicy = ONCE) -> None:
        self.topic = topic
        self.name = name
        self.owner = owner
        self.lane = owner if policy.concurrency == 1 else (owner, name, topic)
        self.call = call
        self.again: Callable[[int], EventCall] | None = None
        self.policy = policy
        self.is_active = True
        self.is_async = False
        self.answers = True
        self.mailbox: Any = None
        self.delivered = 0
        self.failed = 0


class Dispatch:
    """One compiled topic: the handlers to call with its events.

    Attributes:
        pairs: Each subscription in order with the function to call. When the subscriptions change, the topic gets a new
            dispatch; this one may still be in use, so the function of a removed subscription is replaced here too.
        check: The check of payloads, if there is one.
        events: How many were delivered since `settle_counts`; only the thread that has the turn counts.
        is_on_loop: All handlers run on the event loop.
        alone: The only subscription, if it is an `async def` without `concurrency` and time limit; `Core.begin_alone` uses it.
        is_forgotten: It is outdated: later events use another dispatch.
    """

    __slots__ = ("alone", "check", "events", "is_forgotten", "is_on_loop", "pairs")

    def __init__(self, check: PayloadCheck | None) -> None:
        self.pairs: list[SubscriptionCall] = []
        self.check = check
        self.events = 0
        self.is_on_loop = False
        self.alone: LiveSubscription | None = None
        self.is_forgotten = False

    @property
    def subscriptions(self) -> list[LiveSubscription]:
        """The subscriptions of the topic, in order."""
        return [each for each, _ in self.pairs]


class Routes:
    """The subscriptions of a bus. Safe from any thread.

    Args:
        put: Puts an event into the lane of a subscription that runs on the event loop.
        admit: See `AdmitTopic`.
        limit: How many topics are kept compiled.
        middleware: Wraps every handler, the first one outermost.

    Attributes:
        dispatches: Topic -> its current dispatch.
        subscriptions: All subscriptions, in the order in which they were added.
        async_lanes: The lanes whose handlers and calls all run on the event loop.
    """

    def __init__(
        self,
        put: Callable[[LiveSubscription, EventCall, Event], None],
        admit: AdmitTopic | None,
        limit: int,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.dispatches: dict[str, Dispatch] = {}
        self.subscriptions: tuple[LiveSubscription, ...] = ()
        self.async_lanes: set[Hashable] = set()
        self._put = put
        self._admit = admit
        self._limit = limit
        self._middleware = tuple(middleware)
        self._published = 0
        self._forgotten: list[Dispatch] = []  # no longer used; their events are not counted yet
        self._is_caching = True
        self._changing = Lock()

    def add(
        self, topic: str, handler: Handler, *, name: str, owner: str, shape: HandlerShape | None, policy: DeliveryPolicy
    ) -> LiveSubscription:
        """Add a subscription and return it, as `MessageBus.subscribe` does; raise GBE610, GBE611 or GBE640 (the policy)."""
        if not is_topic_or_pattern(topic):
            raise RunError("GBE610", topic=topic, reason="it is neither a topic nor a pattern")
        bound = bind_handler(handler, shape=shape)
        name = name or handler_name(handler)
        if policy is not ONCE:
            check_policy(policy, handler=name, is_async=bound.is_async, where=handler_place(handler))
        whose: Hashable = owner or id(getattr(handler, "__self__", handler))
        subscription = LiveSubscription(
            topic, name, whose, self._wrap_in_middleware(bound, owner, name, 1, policy.key), policy
        )
        subscription.is_async = bound.is_async
        subscription.answers = bound.answers
        if self._middleware:
            subscription.again = lambda attempt: self._wrap_in_middleware(bound, owner, name, attempt, policy.key)
        with self._changing:
            self.subscriptions = (*self.subscriptions, subscription)
            if bound.is_async and subscription.lane not in self.async_lanes:
                self.async_lanes.add(subscription.lane)
                self._forget(self.dispatches)
            else:
                self._forget(self.dispatches if is_pattern(topic) else [topic])
        return subscription

    def remove(self, subscription: LiveSubscription) -> bool:
        """Remove a subscription, also from dispatches that are in use; False if it was removed before."""
        with self._changing:
            if not subscription.is_active:
                return False
            subscription.is_active = False
            self.subscriptions = tuple(each for each in self.subscriptions if each is not subscription)
            if not self.needs_lane(subscription):
                self.async_lanes.discard(subscription.lane)  # another object may get the same id
            for topic, dispatch in list(self.dispatches.items()):
                for index, (each, _) in enumerate(dispatch.pairs):
                    if each is subscription:
                        self._forget([topic])
                        dispatch.pairs[index] = subscription, self.skip(subscription)
        return True

    def needs_lane(self, subscription: LiveSubscription) -> bool:
        """True if the lane of a removed subscription must stay: it is that of a named agent, or another subscription uses it."""
        is_of_agent = isinstance(subscription.owner, str)
        return is_of_agent or any(each.lane == subscription.lane for each in self.subscriptions)

    def skip(self, subscription: LiveSubscription) -> EventCall:
        """Return the function to call in place of a removed handler: it lowers `delivered`, as its dispatch counts the event."""

        def uncount(_event: Event) -> None:
            with self._changing:
                subscription.delivered -= 1

        return uncount

    def use_lane(self, owner: str) -> None:
        """From now on run handlers and calls of this owner on the event loop, as if it had an async handler."""
        with self._changing:
            self.async_lanes.add(owner)
            self._forget(self.dispatches)

    def compile(self, topic: str) -> Dispatch:
        """Return the dispatch of a topic; make it if there is none, and keep it for the next events, except on a closing bus.

        Raises:
            RunError: GBE610 for a malformed topic, and what `admit` raises.
        """
        if not is_topic(topic):
            reason = "only subscriptions may have wildcards" if is_topic_or_pattern(topic) else "it is malformed"
            raise RunError("GBE610", topic=topic, reason=reason)
        check = self._admit(topic) if self._admit is not None else None
        with self._changing:
            known = self.dispatches.get(topic)
            if known is not None:  # another thread was faster, and counts its events there
                return known
            dispatch = Dispatch(check)
            self._fill_dispatch(dispatch, topic)
            if len(self.dispatches) >= self._limit:
                self._forget(self.dispatches)
            if self._is_caching:
                self.dispatches[topic] = dispatch
            else:
                self._retire(dispatch)  # it is used once; only its count is kept
        return dispatch

    def find(self, topic: str) -> Dispatch:
        """Return the dispatch for an event that was accepted before, even if `admit` refuses its topic now."""
        known = self.dispatches.get(topic)
        if known is not None:
            return known
        try:
            return self.compile(topic)
        except RunError:
            dispatch = Dispatch(None)
            with self._changing:
                self._fill_dispatch(dispatch, topic)
                self._retire(dispatch)
            return dispatch

    def _fill_dispatch(self, dispatch: Dispatch, topic: str) -> None:
        """Set all fields of a dispatch but `check` from the present subscriptions of a topic; the caller holds the lock."""
        found = [each for each in self.subscriptions if matches(each.topic, topic)]
        dispatch.pairs = [(each, self._choose_call(each)) for each in found]
        dispatch.is_on_loop = all(map(self.is_async, found))
        only = found[0] if len(found) == 1 else None
        is_plain = only is not None and only.is_async and only.policy.concurrency == 1 and only.policy.timeout_s is None
        dispatch.alone = only if is_plain else None

    def _choose_call(self, subscription: LiveSubscription) -> EventCall:
        """Return the handler's own call if it runs in place, else a function that puts the event into its lane."""
        call = subscription.call
        if not self.is_async(subscription):
            return call
        return lambda event: self._put(subscription, call, event)

    def is_async(self, subscription: LiveSubscription) -> bool:
        """True for a handler that runs on the event loop."""
        return subscription.lane in self.async_lanes or subscription.policy.concurrency > 1

    def call_again(self, subscription: LiveSubscription, attempt: int) -> EventCall:
        """Return the function to call for a further attempt with this number; its middleware learns the number."""
        return subscription.call if subscription.again is None else subscription.again(attempt)

    def stop_caching(self) -> None:
        """Keep no dispatches from now on, so that each publish on a closing bus takes the path that refuses it."""
        with self._changing:
            self._is_caching = False
            self._forget(self.dispatches)

    def forget_topic(self, topic: str) -> None:
        """Forget the dispatch of a topic, so that its next event makes a new one."""
        with self._changing:
            self._forget([topic])

    # --- counting ---

    @property
    def has_many_to_count(self) -> bool:
        """True when there are so many outdated dispatches that `settle_counts` should be called."""
        return len(self._forgotten) > _MOST_FORGOTTEN

    def count(self, subscription: LiveSubscription, published: int = 0) -> None:
        """Count an event that goes to a single handler without a dispatch; `published` is 0 for a further attempt, else 1."""
        with self._changing:
            self._published += published
            subscription.delivered += 1

    def settle_counts(self) -> None:
        """Add the events of outdated dispatches to the counts of their subscriptions; for the thread that has the turn."""
        with self._changing:
            for dispatch in self._forgotten:
                self._published += dispatch.events
                for each, _ in dispatch.pairs:
                    each.delivered += dispatch.events
                dispatch.events = 0
            self._forgotten.clear()

    def statistics(self, *, queued: int, dead_letters: int) -> Statistics:
        """Return the statistics of the bus; the arguments are two of them. Removed subscriptions are left out."""
        with self._changing:
            dispatches = [*self.dispatches.values(), *self._forgotten]
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

    def _forget(self, topics: Iterable[str]) -> None:
        """Drop the dispatches of these topics, so that their next events make new ones; the caller holds the lock."""
        for topic in list(topics):
            dispatch = self.dispatches.pop(topic, None)
            if dispatch is not None:
                self._retire(dispatch)

    def _retire(self, dispatch: Dispatch) -> None:
        """Mark a dispatch as outdated, and keep it until `settle_counts` has counted its events; the caller holds the lock."""
        dispatch.is_forgotten = True
        self._forgotten.append(dispatch)

    def _wrap_in_middleware(self, bound: BoundHandler, owner: str, name: str, attempt: int, key: str) -> EventCall:
        """Return the handler wrapped in the middleware, for the attempt with this number; the handler itself if there is none."""
        if not self._middleware:
            return bound.call
        return wrap_handler(
            self._middleware, bound.call, agent=owner, name=name, is_async=bound.is_async, attempt=attempt, key=key
        )
