"""What a static build costs, from nothing and after changes, against `ast.parse` of the same files."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from stopwatch import Row, at_most, medians, process, report, timed

from graphbus_core.build import run_build_pipeline
from graphbus_core.model.config import BuildConfig

BIN = Path(sys.executable).parent
LIMIT = 2.5
GROWTH_LIMIT = 1.3
SIZES = {4: 9, 100: 7, 1_000: 5, 5_000: 5}
"""Agents -> rounds."""
LIMITED = 1_000
"""Of fewer agents what counts is the whole process, see `startup.py`."""
AGENT = '''"""Service {number}: keeps what it is told and tells others."""

from __future__ import annotations

from graphbus_core import GraphBusNode, depends_on, schema_method, subscribe

TOPIC = "/Service/Changed{number}"
LIMIT = 100


{needs}class Service{number}(GraphBusNode):
    """Takes orders, checks them and says what became of them."""

    SYSTEM_PROMPT = """
    I am service {number}. I keep stock of what I am told, and I want the payloads of my neighbours to be
    consistent and well typed.
    """

    def __init__(self) -> None:
        self.stock: dict[str, int] = {{}}
        self.refused: list[str] = []

    @schema_method(
        input_schema={{"order_id": str, "items": list[str], "express": bool}},
        output_schema={{"status": str, "total": int, "order_id": str}},
    )
    def process(self, order_id: str, items: list[str], express: bool = False) -> dict:
        """Take an order and say how many items are left."""
        if not items:
            self.refused.append(order_id)
            return {{"status": "empty", "total": 0, "order_id": order_id}}
        total = 0
        for item in items:
            left = self.stock.get(item, LIMIT) - 1
            if left < 0:
                raise ValueError(f"nothing left of {{item}}")
            self.stock[item] = left
            total += left
        self.publish(TOPIC, {{"order_id": order_id, "left": total, "express": express, "count": len(items)}})
        return {{"status": "confirmed", "total": total, "order_id": order_id}}

    @subscribe("/Service/Changed{before}")
    def on_changed(self, event):
        """Keep what the neighbour says."""
        order_id = event["order_id"]
        self.stock[order_id] = event["left"]
        if event.get("express"):
            self.log(f"express order {{order_id}}: {{event['left']}} left")

    @subscribe("/Service/Reset")
    def on_reset(self, event):
        """Forget everything."""
        self.stock.clear()
        self.refused = [name for name in self.refused if name != event.get("name", "")]

    def describe(self) -> str:
        """Say what is there."""
        lines = [f"{{name}}: {{left}}" for name, left in sorted(self.stock.items())]
        return "\\n".join(lines) or "nothing"
'''


def write_services(root: Path, count: int) -> list[Path]:
    """A project of so many agents, one a file; each hears its neighbour, every third depends on it."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "agents").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.graphbus]\nexternal_topics = ["/Service/Reset"]\n', encoding="utf-8")
    paths = []
    for number in range(count):
        needs = f'@depends_on("Service{number - 1}")\n' if number % 3 == 2 else ""
        path = root / "agents" / f"service_{number:05}.py"
        text = AGENT.format(number=number, before=(number - 1) % count, needs=needs)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        paths.append(path)
    return paths


def parse(paths: list[Path]) -> Callable[[], object]:
    """The measure of all builds: read and parse the same files, and nothing else."""

    def run() -> None:
        for path in paths:
            ast.parse(path.read_bytes())

    return run


def build(root: Path) -> Callable[[], float]:
    """Measure a static build from nothing: no cache, no artifacts; removing those of before does not count."""
    request = BuildConfig(paths=(str(root / "agents"),), force=True)
    measure = timed(lambda: run_build_pipeline(request))

    def run() -> float:
        shutil.rmtree(root / ".graphbus", ignore_errors=True)
        return measure()

    return run


def from_nothing(work: Path) -> list[Row]:
    """Builds of 4 to 5,000 agents in process; and how the cost of one agent grows."""
    rows = []
    each: dict[int, float] = {}
    for count, rounds in SIZES.items():
        root = work / "from_nothing"
        paths = write_services(root, count)
        took = medians({"parse": timed(parse(paths)), "build": build(root)}, rounds)
        each[count] = took["build"] / count
        what = f"static build, {count:,} agents, in process"
        limit = LIMIT if count >= LIMITED else 0.0
        rows.append(Row(what, took["build"], took["parse"], "ast.parse", limit))
    rows.append(Row("one agent of 5,000", each[5_000], each[1_000], "one agent of 1,000", GROWTH_LIMIT))
    return rows


def after_changes(work: Path) -> list[Row]:
    """Whole processes: nothing has changed, and one file of a thousand has."""
    rows = []
    against = "python + click + msgspec"
    bare = process([sys.executable, "-c", "import click, msgspec"], work)
    for count, extra_s in ((100, 0.040), (1_000, 0.060)):
        root = work / f"rebuild_{count}"
        write_services(root, count)
        command = process([BIN / "graphbus", "build", "agents"], root)
        took = medians({"bare": bare, "rebuild": command}, 9)
        what = f"rebuild, nothing changed, {count:,} agents"
        rows.append(at_most(what, took["rebuild"], took["bare"], against, extra_s))
    took = medians({"unchanged": command, "changed": changed(root / "agents/service_00500.py", command)}, 7)
    rows.append(Row("rebuild, one file of 1,000 changed", took["changed"], took["unchanged"], "nothing changed", 6.0))
    return rows


def changed(path: Path, rebuild: Callable[[], float]) -> Callable[[], float]:
    """Measure a rebuild after an edit, and leave the project built."""
    edits = 0

    def measure() -> float:
        nonlocal edits
        edits += 1
        text = path.read_text(encoding="utf-8").partition("# edit")[0]
        path.write_text(f"{text}# edit {edits}\n", encoding="utf-8")
        return rebuild()

    return measure


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        return report("Static build", [*from_nothing(work), *after_changes(work)])


if __name__ == "__main__":
    main()
