"""Answers in JSON: the schemas that servers force on models, what is read from them, and agents whose servers take none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.errors import EditError, ModelError
from graphbus_core.llm.client import Clients, Completion, ModelPrompt, ScriptedClient
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import ProposalRecord
from graphbus_core.negotiation import answer_json, answers, prompts
from graphbus_core.negotiation.answers import MalformedAnswer
from graphbus_core.negotiation.model_agent import ModelAgent
from tests.fakes import model_texts as texts
from tests.project_files import write_project
from tests.unit.negotiation.prompted_shop import ORDER, shop, trial_of, view_of

EDITS: list[dict[str, str]] = [
    {"operation": "replace_body", "where": "agents/order.py Order.total", "code": "return sum(prices) + 0"},
    {"operation": "add_import", "where": "agents/order.py", "code": "import math"},
    {"operation": "search_replace", "where": "agents/order.py", "old": "LIMIT = 10", "new": "LIMIT = 11"},
]
PROPOSAL: dict[str, Any] = {
    "title": "Raise the limit",
    "reason": "Ten is too few.",
    "intent": "refactor",
    "dst": "",
    "affects": ["Stock"],
    "priority": 0,
    "contract": [],
    "edits": EDITS,
}
VOTE: dict[str, Any] = {
    "reasoning": "sku is sent as before",
    "decision": "accept",
    "confidence": 0.8,
    "breaks": False,
    "risk": "low",
    "concern": ["none that I see"],
    "evidence": [],
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return shop(tmp_path_factory.mktemp("shop"))


def _is_valid(answer: object, schema: dict[str, Any]) -> bool:
    Draft202012Validator.check_schema(schema)
    return bool(Draft202012Validator(schema).is_valid(answer))


# --- schemas ------------------------------------------------------------------------------------


def test_the_schema_of_proposals_lists_the_places_of_edits(base: Project) -> None:
    schema = answer_json.proposals_schema(view_of(base), 2)
    proposal = {**PROPOSAL, "depends_on": []}
    assert _is_valid({"proposals": []}, schema)
    assert _is_valid({"proposals": [proposal, proposal]}, schema)
    assert not _is_valid({"proposals": [proposal] * 3}, schema)
    assert not _is_valid({"proposals": [{**proposal, "edits": []}]}, schema)
    for wrong in ("agents/order.py Order.totl", "order.py Order.total", "agents/order.py"):
        assert not _is_valid({"proposals": [{**proposal, "edits": [{**EDITS[0], "where": wrong}]}]}, schema)


def test_the_schema_of_proposals_has_the_keys_of_the_text(base: Project) -> None:
    view = view_of(base)
    first, second = ({**PROPOSAL, "title": title, "affects": []} for title in ("One", "Two"))
    last = {**second, "dst": "Stock", "priority": 3, "depends_on": ["1"]}
    answer, schema = {"proposals": [{**first, "depends_on": []}, last]}, answer_json.proposals_schema(view, 2)

    assert _is_valid(answer, schema)
    assert not _is_valid({"proposals": [{**first, "depends_on": ["2"]}]}, schema)
    assert "depends_on" not in json.dumps(answer_json.proposals_schema(view, 1))
    one, two = answers.read_drafts(json.dumps(answer), view)
    assert (one.dst, one.priority, one.dependencies) == (None, 0, ())
    assert (two.dst, two.priority, two.dependencies) == ("Stock", 3, ("1",))


def test_proposals_of_earlier_rounds_can_be_named(base: Project) -> None:
    record = ProposalRecord(proposal=trial_of(base, proposal_id="P004").proposal, status="accepted")
    schema = answer_json.proposals_schema(view_of(base, history=(record,)), 1)

    assert _is_valid({"proposals": [{**PROPOSAL, "depends_on": ["P004"]}]}, schema)
    assert not _is_valid({"proposals": [{**PROPOSAL, "depends_on": ["P005"]}]}, schema)


def test_the_prompt_for_json_names_no_headings(base: Project) -> None:
    view = view_of(base, intent="Send the total")
    for prompt in (prompts.ask_analysis(view, is_json=True), prompts.ask_proposals(view, is_json=True)):
        assert "`##" not in prompt.shared + prompt.task
    for key in ("dst", "priority", "depends_on"):
        assert f"`{key}`" in prompt.shared


def test_the_schema_of_evaluations_asks_for_each_proposal_and_edits_only_to_counter(base: Project) -> None:
    schema = answer_json.evaluations_schema(view_of(base), ["P001", "P002"])
    counter = {**VOTE, "decision": "counter", "title": "Another way", "edits": EDITS}
    assert _is_valid({"evaluations": {"P001": VOTE, "P002": counter}}, schema)
    for wrong in ({"P001": VOTE}, {"P001": VOTE, "P003": VOTE}, {"P001": VOTE, "P002": {**VOTE, "edits": EDITS}}):
        assert not _is_valid({"evaluations": wrong}, schema)
    assert not _is_valid(
        {"decisions": {"P001": {"reasoning": "x", "decision": "defer"}}}, answer_json.decision_schema("P001")
    )


def test_every_object_of_a_schema_is_closed_and_needs_all_its_keys(base: Project) -> None:
    """Servers with a strict mode refuse any other schema."""

    def check(schema: object) -> None:
        if isinstance(schema, dict):
            if schema.get("type") == "object":
                assert schema["additionalProperties"] is False
                assert schema["required"] == list(schema["properties"])
            for each in schema.values():
                check(each)
        for each in schema if isinstance(schema, list) else ():
            check(each)

    view = view_of(base)
    check(answer_json.analysis_schema())
    check(answer_json.proposals_schema(view, 3))
    check(answer_json.evaluations_schema(view, ["P001"]))
    check(answer_json.decision_schema("P001"))


@pytest.mark.parametrize("room", [640, 700, 2048])
def test_a_small_room_bounds_every_text_and_list_of_the_schema(base: Project, room: int) -> None:
    whole = answer_json.proposals_schema(view_of(base), 4)
    small = answer_json.fit_schema(whole, room)
    lengths: list[int] = []

    def collect(part: object) -> None:
        if isinstance(part, dict):
            if part.get("type") == "string" and "enum" not in part:
                lengths.append(part["maxLength"])
            if part.get("type") == "array":
                assert part["maxItems"] <= 5
        for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            collect(each)

    collect(small)
    assert max(lengths) <= max(200, room)
    assert _is_valid({"proposals": [{**PROPOSAL, "depends_on": [], "edits": EDITS[:1]}]}, small)
    assert answer_json.fit_schema(whole, 8192) == whole


def _longest_answer(schema: dict[str, Any]) -> Any:
    """What a model that repeats itself answers: every list full, every text at its bound."""
    if "anyOf" in schema:
        return max(map(_longest_answer, schema["anyOf"]), key=lambda answer: len(json.dumps(answer)))
    if "enum" in schema:
        return max(schema["enum"], key=len)
    if schema["type"] == "object":
        return {key: _longest_answer(value) for key, value in schema["properties"].items()}
    if schema["type"] == "array":
        return [_longest_answer(schema["items"])] * schema["maxItems"]
    return {"string": "x" * schema.get("maxLength", 100_000), "integer": 10**15, "number": 0.5, "boolean": False}[
        schema["type"]
    ]


@pytest.mark.parametrize("room", [500, 1000, 2048, 4095])
def test_the_longest_answer_that_the_schema_admits_fits_into_the_room(base: Project, room: int) -> None:
    view = view_of(base)
    schemas = [
        answer_json.analysis_schema(),
        answer_json.proposals_schema(view, 4),
        answer_json.decision_schema("P001"),
    ]
    for schema in [*schemas, answer_json.evaluations_schema(view, ["P001"])]:
        longest = _longest_answer(answer_json.fit_schema(schema, room))
        assert len(json.dumps(longest, indent=4)) <= room * 3  # three characters a token: fewer than models write


def test_what_a_small_room_leaves_out_is_what_an_answer_can_do_without(base: Project) -> None:
    view = view_of(base)
    proposal = answer_json.fit_schema(answer_json.proposals_schema(view, 4), 380)["properties"]["proposals"]["items"]
    vote = answer_json.fit_schema(answer_json.evaluations_schema(view, ["P001"]), 150)

    assert {"title", "intent", "reason", "edits"} <= proposal["properties"].keys()
    assert "contract" not in proposal["properties"]
    operations = [each["properties"] for each in proposal["properties"]["edits"]["items"]["anyOf"]]
    assert all("old" not in each for each in operations)
    answer = _longest_answer(vote)
    assert len(json.dumps(answer, indent=4)) <= 150 * 3
    assert {"decision", "reasoning"} <= answer["evaluations"]["P001"].keys()
    answer["evaluations"]["P001"]["decision"] = "reject"
    assert answers.read_evaluations(json.dumps(answer), view, [trial_of(base)])[0].decision == "reject"


@pytest.mark.parametrize(("room", "sizes"), [(8192, [4, 1]), (1500, [2, 2, 1]), (250, [1] * 5)])
def test_as_many_votes_are_asked_for_at_once_as_an_answer_has_room_for(
    base: Project, room: int, sizes: list[int]
) -> None:
    def vote(prompt: ModelPrompt) -> str:
        ids = prompt.schema["properties"]["evaluations"]["properties"] if prompt.schema else {}
        return json.dumps({"evaluations": {each: {"decision": "accept", "reasoning": "It fits."} for each in ids}})

    agent, asked = _agent(vote)
    agent.max_output_tokens = room
    trials = [
        replace(trial_of(base), proposal=replace(trial_of(base).proposal, proposal_id=f"P00{n}")) for n in range(1, 6)
    ]
    votes = agent.evaluate(view_of(base), trials)

    assert [each.decision for each in votes] == ["accept"] * 5
    schemas = [each.schema["properties"]["evaluations"]["properties"] for each in asked if each.schema]
    assert [len(each) for each in schemas] == sizes


# --- the reader ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "code", "named"),
    [
        ("agents/order.py Order", "def refund(self): ...", "agents/order.py Order.refund"),
        ("agents/order.py Order", "    async def refund(self):\n        return 1", "agents/order.py Order.refund"),
        ("agents/order.py", "class Refund:\n    pass", "agents/order.py Refund"),
        ("`my agents/order.py`", "def refund(): ...", "`my agents/order.py` refund"),
        ("`my agents/order.py` Order", "def refund(self): ...", "`my agents/order.py` Order.refund"),
        ("agents/order.py Order.refund", "def refund(self): ...", "agents/order.py Order.refund"),
        ("agents/order.py Order", "class Order:\n    pass", "agents/order.py Order"),
        ("agents/order.py Order", "The rules are set", "agents/order.py Order.new_symbol"),
        ("agents/order.py", "The rules are set", "agents/order.py new_symbol"),
        ("agents/order.py Order.refund", "The rules are set", "agents/order.py Order.refund"),
        ("agents/order.py `Order.refund`", "def refund(self): ...", "agents/order.py `Order.refund`"),
        ("`agents/order.py` `Order`", "def refund(self): ...", "agents/order.py Order.refund"),
        ("agents/order.py Order.refund()", "def refund(self): ...", "agents/order.py Order.refund()"),
        ("agents/order.py Order refund", "def refund(self): ...", "agents/order.py Order refund"),
        ("", "def refund(self): ...", ""),
        ("agents/order.py Order", "refunds = 0", "agents/order.py Order.new_symbol"),
        ("agents/order.py Order", "", "agents/order.py Order.new_symbol"),
    ],
)
def test_the_place_of_an_addition_is_completed_with_the_name_in_its_code(where: str, code: str, named: str) -> None:
    edit = {"operation": "add_symbol", "where": where, "code": code}
    (section,) = answer_json.read_json(json.dumps({"proposals": [{"edits": [edit]}]}))
    assert section.parts[0].rest == f"add_symbol {named}"


def test_a_model_can_add_only_to_a_class_or_file_that_exists(base: Project) -> None:
    schema = answer_json.proposals_schema(view_of(base), 1)
    for where, is_possible in (("Order", True), ("", True), ("Order.refund", False), ("What I want", False)):
        edit = {"operation": "add_symbol", "where": f"agents/order.py {where}".strip(), "code": "def refund(self): ..."}
        assert _is_valid({"proposals": [{**PROPOSAL, "edits": [edit]}]}, schema) == is_possible, where


def test_an_answer_in_json_means_the_same_as_in_text(base: Project) -> None:
    view = view_of(base)
    as_text = texts.proposal(
        "Raise the limit",
        "### edit replace_body agents/order.py Order.total\n```python\nreturn sum(prices) + 0\n```\n",
        texts.edit("add_import", "agents/order.py", code="import math"),
        texts.swap("agents/order.py", "LIMIT = 10", "LIMIT = 11"),
        reason="Ten is too few.",
        affects=["Stock"],
    )
    assert answers.read_drafts(json.dumps({"proposals": [PROPOSAL]}), view) == answers.read_drafts(as_text, view)
    assert answers.read_drafts('{"proposals": []}', view) == ()
    fenced = f"```json\n{json.dumps({'proposals': [PROPOSAL]}, indent=1)}\n```\n"
    assert len(answers.read_drafts(fenced, view)) == 1


def test_a_path_with_a_space_can_be_named(tmp_path: Path) -> None:
    write_project(tmp_path, {"my agents/order.py": ORDER, "pyproject.toml": "[project]\nname='x'\n"})
    project = Project.read(ResolvedBuild(root=str(tmp_path), paths=(str(tmp_path),)), cache=False)
    view = view_of(project)
    edit = {"operation": "replace_body", "where": "`my agents/order.py` Order.total", "code": "return 1.0"}
    answer = {"proposals": [{**PROPOSAL, "affects": [], "edits": [edit]}]}
    assert edit["where"] in json.dumps(answer_json.proposals_schema(view, 1))
    (draft,) = answers.read_drafts(json.dumps(answer), view)
    assert draft.code_changes[0].file_path == "my agents/order.py"


@pytest.mark.parametrize(("number", "confidence"), [(1e-7, 1e-7), (0.25, 0.25), (1, 1.0), (80, 0.8)])
def test_a_confidence_is_the_number_that_json_writes(base: Project, number: float, confidence: float) -> None:
    vote = json.dumps({"evaluations": {"P001": {**VOTE, "confidence": number}}})
    (read,) = answers.read_evaluations(vote, view_of(base), [trial_of(base)])
    assert read.confidence == confidence


def test_a_new_body_keeps_decorators_signature_and_docstring(base: Project) -> None:
    edit = {
        **EDITS[0],
        "where": "agents/order.py Order.place",
        "code": 'if not sku:\n    raise ValueError("""no\nsku""")\nreturn {}',
    }
    (draft,) = answers.read_drafts(json.dumps({"proposals": [{**PROPOSAL, "edits": [edit]}]}), view_of(base))
    change = draft.code_changes[0]
    assert change.operation == "replace_symbol"
    assert change.new_code == (
        '@schema_method(input_schema={"sku": str}, output_schema={"total": float})\n'
        "    def place(self, sku: str) -> dict:\n"
        "        if not sku:\n"
        '            raise ValueError("""no\nsku""")\n'
        "        return {}\n"
    )


@pytest.mark.parametrize(
    ("operation", "where"),
    [("replace_body", "Order.total"), ("replace_symbol", "Order.total"), ("add_symbol", "Order"), ("add_symbol", "")],
)
def test_code_that_is_no_python_is_refused_by_the_gate_and_not_as_an_answer(
    base: Project, operation: str, where: str
) -> None:
    edit = {"operation": operation, "where": f"agents/order.py {where}".strip(), "code": "return sum("}
    (draft,) = answers.read_drafts(json.dumps({"proposals": [{**PROPOSAL, "edits": [edit]}]}), view_of(base))
    with pytest.raises(EditError, match="not valid Python"):
        apply_change(base.source("agents/order.py").data, draft.code_changes[0])


def test_a_body_for_a_class_is_no_answer(base: Project) -> None:
    edit = {**EDITS[0], "where": "agents/order.py Order", "code": "class Order:\n    pass"}
    with pytest.raises(MalformedAnswer, match="class"):
        answers.read_drafts(json.dumps({"proposals": [{**PROPOSAL, "edits": [edit]}]}), view_of(base))


@pytest.mark.parametrize("code", ["x = 1\n...", "# rest of the method unchanged"])
def test_a_body_that_leaves_code_out_is_no_answer(base: Project, code: str) -> None:
    with pytest.raises(MalformedAnswer, match="leaves code out"):
        answers.read_drafts(
            json.dumps({"proposals": [{**PROPOSAL, "edits": [{**EDITS[0], "code": code}]}]}), view_of(base)
        )


def test_an_evaluation_in_json_has_its_values_and_its_evidence(base: Project) -> None:
    test = {"kind": "test", "text": "def test_x():\n    assert False"}
    vote = {**VOTE, "decision": "reject", "breaks": True, "evidence": [test]}
    (read,) = answers.read_evaluations(json.dumps({"evaluations": {"P001": vote}}), view_of(base), [trial_of(base)])
    assert (read.decision, read.confidence, read.concerns) == ("reject", 0.8, ("none that I see",))
    assert read.impact_assessment.breaks_contracts
    assert read.evidence[0].text == "def test_x():\n    assert False\n"
    decided = answers.read_decision(
        json.dumps({"decisions": {"P001": {"reasoning": "x", "decision": "accept"}}}), view_of(base), trial_of(base)
    )
    assert decided.decision == "accept"


@pytest.mark.parametrize(
    "answer",
    [
        '{"evaluations": {"P001": {"decision": "reject", "decision": "accept"}}}',
        '{"evaluations": {"P001": {"decision": "reject"}, "P001": {"decision": "accept"}}}',
        '{"evaluations": {"P001": {"decision": "reject"}}, "evaluations": {"P001": {"decision": "accept"}}}',
    ],
)
def test_a_key_that_occurs_twice_is_no_vote(base: Project, answer: str) -> None:
    with pytest.raises(MalformedAnswer, match="occurs twice"):
        answers.read_evaluations(answer, view_of(base), [trial_of(base)])


@pytest.mark.parametrize("wrap", ["<think>an accept?</think>\n{0}", "\ufeff{0}", "```JSON\n{0}\n```", "\n\n{0}\n"])
def test_what_stands_around_an_object_does_not_matter(base: Project, wrap: str) -> None:
    vote = json.dumps({"evaluations": {"P001": VOTE}})
    (read,) = answers.read_evaluations(wrap.format(vote), view_of(base), [trial_of(base)])
    assert read.decision == "accept"


@pytest.mark.parametrize(
    "answer",
    [
        '{"proposals": [',
        '{"proposals": 7}',
        '{"proposals": [7]}',
        '{"proposals": [{"title": "x", "edits": 7}]}',
        '{"proposals": [{"title": "x", "edits": [7]}]}',
        '{"proposals": [{"title": "x", "edits": [{"operation": 7}]}]}',
        '{"proposals": [{"title": ["x"], "edits": []}]}',
        '{"proposals": {"P001": {}}}',
        "{" * 5_000,
        '{"a": ' * 5_000 + "1" + "}" * 5_000,
        '{"evaluations": []}',
        '{"proposals": [], "proposals": []}',
        '["proposals"]',
        "{}",
    ],
)
def test_any_other_json_is_malformed(base: Project, answer: str) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_drafts(answer, view_of(base))
    assert caught.value.faults


_EDIT = {"operation": "replace_body", "where": "agents/order.py Order.total"}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"analysis": {}}, "There is no key `proposals`."),
        ({"proposals": [{"title": "x"}]}, "Proposal 1: it has no `edits`."),
        ({"proposals": [{"edits": [_EDIT]}]}, "replace_body agents/order.py Order.total has no `code`."),
        (
            {"proposals": [{"edits": [{**_EDIT, "old": "a", "code": "b"}]}]},
            "has 2 texts of code; give one, `code`, the",
        ),
        ({"proposals": [{"edits": [{**_EDIT, "operation": "search_replace"}]}]}, "needs `old` and `new`."),
        ({"proposals": [{"edits": [{**EDITS[2], "old": " "}]}]}, "has an empty `old`."),
    ],
)
def test_faults_of_proposals_in_json_name_its_keys(base: Project, answer: dict[str, Any], fault: str) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_drafts(json.dumps(answer), view_of(base))
    assert fault in str(caught.value.for_json())


@pytest.mark.parametrize(
    ("evaluations", "faults"),
    [
        ({"P7": VOTE, "P001": VOTE}, ["The key `P7` in `evaluations` is about no proposal that you were asked about."]),
        ({"P002": VOTE}, ["The key `P002`", "There is no key `P001` in `evaluations`."]),
        ({"P001": {"reasoning": "x"}}, ["Evaluation P001: it has no `decision`."]),
        ({"P001": {**VOTE, "decision": "counter"}}, ["a counter-proposal needs `edits`."]),
        ({"P001": {**VOTE, "edits": EDITS}}, ["which go with the decision `counter` only"]),
        (
            {"P001": {**VOTE, "evidence": [{"kind": "x", "text": ""}]}},
            ["the `kind` of evidence must be `contract` or `test`, with the text or the test as its `text`."],
        ),
    ],
)
def test_faults_of_evaluations_in_json_name_its_keys(base: Project, evaluations: Any, faults: list[str]) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_evaluations(json.dumps({"evaluations": evaluations}), view_of(base), [trial_of(base)])
    told = caught.value.for_json()
    assert all(fault in str(told) for fault in faults)
    assert "##" not in str(told)
    assert told.usable == caught.value.usable


def test_faults_of_other_answers_in_json_name_its_keys(base: Project) -> None:
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_analysis('{"proposals": []}')
    assert caught.value.for_json().faults == ("There is no key `analysis`.",)
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_analysis('{"analysis": {"issue": []}}')
    assert caught.value.for_json().faults == ("The key `analysis` has no text in `responsibility`.",)
    with pytest.raises(MalformedAnswer) as caught:
        answers.read_decision('{"decisions": {"P002": {}}}', view_of(base), trial_of(base))
    assert caught.value.for_json().faults[-1] == "There is no key `P001` in `decisions`."


# --- agents -------------------------------------------------------------------------------------


def _agent(speak: Any, *, takes_schema: bool = True) -> tuple[ModelAgent, list[ModelPrompt]]:
    asked: list[ModelPrompt] = []

    def record(prompt: ModelPrompt) -> str | Completion:
        asked.append(prompt)
        answer: str | Completion = speak(prompt)
        return answer

    client = ScriptedClient(record, takes_schema=takes_schema)
    return ModelAgent("Order", Clients(client, client, client), max_output_tokens=1000), asked


def test_an_agent_asks_for_json_where_the_server_takes_a_schema(base: Project) -> None:
    agent, asked = _agent(lambda _prompt: json.dumps({"proposals": [PROPOSAL]}))
    assert len(agent.propose(view_of(base))) == 1
    assert asked[0].schema == answer_json.fit_schema(answer_json.proposals_schema(view_of(base), 1), 1000)
    assert "```" not in asked[0].shared.replace("``` itself", "")


def test_a_server_that_ignores_the_schema_is_asked_for_text(base: Project) -> None:
    agent, asked = _agent(
        lambda prompt: texts.nothing() if prompt.schema is None else "Sure! I would change the limit."
    )
    assert agent.propose(view_of(base)) == ()
    assert [prompt.schema is not None for prompt in asked] == [True, False]
    assert asked[1].turns == ()


def test_json_with_faults_goes_back_as_json(base: Project) -> None:
    waiting = iter(['{"proposals": [{"title": "x", "edits": []}]}', '{"proposals": []}'])
    agent, asked = _agent(lambda _prompt: next(waiting))
    assert agent.propose(view_of(base)) == ()
    assert asked[1].schema is not None
    assert "it has no `edits`" in asked[1].turns[1].text


def test_a_refused_schema_leads_to_text(base: Project) -> None:
    def speak(prompt: ModelPrompt) -> str:
        if prompt.schema is not None:
            raise ModelError("GBE459", provider="stub", model="m", reason="unknown field response_format")
        return texts.nothing()

    agent, asked = _agent(speak)
    assert agent.propose(view_of(base)) == ()
    assert [prompt.schema is not None for prompt in asked] == [True, False]


def test_the_worst_case_covers_both_forms(base: Project) -> None:
    plain, _ = _agent(lambda _prompt: "", takes_schema=False)
    forced, _ = _agent(lambda _prompt: "")
    for question in ("anything",):
        assert forced.worst_case(question, view_of(base), ()) >= plain.worst_case(question, view_of(base), ())


def test_a_session_of_json_is_replayed_from_its_answers(tmp_path: Path) -> None:
    from graphbus_core.llm.client import RecordedClient
    from graphbus_core.llm.recorded import Tape, TapedClient, decode_answers, encode_answers

    base, recorded = shop(tmp_path / "shop"), Tape()
    recorded.write_to(tmp_path / "answers.jsonl")
    speaking = ScriptedClient(lambda _prompt: json.dumps({"proposals": [PROPOSAL]}), "stub:m", takes_schema=True)
    client = TapedClient(speaking, recorded)
    first = ModelAgent("Order", Clients(client, client, client)).propose(view_of(base))
    recorded.close()
    known = Tape()
    known.load(decode_answers((tmp_path / "answers.jsonl").read_bytes()))
    assert encode_answers([]) == b""
    replaying = TapedClient(RecordedClient("stub:m"), known)
    assert ModelAgent("Order", Clients(replaying, replaying, replaying)).propose(view_of(base)) == first
