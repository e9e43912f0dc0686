from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from graphbus_core.cli.report.page import render_page
from graphbus_core.cli.report.story import Story
from tests.fakes.told_sessions import EDGES, eventful, eventful_record, eventful_transcript, large

VOID = {"meta", "br", "hr", "col"}
PAGE = render_page(eventful()).decode("ascii")


class Outline(HTMLParser):
    """What elements a page has, whether they are nested well, and its visible text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def names(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


OUTLINE = Outline(PAGE)


def test_every_element_is_closed_and_every_place_has_one_name() -> None:
    assert OUTLINE.open == []
    places = [str(attributes["id"]) for _, attributes in OUTLINE.elements if "id" in attributes]
    assert len(places) == len(set(places))
    for attributes in OUTLINE.names("a"):
        assert str(attributes["href"])[1:] in places


def test_the_policy_allows_the_style_and_this_one_script_and_nothing_else() -> None:
    policy = next(str(each["content"]) for each in OUTLINE.names("meta") if "http-equiv" in each)
    (script,) = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_nothing_in_the_page_names_another_place() -> None:
    assert not re.search(r"https?:|src=|@import|url\((?!#)", PAGE)
    assert not {"img", "link", "iframe", "object", "embed", "base"} & {tag for tag, _ in OUTLINE.elements}
    assert not [
        name for _, attributes in OUTLINE.elements for name in attributes if name.startswith("on") or name == "style"
    ]


@pytest.mark.parametrize(
    "told",
    [
        "3 of 9 proposals accepted",
        "Stopped after 4 rounds: the budget is used up ($0.50 of $0.50). The accepted changes are in the source files.",
        "One name for one thing, and nothing negative",
        "arbiter: example:large, evaluator: example:small, proposer: example:large",
        "Gate: refused at G1.stale Gate again: passed Votes: 1 accept, 1 reject Arbiter Judge: accept",
        "Merged with other accepted changes in agents/mail.py Sent back: P001 renamed the field Votes: 1 accept",
        "A person answered yes (at last) Commit C002: all agents agreed",
        "Gate: passed Votes: 1 reject, 1 abstain Gate again: passed Commit C003",
        "Commit C003: a person decided",
        "Proposed against P002",
        "Stock 2 proposals too many: more than 3 proposals in a round",
        "Prices gave no usable answer (evaluate): the answer was cut off",
        "No agent made a proposal in this round.",
        "G3 Capability Refused G3.file agents/audit.py:14 open() writes a file",
        "G6 Tests Not run – the project has no tests",
        "Audit.on_placed (/Order/Placed) no longer reads total.",
        "The gate did not check it.",
        "Evidence (test, verified: a veto) def test_total(): assert place([{'price': 0.99}]) == 0.99",
        "Evidence (contract, unsubstantiated) Somebody may compare cents. nobody does",
        "Concern Old events bear the old name.",
        "Suggestion Send both names for a while.",
        "confidence 55% · medium risk · breaks a contract · touches Mail",
        "Proposed instead: Warn when fewer than five are left",
        "input {order_id: str, sum: float} becomes {order_id: str, total: float}",
        "Countered by P003",
        "Input tokens 182,340 61,340 new, 121,000 read from the provider's cache",
        "Dollars $0.48 without 1 request whose price is not known",
        "P001 $0.12 Refuse negative prices",
        "Other $0.22",
        "Orders on P005: reject",
        "Prices is called by Stock (price_of)",
    ],
)
def test_the_page_tells(told: str) -> None:
    assert told in OUTLINE.text


def test_the_same_session_gives_the_same_bytes() -> None:
    assert render_page(eventful()).decode() == PAGE
    shuffled = Story(eventful_record(), reversed(EDGES), eventful_transcript(), "written")
    assert render_page(shuffled).decode() == PAGE
    assert json.dumps(eventful().facts()) == json.dumps(shuffled.facts())


def test_a_session_of_rules_was_free() -> None:
    shown = Outline(render_page(large(4, 2)).decode()).text
    assert "No model was asked: nothing left the machine and nothing was spent." in shown
    assert "Rules" in shown
    assert "By proposal" not in shown


def test_a_session_in_which_nobody_proposed_anything_has_a_page() -> None:
    record = eventful_record()
    ending = replace(
        record.negotiations.ending, rounds_executed=0, proposals_made=0, commits_created=0, files_modified=0, detail=""
    )
    nothing = replace(record.negotiations, completed=(), records=(), ending=ending)
    shown = Outline(render_page(Story(replace(record, negotiations=nothing, arbiters=()), None)).decode())
    assert shown.open == []
    assert "No agent made a proposal. " in shown.text
    assert "Nothing was accepted, no file was changed." in shown.text
    assert "The session ended before its first round." in shown.text
    assert "No agent voted." in shown.text
    assert "Only the agents are shown" in shown.text


@pytest.mark.parametrize(
    ("changes", "fate", "told"),
    [
        ({"is_applied": False, "refusal": "G6.failed: a test fails"}, "", "Why they were not written: G6.failed"),
        ({"is_applied": False}, "", "The accepted changes were not written."),
        ({"is_applied": True}, "undone", "The accepted changes were written and later undone."),
        ({"is_applied": True}, "", "The accepted changes are in the source files."),
        ({"models": {"proposer": "example:one"}}, "", "Model example:one"),
        ({"costs": {}}, "", "Cost $0.48"),
    ],
)
def test_the_outcome_says_what_became_of_the_changes(changes: dict[str, object], fate: str, told: str) -> None:
    record = replace(eventful_record(), **changes)
    assert told in Outline(render_page(Story(record, EDGES, (), fate)).decode()).text  # type: ignore[arg-type]


def test_more_agents_than_a_drawing_can_show_are_a_list() -> None:
    shown = Outline(render_page(large(101, 3)).decode())
    assert "101 agents are too many for a drawing" in shown.text
    assert not [each for each in shown.names("svg") if each.get("class") == "graph"]


def test_a_large_session_takes_less_than_two_seconds_and_three_megabytes() -> None:
    began = time.process_time()
    made = render_page(large())
    assert time.process_time() - began < 2
    assert len(made) < 3_000_000


def test_an_odd_or_repeated_id_gets_a_place_of_its_own() -> None:
    record = eventful_record()
    first, second, *_ = record.negotiations.records
    odd = replace(first, proposal=replace(first.proposal, proposal_id='P1" onclick="x'))
    negotiations = replace(record.negotiations, records=(odd, second, second))
    anchors = [case.anchor for case in Story(replace(record, negotiations=negotiations), None).cases]
    assert anchors == ["proposal-0", "P002", "proposal-2"]
