"""What `graphbus contract` and `graphbus contract diff` read, decide and show.

A state of the graph is a folder with sources, a folder with artifacts, or a git revision:
agents/   .graphbus/   an existing path wins          main   HEAD~3   v1.2   else a revision          rev:agents   a revision
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.contracting import report
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.compiler.stages import History, describe
from graphbus_core.contracts import compare as comparing
from graphbus_core.contracts import versions
from graphbus_core.contracts.edges import Recorded, Validation, surely
from graphbus_core.contracts.edges import validate as validate_edges
from graphbus_core.contracts.surface import Surface
from graphbus_core.editing import revisions
from graphbus_core.editing.git import Repository
from graphbus_core.errors import BuildError, DeployError, GraphBusError, UsageError, raise_all
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import BuildConfig, ResolvedBuild
from graphbus_core.store.migration import load_any

FAILED = BuildError.exit_status


class Wanted(NamedTuple):
    """What the command line asks for; the names are those of the options."""

    form: str = "text"
    current: str = ""
    allow_breaking: bool = False
    allow_announced: bool = False
    check_version: bool = False


class Validated(NamedTuple):
    """One state of the graph, and whether its edges hold."""

    state: State
    validation: Validation
    errors: tuple[GraphBusError, ...] = ()


def validate(paths: tuple[str, ...], against: str, wanted: Wanted) -> int:
    """Validate the edges, and compare with another state if that is asked for; gives the exit status."""
    folder = paths[0] if len(paths) == 1 and is_artifacts(paths[0]) else ""
    read = _of_artifacts(folder) if folder else _of_sources(paths or default_paths())
    comparison = None
    if against:
        old = read_revision(against, () if folder else paths, is_merge_base=True)
        comparison = _compared(old, read.state, wanted)
    if wanted.form != "json":
        for error in read.errors:
            console.error(error)
    _show(read, comparison, wanted)
    is_broken = bool(read.errors) or not read.validation.holds
    return FAILED if is_broken or (comparison and comparison.fails) else 0


def compare(old: str, new: str, paths: tuple[str, ...], wanted: Wanted) -> int:
    """Compare two states by their names; gives the exit status."""
    comparison = _compared(read_state(old, paths), read_state(new, paths), wanted)
    _show(None, comparison, wanted)
    return FAILED if comparison.fails else 0


def _compared(old: State, new: State, wanted: Wanted) -> report.Comparison:
    """Compare two states; the version of the old one counts, unless another is given."""
    changes = comparing.compare(old.surface, new.surface)
    suggestion = versions.suggest(changes, wanted.current or old.version, new.version)
    is_announced = suggestion.is_enough is True
    return report.Comparison(
        old.label,
        new.label,
        changes,
        suggestion,
        new.root,
        is_allowed=wanted.allow_breaking or (wanted.allow_announced and is_announced),
        may_announce=wanted.allow_announced and not wanted.allow_breaking,
        checks_version=wanted.check_version,
    )


# --- what is read ---------------------------------------------------------------------------


def _of_sources(paths: tuple[str, ...]) -> Validated:
    config = settings.resolve_build(BuildConfig(paths=paths))
    project = Project.read(config)
    if not project.definitions and not project.errors:
        raise DeployError("GBE746", path="this folder" if paths == (".",) else ", ".join(paths))
    errors = tuple(error for error in project.errors if error.code not in rules.COVERED_ERRORS)
    surface = Surface(project.definitions, project.graph.topics)
    state = State("the working tree", surface, version_of(config.root), config.root)
    return Validated(state, validate_edges(Wiring(project), rules.check(project)), errors)


def _of_artifacts(folder: str) -> Validated:
    """By their sources, if these are as they were when they were built; else by what the artifacts alone can show."""
    artifacts, _, unsaid = load_any(Path(folder))
    look = store.verify_sources if unsaid else store.find_drift
    manifest = artifacts.manifest
    root = store.project_root(folder, manifest) if manifest else folder
    if manifest and not look(folder, manifest):
        found = _of_sources(tuple(os.path.normpath(os.path.join(root, path)) for path in manifest.roots))
        return found._replace(state=found.state._replace(label=folder))
    evidence = Recorded(artifacts)
    findings = surely(rules.check(evidence, has_text=False))
    console.say(f"The sources of {console.plain(folder)} are not as they were: what only they can show is left out.")
    return Validated(State(folder, Surface.of(artifacts), version_of(root)), validate_edges(Wiring(evidence), findings))


# --- what is shown --------------------------------------------------------------------------


def _show(read: Validated | None, comparison: report.Comparison | None, wanted: Wanted) -> None:
    if wanted.form == "json":
        console.emit_json(_document(read, comparison))
    else:
        for line in _FORMS[wanted.form](read, comparison):
            console.out(line)
    if comparison is None:
        return
    suggestion = comparison.suggestion
    if comparison.checks_version and suggestion.is_enough is None:
        raise UsageError("GBE172", which="old" if not suggestion.current else "new")
    if wanted.form == "text":
        for line in report.conclusion(comparison):
            console.out(line)


def _document(read: Validated | None, comparison: report.Comparison | None) -> dict[str, Any]:
    changes = report.changes_document(comparison) if comparison else None
    if read is None:
        return changes or {}
    return {
        "root": read.state.root,
        **report.edges_document(read.validation),
        "errors": [console.describe(error) for error in read.errors],
        "comparison": changes,
    }


def _as_text(read: Validated | None, comparison: report.Comparison | None) -> Iterator[str]:
    if read:
        lines = [*report.edge_lines(read.validation, read.state.root, only_open=comparison is not None)]
        yield from (*lines, "") if lines else ()
        yield report.edge_summary(read.validation)
        yield from ("",) if comparison else ()
    if comparison:
        yield from report.change_lines(comparison)


def _as_markdown(read: Validated | None, comparison: report.Comparison | None) -> Iterator[str]:
    return report.as_markdown(comparison, read.validation if read else None, read.state.root if read else "")


def _for_github(read: Validated | None, comparison: report.Comparison | None) -> Iterator[str]:
    if read:
        yield from report.edge_annotations(read.validation, read.state.root)
    if comparison:
        yield from report.change_annotations(comparison)


_Show = Callable[[Validated | None, report.Comparison | None], Iterator[str]]
_FORMS: Mapping[str, _Show] = {"text": _as_text, "markdown": _as_markdown, "github": _for_github}


# --- states of a graph ------------------------------------------------------------------------------


_REVISION = "rev:"
_PYPROJECT = "pyproject.toml"
_WHY_NO_REVISION = {
    "GBE344": "there is no git repository here",
    "GBE432": "the repository has no such commit",
}


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
    return os.path.isfile(os.path.join(path, store.MANIFEST))


def read_state(name: str, paths: Sequence[str]) -> State:
    """Read what a person calls so; without a name the working tree. Nothing is run and nothing written.

    Args:
        name: A folder or a revision.
        paths: What to read of the working tree or of a revision; none: what the artifacts here describe, else all.

    Raises:
        UsageError: GBE171, it is neither.
    """
    if name.startswith(_REVISION) or (name and not os.path.exists(name)):
        return read_revision(name.removeprefix(_REVISION), paths)
    if name and is_artifacts(name):
        return _read_artifacts(name)
    sources = (name,) if name else tuple(paths or default_paths())
    config = settings.resolve_build(BuildConfig(paths=sources))
    project = Project.read(config)
    raise_all(_unreadable(project))
    if not project.definitions:
        raise DeployError("GBE746", path=name or "the working tree")
    return _state(name or "the working tree", project, config.root)


def _read_artifacts(folder: str) -> State:
    """The version is that of the project around the folder, if it is there."""
    artifacts = load_any(Path(folder))[0]
    manifest = artifacts.manifest
    root = store.project_root(folder, manifest) if manifest else folder
    return State(folder, Surface.of(artifacts), version_of(root), root)


def _state(label: str, project: Project, root: str = "") -> State:
    surface = Surface.of(describe(project, History()))
    return State(label, surface, version_of(project.config.root), root)


def _unreadable(project: Project) -> list[BuildError]:
    return [error for error in project.errors if error.code not in rules.COVERED_ERRORS]


# --- revisions ------------------------------------------------------------------------------


def read_revision(name: str, paths: Sequence[str], *, is_merge_base: bool = False) -> State:
    """Read the project as it is in a commit, without checking it out.

    Args:
        name: What a person calls the commit.
        paths: What to read, as seen from the working directory.
        is_merge_base: Read the commit from which HEAD has left it instead; `origin/NAME` stands in for a name that is not here.
    """
    root = settings.find_root([Path(path) for path in paths] or [Path.cwd()])
    try:
        repository = revisions.repository_of(root)
        commit, label = _merge_base(repository, name) if is_merge_base else (repository.resolve(name), name)
    except GraphBusError as error:
        if error.code not in _WHY_NO_REVISION:
            raise
        raise UsageError("GBE171", name=name, reason=_WHY_NO_REVISION[error.code]) from None
    label = f"{label} ({commit[:7]})"
    with revisions.tree_at(repository, commit, _is_read) as tree:
        wanted = [tree / os.path.relpath(os.path.realpath(path), root) for path in paths or default_paths()]
        present = tuple(str(path) for path in wanted if path.exists())
        if not present:  # the agents came later
            return State(label, Surface((), ()), version_of(tree))
        config = ResolvedBuild(root=str(tree), paths=present, settings=settings.load(tree), dry_run=True)
        project = Project.read(config, cache=False)
        if unreadable := _unreadable(project):
            reason = f"{unreadable[0].where}: {unreadable[0].sentence}".rstrip(".")
            raise DeployError("GBE745", state=label, reason=reason)
        return _state(label, project)


def _merge_base(repository: Repository, name: str) -> tuple[str, str]:
    """The commit from which HEAD has left a name, and how to call it."""
    called, commit = name, _find(repository, name)
    if not commit:
        called, commit = f"origin/{name}", _find(repository, f"origin/{name}")
    if not commit:
        repository.resolve(name)  # the refusal speaks of the name that was given
    status, output, _ = repository.git.attempt("merge-base", commit, "HEAD")
    if status:
        return commit, f"{called}, which has no commit in common with HEAD"
    base = output.decode().strip()
    return base, called if base == commit else f"where HEAD left {called}"


def _find(repository: Repository, name: str) -> str:
    try:
        return repository.resolve(name)
    except GraphBusError:
        return ""


def _is_read(path: str) -> bool:
    return path.endswith(".py") or path == _PYPROJECT


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
