"""What a session has cost: each question has its bill, and proposals bear the cost of the questions about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Bound, Price
from graphbus_core.llm.metered import NANO, Amount, priced
from graphbus_core.model.proposals import ProposalRecord
from graphbus_core.model.spending import Spend
from graphbus_core.negotiation.asking import AskAnalysis, Asked
from graphbus_core.negotiation.budget import Bill, Meter
from graphbus_core.negotiation.protocol import AgentQuestion, AskArbitration, AskEvaluations, AskProposals, AskRepair
from graphbus_core.negotiation.views import Trial, View


@runtime_checkable
class Costly(Protocol):
    """An agent whose answers cost something, so that it is asked only when there is a reason to."""

    def worst_case(self, question: AgentQuestion | AskAnalysis, view: View, trials: Sequence[Trial]) -> Bound:
        """Give what answering a question can need at most."""


ROLES: dict[type, str] = {AskEvaluations: "evaluator", AskArbitration: "arbiter"}
"""Question -> the role in which it is answered; all others are the proposer's."""


class _Line(NamedTuple):
    question: AgentQuestion | AskAnalysis
    bill: Bill


class _Counted(NamedTuple):
    """What the settled bills come to, which stay as they are; the open ones; and how many there were when they were counted."""

    spend: Spend = Spend()
    nano_usd: int = 0
    open_bills: tuple[Bill, ...] = ()
    known: int = 0

    def anew(self, lines: Sequence[_Line]) -> _Counted:
        """Count what has been settled since."""
        spend, nano_usd = self.spend, self.nano_usd
        open_bills: list[Bill] = []
        for bill in (*self.open_bills, *(line.bill for line in lines[self.known :])):
            if bill.is_settled:
                nano_usd += bill.tab.spent.nano_usd
                spend = _sum(spend, bill.tab.spend, nano_usd)
            else:
                open_bills.append(bill)
        return _Counted(spend, nano_usd, tuple(open_bills), len(lines))


def _sum(spend: Spend, more: Spend, nano_usd: int) -> Spend:
    """Add up; dollars follow from whole billionths, so that the order of the answers makes no difference."""
    return Spend(
        calls=spend.calls + more.calls,
        requests=spend.requests + more.requests,
        cached=spend.cached + more.cached,
        usage=spend.usage + more.usage,
        cost_usd=nano_usd / NANO,
        unpriced=spend.unpriced + more.unpriced,
    )


class Accounts:
    """The bills of a session, in the order in which the questions were put."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.prices: Mapping[str, Price | None] = {}
        self._lines: list[_Line] = []
        self._counted = _Counted()

    def admit(self, batch: Sequence[Asked]) -> tuple[list[Asked], str]:
        """Set the worst case aside for as many questions as fit, in their order.

        Returns:
            These with their bills, and why the next one does not fit; empty when all do.
        """
        admitted: list[Asked] = []
        for asked in batch:
            held = self._worst(asked)
            refusal = self.meter.hold(held)
            if refusal:
                return admitted, refusal
            bill = Bill(self.meter, held)
            self._lines.append(_Line(asked.question, bill))
            admitted.append(asked._replace(bill=bill))
        return admitted, ""

    def _worst(self, asked: Asked) -> Amount:
        if not isinstance(asked.agent, Costly):
            return Amount()
        role = ROLES.get(type(asked.question), "proposer")
        return priced(asked.agent.worst_case(asked.question, asked.view, asked.trials), self.prices.get(role))

    @property
    def final_error(self) -> ModelError | None:
        """The failure after which no question had a chance, if there was one."""
        errors = (line.bill.tab.final_error for line in self._lines)
        return next((error for error in errors if error), None)

    def close(self) -> None:
        """Nobody waits for the answers that have not come: they count with what they may cost, and nothing more is asked."""
        for line in self._lines:
            line.bill.drop()

    @property
    def spend(self) -> Spend:
        """What all questions have cost that were answered so far; asked for after every answer, so each bill counts once."""
        self._counted = self._counted.anew(self._lines)
        return self._counted.spend

    def costs(self, records: Iterable[ProposalRecord]) -> dict[str, float]:
        """Share out what questions have cost among the proposals that they were about, or that came of them."""
        made: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for record in records:
            proposal = record.proposal
            if proposal.parent is None:
                made[proposal.src, proposal.round].append(proposal.proposal_id)
        shares: defaultdict[str, float] = defaultdict(float)
        for question, bill in self._lines:
            about = _about(question, made)
            for proposal_id in about if bill.is_settled else ():
                shares[proposal_id] += bill.tab.spent.nano_usd / len(about)
        return {name: round(share) / NANO for name, share in sorted(shares.items()) if round(share)}


def _about(question: AgentQuestion | AskAnalysis, made: Mapping[tuple[str, int], list[str]]) -> Sequence[str]:
    if isinstance(question, AskProposals):
        return made.get((question.agent, question.round), ())
    if isinstance(question, AskRepair):
        return (question.proposal.proposal_id,)
    if isinstance(question, AskEvaluations):
        return [review.proposal.proposal_id for review in question.reviews]
    return (question.review.proposal.proposal_id,) if isinstance(question, AskArbitration) else ()
