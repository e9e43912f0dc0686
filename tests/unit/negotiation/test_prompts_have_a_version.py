"""Prompts that change are other questions: the version that lock and pages bear goes up with them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import GateReport, ProposalEvaluation, RungResult
from graphbus_core.negotiation import prompts
from graphbus_core.negotiation.answer_format import PROTOCOL_VERSION
from tests.unit.negotiation.prompted_shop import shop, trial_of, view_of

RENDERED = {1: "0c0a52a7b98c46ea"}
"""PROTOCOL_VERSION -> digest of the prompts below."""


def test_prompts_that_change_have_a_new_version(tmp_path: Path) -> None:
    base = shop(tmp_path, intent="Send the total", refactoring_goals=("align_schemas",))
    view, trial = view_of(base), trial_of(base)
    rung = RungResult(rung="G3 capability", status="failed", code="G3.import", message="It imports os.")
    refusal = GateReport(proposal_id="P001", passed=False, rungs=(rung,))
    vote = ProposalEvaluation(proposal_id="P001", evaluator="Stock", round=1, decision="reject", reasoning="It breaks.")
    proposing = prompts.ask_proposals(view)
    rendered = [
        prompts.ask_analysis(view),
        proposing,
        prompts.ask_repair(view, trial.proposal, refusal),
        prompts.ask_evaluations(view, [trial]),
        prompts.ask_decision(view, trial, [vote]),
        prompts.ask_again(proposing, "an answer", ["It has no section."]),
    ]
    digest = sha256_hex(msgspec.json.encode(rendered))[:16]
    assert RENDERED.get(PROTOCOL_VERSION) == digest, (
        "The prompts have changed, so that agents that have settled would not be asked again and a replay would find no answers: "
        f"raise PROTOCOL_VERSION in negotiation/answer_format.py, and renew this to {{VERSION: {digest!r}}}."
    )
