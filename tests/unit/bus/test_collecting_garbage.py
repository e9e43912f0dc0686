"""The garbage collector calls code of others, which lets other threads in: also while we read what these change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import Delivery
from tests.fakes.collecting import MOMENTS, at_collection


@pytest.mark.parametrize("way", ["publishes", "calls", "asks"])
def test_a_handler_of_another_thread_may_begin_while_somebody(way: str) -> None:
    async def hears() -> None: ...

    with MessageBus() as bus:
        bus.subscribe("/A/Async", hears)
        bus.publish("/A/Async")
        under_way = bus._core.under_way
        bus.subscribe("/A/B", lambda: 1)
        call = bus.hosting.caller(lambda _nothing: 1)
        does: dict[str, Callable[[], object]] = {
            "publishes": lambda: bus.publish("/A/B"),
            "calls": lambda: call(None),
            "asks": lambda: bus.request("/A/B"),
        }
        under_way.update(dict.fromkeys(Delivery(lambda: None) for _ in range(20)))
        coming = Delivery(lambda: None)
        for moment in MOMENTS:
            with at_collection(moment, lambda: under_way.update({coming: None}), lambda: under_way.pop(coming, None)):
                does[way]()
            under_way.pop(coming, None)
        under_way.clear()


@pytest.mark.parametrize("what", ["history", "dead letters"])
def test_it_can_be_looked_at_while_others_add_to_it(what: str) -> None:
    with MessageBus(history=20, dead_letters=20) as bus:
        bus.subscribe("/A/B", lambda: None)
        for _ in range(30):
            bus.publish("/A/B")
            bus._letters.record_undelivered(Event("/A/B"), "closed", "it was closed")
        looks: dict[str, Callable[[], tuple[object, ...]]] = {
            "history": bus.history,
            "dead letters": bus.dead_letters,
        }
        letter = bus.dead_letters()[0]

        def add() -> None:
            bus._history.append(letter.event)
            bus._letters.latest.append(letter)

        for moment in MOMENTS:
            with at_collection(moment, add, add):
                seen = looks[what]()
            assert len(seen) >= 20
