"""GB010 and GB011: agents that are not there or not declared, and dependencies in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import assert_marked, only_finding, read

UNKNOWN = {
    "a name": """
@depends_on("Stok")  #! GB010
class Orders(GraphBusNode): ...
class Stock(GraphBusNode): ...
""",
    "a call to nobody": """
class Orders(GraphBusNode):
    def go(self):
        self.call("Stock", "reserve")  #! GB010
""",
    "a call without a dependency": """
class Orders(GraphBusNode):
    def go(self):
        self.call("Stock", "reserve")  #! GB010
class Stock(GraphBusNode):
    @schema_method()
    def reserve(self): ...
""",
}

KNOWN = {
    "a name, a class, a list": """
class Stock(GraphBusNode): ...
class Payments(GraphBusNode): ...
@depends_on("Stock", Payments)
class Orders(GraphBusNode):
    def go(self):
        self.call("Stock", "reserve")
""",
    "a computed call": """
class Orders(GraphBusNode):
    def go(self, agent):
        self.call(agent, "reserve")
""",
}

CIRCLES = {
    "of two": """
@depends_on("Two")  #! GB011
class One(GraphBusNode): ...
@depends_on("One")
class Two(GraphBusNode): ...
""",
    "of three, and others who hang on it": """
@depends_on("Two")  #! GB011
class One(GraphBusNode): ...
@depends_on("Three")
class Two(GraphBusNode): ...
@depends_on("One")
class Three(GraphBusNode): ...
@depends_on("One")
class Zero(GraphBusNode): ...
""",
}

ALL = {**UNKNOWN, **KNOWN, **CIRCLES}


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_dependencies_on_nobody_and_in_circles_are_found_and_no_others(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB01")


def test_the_likely_agent_is_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, UNKNOWN["a name"]), "GB010")
    assert finding.message == "Orders depends on Stok, which is not an agent of this graph"
    assert finding.hint == "Did you mean 'Stock'?"


def test_a_circle_is_shown_whole_with_the_place_of_every_step(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, CIRCLES["of three, and others who hang on it"]), "GB011")
    assert finding.message == "The dependencies form a cycle: One -> Two -> Three -> One"
    assert [each.message for each in finding.related] == ["Two depends on Three", "Three depends on One"]


def test_every_graph_error_that_a_check_reports_as_a_finding_has_one(tmp_path: Path) -> None:
    for text in [*UNKNOWN.values(), *CIRCLES.values()]:
        project = read(tmp_path, text)
        covered = [error for error in project.errors if error.code in rules.COVERED_ERRORS]
        assert len(rules.check(project, select=["GB010", "GB011"])) >= len(covered)


def test_an_unknown_agent_may_be_in_the_file_that_cannot_be_read(tmp_path: Path) -> None:
    files = {"agents.py": UNKNOWN["a name"], "broken.py": "def ("}
    assert rules.check(read(tmp_path, files)) == ()
