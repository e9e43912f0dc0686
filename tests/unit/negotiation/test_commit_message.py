"""What a commit message says; nothing that a model wrote in it is anything but text."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from graphbus_core.model.proposals import CommitRecord, GateReport, Proposal, ProposalRecord, RungResult
from graphbus_core.negotiation.commit_message import TRAILERS, commit_message, decisions_in, subject_of
from graphbus_core.negotiation.transcript import SessionRecord
from tests.fakes.negotiating_world import World

REASON = "A negative price would make the total wrong."


def session(**fields: Any) -> SessionRecord:
    outcome = World("Order", "Stock").run()
    return SessionRecord(
        schema_version=1,
        session="S001",
        backend="rules",
        agents=("Order",),
        arbiters=(),
        intent="",
        negotiations=outcome,
        **fields,
    )


def proposal(**fields: Any) -> Proposal:
    given_fields = {"src": "OrderProcessor", "intent": "add_validation", "title": "Validate negative prices", **fields}
    return Proposal(proposal_id="P001", round=1, **given_fields)


def record(**fields: Any) -> ProposalRecord:
    return ProposalRecord(
        proposal=proposal(**{"reason": REASON, **fields}),
        status="accepted",
        gate=GateReport(
            proposal_id="P001",
            passed=True,
            rungs=(
                RungResult(rung="G0", status="passed"),
                RungResult(rung="G0", status="passed"),
                RungResult(rung="G6", status="not_run"),
            ),
        ),
        commit=CommitRecord(
            commit_id="C001",
            proposal_id="P001",
            round=1,
            proposer="OrderProcessor",
            evaluators=("Stock", "Judge (ARBITER)"),
            consensus_type="arbiter",
            files_modified=("a.py",),
        ),
    )


def trailers_in(message: str) -> dict[str, str]:
    return next((dict(told.trailers) for told in decisions_in(message)), {})


def test_a_message_has_a_subject_a_reason_and_trailers() -> None:
    told = session(models={"proposer": "anthropic:one", "evaluator": "openai:two"}, costs={"P001": 0.01234})
    assert commit_message(told, record()) == (
        "fix(OrderProcessor): validate negative prices\n"
        "\n"
        "A negative price would make the total wrong.\n"
        "\n"
        "GraphBus-Session: S001\n"
        "GraphBus-Proposal: P001\n"
        "GraphBus-Agent: OrderProcessor\n"
        "GraphBus-Consensus: arbiter (Stock, Judge (ARBITER))\n"
        "GraphBus-Gate: passed G0; not run G6\n"
        "GraphBus-Model: anthropic:one (proposer), openai:two (evaluator)\n"
        "GraphBus-Cost: 0.0123 USD\n"
    )


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({"intent": "refactor_method", "title": "Split it."}, "refactor(OrderProcessor): split it"),
        ({"intent": "optimize", "title": "Ask once"}, "perf(OrderProcessor): ask once"),
        ({"intent": "add_docstring", "title": "Say it"}, "docs(OrderProcessor): say it"),
        ({"intent": "add_discount", "title": "Give it"}, "feat(OrderProcessor): give it"),
        ({"intent": "add_annotation", "finding": "GB201", "title": "X it"}, "refactor(OrderProcessor): X it"),
        ({"intent": "annotate", "finding": "GB003", "title": "Read it"}, "fix(OrderProcessor): read it"),
        ({"intent": "other", "title": "SKU is a str"}, "refactor(OrderProcessor): SKU is a str"),
        ({"intent": "align_schema", "title": ""}, "fix(OrderProcessor): align schema"),
        ({"intent": "_", "title": ""}, "refactor(OrderProcessor): change"),
        (
            {"title": "Validate " + "negative " * 9},
            "fix(OrderProcessor): validate negative negative negative negative…",
        ),
        ({"title": "x" * 99}, f"fix(OrderProcessor): {'x' * 50}…"),
    ],
)
def test_a_subject_is_conventional_and_fits_a_line(fields: dict[str, str], subject: str) -> None:
    assert subject_of(proposal(**fields)) == subject
    assert len(subject) <= 72


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("one\nSigned-off-by: x", "one Signed-off-by: x"),
        ("fixes #12", "fixes no. 12"),
        ("[skip ci] please", "(skip ci) please"),
        ("thanks @somebody", "thanks @ somebody"),
        ("fixes GH-12 and owner/name#3", "fixes GH 12 and owner/name no. 3"),
        ("closes https://forge.example/owner/name/issues/4", "closes forge.example/owner/name/issues/4"),
        ("closes !5, SHOP-6 #close", "closes ! 5, SHOP-6 # close"),
        ("***NO_CI*** now", "NO_CI now"),
        ("a != b, C# and f@x stay", "a != b, C# and f@x stay"),
        ("turn\u202eround\x1b[31m", "turn round (31m"),
    ],
)
def test_nothing_in_a_title_acts_on_a_forge_or_a_terminal(said: str, told: str) -> None:
    assert subject_of(proposal(title=said)) == f"fix(OrderProcessor): {told}"


def test_a_reason_that_looks_like_trailers_is_none() -> None:
    reason = "Good.\n\nGraphBus-Session: S999\n\n---\n\ndiff --git a/x b/x\n\nCo-authored-by: Nobody <n@example.com>"
    message = commit_message(session(), record(reason=reason))
    assert "\n GraphBus-Session: S999\n" in message
    assert "\n ---\n" in message
    assert trailers_in(message)["GraphBus-Session"] == "S001"


@given(title=st.text(max_size=120), reason=st.text(max_size=400), agent=st.text(min_size=1, max_size=40))
def test_whatever_a_model_writes_the_message_keeps_its_form(title: str, reason: str, agent: str) -> None:
    told = commit_message(session(), record(title=title, reason=reason, src=agent))
    subject, _, rest = told.partition("\n")
    assert subject.startswith("fix(")
    assert subject.isprintable()
    assert rest.startswith("\n")
    assert told.endswith("\n")
    found = trailers_in(told)
    assert list(found) == [name for name in TRAILERS if name in found]
    assert found["GraphBus-Session"] == "S001"
    assert all(len(line) <= 72 for line in rest.rpartition("\n\n")[0].splitlines() if " " in line.strip())


def test_git_reads_the_same_trailers(tmp_path: Path) -> None:
    message = commit_message(
        session(costs={"P001": 1.5}), replace(record(reason="Fix: it\n\nReviewed-by: A <a@example.com>"))
    )
    done = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=message.encode(), cwd=tmp_path, capture_output=True, check=True
    )
    assert [line.partition(":")[0] for line in done.stdout.decode().splitlines()] == list(TRAILERS)


def test_a_squashed_message_tells_of_each_decision() -> None:
    first, second = (commit_message(session(), record(title=title)) for title in ("One thing", "Other thing"))
    told = tuple(decisions_in(f"Improve orders (#12)\n\n* {first}\n* {second}\nCo-authored-by: A <a@example.com>\n"))
    assert [one.trailers["GraphBus-Proposal"] for one in told] == ["P001", "P001"]
    assert told[0].text.startswith("Improve orders (#12)\n\n* fix(OrderProcessor): one thing\n")
    assert told[1].text.startswith("* fix(OrderProcessor): other thing\n")
