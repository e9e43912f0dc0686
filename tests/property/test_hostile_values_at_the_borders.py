"""Ten thousand hostile values at every border: refused by a documented code or taken, never changed, nothing else happens."""

from __future__ import annotations

import datetime
import decimal
import logging
import math
import random
import time
import traceback
from collections import Counter, OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import Any, NotRequired

import msgspec
import pydantic
import pytest

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.config import Validation
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES
from tests import thoroughness
from tests.conftest import Figure

VALUES = 30_000 if thoroughness.is_thorough else 3_000
SEED = 20261121


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equal")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class Number(int):
    def __lt__(self, other: object) -> bool:
        raise RuntimeError("no order")


class Rude:
    """Raises whatever one asks it."""

    def __init__(self, name: str = "sku") -> None:
        object.__setattr__(self, "name", name)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equal")

    def __hash__(self) -> int:
        return hash("sku")

    def __repr__(self) -> str:
        raise RuntimeError("no name")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


class Endless(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return key

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield str(number)
            number += 1


class Liar(Mapping[str, Any]):
    """Says something else each time."""

    def __init__(self) -> None:
        self.times = 0

    def __getitem__(self, key: str) -> Any:
        self.times += 1
        if self.times % 3 == 0:
            raise ZeroDivisionError
        return self.times

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Iterator[str]:
        return iter(["sku", "qty", "more"])


class LyingDict(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")

    def __getitem__(self, key: object) -> Any:
        raise RuntimeError("no item")

    def __contains__(self, key: object) -> bool:
        return True

    def __iter__(self) -> Any:
        raise RuntimeError("not one after the other")


class LyingList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("not one after the other")

    def __len__(self) -> int:
        raise RuntimeError("no length")


@dataclass
class Item:
    sku: Any
    qty: Any = 1
    more: list[Any] = field(default_factory=list)


@dataclass
class Order:
    sku: str
    qty: int = 1
    more: list[Item] = field(default_factory=list)
    colour: Colour = Colour.RED
    at: datetime.datetime | None = None
    price: decimal.Decimal | None = None


class Struct(msgspec.Struct):
    sku: str
    qty: int | None = None
    more: Any = None


class Model(pydantic.BaseModel):
    sku: str
    qty: int = 1


class Broken(msgspec.Struct):
    sku: Any
    unset: Any

    @classmethod
    def made(cls) -> Broken:
        broken = cls("a", 1)
        del broken.unset
        return broken


def endless_list() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def endless_dict() -> dict[str, Any]:
    endless: dict[str, Any] = {"sku": "a"}
    endless["more"] = [endless]
    return endless


def endless_item() -> Item:
    item = Item("a")
    item.more.append(item)
    return item


def deep(depth: int) -> Any:
    value: Any = "x"
    for number in range(depth):
        value = [value] if number % 2 else {"more": value}
    return value


LEAVES: list[Callable[[random.Random], Any]] = [
    lambda _: None,
    lambda r: r.random() < 0.5,
    lambda r: r.randint(-5, 5),
    lambda r: r.random(),
    lambda r: r.choice(
        ["", "a", "red", "sku", "\ud800", "\0\x1b[2J", "é" * 20, "x" * 300, "{sku}", "%s", "2026-11-21T10:00:00"]
    ),
    lambda r: r.choice([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308]),
    lambda r: r.choice([1 << 63, 1 << 64, -(1 << 70), 10**4299, 10**4400, 1 << 20_000]),
    lambda _: b"bytes",
    lambda _: bytearray(b"x"),
    lambda _: memoryview(b"x"),
    lambda _: Rude(),
    lambda _: Text("sku"),
    lambda _: Number(3),
    lambda r: r.choice([Colour.RED, Level.LOW, Enum("Plain", "A").A]),  # type: ignore[attr-defined]
    lambda _: object(),
    lambda _: Ellipsis,
    lambda _: lambda: None,
    lambda _: Item,
    lambda _: 1j,
    lambda _: range(10**9),
    lambda _: (number for number in ()),
    lambda _: datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
    lambda _: decimal.Decimal("NaN"),
    lambda _: {1, "a"},
    lambda _: deque([1]),
    lambda _: endless_list(),
    lambda _: endless_dict(),
    lambda _: endless_item(),
    lambda r: deep(r.choice([50, 101, 5_000])),
    lambda _: Liar(),
    lambda _: Broken.made(),
    lambda _: Model(sku="a"),
    lambda _: UserDict({"sku": "a"}),
    lambda _: NotImplementedError("x"),
]


def value_of(r: random.Random, depth: int = 3) -> Any:
    """A value that is rarely good."""
    if not depth or r.random() < 0.35:
        return r.choice(LEAVES)(r)
    items = [value_of(r, depth - 1) for _ in range(r.randint(0, 3))]
    entries = {key_of(r): item for item in items} | ({"sku": "a"} if r.random() < 0.5 else {})
    return r.choice(CONTAINERS)(items, entries)


def key_of(r: random.Random) -> Any:
    return r.choice(["sku", "qty", "more", "colour", "at", "price", "x", "", "\ud800", 1, None, (1,), Colour.RED, 1.5])


CONTAINERS: list[Callable[[list[Any], dict[Any, Any]], Any]] = [
    *[lambda _, entries: entries] * 6,
    *[lambda items, _: items] * 3,
    lambda items, _: tuple(items),
    lambda items, _: LyingList(items),
    lambda _, entries: LyingDict(entries),
    lambda _, entries: OrderedDict(entries),
    lambda _, entries: Counter(map(str, entries)),
    lambda items, _: Item("a", *items[:1]),
    lambda items, _: Struct("a", more=items),
    lambda items, _: Item(items[0] if items else Rude(), more=items),
    lambda items, _: {"sku": "a", "qty": 1, "more": items},
    lambda items, entries: {"sku": "a", "more": [entries, *items]},
    lambda _, entries: {Rude(): 1} | {key: value for key, value in entries.items() if key != "sku"},
]


def fingerprint(value: Any, depth: int = 12, seen: frozenset[int] = frozenset()) -> Any:
    """What a value is made of, by identity, without asking it anything."""
    if depth == 0 or id(value) in seen:
        return id(value)
    inner = seen | {id(value)}
    kind = type(value)
    if issubclass(kind, dict):
        return id(value), [(id(k), fingerprint(v, depth - 1, inner)) for k, v in dict.items(value)]
    if issubclass(kind, list):
        return id(value), [fingerprint(each, depth - 1, inner) for each in list.__iter__(value)]
    if issubclass(kind, Item):
        return id(value), [fingerprint(each, depth - 1, inner) for each in vars(value).values()]
    return id(value)


@publishes("/Fuzz/Typed", Order)
class Target(GraphBusNode):
    given: Any = None

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"sku": str})
    def checked(self, sku: Any, qty: Any) -> Any:
        return {"sku": sku}

    @schema_method(input_schema={"order": Order, "more": list[Item]})
    def typed(self, order: Order, more: list[Item]) -> None: ...

    @schema_method(
        output_schema={"sku": str, "more": NotRequired[list[Item]], "by": NotRequired[dict[str, int | None]]}
    )
    def gives(self) -> Any:
        return self.given

    @subscribe("/Start/Again")
    def on_again(self) -> None:
        self.publish("/Fuzz/Any", self.given)

    @subscribe("/Ask/Echo")
    def on_echo(self, payload: Any) -> Any:
        return payload

    @subscribe("/Ask/Order")
    def on_ask(self, order: Order) -> Any:
        return order.qty

    @subscribe("/Fuzz/*")
    def on_payload(self, payload: Any) -> None: ...

    @subscribe("/Fuzz/*")
    def on_event(self, event: Any) -> None:
        assert event.payload is event.payload
        event.get("sku")

    @subscribe("/Fuzz/*")
    def on_order(self, order: Order) -> None: ...

    @subscribe("/Fuzz/*")
    def on_struct(self, struct: Struct) -> None: ...

    @subscribe("/Fuzz/*")
    def on_model(self, model: Model) -> None: ...

    @subscribe("/Fuzz/*")
    def on_fields(self, sku: Any, at: datetime.date | None = None, more: list[Item] | None = None) -> None: ...


def is_writable(text: str) -> bool:
    """True for what a log, a file and a report of a test can hold, and what no terminal obeys."""
    return not any("\ud800" <= each <= "\udfff" or each in "\0\x1b" for each in text)


class Log(logging.Handler):
    """Keeps those lines that could not be written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0
        self.unwritable: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self.lines += 1
        if not is_writable(line):
            self.unwritable.append(ascii(line))


def send_out(graph: LiveGraph, value: Any, r: random.Random) -> None:
    graph.publish(r.choice(["/Fuzz/Any", "/Fuzz/Typed"]), value)


def send_on(graph: LiveGraph, value: Any, _: random.Random) -> None:
    graph.node("Target").given = value  # type: ignore[attr-defined]
    graph.publish("/Start/Again")


def call_checked(graph: LiveGraph, value: Any, r: random.Random) -> None:
    graph.call("Target", "checked", **{"sku": "a", "qty": 1, r.choice(["sku", "qty"]): value})


def call_typed(graph: LiveGraph, value: Any, r: random.Random) -> None:
    graph.call("Target", "typed", **{"order": {"sku": "a"}, "more": [], r.choice(["order", "more"]): value})


def give(graph: LiveGraph, value: Any, _: random.Random) -> None:
    graph.node("Target").given = value  # type: ignore[attr-defined]
    graph.call("Target", "gives")


def keep(graph: LiveGraph, value: Any, _: random.Random) -> None:
    graph.node("Target").state["value"] = value


def ask(graph: LiveGraph, value: Any, _: random.Random) -> None:
    graph.request("/Ask/Echo", value)


def ask_for_order(graph: LiveGraph, value: Any, _: random.Random) -> None:
    graph.request("/Ask/Order", value)


BORDERS = [send_out, send_on, call_checked, call_typed, give, keep, ask, ask_for_order]
REFUSALS = {"GBE612", "GBE613", "GBE614", "GBE617", "GBE622", "GBE623", "GBE641", "GBE642", "GBE650"}


@pytest.mark.slow
@pytest.mark.parametrize("validation", ["strict", "warn", "off"])
def test_hostile_values_are_refused_or_taken_and_never_changed(
    validation: Validation, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = random.Random(f"{SEED} {validation}")
    log = Log()
    logging.getLogger("graphbus").addHandler(log)
    monkeypatch.setattr(logging.getLogger("graphbus"), "propagate", False)
    refused: Counter[str] = Counter()
    others: list[str] = []
    changed = longest = unwritable = 0
    slowest = 0.0
    with connect(Target, on_error="isolate", validation=validation) as graph:
        for number in range(VALUES // 3):
            value = value_of(r)
            border = BORDERS[number % len(BORDERS)]
            before = fingerprint(value)
            started = time.thread_time()
            try:
                border(graph, value, r)
            except GraphBusError as refusal:
                refused[refusal.code] += 1
                longest = max(longest, len(str(refusal)))
                unwritable += not is_writable("".join(traceback.format_exception(refusal)))
            except Exception as error:  # noqa: BLE001 - this is what must not happen
                others.append(f"{border.__name__}: {type(error).__name__}: {error}")
            slowest = max(slowest, time.thread_time() - started)
            changed += fingerprint(value) != before
        letters = graph.bus.dead_letters()
        dead = graph.bus.statistics().dead_letters
    logging.getLogger("graphbus").removeHandler(log)
    told = f"{VALUES // 3:,}; refused {refused.total():,}, dead letters {dead:,}, other exceptions {len(others)}"
    figure(f"hostile values at {len(BORDERS)} borders, validation {validation}", told)
    assert others == []
    assert changed == 0
    assert set(refused) <= REFUSALS
    assert letters
    assert {letter.error.rpartition("[")[2].rstrip("]") for letter in letters} <= REFUSALS
    assert unwritable == 0, "a refusal, with the tracebacks of its causes, holds what no file in UTF-8 can"
    assert log.lines > 100
    assert log.unwritable == []
    assert longest < 3_000
    assert slowest < 2


def test_an_endless_mapping_is_refused_in_time() -> None:
    with connect(Target) as graph, pytest.raises(GraphBusError, match="GBE612"):
        graph.publish("/Fuzz/Any", Endless())
    with connect(Target) as graph, pytest.raises(GraphBusError, match="GBE622"):
        graph.call("Target", "typed", order=Endless(), more=[])


@pytest.mark.parametrize("count", [1, 1_000, 100_000])
def test_many_wrong_items_make_a_short_message(count: int) -> None:
    class Listed(GraphBusNode):
        @schema_method(input_schema={"numbers": list[int], "by": dict[str, int]})
        def take(self, numbers: list[int], by: dict[str, int]) -> None: ...

    with connect(Listed) as graph:
        for arguments in (
            {"numbers": ["x"] * count, "by": {}},
            {"numbers": [], "by": {f"k{n}": "x" for n in range(count)}},
        ):
            with pytest.raises(GraphBusError, match="GBE622") as refused:
                graph.call("Listed", "take", **arguments)
            text = str(refused.value)
            assert text.count("expected int, got str 'x'") == min(count, 8)
            assert text.count("and more") == (count > 8)
            assert len(text) < 600
        unknown = {f"unknown_{number}": number for number in range(min(count, 5_000))}
        with pytest.raises(GraphBusError, match="GBE622") as refused:
            graph.call("Listed", "take", **unknown)
        assert len(str(refused.value)) < 1_500


@pytest.mark.parametrize("topic", ["/Edge/Any", "/Edge/Typed"])
def test_the_limit_of_a_mebibyte_holds_to_the_byte(topic: str) -> None:
    @publishes("/Edge/Typed", {"text": str})
    class Edge(GraphBusNode):
        @subscribe("/Edge/*")
        def on_edge(self, payload: Any) -> None: ...

    room = MAX_PAYLOAD_BYTES - len("text") - 4  # a dict and its key
    with connect(Edge) as graph:
        graph.publish(topic, {"text": "x" * room})
        with pytest.raises(GraphBusError, match="GBE613"):
            graph.publish(topic, {"text": "x" * (room + 1)})
