"""The garbage collector calls code of others, which lets other threads in: also while we read what these change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.lanes import Delivery, Lanes
from tests.fakes.collecting import MOMENTS, at_collection


def lanes_of(bus: MessageBus) -> Lanes:
    async def hears() -> None:
        pass

    bus.subscribe("/A/Async", hears)
    bus.publish("/A/Async")
    assert bus._lanes is not None
    return bus._lanes


@pytest.mark.parametrize("way", ["publishes", "calls", "asks"])
def test_a_handler_of_another_thread_may_begin_while_somebody(way: str) -> None:
    with MessageBus() as bus:
        lanes = lanes_of(bus)
        bus.subscribe("/A/B", lambda: 1)
        call = bus.caller(lambda _nothing: 1)
        does: dict[str, Callable[[], object]] = {
            "publishes": lambda: bus.publish("/A/B"),
            "calls": lambda: call(None),
            "asks": lambda: bus.request("/A/B"),
        }
        lanes.under_way.update(dict.fromkeys(Delivery(lambda: None) for _ in range(20)))
        coming = Delivery(lambda: None)
        for moment in MOMENTS:
            with at_collection(
                moment, lambda: lanes.under_way.update({coming: None}), lambda: lanes.under_way.pop(coming, None)
            ):
                does[way]()
            lanes.under_way.pop(coming, None)
        lanes.under_way.clear()


@pytest.mark.parametrize("what", ["history", "dead letters"])
def test_it_can_be_looked_at_while_others_add_to_it(what: str) -> None:
    with MessageBus(history=20, dead_letters=20) as bus:
        bus.subscribe("/A/B", lambda: None)
        for _ in range(30):
            bus.publish("/A/B")
            bus._stop(Event("/A/B"), "closed", "it was closed")
        looks: dict[str, Callable[[], tuple[object, ...]]] = {
            "history": bus.history,
            "dead letters": bus.dead_letters,
        }
        letter = bus.dead_letters()[0]

        def add() -> None:
            bus._history.append(letter.event)
            bus._ledger.dead.append(letter)

        for moment in MOMENTS:
            with at_collection(moment, add, add):
                seen = looks[what]()
            assert len(seen) >= 20
