"""What an objection about a contract may rest on, after the gate has let a change pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import CodeChange, Counterexample, Proposal, ProposalEvaluation
from graphbus_core.negotiation.protocol import CheckProposal, Evaluated, Gated
from graphbus_core.negotiation.session_workspace import BrokenPromise, SessionWorkspace, find_broken_promises
from tests.fakes.negotiating_agents import OpenGate

HEAD = "from graphbus_core import GraphBusNode, depends_on, schema_method, subscribe\n\n\n"
SHOP = """\
class Shop(GraphBusNode):
    def place(self, sku: str, total: float) -> None:
        self.publish("/Order/Placed", {"sku": sku, "total": 1.5})
"""
WEB = """\
class Web(GraphBusNode):
    def place(self) -> None:
        self.publish("/Order/Placed", {"sku": "x", "total": 2.5})
"""
PRICES = """\
class Prices(GraphBusNode):
    @schema_method(input_schema={"sku": str}, output_schema={"amount": float, "currency": str})
    def look_up(self, sku: str) -> dict:
        return {"amount": 1.0, "currency": "EUR"}
"""
BILLS = """\
@depends_on("Prices")
class Bills(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_placed(self, event) -> None:
        self.due = event["total"] or event.get("sku")

    def ask(self) -> float:
        return self.call("Prices", "look_up", sku="mug")["amount"]
"""
TEXTS = {"shop": SHOP, "web": WEB, "prices": PRICES, "bills": BILLS}


def project_of(root: Path, **texts: str) -> Project:
    (root / "agents").mkdir(parents=True)
    for name, text in {**TEXTS, **texts}.items():
        (root / f"agents/{name}.py").write_text(HEAD + text)
    return Project.read(ResolvedBuild(root=str(root), paths=(str(root / "agents"),)), cache=False)


CASES = [
    ("shop", '"total": 1.5', '"sum": 1.5', BrokenPromise(
        "/Order/Placed", "total", "Shop no longer sends 'total' of '/Order/Placed', which Bills.on_placed reads")),
    ("shop", '"total": 1.5', '"total": "much"', BrokenPromise(
        "/Order/Placed", "total", "Shop sends as str and no longer as float the field 'total' of '/Order/Placed', which"
        " Bills.on_placed reads")),
    ("shop", '/Order/Placed', '/Order/Put', BrokenPromise(
        "/Order/Placed", "", "Shop no longer publishes '/Order/Placed', which Bills.on_placed hears")),
    ("prices", '"amount": float', '"price": float', BrokenPromise(
        "Prices.look_up", "amount", "Prices.look_up no longer gives 'amount', which Bills uses")),
    ("prices", '"amount": float', '"amount": str', BrokenPromise(
        "Prices.look_up", "amount", "Prices.look_up gives another 'amount' than Bills uses: float is wanted, str is given")),
    ("prices", '"sku": str}', '"sku": str, "day": int}', BrokenPromise(
        "Prices.look_up", "day", "Prices.look_up requires 'day', which Bills does not pass")),
    ("prices", '"sku": str}', '"sku": int}', BrokenPromise(
        "Prices.look_up", "sku", "Prices.look_up does not take the 'sku' of Bills: int is wanted, str is given")),
    ("prices", '"sku": str}', '"name": str}', BrokenPromise(
        "Prices.look_up", "sku", "Prices.look_up does not take 'sku', which Bills passes")),
    ("prices", "look_up(", "find(", BrokenPromise(
        "Prices.look_up", "", "Bills calls Prices.look_up, which cannot be called")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "fact"), CASES, ids=[case[3].sentence for case in CASES])
def test_what_a_change_takes_from_an_agent_is_a_fact(
    tmp_path: Path, name: str, old: str, new: str, fact: BrokenPromise
) -> None:
    before = project_of(tmp_path)
    after = before.with_files({f"agents/{name}.py": (HEAD + TEXTS[name].replace(old, new)).encode()})
    assert fact in find_broken_promises("Bills", before, after)
    assert find_broken_promises("Bills", before, before) == ()
    assert find_broken_promises("Bills", after, after) == ()
    assert find_broken_promises("Web", before, after) == find_broken_promises("Nobody", before, after) == ()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("shop", '"sku": sku, ', ""),  # read only if it is there
        ("shop", '"total": 1.5}', '"total": 1.5, "more": 1}'),
        ("shop", '{"sku": sku, "total": 1.5}', "self.payload()"),  # nobody knows
        ("shop", '"/Order/Placed"', "self.topic()"),
        ("shop", '{"sku": sku, "total": 1.5}', '{"sku": sku, **self.more()}'),
        ("prices", ', "currency": str', ""),  # given, but not used
        ("prices", '"amount": float', '"amount": int'),
        ("prices", "return {", "x = 1\n        return {"),
    ],
)
def test_what_takes_nothing_that_is_known_is_none(tmp_path: Path, name: str, old: str, new: str) -> None:
    before = project_of(tmp_path)
    assert old in TEXTS[name]
    after = before.with_files({f"agents/{name}.py": (HEAD + TEXTS[name].replace(old, new)).encode()})
    assert find_broken_promises("Bills", before, after) == ()


def test_a_field_that_is_sent_only_at_one_of_two_places_is_sent_sometimes(tmp_path: Path) -> None:
    before = project_of(tmp_path)
    more = '        self.publish("/Order/Placed", {"sku": sku})\n'
    after = before.with_files({"agents/shop.py": (HEAD + SHOP + more).encode()})
    assert [fact.sentence for fact in find_broken_promises("Bills", before, after)] == [
        "Shop sends only sometimes 'total' of '/Order/Placed', which Bills.on_placed reads"
    ]


@pytest.mark.parametrize(
    ("text", "is_stated"),
    [
        ("/Order/Placed: total", True),
        ("Bills reads `total` of /Order/Placed.", True),
        ("/Order/Placed", False),
        ("/Order/Placed: subtotal", False),
        ("/Order/Placed/total", False),
        ("/Order/PlacedTwice: total", False),
        ("total", False),
    ],
)
def test_a_fact_is_stated_by_its_element_and_its_field(text: str, is_stated: bool) -> None:
    assert BrokenPromise("/Order/Placed", "total", "").is_stated_in(text) is is_stated
    assert BrokenPromise("Prices.total", "total", "").is_stated_in("Prices.total") is False


def objection(root: Path, evaluator: str, *texts: str) -> ProposalEvaluation:
    """A reject of a change that takes a field from Bills while another publisher still sends it."""
    workspace = SessionWorkspace(project_of(root), OpenGate())
    change = CodeChange(
        file_path="agents/shop.py",
        target="",
        change_type="modify",
        operation="search_replace",
        old_code='        self.publish("/Order/Placed", {"sku": sku, "total": 1.5})',
        new_code='        self.publish("/Order/Placed", {"sku": sku, "sum": 1.5})',
    )
    proposal = Proposal(proposal_id="P001", round=1, src="Shop", intent="rename", code_change=change)
    assert isinstance(workspace.check(CheckProposal(proposal)), Gated)
    evidence = tuple(Counterexample("contract", text) for text in texts)
    vote = ProposalEvaluation(
        proposal_id="P001", evaluator="whoever", round=1, decision="reject", evidence=evidence, concerns=("mine",)
    )
    return workspace.verify_evidence(Evaluated(evaluator, (vote,))).evaluations[0]


def test_an_objection_that_states_a_fact_is_verified(tmp_path: Path) -> None:
    vote = objection(tmp_path, "Bills", "/Order/Placed: total")
    assert vote.evidence[0].is_verified
    assert vote.evidence[0].detail.startswith("Shop no longer sends 'total'")
    assert vote.concerns == ("mine",)


def test_a_fact_about_somebody_else_is_none(tmp_path: Path) -> None:
    assert not objection(tmp_path, "Web", "/Order/Placed: total").evidence[0].is_verified


def test_a_reject_without_any_evidence_is_called_unsubstantiated(tmp_path: Path) -> None:
    assert objection(tmp_path, "Bills").concerns == ("mine", "unsubstantiated: it comes without evidence")
