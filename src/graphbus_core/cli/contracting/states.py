"""The two states of a graph that are compared: folders with sources, folders with artifacts, git revisions.

agents/   .graphbus/   an existing path wins          main   HEAD~3   v1.2   else a revision          rev:agents   a revision
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from graphbus_core import settings, store
from graphbus_core.compiler.description import History, describe
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import COVERED_ERRORS
from graphbus_core.contracts.surface import Surface
from graphbus_core.editing.git import Repository
from graphbus_core.errors import DeployError, GraphBusError, UsageError, raise_all
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import BuildConfig, BuildRequest
from graphbus_core.store.migration import load_any

MANIFEST = "manifest.json"
_REVISION = "rev:"
_PYPROJECT = "pyproject.toml"


class State(NamedTuple):
    """One state of a graph.

    Attributes:
        label: How to call it.
        surface: Its promises.
        version: The version of its project, empty if none is known.
        root: The project root on disk; empty for a revision.
    """

    label: str
    surface: Surface
    version: str
    root: str = ""


def is_artifacts(path: str) -> bool:
    """True for a folder that a build has written."""
    return os.path.isfile(os.path.join(path, MANIFEST))


def read_state(name: str, paths: Sequence[str]) -> State:
    """Read what a person calls so; without a name the working tree.

    Args:
        name: A folder or a revision.
        paths: What to read of the working tree or of a revision; none: what the artifacts here describe, else all.

    Raises:
        UsageError: GBE171, it is neither.
    """
    if not name:
        return read_tree(paths or default_paths(), "the working tree")
    if name.startswith(_REVISION):
        return read_revision(name.removeprefix(_REVISION), paths)
    if is_artifacts(name):
        return read_artifacts(name)
    if os.path.exists(name):
        return read_tree((name,), name)
    return read_revision(name, paths)


def read_artifacts(folder: str) -> State:
    """Read a folder that a build has written; the version is that of the project around it, if it is there."""
    artifacts = load_any(Path(folder))[0]
    manifest = artifacts.manifest
    root = store.project_root(folder, manifest) if manifest else folder
    return State(folder, Surface.of(artifacts), version_of(root), root)


def read_tree(paths: Sequence[str], label: str) -> State:
    """Read sources; nothing is run and nothing written."""
    config = settings.resolve_build(BuildRequest(paths=tuple(paths)))
    return _state(config, label, config.root)


def _state(config: BuildConfig, label: str, root: str = "", *, cache: bool = True) -> State:
    project = Project.read(config, cache=cache)
    unreadable = [error for error in project.errors if error.code not in COVERED_ERRORS]
    if unreadable and root:
        raise_all(unreadable)
    if unreadable:
        first = unreadable[0]
        raise DeployError("GBE745", state=label, reason=f"{first.where}: {first.sentence}".rstrip("."))
    if root and not project.definitions:
        raise DeployError("GBE746", path=" ".join(config.paths) if label == "" else label)
    return State(label, Surface.of(describe(project, History())), version_of(config.root), root)


# --- revisions ------------------------------------------------------------------------------


def read_revision(name: str, paths: Sequence[str], *, is_merge_base: bool = False) -> State:
    """Read the project as it is in a commit, without checking it out.

    Args:
        name: What a person calls the commit.
        paths: What to read, as seen from the working directory.
        is_merge_base: Read the commit from which HEAD has left it instead; `origin/NAME` stands in for a name that is not here.
    """
    from graphbus_core.editing import revisions

    root = settings.find_root([Path(path) for path in paths] or [Path.cwd()])
    try:
        repository = revisions.repository_of(root)
        commit, label = _commit(repository, name, is_merge_base=is_merge_base)
    except GraphBusError as error:
        if error.code not in ("GBE344", "GBE432"):
            raise
        reason = "there is no git repository here" if error.code == "GBE344" else "the repository has no such commit"
        raise UsageError("GBE171", name=name, reason=reason) from None
    with ExitStack() as stack:
        tree = stack.enter_context(revisions.tree_at(repository, commit, _is_read))
        wanted = _below(root, paths or default_paths())
        present = [tree / path for path in wanted if (tree / path).exists()]
        label = f"{label} ({commit[:7]})"
        if not present:  # the agents came later
            return State(label, Surface((), ()), version_of(tree))
        config = BuildConfig(root=str(tree), paths=tuple(map(str, present)), settings=settings.load(tree), dry_run=True)
        return _state(config, label, cache=False)


def _commit(repository: Repository, name: str, *, is_merge_base: bool) -> tuple[str, str]:
    """The commit, and how to call it."""
    if not is_merge_base:
        return repository.resolve(name), name
    called = name
    try:
        commit = repository.resolve(name)
    except GraphBusError:
        called = f"origin/{name}"
        try:
            commit = repository.resolve(called)
        except GraphBusError:
            repository.resolve(name)  # speaks of the name that was given
            raise
    status, output, _ = repository.git.attempt("merge-base", commit, "HEAD")
    if status:
        return commit, f"{called}, which has no commit in common with HEAD"
    base = output.decode().strip()
    return base, called if base == commit else f"where HEAD left {called}"


def _is_read(path: str) -> bool:
    return path.endswith(".py") or path == _PYPROJECT


def _below(root: Path, paths: Sequence[str]) -> list[str]:
    return [os.path.relpath(os.path.realpath(path), root) for path in paths]


def default_paths() -> tuple[str, ...]:
    """What the artifacts of the project here describe, if there are any, else all of it."""
    root = settings.find_root([Path.cwd()])
    folder = os.path.join(root, settings.load(root).artifacts)
    if is_artifacts(folder):
        is_old = store.read_version(folder) < SCHEMA_VERSION
        manifest = load_any(Path(folder))[0].manifest if is_old else store.load_manifest(folder)
        built = [os.path.join(root, path) for path in (manifest.roots if manifest else ())]
        if built and all(map(os.path.exists, built)):
            return tuple(map(os.path.relpath, built))
    return (os.path.relpath(root),)


def version_of(root: str | Path) -> str:
    """The version that pyproject.toml gives the project, if it does."""
    import tomllib

    try:
        with open(os.path.join(root, _PYPROJECT), "rb") as file:
            project = tomllib.load(file).get("project", {})
    except (OSError, ValueError):
        return ""
    version = project.get("version", "") if isinstance(project, dict) else ""
    return version if isinstance(version, str) else ""
