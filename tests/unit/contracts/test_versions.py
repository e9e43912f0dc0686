"""The next version, from what has changed."""

from __future__ import annotations

import pytest

from graphbus_core.contracts.changes import Broken, ContractChange
from graphbus_core.contracts.versions import Level, _next_release, parse_version, suggest_version
from graphbus_core.errors import UsageError
from graphbus_core.model.agent import SourceSpan

HERE = SourceSpan("agents/a.py", 1, 0, 1, 5)
BREAKS = ContractChange("method-removed", "A.go", "A.go is gone", HERE, is_breaking=True, is_public=True)
GROWS = ContractChange("method-added", "A.come", "A.come is new", HERE, is_public=True)
SETTLED = ContractChange("field-renamed", "/T", "is called 'm' now", HERE, "payload", "n", is_breaking=True)
INSIDE = SETTLED._replace(breaks=(Broken("/T → B.on", "B", HERE, "needs 'n'"),))

STEPS = {
    ("1.4.2", "major"): "2.0.0",
    ("1.4.2", "minor"): "1.5.0",
    ("1.4.2", "patch"): "1.4.3",
    ("1.4.2", "none"): "1.4.2",
    ("0.3.1", "major"): "0.4.0",
    ("0.3.1", "minor"): "0.3.2",
    ("0.3.1", "patch"): "0.3.2",
    ("0.0.1", "major"): "0.1.0",
    ("1.4", "minor"): "1.5.0",
    ("2", "major"): "3.0.0",
    ("2.0.0rc1", "major"): "2.0.0",
    ("2.0.0rc1", "patch"): "2.0.0",
    ("2.1.0b2", "major"): "3.0.0",
    ("2.1.0b2", "minor"): "2.1.0",
    ("2.1.3a1", "minor"): "2.2.0",
    ("0.4.0.dev3", "major"): "0.4.0",
    ("0.4.1.dev3", "major"): "0.5.0",
}


@pytest.mark.parametrize(("current", "level"), STEPS)
def test_the_next_release_announces_what_has_changed(current: str, level: Level) -> None:
    assert _next_release(*parse_version(current), level) == parse_version(STEPS[current, level])[0]


@pytest.mark.parametrize(
    ("changes", "level"),
    [([], "none"), ([SETTLED], "patch"), ([INSIDE], "patch"), ([SETTLED, GROWS], "minor"), ([GROWS, BREAKS], "major")],
)
def test_the_public_contract_decides(changes: list[ContractChange], level: Level) -> None:
    assert suggest_version(changes, "").level == level


ENOUGH = {
    ("1.4.2", "1.4.2"): False,
    ("1.4.2", "1.5.0"): False,
    ("1.4.2", "2.0.0"): True,
    ("1.4.2", "2.0.0rc1"): True,
    ("1.4.2", "3.1.0"): True,
    ("2.0.0rc1", "2.0.0rc2"): True,
    ("2.0.0rc1", "2.0.0"): True,
    ("0.3.1", "0.4.0"): True,
}


@pytest.mark.parametrize(("current", "found"), ENOUGH)
def test_a_version_that_was_raised_already_is_enough(current: str, found: str) -> None:
    assert suggest_version([BREAKS], current, found).is_enough is ENOUGH[current, found]


def test_the_reason_names_what_is_decisive() -> None:
    assert suggest_version([BREAKS, GROWS], "1.0.0").because == "A.go breaks the public contract"
    many = [BREAKS._replace(place=f"A.m{number}") for number in range(5)]
    assert suggest_version(many, "1.0.0").because == "A.m0, A.m1 and 3 more break the public contract"
    assert suggest_version([INSIDE], "1.0.0").because == "only agents of this graph rely on what breaks"
    assert suggest_version([SETTLED], "1.0.0").because == "nothing that others rely on has changed"
    assert suggest_version([GROWS], "1.0.0").because == "the public contract grows: A.come"


@pytest.mark.parametrize("text", ["one", "1.x", "1.2.3.4.5.6", "-1", "1..2", "1.0.0 beta and more", "9" * 40])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="GBE170"):
        parse_version(text)


@pytest.mark.parametrize("text", ["v1.2.3", "1.2.3+local.7", "1.2.3.post1", "1.2.3-rc.4", "1.2.3alpha1", " 1.2.3 "])
def test_versions_are_read_as_people_write_them(text: str) -> None:
    assert parse_version(text)[0] == (1, 2, 3)
