"""`concurrency`: how many events of one subscription are in hand at once; without it, one of an agent."""

from __future__ import annotations

import asyncio

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.model.deliveries import DeliveryPolicy


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_events_of_a_subscription_are_in_hand_as_it_asks_for(concurrency: int) -> None:
    running = most = 0
    seen: list[int] = []

    async def handle(event: Event) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        seen.append(event["n"])

    with MessageBus() as bus:
        bus.subscribe("/A/Start", lambda: [bus.publish("/A/B", {"n": n}) for n in range(9)])
        bus.subscribe("/A/B", handle, owner="Agent", policy=DeliveryPolicy(concurrency=concurrency))
        bus.publish("/A/Start")
    assert most == concurrency
    assert sorted(seen) == list(range(9))


def test_others_of_the_same_agent_still_come_one_at_a_time() -> None:
    running: list[str] = []
    together: set[tuple[str, ...]] = set()

    def handler(name: str):
        async def handle(event: Event) -> None:
            running.append(name)
            together.add(tuple(sorted(running)))
            await asyncio.sleep(0.005)
            running.remove(name)

        return handle

    with MessageBus() as bus:
        bus.subscribe("/A/Start", lambda: [bus.publish("/A/B") for _ in range(3)])
        bus.subscribe("/A/B", handler("many"), owner="Agent", policy=DeliveryPolicy(concurrency=2))
        bus.subscribe("/A/B", handler("one"), owner="Agent")
        bus.subscribe("/A/B", handler("other"), owner="Agent")
        bus.publish("/A/Start")
    assert not [each for each in together if each.count("one") + each.count("other") > 1]
    assert [each for each in together if each.count("many") == 2]
