"""`connect`: a graph of live classes, called, published to, started and stopped."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, TypedDict

import pytest

from graphbus_core import Event, GraphBusNode, connect, depends_on, schema_method, subscribe
from graphbus_core.errors import RunError, SeveralErrors, UsageError
from tests.patience import PATIENCE_S


class Item(TypedDict):
    sku: str
    qty: int


class Stock(GraphBusNode):
    def on_start(self) -> None:
        self.shelf = {"mug": 3}

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"reserved": bool})
    def reserve(self, sku: str, qty: int) -> dict[str, Any]:
        self.shelf[sku] -= qty
        self.publish("/Stock/Changed", {"sku": sku, "left": self.shelf[sku]})
        return {"reserved": True}

    @schema_method(input_schema={"kind": str}, output_schema={"answer": float})
    def lie(self, kind: str) -> Any:
        return {"text": {"answer": "x"}, "near": {"anwser": 1.0}, "none": None, "list": [], "good": {"answer": 1}}[kind]

    @schema_method(input_schema={}, output_schema={})
    def nothing(self) -> None:
        """Give nothing, as promised."""

    def hidden(self) -> None:
        raise AssertionError("only contracts can be called")


@depends_on(Stock)
class Shop(GraphBusNode):
    def on_start(self) -> None:
        self.changes: list[int] = []

    @subscribe("/Order/Placed")
    def on_order(self, items: list[Item]) -> None:
        for item in items:
            self.call("Stock", "reserve", **item)

    @subscribe("/Stock/Changed")
    def on_change(self, event: Event) -> None:
        self.changes.append(event["left"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"sku": "mug", "qty": "two"}, "qty: expected int, got str 'two'"),
        ({"sku": "mug", "qty": True}, "qty: expected int, got bool True"),
        ({"sku": "mug"}, "qty: expected int, got nothing"),
        ({"sku": "mug", "qty": 1, "colour": "red"}, "colour: expected one of sku, qty, got an unknown name"),
        ({"sku": "mug", "qtyy": 1}, "qtyy: expected one of sku, qty, got an unknown name. Did you mean 'qty'?"),
        ({"sku": 3, "qty": "two"}, "sku: expected str, got int 3; qty: expected int, got str 'two'"),
    ],
)
def test_wrong_arguments_are_refused_before_the_method_sees_them(arguments: dict[str, Any], reason: str) -> None:
    with connect(Stock) as graph:
        with pytest.raises(RunError) as refused:
            graph.call("Stock", "reserve", **arguments)
        assert graph.node("Stock").shelf == {"mug": 3}
    assert refused.value.code == "GBE622"
    assert "Stock.reserve" in refused.value.sentence
    assert reason in refused.value.sentence


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("text", "answer: expected float, got str 'x'"),
        ("near", "answer: expected float, got nothing. Is it 'anwser'?"),
        ("none", "expected an object with {answer: float}, got None"),
        ("list", "expected an object with {answer: float}, got list []"),
    ],
)
def test_a_result_that_breaks_its_contract_is_refused(kind: str, reason: str) -> None:
    with connect(Stock) as graph, pytest.raises(RunError) as refused:
        graph.call("Stock", "lie", kind=kind)
    assert refused.value.code == "GBE623"
    assert "Stock.lie" in refused.value.sentence
    assert reason in refused.value.sentence


@pytest.mark.parametrize(
    ("agent", "method", "code", "suggestion"),
    [
        ("Stok", "reserve", "GBE620", "Did you mean 'Stock'?"),
        ("Stock", "reserv", "GBE621", "Did you mean 'reserve'?"),
        ("Stock", "hidden", "GBE621", "Stock has no method hidden"),
        ("Shop", "on_order", "GBE621", "Shop has no method on_order"),
    ],
)
def test_what_cannot_be_called_is_refused_with_what_can(agent: str, method: str, code: str, suggestion: str) -> None:
    with connect(Stock, Shop) as graph, pytest.raises(RunError) as refused:
        graph.call(agent, method)
    assert refused.value.code == code
    assert suggestion in refused.value.sentence
    assert refused.value.hint


class Stranger(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"reserved": bool})
    def ask(self) -> Any:
        return self.call("Stock", "reserve", sku="mug", qty=1)

    @schema_method(input_schema={}, output_schema={})
    def ask_nobody(self) -> Any:
        return self.call("Nobody", "reserve")


def test_an_agent_may_call_only_what_it_depends_on() -> None:
    with connect(Stock, Stranger) as graph:
        with pytest.raises(RunError) as refused:
            graph.call("Stranger", "ask")
        assert refused.value.code == "GBE624"
        assert '@depends_on("Stock")' in refused.value.hint
        with pytest.raises(RunError, match="GBE620"):
            graph.call("Stranger", "ask_nobody")


class Life(GraphBusNode):
    log: list[str] = []  # noqa: RUF012 - shared on purpose

    def on_start(self) -> None:
        self.log.append(f"start {type(self).__name__}")
        self.publish("/Life/Begun", {"who": type(self).__name__})

    def on_stop(self) -> None:
        self.log.append(f"stop {type(self).__name__}")

    @subscribe("/Life/Begun")
    def on_begun(self, who: str) -> None:
        self.log.append(f"{type(self).__name__} hears {who}")


class Second(Life):
    pass


def test_all_agents_are_started_before_the_first_event_and_stopped_in_reverse_order() -> None:
    Life.log.clear()
    with connect(Life, Second):
        pass
    heard = [f"{one} hears {other}" for other in ("Life", "Second") for one in ("Life", "Second")]
    assert Life.log == ["start Life", "start Second", *heard, "stop Second", "stop Life"]


class Needy(GraphBusNode):
    def __init__(self, price: int) -> None:
        self.price = price


class Broken(GraphBusNode):
    def __init__(self) -> None:
        raise OSError("no disk")


class Odd(GraphBusNode):
    @subscribe("/A/B")
    def on_b(self, *anything: object) -> None: ...


def test_all_agents_that_cannot_be_made_are_reported_and_nothing_runs() -> None:
    Life.log.clear()
    with pytest.raises(SeveralErrors) as refused:
        connect(Life, Needy, Broken, Odd)
    assert [error.code for error in refused.value.errors] == ["GBE603", "GBE603", "GBE611"]
    assert "price" in str(refused.value)
    assert "OSError: no disk" in str(refused.value)
    assert Life.log == []


class Unlucky(Life):
    def on_start(self) -> None:
        raise OSError("no network")


def test_an_agent_that_does_not_start_takes_the_started_ones_down_again() -> None:
    Life.log.clear()
    with pytest.raises(RunError) as refused:
        connect(Life, Unlucky, Second)
    assert refused.value.code == "GBE605"
    assert "OSError: no network" in refused.value.sentence
    assert Life.log[0] == "start Life"
    assert Life.log[-1] == "stop Life"
    assert "start Second" not in Life.log


class Busy(GraphBusNode):
    has_begun, may_end = threading.Event(), threading.Event()

    @subscribe("/A/B")
    async def on_b(self) -> None:
        self.has_begun.set()
        self.may_end.wait(PATIENCE_S)  # which holds up the event loop


@pytest.mark.slow
def test_an_on_stop_that_was_kept_out_by_a_handler_has_not_failed() -> None:
    graph = connect(Busy, on_error="isolate")
    graph.grace_s = 0.02
    publisher = threading.Thread(target=graph.publish, args=("/A/B",))
    publisher.start()
    assert Busy.has_begun.wait(PATIENCE_S)
    with pytest.raises(RunError) as refused:
        graph.stop()
    Busy.may_end.set()
    publisher.join(PATIENCE_S)
    assert refused.value.code == "GBE608"


class Slow(GraphBusNode):
    async def on_start(self) -> None:
        await asyncio.sleep(0)
        self.thread = threading.current_thread().name
        self.sums: list[int] = []

    @schema_method(input_schema={"a": int, "b": int}, output_schema={"sum": int})
    async def add(self, a: int, b: int) -> Any:
        await asyncio.sleep(0)
        return {"sum": a + b if a else "nothing"}

    @subscribe("/Sum/Wanted")
    def on_wanted(self, a: int) -> None:
        self.thread = threading.current_thread().name


@depends_on("Slow", "Stock")
class Asker(GraphBusNode):
    @subscribe("/Sum/Wanted")
    async def on_wanted(self, a: int) -> None:
        self.answers = [
            await self.call("Slow", "add", a=a, b=1),
            await self.call("Stock", "reserve", sku="mug", qty=1),
        ]

    @subscribe("/Sum/Badly")
    async def on_badly(self) -> None:
        await self.call("Slow", "add", a=0, b=0)


def test_async_agents_start_are_called_and_call_others() -> None:
    with connect(Slow, Stock, Asker) as graph:
        assert graph.node("Slow").thread == "graphbus-loop"
        assert graph.call("Slow", "add", a=1, b=2) == {"sum": 3}
        graph.publish("/Sum/Wanted", {"a": 5})
        assert graph.node("Asker").answers == [{"sum": 6}, {"reserved": True}]
        assert graph.node("Slow").thread == "graphbus-loop", "plain handlers of an async agent run on its lane"
        with pytest.raises(RunError, match="GBE623"):
            graph.publish("/Sum/Badly")
        with pytest.raises(RunError, match="GBE623"):
            graph.call("Slow", "add", a=0, b=0)


class Farewell(GraphBusNode):
    """Says that it goes, and hears who goes: its letters are (who hears, who went)."""

    heard: list[tuple[str, str]] = []  # noqa: RUF012 - shared on purpose
    is_over = False

    def on_stop(self) -> None:
        self.is_over = True
        self.publish("/Crew/Left", {"who": type(self).__name__})

    @subscribe("/Crew/Left")
    def on_left(self, who: str) -> None:
        assert not self.is_over
        self.heard.append((type(self).__name__, who))


class Boatswain(Farewell):
    async def think(self) -> None:
        """Makes it live on the event loop."""


class Cook(Farewell):
    pass


def test_what_an_on_stop_publishes_goes_to_who_still_runs_and_is_a_dead_letter_for_who_does_not() -> None:
    Farewell.heard.clear()
    graph = connect(Farewell, Boatswain, Cook)
    graph.stop()
    assert Farewell.heard == [("Farewell", "Cook"), ("Boatswain", "Cook"), ("Farewell", "Boatswain")]
    letters = graph.bus.dead_letters()
    assert [(letter.subscription, letter.event["who"]) for letter in letters] == [
        ("Cook.on_left", "Cook"),
        ("Cook.on_left", "Boatswain"),
        ("Boatswain.on_left", "Boatswain"),
        ("Cook.on_left", "Farewell"),
        ("Boatswain.on_left", "Farewell"),
        ("Farewell.on_left", "Farewell"),
    ]
    assert {(letter.reason, letter.attempts) for letter in letters} == {("closed", 0)}
    assert letters[1].error == "Cook had already stopped"


class Grumbling(Life):
    @subscribe("/Crew/Left")
    def on_left(self) -> None:
        raise OSError("already?")


def test_a_handler_that_fails_at_what_an_on_stop_publishes_keeps_nobody_from_stopping() -> None:
    Life.log.clear()
    graph = connect(Life, Grumbling, Cook, on_error="raise")
    with pytest.raises(OSError, match="already"):
        graph.stop()
    assert Life.log[-2:] == ["stop Grumbling", "stop Life"]


@pytest.mark.parametrize("wrong", ["OrderProcessor", 5, dict])
def test_what_is_no_agent_is_refused_by_what_it_is(wrong: Any) -> None:
    with pytest.raises(UsageError, match="neither an agent class nor an agent object"):
        connect(wrong)
