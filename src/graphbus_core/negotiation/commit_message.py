"""The message of a git commit for one accepted proposal: pure functions from the record of a session to text.

    fix(OrderProcessor): validate negative prices

    A negative price would make the total wrong.

    GraphBus-Session: S001
    GraphBus-Proposal: P001
    ...

A model may have written titles and reasons. They are made plain text: never a trailer, a reference or a command to CI.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graphbus_core.model.proposals import CommitRecord, GateReport, Proposal, ProposalRecord
from graphbus_core.negotiation.freshness import describe_models
from graphbus_core.negotiation.transcript import SessionRecord

_WIDTH = 72
TRAILERS = (
    "GraphBus-Session",
    "GraphBus-Proposal",
    "GraphBus-Agent",
    "GraphBus-Consensus",
    "GraphBus-Gate",
    "GraphBus-Model",
    "GraphBus-Cost",
)
_TYPES = (
    (re.compile(r"perf|optimi[sz]e|speed"), "perf"),
    (re.compile(r"doc"), "docs"),
    (re.compile(r"refactor|simplif|rename|extract|annotat|clean"), "refactor"),
    (re.compile(r"fix|mend|valid|align|correct|guard|handle|conflict|error"), "fix"),
    (re.compile(r"add|introduce|feature|support"), "feat"),
)
_COMMANDS = tuple(
    (re.compile(pattern), harmless)
    for pattern, harmless in (
        (r"\[", "("),  # [skip ci]
        (r"\]", ")"),
        (r"\*{3,}", " "),  # ***NO_CI***
        (r"#(?=\d)", " no. "),  # owner/name#12, #12
        (r"([#@!])(?=\w)(?<!\w\1)", r"\1 "),  # #close, @somebody, !12
        (r"\b([Gg][Hh])-(?=\d)", r"\1 "),  # GH-12
        (r"\b[A-Za-z][A-Za-z0-9+.-]*://+", ""),  # Closes https://forge.example/owner/name/issues/12
    )
)
"""Patterns on which forges and CI servers act in a message, with a harmless replacement."""
_LIKE_MORE = re.compile(r"[\w-]+\s*:|---|diff |\(cherry picked")
_NOT_WRONG = ("GB201", "GB202")
"""Rules that ask for an improvement and report no defect."""


def commit_message(session: SessionRecord, record: ProposalRecord) -> str:
    """Return the whole message: subject, reason, trailers."""
    proposal = record.proposal
    subject = subject_of(proposal)
    title = proposal.title if subject.endswith("…") else ""
    body = _paragraph(f"{title}\n\n{proposal.reason}")
    trailers = "\n".join(f"{name}: {value}" for name, value in _trailers(session, record))
    return "\n\n".join(part for part in (subject, body, trailers) if part) + "\n"


def subject_of(proposal: Proposal) -> str:
    """Return `type(Agent): title`, at most 72 characters long."""
    head = f"{_type_of(proposal)}({_line(proposal.src)}): "
    title = _line(proposal.title) or _line(proposal.intent.replace("_", " ")) or "change"
    if title[1:2].islower():
        title = title[0].lower() + title[1:]
    return head + _cut(title.rstrip(". "), max(_WIDTH - len(head), 20))


def _type_of(proposal: Proposal) -> str:
    if proposal.finding and proposal.finding not in _NOT_WRONG:
        return "fix"
    return next((name for pattern, name in _TYPES if pattern.search(proposal.intent.lower())), "refactor")


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    start = text[: width - 1]
    word = start.rpartition(" ")[0]
    return f"{(word if len(word) > width // 2 else start).rstrip(' ,;:')}…"


def _line(text: str) -> str:
    """Return one line of plain text, without control characters and without patterns on which a forge or CI server acts."""
    shown = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    for pattern, harmless in _COMMANDS:
        shown = pattern.sub(harmless, shown)
    return " ".join(shown.split())


def _paragraph(text: str) -> str:
    """Return a wrapped reason; a line that looks like a trailer or a diff is indented so that git does not parse it."""
    from textwrap import wrap

    parts = (_line(part) for part in re.split(r"\n\s*\n", text))
    wrapped = (wrap(part, _WIDTH - 1, break_long_words=False, break_on_hyphens=False) for part in parts if part)
    return "\n\n".join("\n".join(f" {line}" if _LIKE_MORE.match(line) else line for line in lines) for lines in wrapped)


def _trailers(session: SessionRecord, record: ProposalRecord) -> Iterator[tuple[str, str]]:
    proposal = record.proposal
    yield "GraphBus-Session", _line(session.session)
    yield "GraphBus-Proposal", proposal.proposal_id
    yield "GraphBus-Agent", _line(proposal.src)
    if record.commit:
        yield "GraphBus-Consensus", consensus_of(record.commit)
    if record.gate:
        yield "GraphBus-Gate", gate_summary(record.gate)
    yield "GraphBus-Model", models_of(session)
    cost = session.costs.get(proposal.proposal_id)
    if cost:
        yield "GraphBus-Cost", f"{cost:.4f} USD"


def consensus_of(commit: CommitRecord) -> str:
    """Return consensus and voters of a commit, `unanimous (Stock)`."""
    voters = ", ".join(map(_line, commit.evaluators))
    return f"{commit.consensus_type} ({voters})" if voters else commit.consensus_type


def models_of(session: SessionRecord) -> str:
    """Return the models that negotiated, as `describe_models` does, on one line."""
    models = {role: _line(model) for role, model in session.models.items()}
    return describe_models(models) if models else _line(session.backend)


def gate_summary(report: GateReport) -> str:
    """Return the report of the gate in one line: `passed G0 G1 G2; not run G6`."""
    said: dict[str, list[str]] = {}
    for rung in report.rungs:
        names = said.setdefault(rung.status.replace("_", " "), [])
        if rung.rung not in names:
            names.append(rung.rung)
    return "; ".join(f"{status} {' '.join(rungs)}" for status, rungs in said.items()) or "no rung"


class MessageDecision(NamedTuple):
    """A decision in a commit message: the text before our trailers, and the trailers."""

    text: str
    trailers: Mapping[str, str]


def decisions_in(message: str) -> Iterator[MessageDecision]:
    """Yield the decisions in a commit message: one in a message of GraphBus, several in a squashed commit."""
    text: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", message.strip()):
        pairs = (line.partition(": ") for line in paragraph.splitlines())
        trailers = {name: value.strip() for name, colon, value in pairs if colon and name in TRAILERS}
        if {"GraphBus-Session", "GraphBus-Proposal"} <= trailers.keys():
            yield MessageDecision("\n\n".join(text), trailers)
            text = []
        else:
            text.append(paragraph)
