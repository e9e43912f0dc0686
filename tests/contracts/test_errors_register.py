"""The register of errors and the code that raises them say the same."""

from __future__ import annotations

import ast
import re
import string
from functools import cache
from pathlib import Path
from typing import NamedTuple

from graphbus_core import errors
from graphbus_core.errors.register import REGISTER

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "graphbus_core"
FAMILIES = {
    "UsageError": range(101, 200),
    "BuildError": range(201, 250),
    "EditError": range(301, 350),
    "NegotiationError": range(401, 440),
    "ModelError": range(440, 500),
    "ArtifactError": range(501, 550),
    "RunError": range(601, 700),
    "DeployError": range(701, 800),
}
GROUP = "GBE001"
PLACED = {"where", "is_final", "is_transient", "retry_after_s", "may_be_billed"}
"""Keywords that are no data of the sentence."""


class Raised(NamedTuple):
    """One place that makes an error: `data` are its keywords, None if some are computed."""

    place: str
    family: str
    code: str
    data: frozenset[str] | None


def raised_in(path: Path) -> list[Raised]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        family = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if family not in FAMILIES:
            continue
        names = [keyword.arg for keyword in node.keywords]
        data = None if None in names else frozenset(name for name in names if name and name not in PLACED)
        place = f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}"
        found += [Raised(place, family, code, data) for code in codes_in(node.args[0])]
    return found


def codes_in(node: ast.AST) -> list[str]:
    """The literal codes of an argument: one, or the two of a conditional expression."""
    constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [value for value in constants if isinstance(value, str) and re.fullmatch(r"GBE\d+", value)]


@cache
def all_raised() -> list[Raised]:
    return [raised for path in sorted(PACKAGE.rglob("*.py")) for raised in raised_in(path)]


MENTIONED = {
    code
    for path in PACKAGE.rglob("*.py")
    if path.parent.name != "errors"
    for code in re.findall(r"\"(GBE\d+)\"", path.read_text(encoding="utf-8"))
}


def fields_of(code: str) -> frozenset[str]:
    text = REGISTER[code].sentence + REGISTER[code].hint
    return frozenset(
        name.partition(".")[0].partition("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name
    )


def test_each_code_of_the_register_is_raised_somewhere() -> None:
    assert set(REGISTER) - {GROUP} - MENTIONED == set()


def test_each_code_that_the_source_names_is_in_the_register() -> None:
    assert MENTIONED - set(REGISTER) == set()


def test_an_error_is_raised_by_its_family_with_the_data_that_its_sentence_needs() -> None:
    assert len(all_raised()) > len(MENTIONED) / 2, "the tests have found what is raised"
    strangers = [
        raised for raised in all_raised() if int(raised.code.removeprefix("GBE")) not in FAMILIES[raised.family]
    ]
    assert strangers == []
    wrong = [raised for raised in all_raised() if raised.data is not None and raised.data != fields_of(raised.code)]
    assert wrong == []


def test_codes_stand_in_number_order_so_that_a_reader_finds_them() -> None:
    assert list(REGISTER) == sorted(REGISTER)


def test_an_entry_is_one_clear_sentence_and_a_hint_that_says_what_to_do() -> None:
    entries = {code: entry for code, entry in REGISTER.items() if code != GROUP}
    assert [code for code, entry in entries.items() if not entry.sentence.endswith((".", "?", "}"))] == []
    assert [code for code, entry in entries.items() if not entry.hint.endswith((".", "}"))] == []


def test_each_family_has_an_exit_status_of_its_own() -> None:
    statuses = [getattr(errors, family).exit_status for family in FAMILIES]
    assert statuses == [2, 3, 4, 5, 5, 6, 7, 8]
