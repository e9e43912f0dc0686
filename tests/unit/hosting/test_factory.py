"""`factory` of `[tool.graphbus.runtime]`: it makes the agents of each graph, or is refused with what would fix it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import GraphBusNode, build_graph, connect, run_graph, schema_method
from graphbus_core.errors import GraphBusError, Place, RunError
from graphbus_core.testing import run_graph as run_recorded
from tests.conftest import Project

SHOP = """
    from graphbus_core import GraphBusNode, schema_method

    class Shop(GraphBusNode):
        def __init__(self, prices):
            self.prices = prices

        @schema_method(input_schema={}, output_schema={"prices": dict})
        def all(self):
            return {"prices": self.prices}
    """
WIRING = """
    from my_shop.shop import Shop

    class Container:
        def get(self, kind):
            return kind({"mug": 3})

    container = Container()
    number = 3

    def make(kind):
        return kind({"mug": 2})

    def fail(kind):
        raise ValueError("no database")

    def forget(kind):
        kind({})

    def confuse(kind):
        return 3

    async def later(kind):
        return kind({})
    """


def configured(name: str) -> str:
    return f"[tool.graphbus.runtime]\nfactory = {name!r}\n"


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = project(
        {
            "pyproject.toml": "",
            "my_shop/__init__.py": "",
            "my_shop/shop.py": SHOP,
            "my_shop/wiring.py": WIRING,
            "my_shop/broken.py": "import nowhere_at_all\n",
        }
    )
    monkeypatch.chdir(root)
    build_graph("my_shop")
    yield root
    assert not [name for name in sys.modules if name.startswith("my_shop")]


@pytest.mark.parametrize(("name", "price"), [("my_shop.wiring:make", 2), ("my_shop.wiring:container.get", 3)])
@pytest.mark.parametrize("start", [run_graph, run_recorded])
def test_a_graph_that_was_built_makes_its_agents_with_the_factory(
    shop: Path, name: str, price: int, start: Any
) -> None:
    (shop / "pyproject.toml").write_text(configured(name))
    with start(artifacts=shop / ".graphbus") as graph:
        assert graph.call("Shop", "all") == {"prices": {"mug": price}}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("make", "GBE655", "the module or the name is missing"),
        ("my_shop.wirng:make", "GBE655", "the project has no module my_shop.wirng"),
        ("json:dumps", "GBE655", "the project has no module json"),
        ("my_shop.wiring:mke", "GBE655", "my_shop.wiring has no 'mke' (did you mean 'make'?)"),
        ("my_shop.wiring:number", "GBE655", "'int' cannot be called"),
        ("my_shop.wiring:later", "GBE655", "an `async def` function returns an awaitable"),
        ("my_shop.broken:make", "GBE601", "No module named 'nowhere_at_all'"),
        ("my_shop.wiring:fail", "GBE656", "fail failed to create Shop: ValueError: no database"),
        ("my_shop.wiring:forget", "GBE657", "forget returned None instead of an instance of Shop"),
        ("my_shop.wiring:confuse", "GBE657", "confuse returned int 3 instead of an instance of Shop"),
        ("my_shop.wiring:Container", "GBE656", "Container failed to create Shop: TypeError"),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused_with_the_reason(shop: Path, name: str, code: str, said: str) -> None:
    (shop / "pyproject.toml").write_text(configured(name))
    with pytest.raises(GraphBusError) as refused:
        run_graph(shop / ".graphbus")
    assert refused.value.code == code
    assert said in refused.value.sentence


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("my_shop.wiring:mke", ("pyproject.toml", 2)),
        ("my_shop.wiring:fail", ("my_shop/wiring.py", 14)),
        ("my_shop.wiring:confuse", ("my_shop/shop.py", 3)),
    ],
)
def test_the_place_of_a_refusal_is_where_it_is_fixed(shop: Path, name: str, place: tuple[str, int]) -> None:
    (shop / "pyproject.toml").write_text(configured(name))
    with pytest.raises(GraphBusError) as refused:
        run_graph(shop / ".graphbus")
    where = refused.value.where
    assert isinstance(where, Place)
    assert (Path(where.path).name, where.line) == (Path(place[0]).name, place[1])


def test_without_a_factory_a_constructor_with_arguments_is_told_of_it(shop: Path) -> None:
    with pytest.raises(RunError, match="missing 1 required positional argument") as refused:
        run_graph(shop / ".graphbus")
    assert refused.value.code == "GBE603"
    assert "factory" in refused.value.hint


def test_a_factory_of_the_project_belongs_to_what_was_built(shop: Path) -> None:
    (shop / "pyproject.toml").write_text(configured("my_shop.wiring:make"))
    build_graph("my_shop")
    (shop / "my_shop/wiring.py").write_text("def make(kind): ...\n")
    with pytest.raises(GraphBusError) as refused:
        run_graph(shop / ".graphbus")
    assert refused.value.code == "GBE508"


class Counter(GraphBusNode):
    def __init__(self, start: int) -> None:
        self.start = start

    @schema_method
    def count(self) -> int:
        return self.start


class Plain(GraphBusNode):
    pass


def make(kind: Any) -> Any:
    return kind(7) if kind is Counter else kind()


@pytest.mark.parametrize("start", [connect, run_recorded])
def test_classes_are_made_with_the_factory_and_objects_are_taken_as_they_are(start: Any) -> None:
    with start(Counter, Plain, factory=make) as graph:
        assert graph.call("Counter", "count") == 7
    with start(Counter(3), Plain, factory=make) as graph:
        assert graph.call("Counter", "count") == 3
