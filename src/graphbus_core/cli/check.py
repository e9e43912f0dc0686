"""`graphbus check`: report mistakes in the source code of agents and fix the safe ones, without running any of that code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from graphbus_core import settings
from graphbus_core.build import end_interrupted
from graphbus_core.cli import console, formats
from graphbus_core.compiler import rules, stages
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import validate_contracts
from graphbus_core.errors import BuildError, EditError, GraphBusError, Place, UsageError, raise_all
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.model.proposals import CodeChange

_FAILED = BuildError.exit_status


class CheckOptions(NamedTuple):
    """The options of the command line, by their names."""

    form: str = "text"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fix: bool = False
    diff: bool = False
    strict: bool = False
    exit_zero: bool = False


@click.command("check", short_help="Find mistakes in the code of agents, fix safe ones.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--select", multiple=True, metavar="CODES", help="Report only these rules: codes, prefixes of codes, or ALL."
)
@click.option("--ignore", multiple=True, metavar="CODES", help="Leave these rules out.")
@click.option("--fix", is_flag=True, help="Fix what is safe: no other agent and no caller can notice it.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    help="The format of the report (text).",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--strict", is_flag=True, help="Also fail for notes, and for edges that are not proven.")
@click.option("--exit-zero", is_flag=True, help="End with status 0 whatever was found.")
def check(*, paths: tuple[str, ...], select: tuple[str, ...], ignore: tuple[str, ...], **wished: Any) -> int:
    """Read the source code of the agents in PATH and report mistakes within and between them. Your code is not run.

    A folder is read as one graph. For a file, the package around it is read, and only findings in that file are
    reported. Without PATH the working directory is read.

    The last line counts the edges between agents: proven (both ends are known and fit), unknown or broken.

    `graphbus contract` lists these edges one by one; `graphbus gate` judges a change; `graphbus validate` verifies
    artifacts, not source code.

    Exit status: 0 nothing found, or only notes; 3 errors or warnings found, or no agent in a folder; 2 wrong usage.

    \b
    Examples:
      graphbus check agents/
      graphbus check agents/ --fix
      graphbus check agents/ --select GB0 --ignore GB002 --strict
      graphbus check agents/ --format sarif > graphbus.sarif
    """
    form = console.chosen_format(wished)
    return _check(paths, CheckOptions(form, _codes(select), _codes(ignore), **wished))


def _codes(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for item in given for code in item.split(",") if code.strip())


def _check(paths: tuple[str, ...], wanted: CheckOptions) -> int:
    rules.selected_codes(wanted.select, wanted.ignore)  # refuses unknown codes before anything is read
    if wanted.diff and wanted.form in ("sarif", "github"):
        raise UsageError("GBE110", message=f"A diff has no {wanted.form} form.", command="graphbus check")
    config = settings.resolve_build(BuildConfig(paths=tuple(map(_to_read, paths))))
    for told in end_interrupted(config, writes_sources=wanted.fix):
        console.print_note(console.sanitize(told))
    project = Project.read(config)
    only = _only(paths, Path(config.root))
    if only is None and not project.definitions and not project.errors:
        refusal = stages.no_agent_error(project)  # in the wrong folder, CI would pass forever
        if refusal.where is None:  # else the finding says it better
            raise refusal
    if only is not None:
        read = {file.path for file in project.index.files} | {
            each.span.path for each in rules.check(project, select=("GB320",))
        }
        for path in only.keys() - read:
            console.print_note(f"{console.sanitize(path)}: not read, for it is a test or excluded.")
        only = {path: None for path in only if path in read}
        if not only:
            return 0
    mended = apply_safe_fixes(project, wanted, only) if wanted.fix or wanted.diff else _Mended(project)
    if wanted.diff:
        return _show_diff(mended, wanted)
    write_fixes(mended)
    report = _report(mended, wanted, only)
    _show(report, wanted)
    return _FAILED if _fails(report, wanted) and not wanted.exit_zero else 0


def _fails(report: formats.CheckReport, wanted: CheckOptions) -> bool:
    if report.count("error") or report.count("warning"):
        return True
    return wanted.strict and bool(report.count("info") or report.edges.count("unknown"))


def check_strictly(paths: tuple[str, ...]) -> int:
    """Return the exit status of `graphbus check --strict` for these paths; findings are printed to stderr if it fails."""
    wanted = CheckOptions(strict=True)
    project = Project.read(settings.resolve_build(BuildConfig(paths=paths)))
    report = _report(_Mended(project), wanted, None)
    if not _fails(report, wanted):
        return 0
    for line in (*formats.as_text(report), *_unproven(report, wanted)):
        console.print_note(line)
    return _FAILED


# --- what is read ---------------------------------------------------------------------------


def _to_read(path: str) -> str:
    """Return what to read for a path: a folder itself; for a file its outermost package, so that its edges have both ends."""
    given = Path(path)
    if not given.is_file() or given.suffix != ".py":
        return path
    folder = given.parent
    while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)


def _only(paths: tuple[str, ...], root: Path) -> dict[str, None] | None:
    """Return the files whose findings are reported, relative to the root; None means all."""
    if not paths or not all(Path(path).is_file() for path in paths):
        return None
    return dict.fromkeys(Path(path).resolve().relative_to(root.resolve()).as_posix() for path in paths)


def _report(mended: _Mended, wanted: CheckOptions, only: Collection[str] | None) -> formats.CheckReport:
    project = mended.project
    wiring = Wiring(project)
    found = rules.check(project, select=wanted.select, ignore=wanted.ignore, wiring=wiring)
    is_partial = bool(wanted.select or wanted.ignore)
    every = rules.check(project, has_text=False, wiring=wiring) if is_partial else found
    errors = _uncovered(project)
    return formats.CheckReport(
        edges=validate_contracts(wiring, every).within(only),
        unread=tuple(each for each in wiring.computed_topics if only is None or each.path in only),
        findings=tuple(each for each in found if only is None or each.span.path in only),
        errors=tuple(each for each in errors if only is None or each.where is None or each.where.path in only),
        root=project.config.root,
        source=project.source,
        fix_of=lambda finding: rules.fix_for(finding, project),
        fixed=mended.fixed,
        files=len(project.index.files),
        agents=len(project.definitions),
        only=tuple(only or ()),
    )


def _uncovered(project: Project) -> list[GraphBusError]:
    """Return the errors that stop a build and are not already reported as findings."""
    return [error for error in project.errors if error.code not in rules.COVERED_ERRORS]


# --- what is shown --------------------------------------------------------------------------


def _show(report: formats.CheckReport, wanted: CheckOptions) -> None:
    if wanted.form == "json":
        console.emit_json(formats.as_json(report))
    elif wanted.form == "sarif":
        about = {code: rule.summary for code, rule in rules.REGISTER.items()}
        remarks = [*formats.remarks_of(report)]
        console.emit_json(formats.as_sarif("GraphBus", report.root, remarks, report.errors, about))
    elif wanted.form == "github":
        remarks = [*map(formats.remark_of, report.errors), *formats.remarks_of(report)]
        console.print_lines(formats.as_github(report.root, remarks))
    else:
        for finding, fix in report.fixed:
            path = console.sanitize(report.shown(finding.span.path))
            console.print_line(f"{console.style('✓', 'good')} {path}: {finding.code} {console.sanitize(fix.title)}")
        for error in report.errors:
            console.print_error(error)
        console.print_lines(formats.as_text(report))
        console.print_lines(_unproven(report, wanted))


def _unproven(report: formats.CheckReport, wanted: CheckOptions) -> Iterator[str]:
    """Say that `--strict` fails for edges that are not proven, if there are any."""
    unknown = report.edges.count("unknown")
    if wanted.strict and unknown:
        edges = console.pluralize(unknown, "edge is", "edges are")
        yield f"--strict: {edges} not proven; `graphbus contract --unknown` gives the reasons."


def _show_diff(mended: _Mended, wanted: CheckOptions) -> int:
    """Print what `--fix` would change as a diff; like `ruff --diff`, return a failing status if that is anything."""
    from graphbus_core.editing.edits import unified_diff

    errors = _uncovered(mended.project)
    diffs = {path: unified_diff(path, before, after) for path, (before, after) in mended.files.items()}
    if wanted.form == "json":
        console.emit_json({"diffs": diffs, "errors": [console.error_as_json(error) for error in errors]})
    else:
        for diff in diffs.values():
            console.print_diff(diff)
        for error in errors:
            console.print_error(error)
        console.print_note(
            f"{len(mended.fixed)} to mend in {console.pluralize(len(diffs), 'file')}; nothing was written."
        )
    return _FAILED if (diffs or errors) and not wanted.exit_zero else 0


# --- safe changes only, pass after pass until nothing is left to mend --------------------------

_MOST_PASSES = 50


class _Mended(NamedTuple):
    """The result of `--fix`.

    Attributes:
        project: The project with all changes.
        fixed: Each finding that was mended, with its change.
        files: Path -> bytes before and after.
    """

    project: Project
    fixed: tuple[tuple[Finding, Fix], ...] = ()
    files: Mapping[str, tuple[bytes, bytes]] = MappingProxyType({})


def apply_safe_fixes(project: Project, wanted: CheckOptions, only: Collection[str] | None = None) -> _Mended:
    """Apply every safe fix to the project in memory; nothing is written.

    Args:
        project: What was read.
        wanted: Which rules count.
        only: The paths whose findings are mended; None: all.
    """
    state, fixed = project, list[tuple[Finding, Fix]]()
    for _ in range(_MOST_PASSES):
        found = rules.check(state, select=wanted.select, ignore=wanted.ignore)
        safe = [each for each in found if each.is_fix_safe and (only is None or each.span.path in only)]
        taken, changed_files = _one_pass(state, safe)
        if not changed_files:
            break
        fixed += taken
        state = state.with_files(changed_files)
    changed = sorted({change.file_path for _, fix in fixed for change in fix.changes})
    texts = {path: (project.source(path).data, state.source(path).data) for path in changed}
    return _Mended(state, tuple(fixed), texts)


def _one_pass(state: Project, findings: Iterable[Finding]) -> tuple[list[tuple[Finding, Fix]], dict[str, bytes]]:
    """Apply fixes that were computed for the same text; each symbol is changed by at most one of them."""
    from graphbus_core.editing.edits import apply_change

    files: dict[str, bytes] = {}
    taken: list[tuple[Finding, Fix]] = []
    touched: set[tuple[str, str]] = set()
    for finding in findings:
        fix = rules.fix_for(finding, state)
        if fix is None or any(_is_touched(change, touched) for change in fix.changes):
            continue
        for change in fix.changes:
            place = change.file_path, change.target or change.new_code
            if place not in touched:  # two fixes may add the same import
                data = files.get(change.file_path) or state.source(change.file_path).data
                files[change.file_path] = apply_change(data, change)
                touched.add(place)
        taken.append((finding, fix))
    return taken, files


def _is_touched(change: CodeChange, touched: Collection[tuple[str, str]]) -> bool:
    target = f"{change.target}."
    names = [f"{name}." for path, name in touched if change.target and path == change.file_path]
    return any(name.startswith(target) or target.startswith(name) for name in names)


def write_fixes(mended: _Mended) -> None:
    """Write the changed files, each one whole or not at all.

    Raises:
        EditError: A file cannot be written, or has changed since it was read; the others are written.
    """
    root = Path(mended.project.config.root).resolve()
    failures: list[EditError] = []
    for path, (before, after) in mended.files.items():
        place = (root / path).resolve()  # a link inside of the project leads to the file itself
        try:
            if not place.is_relative_to(root):
                failures.append(EditError("GBE322", where=Place(path)))
            elif not _replaced(place, before, after):
                failures.append(EditError("GBE330", where=Place(path)))
        except OSError as error:
            failures.append(EditError("GBE321", where=Place(path), reason=error.strerror or str(error)))
    raise_all(failures)


def _replaced(place: Path, before: bytes, after: bytes) -> bool:
    from graphbus_core.store.folders import Folder

    with Folder.at(place.parent) as folder:
        is_as_read = folder.read(place.name) == before
        if is_as_read:
            folder.write_atomic(place.name, after)
    return is_as_read
