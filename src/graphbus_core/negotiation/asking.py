"""Puts questions to agents, and counts what the answers cost. Called by the driver.

A `QuestionAnswerer` takes all questions of a phase and yields the replies in any order: `answer_in_turn` computes them one after
another, a `WorkerPool` in several threads, for agents that wait for models. Each question has a bill; its cost is divided among
the proposals that the question is about.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec.json import Decoder

from graphbus_core.bus import MessageBus
from graphbus_core.errors import GraphBusError, ModelError
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.isolation import attempt
from graphbus_core.llm.budget import NANO, Amount, Bill, BudgetMeter, Retry, current_bill, price_worst_case
from graphbus_core.llm.client import WorstCase
from graphbus_core.model.proposals import Proposal, ProposalEvaluation, ProposalRecord
from graphbus_core.model.spending import Price, Spend
from graphbus_core.negotiation.agents import ActiveAgent, AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.protocol import (
    KEYS,
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
from graphbus_core.schema.json import Json

_STOP_CHECK_S = 0.05
"""The seconds between two checks of a waiting pool whether the session was stopped."""


# Created at import, in one thread: if two threads create the first decoder of a type at the same time, the process can crash.
_ANALYSIS, _VOTE = Decoder(Analysis), Decoder(ProposalEvaluation)
_DRAFTS, _VOTES = Decoder(tuple[Proposal, ...]), Decoder(tuple[ProposalEvaluation, ...])
_REPAIRED: Decoder[Proposal | None] = Decoder(Proposal | None)


class AskAnalysis(msgspec.Struct, frozen=True, tag=True):
    """Ask an agent to analyze its own class, before the first step of the engine."""

    agent: str


class Analyzed(msgspec.Struct, frozen=True, tag=True):
    """The analysis of an agent's own class; if the agent failed, an empty one, and the reason in `failure`."""

    agent: str
    analysis: Analysis = Analysis()
    failure: str = ""


class PreparedQuestion(NamedTuple):
    """A question with the agent that it is for, and with everything that the agent needs to answer it.

    Attributes:
        view: What the agent sees.
        trials: The proposals to evaluate or to arbitrate, in the order of the question; empty for other questions.
        bill: Counts the cost of the answer, within the budget; None if costs are not counted.
    """

    agent: ActiveAgent
    question: AgentQuestion | AskAnalysis
    view: AgentView
    trials: tuple[TriedProposal, ...] = ()
    bill: Bill | None = None


class QuestionAnswerer(Protocol):
    """Answers each question of a batch once; a `NegotiationStopped` may take the place of a reply."""

    def __call__(self, batch: Iterable[PreparedQuestion]) -> Iterable[Reply | Analyzed]:
        """Yield the replies as they arrive. The batch is read to its end before the first reply is yielded."""


def answer_in_turn(batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
    """Answer one question after another; each agent is called when the caller reads its reply."""
    for asked in list(batch):
        yield answer_question(asked)


OnWait = Callable[[Sequence[PreparedQuestion], int], None]


class WorkerPool:
    """Answers questions in several threads. If the caller stops reading replies, the threads end after their present question.

    Attributes:
        width: The largest number of questions that are answered at the same time.
        stop_reason: Called every 0.05 s while answers are missing, so that a stop need not wait for a model.
        on_wait: Called every 0.05 s with all questions of the batch and the number of missing answers, which is 0 at the end.
        on_retry: Called with the name of an agent and each further attempt to answer its question.
    """

    def __init__(
        self,
        width: int,
        stop_reason: Callable[[], NegotiationStopped | None],
        on_wait: OnWait = lambda _batch, _missing: None,
        on_retry: Callable[[str, Retry], object] = lambda _agent, _retry: None,
    ) -> None:
        self.width = width
        self.stop_reason = stop_reason
        self.on_wait = on_wait
        self.on_retry = on_retry

    def __call__(self, batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
        """Yield the replies as they arrive. A thread answers a question while the next one is still being read from the batch."""
        open_questions: SimpleQueue[PreparedQuestion | None] = SimpleQueue()
        replies: SimpleQueue[Reply | Analyzed | None] = SimpleQueue()
        is_over = Event()
        queued: list[PreparedQuestion] = []
        try:
            for asked in batch:
                open_questions.put(asked)
                queued.append(asked)
                if len(queued) <= self.width:
                    work = (open_questions, replies, is_over)
                    Thread(target=_answer_questions, args=work, name="graphbus-agent", daemon=True).start()
            for missing in range(len(queued), 0, -1):
                reply = self._wait_for_reply(replies, queued, missing)
                self._report_retries(queued)
                yield reply
        finally:
            is_over.set()
            for _ in queued[: self.width]:
                open_questions.put(None)  # ends a thread that waits for a question
            self.on_wait(queued, 0)

    def _wait_for_reply(
        self, replies: SimpleQueue[Reply | Analyzed | None], queued: Sequence[PreparedQuestion], missing: int
    ) -> Reply | Analyzed:
        """Return the next reply, or the reason why the session stops; report the progress meanwhile."""
        while True:
            self.on_wait(queued, missing)
            try:
                return replies.get(timeout=_STOP_CHECK_S) or NegotiationStopped(
                    "error", "the thread that asked an agent has ended without an answer"
                )
            except Empty:
                stopped = self.stop_reason()
                if stopped:
                    return stopped
                self._report_retries(queued)

    def _report_retries(self, queued: Iterable[PreparedQuestion]) -> None:
        """Call `on_retry` for each attempt that was not reported before."""
        for asked in queued:
            while asked.bill and not asked.bill.retries.empty():
                self.on_retry(asked.agent.name, asked.bill.retries.get())


def _answer_questions(
    open_questions: SimpleQueue[PreparedQuestion | None], replies: SimpleQueue[Reply | Analyzed | None], is_over: Event
) -> None:
    """In a thread: answer questions until the queue returns None, or the caller has stopped reading replies.

    An exception that ends the thread, such as SystemExit, leaves None in `replies`.
    """
    while (asked := open_questions.get()) and not is_over.is_set():
        reply = None
        try:
            reply = answer_question(asked)
        finally:
            replies.put(reply)


def answer_question(asked: PreparedQuestion) -> Reply | Analyzed:
    """Call the agent, and return its reply. An exception or an answer of the wrong type becomes a reply with `failure` set.

    If every further question would fail too, or the budget does not allow the request, a `NegotiationStopped` is returned.
    """
    if asked.bill is None:
        return _call_agent(asked)
    with asked.bill.running() as bill:
        reply = _call_agent(asked)
    if bill.final_error:
        return NegotiationStopped("error", remove_paths(bill.final_error.sentence))
    return NegotiationStopped("budget", bill.refusal) if bill.refusal else reply


def _call_agent(asked: PreparedQuestion) -> Reply | Analyzed:
    """Call the method of the agent that answers the question, and return its answer or failure as a reply."""
    agent, question, view, trials, _ = asked
    if isinstance(question, AskAnalysis):
        analysis, failure = _decode_answer(lambda: agent.analyze(view), _ANALYSIS)
        return Analyzed(question.agent, analysis or Analysis(), failure)
    if isinstance(question, AskProposals):
        drafts, failure = _decode_answer(lambda: agent.propose(view), _DRAFTS)
        return Proposed(question.agent, drafts or (), failure)
    if isinstance(question, AskRepair):
        repaired = _decode_answer(lambda: agent.repair(view, question.proposal, question.report), _REPAIRED)
        return Repaired(question.proposal.proposal_id, *repaired)
    if isinstance(question, AskEvaluations):
        votes, failure = _decode_answer(lambda: agent.evaluate(view, trials), _VOTES)
        return Evaluated(question.agent, votes or (), failure)
    decision = _decode_answer(lambda: agent.arbitrate(view, trials[0], question.evaluations), _VOTE)
    return Arbitrated(question.review.proposal.proposal_id, question.arbiter, *decision)


def _decode_answer(ask_agent: Callable[[], object], decoder: Decoder[Any]) -> tuple[Any, str]:
    """Return the validated answer of an agent and an empty text, or None and the reason why there is no usable one.

    An error of a model is also noted on the current bill, as final if every further question would meet it too.
    """
    answer, error = attempt(lambda: decoder.decode(msgspec.json.encode(ask_agent())))
    if isinstance(error, ModelError):
        current_bill().failure = error
        current_bill().final_error = error if error.is_final else None
    return answer, _describe_failure(error) if error else ""


def fail_question(question: AgentQuestion | AskAnalysis, failure: str) -> Reply | Analyzed:
    """Return the reply of an agent that was not asked, or that failed, for this reason."""
    if isinstance(question, AskAnalysis):
        return Analyzed(question.agent, failure=failure)
    if isinstance(question, AskProposals):
        return Proposed(question.agent, failure=failure)
    if isinstance(question, AskRepair):
        return Repaired(question.proposal.proposal_id, None, failure)
    if isinstance(question, AskEvaluations):
        return Evaluated(question.agent, (), failure)
    return Arbitrated(question.review.proposal.proposal_id, question.arbiter, None, failure)


def _describe_failure(error: Exception) -> str:
    """Return the sentence and the code of a GraphBus error, or the type and the text of any other, without absolute paths."""
    if isinstance(error, GraphBusError):
        return remove_paths(f"{error.sentence} [{error.code}]")
    return remove_paths(f"{type(error).__name__}: {error}")


def announce_waiting(bus: MessageBus) -> OnWait:
    """Return an `on_wait` that publishes what has changed: each unusable answer at once, and what is awaited.

    These events are not in the transcript: their times differ from run to run, and a transcript must be reproducible.
    """
    last: dict[str, Json] = {"awaited": 0}
    told: Counter[int] = Counter()

    def publish(batch: Sequence[PreparedQuestion], missing: int) -> None:
        nonlocal last
        for number, asked in enumerate(batch if last["awaited"] else ()):
            for answer in asked.bill.unusable[told[number] :] if asked.bill else ():
                told[number] += 1
                bus.publish("/Negotiation/Unusable", {**describe_question(asked.question), **answer._asdict()})
        now = _describe_waiting(batch, missing) if missing else {"awaited": 0, "characters": 0, "asked": []}
        if now != last and (missing or last["awaited"]):
            last = now
            bus.publish("/Negotiation/Awaited", now)
        if not missing:
            told.clear()

    return publish


def announce_retry(bus: MessageBus) -> Callable[[str, Retry], object]:
    """Return an `on_retry` that publishes each attempt on the bus. As in `announce_waiting`, not in the transcript."""
    return lambda agent, retry: bus.publish("/Negotiation/Retried", {"agent": agent, **retry._asdict()})


def _describe_waiting(batch: Sequence[PreparedQuestion], missing: int) -> dict[str, Json]:
    """Return the number of missing answers and of characters received, and the questions under way, the oldest first."""
    now_s = time.monotonic()
    running = [(asked.question, asked.bill) for asked in batch if asked.bill and asked.bill.is_running]
    running.sort(key=lambda each: each[1].started_s or now_s)
    asked: list[Json] = [
        {
            **describe_question(question),
            "attempt": bill.attempt,
            "seconds": int(now_s - (bill.started_s or now_s)),
            "characters": bill.characters_received,
        }
        for question, bill in running
    ]
    characters = sum(each.bill.characters_received for each in batch if each.bill)
    return {"awaited": missing, "characters": characters, "asked": asked}


def describe_question(question: AgentQuestion | AskAnalysis) -> dict[str, Json]:
    """Return who is asked for what: agent, task, and the ids of the proposals that it is about."""
    if isinstance(question, AskAnalysis):
        return {"agent": question.agent, "task": "analyze", "proposals": []}
    task = KEYS[type(question)][0]
    if isinstance(question, AskEvaluations):
        names: list[Json] = [review.proposal.proposal_id for review in question.reviews]
        return {"agent": question.agent, "task": task, "proposals": names}
    if isinstance(question, AskArbitration):
        return {"agent": question.arbiter, "task": task, "proposals": [question.review.proposal.proposal_id]}
    about: list[Json] = [question.proposal.proposal_id] if isinstance(question, AskRepair) else []
    return {"agent": question.agent, "task": task, "proposals": about}


# --- what answers cost -------------------------------------------------------------------------


@runtime_checkable
class PaidAgent(Protocol):
    """An agent whose answers cost money, so that it is not asked again while its inputs are unchanged."""

    def worst_case(
        self, question: AgentQuestion | AskAnalysis, view: AgentView, trials: Sequence[TriedProposal]
    ) -> WorstCase:
        """Return the most that answering a question can cost."""


_ROLE_OF_QUESTION: dict[type, str] = {AskEvaluations: "evaluator", AskArbitration: "arbiter"}
"""Type of a question -> the role whose model answers it; the proposer answers all others."""


def role_of(question: AgentQuestion | AskAnalysis) -> str:
    """Return the role whose model answers a question."""
    return _ROLE_OF_QUESTION.get(type(question), "proposer")


class AffordableBatch:
    """Iterates over the first questions of a batch, each with its bill, as far as their worst cases fit the budget together.

    Money that early answers leave over is not used for later questions of the same batch: which agents are asked must not depend
    on how fast the first ones answer. A model that has not given a usable answer yet gets no more questions at a time than it
    takes to give it up.

    Attributes:
        size: The number of questions that were yielded.
        refusal: Why the next question does not fit, naming the setting; empty if all fit.
        rest: The questions that were not yielded.
        is_whole: True if all questions of the batch were yielded.
    """

    def __init__(self, bills: SessionBills, batch: Iterable[PreparedQuestion]) -> None:
        self._bills = bills
        self.size = 0
        self.refusal = ""
        self.rest: Iterator[PreparedQuestion] = iter(batch)
        self.is_whole = False
        self._trials_left: dict[str, float] = {}

    def __iter__(self) -> Iterator[PreparedQuestion]:
        meter = self._bills.meter
        taken = meter.committed
        for asked in self.rest:
            held = self._bills.worst_case_of(asked)
            may_ask = self._take_trial(asked)
            self.refusal = meter.set_aside(held, taken) if may_ask else ""
            if self.refusal or not may_ask:
                self.rest = chain([asked], self.rest)
                return
            taken = taken.plus(held)
            self.size += 1
            yield self._bills.open_bill(asked, held)
        self.is_whole = True

    def _take_trial(self, asked: PreparedQuestion) -> bool:
        """Return whether the model of a question may get one more in this batch.

        The number is computed before its first one: later, it would depend on how fast the earlier ones are answered.
        """
        model = self._bills.model_of(asked)
        if model not in self._trials_left:
            self._trials_left[model] = self._bills.count_trials_left(model)
        self._trials_left[model] -= 1
        return self._trials_left[model] >= 0


MOST_UNUSABLE = 3
"""A model is given up after this number of questions without a usable answer."""
_UNUSABLE, _TOO_LONG = "GBE460", "GBE462"


class _OpenedBill(NamedTuple):
    """A question, its bill, and the model that answers it; empty if rules or a program do."""

    question: AgentQuestion | AskAnalysis
    bill: Bill
    model: str


class SessionBills:
    """The bills of a session, in the order in which the questions were asked.

    Attributes:
        models: Role -> `"provider:name"`; empty for rule agents.
        prices: Role -> the price of its model; None if not known.
    """

    def __init__(self, meter: BudgetMeter) -> None:
        self.meter = meter
        self.models: Mapping[str, str] = {}
        self.prices: Mapping[str, Price | None] = {}
        self._bills: list[_OpenedBill] = []

    def model_of(self, asked: PreparedQuestion) -> str:
        """Return the model that answers a question; empty if rules or a program do."""
        return self.models.get(role_of(asked.question), "") if isinstance(asked.agent, PaidAgent) else ""

    def open_bill(self, asked: PreparedQuestion, held: Amount) -> PreparedQuestion:
        """Return the question with a new bill, on which `held` is reserved from the budget."""
        bill = Bill(self.meter, held)
        self._bills.append(_OpenedBill(asked.question, bill, self.model_of(asked)))
        return asked._replace(bill=bill)

    def worst_case_of(self, asked: PreparedQuestion) -> Amount:
        """Return the most that a question can cost; nothing for an agent that asks no model."""
        if not isinstance(asked.agent, PaidAgent):
            return Amount()
        role = role_of(asked.question)
        return price_worst_case(asked.agent.worst_case(asked.question, asked.view, asked.trials), self.prices.get(role))

    def unusable_answers(self, model: str) -> list[ModelError]:
        """Return the failures of the questions to a model that it did not answer usably.

        A usable answer removes the earlier failures of the same kind of question, so that a model that fails now and then is not
        given up, and one that can do all but vote is. The order is that of the questions, so it does not depend on their speed.
        """
        failures: list[tuple[type, ModelError]] = []
        for question, bill, asked_model in self._bills:
            if asked_model != model or not bill.is_settled:
                continue
            if bill.failure and bill.failure.code == _UNUSABLE:
                failures.append((type(question), bill.failure))
            elif bill.has_usable_answer:
                failures = [(kind, failure) for kind, failure in failures if kind is not type(question)]
        return [failure for _, failure in failures]

    def count_trials_left(self, model: str) -> float:
        """Return how many questions a model may be asked at the same time: any number after its first usable answer."""
        if not model or any(each.bill.has_usable_answer and each.model == model for each in self._bills):
            return math.inf
        return max(1, MOST_UNUSABLE - len(self.unusable_answers(model)))

    @property
    def final_error(self) -> ModelError | None:
        """The error that ended the session because every further question would fail too; None if there was none."""
        return next((each.bill.final_error for each in self._bills if each.bill.final_error), None)

    @property
    def context_error(self) -> ModelError | None:
        """The first failure of a model if all of them are about a prompt that is too long for it; else None."""
        failures = [each.bill.failure for each in self._bills if each.bill.failure]
        return failures[0] if failures and all(failure.code == _TOO_LONG for failure in failures) else None

    def close_all(self) -> None:
        """Close all bills. A question whose answer is missing counts with its worst case, and is not tried again."""
        for each in self._bills:
            each.bill.settle(is_dropped=True)

    @property
    def spend(self) -> Spend:
        """The cost of all questions answered so far."""
        return self.meter.spend

    def cost_by_proposal(self, records: Iterable[ProposalRecord]) -> dict[str, float]:
        """Return proposal id -> dollars.

        The cost of a question is divided equally among the proposals that it was about or that its answer made. Analyses, and
        questions without a proposal, are left out; so are costs that round to nothing.
        """
        made: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for record in records:
            proposal = record.proposal
            if proposal.parent is None:
                made[proposal.src, proposal.round].append(proposal.proposal_id)
        shares: defaultdict[str, float] = defaultdict(float)
        for question, bill, _ in self._bills:
            about = _proposals_concerned(question, made)
            for proposal_id in about if bill.is_settled else ():
                shares[proposal_id] += bill.spent.nano_usd / len(about)
        return {name: round(share) / NANO for name, share in sorted(shares.items()) if round(share)}


def _proposals_concerned(
    question: AgentQuestion | AskAnalysis, made: Mapping[tuple[str, int], list[str]]
) -> Sequence[str]:
    """Return the ids of the proposals that a question is about; for `AskProposals` those that came from it.

    Args:
        made: (agent, round) -> the proposals that the agent made in that round, without counter-proposals.
    """
    if isinstance(question, AskProposals):
        return made.get((question.agent, question.round), ())
    if isinstance(question, AskRepair):
        return (question.proposal.proposal_id,)
    if isinstance(question, AskEvaluations):
        return [review.proposal.proposal_id for review in question.reviews]
    return (question.review.proposal.proposal_id,) if isinstance(question, AskArbitration) else ()
