"""Objections that are tests: run on both sides of a change, and a veto only when they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.rungs.trial_environment import NO_JAIL, TreeState, TrialEnvironment
from graphbus_core.editing.rungs.trials import MAX_CHARACTERS, Objection, Objections
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.editing.workspace import state_digest
from graphbus_core.model.config import GateConfig
from graphbus_core.model.proposals import Counterexample, ProposalEvaluation
from graphbus_core.negotiation.protocol import AskEvaluations, CheckProposal, Evaluated, Gated, GatedProposal
from graphbus_core.negotiation.session_workspace import MAX_TESTS, SessionWorkspace
from tests.fakes.negotiating_agents import OpenGate
from tests.unit.editing.shop_project import Shop

ORDERS = "agents/orders.py"
HOLDS = """
import json
from agents.orders import Orders


def test_describe_gives_json():
    assert json.loads(Orders().describe({"sku": "mug"})) == {"sku": "mug"}
"""


def tried(tmp_path: Path, text: str, *, timeout_s: float = 20.0) -> Objection:
    """Try an objection to a change that lets `describe` give no JSON any more."""
    shop = Shop(tmp_path, gate=GateConfig(timeout_s=timeout_s))
    objections = Objections(TrialEnvironment(shop.config, ProcessSandbox()))
    edit = shop.change(ORDERS, "", "str(order)", "search_replace", "json.dumps(order)")
    after = shop.workspace.changed_files(shop.workspace.preview_files([edit]))
    base, head = (
        TreeState(state_digest({}), {}),
        TreeState(state_digest(after), {path: now for path, (_, now) in after.items()}),
    )
    found = objections.try_out(base, head, shop.project, text)
    assert objections.try_out(base, head, shop.project, text) is found
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (HOLDS, "test_describe_gives_json passes without the change and fails with it: JSONDecodeError"),
        (
            HOLDS.replace("def test", "async def test"),
            "test_describe_gives_json passes without the change and fails with it",
        ),
        (
            HOLDS.replace("def test_describe_gives_json():", "if True:") + "\n\ndef test_it_loads(): pass\n",
            "test_it_loads passes without the change and cannot be loaded with it: JSONDecodeError",
        ),
    ],
    ids=["test", "async", "load"],
)
def test_a_test_that_passes_before_and_fails_after_holds(tmp_path: Path, text: str, detail: str) -> None:
    found = tried(tmp_path, text)
    assert found.holds, found
    assert found.detail.startswith(detail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("def test_x():\n    assert 1 == 2", "test_x does not pass without the change either (failed: AssertionError)"),
        ("def test_x():\n    pass", "test_x passes with the change, too"),
        ("def check():\n    pass", "the file has no function whose name begins with `test`"),
        ("def test_x(:", "the test cannot be loaded without the change: SyntaxError"),
        ("import nothing_like_it", "the test cannot be loaded without the change: ModuleNotFoundError"),
        (
            "import unittest\ndef test_x():\n    raise unittest.SkipTest('x')",
            "test_x does not pass without the change either",
        ),
        ("import os\ndef test_x():\n    os._exit(0)", "the test does not end without the change"),
        (
            "import os\nfrom agents.orders import Orders\ndef test_x():\n"
            "    if Orders().describe({'a': 1}) != '{\"a\": 1}':\n        os._exit(1)",
            "the test does not end with the change",
        ),
        ("x = 1" * MAX_CHARACTERS, f"the test is longer than {MAX_CHARACTERS} characters"),
    ],
    ids=["fails before", "passes after", "none", "syntax", "import", "skips", "exits", "exits after", "long"],
)
def test_what_shows_nothing_does_not_hold(tmp_path: Path, text: str, detail: str) -> None:
    found = tried(tmp_path, text)
    assert not found.holds
    assert found.detail.startswith(detail)


@pytest.mark.slow
def test_a_test_that_hangs_does_not_hold(tmp_path: Path) -> None:
    found = tried(tmp_path, "def test_x():\n    while True: pass", timeout_s=1.0)
    assert found == Objection(False, "the test does not end without the change")


@pytest.mark.slow
def test_a_test_that_fails_now_and_then_does_not_hold(tmp_path: Path) -> None:
    text = f"import os\n\n\ndef test_x():\n    path = {str(tmp_path / 'runs')!r}\n" + (
        "    with open(path, 'a') as file: file.write('x')\n    assert os.path.getsize(path) == 1\n"
    )
    found = tried(tmp_path / "project", text)
    assert found == Objection(False, "the test is flaky: without the change it passes only sometimes")


def test_without_a_jail_no_test_is_run(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    found = Objections(TrialEnvironment(shop.config, None)).try_out(
        TreeState("a", {}), TreeState("b", {}), shop.project, HOLDS
    )
    assert found == Objection(False, f"the test cannot be run: {NO_JAIL}")


# --- in a session ----------------------------------------------------------------------------


class Trial:
    """A workspace with one proposal, and evaluators who object."""

    def __init__(self, folder: Path, gate: Any = None) -> None:
        shop = Shop(folder)
        self.workspace = SessionWorkspace(shop.project, gate or shop.gate)
        self.proposal = shop.proposal(shop.change(ORDERS, "", "str(order)", "search_replace", "json.dumps(order)"))
        gated = self.workspace.check(CheckProposal(self.proposal))
        assert isinstance(gated, Gated)
        self.review = GatedProposal(self.proposal, gated.report)

    def ask(self, *agents: str) -> None:
        for agent in agents:
            self.workspace.note_evaluators(AskEvaluations(1, agent, (self.review,)))

    def vote(self, agent: str, *evidence: Counterexample, decision: Any = "reject") -> ProposalEvaluation:
        vote = ProposalEvaluation(
            proposal_id="P001", evaluator=agent, round=1, decision=decision, evidence=evidence, concerns=("mine",)
        )
        return self.workspace.verify_evidence(Evaluated(agent, (vote,))).evaluations[0]


@pytest.mark.slow
def test_a_test_that_holds_is_verified_and_one_that_does_not_is_called_unsubstantiated(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.ask("Inventory", "Ledger")
    held = trial.vote("Inventory", Counterexample("test", HOLDS))
    assert held.evidence[0].is_verified
    assert held.concerns == ("mine",)
    empty = trial.vote("Ledger", Counterexample("test", "def test_x(): pass", is_verified=True))
    assert not empty.evidence[0].is_verified
    assert empty.concerns == ("mine", "unsubstantiated: test_x passes with the change, too")


@pytest.mark.slow
def test_one_test_of_an_evaluation_is_run_and_only_of_a_reject(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.ask("Inventory", "Ledger")
    held = trial.vote("Inventory", Counterexample("test", "def test_x(): pass"), Counterexample("test", HOLDS))
    assert [item.detail for item in held.evidence] == ["test_x passes with the change, too", "the test was not run"]
    accepted = trial.vote("Ledger", Counterexample("test", HOLDS), decision="accept")
    assert [item.detail for item in accepted.evidence] == ["the test was not run"]


@pytest.mark.slow
def test_the_tests_of_the_first_evaluators_are_run_whoever_answers_first(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    names = [f"Agent{number}" for number in range(MAX_TESTS + 1)]
    trial.ask(*names, *names)
    run = {name: trial.vote(name, Counterexample("test", HOLDS)).evidence[0].is_verified for name in reversed(names)}
    assert [run[name] for name in names] == [True] * MAX_TESTS + [False]


def test_a_gate_that_runs_nothing_verifies_no_test(tmp_path: Path) -> None:
    trial = Trial(tmp_path, OpenGate())
    trial.ask("Inventory")
    vote = trial.vote("Inventory", Counterexample("test", HOLDS))
    assert vote.concerns == ("mine", "unsubstantiated: nothing can be run here")


def test_a_contract_objection_must_be_what_the_rules_say(tmp_path: Path) -> None:
    trial = Trial(tmp_path, OpenGate())
    vote = trial.vote("Inventory", Counterexample("contract", "it feels wrong", is_verified=True))
    assert vote.concerns[-1] == (
        "unsubstantiated: neither the rules nor the contracts show such a thing after the change"
    )
