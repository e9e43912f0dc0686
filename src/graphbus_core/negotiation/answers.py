"""Turns a model's answer into typed data. Its layout may vary, but any fault in its content raises `MalformedAnswer`.

The format is described in docs/answer-format.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple, get_args

from msgspec.structs import replace

from graphbus_core.model.proposals import (
    Counterexample,
    Decision,
    ImpactAssessment,
    Proposal,
    ProposalEvaluation,
    Risk,
    SchemaChange,
)
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.answer_format import (
    AnswerFormError,
    AnswerPart,
    AnswerSection,
    clean_text,
    cut_at_stray_fence,
    read_sections,
)
from graphbus_core.negotiation.answer_json import looks_like_json, read_json
from graphbus_core.negotiation.answer_rules import find_echo
from graphbus_core.negotiation.edit_blocks import UnusableEditError, read_edits

MAX_PROPOSALS = 20
MAX_ITEMS = 50
"""The largest number of values of a repeatable key; further ones are ignored."""
MAX_FAULTS = 8
MAX_EVIDENCE = 3
_SHORT_CHARS = 200
_PROPOSAL_ID = re.compile(r"\bP0*(\d{1,9})\b", re.IGNORECASE)
_CONFIDENCE = re.compile(
    r"(?P<value>-?(?:\d{1,3}(?:[.,]\d{1,9})?|[.,]\d{1,9}))\s*(?:(?P<percent>%)|(?:/|out of)\s*(?P<of>\d{1,3}))?"
)
_DECISIONS: tuple[str, ...] = get_args(Decision)


_READ_UP_TO_FENCE = "(Read up to a fence that the answer does not close.)"
_READ_UP_TO_OTHERS = "(Read up to a section about a proposal that was not asked about.)"


class MalformedAnswer(ValueError):  # noqa: N818 - it says what the answer is
    """An answer that cannot be used.

    Attributes:
        faults: What is wrong, each a sentence for the model.
        usable: The evaluations in the answer that have no fault.
    """

    def __init__(self, faults: Iterable[str], usable: tuple[ProposalEvaluation, ...] = ()) -> None:
        self.faults = tuple(faults)[:MAX_FAULTS]
        self.usable = usable
        super().__init__(" ".join(self.faults))

    def for_json(self) -> MalformedAnswer:
        """Return the same for an author who was asked for JSON: with its keys in place of headings, lines and blocks."""
        replaced = (
            reduce(lambda text, words: re.sub(words[0], words[1], text), _JSON_WORDS, fault) for fault in self.faults
        )
        return MalformedAnswer(replaced, self.usable)


_JSON_WORDS = (
    (r"is neither a section `## proposal` nor `## nothing`", "is no key `proposals`"),
    (r"section `## (evaluation|decision) (P\d+)`", r"key `\2` in `\1s`"),
    (r"`## (evaluation|decision) (.*)` is about", r"The key `\2` in `\1s` is about"),
    (r"line that begins with `responsibility:`", "text in `responsibility`"),
    (r"section `## analysis`", "key `analysis`"),
    (r"(?:a )?section `### edit`", "`edits`"),
    (r"line `decision:`", "`decision`"),
    (r"`### (evidence)` must be (.*) in a fenced block", r"the `kind` of \1 must be \2 as its `text`"),
    (r"code in a fenced block", "`code`"),
    (r"blocks of code; give one, the", "texts of code; give one, `code`, the"),
    (r"two fenced blocks, ```old and ```new", "`old` and `new`"),
    (r"an empty ```old block", "an empty `old`"),
)
"""A part of a fault in the words of the text notation, as a pattern, and in those of JSON."""


class _Sections(NamedTuple):
    """The sections of one answer, which can be selected by the word of their heading."""

    sections: tuple[AnswerSection, ...]

    def of(self, word: str) -> list[AnswerSection]:
        """Return the sections `## word`, in their order."""
        return [section for section in self.sections if section.word == word]


def _read_form(text: str, *, has_code: bool = False) -> _Sections:
    """Return the sections of an answer in text or JSON; raise MalformedAnswer if there are none, or it copies an example.

    Args:
        text: The answer.
        has_code: It may have edits. In any other answer, a fence that is never closed ends the answer: small models often write
            one behind it.
    """
    whole, text = text, text if has_code else cut_at_stray_fence(text)
    try:
        sections = read_json(text) if looks_like_json(text) else read_sections(text)
    except AnswerFormError as error:
        raise MalformedAnswer([str(error)]) from None
    if sections and whole[len(text) :].strip("`~ \r\n"):
        sections[-1].lines.append(("reasoning", _READ_UP_TO_FENCE))  # so that transcript and record say it
    echo = find_echo(sections)
    if echo:
        raise MalformedAnswer(
            [f"{clean_text(echo, 80)!r} is from the example. Answer about this project, in your own words."]
        )
    return _Sections(sections)


def read_analysis(text: str) -> Analysis:
    """Return the analysis in an answer, from its section `## analysis`.

    Raises:
        MalformedAnswer: There is no such section, or it has no known line.
    """
    found = _read_form(text).of("analysis")
    if not found:
        raise MalformedAnswer(["There is no section `## analysis`."])
    lines = [line for section in found for line in section.lines]
    whole = AnswerSection(word="analysis", rest="", lines=lines)
    expects: dict[str, str] = {}
    for value in whole.values("expects")[:MAX_ITEMS]:
        subject, _, fields = clean_text(value).strip("`").partition(":")
        expects[subject.strip(" `")] = fields.strip(" `")
    analysis = Analysis(
        responsibilities=_read_texts(whole, "responsibility"),
        dependencies=_read_names(whole.values("dependency")),
        schema_expectations=expects,
        potential_issues=_read_texts(whole, "issue"),
    )
    if analysis == Analysis():
        raise MalformedAnswer(["The section `## analysis` has no line that begins with `responsibility:`."])
    return analysis


def read_drafts(text: str, view: AgentView) -> tuple[Proposal, ...]:
    """Return the proposals in an answer, from its sections `## proposal`; empty for `## nothing`.

    Raises:
        MalformedAnswer: There is neither kind of section, or both; or a proposal is not usable.
    """
    answer = _read_form(text, has_code=True)
    sections = answer.of("proposal")
    if not sections:
        if answer.of("nothing"):
            return ()
        raise MalformedAnswer(["There is neither a section `## proposal` nor `## nothing`."])
    if answer.of("nothing"):
        raise MalformedAnswer(["There are both `## proposal` and `## nothing`."])
    if len(sections) > MAX_PROPOSALS:
        raise MalformedAnswer(
            [f"There are {len(sections)} proposals; give the {max(view.limit, 1)} most important ones."]
        )
    drafts: list[Proposal] = []
    faults: list[str] = []
    for ordinal, section in enumerate(sections, 1):
        try:
            drafts.append(_read_proposal(section, ordinal, view))
        except UnusableEditError as fault:
            faults.append(f"Proposal {ordinal}: {fault}")
    if faults:
        raise MalformedAnswer(faults)
    return tuple(drafts)


def read_repair(text: str, view: AgentView, refused: Proposal) -> Proposal | None:
    """Return the repaired proposal in an answer, or None for `## nothing`; missing fields keep the values of `refused`.

    Raises:
        MalformedAnswer: As `read_drafts`, or there is more than one proposal.
    """
    drafts = read_drafts(text, view)
    if len(drafts) > 1:
        raise MalformedAnswer([f"There are {len(drafts)} proposals; fix the one that was refused, and no other."])
    return _fill_from_refused(drafts[0], refused) if drafts else None


def read_evaluations(text: str, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
    """Return an evaluation for each proposal of a question, in that order, from the sections `## evaluation P001`.

    Raises:
        MalformedAnswer: An evaluation is missing, occurs twice, is about another proposal, or is not usable.
    """
    asked = {trial.proposal.proposal_id: trial.proposal for trial in trials}
    sections, faults = _assign_sections(_read_form(text).of("evaluation"), tuple(asked), "evaluation")
    found: list[ProposalEvaluation] = []
    for name, section in sections.items():
        try:
            found.append(_read_evaluation(section, asked[name], view))
        except UnusableEditError as fault:
            faults.append(f"Evaluation {name}: {fault}")
    if faults:
        raise MalformedAnswer(faults, tuple(found))
    return tuple(found)


def read_decision(text: str, view: AgentView, trial: TriedProposal) -> ProposalEvaluation:
    """Return the decision of an arbiter, accept or reject, from the section `## decision P001`.

    Raises:
        MalformedAnswer: There is no such section or more than one, or its decision is another word.
    """
    proposal = trial.proposal
    sections, faults = _assign_sections(_read_form(text).of("decision"), (proposal.proposal_id,), "decision")
    if faults:
        raise MalformedAnswer(faults)
    try:
        return _read_vote(sections[proposal.proposal_id], proposal, view, ("accept", "reject"))
    except UnusableEditError as fault:
        raise MalformedAnswer([f"Decision {proposal.proposal_id}: {fault}"]) from None


def _assign_sections(
    sections: Sequence[AnswerSection], asked: tuple[str, ...], word: str
) -> tuple[dict[str, AnswerSection], list[str]]:
    """Return proposal id -> its section, and the faults: sections about no proposal in `asked`, missing and repeated ones.

    A single section without an id belongs to the only proposal of the question. What follows the last section that was asked for
    is left out: small models often go on counting.
    """
    numbers = {int(name[1:]): name for name in asked if _PROPOSAL_ID.fullmatch(name)}
    found: dict[str, list[AnswerSection]] = {name: [] for name in asked}
    faults: list[str] = []
    for section in sections[: len(asked) + MAX_FAULTS]:
        named = _PROPOSAL_ID.findall(section.rest)
        name = numbers.get(int(named[0])) if len(named) == 1 else None
        if not named and len(asked) == len(sections) == 1:
            name = asked[0]
        if name is None and all(found.values()):
            found[asked[-1]][-1].lines.append(("reasoning", _READ_UP_TO_OTHERS))
            break
        if name is None:
            faults.append(f"`## {word} {clean_text(section.rest, 40)}` is about no proposal that you were asked about.")
        else:
            found[name].append(section)
    for name, given in found.items():
        if len(given) != 1:
            faults.append(f"There is {'no' if not given else 'more than one'} section `## {word} {name}`.")
    return {name: given[0] for name, given in found.items() if len(given) == 1}, faults


# --- proposals -------------------------------------------------------------------------------


def _read_proposal(section: AnswerSection, ordinal: int, view: AgentView) -> Proposal:
    """Return the proposal in a section, with `ordinal`, its position in the answer from 1, as its id.

    Raises:
        UnusableEditError: It has no edit, an edit cannot be used, or it depends on something that is not an earlier proposal.
    """
    edits = [part for part in section.parts if part.word == "edit"]
    if not edits:
        raise UnusableEditError("it has no section `### edit`.")
    changes = read_edits(edits, view.project)
    dst = next(iter(_read_names([section.first_value("dst")])), None)
    owners = {owner for change in changes for owner in view.project.owners(change.file_path)}
    targets = {change.target.partition(".")[0] for change in changes}
    affects = dict.fromkeys([*_read_names(section.values("affects")), *sorted(targets & owners)])
    return Proposal(
        proposal_id=str(ordinal),
        round=view.round,
        src=view.name,
        dst=None if dst in {view.name, "all", "none"} else dst,
        affects=tuple(name for name in affects if name not in {view.name, dst, "none"}),
        intent=clean_text(section.first_value("intent"), _SHORT_CHARS) or "refactor",
        title=clean_text(section.first_value("title"), _SHORT_CHARS),
        reason=clean_text(section.first_value("reason")),
        priority=_read_whole_number(section.first_value("priority")),
        dependencies=_read_dependencies(section, ordinal),
    ).with_changes(changes, [SchemaChange(method=name) for name in _read_names(section.values("contract"))])


def _read_dependencies(section: AnswerSection, ordinal: int) -> tuple[str, ...]:
    """Return the proposals that this one depends on: `P004` of an earlier round, or `1` for an earlier one of this answer.

    Raises:
        UnusableEditError: A value is neither of these.
    """
    found: dict[str, None] = {}
    for value in section.values("depends on"):
        for word in re.split(r"[\s,;]+", value.strip(" `.*")):
            if word.lower() in {"", "none", "and", "nothing", "-"}:
                continue
            number = _PROPOSAL_ID.fullmatch(word)
            is_earlier = word.isascii() and word.isdigit() and 0 < int(word[:9]) < ordinal
            if not number and not is_earlier:
                raise UnusableEditError(f"{clean_text(word, 40)!r} is no earlier proposal that it can depend on.")
            found[f"P{int(number[1]):03}" if number else str(int(word))] = None
    return tuple(found)[:MAX_ITEMS]


def _fill_from_refused(draft: Proposal, old: Proposal) -> Proposal:
    """Return a repaired proposal with the values of the refused one where it has none."""
    return replace(
        draft,
        intent=old.intent if draft.intent == "refactor" else draft.intent,
        title=draft.title or old.title,
        reason=draft.reason or old.reason,
        dst=draft.dst or old.dst,
        affects=draft.affects or old.affects,
    ).with_changes(draft.code_changes, draft.schema_changes or old.schema_changes)


# --- evaluations and decisions ------------------------------------------------------------------------------


def _read_evaluation(section: AnswerSection, proposal: Proposal, view: AgentView) -> ProposalEvaluation:
    """Return an evaluation; one that counters comes with its counter-proposal.

    Raises:
        UnusableEditError: A counter has no usable edits, or another decision has edits; or as `_read_vote`.
    """
    vote = _read_vote(section, proposal, view, _DECISIONS)
    has_edits = any(part.word == "edit" for part in section.parts)
    if vote.decision != "counter":
        if has_edits:
            raise UnusableEditError(
                f"it has edits, which go with the decision `counter` only, and its decision is {vote.decision}."
            )
        return vote
    if not has_edits:
        raise UnusableEditError("a counter-proposal needs a section `### edit`.")
    counter = _read_proposal(section, 1, view)
    counter = replace(
        counter,
        intent=proposal.intent if counter.intent == "refactor" else counter.intent,
        title=counter.title or clean_text(f"Another way: {vote.reasoning}", _SHORT_CHARS),
        reason=counter.reason or vote.reasoning,
        parent=proposal.proposal_id,
        dependencies=(),
    )
    return replace(vote, counter_proposal=counter)


def _read_vote(
    section: AnswerSection, proposal: Proposal, view: AgentView, allowed: tuple[str, ...]
) -> ProposalEvaluation:
    """Return the evaluation in a section, without a counter-proposal.

    Raises:
        UnusableEditError: The decision is not one of `allowed`, or a piece of evidence cannot be used.
    """
    decision = _read_decision_word(section, allowed)
    breaks = section.first_value("breaks").strip(" *_`.").lower()
    does_break = bool(breaks) and re.split(r"\W+", breaks)[0] not in {"no", "none", "nothing", "false", "n"}
    risk = section.first_value("risk").strip(" *_`.").lower()
    return ProposalEvaluation(
        proposal_id=proposal.proposal_id,
        evaluator=view.name,
        round=view.round,
        decision=decision,
        confidence=_read_confidence(section.first_value("confidence")),
        reasoning=clean_text(" ".join(section.values("reasoning", "reason"))),
        concerns=_read_texts(section, "concern"),
        suggestions=_read_texts(section, "suggestion"),
        impact_assessment=ImpactAssessment(
            breaks_contracts=does_break,
            affects_dependencies=(view.name,) if does_break else (),
            estimated_risk=_read_risk(risk, does_break),
        ),
        evidence=_read_evidence(section.parts),
    )


def _read_decision_word(section: AnswerSection, allowed: tuple[str, ...]) -> Decision:
    """Return the decision of a section; raise UnusableEditError unless it has exactly one, and that is allowed."""
    found = {value.strip(" *_`.!()[]\"'").lower() for value in section.values("decision")}
    if not found:
        raise UnusableEditError("it has no line `decision:`.")
    word = found.pop()
    if found or word not in allowed:
        raise UnusableEditError(
            f"its decision must be exactly one of {', '.join(allowed)}; it is {clean_text(word, 60)!r}."
        )
    return word  # type: ignore[return-value] # one of `allowed`


def _read_risk(word: str, does_break: bool) -> Risk:
    """Return the risk that a section states; for another word or none, estimate it."""
    if word in get_args(Risk):
        return word  # type: ignore[return-value] # one of them
    return "high" if does_break else "medium" if word else "low"


def _read_confidence(text: str) -> float:
    """Return a confidence from 0 to 1, from `0.8`, `80%`, `80` or `8/10`; 1 for an empty text, one half for an unreadable one."""
    if not text:
        return 1.0
    if re.fullmatch(r"\d+(\.\d+)?e-\d+", text.strip()):  # as JSON writes a number near 0
        return float(text)
    match = _CONFIDENCE.search(text)
    if not match:
        return 0.5
    value = float(match["value"].replace(",", "."))
    whole = 100 if match["percent"] or (value > 1 and not match["of"]) else float(match["of"] or 1)
    return min(max(value / whole, 0.0), 1.0) if whole else 0.5


def _read_evidence(parts: Iterable[AnswerPart]) -> tuple[Counterexample, ...]:
    """Return the evidence in the parts of a section; raise UnusableEditError if a piece is malformed, or there are too many."""
    found: list[Counterexample] = []
    for part in parts:
        if part.word != "evidence":
            continue
        kind = part.rest.strip(" *_`:").lower()
        text = "\n".join([*(block.text.rstrip("\n") for block in part.blocks), *part.text][:1])
        if kind == "test" and part.blocks and text.strip():
            found.append(Counterexample("test", _replace_surrogates(text) + "\n"))
        elif kind == "contract" and text.strip():
            found.append(Counterexample("contract", clean_text(text)))
        else:
            raise UnusableEditError(
                "`### evidence` must be `contract` or `test`, with the text or the test in a fenced block."
            )
    if len(found) > MAX_EVIDENCE:
        raise UnusableEditError(f"it has more than {MAX_EVIDENCE} pieces of evidence.")
    return tuple(found)


def _replace_surrogates(text: str) -> str:
    """Return a text with `?` for halves of surrogate pairs, which cannot be encoded as UTF-8."""
    return text.encode(errors="replace").decode()


# --- values ----------------------------------------------------------------------------------


def _read_texts(section: AnswerSection, key: str) -> tuple[str, ...]:
    """Return the cleaned values of a key, without empty and repeated ones."""
    texts = (clean_text(value) for value in section.values(key)[:MAX_ITEMS])
    return tuple(dict.fromkeys(text for text in texts if text))


def _read_names(values: Iterable[str]) -> tuple[str, ...]:
    """Return the names in comma-separated values, without marks around them, `none` and repetitions."""
    words = (clean_text(word, _SHORT_CHARS).strip(" `*_.[]") for value in values for word in value.split(","))
    found = dict.fromkeys(word for word in words if word and word.lower() not in {"none", "-"})
    return tuple(found)[:MAX_ITEMS]


def _read_whole_number(text: str) -> int:
    """Return the number that a text consists of; 0 if it is none."""
    number = re.fullmatch(r"[*_` ]*(-?\d{1,6})[*_` ]*", text)
    return int(number[1]) if number else 0
