"""Finds the decision that wrote a line of a file: by the journal of promotions and, for sessions that are gone, by git.

    before S001 -P001-> -P002-> after S001   (by hand)   before S002 -P001-> after S002   (by hand)   now

A line that is equal in two neighbouring versions keeps its origin; a new one belongs to the step between them.
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
    """A decision, as far as record and git tell.

    Attributes:
        consensus: How it was accepted, and by whom: `"unanimous (Stock)"`.
        gate: The report of the gate in one line.
        model: The models by role, as text.
        commit: The id of its git commit; empty without one.
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
        kind: `before` all sessions; by hand `since` a session; by a `decision`; `unknown` if the git history that would tell
            is not in this clone.
        session: The session of the decision, or the one since which it was written by hand.
        decisions: Usually one; several if the record does not tell which of them it was.
    """

    kind: OriginKind
    session: str = ""
    decisions: tuple[KnownDecision, ...] = ()


BEFORE, UNKNOWN = LineOrigin("before"), LineOrigin("unknown")


class _FileVersion(NamedTuple):
    """One version of a file, line by line, with the origin of each line."""

    lines: Sequence[str]
    origins: Sequence[LineOrigin]

    def followed_by(self, lines: Sequence[str], fresh: LineOrigin) -> _FileVersion:
        """Return the next version: its lines that are not in this one have the origin `fresh`."""
        from difflib import SequenceMatcher

        origins = [fresh] * len(lines)
        for block in SequenceMatcher(None, self.lines, lines, autojunk=False).get_matching_blocks():
            origins[block.b : block.b + block.size] = self.origins[block.a : block.a + block.size]
        return _FileVersion(lines, origins)


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a text file, without line ends.

    Raises:
        EditError: It is no text.
    """
    lines = SourceText(data).text.split("\n")
    return lines if lines[-1] else lines[:-1]


def trace_lines(config: ResolvedBuild, path: str) -> tuple[LineOrigin, ...]:
    """Return the origin of every line of a file as it is now.

    Raises:
        OSError: The file cannot be read.
        EditError: It is no text, or the journal is damaged.
    """
    lines = lines_of(Path(config.root, path).read_bytes())
    origins = [*_by_journal(config, path, lines)]
    for number, decided in _by_git(config, path, origins):
        origins[number] = decided
    return tuple(origins)


# --- by the journal ----------------------------------------------------------------------------


def _by_journal(config: ResolvedBuild, path: str, lines: Sequence[str]) -> Sequence[LineOrigin]:
    text: _FileVersion | None = None
    last = BEFORE
    for entry, before, after in _promotions(config, path):
        text = text.followed_by(before, last) if text else _FileVersion(before, [BEFORE] * len(before))
        for fresh, new in _steps(config, entry, path, before, after):
            text = text.followed_by(new, fresh)
        last = LineOrigin("since", entry.session)
    return text.followed_by(lines, last).origins if text else [BEFORE] * len(lines)


def _promotions(config: ResolvedBuild, path: str) -> Iterator[tuple[JournalEntry, list[str], list[str]]]:
    """Yield each promotion that changed a file and was not undone, in order: entry, lines before, lines after."""
    journal = Journal(config)
    entries = journal.done()
    undone = {entry.undoes for entry in entries}
    for entry in entries:
        for number, file in enumerate(entry.files):
            if file.path == path and entry.kind == "promote" and entry.number not in undone:
                folder = journal.folder / entry.name
                before, after = (lines_of(journal.content(folder, file, number, side)) for side in ("before", "after"))
                yield entry, before, after


def _steps(
    config: ResolvedBuild, entry: JournalEntry, path: str, old: list[str], new: list[str]
) -> Iterator[tuple[LineOrigin, Sequence[str]]]:
    """Yield the versions of a file within a session, each with its decision; only the last one if the record does not tell."""
    session = entry.session
    record = _record(config, session)
    names = next(file.proposals for file in entry.files if file.path == path)
    decided = {name: _decided(config, record, session, name) for name in names}
    versions: list[tuple[LineOrigin, Sequence[str]]] = []
    text: Sequence[str] | None = old
    for commit in record.negotiations.completed if record else ():
        diff = commit.resolution.get(path, "")
        if diff and text is not None and commit.proposal_id in decided:
            text = _patched(text, diff)
            versions.append((LineOrigin("decision", session, (decided[commit.proposal_id],)), text or ()))
    if text == new:
        yield from versions
    else:
        yield LineOrigin("decision", session, tuple(decided.values())), new


def _patched(lines: Sequence[str], diff: str) -> Sequence[str] | None:
    """Apply a unified diff by its line numbers; None unless it was made for exactly this text."""
    made: list[str] = []
    at = 0
    for line in diff.split("\n")[2:]:
        hunk = _HUNK.match(line)
        if hunk:
            start = int(hunk[1]) - (hunk[2] != "0")
            made += lines[at:start]
            at = start
            continue
        if line[:1] in {" ", "-"}:
            if at >= len(lines) or lines[at] != line[1:]:
                return None
            at += 1
        if line[:1] in {" ", "+"}:
            made.append(line[1:])
    return [*made, *lines[at:]]


def _record(config: ResolvedBuild, session: str) -> SessionRecord | None:
    with suppress(NegotiationError):
        return load_session(config.artifacts_dir, session)
    return None


def _decided(config: ResolvedBuild, record: SessionRecord | None, session: str, name: str) -> KnownDecision:
    made = None
    with suppress(NegotiationError):
        made = load_commits(config.artifacts_dir, session)
    found = [one for one in record.negotiations.records if one.proposal.proposal_id == name] if record else []
    known = KnownDecision(session=session, proposal=name, commit=made.commits.get(name, "") if made else "")
    return _describe(known, record, found[0]) if record and found else known


def _describe(known: KnownDecision, record: SessionRecord, one: ProposalRecord) -> KnownDecision:
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


# --- by git ------------------------------------------------------------------------------------


def _by_git(config: ResolvedBuild, path: str, origins: Sequence[LineOrigin]) -> Iterator[tuple[int, LineOrigin]]:
    """Yield (index, origin) of the lines that no kept session explains, as far as git knows their commits."""
    unexplained = [number for number, origin in enumerate(origins) if origin.kind != "decision"]
    if not unexplained:
        return
    try:
        repository = Repository.find(config.root)
        blamed = repository.blame(path) if repository else ()
        if repository and len(blamed) == len(origins):
            committed = [number for number in unexplained if blamed[number]]
            known = _decisions_by_git(config, repository, {blamed[number] for number in committed})
            yield from ((number, known[blamed[number]]) for number in committed if blamed[number] in known)
    except NegotiationError as refused:
        if refused.code != "GBE430":  # without git only the sessions are known
            yield from ((number, UNKNOWN) for number in unexplained)


def _decisions_by_git(config: ResolvedBuild, repository: Repository, commits: set[str]) -> dict[str, LineOrigin]:
    origins = {UNREACHED: UNKNOWN}
    for commit, message in repository.messages(sorted(commits - {UNREACHED})).items():
        decisions = tuple(_of_message(config, commit, told) for told in decisions_in(message))
        if decisions:
            origins[commit] = LineOrigin("decision", decisions[-1].session, decisions)
    return origins


def _of_message(config: ResolvedBuild, commit: str, told: MessageDecision) -> KnownDecision:
    trailers = told.trailers
    session, proposal = trailers["GraphBus-Session"], trailers["GraphBus-Proposal"]
    # Anybody can write a message, so the session that it names must not be used as a path unchecked.
    is_here = session in list_sessions(config.artifacts_dir)
    kept = _decided(config, _record(config, session), session, proposal) if is_here else None
    if kept and kept.commit == commit and kept.title:
        return kept  # the session here has made this commit, and knows more than the message
    squashed = f"\n{told.text.strip()}".rpartition("\n* ")[2]
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
    """Return the paths of all files in the journal, sorted."""
    with suppress(EditError):
        return tuple(sorted({file.path for entry in Journal(config).done() for file in entry.files}))
    return ()
