"""Writes the accepted changes of a session to the source files, and makes one git commit for each proposal on request.

The record of the session then says whether its changes were written. `.graphbus/sessions/S001/commits.json` holds the ids of the
commits. It is written before the branch moves, so an id in it may belong to a commit that no branch has; git can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.commits import PlannedCommit, check_files, make_commits, open_for_commits
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.git import Repository
from graphbus_core.editing.promotion import promote, recover
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import EditError, GraphBusError, NegotiationError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, GateReport, Negotiations
from graphbus_core.negotiation.commit_message import commit_message
from graphbus_core.negotiation.transcript import load_session, record_application, sessions_dir
from graphbus_core.store.folders import Folder, read_plain
from graphbus_core.store.writing import encode_artifact, write_atomic


class AppliedSession(NamedTuple):
    """What writing a session has changed (a dry run: would change): files, path -> unified diff, and the project afterwards."""

    files: tuple[FileChange, ...]
    diffs: Mapping[str, str]
    project: Project


def apply_session(
    config: ResolvedBuild, negotiations: Negotiations, workspace: Workspace, report: GateReport | None
) -> AppliedSession:
    """Write the accepted changes to the source files, all or none, and commit them on request. A dry run writes nothing.

    Args:
        report: The report of the gate on all changes together; None without changes.

    Raises:
        NegotiationError: GBE409, they do not pass the gate together; GBE410, they are written and the record cannot say so;
            GBE435, they are written and cannot be committed.
        EditError: A file has changed meanwhile, or cannot be written.
    """
    changed = workspace.changed_files()
    diffs = {path: unified_diff(path, before, after) for path, (before, after) in changed.items()}
    accepted = [record.proposal for record in negotiations.records if record.status == "accepted"]
    try:
        if report and report.failure:
            reason = f"{report.failure.code}: {report.failure.message}"
            raise NegotiationError("GBE409", session=negotiations.session, reason=reason)
        if config.dry_run:
            return AppliedSession((), diffs, workspace.project)
        plan = plan_commits(config, negotiations.session, workspace) if config.makes_commits else CommitPlan(None, {})
        files = promote(config, changed, negotiations.session, accepted)
    except (EditError, NegotiationError) as error:
        with suppress(
            NegotiationError
        ):  # the error that is raised below matters more than a record that cannot be written
            record_application(config.artifacts_dir, negotiations.session, refusal=f"{error.sentence} [{error.code}]")
        raise
    if accepted:
        record_application(config.artifacts_dir, negotiations.session, is_applied=True)
    _commit_session(config, negotiations.session, plan)
    return AppliedSession(files, diffs, Project.read(config))


def end_interrupted(config: ResolvedBuild, *, writes_sources: bool) -> tuple[str, ...]:
    """Finish every promotion and undo that an earlier process left unfinished, so that no half of a change is read.

    Args:
        writes_sources: The caller will write source files. Then a foreign journal is an error, otherwise only a message.

    Returns:
        One sentence for the user about each.

    Raises:
        EditError: One cannot be brought to its end; GBE328, one is none of ours, or GBE322, it lies behind a link.
    """
    try:
        ended = recover(config)
    except EditError as error:
        if writes_sources or error.code not in {"GBE322", "GBE328"}:
            raise
        return (str(error),)
    for each in ended:
        if each.entry.kind == "promote" and each.is_completed:
            with suppress(NegotiationError):  # the files are complete, and the journal records that as well
                record_application(config.artifacts_dir, each.entry.session, is_applied=True)
    return tuple(each.sentence for each in ended)


# --- git commits -------------------------------------------------------------------------------


_FILE = "commits.json"
_CommitId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")]
"""Only such text is passed to git as a commit id: the file may have been edited by anybody."""


class MadeCommits(msgspec.Struct, frozen=True, kw_only=True):
    """commits.json.

    Attributes:
        branch: The full name of the branch of the commits; empty for a detached HEAD.
        before: The parent of the first commit.
        commits: Proposal id -> commit id, in the order of the commits.
    """

    branch: str
    before: str
    commits: dict[str, _CommitId]


class CommitPlan(NamedTuple):
    """The commits to make after the changes are written.

    Attributes:
        obstacle: Why nothing can be committed, if so.
    """

    repository: Repository | None
    steps: Mapping[str, PlannedCommit]
    obstacle: str = ""


def prepare_commits(config: ResolvedBuild, paths: Sequence[str]) -> str:
    """Check before the negotiation whether its commits can be made, so that no money is spent for nothing.

    Args:
        paths: The files with an agent in them.

    Returns:
        A warning about files with uncommitted changes, in sentences; empty if there are none.

    Raises:
        NegotiationError: GBE433, no commit can be made here.
        SeveralErrors: GBE434 for every file whose changes could not be committed.
    """
    if not config.makes_commits or config.dry_run:
        return ""
    repository = open_for_commits(config.root)
    check_files(repository, paths)
    dirty = repository.uncommitted(paths)
    if not dirty:
        return ""
    have, one = ("has", "it") if len(dirty) == 1 else ("have", "one of them")
    return (
        f"{', '.join(dirty)} {have} changes that are not committed. If an accepted proposal changes {one}, all that was accepted "
        "is written and no commit is made; commit first to have commits in any case."
    )


def plan_commits(config: ResolvedBuild, session: str, workspace: Workspace) -> CommitPlan:
    """Return the commits to make. Called before the changes are written: uncommitted changes can only be seen until then."""
    record = load_session(config.artifacts_dir, session)
    try:
        accepted = {one.proposal.proposal_id: one for one in record.negotiations.records}
        steps = {name: PlannedCommit(files, commit_message(record, accepted[name])) for name, files in workspace.steps}
        if not steps:
            return CommitPlan(None, {})
        repository = open_for_commits(config.root)
        touched = sorted({path for _, files in workspace.steps for path in files})
        check_files(repository, touched)
        dirty = repository.uncommitted(touched)  # `promote` makes sure that the disk is as the session found it
    except GraphBusError as refused:
        return CommitPlan(None, {}, _reason(refused))
    if dirty:
        return CommitPlan(None, {}, f"{', '.join(dirty)} had changes that were not committed before the session")
    return CommitPlan(repository, steps)


def _commit_session(config: ResolvedBuild, session: str, plan: CommitPlan) -> None:
    """Make the commits of a session whose changes are written.

    Raises:
        NegotiationError: GBE435, none was made.
    """
    if plan.obstacle:
        raise NegotiationError("GBE435", session=session, reason=plan.obstacle)
    if not plan.repository:
        return
    kept = sessions_dir(config.artifacts_dir) / session / _FILE
    repository, branch, before = plan.repository, plan.repository.branch(), plan.repository.head()
    made: list[str] = []

    def keep(ids: Sequence[str]) -> None:
        made.extend(ids)
        commits = dict(zip(plan.steps, ids, strict=True))
        write_atomic(kept, encode_artifact(MadeCommits(branch=branch, before=before, commits=commits)))

    try:
        make_commits(repository, tuple(plan.steps.values()), keep)
    except (GraphBusError, OSError) as refused:
        if made and repository.is_on_head(made[-1]):
            return  # the commits are on the branch; only a step after that has failed
        with suppress(OSError), Folder.at(kept.parent) as folder:
            folder.remove(_FILE)
        raise NegotiationError("GBE435", session=session, reason=_reason(refused)) from None


def _reason(refused: Exception) -> str:
    """Return the reason of an error as part of a sentence."""
    errors = getattr(refused, "errors", (refused,))
    return "; ".join(getattr(one, "sentence", str(one)).rstrip(".") for one in errors)


def load_commits(artifacts_dir: str | Path, session: str) -> MadeCommits | None:
    """Read the git commits of a session; None if it has none.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    path = sessions_dir(artifacts_dir) / session / _FILE
    try:
        return msgspec.json.decode(read_plain(path), type=MadeCommits)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NegotiationError("GBE405", session=session, reason=str(error), where=Place(str(path))) from error
