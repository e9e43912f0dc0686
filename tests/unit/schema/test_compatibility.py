"""How a given type relates to a wanted one: it fits, it does not and why, or neither can be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.schema.compatibility import fit_of, is_disjoint, misfit_reason
from graphbus_core.schema.types import ANY, BOOL, BYTES, DICT, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Type
from graphbus_core.schema.validation import problems_in


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
    (array(union(STR, INT)), Type("tuple", args=(INT, STR))),
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
    (array(STR), Type("tuple", args=(INT, STR)), "in its items, str is wanted, int is given"),
    (mapping(STR, STR), record(sku=INT), "in its entries, str is wanted, int is given"),
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
def test_what_fits_or_may_fit_has_no_reason(wanted: Type, given_type: Type) -> None:
    assert misfit_reason(wanted, given_type) is None


@pytest.mark.parametrize(("wanted", "given_type", "reason"), MISFITS, ids=str)
def test_what_does_not_fit_says_why(wanted: Type, given_type: Type, reason: str) -> None:
    assert misfit_reason(wanted, given_type) == reason


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
    assert (misfit_reason(wanted, given_type, is_narrowed=True) is None) is fits


def test_of_what_may_be_narrowed_all_choices_are_named() -> None:
    fit = fit_of(INT, union(BOOL, INT), is_narrowed=True)
    assert (fit.verdict, fit.reason) == ("unknown", "int is wanted, bool | int is given")


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


MUST, MAY = Field("a", INT), Field("a", INT, required=False)


def fields(*of: Field) -> Type:
    return Type("record", fields=of)


def row(*items: Type) -> Type:
    return Type("tuple", args=items)


NOT_PROVEN = {
    "a field is not given": (fields(MUST), fields(), "unfit", "a: it is missing"),
    "a certain reason comes first": (
        fields(MUST, Field("b", INT)),
        fields(Field("a", UNKNOWN), Field("b", STR)),
        "unfit",
        "b: int is wanted, str is given",
    ),
    "one of the two truths": (literal(True), BOOL, "unknown", "Literal[True] is wanted, bool is given"),
    "a text may be another word": (literal("a"), STR, "unknown", "Literal['a'] is wanted, str is given"),
    "a text may be no date": (Type("str", name="date"), STR, "unknown", "date is wanted, str is given"),
    "None is no word": (literal("a"), NULL, "unfit", "Literal['a'] is wanted, None is given"),
    "anything may be something else": (INT, ANY, "unknown", "int is wanted, Any is given"),
    "a list may have any length": (row(INT), array(INT), "unknown", "tuple[int] is wanted, list[int] is given"),
    "a set is none in JSON": (LIST, array(INT, "set"), "unknown", "list is wanted, set[int] is given"),
    "keys that are no text": (mapping(INT, INT), fields(MUST), "unknown", "dict[int, int] is wanted"),
    "no mapping at all": (mapping(STR, INT), INT, "unfit", "dict[str, int] is wanted, int is given"),
    "a mapping may lack the field": (fields(MUST), mapping(STR, INT), "unknown", "is wanted, dict[str, int] is given"),
    "a mapping may hold the field with another type": (
        fields(MAY),
        mapping(STR, STR),
        "unknown",
        "in its entries, int",
    ),
}
PROVEN = {
    "what may be missing may be missing": (fields(MAY), fields()),
    "more than is looked at": (fields(MAY), fields(MUST, Field("b", STR))),
    "both truths": (literal(True, False), BOOL),
    "both truths, each in its choice": (union(literal(True), literal(False)), BOOL),
    "a mapping for what may be missing": (fields(MAY), mapping(STR, INT)),
    "any mapping": (DICT, fields(MUST)),
    "a tuple in the place of a list": (array(union(INT, STR)), row(INT, STR)),
    "the text of a date": (STR, Type("str", name="date")),
}


@pytest.mark.parametrize("case", NOT_PROVEN)
def test_what_is_not_proven_has_a_reason(case: str) -> None:
    wanted, given_type, verdict, reason = NOT_PROVEN[case]
    fit = fit_of(wanted, given_type)
    assert (fit.verdict, fit.lacks_type) == (verdict, False)
    assert reason in fit.reason


@pytest.mark.parametrize("case", PROVEN)
def test_what_is_proven_fits(case: str) -> None:
    assert fit_of(*PROVEN[case]).verdict == "fits"


@pytest.mark.parametrize("wanted", [INT, union(INT, STR), literal("a"), mapping(STR, INT), LIST])
def test_of_a_type_that_is_not_known_nothing_is_certain(wanted: Type) -> None:
    fit = fit_of(wanted, UNKNOWN)
    assert (fit.verdict, fit.lacks_type) == ("unknown", True)
    assert fit.reason
    assert fit_of(UNKNOWN, wanted).verdict == fit_of(ANY, wanted).verdict == "fits"


# --- properties -----------------------------------------------------------------------

PLAIN = st.sampled_from([UNKNOWN, ANY, NULL, BOOL, INT, FLOAT, STR, BYTES, LIST, DICT])
KEYS = st.sampled_from([STR, INT, BYTES, NULL, UNKNOWN, ANY])
LITERALS = st.lists(st.sampled_from(["a", "b", 1, 2, True, None]), min_size=1, max_size=3, unique_by=repr).map(
    lambda values: literal(*values)
)


def grown(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    field = st.tuples(inner, st.booleans())
    return st.one_of(
        inner.map(array),
        st.tuples(KEYS, inner).map(lambda pair: mapping(*pair)),
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
            *({key: value} for key in (*hashable(keys), "k")[:1] for value in values_of(entries)),
        ]
    full = {field.name: values_of(field.type)[0] for field in kind.fields}
    least = {field.name: values_of(field.type)[0] for field in kind.fields if field.required}
    return [full, least] + [full | {field.name: value} for field in kind.fields for value in values_of(field.type)]


def hashable(kind: Type) -> list[object]:
    return [value for value in values_of(kind) if isinstance(value, str | int | float | bytes | None)]


def is_a(value: object, kind: Type) -> bool:
    return not problems_in(kind, value)


@given(TYPES)
def test_every_type_fits_itself(kind: Type) -> None:
    assert fit_of(kind, kind).verdict == "fits"


@given(TYPES, TYPES)
def test_what_fits_has_no_value_that_is_not_wanted(wanted: Type, given_type: Type) -> None:
    if fit_of(wanted, given_type).verdict == "fits":
        assert all(is_a(value, wanted) for value in values_of(given_type))


@given(TYPES, TYPES)
def test_a_reason_is_given_only_where_some_value_really_does_not_fit(wanted: Type, given_type: Type) -> None:
    if misfit_reason(wanted, given_type) is not None:
        assert not all(is_a(value, wanted) for value in values_of(given_type))


@given(TYPES, TYPES)
def test_what_is_refused_though_it_may_be_narrowed_is_refused_anyway(wanted: Type, given_type: Type) -> None:
    if misfit_reason(wanted, given_type, is_narrowed=True) is not None:
        assert misfit_reason(wanted, given_type) is not None


@given(TYPES, TYPES)
def test_nothing_is_disjoint_that_has_a_value_in_common(one: Type, other: Type) -> None:
    if is_disjoint(one, other):
        common = [value for value in values_of(one) if value is not None and is_a(value, other)]
        assert common == []


@given(TYPES)
def test_what_is_unknown_fits_everything_and_everything_fits_it(kind: Type) -> None:
    assert misfit_reason(kind, UNKNOWN) is None
    assert misfit_reason(UNKNOWN, kind) is None
