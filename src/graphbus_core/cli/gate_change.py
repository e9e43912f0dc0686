"""Reads the change that the options of `graphbus gate` name, runs the gate on it, and prints the report. Nothing is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark, as_sarif
from graphbus_core.cli.gate_options import GateOptions
from graphbus_core.editing import foreign
from graphbus_core.editing.foreign import ForeignChange
from graphbus_core.editing.gate import judge_change
from graphbus_core.editing.git import STAGED, Difference, Repository, difference_from, repository_of, tree_at
from graphbus_core.editing.patches import apply_patch
from graphbus_core.editing.rungs.codes import CODES, RUNGS
from graphbus_core.editing.rungs.scope import matches_glob
from graphbus_core.errors import BuildError, EditError, Place
from graphbus_core.model.config import Settings
from graphbus_core.model.findings import Severity
from graphbus_core.model.proposals import GateReport, RungResult

_REFUSED = BuildError.exit_status


def run_gate(options: GateOptions, form: str) -> int:
    """Run the gate on the change, print the report, and return the exit status."""
    root = settings.find_root([Path.cwd()])
    output: dict[str, str] = {}  # rung -> output of the code that it ran
    with ExitStack() as stack:
        change, base = read_change(options, root, stack)
        change = change._replace(allow=options.allow, is_for_base_tests=options.base_tests)
        report = judge_change(change, output.__setitem__)
    refused = {rung.path for rung in report.rungs if rung.path in change.unjudged}
    files = tuple(sorted({*change.files, *refused}))
    others = tuple(path for path in change.unjudged if path not in refused)
    judged = _JudgedChange(report, files, base, others, str(root))
    if form == "text":
        console.print_lines(_as_text(judged, output))
    elif form == "json":
        console.emit_json(_as_json(judged))
    else:
        console.emit_json(as_sarif("GraphBus gate", judged.root, _as_remarks(judged), about=CODES))
    return 0 if report.passed else _REFUSED


def read_change(options: GateOptions, root: Path, stack: ExitStack) -> tuple[ForeignChange, str]:
    """Return the change that the options name, and the name of the state that it is compared with.

    It is the new text of one file, a patch, or the difference between the working tree (or the index) and a revision. The
    temporary files that it needs are removed when `stack` is closed.
    """
    if options.new:
        path = _path_in_project(root, options.path)
        return foreign.change_of_files(
            root, _load_settings(root, options), {path: _read_input(options.new)}
        ), "the working tree"
    if options.patch:
        files = apply_patch(_read_input(options.patch), lambda path: foreign.bytes_on_disk(root, path))
        after = {path: after for path, (_, after) in files.items() if _is_in_scope(path, options)}
        others = tuple(sorted(files.keys() - after.keys()))
        change = foreign.change_of_files(root, _load_settings(root, options), after)
        return change._replace(unjudged=others), "the working tree"
    revision = options.against or "HEAD"
    repository = repository_of(root)
    found = difference_from(
        repository, revision, is_staged=options.staged, is_judged=lambda path: _is_in_scope(path, options)
    )
    tree = stack.enter_context(tree_at(repository, found.commit))
    project = foreign.read_project(tree, _load_settings(tree, options), f"{root} at {revision}")
    others = _find_unjudged_files(repository, project.config.settings.artifacts, found)
    return ForeignChange(project, found.files, links=found.links, unjudged=others), f"{revision} ({found.commit[:7]})"


def _is_in_scope(path: str, options: GateOptions) -> bool:
    """True if the gate judges a change to this file: Python, or allowed by `--allow`."""
    return path.endswith(".py") or any(matches_glob(path, glob) for glob in options.allow)


def _find_unjudged_files(repository: Repository, artifacts: str, difference: Difference) -> tuple[str, ...]:
    """Return the changed files that the gate does not judge.

    Left out are the artifacts, the lock, and all other files of the artifact folder that git does not track.
    """
    from graphbus_core.negotiation.lock import LOCK

    written = {f"{artifacts}/{name}" for name in (*store.ARTIFACTS, store.MANIFEST, LOCK)}
    below = {path for path in difference.others if path.startswith(f"{artifacts}/")} - difference.links
    tracked = frozenset(repository.entries(STAGED)) if below else frozenset()
    return tuple(path for path in difference.others if path not in below or (path not in written and path in tracked))


def _load_settings(root: Path, options: GateOptions) -> Settings:
    """Return the settings in the folder, with unverified changes allowed if `--unsafe-verify` was passed.

    The caller passes the project as it was before the change, so that a change cannot loosen its own gate.
    """
    found = settings.load(root)
    if not options.unsafe_verify:
        return found
    change = msgspec.structs.replace
    return change(found, gate=change(found.gate, allow_unverified=True))


def _path_in_project(root: Path, path: str) -> str:
    """Return a path relative to the project; a path outside is returned unchanged, and the gate refuses it."""
    whole = Path(os.path.normpath(Path.cwd() / path))
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path


def _read_input(name: str) -> bytes:
    """Read a file, or standard input.

    Raises:
        EditError: GBE343, the file cannot be read.
    """
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise EditError("GBE343", where=Place(name), reason=why) from None


# --- the report ------------------------------------------------------------

_HINTS: Mapping[str, str] = {
    "G0.path": "Write the path exactly as the file is named in the project.",
    "G0.not-agent-file": "Pass it to --allow if the change may touch it.",
    "G0.unjudged": "Pass it to --allow if its effect is known, or change it in a separate commit.",
    "G0.protected": "Pass it to --allow. Files in `protected_files` of the settings cannot be allowed.",
    "G0.size": "Split the change, or raise the limit in [tool.graphbus.gate].",
    "G2.emptied": "Delete the function if nobody needs it, or name its file, without a pattern, in --allow if it may do nothing.",
    "G3.import": "Add the package to the project first, or set allow_external_dependencies.",
    "G3.prompt": "Change prompts in a separate commit.",
    "G3.arbiter": "Change arbiters in a separate commit.",
    "G4.agents": "Pass the file to --allow if agents may be added or removed in it.",
    "G4.edge": "Keep the subscription, or remove the publication first.",
    "G4.unknown": "Write keys, topics and arguments as constants, or declare the payload with @publishes.",
    "G6.tests": "Correct the change, not the test: the tests from before the change are run first.",
    "G3": "Leave this out: only code that did it before the change may do it.",
    "G4": "Change the other end of the edge in the same change.",
    "G5": "Import the module to see the error: python -c 'import ...'.",
}


class _JudgedChange(NamedTuple):
    """The report of the gate, and the files that it concerns.

    Attributes:
        report: The results of the rungs.
        files: The files that were judged.
        base: The name of the state that the change was compared with.
        others: Changed files that were not judged.
        root: The project root, absolute.
    """

    report: GateReport
    files: tuple[str, ...]
    base: str
    others: tuple[str, ...]
    root: str


def find_hint(rung: RungResult) -> str:
    """Return the hint for a refusal; empty if there is none, or the rung did not fail."""
    if rung.status != "failed":
        return ""
    if rung.code.endswith(".unverified"):
        return "Pass --unsafe-verify to accept it unverified."
    return _HINTS.get(rung.code) or _HINTS.get(rung.rung, "")


# --- text -------------------------------------------------------------------------------------

_MARKS: Mapping[str, tuple[str, console.Role]] = {
    "passed": ("✓", "good"),
    "failed": ("✗", "bad"),
    "not_run": ("-", "warn"),
}


def _as_text(judged: _JudgedChange, output: Mapping[str, str]) -> Iterator[str]:
    """Yield each rung with its hint and the output of the code it ran, then other changes and a summary."""
    if judged.files:
        yield f"{pluralize(len(judged.files), 'file')} against {judged.base}: {sanitize(', '.join(judged.files))}"
        for rung in judged.report.rungs:
            yield from _rung_lines(rung)
            yield from (
                f"      {style('|', 'dim')} {sanitize(line)}" for line in output.get(rung.rung, "").splitlines()
            )
        for change in judged.report.schema_changes:
            yield f"  {style('~', 'warn')} {sanitize(change.method)}: its contract changes, but no edge breaks."
        yield from (f"  {style('~', 'warn')} {sanitize(each)}" for each in judged.report.removed)
    else:
        yield f"{style('✓', 'good')} Nothing to judge: no Python file differs from {judged.base}."
    if judged.others and judged.report.passed:
        others = sanitize(", ".join(judged.others))
        yield f"  {style('-', 'dim')} not judged, and absent from the copy in which the tests ran: {others}"
    if judged.files:
        yield _summary_line(judged.report)


def _rung_lines(rung: RungResult) -> Iterator[str]:
    """Yield a rung: mark, name, code, place and message, then the hint."""
    mark, role = _MARKS[rung.status]
    name, place = f"{rung.rung} {RUNGS.get(rung.rung, '')}", f"{rung.path}:{rung.line}" if rung.line else rung.path
    first, *more = rung.message.splitlines() or [""]
    parts = [
        style(rung.code, role) if rung.code else "",
        style(sanitize(place), "strong") if place else "",
        sanitize(first),
    ]
    yield f"  {style(mark, role)} {name:<14} {'  '.join(filter(None, parts))}".rstrip()
    yield from (f"      {sanitize(line)}" for line in more)
    if hint := find_hint(rung):
        yield f"      {style('hint:', 'name')} {hint}"


def _summary_line(report: GateReport) -> str:
    """Return whether the change passed or which rung refused it, and which rungs were not run or verified nothing."""
    if report.failure:
        rung = report.failure.rung
        return f"{style('✗ Refused', 'bad')} by {rung} {RUNGS.get(rung, '')}. Nothing was written."
    skipped = [rung for rung in report.rungs if rung.status == "not_run"]
    unverified = ", ".join(rung.code for rung in skipped if rung.code)
    parts = f"{style('✓ Passed', 'good')} {pluralize(len(report.rungs) - len(skipped), 'rung')}"
    parts += f"; not run: {', '.join(rung.rung for rung in skipped)}." if skipped else "."
    return parts + (f" Not verified: {unverified}." if unverified else "")


# --- JSON -------------------------------------------------------------------------------------


def _as_json(judged: _JudgedChange) -> dict[str, Any]:
    """Return the report for `--json`; paths are relative to `root`, lines count from 1; 0 means the whole file."""
    parts = ("rung", "status", "code", "path", "line", "message")
    return {
        "root": judged.root,
        "base": judged.base,
        "passed": judged.report.passed,
        "files": list(judged.files),
        "not_judged": list(judged.others),
        "rungs": [
            {
                **{name: getattr(rung, name) for name in parts},
                "name": RUNGS.get(rung.rung, ""),
                "hint": find_hint(rung),
            }
            for rung in judged.report.rungs
        ],
        "contract_changes": [change.method for change in judged.report.schema_changes],
        "removals": list(judged.report.removed),
    }


# --- SARIF ------------------------------------------------------------------------------------


def _as_remarks(judged: _JudgedChange) -> Iterator[Remark]:
    """Yield refusals as errors, and rungs that could not verify the change as warnings."""
    for rung in judged.report.rungs:
        if rung.code:
            severity: Severity = "error" if rung.status == "failed" else "warning"
            title, path = re.sub("[.-]", " ", rung.code), rung.path or judged.files[0]
            yield Remark(
                severity, rung.code, title, rung.message, find_hint(rung), path, {"startLine": rung.line or 1},
                key=(rung.code, path),
            )  # fmt: skip
