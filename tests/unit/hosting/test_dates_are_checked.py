"""Dates, times, durations, ids and decimals in a declaration: an object, or a text that one can be made of, and nothing else."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.contracts.compare import compare
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import RunError
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.json_schema import Writer
from graphbus_core.schema.live import type_of
from graphbus_core.schema.types import STR, Type
from tests.checking import found, read

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

    @schema_method(input_schema={"text": str}, output_schema={"day": datetime.date})
    def day_of(self, text: str) -> dict[str, Any]:
        return {"day": text}

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


def test_a_result_that_is_no_date_is_refused() -> None:
    with connect(Shop) as graph:
        assert graph.call("Shop", "day_of", text="2026-11-21") == {"day": "2026-11-21"}
        with pytest.raises(RunError, match="GBE623"):
            graph.call("Shop", "day_of", text="soon")


def test_a_datetime_is_no_date_although_python_says_so() -> None:
    with connect(Shop) as graph, pytest.raises(RunError, match="day: expected date, got datetime"):
        graph.call("Shop", "plain", **OBJECTS | {"day": OBJECTS["at"]})


class Model(pydantic.BaseModel):
    at: datetime.datetime
    prices: list[decimal.Decimal] = []
    visit: Visit | None = None


def test_what_pydantic_makes_dates_of_is_left_to_pydantic() -> None:
    class Taking(GraphBusNode):
        @schema_method(input_schema={"model": Model})
        def take(self, model: Model) -> dict[str, Any]:
            return {"at": model.at.isoformat()}

    with connect(Taking) as graph:
        for at in ("2026-11-21T10:00", 1795255200, OBJECTS["at"]):
            assert graph.call("Taking", "take", model={"at": at})["at"].startswith("2026-11-21T10:00:00")
        with pytest.raises(RunError, match=r"model\.at"):
            graph.call("Taking", "take", model={"at": "soon"})


def test_others_read_the_form_of_the_text_in_json_schema() -> None:
    forms = {"day": "date", "at": "date-time", "clock": "time", "span": "duration", "id": "uuid"}
    for name, form in forms.items():
        assert Writer().value(type_of(KINDS[name])) == {"type": "string", "format": form}
    assert Writer().value(type_of(decimal.Decimal)) == {"anyOf": [{"type": "string"}, {"type": "number"}]}
    assert Writer().value(type_of(dict[datetime.date, int])) == {
        "type": "object",
        "propertyNames": {"type": "string", "format": "date"},
        "additionalProperties": {"type": "integer"},
    }


def test_keys_are_texts_of_the_form() -> None:
    class Days(GraphBusNode):
        @schema_method(input_schema={"by_day": dict[datetime.date, int]}, output_schema={"sum": int})
        def add(self, by_day: dict[Any, int]) -> dict[str, int]:
            return {"sum": sum(by_day.values())}

    with connect(Days) as graph:
        assert graph.call("Days", "add", by_day={"2026-11-21": 1, OBJECTS["day"]: 2}) == {"sum": 3}
        with pytest.raises(RunError, match="by_day: expected dict"):
            graph.call("Days", "add", by_day={"monday": 1})


def test_a_text_may_be_a_date_and_a_word_that_is_none_is_not() -> None:
    date = type_of(datetime.date)
    assert why_not(date, STR) is None
    assert why_not(STR, date) is None
    assert why_not(date, Type("literal", values=("2026-11-21",))) is None
    assert why_not(date, Type("literal", values=("soon",))) == "date is wanted, 'soon' is given"
    assert why_not(date, type_of(int)) == "date is wanted, int is given"


STOCK = """
import datetime
class Stock(GraphBusNode):
    @schema_method(input_schema={{"day": {kind}}}, output_schema={{"day": {kind}}})
    def take(self, day: {kind}): return {{"day": day}}
"""


@pytest.mark.parametrize(
    ("before", "after", "taking", "giving"),
    [
        ("str", "datetime.date", "breaking", "compatible"),
        ("datetime.date", "str", "compatible", "breaking"),
        ("datetime.date", "datetime.datetime", "breaking", "breaking"),
        ("datetime.date", "datetime.date | None", "compatible", "breaking"),
    ],
)
def test_a_date_in_the_place_of_a_text_is_a_change(
    tmp_path: Path, before: str, after: str, taking: str, giving: str
) -> None:
    states = []
    for name, kind in (("before", before), ("after", after)):
        project = read(tmp_path / name, {"stock.py": STOCK.format(kind=kind)})
        states.append(Surface(project.definitions, project.graph.topics))
    effects = {change.what: str(change.effect) for change in compare(*states)}
    assert effects == {"input": taking, "output": giving}


CALLS = """
class Desk(GraphBusNode):
    __dependencies__ = ["Stock"]

    def on(self, day: datetime.date, span: datetime.timedelta, text: str, maybe: datetime.date | None = None):
        self.call("Stock", "take", day={value})
"""


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("day", []),
        ("day + span", []),
        ("text", []),
        ("'2026-11-21'", []),
        ("day.isoformat()", []),
        ("datetime.date.today()", []),
        ("maybe or day", []),
        ("7", ["GB110"]),
        ("1.5 * 2", ["GB110"]),
    ],
)
def test_the_build_finds_what_surely_is_no_date_and_nothing_else(tmp_path: Path, value: str, codes: list[str]) -> None:
    text = STOCK.format(kind="datetime.date") + CALLS.format(value=value)
    assert [code for _, _, code in found(read(tmp_path, {"stock.py": text}), "GB1")] == codes
