"""The edges of a graph: which there are, and whether both of their ends fit. One truth with `graphbus check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import CODES, ContractValidation, validate_contracts
from graphbus_core.model.findings import Finding
from tests.checking import Files, read

RULES = Path(__file__).parents[1] / "rules"


def validated(project: Project) -> ContractValidation:
    return validate_contracts(Wiring(project), rules.check(project))


def projects_of_the_rules() -> Iterator[tuple[str, Files]]:
    """Every project that the tests of the rules hold in a table."""
    for path in sorted(RULES.glob("test_gb*.py")):
        module = import_module(f"tests.unit.rules.{path.stem}")
        for table, content in vars(module).items():
            if table.isupper() and isinstance(content, Mapping):
                for name, files in content.items():
                    given = files[0] if isinstance(files, tuple) else files
                    texts = given.values() if isinstance(given, Mapping) else [given]
                    if any("GraphBusNode" in str(text) for text in texts):
                        yield f"{path.stem[5:10]} {table} {name}", given


PROJECTS = [*projects_of_the_rules()]


def test_the_tables_of_the_rules_are_found() -> None:
    assert len(PROJECTS) > 100
    assert len({name[:5] for name, _ in PROJECTS}) >= 6


def test_an_edge_is_broken_exactly_when_a_check_finds_something_at_it(tmp_path: Path) -> None:
    for number, (name, files) in enumerate(PROJECTS):
        project = read(tmp_path / str(number), files)
        found = {placed(each) for each in rules.check(project) if each.code in CODES and each.severity != "info"}
        validation = validated(project)
        of_edges = [each for edge in validation.edges for each in edge.findings]
        told = {placed(each) for each in (*of_edges, *validation.others) if each.severity != "info"}
        assert found == told, name
        assert validation.is_clean == (not found), name
        for edge in validation.edges:
            assert (edge.verdict == "broken") == any(placed(each) in found for each in edge.findings), name


def placed(finding: Finding) -> tuple[object, ...]:
    return finding.span, *finding.key


_WARD = """
    from dataclasses import dataclass
    from graphbus_core import Event, GraphBusNode, depends_on, schema_method, subscribe

    @dataclass
    class Patient:
        name: str
        phone: str | None = None

    class Desk(GraphBusNode):
        patients: list[Patient]

        @schema_method({}, {})
        def admit(self) -> dict[str, str]:
            self.publish("/Patient/Admitted", {"patient": Patient("Ada"), "notes": [{"text": "calm"}], "ward": "eyes"})
            return {}

        @schema_method({"number": int}, {"phone": str})
        def phone(self, number: int) -> dict[str, str]:
            return {"phone": self.patients[number].phone}

        @schema_method({"number": int}, {"name": str})
        def name_of(self, number: int) -> dict[str, str]:
            return {"name": self.patients[number].name}

        @schema_method
        def find(self, number: int) -> Patient:
            return self.patients[number]
"""


def _verdict_of_handler(tmp_path: Path, parameters: str, *lines: str) -> str:
    body = "".join(f"\n            {line}" for line in lines)
    beds = f"""
    class Beds(GraphBusNode):
        @subscribe("/Patient/*")
        def on_admitted(self, {parameters}) -> None:{body}
    """
    edges = validated(read(tmp_path, {"agents/ward.py": dedent(_WARD) + dedent(beds)})).edges
    return next(each.verdict for each in edges if each.target == "Beds.on_admitted")


@pytest.mark.parametrize(
    "line",
    [
        'self.log(event["patient"]["name"])',
        'self.log(event["patient"].name)',
        'patient = event["patient"]; self.log(patient["name"])',
        'self.log(event["ward"].upper(), self.use(event["ward"]))',
        'if event["ward"] == "eyes": self.log(event["patient"]["name"])',
        'for note in event["notes"]: self.log(note["text"])',
        'self.log([note["text"] for note in event["notes"]])',
        'if "reason" in event: self.log(event["reason"])',
    ],
)
def test_what_is_there_below_a_key_is_proven(tmp_path: Path, line: str) -> None:
    assert _verdict_of_handler(tmp_path, "event: Event", line) == "proven"


@pytest.mark.parametrize(
    "line",
    [
        'self.log(event["patient"]["surname"])',
        'self.log(event.payload["patient"]["surname"])',
        'self.log(event["patient"].surname)',
        'patient = event["patient"]; self.log(patient["surname"])',
        'self.log(event["ward"]["name"])',
        'self.use(event["patient"])',
        'self.log((event.get("patient") or {})["surname"])',
        'for note in event["notes"]: self.log(note["words"])',
        'self.log([note["words"] for note in event["notes"]])',
        'for key, value in event["patient"].items(): self.log(value["surname"])',
        'for note in event["notes"]: self.use(note)',
        'if event["ward"] == "eyes": self.log(event["device"])',
    ],
)
def test_what_may_not_be_there_is_unknown(tmp_path: Path, line: str) -> None:
    assert _verdict_of_handler(tmp_path, "event: Event", line) == "unknown"


def test_what_is_read_of_a_parameter_without_fields_is_unknown(tmp_path: Path) -> None:
    assert _verdict_of_handler(tmp_path, "patient: dict, ward: str", 'self.log(patient["surname"])') == "unknown"
    assert _verdict_of_handler(tmp_path, "patient: dict, ward: str", "self.log(ward)") == "proven"
    assert _verdict_of_handler(tmp_path, "ward: str, **rest", 'self.log(ward, rest["surname"])') == "unknown"
    assert _verdict_of_handler(tmp_path, "ward: str, **rest", "self.log(ward)") == "proven"


def test_attributes_are_known_where_they_are_declared(tmp_path: Path) -> None:
    caller = """
    @depends_on(Desk)
    class Board(GraphBusNode):
        @schema_method({}, {})
        def show(self) -> dict[str, str]:
            self.log(self.agent(Desk).find(1).ATTRIBUTE)
            return {}
    """

    def verdicts(attribute: str) -> dict[str, str]:
        source = dedent(_WARD) + dedent(caller.replace("ATTRIBUTE", attribute))
        return {
            each.target: each.verdict for each in validated(read(tmp_path, {"agents/ward.py": source})).edges if each
        }

    assert verdicts("name")["Desk.find"] == "proven"
    assert verdicts("surname")["Desk.find"] == "unknown"
    assert verdicts("name")["Desk.phone"] == "unknown"
    assert verdicts("name")["Desk.name_of"] == "proven"


OWN_DECLARATION = """
import os
from typing import TypedDict
from graphbus_core import Topic

class Paid(TypedDict):
    order_id: str
    total: float

PAID = Topic("/Order/Paid", Paid)

class Pricing(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"total": str})
    def quote(self):
        return {"total": "b"}

@depends_on(Pricing)
class Orders(GraphBusNode):
    def pay(self, total: float):
        quote = self.call("Pricing", "quote")
        payload = {"order_id": "1", "total": 1.0}
        %s
        self.publish(PAID, %s)

class Bank(GraphBusNode):
    @subscribe("/Order/Paid")
    def on_paid(self, event):
        self.log(event["total"])
"""


@pytest.mark.parametrize(
    ("line", "payload", "verdict"),
    [
        ("pass", '{"order_id": "1", "total": total}', "proven"),
        ("pass", '{"order_id": "1", "total": os.environ["TOTAL"]}', "unknown"),
        ("pass", '{"order_id": "1", "total": total, **quote}', "unknown"),
        ('payload.update(total="x")', "payload", "unknown"),
    ],
)
def test_a_value_that_may_not_be_as_declared_proves_nothing(
    tmp_path: Path, line: str, payload: str, verdict: str
) -> None:
    """Whatever the handler needs: a running graph refuses what contradicts the declaration of its publisher."""
    found = validated(read(tmp_path, OWN_DECLARATION % (line, payload))).edges
    assert [edge.verdict for edge in found if edge.kind == "topic"] == [verdict]


CALLED_BY_POSITION = """
class Pricing(GraphBusNode):
    @schema_method
    def quote(self, sku: str, number: int = 1) -> str:
        return sku

@depends_on(Pricing)
class Orders(GraphBusNode):
    %sdef pay(self):
        quote = self.agent(Pricing).quote(%s)
"""


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ('"mug", 2', "proven"),
        ('"mug", number=2', "proven"),
        ('"mug", 2, 3', "broken"),
        ('"mug", sku="cup"', "broken"),
        ('2, "mug"', "broken"),
    ],
)
def test_arguments_by_position_are_those_of_the_method(tmp_path: Path, arguments: str, verdict: str) -> None:
    found = validated(read(tmp_path, CALLED_BY_POSITION % ("", arguments))).edges
    assert [edge.verdict for edge in found if edge.kind == "call"] == [verdict]


def test_a_call_whose_answer_is_not_awaited_is_broken(tmp_path: Path) -> None:
    found = validated(
        read(tmp_path, CALLED_BY_POSITION % ("async ", '"mug"') + "        self.log(quote.upper())\n")
    ).edges
    assert [(edge.verdict, edge.findings[0].code) for edge in found if edge.kind == "call"] == [("broken", "GB314")]


MAY_BE_MISSING = """
from typing import NotRequired, TypedDict
from graphbus_core import Topic

class Paid(TypedDict):
    order_id: str
    total: NotRequired[float]

PAID = Topic("/Order/Paid", Paid)

class Orders(GraphBusNode):
    def pay(self):
        self.publish(PAID, {"order_id": "1"})

class Bank(GraphBusNode):
    @subscribe(PAID)
    def on_paid(self, paid: Paid):
        %s
"""


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('self.log(paid["order_id"], paid.get("total"))', "proven"),
        ('self.log(paid["total"] if "total" in paid else 0)', "proven"),
        ('self.log(paid["total"])', "broken"),
    ],
)
def test_what_a_class_may_lack_is_needed_where_it_is_read(tmp_path: Path, line: str, verdict: str) -> None:
    found = validated(read(tmp_path, MAY_BE_MISSING % line)).edges
    assert [edge.verdict for edge in found] == [verdict]
