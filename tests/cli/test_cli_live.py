"""Negotiation events as lines: the form of seed 000, and every other way in which a proposal can end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec
import pytest

from graphbus_core.cli.live import NegotiationLines
from graphbus_core.model.proposals import (
    CodeChange,
    CommitRecord,
    Consensus,
    Ending,
    GateReport,
    Proposal,
    ProposalEvaluation,
    RungResult,
    TerminationReason,
    VoteDecision,
)

CHANGE = CodeChange(file_path="agents/order_processor.py", target="OrderProcessor.process_order", change_type="modify")
PROPOSAL = Proposal(
    proposal_id="P001",
    round=1,
    src="OrderProcessor",
    intent="add_validation",
    title="Add input validation for negative prices",
    reason="Prevents downstream NaN propagation\n    in total calculation",
    affects=("InventoryService", "NotificationService"),
    code_change=CHANGE,
)

Said = tuple[str, dict[str, Any]]


def shown(*events: Said) -> list[str]:
    """Play the events; give the lines without colours, empty ones left out."""
    live = NegotiationLines()
    lines = [line for topic, payload in events for line in live.lines(f"/Negotiation/{topic}", payload)]
    return [click.unstyle(line) for line in lines if line]


def event(topic: str, **payload: object) -> Said:
    return topic, msgspec.to_builtins(payload)


def proposed(proposal: Proposal = PROPOSAL) -> Said:
    return event("Proposed", proposal=proposal)


def gated(*rungs: RungResult) -> Said:
    report = GateReport(proposal_id="P001", passed=not rungs, rungs=rungs)
    return event("Gated", proposal_id="P001", report=report)


def vote(evaluator: str, decision: VoteDecision, reasoning: str = "") -> Said:
    evaluation = ProposalEvaluation(
        proposal_id="P001", evaluator=evaluator, round=1, decision=decision, reasoning=reasoning
    )
    return event("Evaluated", evaluation=evaluation)


def arbitrated(decision: VoteDecision, reasoning: str) -> Said:
    evaluation = ProposalEvaluation(
        proposal_id="P001", evaluator="Judge", round=1, decision=decision, reasoning=reasoning, is_arbiter=True
    )
    payload: dict[str, object] = {"arbiter": "Judge", "evaluation": evaluation, "accepts": 1, "rejects": 1}
    return event("Arbitrated", proposal_id="P001", **payload)


def committed(consensus: Consensus, accepts: int, votes: int) -> Said:
    commit = CommitRecord(
        commit_id="C001",
        proposal_id="P001",
        round=1,
        proposer="OrderProcessor",
        evaluators=(),
        consensus_type=consensus,
        files_modified=("agents/order_processor.py",),
    )
    return event("Committed", commit=commit, accepts=accepts, votes=votes)


def rejected(status: str, accepts: int = 0, rejects: int = 0, reason: str = "") -> Said:
    counts = {"accepts": accepts, "rejects": rejects, "abstains": 0}
    return event("Rejected", proposal_id="P001", status=status, reason=reason, **counts)


def test_an_accepted_proposal_reads_as_in_seed_000() -> None:
    accept_one = vote("InventoryService", "accept", "reduces error handling in my handler")
    accept_two = vote("NotificationService", "accept", "no schema impact on my side")
    lines = shown(event("Round", round=1), proposed(), gated(), accept_one, accept_two, committed("unanimous", 2, 2))
    assert lines == [
        "Round 1",
        '[AGENT] OrderProcessor: "I propose to add input validation for negative prices" (P001)',
        "         rationale: Prevents downstream NaN propagation in total calculation",
        "         affects: InventoryService, NotificationService",
        "         changes: agents/order_processor.py (OrderProcessor.process_order)",
        '[AGENT] InventoryService:    "Accepted — reduces error handling in my handler"',
        '[AGENT] NotificationService: "Accepted — no schema impact on my side"',
        "[ARBITER] Consensus (2/2). Committing.",
    ]


def test_nothing_of_a_proposal_is_shown_before_it_is_decided() -> None:
    assert shown(event("Round", round=1), proposed(), gated(), vote("Stock", "accept")) == []


@pytest.mark.parametrize(
    ("consensus", "verdict"),
    [
        ("majority", "[ARBITER] Majority (2/3). Committing."),
        ("arbiter", "[ARBITER] The arbiter accepts (2/3). Committing."),
        ("override", "[ARBITER] A person accepts (2/3). Committing."),
    ],
)
def test_a_commit_names_how_it_was_agreed(consensus: Consensus, verdict: str) -> None:
    assert shown(proposed(), committed(consensus, 2, 3))[-1] == verdict


@pytest.mark.parametrize(
    ("decision", "word"),
    [
        ("accept", "Accepted"),
        ("reject", "Rejected, unsubstantiated"),
        ("counter", "Countered"),
        ("defer", "Deferred"),
        ("abstain", "Abstained"),
    ],
)
def test_every_vote_has_its_word(decision: VoteDecision, word: str) -> None:
    lines = shown(proposed(), vote("Stock", decision), vote("Letters", decision, "because"), rejected("rejected"))
    assert f'[AGENT] Stock:   "{word}"' in lines
    assert f'[AGENT] Letters: "{word} — because"' in lines


def test_the_arbiter_speaks_after_the_votes() -> None:
    lines = shown(
        proposed(),
        vote("Stock", "accept"),
        vote("Letters", "reject", "my handler reads `total`"),
        arbitrated("accept", "no reader of `total` is left"),
        committed("arbiter", 1, 2),
    )
    assert lines[-4:] == [
        '[AGENT] Stock:   "Accepted"',
        '[AGENT] Letters: "Rejected, unsubstantiated — my handler reads `total`"',
        '[ARBITER] Judge:   "Accepted — no reader of `total` is left"',
        "[ARBITER] The arbiter accepts (1/2). Committing.",
    ]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("rejected", "[ARBITER] No consensus (1/3). Not committed."),
        ("superseded", "[ARBITER] Superseded by its counter-proposal (1/3). Not committed."),
        ("refused", "[ARBITER] Refused (1/3). Not committed."),
    ],
)
def test_a_proposal_that_is_not_committed_says_why(status: str, verdict: str) -> None:
    lines = shown(proposed(), vote("Stock", "reject"), rejected(status, 1, 2, "Stock's objection holds"))
    assert lines[-2:] == [verdict, "         because: Stock's objection holds"]


def test_the_gate_says_what_it_refuses_and_what_became_of_repairs() -> None:
    first = RungResult(
        rung="G4", status="failed", code="G4.edge", message="breaks\n an edge", path="agents/a.py", line=7
    )
    second = RungResult(rung="G2", status="failed", message="does not parse", path="agents/a.py")
    last = RungResult(rung="G1", status="failed", code="G1.stale", message="changed since")
    lines = shown(
        proposed(), gated(first), proposed(), gated(second), proposed(), gated(last), rejected("refused", reason="x")
    )
    assert lines[-3:] == [
        "[GATE] Refused by G4.edge: agents/a.py:7: breaks an edge",
        "[GATE] Corrected, refused again by G2: agents/a.py: does not parse",
        "[GATE] Corrected, refused again by G1.stale: changed since",
    ]


def test_a_postponed_proposal_comes_back_with_fresh_votes() -> None:
    postponed = event("Postponed", proposal_id="P001", status="deferred", reason="Stock waits for P002")
    lines = shown(
        event("Round", round=1),
        proposed(),
        vote("Stock", "defer"),
        postponed,
        event("Round", round=2),
        vote("Stock", "accept"),
        committed("unanimous", 1, 1),
    )
    again = lines[lines.index("Round 2") :]
    assert "[ARBITER] Deferred. To be decided in a later round." in lines
    assert "         because: Stock waits for P002" in lines
    assert '[AGENT] Stock: "Accepted"' in again
    assert '[AGENT] Stock: "Deferred"' not in again


def ending(reason: TerminationReason = "convergence", detail: str = "", counts: Iterable[int] = (3, 2, 1)) -> Said:
    rounds, proposals, commits = counts
    return event(
        "Finished",
        ending=Ending(
            terminated=True,
            reason=reason,
            rounds_executed=rounds,
            proposals_made=proposals,
            commits_created=commits,
            files_modified=1,
            detail=detail,
        ),
    )


@pytest.mark.parametrize(
    ("reason", "detail", "line"),
    [
        ("convergence", "", "CONVERGENCE DETECTED: 3 rounds, 2 proposals, 1 commit."),
        ("max_rounds", "", "Stopped at the limit of rounds: 3 rounds, 2 proposals, 1 commit."),
        ("file_limit", "", "Stopped at the limit of changed files: 3 rounds, 2 proposals, 1 commit."),
        ("manual", "", "Stopped by hand: 3 rounds, 2 proposals, 1 commit."),
        ("budget", "max_calls", "Stopped: the budget is used up (max_calls): 3 rounds, 2 proposals, 1 commit."),
        ("oscillation", "", "Stopped: the proposals go in circles: 3 rounds, 2 proposals, 1 commit."),
        ("error", "x", "Stopped by an error (x): 3 rounds, 2 proposals, 1 commit."),
    ],
)
def test_the_ending_says_why_and_how_much(reason: TerminationReason, detail: str, line: str) -> None:
    assert shown(ending(reason, detail)) == [line]


def test_the_beginning_says_who_negotiates_and_that_no_model_does() -> None:
    started = event("Started", session="S001", backend="rules", agents=["Orders", "Stock", "Judge"], arbiters=["Judge"])
    first, *_, last = shown(started)
    assert first.startswith("Rules, not a model, negotiate")
    assert last == "Orders, Stock negotiate; Judge settles what they cannot."


UNTRIED = RungResult(
    rung="G6", status="failed", code="G6.unverified", message="There are tests, but no pytest. Install it."
)
LET_THROUGH = msgspec.structs.replace(UNTRIED, status="not_run")


def test_what_nobody_can_verify_is_refused_and_the_first_refusal_says_what_to_do() -> None:
    other = msgspec.structs.replace(PROPOSAL, proposal_id="P002")
    again = [(topic, {**payload, "proposal_id": "P002"}) for topic, payload in (gated(UNTRIED), rejected("refused"))]
    lines = shown(proposed(), gated(UNTRIED), rejected("refused"), proposed(other), *again)
    refusal = "[GATE] Refused by G6.unverified: There are tests, but no pytest. Install it."
    assert lines.count(refusal) == 2
    (hint,) = [number for number, line in enumerate(lines) if "--unsafe-verify" in line]
    assert lines[hint - 2] == refusal
    assert lines[hint - 1 : hint + 1] == [
        "         This change cannot be verified, so the agents do not vote on it. Correct what is named above, or "
        "let unverified",
        "         changes pass with --unsafe-verify (allow_unverified in [tool.graphbus.gate]).",
    ]


def test_what_passes_unverified_is_said_at_the_beginning_and_with_each_proposal() -> None:
    started = event("Started", session="S001", backend="x", agents=["Orders"], arbiters=[], allow_unverified=True)
    report = GateReport(proposal_id="P001", passed=True, rungs=(LET_THROUGH,))
    let_through = event("Gated", proposal_id="P001", report=report)
    lines = shown(started, proposed(), let_through, vote("Stock", "accept"), committed("unanimous", 1, 1))
    assert (
        lines[2] == "Unverified changes are let through: --unsafe-verify, or allow_unverified in [tool.graphbus.gate]."
    )
    assert lines[-2:] == [
        "[GATE] Not verified (G6.unverified): There are tests, but no pytest. Install it.",
        "[ARBITER] Consensus (1/1). Committing.",
    ]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("The project has no tests.", "No test was run on P001: The project has no tests."),
    ],
)
def test_that_no_test_has_judged_a_change_is_said_once_at_the_end(message: str, line: str) -> None:
    none = RungResult(rung="G6", status="not_run", message=message)
    report = event("Gated", proposal_id="P001", report=GateReport(proposal_id="P001", passed=True, rungs=(none,)))
    lines = shown(proposed(), report, committed("unanimous", 0, 0), ending())
    assert lines[-1] == line
    assert sum("tests" in each for each in lines) == 1


def test_what_an_agent_could_not_do_is_said_at_once() -> None:
    dropped = event("Dropped", agent="Stock", count=2, reason="max_proposals_per_round is 1")
    failed = event("Failed", agent="Stock", task="evaluate", reason="no\nanswer")
    assert shown(dropped, failed) == [
        "[AGENT] Stock: 2 proposals too many: max_proposals_per_round is 1",
        "[AGENT] Stock gave no usable answer (evaluate): no answer",
    ]


def test_the_status_line_follows_the_proposals() -> None:
    live = NegotiationLines()
    statuses = [live.status]
    for topic, payload in (
        event("Round", round=2),
        proposed(),
        gated(),
        vote("Stock", "accept"),
        committed("unanimous", 1, 1),
    ):
        live.lines(f"/Negotiation/{topic}", payload)
        statuses.append(live.status)
    voting = "Round 2: voting on 1 proposal"
    assert statuses == ["", "", "Round 2: verifying P001 of OrderProcessor", voting, voting, ""]


def test_words_of_an_agent_cannot_drive_the_terminal() -> None:
    sneaky = msgspec.structs.replace(PROPOSAL, src="Evil\x1b[2J", title="x\x1b]0;y\x07", reason="\u202eabc")
    assert "\x1b" not in "".join(shown(proposed(sneaky), vote("A\x1b[1m", "accept", "\x1b[2J"), rejected("rejected")))


# --- disputes, merges and a person -----------------------------------------------------------


def test_a_proposal_that_goes_back_is_shown_and_its_votes_are_forgotten() -> None:
    back = event("SentBack", proposal_id="P001", reason="G1.conflict: both changed it")
    events = (proposed(), gated(), vote("Stock", "accept"), back, proposed(), gated(), committed("unanimous", 1, 1))
    lines = shown(*events)
    assert lines.count('[AGENT] Stock: "Accepted"') == 1
    at = lines.index(
        "[ARBITER] Sent back: it conflicts with an accepted change. Its author may adapt it, then the agents vote again."
    )
    assert lines[at + 1] == "         because: G1.conflict: both changed it"


def asked(agent: str, task: str, *proposals: str, attempt: int = 1, seconds: int = 0, characters: int = 0) -> Any:
    return {
        "agent": agent,
        "task": task,
        "proposals": list(proposals),
        "attempt": attempt,
        "seconds": seconds,
        "characters": characters,
    }


@pytest.mark.parametrize(
    ("awaited", "under_way", "status"),
    [
        (3, [], "3 answers awaited"),
        (1, [asked("Stock", "propose")], "Stock: propose, 0 s"),
        (1, [asked("Stock", "evaluate", "P001", "P002", seconds=12)], "Stock: evaluate P001, P002, 12 s"),
        (
            3,
            [asked("Stock", "repair", "P001", attempt=2, seconds=200, characters=4119), asked("Mail", "propose")],
            "Stock: repair P001, 3 min 20 s, attempt 2, ~1,030 tokens, 2 more to answer",
        ),
        (0, [], ""),
    ],
)
def test_the_status_says_who_is_asked_how_long_already_and_how_much_has_come(
    awaited: int, under_way: list[Any], status: str
) -> None:
    live = NegotiationLines()
    live.lines("/Negotiation/Awaited", {"awaited": 9, "characters": 9, "asked": [asked("Other", "propose")]})
    characters = sum(each["characters"] for each in under_way)
    payload = {"awaited": awaited, "characters": characters, "asked": under_way}
    assert live.lines("/Negotiation/Awaited", payload) == []
    assert live.status == status
    assert len(live.status) < 80


def unusable(agent: str, task: str, *proposals: str, is_last: bool = False, reason: str = "no\nsection") -> Said:
    return event("Unusable", agent=agent, task=task, proposals=proposals, is_last=is_last, reason=reason)


def test_an_unusable_answer_is_told_when_it_comes_and_its_failure_is_not_told_again() -> None:
    spent = event("Spent", calls=2, requests=14, tokens=9, cost_usd=0.0, unpriced=0)
    lines = shown(
        unusable("Stock", "evaluate", "P001", "P002"),
        unusable("Stock", "evaluate", "P001", "P002", is_last=True, reason="x" * 500),
        event("Failed", agent="Stock", task="evaluate", reason="two attempts"),
        event("Failed", agent="Mail", task="propose", reason="it refuses"),
        unusable("Mail\x1b[2J", "analyze"),
        spent,
        ending(),
    )
    assert lines == [
        "[AGENT] Stock: unusable answer, asked again (evaluate P001, P002): no section",
        f"[AGENT] Stock: second unusable answer (evaluate P001, P002): {'x' * 159}…",
        "[AGENT] Mail gave no usable answer (propose): it refuses",
        "[AGENT] Mail␛[2J: unusable answer, asked again (analyze): no section",
        "CONVERGENCE DETECTED: 3 rounds, 2 proposals, 1 commit.",
        "3 of 14 answers could not be used: Stock 2, Mail␛[2J 1.",
    ]


def test_that_nothing_could_be_tried_is_said_with_the_change_and_counted_at_the_end() -> None:
    message = "Nothing could be tried: Stock.left cannot be made or needs another agent."
    none = RungResult(rung="G8", status="not_run", code="G8.untried", message=message)
    report = event("Gated", proposal_id="P001", report=GateReport(proposal_id="P001", passed=True, rungs=(none,)))
    lines = shown(proposed(), report, committed("unanimous", 0, 0), ending())
    assert f"[GATE] Not verified (G8.untried): {message}" in lines
    assert lines[-1].startswith("Nothing could be tried for 1 of ")
    assert lines[-1].endswith(": P001 (G8.untried)")
