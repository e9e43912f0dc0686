"""A person in the loop: what is shown before a commit, and what the answer becomes.

A person may put another text in the place of a change. That text is a proposal like any other: it climbs the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from graphbus_core.editing.text.source_text import SourceText, with_lf
from graphbus_core.model.proposals import CodeChange, Consensus, Proposal, ProposalEvaluation
from graphbus_core.negotiation.protocol import Answered, AskPerson, PersonVerdict, Review
from graphbus_core.negotiation.table import Table


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to decide on one change.

    Attributes:
        diff: The unified diffs of all files, against the workspace as it is now.
        texts: Path -> the text of each changed file as it would be, with LF line ends; empty when the change no longer fits.
        agreed: How the agents accepted it; None for one that they rejected.
        reason: Why they rejected it, or why the gate refuses the person's own text; else empty.
    """

    review: Review
    diff: str
    texts: Mapping[str, str]
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class PersonWord(msgspec.Struct, frozen=True):
    """What a person says; `texts` are the files as the person wants them, for the verdict `edit`."""

    verdict: PersonVerdict
    reason: str = ""
    texts: Mapping[str, str] = {}


class Reviewer(Protocol):
    """Asks a person. Whatever is not a clear yes is none."""

    def decide(self, sheet: Sheet) -> PersonWord:
        """Show a change and give the person's word on it."""


def ask_person(reviewer: Reviewer, question: AskPerson, table: Table) -> Answered:
    """Let a person decide on a change, on the workspace as it is now."""
    proposal = question.review.proposal
    before, after = table.sides(proposal)
    sheet = Sheet(
        review=question.review,
        diff=table.diff(proposal),
        texts={path: _text(data) for path, data in after.items()},
        evaluations=question.evaluations,
        agreed=question.agreed,
        reason=question.reason,
    )
    word = reviewer.decide(sheet)
    own = _reworded(proposal, before, word.texts) if word.verdict == "edit" else None
    return Answered(proposal.proposal_id, word.verdict, own, word.reason)


def _reworded(proposal: Proposal, before: Mapping[str, bytes], texts: Mapping[str, str]) -> Proposal:
    """Give the proposal with the person's texts: one replacement for each file that is different then."""
    changes = [_replacement(path, _text(data), with_lf(texts.get(path, _text(data)))) for path, data in before.items()]
    edits = tuple(change for change in changes if change)
    return msgspec.structs.replace(proposal, code_changes=edits, schema_changes=())


def _replacement(path: str, old: str, new: str) -> CodeChange | None:
    """Give the change of the lines that differ, with as many lines around them as make their place unique."""
    if old == new:
        return None
    was, now = old.splitlines(keepends=True), new.splitlines(keepends=True)
    first = next(
        (i for i, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), min(len(was), len(now))
    )
    last = 0
    while last < min(len(was), len(now)) - first and was[-1 - last] == now[-1 - last]:
        last += 1
    while not _is_unique(old, quoted := "".join(was[first : len(was) - last])) and (first or last):
        first, last = max(first - 1, 0), max(last - 1, 0)
    return CodeChange(
        file_path=path,
        target="",
        change_type="modify",
        operation="search_replace",
        old_code=quoted,
        new_code="".join(now[first : len(now) - last]),
    )


def _is_unique(text: str, quoted: str) -> bool:
    return bool(quoted.strip()) and text.count(quoted) == 1


def _text(data: bytes) -> str:
    return with_lf(SourceText(data).text)
