"""Formats the message of the git commit for one accepted proposal, and reads such messages. All functions are pure.

    fix(OrderProcessor): validate negative prices

    A negative price would make the total wrong.

    GraphBus-Session: S001
    GraphBus-Proposal: P001
    ...

A model may have written titles and reasons. They are made plain text, so that git, a forge or a CI server cannot take them for a
trailer, a reference or a command.
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
_TYPES_BY_INTENT = (
    (re.compile(r"perf|optimi[sz]e|speed"), "perf"),
    (re.compile(r"doc"), "docs"),
    (re.compile(r"refactor|simplif|rename|extract|annotat|clean"), "refactor"),
    (re.compile(r"fix|mend|valid|align|correct|guard|handle|conflict|error"), "fix"),
    (re.compile(r"add|introduce|feature|support"), "feat"),
)
_FORGE_PATTERNS = tuple(
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
"""Patterns in a message on which forges and CI servers act, each with a harmless replacement."""
_TRAILER_OR_DIFF = re.compile(r"[\w-]+\s*:|---|diff |\(cherry picked")
_IMPROVEMENTS = ("GB201", "GB202")
"""Rules whose findings are suggestions and not defects, so that a commit for one is not a `fix`."""


def commit_message(session: SessionRecord, record: ProposalRecord) -> str:
    """Return the whole message: subject, reason and trailers. If the subject cuts the title, the body begins with it."""
    proposal = record.proposal
    subject = subject_of(proposal)
    title = proposal.title if subject.endswith("…") else ""
    body = _wrap_paragraphs(f"{title}\n\n{proposal.reason}")
    trailers = "\n".join(f"{name}: {value}" for name, value in _iterate_trailers(session, record))
    return "\n\n".join(part for part in (subject, body, trailers) if part) + "\n"


def subject_of(proposal: Proposal) -> str:
    """Return `type(Agent): title` in at most 72 characters; it is longer if a long agent name leaves the title less than 20."""
    head = f"{_choose_type(proposal)}({_clean_line(proposal.src)}): "
    title = _clean_line(proposal.title) or _clean_line(proposal.intent.replace("_", " ")) or "change"
    if title[1:2].islower():  # a word, and not an abbreviation such as `API`
        title = title[0].lower() + title[1:]
    return head + _shorten(title.rstrip(". "), max(_WIDTH - len(head), 20))


def _choose_type(proposal: Proposal) -> str:
    """Return the type of the commit: `fix` for a defect that a rule found, else by words in the intent, or `refactor`."""
    if proposal.finding and proposal.finding not in _IMPROVEMENTS:
        return "fix"
    return next((name for pattern, name in _TYPES_BY_INTENT if pattern.search(proposal.intent.lower())), "refactor")


def _shorten(text: str, width: int) -> str:
    """Return a text in at most `width` characters: as it is, or cut, preferably between words, with an ellipsis."""
    if len(text) <= width:
        return text
    start = text[: width - 1]
    whole_words = start.rpartition(" ")[0]
    return f"{(whole_words if len(whole_words) > width // 2 else start).rstrip(' ,;:')}…"


def _clean_line(text: str) -> str:
    """Return a text as one line without control characters, and with every pattern of `_FORGE_PATTERNS` replaced."""
    cleaned = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    for pattern, harmless in _FORGE_PATTERNS:
        cleaned = pattern.sub(harmless, cleaned)
    return " ".join(cleaned.split())


def _wrap_paragraphs(text: str) -> str:
    """Return cleaned, wrapped paragraphs; lines that git could parse as a trailer or a diff are indented."""
    from textwrap import wrap

    parts = (_clean_line(part) for part in re.split(r"\n\s*\n", text))
    wrapped = (wrap(part, _WIDTH - 1, break_long_words=False, break_on_hyphens=False) for part in parts if part)
    return "\n\n".join(
        "\n".join(f" {line}" if _TRAILER_OR_DIFF.match(line) else line for line in lines) for lines in wrapped
    )


def _iterate_trailers(session: SessionRecord, record: ProposalRecord) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each trailer, in the order of `TRAILERS`; a trailer whose value is not known is left out."""
    proposal = record.proposal
    yield "GraphBus-Session", _clean_line(session.session)
    yield "GraphBus-Proposal", proposal.proposal_id
    yield "GraphBus-Agent", _clean_line(proposal.src)
    if record.commit:
        yield "GraphBus-Consensus", consensus_of(record.commit)
    if record.gate:
        yield "GraphBus-Gate", gate_summary(record.gate)
    yield "GraphBus-Model", models_of(session)
    cost = session.costs.get(proposal.proposal_id)
    if cost:
        yield "GraphBus-Cost", f"{cost:.4f} USD"


def consensus_of(commit: CommitRecord) -> str:
    """Return the consensus and the voters of a commit, such as `unanimous (Stock)`."""
    voters = ", ".join(map(_clean_line, commit.evaluators))
    return f"{commit.consensus_type} ({voters})" if voters else commit.consensus_type


def models_of(session: SessionRecord) -> str:
    """Return the models of a session on one line, as `describe_models` writes them; `rules` if there were none."""
    models = {role: _clean_line(model) for role, model in session.models.items()}
    return describe_models(models) if models else _clean_line(session.backend)


def gate_summary(report: GateReport) -> str:
    """Return the report of the gate in one line, such as `passed G0 G1 G2; not run G6`."""
    by_status: dict[str, list[str]] = {}
    for rung in report.rungs:
        names = by_status.setdefault(rung.status.replace("_", " "), [])
        if rung.rung not in names:
            names.append(rung.rung)
    return "; ".join(f"{status} {' '.join(rungs)}" for status, rungs in by_status.items()) or "no rung"


class MessageDecision(NamedTuple):
    """A decision in a commit message: the text before the trailers of GraphBus, and trailer name -> value."""

    text: str
    trailers: Mapping[str, str]


def decisions_in(message: str) -> Iterator[MessageDecision]:
    """Yield the decisions in a commit message: one in a message of GraphBus, several in a squashed commit, none in others."""
    text: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", message.strip()):
        pairs = (line.partition(": ") for line in paragraph.splitlines())
        trailers = {name: value.strip() for name, colon, value in pairs if colon and name in TRAILERS}
        if {"GraphBus-Session", "GraphBus-Proposal"} <= trailers.keys():
            yield MessageDecision("\n\n".join(text), trailers)
            text = []
        else:
            text.append(paragraph)
