"""What the exported schemas accept is what a running graph accepts, for all schemas and all JSON values.

Some differences are in the nature of JSON, and are left out here: `1.0` is an integer to JSON Schema, bytes are none of JSON's
values, and so they have no values here; the `format` of a text is a remark, which is kept by who wants to.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.contracts.documents import Classes, DocumentPart, method_parts, payload_part
from graphbus_core.schema.json_schema import Dialect
from graphbus_core.schema.types import ANY, BOOL, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Schema, Type
from graphbus_core.schema.validation import problems_of
from tests.thoroughness import examples

WORDS = ("a", "b", "c")
LITERALS = st.lists(st.sampled_from(["a", "b", 1, 0, True, False, None]), max_size=3, unique_by=repr)
LEAVES = st.one_of(
    st.sampled_from([UNKNOWN, ANY, NULL, BOOL, INT, FLOAT, STR, LIST, Type("dict"), Type("tuple")]),
    LITERALS.map(lambda values: Type("literal", values=tuple(values))),
)


def _fields(types: st.SearchStrategy[Type]) -> st.SearchStrategy[tuple[Field, ...]]:
    field = st.builds(Field, st.sampled_from(WORDS), types, st.booleans())
    return st.lists(field, max_size=3, unique_by=lambda each: each.name).map(tuple)


def _compounds(types: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    return st.one_of(
        st.builds(lambda kind, item: Type(kind, (item,)), st.sampled_from(["list", "set"]), types),
        st.lists(types, min_size=1, max_size=3).map(lambda parts: Type("tuple", tuple(parts))),
        st.lists(types, max_size=3).map(lambda parts: Type("union", tuple(parts))),
        st.builds(lambda key, item: Type("dict", (key, item)), LEAVES, types),
        st.builds(
            lambda name, fields: Type("record", name=name, fields=fields),
            st.sampled_from(["", "R", "S"]),
            _fields(types),
        ),
    )


TYPES = st.recursive(LEAVES, _compounds, max_leaves=6)
SCHEMAS = st.builds(Schema, _fields(TYPES), st.booleans())
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.5, -1.5]), st.sampled_from([*WORDS, "x"])
    ),
    lambda values: st.one_of(
        st.lists(values, max_size=3), st.dictionaries(st.sampled_from([*WORDS, "x"]), values, max_size=3)
    ),
    max_leaves=8,
)


def fitting(wanted: Type) -> st.SearchStrategy[Any]:
    """Values of a type, so that not nearly all are refused."""
    simple = {
        "null": st.none(),
        "bool": st.booleans(),
        "int": st.integers(),
        "float": st.sampled_from([1, 0.5]),
        "str": st.text(),
    }
    if wanted.kind in simple:
        return simple[wanted.kind]
    if wanted.kind == "literal" and wanted.values:
        return st.sampled_from(wanted.values)
    if wanted.kind == "union" and wanted.args:
        return st.one_of(map(fitting, wanted.args))
    if wanted.kind in ("list", "set") and wanted.args:
        return st.lists(fitting(wanted.args[0]), max_size=2)
    if wanted.kind == "tuple" and wanted.args:
        return st.tuples(*map(fitting, wanted.args)).map(list)
    if wanted.kind == "dict" and wanted.args:
        keys = fitting(wanted.args[0]).filter(lambda key: isinstance(key, str))
        return st.dictionaries(keys, fitting(wanted.args[1]), max_size=2) if _has_text(wanted.args[0]) else st.just({})
    if wanted.kind == "record":
        return object_of(wanted.fields)
    return VALUES


def _has_text(key: Type) -> bool:
    return key.kind in ("str", "any", "unknown") or "a" in key.values or "b" in key.values


def object_of(fields: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: fitting(field.type) for field in fields if field.required}
    return st.fixed_dictionaries(
        required, optional={field.name: fitting(field.type) for field in fields if not field.required}
    )


VALIDATORS: dict[Dialect, Any] = {
    "2020-12": jsonschema.Draft202012Validator,
    "draft-07": jsonschema.Draft7Validator,
}


def validator_of(part: DocumentPart, dialect: Dialect) -> Any:
    classes = Classes([part], "#/$defs/", dialect)
    written = part.written(classes.writer)
    document = {"allOf": [written], "$defs": classes.needed()}
    VALIDATORS[dialect].check_schema(document)
    return VALIDATORS[dialect](document)


@pytest.mark.slow
@examples(100)
@given(schema=SCHEMAS, data=st.data(), dialect=st.sampled_from(["2020-12", "draft-07"]))
def test_an_exported_schema_accepts_what_a_running_graph_accepts(
    schema: Schema, data: st.DataObject, dialect: Dialect
) -> None:
    value = data.draw(st.one_of(VALUES, object_of(schema.fields)))
    arguments, result = method_parts("A.m", schema, schema)
    is_nothing = value is None and not schema.fields
    told = {
        arguments: not problems_of(schema, value, is_closed=True),
        result: is_nothing or not problems_of(schema, value),
        payload_part("/A", schema): not problems_of(schema, {} if value is None else value),
    }
    for part, is_accepted in told.items():
        assert validator_of(part, dialect).is_valid(value) == is_accepted, part.name


KEY_TYPES = [STR, ANY, UNKNOWN, INT, NULL, BOOL, Type("literal", values=("a", 1)), Type("union", (INT, STR))]
SMALL_TYPES = [
    *(Type("dict", (key, item)) for key in KEY_TYPES for item in (ANY, INT)),
    *(Type(kind, (item,)) for kind in ("list", "set", "tuple") for item in (INT, NULL)),  # type: ignore[arg-type]
    Type("tuple", (INT, STR)),
    Type("literal", values=(1, "a", None)),
    Type("literal", values=(True,)),
    Type("union", (NULL, Type("record", fields=(Field("a", INT),)))),
    Type("union"),
]
SMALL_VALUES: list[Any] = [
    *(None, True, False, 0, 1, 0.5, "", "a"),
    *([], [1], [1, 1], [None], [1, "a"], [1, "a", 2], {}, {"a": 1}, {"b": 1}, {"a": "b"}, {"1": 1}, {"a": 1, "b": 2}),
]


@pytest.mark.parametrize("wanted", SMALL_TYPES, ids=str)
@pytest.mark.parametrize("dialect", VALIDATORS)
def test_small_types_and_small_values_agree_one_and_all(wanted: Type, dialect: Dialect) -> None:
    schema = Schema((Field("f", wanted),))
    validator = validator_of(payload_part("/A", schema), dialect)
    for value in SMALL_VALUES:
        assert validator.is_valid({"f": value}) == (not problems_of(schema, {"f": value})), value


@pytest.mark.parametrize(
    ("wanted", "value", "is_valid", "is_accepted"),
    [
        (INT, 1.0, True, False),
        (Type("bytes"), "aGk=", True, False),
        (Type("bytes"), b"hi", False, True),
        (Type("str", name="date"), "soon", True, False),
        (Type("str", name="date"), "2026-01-31", True, True),
    ],
)
def test_what_json_cannot_say_is_known(wanted: Type, value: object, is_valid: bool, is_accepted: bool) -> None:
    schema = Schema((Field("a", wanted),))
    assert validator_of(payload_part("/A", schema), "2020-12").is_valid({"a": value}) is is_valid
    assert (not problems_of(schema, {"a": value})) is is_accepted
