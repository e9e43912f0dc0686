"""Finds the accepted proposal that wrote each line of a file: in the journal, or if the session was deleted, in git commits.

The journal has the text of a file before and after each session, the record the diff of each proposal in between. A person may
edit the file between two sessions:

    before S001 -P001-> -P002-> after S001   (by hand)   before S002 -P001-> after S002   (by hand)   now

A line that is equal in two neighbouring versions keeps its origin; a new line belongs to the step between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from graphbus_core.editing.git import UNREACHED, Repository
from graphbus_core.editing.journal import Journal, JournalEntry
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.errors import EditError, NegotiationError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import ProposalEvaluation, ProposalRecord
from graphbus_core.negotiation.apply import load_commits
from graphbus_core.negotiation.commit_message import (
    MessageDecision,
    consensus_of,
    decisions_in,
    gate_summary,
    models_of,
)
from graphbus_core.negotiation.transcript import SessionRecord, list_sessions, load_session

OriginKind = Literal["before", "since", "decision", "unknown"]
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


class KnownDecision(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted proposal, as far as the record or the git commit tells; a field that is not known is empty.

    Attributes:
        agent: The author of the proposal.
        consensus: How it was accepted, and by which agents, such as `"unanimous (Stock)"`.
        gate: The report of the gate in one line.
        model: The models by role, as text.
        commit: The id of its git commit; empty if it has none.
    """

    session: str
    proposal: str
    agent: str = ""
    title: str = ""
    intent: str = ""
    finding: str = ""
    reason: str = ""
    votes: tuple[ProposalEvaluation, ...] = ()
    consensus: str = ""
    gate: str = ""
    model: str = ""
    commit: str = ""


class LineOrigin(NamedTuple):
    """Where a line comes from.

    Attributes:
        kind: `decision`: written by an accepted proposal; `since`: by hand after a session; `before`: older than all sessions;
            `unknown`: its commit is not in this clone, or git failed.
        session: The session of the decision, or the last one before the line was written by hand.
        decisions: Usually one; several if it is not known which of them wrote the line.
    """

    kind: OriginKind
    session: str = ""
    decisions: tuple[KnownDecision, ...] = ()


BEFORE, UNKNOWN = LineOrigin("before"), LineOrigin("unknown")


class _FileVersion(NamedTuple):
    """One version of a file: its lines, and the origin of each."""

    lines: Sequence[str]
    origins: Sequence[LineOrigin]

    def make_next(self, lines: Sequence[str], fresh: LineOrigin) -> _FileVersion:
        """Return the next version, with these lines. Lines that this version has keep their origin; new ones get `fresh`."""
        from difflib import SequenceMatcher

        origins = [fresh] * len(lines)
        for block in SequenceMatcher(None, self.lines, lines, autojunk=False).get_matching_blocks():
            origins[block.b : block.b + block.size] = self.origins[block.a : block.a + block.size]
        return _FileVersion(lines, origins)


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a source file, without line ends.

    Raises:
        EditError: Its bytes cannot be decoded.
    """
    lines = SourceText(data).text.split("\n")
    return lines if lines[-1] else lines[:-1]


def trace_lines(config: ResolvedBuild, path: str) -> tuple[LineOrigin, ...]:
    """Return the origin of every line of a file in its present state.

    The journal is asked first, then git about the lines that the journal does not explain.

    Raises:
        OSError: The file cannot be read.
        EditError: Its bytes cannot be decoded, or the journal is damaged.
    """
    lines = lines_of(Path(config.root, path).read_bytes())
    origins = [*_trace_by_journal(config, path, lines)]
    for number, decided in _trace_by_git(config, path, origins):
        origins[number] = decided
    return tuple(origins)


# --- in the journal ----------------------------------------------------------------------------


def _trace_by_journal(config: ResolvedBuild, path: str, lines: Sequence[str]) -> Sequence[LineOrigin]:
    """Return the origin of each of the present `lines` of a file, by the promotions in the journal of this project.

    A line that no promotion explains has the origin `BEFORE`, or `since` the last session before it was written by hand.
    """
    version: _FileVersion | None = None
    by_hand = BEFORE  # the origin of lines that were written between the promotions
    for entry, before, after in _find_promotions(config, path):
        version = version.make_next(before, by_hand) if version else _FileVersion(before, [BEFORE] * len(before))
        for fresh, new in _split_promotion(config, entry, path, before, after):
            version = version.make_next(new, fresh)
        by_hand = LineOrigin("since", entry.session)
    return version.make_next(lines, by_hand).origins if version else [BEFORE] * len(lines)


def _find_promotions(config: ResolvedBuild, path: str) -> Iterator[tuple[JournalEntry, list[str], list[str]]]:
    """Yield (entry, lines before, lines after) for each promotion that changed a file and was not undone, the oldest first."""
    journal = Journal(config)
    entries = journal.done()
    undone = {entry.undoes for entry in entries}
    for entry in entries:
        for number, file in enumerate(entry.files):
            if file.path == path and entry.kind == "promote" and entry.number not in undone:
                folder = journal.folder / entry.name
                before, after = (lines_of(journal.content(folder, file, number, side)) for side in ("before", "after"))
                yield entry, before, after


def _split_promotion(
    config: ResolvedBuild, entry: JournalEntry, path: str, old: list[str], new: list[str]
) -> Iterator[tuple[LineOrigin, Sequence[str]]]:
    """Yield (origin, lines) for each version of a file within a session: one after each accepted proposal that changed it.

    If the record is missing, or its diffs do not lead from `old` to `new`, yield only `new`, with all proposals that changed it.
    """
    session = entry.session
    record = _load_record(config, session)
    names = next(file.proposals for file in entry.files if file.path == path)
    decisions = {name: _find_decision(config, record, session, name) for name in names}
    versions: list[tuple[LineOrigin, Sequence[str]]] = []
    text: Sequence[str] | None = old
    for commit in record.negotiations.completed if record else ():
        diff = commit.resolution.get(path, "")
        if diff and text is not None and commit.proposal_id in decisions:
            text = _apply_diff(text, diff)
            versions.append((LineOrigin("decision", session, (decisions[commit.proposal_id],)), text or ()))
    if text == new:
        yield from versions
    else:
        yield LineOrigin("decision", session, tuple(decisions.values())), new


def _apply_diff(lines: Sequence[str], diff: str) -> Sequence[str] | None:
    """Return the lines with a unified diff applied, by its line numbers; None if it does not fit these lines exactly."""
    result: list[str] = []
    at = 0
    for line in diff.split("\n")[2:]:  # after the two lines with the file names
        hunk = _HUNK.match(line)
        if hunk:
            start = int(hunk[1]) - (hunk[2] != "0")  # a hunk without old lines names the line before it
            result += lines[at:start]
            at = start
            continue
        if line[:1] in {" ", "-"}:
            if at >= len(lines) or lines[at] != line[1:]:
                return None
            at += 1
        if line[:1] in {" ", "+"}:
            result.append(line[1:])
    return [*result, *lines[at:]]


def _load_record(config: ResolvedBuild, session: str) -> SessionRecord | None:
    """Return the record of a session; None if it cannot be read."""
    with suppress(NegotiationError):
        return load_session(config.artifacts_dir, session)
    return None


def _find_decision(config: ResolvedBuild, record: SessionRecord | None, session: str, name: str) -> KnownDecision:
    """Return what is known of the proposal with the id `name`: all details that the record has, and its git commit.

    Without a record of the proposal, only the names of session and proposal are known.
    """
    made = None
    with suppress(NegotiationError):
        made = load_commits(config.artifacts_dir, session)
    found = [one for one in record.negotiations.records if one.proposal.proposal_id == name] if record else []
    known = KnownDecision(session=session, proposal=name, commit=made.commits.get(name, "") if made else "")
    return _add_details(known, record, found[0]) if record and found else known


def _add_details(known: KnownDecision, record: SessionRecord, one: ProposalRecord) -> KnownDecision:
    """Return a decision with the details from the record of its proposal."""
    proposal = one.proposal
    return replace(
        known,
        agent=proposal.src,
        title=proposal.title or proposal.intent,
        intent=proposal.intent,
        finding=proposal.finding,
        reason=proposal.reason,
        votes=tuple({vote.evaluator: vote for vote in one.evaluations}.values()),  # the last vote of each
        consensus=consensus_of(one.commit) if one.commit else "",
        gate=gate_summary(one.gate) if one.gate else "",
        model=models_of(record),
    )


# --- in git ------------------------------------------------------------------------------------


def _trace_by_git(config: ResolvedBuild, path: str, origins: Sequence[LineOrigin]) -> Iterator[tuple[int, LineOrigin]]:
    """Yield (line index, origin) for each line that the journal does not explain and whose git commit has decisions.

    Nothing is yielded if git is not installed, or if the file is not in a repository. If git fails, all lines that the journal
    does not explain are yielded as `UNKNOWN`.
    """
    unexplained = [number for number, origin in enumerate(origins) if origin.kind != "decision"]
    if not unexplained:
        return
    try:
        repository = Repository.find(config.root)
        blamed = repository.blame(path) if repository else ()
        if repository and len(blamed) == len(origins):
            committed = [number for number in unexplained if blamed[number]]
            known = _find_decisions_of_commits(config, repository, {blamed[number] for number in committed})
            yield from ((number, known[blamed[number]]) for number in committed if blamed[number] in known)
    except NegotiationError as refused:
        if refused.code != "GBE430":  # GBE430: git is not installed
            yield from ((number, UNKNOWN) for number in unexplained)


def _find_decisions_of_commits(
    config: ResolvedBuild, repository: Repository, commits: set[str]
) -> dict[str, LineOrigin]:
    """Return commit id -> origin, for each of these commits whose message contains decisions, and for `UNREACHED`."""
    origins = {UNREACHED: UNKNOWN}
    for commit, message in repository.messages(sorted(commits - {UNREACHED})).items():
        decisions = tuple(_read_decision(config, commit, each) for each in decisions_in(message))
        if decisions:
            origins[commit] = LineOrigin("decision", decisions[-1].session, decisions)
    return origins


def _read_decision(config: ResolvedBuild, commit: str, described: MessageDecision) -> KnownDecision:
    """Return a decision from a commit message.

    It has all details if its session is in this project and has made this commit; otherwise only those in the message.
    """
    trailers = described.trailers
    session, proposal = trailers["GraphBus-Session"], trailers["GraphBus-Proposal"]
    # Anybody can write a commit message, so a session name in it must not become part of a path unchecked.
    is_here = session in list_sessions(config.artifacts_dir)
    recorded = _find_decision(config, _load_record(config, session), session, proposal) if is_here else None
    if recorded and recorded.commit == commit and recorded.title:
        return recorded
    # In the message of a squashed commit, each original message begins with `* `.
    squashed = f"\n{described.text.strip()}".rpartition("\n* ")[2]
    subject, _, body = squashed.partition("\n\n")
    agent, consensus, gate, model = (
        trailers.get(f"GraphBus-{name}", "") for name in ("Agent", "Consensus", "Gate", "Model")
    )
    return KnownDecision(
        session=session,
        proposal=proposal,
        agent=agent,
        title=subject.strip(),
        reason=" ".join(body.split()),
        consensus=consensus,
        gate=gate,
        model=model,
        commit=commit,
    )


def decided_files(config: ResolvedBuild) -> tuple[str, ...]:
    """Return the paths of all files in the journal, sorted; none if the journal is damaged."""
    with suppress(EditError):
        return tuple(sorted({file.path for entry in Journal(config).done() for file in entry.files}))
    return ()
