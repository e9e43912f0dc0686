"""From an agreement to the source files: write the accepted changes, and note that in the session's record."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.promotion import promote, recover
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import EditError, NegotiationError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, GateReport, Negotiations
from graphbus_core.negotiation.committing import Plan, commit_session, plan_commits
from graphbus_core.negotiation.transcript import settle_session


class Landed(NamedTuple):
    """What was written, or would have been in a dry run: the files, path -> unified diff, and the sources afterwards."""

    files: tuple[FileChange, ...]
    diffs: Mapping[str, str]
    project: Project


def land(config: ResolvedBuild, negotiations: Negotiations, workspace: Workspace, report: GateReport | None) -> Landed:
    """Write the accepted changes to the source files, all or none, and commit them if that was asked for.

    In a dry run, only say what they are.

    Args:
        report: What the gate says of all changes together; None when there is none.

    Raises:
        NegotiationError: GBE409, they do not pass the gate together; GBE410, they are written and the record cannot say so;
            GBE435, they are written and cannot be committed.
        EditError: A file has changed meanwhile, or cannot be written.
    """
    changed = workspace.changed()
    diffs = {path: unified_diff(path, before, after) for path, (before, after) in changed.items()}
    accepted = [record.proposal for record in negotiations.records if record.status == "accepted"]
    try:
        if report and not report.passed:
            raise NegotiationError("GBE409", session=negotiations.session, reason=_refusal(report))
        if config.dry_run:
            return Landed((), diffs, workspace.project)
        plan = plan_commits(config, negotiations.session, workspace) if config.makes_commits else Plan(None, {})
        files = promote(config, changed, negotiations.session, accepted)
    except (EditError, NegotiationError) as error:
        _refuse_session(config, negotiations.session, f"{error.sentence} [{error.code}]")
        raise
    if accepted:
        settle_session(config.artifacts_dir, negotiations.session, is_applied=True)
    commit_session(config, negotiations.session, plan)
    return Landed(files, diffs, Project.read(config))


def _refusal(report: GateReport) -> str:
    failure = report.failure
    return f"{failure.code}: {failure.message}" if failure else ""


_NOT_OURS = ("GBE322", "GBE328")


def end_interrupted(config: ResolvedBuild, *, writes_sources: bool) -> tuple[str, ...]:
    """End every promotion and undo that an earlier process left unfinished, so that nobody reads half of a change.

    Args:
        writes_sources: The caller is going to write source files. Then a foreign journal is an error; else it is only reported.

    Returns:
        The messages for the user, one sentence each.

    Raises:
        EditError: One cannot be brought to its end; GBE328, one is none of ours, or GBE322, it lies behind a link.
    """
    try:
        ended = recover(config)
    except EditError as error:
        if writes_sources or error.code not in _NOT_OURS:
            raise
        return (str(error),)
    for each in ended:
        if each.kind == "promote" and each.is_completed:
            with suppress(NegotiationError):  # the files are right, and the journal knows it too
                settle_session(config.artifacts_dir, each.session, is_applied=True)
    return tuple(each.told for each in ended)


def _refuse_session(config: ResolvedBuild, session: str, reason: str) -> None:
    """Note in the record why nothing was written; a failure to do so must not hide that reason."""
    with suppress(NegotiationError):
        settle_session(config.artifacts_dir, session, refusal=reason)
