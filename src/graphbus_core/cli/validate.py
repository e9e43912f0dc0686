"""`graphbus validate`: are the artifacts whole, and do they still describe the source files?"""

from __future__ import annotations

from pathlib import Path

import click

from graphbus_core import store
from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.errors import raise_all


@click.command("validate", short_help="Verify artifacts and source files.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def validate(*, artifacts: str, as_json: bool) -> int:
    """Verify what a build wrote to ARTIFACTS, a folder (.graphbus by default).

    Each artifact must have the shape and the digest that the manifest promises, and each source file must be what it was
    when it was built. Every problem is shown, not only the first.

    Exit status: 0 everything fits; 6 a problem was found.

    \b
    Examples:
      graphbus validate
      graphbus validate .graphbus/ --json
    """
    folder = Path(artifacts)
    problems = store.find_problems(folder)
    if as_json:
        described = [console.describe(problem) for problem in problems]
        console.emit_json({"artifacts": artifacts, "is_valid": not problems, "problems": described})
        return problems[0].exit_status if problems else 0
    raise_all(problems)
    manifest = store.load_manifest(folder)
    count = len(manifest.sources)
    console.out(
        f"{paint('✓', 'good')} {plain(artifacts)}: {len(manifest.artifacts)} artifacts are whole and describe "
        f"{count} source {'file' if count == 1 else 'files'} as {'it is' if count == 1 else 'they are'}."
    )
    return 0
