"""Merges, second thoughts and a person's own text over real source files, through the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from graphbus_core.editing.edits import symbol_text
from graphbus_core.errors import UsageError
from graphbus_core.model.proposals import CodeChange, Proposal
from graphbus_core.negotiation.session_workspace import PersonDecision, ReviewSheet
from tests.fakes.negotiating_agents import Scene, ScriptedAgent, replace_text

SHOP = """\
from graphbus_core import GraphBusNode


class Order(GraphBusNode):
    def place(self) -> None:
        self.publish("/Order/Created", {"sku": "mug"})

    def cancel(self) -> None:
        self.log("gone")
"""
STOCK = """\
from graphbus_core import GraphBusNode


class Stock(GraphBusNode):
    def count(self) -> int:
        return 1
"""
ORDER = "agents/order.py"


def whole(here: Scene, old: str, new: str) -> Proposal:
    """A draft that writes the whole class anew."""
    text = symbol_text(here.project.source(ORDER).data, "Order")
    assert text.count(old) == 1
    change = CodeChange(
        file_path=ORDER, target="Order", change_type="modify", old_code=text, new_code=text.replace(old, new)
    )
    return Proposal(proposal_id="", round=0, src="", intent="test", title=new, code_change=change)


@pytest.fixture
def scene(project: Callable[[Mapping[str, str]], Path]) -> Callable[..., Scene]:
    root = project({"pyproject.toml": "[project]\nname = 'x'\n", ORDER: SHOP, "agents/stock.py": STOCK})
    return lambda **more: Scene(root, "Order", "Stock", dry_run=True, **more)


def test_two_changes_of_one_class_in_one_round_are_merged(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (whole(here, '"mug"', '"cup"'),)
    here.agents["Stock"].drafts[1] = (whole(here, '"gone"', '"back"'),)
    outcome = here.run()
    assert [commit.round for commit in outcome.negotiations.completed] == [1, 1]
    text = outcome.workspace.file_data(ORDER).decode()
    assert text == SHOP.replace('"mug"', '"cup"').replace('"gone"', '"back"')
    assert here.topics.count("Merged") == 1


def test_two_changes_of_one_line_go_back_to_the_second_author_and_are_voted_on_again(
    scene: Callable[..., Scene],
) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (whole(here, '"mug"', '"cup"'),)
    here.agents["Stock"].drafts[1] = (whole(here, '"mug"', '"jug"'),)
    here.agents["Stock"].repaired = replace_text(ORDER, '"cup"', '"cup and jug"')
    outcome = here.run()
    assert [commit.round for commit in outcome.negotiations.completed] == [1, 2]
    assert b'"cup and jug"' in outcome.workspace.file_data(ORDER)
    assert here.topics.count("SentBack") == 1


def test_an_author_who_does_not_fit_it_is_refused_as_stale(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (whole(here, '"mug"', '"cup"'),)
    here.agents["Stock"].drafts[1] = (whole(here, '"mug"', '"jug"'),)
    outcome = here.run()
    record = outcome.negotiations.records[1]
    assert record.status == "refused"
    assert record.refusal.startswith("stale: G1.apply")


def test_an_arbiter_sees_why_it_is_asked(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Judge"] = judge = ScriptedAgent("Judge", is_arbiter=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    here.agents["Stock"].vote = "abstain"
    here.run()
    (trial,) = judge.trials
    assert trial.dispute == "the votes leave it open: only 0 of 1 voted"


# --- a person --------------------------------------------------------------------------------


class Person:
    """Says what a test tells it to, and keeps what it was shown."""

    def __init__(self, *words: PersonDecision) -> None:
        self.words = list(words)
        self.sheets: list[ReviewSheet] = []

    def decide(self, sheet: ReviewSheet) -> PersonDecision:
        self.sheets.append(sheet)
        return self.words.pop(0)


def test_a_review_without_anybody_to_ask_is_refused_before_anything_is_asked(scene: Callable[..., Scene]) -> None:
    with pytest.raises(UsageError) as refusal:
        scene(is_reviewed=True).run()
    assert refusal.value.code == "GBE148"


def test_a_person_sees_what_would_be_and_decides(scene: Callable[..., Scene]) -> None:
    here = scene(is_reviewed=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    person = Person(PersonDecision("no", "I like mugs"))
    outcome = here.run(person)
    (sheet,) = person.sheets
    assert sheet.texts == {ORDER: SHOP.replace('"mug"', '"cup"')}
    assert '+        self.publish("/Order/Created", {"sku": "cup"})' in sheet.diff
    assert sheet.agreed == "unanimous"
    assert outcome.negotiations.records[0].refusal == "turned down by a person: I like mugs"
    assert here.topics.count("Reviewed") == 1


@pytest.mark.parametrize(
    "new",
    [
        SHOP.replace('"mug"', '"jug"'),
        SHOP.replace('        self.log("gone")\n', "").replace("    def cancel(self) -> None:\n", ""),
        f"# first\n{SHOP}",
        f"{SHOP}\n\nLIMIT = 3\n",
        SHOP.replace("    def cancel", "    def added(self) -> None:\n        self.log('gone')\n\n    def cancel"),
        SHOP.replace("\n", "\r\n").replace('"mug"', '"jug"'),
    ],
    ids=["line", "deleted", "first", "last", "inserted", "crlf"],
)
def test_a_person_s_own_text_is_what_is_committed(scene: Callable[..., Scene], new: str) -> None:
    here = scene(is_reviewed=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    outcome = here.run(Person(PersonDecision("edit", texts={ORDER: new})))
    (commit,) = outcome.negotiations.completed
    assert commit.consensus_type == "override"
    assert outcome.workspace.file_data(ORDER).decode() == new.replace("\r\n", "\n")


def test_a_person_who_writes_the_old_text_changes_nothing(scene: Callable[..., Scene]) -> None:
    here = scene(is_reviewed=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    outcome = here.run(Person(PersonDecision("edit", texts={ORDER: SHOP})))
    assert outcome.negotiations.records[0].refusal == "it changes nothing"


def test_a_text_that_the_gate_refuses_is_shown_again_without_a_diff_of_what_does_not_fit(
    scene: Callable[..., Scene],
) -> None:
    here = scene(is_reviewed=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    person = Person(PersonDecision("edit", texts={ORDER: SHOP.replace("class", "klass", 1)}), PersonDecision("no"))
    here.run(person)
    assert person.sheets[1].texts == {}
    assert person.sheets[1].diff == ""
    assert "G1.apply" in person.sheets[1].reason


def test_what_the_votes_rejected_may_be_wanted_after_all(scene: Callable[..., Scene]) -> None:
    here = scene(is_reviewed=True)
    here.agents["Order"].drafts[1] = (replace_text(ORDER, '"mug"', '"cup"'),)
    here.agents["Stock"].vote = "reject"
    person = Person(PersonDecision("yes"))
    outcome = here.run(person)
    assert person.sheets[0].agreed is None
    assert outcome.negotiations.completed[0].consensus_type == "override"
