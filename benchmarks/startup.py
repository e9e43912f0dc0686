"""What a command costs before it does anything: help, version, a whole small build, and what is installed."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from peers import QUIET, old_graphbus
from stopwatch import ROOT, Row, at_most, medians, process, report

BIN = Path(sys.executable).parent

BARE_GROUP = """
import click

@click.group()
def bare():
    pass

for name in {names!r}:
    bare.command(name)(lambda: None)

bare()
"""
AGENT = """
from graphbus_core import GraphBusNode, schema_method, subscribe


class {name}(GraphBusNode):
    SYSTEM_PROMPT = "I am {name}."

    @schema_method(input_schema={{"order_id": str}}, output_schema={{"status": str}})
    def act(self, order_id: str) -> dict:
        return {{"status": order_id}}

    @subscribe("/Order/Created")
    def on_order(self, event):
        self.log("seen")
"""


def write_agents(folder: Path, names: tuple[str, ...] = ("Alpha", "Beta", "Gamma", "Delta")) -> None:
    """Four agents that both our build and the peer's can read."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name in names:
        (folder / f"{name.lower()}.py").write_text(AGENT.format(name=name), encoding="utf-8")


def help_and_version(work: Path) -> list[Row]:
    """`--help` and `--version` against a bare click group with as many commands."""
    from graphbus_core.cli import COMMANDS

    group = work / "bare_group.py"
    group.write_text(BARE_GROUP.format(names=list(COMMANDS)), encoding="utf-8")
    commands = {
        "bare": process([sys.executable, group, "--help"], work),
        "help": process([BIN / "graphbus", "--help"], work),
        "version": process([BIN / "graphbus", "--version"], work),
    }
    old = old_graphbus()
    if old:
        commands["old help"] = process([old / "graphbus", "--help"], work, **QUIET)
    took = medians(commands, rounds=5)
    rows = [
        Row(f"`graphbus --{name}`, whole process", took[name], took["bare"], "bare click group", 1.3)
        for name in ("help", "version")
    ]
    if old:
        rows.append(Row("`graphbus --help`, whole process", took["help"], took["old help"], "graphbus 0.5.1", 1.0))
    return rows


def whole_build(work: Path) -> list[Row]:
    """A static build of four agents as a process, each time from nothing."""
    ours, theirs = work / "ours", work / "theirs"
    write_agents(ours / "agents")
    write_agents(theirs / "agents")
    commands = {
        "bare": process([sys.executable, "-c", "import click, msgspec"], work),
        "build": process([BIN / "graphbus", "build", "--force", "agents"], ours),
        "rebuild": process([BIN / "graphbus", "build", "agents"], ours),
    }
    old = old_graphbus()
    if old:
        commands["old"] = process([old / "graphbus", "build", "agents"], theirs, **QUIET)
    took = medians(commands, rounds=5)
    against = "python + click + msgspec"
    rows = [
        at_most("static build of 4 agents, whole process", took["build"], took["bare"], against, 0.060),
        at_most("rebuild, nothing changed, 4 agents", took["rebuild"], took["bare"], against, 0.040),
    ]
    if old:
        rows.append(Row("static build of 4 agents, whole process", took["build"], took["old"], "graphbus 0.5.1"))
    return rows


def closure(name: str) -> set[str]:
    """A distribution and all that it needs without extras."""
    found = {name}
    for requirement in distribution(name).requires or []:
        if ";" not in requirement:
            found |= closure(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return found


def size_bytes(name: str) -> int:
    """What a distribution's files weigh, compiled bytecode left out."""
    files = [Path(str(file.locate())) for file in distribution(name).files or [] if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in files if path.is_file())


def installed() -> list[Row]:
    """How many packages an installation brings and how large they are; the limits stand where a peer would."""
    needed = closure("graphbus")
    ours = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
    total = ours + sum(size_bytes(name) for name in needed - {"graphbus"})
    return [
        Row("installed packages", len(needed), 12, "limit", 1.0, unit="packages"),
        Row("installed size, without bytecode", total, 20e6, "limit", 1.0, unit="B"),
    ]


def main() -> list[Row]:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows = help_and_version(work) + whole_build(work) + installed()
    return report("Start-up and installation", rows)


if __name__ == "__main__":
    main()
