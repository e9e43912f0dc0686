"""Judges what the hook of a coding agent announces, with the rungs of the gate that run no code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.gate_change import find_hint, read_change
from graphbus_core.cli.gate_options import GateOptions
from graphbus_core.compiler.project import Project
from graphbus_core.editing import foreign
from graphbus_core.editing.foreign import ForeignChange, ForeignScope
from graphbus_core.editing.gate import judge_change
from graphbus_core.editing.proposed import ProposedFile
from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import GateReport

_NO_AGENTS = "GBE340"


def judge_files(root: Path, files: Mapping[str, Sequence[ProposedFile]], options: GateOptions) -> GateReport | None:
    """Return the report on files of one project as they would be; None if no agent is concerned.

    Args:
        root: The root of the project.
        files: Path below the root -> what the tool call does to it, in order.
        options: The options of `graphbus gate`.
    """
    try:
        project = foreign.read_project(root, settings.load(root))
    except EditError as error:
        if error.code == _NO_AGENTS:
            return None
        raise
    pairs = {}
    for path in _select_agents(files, project, options):
        before = foreign.bytes_on_disk(root, path)
        text = None if before is None else SourceText(before, path).text.replace("\r\n", "\n")
        for step in files[path]:
            text = step.rewrite(text)
        pairs[path] = before, None if text is None else foreign.encode_like(text, before)
    return _judge(ForeignChange(project, pairs), options)


def _select_agents(paths: Mapping[str, Any], project: Project, options: GateOptions) -> Iterator[str]:
    """Yield the files that define agents or that `--allow` names."""
    scope = ForeignScope(ForeignChange(project, {}, options.allow))
    yield from (path for path in paths if path in project.agent_files or (options.allow and scope.is_allowed(path)))


def _judge(change: ForeignChange, options: GateOptions) -> GateReport | None:
    """Return the report of the rungs that run no code; None if nothing changes."""
    files = {path: pair for path, pair in change.files.items() if pair[0] != pair[1]}
    return judge_change(change._replace(files=files, allow=options.allow), runs_code=False) if files else None


def judge_tree(root: Path, options: GateOptions) -> GateReport | None:
    """Return the report on the working tree of one project, compared with HEAD; None if no agent is concerned."""
    with ExitStack() as stack:
        try:
            change, _ = read_change(options, root, stack)
        except EditError as error:
            if error.code == _NO_AGENTS:
                return None
            raise
        names = _select_agents(change.files, change.project, options)
        files = {path: change.files[path] for path in names}
        return _judge(change._replace(files=files, unjudged=()), options)


def refusal_lines(report: GateReport) -> Iterator[str]:
    """Yield which rung refuses the edit, why, and which rungs did not run."""
    rung = report.failure
    if rung:
        place = f"{rung.path}:{rung.line}" if rung.line else rung.path
        yield console.sanitize(f"graphbus gate refuses this: {rung.rung} {RUNGS[rung.rung]}, {rung.code}, {place}")
        yield from map(console.sanitize, rung.message.splitlines())
        yield f"Hint: {find_hint(rung)}" if find_hint(rung) else "Correct it and try again."
    yield name_unrun(report)


def name_unrun(report: GateReport) -> str:
    """Return a sentence with the rungs that did not run."""
    run = {rung.rung for rung in report.rungs if rung.status != "not_run"}
    names = ", ".join(f"{rung} {name}" for rung, name in RUNGS.items() if rung not in run)
    return f"Not run: {names}. `graphbus gate` runs them all."
