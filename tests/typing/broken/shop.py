"""One mistake on each line with `# expect:` and what mypy says of it, `|` and what pyright says; no `|`: both say it."""

from __future__ import annotations

from datetime import datetime

from graphbus_core import Event, GraphBusNode, Topic, connect, depends_on, publishes, schema_method, subscribe
from tests.typing.correct.events import BATCH, CREATED, QUOTED, SENT, TICK, Order, Parcel, Quote


def texts() -> dict[str, str]:
    return {}


def count(orders: list[Order]) -> str:
    return str(len(orders))


def parcel_for(order: Order) -> Parcel:
    return {"parcel_id": order["order_id"]}  # expect: Missing key "sent_at" | "sent_at" is required


def sent_at(order: Order) -> datetime:
    return order["sent_at"]  # expect: has no key "sent_at" | "sent_at" is not a defined key


WITHOUT_TYPE = Topic("/Order/Created")  # expect: Missing positional argument "payload" | missing for parameter "payload"
NUMBERED = Topic(3, Order)  # expect: Argument 1 to "Topic" | parameter "name"


class Pricing(GraphBusNode):
    @schema_method
    def quote(self, sku: str, qty: int = 1) -> Quote:
        return Quote(sku, "2.50")  # expect: expected "float" | parameter "amount"

    @schema_method
    async def rate(self, currency: str) -> float:
        return 1.0


class Handlers(GraphBusNode):
    @subscribe(CREATED)  # expect: expected "Callable[[Any, Order], None]" | order: Parcel
    def takes_another_dict(self, order: Parcel) -> None: ...

    @subscribe(CREATED)  # expect: expected "Callable[[Any, Order], None]" | quote: Quote
    def takes_a_dataclass(self, quote: Quote) -> None: ...

    @subscribe(QUOTED)  # expect: expected "Callable[[Any, Quote], None]" | quote: Order
    def takes_a_dict(self, quote: Order) -> None: ...

    @subscribe(CREATED)  # expect: Callable[[Handlers, Event, Parcel], None] | order: Parcel
    def takes_another_with_the_event(self, event: Event, order: Parcel) -> None: ...

    @subscribe(CREATED, SENT)  # expect: expected "Callable[[Any, Order | Parcel], None]" | order: Order
    def takes_one_of_two(self, order: Order) -> None: ...

    @subscribe(CREATED, SENT, QUOTED)  # expect: Order | Parcel | Quote ;; thing: Order
    def takes_two_of_three(self, thing: Order | Parcel) -> None: ...

    @subscribe(CREATED)  # expect: Coroutine[Any, Any, None] | order: Parcel
    async def takes_another_async(self, order: Parcel) -> None: ...

    @subscribe(CREATED, retry=3)  # expect: Unexpected keyword argument "retry" | No overloads for "subscribe"
    def misspells_an_option(self, order: Order) -> None: ...

    @subscribe(CREATED, retries="3")  # expect: No overload variant of "subscribe" | parameter "retries"
    def counts_in_text(self, order: Order) -> None: ...

    @subscribe([CREATED, SENT])  # expect: No overload variant of "subscribe" | parameter "topic"
    def lists_topics(self, event: Event) -> None: ...

    @subscribe  # expect: No overload variant of "subscribe" | parameter "topic"
    def names_no_topic(self, order: Order) -> None: ...

    @publishes(Order)  # expect: Argument 1 to "publishes" | parameter "topic"
    def declares_a_type(self) -> None: ...


@depends_on(3)  # expect: Argument 1 to "depends_on" | parameter "agents"
class Payloads(GraphBusNode):
    def publish_all(self, order: Order) -> None:
        self.publish(CREATED, {"order_id": "1", "totl": 2.0})  # expect: No overload variant of "publish" | "totl" is an undefined item
        self.publish(CREATED, {"order_id": "1", "total": "2"})  # expect: "dict[str, str]" | "Literal['2']" is not assignable to "float"
        self.publish(CREATED, {"order_id": "1"})  # expect: No overload variant of "publish" | "total" is required in "Order"
        self.publish(CREATED, {**order, "note": "x"})  # expect: No overload variant of "publish" | "note" is an undefined item
        self.publish(CREATED, texts())  # expect: "dict[str, str]"
        self.publish(CREATED)  # expect: argument type "Topic[Order]" | missing for parameter "payload"
        self.publish(CREATED, None)  # expect: "None"
        self.publish(CREATED, order, 3)  # expect: No overload variant of "publish" | Expected 1 positional argument
        self.publish(SENT, order)  # expect: "Topic[Parcel]", "Order" | type "Parcel"
        self.publish(SENT, {"parcel_id": "1", "sent_at": "noon"})  # expect: "Topic[Parcel]" | "Literal['noon']" is not assignable to "datetime"
        self.publish(QUOTED, {"sku": "mug", "amount": 1.0})  # expect: "Topic[Quote]" | type "Quote"
        self.publish(BATCH, order)  # expect: "Topic[list[Order]]", "Order" | type "list[Order]"
        self.publish(BATCH, [{"order_id": "1"}])  # expect: "Topic[list[Order]]" | type "list[Order]"
        self.publish(TICK, count([order]))  # expect: "Topic[int]", "str" | type "int"
        self.publish(Order, order)  # expect: No overload variant of "publish" | parameter "topic"


class Questions(GraphBusNode):
    def ask_all(self, order: Order) -> None:
        self.request(CREATED, {"order_id": "1"})  # expect: No overload variant of "request" | "total" is required in "Order"
        self.request(CREATED, order, timeout=3)  # expect: did you mean "timeout_s"? | No parameter named "timeout"
        self.request(CREATED, order, timeout_s="3")  # expect: "timeout_s"
        self.agent(Pricing).quote(sku=3)  # expect: "sku"
        self.agent(Pricing).quote(skew="mug")  # expect: "skew"
        self.agent(Pricing).quote()  # expect: "sku"
        self.agent(Pricing).qoute("mug")  # expect: "qoute"
        self.log(self.agent(Pricing).quote("mug").amout)  # expect: "amout"
        self.publish(TICK, self.agent(Pricing).quote("mug"))  # expect: "Topic[int]", "Quote" | type "int"
        self.agent("Pricing").quote("mug")  # expect: Argument 1 to "agent" | parameter "kind"
        self.publish(TICK, self.agent(Pricing).rate("EUR"))  # expect: Coroutine


with connect(Pricing) as graph:
    graph.publish(CREATED, {"order_id": 1, "total": 2.0})  # expect: No overload variant of "publish" | "Literal[1]" is not assignable to "str"
    graph.request(CREATED, {"order_id": "1"})  # expect: No overload variant of "request" | "total" is required in "Order"
