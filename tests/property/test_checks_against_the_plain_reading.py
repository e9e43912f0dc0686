"""What msgspec lets pass and what the walk through a schema finds wrong agree, for all schemas and all values."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.errors import RunError
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, freeze
from graphbus_core.schema.types import (
    ANY,
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    TEXT_EXAMPLES,
    UNKNOWN,
    Field,
    Schema,
    Type,
)
from graphbus_core.schema.validation import check_for, checked_call_for, payload_check_for, problems_of
from tests.thoroughness import examples


class Colour(StrEnum):
    RED = "a"


class Level(IntEnum):
    LOW = 1


class Plain(Enum):
    ONE = "a"


@dataclasses.dataclass
class Item:
    a: object
    b: object = 1


@dataclasses.dataclass(slots=True)
class Slim:
    a: object


class Struct(msgspec.Struct, rename={"x": "a"}):
    x: Any


class Text(str):
    __slots__ = ()


class Lying(dict[Any, Any]):
    def __getitem__(self, key: object) -> Any:
        return "a lie"

    def __contains__(self, key: object) -> bool:
        return True


class Items(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("not one after the other")

    def __len__(self) -> int:
        return 99


class Rude:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("none of your business")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equal")

    def __hash__(self) -> int:
        return hash("a")


RECORD = Type("record", name="R", fields=(Field("a", STR),))
REFUSED = object()
HOSTILE = [
    'a"); import os; os._exit(3); ("',
    "__import__('os')._exit(3)",
    "c0",
    "v1",
    "v",
    "is_str",
    "return False",
    "\n    return True\n",
    "\ud800",
    "{v}",
    "'",
    '"""',
    "\\",
    "",
    "\0",
    "x" * 200,
]
NAMES = st.sampled_from(["a", "b", "c"]) | st.sampled_from(HOSTILE) | st.text(max_size=3)
TEXTS = [Type("str", name=name) for name in TEXT_EXAMPLES]
LEAVES = [
    *TEXTS,
    UNKNOWN,
    ANY,
    NULL,
    BOOL,
    INT,
    FLOAT,
    STR,
    BYTES,
    LIST,
    DICT,
    Type("tuple"),
    Type("set"),
    Type("union"),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> Type:
    kind: Any = draw(
        st.sampled_from(["leaf", "list", "set", "dict", "tuple", "union", "optional", "literal", "record"])
    )
    if kind == "leaf" or not depth:
        return draw(st.sampled_from(LEAVES))
    if kind == "literal":
        values = draw(st.lists(st.sampled_from(["a", "b", 1, 0, True, False, None]), max_size=4))
        return Type("literal", values=tuple(values), name=draw(st.sampled_from(["", "Plain"])))
    if kind == "record":
        return Type("record", name="R", fields=draw(records(depth - 1)))
    inner = draw(types(depth - 1))
    if kind == "optional":
        return Type("union", (inner, NULL))
    if kind in ("tuple", "union"):
        return Type(kind, (inner, *(draw(types(depth - 1)) for _ in range(draw(st.integers(0, 2))))))
    return (
        Type("dict", (draw(st.sampled_from([STR, ANY, INT, *TEXTS])), inner))
        if kind == "dict"
        else Type(kind, (inner,))
    )


@st.composite
def records(draw: st.DrawFn, depth: int = 3) -> tuple[Field, ...]:
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    return tuple(Field(name, draw(types(depth)), draw(st.booleans())) for name in names)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    return Schema(draw(records()), draw(st.booleans()))


OBJECTS = [
    datetime.date(2026, 1, 31),
    datetime.datetime(2026, 1, 31),
    datetime.time(12),
    datetime.timedelta(1),
    decimal.Decimal("1.5"),
    uuid.UUID(int=1),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([1 << 63, 1 << 64, 10**80, -(10**40)])
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from(["a", "b", Colour.RED, Level.LOW, Plain.ONE, Text("a"), Text("b"), Ellipsis])
    | st.sampled_from(OBJECTS)
    | st.sampled_from([text for texts in TEXT_EXAMPLES.values() for text in texts])
    | st.builds(Rude)
)


@st.composite
def values(draw: st.DrawFn, depth: int = 3) -> Any:
    if not depth or draw(st.booleans()):
        return draw(SCALARS)
    count = draw(st.integers(0, 3))
    inner = [draw(values(depth - 1)) for _ in range(count)]
    entries = {draw(NAMES | st.integers(0, 2)): each for each in inner}
    return draw(st.sampled_from(CONTAINERS))(inner, entries)


CONTAINERS: list[Callable[[list[Any], dict[Any, Any]], Any]] = [
    lambda items, _: items,
    lambda items, _: tuple(items),
    lambda items, _: Items(items),
    lambda items, _: Item(items, items[:1]),
    lambda items, _: Slim(items),
    lambda items, _: Struct(items),
    lambda items, _: frozenset(map(type, items)),
    lambda items, _: {repr(type(each)) for each in items},
    lambda _, entries: entries,
    lambda _, entries: entries,
    lambda _, entries: MappingProxyType(entries),
    lambda _, entries: OrderedDict(entries),
    lambda _, entries: defaultdict(int, entries),
    lambda _, entries: Lying(entries),
    lambda _, entries: {Rude(): 1} | {key: value for key, value in entries.items() if key != "a"},
]
VALUES = values()


@st.composite
def fitting(draw: st.DrawFn, wanted: Type) -> Any:
    """A value that is near to what is wanted: most of it fits."""
    if draw(st.integers(0, 12)) == 0:
        return draw(VALUES)
    if wanted.kind in ("list", "set") and wanted.args:
        return draw(st.lists(fitting(wanted.args[0]), max_size=3))
    if wanted.kind == "tuple" and wanted.args:
        return [draw(fitting(part)) for part in wanted.args]
    if wanted.kind == "dict" and wanted.args:
        keys = st.text(max_size=2) | st.sampled_from(TEXT_EXAMPLES.get(wanted.args[0].name, ("a",))) | st.integers(0, 1)
        return draw(st.dictionaries(keys, fitting(wanted.args[1]), max_size=3))
    if wanted.kind == "union" and wanted.args:
        return draw(fitting(draw(st.sampled_from(wanted.args))))
    if wanted.kind == "literal" and wanted.values:
        return draw(st.sampled_from(wanted.values))
    if wanted.kind == "record":
        return draw(fitting_fields(wanted.fields))
    if wanted in TEXTS:
        return draw(st.sampled_from(TEXT_EXAMPLES[wanted.name]) | st.sampled_from(OBJECTS))
    return draw(_OF_KIND.get(wanted.kind, VALUES))


@st.composite
def fitting_fields(draw: st.DrawFn, fields: tuple[Field, ...]) -> dict[str, Any]:
    value = {each.name: draw(fitting(each.type)) for each in fields if each.required or draw(st.booleans())}
    if draw(st.integers(0, 8)) == 0:
        value[draw(NAMES)] = draw(SCALARS)
    return value


_OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "bool": st.booleans(),
    "int": st.integers(),
    "float": st.floats() | st.integers(),
    "str": st.text(max_size=3),
    "bytes": st.binary(max_size=2),
    "list": st.lists(st.integers(), max_size=2),
    "dict": st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
}


def passes(schema: Schema, value: object, *, is_closed: bool = False) -> bool:
    """Whether the gate lets the value pass by itself."""
    given_back = check_for(schema, lambda _other: REFUSED, is_closed=is_closed)(value)
    assert given_back is value or given_back is REFUSED
    return given_back is value


@examples(60)
@given(st.data(), schemas(), st.booleans())
def test_what_msgspec_lets_pass_the_walk_finds_nothing_wrong_with(
    data: st.DataObject, schema: Schema, is_closed: bool
) -> None:
    value = data.draw(fitting_fields(schema.fields) | VALUES)
    problems = problems_of(schema, value, is_closed=is_closed)
    if passes(schema, value, is_closed=is_closed):
        assert not problems
    for problem in problems:
        assert len(str(problem)) < 3000


@examples(60)
@given(st.data(), st.lists(NAMES, max_size=4, unique=True))
def test_a_checked_call_hands_on_the_value_of_each_name_and_gives_back_what_is_promised(
    data: st.DataObject, names: list[str]
) -> None:
    schema = Schema(tuple(Field(name, data.draw(st.sampled_from(LEAVES) | types())) for name in names))
    value = {field.name: data.draw(fitting(field.type)) for field in schema.fields}
    order = data.draw(st.permutations(names))
    promised = data.draw(st.none() | schemas())
    result = data.draw(VALUES if promised is None else fitting_fields(promised.fields) | VALUES)
    handed_on: list[tuple[Any, ...]] = []
    released: list[Any] = []
    call = checked_call_for(
        schema,
        order,
        lambda *each: handed_on.append(each) or result,
        promised,
        otherwise=lambda _other: REFUSED,
        release=lambda other: released.append(other) or REFUSED,
    )
    given_back = call(value)
    if not handed_on:
        assert given_back is REFUSED
        assert not released
        return
    assert not problems_of(schema, value, is_closed=True)
    assert [tuple(map(id, each)) for each in handed_on] == [tuple(id(value[name]) for name in order)]
    if given_back is result:
        assert promised is not None
        assert not problems_of(promised, result)
    else:
        assert given_back is REFUSED
        assert released == [result] or released[0] is result


@examples(60)
@given(st.data(), schemas())
def test_what_the_gate_of_payloads_lets_pass_fits_and_is_json_within_its_limit(
    data: st.DataObject, schema: Schema
) -> None:
    value = data.draw(fitting_fields(schema.fields))
    limit = data.draw(st.sampled_from([MAX_PAYLOAD_BYTES, 40, 20, 10]))
    gate = payload_check_for(schema, lambda _other: REFUSED, limit=limit)
    if gate(value) is not REFUSED:
        assert not problems_of(schema, value)
        assert freeze(value, limit) == value


@given(st.lists(st.sampled_from(HOSTILE) | st.text(), min_size=1, unique=True))
def test_a_field_name_is_data_whatever_it_says(names: list[str]) -> None:
    schema = Schema(tuple(Field(name, STR) for name in names))
    right = {name: name for name in names}
    gate = check_for(schema, lambda other: not problems_of(schema, other, is_closed=True), is_closed=True)
    assert gate(right) in (right, True)
    assert gate(right | {names[0]: 1}) is False
    assert gate({name: name for name in names[1:]}) is False
    assert gate(right | {"".join(names) + "!": ""}) is False


USUAL = [
    (Type("list", (RECORD,)), [{"a": "x"}, {"a": "y", "b": 1}]),
    (Type("dict", (STR, Type("list", (FLOAT,)))), {"x": [1, 2.5]}),
    (Type("union", (RECORD, NULL)), None),
    (Type("union", (INT, Type("list", (INT,)))), [1]),
    (Type("tuple", (INT, TEXTS[0])), [1, "2026-01-31"]),
    (Type("literal", values=("a", 1, None)), "a"),
    (Type("set"), [1]),
    (BYTES, b"x"),
]


@pytest.mark.parametrize(("wanted", "value"), USUAL)
def test_usual_values_are_not_walked_through(wanted: Type, value: object) -> None:
    assert passes(Schema((Field("x", wanted),)), {"x": value})


@given(VALUES)
def test_freezing_gives_json_or_a_refusal_and_runs_into_nothing_else(value: Any) -> None:
    refusal = None
    try:
        frozen = freeze(value)
    except RunError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code in ("GBE612", "GBE613")
        assert len(str(refusal)) < 1000
        return
    assert freeze(frozen) is frozen
    if not _has_lone_surrogates(frozen):
        msgspec.json.encode(frozen)


def _has_lone_surrogates(value: Any) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in repr(value)) or "\\ud" in repr(value)


def test_a_schema_nested_deeply_is_checked_to_its_end() -> None:
    wanted, good, bad = STR, "x", 1
    for _ in range(40):
        wanted, good, bad = Type("list", (wanted,)), [good], [bad]  # type: ignore[assignment]
    schema = Schema((Field("x", wanted),))
    assert passes(schema, {"x": good})
    assert not passes(schema, {"x": bad})
    assert "[0][0][0]: expected str, got int 1" in str(problems_of(schema, {"x": bad})[0])


LAX = {
    "a set is no list": (Type("list", (INT,)), {1}),
    "text is no bytes, though it may stand for them": (BYTES, "eA=="),
    "a number is no date": (TEXTS[0], 1),
    "a bool is no int": (INT, True),
    "1 is not True": (Type("literal", values=(True,)), 1),
    "1.0 is no int": (INT, 1.0),
}


@pytest.mark.parametrize("case", LAX)
def test_msgspec_is_not_asked_where_it_is_laxer(case: str) -> None:
    wanted, value = LAX[case]
    for schema, given_ in (
        (Schema((Field("x", wanted),)), {"x": value}),
        (Schema((Field("x", Type("list", (wanted,))),)), {"x": [value]}),
    ):
        assert problems_of(schema, given_)
        assert not passes(schema, given_)


def test_no_code_of_a_mapping_runs_before_it_is_walked_through() -> None:
    class Endless(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise AssertionError(key)

        def __len__(self) -> int:
            raise AssertionError

        def __iter__(self) -> Any:
            raise AssertionError

    for wanted in (RECORD, DICT, Type("dict", (STR, INT)), ANY, Type("union", (RECORD, STR))):
        passes(Schema((Field("x", wanted),)), {"x": Endless()})


def test_a_choice_that_cannot_be_looked_at_leaves_the_others() -> None:
    schema = Schema((Field("x", Type("union", (RECORD, DICT))),))
    assert passes(schema, {"x": {Rude(): 1}})
    assert problems_of(schema, {"x": {Rude(): 1}}) == ()


def test_a_payload_with_what_json_lacks_or_too_much_text_goes_the_long_way() -> None:
    schema = Schema((Field("a", FLOAT), Field("b", STR), Field("c", ANY, required=False)))
    gate = payload_check_for(schema, lambda _other: REFUSED, limit=1000)
    usual = {"a": 1.5, "b": "x"}
    assert gate(usual) is usual
    nan, infinite = float("nan"), float("inf")
    for other in ({"a": nan}, {"a": infinite}, {"c": nan}, {"c": 1 << 70}, {"c": []}, {"b": "x" * 999}, {"d": 1}):
        assert gate(usual | other) is REFUSED


def test_a_nested_payload_passes_as_it_is_unless_somebody_has_to_look_closely() -> None:
    schema = Schema((Field("a", Type("list", (RECORD,))), Field("b", DICT, required=False)))
    gate = payload_check_for(schema, lambda _other: REFUSED, limit=MAX_PAYLOAD_BYTES)
    item = freeze({field.name: None for field in RECORD.fields})
    usual = {"a": [], "b": {"x": 1}}
    assert gate(usual) is usual
    for other in ({"a": {1}}, {"a": [item] * 2000}, {"b": {"x": float("nan")}}, {"b": {"x": []}}, {"b": {1: 1}}):
        assert gate(usual | other) is REFUSED
