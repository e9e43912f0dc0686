"""`Topic` in the place of a name, `self.agent`, and `@schema_method` alone: what they do in a graph that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from graphbus_core import (
    Event,
    GraphBusNode,
    Topic,
    connect,
    depends_on,
    publishes,
    schema_method,
    subscribe,
)
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.testing import run_graph, say, scripted


class Order(TypedDict):
    order_id: str
    total: float


@dataclass
class Quote:
    sku: str
    amount: float


CREATED = Topic("/Order/Created", Order)
PAID = Topic("/Order/Paid", Order)
ANY = Topic("/Order/*", Order)
ORDER: Order = {"order_id": "1", "total": 2.0}


class Desk(GraphBusNode):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @subscribe(CREATED, PAID)
    def on_order(self, order: Order) -> None:
        self.heard.append(order["order_id"])

    @subscribe(ANY, "/Parcel/Sent")
    def on_any(self, event: Event) -> None:
        self.heard.append(event.topic)


def test_a_handler_hears_several_topics_and_names_and_topics_mix() -> None:
    with connect(Desk) as graph:
        graph.publish(CREATED, ORDER)
        graph.publish("/Order/Paid", ORDER)
        graph.publish("/Parcel/Sent", {})
        assert graph.node("Desk").heard == [  # type: ignore[attr-defined]
            "1",
            "/Order/Created",
            "1",
            "/Order/Paid",
            "/Parcel/Sent",
        ]


MANY = Topic("/Quote/Many", list[Quote])
LEFT = Topic("/Stock/Left", int)


class Pile(GraphBusNode):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @subscribe(MANY)
    def on_many(self, quotes: list[Quote]) -> None:
        self.heard.append(quotes)

    @subscribe(LEFT)
    def on_left(self, left: int) -> None:
        self.heard.append(left)


def test_one_parameter_of_any_name_gets_all_of_a_payload_that_has_no_fields() -> None:
    with run_graph(Pile) as graph:
        graph.publish(MANY, [{"sku": "mug", "amount": 2.0}])
        graph.publish(LEFT, 3)
        assert graph.node("Pile").heard == [[Quote("mug", 2.0)], 3]  # type: ignore[attr-defined]


def test_a_payload_without_fields_is_compared_with_the_annotation() -> None:
    with connect(Pile) as graph, pytest.raises(RunError, match="amount") as refused:
        graph.publish(MANY, [{"sku": "mug", "amount": "two"}])
    assert refused.value.code == "GBE650"


def test_a_topic_says_what_its_payloads_look_like() -> None:
    with connect(Desk) as graph, pytest.raises(RunError, match="total: expected float") as refused:
        graph.publish("/Order/Created", {"order_id": "1", "total": "2"})
    assert refused.value.code == "GBE614"


def test_publishes_takes_the_type_of_its_topic() -> None:
    @publishes(CREATED)
    class Till(GraphBusNode):
        pass

    with connect(Till) as graph, pytest.raises(RunError, match="total: expected float, got nothing"):
        graph.publish("/Order/Created", {"order_id": "1"})


@pytest.mark.parametrize("start", [connect, run_graph])
def test_what_is_published_on_a_topic_is_checked_though_no_agent_declares_it(start: Any) -> None:
    class Till(GraphBusNode):
        @schema_method
        def sell(self, total: str) -> None:
            self.publish(PAID, {"order_id": "1", "total": total})  # type: ignore[misc]

    with start(Till) as graph:
        graph.publish("/Order/Paid", {"anything": 1})
        for _ in range(2):
            with pytest.raises(RunError, match="total: expected float, got str 'two'"):
                graph.call("Till", "sell", total="two")
        with pytest.raises(RunError, match="order_id: expected str, got nothing"):
            graph.publish("/Order/Paid", {"anything": 1})


@pytest.mark.parametrize("validation", ["warn", "off"])
def test_a_topic_is_looked_at_as_the_validation_says(validation: Any) -> None:
    with connect(Desk, validation=validation) as graph:
        graph.publish(Topic("/Order/Lost", Order), {"total": 1})  # type: ignore[misc]


def test_a_bus_alone_takes_topics() -> None:
    heard: list[Event] = []
    with MessageBus() as bus:
        bus.subscribe(ANY, heard.append)
        bus.publish(CREATED, ORDER)
        bus.publish(CREATED, ORDER)
    assert [event.topic for event in heard] == ["/Order/Created"] * 2


async def _publish_async(bus: MessageBus) -> None:
    async with bus:
        await bus.publish_async(CREATED, ORDER)


def test_a_bus_on_a_loop_takes_topics() -> None:
    from asyncio import run

    heard: list[Event] = []
    bus = MessageBus()
    bus.subscribe(CREATED, heard.append)
    run(_publish_async(bus))
    assert [event.topic for event in heard] == ["/Order/Created"]


def test_a_request_takes_a_topic() -> None:
    class Clerk(GraphBusNode):
        @subscribe(CREATED)
        def on_created(self, order: Order) -> str:
            return order["order_id"]

    with connect(Clerk) as graph:
        assert graph.request(CREATED, ORDER) == "1"
        assert graph.request(CREATED, ORDER, timeout_s=1.0) == "1"


def test_topics_stand_in_subscribe_lists() -> None:
    class Old(GraphBusNode):
        SUBSCRIBE = (CREATED, "/Parcel/Sent")

        def __init__(self) -> None:
            self.heard: list[str] = []

        def handle_event(self, topic: str, payload: Any) -> None:
            self.heard.append(topic)

    with connect(Old) as graph:
        graph.publish(CREATED, ORDER)
        assert graph.node("Old").heard == ["/Order/Created"]  # type: ignore[attr-defined]


def test_the_testing_kit_takes_topics() -> None:
    till = scripted("Till", on={CREATED: say(PAID, ORDER)})
    with run_graph(Desk, till) as graph:
        graph.publish(CREATED, ORDER)
        graph.publish_all((CREATED, ORDER), (PAID, ORDER))
        assert graph.published(CREATED) == [ORDER, ORDER]
        assert graph.events(ANY)
        graph.assert_published(PAID, total=2.0)
        graph.assert_not_published(PAID, total=3.0)
        graph.assert_delivered_to("Desk.on_order", PAID)


@pytest.mark.parametrize("name", ["Order/Created", "/Order/", "/Order Created", "", "/**/Order", 3])
def test_a_topic_with_a_malformed_name_is_refused_where_it_is_made(name: Any) -> None:
    with pytest.raises(RunError) as refused:
        Topic(name, Order)
    assert refused.value.code == "GBE610"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["/A", "/B"], "@subscribe('/A', '/B')"),
        ((CREATED,), "@subscribe('/Order/Created')"),
        (lambda self: None, '@subscribe("/Order/Created")'),
        (Order, '@subscribe("/Order/Created")'),
        (None, '@subscribe("/Order/Created")'),
    ],
    ids=["a list", "a tuple", "the method", "the payload", "None"],
)
def test_subscribe_refuses_what_is_no_topic_and_says_what_to_write(given: Any, said: str) -> None:
    with pytest.raises(RunError) as refused:
        subscribe(given)
    assert refused.value.code == "GBE664"
    assert said in str(refused.value)


# --- contracts from annotations ---


class Pricing(GraphBusNode):
    rates = 3

    @schema_method
    def quote(self, sku: str, qty: int = 1) -> Quote:
        return Quote(sku, 2.5 * qty)

    @schema_method()
    def wrong(self, sku: str) -> Quote:
        return {"sku": sku}  # type: ignore[return-value]

    @schema_method(input_schema={"name": str})
    def greet(self, name: str = "World") -> str:
        return f"Hello {name}"

    @schema_method
    def total(self, quotes: list[Quote], *, rounded: bool = False) -> float:
        return sum(each.amount for each in quotes)

    def helper(self) -> None: ...


def test_schema_method_alone_takes_the_contract_from_the_annotations() -> None:
    with connect(Pricing) as graph:
        assert graph.call("Pricing", "quote", sku="mug", qty=2) == Quote("mug", 5.0)
        with pytest.raises(RunError, match="qty: expected int, got str 'two'"):
            graph.call("Pricing", "quote", sku="mug", qty="two")
        with pytest.raises(RunError, match="amount: expected float, got nothing"):
            graph.call("Pricing", "wrong", sku="mug")
        assert graph.call("Pricing", "total", quotes=[{"sku": "mug", "amount": 2}]) == 2


class Tools(GraphBusNode):
    @staticmethod
    @schema_method
    def static(sku: str, qty: int = 1) -> int:
        return qty

    @classmethod
    @schema_method
    def of_class(cls, sku: str, qty: int = 1) -> int:
        return qty

    @schema_method
    def rest(self, sku: str, **others: int) -> dict[str, int]:
        return others

    @schema_method
    def unknown(self, sku, thing: NotThere = None):  # type: ignore[no-untyped-def,name-defined]  # noqa: F821
        return [sku, thing]


@pytest.mark.parametrize("method", ["static", "of_class"])
def test_methods_of_every_kind_have_a_contract_from_annotations(method: str) -> None:
    with connect(Tools) as graph:
        assert graph.call("Tools", method, sku="mug") == 1
        assert graph.call("Tools", method, sku="mug", qty=3) == 3
        with pytest.raises(RunError, match="sku: expected str, got nothing; cls: expected one of sku, qty"):
            graph.call("Tools", method, cls=1)


def test_what_no_annotation_says_is_not_checked() -> None:
    with connect(Tools) as graph:
        assert graph.call("Tools", "rest", sku="mug", more=1) == {"more": 1}
        assert graph.call("Tools", "unknown", sku=3, thing=object)[0] == 3
        with pytest.raises(RunError, match=r"sku: expected \?, got nothing"):
            graph.call("Tools", "unknown")


def test_what_a_publisher_declares_counts_more_than_what_others_subscribe_to() -> None:
    class Other(TypedDict):
        note: str

    @publishes("/Order/Created", Other)
    class Publisher(GraphBusNode):
        pass

    with connect(Publisher, Desk) as graph, pytest.raises(RunError, match="note: expected str, got nothing"):
        graph.publish("/Order/Created", ORDER)


def test_what_has_a_default_may_be_left_out() -> None:
    with connect(Pricing) as graph:
        assert graph.call("Pricing", "quote", sku="mug") == Quote("mug", 2.5)
        assert graph.call("Pricing", "greet") == "Hello World"
        with pytest.raises(RunError, match="sku: expected str, got nothing"):
            graph.call("Pricing", "quote")


def test_a_stand_in_keeps_a_contract_from_annotations() -> None:
    with run_graph(scripted(Pricing, methods={"quote": Quote("mug", 1.0)})) as graph:
        assert graph.call("Pricing", "quote", sku="mug") == Quote("mug", 1.0)
        with pytest.raises(RunError, match="qty: expected int"):
            graph.call("Pricing", "quote", sku="mug", qty="two")


# --- calls by class ---


@depends_on(Pricing)
class Shop(GraphBusNode):
    @schema_method
    def price(self, sku: str) -> float:
        return self.agent(Pricing).quote(sku=sku).amount


def _shop_that(does: Any) -> type[GraphBusNode]:
    @depends_on(Pricing)
    class Shop(GraphBusNode):
        @schema_method()
        def go(self) -> Any:
            return does(self)

    return Shop


def test_an_agent_is_called_through_its_class_over_the_bus() -> None:
    with run_graph(Pricing, Shop) as graph:
        assert graph.call("Shop", "price", sku="mug") == 2.5
        graph.assert_called("Pricing.quote", sku="mug")


def test_arguments_may_be_given_by_position() -> None:
    with connect(Pricing, _shop_that(lambda shop: shop.agent(Pricing).quote("mug", 4))) as graph:
        assert graph.call("Shop", "go").amount == 10.0


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (lambda shop: shop.agent(Pricing).quote("a", 1, 2), "GBE622", "it takes 2 positional arguments, not 3"),
        (lambda shop: shop.agent(Pricing).quote("a", sku="b"), "GBE622", "sku is passed twice"),
        (lambda shop: shop.agent(Pricing).quote(sku=3), "GBE622", "sku: expected str, got int 3"),
        (lambda shop: shop.agent(Pricing).helper(), "GBE621", "no method helper that can be called"),
        (lambda shop: shop.agent(Pricing).rates, "GBE621", "greet, quote, total, wrong"),
        (lambda shop: shop.agent(Pricing).qoute(sku="a"), "GBE621", "Did you mean 'quote'"),
        (lambda shop: shop.agent("Pricing"), "GBE665", "got str 'Pricing'"),
        (lambda shop: shop.agent(Desk).x(), "GBE621", "Decorate the method"),
    ],
)
def test_a_wrong_call_through_a_class_is_refused(does: Any, code: str, said: str) -> None:
    with connect(Pricing, _shop_that(does)) as graph, pytest.raises(RunError) as refused:
        graph.call("Shop", "go")
    assert refused.value.code == code
    assert said in str(refused.value)


def test_a_call_through_a_class_needs_the_dependency() -> None:
    class Loner(GraphBusNode):
        @schema_method()
        def go(self) -> Any:
            return self.agent(Pricing).quote(sku="mug")

    with connect(Pricing, Loner) as graph, pytest.raises(RunError) as refused:
        graph.call("Loner", "go")
    assert refused.value.code == "GBE624"


def test_an_async_agent_awaits_a_call_through_a_class() -> None:
    class Rates(GraphBusNode):
        @schema_method
        async def rate(self, sku: str) -> float:
            return 2.0

    @depends_on(Rates, Pricing)
    class Counter(GraphBusNode):
        @schema_method
        async def go(self) -> float:
            quote = await self.agent(Pricing).quote(sku="mug")  # type: ignore[misc]
            return await self.agent(Rates).rate(sku="mug") * quote.amount

    with connect(Pricing, Rates, Counter) as graph:
        assert graph.call("Counter", "go") == 5.0
