"""Questions to agents: who answers them, in which order, and what the answers cost. Called by the driver.

A `QuestionAnswerer` takes all questions of a phase and yields the replies in any order: `answer_in_turn` computes them one after
another, a `WorkerPool` in several threads, for agents that wait for models. Each question has a bill; its cost is divided among
the proposals that the question is about.
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
    """A question together with the agent, its view and everything else needed to answer it.

    Attributes:
        trials: The proposals that the question is about, in their order.
        bill: The budget and the cost of the answer; None if costs are not counted.
    """

    agent: ActiveAgent
    question: AgentQuestion | AskAnalysis
    view: AgentView
    trials: tuple[TriedProposal, ...] = ()
    bill: Bill | None = None


class QuestionAnswerer(Protocol):
    """Answers a batch of questions, each exactly once, or ends with a `NegotiationStopped` instead of a reply."""

    def __call__(self, batch: Iterable[PreparedQuestion]) -> Iterable[Reply | Analyzed]:
        """Yield the replies as they arrive; the whole batch is read before the first reply."""


def answer_in_turn(batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
    """Answer one question after another; each is computed when the caller asks for its reply."""
    for asked in list(batch):
        yield answer_question(asked)


class WorkerPool:
    """Answers questions in several threads. When the caller stops reading replies, the threads are abandoned, not joined.

    Attributes:
        width: How many questions are answered at the same time.
        stop_reason: Called every 0.05 s while answers are missing, so that a stop does not wait for a model.
        on_wait: Called as often with the numbers of missing answers and of characters received so far; with (0, 0) at the end.
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
        """Yield the replies as they arrive. Each question is asked at once, while the batch prepares the next one."""
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
                open_questions.put(None)  # ends a thread that waits for a question
            self.on_wait(0, 0)

    def _await(
        self, replies: SimpleQueue[Reply | Analyzed | None], put: Sequence[PreparedQuestion], awaited: int
    ) -> Reply | Analyzed:
        while True:
            try:
                return replies.get(timeout=_STOP_CHECK_S) or NegotiationStopped(
                    "error", "the thread that asked an agent has ended without an answer"
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
    """Ask the agent. An exception or an answer of the wrong type becomes a reply with `failure` set.

    A `NegotiationStopped` takes its place after a failure that every further question would meet too, and when the budget
    does not allow the request.
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
    """Return the answer of an agent, or None and the reason why it cannot be used."""
    said, error = attempt(lambda: decoder.decode(msgspec.json.encode(ask_agent())))
    if isinstance(error, ModelError) and error.is_final:
        current_bill().final_error = error
    return said, _describe_failure(error) if error else ""


def _describe_failure(error: Exception) -> str:
    """Return the sentence and code of a GraphBus error, the type and text of any other."""
    return (
        f"{error.sentence} [{error.code}]" if isinstance(error, GraphBusError) else f"{type(error).__name__}: {error}"
    )


def announce_waiting(bus: MessageBus) -> Callable[[int, int], None]:
    """Return an `on_wait` that publishes each change; not for the transcript, because the moments are not reproducible."""
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
    """An agent whose answers cost money, so that it is not asked again while its inputs are unchanged."""

    def worst_case(
        self, question: AgentQuestion | AskAnalysis, view: AgentView, trials: Sequence[TriedProposal]
    ) -> WorstCase:
        """Return the most that answering a question can cost."""


_ROLES: dict[type, str] = {AskEvaluations: "evaluator", AskArbitration: "arbiter"}
"""Question -> the role whose model answers it; the proposer's for all others."""


class AffordableBatch:
    """The first questions of a batch whose worst cases fit the budget together, each with its bill.

    Money that early answers leave over is not used for later questions of the same batch: who is asked must not depend on
    how fast the first ones answer.

    Attributes:
        size: How many questions have been yielded.
        refusal: Why the next one does not fit, naming the setting; empty if all fit.
        rest: The questions that have not been yielded.
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
    """The bills of a session, in the order in which the questions were asked.

    Attributes:
        prices: Role -> what a model costs; None where that is not known.
    """

    def __init__(self, meter: BudgetMeter) -> None:
        self.meter = meter
        self.prices: Mapping[str, Price | None] = {}
        self._bills: list[tuple[AgentQuestion | AskAnalysis, Bill]] = []

    def open_bill(self, asked: PreparedQuestion, held: Amount) -> PreparedQuestion:
        """Return the question with a bill, for which `held` has been set aside."""
        bill = Bill(self.meter, held)
        self._bills.append((asked.question, bill))
        return asked._replace(bill=bill)

    def worst_case_of(self, asked: PreparedQuestion) -> Amount:
        """Return the most that a question may cost."""
        if not isinstance(asked.agent, PaidAgent):
            return Amount()
        role = _ROLES.get(type(asked.question), "proposer")
        return price_worst_case(asked.agent.worst_case(asked.question, asked.view, asked.trials), self.prices.get(role))

    @property
    def final_error(self) -> ModelError | None:
        """The failure that ended the session because every further question would fail too; None without one."""
        return next((bill.final_error for _, bill in self._bills if bill.final_error), None)

    def close_all(self) -> None:
        """Close all bills: missing answers count with their worst case, and no further attempt is made."""
        for _, bill in self._bills:
            bill.settle(is_dropped=True)

    @property
    def spend(self) -> Spend:
        """The cost of all questions answered so far."""
        return self.meter.spend

    def cost_by_proposal(self, records: Iterable[ProposalRecord]) -> dict[str, float]:
        """Return proposal -> dollars: each question's cost, divided among the proposals it was about or that came from it."""
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
