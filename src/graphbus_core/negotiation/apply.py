"""From an agreement to the source files, and to one git commit for each accepted proposal if that was asked for.

The record of the session says what became of its changes. `.graphbus/sessions/S001/commits.json` holds the ids of the commits; it
is written before a branch has them: whether one does, git knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.commits import Step, changed_before, check_files, make_commits, open_for_commits
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.git import Repository
from graphbus_core.editing.promotion import promote, recover
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import EditError, GraphBusError, NegotiationError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, GateReport, Negotiations
from graphbus_core.negotiation.commit_message import message_of
from graphbus_core.negotiation.transcript import SessionRecord, load_session, sessions_dir, settle_session
from graphbus_core.store.beneath import Folder, read_plain
from graphbus_core.store.writing import encode, write_atomic


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
        if report and report.failure:
            reason = f"{report.failure.code}: {report.failure.message}"
            raise NegotiationError("GBE409", session=negotiations.session, reason=reason)
        if config.dry_run:
            return Landed((), diffs, workspace.project)
        plan = plan_commits(config, negotiations.session, workspace) if config.makes_commits else Plan(None, {})
        files = promote(config, changed, negotiations.session, accepted)
    except (EditError, NegotiationError) as error:
        with suppress(
            NegotiationError
        ):  # the record says why nothing was written; a failure to do so must not hide that
            settle_session(config.artifacts_dir, negotiations.session, refusal=f"{error.sentence} [{error.code}]")
        raise
    if accepted:
        settle_session(config.artifacts_dir, negotiations.session, is_applied=True)
    commit_session(config, negotiations.session, plan)
    return Landed(files, diffs, Project.read(config))


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


# --- git commits -------------------------------------------------------------------------------


_FILE = "commits.json"
_SHOWN = 6
"""So many names of files are read by a person."""
_CommitId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")]
"""Nothing else is ever given to git in the place of one."""


class MadeCommits(msgspec.Struct, frozen=True, kw_only=True):
    """commits.json.

    Attributes:
        branch: The full name of the branch that they were made on; empty for a detached HEAD.
        before: The commit that they were made on top of.
        commits: Proposal id -> commit id, in the order of the commits.
    """

    branch: str
    before: str
    commits: dict[str, _CommitId]


class Plan(NamedTuple):
    """What is to be committed after the changes are written.

    Attributes:
        obstacle: Why nothing can be committed, if so.
    """

    repository: Repository | None
    steps: Mapping[str, Step]
    obstacle: str = ""


def prepare_commits(config: ResolvedBuild, paths: Sequence[str]) -> str:
    """Refuse now what would be refused after the money is spent, and warn of what may be.

    Args:
        paths: The files with an agent in them.

    Returns:
        Which of them have changes that are not committed, and what follows, in sentences; empty if none has.

    Raises:
        NegotiationError: GBE433, no commit can be made here.
        SeveralErrors: GBE434 for every file whose changes could not be committed.
    """
    if not config.makes_commits or config.dry_run:
        return ""
    repository = open_for_commits(config.root)
    check_files(repository, paths)
    dirty = changed_before(repository, {path: Path(config.root, path).read_bytes() for path in paths})
    if not dirty:
        return ""
    have, one = ("has", "it") if len(dirty) == 1 else ("have", "one of them")
    return (
        f"{_names(dirty)} {have} changes that are not committed. If an accepted proposal changes {one}, all that was accepted is "
        "written and no commit is made; commit first to have commits in any case."
    )


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(paths[:_SHOWN]) + (f" and {more} more files" if more > 0 else "")


def plan_commits(config: ResolvedBuild, session: str, workspace: Workspace) -> Plan:
    """Say which commits are to be made, before the changes are written: afterwards nobody knows what was there before."""
    record = load_session(config.artifacts_dir, session)
    try:
        steps = _steps(record, workspace)
        repository = open_for_commits(config.root) if steps else None
        if repository is None:
            return Plan(None, {})
        touched = {path for _, files in workspace.steps for path in files}
        base = {path: workspace.base.source(path).data for path in sorted(touched)}
        check_files(repository, tuple(base))
        dirty = changed_before(repository, base)
    except GraphBusError as refused:
        return Plan(None, {}, _reason(refused))
    if dirty:
        return Plan(None, {}, f"{_names(dirty)} had changes that were not committed before the session")
    return Plan(repository, steps)


def _steps(record: SessionRecord, workspace: Workspace) -> dict[str, Step]:
    """Give proposal id -> its commit, in the order in which the proposals came into the workspace.

    Raises:
        NegotiationError: GBE433, they do not add up to what is in the workspace.
    """
    accepted = {one.proposal.proposal_id: one for one in record.negotiations.records if one.status == "accepted"}
    end: dict[str, bytes] = {}
    for _, files in workspace.steps:
        end |= files
    names = [proposal_id for proposal_id, _ in workspace.steps]
    is_whole = all(end.get(path) == after for path, (_, after) in workspace.changed().items())
    if not is_whole or sorted(names) != sorted(accepted):
        reason = "the accepted proposals do not add up to what was accepted"
        raise NegotiationError("GBE433", reason=reason, advice="Commit by hand what was written.")
    return {name: Step(files, message_of(record, accepted[name])) for name, files in workspace.steps}


def commit_session(config: ResolvedBuild, session: str, plan: Plan) -> tuple[str, ...]:
    """Make the commits of a session whose changes are written.

    Returns:
        Their ids, in order.

    Raises:
        NegotiationError: GBE435, none was made.
    """
    if plan.obstacle:
        raise NegotiationError("GBE435", session=session, reason=plan.obstacle)
    if not plan.repository or not plan.steps:
        return ()
    kept = sessions_dir(config.artifacts_dir) / session / _FILE
    repository, branch, before = plan.repository, plan.repository.branch(), plan.repository.head()
    made: list[str] = []

    def keep(ids: Sequence[str]) -> None:
        made.extend(ids)
        commits = dict(zip(plan.steps, ids, strict=True))
        write_atomic(kept, encode(MadeCommits(branch=branch, before=before, commits=commits)))

    try:
        make_commits(repository, tuple(plan.steps.values()), keep)
    except (GraphBusError, OSError) as refused:
        if not made or not repository.is_on_head(
            made[-1]
        ):  # else HEAD has moved, and only what comes after it has failed
            with suppress(OSError), Folder.at(kept.parent) as folder:
                folder.remove(_FILE)
            raise NegotiationError("GBE435", session=session, reason=_reason(refused)) from None
    return tuple(made)


def _reason(refused: Exception) -> str:
    """Give a refusal as part of a sentence."""
    errors = getattr(refused, "errors", (refused,))
    return "; ".join(getattr(one, "sentence", str(one)).rstrip(".") for one in errors)


def load_commits(artifacts_dir: str | Path, session: str) -> MadeCommits | None:
    """Read which commits were made of a session; None for none.

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
