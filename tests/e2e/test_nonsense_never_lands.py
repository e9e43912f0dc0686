"""A model that proposes nonsense and accepts everything: nothing of it is written, by the real command on a new shop.

Two of the proposals were written, word for word, by a small language model.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

GRAPHBUS = Path(sys.executable).with_name("graphbus")
MODEL = r"""
import re, sys

prompt = sys.stdin.read()
task, rest = re.findall(r"^# Your task: (\w+)(.*)$", prompt, re.M)[-1]
who = re.findall(r"You speak for the class (\w+)", prompt)[-1]
texts = PROPOSALS
if task == "analyze":
    print("## analysis\nresponsibility: its part of the shop")
elif task == "evaluate":
    for name in re.findall(r"P\d+", rest):
        print(f"## evaluation {name}\ndecision: accept\nreasoning: The tests pass.\n")
elif task == "arbitrate":
    print(f"## decision {re.findall('P[0-9]+', rest)[0]}\ndecision: accept\nreasoning: fine")
elif task == "propose" and who in texts:
    print("## proposal\ntitle: Preliminaries\nintent: x\nreason: x\n" + texts[who])
else:
    print("## nothing")
"""
HEARS = "### edit replace_symbol agents/notification.py NotificationService.on_order_created\n```python\n"
HEARS += (
    '@subscribe("/Order/Created")\ndef on_order_created(self, event: Event) -> None:\n    """The order is created."""\n'
)
TAKES = "### edit replace_symbol agents/order_processor.py OrderProcessor.on_order_placed\n```python\n"
TAKES += '@subscribe("/Order/Placed")\ndef on_order_placed(self, order: Order) -> None:\n    """process an order"""\n'
COMMENT = "### edit search_replace agents/inventory.py\n```old\n        available = self.stock.get(sku, 0)\n```\n"
COMMENT += "```new\n        # how many there are\n        available = self.stock.get(sku, 0)\n```"
KINDS = {
    "two of SmolLM2": (
        {
            "NotificationService": HEARS + '    self._send(notification("You created the order"))\n```',
            "OrderProcessor": TAKES.replace("order: Order", "event: Event") + "```",
        },
        {"G2.undefined", "G2.emptied"},
    ),
    "less and nothing": (
        {
            "NotificationService": HEARS + '    self.last = "an order"\n```',
            "InventoryService": COMMENT,
            "OrderProcessor": TAKES + '    self.process_order(order["order_id"], [])\n    ## proposal\n```',
        },
        {"G4.dropped", "G2.no-effect", "G2.marks"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_everybody_accepts_does_not_land_if_it_is_nonsense(tmp_path: Path, kind: str) -> None:
    proposals, codes = KINDS[kind]
    (tmp_path / "model.py").write_text(MODEL.replace("PROPOSALS", repr(proposals)))
    run(tmp_path, "init", "shop")
    shop = tmp_path / "shop"
    settings = shop / "pyproject.toml"
    model = f"command:{sys.executable} {tmp_path / 'model.py'}"
    settings.write_text(f'{settings.read_text()}\n[tool.graphbus.llm]\nmodel = "{model}"\n')
    before = {path: path.read_bytes() for path in shop.rglob("*.py")}

    done = run(shop, "negotiate")

    assert {code for code in codes if f"Refused by {code}" in done} == codes, done
    assert "0 commits" in done
    assert {path: path.read_bytes() for path in shop.rglob("*.py")} == before


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [GRAPHBUS, *command], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
