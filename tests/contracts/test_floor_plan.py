"""The code keeps to docs/architecture.md: what imports what, what is heavy, who prints, who catches everything."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "graphbus_core"

HEAVY = {"networkx", "rich", "asyncio", "inspect", "difflib", "importlib.metadata", "http.server", "dataclasses"}
ONLY_IN_COMMAND_LINE = {"click"}
BROAD = {"Exception", "BaseException"}
ROOMS_NOBODY_FINDS = {"utils", "util", "helpers", "helper", "manager", "handler", "common", "base", "misc"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of ours, parsed when a test first asks for it: other processes load this file, too."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if "templates" not in path.parts
    }


def teardown_module() -> None:
    """A million nodes that stay would slow each collection of garbage down."""
    trees.cache_clear()
    nodes.cache_clear()


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Every node of every module."""
    return {name: list(ast.walk(tree)) for name, tree in trees().items()}


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or "."
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in names_in(node.test)


def at_start(body: list[ast.stmt]) -> Iterator[str]:
    """The modules that importing this code imports: everything outside of functions and TYPE_CHECKING blocks."""
    for statement in body:
        yield from imported(statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(statement):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from at_start(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from at_start(handler.body)


BREACHES = (
    ("bus/message_bus.py", "import graphbus_core.build", "Floors"),
    ("bus/core.py", "import graphbus_core.bus.sync", "Inside the bus"),
    ("store/reading.py", "import networkx", "Runtime Mode reaches"),
    ("negotiation/votes.py", "import time", "Engine, votes and protocol"),
    ("editing/edits.py", "import rich.table", "Only the command line knows"),
    ("model/agent.py", "import graphbus_core.model.findings", "No import cycles"),
)


@pytest.mark.slow
@pytest.mark.parametrize("breaches", [BREACHES, [("basement.py", "", "basement")]], ids=["imports", "a new room"])
def test_lines_that_break_a_contract_are_found(tmp_path: Path, breaches: Sequence[tuple[str, str, str]]) -> None:
    """That all contracts are kept is a step of its own; here each of them can be broken."""
    shutil.copytree(PACKAGE, tmp_path / "graphbus_core", ignore=shutil.ignore_patterns("__pycache__"))
    for module, line, _ in breaches:
        with (tmp_path / "graphbus_core" / module).open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", "--config", ROOT / "pyproject.toml"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 1, finished.stdout
    said = " ".join(finished.stdout.split())
    broken = said.partition("Broken contracts")[2] or said
    assert [contract for _, _, contract in breaches if contract not in broken] == []


def test_heavy_modules_are_imported_inside_functions_only() -> None:
    found = {name: heavy for name, tree in trees().items() if (heavy := HEAVY & set(at_start(tree.body)))}
    assert {name for name in found if "ledger" not in name and "simulati" not in name} == {
        "cli/mcp_server.py",  # with the SDK of MCP alone
        "hosting/serving/app.py",  # with starlette alone
        "hosting/serving/server.py",  # with uvicorn alone
        "hosting/serving/workers.py",  # by the one above
    }
    assert set().union(*found.values()) <= {
        "asyncio",
        "sqlite3",
    }  # `ledger` is loaded only with a ledger that is configured


def test_click_is_at_home_in_the_command_line_only() -> None:
    outside = (name for name in trees() if not name.startswith("cli/"))
    found = [name for name in outside for node in nodes()[name] if ONLY_IN_COMMAND_LINE & set(imported(node))]
    assert found == []


def test_our_own_modules_are_imported_for_types_as_for_use() -> None:
    """A type needed upstairs and downstairs belongs to model/; only the lazy public face and build door are free to."""
    found = []
    for name, every in nodes().items():
        blocks = [node for node in every if is_type_checking(node)]
        names = {each for block in blocks for node in ast.walk(block) for each in imported(node)}
        found += [f"{name}: {each}" for each in names if "graphbus" in each and name not in ("__init__.py", "build.py")]
    assert found == []


def test_nothing_prints_past_the_console() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, every in nodes().items()
        for node in every
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert found == []


def broad_excepts(name: str, every: list[ast.AST]) -> list[str]:
    """Where the file catches everything: `file:function` of a bare except, or of one that names Exception or BaseException."""
    functions = [node for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = []
    for node in every:
        if isinstance(node, ast.ExceptHandler) and (node.type is None or names_in(node.type) & BROAD):
            inside = [f.name for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            found.append(f"{name}:{inside[-1] if inside else ''}")
    return found


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_two_places_catch_everything_the_isolation_of_users_code_and_the_command_line() -> None:
    unjailed = {name: every for name, every in nodes().items() if "/sandbox_programs/" not in name}  # jailed programs
    found = sorted(place for name, every in unjailed.items() for place in broad_excepts(name, every))
    assert sorted({place.partition(":")[0] for place in found}) == ["cli/__init__.py", "isolation.py"], found


def test_rooms_have_names_that_say_what_is_in_them() -> None:
    assert not ROOMS_NOBODY_FINDS & {part for name in trees() for part in Path(name).with_suffix("").parts}


def test_a_module_says_in_a_few_lines_what_it_is() -> None:
    assert [name for name, tree in trees().items() if tree.body and not ast.get_docstring(tree)] == []


def test_a_file_stays_readable_in_one_sitting() -> None:
    lines = {name: len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in trees()}
    assert {name: count for name, count in lines.items() if count > 600} == {}
