"""A model's answer -> typed data. Tolerant of form, strict about content: any fault raises `MalformedAnswer`.

The format is described in docs/answer-format.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
    read_sections,
)
from graphbus_core.negotiation.edit_blocks import UnusableEditError, read_edits

MAX_PROPOSALS = 20
MAX_ITEMS = 50
"""The largest number of values of a repeatable key; further ones are ignored."""
MAX_FAULTS = 8
MAX_EVIDENCE = 3
_SHORT = 200
_NUMBER = re.compile(r"\bP0*(\d{1,9})\b", re.IGNORECASE)
_CONFIDENCE = re.compile(
    r"(?P<value>-?(?:\d{1,3}(?:[.,]\d{1,9})?|[.,]\d{1,9}))\s*(?:(?P<percent>%)|(?:/|out of)\s*(?P<of>\d{1,3}))?"
)
_DECISIONS: tuple[str, ...] = get_args(Decision)


class MalformedAnswer(ValueError):  # noqa: N818 - it says what the answer is
    """An answer that cannot be used.

    Attributes:
        faults: One sentence each, for the model.
        usable: The evaluations in the answer that have no fault.
    """

    def __init__(self, faults: Iterable[str], usable: tuple[ProposalEvaluation, ...] = ()) -> None:
        self.faults = tuple(faults)[:MAX_FAULTS]
        self.usable = usable
        super().__init__(" ".join(self.faults))


class _Sections(NamedTuple):
    """The sections of one answer, by their word."""

    sections: tuple[AnswerSection, ...]

    def of(self, word: str) -> list[AnswerSection]:
        return [section for section in self.sections if section.word == word]


def _split(text: str) -> _Sections:
    try:
        return _Sections(read_sections(text))
    except AnswerFormError as error:
        raise MalformedAnswer([str(error)]) from None


def read_analysis(text: str) -> Analysis:
    """Read `## analysis`.

    Raises:
        MalformedAnswer: There is no such section, or it has no known line.
    """
    found = _split(text).of("analysis")
    if not found:
        raise MalformedAnswer(["There is no section `## analysis`."])
    lines = [line for section in found for line in section.lines]
    whole = AnswerSection(word="analysis", rest="", lines=lines)
    expects: dict[str, str] = {}
    for value in whole.values("expects")[:MAX_ITEMS]:
        subject, _, fields = clean_text(value).strip("`").partition(":")
        expects[subject.strip(" `")] = fields.strip(" `")
    analysis = Analysis(
        responsibilities=_texts(whole, "responsibility"),
        dependencies=_names(whole.values("dependency")),
        schema_expectations=expects,
        potential_issues=_texts(whole, "issue"),
    )
    if analysis == Analysis():
        raise MalformedAnswer(["The section `## analysis` has no line that begins with `responsibility:`."])
    return analysis


def read_drafts(text: str, view: AgentView) -> tuple[Proposal, ...]:
    """Read the sections `## proposal`, in their order; none for `## nothing`.

    Raises:
        MalformedAnswer: There is neither, or both, or one of them is not usable.
    """
    heard = _split(text)
    sections = heard.of("proposal")
    if not sections:
        if heard.of("nothing"):
            return ()
        raise MalformedAnswer(["There is neither a section `## proposal` nor `## nothing`."])
    if heard.of("nothing"):
        raise MalformedAnswer(["There are both `## proposal` and `## nothing`."])
    if len(sections) > MAX_PROPOSALS:
        raise MalformedAnswer(
            [f"There are {len(sections)} proposals; give the {max(view.limit, 1)} most important ones."]
        )
    drafts: list[Proposal] = []
    faults: list[str] = []
    for ordinal, section in enumerate(sections, 1):
        try:
            drafts.append(_draft(section, ordinal, view))
        except UnusableEditError as fault:
            faults.append(f"Proposal {ordinal}: {fault}")
    if faults:
        raise MalformedAnswer(faults)
    return tuple(drafts)


def read_repair(text: str, view: AgentView, refused: Proposal) -> Proposal | None:
    """Read the repaired proposal, or None for `## nothing`; missing fields keep their old values.

    Raises:
        MalformedAnswer: As `read_drafts`, or there is more than one.
    """
    drafts = read_drafts(text, view)
    if len(drafts) > 1:
        raise MalformedAnswer([f"There are {len(drafts)} proposals; mend the one that was refused, and only that."])
    return _filled(drafts[0], refused) if drafts else None


def read_evaluations(text: str, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
    """Read one `## evaluation P001` for each proposal of the question, in its order.

    Raises:
        MalformedAnswer: One is missing, ambiguous, there twice, or about another proposal.
    """
    asked = {trial.proposal.proposal_id: trial.proposal for trial in trials}
    given, faults = _assigned(_split(text).of("evaluation"), tuple(asked), "evaluation")
    found: list[ProposalEvaluation] = []
    for name, section in given.items():
        try:
            found.append(_evaluation(section, asked[name], view))
        except UnusableEditError as fault:
            faults.append(f"Evaluation {name}: {fault}")
    if faults:
        raise MalformedAnswer(faults, tuple(found))
    return tuple(found)


def read_decision(text: str, view: AgentView, trial: TriedProposal) -> ProposalEvaluation:
    """Read the arbiter's `## decision P001`: accept or reject.

    Raises:
        MalformedAnswer: There is none, more than one, or it is neither.
    """
    proposal = trial.proposal
    given, faults = _assigned(_split(text).of("decision"), (proposal.proposal_id,), "decision")
    if faults:
        raise MalformedAnswer(faults)
    try:
        return _judgement(given[proposal.proposal_id], proposal, view, ("accept", "reject"))
    except UnusableEditError as fault:
        raise MalformedAnswer([f"Decision {proposal.proposal_id}: {fault}"]) from None


def _assigned(
    sections: Sequence[AnswerSection], asked: tuple[str, ...], word: str
) -> tuple[dict[str, AnswerSection], list[str]]:
    """Return each proposal's only section, and the faults of all others."""
    numbers = {int(name[1:]): name for name in asked if _NUMBER.fullmatch(name)}
    found: dict[str, list[AnswerSection]] = {name: [] for name in asked}
    faults: list[str] = []
    for section in sections[: len(asked) + MAX_FAULTS]:
        named = _NUMBER.findall(section.rest)
        name = numbers.get(int(named[0])) if len(named) == 1 else None
        if not named and len(asked) == len(sections) == 1:
            name = asked[0]
        if name is None:
            faults.append(f"`## {word} {clean_text(section.rest, 40)}` is about no proposal that you were asked about.")
        else:
            found[name].append(section)
    for name, given in found.items():
        if len(given) != 1:
            faults.append(f"There is {'no' if not given else 'more than one'} section `## {word} {name}`.")
    return {name: given[0] for name, given in found.items() if len(given) == 1}, faults


# --- proposals -------------------------------------------------------------------------------


def _draft(section: AnswerSection, ordinal: int, view: AgentView) -> Proposal:
    edits = [part for part in section.parts if part.word == "edit"]
    if not edits:
        raise UnusableEditError("it has no section `### edit`.")
    changes = read_edits(edits, view.project)
    dst = next(iter(_names([section.first_value("dst")])), None)
    owners = {owner for change in changes for owner in view.project.owners(change.file_path)}
    meant = {change.target.partition(".")[0] for change in changes}
    affects = dict.fromkeys([*_names(section.values("affects")), *sorted(meant & owners)])
    return Proposal(
        proposal_id=str(ordinal),
        round=view.round,
        src=view.name,
        dst=None if dst in {view.name, "all", "none"} else dst,
        affects=tuple(name for name in affects if name not in {view.name, dst, "none"}),
        intent=clean_text(section.first_value("intent"), _SHORT) or "refactor",
        title=clean_text(section.first_value("title"), _SHORT),
        reason=clean_text(section.first_value("reason")),
        priority=_whole_number(section.first_value("priority")),
        dependencies=_dependencies(section, ordinal),
    ).with_changes(changes, [SchemaChange(method=name) for name in _names(section.values("contract"))])


def _dependencies(section: AnswerSection, ordinal: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for value in section.values("depends on"):
        for word in re.split(r"[\s,;]+", value.strip(" `.*")):
            if word.lower() in {"", "none", "and", "nothing", "-"}:
                continue
            number = _NUMBER.fullmatch(word)
            is_earlier = word.isascii() and word.isdigit() and 0 < int(word[:9]) < ordinal
            if not number and not is_earlier:
                raise UnusableEditError(f"{clean_text(word, 40)!r} is no earlier proposal that it can depend on.")
            found[f"P{int(number[1]):03}" if number else str(int(word))] = None
    return tuple(found)[:MAX_ITEMS]


def _filled(draft: Proposal, old: Proposal) -> Proposal:
    return replace(
        draft,
        intent=old.intent if draft.intent == "refactor" else draft.intent,
        title=draft.title or old.title,
        reason=draft.reason or old.reason,
        dst=draft.dst or old.dst,
        affects=draft.affects or old.affects,
    ).with_changes(draft.code_changes, draft.schema_changes or old.schema_changes)


# --- judgements ------------------------------------------------------------------------------


def _evaluation(section: AnswerSection, proposal: Proposal, view: AgentView) -> ProposalEvaluation:
    vote = _judgement(section, proposal, view, _DECISIONS)
    has_edits = any(part.word == "edit" for part in section.parts)
    if vote.decision != "counter":
        if has_edits:
            raise UnusableEditError(
                f"it has edits, which go with `decision: counter` only, and its decision is {vote.decision}."
            )
        return vote
    if not has_edits:
        raise UnusableEditError("a counter-proposal needs a section `### edit`.")
    counter = _draft(section, 1, view)
    counter = replace(
        counter,
        intent=proposal.intent if counter.intent == "refactor" else counter.intent,
        title=counter.title or clean_text(f"Another way: {vote.reasoning}", _SHORT),
        reason=counter.reason or vote.reasoning,
        parent=proposal.proposal_id,
        dependencies=(),
    )
    return replace(vote, counter_proposal=counter)


def _judgement(
    section: AnswerSection, proposal: Proposal, view: AgentView, allowed: tuple[str, ...]
) -> ProposalEvaluation:
    decision = _decision(section, allowed)
    breaks = section.first_value("breaks").strip(" *_`.").lower()
    does_break = bool(breaks) and re.split(r"\W+", breaks)[0] not in {"no", "none", "nothing", "false", "n"}
    risk = section.first_value("risk").strip(" *_`.").lower()
    return ProposalEvaluation(
        proposal_id=proposal.proposal_id,
        evaluator=view.name,
        round=view.round,
        decision=decision,
        confidence=_confidence(section.first_value("confidence")),
        reasoning=clean_text(" ".join(section.values("reasoning", "reason"))),
        concerns=_texts(section, "concern"),
        suggestions=_texts(section, "suggestion"),
        impact_assessment=ImpactAssessment(
            breaks_contracts=does_break,
            affects_dependencies=(view.name,) if does_break else (),
            estimated_risk=_risk(risk, does_break),
        ),
        evidence=_evidence(section.parts),
    )


def _decision(section: AnswerSection, allowed: tuple[str, ...]) -> Decision:
    said = {value.strip(" *_`.!\"'").lower() for value in section.values("decision")}
    if not said:
        raise UnusableEditError("it has no line `decision:`.")
    word = said.pop()
    if said or word not in allowed:
        raise UnusableEditError(
            f"its decision must be exactly one of {', '.join(allowed)}; it is {clean_text(word, 60)!r}."
        )
    return word  # type: ignore[return-value] # one of them


def _risk(word: str, does_break: bool) -> Risk:
    if word in get_args(Risk):
        return word  # type: ignore[return-value] # one of them
    return "high" if does_break else "medium" if word else "low"


def _confidence(text: str) -> float:
    """Read a number from 0 to 1, a percentage, or `8/10`; one half if it cannot be read."""
    if not text:
        return 1.0
    said = _CONFIDENCE.search(text)
    if not said:
        return 0.5
    value = float(said["value"].replace(",", "."))
    whole = 100 if said["percent"] or (value > 1 and not said["of"]) else float(said["of"] or 1)
    return min(max(value / whole, 0.0), 1.0) if whole else 0.5


def _evidence(parts: Iterable[AnswerPart]) -> tuple[Counterexample, ...]:
    found: list[Counterexample] = []
    for part in parts:
        if part.word != "evidence":
            continue
        kind = part.rest.strip(" *_`:").lower()
        text = "\n".join([*(block.text.rstrip("\n") for block in part.blocks), *part.text][:1])
        if kind == "test" and part.blocks and text.strip():
            found.append(Counterexample("test", _encodable(text) + "\n"))
        elif kind == "contract" and text.strip():
            found.append(Counterexample("contract", clean_text(text)))
        else:
            raise UnusableEditError(
                "`### evidence` must be `contract` or `test`, with the text or the test in a fenced block."
            )
    if len(found) > MAX_EVIDENCE:
        raise UnusableEditError(f"it has more than {MAX_EVIDENCE} pieces of evidence.")
    return tuple(found)


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


# --- values ----------------------------------------------------------------------------------


def _texts(section: AnswerSection, key: str) -> tuple[str, ...]:
    texts = (clean_text(value) for value in section.values(key)[:MAX_ITEMS])
    return tuple(dict.fromkeys(text for text in texts if text))


def _names(values: Iterable[str]) -> tuple[str, ...]:
    words = (clean_text(word, _SHORT).strip(" `*_.[]") for value in values for word in value.split(","))
    found = dict.fromkeys(word for word in words if word and word.lower() not in {"none", "-"})
    return tuple(found)[:MAX_ITEMS]


def _whole_number(text: str) -> int:
    number = re.fullmatch(r"[*_` ]*(-?\d{1,6})[*_` ]*", text)
    return int(number[1]) if number else 0
