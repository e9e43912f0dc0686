"""`graphbus inspect-negotiation` in full: attempts, judgements, reviews, commits, costs, transcript and all sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.cli import main
from graphbus_core.model.proposals import (
    CodeChange,
    Counterexample,
    GateReport,
    ImpactAssessment,
    Proposal,
    ProposalEvaluation,
    RungResult,
)
from graphbus_core.model.spending import Spend, Usage
from graphbus_core.negotiation.transcript import TranscriptEvent, load_session, save_session
from tests.fakes.landed_sessions import FILES, LOG, PRICE, Agreed
from tests.project_files import write_project
from tests.unit.editing.git_project import git, make_repository

COUNTER = Proposal(
    proposal_id="",
    round=1,
    src="Stock",
    intent="other",
    title="Raise instead",
    reason="Zero hides it.",
    code_change=CodeChange(
        file_path="agents/order.py", target="", change_type="modify", old_code="a\n", new_code="b\n"
    ),
)
TEST = "def test_price():\n    assert Order().place(-1) is None\n"
RUNGS = (
    RungResult(rung="G0", status="passed"),
    RungResult(rung="G7", status="failed", code="G7.new", message="ruff finds F401", path="agents/order.py", line=3),
    RungResult(rung="G8", status="not_run", message="nothing to try"),
)
ENDING = {
    "terminated": True,
    "reason": "max_rounds",
    "rounds_executed": 2,
    "proposals_made": 2,
    "commits_created": 1,
    "files_modified": 1,
}
SAID = (
    TranscriptEvent("/Negotiation/Round", {"round": 1}),
    TranscriptEvent(
        "/Negotiation/Proposed", {"proposal": {"proposal_id": "P001", "src": "Order", "intent": "x", "title": "First"}}
    ),
    TranscriptEvent(
        "/Negotiation/Gated",
        {
            "proposal_id": "P001",
            "report": {
                "proposal_id": "P001",
                "passed": False,
                "rungs": [{"rung": "G2", "status": "failed", "code": "G2.syntax", "message": "does not parse"}],
            },
        },
    ),
    TranscriptEvent(
        "/Negotiation/Proposed", {"proposal": {"proposal_id": "P001", "src": "Order", "intent": "x", "title": "Again"}}
    ),
    TranscriptEvent(
        "/Negotiation/Gated", {"proposal_id": "P001", "report": {"proposal_id": "P001", "passed": True, "rungs": []}}
    ),
    TranscriptEvent(
        "/Negotiation/Evaluated",
        {"evaluation": {"proposal_id": "P001", "evaluator": "Stock", "decision": "accept", "reasoning": "fine"}},
    ),
    TranscriptEvent("/Negotiation/Reviewed", {"proposal_id": "P001", "verdict": "yes", "reason": "I want it"}),
    TranscriptEvent("/Negotiation/Finished", {"ending": ENDING}),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose only session had a model, a repair, doubts of every kind and a person's word."""
    write_project(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    session = Agreed(tmp_path, makes_commits=False).accept(PRICE)
    session.models = {"proposer": "anthropic:one", "evaluator": "openai:two"}
    session.costs = {"P001": 0.0123}
    proof = (
        Counterexample("test", TEST, is_verified=True, detail="it fails\nwith the change"),
        Counterexample("contract", "a key is gone"),
    )
    doubt = ProposalEvaluation(
        proposal_id="P001",
        evaluator="Stock",
        round=1,
        decision="counter",
        confidence=0.75,
        reasoning="Not so.",
        concerns=("a key is gone", "it is slow"),
        suggestions=("raise",),
        counter_proposal=COUNTER,
        impact_assessment=ImpactAssessment(
            breaks_contracts=True, affects_dependencies=("Mail",), estimated_risk="high"
        ),
        evidence=proof,
    )
    judges = tuple(
        ProposalEvaluation(proposal_id="P001", evaluator=name, round=1, decision="accept", is_arbiter=True)
        for name in ("Judge", "Referee")
    )
    other = replace(COUNTER, proposal_id="P002", round=2, reason="")
    session.records[0] = replace(
        session.records[0],
        evaluations=(doubt, *judges),
        gate=GateReport(proposal_id="P001", passed=False, rungs=RUNGS),
    )
    session.records.append(replace(session.records[0], proposal=other, status="rejected", commit=None, gate=None))
    record = session.save()
    (tmp_path / ".graphbus/sessions/S001/record.json").unlink()
    spent = Spend(requests=7, usage=Usage(input_tokens=1000, output_tokens=234), cost_usd=1.5)
    save_session(tmp_path / ".graphbus", replace(record, spent=spent), SAID)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["inspect-negotiation", *arguments]) == 0
    return capsys.readouterr().out


def test_one_proposal_tells_everything(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "P001")
    assert out.partition("\nEarlier")[2] == (
        " attempts\n"
        "  refused  G2.syntax does not parse\n"
        "\n"
        "Gate\n"
        "  G0 scope       passed\n"
        "  G7 checks      failed   G7.new ruff finds F401 (agents/order.py:3)\n"
        "  G8 smoke       not run  nothing to try\n"
        "\n"
        "Votes\n"
        "  Stock              counter (75% sure): Not so.\n"
        "      expects: breaks contracts, high risk, affects Mail\n"
        "      test evidence, verified:\n"
        "        def test_price():\n"
        "            assert Order().place(-1) is None\n"
        "        it fails with the change\n"
        "      contract evidence, unsubstantiated: a key is gone\n"
        "      concern: it is slow\n"
        "      suggestion: raise\n"
        "      counter-proposal: Raise instead\n"
        "  Judge (ARBITER)    accept\n"
        "  Referee (ARBITER)  accept\n"
        "\n"
        "Review\n"
        "  A person answered yes (I want it)\n"
        "\n"
        "Outcome\n"
        "  C001: unanimous (Stock), changed agents/order.py\n"
        "  not written\n"
    )
    assert "  cost:        $0.0123\n" in out


def test_the_list_names_the_models_and_what_they_cost(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "model: anthropic:one (proposer), openai:two (evaluator); 7 requests, 1,234 tokens, $1.50\n" in run(capsys)


def test_the_diffs_of_a_list_are_shown_when_they_are_wanted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--diff")
    assert "\nP001  Refuse negative prices\n--- a/agents/order.py\n" in out
    assert "\nP002  Raise instead\n" in out
    assert "--- a/" not in run(capsys)


def test_the_transcript_shows_the_session_as_it_went_on_the_screen(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = replace(load_session(here / ".graphbus"), session="S002")
    save_session(here / ".graphbus", record, (SAID[0], SAID[-1]))
    ended = "\nStopped at the limit of rounds: 2 rounds, 2 proposals, 1 commit.\n"
    assert run(capsys, "--transcript") == ended
    document = json.loads(run(capsys, "--transcript", "--session", "S001", "--json"))
    assert len(document["events"]) == len(SAID)
    assert main(["inspect-negotiation", "--transcript", "--session", "S001"]) == 5
    assert "its transcript is damaged" in capsys.readouterr().err


def test_a_transcript_that_is_gone_takes_nothing_else_away(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / ".graphbus/sessions/S001/transcript.jsonl").unlink()
    out = run(capsys, "P001")
    assert "Earlier attempts" not in out
    assert "Votes\n" in out
    assert main(["inspect-negotiation", "--transcript"]) == 5


def test_a_damaged_session_does_not_hide_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / ".graphbus/sessions/S000"
    folder.mkdir()
    (folder / "record.json").write_text("{")
    assert main(["inspect-negotiation", "--sessions"]) == 0
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()[1:]] == ["S001"]
    assert "The record of session S000 cannot be read: Input data was truncated. [GBE405]" in captured.err
    assert main(["inspect-negotiation", "--sessions", "--json"]) == 0
    captured = capsys.readouterr()
    assert [one["session"] for one in json.loads(captured.out)["sessions"]] == ["S001"]
    assert "[GBE405]" in captured.err


def test_all_sessions_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Agreed(here, makes_commits=False).accept(LOG, title="Log it").land()
    Agreed(here, makes_commits=False).land()
    rows = [line.split() for line in run(capsys, "--sessions").splitlines()]
    assert rows[0] == ["SESSION", "ENDED", "BY", "PROPOSED", "ACCEPTED", "FILES", "COST", "CHANGES", "MODEL"]
    assert rows[1][:7] == ["S001", "convergence", "2", "1", "1", "$1.50", "not"]
    assert rows[2] == ["S002", "convergence", "1", "1", "1", "-", "written", "rules"]
    assert rows[3] == ["S003", "convergence", "0", "0", "0", "-", "-", "rules"]
    sessions = json.loads(run(capsys, "--sessions", "--json"))["sessions"]
    assert [one["session"] for one in sessions] == ["S001", "S002", "S003"]
    assert (sessions[0]["spent"]["requests"], sessions[1]["fate"]) == (7, "written")


def test_a_git_commit_is_named_and_whether_it_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = make_repository(tmp_path / "shop", FILES)
    Agreed(shop).accept(PRICE).land()
    commit = git(shop, "rev-parse", "HEAD").strip()
    monkeypatch.chdir(shop)
    assert f"  git commit {commit} on main\n  written to the source files\n" in run(capsys, "P001")
    assert "accepted changes: written to the source files, 1 git commit\n" in run(capsys)
    assert json.loads(run(capsys, "P001", "--json"))["git_commit"] == commit
    assert json.loads(run(capsys, "--json"))["git_commits"] == {"P001": commit}
    git(shop, "update-ref", "HEAD", "HEAD~1")
    assert f"git commit {commit} on main, not in the history of HEAD" in run(capsys, "P001")
    (shop / ".graphbus/sessions/S001/commits.json").write_text("{")
    assert main(["inspect-negotiation", "P001"]) == 5
    assert "GBE405" in capsys.readouterr().err
