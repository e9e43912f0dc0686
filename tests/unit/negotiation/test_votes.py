from __future__ import annotations

import pytest

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import CodeChange, Counterexample, Proposal, ProposalEvaluation, SchemaChange
from graphbus_core.negotiation.protocol import Participants, ProposalCase
from graphbus_core.negotiation.votes import (
    changes_contradict,
    count_votes,
    decide_by_votes,
    electorate_of,
    ends_of_changed_edges,
    find_veto,
    neighbours_of,
)
from graphbus_core.schema.types import STR, Field, Schema
from tests.fakes.negotiating_world import report

LETTERS = {"a": "accept", "r": "reject", "x": "abstain", "c": "counter", "d": "defer"}
VOTERS = ("B", "C", "D", "E", "F", "G")


def case(
    votes: str = "", *, path: str = "free.py", evidence: Counterexample | None = None, **fields: object
) -> ProposalCase:
    """A proposal of A with the votes of B, C, D ... one letter each."""
    evaluations = tuple(
        ProposalEvaluation(
            proposal_id="P001",
            evaluator=name,
            round=1,
            decision=LETTERS[letter],  # type: ignore[arg-type]
            evidence=(evidence,) if evidence and letter == "r" else (),
        )
        for name, letter in zip(VOTERS, votes, strict=False)
    )
    proposal = Proposal(
        proposal_id="P001",
        round=1,
        src="A",
        intent="test",
        code_change=CodeChange(file_path=path, target=str(fields.pop("target", "")), change_type="modify"),
        dst=fields.pop("dst", None),  # type: ignore[arg-type]
        affects=fields.pop("affects", ()),  # type: ignore[arg-type]
    )
    return ProposalCase(proposal=proposal, evaluations=evaluations, electorate=VOTERS[: len(votes)], **fields)  # type: ignore[arg-type]


def participants(*arbiters: str, edges: tuple[Edge, ...] = ()) -> Participants:
    names = ("A", *VOTERS, *arbiters)
    return Participants(agents=names, arbiters=arbiters, owners={f"{n.lower()}.py": (n,) for n in names}, edges=edges)


@pytest.mark.parametrize(
    ("votes", "with_arbiter", "without"),
    [
        ("a", "accept unanimous", "accept unanimous"),
        ("aaa", "accept unanimous", "accept unanimous"),
        ("aax", "accept unanimous", "accept unanimous"),
        ("r", "reject", "reject"),
        ("rrr", "reject", "reject"),
        ("rxr", "reject", "reject"),
        ("ar", "arbitrate", "reject"),
        ("arx", "arbitrate", "reject"),
        ("aarr", "arbitrate", "reject"),
        ("aar", "arbitrate", "accept majority"),
        ("arr", "arbitrate", "reject"),
        ("aaarr", "arbitrate", "accept majority"),
        ("aaar", "accept majority", "accept majority"),
        ("arrr", "reject", "reject"),
        ("x", "arbitrate", "reject"),
        ("axx", "arbitrate", "reject"),
        ("xxr", "arbitrate", "reject"),
        ("axxx", "arbitrate", "reject"),
        ("aaxx", "accept unanimous", "accept unanimous"),
        ("", "arbitrate", "reject"),
    ],
)
def test_what_the_votes_come_to(votes: str, with_arbiter: str, without: str) -> None:
    for arbiters, expected in ((("Z",), with_arbiter), ((), without)):
        verdict = decide_by_votes(case(votes), participants(*arbiters), SafetyConfig())
        assert f"{verdict.outcome} {verdict.consensus or ''}".strip() == expected


@pytest.mark.parametrize(("votes", "expected"), [("ar", "reject"), ("aar", "accept"), ("arr", "reject")])
def test_a_conflict_goes_to_no_arbiter_when_the_setting_says_so(votes: str, expected: str) -> None:
    assert (
        decide_by_votes(case(votes), participants("Z"), SafetyConfig(require_arbiter_on_conflict=False)).outcome
        == expected
    )


def test_too_few_votes_go_to_the_arbiter_even_then() -> None:
    assert (
        decide_by_votes(case("axx"), participants("Z"), SafetyConfig(require_arbiter_on_conflict=False)).outcome
        == "arbitrate"
    )


@pytest.mark.parametrize("letter", "xcd")
def test_only_an_accept_is_an_accept(letter: str) -> None:
    assert count_votes(case(letter).evaluations) == (0, 0, 1)


def test_the_last_vote_of_an_agent_holds_and_the_arbiter_has_none() -> None:
    first, second = case("r").evaluations[0], case("a").evaluations[0]
    word = ProposalEvaluation(proposal_id="P001", evaluator="Z", round=1, decision="reject", is_arbiter=True)
    assert count_votes((first, second, word)) == (1, 0, 0)
    assert count_votes((first, second, word)).votes == 1


def test_a_tally_reads_well() -> None:
    assert str(count_votes(case("aar").evaluations)) == "2 for, 1 against"
    assert str(count_votes(case("arx").evaluations)) == "1 for, 1 against, 1 abstained"


def test_a_verified_objection_is_a_veto_against_any_majority() -> None:
    proof = Counterexample("contract", "GB003 at C", is_verified=True)
    verdict = decide_by_votes(case("aaaar", evidence=proof), participants("Z"), SafetyConfig())
    assert verdict.outcome == "reject"
    assert "GB003 at C" in verdict.reason


def test_an_objection_that_is_not_verified_is_one_vote() -> None:
    claim = Counterexample("contract", "it feels wrong")
    assert decide_by_votes(case("aaaar", evidence=claim), participants("Z"), SafetyConfig()).outcome == "accept"


def test_evidence_of_someone_who_accepts_is_no_veto() -> None:
    accepted = case("aaaa")
    proof = Counterexample("contract", "x", is_verified=True)
    votes = tuple(
        ProposalEvaluation(proposal_id="P001", evaluator=v.evaluator, round=1, decision="accept", evidence=(proof,))
        for v in accepted.evaluations
    )
    assert find_veto(ProposalCase(proposal=accepted.proposal, evaluations=votes), participants()) == ""


def test_the_owner_of_a_touched_file_has_a_veto() -> None:
    verdict = decide_by_votes(case("aaaar", path="f.py"), participants("Z"), SafetyConfig())
    assert (verdict.outcome, verdict.reason) == ("reject", "F owns a file that it would change, and rejects it")
    assert decide_by_votes(case("aaaar", path="b.py"), participants("Z"), SafetyConfig()).outcome == "accept"


EDGES = (
    Edge("A", "B", "topic", "/A/T"),
    Edge("C", "A", "depends_on"),
    Edge("D", "E", "call", "work"),
    Edge("D", "F", "depends_on"),
)


def voters(
    of: ProposalCase, edges: tuple[Edge, ...] = EDGES, *arbiters: str, countered: str = "", **safety: object
) -> tuple[str, ...]:
    return electorate_of(of, participants(*arbiters, edges=edges), SafetyConfig(**safety), countered)  # type: ignore[arg-type]


def same_graph(**fields: object) -> ProposalCase:
    return case(edges=EDGES, **fields)  # type: ignore[arg-type]


def test_all_means_everybody_but_the_proposer_and_the_arbiters() -> None:
    assert voters(same_graph(), EDGES, "Z", electorate="all", max_votes_per_proposal=1) == VOTERS


def test_owners_and_declared_agents_vote_the_owners_first() -> None:
    of = same_graph(path="g.py", dst="F", affects=("E", "A", "nobody", "Z"))
    assert voters(of, EDGES, "Z") == ("G", "E", "F")


def test_the_owner_of_the_changed_class_comes_before_others_in_its_file() -> None:
    place = Participants(agents=("A", "B", "C"), owners={"x.py": ("B", "C")})
    of = case(path="x.py", target="C.method")
    assert electorate_of(of, place, SafetyConfig(max_votes_per_proposal=1)) == ("C",)


def test_an_author_cannot_crowd_out_whom_its_change_concerns() -> None:
    changed = same_graph(
        dst="G", affects=("E", "F"), gate=report("P001", schema_changes=(SchemaChange(method="/A/T"),))
    )
    assert voters(changed, max_votes_per_proposal=2) == ("B", "E")


def test_the_author_of_a_countered_proposal_votes_on_the_counter() -> None:
    assert voters(same_graph(affects=("B",)), EDGES, countered="G") == ("G", "B")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("/A/T", ("B",)),
        ("D.work", ("D", "E", "F")),
        ("D.other", ("D", "F")),
        ("F", ("D", "F")),
        ("/Other/T", ("B", "C")),
    ],
)
def test_neighbours_over_an_edge_whose_contract_changes_vote(changed: str, expected: tuple[str, ...]) -> None:
    of = same_graph(gate=report("P001", schema_changes=(SchemaChange(method=changed),)))
    assert voters(of) == expected


def test_both_ends_of_a_new_or_vanished_edge_vote() -> None:
    of = case(edges=(*EDGES[1:], Edge("A", "G", "topic", "/A/T")))
    assert ends_of_changed_edges(of, EDGES) == {"A", "B", "G"}
    assert voters(of) == ("B", "G")


def test_when_nobody_is_affected_the_neighbours_vote_and_without_any_all_others() -> None:
    assert voters(same_graph()) == ("B", "C")
    assert voters(case(), ()) == ("B", "C", "D")


def test_no_more_than_max_votes_per_proposal_vote() -> None:
    assert voters(same_graph(), max_votes_per_proposal=1) == ("B",)
    assert voters(case(), (), max_votes_per_proposal=5) == ("B", "C", "D", "E", "F")


def test_neighbours_are_at_either_end() -> None:
    assert neighbours_of("A", EDGES) == {"B", "C"}


def test_changes_of_one_method_contradict_each_other_unless_they_are_the_same() -> None:
    one, other = (SchemaChange(method="A.f", input_schema_after=Schema(fields=(Field(name, STR),))) for name in "xy")
    assert changes_contradict(one, other)
    assert not changes_contradict(one, one)
    assert not changes_contradict(one, SchemaChange(method="A.g"))
