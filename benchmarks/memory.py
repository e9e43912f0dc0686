"""What a graph that is ready weighs: resident memory of a process with 4 and with 1,000 agents, above a bare interpreter."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from stopwatch import Row, report

PROBE = """
def run():
    with open("/proc/self/status") as status:
        print(next(line for line in status if line.startswith("VmRSS")))
"""
AGENT = """
class Agent{number}(GraphBusNode):
    @schema_method(input_schema={{"order_id": str}}, output_schema={{"status": str}})
    def act(self, order_id: str) -> dict:
        return {{"status": order_id}}

    @subscribe("/Order/Created{number}")
    def on_order(self, event):
        self.log("seen")
"""
HEAD = "from graphbus_core import GraphBusNode, schema_method, subscribe\n"
PER_FILE = 10


def write_graph(root: Path, agents: int) -> None:
    """A project with so many agents, built."""
    from graphbus_core import build_graph

    folder = root / "agents"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (root / "probe.py").write_text(PROBE, encoding="utf-8")
    for start in range(0, agents, PER_FILE):
        classes = "".join(AGENT.format(number=number) for number in range(start, min(start + PER_FILE, agents)))
        (folder / f"part{start}.py").write_text(HEAD + classes, encoding="utf-8")
    build_graph(folder)


def resident_bytes(command: list[str], cwd: Path) -> float:
    """What the probe in a child process says of itself, the median of five."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    said = [
        subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(6)
    ]
    return statistics.median(int(text.partition("VmRSS:")[2].split()[0]) * 1024 for text in said[1:])


def main() -> list[Row]:
    """Measure and print."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for agents, extra in ((4, 10e6), (1000, 25e6)):
            root = Path(folder) / str(agents)
            write_graph(root, agents)
            bare = resident_bytes([sys.executable, "-c", "import probe; probe.run()"], root)
            ours = resident_bytes([sys.executable, "-m", "graphbus_core.runtime", "--entrypoint", "probe:run"], root)
            text = f"bare + {extra / 1e6:.0f} MB"
            rows.append(
                Row(
                    f"memory when ready, {agents:,} agents", ours, bare, "bare python", (bare + extra) / bare, text, "B"
                )
            )
    return report("Memory", rows)


if __name__ == "__main__":
    main()
