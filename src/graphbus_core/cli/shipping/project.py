"""A built project: its artifacts, proved to be those of its sources, and what its settings and its `[project]` say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.deploy.names import as_label, check_image
from graphbus_core.errors import DeployError, raise_all
from graphbus_core.model.artifacts import BuildArtifacts, Manifest
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.settings import project_table, resolve_run


class Project(NamedTuple):
    """A project that was built.

    Attributes:
        root: Where it is.
        folder: Its artifact folder, as it was named.
        run: How Runtime Mode would run it.
        about: The table `[project]` of its pyproject.toml.
    """

    root: Path
    folder: str
    artifacts: BuildArtifacts
    manifest: Manifest
    run: ResolvedRun
    about: Mapping[str, object]


def read_project(folder: str) -> Project:
    """Read what a build has written into a folder, and the project that it belongs to.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        UsageError: What reading the settings raises.
    """
    artifacts = store.load(folder, without=("negotiations.json", "modified_files.json"))
    manifest = store.load_manifest(folder)
    raise_all(store.find_drift(folder, manifest))
    root = Path(store.project_root(folder, manifest))
    run = resolve_run(RuntimeConfig(artifacts=folder))
    return Project(root, folder, artifacts, manifest, run, project_table(root))


def text_of(about: Mapping[str, object], key: str) -> str:
    """Return the text under a key of `[project]`; empty where there is none."""
    value = about.get(key)
    return value if isinstance(value, str) else ""


def name_image(root: Path, *, option: str = "--tag") -> str:
    """Return the name that an image of this project has: `name:version`.

    Args:
        root: The project.
        option: The option of the command that gives another name.

    Raises:
        DeployError: GBE716 when the project does not say one of them.
    """
    about = project_table(root)
    name, version = as_label(text_of(about, "name")), text_of(about, "version")
    if not name or not version:
        missing = "`version`" if name else "`name`"
        raise DeployError("GBE716", missing=missing, option=option, example="shop:1.4.2")
    return check_image(f"{name}:{version.replace('+', '-')}")
