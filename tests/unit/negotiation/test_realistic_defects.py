"""Defects as people make them, in a project of eight agents: most of what is found is fixed, and nothing is fixed wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.cli.check import CheckOptions, apply_safe_fixes
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing.gate import Gate
from graphbus_core.model.config import GateConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.proposals import ProposalRecord
from graphbus_core.negotiation.backend import activate_agents
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.negotiation.rule_agent import find_selected
from tests.project_files import write_project

MARKET = Path(__file__).parents[2] / "projects" / "clean_market"
FILES = {path.relative_to(MARKET).as_posix(): path.read_text() for path in sorted(MARKET.rglob("*.py"))}


Defect = tuple[tuple[str, str, str], ...]
"""Which file below `agents/`, what stands in it in the correct project, and what somebody wrote instead."""

DEPENDS = '@depends_on("PricingService")\n'
PAYLOAD = '{"order_id": order_id, "sku": sku, "quantity": quantity, "customer_email": customer_email}'

DEFECTS: dict[str, Defect] = {
    # --- dependencies
    "a dependency that is missing": (("billing", DEPENDS, ""),),
    "one of two dependencies": (("orders", '"PricingService", "StockService")', '"PricingService")'),),
    "the dependency on an imported class": (("shipping", "@depends_on(MailService)\n", ""),),
    "a dependency and its import": (
        ("purchasing", DEPENDS, ""),
        ("purchasing", "import depends_on, schema_method, subscribe", "import schema_method, subscribe"),
    ),
    "a dependency misspelled": (("purchasing", DEPENDS, '@depends_on("PricngService")\n'),),
    "an agent misspelled in a call": (("purchasing", 'call("PricingService"', 'call("PricingServce"'),),
    # --- topics
    "a topic misspelled where it is heard": (("shipping", '"/Order/Placed"', '"/Order/Placd"'),),
    "a topic in another case": (("shipping", '"/Order/Placed"', '"/order/placed"'),),
    "a topic misspelled in a list": (("mailer", '"/Stock/Low", ', '"/Stock/Lwo", '),),
    "a topic misspelled where it is published": (("billing", '"/Payment/Taken"', '"/Paymnet/Taken"'),),
    "a topic misspelled where nothing else has its words": (
        ("purchasing", '"/Delivery/Arrived"', '"/Delivery/Arived"'),
    ),
    "a topic misspelled that several hear": (("pricing", '"/Price/Changed"', '"/Price/Chnged"'),),
    "a topic misspelled in a constant": (("orders", '"/Order/Confirmed"', '"/Order/Confirmd"'),),
    "a topic misspelled in a base class": (("service", '"/Service/Failed"', '"/Servce/Failed"'),),
    "a topic with a word left out": (("stock", '"/Stock/Low"', '"/Low"'),),
    # --- keys
    "a key misspelled where it is read": (("purchasing", 'event["level"]', 'event["levle"]'),),
    "a key misspelled in a template": (("mailer", "event['order_id']} is", "event['ordr_id']} is"),),
    "a key in another style": (("shipping", 'event["order_id"]', 'event["orderId"]'),),
    "a parameter misspelled": (
        ("billing", "sku: str, price: float", "sku: str, prce: float"),
        ("billing", "{price} now", "{prce} now"),
    ),
    "a key misspelled where it is sent": (("billing", '"amount": quote', '"amuont": quote'),),
    "a key misspelled that all handlers read": (("orders", '"amount": payment', '"amonut": payment'),),
    "a key misspelled against a declaration": (
        ("orders", '"customer_email": customer_email}', '"custmer_email": customer_email}'),
    ),
    "a key misspelled in a helper method": (("stock", '"level": level}', '"levl": level}'),),
    "a key misspelled in a local name": (("purchasing", '"quantity": missing', '"quantitiy": missing'),),
    "a key abbreviated by its readers": (
        ("mailer", "customer_email", "cust_email"),
        ("shipping", "customer_email", "cust_email"),
    ),
    "a key abbreviated where it is sent": (("orders", '"amount": payment', '"amt": payment'),),
    "a key renamed where it is sent": (("orders", '"amount": payment', '"sum": payment'),),
    "a key left out against a declaration": (("orders", ', "customer_email": customer_email}', "}"),),
    "a key left out that handlers need": (("pricing", '{"sku": sku, "price": price}', '{"sku": sku}'),),
    "a key misspelled at all ends but the declaration": (
        ("orders", '"customer_email": customer_email}', '"customer_emial": customer_email}'),
        ("mailer", "customer_email", "customer_emial"),
        ("shipping", '"customer_email"', '"customer_emial"'),
    ),
    # --- calls and contracts
    "an argument misspelled": (("billing", 'quantity=order["quantity"]', 'quantiy=order["quantity"]'),),
    "an argument abbreviated": (("orders", "quantity=quantity, order_id", "qty=quantity, order_id"),),
    "an argument left out": (("orders", ", quantity=quantity)", ")"),),
    "a local name left out": (("orders", ", order_id=order_id)", ")"),),
    "an argument left out that is nowhere": (("shipping", ", subject=f\"Order {event['order_id']}\")", ")"),),
    "an argument of another type": (("purchasing", "price=2.5", 'price="2.5"'),),
    "a method misspelled": (("shipping", '"send", address', '"sned", address'),),
    "a method renamed": (("shipping", '"send", address', '"deliver", address'),),
    "a result misspelled": (("pricing", '"changed": True', '"chnaged": True'),),
    "a result left out": (("pricing", ', "currency": "EUR"', ""),),
    "a parameter misspelled against its schema": (
        ("mailer", "address: str, subject", "adress: str, subject"),
        ("mailer", "{address}:", "{adress}:"),
    ),
    "a field left out of a schema": (("mailer", '{"address": str, "subject": str}', '{"address": str}'),),
    "a key of a result misspelled": (("orders", 'quote["total"]', 'quote["totla"]'),),
    "a schema of another type": (("mailer", '"subject": str}', '"subject": dict}'),),
    "a list where one is wanted": (
        ("orders", "sku=sku, quantity=quantity, order", "sku=[sku], quantity=quantity, order"),
    ),
    "a result as text": (("pricing", '"total": price * quantity', '"total": str(quantity)'),),
    "a read key that is named otherwise": (("mailer", 'amount = event["amount"]', 'amount = event["sum"]'),),
    "a field and its parameter": (("mailer", '"subject": str}', '"headline": str}'),),
    "a value of another type": (("orders", '"quantity": quantity, "customer', '"quantity": str(quantity), "customer'),),
}
UNFIXED = {
    "a topic with a word left out",
    "an argument left out that is nowhere",
    "a method renamed",
    "a result left out",
    "a result as text",
    "a topic misspelled where nothing else has its words",
}
"""What was meant is for a person to say, or the place is not one that the rules follow."""


class Outcome(NamedTuple):
    """What became of a defect: what was found, the texts after all that was fixed, and what is found in them."""

    found: frozenset[object]
    files: dict[str, str]
    records: tuple[ProposalRecord, ...]
    left: frozenset[object]


def wrong_files(defect: Defect) -> dict[str, str]:
    files = dict(FILES)
    for name, right, wrong in defect:
        path = f"agents/{name}.py"
        assert right in files[path], (name, right)
        files[path] = files[path].replace(right, wrong)
    return files


def fixed(root: Path, files: Mapping[str, str], limit: int = 9) -> Outcome:
    """Let `check --fix` and then the agents fix a project, with the gate as strict as it is where nothing is run."""
    write_project(root, {"pyproject.toml": "", **files})
    settings = Settings(safety=SafetyConfig(max_file_changes_per_commit=limit), gate=GateConfig(allow_unverified=True))
    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings, dry_run=True)
    before = Project.read(config, cache=False)
    after, records = apply_safe_fixes(before, CheckOptions()).project, ()
    if not after.errors:
        agents = activate_agents(after.definitions, after.order.order, config)
        session = NegotiationSession(config, MessageBus())
        session.analyze(agents, after)
        outcome = session.run(after, agents, detect_conflicts(after), Gate(after, config, None))
        after, records = outcome.workspace.project, outcome.negotiations.records
    return Outcome(_alarms(before), {path: _text(after, path) for path in files}, records, _alarms(after))


def _alarms(project: Project) -> frozenset[object]:
    return frozenset(each.key for each in find_selected(project) if each.severity != "info")


def _text(project: Project, path: str) -> str:
    known = {file.path for file in project.index.files}
    return project.source(path).text if path in known else Path(project.config.root, path).read_text()


@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_what_is_fixed_is_what_was_meant(tmp_path: Path, name: str) -> None:
    files = wrong_files(DEFECTS[name])
    outcome = fixed(tmp_path, files)
    assert outcome.found
    assert outcome.left <= outcome.found
    texts = {path: text.replace(ADDED_IMPORT, "") for path, text in outcome.files.items()}
    expected = files if name in UNFIXED else FILES
    right = {path: without_import(text) for path, text in expected.items()}
    assert {path: without_import(text) for path, text in texts.items()} == right


ADDED_IMPORT = "from graphbus_core import depends_on\n"


def without_import(text: str) -> str:
    """A decorator that is needed again is imported on a line of its own."""
    return text.replace("import depends_on, schema_method", "import schema_method")


def test_most_of_what_is_found_is_fixed() -> None:
    assert len(DEFECTS) > 28
    assert len(DEFECTS.keys() - UNFIXED) / len(DEFECTS) > 0.8


def accepted(outcome: Outcome) -> list[tuple[str, ...]]:
    assert {record.status for record in outcome.records} == {"accepted"}
    return [record.proposal.files for record in outcome.records]


def test_a_rename_that_several_files_share_is_one_proposal(tmp_path: Path) -> None:
    files = wrong_files(DEFECTS["a key misspelled at all ends but the declaration"])
    outcome = fixed(tmp_path, files)
    assert accepted(outcome) == [("agents/mailer.py", "agents/orders.py", "agents/shipping.py")]
    (record,) = outcome.records
    assert record.proposal.title == "Send 'customer_email' instead of 'customer_emial' in 3 places"


def test_a_rename_of_several_readers_is_one_proposal_unless_the_limit_is_lower(tmp_path: Path) -> None:
    files = wrong_files(DEFECTS["a key abbreviated by its readers"])
    assert accepted(fixed(tmp_path / "9", files)) == [("agents/mailer.py", "agents/shipping.py")]
    outcome = fixed(tmp_path / "1", files, limit=1)
    assert sorted(accepted(outcome)) == [("agents/mailer.py",), ("agents/shipping.py",)]
    assert outcome.files == FILES


def test_half_a_rename_is_not_made_where_the_limit_is_lower(tmp_path: Path) -> None:
    files = wrong_files(DEFECTS["a key misspelled at all ends but the declaration"])
    outcome = fixed(tmp_path, files, limit=1)
    assert {record.refusal for record in outcome.records} == {
        "it changes 3 files, and max_file_changes_per_commit is 1"
    }
    assert outcome.files == files
