"""`graphbus undo`: the files of a session get back the bytes that they had before it, all of them or none."""

from __future__ import annotations

from pathlib import Path

import click

from graphbus_core.cli import console


@click.command("undo", short_help="Take back what a negotiation changed.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option("--dry-run", is_flag=True, help="Say what would be restored, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def undo(session: str, dry_run: bool, as_json: bool) -> None:
    """Take back what a negotiation changed: the last one, or SESSION.

    Nothing happens if one of the files was changed since. The artifacts are not touched: run `graphbus build` afterwards.

    \b
    Examples:
      graphbus undo
      graphbus undo S001 --dry-run
    """
    from graphbus_core import settings
    from graphbus_core.build import end_interrupted
    from graphbus_core.editing import workspace
    from graphbus_core.model.config import BuildConfig

    root = settings.find_root([Path.cwd()])
    config = BuildConfig(root=str(root), paths=(str(root),), settings=settings.load(root))
    for ended in () if dry_run else end_interrupted(config):
        console.say(console.plain(ended.told))
    session = workspace.last_session(config, session)
    files = workspace.undo(config, session, dry_run=dry_run)
    if as_json:
        console.emit_json({"session": session, "dry_run": dry_run, "files": files})
        return
    done = "Would restore" if dry_run else console.paint("✓", "good") + " Restored"
    for file in files:
        console.out(f"{done}: {console.plain(file.path)}")
    if not dry_run:
        console.say(f"{console.plain(session)} is undone. The artifacts are those from before: run `graphbus build`.")
