"""Types of live annotations that are odd: aliases of typing_extensions, names that name themselves, and very many classes."""

from __future__ import annotations

from functools import partial
from typing import Any, TypedDict, TypeVar

import pytest
from typing_extensions import TypeAliasType, TypeVarTuple

from graphbus_core.schema.live import Unresolved, annotation_of, mark_defaults_optional, schema_of, type_of
from graphbus_core.schema.types import INT, LIST, STR, UNKNOWN, Field, Schema, Type


class Order(TypedDict):
    sku: str


T = TypeVar("T")
MANY = TypeAliasType("MANY", list[T], type_params=(T,))
PLACED: Any = TypeAliasType("PLACED", Order)
FAR: Any = PLACED
for _ in range(60):
    FAR = TypeAliasType("FAR", FAR)

ORDER = Type("record", name="Order", fields=(Field("sku", STR),))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (PLACED, ORDER),
        (TypeAliasType("AGAIN", PLACED), ORDER),
        (list[PLACED], Type("list", (ORDER,))),
        (MANY[int], Type("list", (INT,))),
        (MANY, Type("list", (UNKNOWN,))),
        (TypeAliasType("ANY_OF", tuple, type_params=(TypeVarTuple("Ts"),)), UNKNOWN),
        (FAR, UNKNOWN),
        ([], LIST),
    ],
)
def test_an_alias_of_an_older_python_has_the_type_that_it_stands_for(annotation: object, expected: Type) -> None:
    assert type_of(annotation) == expected


def test_of_very_many_classes_the_last_ones_are_unknown() -> None:
    schema = schema_of({f"order_{number}": Order for number in range(600)})
    assert schema is not None
    kinds = [field.type.kind for field in schema.fields]
    assert kinds == ["record"] * 500 + ["unknown"] * 100


TURN = "TURN"


def handler(turn: TURN, many: list[Nowhere], order: PLACED) -> None: ...  # type: ignore[valid-type,name-defined]  # noqa: F821


def nested(many: Any) -> None: ...


nested.__annotations__["many"] = list["Nowhere"]  # type: ignore[name-defined]  # noqa: F821


def test_a_name_that_names_itself_or_nothing_is_left_as_text() -> None:
    found = {name: annotation_of(handler, name) for name in ("turn", "many", "order")}
    assert found == {"turn": "TURN", "many": "list[Nowhere]", "order": Order}
    assert {name for name, kind in found.items() if isinstance(kind, Unresolved)} == {"turn", "many"}


def test_a_text_within_an_annotation_that_names_nothing_is_left_as_it_is() -> None:
    assert annotation_of(nested, "many") == list["Nowhere"]  # type: ignore[name-defined]  # noqa: F821


def test_what_has_no_code_of_its_own_has_no_defaults() -> None:
    def take(sku: str, count: int = 1) -> None: ...

    schema = Schema((Field("sku", STR), Field("count", INT)))
    assert [field.required for field in mark_defaults_optional(schema, take).fields] == [True, False]
    assert mark_defaults_optional(schema, partial(take, count=1)) == schema
