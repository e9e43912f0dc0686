"""What a model may write, and what it means: tolerant in form, strict in meaning."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import symbol_text
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import Proposal
from graphbus_core.negotiation import answers
from graphbus_core.negotiation.agents import AgentView, TriedProposal
from graphbus_core.negotiation.answer_format import MAX_ANSWER_BYTES
from graphbus_core.negotiation.answers import MalformedAnswer
from graphbus_core.negotiation.edit_blocks import find_diff_marks, find_gap
from tests.fakes import model_texts as texts
from tests.unit.negotiation.prompted_shop import shop, trial_of, view_of

TOTAL = "def total(self, prices: list) -> float:\n    return sum(prices) + 0\n"
EDIT = texts.edit("replace_symbol", "agents/order.py", "Order.total", TOTAL)
PROPOSAL = texts.proposal("Add", EDIT)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def view(base: Project) -> AgentView:
    return view_of(base)


@pytest.fixture
def trials(base: Project) -> tuple[TriedProposal, ...]:
    return trial_of(base), trial_of(base, proposal_id="P002")


def _draft(text: str, view: AgentView) -> Proposal:
    (draft,) = answers.read_drafts(text, view)
    return draft


# --- proposals ---------------------------------------------------------------------------------


def test_a_proposal_says_what_its_lines_say(view: AgentView) -> None:
    text = texts.proposal(
        "Add nothing", EDIT, intent="refactor_method", reason="Because.", dst="Stock", affects=["Shelf"], priority=3
    )
    draft = _draft(text, view)
    assert (draft.title, draft.intent, draft.reason) == ("Add nothing", "refactor_method", "Because.")
    assert (draft.src, draft.dst, draft.affects, draft.priority) == ("Order", "Stock", ("Shelf",), 3)
    assert draft.code_change.new_code == TOTAL


def test_old_code_and_digest_come_from_the_snapshot(view: AgentView) -> None:
    seen = symbol_text(view.project.source("agents/order.py").data, "Order.total")
    change = _draft(PROPOSAL, view).code_change
    assert (change.old_code, change.base_sha256, change.change_type) == (seen, sha256_hex(seen.encode()), "modify")


@pytest.mark.parametrize("operation", ["replace_body", "replace_symbol"])
def test_the_comment_behind_the_last_line_goes_with_it(operation: str, view: AgentView) -> None:
    old = view.project.source("agents/order.py").data.replace(b"sum(prices)", b"sum(prices)  # type: ignore")
    project = view.project.with_files({"agents/order.py": old})
    code = {
        "replace_body": "return 2.0\n",
        "replace_symbol": "def total(self, prices: list) -> float:\n    return 2.0\n",
    }
    edit = texts.edit(operation, "agents/order.py", "Order.total", code[operation])
    draft = _draft(texts.proposal("Two", edit), view_of(project))

    after = Workspace(project).preview_project(draft.code_changes).source("agents/order.py").text
    assert after.endswith("        return 2.0\n")


def test_each_edit_is_written_for_what_the_ones_before_it_leave(view: AgentView) -> None:
    first = texts.swap("agents/order.py", "return sum(prices)", "return sum(prices) * 1", "Order.total")
    second = texts.swap(
        "agents/order.py", "        return sum(prices) * 1", "        return sum(prices) * 2", "Order.total"
    )
    third = texts.edit("set_decorator_argument", "agents/order.py", "Order.place", "schema_method(output_schema={})")
    draft = _draft(texts.proposal("Thrice", first, second, third), view)
    after = Workspace(view.project).preview_project(draft.code_changes).source("agents/order.py").text
    assert "sum(prices) * 2" in after
    assert "output_schema={}" in after


@pytest.mark.parametrize(
    ("operation", "target", "code", "kind"),
    [
        ("add_symbol", "Order.fresh", "def fresh(self):\n    return 1\n", "add"),
        ("add_import", "", "import math\n", "add"),
        ("delete_symbol", "Order.total", "", "delete"),
    ],
)
def test_every_operation_is_read_and_applies(
    operation: str, target: str, code: str, kind: str, view: AgentView
) -> None:
    draft = _draft(texts.proposal("Do it", texts.edit(operation, "agents/order.py", target, code)), view)
    assert draft.code_change.change_type == kind
    assert Workspace(view.project).preview_project(draft.code_changes)


FORMS = {
    "deeper headings": PROPOSAL.replace("## proposal", "#### Proposal").replace("### edit", "##### Edit"),
    "top headings": PROPOSAL.replace("## proposal", "# PROPOSAL").replace("### edit", "## EDIT"),
    "numbered headings": PROPOSAL.replace("## proposal", "## 1. Proposal: the only one"),
    "bold headings": PROPOSAL.replace("## proposal", "**Proposal**"),
    "bold keys": PROPOSAL.replace("title:", "**title:**").replace("intent:", "**Intent**:"),
    "bullets": PROPOSAL.replace("title:", "- title:").replace("intent:", "* intent:").replace("reason:", "1. Reason:"),
    "CRLF": PROPOSAL.replace("\n", "\r\n"),
    "text around": f"Here is what I think.\n\ntitle: not this one\n\n{PROPOSAL}\nI hope this helps!\n",
    "thoughts before it": f"<think>\n## proposal\ntitle: no\n</think>\n\n{PROPOSAL}",
    "thoughts without a beginning": f"Hm.\n## nothing\n</think>\n{PROPOSAL}",
    "code outside of sections": f"I read this:\n```python\nx = 1\n```\n{PROPOSAL}",
    "a plain fence": PROPOSAL.replace("```python", "```"),
    "another label": PROPOSAL.replace("```python", "```py title=x"),
    "a longer fence": PROPOSAL.replace("```", "``````"),
    "tildes": PROPOSAL.replace("```", "~~~"),
    "a fence around everything": f"```markdown\n{PROPOSAL}```\n",
    "a longer fence around everything": f"Sure:\n````\n{PROPOSAL}````\n".removeprefix("Sure:\n"),
    "a path with a dot": PROPOSAL.replace("agents/order.py", "./agents/order.py"),
    "a path and a symbol in code marks": PROPOSAL.replace(
        "agents/order.py Order.total", "`agents/order.py` `Order.total()`"
    ),
    "another spelling of the operation": PROPOSAL.replace("replace_symbol", "Replace-Symbol"),
    "an indented fence": PROPOSAL.replace("```python", "  ```python")
    .replace(TOTAL, f"{TOTAL}")
    .replace("\n```\n", "\n  ```\n"),
    "a heading of its own": PROPOSAL.replace("### edit", "### Thoughts\n\nIt is fine.\n\n### edit"),
    "no marks at a heading": PROPOSAL.replace("## proposal", "Proposal:").replace("### edit", "#### edit"),
    "no marks, in a fence": f"```markdown\n{PROPOSAL.replace('## proposal', 'proposal')}```\n",
    "wide colons": PROPOSAL.replace("title:", "title：").replace("reason:", "Reason："),
    "a closing section": PROPOSAL + "\n## Summary\ntitle: something else\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_makes_no_difference(form: str, view: AgentView) -> None:
    plain, other = _draft(PROPOSAL, view), _draft(FORMS[form], view)
    assert other.code_changes == plain.code_changes
    assert (other.title, other.intent, other.reason) == (plain.title, plain.intent, plain.reason)


def test_a_tag_of_thoughts_in_code_stays_code(view: AgentView) -> None:
    code = 'def total(self, prices):\n    """\n</think>\n"""\n    return 0\n'
    draft = _draft(texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "Order.total", code)), view)
    assert draft.code_change.new_code == code


def test_a_symbol_may_end_with_underscores(view: AgentView) -> None:
    edit = texts.edit(
        "add_symbol", "agents/order.py", "Order.__init__", "def __init__(self):\n    super().__init__()\n"
    )
    assert _draft(texts.proposal("x", edit), view).code_change.target == "Order.__init__"


def test_a_reason_may_take_several_lines(view: AgentView) -> None:
    text = PROPOSAL.replace("It is better so.", "It is\nbetter: so.\n\nThis is beside the point.")
    assert _draft(text, view).reason == "It is better: so."


def test_code_with_fences_and_headings_in_it_stays_whole(view: AgentView) -> None:
    code = 'def total(self, prices):\n    """```\n## proposal\n```"""\n    return 0\n'
    draft = _draft(texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "Order.total", code)), view)
    assert draft.code_change.new_code == code


def test_the_owner_of_a_named_symbol_is_affected(view: AgentView) -> None:
    edit = texts.swap("agents/stock.py", "skuu", "sku", "Stock.on_placed")
    assert _draft(texts.proposal("x", edit), view).affects == ("Stock",)
    assert _draft(texts.proposal("x", texts.swap("agents/stock.py", "skuu", "sku")), view).affects == ()
    assert _draft(texts.proposal("x", edit, dst="Stock"), view).affects == ()


def test_a_draft_may_depend_on_earlier_ones(view: AgentView) -> None:
    text = texts.proposal("a", EDIT) + texts.proposal("b", EDIT, depends_on=["1", "P004", "none"])
    first, second = answers.read_drafts(text, view)
    assert (first.proposal_id, second.dependencies) == ("1", ("1", "P004"))


def test_contract_elements_that_change_on_purpose_can_be_named(view: AgentView) -> None:
    draft = _draft(PROPOSAL.replace("title:", "contract: `/Order/Placed`, Order.place\ntitle:"), view)
    assert [change.method for change in draft.schema_changes] == ["/Order/Placed", "Order.place"]


def test_what_the_gate_must_judge_goes_to_the_gate(view: AgentView) -> None:
    for path, target in (("../../etc/passwd", "x"), ("/etc/passwd", "x"), ("agents/order.py", "Order.unknown")):
        change = _draft(texts.proposal("x", texts.edit("replace_symbol", path, target, TOTAL)), view).code_change
        assert (change.file_path, change.target, change.old_code) == (path, target, "")


def test_titles_and_reasons_cannot_steer_a_terminal(view: AgentView) -> None:
    draft = _draft(texts.proposal("\x1b[2Jgone \u202eback \ud800", EDIT, reason="a" * 9_000), view)
    assert draft.title == "[2Jgone back"
    assert len(draft.reason) == 4_000


def test_nothing_is_no_proposal(view: AgentView) -> None:
    assert answers.read_drafts("There is nothing.\n\n## Nothing\n", view) == ()
    assert answers.read_repair(texts.nothing(), view, _draft(PROPOSAL, view)) is None


def test_a_repair_keeps_what_it_does_not_say_anew(view: AgentView) -> None:
    old = _draft(texts.proposal("Old", EDIT, intent="add_validation", reason="Old reason", affects=["Stock"]), view)
    repaired = answers.read_repair(f"## proposal\ntitle: New\n{EDIT}", view, old)
    assert repaired
    assert (repaired.title, repaired.intent, repaired.reason, repaired.affects) == (
        "New",
        "add_validation",
        "Old reason",
        ("Stock",),
    )


BAD_PROPOSALS = {
    "no section at all": ("I would not change anything.", "neither"),
    "empty": ("", "neither"),
    "an unknown key of JSON": ('{"proposal": {"title": "x"}}', "none of the keys"),
    "both": (PROPOSAL + texts.nothing(), "both"),
    "no edit": ("## proposal\ntitle: x\n", "no section `### edit`"),
    "an unknown operation": (PROPOSAL.replace("replace_symbol", "rewrite"), "'rewrite' is no operation"),
    "no operation": (texts.proposal("x", "### edit\n```\ncode\n```\n"), "no operation"),
    "no file": (texts.proposal("x", "### edit add_import\n```\nimport os\n```\n"), "does not name its file"),
    "no symbol": (texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "", TOTAL)), "its symbol"),
    "too many words": (PROPOSAL.replace("Order.total", "Order.total and more"), "more than a file and a symbol"),
    "no code": (texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "Order.total")), "no code"),
    "two codes": (PROPOSAL + "```python\nx = 1\n```\n", "2 blocks"),
    "no new": (
        texts.proposal("x", "### edit search_replace agents/order.py\n```old\nx\n```\n"),
        "needs two fenced blocks",
    ),
    "two olds": (
        texts.proposal("x", "### edit search_replace agents/order.py\n```old\nx\n```\n```old\ny\n```\n"),
        "needs two fenced blocks",
    ),
    "an empty old": (texts.proposal("x", texts.swap("agents/order.py", "", "x")), "empty ```old"),
    "a fence around half of it": (f"```\n{PROPOSAL}And so on.\n", "neither"),
    "an open thought": (f"<think>\nI could say:\n{PROPOSAL}", "still thinking"),
    "the word of a section in a sentence": ("I have no proposal: nothing\nNothing to propose.\n", "neither"),
    "a search and replace in one block": (
        texts.proposal(
            "x", "### edit search_replace agents/order.py\n```\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```\n"
        ),
        "needs two fenced blocks",
    ),
    "an open fence": (PROPOSAL.removesuffix("```\n"), "is not closed"),
    "a later dependency": (texts.proposal("x", EDIT, depends_on=["2"]), "no earlier proposal"),
    "a dependency on itself": (texts.proposal("x", EDIT, depends_on=["1"]), "no earlier proposal"),
    "a diff": (texts.proposal("x", texts.diff_edit("agents/order.py", "@@\n-root\n+toor\n")), "A diff is no edit"),
    "half a character": (PROPOSAL.replace("+ 0", "+ '\ud800'"), "characters that are none"),
    "too many edits": (texts.proposal("x", *[EDIT] * 51), "may have 50 edits"),
    "too many proposals": (PROPOSAL * 21, "21 proposals"),
    "too large": ("x" * (MAX_ANSWER_BYTES + 1), "more than"),
}


@pytest.mark.parametrize("name", BAD_PROPOSALS)
def test_what_means_nothing_is_malformed_and_says_why(name: str, view: AgentView) -> None:
    text, says = BAD_PROPOSALS[name]
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_drafts(text, view)
    assert any(says in fault for fault in caught.value.faults), caught.value.faults


def test_every_fault_is_told_at_once(view: AgentView) -> None:
    text = PROPOSAL.replace("replace_symbol", "rewrite") + PROPOSAL + "## proposal\ntitle: x\n"
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_drafts(text, view)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["Proposal 1", "Proposal 3"]


def test_a_repair_is_one_proposal(view: AgentView) -> None:
    with pytest.raises(MalformedAnswer, match="2 proposals"):
        answers.read_repair(PROPOSAL * 2, view, _draft(PROPOSAL, view))


# --- evaluations -------------------------------------------------------------------------------


def test_evaluations_come_in_the_order_of_the_question(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    text = texts.evaluation("P002", "reject", "Breaks it.", concern=["a", "b"], breaks="yes", risk="high")
    first, second = answers.read_evaluations(text + texts.evaluation("P001"), view, trials)
    assert (first.proposal_id, first.decision, first.confidence) == ("P001", "accept", 0.9)
    assert (second.proposal_id, second.decision, second.concerns) == ("P002", "reject", ("a", "b"))
    assert second.impact_assessment.breaks_contracts
    assert (second.evaluator, second.impact_assessment.estimated_risk) == ("Order", "high")


@pytest.mark.parametrize("heading", ["p1", "P1", "**P001**", "of P001", ": P001", "P001 (the first)", ""])
def test_the_number_may_be_written_in_many_ways(
    heading: str, view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    text = texts.evaluation("P001").replace("evaluation P001", f"evaluation {heading}")
    (vote,) = answers.read_evaluations(text, view, trials[:1])
    assert vote.proposal_id == "P001"


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        *(("80%", 0.8), ("0.25", 0.25), (".5", 0.5), ("high", 0.5), ("1.0", 1.0), ("900", 1.0), ("90 out of 100", 0.9)),
        *(("0,9", 0.9), ("9/10", 0.9), ("8 out of 10", 0.8), ("1%", 0.01), ("0.5 %", 0.005), ("-1", 0.0), ("3/0", 0.5)),
    ],
)
def test_confidence_is_a_number_between_nothing_and_one(
    said: str, heard: float, view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    text = texts.evaluation("P001").replace("confidence: 0.9", f"confidence: {said}")
    (vote,) = answers.read_evaluations(text, view, trials[:1])
    assert vote.confidence == heard


@pytest.mark.parametrize(
    ("said", "breaks"), [("no", False), ("None.", False), ("nothing", False), ("yes", True), ("Stock.on_placed", True)]
)
def test_what_breaks_may_be_named(said: str, breaks: bool, view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    (vote,) = answers.read_evaluations(texts.evaluation("P001", breaks=said), view, trials[:1])
    assert vote.impact_assessment.breaks_contracts is breaks


def test_evidence_is_a_test_or_a_contract(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    test = "def test_x():\n    assert False\n"
    parts = texts.evidence("test", test), "### Evidence: contract\nOrder.place loses `total`\n"
    (vote,) = answers.read_evaluations(texts.evaluation("P001", "reject", "No.", *parts), view, trials[:1])
    assert [(item.kind, item.text, item.is_verified) for item in vote.evidence] == [
        ("test", test, False),
        ("contract", "Order.place loses `total`", False),
    ]


def test_a_counter_carries_its_proposal(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    text = texts.evaluation("P001", "counter", "Better so.", EDIT, title="Other way")
    (vote,) = answers.read_evaluations(text, view, trials[:1])
    assert vote.counter_proposal
    assert (vote.counter_proposal.title, vote.counter_proposal.parent) == ("Other way", "P001")
    assert (vote.counter_proposal.intent, vote.counter_proposal.reason) == ("test", "Better so.")


BAD_EVALUATIONS = {
    "none": ("I accept.", "no section `## evaluation P001`"),
    "no decision": ("## evaluation P001\nreasoning: fine\n", "no line `decision:`"),
    "two decisions": (texts.evaluation("P001") + "decision: reject\n", "must be exactly one"),
    "the choice itself": (texts.evaluation("P001", "accept | reject"), "must be exactly one"),
    "a condition": (texts.evaluation("P001", "accept if tests pass"), "must be exactly one"),
    "another word": (texts.evaluation("P001", "approve"), "must be exactly one"),
    "a foreign number": (texts.evaluation("P009") + texts.evaluation("P001"), "about no proposal that you were asked"),
    "two numbers": (texts.evaluation("P001 and P002"), "about no proposal"),
    "twice": (texts.evaluation("P001") * 2, "more than one section"),
    "an accept with edits": (texts.evaluation("P001", "accept", "x", EDIT), "go with the decision `counter` only"),
    "a counter without edits": (texts.evaluation("P001", "counter"), "needs a section `### edit`"),
    "a counter with a bad edit": (
        texts.evaluation("P001", "counter", "x", EDIT.replace("replace_symbol", "zap")),
        "no operation",
    ),
    "other evidence": (
        texts.evaluation("P001", "reject", "x", texts.evidence("hearsay", "x")),
        "must be `contract` or",
    ),
    "an empty test": (texts.evaluation("P001", "reject", "x", "### evidence test\n"), "must be `contract` or"),
    "much evidence": (
        texts.evaluation("P001", "reject", "x", *[texts.evidence("contract", "x")] * 4),
        "more than 3 pieces",
    ),
}


@pytest.mark.parametrize("name", BAD_EVALUATIONS)
def test_an_evaluation_that_means_nothing_is_malformed(
    name: str, view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    text, says = BAD_EVALUATIONS[name]
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_evaluations(text, view, trials[:1])
    assert any(says in fault for fault in caught.value.faults), caught.value.faults


def test_headings_without_marks_are_understood(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    text = "Evaluation P001:\ndecision: reject\nreasoning: it breaks\n\nevaluation P002\ndecision: accept\nreasoning: fine\n"
    assert [vote.decision for vote in answers.read_evaluations(text, view, trials)] == ["reject", "accept"]
    assert answers.read_drafts("nothing\n", view) == ()


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning"])
def test_what_a_model_was_still_thinking_is_no_vote(
    tag: str, view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    with pytest.raises(MalformedAnswer):
        answers.read_evaluations(f"\n<{tag}>\n{texts.evaluation('P001')}", view, trials[:1])


def test_what_is_usable_of_a_half_bad_answer_is_kept(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    text = texts.evaluation("P001", "reject") + texts.evaluation("P002", "perhaps")
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_evaluations(text, view, trials)
    assert [vote.proposal_id for vote in caught.value.usable] == ["P001"]


# --- decisions and analyses --------------------------------------------------------------------


def test_the_arbiter_says_yes_or_no(view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    word = answers.read_decision(texts.decision("P001", "**Reject**.", "No."), view, trials[0])
    assert (word.decision, word.reasoning) == ("reject", "No.")
    for text in (texts.decision("P001", "counter"), texts.decision("P002"), "", texts.evaluation("P001")):
        with pytest.raises(MalformedAnswer):
            answers.read_decision(text, view, trials[0])


def test_an_analysis_is_read_line_by_line() -> None:
    text = texts.analysis("takes orders", "counts", dependency=["Stock, `Shelf`"], issue=["no check"])
    found = answers.read_analysis(text + "expects: `/Order/Placed`: sku, total\nExpects: Stock.take: n\n")
    assert (found.responsibilities, found.dependencies) == (("takes orders", "counts"), ("Stock", "Shelf"))
    assert found.schema_expectations == {"/Order/Placed": "sku, total", "Stock.take": "n"}
    assert found.potential_issues == ("no check",)


@pytest.mark.parametrize("text", ["", "## analysis\n", "responsibility: x\n"])
def test_an_analysis_that_says_nothing_is_malformed(text: str) -> None:
    with pytest.raises(MalformedAnswer):
        answers.read_analysis(text)


def test_no_file_outside_of_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("secret = 1\n")
    inside = view_of(shop(tmp_path / "inside"))
    edit = texts.swap("../outside.py", "secret = 1", "secret = 2", "secret")
    assert _draft(texts.proposal("x", edit), inside).code_change.base_sha256 == ""


# --- code that a model has not written out, and code that only looks like it -----------------------

OLD = "def place(self, sku):\n    # keep the order of events\n    self.publish('/Order/Placed', {'sku': sku})\n    return {}\n"
PLACEHOLDERS = [
    "# ...",
    "# …",
    "…",
    "#...",
    "# ... rest of the code unchanged",
    "# ... (rest of the method)",
    "# ... existing code ...",
    "# [existing code]",
    "# rest unchanged",
    "# rest of the code",
    "# Rest of the class remains the same",
    "# The rest of the method is unchanged.",
    "# rest of the file as before",
    "# existing code here",
    "# existing implementation",
    "# keep existing code",
    "# other methods unchanged",
    "# other methods remain unchanged",
    "# remaining methods...",
    "# previous code here",
    "# original implementation goes here",
    "# your code here",
    "# same as before",
    "# unchanged",
    "# (unchanged)",
    "# no changes here",
    "# code omitted",
    "# omitted for brevity",
    "# everything else is unchanged",
]
COMMENTS = [
    "# existing orders are kept",
    "# the rest of the stock is counted by the shelf",
    "# unchanged orders are not published",
    "# other agents read this topic",
    "# returns the same code as before, but cheaper",
    "# previous code of the article, if it had one",
    "# no changes of price after this line",
    "# e.g. 3 ... 5 items",
    "# same order as in the file of the shop",
    "# remaining lines of the order are billed later",
    "# original file name",
]


def written(comment: str) -> str:
    return f"def place(self, sku):\n    {comment}\n    return {{}}\n"


@pytest.mark.parametrize("comment", PLACEHOLDERS)
def test_a_placeholder_is_no_code(comment: str) -> None:
    assert find_gap(written(comment), OLD) == comment


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_is_no_placeholder(comment: str) -> None:
    assert find_gap(written(comment), OLD) == ""


@pytest.mark.parametrize("comment", PLACEHOLDERS)
def test_what_was_there_before_is_no_placeholder(comment: str) -> None:
    assert find_gap(written(comment), written(comment)) == ""


GAPS = {
    "among statements": "def place(self, sku):\n    ...\n    return {}\n",
    "at the end": "def place(self, sku):\n    x = 1\n    ...\n",
    "in a branch": "def place(self, sku):\n    if sku:\n        x = 1\n        ...\n    return {}\n",
    "for a body": "def place(self, sku): ...\n",
    "for a body, behind a docstring": 'def place(self, sku):\n    """Place."""\n    ...\n',
    "indented, with a bare first line": "def place(self, sku):\n        ...\n        return {}\n",
    "in lines that cannot be parsed": "else:\n    x = 1\n...\n",
}


@pytest.mark.parametrize("name", GAPS)
def test_dots_in_the_place_of_code_are_a_gap(name: str) -> None:
    assert find_gap(GAPS[name], OLD) == "..."


def test_a_method_of_a_class_that_had_a_body_needs_one() -> None:
    old = "@agent\n    class Order:\n        def place(self):\n            return 1\n\n        def size(self): ...\n"
    kept = "class Order:\n    def place(self):\n        return 2\n    def size(self): ...\n"
    assert find_gap(kept, old) == ""
    assert find_gap(kept.replace("\n        return 2", " ..."), old.replace("def size(self): ...", "x = 1")) == "..."


@pytest.mark.parametrize(
    ("code", "old"),
    [
        ("def size(self) -> int: ...\n", ""),
        ("class Sized(Protocol):\n    def size(self) -> int: ...\n    def name(self) -> str:\n        ...\n", ""),
        ("def place(self, *args: tuple[int, ...]):\n    return args[..., 0]\n", OLD),
        ("try:\n    x = 1\nexcept KeyError:\n    ...\n", "x = 1\n"),
        ("a = 1\n...\nb = 2\n", "a = 0\n...\nb = 0\n"),
        ('def place(self):\n    """Like this:\n\n    ...\n    """\n    return 1\n', OLD),
        ("", "x = 1\n"),
    ],
)
def test_dots_that_are_meant_are_none(code: str, old: str) -> None:
    assert find_gap(code, old) == ""


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("+def place(self):\n+    return 1\n", "the marks of a diff"),
        (" def place(self):\n-    return 1\n+    return 2\n", "the marks of a diff"),
        ("12: def place(self):\n13:     return 1\n", "line numbers"),
        ("  12 | def place(self):\n  13 |     return 1\n", "line numbers"),
        ("def place(self):\n    return 1\n", ""),
        ("def place(self:\n    return 1\n", ""),
        ("", ""),
    ],
)
def test_a_diff_and_a_listing_are_told_from_code(code: str, what: str) -> None:
    assert find_diff_marks(code) == what


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (written("# ... rest unchanged"), "leaves code out: '# ... rest unchanged'. Write every line"),
        ("def place(self, sku: str) -> dict: ...\n", "leaves code out: '...'"),
        ("+def place(self):\n+    return 1\n", "has the marks of a diff in its code"),
    ],
)
def test_an_edit_with_a_gap_goes_back_with_a_sentence_that_helps(code: str, says: str, view: AgentView) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_drafts(
            texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "Order.place", code)), view
        )
    assert caught.value.faults[0].startswith("Proposal 1: The edit replace_symbol agents/order.py Order.place ")
    assert says in caught.value.faults[0]


def test_a_quoted_text_that_leaves_lines_out_may_do_so_on_both_sides(view: AgentView) -> None:
    old = '    def place(self, sku: str) -> dict:\n...\n        return {"total": self.total([1.0])}'
    swap = texts.swap("agents/order.py", old, old.replace("1.0", "2.0"), "Order")
    assert answers.read_drafts(texts.proposal("x", swap), view)
    with pytest.raises(MalformedAnswer):
        answers.read_drafts(texts.proposal("x", texts.swap("agents/order.py", "LIMIT = 10", "LIMIT = 11\n# ...")), view)


def test_no_code_of_the_standard_library_is_taken_for_a_gap() -> None:
    for path in sorted(Path(ast.__file__).parent.glob("[a-d]*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert find_gap(text, "") in ("", "..."), path.name


@pytest.mark.parametrize("stray", ["```", "````", "```text", "~~~"])
def test_a_stray_fence_behind_a_vote_ends_the_answer_and_one_in_a_proposal_is_malformed(
    stray: str, view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    vote = texts.evaluation("P001", "reject", "The total is no longer sent.")
    (read,) = answers.read_evaluations(f"{vote}{stray}\n\nAnd so on.\n", view, trials[:1])
    told = "The total is no longer sent. (Read up to a fence that the answer does not close.)"
    assert (read.decision, read.reasoning) == ("reject", told)
    (whole,) = answers.read_evaluations(f"{vote}{stray}\n\n", view, trials[:1])
    assert whole.reasoning == "The total is no longer sent." + ("" if stray != "```text" else told[28:])
    with pytest.raises(MalformedAnswer, match="is not closed"):
        answers.read_drafts(f"{PROPOSAL}{stray}\n", view)
    with pytest.raises(MalformedAnswer):
        answers.read_evaluations(f"{vote}{stray}\n{texts.evaluation('P001', 'accept')}", view, trials[:1])


def test_what_follows_the_votes_that_were_asked_for_is_left_out_and_the_record_says_so(
    view: AgentView, trials: tuple[TriedProposal, ...]
) -> None:
    asked = texts.evaluation("P001", "reject", "The total is no longer sent.")
    (read,) = answers.read_evaluations(asked + texts.evaluation("P002") + texts.evaluation("P003"), view, trials[:1])
    told = "The total is no longer sent. (Read up to a section about a proposal that was not asked about.)"
    assert (read.decision, read.reasoning) == ("reject", told)
    with pytest.raises(MalformedAnswer, match="no section `## evaluation P002`"):
        answers.read_evaluations(asked + texts.evaluation("P009"), view, trials[:2])


@pytest.mark.parametrize("word", ["(reject)", "[reject]", "**reject**.", '"Reject"'])
def test_marks_around_a_decision_do_not_matter(word: str, view: AgentView, trials: tuple[TriedProposal, ...]) -> None:
    (read,) = answers.read_evaluations(texts.evaluation("P001", word), view, trials[:1])
    assert read.decision == "reject"
