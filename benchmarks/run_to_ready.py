"""From a command to a graph that is ready and ends again: a process with ten agents, against what it cannot do without."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from stopwatch import Row, at_most, medians, process, report

AGENTS = 10
AGENT = '''
from graphbus_core import GraphBusNode, schema_method, subscribe


class Agent{number}(GraphBusNode):
    @schema_method(input_schema={{"order_id": str}}, output_schema={{"status": str}})
    def act(self, order_id: str) -> dict:
        self.publish("/Order/Seen{number}", {{"order_id": order_id}})
        return {{"status": order_id}}

    @subscribe("/Order/Created")
    def on_order(self, event):
        """Hear of an order."""
'''
BARE = """
class {name}:
    pass


def schema_method(**schemas):
    return lambda method: method


def subscribe(topic):
    return lambda method: method
"""
MAIN = "def run():\n    pass\n"


def write_graph(root: Path) -> None:
    """Ten agents in ten files, built; and a stand-in for the library, to import the same modules without it."""
    from graphbus_core import build_graph

    (root / "agents").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "main.py").write_text(MAIN, encoding="utf-8")
    for number in range(AGENTS):
        (root / "agents" / f"agent{number}.py").write_text(AGENT.format(number=number), encoding="utf-8")
    build_graph(root / "agents")
    bare = root / "bare" / "graphbus_core"
    bare.mkdir(parents=True)
    (bare / "__init__.py").write_text(BARE.format(name="GraphBusNode"), encoding="utf-8")


def main() -> list[Row]:
    """Measure and print."""
    modules = ", ".join(f"agents.agent{number}" for number in range(AGENTS))
    bare = f"import sys; sys.path[:0] = ['bare', '.']; import msgspec, {modules}"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_graph(root)
        took = medians(
            {
                "bare": process([sys.executable, "-c", bare], root),
                "ours": process([sys.executable, "-m", "graphbus_core.runtime", "--entrypoint", "main:run"], root),
            },
            rounds=15,
        )
    what = f"`python -m graphbus_core.runtime`, {AGENTS} agents: start, ready, end"
    row = at_most(what, took["ours"], took["bare"], "python + msgspec + the user's modules", 0.025)
    return report("From the command to a graph that is ready", [row])


if __name__ == "__main__":
    main()
