"""The pages of docs/rules say what the rules do: every example is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.reading import read_files

PAGES = Path(__file__).parents[3] / "docs" / "rules"
BLOCK = re.compile(r"^(Wrong|Right):\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def path_of(example: str) -> str:
    """Where an example stands: its first line may say so."""
    named = re.match(r"# (\S+\.py)\n", example)
    return named[1] if named else "agents.py"


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {path.stem for path in PAGES.glob("GB*.md")} == set(rules.REGISTER)


@pytest.mark.parametrize("code", rules.REGISTER)
def test_the_wrong_example_gives_the_finding_and_the_right_one_nothing(tmp_path: Path, code: str) -> None:
    examples = dict(BLOCK.findall((PAGES / f"{code}.md").read_text()))
    wrong = read_files(tmp_path / "wrong", {path_of(examples["Wrong"]): examples["Wrong"]})
    assert {finding.code for finding in rules.check(wrong, select=[*rules.selected_codes(), code])} == {code}
    right = read_files(tmp_path / "right", {path_of(examples["Right"]): examples["Right"]})
    assert rules.check(right, select=[*rules.selected_codes(), code]) == ()


@pytest.mark.parametrize("code", rules.REGISTER)
def test_the_head_of_a_page_says_what_the_register_says(code: str) -> None:
    rule = rules.REGISTER[code]
    lines = (PAGES / f"{code}.md").read_text().splitlines()
    assert lines[0] == f"# {code}: {rule.title}"
    fixed = "`graphbus check --fix`" if rule.is_safe else "by the agents, `graphbus negotiate`"
    row = [rule.severity, "on" if rule.is_default else "off", fixed if rule.is_fixable else "by you"]
    assert lines[4] == f"| {' | '.join(row)} |"
