"""What a handler on the loop publishes may go straight into mailboxes: nobody can tell that from going through the queue.

The plain way is the reference: the same bus, on which nothing is ever placed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.lanes import Lanes
from graphbus_core.bus.routing import Subscription
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.model.topics import matches
from tests.thoroughness import examples

TOPICS = ["/A/A", "/A/B", "/B/A", "/B/B"]


class Handler(NamedTuple):
    """One subscription: whose it is, what it hears, what it publishes, and the number of the one that it unsubscribes."""

    owner: str
    pattern: str
    publishes: tuple[tuple[str, object], ...]
    waits: bool
    fails: bool
    concurrency: int
    timeout_s: float | None
    drops: int | None


class Queueing(MessageBus):
    """The plain way."""

    def _place(self, lanes: Lanes, event: Event) -> bool:
        return False


class Placing(MessageBus):
    """Tells how often the short way was taken."""

    placed = 0

    def _place(self, lanes: Lanes, event: Event) -> bool:
        is_placed = super()._place(lanes, event)
        self.placed += is_placed
        return is_placed


PAYLOADS = st.sampled_from([None, 1, "text", {"n": 1}, {"n": [1, {"deep": None}]}, {"n": 1 << 70}, [1, 2]])
HANDLERS = st.builds(
    Handler,
    owner=st.sampled_from("PQR"),
    pattern=st.sampled_from([*TOPICS, "/A/*", "/**"]),
    publishes=st.lists(st.tuples(st.sampled_from([*TOPICS, "/No/Body"]), PAYLOADS), max_size=3).map(tuple),
    waits=st.booleans(),
    fails=st.sampled_from([False, False, True]),
    concurrency=st.sampled_from([1, 1, 1, 2]),
    timeout_s=st.sampled_from([None, None, 60.0]),
    drops=st.none() | st.none() | st.integers(0, 4),
)
ROOMY = {"mailbox": 1024, "max_hops": 3, "max_tree": 25}
NARROW = {"mailbox": 1, "max_hops": 2, "max_tree": 10_000}


WAYS = st.lists(st.sampled_from(["awaits", "publishes"]), min_size=1, max_size=2)


class Run:
    """One bus with these handlers, and what each agent heard, in its order."""

    def __init__(self, bus: MessageBus, handlers: list[Handler]) -> None:
        self.bus = bus
        self.heard: dict[str, list[tuple[object, ...]]] = {"P": [], "Q": [], "R": []}
        self.subscriptions: dict[int | None, Subscription] = {}
        for number, each in enumerate(handlers):
            policy = DeliveryPolicy(concurrency=each.concurrency, timeout_s=each.timeout_s)
            self.subscriptions[number] = bus.subscribe(
                each.pattern, self.made(number, each), name=str(number), owner=each.owner, policy=policy
            )

    def made(self, number: int, handler: Handler) -> Callable[[Event], Awaitable[None]]:
        async def handle(event: Event) -> None:
            self.heard[handler.owner].append((number, *known(event)))
            for topic, payload in handler.publishes:
                self.bus.publish(topic, payload, src=handler.owner)
                if handler.waits:
                    await asyncio.sleep(0)
            if event.hops == 2 and handler.drops in self.subscriptions:
                self.bus.unsubscribe(self.subscriptions[handler.drops])
            if handler.fails:
                raise ValueError(number)

        return handle


def known(event: Event) -> tuple[object, ...]:
    """The id of a root is random; those of the others follow from it, and are told by what they are made of."""
    lineage = event._lineage
    return event.topic, event.trail, None if lineage is None else lineage.ordinal, event.src, event.payload


def observed(
    kind: type[MessageBus], handlers: list[Handler], limits: dict[str, int], ways: list[str]
) -> tuple[Any, ...]:
    """Everything that can be seen: what each agent heard and in which order, the history, dead letters and counts."""

    async def program() -> Run:
        async with kind(**limits) as bus:
            run = Run(bus, handlers)
            for way in ways:
                if way == "awaits":
                    await bus.publish_async(TOPICS[0], {"way": way})
                else:
                    await asyncio.to_thread(bus.publish, TOPICS[0], {"way": way})
                await asyncio.to_thread(bus.settle)
            return run

    logging.getLogger("graphbus.bus").disabled = True  # thousands of tracebacks help nobody
    try:
        run = asyncio.run(program())
    finally:
        logging.getLogger("graphbus.bus").disabled = False
    bus = run.bus
    dead = [(each.reason, known(each.event), each.subscription) for each in bus.dead_letters()]
    placed = getattr(bus, "placed", 0)
    return run.heard, [known(each) for each in bus.history()], dead, bus.statistics(), bus._receipts.followed, placed


@examples(25)
@given(handlers=st.lists(HANDLERS, min_size=1, max_size=4))
def test_nobody_can_tell_the_short_way_from_the_queue(handlers: list[Handler]) -> None:
    """On the loop alone everything is certain, the order of all agents too, and what the guards stop."""
    *short, placed = observed(Placing, handlers, ROOMY, ["awaits", "awaits"])
    *plain, _ = observed(Queueing, handlers, ROOMY, ["awaits", "awaits"])
    assert short == plain
    is_published = any(each.publishes for each in handlers if matches(each.pattern, TOPICS[0]))
    assert bool(placed) == is_published


@examples(20)
@given(handlers=st.lists(HANDLERS.map(lambda each: each._replace(drops=None)), min_size=1, max_size=3), ways=WAYS)
def test_with_full_mailboxes_and_other_threads_it_is_still_the_same_that_is_delivered(
    handlers: list[Handler], ways: list[str]
) -> None:
    heard, events, dead, *rest, _ = observed(Placing, handlers, NARROW, ways)
    plainly_heard, plain_events, plainly_dead, *plain_rest, _ = observed(Queueing, handlers, NARROW, ways)
    assert {name: sorted(each, key=repr) for name, each in heard.items()} == {
        name: sorted(each, key=repr) for name, each in plainly_heard.items()
    }
    assert (sorted(events, key=repr), sorted(dead, key=repr)) == (
        sorted(plain_events, key=repr),
        sorted(plainly_dead, key=repr),
    )
    assert rest == plain_rest
