"""Writes the accepted changes of a session to the source files, and makes one git commit for each proposal on request.

The record of the session then says whether its changes were written. `.graphbus/sessions/S001/commits.json` holds the ids of the
git commits. It is written before the branch moves, so after a crash it may name commits that are on no branch.
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
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, GateReport, Negotiations
from graphbus_core.negotiation.commit_message import commit_message
from graphbus_core.negotiation.transcript import load_session, record_application, sessions_dir
from graphbus_core.store.folders import Folder, read_plain
from graphbus_core.store.writing import encode_artifact, write_atomic


class AppliedSession(NamedTuple):
    """What a session has changed.

    Attributes:
        files: The files that were written; empty in a dry run.
        diffs: Path -> unified diff of each change; in a dry run of the changes that would be written.
        project: The project with the changes.
    """

    files: tuple[FileChange, ...]
    diffs: Mapping[str, str]
    project: Project


def apply_session(
    config: ResolvedBuild, negotiations: Negotiations, workspace: Workspace, report: GateReport | None
) -> AppliedSession:
    """Write the accepted changes to the source files, all or none, and commit them on request. A dry run writes nothing.

    The record of the session then says whether they were written, or why not.

    Args:
        config: The settings of the build.
        negotiations: The records of the session.
        workspace: The workspace with all accepted changes.
        report: The report of the gate on all changes together; None if there are no changes.

    Raises:
        NegotiationError: GBE409, the changes do not pass the gate together; GBE410, they were written, but the record could not
            be updated; GBE435, they were written, but not committed.
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
        with suppress(NegotiationError):  # do not hide the error that is raised below
            refusal = remove_paths(f"{error.sentence} [{error.code}]")
            record_application(config.artifacts_dir, negotiations.session, refusal=refusal)
        raise
    if accepted:
        record_application(config.artifacts_dir, negotiations.session, is_applied=True)
    _commit_session(config, negotiations.session, plan)
    return AppliedSession(files, diffs, Project.read(config))


def end_interrupted(config: ResolvedBuild, *, writes_sources: bool) -> tuple[str, ...]:
    """Complete or reverse every interrupted promotion and undo, so that nobody reads a change that is half written.

    Args:
        config: The settings of the build.
        writes_sources: The caller will write source files: then GBE322 and GBE328 are raised, not returned as a sentence.

    Returns:
        One sentence for the user about each promotion or undo.

    Raises:
        EditError: One can be neither completed nor reversed; GBE322, its journal lies behind a link; GBE328, this user's
            GraphBus has not written the journal.
    """
    try:
        ended = recover(config)
    except EditError as error:
        if writes_sources or error.code not in {"GBE322", "GBE328"}:
            raise
        return (str(error),)
    for each in ended:
        if each.entry.kind == "promote" and each.is_completed:
            with suppress(NegotiationError):  # the files are complete, and the journal says so too
                record_application(config.artifacts_dir, each.entry.session, is_applied=True)
    return tuple(each.sentence for each in ended)


# --- git commits -------------------------------------------------------------------------------


_FILE = "commits.json"
_CommitId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")]
"""Only such text is passed to git as a commit id: the file may have been edited by anybody."""


class MadeCommits(msgspec.Struct, frozen=True, kw_only=True):
    """The content of commits.json: the git commits of a session.

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
        repository: None if there is nothing to commit or an obstacle.
        steps: Proposal id -> its git commit, in the order of the commits.
        obstacle: Why nothing can be committed; empty if nothing prevents it.
    """

    repository: Repository | None
    steps: Mapping[str, PlannedCommit]
    obstacle: str = ""


def prepare_commits(config: ResolvedBuild, paths: Sequence[str]) -> str:
    """Check before a negotiation whether git commits, if they are requested, can be made; in a dry run do nothing.

    Args:
        config: The settings of the build.
        paths: The files with an agent in them.

    Returns:
        A warning about files with uncommitted changes, in sentences; empty if there are none.

    Raises:
        NegotiationError: GBE433, no commit can be made here.
            GBE434, changes to a file could not be committed.
        SeveralErrors: GBE434 for more than one file.
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
    """Return the git commits to make for the accepted proposals, or the obstacle that prevents them.

    It must be called before the changes are written: afterwards the user's uncommitted changes cannot be distinguished from them.

    Raises:
        NegotiationError: GBE405, the record of the session cannot be read.
    """
    record = load_session(config.artifacts_dir, session)
    try:
        accepted = {one.proposal.proposal_id: one for one in record.negotiations.records}
        steps = {name: PlannedCommit(files, commit_message(record, accepted[name])) for name, files in workspace.steps}
        if not steps:
            return CommitPlan(None, {})
        repository = open_for_commits(config.root)
        touched = sorted({path for _, files in workspace.steps for path in files})
        check_files(repository, touched)
        dirty = repository.uncommitted(touched)  # `promote` refuses files that change after this
    except GraphBusError as refused:
        return CommitPlan(None, {}, _join_reasons(refused))
    if dirty:
        return CommitPlan(None, {}, f"{', '.join(dirty)} had changes that were not committed before the session")
    return CommitPlan(repository, steps)


def _commit_session(config: ResolvedBuild, session: str, plan: CommitPlan) -> None:
    """Make the planned git commits of a session whose changes are written, and save their ids; without a plan do nothing.

    Raises:
        NegotiationError: GBE435, there is an obstacle, or git failed; no commit was made.
    """
    if plan.obstacle:
        raise NegotiationError("GBE435", session=session, reason=plan.obstacle)
    if not plan.repository:
        return
    ids_path = sessions_dir(config.artifacts_dir) / session / _FILE
    repository, branch, before = plan.repository, plan.repository.branch(), plan.repository.head()
    made: list[str] = []

    def save_ids(ids: Sequence[str]) -> None:
        """Write commits.json before HEAD moves."""
        made.extend(ids)
        commits = dict(zip(plan.steps, ids, strict=True))
        write_atomic(ids_path, encode_artifact(MadeCommits(branch=branch, before=before, commits=commits)))

    try:
        make_commits(repository, tuple(plan.steps.values()), save_ids)
    except (GraphBusError, OSError) as refused:
        if made and repository.is_on_head(made[-1]):
            return  # the commits are on the branch; only a step after that has failed
        with suppress(OSError), Folder.at(ids_path.parent) as folder:
            folder.remove(_FILE)
        raise NegotiationError("GBE435", session=session, reason=_join_reasons(refused)) from None


def _join_reasons(refused: Exception) -> str:
    """Return the sentence of an error, or those of several joined by semicolons, as part of a sentence."""
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
