"""Edits within a symbol: what cannot be done with certainty is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.model.agent import SourceSpan
from tests.checking import found, read
from tests.reading import read_files

TEXT = """x = 1

class A:
    if x:
        def f(self): return "a"
    try:
        y = 1
    except ValueError:
        def g(self): return 'b'
    match x:
        case 1:
            class Inner:
                def h(self): return 1
"""


def at(root: Path, line: int, column: int = 0, **options: bool) -> Symbol:
    project = read_files(root, {"a.py": TEXT})
    return Symbol.at(project, SourceSpan("a.py", line, column, line, column), **options)


@pytest.mark.parametrize(
    ("line", "column", "target"), [(3, 0, "A"), (5, 12, "A.f"), (7, 8, "A"), (9, 12, "A.g"), (13, 20, "A.Inner.h")]
)
def test_the_innermost_symbol_around_a_place_is_found(tmp_path: Path, line: int, column: int, target: str) -> None:
    assert at(tmp_path, line, column).target == target


def test_a_place_outside_of_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="in no class"):
        at(tmp_path, 1)


def test_a_class_is_no_method(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="in no method"):
        at(tmp_path, 3).function  # noqa: B018


def test_an_edit_outside_of_the_symbol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="leaves the symbol"):
        at(tmp_path, 5, 12).insert(0, "x")


def test_edits_that_overlap_change_nothing_or_break_the_file_are_refused(tmp_path: Path) -> None:
    symbol = at(tmp_path, 5, 12)
    with pytest.raises(Refused, match="nothing changes"):
        symbol.change()
    symbol.replace(symbol.start, symbol.start + 3, "def")
    symbol.replace(symbol.start + 1, symbol.start + 4, "ef ")
    with pytest.raises(Refused, match="overlap"):
        symbol.change()
    broken = at(tmp_path / "2", 5, 12)
    broken.insert(broken.start, "(")
    with pytest.raises(Refused, match="does not parse"):
        broken.change()


@pytest.mark.parametrize(("old", "new"), [("b", "c"), ("a", 'c"'), ("a", "c\\")])
def test_a_literal_is_only_changed_when_it_says_exactly_this(tmp_path: Path, old: str, new: str) -> None:
    symbol = at(tmp_path, 5, 12)
    with pytest.raises(Refused, match="no plain literal"):
        symbol.replace_text(symbol.function.body[0].value, old, new)  # type: ignore[attr-defined,arg-type]


def test_a_check_is_silent_about_what_the_parser_warns_of(tmp_path: Path) -> None:
    text = 'class A(GraphBusNode):\n    def f(self, x=[]):\n        x.append("\\d")\n'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(read(tmp_path, text)) == [("agents.py", 3, "GB301")]


def test_nothing_is_concluded_from_a_file_that_is_broken(tmp_path: Path) -> None:
    files = {
        "agents.py": 'class A(GraphBusNode):\n    @subscribe("/Gone")\n    def on_x(self): ...\n',
    }
    project = read(tmp_path, files)
    assert found(project) == [("agents.py", 3, "GB001")]
    (tmp_path / "main.py").write_text('run("/Gone"')
    again = read(tmp_path, files)
    assert [error.code for error in again.errors] == ["GBE201"]
    assert rules.check(again) == ()
