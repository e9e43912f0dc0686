"""What the manifests of a project follow from: its artifacts, its settings, its name, and which agents keep state."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.deploy.names import as_label
from graphbus_core.errors import raise_all
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest, RuntimeSettings
from graphbus_core.model.powers import Powers
from graphbus_core.settings import project_table, resolve_run

_ARTIFACTS = ".graphbus"


class Project(NamedTuple):
    """A project that was built.

    Attributes:
        root: Where it is.
        folder: Its artifact folder as an image has it, relative to the project.
        name: As a label.
        version: Empty where the project does not say it.
        keepers: The agents that use `self.state`.
    """

    root: Path
    folder: str
    name: str
    version: str
    artifacts: BuildArtifacts
    settings: RuntimeSettings
    powers: Powers
    keepers: frozenset[str]

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents, in the order of activation."""
        return tuple(agent.name for agent in self.artifacts.agents.agents)


def read_project(folder: str) -> Project:
    """Read what a build has written, and the project that it belongs to.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        UsageError: What reading the settings raises.
    """
    artifacts = store.load(folder, without=("negotiations.json", "modified_files.json"))
    manifest = store.load_manifest(folder)
    raise_all(store.find_drift(folder, manifest))
    run = resolve_run(RuntimeRequest(artifacts=folder))
    root = Path(store.project_root(folder, manifest))
    about = project_table(root)
    name = about.get("name")
    version = about.get("version")
    below = Path(os.path.relpath(os.path.realpath(folder), os.path.realpath(root))).as_posix()
    return Project(
        root=root,
        folder=_ARTIFACTS if below.startswith("..") else below,
        name=as_label(name if isinstance(name, str) else root.name),
        version=version if isinstance(version, str) else "",
        artifacts=artifacts,
        settings=run.settings,
        powers=run.powers,
        keepers=_find_keepers(
            artifacts.agents.agents,
            (root / path for path in store.files_of(manifest) if path.endswith(".py")),
        ),
    )


def _find_keepers(agents: Iterable[AgentDefinition], paths: Iterable[os.PathLike[str]]) -> frozenset[str]:
    """The agents whose text, or that of a base class in the project, speaks of `self.state`."""
    classes = {node.name: node for path in paths for node in _classes(Path(path).read_bytes())}
    return frozenset(agent.name for agent in agents if _keeps_state(agent.name, classes, set()))


def _classes(source: bytes) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(parse(source)) if isinstance(node, ast.ClassDef))


def _keeps_state(name: str, classes: dict[str, ast.ClassDef], seen: set[str]) -> bool:
    node = classes.get(name)
    if node is None or name in seen:
        return False
    seen.add(name)
    bases = (base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases)
    return any(map(_is_state, ast.walk(node))) or any(_keeps_state(base, classes, seen) for base in bases)


def _is_state(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "state"
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
