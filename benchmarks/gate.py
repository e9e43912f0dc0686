"""What the gate costs for each proposal of a project without tests, against importing the project in a bare process."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stopwatch import Row, medians, process, report

from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import CodeChange, Proposal

AGENTS = 10
AGENT = '''\
"""Agent {number}."""

from graphbus_core import GraphBusNode, schema_method, subscribe


class Agent{number}(GraphBusNode):
    """Hears the one before and tells the one behind."""

    @schema_method(input_schema={{"count": int}}, output_schema={{"total": float}})
    def price(self, count: int) -> dict:
        return {{"total": 0.5 * count}}

    @subscribe("/Ring/T{before}")
    def on_told(self, event) -> None:
        self.publish("/Ring/T{number}", {{"sku": event["sku"], "count": event["count"]}})
'''


def main() -> list[Row]:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "ring").mkdir()
        for number in range(AGENTS):
            before = (number - 1) % AGENTS
            (root / "ring" / f"a{number}.py").write_text(AGENT.format(number=number, before=before))
        modules = ", ".join(f"ring.a{number}" for number in range(AGENTS))
        bare = process([sys.executable, "-c", f"import {modules}"], cwd=root)
        taken = medians({"bare": bare, "gate": climbing(root)})
    what = f"gate of one proposal without tests, {AGENTS} agents"
    return report("Gate", [Row(what, taken["gate"], taken["bare"], "import in a bare process", 3.0)])


def climbing(root: Path) -> Callable[[], float]:
    """Give a measurement: seconds in which a proposal climbs all rungs, a different one each time."""
    config = ResolvedBuild(root=str(root), paths=(str(root / "ring"),))
    project = Project.read(config, cache=False)
    gate, workspace = Gate(project, config, ProcessSandbox()), Workspace(project)
    prices = itertools.count(1)

    def measure() -> float:
        change = CodeChange(
            file_path="ring/a0.py",
            target="Agent0.price",
            change_type="modify",
            operation="search_replace",
            old_code="0.5 * count",
            new_code=f"{next(prices)}.5 * count",
        )
        proposal = Proposal(proposal_id="P001", round=0, src="Agent0", intent="measure", code_change=change)
        started = time.perf_counter()
        result = gate.check(proposal, workspace)
        taken_s = time.perf_counter() - started
        if not result.passed:
            raise SystemExit(f"the gate refused: {result.failure}")
        return taken_s

    return measure


if __name__ == "__main__":
    main()
