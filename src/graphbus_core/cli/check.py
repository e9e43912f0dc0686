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
from graphbus_core.errors.system import advise_on, reason_of
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
def check(*, paths: tuple[str, ...], select: tuple[str, ...], ignore: tuple[str, ...], **given: Any) -> int:
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
    form = console.chosen_format(given)
    return _run_check(paths, CheckOptions(form, _split_codes(select), _split_codes(ignore), **given))


def _split_codes(values: Iterable[str]) -> tuple[str, ...]:
    """Return the codes in the values of an option, each of which may hold several, separated by commas."""
    return tuple(code.strip() for item in values for code in item.split(",") if code.strip())


def _run_check(paths: tuple[str, ...], options: CheckOptions) -> int:
    """Check the paths, write safe fixes with `--fix`, print the report or the diff, and return the exit status."""
    rules.selected_codes(options.select, options.ignore)  # raises for unknown codes before anything is read
    if options.diff and options.form in ("sarif", "github"):
        message = f"--diff cannot be printed as {options.form}."
        raise UsageError("GBE110", message=message, command="graphbus check", purpose="list the formats")
    config = settings.resolve_build(BuildConfig(paths=tuple(map(_widen_to_package, paths))))
    for note in end_interrupted(config, writes_sources=options.fix):
        console.print_note(console.sanitize(note))
    project = Project.read(config)
    only = _files_to_report(paths, Path(config.root))
    if only is None and not project.definitions and not project.errors:
        refusal = stages.no_agent_error(project)  # in the wrong folder, CI would pass forever
        if refusal.where is None:  # an error with a place is reported as a finding
            raise refusal
    if only is not None:
        # GB320 reports agents in files that are skipped because of their names: such a file has been checked too.
        skipped = {each.span.path for each in rules.check(project, select=("GB320",))}
        read = {file.path for file in project.index.files} | skipped
        for path in only.keys() - read:
            console.print_note(f"{console.sanitize(path)}: not checked, because it is a test or excluded.")
        only = {path: None for path in only if path in read}
        if not only:
            return 0
    result = apply_safe_fixes(project, options, only) if options.fix or options.diff else _FixResult(project)
    if options.diff:
        return _print_diff(result, options)
    write_fixes(result)
    report = _make_report(result, options, only)
    _print_report(report, options)
    return _FAILED if _fails(report, options) and not options.exit_zero else 0


def _fails(report: formats.CheckReport, options: CheckOptions) -> bool:
    """True for errors and warnings; with `--strict` also for notes and unknown edges."""
    if report.count("error") or report.count("warning"):
        return True
    return options.strict and bool(report.count("info") or report.edges.count("unknown"))


def check_strictly(paths: tuple[str, ...]) -> int:
    """Return the exit status of `graphbus check --strict` for these paths; findings are printed to stderr if it fails."""
    options = CheckOptions(strict=True)
    project = Project.read(settings.resolve_build(BuildConfig(paths=paths)))
    report = _make_report(_FixResult(project), options, None)
    if not _fails(report, options):
        return 0
    for line in (*formats.as_text(report), *_lines_on_unproven_edges(report, options)):
        console.print_note(line)
    return _FAILED


# --- paths and findings ---------------------------------------------------------------------------


def _widen_to_package(path: str) -> str:
    """Return the outermost package around a file, so that both ends of its edges are read; other paths are returned unchanged."""
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        return path
    folder = file.parent
    while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)


def _files_to_report(paths: tuple[str, ...], root: Path) -> dict[str, None] | None:
    """Return the files whose findings are reported, relative to the root; None means all, if any path is a folder."""
    if not paths or not all(Path(path).is_file() for path in paths):
        return None
    return dict.fromkeys(Path(path).resolve().relative_to(root.resolve()).as_posix() for path in paths)


def _make_report(result: _FixResult, options: CheckOptions, only: Collection[str] | None) -> formats.CheckReport:
    """Return the report on the files in `only`, or on all files if it is None.

    Its findings are those of the selected rules; the verdicts of its edges depend on all rules.
    """
    project = result.project
    wiring = Wiring(project)
    found = rules.check(project, select=options.select, ignore=options.ignore, wiring=wiring)
    is_partial = bool(options.select or options.ignore)  # the verdicts of edges depend on all rules
    every = rules.check(project, has_text=False, wiring=wiring) if is_partial else found
    errors = _errors_without_finding(project)
    return formats.CheckReport(
        edges=validate_contracts(wiring, every).within(only),
        unread=tuple(each for each in wiring.computed_topics if only is None or each.path in only),
        findings=tuple(each for each in found if only is None or each.span.path in only),
        errors=tuple(each for each in errors if only is None or each.where is None or each.where.path in only),
        root=project.config.root,
        source=project.source,
        fix_of=lambda finding: rules.fix_for(finding, project),
        fixed=result.fixed,
        files=len(project.index.files),
        agents=len(project.definitions),
        only=tuple(only or ()),
    )


def _errors_without_finding(project: Project) -> list[GraphBusError]:
    """Return the errors that stop a build and are not already reported as findings."""
    return [error for error in project.errors if error.code not in rules.COVERED_ERRORS]


# --- the report --------------------------------------------------------------------------


def _print_report(report: formats.CheckReport, options: CheckOptions) -> None:
    """Print the report to stdout in the chosen form; as text, fixed findings come first and errors go to stderr."""
    if options.form == "json":
        console.emit_json(formats.as_json(report))
    elif options.form == "sarif":
        about = {code: rule.summary for code, rule in rules.REGISTER.items()}
        remarks = [*formats.remarks_of(report)]
        console.emit_json(formats.as_sarif("GraphBus", report.root, remarks, report.errors, about))
    elif options.form == "github":
        remarks = [*map(formats.remark_of, report.errors), *formats.remarks_of(report)]
        console.print_lines(formats.as_github(report.root, remarks))
    else:
        for finding, fix in report.fixed:
            path = console.sanitize(report.shown(finding.span.path))
            console.print_line(f"{console.style('✓', 'good')} {path}: {finding.code} {console.sanitize(fix.title)}")
        for error in report.errors:
            console.print_error(error)
        console.print_lines(formats.as_text(report))
        console.print_lines(_lines_on_unproven_edges(report, options))


def _lines_on_unproven_edges(report: formats.CheckReport, options: CheckOptions) -> Iterator[str]:
    """Yield a line that explains why `--strict` fails, if it is set and there are edges that are not proven."""
    unknown = report.edges.count("unknown")
    if options.strict and unknown:
        edges = console.pluralize(unknown, "edge is", "edges are")
        yield f"--strict: {edges} not proven; `graphbus contract --unknown` gives the reasons."


def _print_diff(result: _FixResult, options: CheckOptions) -> int:
    """Print what `--fix` would change as a diff; like `ruff --diff`, return a failing status if there is a change or an error."""
    from graphbus_core.editing.edits import unified_diff

    errors = _errors_without_finding(result.project)
    diffs = {path: unified_diff(path, before, after) for path, (before, after) in result.files.items()}
    if options.form == "json":
        console.emit_json({"diffs": diffs, "errors": [console.error_as_json(error) for error in errors]})
    else:
        for diff in diffs.values():
            console.print_diff(diff)
        for error in errors:
            console.print_error(error)
        console.print_note(
            f"{len(result.fixed)} to fix in {console.pluralize(len(diffs), 'file')}; nothing was written."
        )
    return _FAILED if (diffs or errors) and not options.exit_zero else 0


# --- safe fixes, pass after pass until none is left --------------------------

_MOST_PASSES = 50


class _FixResult(NamedTuple):
    """The result of `--fix`.

    Attributes:
        project: The project with all changes.
        fixed: Each finding that was fixed, with its fix.
        files: Path of each changed file -> its bytes before and after.
    """

    project: Project
    fixed: tuple[tuple[Finding, Fix], ...] = ()
    files: Mapping[str, tuple[bytes, bytes]] = MappingProxyType({})


def apply_safe_fixes(project: Project, options: CheckOptions, only: Collection[str] | None = None) -> _FixResult:
    """Apply every safe fix to the project in memory; nothing is written.

    Args:
        project: The project as it was read.
        options: Its `select` and `ignore` choose the rules.
        only: The paths whose findings are fixed; None means all.
    """
    state, fixed = project, list[tuple[Finding, Fix]]()
    for _ in range(_MOST_PASSES):
        found = rules.check(state, select=options.select, ignore=options.ignore)
        safe = [each for each in found if each.is_fix_safe and (only is None or each.span.path in only)]
        taken, changed_files = _apply_fixes_once(state, safe)
        if not changed_files:
            break
        fixed += taken
        state = state.with_files(changed_files)
    changed = sorted({change.file_path for _, fix in fixed for change in fix.changes})
    texts = {path: (project.source(path).data, state.source(path).data) for path in changed}
    return _FixResult(state, tuple(fixed), texts)


def _apply_fixes_once(
    state: Project, findings: Iterable[Finding]
) -> tuple[list[tuple[Finding, Fix]], dict[str, bytes]]:
    """Apply the fixes of findings in one state of the project; each symbol is changed by at most one of them.

    Returns:
        The findings with the fixes that were applied, and path -> new bytes of the changed files.
    """
    from graphbus_core.editing.edits import apply_change

    files: dict[str, bytes] = {}
    taken: list[tuple[Finding, Fix]] = []
    touched: set[tuple[str, str]] = set()
    for finding in findings:
        fix = rules.fix_for(finding, state)
        if fix is None or any(_overlaps_earlier_change(change, touched) for change in fix.changes):
            continue
        for change in fix.changes:
            place = change.file_path, change.target or change.new_code
            if place not in touched:  # two fixes may add the same import
                data = files.get(change.file_path) or state.source(change.file_path).data
                files[change.file_path] = apply_change(data, change)
                touched.add(place)
        taken.append((finding, fix))
    return taken, files


def _overlaps_earlier_change(change: CodeChange, touched: Collection[tuple[str, str]]) -> bool:
    """True if an earlier change concerns the same symbol, one inside it or one around it; `touched` holds (path, symbol)."""
    target = f"{change.target}."
    names = [f"{name}." for path, name in touched if change.target and path == change.file_path]
    return any(name.startswith(target) or target.startswith(name) for name in names)


def write_fixes(result: _FixResult) -> None:
    """Write the changed files, each one whole or not at all.

    Raises:
        EditError: A file cannot be written, or has changed since it was read; the others are written.
    """
    root = Path(result.project.config.root).resolve()
    failures: list[EditError] = []
    for path, (before, after) in result.files.items():
        place = (root / path).resolve()  # a link inside of the project leads to the file itself
        try:
            if not place.is_relative_to(root):
                failures.append(EditError("GBE322", where=Place(path)))
            elif not _replace_file(place, before, after):
                failures.append(EditError("GBE330", where=Place(path)))
        except OSError as error:
            advice = advise_on(error, place)
            failures.append(EditError("GBE321", where=Place(path), reason=reason_of(error), advice=advice))
    raise_all(failures)


def _replace_file(place: Path, before: bytes, after: bytes) -> bool:
    """Write the new bytes if the file still holds the old ones; return whether they were written."""
    from graphbus_core.store.folders import Folder

    with Folder.at(place.parent) as folder:
        is_as_read = folder.read(place.name) == before
        if is_as_read:
            folder.write_atomic(place.name, after)
    return is_as_read
