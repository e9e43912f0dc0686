"""What a change removes, in words that voters read; what moves within a class is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from graphbus_core.editing.rungs.removals import find_removals
from graphbus_core.model.proposals import Removal, SchemaChange, describe_removals
from graphbus_core.negotiation import prompts
from tests.unit.editing.shop_project import Shop
from tests.unit.negotiation import prompted_shop

ON_LOW = "        self.log(f\"low: {event.payload['sku']} {event.payload['left']}\")\n"
PUBLISH = '        self.publish(CREATED, {"sku": sku, "count": count, "total": total})\n'
BILL = """
from graphbus_core import GraphBusNode, subscribe

class Bill(GraphBusNode):
    def __init__(self):
        super().__init__()
        self.sums = {}

    @subscribe("/Bill/Due")
    def on_due(self, event):
        if event["amount"] < 0:
            raise ValueError("an amount is negative")
        self._enter(event["customer"], event["amount"])

    def _enter(self, customer, amount):
        self.sums[customer] = amount
        self.publish("/Bill/Entered", {"customer": customer})
"""
INLINED = """\
        self.sums[event["customer"]] = event["amount"]
        self.publish("/Bill/Entered", {"customer": event["customer"]})
"""
AFFECTS = ("Orders", "Inventory", "Ledger", "Referee")


def removed(tmp_path: Path, old: str, new: str) -> list[str]:
    shop = Shop(tmp_path, more={"agents/bill.py": BILL})
    after = shop.project.with_files({"agents/bill.py": BILL.replace(old, new).encode()})
    assert BILL.replace(old, new) != BILL
    texts = describe_removals(find_removals(shop.project, after))
    return [text.removeprefix("Bill.on_due (/Bill/Due) no longer ") for text in texts]


@pytest.mark.parametrize(
    ("old", "new", "texts"),
    [
        ('event["amount"] < 0', 'event["customer"] == ""', []),
        ('        if event["amount"] < 0:\n            raise ValueError("an amount is negative")\n', "", ["raises ValueError."]),
        (
            '        self._enter(event["customer"], event["amount"])\n',
            "",
            ["reads customer; calls its own _enter; publishes /Bill/Entered; changes its attribute sums."],
        ),
        ('        self.publish("/Bill/Entered", {"customer": customer})\n', "", ["publishes /Bill/Entered."]),
        ("        self.sums[customer] = amount\n", "        sums = self.sums\n        sums[customer] = amount\n", []),
        (
            '        self.publish("/Bill/Entered", {"customer": customer})\n',
            '        return\n        self.publish("/Bill/Entered", {"customer": customer})\n',
            ["publishes /Bill/Entered."],
        ),
        (
            '        self.publish("/Bill/Entered", {"customer": customer})\n',
            '        if False:\n            self.publish("/Bill/Entered", {"customer": customer})\n',
            ["publishes /Bill/Entered."],
        ),
        (
            '        self.publish("/Bill/Entered", {"customer": customer})\n',
            '        def tell():\n            self.publish("/Bill/Entered", {"customer": customer})\n',
            ["publishes /Bill/Entered."],
        ),
        (
            '        self.publish("/Bill/Entered", {"customer": customer})\n',
            '        def tell():\n            self.publish("/Bill/Entered", {"customer": customer})\n        tell()\n',
            [],
        ),
        ("_enter(", "_write_down(", []),
        ("def on_due(", "def on_bill(", []),
        ('"/Bill/Due"', '"/Bill/Came"', []),
        (
            '        self._enter(event["customer"], event["amount"])\n',
            INLINED,
            ["calls its own _enter."],
        ),
    ],
    ids=[
        "another condition",
        "a check",
        "the work",
        "news",
        "another name",
        "behind a return",
        "below if False",
        "in an inner function that nobody calls",
        "in an inner function that is called",
        "a renamed helper",
        "a renamed handler",
        "a renamed topic",
        "inlined",
    ],
)  # fmt: skip
def test_what_is_done_no_longer_is_named(tmp_path: Path, old: str, new: str, texts: list[str]) -> None:
    assert removed(tmp_path, old, new) == texts


def test_methods_tell_the_keys_that_they_return_no_longer(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    text = shop.project.source("agents/orders.py").data.replace(b'"confirmed", "total": total}', b'"confirmed"}')
    found = find_removals(shop.project, shop.project.with_files({"agents/orders.py": text}))

    assert describe_removals(found) == ("Orders.order no longer returns total.",)


def test_a_handler_that_keeps_nothing_must_be_declared(tmp_path: Path) -> None:
    shop = Shop(tmp_path, more={"agents/bill.py": BILL})
    body = BILL.split("def on_due(self, event):\n")[1].split("\n    def _enter", maxsplit=1)[0]
    change = shop.change("agents/bill.py", "", "        self.count = 1\n", "search_replace", body)
    proposal = shop.proposal(change, src="Bill", affects=AFFECTS)

    report = shop.gate.check(proposal, shop.workspace)

    assert report.failure
    assert report.failure.code == "G4.dropped"
    assert (
        "Bill.on_due (/Bill/Due) no longer does anything that it did: it no longer reads amount"
        in report.failure.message
    )
    assert "`contract: Bill.on_due`" in report.failure.message
    for declared in (["Bill.on_due", "/Bill/Due"], ["/Bill/Due"]):
        again = proposal.with_changes([change], [SchemaChange(method=name) for name in declared])
        report = shop.gate.check(again, shop.workspace)
        assert "G4" not in {rung.rung for rung in report.rungs if rung.status == "failed"}, report.failure
        assert [each.keeps_nothing for each in report.removals] == [True]


@pytest.mark.parametrize("body", ['self.log("retired")', "pass"])
def test_a_handler_that_is_emptied_as_declared_goes_to_the_voters(tmp_path: Path, body: str) -> None:
    shop = Shop(tmp_path, more={"agents/bill.py": BILL})
    old = BILL.split("def on_due(self, event):\n")[1].split("\n    def _enter", maxsplit=1)[0]
    change = shop.change("agents/bill.py", "", f"        {body}\n", "search_replace", old)
    proposal = shop.proposal(change, src="Bill", affects=AFFECTS)
    emptied = (
        shop.gate.check(proposal, shop.workspace).failure,
        shop.gate.check(proposal.with_changes([change], [SchemaChange(method="Bill._enter")]), shop.workspace).failure,
    )
    report = shop.gate.check(proposal.with_changes([change], [SchemaChange(method="/Bill/Due")]), shop.workspace)

    assert [each and each.code for each in emptied] == ["G2.emptied", "G2.emptied"]
    assert {"G2", "G4"} <= {rung.rung for rung in report.rungs if rung.status == "passed"}, report.failure
    assert "Bill.on_due (/Bill/Due) no longer does anything that it did" in describe_removals(report.removals)[0]


def test_voters_read_what_a_change_removes(tmp_path: Path) -> None:
    project = prompted_shop.shop(tmp_path)
    trial = prompted_shop.trial_of(project)
    removal = Removal(method="Bill.on_due", topic="/Bill/Due", lost={"raises": ("ValueError",)})
    report = msgspec.structs.replace(trial.report, removals=(removal,))
    view = prompted_shop.view_of(project)
    told = msgspec.structs.replace(trial, report=report)

    for prompt in (prompts.ask_evaluations(view, [told]), prompts.ask_decision(view, told, [])):
        assert "Bill.on_due (/Bill/Due) no longer raises ValueError." in prompt.task
    assert "no longer raises" not in prompts.ask_evaluations(view, [trial]).task
