"""GB120: agents report errors in different shapes (seed 002, 5.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checking import assert_marked, only_finding, read


def service(name: str, schema: str, good: str, bad: str, mark: str = "") -> str:
    return f"""
class {name}(GraphBusNode):
    @schema_method({{}}, {schema}){mark}
    def run(self) -> dict:
        if self.log("x"):
            return {bad}
        return {good}
"""


def usual(name: str) -> str:
    return service(
        name,
        '{"status": str, "error": str | None}',
        '{"status": "ok", "error": None}',
        '{"status": "error", "error": "no"}',
    )


def odd(name: str, mark: str = "") -> str:
    return service(
        name,
        '{"success": bool, "error_message": str}',
        '{"success": True, "error_message": ""}',
        '{"success": False, "error_message": "no"}',
        mark,
    )


MARKED = "  #! GB120"
DIFFER = {
    "one of three": usual("Orders") + odd("Stock", MARKED) + usual("Payments"),
    "one of four, without status": usual("A") + usual("B") + usual("C")
    + service("D", '{"errors": str}', '{"errors": ""}', '{"errors": "no"}', MARKED),
    "the error as a text": usual("A") + usual("B") + usual("C")
    + service("D", '{"error_text": str}', '{"error_text": ""}', '{"error_text": "no"}', MARKED),
    "two of five are one finding": usual("A") + odd("B", MARKED) + usual("C") + odd("D") + usual("E"),
}  # fmt: skip

SAME = {
    "all alike": usual("Orders") + usual("Stock") + usual("Payments"),
    "no majority": usual("A") + odd("B") + service("C", '{"err": str}', '{"err": ""}', '{"err": "no"}'),
    "two agents only": usual("Orders") + odd("Stock"),
    "two against two": usual("A") + usual("B") + odd("C") + odd("D"),
    "results without errors": usual("A") + usual("B") + usual("C")
    + service("D", '{"success": bool, "total": float}', '{"success": True, "total": 1}', '{"success": False, "total": 0}'),
    "without status, but the same field for the error": usual("A") + usual("B") + usual("C")
    + service("D", '{"error": str}', '{"error": ""}', '{"error": "no"}'),
    "not clear which field is meant": usual("A") + usual("B") + usual("C")
    + service("D", '{"error": str, "errors": list}', '{"error": "", "errors": []}', '{"error": "no", "errors": []}'),
}  # fmt: skip


@pytest.mark.parametrize("text", [*DIFFER.values(), *SAME.values()], ids=[*DIFFER, *SAME])
def test_the_odd_shape_is_found_where_there_is_a_clear_majority(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB120")


def test_it_is_a_note_that_names_all_ends(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, DIFFER["two of five are one finding"]), "GB120")
    assert finding.severity == "info"
    assert finding.message == "B.run reports errors as {success, error_message}, most other agents as {status, error}"
    assert [each.agent for each in finding.related] == ["D", "A", "C", "E"]
