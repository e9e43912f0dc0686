"""Checks what a program answers: the envelope of its message, and the result of each method against what was asked.

The question is plain JSON, because a transcript has nothing else. A check first notes the number of its requirement, so that it
is known which requirements an answer has put to the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.model.proposals import Proposal, ProposalEvaluation
from graphbus_core.negotiation.agents import Analysis
from graphbus_core.negotiation.gbnp.messages import (
    METHODS,
    VERSION,
    Arbitration,
    Evaluations,
    Proposals,
    RepairedProposal,
    Welcome,
)
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS, Side

_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
_DECISIONS = ("accept", "reject", "counter", "defer")
_SHOWN = 120
"""The most characters of a value in a reason."""

Note = Callable[[str], object]
"""Called with the number of each requirement that is put to the test."""


class BreachError(Exception):
    """One side has broken a requirement.

    Attributes:
        number: The number of the requirement.
        reason: What is wrong, as part of a sentence.
        side: Who has broken it; for a requirement of both, the side that wrote the message.
    """

    def __init__(self, number: str, reason: str, side: Side = "program") -> None:
        super().__init__(f"{number}: {reason}")
        self.number = number
        self.reason = reason
        self.side = side

    @property
    def text(self) -> str:
        """The requirement."""
        return REQUIREMENTS[self.number].text


def show(value: object) -> str:
    """Return a value as JSON, cut off if it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def require(note: Note, number: str, is_met: bool, reason: str) -> None:
    """Note that a requirement is put to the test; raise BreachError if it is not met."""
    note(number)
    if not is_met:
        raise BreachError(number, reason)


def read_result(method: str, params: Mapping[str, Any], result: Any, note: Note = lambda _number: None) -> Any:
    """Return the result of a method as an instance of its class.

    Args:
        method: The method; it must be one of `METHODS`.
        params: The parameters of the question, valid under the schema.
        result: What the program has answered, as plain JSON.
        note: Called with each requirement that is put to the test.

    Raises:
        BreachError: The result does not meet a requirement.
    """
    return _READERS[method](params, result, note)


def _convert(number: str, result: Any, method: str, note: Note) -> Any:
    """Return the result as an instance of its class; raise BreachError for `number` if it is none."""
    note(number)
    try:
        return msgspec.convert(result, METHODS[method].result)
    except msgspec.ValidationError as error:
        raise BreachError(number, _describe(error)) from None


def _describe(error: msgspec.ValidationError) -> str:
    """Return what does not fit and where, as part of a sentence."""
    what, _, place = str(error).partition(" - at ")
    return f"{what[:1].lower()}{what[1:]}{f' at {place}' if place else ''}"


def _read_welcome(params: Mapping[str, Any], result: Any, note: Note) -> Welcome:
    found = result if isinstance(result, dict) else {}
    version, most = found.get("protocol"), min(params["protocol"], VERSION)
    is_known = type(version) is int and 1 <= version <= most
    require(note, "GBNP-021", is_known, f"it is {show(version)}, and there is 1 to {most}")
    name = found.get("agent")
    require(note, "GBNP-022", name == params["agent"], f"it is {show(name)}, not {show(params['agent'])}")
    listed = found.get("capabilities")
    are_texts = isinstance(listed, list) and all(isinstance(each, str) for each in listed)
    require(note, "GBNP-023", are_texts, f"they are {show(listed)}")
    welcome: Welcome = _convert("GBNP-027", result, "agent/hello", note)
    return welcome


def _read_analysis(_params: Mapping[str, Any], result: Any, note: Note) -> Analysis:
    analysis: Analysis = _convert("GBNP-030", result, "agent/analyze", note)
    return analysis


def _read_proposals(params: Mapping[str, Any], result: Any, note: Note) -> Proposals:
    answer: Proposals = _convert("GBNP-040", result, "agent/propose", note)
    view = params["view"]
    most = view["limit"]
    require(
        note, "GBNP-043", len(answer.proposals) <= most, f"there are {len(answer.proposals)}, and the limit is {most}"
    )
    seen = {each["proposal"]["proposal_id"] for each in (*view["history"], *view["votes"])}
    for proposal in answer.proposals:
        name = proposal.proposal_id
        require(note, "GBNP-044", bool(name) and name not in seen, f"{show(name)} is used already")
        seen.add(name)
        _check_proposal(proposal, view, None, note)
    return answer


def _read_repair(params: Mapping[str, Any], result: Any, note: Note) -> RepairedProposal:
    note("GBNP-050")
    if not isinstance(result, dict) or "proposal" not in result:
        raise BreachError("GBNP-050", f"the result is {show(result)}")
    answer: RepairedProposal = _convert("GBNP-050", result, "agent/repair", note)
    if answer.proposal:
        was, now = params["proposal"], answer.proposal
        same = now.proposal_id == was["proposal_id"]
        require(note, "GBNP-051", same, f"it is {show(now.proposal_id)}, not {show(was['proposal_id'])}")
        _check_proposal(now, params["view"], was.get("parent"), note, rounds=(was["round"], params["view"]["round"]))
    return answer


def _check_proposal(
    proposal: Proposal, view: Mapping[str, Any], parent: str | None, note: Note, rounds: Sequence[int] = ()
) -> None:
    """Check a proposal, a repaired proposal or a counter-proposal.

    Args:
        proposal: The proposal.
        view: The view in the question.
        parent: The proposal that it must counter; None if it must counter none.
        note: As in `read_result`.
        rounds: The rounds that it may name; empty: only that of the view.
    """
    name, path = view["agent"], f"proposal {proposal.proposal_id}"
    require(note, "GBNP-041", proposal.src == name, f"{path} is from {show(proposal.src)}, not {show(name)}")
    possible = rounds or (view["round"],)
    require(note, "GBNP-042", proposal.round in possible, f"{path} is of round {proposal.round}, not {possible[-1]}")
    if parent is None:
        require(note, "GBNP-045", proposal.parent is None, f"{path} counters {show(proposal.parent)}")
    named = {proposal.dst, *proposal.affects}
    others = {each["name"]: each["path"] for each in view["neighbours"]}
    allowed = {*view["files"], *(place for other, place in others.items() if other in named)}
    is_free = bool(named - {None, name, *others})  # it names an agent whose file the question does not tell
    for change in proposal.code_changes:
        place = change.file_path
        parts = place.split("/")
        is_inside = bool(place) and "\\" not in place and "" not in parts and not {".", ".."} & {*parts}
        require(note, "GBNP-046", is_inside, f"{path} names {show(place)}")
        require(note, "GBNP-047", place in allowed or is_free, f"{path} changes {place}")
        is_digest = _DIGEST.fullmatch(change.base_sha256) is not None
        require(note, "GBNP-048", is_digest, f"{path} has {show(change.base_sha256)}")


def _read_evaluations(params: Mapping[str, Any], result: Any, note: Note) -> Evaluations:
    answer: Evaluations = _convert_evaluation("GBNP-060", result, "agent/evaluate", note)
    asked = [trial["proposal"]["proposal_id"] for trial in params["trials"]]
    seen: set[str] = set()
    for vote in answer.evaluations:
        about = vote.proposal_id
        require(note, "GBNP-061", about in asked, f"{show(about)} is none of {', '.join(asked) or 'nothing'}")
        require(note, "GBNP-062", about not in seen, f"{about} is evaluated twice")
        seen.add(about)
        name = params["view"]["agent"]
        require(note, "GBNP-063", vote.evaluator == name, f"it is {show(vote.evaluator)}, not {show(name)}")
        _check_vote(vote, params["view"], note)
    return answer


def _convert_evaluation(number: str, result: Any, method: str, note: Note) -> Any:
    """As `_convert`; a decision that does not exist, or a claim that only the host can make, has a requirement of its own."""
    found = result if isinstance(result, dict) else {}
    listed = found["evaluations"] if isinstance(found.get("evaluations"), list) else [found.get("evaluation")]
    for vote in filter(lambda each: isinstance(each, dict), listed):
        decision = vote.get("decision")
        if isinstance(decision, str):
            require(note, "GBNP-065", decision in _DECISIONS, f"it is {show(decision)}")
        # The class would add a suffix to the name of an arbiter.
        require(note, "GBNP-068", vote.get("is_arbiter") is not True, "it sets is_arbiter")
    return _convert(number, result, method, note)


def _check_vote(vote: ProposalEvaluation, view: Mapping[str, Any], note: Note) -> None:
    """Check what is required of an evaluation and of the decision of an arbiter."""
    about, round_ = vote.proposal_id, view["round"]
    require(note, "GBNP-064", vote.round == round_, f"the evaluation of {about} is of round {vote.round}, not {round_}")
    require(note, "GBNP-066", 0 <= vote.confidence <= 1, f"that on {about} is {vote.confidence:g}")
    is_claimed = any(each.is_verified or each.detail for each in vote.evidence)
    require(note, "GBNP-068", not is_claimed, f"the evaluation of {about} has evidence with the result of a check")
    counter = vote.counter_proposal
    if vote.decision == "counter" or counter:
        is_counter = vote.decision == "counter" and counter is not None and counter.parent == about
        require(note, "GBNP-067", is_counter, f"the evaluation of {about} is not like that")
    if counter:
        _check_proposal(counter, view, about, note)


def _read_arbitration(params: Mapping[str, Any], result: Any, note: Note) -> Arbitration:
    answer: Arbitration = _convert_evaluation("GBNP-070", result, "agent/arbitrate", note)
    decided, about, name = answer.evaluation, params["trial"]["proposal"]["proposal_id"], params["view"]["agent"]
    is_its = decided.proposal_id == about and decided.evaluator == name
    require(note, "GBNP-072", is_its, f"it is about {show(decided.proposal_id)} by {show(decided.evaluator)}")
    require(note, "GBNP-071", decided.decision in ("accept", "reject"), f"it is {decided.decision}")
    _check_vote(decided, params["view"], note)
    return answer


def _read_nothing(_params: Mapping[str, Any], result: Any, note: Note) -> None:
    require(note, "GBNP-084", isinstance(result, dict), f"it is {show(result)}")


_READERS: dict[str, Callable[[Mapping[str, Any], Any, Note], Any]] = {
    "agent/hello": _read_welcome,
    "agent/analyze": _read_analysis,
    "agent/propose": _read_proposals,
    "agent/repair": _read_repair,
    "agent/evaluate": _read_evaluations,
    "agent/arbitrate": _read_arbitration,
    "agent/bye": _read_nothing,
}
