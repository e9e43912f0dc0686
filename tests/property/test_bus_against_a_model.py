"""The bus against a reference of forty lines: any mix of subscribing, unsubscribing, raising and nested publishing."""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.model.topics import matches

TOPICS = ["/A/A", "/A/B", "/B/A", "/B/B/C"]
PATTERNS = [*TOPICS, "/A/*", "/*/A", "/B/**", "/**"]
MAX_HOPS, MAX_TREE = 4, 30


class Script(NamedTuple):
    """What a handler does with each event, in this order; `drops` is the number of a handler that it unsubscribes."""

    publishes: tuple[str, ...]
    drops: int | None
    raises: bool


class Model:
    """The whole promise, in the plainest way: a list of handlers, a queue, and a loop."""

    def __init__(self) -> None:
        self.handlers: list[tuple[int, str, Script]] = []
        self.log: list[tuple[int, str, int]] = []
        self.delivered = 0
        self.failed = 0
        self.stopped: list[str] = []

    def drop(self, number: int | None) -> None:
        self.handlers = [each for each in self.handlers if each[0] != number]

    def publish(self, topic: str) -> None:
        queue = deque([(topic, 0)])
        born = 0
        while queue:
            topic, hops = queue.popleft()
            for number, pattern, script in list(self.handlers):
                if not matches(pattern, topic) or all(each[0] != number for each in self.handlers):
                    continue
                self.log.append((number, topic, hops))
                self.delivered += 1
                for child in script.publishes:
                    born += hops < MAX_HOPS
                    if hops >= MAX_HOPS:
                        self.stopped.append("hops")
                    elif born > MAX_TREE:
                        self.stopped.append("tree")
                    else:
                        queue.append((child, hops + 1))
                self.drop(script.drops)
                self.failed += script.raises


SCRIPTS = st.builds(
    Script,
    publishes=st.lists(st.sampled_from(TOPICS), max_size=2).map(tuple),
    drops=st.none() | st.integers(0, 12),
    raises=st.booleans(),
)


class BusMachine(RuleBasedStateMachine):
    """Does the same to the bus and to the model and compares everything that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.bus = MessageBus(max_hops=MAX_HOPS, max_tree=MAX_TREE, dead_letters=100_000, known_topics=3)
        self.model = Model()
        self.log: list[tuple[int, str, int]] = []
        self.subscriptions: dict[int, object] = {}
        logging.getLogger("graphbus.bus").disabled = True  # thousands of tracebacks help nobody

    def teardown(self) -> None:
        logging.getLogger("graphbus.bus").disabled = False

    @rule(pattern=st.sampled_from(PATTERNS), script=SCRIPTS)
    def subscribe(self, pattern: str, script: Script) -> None:
        number = len(self.subscriptions)

        def handler(event: Event) -> None:
            self.log.append((number, event.topic, event.hops))
            for topic in script.publishes:
                self.bus.publish(topic, {"by": number})
            if script.drops in self.subscriptions:
                self.bus.unsubscribe(self.subscriptions[script.drops])
            if script.raises:
                raise ValueError(number)

        self.subscriptions[number] = self.bus.subscribe(pattern, handler, name=str(number))
        self.model.handlers.append((number, pattern, script))

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.subscriptions)))
        self.bus.unsubscribe(self.subscriptions[number])
        self.model.drop(number)

    @rule(topic=st.sampled_from(TOPICS))
    def publish(self, topic: str) -> None:
        self.bus.publish(topic, {"by": None})
        self.model.publish(topic)

    @invariant()
    def every_handler_was_called_for_the_same_events_in_the_same_order(self) -> None:
        assert self.log == self.model.log

    @invariant()
    def every_call_and_every_failure_is_counted(self) -> None:
        assert sum(each.delivered for each in self._folded()) == self.model.delivered
        assert sum(each.failed for each in self.subscriptions.values()) == self.model.failed

    @invariant()
    def nothing_is_dropped_in_silence(self) -> None:
        reasons = [letter.reason for letter in self.bus.dead_letters()]
        assert reasons.count("handler") == self.model.failed
        assert sorted(reason for reason in reasons if reason != "handler") == sorted(self.model.stopped)
        assert self.bus.statistics().queued == 0

    def _folded(self) -> list[object]:
        self.bus._routes._forget_all()
        return list(self.subscriptions.values())


TestBusAgainstModel = BusMachine.TestCase
TestBusAgainstModel.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestBusAgainstModel = pytest.mark.slow(TestBusAgainstModel)
