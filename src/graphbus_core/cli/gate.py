"""`graphbus gate`: run the gate on a change that a person or another tool made. Nothing is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark, as_sarif
from graphbus_core.editing import foreign
from graphbus_core.editing.foreign import ForeignChange
from graphbus_core.editing.gate import judge_change
from graphbus_core.editing.git import STAGED, Difference, Repository, difference_from, repository_of, tree_at
from graphbus_core.editing.patches import apply_patch
from graphbus_core.editing.rungs.codes import CODES, RUNGS
from graphbus_core.editing.rungs.scope import matches_glob
from graphbus_core.errors import BuildError, EditError, Place, UsageError
from graphbus_core.model.config import Settings
from graphbus_core.model.findings import Severity
from graphbus_core.model.proposals import GateReport, RungResult

_REFUSED = BuildError.exit_status


class _GateOptions(NamedTuple):
    """The options of the command line, by their names."""

    path: str
    new: str
    patch: str
    against: str
    staged: bool
    allow: tuple[str, ...]
    base_tests: bool
    unsafe_verify: bool


@click.command("gate", short_help="Run the gate on a change made outside a negotiation.")
@click.argument("path", default="", metavar="[FILE]")
@click.option("--new", default="", metavar="TEXT", help="A file with the new text of FILE; `-` is stdin.")
@click.option("--patch", default="", metavar="DIFF", help="A unified diff for the working tree; `-` is stdin.")
@click.option("--against", default="", metavar="REV", help="Compare the working tree with this revision (HEAD).")
@click.option("--staged", is_flag=True, help="Judge what is staged, compared with HEAD.")
@click.option("--allow", multiple=True, metavar="GLOB", help="Allow changes to these files too, e.g. 'tests/**'.")
@click.option("--base-tests", is_flag=True, help="Run only the tests from before the change.")
@click.option("--unsafe-verify", is_flag=True, help="Accept changes that cannot be run or tested.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), help="The format of the report (text).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def gate(**wished: Any) -> int:
    """Run the gate on a change that a person or another tool made, rung by rung, as on the proposals of agents. Nothing
    is written.

    By default the change is the difference between HEAD and the working tree, staged or not, new files included. With
    --patch it is a diff that is not applied yet; with FILE and --new it is a new text for one file. A change to a file
    that is neither Python nor a document is refused unless --allow names it.

    `graphbus check` judges the code as it is; the gate judges a change, and runs the tests on it.

    Exit status: 0 it passes; 3 it is refused; 2 wrong usage; 4 the patch does not apply.

    \b
    Examples:
      graphbus gate
      graphbus gate --against main --allow 'tests/**' --format sarif > gate.sarif
      git diff | graphbus -C ../clean gate --patch -
      graphbus gate agents/orders.py --new proposal.py
    """
    form = console.chosen_format(wished)
    wanted = _GateOptions(**wished)
    _check_usage(wanted)
    return _gate(wanted, form)


def _check_usage(wanted: _GateOptions) -> None:
    """Refuse options that do not go together."""
    ways = [f"--{name}" for name in ("new", "patch", "against", "staged") if getattr(wanted, name)]
    message = f"{ways[0]} and {ways[1]} contradict each other." if len(ways) > 1 else ""
    if bool(wanted.path) != bool(wanted.new):
        message = "FILE and --new, its whole new text, belong together."
    if message:
        raise UsageError("GBE110", message=message, command="graphbus gate")


def _gate(wanted: _GateOptions, form: str) -> int:
    root = settings.find_root([Path.cwd()])
    words: dict[str, str] = {}
    with ExitStack() as stack:
        change, base = _read_change(wanted, root, stack)
        change = change._replace(allow=wanted.allow, is_for_base_tests=wanted.base_tests)
        report = judge_change(change, words.__setitem__)
    refused = {rung.path for rung in report.rungs if rung.path in change.unjudged}
    files = tuple(sorted({*change.files, *refused}))
    others = tuple(path for path in change.unjudged if path not in refused)
    judged = _JudgedChange(report, files, base, others, str(root))
    if form == "text":
        console.print_lines(_as_text(judged, words))
    elif form == "json":
        console.emit_json(_as_json(judged))
    else:
        console.emit_json(as_sarif("GraphBus gate", judged.root, _remarks(judged), about=CODES))
    return 0 if report.passed else _REFUSED


def _read_change(wanted: _GateOptions, root: Path, stack: ExitStack) -> tuple[ForeignChange, str]:
    """Read the change and the project before it; return it with the name of what it is compared with."""
    if wanted.new:
        path = _below(root, wanted.path)
        return foreign.change_of_files(root, _settings(root, wanted), {path: _read(wanted.new)}), "the working tree"
    if wanted.patch:
        files = apply_patch(_read(wanted.patch), lambda path: foreign.bytes_on_disk(root, path))
        after = {path: after for path, (_, after) in files.items() if _is_judged(path, wanted)}
        others = tuple(sorted(files.keys() - after.keys()))
        change = foreign.change_of_files(root, _settings(root, wanted), after)
        return change._replace(unjudged=others), "the working tree"
    revision = wanted.against or "HEAD"
    repository = repository_of(root)
    found = difference_from(
        repository, revision, is_staged=wanted.staged, is_judged=lambda path: _is_judged(path, wanted)
    )
    tree = stack.enter_context(tree_at(repository, found.commit))
    project = foreign.read_project(tree, _settings(tree, wanted), f"{root} at {revision}")
    others = _not_made_here(repository, project.config.settings.artifacts, found)
    return ForeignChange(project, found.files, links=found.links, unjudged=others), f"{revision} ({found.commit[:7]})"


def _is_judged(path: str, wanted: _GateOptions) -> bool:
    return path.endswith(".py") or any(matches_glob(path, glob) for glob in wanted.allow)


def _not_made_here(repository: Repository, artifacts: str, difference: Difference) -> tuple[str, ...]:
    """Return the other changed files without those that a build wrote: artifacts, and untracked files in their folder."""
    from graphbus_core.negotiation.lock import LOCK

    written = {f"{artifacts}/{name}" for name in (*store.ARTIFACTS, store.MANIFEST, LOCK)}
    below = {path for path in difference.others if path.startswith(f"{artifacts}/")} - difference.links
    tracked = frozenset(repository.entries(STAGED)) if below else frozenset()
    return tuple(path for path in difference.others if path not in below or (path not in written and path in tracked))


def _settings(root: Path, wanted: _GateOptions) -> Settings:
    """Return the settings from before the change, so that no change loosens the gate that judges it."""
    found = settings.load(root)
    if not wanted.unsafe_verify:
        return found
    change = msgspec.structs.replace
    return change(found, gate=change(found.gate, allow_unverified=True))


def _below(root: Path, path: str) -> str:
    """Return a path relative to the project; one that leads out of it stays as it is, and the gate refuses it."""
    whole = Path(os.path.normpath(Path.cwd() / path))
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else path


def _read(name: str) -> bytes:
    """Read a file, or standard input.

    Raises:
        EditError: GBE343.
    """
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise EditError("GBE343", where=Place(name), path=name, reason=why) from None


# --- what the gate says of a change ------------------------------------------------------------

_HINTS: Mapping[str, str] = {
    "G0.path": "Give the path as the project spells it.",
    "G0.not-agent-file": "Name it with --allow if this change may touch it.",
    "G0.unjudged": "Name it with --allow if you know what it does, or change it in a commit of its own.",
    "G0.protected": "Name it with --allow; what `protected_files` of the settings protects stays protected.",
    "G0.size": "Split the change, or raise the limit in [tool.graphbus.gate].",
    "G3.import": "Add the package to the project first, or set allow_external_dependencies.",
    "G3.prompt": "Change prompts in a commit of their own.",
    "G3.arbiter": "Change who decides in a commit of its own.",
    "G4.agents": "Name the file with --allow if agents may come or go in it.",
    "G4.edge": "Keep the subscription, or let the publisher stop first.",
    "G4.unknown": "Write keys, topics and arguments as constants, or declare the payload with @publishes.",
    "G6.tests": "A changed test does not help: the tests from before decide first.",
    "G3": "Code that was there already may go on doing it; this change may not begin.",
    "G4": "Change the other end of the edge in the same change.",
    "G5": "Import it yourself: python -c 'import ...'.",
}


class _JudgedChange(NamedTuple):
    """The report of the gate, with the change that it is about.

    Attributes:
        report: The results of the rungs.
        files: What was judged.
        base: What the change was compared with.
        others: Other files that differ and were not judged.
        root: The project root, absolute.
    """

    report: GateReport
    files: tuple[str, ...]
    base: str
    others: tuple[str, ...]
    root: str


def _hint_of(rung: RungResult) -> str:
    """Return what to do about a refusal; empty if its message says it."""
    if rung.status != "failed":
        return ""
    if rung.code.endswith(".unverified"):
        return "--unsafe-verify lets it pass."
    return _HINTS.get(rung.code) or _HINTS.get(rung.rung, "")


# --- text -------------------------------------------------------------------------------------

_MARKS: Mapping[str, tuple[str, console.Role]] = {
    "passed": ("✓", "good"),
    "failed": ("✗", "bad"),
    "not_run": ("-", "warn"),
}


def _as_text(judged: _JudgedChange, words: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each rung with the output of tried code and a hint, other changes, and a summary."""
    if judged.files:
        yield f"{pluralize(len(judged.files), 'file')} against {judged.base}: {sanitize(', '.join(judged.files))}"
        for rung in judged.report.rungs:
            yield from _rung_lines(rung)
            yield from (f"      {style('|', 'dim')} {sanitize(line)}" for line in words.get(rung.rung, "").splitlines())
        for change in judged.report.schema_changes:
            yield f"  {style('~', 'warn')} {sanitize(change.method)}: its contract changes, and no edge breaks."
    else:
        yield f"{style('✓', 'good')} Nothing to judge: no Python file differs from {judged.base}."
    if judged.others and judged.report.passed:
        yield f"  {style('-', 'dim')} not judged, and not there when it was tried: {sanitize(', '.join(judged.others))}"
    if judged.files:
        yield _summary(judged.report)


def _rung_lines(rung: RungResult) -> Iterator[str]:
    mark, role = _MARKS[rung.status]
    name, place = f"{rung.rung} {RUNGS.get(rung.rung, '')}", f"{rung.path}:{rung.line}" if rung.line else rung.path
    first, *more = rung.message.splitlines() or [""]
    said = [
        style(rung.code, role) if rung.code else "",
        style(sanitize(place), "strong") if place else "",
        sanitize(first),
    ]
    yield f"  {style(mark, role)} {name:<14} {'  '.join(filter(None, said))}".rstrip()
    yield from (f"      {sanitize(line)}" for line in more)
    if hint := _hint_of(rung):
        yield f"      {style('hint:', 'name')} {hint}"


def _summary(report: GateReport) -> str:
    if report.failure:
        rung = report.failure.rung
        return f"{style('✗ Refused', 'bad')} by {rung} {RUNGS.get(rung, '')}. Nothing was written."
    skipped = [rung for rung in report.rungs if rung.status == "not_run"]
    unverified = ", ".join(rung.code for rung in skipped if rung.code)
    said = f"{style('✓ Passed', 'good')} {pluralize(len(report.rungs) - len(skipped), 'rung')}"
    said += f"; not run: {', '.join(rung.rung for rung in skipped)}." if skipped else "."
    return said + (f" Not verified: {unverified}." if unverified else "")


# --- JSON -------------------------------------------------------------------------------------


def _as_json(judged: _JudgedChange) -> dict[str, Any]:
    """Return the report for `--json`; paths are relative to `root`, lines count from 1 (0: the file as a whole)."""
    said = ("rung", "status", "code", "path", "line", "message")
    return {
        "root": judged.root,
        "base": judged.base,
        "passed": judged.report.passed,
        "files": list(judged.files),
        "not_judged": list(judged.others),
        "rungs": [
            {
                **{name: getattr(rung, name) for name in said},
                "name": RUNGS.get(rung.rung, ""),
                "hint": _hint_of(rung),
            }
            for rung in judged.report.rungs
        ],
        "contract_changes": [change.method for change in judged.report.schema_changes],
    }


# --- SARIF ------------------------------------------------------------------------------------


def _remarks(judged: _JudgedChange) -> Iterator[Remark]:
    """Yield refusals as errors, and rungs that could not verify the change as warnings."""
    for rung in judged.report.rungs:
        if rung.code:
            severity: Severity = "error" if rung.status == "failed" else "warning"
            title, path = re.sub("[.-]", " ", rung.code), rung.path or judged.files[0]
            yield Remark(
                severity, rung.code, title, rung.message, _hint_of(rung), path, {"startLine": rung.line or 1},
                key=(rung.code, path),
            )  # fmt: skip
