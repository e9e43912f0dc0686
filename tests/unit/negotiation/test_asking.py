"""A pool of threads that answers questions, what becomes of abandoned ones, and what a session may cost."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.errors import ModelError
from graphbus_core.llm.budget import NANO, Amount, Bill, BudgetMeter, current_bill
from graphbus_core.llm.client import Completion, WorstCase
from graphbus_core.model.config import Budget
from graphbus_core.model.messages import Event
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal
from graphbus_core.model.spending import Price, Usage
from graphbus_core.negotiation.asking import (
    AffordableBatch,
    Analyzed,
    AskAnalysis,
    PreparedQuestion,
    SessionBills,
    WorkerPool,
    announce_waiting,
    answer_in_turn,
    answer_question,
    fail_question,
)
from graphbus_core.negotiation.protocol import (
    AgentQuestion,
    Arbitrated,
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    Evaluated,
    GatedProposal,
    NegotiationStopped,
    Proposed,
    Repaired,
)
from tests.fakes.negotiating_agents import ScriptedAgent
from tests.patience import PATIENCE_S

VIEW: Any = None


def asked(name: str, analysis: Any = None) -> PreparedQuestion:
    agent = ScriptedAgent(name)
    if analysis is not None:
        agent.analysis = analysis
    return PreparedQuestion(agent, AskAnalysis(name), VIEW)


def test_questions_that_have_not_begun_are_dropped_with_the_replies() -> None:
    seen: list[int] = []
    is_closed = threading.Event()

    def answer(number: int) -> None:
        seen.append(number)
        if number:
            is_closed.wait(PATIENCE_S)

    batch = [asked(str(n), lambda _view, n=n: answer(n)) for n in range(50)]
    replies = iter(WorkerPool(1, lambda: None)(batch))
    next(replies)
    replies.close()  # type: ignore[attr-defined]
    is_closed.set()
    pool = [thread for thread in threading.enumerate() if thread.name == "graphbus-agent"]
    for thread in pool:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in pool)
    assert seen in ([0], [0, 1])


def test_a_stop_is_heard_while_an_answer_is_awaited() -> None:
    release = threading.Event()
    stop = NegotiationStopped("manual", "by hand")
    (reply,) = WorkerPool(2, lambda: stop)([asked("slow", lambda _view: release.wait(PATIENCE_S) and None)])
    release.set()
    assert reply is stop


def test_who_is_asked_and_each_unusable_answer_is_published_while_the_answer_is_awaited() -> None:
    bus, published, is_told = MessageBus(history=0), [], threading.Event()

    def listen(event: Event) -> None:
        published.append((event.topic.rpartition("/")[2], event.payload))
        if event.topic.endswith("Unusable") and event["is_last"]:
            is_told.set()

    def answer(_view: object) -> None:
        bill = current_bill()
        bill.allow_attempt(Amount(1, 1))
        bill.add_loss(Amount())
        bill.note_progress(8)
        bill.add_answer(Completion(text="", model="stub:m"))
        bill.note_unusable("no section")
        bill.note_progress(5)
        assert bill.attempt == 2
        bill.add_answer(Completion(text="", model="stub:m"))
        bill.note_unusable("no heading", is_last=True)
        assert is_told.wait(PATIENCE_S), "it is told before the reply"

    bus.subscribe("/Negotiation/*", listen)
    bills = SessionBills(BudgetMeter(Budget()))
    batch = AffordableBatch(bills, [asked("a", answer), asked("b")])
    pool = WorkerPool(1, lambda: None, announce_waiting(bus))
    assert len(list(pool(batch))) == 2
    unusable = [payload for name, payload in published if name == "Unusable"]
    about = {"agent": "a", "task": "analyze", "proposals": []}
    assert [dict(each) for each in unusable] == [
        {**about, "reason": "no section", "is_last": False},
        {**about, "reason": "no heading", "is_last": True},
    ]
    waiting = [payload for name, payload in published if name == "Awaited"]
    assert waiting[0]["awaited"] == 2
    assert {each["agent"] for payload in waiting for each in payload["asked"]} >= {"a"}
    assert waiting[-1] == {"awaited": 0, "characters": 0, "asked": []}
    assert (bills.spend.unusable, bills.spend.requests) == (2, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_ends_the_session_instead_of_hanging_it() -> None:
    (reply,) = WorkerPool(1, lambda: None)([asked("odd", SystemExit())])
    for thread in threading.enumerate():
        if thread.name == "graphbus-agent":
            thread.join()
    assert reply == NegotiationStopped("error", "the thread that asked an agent has ended without an answer")


def test_a_final_failure_ends_the_session_and_any_other_is_one_failed_answer() -> None:
    def fail(is_final: bool) -> ModelError:
        return ModelError("GBE448", is_final=is_final, provider="x", reason="chance")

    bills = SessionBills(BudgetMeter(Budget()))
    last, one = AffordableBatch(bills, [asked("a", fail(True)), asked("b", fail(False))])
    assert answer_question(last) == NegotiationStopped("error", "The answer from `x` was cut off: chance.")
    failed = answer_question(one)
    assert isinstance(failed, Analyzed)
    assert "was cut off" in failed.failure
    assert bills.final_error is not None
    assert [bills.spend.calls, bills.cost_by_proposal([])] == [2, {}]


def test_a_refused_attempt_ends_the_session_by_its_budget() -> None:
    bills = SessionBills(BudgetMeter(Budget(max_tokens=10)))

    def overdraw(_view: object) -> None:
        current_bill().allow_attempt(Amount(11, 0))

    (question,) = AffordableBatch(bills, [asked("a", overdraw)])
    assert answer_question(question) == NegotiationStopped(
        "budget", "up to 11 more tokens after 0, and max_tokens is 10"
    )


def test_what_is_under_way_at_the_end_counts_with_its_worst_case_and_no_attempt_follows() -> None:
    bills = SessionBills(BudgetMeter(Budget()))
    is_sent, may_answer, is_done = threading.Event(), threading.Event(), threading.Event()
    refused: list[str] = []

    def slow(_view: object) -> None:
        bill = current_bill()
        bill.allow_attempt(Amount(10, 1_000))
        bill.add_loss(Amount(10, 1_000))
        bill.allow_attempt(Amount(20, 2_000))
        is_sent.set()
        may_answer.wait()
        bill.add_loss(Amount(20, 2_000))
        try:
            bill.allow_attempt(Amount(40, 4_000))
        except ModelError as error:
            refused.append(error.code)
        is_done.set()

    batch = list(AffordableBatch(bills, [asked("a", slow), asked("never", slow)]))
    threading.Thread(target=answer_question, args=(batch[0],), daemon=True).start()
    assert is_sent.wait(PATIENCE_S)
    bills.close_all()
    spend = bills.spend
    may_answer.set()
    assert is_done.wait(PATIENCE_S)
    assert (spend.calls, spend.cost_usd) == (1, 3e-6)
    assert bills.spend == spend, "what comes later changes nothing"
    assert refused == ["GBE470"]
    assert bills.meter.held == Amount()


class CostlyAgent(ScriptedAgent):
    """One whose every answer may cost a hundred tokens."""

    def worst_case(self, question: object, view: object, trials: object) -> Any:
        return WorstCase(1, 60, 40)


def test_as_many_questions_as_fit_go_out_together_and_the_rest_when_they_are_settled() -> None:
    bills = SessionBills(BudgetMeter(Budget(max_tokens=250)))
    bills.prices = {"proposer": Price(1.0, 1.0)}
    batch = [PreparedQuestion(CostlyAgent(name), AskAnalysis(name), VIEW) for name in "abc"]
    wave = AffordableBatch(bills, batch)
    fitting = list(wave)
    assert [each.view for each in fitting] == [VIEW, VIEW]
    assert wave.refusal == "up to 100 more tokens after 200, and max_tokens is 250"
    assert bills.spend.calls == 0, "nothing is settled yet"
    list(answer_in_turn(fitting))
    assert bills.meter.held == Amount()
    (last,) = AffordableBatch(bills, wave.rest)
    assert last.question == AskAnalysis("c")


# --- the budget ------------------------------------------------------------------------------


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_calls_are_reserved_before_they_are_made_and_never_beyond_the_limit() -> None:
    meter = BudgetMeter(Budget(max_calls=3))
    assert meter.reserve_calls(2) == ""
    assert meter.reserve_calls(2) == "2 more calls after 2, and max_calls is 3"
    assert meter.calls == 2, "what is refused is not charged"
    assert meter.reserve_calls(1) == ""


def test_the_time_runs_from_the_start_of_the_loop() -> None:
    clock = Clock()
    meter, unlimited = BudgetMeter(Budget(max_seconds=5.0), clock), BudgetMeter(Budget(max_seconds=0.0), clock)
    clock.now_s += 60
    meter.start()
    clock.now_s += 4.9
    assert meter.reserve_calls(1) == ""
    clock.now_s += 0.1
    assert meter.reserve_calls(1) == "max_seconds is 5"
    assert unlimited.reserve_calls(1) == ""


def test_an_answer_beyond_its_worst_case_leaves_room_for_nothing_not_even_for_what_was_set_aside() -> None:
    meter = BudgetMeter(Budget(max_usd=1.0))
    lying, waiting = Bill(meter, Amount(10, NANO // 2)), Bill(meter, Amount())
    meter.set_aside(Amount(10, NANO // 2))
    usage = Usage(input_tokens=5, output_tokens=10**9)
    with lying.running() as bill:
        bill.add_answer(Completion(text="", model="stub:m", usage=usage, cost_usd=2.5))
        with pytest.raises(ModelError, match=r"more than was reserved for it: \$2.50 so far, and max_usd is 1"):
            bill.allow_attempt(Amount(1, 1))
    assert (meter.held, meter.spent.nano_usd) == (Amount(), 2.5 * NANO)
    with waiting.running() as bill, pytest.raises(ModelError):
        bill.allow_attempt(Amount())
    assert meter.overdraft


CHANGE = CodeChange(file_path="a.py", target="f", change_type="delete", operation="delete_symbol", base_sha256="")
PROPOSAL = Proposal(proposal_id="P001", round=1, src="Mill", intent="refactor", code_change=CHANGE)
REPORT = GateReport(proposal_id="P001", passed=False, rungs=())


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (AskAnalysis("Mill"), Analyzed("Mill", failure="gone")),
        (AskProposals(1, "Mill", 1), Proposed("Mill", failure="gone")),
        (AskRepair(1, "Mill", PROPOSAL, REPORT), Repaired("P001", None, "gone")),
        (AskEvaluations(1, "Mill", ()), Evaluated("Mill", (), "gone")),
        (AskArbitration(1, "Judge", GatedProposal(PROPOSAL, REPORT), ()), Arbitrated("P001", "Judge", None, "gone")),
    ],
)
def test_a_question_that_is_not_asked_has_a_reply_that_says_why(
    question: AgentQuestion | AskAnalysis, reply: Any
) -> None:
    assert fail_question(question, "gone") == reply
