"""How questions reach the agents, and what their answers cost: the seam between the driver and the agents.

An `Answerer` takes all questions of a phase at once and gives the replies as they come, in any order: in turn where an answer is
computed at once, by a pool of threads where it takes a while. Each question has a bill, and proposals bear the cost of the
questions about them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec.json import Decoder

from graphbus_core.bus import MessageBus
from graphbus_core.errors import GraphBusError, ModelError
from graphbus_core.isolation import attempt
from graphbus_core.llm.budget import NANO, Amount, Bill, BudgetMeter, current_bill, price_worst_case
from graphbus_core.llm.client import WorstCase
from graphbus_core.model.proposals import Proposal, ProposalEvaluation, ProposalRecord
from graphbus_core.model.spending import Price, Spend
from graphbus_core.negotiation.agents import ActiveAgent, AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.protocol import (
    AgentQuestion,
    Arbitrated,
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    Evaluated,
    NegotiationStopped,
    Proposed,
    Repaired,
    Reply,
)

_STOP_CHECK_S = 0.05
"""How often a waiting pool checks whether the session was stopped."""


# Made here, in one thread: two threads that make the decoder of a type for the first time at once can crash the process.
_ANALYSIS, _VOTE = Decoder(Analysis), Decoder(ProposalEvaluation)
_DRAFTS, _VOTES = Decoder(tuple[Proposal, ...]), Decoder(tuple[ProposalEvaluation, ...])
_MENDED: Decoder[Proposal | None] = Decoder(Proposal | None)


class AskAnalysis(msgspec.Struct, frozen=True, tag=True):
    """Ask an agent to analyze its own class, before the engine begins."""

    agent: str


class Analyzed(msgspec.Struct, frozen=True, tag=True):
    """The analysis of an agent's own class; when it fails, an empty one and the reason."""

    agent: str
    analysis: Analysis = Analysis()
    failure: str = ""


class PreparedQuestion(NamedTuple):
    """A question with all that is needed to answer it.

    Attributes:
        trials: The proposals that it is about, in their order.
        bill: What the answer may cost and has cost; None where costs are not counted.
    """

    agent: ActiveAgent
    question: AgentQuestion | AskAnalysis
    view: AgentView
    trials: tuple[TriedProposal, ...] = ()
    bill: Bill | None = None


class Answerer(Protocol):
    """Answers a batch of questions, each exactly once, or ends with a `NegotiationStopped` in the place of a reply."""

    def __call__(self, batch: Iterable[PreparedQuestion]) -> Iterable[Reply | Analyzed]:
        """Give the replies as they come. All of the batch is taken before the first reply is given."""


def answer_in_turn(batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
    """Answer one question after another, each when its reply is wanted."""
    for asked in list(batch):
        yield answer_question(asked)


class WorkerPool:
    """Answers questions concurrently. When the caller stops reading replies, its threads are abandoned, not joined.

    Attributes:
        width: How many questions are answered at the same time.
        stop_reason: Called while answers are awaited, so that a stop does not wait for a model.
        on_wait: Called meanwhile with the number of awaited answers and of the characters received so far; (0, 0) at the end.
    """

    def __init__(
        self,
        width: int,
        stop_reason: Callable[[], NegotiationStopped | None],
        on_wait: Callable[[int, int], object] = lambda _awaited, _characters: None,
    ) -> None:
        self.width = width
        self.stop_reason = stop_reason
        self.on_wait = on_wait

    def __call__(self, batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
        """Give the replies as they come. A question is put as soon as it is prepared, while the next one is being prepared."""
        open_questions: SimpleQueue[PreparedQuestion | None] = SimpleQueue()
        replies: SimpleQueue[Reply | Analyzed | None] = SimpleQueue()
        is_over = Event()
        put: list[PreparedQuestion] = []
        try:
            for asked in batch:
                open_questions.put(asked)
                put.append(asked)
                if len(put) <= self.width:
                    work = (open_questions, replies, is_over)
                    Thread(target=_work, args=work, name="graphbus-agent", daemon=True).start()
            for awaited in range(len(put), 0, -1):
                yield self._await(replies, put, awaited)
        finally:
            is_over.set()
            for _ in put[: self.width]:
                open_questions.put(None)  # wakes a thread that has nothing to do
            self.on_wait(0, 0)

    def _await(
        self, replies: SimpleQueue[Reply | Analyzed | None], put: Sequence[PreparedQuestion], awaited: int
    ) -> Reply | Analyzed:
        while True:
            try:
                return replies.get(timeout=_STOP_CHECK_S) or NegotiationStopped(
                    "error", "an agent ended the thread that it ran in"
                )
            except Empty:
                stopped = self.stop_reason()
                if stopped:
                    return stopped
                self.on_wait(awaited, sum(asked.bill.characters_received for asked in put if asked.bill))


def _work(
    open_questions: SimpleQueue[PreparedQuestion | None], replies: SimpleQueue[Reply | Analyzed | None], is_over: Event
) -> None:
    """Answer questions until there are none left or the caller has stopped reading replies."""
    while (asked := open_questions.get()) and not is_over.is_set():
        reply = None
        try:
            reply = answer_question(asked)
        finally:
            replies.put(reply)


def answer_question(asked: PreparedQuestion) -> Reply | Analyzed:
    """Let an agent answer. Whatever it raises or gives amiss becomes a failed reply: no proposal, or an abstention.

    A failure after which no further question has a chance, and a request that the budget does not allow, end the session.
    """
    if asked.bill is None:
        return _answer(asked)
    with asked.bill.running() as bill:
        reply = _answer(asked)
    if bill.final_error:
        return NegotiationStopped("error", bill.final_error.sentence)
    return NegotiationStopped("budget", bill.refusal) if bill.refusal else reply


def _answer(asked: PreparedQuestion) -> Reply | Analyzed:
    agent, question, view, trials, _ = asked
    if isinstance(question, AskAnalysis):
        analysis, failure = _decode_answer(lambda: agent.analyze(view), _ANALYSIS)
        return Analyzed(question.agent, analysis or Analysis(), failure)
    if isinstance(question, AskProposals):
        drafts, failure = _decode_answer(lambda: agent.propose(view), _DRAFTS)
        return Proposed(question.agent, drafts or (), failure)
    if isinstance(question, AskRepair):
        mended = _decode_answer(lambda: agent.repair(view, question.proposal, question.report), _MENDED)
        return Repaired(question.proposal.proposal_id, *mended)
    if isinstance(question, AskEvaluations):
        votes, failure = _decode_answer(lambda: agent.evaluate(view, trials), _VOTES)
        return Evaluated(question.agent, votes or (), failure)
    word = _decode_answer(lambda: agent.arbitrate(view, trials[0], question.evaluations), _VOTE)
    return Arbitrated(question.review.proposal.proposal_id, question.arbiter, *word)


def _decode_answer(ask_agent: Callable[[], object], decoder: Decoder[Any]) -> tuple[Any, str]:
    """Return the answer of an agent if its whole content has the right types, else the reason why it is not used."""
    said, error = attempt(lambda: decoder.decode(msgspec.json.encode(ask_agent())))
    if isinstance(error, ModelError) and error.is_final:
        current_bill().final_error = error
    return said, _describe_failure(error) if error else ""


def _describe_failure(error: Exception) -> str:
    """The message of a GraphBus error; of any other one its type as well."""
    return (
        f"{error.sentence} [{error.code}]" if isinstance(error, GraphBusError) else f"{type(error).__name__}: {error}"
    )


def announce_waiting(bus: MessageBus) -> Callable[[int, int], None]:
    """Give an `on_wait` that publishes whenever something has changed; not in the transcript, for the moment is chance."""
    last = (0, 0)

    def tell(awaited: int, characters: int) -> None:
        nonlocal last
        if (awaited, characters) != last:
            last = (awaited, characters)
            bus.publish("/Negotiation/Awaited", {"awaited": awaited, "characters": characters})

    return tell


# --- what answers cost -------------------------------------------------------------------------


@runtime_checkable
class PaidAgent(Protocol):
    """An agent whose answers cost something, so that it is asked only when there is a reason to."""

    def worst_case(
        self, question: AgentQuestion | AskAnalysis, view: AgentView, trials: Sequence[TriedProposal]
    ) -> WorstCase:
        """Give what answering a question can need at most."""


_ROLES: dict[type, str] = {AskEvaluations: "evaluator", AskArbitration: "arbiter"}
"""Question -> the role in which it is answered; all others are the proposer's."""


class AffordableBatch:
    """The questions of a batch that the budget allows together, in their order, each with its bill.

    What is settled while the wave is under way does not count: who is asked does not depend on how fast the first ones answer.

    Attributes:
        size: How many were given.
        refusal: Why the next one does not fit; empty when all do.
        rest: The questions that were not given.
    """

    def __init__(self, bills: SessionBills, batch: Iterable[PreparedQuestion]) -> None:
        self._bills = bills
        self.size = 0
        self.refusal = ""
        self.rest: Iterator[PreparedQuestion] = iter(batch)

    def __iter__(self) -> Iterator[PreparedQuestion]:
        meter = self._bills.meter
        taken = meter.committed
        for asked in self.rest:
            held = self._bills.worst_case_of(asked)
            self.refusal = meter.set_aside(held, taken)
            if self.refusal:
                self.rest = chain([asked], self.rest)
                return
            taken = taken.plus(held)
            self.size += 1
            yield self._bills.open_bill(asked, held)


class SessionBills:
    """The bills of a session, in the order in which the questions were put.

    Attributes:
        prices: Role -> what a model costs; None where that is not known.
    """

    def __init__(self, meter: BudgetMeter) -> None:
        self.meter = meter
        self.prices: Mapping[str, Price | None] = {}
        self._bills: list[tuple[AgentQuestion | AskAnalysis, Bill]] = []

    def open_bill(self, asked: PreparedQuestion, held: Amount) -> PreparedQuestion:
        """Open the bill of a question whose worst case has been set aside."""
        bill = Bill(self.meter, held)
        self._bills.append((asked.question, bill))
        return asked._replace(bill=bill)

    def worst_case_of(self, asked: PreparedQuestion) -> Amount:
        """Give what a question may cost at most."""
        if not isinstance(asked.agent, PaidAgent):
            return Amount()
        role = _ROLES.get(type(asked.question), "proposer")
        return price_worst_case(asked.agent.worst_case(asked.question, asked.view, asked.trials), self.prices.get(role))

    @property
    def final_error(self) -> ModelError | None:
        """The failure after which no question had a chance, if there was one."""
        return next((bill.final_error for _, bill in self._bills if bill.final_error), None)

    def close_all(self) -> None:
        """End the accounts: answers that are still awaited count with their worst case, and no further attempt is made."""
        for _, bill in self._bills:
            bill.settle(is_dropped=True)

    @property
    def spend(self) -> Spend:
        """What all questions have cost that were answered so far."""
        return self.meter.spend

    def cost_by_proposal(self, records: Iterable[ProposalRecord]) -> dict[str, float]:
        """Divide the cost of the questions among the proposals that they were about or that resulted from them."""
        made: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for record in records:
            proposal = record.proposal
            if proposal.parent is None:
                made[proposal.src, proposal.round].append(proposal.proposal_id)
        shares: defaultdict[str, float] = defaultdict(float)
        for question, bill in self._bills:
            about = _proposals_of(question, made)
            for proposal_id in about if bill.is_settled else ():
                shares[proposal_id] += bill.spent.nano_usd / len(about)
        return {name: round(share) / NANO for name, share in sorted(shares.items()) if round(share)}


def _proposals_of(question: AgentQuestion | AskAnalysis, made: Mapping[tuple[str, int], list[str]]) -> Sequence[str]:
    if isinstance(question, AskProposals):
        return made.get((question.agent, question.round), ())
    if isinstance(question, AskRepair):
        return (question.proposal.proposal_id,)
    if isinstance(question, AskEvaluations):
        return [review.proposal.proposal_id for review in question.reviews]
    return (question.review.proposal.proposal_id,) if isinstance(question, AskArbitration) else ()
