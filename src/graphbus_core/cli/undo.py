"""`graphbus undo`: the files of a session get back the bytes that they had before it, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from graphbus_core.cli import console
from graphbus_core.model.config import ResolvedBuild


@click.command("undo", short_help="Take back what a negotiation changed.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option("--dry-run", is_flag=True, help="Say what would be restored, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def undo(session: str, dry_run: bool, as_json: bool) -> None:
    """Take back what a negotiation changed: the last one, or SESSION.

    Nothing happens if one of the files was changed since. The artifacts are not touched: run `graphbus build` afterwards.
    Nor are git commits: those of the session are named, for `git revert`.

    Exit status: 0 done; 4 there is nothing to undo, or a file was changed since.

    \b
    Examples:
      graphbus undo
      graphbus undo S001 --dry-run
    """
    from graphbus_core import settings
    from graphbus_core.build import end_interrupted
    from graphbus_core.editing import workspace

    root = settings.find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings.load(root))
    for told in () if dry_run else end_interrupted(config, writes_sources=True):
        console.say(console.plain(told))
    session = workspace.last_session(config, session)
    files = workspace.undo(config, session, dry_run=dry_run)
    commits = _commits(config, session)
    if as_json:
        console.emit_json({"session": session, "dry_run": dry_run, "files": files, "git_commits": commits})
        return
    done = "Would restore" if dry_run else console.paint("✓", "good") + " Restored"
    for file in files:
        console.out(f"{done}: {console.plain(file.path)}")
    if not dry_run:
        console.say(f"{console.plain(session)} is undone. The artifacts are those from before: run `graphbus build`.")
        if commits:
            console.say(_advice(commits))


def _commits(config: ResolvedBuild, session: str) -> dict[str, str]:
    """Give the git commits of the session that are part of the history here, the last one first: proposal -> id."""
    from contextlib import suppress

    from graphbus_core.editing.git import Repository
    from graphbus_core.errors import NegotiationError
    from graphbus_core.negotiation.apply import load_commits

    with suppress(NegotiationError):  # the files are restored, whatever git says
        made = load_commits(config.artifacts_dir, session)
        repository = Repository.find(config.root) if made else None
        if made and repository:
            return {name: one for name, one in reversed(made.commits.items()) if repository.is_on_head(one)}
    return {}


def _advice(commits: Mapping[str, str]) -> str:
    known = ", ".join(f"{commit[:10]} ({console.plain(name)})" for name, commit in commits.items())
    reverted = " ".join(commit[:10] for commit in commits.values())
    return (
        f"Its git commits stay in the history: {known}. Commit the restored files;\n"
        f"or put them back with `git restore` and let git take it back: git revert {reverted}"
    )
