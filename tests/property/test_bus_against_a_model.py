"""The bus against a reference of forty lines: any mix of subscribing, unsubscribing, raising, retrying and nested publishing.

What is compared is the log of all deliveries, with the ids of the events and the number of the attempt, and the dead letters.
With async handlers the order between agents is open: then what is compared is what was delivered, and the order of siblings.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from heapq import heappop, heappush
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.model.topics import matches
from graphbus_core.testing import FakeClock
from tests.thoroughness import examples

TOPICS = ["/A/A", "/A/B", "/B/A", "/B/B/C"]
PATTERNS = [*TOPICS, "/A/*", "/*/A", "/B/**", "/**"]
NUMBERS = st.integers(0, 12)


class Script(NamedTuple):
    """What a handler does with each event, in this order; `drops` is the number of a handler that it unsubscribes."""

    publishes: tuple[str, ...]
    drops: int | None
    fails: int  # so many attempts with each event
    retries: int
    backoff_s: float
    is_async: bool = False
    concurrency: int = 1


class Message(NamedTuple):
    """An event as the model sees it."""

    id: str
    topic: str
    root: str
    hops: int


class Model:
    """The whole promise, in the plainest way: handlers in their order, a queue, a list of what waits, and a loop."""

    def __init__(self, max_hops: int, max_tree: int) -> None:
        self.max_hops, self.max_tree, self.now = max_hops, max_tree, 0.0
        self.handlers: dict[int, tuple[str, Script]] = {}
        self.log: list[tuple[int, str, int, int]] = []
        self.dead: list[tuple[str, str, str, int]] = []
        self.waiting: list[tuple[float, int, Message, int, int]] = []
        self.descendants: Counter[str] = Counter()

    def publish(self, topic: str, event_id: str) -> None:
        self.drain(deque([(Message(event_id, topic, event_id, 0), None, 1)]))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.waiting and self.waiting[0][0] <= end:
            self.now, _, *attempt = heappop(self.waiting)
            self.drain(deque([attempt]))
        self.now = end

    def drain(self, queue: deque) -> None:
        while queue:
            message, only, attempt = queue.popleft()
            if only is not None and only not in self.handlers:
                self.dead.append(("gone", message.id, str(only), attempt - 1))
            for number in list(self.handlers) if only is None else [only]:
                if number in self.handlers and matches(self.handlers[number][0], message.topic):
                    self.handle(number, message, attempt, queue)

    def handle(self, number: int, message: Message, attempt: int, queue: deque) -> None:
        script = self.handlers[number][1]
        self.log.append((number, message.id, message.hops, attempt))
        for ordinal, topic in enumerate(script.publishes):
            digest = hashlib.sha256(f"{message.id}|{number}|{ordinal}".encode()).hexdigest()
            child = Message(digest[:32], topic, message.root, message.hops + 1)
            self.descendants[child.root] += child.hops <= self.max_hops
            if child.hops > self.max_hops:
                self.dead.append(("hops", child.id, "", 0))
            elif self.descendants[child.root] > self.max_tree:
                self.dead.append(("tree", child.id, "", 0))
            else:
                queue.append((child, None, 1))
        self.handlers.pop(script.drops, None)
        if attempt <= min(script.fails, script.retries):
            due = self.now + script.backoff_s * 2 ** (attempt - 1)
            heappush(self.waiting, (due, len(self.log), message, number, attempt + 1))
        elif attempt <= script.fails:
            self.dead.append(("handler", message.id, str(number), attempt))


def scripts(*, may_drop: bool, kinds: st.SearchStrategy[bool]) -> st.SearchStrategy[Script]:
    return st.builds(
        Script,
        publishes=st.lists(st.sampled_from(TOPICS), max_size=2).map(tuple),
        drops=st.none() | st.none() | NUMBERS if may_drop else st.none(),
        fails=st.sampled_from([0, 1, 2, 3]),
        retries=st.sampled_from([2, 1, 0]),
        backoff_s=st.sampled_from([0.5, 1.0, 0.0]),
        is_async=kinds,
        concurrency=st.sampled_from([1, 3]),
    )


class BusMachine(RuleBasedStateMachine):
    """Does the same to the bus and to the model and compares everything that can be seen."""

    MAX_HOPS, MAX_TREE, MAX_HANDLERS = 4, 30, 12

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("graphbus.bus").disabled = True  # thousands of tracebacks help nobody
        self.clock = FakeClock()
        self.bus = MessageBus(
            max_hops=self.MAX_HOPS, max_tree=self.MAX_TREE, dead_letters=100_000, known_topics=3, clock=self.clock
        )
        self.model = Model(self.MAX_HOPS, self.MAX_TREE)
        self.events: list[Event] = []
        self.bus.subscribe("/**", self.events.append, name="witness")
        self.log: list[tuple[int, str, int, int]] = []
        self.attempts: Counter[tuple[int, Event]] = Counter()  # an event is itself, however alike its id
        self.subscriptions: dict[int, LiveSubscription] = {}

    def teardown(self) -> None:
        self.bus.close(grace_s=5)
        logging.getLogger("graphbus.bus").disabled = False

    def add(self, pattern: str, script: Script) -> None:
        number = len(self.subscriptions)
        if number == self.MAX_HANDLERS:
            return

        def begin(event: Event) -> int:
            self.attempts[number, event] += 1
            self.log.append((number, event.event_id, event.hops, self.attempts[number, event]))
            return self.attempts[number, event]

        def end(attempt: int) -> None:
            if script.drops in self.subscriptions:
                self.bus.unsubscribe(self.subscriptions[script.drops])
            if attempt <= script.fails:
                raise ValueError(number)

        def plain(event: Event) -> None:
            attempt = begin(event)
            for topic in script.publishes:
                self.bus.publish(topic, {"by": number})
            end(attempt)

        async def on_the_loop(event: Event) -> None:
            attempt = begin(event)
            for topic in script.publishes:
                self.bus.publish(topic, {"by": number})
                await asyncio.sleep(0)
            end(attempt)

        handler = on_the_loop if script.is_async else plain
        concurrency = script.concurrency if script.is_async else 1
        policy = DeliveryPolicy(retries=script.retries, backoff_s=script.backoff_s, concurrency=concurrency)
        subscription = self.bus.subscribe(pattern, handler, name=str(number), owner=f"agent{number}", policy=policy)
        self.subscriptions[number] = subscription
        self.model.handlers[number] = pattern, script

    @rule(number=NUMBERS)
    def unsubscribe(self, number: int) -> None:
        if number in self.subscriptions:
            self.bus.unsubscribe(self.subscriptions[number])
            self.model.handlers.pop(number, None)

    @rule(topic=st.sampled_from(TOPICS))
    def publish(self, topic: str) -> None:
        before = len(self.events)
        self.bus.publish(topic, {"by": None})
        self.model.publish(topic, self.events[before].event_id)

    @rule(seconds=st.sampled_from([0.5, 1.0, 0.0, 2.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.advance(seconds)

    def dead(self) -> list[tuple[str, str, str, int]]:
        letters = self.bus.dead_letters()
        return [(each.reason, each.event.event_id, each.subscription, each.attempts) for each in letters]

    @invariant()
    def every_attempt_is_counted_and_nothing_is_left_in_the_queue(self) -> None:
        statistics = self.bus.statistics()
        assert statistics.queued == 0
        delivered = Counter(number for number, *_ in self.model.log)
        for number, (pattern, _) in self.model.handlers.items():
            assert statistics.subscriptions[f"{number} <- {pattern}"].delivered == delivered[number]
        for number in self.subscriptions.keys() - self.model.handlers.keys():  # in the middle of a round, perhaps
            assert self.subscriptions[number].delivered == delivered[number]


class PlainMachine(BusMachine):
    """Plain handlers: one total order."""

    SCRIPTS = scripts(may_drop=True, kinds=st.just(False))

    @initialize(scripts=st.lists(SCRIPTS, min_size=2, max_size=3))
    def begin_with_a_few(self, scripts: list[Script]) -> None:
        for script in scripts:
            self.add("/**", script)

    @rule(pattern=st.sampled_from(PATTERNS), script=SCRIPTS)
    def subscribe(self, pattern: str, script: Script) -> None:
        self.add(pattern, script)

    @invariant()
    def every_handler_was_called_for_the_same_events_in_the_same_order(self) -> None:
        assert self.log == self.model.log

    @invariant()
    def nothing_is_dropped_in_silence(self) -> None:
        assert self.dead() == self.model.dead


class MixedMachine(BusMachine):
    """Plain and async handlers: what is delivered is certain, and the order in which one handler gets the children of another."""

    MAX_HOPS, MAX_TREE, MAX_HANDLERS = 2, 100_000, 4

    SCRIPTS = scripts(may_drop=False, kinds=st.booleans())

    @initialize(scripts=st.lists(SCRIPTS, min_size=1, max_size=2))
    def begin_with_a_few(self, scripts: list[Script]) -> None:
        for script in scripts:
            self.add("/**", script)

    @rule(pattern=st.sampled_from(PATTERNS), script=SCRIPTS)
    def subscribe(self, pattern: str, script: Script) -> None:
        self.add(pattern, script)

    @invariant()
    def every_handler_was_called_for_the_same_events_as_often(self) -> None:
        assert sorted(self.log) == sorted(self.model.log)

    @invariant()
    def nothing_is_dropped_in_silence(self) -> None:
        assert sorted(self.dead()) == sorted(self.model.dead)

    @invariant()
    def the_events_of_one_handler_come_in_the_order_in_which_it_published_them(self) -> None:
        for number, (_, script) in self.model.handlers.items():
            if script.concurrency == 1 or not script.is_async:
                position = {event_id: place for place, event_id in reversed(list(enumerate(self.first_seen(number))))}
                for one, next_one in self.siblings():
                    if one in position and next_one in position:
                        assert position[one] < position[next_one]

    def first_seen(self, number: int) -> list[str]:
        return [event_id for each, event_id, _, attempt in self.log if each == number and attempt == 1]

    def siblings(self) -> list[tuple[str, str]]:
        """The first and the second event that a handler published about the same one."""
        pairs = []
        for number, event_id, _, attempt in self.model.log:
            if attempt == 1:
                digests = [hashlib.sha256(f"{event_id}|{number}|{n}".encode()).hexdigest()[:32] for n in (0, 1)]
                pairs.append((digests[0], digests[1]))
        return pairs


TestPlainHandlersAgainstTheModel = pytest.mark.slow(PlainMachine.TestCase)
TestPlainHandlersAgainstTheModel.settings = settings(examples(60), stateful_step_count=20, deadline=None)
TestAsyncHandlersAgainstTheModel = pytest.mark.slow(MixedMachine.TestCase)
TestAsyncHandlersAgainstTheModel.settings = settings(examples(30), stateful_step_count=15, deadline=None)
