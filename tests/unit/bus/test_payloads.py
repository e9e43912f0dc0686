"""Payloads: JSON-shaped, bounded, and nobody changes what the next one sees."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import dataclass
from enum import IntEnum, StrEnum

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt
from graphbus_core.schema.json import (
    MAX_PAYLOAD_BYTES,
    FrozenDict,
    FrozenList,
    _Freezer,
    describe_path,
    freeze,
    thaw,
)


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Ratio(float):
    pass


@dataclass
class Price:
    amount: float


NESTED = {"order": {"items": [{"sku": "a", "tags": ["x"]}]}, "n": 1}


@pytest.mark.parametrize(
    "value", [None, True, 0, 1.5, "", "text", [], {}, [1, [2, [3]]], {"a": {"b": [None]}}, NESTED], ids=repr
)
def test_json_values_stay_equal_when_frozen_and_thawed(value: object) -> None:
    assert freeze(value) == value
    assert thaw(freeze(value)) == value
    assert json.loads(json.dumps(freeze(value))) == value
    assert msgspec.json.decode(msgspec.json.encode(freeze(value))) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Ratio(2.5), 2.5),
        ({"a": (1,)}, {"a": [1]}),
        ({"a": {3}}, {"a": [3]}),
        ({"a": b"x"}, {"a": "eA=="}),
        ({Color.RED: 1}, {"red": 1}),
    ],
)
def test_what_json_has_a_form_for_takes_that_form(value: object, plain: object) -> None:
    frozen = freeze(value)
    assert frozen == plain
    assert type(frozen) in (FrozenList, FrozenDict, type(plain))


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        (object(), "the payload", "a object"),
        ({"a": {1j}}, "a", "a set that is not JSON: NotImplementedError"),
        ({"items": [{"at": range(3)}]}, "items[0].at", "a range"),
        ({"a": {1: "x"}}, "a", "a dict with the key int 1"),
        ([1, [lambda: None]], "[1][0]", "a function"),
        (math.nan, "the payload", "nan, which JSON cannot represent"),
        ({"a": 1.5, "b": math.inf}, "b", "inf, which JSON cannot represent"),
        ({"a": [{"b": -math.inf}]}, "a[0].b", "-inf, which JSON cannot represent"),
        ({"a": Ratio("nan")}, "a", "nan, which JSON cannot represent"),
        (Price(math.nan), "amount", "nan, which JSON cannot represent"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: object, path: str, found: str) -> None:
    with pytest.raises(RunError) as refused:
        freeze(value)
    assert refused.value.code == "GBE612"
    assert refused.value.data == {"path": path, "found": found}


def test_a_payload_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(RunError, match="GBE612"):
        freeze(endless)


@pytest.mark.parametrize(
    "value",
    [
        "x" * (MAX_PAYLOAD_BYTES + 1),
        {"text": "x" * MAX_PAYLOAD_BYTES},
        {"x" * MAX_PAYLOAD_BYTES: 1},
        [0] * (MAX_PAYLOAD_BYTES // 4 + 1),
        [["x" * 1000]] * 1100,
    ],
    ids=["text", "field", "key", "numbers", "nested"],
)
def test_a_payload_of_more_than_a_mebibyte_is_refused(value: object) -> None:
    with pytest.raises(RunError) as refused:
        freeze(value)
    assert refused.value.code == "GBE613"
    assert str(MAX_PAYLOAD_BYTES) in str(refused.value)


VALUES = st.one_of(
    st.text(max_size=9),
    st.integers(),
    st.sampled_from(
        [1 << 64, -(1 << 64), 1 << 14_000, 1.5, True, None, Color.RED, Level.HIGH, Ratio(2.5), {}, [1], {1}]
    ),
)
KEYS = st.one_of(st.text(max_size=5), st.sampled_from([Color.RED, 1, None, (1, 2)]))


@given(value=st.dictionaries(KEYS, VALUES, max_size=4), limit=st.integers(0, 60))
@example(value={"a": "xyz"}, limit=8)
@example(value={"a": 1 << 14_000}, limit=60)
@example(value={"a": 1 << 13_999}, limit=60)
def test_the_short_way_for_plain_dicts_freezes_and_refuses_as_the_long_one_does(value: dict, limit: int) -> None:
    short, refused = attempt(lambda: freeze(value, limit))
    long, reason = attempt(lambda: _Freezer(limit).freeze(value))
    assert (short, str(refused)) == (long, str(reason))
    assert type(short) is type(long)
    assert [type(each) for each in (short or {}).values()] == [type(each) for each in (long or {}).values()]
    assert short is not value


def test_a_payload_just_below_the_limit_passes() -> None:
    assert freeze("x" * MAX_PAYLOAD_BYTES)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.update(n=2),
        lambda p: p.__setitem__("n", 2),
        lambda p: p.pop("n"),
        lambda p: p.clear(),
        lambda p: p.setdefault("m", 2),
        lambda p: p.popitem(),
        lambda p: p.__delitem__("n"),
        lambda p: p.__ior__({"n": 2}),
        lambda p: p["order"]["items"].append(1),
        lambda p: p["order"]["items"].extend([1]),
        lambda p: p["order"]["items"].__setitem__(0, 1),
        lambda p: p["order"]["items"].sort(),
        lambda p: p["order"]["items"].__iadd__([1]),
        lambda p: p["order"]["items"][0]["tags"].remove("x"),
        lambda p: p["order"].__delitem__("items"),
    ],
)
def test_a_handler_cannot_change_what_the_next_one_sees(change) -> None:
    bus = MessageBus()
    seen: list[object] = []
    bus.subscribe("/A/B", lambda event: change(event.payload))
    bus.subscribe("/A/B", lambda payload: seen.append(thaw(payload)))
    bus.publish("/A/B", copy.deepcopy(NESTED))
    assert seen == [NESTED]
    assert "read-only" in bus.dead_letters()[0].error


@pytest.mark.parametrize("duplicate", [dict, lambda p: p.copy(), copy.deepcopy, lambda p: {**p}, lambda p: p | {}])
def test_copies_of_a_payload_can_be_changed(duplicate) -> None:
    payload = freeze(NESTED)
    changed = duplicate(payload)
    changed["n"] = 2
    assert payload["n"] == 1


def test_a_deep_copy_is_plain_all_the_way_down() -> None:
    changed = copy.deepcopy(freeze(NESTED))
    changed["order"]["items"][0]["tags"].append("y")
    assert copy.deepcopy(freeze([[1]])) == [[1]]


def test_a_frozen_payload_survives_pickling_and_stays_frozen() -> None:
    again = pickle.loads(pickle.dumps(freeze(NESTED)))
    assert again == NESTED
    assert type(again) is FrozenDict
    assert type(again["order"]["items"]) is FrozenList


def test_a_frozen_payload_is_not_frozen_twice() -> None:
    frozen = freeze(NESTED)
    assert freeze(frozen) is frozen


def test_a_publisher_may_go_on_changing_what_it_published_inside_a_handler() -> None:
    bus = MessageBus()
    seen: list[int] = []

    def publish_thrice() -> None:
        payload = {"counts": [0]}
        for n in range(3):
            payload["counts"][0] = n
            bus.publish("/A/C", payload)

    bus.subscribe("/A/B", publish_thrice)
    bus.subscribe("/A/C", lambda event: seen.append(event["counts"][0]))
    bus.publish("/A/B")
    assert seen == [0, 1, 2]


def test_a_handler_that_publishes_what_is_not_json_fails_at_its_publish() -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", lambda: bus.publish("/A/C", {"at": object()}), name="publisher")
    bus.subscribe("/A/C", lambda event: event.payload, name="subscriber")
    bus.publish("/A/B")
    (letter,) = bus.dead_letters()
    assert letter.subscription == "publisher"
    assert "[GBE612]" in letter.error


def test_a_typed_handler_gets_an_object_of_its_own() -> None:
    class Order(msgspec.Struct):
        items: list[dict[str, int]]

    bus = MessageBus()
    seen: list[object] = []

    def change(order: Order) -> None:
        order.items[0]["n"] = 99
        order.items.append({"n": 100})

    def look(order: Order) -> None:
        seen.append(order.items)

    change.__annotations__["order"] = look.__annotations__["order"] = Order
    bus.subscribe("/A/B", change)
    bus.subscribe("/A/B", look)
    bus.publish("/A/B", {"items": [{"n": 1}]})
    assert seen == [[{"n": 1}]]


def test_a_large_payload_is_not_copied_by_an_outermost_publish() -> None:
    bus = MessageBus()
    payload = {"text": "x" * 10_000_000}
    bus.subscribe("/A/B", lambda event: None)
    bus.publish("/A/B", payload)
    (event,) = bus.history()
    with pytest.raises(RunError, match="GBE613"):
        assert event.payload


def test_an_event_cannot_be_changed() -> None:
    event = Event("/A/B", {"n": 1})
    with pytest.raises(AttributeError):
        event.topic = "/C/D"
    with pytest.raises(AttributeError):
        event.payload = {}
    with pytest.raises(TypeError):
        event.payload["n"] = 2


@pytest.mark.parametrize(
    ("path", "spelled"), [([], "the payload"), (["a"], "a"), (["a", 0, "b"], "a[0].b"), ([0, 1], "[0][1]")]
)
def test_a_path_is_spelled_as_one_would_write_it(path: list[str | int], spelled: str) -> None:
    assert describe_path(path) == spelled
