"""Dates, times, durations, ids and decimals in a declaration: an object, or a text that one can be made of, and nothing else."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.errors import RunError

KINDS = {
    "day": datetime.date,
    "at": datetime.datetime,
    "clock": datetime.time,
    "span": datetime.timedelta,
    "id": uuid.UUID,
    "price": decimal.Decimal,
}
TEXTS = {
    "day": "2026-11-21",
    "at": "2026-11-21T10:00:00Z",
    "clock": "10:00:00",
    "span": "PT90S",
    "id": "12345678-1234-5678-1234-567812345678",
    "price": "12.50",
}
OBJECTS = {
    "day": datetime.date(2026, 11, 21),
    "at": datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC),
    "clock": datetime.time(10),
    "span": datetime.timedelta(seconds=90),
    "id": uuid.UUID(TEXTS["id"]),
    "price": decimal.Decimal("12.50"),
}


@dataclass
class Visit:
    day: datetime.date
    at: datetime.datetime
    clock: datetime.time
    span: datetime.timedelta
    id: uuid.UUID
    price: decimal.Decimal


@publishes("/Shop/Seen", KINDS)
class Shop(GraphBusNode):
    heard: Any = None

    @schema_method(input_schema=KINDS)
    def plain(self, day, at, clock, span, id, price):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        return {"seen": [day, at, clock, span, id, price]}

    @schema_method(input_schema={"visit": Visit}, output_schema={"day": datetime.date})
    def visited(self, visit: Visit) -> dict[str, Any]:
        self.publish("/Shop/Seen", visit)
        return {"day": visit.day}

    @subscribe("/Shop/Seen")
    def on_seen(self, visit: Visit) -> None:
        self.heard = visit


WRONG: list[tuple[str, Any, str]] = [
    ("day", "tomorrow", "day: expected date, got str 'tomorrow'"),
    ("day", 7, "day: expected date, got int 7"),
    ("day", TEXTS["at"], "day: expected date, got str '2026-11-21T10:00:00Z'"),
    ("at", TEXTS["day"], "at: expected datetime, got str '2026-11-21'"),
    ("at", 1.5, "at: expected datetime, got float 1.5"),
    ("clock", "ten", "clock: expected time, got str 'ten'"),
    ("span", 90, "span: expected timedelta, got int 90"),
    ("id", "7", "id: expected UUID, got str '7'"),
    ("price", "much", "price: expected Decimal | float, got str 'much'"),
    ("price", True, "price: expected Decimal | float, got bool True"),
]


@pytest.mark.parametrize("given", [TEXTS, OBJECTS], ids=["texts", "objects"])
def test_objects_and_their_texts_are_taken(given: dict[str, Any]) -> None:
    with connect(Shop) as graph:
        assert graph.call("Shop", "plain", **given) == {"seen": [*given.values()]}
        assert graph.call("Shop", "visited", visit=given) == {"day": OBJECTS["day"] if given is TEXTS else given["day"]}
        assert graph.node("Shop").heard == Visit(**OBJECTS)  # type: ignore[attr-defined]
        assert graph.call("Shop", "plain", **given | {"price": 12.5})["seen"][-1] == 12.5
        assert graph.call("Shop", "visited", visit=Visit(**OBJECTS)) == {"day": OBJECTS["day"]}


@pytest.mark.parametrize(("name", "wrong", "told"), WRONG)
def test_anything_else_is_refused_whoever_gives_it(name: str, wrong: Any, told: str) -> None:
    with connect(Shop) as graph:
        with pytest.raises(RunError, match="GBE622") as refused:
            graph.call("Shop", "plain", **OBJECTS | {name: wrong})
        assert told in str(refused.value)
        with pytest.raises(RunError, match="GBE614") as refused:
            graph.publish("/Shop/Seen", TEXTS | {name: wrong})
        assert told in str(refused.value)
        graph.publish("/Shop/Seen", TEXTS)
        assert graph.node("Shop").heard == Visit(**OBJECTS)  # type: ignore[attr-defined]
