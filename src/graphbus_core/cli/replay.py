"""`graphbus replay`: a session once more on its recorded answers, and whether every byte is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.errors import NegotiationError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.replay import Replay
from graphbus_core.negotiation.replay import replay as run_again


@click.command("replay", short_help="Run a session again on its record, and compare.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option("--verify", is_flag=True, help="Exit with status 5 if anything differs.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def replay(session: str, verify: bool, as_json: bool) -> None:
    """Run SESSION, or the one in .graphbus/negotiation.lock, again and compare its record, files and artifacts.

    No model is asked and nothing is written: the answers are those of the record, and the gate works in a copy of the
    project. In a fresh clone the lock alone is enough.

    Exit status: 0 done; 3 the lock cannot be read; 5 there is no such session, it cannot be run again, or with
    --verify something differs.

    \b
    Examples:
      graphbus replay --verify
      graphbus replay S001
    """

    root = settings.find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings.load(root))
    done = run_again(config, session)
    console.result({**done._asdict(), "is_identical": not done.differences}, _lines(done), as_json=as_json)
    if verify and done.differences:
        raise NegotiationError("GBE424", session=done.session, what=done.differences[0])


def _lines(done: Replay) -> Iterator[str]:
    answers = console.counted(done.requests, "recorded answer")
    yield f"Replayed {console.plain(done.session)} from {done.source}: {answers}, no model asked."
    for path in done.files:
        yield f"  {console.plain(path)}{', edited since: compared as the session left it' if path in done.edited else ''}"
    for difference in done.differences:
        yield console.paint(f"  different: {console.plain(difference)}", "warn")
    if not done.differences:
        yield f"{console.paint('✓', 'good')} Record, files and artifacts are the same, byte for byte."
