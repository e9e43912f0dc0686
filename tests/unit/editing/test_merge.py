"""Two changes of one file made one, or a conflict that says where they contradict each other."""

from __future__ import annotations

import codecs

import pytest

from graphbus_core.editing.merge import Conflict, merge, merge_lines

BASE = '''\
"""Orders."""

import json
from math import ceil

LIMIT = 3


class Orders:
    """Takes orders."""

    def place(self, sku):
        total = 1
        return total

    def cancel(self, sku):
        return None


def helper():
    return 1
'''


def merged(ours: str, theirs: str, base: str = BASE) -> str:
    result = merge(base.encode(), ours.encode(), theirs.encode())
    assert result.data is not None, result
    other = merge(base.encode(), theirs.encode(), ours.encode())
    assert other.data is not None
    assert sorted(other.data.splitlines()) == sorted(result.data.splitlines())
    return result.data.decode()


def conflicts(ours: str, theirs: str, base: str = BASE) -> list[str]:
    result = merge(base.encode(), ours.encode(), theirs.encode())
    assert result.data is None
    return [conflict.symbol for conflict in result.conflicts]


def edit(old: str, new: str, text: str = BASE) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_what_only_one_side_has_changed_is_that_side_s() -> None:
    ours = edit("total = 1", "total = 2")
    assert merge(BASE.encode(), ours.encode(), BASE.encode()).data == ours.encode()
    assert merge(BASE.encode(), BASE.encode(), ours.encode()).data == ours.encode()
    assert merge(BASE.encode(), ours.encode(), ours.encode()).data == ours.encode()


def test_neighbouring_methods_are_merged_though_no_line_is_between_them() -> None:
    base = "class A:\n    def one(self):\n        return 1\n    def two(self):\n        return 2\n"
    ours, theirs = edit("return 1", "return 10", base), edit("def two(self):", "def two(self, more):", base)
    text = merged(ours, theirs, base)
    assert text == base.replace("return 1", "return 10").replace("two(self)", "two(self, more)")


def test_two_methods_added_at_the_end_of_a_class_both_stay() -> None:
    at = "        return None\n"
    ours = edit(at, f"{at}\n    def first(self):\n        return 1\n")
    theirs = edit(at, f"{at}\n    def second(self):\n        return 2\n")
    text = merged(ours, theirs)
    assert text.index("def cancel") < text.index("def first") < text.index("def second") < text.index("def helper")
    assert merged(ours, ours) == ours


def test_names_of_one_import_are_a_set() -> None:
    ours = edit("from math import ceil", "from math import ceil, floor")
    theirs = edit("from math import ceil", "from math import ceil, sqrt as root")
    text = merge(BASE.encode(), ours.encode(), theirs.encode()).data
    assert text is not None
    assert b"\nfrom math import ceil, floor, sqrt as root\n" in text


def test_a_name_that_one_side_no_longer_imports_goes() -> None:
    base = "from math import ceil, floor\n"
    assert (
        merged("from math import floor\n", "from math import ceil, floor, sqrt\n", base)
        == "from math import floor, sqrt\n"
    )


@pytest.mark.parametrize("form", ["{}; x = 1\n", "class A:\n    {}\n", "if x:\n    {}\n", "{}, \\\n    exp\n"])
def test_imports_in_any_place_are_merged_or_a_conflict_and_never_an_accident(form: str) -> None:
    base, ours, theirs = (form.format(f"from math import {names}") for names in ("ceil", "ceil, floor", "ceil, sqrt"))
    result = merge(base.encode(), ours.encode(), theirs.encode())
    if result.data is None:
        assert result.conflicts
    else:
        assert b"ceil, floor, exp, sqrt" in result.data


def test_an_import_that_both_sides_empty_is_no_import_any_more() -> None:
    base = "from math import ceil, floor\nx = 1\n"
    assert conflicts("from math import ceil\nx = 1\n", "from math import floor\nx = 1\n", base) == [""]


def test_a_method_that_both_change_in_different_lines_is_merged_by_lines() -> None:
    base = "def long():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n"
    ours, theirs = edit("a = 1", "a = 10", base), edit("d = 4", "d = 40", base)
    assert merged(ours, theirs, base) == "def long():\n    a = 10\n    b = 2\n    c = 3\n    d = 40\n"


def test_a_method_that_both_change_in_one_line_is_a_conflict_by_its_name() -> None:
    ours, theirs = edit("total = 1", "total = 2"), edit("total = 1", "total = 3")
    assert conflicts(ours, theirs) == ["Orders.place"]
    conflict = merge(BASE.encode(), ours.encode(), theirs.encode()).conflicts[0]
    assert isinstance(conflict, Conflict)
    assert "total = 2" in conflict.ours
    assert "total = 3" in conflict.theirs


def test_what_one_side_deletes_and_the_other_leaves_is_gone() -> None:
    ours = edit("\n\ndef helper():\n    return 1\n", "")
    theirs = edit("total = 1", "total = 2")
    assert merged(ours, theirs) == ours.replace("total = 1", "total = 2")


def test_what_one_side_deletes_and_the_other_changes_is_a_conflict() -> None:
    ours, theirs = edit("\n\ndef helper():\n    return 1\n", ""), edit("    return 1\n", "    return 2\n")
    assert conflicts(ours, theirs) == ["helper"]


def test_blocks_that_were_moved_are_left_to_the_lines() -> None:
    base = "def a():\n    return 1\n\n\ndef b():\n    return 2\n\n\ndef c():\n    return 3\n"
    parts = base.split("\n\n\n")
    moved = "\n\n\n".join([parts[1], parts[0], parts[2]])
    assert merged(moved, edit("return 3", "return 30", base), base).endswith("return 30\n")


def test_overloads_and_setters_are_told_apart_by_their_order() -> None:
    base = "class A:\n    @property\n    def x(self):\n        return 1\n    @x.setter\n    def x(self, new):\n        pass\n"
    text = merged(edit("return 1", "return 10", base), edit("pass", "print(new)", base), base)
    assert "return 10" in text
    assert "print(new)" in text


def test_statements_that_share_a_line_are_one_block() -> None:
    base = "a = 1; b = 2\nclass C: pass\ndef f(): return 1\nprint(a); print(b)\nx: int = 1\n"
    text = merged(edit("x: int = 1", "x: int = 2", base), edit("return 1", "return 2", base), base)
    assert text == base.replace("x: int = 1", "x: int = 2").replace("return 1", "return 2")


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark_stay(newline: str, mark: bytes) -> None:
    base, ours, theirs = BASE, edit("total = 1", "total = 2"), edit("LIMIT = 3", "LIMIT = 4")
    data = [mark + text.replace("\n", newline).encode() for text in (base, ours, theirs)]
    expected = ours.replace("LIMIT = 3", "LIMIT = 4").replace("\n", newline)
    assert merge(*data).data == mark + expected.encode()


def test_an_encoding_stays() -> None:
    base = f"# coding: latin-1\n{BASE}".replace("Orders.", "Bestellungen für alle.").encode("latin-1")
    ours, theirs = base.replace(b"total = 1", b"total = 2"), base.replace(b"LIMIT = 3", b"LIMIT = 4")
    assert merge(base, ours, theirs).data == ours.replace(b"LIMIT = 3", b"LIMIT = 4")


def test_a_merge_that_does_not_parse_is_a_conflict() -> None:
    base = "a = 1\nb = 2\nc = 3\nd = 4\n"
    ours, theirs = "a = (1,\nb,\nc,\nd)\n", base
    assert merge(base.encode(), ours.encode(), theirs.encode()).data == ours.encode()
    result = merge(b"if x:\n    a\n    b\nc\n", b"if x:\n    a\n    b\n    c\n", b"x\n    a\n    b\nc\nd\n")
    assert result.data is None


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        ("abc", "abc", "abc", "abc"),
        ("abc", "xabc", "abcy", "xabcy"),
        ("abcde", "aBcde", "abcDe", "aBcDe"),
        ("abcde", "acde", "abcd", "acd"),
        ("abc", "aXc", "aXc", "aXc"),
        ("", "x", "x", "x"),
    ],
)
def test_lines_that_do_not_meet_are_merged(base: str, ours: str, theirs: str, expected: str) -> None:
    assert merge_lines(list(base), list(ours), list(theirs)) == list(expected)


@pytest.mark.parametrize(("base", "ours", "theirs"), [("abc", "aXc", "aYc"), ("", "x", "y"), ("ab", "Xb", "aY")])
def test_lines_that_meet_are_a_conflict(base: str, ours: str, theirs: str) -> None:
    found = merge_lines(list(base), list(ours), list(theirs))
    assert isinstance(found, tuple)


def test_statements_that_one_side_moves_are_there_once_when_the_other_puts_something_before_them() -> None:
    base = "import a\n\nif a:\n    import b\n\n\ndef one():\n    return 1\n"
    ours = "import a\nimport c\n\nif a:\n    import b\n\n\ndef one():\n    return 1\n"
    theirs = "import a\n\n\ndef one():\n    return 1\n\n\nif a:\n    import b\n"
    for one, other in ((ours, theirs), (theirs, ours)):
        data = merge(base.encode(), one.encode(), other.encode()).data
        assert data is None or data.count(b"if a:") == 1


def test_an_edit_of_the_second_definition_of_a_name_does_not_reach_the_third_when_the_first_goes() -> None:
    parts = [f"def f(a):\n    x = {n}\n    a()\n    return x\n" for n in (1, 2, 3)]
    base = "\n\n".join(parts)
    ours = "\n\n".join(parts[1:])
    theirs = base.replace("x = 2\n    a()\n    return x", "x = 2\n    a()\n    return x + 9")
    expected = ours.replace("x = 2\n    a()\n    return x", "x = 2\n    a()\n    return x + 9")
    for one, other in ((ours, theirs), (theirs, ours)):
        assert merge(base.encode(), one.encode(), other.encode()).data in (None, expected.encode())
