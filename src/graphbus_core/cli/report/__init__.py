"""`graphbus report`: write a session as one self-contained HTML page, or the same facts as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click

from graphbus_core.cli import console
from graphbus_core.errors import GraphBusError, Place, UsageError
from graphbus_core.model.artifacts import Edge, GraphArtifact
from graphbus_core.model.config import ResolvedBuild

_STDOUT = "-"
_MARK = b"GraphBus report"  # near the beginning of each report; a file without it is not overwritten
_MARK_WITHIN_BYTES = 4000


@click.command("report", short_help="Write a session as one HTML page.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option(
    "-o",
    "--output",
    default="",
    metavar="FILE",
    help="The file to write; `-` is stdout (graphbus-report-SESSION.html).",
)
@click.option("--json", "as_json", is_flag=True, help="Write the same facts as one JSON document to stdout.")
@click.option("--force", is_flag=True, help="Overwrite a file that is not a report.")
def report(*, session: str, output: str, as_json: bool, force: bool) -> None:
    """Write SESSION, by default the last one, as one HTML page: outcome, timeline, graph, changes, gate, votes and cost.

    The page needs no network, and the same session always gives the same bytes. `graphbus inspect-negotiation` shows the
    same facts in the terminal.

    Exit status: 0 done; 2 the file exists and is not a report, or cannot be written; 5 there is no such session.

    \b
    Examples:
      graphbus report
      graphbus report S001 -o report.html
      graphbus report --json | jq .outcome
    """
    from graphbus_core.cli.report.page import render_page
    from graphbus_core.cli.report.story import load_story
    from graphbus_core.settings import find_root, load

    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=load(root), dry_run=True)
    story = load_story(config, session, _find_edges(config))
    data = f"{json.dumps(story.facts(), indent=2)}\n".encode("ascii") if as_json else render_page(story)
    output = output or (_STDOUT if as_json else f"graphbus-report-{story.record.session}.html")
    if output == _STDOUT:
        console.print_line(data.decode("ascii"), end="")
        return
    path = Path(output)
    _write_report(path, data, is_forced=force)
    size = f"{len(data) / 1000:,.0f} kB, session {story.record.session}"
    console.print_note(f"{console.style('✓', 'good')} {console.sanitize(str(path))}: {size}")


def _find_edges(config: ResolvedBuild) -> tuple[Edge, ...] | None:
    """Return the edges of the last build or, without artifacts, of the source files; None if neither can be read."""
    from graphbus_core import store
    from graphbus_core.compiler.project import Project

    try:
        return store.load_artifact(Path(config.artifacts_dir), GraphArtifact).edges
    except GraphBusError:
        pass
    try:
        return Project.read(config).graph.edges
    except GraphBusError:
        return None


def _write_report(path: Path, data: bytes, *, is_forced: bool) -> None:
    """Write the report atomically.

    Raises:
        UsageError: GBE147, the file is not a report and `is_forced` is false; GBE149, it cannot be written.
    """
    from graphbus_core.store.folders import Folder
    from graphbus_core.store.writing import refuse_special

    try:
        refuse_special(path)  # a pipe or device: reading it could block forever
        if (
            not is_forced
            and path.exists()
            and path.stat().st_size
            and _MARK not in path.read_bytes()[:_MARK_WITHIN_BYTES]
        ):
            raise UsageError("GBE147", where=Place(str(path)))
        with Folder.at(path.parent.resolve()) as folder:
            folder.write_atomic(path.name, data)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError("GBE149", reason=reason, where=Place(str(path))) from error
