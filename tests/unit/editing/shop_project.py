"""A small project without findings, and how to propose changes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import symbol_text
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.config import GateConfig, ResolvedBuild, RuntimeSettings, SafetyConfig, Settings
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal
from tests.project_files import NO_PLUGINS, write_project

ORDERS = '''
"""Orders."""

from __future__ import annotations

import json

from graphbus_core import GraphBusNode, depends_on, schema_method, subscribe

CREATED = "/Order/Created"


@depends_on("Inventory")
class Orders(GraphBusNode):
    """Takes orders."""

    SYSTEM_PROMPT = "I take orders."

    @schema_method(input_schema={"sku": str, "count": int}, output_schema={"status": str, "total": float})
    def order(self, sku: str, count: int) -> dict:
        """Order something."""
        total = 2.5 * count
        self.publish(CREATED, {"sku": sku, "count": count, "total": total})
        return {"status": "confirmed", "total": total}

    @subscribe("/Stock/Low")
    def on_low(self, event):
        self.log(f"low: {event.payload['sku']} {event.payload['left']}")

    def describe(self, order: dict) -> str:
        return json.dumps(order)


class Referee(GraphBusNode):
    """Decides."""

    IS_ARBITER = True
    SYSTEM_PROMPT = "I decide."
'''

INVENTORY = '''
"""Stock."""

from graphbus_core import GraphBusNode, schema_method, subscribe


class Inventory(GraphBusNode):
    SYSTEM_PROMPT = "I know what is there."

    def __init__(self):
        super().__init__()
        self.stock = {"apple": 10}

    @schema_method(input_schema={"sku": str}, output_schema={"left": int})
    def left(self, sku: str) -> dict:
        return {"left": self.stock.get(sku, 0)}

    @subscribe("/Order/Created")
    def on_created(self, event):
        sku = event.payload["sku"]
        self.stock[sku] = self.stock.get(sku, 0) - event.payload["count"]
        if self.stock[sku] < 5:
            self.publish("/Stock/Low", {"sku": sku, "left": self.stock[sku]})


class Ledger(GraphBusNode):
    @subscribe("/Order/Created")
    def on_created(self, event):
        self.log(event.payload["total"])
'''

TESTS = """
import pytest

from agents.orders import Orders


class Silent(Orders):
    def __init__(self):
        super().__init__()
        self.sent = []

    def publish(self, topic, payload=None):
        self.sent.append(topic)


def test_status_is_documented():
    if Orders.__doc__ != "Takes orders.":
        pytest.skip("undocumented")


@pytest.mark.parametrize("word", Orders.order.__doc__.split())
def test_words(word):
    assert word


def test_total():
    assert Silent().order("apple", 4)["total"] == 10.0


def test_status():
    assert Silent().order("apple", 1)["status"] == "confirmed"


def test_is_red():
    assert Silent().order("apple", 1)["status"] == "pending"
"""

PROJECT = '[project]\nname = "shop"\nrequires-python = ">=3.10"\n'
FILES = {
    "pyproject.toml": f'{PROJECT}[tool.pytest.ini_options]\naddopts = "{NO_PLUGINS}"\n',
    "agents/__init__.py": "",
    "agents/orders.py": ORDERS,
    "agents/inventory.py": INVENTORY,
    "agents/prices.py": "PRICES = {}\n",
    "lib/money.py": "def cents(value): return round(value * 100)\n",
}


class Shop:
    """The project on disk, its workspace and its gate."""

    def __init__(
        self,
        folder: Path,
        *,
        with_tests: bool = False,
        more: dict[str, str] | None = None,
        gate: GateConfig | None = None,
        safety: SafetyConfig | None = None,
        factory: str = "",
    ) -> None:
        tests = {"tests/test_orders.py": TESTS} if with_tests else {}
        self.root = write_project(folder, {**FILES, **tests, **(more or {})})
        runtime = RuntimeSettings(factory=factory)
        settings = Settings(gate=gate or GateConfig(), safety=safety or SafetyConfig(), runtime=runtime)
        self.config = ResolvedBuild(root=str(self.root), paths=(f"{self.root}/agents",), settings=settings)
        self.project = Project.read(self.config, cache=False)
        self.workspace = Workspace(self.project)
        sandbox = choose_sandbox(self.config.settings.gate.isolation, self.root) or ProcessSandbox()
        self.heard: list[str] = []
        self.gate = Gate(self.project, self.config, sandbox, lambda rung, words: self.heard.append(f"{rung}: {words}"))

    def change(self, path: str, target: str, new: str, operation: str = "replace_symbol", old: str = "") -> CodeChange:
        """A change that was written for the present text."""
        if operation in ("replace_symbol", "delete_symbol", "set_decorator_argument") and not old:
            old = symbol_text(self.workspace.file_data(path), target)
        return CodeChange(
            file_path=path, target=target, change_type="modify", operation=operation, old_code=old, new_code=new
        )

    def proposal(self, *changes: CodeChange, src: str = "Orders", **more: Any) -> Proposal:
        more.setdefault("affects", ("Inventory", "Ledger", "Referee"))
        return Proposal(proposal_id="P001", round=0, src=src, intent="test", **more).with_changes(changes)

    def check(self, *changes: CodeChange, **more: Any) -> GateReport:
        return self.gate.check(self.proposal(*changes, **more), self.workspace)

    def replace(self, old: str, new: str, path: str = "agents/orders.py", **more: Any) -> GateReport:
        """Check a search and replace over the whole file."""
        return self.check(self.change(path, "", new, "search_replace", old), **more)


def code_of(report: GateReport) -> str:
    """The code of the refusal; empty when it passed."""
    return report.failure.code if report.failure else ""
