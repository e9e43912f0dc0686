"""Whether what is given fits what is wanted; what is unknown always fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.model.schema import ANY, BOOL, BYTES, DICT, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Schema, Type
from graphbus_core.model.schema_fit import breaking_changes, is_disjoint, why_not, why_not_fields


def union(*parts: Type) -> Type:
    return Type("union", args=parts)


def literal(*values: str | int | bool | None) -> Type:
    return Type("literal", values=values)


def array(item: Type, kind: str = "list") -> Type:
    return Type(kind, args=(item,))  # type: ignore[arg-type]


def mapping(key: Type, value: Type) -> Type:
    return Type("dict", args=(key, value))


def record(**fields: Type) -> Type:
    return Type("record", fields=tuple(Field(name, kind) for name, kind in fields.items()))


def schema(**fields: Type) -> Schema:
    return Schema(tuple(Field(name, kind) for name, kind in fields.items()))


OPTIONAL_ITEM = Type("record", fields=(Field("sku", STR, required=False),))

FITS = [
    (FLOAT, INT),
    (ANY, STR),
    (UNKNOWN, STR),
    (STR, UNKNOWN),
    (STR, ANY),
    (union(STR, NULL), NULL),
    (union(STR, NULL), STR),
    (union(STR, INT), union(INT, STR)),
    (union(FLOAT, NULL), INT),
    (LIST, array(STR)),
    (array(STR), LIST),
    (array(FLOAT), array(INT)),
    (LIST, Type("tuple", args=(INT, STR))),
    (array(STR), Type("tuple", args=(INT, STR))),
    (Type("tuple"), LIST),
    (DICT, record(sku=STR)),
    (record(sku=STR), DICT),
    (record(sku=STR), record(sku=STR, more=INT)),
    (record(sku=UNKNOWN), record(sku=INT)),
    (OPTIONAL_ITEM, record()),
    (mapping(STR, FLOAT), mapping(STR, INT)),
    (mapping(STR, FLOAT), DICT),
    (literal("a", "b"), literal("b")),
    (literal("a", "b"), STR),
    (STR, literal("a", "b")),
    (union(STR, INT), literal("a", 1)),
    (union(literal("a"), NULL), literal("a", None)),
    (literal(True, False), BOOL),
    (union(STR, UNKNOWN), INT),
]

MISFITS = [
    (STR, INT, "str is wanted, int is given"),
    (INT, FLOAT, "int is wanted, float is given"),
    (INT, BOOL, "int is wanted, bool is given"),
    (FLOAT, BOOL, "float is wanted, bool is given"),
    (BOOL, INT, "bool is wanted, int is given"),
    (STR, NULL, "str is wanted, None is given"),
    (STR, union(STR, NULL), "str is wanted, None is given"),
    (STR, BYTES, "str is wanted, bytes is given"),
    (union(STR, NULL), INT, "str | None is wanted, int is given"),
    (LIST, STR, "list is wanted, str is given"),
    (DICT, LIST, "dict is wanted, list is given"),
    (array(STR), array(INT), "in its items, str is wanted, int is given"),
    (mapping(STR, INT), mapping(STR, STR), "in its entries, int is wanted, str is given"),
    (Type("tuple", args=(INT, INT)), Type("tuple", args=(INT,)), "2 items are wanted, 1 are given"),
    (Type("tuple", args=(INT, INT)), Type("tuple", args=(INT, STR)), "in its items, int is wanted, str is given"),
    (record(sku=STR), record(qty=INT), "sku: it is missing"),
    (record(sku=STR), record(sku=INT), "sku: str is wanted, int is given"),
    (record(sku=STR), OPTIONAL_ITEM, "sku: it may be missing"),
    (literal("a", "b"), literal("c"), "Literal['a', 'b'] is wanted, 'c' is given"),
    (literal(1), literal(True), "Literal[1] is wanted, True is given"),
    (literal("a"), INT, "Literal['a'] is wanted, int is given"),
    (INT, literal("a"), "int is wanted, 'a' is given"),
    (INT, literal(1, None), "int is wanted, None is given"),
]


@pytest.mark.parametrize(("wanted", "given_type"), FITS, ids=str)
def test_what_fits_has_no_reason(wanted: Type, given_type: Type) -> None:
    assert why_not(wanted, given_type) is None


@pytest.mark.parametrize(("wanted", "given_type", "reason"), MISFITS, ids=str)
def test_what_does_not_fit_says_why(wanted: Type, given_type: Type, reason: str) -> None:
    assert why_not(wanted, given_type) == reason


@pytest.mark.parametrize(
    ("wanted", "given_type", "fits"),
    [
        (STR, union(STR, NULL), True),
        (STR, union(INT, NULL), False),
        (array(STR), array(union(STR, NULL)), True),
        (mapping(STR, INT), mapping(STR, union(STR, INT)), True),
        (record(sku=STR), record(sku=union(INT, STR)), True),
        (union(STR, array(STR)), union(INT, array(union(STR, INT))), True),
        (literal("a"), literal("a", "b"), True),
        (STR, NULL, False),
    ],
    ids=str,
)
def test_of_what_may_be_narrowed_one_fitting_choice_is_enough(wanted: Type, given_type: Type, fits: bool) -> None:
    assert (why_not(wanted, given_type, is_narrowed=True) is None) is fits


def test_the_fields_of_a_schema_are_compared_one_by_one_in_its_order() -> None:
    wanted = schema(order_id=STR, total=FLOAT, note=STR)
    assert why_not_fields(wanted, schema(total=STR, order_id=STR)) == (
        ("total", "float is wanted, str is given"),
        ("note", "it is missing"),
    )


def test_a_field_that_an_open_schema_does_not_list_may_still_be_there() -> None:
    assert why_not_fields(schema(order_id=STR), Schema(is_open=True)) == ()
    assert why_not_fields(schema(a=STR), Schema((Field("a", STR, required=False),), is_open=True)) == ()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (STR, INT, True),
        (STR, STR, False),
        (INT, FLOAT, False),
        (INT, BOOL, True),
        (STR, UNKNOWN, False),
        (STR, NULL, False),
        (union(STR, NULL), INT, True),
        (union(STR, NULL), union(INT, NULL), True),
        (union(STR, INT), INT, False),
        (LIST, Type("tuple"), False),
        (DICT, record(sku=STR), False),
        (DICT, LIST, True),
        (literal("a"), STR, False),
        (literal("a", None), INT, True),
    ],
    ids=str,
)
def test_types_are_disjoint_when_no_value_but_none_is_of_both(one: Type, other: Type, expected: bool) -> None:
    assert is_disjoint(one, other) is expected
    assert is_disjoint(other, one) is expected


@pytest.mark.parametrize(
    ("before", "after", "side", "expected"),
    [
        (schema(a=STR), schema(a=STR), "input", ()),
        (None, schema(a=STR), "input", ()),
        (schema(a=STR), None, "output", ("the output schema is gone",)),
        (schema(a=STR), schema(), "input", ("a is no longer accepted",)),
        (schema(a=STR), Schema(is_open=True), "input", ()),
        (schema(), schema(a=STR), "input", ("a is required now",)),
        (schema(), Schema((Field("a", STR, required=False),)), "input", ()),
        (Schema((Field("a", STR, required=False),)), schema(a=STR), "input", ("a has become required",)),
        (schema(a=INT), schema(a=FLOAT), "input", ()),
        (schema(a=FLOAT), schema(a=INT), "input", ("a: int is wanted, float is given",)),
        (schema(a=STR), schema(a=STR, b=INT), "output", ()),
        (schema(a=STR, b=INT), schema(a=STR), "output", ("b: it is missing",)),
        (schema(a=STR), Schema((Field("a", STR, required=False),)), "output", ("a: it may be missing",)),
        (schema(a=FLOAT), schema(a=INT), "output", ()),
        (schema(a=INT), schema(a=FLOAT), "output", ("a: int is wanted, float is given",)),
    ],
    ids=str,
)
def test_a_change_breaks_those_who_pass_or_read_what_it_takes_away(before, after, side, expected) -> None:  # type: ignore[no-untyped-def]
    assert breaking_changes(before, after, side) == expected


# --- properties -----------------------------------------------------------------------

PLAIN = st.sampled_from([UNKNOWN, ANY, NULL, BOOL, INT, FLOAT, STR, BYTES, LIST, DICT])
LITERALS = st.lists(st.sampled_from(["a", "b", 1, 2, True, None]), min_size=1, max_size=3, unique_by=repr).map(
    lambda values: literal(*values)
)


def grown(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    field = st.tuples(inner, st.booleans())
    return st.one_of(
        inner.map(array),
        st.tuples(inner, inner).map(lambda pair: mapping(*pair)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Type("tuple", args=tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: union(*parts)),
        st.dictionaries(st.sampled_from("abc"), field, max_size=3).map(
            lambda fields: Type("record", fields=tuple(Field(name, *rest) for name, rest in sorted(fields.items())))
        ),
    )


TYPES = st.recursive(st.one_of(PLAIN, LITERALS), grown, max_leaves=6)


def values_of(kind: Type) -> list[object]:
    """A few values of the type: every choice of a union, optional fields there and not there."""
    plain = {
        "null": [None],
        "bool": [True],
        "int": [7],
        "float": [1.5, 7],
        "str": ["a", "z"],
        "bytes": [b"x"],
        "unknown": [object()],
        "any": [object()],
    }
    if kind.kind in plain:
        return plain[kind.kind]
    if kind.kind == "literal":
        return list(kind.values)
    if kind.kind == "union":
        return [value for part in kind.args for value in values_of(part)]
    if kind.kind in {"list", "set"}:
        return [[], *([value] for part in kind.args[:1] for value in values_of(part))]
    if kind.kind == "tuple":
        return [[values_of(part)[0] for part in kind.args]] + [
            [
                *(values_of(part)[0] for part in kind.args[:at]),
                value,
                *(values_of(part)[0] for part in kind.args[at + 1 :]),
            ]
            for at in range(len(kind.args))
            for value in values_of(kind.args[at])
        ]
    if kind.kind == "dict":
        keys, entries = kind.args or (STR, INT)
        return [
            {},
            *({key: values_of(entries)[0]} for key in hashable(keys)),
            *({"k": value} for value in values_of(entries)),
        ]
    full = {field.name: values_of(field.type)[0] for field in kind.fields}
    least = {field.name: values_of(field.type)[0] for field in kind.fields if field.required}
    return [full, least] + [full | {field.name: value} for field in kind.fields for value in values_of(field.type)]


def hashable(kind: Type) -> list[object]:
    return [value for value in values_of(kind) if isinstance(value, str | int | float | bytes | None)]


def is_a(value: object, kind: Type) -> bool:
    """Tell whether the value is of the type; values of an unknown type are of every type."""
    if type(value) is object or kind.kind in {"unknown", "any"}:
        return True
    if kind.kind == "union":
        return any(is_a(value, part) for part in kind.args)
    if kind.kind == "literal":
        return any(type(value) is type(choice) and value == choice for choice in kind.values)
    plain = {"null": type(None), "bool": bool, "int": int, "str": str, "bytes": bytes}
    if kind.kind in plain:
        return type(value) is plain[kind.kind]
    if kind.kind == "float":
        return type(value) in {int, float}
    if kind.kind in {"list", "set"}:
        return isinstance(value, list) and all(is_a(item, part) for item in value for part in kind.args)
    if kind.kind == "tuple":
        return (
            isinstance(value, list)
            and len(value) == len(kind.args)
            and all(is_a(item, part) for item, part in zip(value, kind.args, strict=True))
        )
    if not isinstance(value, dict):
        return False
    if kind.kind == "dict":
        return not kind.args or all(is_a(key, kind.args[0]) and is_a(item, kind.args[1]) for key, item in value.items())
    return all(
        is_a(value[field.name], field.type) if field.name in value else not field.required for field in kind.fields
    )


@given(TYPES)
def test_every_type_fits_itself(kind: Type) -> None:
    assert why_not(kind, kind) is None


@given(TYPES, TYPES)
def test_a_reason_is_given_only_where_some_value_really_does_not_fit(wanted: Type, given_type: Type) -> None:
    if why_not(wanted, given_type) is not None:
        assert not all(is_a(value, wanted) for value in values_of(given_type))


@given(TYPES, TYPES)
def test_what_is_refused_though_it_may_be_narrowed_is_refused_anyway(wanted: Type, given_type: Type) -> None:
    if why_not(wanted, given_type, is_narrowed=True) is not None:
        assert why_not(wanted, given_type) is not None


@given(TYPES, TYPES)
def test_nothing_is_disjoint_that_has_a_value_in_common(one: Type, other: Type) -> None:
    if is_disjoint(one, other):
        common = [value for value in values_of(one) if value is not None and is_a(value, other)]
        assert common == []


@given(TYPES)
def test_what_is_unknown_fits_everything_and_everything_fits_it(kind: Type) -> None:
    assert why_not(kind, UNKNOWN) is None
    assert why_not(UNKNOWN, kind) is None


@given(st.dictionaries(st.sampled_from("abcd"), TYPES, max_size=4))
def test_nobody_is_let_down_by_a_schema_that_did_not_change(fields: dict[str, Type]) -> None:
    assert breaking_changes(schema(**fields), schema(**fields), "input") == ()
    assert breaking_changes(schema(**fields), schema(**fields), "output") == ()
