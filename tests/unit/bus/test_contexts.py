"""Context variables, and the current task: the same for the handlers of an agent, whoever delivers to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S

SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


class Plain:
    """Sees what it has set for the event before."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def on_event(self, event: Event) -> None:
        self.log.append(SEEN.get())
        SEEN.set(f"{event['n']}")


class Later(Plain):
    """The same on the event loop; it waits for something now and then."""

    async def on_event(self, event: Event) -> None:
        if event["n"] % 2:
            await asyncio.sleep(0)
        Plain.on_event(self, event)


@pytest.mark.parametrize("kind", [Plain, Later])
@pytest.mark.parametrize("dispatcher", [False, True])
def test_what_a_handler_sets_the_next_one_of_its_agent_sees(kind: type[Plain], dispatcher: bool) -> None:
    agent = kind()
    with MessageBus(dispatcher=dispatcher) as bus:
        bus.subscribe("/A/B", agent.on_event, owner="Agent")
        for n in range(4):
            bus.publish("/A/B", {"n": n})
        assert bus.settle(PATIENCE_S)
    assert agent.log[1:] == ["0", "1", "2"]


def test_on_a_loop_no_publisher_and_no_other_agent_sees_it() -> None:
    one, other = Later(), Later()

    async def program() -> None:
        async with MessageBus() as bus:
            bus.subscribe("/A/One", one.on_event, owner="One")
            bus.subscribe("/A/Other", other.on_event, owner="Other")
            for n in range(4):
                await asyncio.gather(*(bus.publish_async(topic, {"n": n}) for topic in ("/A/One", "/A/Other")))
                bus.publish("/A/One", {"n": n})
            assert SEEN.get() == "nothing"

    Context().run(asyncio.run, program())
    assert other.log == ["nothing", "0", "1", "2"]
    assert one.log == ["nothing", "0", "0", "1", "1", "2", "2", "3"]


def awaited(bus: MessageBus) -> Callable[[], object]:
    return lambda: bus.publish_async("/A/B")


def published(bus: MessageBus) -> Callable[[], object]:
    async def publish() -> None:
        bus.publish("/A/B")
        await asyncio.to_thread(bus.settle)

    return publish


@pytest.mark.parametrize("way", [awaited, published])
@pytest.mark.parametrize("limit_s", [0, 0.01])
def test_a_time_limit_inside_of_a_handler_ends_this_handler_and_nothing_else(way, limit_s: float) -> None:
    log: list[str] = []

    async def hurried(event: Event) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.Event().wait()
        except TimeoutError:
            log.append("in time")
        await asyncio.sleep(0)
        log.append("goes on")

    async def program() -> None:
        async with MessageBus() as bus:
            bus.subscribe("/A/B", hurried, owner="Agent")
            for _ in range(2):
                await way(bus)()  # type: ignore[misc]
            assert bus.dead_letters() == ()

    asyncio.run(program())
    assert log == ["in time", "goes on"] * 2


def test_the_current_task_of_a_handler_is_the_one_that_goes_on_with_it() -> None:
    tasks: list[asyncio.Task[None] | None] = []

    async def hears(event: Event) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        tasks.append(asyncio.current_task())

    async def program() -> None:
        async with MessageBus() as bus:
            bus.subscribe("/A/B", hears, policy=DeliveryPolicy(timeout_s=60))
            bus.publish("/A/B")
            mine = asyncio.current_task()
            await asyncio.to_thread(bus.settle)
            assert asyncio.current_task() is mine

    asyncio.run(program())
    assert tasks[0] is tasks[1]
    assert tasks[0] is not None
