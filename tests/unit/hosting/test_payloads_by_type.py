"""A payload that fits its type is published, whatever the type is made of, and is the same JSON in every spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from graphbus_core import GraphBusNode, LiveGraph, Topic, connect, publishes, subscribe
from graphbus_core.errors import RunError
from graphbus_core.model.config import Validation
from graphbus_core.schema.json import thaw


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Line(TypedDict):
    price: Decimal
    colour: Colour


@dataclass
class Parcel:
    at: datetime
    day: date
    hour: time
    took: timedelta
    id: UUID
    price: Decimal
    colour: Colour
    level: Level
    seal: bytes
    tags: set[str]
    lines: list[Line]
    by_name: dict[str, datetime]
    maybe: date | None
    mode: Literal["fast", "slow"] = "fast"


class ParcelDict(TypedDict):
    at: datetime
    day: date
    hour: time
    took: timedelta
    id: UUID
    price: Decimal
    colour: Colour
    level: Level
    seal: bytes
    tags: set[str]
    lines: list[Line]
    by_name: dict[str, datetime]
    maybe: date | None
    mode: Literal["fast", "slow"]


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PARCEL = Parcel(
    at=NOON,
    day=NOON.date(),
    hour=time(12),
    took=timedelta(hours=1),
    id=UUID(int=7),
    price=Decimal("12.50"),
    colour=Colour.RED,
    level=Level.HIGH,
    seal=b"wax",
    tags={"a"},
    lines=[{"price": Decimal("1.10"), "colour": Colour.RED}],
    by_name={"noon": NOON},
    maybe=None,
)
FIELDS = {name: getattr(PARCEL, name) for name in Parcel.__dataclass_fields__}
SENT = Topic("/Parcel/Sent", ParcelDict)
AS_OBJECT = Topic("/Parcel/Object", Parcel)
Say = Callable[[LiveGraph, Topic[Any], Any], object]


class Desk(GraphBusNode):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.typed: list[Any] = []

    @subscribe(SENT, AS_OBJECT)
    def raw(self, payload: dict[str, Any]) -> None:
        self.heard.append(thaw(payload))

    @subscribe(SENT)
    def as_dict(self, parcel: ParcelDict) -> None:
        self.typed.append(parcel)

    @subscribe(AS_OBJECT)
    def as_object(self, parcel: Parcel) -> None:
        self.typed.append(asdict(parcel))

    @subscribe("/Say")
    def says(self, event: Any) -> None:
        self.publish(*self.next)

    next: tuple[Any, Any] = ("", None)


def _from_outside(graph: LiveGraph, topic: Topic[Any], payload: Any) -> None:
    graph.publish(topic, payload)


def _from_a_handler(graph: LiveGraph, topic: Topic[Any], payload: Any) -> None:
    graph.node("Desk").next = topic, payload  # type: ignore[attr-defined]
    graph.publish("/Say")


@pytest.mark.parametrize("say", [_from_outside, _from_a_handler])
@pytest.mark.parametrize("validation", ["strict", "off"])
def test_a_dict_becomes_the_same_json_as_an_object_and_comes_back_as_objects(say: Say, validation: Validation) -> None:
    with connect(Desk, validation=validation) as graph:
        for topic, payload in ((SENT, FIELDS), (AS_OBJECT, PARCEL), (AS_OBJECT, FIELDS), (SENT, PARCEL)):
            say(graph, topic, payload)
        desk: Any = graph.node("Desk")
        assert desk.heard == [msgspec.to_builtins(PARCEL)] * 4
        assert desk.typed == [FIELDS] * 4


def test_what_does_not_fit_is_refused_by_its_field() -> None:
    with connect(Desk) as graph, pytest.raises(RunError, match="at: expected datetime, got str 'noon'"):
        graph.publish(SENT, {**FIELDS, "at": "noon"})


@publishes("/Plain/Numbers", {"amount": float})
class Scale(GraphBusNode):
    @subscribe("/Scale/Read")
    def on_read(self, event: Any) -> Any:
        self.publish(*self.next)

    next: tuple[Any, Any] = ("", None)

    @subscribe("/Scale/Asked")
    def on_asked(self, event: Any) -> Any:
        return event.payload


class Weight(TypedDict):
    amount: float


@dataclass
class WeightObject:
    amount: float


WEIGHED = Topic("/Scale/Weighed", Weight)


def _with_no_number() -> Iterator[tuple[Any, Any]]:
    for number in (math.nan, math.inf, -math.inf):
        for topic in ("/Plain/Numbers", "/Scale/Read", WEIGHED):
            yield topic, {"amount": number}
            yield topic, WeightObject(number)
        yield "/Scale/Asked", [number]


@pytest.mark.parametrize(("topic", "payload"), list(_with_no_number()), ids=str)
@pytest.mark.parametrize("validation", ["strict", "warn"])
def test_what_is_no_number_is_refused_at_the_publisher_in_every_spelling(
    topic: Any, payload: Any, validation: Validation
) -> None:
    with connect(Scale, validation=validation) as graph:
        for say in (graph.publish, graph.request):
            with pytest.raises(RunError, match="which JSON cannot represent") as refused:
                say(topic, payload)
            assert refused.value.code == "GBE612"
        graph.node("Scale").next = topic, payload  # type: ignore[attr-defined]
        with pytest.raises(RunError, match="which JSON cannot represent"):
            graph.publish("/Scale/Read")
