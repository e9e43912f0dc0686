"""Handlers that declare a typed class get an object of it, made of the payload; what cannot be made is told with its place."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.model.deliveries import DeliveryPolicy
from graphbus_core.schema.json import thaw


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.Enum):
    LOW = 1


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass
class Item:
    sku: str
    qty: int = 1


@dataclass(slots=True, kw_only=True)
class Order:
    items: list[Item]
    first: Item | None = None
    by_name: dict[str, Item] = field(default_factory=dict)
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    size: Literal["s", "m"] = "s"
    at: datetime.datetime | None = None
    day: datetime.date | None = None
    id: uuid.UUID | None = None
    price: decimal.Decimal = decimal.Decimal(0)
    movie: Movie | None = None
    count: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass
class Scaled:
    a: int
    scale: InitVar[int] = 2
    _: KW_ONLY
    note: str = ""
    made: int = field(default=0, init=False)

    def __post_init__(self, scale: int) -> None:
        self.made = self.a * scale


@dataclass
class Picky:
    a: int

    def __post_init__(self) -> None:
        if self.a > 9:
            raise ValueError("too much")


class Renamed(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    order_id: int


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Owner(msgspec.Struct):
    pets: list[Cat | Dog]


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="n")
    price: float = pydantic.Field(gt=0)


@pydantic_dataclass
class PydanticData:
    a: int = pydantic.Field(gt=0)


@dataclass
class Mixed:
    model: Model
    more: list[Model] = field(default_factory=list)


def heard(kind: Any, payload: Any) -> Any:
    """What a handler of this class gets, or the error of its dead letter."""
    bus = MessageBus()
    got: list[Any] = []

    def handler(it: Any) -> None:
        got.append(it)

    handler.__annotations__["it"] = kind
    handler.__qualname__ = "Shop.on_it"
    bus.subscribe("/A/B", handler)
    bus.publish("/A/B", payload)
    return got[0] if got else bus.dead_letters()[0].error


NOW = "2026-11-21T10:00:00+00:00"
ID = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("kind", "payload", "made"),
    [
        (Movie, {"title": "x", "more": 1}, {"title": "x"}),
        (Item, {"sku": "a"}, Item("a")),
        (Order, {"items": []}, Order(items=[])),
        (Order, {"items": [{"sku": "a", "qty": 2}], "first": {"sku": "b"}}, Order(items=[Item("a", 2)], first=Item("b"))),
        (Order, {"items": (), "by_name": {"x": {"sku": "a"}}}, Order(items=[], by_name={"x": Item("a")})),
        (Order, {"items": [], "colour": "red", "level": 1, "size": "m"}, Order(items=[], size="m")),
        (Order, {"items": [], "at": NOW}, Order(items=[], at=datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC))),
        (Order, {"items": [], "day": "2026-11-21"}, Order(items=[], day=datetime.date(2026, 11, 21))),
        (Order, {"items": [], "id": ID, "price": "1.50"}, Order(items=[], id=uuid.UUID(ID), price=decimal.Decimal("1.50"))),
        (Renamed, {"orderId": 3}, Renamed(3)),
        (Owner, {"pets": [{"type": "Cat", "lives": 9}, {"type": "Dog", "name": "x"}]}, Owner([Cat(9), Dog("x")])),
        (Model, {"n": "x", "price": 2}, Model(n="x", price=2.0)),
        (PydanticData, {"a": 1}, PydanticData(1)),
        (Mixed, {"model": {"n": "x", "price": 2}}, Mixed(Model(n="x", price=2.0))),
        (Mixed, {"model": {"n": "x", "price": 2}, "more": [{"n": "y", "price": 1}]},
         Mixed(Model(n="x", price=2.0), [Model(n="y", price=1)])),
    ],
)  # fmt: skip
def test_a_payload_becomes_an_object_of_the_class(kind: Any, payload: Any, made: Any) -> None:
    assert heard(kind, payload) == made


def test_a_dataclass_with_init_vars_is_called_with_them() -> None:
    made = heard(Scaled, {"a": 3, "scale": 5, "note": "x"})
    assert (made.a, made.made, made.note) == (3, 15, "x")
    assert heard(Scaled, {"a": 3}).made == 6


@pytest.mark.parametrize(
    ("kind", "payload", "told"),
    [
        (Item, {"sku": 1, "qty": "x"}, "sku: expected str, got int 1; qty: expected int, got str 'x'"),
        (Item, {"skuu": "a"}, "sku: expected str, got nothing. Is it 'skuu'?"),
        (Item, [1], "the value: expected an object with {sku: str, qty?: int}, got list [1]"),
        (Order, {"items": [{"sku": "a"}, {"sku": 2}]}, "items[1].sku: expected str, got int 2"),
        (Order, {"items": [], "colour": "blue"}, "colour: expected Literal['red'], got str 'blue'"),
        (Order, {"items": [], "size": "xl"}, "size: expected Literal['s', 'm'], got str 'xl'"),
        (Order, {"items": [], "at": "x"}, "at: expected datetime | None, got str 'x'"),
        (Order, {"items": [], "count": -1}, "count: expected int >= 0, got int -1"),
        (Order, {"items": [], "movie": {"title": 1}}, "movie.title: expected str, got int 1"),
        (Renamed, {"orderId": "x"}, "orderId: expected int, got str 'x'"),
        (Renamed, {"orderId": 1, "b": 2}, "the value: expected a valid Renamed (Object contains unknown field `b`)"),
        (Picky, {"a": 10}, "the value: expected a valid Picky (too much), got dict {'a': 10}"),
        (Scaled, {"a": "x"}, "a: expected int, got str 'x'"),
        (Scaled, {"a": 1, "scale": "x"}, "scale: expected int, got str 'x'"),
        (Model, {"n": "x", "price": -1}, "price: expected greater than 0, got int -1"),
        (PydanticData, {"a": 0}, "a: expected greater than 0, got int 0"),
        (Mixed, {"model": {"n": "x", "price": -1}}, "model"),
        (Owner, {"pets": [{"type": "Bird"}]}, "pets[0]"),
    ],
)  # fmt: skip
def test_a_payload_that_does_not_fit_is_told_with_topic_handler_field_expected_and_got(
    kind: Any, payload: Any, told: str
) -> None:
    error = heard(kind, payload)
    assert "Shop.on_it cannot accept the payload of /A/B: " in error
    assert told.replace("`", "") in error.replace("`", "")
    assert "[GBE650]" in error


def test_all_that_is_wrong_in_the_named_fields_is_told_at_once() -> None:
    bus = MessageBus()

    def handler(name: str, items: list[Item], at: datetime.date, first: Item | None = None) -> None:
        seen.append((name, items, at, first))

    handler.__annotations__ = {"name": str, "items": list[Item], "at": datetime.date, "first": Item | None}
    seen: list[Any] = []
    bus.subscribe("/A/B", handler)
    bus.publish("/A/B", {"name": "x", "items": [{"sku": "a"}], "at": "2026-11-21", "more": 1})
    assert seen == [("x", [Item("a")], datetime.date(2026, 11, 21), None)]
    bus.publish("/A/B", {"name": "x", "items": [{"sku": 1}], "at": "soon", "first": {"sku": 2}})
    (letter,) = bus.dead_letters()
    assert "items[0].sku: expected str, got int 1; at: expected date, got str 'soon'" in letter.error
    assert "first.sku: expected str, got int 2" in letter.error


def test_a_payload_that_does_not_fit_is_never_tried_again() -> None:
    bus = MessageBus()

    def handler(it: Item) -> None: ...

    handler.__annotations__["it"] = Item
    bus.subscribe("/A/B", handler, policy=DeliveryPolicy(retries=3))
    bus.publish("/A/B", {"sku": 1})
    (letter,) = bus.dead_letters()
    assert letter.attempts == 1
    bus.close()


def test_a_class_that_no_payload_can_become_is_refused_when_it_is_subscribed() -> None:
    @dataclass
    class Socketed:
        socket: complex | int | memoryview | list[str] | dict[int, Any] | Item | Picky

    def handler(it: Any) -> None: ...

    handler.__annotations__["it"] = Socketed
    with pytest.raises(RunError, match="no payload can be converted to Socketed") as refused:
        MessageBus().subscribe("/A/B", handler)
    assert refused.value.code == "GBE611"


def test_each_handler_gets_an_object_of_its_own_also_when_an_object_was_published() -> None:
    bus = MessageBus(on_error="raise")
    seen: list[Any] = []

    def change(order: Order) -> None:
        order.items[0].sku = "changed"
        order.items.append(Item("more"))
        seen.append(order)

    def look(order: Order) -> None:
        seen.append(order)

    change.__annotations__["order"] = look.__annotations__["order"] = Order
    bus.subscribe("/A/B", change)
    bus.subscribe("/A/B", look)
    bus.subscribe("/A/B", lambda payload: seen.append(payload["items"]))
    published = Order(items=[Item("a")])
    bus.publish("/A/B", published)
    assert published == Order(items=[Item("a")])
    assert seen[0] is not published
    assert seen[1] == published
    assert seen[1] is not published
    assert seen[2] == [{"sku": "a", "qty": 1}]


@pytest.mark.parametrize(
    ("published", "payload"),
    [
        (Item("a"), {"sku": "a", "qty": 1}),
        ({"item": Item("a")}, {"item": {"sku": "a", "qty": 1}}),
        ([Cat(9)], [{"type": "Cat", "lives": 9}]),
        (Renamed(3), {"orderId": 3}),
        (Model(n="x", price=1), {"n": "x", "price": 1.0}),
        (Mixed(Model(n="x", price=1)), {"model": {"n": "x", "price": 1.0}, "more": []}),
        (datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC), "2026-11-21T10:00:00Z"),
    ],
)
def test_an_object_of_a_typed_class_is_published_as_what_it_is_in_json(published: Any, payload: Any) -> None:
    bus = MessageBus()
    seen: list[Any] = []
    bus.subscribe("/A/B", lambda payload: seen.append(thaw(payload)))
    bus.publish("/A/B", published)
    assert seen == [payload]


def test_a_default_is_not_lost_when_an_object_is_published_on() -> None:
    bus = MessageBus(on_error="raise")
    seen: list[Any] = []

    def on(order: Mixed2) -> None:
        bus.publish("/A/C", order)

    on.__annotations__["order"] = Mixed2
    bus.subscribe("/A/B", on)
    bus.subscribe("/A/C", lambda payload: seen.append(thaw(payload)))
    bus.publish("/A/B", {"item": {"sku": "a"}, "more": [{"sku": "b"}]})
    assert seen == [{"item": {"sku": "a", "qty": 1}, "more": [{"sku": "b", "qty": 1}], "by_name": {}, "last": None}]


class Mixed2(msgspec.Struct):
    item: Item
    more: list[Item]
    by_name: dict[str, Item] = {}
    last: Item | None = None
