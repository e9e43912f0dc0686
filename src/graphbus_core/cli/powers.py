"""`graphbus powers`: show which powers are declared, and which ones the code uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.capability.sources import AllowedPackages, AnalyzedFiles
from graphbus_core.editing.rungs.capability.uses import notes_of
from graphbus_core.errors import BuildError, raise_all
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.powers import Power, Powers

_UNDECLARED = BuildError.exit_status
_MAX_PLACES = 3


@click.command("powers", short_help="Show which powers are declared, and which are used.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def powers(*, paths: tuple[str, ...], as_json: bool) -> int:
    """Show which powers [tool.graphbus.powers] declares, and which ones the agents in PATH and their imports use.

    The code is read, not run. Code that only reads files is not found this way; `graphbus run --confined` still refuses it.

    Exit status: 0 every power in use is declared; 2 wrong usage or settings; 3 one is not, or the sources cannot be read.

    \b
    Examples:
      graphbus powers
      graphbus powers agents/ --json
    """
    config = settings.resolve_build(BuildConfig(paths=paths))
    project = Project.read(config)
    raise_all(project.errors)
    declared = config.settings.powers
    uses = _powers_used(project)
    missing = tuple(use for use in uses if not getattr(declared, use.power))
    unused = tuple(
        power
        for power in _POWER_OF_CODE.values()
        if getattr(declared, power) and power not in {use.power for use in uses}
    )
    listed = [[use._asdict() for use in each] for each in (uses, missing)]
    document = {"declared": declared, "used": listed[0], "undeclared": listed[1], "unused": unused}
    console.print_result(document, _report_lines(declared, uses, missing, unused), as_json=as_json)
    return _UNDECLARED if missing else 0


def _report_lines(
    declared: Powers, uses: Sequence[_Use], missing: Sequence[_Use], unused: Sequence[Power]
) -> Iterator[str]:
    """Yield an error for each undeclared use, a note for each unused power, and a table of all powers."""
    for use in missing:
        message = f"{use.power} is used but not declared: {use.what}."
        yield f"{sanitize(f'{use.path}:{use.line}')}: {style('error', 'bad')}: {sanitize(message)}"
    for power in unused:
        yield f"{style('note', 'dim')}: {power} is declared, and no code was found that uses it."
    if missing or unused:
        yield ""
    rows = [("power", "declared", "used in"), *_power_rows(declared, uses)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    yield from (sanitize(f"{name:{widths[0]}}  {value:{widths[1]}}  {places}") for name, value, places in rows)
    if not missing:
        yield f"{style('✓', 'good')} Every power that is used is declared."


def _power_rows(declared: Powers, uses: Sequence[_Use]) -> Iterator[tuple[str, str, str]]:
    """Yield name, declared value and places of use of each power."""
    for power in get_args(Power):
        value = getattr(declared, power)
        words = "yes" if value is True else ", ".join(value) if value else "no"
        places = list(dict.fromkeys(f"{use.path}:{use.line}" for use in uses if use.power == power))
        more = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
        nowhere = "nowhere" if power in _POWER_OF_CODE.values() else "(not looked for)"
        yield power, words, ", ".join(places[:_MAX_PLACES]) + more or nowhere


# --- what the code uses, read from its text ----------------------------------------------------

_POWER_OF_CODE: dict[str, Power] = {
    "G3.network": "network",
    "G3.files": "write",
    "G3.process": "processes",
    "G3.environment": "environment",
}
"""Code of rung G3 -> its power. Reading files is left out: a project reads mostly its own files."""


class _Use(NamedTuple):
    """A place where the code uses a power; `what` names the use."""

    path: str
    line: int
    power: Power
    what: str


def _powers_used(project: Project) -> tuple[_Use, ...]:
    """Return every use of a power, sorted by place."""
    paths = {*project.agent_files, *(path for path in project.imports.files if path.endswith(".py"))}
    files = AnalyzedFiles(project.index, project.reader, AllowedPackages(frozenset(), is_everything=True))
    return tuple(sorted({use for path in paths for use in _find_uses(files, path)}))


def _find_uses(files: AnalyzedFiles, path: str) -> Iterator[_Use]:
    """Yield the uses of powers in a file; the import of a module alone uses none."""
    file = files.file(path)
    for sign in notes_of(file).signs if file else ():
        if sign.code in _POWER_OF_CODE and not sign.what.startswith("the import of"):
            yield _Use(path, sign.line, _POWER_OF_CODE[sign.code], sign.what)
