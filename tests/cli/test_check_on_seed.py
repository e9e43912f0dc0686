"""`graphbus check` on the OrderProcessor of seed 000, to the letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from graphbus_core.cli import main

SEED = '''
from graphbus_core import GraphBusNode, schema_method, subscribe

class OrderProcessor(GraphBusNode):
    SYSTEM_PROMPT = """
    I process e-commerce orders. I validate inputs, check inventory,
    and emit order events. During build cycles, I negotiate with other
    agents to ensure our shared schemas are consistent and well-typed.
    """

    @schema_method(
        input_schema={"order_id": str, "items": list},
        output_schema={"status": str, "total": float, "event_id": str}
    )
    def process_order(self, order_id: str, items: list) -> dict:
        total = sum(item["price"] * item["qty"] for item in items)
        return {
            "status": "confirmed",
            "total": total,
            "event_id": f"ord_{order_id}"
        }

    @subscribe("/Inventory/Updated")
    def on_inventory_update(self, event):
        self.log(f"Inventory changed: {event.payload}")
'''
INVENTORY = """
from graphbus_core import GraphBusNode

class InventoryService(GraphBusNode):
    def change(self, sku):
        self.publish("/Inventory/Updated", {"sku": sku})
"""


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"agents/order_processor.py": SEED, "agents/inventory.py": INVENTORY}, 0),
        (
            {
                "agents/order_processor.py": SEED,
                "pyproject.toml": '[tool.graphbus]\nexternal_topics = ["/Inventory/*"]\n',
            },
            0,
        ),
        ({"agents/order_processor.py": SEED}, 3),
    ],
    ids=["with its publisher", "fed from outside", "on its own"],
)
def test_the_order_processor_fits_once_somebody_publishes_what_it_hears(
    project: Callable[[Mapping[str, str]], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
    status: int,
) -> None:
    monkeypatch.chdir(project(files))
    assert main(["check", "agents"]) == status
    shown = capsys.readouterr().out
    assert ("GB001" in shown, "GB0" in shown) == ((status == 3,) * 2)
