"""Request and reply: one handler answers, its error is the asker's, and nobody waits for itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import DeadlockError, RequestTimeoutError, RunError
from graphbus_core.middleware import Handling
from graphbus_core.model.deliveries import DeliveryPolicy
from tests.patience import PATIENCE_S


async def until(flag: threading.Event) -> None:
    for _ in iter(flag.is_set, True):
        await asyncio.sleep(0.001)


@pytest.fixture(params=["callers deliver", "a dispatcher delivers"])
def bus(request: pytest.FixtureRequest) -> Iterator[MessageBus]:
    with MessageBus(dispatcher=request.param == "a dispatcher delivers") as bus:
        yield bus


def plain(bus: MessageBus, function: Callable[[Event], object]) -> Callable[[Event], object]:
    return function


def later(bus: MessageBus, function: Callable[[Event], object]):
    async def handler(event: Event) -> object:
        await asyncio.sleep(0)
        return function(event)

    return handler


def deliver(bus: MessageBus, topic: str) -> None:
    bus.publish(topic)
    assert bus.settle(PATIENCE_S)


@pytest.mark.parametrize("kind", [plain, later])
def test_the_one_handler_answers_from_outside(bus: MessageBus, kind) -> None:
    bus.subscribe("/Stock/Left", kind(bus, lambda event: {"left": event["n"] + 1}))
    assert bus.request("/Stock/Left", {"n": 1}) == {"left": 2}
    assert [event.topic for event in bus.history()] == ["/Stock/Left"]
    assert bus.statistics().published == bus.statistics().delivered == 1


@pytest.mark.parametrize("kind", [plain, later])
def test_a_plain_handler_asks_and_goes_on_with_the_answer(bus: MessageBus, kind) -> None:
    log: list[object] = []
    bus.subscribe("/Stock/Left", kind(bus, lambda event: event["n"] + 1))
    bus.subscribe("/A/B", lambda event: log.append(bus.request("/Stock/Left", {"n": 1})))
    deliver(bus, "/A/B")
    assert log == [2]


@pytest.mark.parametrize("kind", [plain, later])
def test_an_async_handler_awaits_the_answer(bus: MessageBus, kind) -> None:
    log: list[object] = []

    async def ask(event: Event) -> None:
        log.append(await bus.request("/Stock/Left", {"n": 1}))

    bus.subscribe("/Stock/Left", kind(bus, lambda event: event["n"] + 1))
    bus.subscribe("/A/B", ask)
    deliver(bus, "/A/B")
    assert log == [2]


@pytest.mark.parametrize("kind", [plain, later])
@pytest.mark.parametrize("asker", ["outside", "plain", "async"])
def test_the_error_of_the_handler_is_the_askers_and_no_dead_letter(bus: MessageBus, kind, asker: str) -> None:
    caught: list[Exception] = []

    def fail(event: Event) -> None:
        raise ValueError("no such thing")

    def ask(event: Event | None = None) -> None:
        try:
            bus.request("/Stock/Left")
        except ValueError as error:
            caught.append(error)

    async def ask_later(event: Event) -> None:
        try:
            await bus.request("/Stock/Left")
        except ValueError as error:
            caught.append(error)

    bus.subscribe("/Stock/Left", kind(bus, fail), name="Stock.left")
    if asker == "outside":
        ask()
    else:
        bus.subscribe("/A/B", ask if asker == "plain" else ask_later)
        deliver(bus, "/A/B")
    (error,) = caught
    assert str(error) == "no such thing"
    assert error.__notes__ == ["raised by Stock.left while it handled a request on /Stock/Left"]
    assert bus.dead_letters() == ()
    assert bus.statistics().subscriptions["Stock.left <- /Stock/Left"].failed == 1


def test_none_and_several_who_could_answer_are_refused_by_name(bus: MessageBus) -> None:
    bus.subscribe("/Stock/Left", lambda: 1, name="Stock.left")
    bus.subscribe("/Stock/Left", lambda: 2, name="Shop.left")
    with pytest.raises(RunError, match=r"2 handlers subscribe to it: Stock.left, Shop.left") as several:
        bus.request("/Stock/Left")
    with pytest.raises(RunError, match="no handler answers it") as none:
        bus.request("/Other/Left")
    assert (several.value.code, none.value.code) == ("GBE632", "GBE631")


def test_asking_oneself_is_refused_at_once(bus: MessageBus) -> None:
    refused: list[str] = []

    def ask(event: Event) -> None:
        try:
            bus.request("/A/Own")
        except DeadlockError as error:
            refused.append(error.sentence)

    bus.subscribe("/A/B", ask, owner="Agent", name="Agent.ask")
    bus.subscribe("/A/Own", lambda: 1, owner="Agent", name="Agent.own")
    deliver(bus, "/A/B")
    assert refused == [
        "The request /A/Own would never return: Agent.ask waits for Agent.own, which cannot start until Agent.ask returns."
    ]


@pytest.mark.parametrize("first", ["plain", "async"])
@pytest.mark.parametrize("second", ["plain", "async"])
def test_a_chain_that_comes_back_to_who_asks_is_refused_at_once(bus: MessageBus, first: str, second: str) -> None:
    refused: list[str] = []

    def ask(topic: str, kind: str) -> Callable[[Event], object]:
        async def awaiting(event: Event) -> object:
            try:
                return await bus.request(topic)
            except DeadlockError as error:
                refused.append(error.sentence)

        def asking(event: Event) -> object:
            try:
                return bus.request(topic)
            except DeadlockError as error:
                refused.append(error.sentence)
            return None

        return asking if kind == "plain" else awaiting

    bus.subscribe("/A/Start", ask("/B/Answer", first), owner="A", name="A.start")
    bus.subscribe("/B/Answer", ask("/A/Answer", second), owner="B", name="B.answer")
    bus.subscribe("/A/Answer", lambda: 1, owner="A", name="A.answer")
    started = time.monotonic()
    deliver(bus, "/A/Start")
    assert time.monotonic() - started < PATIENCE_S
    assert refused == [
        "The request /A/Answer would never return: A.start waits for B.answer, which waits for A.answer, which cannot start "
        "until A.start returns."
    ]
    assert bus.dead_letters() == ()


def test_a_method_that_asks_its_own_agent_is_refused(bus: MessageBus) -> None:
    bus.subscribe("/A/Own", lambda: 1, owner="Agent", name="Agent.own")
    for call in (
        lambda: bus.run(lambda: bus.request("/A/Own"), owner="Agent"),
        lambda: bus.hosting.caller(bus.request, owner="Agent")("/A/Own"),
    ):
        with pytest.raises(DeadlockError, match=r"Agent waits for Agent\.own"):
            call()


def test_an_async_method_that_calls_itself_through_others_is_refused(bus: MessageBus) -> None:
    async def call_back() -> object:
        return await bus.run(lambda: 1, owner="Agent")

    bus.hosting.use_lane("Agent")
    with pytest.raises(DeadlockError) as refused:
        bus.run(call_back, owner="Agent")
    assert refused.value.code == "GBE633"


@pytest.mark.parametrize("asker", ["outside", "plain", "async"])
def test_an_answer_that_does_not_come_in_time_is_a_typed_error(bus: MessageBus, asker: str) -> None:
    caught: list[str] = []
    may_end = threading.Event()

    async def slow(event: Event) -> int:
        await until(may_end)
        return 1

    def ask(event: Event | None = None) -> None:
        with pytest.raises(RequestTimeoutError) as late:
            bus.request("/Stock/Left", None, 0.02)
        caught.append(late.value.sentence)
        may_end.set()

    async def ask_later(event: Event) -> None:
        with pytest.raises(RequestTimeoutError) as late:
            await bus.request("/Stock/Left", None, 0.02)
        caught.append(late.value.sentence)
        may_end.set()

    bus.subscribe("/Stock/Left", slow, name="Stock.left")
    if asker == "outside":
        ask()
    else:
        bus.subscribe("/A/B", ask if asker == "plain" else ask_later)
        deliver(bus, "/A/B")
    assert caught == ["Stock.left did not answer /Stock/Left within 0.02 s."]


def test_what_a_handler_raises_when_nobody_waits_any_more_is_a_dead_letter(bus: MessageBus) -> None:
    may_end = threading.Event()

    async def slow(event: Event) -> None:
        await asyncio.to_thread(may_end.wait, PATIENCE_S)
        raise ValueError("late")

    bus.subscribe("/Stock/Left", slow, name="Stock.left")
    with pytest.raises(RequestTimeoutError):
        bus.request("/Stock/Left", None, 0.3)  # long enough to begin in any case
    may_end.set()
    assert bus.settle(PATIENCE_S)
    assert [letter.error for letter in bus.dead_letters()] == ["ValueError: late"]


def test_a_request_that_has_waited_too_long_for_its_turn_is_not_delivered() -> None:
    may_end = threading.Event()
    log: list[str] = []
    with MessageBus(dispatcher=True) as bus:
        bus.subscribe("/A/Slow", lambda: may_end.wait(PATIENCE_S))
        bus.subscribe("/A/B", lambda: log.append("answered"))
        bus.publish("/A/Slow")
        with pytest.raises(RequestTimeoutError):
            bus.request("/A/B", None, 0.02)
        may_end.set()
    assert log == []


def test_an_answer_in_a_mailbox_that_nobody_waits_for_is_not_begun(bus: MessageBus) -> None:
    log: list[int] = []
    may_end = threading.Event()

    async def slow(event: Event) -> None:
        log.append(event["n"])
        await until(may_end)

    bus.subscribe("/A/B", slow)
    first = threading.Thread(target=lambda: bus.request("/A/B", {"n": 1}))
    first.start()
    while not log:
        time.sleep(0.001)
    with pytest.raises(RequestTimeoutError):
        bus.request("/A/B", {"n": 2}, 0.02)
    may_end.set()
    first.join(PATIENCE_S)
    assert bus.settle(PATIENCE_S)
    assert log == [1]


def test_a_handler_in_place_is_stopped_by_its_limit_only_if_it_is_async(bus: MessageBus) -> None:
    async def slow(event: Event) -> None:
        await asyncio.sleep(5)

    bus.subscribe("/A/B", slow, policy=DeliveryPolicy(timeout_s=0.01))
    with pytest.raises(TimeoutError, match=r"more than 0\.01 s"):
        bus.request("/A/B")
    assert bus.dead_letters() == ()


def test_a_request_is_part_of_its_causal_chain(bus: MessageBus) -> None:
    seen: list[Event] = []

    def answer(event: Event) -> None:
        seen.append(event)
        bus.publish("/A/After")

    bus.subscribe("/A/B", lambda: [bus.publish("/A/Before"), bus.request("/A/Ask")], name="Agent.ask")
    bus.subscribe("/A/Ask", answer, name="Other.answer")
    bus.subscribe("/A/After", seen.append)
    deliver(bus, "/A/B")
    asked, after = seen
    assert asked.trail == (("/A/B", "Agent.ask"),)
    assert after.trail == (("/A/B", "Agent.ask"), ("/A/Ask", "Other.answer"))
    assert asked.causation_id == asked.correlation_id == after.correlation_id


def test_a_request_beyond_the_longest_chain_is_refused_and_a_dead_letter() -> None:
    refused: list[str] = []

    def ask(event: Event) -> None:
        try:
            bus.request("/A/Ask")
        except RunError as error:
            refused.append(error.code)

    with MessageBus(max_hops=0) as bus:
        bus.subscribe("/A/B", ask)
        bus.subscribe("/A/Ask", lambda: 1)
        bus.publish("/A/B")
        assert refused == ["GBE637"]
        assert [letter.reason for letter in bus.dead_letters()] == ["hops"]


def test_middleware_sees_requests(bus: MessageBus) -> None:
    names: list[str] = []

    def watch(handling: Handling) -> Iterator[None]:
        names.append(handling.name)
        yield

    with MessageBus(middleware=[watch]) as watched:
        watched.subscribe("/A/B", lambda: 1, name="Agent.answer")
        assert watched.request("/A/B") == 1
    assert names == ["Agent.answer"]


def test_a_plain_method_on_the_event_loop_is_told_that_it_cannot_wait(bus: MessageBus) -> None:
    refused: list[str] = []

    def ask(event: Event) -> None:
        try:
            bus.request("/Stock/Left")
        except RunError as error:
            refused.append(error.code)

    bus.hosting.use_lane("Agent")
    bus.subscribe("/A/B", ask, owner="Agent")
    bus.subscribe("/Stock/Left", lambda: 1)
    deliver(bus, "/A/B")
    assert refused == ["GBE628"]


def test_who_asks_while_its_agent_is_busy_in_place_waits_for_its_turn(bus: MessageBus) -> None:
    """P waits for the lane of B; meanwhile C asks P: that is answered when P has ended, not in the middle of it."""
    log: list[str] = []
    has_begun, has_asked = threading.Event(), threading.Event()

    async def answer_b(event: Event) -> int:
        await until(has_asked)
        await asyncio.sleep(0.01)
        return 1

    async def ask_p(event: Event) -> None:
        await until(has_begun)
        asking = bus.request("/P/Ask")
        has_asked.set()
        await asking

    def on_p(event: Event) -> None:
        log.append("begin")
        has_begun.set()
        bus.request("/B/Ask")
        log.append("end")

    bus.subscribe("/C/Start", ask_p, owner="C")
    bus.subscribe("/P/Start", on_p, owner="P")
    bus.subscribe("/P/Ask", lambda: log.append("answer"), owner="P")
    bus.subscribe("/B/Ask", answer_b, owner="B")
    bus.subscribe("/Start/Both", lambda: [bus.publish("/C/Start"), bus.publish("/P/Start")])
    deliver(bus, "/Start/Both")
    assert log == ["begin", "end", "answer"]


def test_those_of_a_pattern_and_those_that_return_nothing_hear_a_request_as_any_event(bus: MessageBus) -> None:
    log: list[str] = []

    def audits(event: Event) -> None:
        log.append(f"audits {event.event_id}")

    def watches(event: Event) -> int:
        log.append(f"watches {event.event_id}")
        return 3

    async def later(event: Event) -> None:
        log.append(f"later {event.event_id}")

    bus.subscribe("/Stock/*", watches, name="Audit.watches")
    bus.subscribe("/Stock/Left", audits, name="Audit.audits")
    bus.subscribe("/**", later, name="Audit.later")
    bus.subscribe("/Stock/Left", lambda event: event["n"] + 1, name="Stock.left")
    assert bus.request("/Stock/Left", {"n": 1}) == 2
    assert bus.settle(PATIENCE_S)
    (event,) = bus.history()
    assert sorted(log) == sorted(f"{name} {event.event_id}" for name in ("audits", "watches", "later"))
    assert bus.statistics().delivered == 4
    assert bus.statistics().published == 1


def test_nobody_answers_for_a_pattern(bus: MessageBus) -> None:
    bus.subscribe("/Stock/*", lambda: 2, name="Audit.any")
    with pytest.raises(RunError) as refused:
        bus.request("/Stock/Left")
    assert refused.value.code == "GBE631"
