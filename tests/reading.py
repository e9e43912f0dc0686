"""Projects as the compiler reads them, for tests that begin with source text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from graphbus_core.compiler.project import Project
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild, Settings
from tests.project_files import write_project

HEAD = "from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe, Event\n"


def read_folder(root: Path, *paths: str, settings: Settings | None = None, cache: bool = False) -> Project:
    """Read the project in a folder; `paths` are relative to it."""
    wanted = tuple(str(root / path) for path in paths) or (str(root),)
    return Project.read(ResolvedBuild(root=str(root), paths=wanted, settings=settings or Settings()), cache=cache)


def read_files(root: Path, files: Mapping[str, str | bytes], settings: Settings | None = None) -> Project:
    """Write files and read the project that they make."""
    return read_folder(write_project(root, files), settings=settings)


def read_agent(root: Path, text: str, name: str = "A") -> AgentDefinition:
    """Read one agent from the text of a module; the public names are imported already."""
    project = read_files(root, {"module.py": HEAD + dedent(text)})
    assert not [
        error for error in project.errors if error.code != "GBE214"
    ]  # a handler that cannot be called is read all the same
    found = project.agent(name)
    assert found is not None, [agent.name for agent in project.definitions]
    return found
