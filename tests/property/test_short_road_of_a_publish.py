"""The short road of an outermost publish against the plain one through the queue: nobody can tell which an event has taken.

The short road has no place in the queue and, where a topic has one handler, no iterator. What may happen in between is the same:
handlers that fail, publish, subscribe, unsubscribe others, or end the delivery in the middle.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from tests.thoroughness import examples

TOPICS = ["/A/A", "/A/B", "/B/C"]
PATTERNS = [*TOPICS, "/A/*", "/**"]
MOST_HANDLERS = 9

Act = Literal["hears", "fails", "stops", "publishes", "publishes and stops", "drops", "adds"]
ACTS: list[Act] = ["hears", "fails", "stops", "publishes", "publishes and stops", "drops", "adds"]


class Script(NamedTuple):
    """What a handler does each time; `number` says which topic it publishes, or which handler it drops."""

    pattern: str
    act: Act
    number: int


SCRIPTS = st.lists(
    st.builds(Script, st.sampled_from(PATTERNS), st.sampled_from(ACTS), st.integers(0, 3)), min_size=1, max_size=4
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("graphbus.bus")
    log.disabled = True  # thousands of tracebacks help nobody
    yield
    log.disabled = False


class World:
    """A bus with scripted handlers, and everything that can be seen of it."""

    def __init__(self, scripts: list[Script], publish: Callable[[MessageBus, str], object]) -> None:
        self.bus = MessageBus(max_hops=3, max_tree=25)
        self.log: list[object] = []
        self._publish = publish
        self._subscriptions = [self.subscribe(number, script) for number, script in enumerate(scripts)]

    def subscribe(self, number: int, script: Script) -> object:
        def handler(event: Event) -> None:
            self.log.append((number, event.topic, event.hops, event.published_by))
            self.act(script)

        return self.bus.subscribe(script.pattern, handler, name=str(number), owner=str(number))

    def act(self, script: Script) -> None:
        if script.act.startswith("publishes"):
            for _ in range(2):
                self.bus.publish(TOPICS[script.number % len(TOPICS)], {"n": 1})
        if script.act == "drops":
            self.bus.unsubscribe(self._subscriptions[script.number % len(self._subscriptions)])
        if script.act == "adds" and len(self._subscriptions) < MOST_HANDLERS:
            hears = script._replace(act="hears")
            self._subscriptions.append(self.subscribe(len(self._subscriptions), hears))
        if script.act == "fails":
            raise ValueError(script.number)
        if script.act.endswith("stops"):
            raise KeyboardInterrupt

    def go(self, topics: list[str]) -> None:
        for topic in topics:
            self.attempt(lambda topic=topic: self._publish(self.bus, topic))
        while not self.attempt(self.bus.settle):
            pass

    def attempt(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except KeyboardInterrupt:
            self.log.append("stopped")
            return False
        return True

    def seen(self) -> tuple[object, ...]:
        letters = self.bus.dead_letters()
        return (
            self.log,
            self.bus.statistics(),
            [(each.reason, each.subscription, each.event.topic, each.event.hops) for each in letters],
            [(each.topic, each.hops, each.published_by) for each in self.bus.history()],
        )

    def children(self) -> dict[tuple[str, str], set[str]]:
        """The ids of what one handler has published about one event, delivered or not."""
        found = defaultdict[tuple[str, str], set[str]](set)
        for event in (*self.bus.history(), *(letter.event for letter in self.bus.dead_letters())):
            if event.causation_id:
                found[event.causation_id, event.published_by].add(event.event_id)
        return found


def through_the_queue(bus: MessageBus, topic: str) -> None:
    bus._queue.append(Event(topic, {"n": 1}))
    bus.settle()


@examples(80)
@example([Script("/A/A", "publishes", 1)], ["/A/A", "/A/A"])  # the children of the second are counted from 0 again
@example([Script("/A/A", "publishes and stops", 1), Script("/A/B", "hears", 0)], ["/A/A", "/A/B"])
@given(SCRIPTS, st.lists(st.sampled_from(TOPICS), min_size=1, max_size=5))
def test_a_publish_does_what_the_queue_would_do(scripts: list[Script], topics: list[str]) -> None:
    short = World(scripts, lambda bus, topic: bus.publish(topic, {"n": 1}))
    plain = World(scripts, through_the_queue)
    for world in (short, plain):
        world.go(topics)
        world.bus.close()
        for (cause, handler), ids in world.children().items():
            assert ids == {
                hashlib.sha256(f"{cause}|{handler}|{ordinal}".encode()).hexdigest()[:32] for ordinal in range(len(ids))
            }
    assert short.seen() == plain.seen()
