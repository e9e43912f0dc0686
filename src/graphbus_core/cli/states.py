"""The states of a graph that `graphbus contract` compares: a folder with sources, a folder with artifacts, or a git revision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from graphbus_core import settings, store
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.contracts.agent_messages import messages_of
from graphbus_core.contracts.messages import Messages, Unread
from graphbus_core.contracts.surface import Surface
from graphbus_core.editing.git import Repository, repository_of, tree_at
from graphbus_core.errors import (
    ArtifactError,
    BuildError,
    DeployError,
    GraphBusError,
    Place,
    SeveralErrors,
    UsageError,
    raise_all,
)
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.config import BuildConfig, ResolvedBuild, Settings
from graphbus_core.store.migration import load_any

REVISION = "rev:"
_PYPROJECT = "pyproject.toml"
_SUBMODULE = "it is a submodule, whose files are in another repository"
REASONS = {  # code of the error -> why a name is no revision
    "GBE344": "there is no git repository with a working tree here",
    "GBE432": "the repository has no such commit",
}


class GraphState(NamedTuple):
    """One state of a graph.

    Attributes:
        label: Its name in messages.
        surface: The contracts of its agents.
        version: The version of its project, empty if none is known.
        root: The project root on disk; empty for a revision.
        digest: The digest of the build, if the state is a folder with artifacts; else empty.
        submodules: For a revision: the submodules in it, whose files it does not have.
    """

    label: str
    surface: Surface
    version: str
    root: str = ""
    digest: str = ""
    submodules: tuple[str, ...] = ()

    @property
    def agents(self) -> frozenset[str]:
        """The names of its agents."""
        return frozenset(self.surface.agents)

    @property
    def messages(self) -> Messages:
        """Who sends which messages in this state, and who takes them."""
        found = messages_of(self.surface)
        submodules = tuple(Unread(SourceSpan(path, 1, 0, 1, 0), _SUBMODULE) for path in self.submodules)
        return Messages(found.producers, found.consumers, (*found.unread, *submodules))

    def check_readable_beside(self, other: GraphState) -> None:
        """Raise GBE745 if a submodule of this revision has agents in the other state: they would seem to be new, or gone."""
        for path in self.submodules:
            if any(agent.path.startswith(f"{path}/") for agent in other.surface.agents.values()):
                raise DeployError(
                    "GBE745", state=self.label, reason=f"{path} is a submodule, so its agents are not known"
                )


def _whole_project() -> tuple[str, ...]:
    """Return the root of the current project as the only path."""
    return (os.path.relpath(settings.find_root([Path.cwd()])),)


def read_project(paths: tuple[str, ...]) -> Project:
    """Read the sources in the paths, or of the whole project; raise GBE746 if there is no agent."""
    project = Project.read(settings.resolve_build(BuildConfig(paths=paths or _whole_project())))
    if not project.definitions and not project.errors:
        for folder in filter(store.has_artifacts, paths):
            store.load_manifest(folder)  # raises: artifacts cannot be read without a manifest
        raise DeployError("GBE746", path=", ".join(paths) or "the working tree")
    return project


def built_sources(folder: str) -> tuple[str, ...]:
    """Return the paths that the artifacts were built from; raise GBE508 for each source file that has changed since."""
    manifest = load_any(Path(folder))[0].manifest
    if manifest is None:
        raise TypeError("artifacts that are loaded have a manifest")
    raise_all([ArtifactError("GBE508", where=Place(path)) for path in store.find_changed_sources(folder, manifest)])
    root = store.project_root(folder, manifest)
    return tuple(os.path.normpath(os.path.join(root, path)) for path in manifest.roots)


def is_artifacts(path: str) -> bool:
    """True for a folder that a build has written."""
    return os.path.isfile(os.path.join(path, store.MANIFEST))


def read_state(name: str, paths: Sequence[str]) -> GraphState:
    """Read the state with this name; without a name, the working tree. No code is run, and nothing is written.

    Args:
        name: A folder or a revision.
        paths: The paths to read in the working tree or a revision; empty means the whole project.

    Raises:
        UsageError: GBE171, the name is neither a folder nor a revision.
    """
    if name.startswith(REVISION) or (name and not os.path.exists(name)):
        return read_revision(name.removeprefix(REVISION), paths)
    if name and is_artifacts(name):
        manifest = (artifacts := load_any(Path(name))[0]).manifest
        root = store.project_root(name, manifest) if manifest else name
        digest = manifest.build_digest if manifest else ""
        return GraphState(name, Surface.of(artifacts), _version_of(root), root, digest)
    project = read_project((name,) if name else tuple(paths))
    raise_all(errors_without_finding(project))
    return state_of_project(name or "the working tree", project, project.config.root)


def state_of_project(label: str, project: Project, root: str = "") -> GraphState:
    """Return the state of a project that was read; `root` is its root on disk, empty for a revision."""
    return GraphState(label, Surface(project.definitions, project.graph.topics), _version_of(project.config.root), root)


def errors_without_finding(project: Project) -> list[BuildError]:
    """Return the errors of reading a project that no rule reports as a finding."""
    return [error for error in project.errors if error.code not in rules.COVERED_ERRORS]


def read_revision(name: str, paths: Sequence[str], *, is_merge_base: bool = False) -> GraphState:
    """Read the project in a commit, without checking it out.

    Args:
        name: The name of the commit.
        paths: The paths to read, relative to the working directory; empty means the whole project.
        is_merge_base: Read the merge base of the commit and HEAD instead; `origin/NAME` replaces a name that is unknown here.

    Raises:
        UsageError: GBE171, there is no such commit.
        DeployError: GBE745, the sources or the settings in it cannot be read.
    """
    root = settings.find_root([Path(path) for path in paths] or [Path.cwd()])
    try:
        repository = repository_of(root)
        commit, label = merge_base(repository, name) if is_merge_base else (repository.resolve(name), name)
    except GraphBusError as error:
        if error.code not in REASONS:
            raise
        raise UsageError("GBE171", name=name, reason=reason_of_revision(error, root)) from None
    label = f"{label} ({commit[:7]})"
    with tree_at(repository, commit, lambda path: path.endswith(".py") or path == _PYPROJECT) as tree:
        sources = [tree / os.path.relpath(os.path.realpath(path), root) for path in paths or _whole_project()]
        present = tuple(str(path) for path in sources if path.exists())
        submodules = repository.submodules(commit)
        if not present:  # the agents did not exist yet
            return GraphState(label, Surface((), ()), _version_of(tree), submodules=submodules)
        config = ResolvedBuild(root=str(tree), paths=present, settings=_load_old_settings(tree, label), dry_run=True)
        project = Project.read(config, cache=False)
        if unreadable := errors_without_finding(project):
            reason = f"{unreadable[0].where}: {unreadable[0].sentence}".rstrip(".")
            raise DeployError("GBE745", state=label, reason=reason)
        return state_of_project(label, project)._replace(submodules=submodules)


def reason_of_revision(error: GraphBusError, root: Path) -> str:
    """Return why a name is no revision."""
    if error.code == "GBE432" and repository_of(root).is_shallow():
        return "this clone is shallow and lacks commits, which `git fetch --unshallow` gets"
    return REASONS[error.code]


def _load_old_settings(tree: Path, label: str) -> Settings:
    """Return the settings in the files of a commit; raise GBE745 if they are wrong, because nobody can correct them there."""
    try:
        return settings.load(tree)
    except GraphBusError as error:
        first = error.errors[0] if isinstance(error, SeveralErrors) else error
        place = str(first.where or "")
        if not place.startswith(f"{tree}{os.sep}"):  # a file of `--config`, which can be corrected
            raise
        reason = f"{os.path.relpath(place, tree)}: {first.sentence}".rstrip(".")
        raise DeployError("GBE745", state=label, reason=reason) from None


def merge_base(repository: Repository, name: str) -> tuple[str, str]:
    """Return the merge base of a revision and HEAD, and its name in messages; without a merge base, the revision itself.

    Raises:
        GraphBusError: GBE432, neither the name nor `origin/NAME` is a commit.
    """
    label, commit = name, ""  # a name that is unknown here may be a branch of the remote `origin`
    with suppress(GraphBusError):
        commit = repository.resolve(name)
    if not commit:
        with suppress(GraphBusError):
            label, commit = f"origin/{name}", repository.resolve(f"origin/{name}")
    if not commit:
        repository.resolve(name)  # raises the error for the name without `origin/`
    status, output, _ = repository.git.attempt("merge-base", commit, "HEAD")
    if status:
        is_cut = repository.is_shallow()
        why = (
            "whose common ancestor with HEAD this shallow clone does not have"
            if is_cut
            else "which has no commit in common with HEAD"
        )
        return commit, f"{label}, {why}"
    base = output.decode().strip()
    return base, label if base == commit else f"where HEAD left {label}"


def _version_of(root: str | Path) -> str:
    """Return the version in pyproject.toml; empty if there is none."""
    import tomllib

    try:
        project = tomllib.loads(Path(root, _PYPROJECT).read_text("utf-8")).get("project", {})
    except (OSError, ValueError):
        return ""
    version = project.get("version", "") if isinstance(project, dict) else ""
    return version if isinstance(version, str) else ""
