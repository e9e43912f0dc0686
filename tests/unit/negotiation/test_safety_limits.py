"""Every field of SafetyConfig has a test here that fails when the field is ignored."""

from __future__ import annotations

import inspect
import sys

import pytest
from msgspec.structs import replace

from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import ProposalEvaluation
from graphbus_core.negotiation.protocol import AskArbitration, AskEvaluations, AskProposals, AskRepair, DraftsDropped
from graphbus_core.negotiation.transitions import refusal_of, refusal_of_files, remaining_proposals
from graphbus_core.negotiation.votes import path_matches
from tests.fakes.negotiating_world import World, change, draft, proposing


def busy(*names: str, **safety: object) -> World:
    """Everybody wants to change its own file in each of ten rounds, three times at once."""
    world = World(*names, **safety)
    for name in names:
        for round_ in range(1, 11):
            path = f"{name.lower()}.py"
            drafts = [draft(f"{name}{round_}{i}", change(path, "0", f"0{round_}{i}")) for i in range(3)]
            world.proposes(name, *drafts, round=round_)
    return world


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_max_negotiation_rounds(rounds: int) -> None:
    ending = busy("A", "B", max_negotiation_rounds=rounds, max_proposals_per_agent=99).run().ending
    assert (ending.rounds_executed, ending.reason) == (rounds, "max_rounds")
    assert ending.detail == f"max_negotiation_rounds is {rounds}"


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_convergence_threshold(threshold: int) -> None:
    world = proposing("A", "B", convergence_threshold=threshold)
    ending = world.run().ending
    assert (ending.reason, ending.rounds_executed) == ("convergence", 1 + threshold)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_max_proposals_per_agent(limit: int) -> None:
    world = busy("A", "B", max_proposals_per_agent=limit, max_proposals_per_round=2)
    assert world.run().ending.proposals_made == 2 * limit
    if limit == 3:
        reasons = [told.reason for told in world.announced(DraftsDropped)]
        assert reasons == ["max_proposals_per_round is 2"] * 2 + ["max_proposals_per_agent is 3"] * 2


def test_max_proposals_per_agent_ends_the_questions() -> None:
    world = busy("A", "B", max_proposals_per_agent=1)
    world.run()
    assert [(one.round, one.agent) for one in world.questions(AskProposals)] == [(1, "A"), (1, "B")]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_max_proposals_per_round(limit: int) -> None:
    world = busy("A", "B", max_proposals_per_round=limit, max_proposals_per_agent=99, max_negotiation_rounds=3)
    assert world.run().ending.proposals_made == 2 * limit * 3
    assert {one.limit for one in world.questions(AskProposals)} == ({limit} if limit else set())


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_max_back_and_forth(depth: int) -> None:
    world = World("A", "B", electorate="all", max_back_and_forth=depth)
    world.proposes("A", draft("0"))
    for level in range(5):
        answer = draft(str(level + 1), change("a.py", "0", str(level + 2)))
        vote = ProposalEvaluation(proposal_id="", evaluator="", round=0, decision="counter", counter_proposal=answer)
        world.votes(str(level), A=vote, B=vote)
    assert world.run().ending.proposals_made == 1 + depth


@pytest.mark.parametrize(("required", "asked"), [(True, 1), (False, 0)])
def test_require_arbiter_on_conflict(required: bool, asked: int) -> None:
    world = proposing("A", "B", "C", arbiters=("Z",), require_arbiter_on_conflict=required, votes={"C": "reject"})
    world.run()
    assert len(world.questions(AskArbitration)) == asked


@pytest.mark.parametrize(("way", "asked"), [("first", ["Y"]), ("domain", ["Z"]), ("vote", ["Y", "Z"])])
def test_arbitration(way: str, asked: list[str]) -> None:
    world = proposing(
        "A", "B", "C", arbiters=("Y", "Z"), arbitration=way, arbiter_domains={"Z": ("test",)}, votes={"C": "reject"}
    )
    world.run()
    assert [question.arbiter for question in world.questions(AskArbitration)] == asked


@pytest.mark.parametrize(
    ("globs", "asked"),
    [
        (("test",), "Z"),
        (("te*",), "Z"),
        (("a.py",), "Z"),
        (("*.py",), "Z"),
        (("GB0*",), "Z"),
        (("b.py",), "Y"),
        ((), "Y"),
    ],
)
def test_arbiter_domains(globs: tuple[str, ...], asked: str) -> None:
    world = World("A", "B", "C", arbiters=("Y", "Z"), arbitration="domain", arbiter_domains={"Z": globs})
    world.proposes("A", draft("one", finding="GB001"))
    world.votes("one", C="reject")
    world.run()
    assert [question.arbiter for question in world.questions(AskArbitration)] == [asked]


@pytest.mark.parametrize(("limit", "status"), [(1, "refused"), (2, "accepted")])
def test_max_file_changes_per_commit(limit: int, status: str) -> None:
    world = World("A", "B", max_file_changes_per_commit=limit)
    world.proposes("A", draft("two files", change("a.py", "0", "1"), change("b.py", "0", "1")))
    (record,) = world.run().records
    assert record.status == status
    assert record.refusal == ("it changes 2 files, and max_file_changes_per_commit is 1" if limit == 1 else "")


def test_max_total_file_changes_ends_the_negotiation() -> None:
    ending = busy("A", "B", "C", max_total_file_changes=3).run().ending
    assert (ending.reason, ending.files_modified, ending.rounds_executed) == ("file_limit", 3, 1)
    assert ending.detail == "max_total_file_changes is 3"


def test_max_total_file_changes_counts_distinct_files_and_refuses_one_more_within_a_round() -> None:
    world = busy("A", "B", "C", max_total_file_changes=2, max_proposals_per_round=2)
    outcome = world.run()
    assert outcome.ending.files_modified == 2
    refused = [record.refusal for record in outcome.records if record.proposal.src == "C"]
    assert refused == ["3 files would be changed, and max_total_file_changes is 2"] * 2
    assert [commit.files_modified for commit in outcome.completed] == [("a.py",), ("a.py",), ("b.py",), ("b.py",)]


def test_protected_files() -> None:
    world = World("A", "B", protected_files=("b.*",))
    world.proposes("A", draft("one", change("b.py", "0", "1")))
    (record,) = world.run().records
    assert (record.status, record.refusal) == ("refused", "b.py is protected by protected_files")
    assert world.files["b.py"] == "0"


@pytest.mark.parametrize(("electorate", "expected"), [("affected", ["B"]), ("all", ["B", "C"])])
def test_electorate(electorate: str, expected: list[str]) -> None:
    world = World("A", "B", "C", electorate=electorate)
    world.proposes("A", draft("one", affects=("B",)))
    world.run()
    assert [one.agent for one in world.questions(AskEvaluations)] == expected


@pytest.mark.parametrize("limit", [1, 2])
def test_max_votes_per_proposal(limit: int) -> None:
    world = proposing("A", "B", "C", "D", "E", max_votes_per_proposal=limit)
    assert len(world.run().records[0].evaluations) == limit


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_max_repairs(limit: int) -> None:
    world = proposing("A", "B", max_repairs=limit)
    world.gate_says("one", *[False] * 9)
    world.repairs["one"] = [draft("one") for _ in range(9)]
    (record,) = world.run().records
    assert record.status == "refused"
    assert len(world.questions(AskRepair)) == limit


ELSEWHERE = {
    "arbiter_agents": "test_rule_agents.py::test_the_settings_may_name_the_arbiters",
    "allow_external_dependencies": "test_negotiating_a_project.py::test_a_new_dependency_is_refused_unless_it_is_allowed",
}


@pytest.mark.parametrize("field", SafetyConfig.__struct_fields__)
def test_no_setting_is_without_a_test(field: str) -> None:
    here = [name for name, _ in inspect.getmembers(sys.modules[__name__], inspect.isfunction)]
    if field in ELSEWHERE:
        from pathlib import Path

        file, _, name = ELSEWHERE[field].partition("::")
        assert f"def {name}(" in Path(__file__).with_name(file).read_text(encoding="utf-8")
    else:
        assert any(name.startswith(f"test_{field}") for name in here)


# --- the rules behind them -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("config.py", "config.py", True),
        ("agents/config.py", "config.py", True),
        ("agents/config.py", "agents/config.py", True),
        ("agents/config.py", "agents/*", True),
        ("agents/deep/config.py", "agents/**", True),
        ("agents/deep/config.py", "agents", True),
        ("agents/deep/config.py", "agents/", True),
        ("agents/deep/config.py", "agents/deep", True),
        ("./agents/../config.py", "config.py", True),
        ("secrets.yaml", "secrets.*", True),
        ("agents/__init__.py", "__init__.py", True),
        ("agents/order.py", "config.py", False),
        ("agents/order.py", "order", False),
        ("other/agents/order.py", "agents/*", False),
        ("agents/order.py", "", False),
    ],
)
def test_protected_patterns_are_for_paths_names_and_folders(path: str, pattern: str, expected: bool) -> None:
    assert path_matches(path, (pattern,)) is expected


def test_a_proposal_without_a_change_is_refused() -> None:
    empty = draft("x").with_changes(())
    assert refusal_of(empty, SafetyConfig(), (), ()) == "it changes nothing"


def test_an_unnamed_dependency_is_refused() -> None:
    assert "something unnamed" in refusal_of(draft("x", dependencies=("",)), SafetyConfig(), (), ())


def test_files_that_were_changed_before_do_not_count_twice() -> None:
    assert refusal_of_files(("a.py",), SafetyConfig(max_total_file_changes=1), ("a.py",)) == ""
    assert refusal_of_files(("b.py",), SafetyConfig(max_total_file_changes=1), ("a.py",)) != ""


def test_an_allowance_is_never_negative() -> None:
    own = [replace(draft("x"), src="A", round=1)] * 5
    assert remaining_proposals("A", own, 1, SafetyConfig()).limit == 0
    assert remaining_proposals("A", own, 2, SafetyConfig(max_proposals_per_agent=9)).limit == 1
    assert remaining_proposals("A", own, 1, SafetyConfig(max_proposals_per_agent=9)) == (
        0,
        "max_proposals_per_round is 1",
    )
