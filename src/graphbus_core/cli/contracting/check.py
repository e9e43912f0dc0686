"""`graphbus contract [PATH]...`: each method and edge, and whether both of its ends fit; with --against, what has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.checking.annotations import annotation
from graphbus_core.cli.contracting import documents, text
from graphbus_core.cli.contracting.states import State, default_paths, is_artifacts, read_revision, version_of
from graphbus_core.cli.contracting.text import Comparison
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import Validation, validate
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import BuildError, DeployError, GraphBusError, UsageError
from graphbus_core.model.config import BuildRequest
from graphbus_core.store.migration import load_any

FAILED = BuildError.exit_status


class Wanted(NamedTuple):
    """What the command line asks for."""

    form: str = "text"
    against: str = ""
    current: str = ""
    allows_breaking: bool = False
    allows_announced: bool = False
    checks_version: bool = False


class Validated(NamedTuple):
    """One state of the graph, and whether its edges hold."""

    state: State
    validation: Validation
    errors: tuple[GraphBusError, ...] = ()


def run(paths: tuple[str, ...], wanted: Wanted) -> int:
    """Validate the edges, and compare with another state if that is asked for."""
    read = _read(paths)
    comparison = None
    if wanted.against:
        old = read_revision(wanted.against, () if _folder_of(paths) else paths, is_merge_base=True)
        comparison = compared(old, read.state, wanted.current)
    _show(read, comparison, wanted)
    is_broken = bool(comparison) and fails(comparison, wanted)
    return FAILED if read.errors or not read.validation.holds or is_broken else 0


def compared(old: State, new: State, current: str = "") -> Comparison:
    """Compare two states; the version of the old one counts, unless another is given."""
    from graphbus_core.contracts.compare import compare
    from graphbus_core.contracts.versions import suggest

    changes = compare(old.surface, new.surface)
    suggestion = suggest(changes, current or old.version, new.version)
    return Comparison(old.label, new.label, changes, suggestion, new.root)


def fails(comparison: Comparison | None, wanted: Wanted) -> bool:
    """Tell whether a comparison makes the command fail."""
    if comparison is None:
        return False
    is_low = wanted.checks_version and comparison.suggestion.is_enough is False
    return is_low or (comparison.breaks and not is_allowed(comparison, wanted))


def is_allowed(comparison: Comparison, wanted: Wanted) -> bool:
    """Tell whether the command line lets these changes break somebody."""
    return wanted.allows_breaking or (wanted.allows_announced and comparison.suggestion.is_enough is True)


def for_github(comparison: Comparison, wanted: Wanted) -> Iterator[str]:
    """The changes as GitHub shows them; with what is to be done if they are meant."""
    yield from documents.change_annotations(
        comparison, checks_version=wanted.checks_version, is_allowed=is_allowed(comparison, wanted)
    )
    if told := _way_out(comparison, wanted):
        yield annotation("notice", {}, "If it is meant", [told])


def _way_out(comparison: Comparison, wanted: Wanted) -> str:
    """What to do if the changes are meant, where a raised version is an answer."""
    if not comparison.breaks or not wanted.allows_announced or is_allowed(comparison, wanted):
        return ""
    suggestion = comparison.suggestion
    if not suggestion.current or not suggestion.found:
        return "If it is meant, it can be announced once pyproject.toml gives a `version`, before and after."
    return f"If it is meant, raise `version` in pyproject.toml from {suggestion.found} to {suggestion.least} at least."


def report_version(comparison: Comparison, wanted: Wanted) -> None:
    """Say what the version has to do with it: it is too low, or raising it is an answer to what breaks."""
    suggestion = comparison.suggestion
    if wanted.checks_version and suggestion.is_enough is None:
        raise UsageError("GBE172", which="old" if not suggestion.current else "new")
    if wanted.form != "text":
        return
    if wanted.checks_version and suggestion.is_enough is False:
        mark = console.paint("✗", "bad")
        console.out(f"{mark} pyproject.toml says {suggestion.found}: it has to be {suggestion.least} at least.")
    elif told := _way_out(comparison, wanted):
        console.out(told)
    elif comparison.breaks and wanted.allows_announced and not wanted.allows_breaking:
        mark = console.paint("✓", "good")
        console.out(f"{mark} It is announced: pyproject.toml has gone from {suggestion.current} to {suggestion.found}.")


# --- what is read ---------------------------------------------------------------------------


def _folder_of(paths: tuple[str, ...]) -> str:
    """The artifact folder, if that is what was named."""
    return paths[0] if len(paths) == 1 and is_artifacts(paths[0]) else ""


def _read(paths: tuple[str, ...]) -> Validated:
    folder = _folder_of(paths)
    if folder:
        return _of_artifacts(folder)
    return _of_sources(paths or default_paths())


def _of_sources(paths: tuple[str, ...]) -> Validated:
    config = settings.resolve_build(BuildRequest(paths=paths))
    project = Project.read(config)
    if not project.definitions and not project.errors:
        raise DeployError("GBE746", path="this folder" if paths == (".",) else ", ".join(paths))
    errors = tuple(error for error in project.errors if error.code not in rules.COVERED_ERRORS)
    surface = Surface(project.definitions, project.graph.topics)
    state = State("the working tree", surface, version_of(config.root), config.root)
    return Validated(state, validate(Wiring(project), rules.check(project)), errors)


def _of_artifacts(folder: str) -> Validated:
    """By their sources, if these are as they were when they were built; else by what the artifacts alone can show."""
    artifacts, _, unsaid = load_any(Path(folder))
    look = store.verify_sources if unsaid else store.find_drift
    manifest = artifacts.manifest
    root = store.project_root(folder, manifest) if manifest else folder
    if manifest and not look(folder, manifest):
        found = _of_sources(tuple(os.path.normpath(os.path.join(root, path)) for path in manifest.roots))
        return found._replace(state=found.state._replace(label=folder))
    from graphbus_core.contracts.edges import Recorded, surely

    evidence = Recorded(artifacts)
    findings = surely(rules.check(evidence, has_text=False))
    console.say(f"The sources of {console.plain(folder)} are not as they were: what only they can show is left out.")
    return Validated(State(folder, Surface.of(artifacts), version_of(root)), validate(Wiring(evidence), findings))


# --- what is shown --------------------------------------------------------------------------


def _show(read: Validated, comparison: Comparison | None, wanted: Wanted) -> None:
    root = read.state.root
    if wanted.form == "json":
        document: dict[str, Any] = {"root": root, **documents.edges_document(read.validation)}
        document["errors"] = [console.describe(error) for error in read.errors]
        document["comparison"] = documents.changes_document(comparison) if comparison else None
        console.emit_json(document)
        return
    for error in read.errors:
        console.error(error)
    if wanted.form == "github":
        text.written(documents.edge_annotations(read.validation, root))
        if comparison:
            text.written(for_github(comparison, wanted))
    elif wanted.form == "markdown":
        text.written(text.as_markdown(comparison, read.validation, root))
    else:
        _show_text(read, comparison)
    if comparison:
        report_version(comparison, wanted)


def _show_text(read: Validated, comparison: Comparison | None) -> None:
    lines = [*text.edge_lines(read.validation, read.state.root, only_open=comparison is not None)]
    text.written(lines)
    if lines:
        console.out()
    console.out(text.edge_summary(read.validation))
    if comparison:
        console.out()
        text.written(text.change_lines(comparison))
