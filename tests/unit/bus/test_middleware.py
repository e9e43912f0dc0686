"""Middleware: what goes around handlers and calls, in which order, and what each way to do it wrong leads to."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from graphbus_core import Event, GraphBusNode, connect, schema_method, subscribe
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.middleware import Handling, Middleware, run_with_middleware
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.testing import FakeClock

HERE = Handling("event", "Shop", "Shop.on_order")


def noting(log: list[str], name: str) -> Middleware:
    """Middleware that writes down when its work begins, ends and fails."""

    def note(handling: Handling) -> Iterator[None]:
        log.append(f"{name} begins {handling.name}")
        try:
            yield
        except Exception as error:
            log.append(f"{name} sees {type(error).__name__}")
            raise
        finally:
            log.append(f"{name} ends")

    return note


def does_not_yield(_handling: Handling) -> Iterator[None]:
    return
    yield


def yields_twice(_handling: Handling) -> Iterator[None]:
    with suppress(ValueError):
        yield
    yield


def yields_for_ever(_handling: Handling) -> Iterator[None]:
    while True:
        with suppress(Exception):
            yield


def makes_no_generator(_handling: Handling) -> Any:
    return None


def refuses(_handling: Handling) -> Iterator[None]:
    raise PermissionError("not today")
    yield


def swallows(_handling: Handling) -> Iterator[None]:
    with suppress(BaseException):
        yield


def replaces(_handling: Handling) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise KeyError("another") from error


def fails_afterwards(_handling: Handling) -> Iterator[None]:
    yield
    raise LookupError("too late")


def give() -> str:
    return "given"


def fail() -> None:
    raise ValueError("no")


def stop() -> None:
    raise StopIteration


def interrupt() -> None:
    raise KeyboardInterrupt


def later(work: Callable[[], Any]) -> Callable[[], Any]:
    async def wait() -> Any:
        await asyncio.sleep(0)
        try:
            return work()
        except KeyboardInterrupt:
            raise asyncio.CancelledError from None

    return wait


def plainly(middleware: list[Middleware], work: Callable[[], Any]) -> Any:
    return run_with_middleware(middleware, HERE, work)


def asynchronously(middleware: list[Middleware], work: Callable[[], Any]) -> Any:
    return asyncio.run(_await(run_with_middleware(middleware, HERE, later(work))))


async def _await(awaitable: Any) -> Any:
    return await awaitable if isinstance(awaitable, Awaitable) else awaitable


both_ways = pytest.mark.parametrize("run", [plainly, asynchronously])


def test_without_middleware_the_work_is_just_done() -> None:
    assert run_with_middleware([], HERE, give) == "given"


@both_ways
def test_the_first_is_the_outermost_and_the_result_goes_through(run: Callable[..., Any]) -> None:
    log: list[str] = []
    assert run([noting(log, "outer"), noting(log, "inner")], give) == "given"
    assert log == ["outer begins Shop.on_order", "inner begins Shop.on_order", "inner ends", "outer ends"]


@both_ways
def test_an_exception_of_the_work_comes_out_of_each_yield(run: Callable[..., Any]) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="no"):
        run([noting(log, "outer"), noting(log, "inner")], fail)
    assert log[2:] == ["inner sees ValueError", "inner ends", "outer sees ValueError", "outer ends"]


def test_async_work_is_not_over_before_it_was_awaited() -> None:
    log: list[str] = []

    async def work() -> str:
        log.append("work begins")
        await asyncio.sleep(0.001)
        log.append("work ends")
        return "given"

    assert asyncio.run(_await(run_with_middleware([noting(log, "outer")], HERE, work))) == "given"
    assert log == ["outer begins Shop.on_order", "work begins", "work ends", "outer ends"]


@both_ways
@pytest.mark.parametrize(
    ("middleware", "work", "expected"),
    [
        (refuses, give, PermissionError),
        (replaces, fail, KeyError),
        (fails_afterwards, give, LookupError),
        (makes_no_generator, give, "GBE660"),
        (does_not_yield, give, "GBE661"),
        (yields_twice, give, "GBE662"),
        (yields_twice, fail, "GBE662"),
        (yields_for_ever, give, "GBE662"),
        (yields_for_ever, fail, "GBE662"),
    ],
)
def test_what_middleware_raises_goes_on_outwards(
    run: Callable[..., Any], middleware: Middleware, work: Callable[[], Any], expected: type[Exception] | str
) -> None:
    log: list[str] = []
    with pytest.raises(RunError if isinstance(expected, str) else expected) as caught:
        run([noting(log, "outer"), middleware], work)
    assert log[1:] == [f"outer sees {caught.type.__name__}", "outer ends"]
    if isinstance(expected, str):
        assert isinstance(caught.value, RunError)
        assert caught.value.code == expected
        assert f"{__name__}.{middleware.__name__}" in caught.value.sentence


@both_ways
@pytest.mark.parametrize("middleware", [refuses, makes_no_generator, does_not_yield])
def test_work_that_is_refused_is_not_done(run: Callable[..., Any], middleware: Middleware) -> None:
    done: list[str] = []
    with pytest.raises((PermissionError, RunError)):
        run([middleware], lambda: done.append("done"))
    assert not done


@both_ways
@pytest.mark.parametrize("middleware", [swallows, refuses])
def test_an_inner_exception_that_is_handled_does_not_reach_the_outer(
    run: Callable[..., Any], middleware: Middleware
) -> None:
    log: list[str] = []
    assert run([noting(log, "outer"), swallows, middleware], fail) is None
    assert log == ["outer begins Shop.on_order", "outer ends"]


@both_ways
@pytest.mark.parametrize("middleware", [swallows, replaces, yields_twice])
def test_no_middleware_keeps_an_interruption_from_going_up(run: Callable[..., Any], middleware: Middleware) -> None:
    with pytest.raises(KeyboardInterrupt if run is plainly else asyncio.CancelledError):
        run([middleware], interrupt)


def test_a_stop_iteration_of_plain_work_stays_what_it_is() -> None:
    log: list[str] = []
    with pytest.raises(StopIteration):
        run_with_middleware([noting(log, "outer")], HERE, stop)
    assert log[1:] == ["outer sees StopIteration", "outer ends"]
    assert run_with_middleware([swallows], HERE, stop) is None


def test_the_traceback_of_a_failure_does_not_lead_through_the_middleware() -> None:
    with pytest.raises(ValueError, match="no") as caught:
        run_with_middleware([noting([], "outer"), noting([], "inner")], HERE, fail)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "note" not in names
    assert names[-1] == "fail"


def test_an_object_with_a_generator_method_is_middleware_and_named_by_its_class() -> None:
    class Counter:
        count = 0

        def __call__(self, _handling: Handling) -> Iterator[None]:
            self.count += 1
            yield
            yield

    counter = Counter()
    with pytest.raises(RunError, match="Counter yielded"):
        run_with_middleware([counter], HERE, give)
    assert counter.count == 1


# --- around the handlers of a bus ---


def test_a_bus_tells_its_middleware_which_handler_gets_which_event() -> None:
    seen: list[Handling] = []

    def watch(handling: Handling) -> Iterator[None]:
        seen.append(handling)
        yield

    with MessageBus(middleware=[watch]) as bus:
        bus.subscribe("/A/B", lambda: None, name="Shop.on_b", owner="Shop")
        bus.publish("/A/B", {"n": 1})
    [handling] = seen
    assert (handling.kind, handling.agent, handling.name, handling.attempt) == ("event", "Shop", "Shop.on_b", 1)
    assert handling.event is not None
    assert handling.event.payload == {"n": 1}


def test_a_bus_without_middleware_calls_the_handler_itself() -> None:
    def handler(event: Event) -> None: ...

    with MessageBus() as bus:
        assert bus.subscribe("/A/B", handler).call is handler


def test_an_async_handler_is_surrounded_for_as_long_as_it_runs() -> None:
    log: list[str] = []

    async def handler(event: Event) -> None:
        await asyncio.sleep(0.001)
        log.append("handled")

    with MessageBus(middleware=[noting(log, "outer")]) as bus:
        bus.subscribe("/A/B", handler, name="slow")
        bus.publish("/A/B")
    assert log == ["outer begins slow", "handled", "outer ends"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refused_event_is_a_dead_letter_of_this_handler_only(is_async: bool) -> None:
    heard: list[str] = []

    async def handler_async(event: Event) -> None:
        heard.append("async")

    def only_public(handling: Handling) -> Iterator[None]:
        if handling.name == "closed":
            raise PermissionError("not for you")
        yield

    with MessageBus(middleware=[only_public]) as bus:
        bus.subscribe("/A/B", handler_async if is_async else lambda: heard.append("plain"), name="closed")
        bus.subscribe("/A/B", lambda: heard.append("open"), name="open")
        bus.publish("/A/B")
        [letter] = bus.dead_letters()
    assert heard == ["open"]
    assert (letter.subscription, letter.reason, letter.error) == ("closed", "handler", "PermissionError: not for you")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_goes_through_the_middleware_of_who_answers(is_async: bool) -> None:
    log: list[str] = []

    async def answer_async(event: Event) -> str:
        return "answer"

    with MessageBus(middleware=[noting(log, "outer")]) as bus:
        bus.subscribe("/A/B", answer_async if is_async else lambda: "answer", name="Shop.answer", owner="Shop")
        assert bus.request("/A/B") == "answer"
    assert log == ["outer begins Shop.answer", "outer ends"]


def test_a_request_that_is_refused_fails_where_it_was_asked() -> None:
    with MessageBus(middleware=[refuses]) as bus:
        bus.subscribe("/A/B", lambda: "answer")
        with pytest.raises(PermissionError):
            bus.request("/A/B")


def test_a_failure_that_middleware_handles_is_none() -> None:
    with MessageBus(middleware=[swallows]) as bus:
        bus.subscribe("/A/B", fail)
        bus.publish("/A/B")
        assert not bus.dead_letters()
        assert bus.statistics().failed == 0


def test_a_refusal_of_an_async_handler_that_outer_middleware_handles_is_none_either() -> None:
    async def handler(event: Event) -> None:
        raise AssertionError("it was refused")

    with MessageBus(middleware=[swallows, refuses]) as bus:
        bus.subscribe("/A/B", handler)
        bus.publish("/A/B")
        assert not bus.dead_letters()


# --- around the calls of a graph ---


class Shop(GraphBusNode):
    @schema_method(input_schema={"sku": str}, output_schema={"price": int})
    def price(self, sku: str) -> dict[str, int]:
        if sku == "none":
            raise LookupError(sku)
        return {"price": 3}

    @subscribe("/Shop/Asked")
    def on_asked(self, sku: str) -> None:
        self.call("Shop", "price", sku=sku)


class SlowShop(GraphBusNode):
    @schema_method(input_schema={"sku": str}, output_schema={"price": int})
    async def price(self, sku: str) -> dict[str, int]:
        await asyncio.sleep(0.001)
        return {"price": 4}


def test_calls_are_surrounded_with_their_arguments() -> None:
    seen: list[Handling] = []

    def watch(handling: Handling) -> Iterator[None]:
        seen.append(handling)
        yield

    with connect(Shop, SlowShop, middleware=[watch]) as graph:
        assert graph.call("Shop", "price", sku="mug") == {"price": 3}
        assert graph.call("SlowShop", "price", sku="cup") == {"price": 4}
    assert [(each.kind, each.agent, each.name, dict(each.arguments)) for each in seen] == [
        ("call", "Shop", "Shop.price", {"sku": "mug"}),
        ("call", "SlowShop", "SlowShop.price", {"sku": "cup"}),
    ]


def test_arguments_are_checked_before_middleware_sees_them() -> None:
    log: list[str] = []
    with connect(Shop, middleware=[noting(log, "outer")]) as graph, pytest.raises(RunError) as caught:
        graph.call("Shop", "price", sku=7)
    assert caught.value.code == "GBE622"
    assert log == []


def test_a_call_whose_failure_is_swallowed_gives_a_result_that_does_not_fit() -> None:
    with connect(Shop, middleware=[swallows]) as graph, pytest.raises(RunError) as caught:
        graph.call("Shop", "price", sku="none")
    assert caught.value.code == "GBE623"


@pytest.mark.parametrize("middleware", [makes_no_generator, does_not_yield, yields_twice])
def test_middleware_that_is_wrong_is_not_tried_again(middleware: Middleware) -> None:
    with MessageBus(middleware=[middleware]) as bus:
        bus.subscribe("/A/B", give, policy=DeliveryPolicy(retries=3, backoff_s=0.0))
        bus.publish("/A/B")
        [letter] = bus.dead_letters()
    assert letter.attempts == 1
    assert letter.error.startswith("The middleware ")


def test_each_further_attempt_says_which_one_it_is() -> None:
    attempts: list[int] = []

    def watch(handling: Handling) -> Iterator[None]:
        attempts.append(handling.attempt)
        yield

    clock = FakeClock()
    with MessageBus(middleware=[watch], clock=clock) as bus:
        bus.subscribe("/A/B", fail, policy=DeliveryPolicy(retries=2, backoff_s=1.0))
        bus.publish("/A/B")
        bus.run(lambda: clock.advance(5.0))
        bus.run(lambda: clock.advance(5.0))
    assert attempts == [1, 2, 3]
