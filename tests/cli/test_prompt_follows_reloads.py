"""A person at the prompt of a graph whose files are saved meanwhile: what TAB, `nodes` and `break` know is what runs now."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.model.config import BuildRequest
from tests.conftest import Project
from tests.fakes.typing_person import CTRL_C, CTRL_D, TAB, Person

STOCK = """
    from graphbus_core import GraphBusNode, schema_method

    class Stock(GraphBusNode):
        @schema_method(input_schema={"sku": str}, output_schema={"count": int})
        def look(self, sku: str):
            return {"count": 3}
    """


@pytest.fixture
def shop(project: Project) -> Path:
    root = project({"pyproject.toml": "", "shop/stock.py": STOCK})
    run_build_pipeline(BuildRequest(paths=(str(root / "shop"),)))
    return root


@pytest.mark.slow
def test_what_a_save_has_changed_is_completed_looked_at_called_and_stopped_at(shop: Path) -> None:
    stock = shop / "shop/stock.py"
    with Person(["run", "-i", "--watch"], shop) as person:
        person.sees("graphbus> ")
        person.keys("call Stock.")
        person.sees("call Stock.")
        stock.write_text(stock.read_text().replace("look", "reckon").replace("sku", "item"))
        person.sees("saved shop/stock.py -> checked, built, reloaded Stock")
        person.sees("graphbus> call Stock.")
        person.presses(TAB, "reckon")
        person.presses(TAB, '{"item": ""}')
        person.presses(CTRL_C, "graphbus> ")
        person.types("call Stock.look sku=mug")
        person.sees("Stock has no method look")
        person.types("nodes")
        person.sees("reckon(item: str)")
        person.types("break Stock.reckon")
        person.sees("Stops before: Stock.reckon")
        person.types("call Stock.reckon item=mug")
        person.sees("(graphbus) ")
        stock.write_text(stock.read_text().replace("3", "4"))
        person.types("c")
        person.sees("reloaded Stock")
        person.types("break off")
        person.sees("Stops before: nothing")
        person.types("call Stock.reckon item=mug")
        person.sees('{"count": 4}')
        assert person.leaves(CTRL_D) == 0
