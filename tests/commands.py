"""All commands as tests walk them, the page about them, and a project in which each finds something to report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import click

from graphbus_core.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def tree(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, command
    for name, each in getattr(command, "commands", {}).items():
        yield from tree(each, *names, name)


ALL = [each for name, entry in COMMANDS.items() for each in tree(resolve_name(entry.target), name)]
LEAVES = [
    (names, command) for names, command in ALL if not isinstance(command, click.Group) or command.invoke_without_command
]
IDS = [" ".join(names) for names, _ in ALL]
LEAF_IDS = [" ".join(names) for names, _ in LEAVES]


FILES = {
    "pyproject.toml": "[project]\nname = 'shop'\nversion = '1.0.0'\n[tool.graphbus.runtime]\nkeep_dead_letters = true\n",
    "requirements.txt": "",
    "agents/__init__.py": "",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method, subscribe


        class Orders(GraphBusNode):
            @schema_method(input_schema={"order_id": str}, output_schema={"ok": bool})
            def place(self, order_id: str) -> dict[str, object]:
                self.publish("/Order/Placed", {"order_id": order_id})
                return {"ok": True}

            @subscribe("/Order/Placed")
            def on_placed(self, event: dict[str, object]) -> None:
                if event["order_idd"]:
                    self.state["last"] = "one"
        """,
}
REPORTING = [
    ["check", "agents"],
    ["check", "agents", "--diff"],
    ["build", "agents"],
    ["inspect"],
    ["inspect", "--agent", "Orders"],
    ["validate"],
    ["run", "--call", "Orders.place", '{"order_id": "1"}', "--trace", "--profile"],
    ["dlq", "ls"],
    ["dlq", "show", "1"],
    ["trace"],
    ["trace", "last"],
    ["profile"],
    ["doctor"],
    ["contract", "agents"],
    ["contract", "export", "--format", "asyncapi"],
    ["state", "ls"],
    ["k8s", "generate", "--namespace", "shop", "--diff"],
    ["nats", "generate", "--ledger", "nats://nats.example/shop", "--diff"],
    ["docker", "build", "--diff"],
    ["ci", "github", "--diff"],
    ["-C", "demo", "negotiate", "agents", "--rounds", "2"],
    ["-C", "demo", "negotiate", "agents", "--plan"],
    ["-C", "demo", "inspect-negotiation"],
    ["-C", "demo", "inspect-negotiation", "--sessions"],
    ["-C", "demo", "inspect-negotiation", "--transcript"],
    ["-C", "demo", "inspect-negotiation", "P001"],
    ["-C", "demo", "report"],
    ["-C", "demo", "replay"],
    ["-C", "demo", "why", "agents/notification.py"],
    ["-C", "demo", "undo", "--dry-run"],
]
"""In this order: each finds what those before it have left."""
