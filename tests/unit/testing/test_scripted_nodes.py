"""Scripted nodes: stand-ins that do what a test has written down, and nothing that the real class could not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import pytest

from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe
from graphbus_core.errors import RunError, UsageError
from graphbus_core.testing import run_graph, say, scripted


class Shipment(TypedDict):
    order_id: str
    parcels: int


@publishes("/Stock/Reserved", {"order_id": str, "qty": int})
class Stock(GraphBusNode):
    SUBSCRIBE = ("/Stock/Raw",)

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"reserved": bool, "left": int})
    def reserve(self, sku: str, qty: int = 1) -> dict[str, Any]:
        raise AssertionError("the real one is not asked")

    def secret(self) -> None: ...

    @subscribe("/Order/*", retries=1, backoff=0.5)
    def on_order(self, order_id: str, qty: int) -> None: ...

    @subscribe("/Parcel/Sent")
    def on_shipment(self, shipment: Shipment) -> None: ...

    def handle_event(self, topic: str, payload: Any) -> None: ...


@depends_on(Stock)
class Shop(GraphBusNode):
    @schema_method(input_schema={"sku": str}, output_schema={"status": str})
    def buy(self, sku: str) -> dict[str, str]:
        got = self.call("Stock", "reserve", sku=sku, qty=2)
        return {"status": "confirmed" if got["reserved"] else "backordered"}

    @subscribe("/Stock/Reserved")
    def on_reserved(self, event: Event) -> None:
        self.publish("/Order/Confirmed", {"order_id": event["order_id"]})


YES = {"reserved": True, "left": 3}
NO = {"reserved": False, "left": 0}


def test_a_neighbour_is_answered_step_by_step() -> None:
    stock = scripted(Stock, methods={"reserve": [YES, NO]})
    with run_graph(Shop, stock) as graph:
        assert graph.call("Shop", "buy", sku="mug") == {"status": "confirmed"}
        assert graph.call("Shop", "buy", sku="mug") == {"status": "backordered"}
        assert graph.node("Stock") is stock
    assert stock.called == [("reserve", {"sku": "mug", "qty": 2})] * 2
    stock.assert_done()


def test_a_script_that_is_used_up_refuses_to_go_on() -> None:
    with run_graph(Shop, scripted(Stock, methods={"reserve": [YES]})) as graph:
        graph.call("Shop", "buy", sku="mug")
        with pytest.raises(UsageError) as caught:
            graph.call("Shop", "buy", sku="mug")
    assert caught.value.code == "GBE166"
    assert "no step left for reserve, which was called more than 1 time." in caught.value.sentence


def test_steps_that_were_not_taken_are_named() -> None:
    stock = scripted(Stock, on={"/Order/Placed": [None, say("/Stock/Reserved", {"order_id": "1", "qty": 1})]})
    with run_graph(stock) as graph:
        graph.publish("/Order/Placed", {"order_id": "1", "qty": 1})
        with pytest.raises(AssertionError, match=r"Stock did not come to these steps:\n  /Order/Placed: Say\("):
            stock.assert_done()


def test_an_event_can_be_answered_with_events_failures_and_functions() -> None:
    def count(event: Event) -> None:
        seen.append(event["qty"])

    seen: list[int] = []
    reserved = say("/Stock/Reserved", {"order_id": "1", "qty": 1})
    stock = scripted(
        Stock, on={"/Order/Placed": [(reserved, reserved), LookupError("none left"), KeyError, count, count]}
    )
    with run_graph(Shop, stock, on_error="isolate") as graph:
        for qty in (1, 2, 3):
            graph.publish("/Order/Placed", {"order_id": "1", "qty": qty})
        graph.settle()
        assert len(graph.published("/Order/Confirmed")) == 2
        assert [event["qty"] for event in stock.heard] == [1, 2, 3, 2, 3]
    assert seen == [2, 3]


# --- what the real class does not allow ---


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"methods": {"reserve": {"reserved": "yes", "left": 1}}}, "GBE167", "the result of reserve"),
        ({"methods": {"reserve": [YES, {"reserved": True}]}}, "GBE167", "left"),
        ({"methods": {"reserve": [say("/A/B")]}}, "GBE167", "the result of reserve"),
        ({"methods": {"reserv": YES}}, "GBE168", "has no method reserv with @schema_method. Did you mean 'reserve'?"),
        ({"methods": {"secret": None}}, "GBE168", "has no method secret with @schema_method."),
        ({"on": {"/Ordr/Placed": None}}, "GBE168", "has no handler for /Ordr/Placed."),
        (
            {"on": {"/Order/Placed": say("/Stock/Reserved", {"order_id": 7, "qty": 1})}},
            "GBE167",
            "the topic /Stock/Reserved",
        ),
    ],
)
def test_a_script_may_do_only_what_the_class_can_do(options: Mapping[str, Any], code: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        scripted(Stock, **options)
    assert caught.value.code == code
    assert sentence in caught.value.sentence


def test_arguments_must_fit_the_real_schema() -> None:
    with run_graph(scripted(Stock, methods={"reserve": YES})) as graph, pytest.raises(RunError) as caught:
        graph.call("Stock", "reserve", sku="mug", qty="two")
    assert caught.value.code == "GBE622"


def test_a_computed_answer_must_fit_the_real_schema() -> None:
    stock = scripted(Stock, methods={"reserve": lambda **_: {"reserved": 1}})
    with run_graph(stock) as graph, pytest.raises(RunError) as caught:
        graph.call("Stock", "reserve", sku="mug", qty=2)
    assert caught.value.code == "GBE623"


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        ("/Order/Placed", {"order_id": "1"}, "GBE617"),
        ("/Parcel/Sent", {"order_id": "1", "parcels": "two"}, "GBE650"),
    ],
)
def test_events_must_fit_the_real_handler(topic: str, payload: dict[str, Any], code: str) -> None:
    with run_graph(scripted(Stock, on={topic: None})) as graph, pytest.raises(RunError) as caught:
        graph.publish(topic, payload)
    assert caught.value.code == code


def test_a_failure_is_tried_again_as_often_as_the_real_handler_would() -> None:
    with run_graph(scripted(Stock, on={"/Order/Placed": [LookupError("busy"), None]}), on_error="isolate") as graph:
        graph.publish("/Order/Placed", {"order_id": "1", "qty": 1})
        graph.settle()
        assert [each.attempt for each in graph.deliveries()] == [1, 2]
        assert not graph.dead_letters()


# --- a neighbour that has no class ---


def test_a_name_is_enough_for_a_neighbour_without_a_class() -> None:
    bank = scripted(
        "Bank", on={"/Order/*": say("/Bank/Paid", {"usd": 5}), "/Any/**": None}, methods={"pay": [{"ok": True}]}
    )
    with run_graph(bank) as graph:
        graph.publish("/Order/Placed", {})
        graph.publish("/Any/Thing/At-All")
        assert graph.call("Bank", "pay", usd=5, to="me") == {"ok": True}
        assert graph.published("/Bank/Paid") == [{"usd": 5}]
        assert [each.handler for each in graph.deliveries()] == ["Bank.on_order_any", "Bank.on_any_any"]
