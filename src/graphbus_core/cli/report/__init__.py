"""`graphbus report`: a session as one HTML page that needs nothing but a browser, or as the same facts in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from graphbus_core.cli import console
from graphbus_core.cli.report.story import Fate, Story
from graphbus_core.errors import GraphBusError, NegotiationError, Place, UsageError
from graphbus_core.model.artifacts import Edge, GraphArtifact
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.transcript import Said, load_session, load_transcript, sessions_dir

Format = Literal["html", "json"]
_STDOUT = "-"
_SIGNS: dict[Format, bytes] = {
    "html": b'<meta name="generator" content="GraphBus report">',
    "json": b'"generator": "GraphBus report"',
}
_BEGINNING_BYTES = 4000


@click.command("report", short_help="Write a session as one HTML page.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option(
    "-o", "--output", default="", metavar="FILE", help="Where to; `-` is stdout. Default: graphbus-report-SESSION.html."
)
@click.option(
    "--format", "form", type=click.Choice(["html", "json"]), help="A page (default), or the same facts as JSON."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json --output -.")
@click.option("--force", is_flag=True, help="Write over a file that is no report.")
def report(*, session: str, output: str, form: Format | None, as_json: bool, force: bool) -> None:
    """Write what happened in SESSION, the last one by default, as one HTML page.

    Outcome, timeline, graph, changes, gate, votes and cost. The page asks no network for anything, and the same session
    gives the same bytes.

    Exit status: 0 done; 2 another file is in its place, or it cannot be written; 5 there is no such session.

    \b
    Examples:
      graphbus report
      graphbus report S001 -o report.html
      graphbus report --json | jq .outcome
    """
    if as_json:
        _refuse_contradictions(output, form)
        form, output = "json", _STDOUT
    story = tell(session)
    form = form or "html"
    if form == "html":
        from graphbus_core.cli.report.page import page

        made = page(story)
    else:
        made = f"{json.dumps(story.facts(), indent=2)}\n".encode("ascii")
    if output == _STDOUT:
        console.out(made.decode("ascii"), end="")
        return
    path = Path(output or f"graphbus-report-{story.record.session}.{form}")
    _write(path, made, is_forced=force)
    console.say(
        f"{console.paint('✓', 'good')} {console.plain(str(path))}: {len(made) / 1000:,.0f} kB, session {story.record.session}"
    )


def _refuse_contradictions(output: str, form: Format | None) -> None:
    for option, is_other in (("--output", output not in {"", _STDOUT}), ("--format", form == "html")):
        if is_other:
            raise UsageError("GBE132", option="--json", other=option, reason="it writes JSON to stdout")


def tell(session: str) -> Story:
    """Read all that is known of a session.

    Raises:
        NegotiationError: GBE403 there is none, GBE404 there is no such one, GBE405 it cannot be read.
        EditError: The journal cannot be read.
    """
    import msgspec

    from graphbus_core.editing.promotion import fate_of
    from graphbus_core.settings import find_root, load

    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=load(root), dry_run=True)
    record = load_session(config.artifacts_dir, session)
    fate: Fate = fate_of(config, record.session)
    try:
        return Story(record, _edges(config), _said(config, record.session), fate)
    except msgspec.ValidationError as error:
        where = Place(str(sessions_dir(config.artifacts_dir) / record.session))
        raise NegotiationError("GBE405", session=record.session, reason=str(error), where=where) from error


def _said(config: ResolvedBuild, session: str) -> tuple[Said, ...]:
    """Give the transcript; where it was removed the record alone speaks."""
    has_transcript = (sessions_dir(config.artifacts_dir) / session / "transcript.jsonl").exists()
    return load_transcript(config.artifacts_dir, session) if has_transcript else ()


def _edges(config: ResolvedBuild) -> tuple[Edge, ...] | None:
    """Give the edges of the last build, else those that the sources show now; None when neither can be read."""
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


def _write(path: Path, made: bytes, *, is_forced: bool) -> None:
    from graphbus_core.store.beneath import Folder
    from graphbus_core.store.writing import refuse_special

    where = Place(str(path))
    try:
        refuse_special(path)  # to look into a pipe would take for ever
        if not is_forced and path.exists() and not _is_report(path):
            raise UsageError("GBE147", where=where)
        with Folder.at(path.parent.resolve()) as folder:
            folder.put(path.name, made)
    except OSError as error:
        raise UsageError("GBE149", reason=(error.strerror or str(error)).lower(), where=where) from error


def _is_report(path: Path) -> bool:
    """True for what an earlier `graphbus report` wrote, and for an empty file."""
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING_BYTES)
    return not beginning or any(sign in beginning for sign in _SIGNS.values())
