"""GB120: agents report errors in different shapes (seed 002, 5.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import apply_fix, assert_marked, only_finding, read, text_of


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


def test_the_usual_shape_is_adopted_over_several_files_in_one_change(tmp_path: Path) -> None:
    files = {
        "a.py": usual("A"),
        "b.py": odd("B"),
        "c.py": usual("C"),
        "d.py": odd("D"),
        "e.py": usual("E"),
    }
    before = read(tmp_path, files)
    finding = only_finding(before, "GB120")
    fix = rules.fix_for(finding, before)
    assert [change.file_path for change in fix.changes] == ["b.py", "d.py"]
    assert fix.affects == ("A", "C", "D", "E")
    after = apply_fix(before, fix)
    assert text_of(after, "b.py") == service(
        "B",
        '{"status": str, "error": str}',
        '{"status": "ok", "error": ""}',
        '{"status": "error", "error": "no"}',
    ).removeprefix("\n")
    assert rules.check(after, select=["ALL"]) == ()


NOT_MENDED = {
    "callers read the old fields": DIFFER["one of three"] + """
@depends_on("Stock")
class Shop(GraphBusNode):
    def go(self):
        return self.call("Stock", "run")["success"]
""",
    "the status is computed": (usual("A") + odd("B") + usual("C")).replace('"success": True', '"success": bool(1)'),
    "no one word for success": (usual("A") + odd("B") + usual("C").replace('"ok"', '"done"')),
    "the schema stands elsewhere": usual("A") + usual("C") + """
SCHEMA = {"success": bool, "error_message": str}
class B(GraphBusNode):
    @schema_method({}, SCHEMA)
    def run(self) -> dict:
        return {"success": True, "error_message": ""}
""",
    "what is returned is no display": usual("A") + usual("C") + """
class B(GraphBusNode):
    @schema_method({}, {"success": bool, "error_message": str})
    def run(self) -> dict:
        return self.make()
    def make(self): ...
""",
    "other types": usual("A") + usual("C") + service("B", '{"error_message": list}', '{"error_message": []}',
                                                     '{"error_message": ["no"]}'),
}  # fmt: skip


@pytest.mark.parametrize("text", NOT_MENDED.values(), ids=NOT_MENDED)
def test_a_shape_is_not_changed_on_a_guess(tmp_path: Path, text: str) -> None:
    assert not only_finding(read(tmp_path, text), "GB120").is_fixable


def test_fields_that_hold_the_same_kind_of_value_are_only_renamed(tmp_path: Path) -> None:
    text = usual("A") + usual("C") + service("B", '{"status": str, "err": str}', '{"status": "fine", "err": ""}',
                                             '{"status": "bad", "err": "no"}')  # fmt: skip
    before = read(tmp_path, text)
    after = apply_fix(before, rules.fix_for(only_finding(before, "GB120"), before))
    assert text_of(after) == text_of(before).replace('"err"', '"error"')
