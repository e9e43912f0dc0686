"""Every kind of handler, publish, request and call that fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from graphbus_core import Event, GraphBusNode, LiveGraph, connect, depends_on, publishes, subscribe
from graphbus_core.testing import run_graph, say, scripted
from tests.typing.correct.events import (
    ANY_ORDER,
    BATCH,
    CREATED,
    PAID,
    PRINTED,
    QUOTED,
    SENT,
    STOCK_LEFT,
    TICK,
    Colour,
    Order,
    Parcel,
    Quote,
    Receipt,
)
from tests.typing.correct.pricing import Pricing, Rates


def order_of(order_id: str, lines: Iterable[float]) -> Order:
    return {"order_id": order_id, "total": sum(lines)}


def parcel_for(order: Order) -> Parcel:
    return {"parcel_id": order["order_id"], "sent_at": datetime.now(UTC)}


def receipt_of(order: Order) -> Receipt:
    return Receipt(order["order_id"])


@depends_on(Pricing, "Rates")
@publishes(PAID)
class Shop(GraphBusNode):
    SUBSCRIBE = (CREATED, "/Old/Name")

    def handle_event(self, topic: str, payload: Mapping[str, Any]) -> None:
        self.log(topic, payload)

    @subscribe(CREATED, retries=3, backoff=0.5, retry_on=(OSError, ValueError))
    def on_created(self, order: Order) -> None:
        self.publish(PAID, order)
        self.publish(PAID, order_of("2", [1.0, 2.0]))
        self.publish(PAID, {"order_id": "1", "total": 1})
        self.publish(PAID, {**order, "total": 2.0})
        self.publish(PAID, payload={"order_id": "1", "total": 1.0, "colour": Colour.RED})
        self.publish(PAID, order if order["total"] else {"order_id": "0", "total": 0.0})
        self.publish(SENT, parcel_for(order))
        self.publish(QUOTED, Quote("mug", 2.0))
        self.publish(PRINTED, receipt_of(order))
        self.publish(BATCH, [order, {"order_id": "2", "total": 1.0}])
        self.publish(BATCH, [])
        self.publish(TICK, len(order))
        self.publish("/Any/Name", {"a": 1})
        self.publish("/Any/Name")

    @publishes(PAID)
    @subscribe(CREATED)
    def asks(self, order: Order) -> None:
        left: int = self.request(STOCK_LEFT, "mug", timeout_s=2.0)
        self.request(STOCK_LEFT, "mug", 2.0)
        self.request("/Any/Question", {"a": left}, 2.0)
        total: float = self.agent(Pricing).quote(sku="mug").amount
        total += self.agent(Pricing).quote("mug", qty=2).amount
        total += self.agent(Pricing).total([order], rounded=True)
        self.log(total, self.call("Pricing", "quote", sku="mug"), self.agent(Pricing).stock("mug")["left"])

    @subscribe(CREATED)
    async def waits(self, order: Order) -> None:
        rate = await self.agent(Rates).rate("EUR")
        quote = await self.call("Pricing", "quote", sku="mug")
        left = await self.request(STOCK_LEFT, order["order_id"])
        self.log(rate * quote.amount, left)

    @subscribe(CREATED)
    def hears_nothing(self) -> None: ...

    @subscribe(CREATED)
    def hears_event(self, event: Event) -> None: ...

    @subscribe(CREATED)
    def hears_mapping(self, order: Mapping[str, object]) -> None: ...

    @subscribe(CREATED)
    def hears_dict(self, payload: dict[str, Any]) -> None: ...

    @subscribe(CREATED)
    def hears_maybe(self, order: Order | None) -> None: ...

    @subscribe(CREATED)
    def hears_both(self, event: Event, order: Order) -> None: ...

    @subscribe(CREATED)
    def hears_event_and_dict(self, event: Event, payload: dict[str, Any]) -> None: ...

    @subscribe(CREATED)
    def hears_field(self, order_id: str) -> None: ...

    @subscribe(CREATED)
    def hears_optional_field(self, total: float | None = None) -> None: ...

    @subscribe(CREATED)
    def hears_enum(self, colour: Colour) -> None: ...

    @subscribe(SENT)
    def hears_date(self, sent_at: datetime) -> None: ...

    @subscribe(CREATED)
    def hears_fields(self, order_id: str, total: float, colour: Colour = Colour.RED) -> None: ...

    @subscribe(CREATED)
    def hears_rest(self, order_id: str, **others: Any) -> None: ...

    @subscribe(QUOTED)
    def hears_dataclass(self, quote: Quote) -> None: ...

    @subscribe(PRINTED)
    def hears_struct(self, receipt: Receipt) -> None: ...

    @subscribe(BATCH)
    def hears_list(self, orders: list[Order]) -> None: ...

    @subscribe(TICK)
    def hears_number(self, payload: int) -> None: ...

    @subscribe(ANY_ORDER)
    def hears_pattern(self, order: Order) -> int:
        return len(order)

    @subscribe(CREATED, PAID, ANY_ORDER)
    def hears_three_of_one_type(self, order: Order) -> None: ...

    @subscribe(CREATED, SENT)
    def hears_two_types(self, thing: Order | Parcel) -> None: ...

    @subscribe(CREATED, "/Old/Name", retries=2)
    def hears_topic_and_name(self, order: Order) -> None: ...

    @subscribe("/Old/Name", "/Older/Name", timeout=2.0)
    async def hears_names(self, event: Event) -> None: ...

    @subscribe(CREATED, PAID, ANY_ORDER, QUOTED)
    def hears_four(self, event: Event) -> None: ...

    @subscribe(CREATED)
    @subscribe(SENT)
    def hears_one_below_another(self, event: Event) -> None: ...


class Branch(Shop):
    def on_created(self, order: Order) -> None:
        super().on_created(order)
        self.on_created(order=order)


def use(graph: LiveGraph) -> None:
    graph.publish(CREATED, {"order_id": "1", "total": 2.0})
    graph.publish("/Any/Name", {"a": 1}, src="me")
    graph.request(STOCK_LEFT, "mug", timeout_s=3)


def tests() -> None:
    with connect(Shop, Pricing()) as graph:
        use(graph)
    till = scripted("Till", on={CREATED: say(PAID, order_of("1", [])), "/Old/Name": say("/Any/Name")})
    with run_graph(Shop, till) as recorded:
        recorded.publish(CREATED, order_of("1", [2.0]))
        recorded.publish_all((CREATED, order_of("1", [])), ("/Any/Name", None))
        recorded.assert_published(PAID, order_id="1")
        recorded.assert_delivered_to("Shop.on_created", CREATED)
        assert recorded.published(SENT) == []
