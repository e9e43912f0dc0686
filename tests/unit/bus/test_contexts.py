"""Context variables, and the current task: the same for the handlers of an agent, whoever delivers to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar

import pytest

from graphbus_core import Event, GraphBusNode, connect, schema_method, subscribe
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


class Busy(GraphBusNode):
    """Everything that a graph may do with an agent on the event loop; each step sees what the one before has set."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def see(self, what: str) -> None:
        self.log.append((SEEN.get(), what))
        SEEN.set(what)

    def on_start(self) -> None:
        self.see("start")

    @subscribe("/A/Waits", timeout=PATIENCE_S)
    async def waits(self, event: Event) -> None:
        self.see("before")
        await asyncio.sleep(0)
        self.see("after")

    @subscribe("/A/Plain")
    def plain(self, event: Event) -> None:
        self.see("plain")

    @subscribe("/A/Fails", retries=1, backoff=0.001)
    async def fails(self, event: Event) -> None:
        self.see("fails")
        raise ValueError

    @subscribe("/A/Asked")
    async def asked(self, event: Event) -> bool:
        self.see("asked")
        return True

    @schema_method
    async def method(self) -> None:
        self.see("method")
        await asyncio.sleep(0)

    def on_stop(self) -> None:
        self.see("stop")


@pytest.mark.parametrize("dispatcher", [False, True])
def test_all_that_an_agent_on_the_loop_does_is_done_in_one_context(dispatcher: bool) -> None:
    with connect(Busy, on_error="isolate") as graph:
        if dispatcher:
            graph.bus.hosting.start_dispatcher()
        for _ in range(2):
            for topic in ("/A/Waits", "/A/Plain", "/A/Fails"):
                graph.publish(topic)
                assert graph.bus.settle(PATIENCE_S)
            graph.request("/A/Asked")
            graph.call("Busy", "method")
    log = graph.nodes["Busy"].log  # type: ignore[attr-defined]
    assert len(log) == 16
    assert [before for before, _ in log] == ["nothing", *(what for _, what in log[:-1])]


@pytest.mark.parametrize("dispatcher", [False, True])
def test_with_concurrency_no_event_sees_what_another_has_set(dispatcher: bool) -> None:
    agent = Later()
    with MessageBus(dispatcher=dispatcher) as bus:
        bus.subscribe("/A/B", agent.on_event, owner="Agent", policy=DeliveryPolicy(concurrency=2))
        for n in (0, 1, 2, 3, 4, 6):
            bus.publish("/A/B", {"n": n})
        assert bus.settle(PATIENCE_S)
    assert agent.log == ["nothing"] * 6


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
