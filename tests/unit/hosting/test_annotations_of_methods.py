"""What the parameters of a method and of a handler are annotated with counts, one by one; what cannot count is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from graphbus_core import connect
from graphbus_core.errors import RunError
from tests.conftest import Project

AGENTS = """
    from dataclasses import dataclass
    from typing import TYPE_CHECKING, Annotated, Optional
    from functools import wraps
    from msgspec import Meta
    from graphbus_core import GraphBusNode, schema_method, subscribe

    if TYPE_CHECKING:
        from annotated.shapes import Box
        from nowhere_at_all import Ghost

    Some = Annotated[int, Meta(ge=1)]

    @dataclass
    class Item:
        sku: str

    @dataclass
    class Odd:
        number: int

    def measured(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)
        return wrapper

    ITEM = {"item": Item}

    class Shop(GraphBusNode):
        heard = None

        @schema_method(input_schema=ITEM)
        def plain(self, item: Item): return item

        @schema_method(input_schema=ITEM)
        def result_is_lost(self, item: Item) -> "Ghost": return item

        @schema_method(input_schema=ITEM | {"other": str})
        def neighbour_is_lost(self, item: Item, other: "Ghost"): return item

        @schema_method(input_schema={"item": list[Item]})
        def inner_text(self, item: list["Item"]): return item[0]

        @schema_method(input_schema=ITEM)
        def optional_text(self, item: Optional["Item"]): return item

        @schema_method(input_schema=ITEM)
        def for_checkers(self, item: "Box"): return item

        @schema_method(input_schema=ITEM)
        @measured
        def wrapped(self, item: Item): return item

        @schema_method(input_schema=ITEM)
        def lost(self, item: "Ghost"): return item

        @schema_method(input_schema={"item": Item | Odd})
        def not_to_be_made(self, item: Item | Odd): return item

        @schema_method(input_schema={"count": int})
        def some(self, count: Annotated[int, Meta(ge=1)]): return count

        @schema_method(input_schema={"counts": list[int]})
        def some_of_many(self, counts: list[Some]): return counts

        @subscribe("/Count")
        def on_count(self, count: Some, item: Optional["Item"] = None): self.heard = (count, item)
    """


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    shapes = "from dataclasses import dataclass\n\n@dataclass\nclass Box:\n    sku: str\n"
    root = project(
        {"annotated/__init__.py": "", "annotated/agents.py": AGENTS, "annotated/shapes.py": shapes},
    )
    monkeypatch.syspath_prepend(str(root))
    yield import_module("annotated.agents")
    for name in [name for name in sys.modules if name.partition(".")[0] == "annotated"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("plain", "Item"),
        ("result_is_lost", "Item"),
        ("neighbour_is_lost", "Item"),
        ("inner_text", "Item"),
        ("optional_text", "Item"),
        ("for_checkers", "Box"),
        ("wrapped", "Item"),
    ],
)
def test_a_parameter_is_made_whatever_stands_beside_it(
    shop: Any, caplog: pytest.LogCaptureFixture, method: str, kind: str
) -> None:
    item: object = {"sku": "a"}
    arguments = {"item": [item] if method == "inner_text" else item}
    if method == "neighbour_is_lost":
        arguments["other"] = "x"
    with connect(shop.Shop) as graph:
        made = graph.call("Shop", method, **arguments)
    assert (type(made).__name__, made.sku) == (kind, "a")
    assert not caplog.records


@pytest.mark.parametrize(
    ("method", "item", "why"),
    [
        ("lost", {"sku": "a"}, "Ghost is not defined at run time"),
        ("not_to_be_made", {"sku": "a"}, "no JSON can become an object of "),
    ],
)
def test_what_cannot_be_made_is_passed_as_it_is_and_said_once(
    shop: Any, caplog: pytest.LogCaptureFixture, method: str, item: object, why: str
) -> None:
    with connect(shop.Shop) as graph:
        for _ in range(2):
            assert graph.call("Shop", method, item=item) is item
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith(f"Shop.{method} gets the argument item unconverted: {why}")


@pytest.mark.parametrize(
    ("method", "arguments", "told"),
    [
        ("some", {"count": 0}, "count: expected int >= 1, got int 0"),
        ("some_of_many", {"counts": [1, 0]}, "counts[1]: expected int >= 1, got int 0"),
    ],
)
def test_a_limit_in_an_annotation_is_kept(shop: Any, method: str, arguments: dict[str, Any], told: str) -> None:
    with connect(shop.Shop, on_error="isolate") as graph:
        with pytest.raises(RunError) as refused:
            graph.call("Shop", method, **arguments)
        assert refused.value.code == "GBE622"
        assert told in refused.value.sentence
        graph.publish("/Count", {"count": 0})
        (letter,) = graph.bus.dead_letters()
        assert "count: expected int >= 1, got int 0. [GBE650]" in letter.error
        graph.publish("/Count", {"count": 2, "item": {"sku": "a"}})
        assert graph.node("Shop").heard == (2, shop.Item("a"))  # type: ignore[attr-defined]
