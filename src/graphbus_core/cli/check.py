"""`graphbus check`: read the agents, report what does not fit together, mend what is safe. No key, no network, nothing is run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import click
import msgspec

from graphbus_core import settings
from graphbus_core.build import end_interrupted
from graphbus_core.cli import console
from graphbus_core.cli.checking import formats
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.errors import BuildError, GraphBusError, UsageError
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding, Fix

FAILED = BuildError.exit_status


class Wanted(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    form: str
    is_fix: bool
    is_diff: bool
    is_strict: bool
    is_exit_zero: bool
    is_statistics: bool


@click.command("check", short_help="Find what does not fit together, and mend what is safe.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--select", multiple=True, metavar="CODES", help="Report these rules only: codes or prefixes, or ALL.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Leave these rules out.")
@click.option("--fix", is_flag=True, help="Mend what is safe: what no other agent and no caller can notice.")
@click.option("--diff", is_flag=True, help="Show what --fix would change; write nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github"]),
    help="How to report: text (default), json, sarif or github.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--strict", is_flag=True, help="Fail for notes as well.")
@click.option("--exit-zero", is_flag=True, help="Never fail for what was found.")
@click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of showing them.")
def check(
    *,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    form: str | None,
    as_json: bool,
    **flags: bool,
) -> int:
    """Read the agents in PATH and report what does not fit together; no code of yours is run.

    A folder is read as one graph. For a file the whole package around it is read, and only what is found in
    the file is reported. Without PATH the working directory is read.

    Exit status: 0 nothing found, or notes only; 3 errors or warnings found, or no agent in a folder; 2 wrong usage.

    \b
    Examples:
      graphbus check agents/
      graphbus check agents/ --fix
      graphbus check agents/ --select GB0 --ignore GB002 --strict
      graphbus check agents/ --format sarif > graphbus.sarif
    """
    if as_json and form not in (None, "json"):
        raise UsageError(
            "GBE110", message=f"--json and --format {form} contradict each other.", command="graphbus check"
        )
    wanted = Wanted(
        _codes(select),
        _codes(ignore),
        "json" if as_json else form or "text",
        flags["fix"],
        flags["diff"],
        flags["strict"],
        flags["exit_zero"],
        flags["statistics"],
    )
    return _check(paths, wanted)


def _codes(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(code.strip() for item in given for code in item.split(",") if code.strip())


def _check(paths: tuple[str, ...], wanted: Wanted) -> int:
    rules.selected(wanted.select, wanted.ignore)  # refuses what is no code before anything is read
    if wanted.is_diff and wanted.form in ("sarif", "github"):
        raise UsageError("GBE110", message=f"A diff has no {wanted.form} form.", command="graphbus check")
    config = settings.resolve_build(BuildConfig(paths=tuple(map(_to_read, paths))))
    for told in end_interrupted(config, writes_sources=wanted.is_fix):
        console.say(console.plain(told))
    project = Project.read(config)
    only = _only(paths, Path(config.root))
    if only is None:
        _refuse_nothing(project)
    if wanted.is_diff:
        return _show_diff(project, wanted, only)
    fixed: tuple[tuple[Finding, Fix], ...] = ()
    if wanted.is_fix:
        from graphbus_core.cli.checking import fixing

        mended = fixing.mend(project, fixing.Choice(wanted.select, wanted.ignore), only)
        fixing.write(mended)
        project, fixed = mended.project, mended.fixed
    report = _report(project, wanted, only, fixed)
    _show(report, wanted)
    return _status(report, wanted)


# --- what is read ---------------------------------------------------------------------------


def _to_read(path: str) -> str:
    """A folder is read as it is; around a file, its outermost package, so that both ends of its edges are seen."""
    given = Path(path)
    if not given.is_file() or given.suffix != ".py":
        return path
    folder = given.parent
    while (folder / "__init__.py").is_file() and (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)


def _only(paths: tuple[str, ...], root: Path) -> Collection[str] | None:
    """The files whose findings are reported, relative to the root; None: all."""
    if not paths or not all(Path(path).is_file() for path in paths):
        return None
    return dict.fromkeys(Path(path).resolve().relative_to(root.resolve()).as_posix() for path in paths)


def _refuse_nothing(project: Project) -> None:
    """A check of no agents finds nothing: in the wrong folder, CI would stay green for ever.

    Raises:
        BuildError: GBE213, as a build says it.
    """
    if not project.definitions and not project.errors:
        roots = project.index.roots
        raise BuildError("GBE213", paths=", ".join("this folder" if root == "." else root for root in roots))


def _report(
    project: Project,
    wanted: Wanted,
    only: Collection[str] | None,
    fixed: tuple[tuple[Finding, Fix], ...] = (),
) -> formats.Report:
    found = rules.check(project, select=wanted.select, ignore=wanted.ignore)
    shown = tuple(finding for finding in found if only is None or finding.span.path in only)
    uncovered = _uncovered(project)
    errors = tuple(error for error in uncovered if only is None or error.where is None or error.where.path in only)
    read = {file.path for file in project.index.files}
    elsewhere = [each for each in found if each not in shown], [each for each in uncovered if each not in errors]
    return formats.Report(
        findings=shown,
        errors=errors,
        root=project.config.root,
        source=project.source,
        fix_of=lambda finding: rules.fix_for(finding, project),
        fixed=fixed,
        files=len(project.index.files),
        agents=len(project.definitions),
        asked=tuple(path for path in only or () if path in read),
        unread=tuple(path for path in only or () if path not in read),
        elsewhere=formats.counts(*elsewhere),
    )


def _uncovered(project: Project) -> list[GraphBusError]:
    """What stops a build and is not reported as a finding already."""
    return [error for error in project.errors if error.code not in rules.COVERED_ERRORS]


# --- what is shown --------------------------------------------------------------------------


def _show(report: formats.Report, wanted: Wanted) -> None:
    if wanted.form == "json":
        console.emit_json(formats.as_json(report))
    elif wanted.form == "sarif":
        console.emit_json(formats.as_sarif(report))
    elif wanted.form == "github":
        _write(formats.as_github(report))
    else:
        _show_text(report, wanted)


def _show_text(report: formats.Report, wanted: Wanted) -> None:
    for finding, fix in report.fixed:
        mark = console.paint("✓", "good")
        console.out(
            f"{mark} {console.plain(report.shown(finding.span.path))}: {finding.code} {console.plain(fix.title)}"
        )
    for error in report.errors:
        console.error(error)
    if wanted.is_statistics:
        _write(formats.statistics(report.findings))
    else:
        _write(formats.as_text(report))


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        console.out(line)


def _show_diff(project: Project, wanted: Wanted, only: Collection[str] | None) -> int:
    """What `--fix` would do, as a diff on stdout; fails when there is something to do, like `ruff --diff`."""
    from graphbus_core.cli.checking import fixing
    from graphbus_core.editing.edits import unified_diff

    mended = fixing.mend(project, fixing.Choice(wanted.select, wanted.ignore), only)
    errors = _uncovered(project)
    diffs = {path: unified_diff(path, before, after) for path, (before, after) in mended.files.items()}
    if wanted.form == "json":
        console.emit_json({"diffs": diffs, "errors": [console.describe(error) for error in errors]})
    else:
        for diff in diffs.values():
            console.diff(diff)
        for error in errors:
            console.error(error)
        console.say(f"{len(mended.fixed)} to mend in {console.counted(len(diffs), 'file')}; nothing was written.")
    return FAILED if (diffs or errors) and not wanted.is_exit_zero else 0


def _status(report: formats.Report, wanted: Wanted) -> int:
    counted = report.count("error") + report.count("warning") + (report.count("info") if wanted.is_strict else 0)
    return FAILED if counted and not wanted.is_exit_zero else 0
