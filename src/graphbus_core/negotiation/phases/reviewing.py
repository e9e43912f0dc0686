"""A person's word on a change, where one is asked for: before each commit, and on what the votes rejected. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.negotiation.admission import refuse
from graphbus_core.negotiation.phases.gating import failure_of, with_identity
from graphbus_core.negotiation.phases.voting import review_of
from graphbus_core.negotiation.protocol import Answered, AskPerson, Case, PersonAnswered, ProposalMade
from graphbus_core.negotiation.turn import Turn

MAX_EDITS = 3
"""How often a person may put another text in the place of one proposal."""


def ask_person(turn: Turn, case: Case) -> None:
    """Show a person what would be committed, what the votes rejected, or why the gate refuses the person's own text."""
    has_failed = case.gate is not None and not case.gate.passed
    reason = failure_of(case.gate) if has_failed else case.turned_down
    turn.ask(AskPerson(turn.state.round, review_of(case), case.evaluations, case.agreed, reason))


def take_answer(turn: Turn, reply: Answered) -> None:
    """Do as the person says; nobody votes on it again."""
    case = turn.cases[reply.proposal_id]
    turn.tell(PersonAnswered(case.proposal_id, reply.verdict, reply.reason))
    if reply.verdict == "edit":
        _take_edit(turn, case, reply)
    elif reply.verdict == "no":
        refusal = case.turned_down or "turned down by a person"
        turn.close(case, "rejected", f"{refusal}: {reply.reason}" if reply.reason else refusal)
    elif case.gate is None or not case.gate.passed:
        turn.close(case, "refused", failure_of(case.gate))
    else:
        turn.change(case, agreed=case.agreed or "override", is_approved=True, is_cleared=True)


def _take_edit(turn: Turn, case: Case, reply: Answered) -> None:
    """Put the person's text in the place of the proposal's; it climbs the gate like any other."""
    own = reply.proposal or replace(case.proposal, code_changes=())
    edited = with_identity(own, case.proposal)
    case = turn.change(
        case,
        proposal=edited,
        gated_on="",
        agreed="override",
        is_approved=True,
        is_cleared=True,
        edits=case.edits + 1,
    )
    turn.tell(ProposalMade(edited))
    refusal = refuse(edited, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close(case, "refused", refusal)


def take_edited_report(turn: Turn, case: Case) -> None:
    """Tell a person why the gate refuses the text; after some attempts, refuse it."""
    if case.edits >= MAX_EDITS:
        turn.close(case, "refused", failure_of(case.gate))
    else:
        turn.change(case, is_approved=False)
