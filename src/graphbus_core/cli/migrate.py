"""`graphbus migrate`: artifacts of an older format are brought to the format of today."""

from __future__ import annotations

from collections.abc import Mapping

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.store import migration


@click.command("migrate", short_help="Bring artifacts to the format of today.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@click.option("--diff", "is_diff", is_flag=True, help="Show what would change, line by line; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def migrate(*, artifacts: str, dry_run: bool, is_diff: bool, as_json: bool) -> None:
    """Bring what an older GraphBus wrote to ARTIFACTS, a folder (.graphbus by default), to the format of today. A project stands
    for the folder in it.

    All files are replaced or none, and a damaged artifact is refused as it is. What the old format does not say is read from the
    source files, which must be those that the artifacts describe; nothing is guessed. Agents, negotiations and their digests stay
    what they are, so that the lock still holds.

    Exit status: 0 done, also when nothing is old; 6 the artifacts are missing or damaged, or do not describe the sources.

    \b
    Examples:
      graphbus migrate
      graphbus migrate --diff
      graphbus migrate build/.graphbus --json
    """
    from graphbus_core.compiler.project import learn_imports

    folder = migration.folder_in(artifacts)
    artifacts = str(folder)
    is_dry = dry_run or is_diff
    done = migration.migrate(folder, lambda known: learn_imports(folder, known), dry_run=is_dry)
    if as_json:
        console.emit_json(
            {
                "artifacts": artifacts,
                "dry_run": is_dry,
                "from": done.before,
                "to": done.after,
                "changed": sorted(done.changed),
                "imports": done.learned.imports,
                "third_party": done.learned.third_party,
            }
        )
    elif done.before == done.after:
        console.out(f"{paint('✓', 'good')} {plain(artifacts)} has format {done.after} already: nothing to do.")
    else:
        if is_diff:
            _show_changes(artifacts, done.changed)
        _sum_up(artifacts, done, is_dry=is_dry)


def _show_changes(artifacts: str, changed: Mapping[str, tuple[bytes, bytes]]) -> None:
    from difflib import unified_diff

    for name, (before, after) in changed.items():
        lines = before.decode().splitlines(), after.decode().splitlines()
        path = f"{artifacts.rstrip('/')}/{name}"
        console.diff("\n".join(unified_diff(*lines, f"a/{path}", f"b/{path}", lineterm="")))


def _sum_up(artifacts: str, done: migration.Migrated, *, is_dry: bool) -> None:
    verb = "Would bring" if is_dry else f"{paint('✓', 'good')} Brought"
    console.out(f"{verb} {plain(artifacts)} from format {done.before} to {done.after}: {', '.join(done.changed)}")
    files, packages = len(done.learned.imports), done.learned.third_party
    if packages or files:
        own = f"{files} {'file' if files == 1 else 'files'} of the project"
        others = ", ".join(map(plain, packages)) or "no package of others"
        console.out(f"  the agents import {own}, and {others}")
