"""Which findings are reported: codes and prefixes, settings, ignore comments, one order."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.errors import UsageError
from tests.checking import HEAD, found, read
from tests.reading import read_files

TEXT = """
class A(GraphBusNode):
    @schema_method({"x": int})
    def f(self, x, y=[]):
        y.append(1)
        self.publish("/A")

    @subscribe("/B")
    def on_b(self, event): ...
"""
ALL = {"GB001", "GB002", "GB201", "GB210", "GB301"}


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ([], [], ALL - {"GB210"}),
        (["ALL"], [], ALL),
        (["GB"], [], ALL),
        (["GB2"], [], {"GB201", "GB210"}),
        (["gb210"], [], {"GB210"}),
        ([], ["GB0"], {"GB201", "GB301"}),
        (["GB0"], ["GB002"], {"GB001"}),
        (["GB002"], ["GB0"], {"GB002"}),
        (["GB002"], ["GB002"], set()),
        (["GB105"], [], set()),
        ([], ["ALL"], set()),
    ],
)
def test_the_longer_of_two_prefixes_wins(
    tmp_path: Path, select: list[str], ignore: list[str], expected: set[str]
) -> None:
    findings = rules.check(read(tmp_path, TEXT), select=select, ignore=ignore)
    assert {finding.code for finding in findings} == expected


def test_what_can_be_fixed_is_reported_although_it_is_off_by_default(tmp_path: Path) -> None:
    findings = rules.check(read(tmp_path, TEXT), all_fixable=True)
    assert {finding.code for finding in findings} == ALL


def test_the_register_says_which_rules_can_be_fixed_and_which_are_safe() -> None:
    from graphbus_core.compiler.rules.fixes import FIXERS

    assert {code for code, rule in rules.REGISTER.items() if rule.is_fixable} == set(FIXERS)
    assert {code for code, rule in rules.REGISTER.items() if rule.is_safe} == {
        "GB010",
        "GB201",
        "GB202",
        "GB301",
        "GB319",
        "GB322",
    }
    assert [code for code, rule in rules.REGISTER.items() if not rule.is_default] == ["GB210"]
    assert list(rules.REGISTER) == sorted(rules.REGISTER)


def test_a_rule_that_does_not_exist_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GBE120") as refusal:
        rules.check(read(tmp_path, TEXT), select=["GB0O1"])
    assert refusal.value.sentence == "No rule has the code GB0O1, or a code that begins with it. Did you mean 'GB001'?"


def test_findings_come_by_path_line_and_code(tmp_path: Path) -> None:
    project = read(tmp_path, {"b.py": TEXT, "a.py": TEXT.replace("class A", "class B")})
    places = [(each.span.path, each.span.line, each.span.column, each.code) for each in rules.check(project)]
    assert places == sorted(places)
    assert {path for path, *_ in places} == {"a.py", "b.py"}


IGNORED = {
    "on the line": ("y=[]):  # graphbus: ignore[GB301]", True),
    "every rule": ("y=[]):  # graphbus: ignore", True),
    "one of several": ("y=[]):  # graphbus: ignore[GB103, GB301]", True),
    "a prefix": ("y=[]):  # graphbus: ignore[GB3]", True),
    "another rule": ("y=[]):  # graphbus: ignore[GB302]", False),
    "not the comment": ("y=[]):  # ignore[GB301]", False),
}


@pytest.mark.parametrize(("line", "is_ignored"), IGNORED.values(), ids=IGNORED)
def test_a_comment_silences_its_line(tmp_path: Path, line: str, is_ignored: bool) -> None:
    project = read(tmp_path, TEXT.replace("y=[]):", line))
    assert (found(project, "GB301") == []) is is_ignored


def test_a_comment_alone_on_a_line_silences_the_next_one(tmp_path: Path) -> None:
    text = TEXT.replace("    def f", "    # graphbus: ignore[GB301]\n    def f")
    assert found(read(tmp_path, text), "GB301") == []


def test_a_comment_behind_code_does_not_silence_the_next_line(tmp_path: Path) -> None:
    text = TEXT.replace('{"x": int})', '{"x": int})  # graphbus: ignore[GB301]')
    assert len(found(read(tmp_path, text), "GB301")) == 1


def test_a_comment_silences_a_whole_file(tmp_path: Path) -> None:
    text = HEAD + TEXT
    project = read_files(
        tmp_path, {"a.py": f"# graphbus: ignore-file[GB0,GB2]\n{text}", "b.py": text.replace("class A", "class B")}
    )
    assert {(path, code) for path, _, code in found(project)} == {
        ("a.py", "GB301"),
        *(("b.py", code) for code in ALL - {"GB210"}),
    }


def test_a_finding_is_recognised_when_lines_move(tmp_path: Path) -> None:
    before = rules.check(read(tmp_path / "1", TEXT), select=["ALL"])
    after = rules.check(read(tmp_path / "2", "\n\n\n" + TEXT.replace("class A", "x = 1\n\nclass A")), select=["ALL"])
    assert {each.key for each in before} == {each.key for each in after}
