"""What `graphbus contract` and `graphbus contract diff` read, decide and show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.contracting import documents, text
from graphbus_core.cli.contracting.states import (
    State,
    default_paths,
    is_artifacts,
    read_revision,
    read_state,
    version_of,
)
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts import compare as comparing
from graphbus_core.contracts import versions
from graphbus_core.contracts.edges import Recorded, Validation, surely
from graphbus_core.contracts.edges import validate as validate_edges
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import BuildError, DeployError, GraphBusError, UsageError
from graphbus_core.model.config import BuildRequest
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


def _compared(old: State, new: State, wanted: Wanted) -> text.Comparison:
    """Compare two states; the version of the old one counts, unless another is given."""
    changes = comparing.compare(old.surface, new.surface)
    suggestion = versions.suggest(changes, wanted.current or old.version, new.version)
    is_announced = suggestion.is_enough is True
    return text.Comparison(
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
    config = settings.resolve_build(BuildRequest(paths=paths))
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


def _show(read: Validated | None, comparison: text.Comparison | None, wanted: Wanted) -> None:
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
        for line in text.conclusion(comparison):
            console.out(line)


def _document(read: Validated | None, comparison: text.Comparison | None) -> dict[str, Any]:
    changes = documents.changes_document(comparison) if comparison else None
    if read is None:
        return changes or {}
    return {
        "root": read.state.root,
        **documents.edges_document(read.validation),
        "errors": [console.describe(error) for error in read.errors],
        "comparison": changes,
    }


def _as_text(read: Validated | None, comparison: text.Comparison | None) -> Iterator[str]:
    if read:
        lines = [*text.edge_lines(read.validation, read.state.root, only_open=comparison is not None)]
        yield from (*lines, "") if lines else ()
        yield text.edge_summary(read.validation)
        yield from ("",) if comparison else ()
    if comparison:
        yield from text.change_lines(comparison)


def _as_markdown(read: Validated | None, comparison: text.Comparison | None) -> Iterator[str]:
    return text.as_markdown(comparison, read.validation if read else None, read.state.root if read else "")


def _for_github(read: Validated | None, comparison: text.Comparison | None) -> Iterator[str]:
    if read:
        yield from documents.edge_annotations(read.validation, read.state.root)
    if comparison:
        yield from documents.change_annotations(comparison)


_Show = Callable[[Validated | None, text.Comparison | None], Iterator[str]]
_FORMS: Mapping[str, _Show] = {"text": _as_text, "markdown": _as_markdown, "github": _for_github}
