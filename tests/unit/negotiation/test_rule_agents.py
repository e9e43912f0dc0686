from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.rungs.scope import check_scope
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import NegotiationError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.config import ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.proposals import GateReport, Proposal, ProposalRecord, SchemaChange
from graphbus_core.negotiation.agents import ActiveAgents, AgentView, TriedProposal
from graphbus_core.negotiation.backend import activate_agents
from graphbus_core.negotiation.rule_agent import RuleAgent, find_for_agents, find_selected, matching_words
from tests.fakes.negotiating_agents import ScriptedAgent, negotiate, replace_text
from tests.fakes.negotiating_world import report

SHOP = {
    "pyproject.toml": "[project]\nname = 'x'\n",
    "agents/order.py": '''
        from graphbus_core import GraphBusNode, schema_method


        class Order(GraphBusNode):
            """I take orders. And more."""

            @schema_method(input_schema={"sku": str}, output_schema={"status": str})
            def place(self, sku) -> dict:
                self.publish("/Order/Created", {"sku": sku, "quantity": 1})
                return {"status": "ok"}
        ''',
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, depends_on, subscribe


        @depends_on("Order")
        class Stock(GraphBusNode):
            @subscribe("/Order/Created")
            def on_order(self, event):
                self.log(event["skuu"])

            @subscribe("/Order/Creatd")
            def on_typo(self, event):
                self.log("seen")

            def collect(self, items=[]):
                items.append(1)
        """,
    "agents/judge.py": """
        from graphbus_core import GraphBusNode


        class Judge(GraphBusNode):
            IS_ARBITER = True

            def collect(self, items=[]):
                items.append(1)
        """,
}


@pytest.fixture
def shop(project: Callable[[Mapping[str, str]], Path]) -> Callable[..., Project]:
    root = project(SHOP)

    def read(**settings: Any) -> Project:
        config = ResolvedBuild(
            root=str(root), paths=(str(root / "agents"),), settings=Settings(**settings), dry_run=True
        )
        return Project.read(config, cache=False)

    return read


def view_of(project: Project, name: str, **fields: Any) -> AgentView:
    settings = project.config.settings
    given = {
        "findings": find_for_agents(project),
        "limit": 9,
        "intent": settings.intent,
        "goals": settings.refactoring_goals,
    }
    return AgentView(name=name, project=project, **{**given, **fields})


def codes(project: Project, name: str = "Stock", **fields: Any) -> list[str]:
    return [proposal.finding for proposal in RuleAgent(name).propose(view_of(project, name, **fields))]


# --- analysis --------------------------------------------------------------------------------


def test_an_analysis_says_what_an_agent_does_needs_and_expects(shop: Callable[..., Project]) -> None:
    project = shop()
    order = RuleAgent("Order").analyze(view_of(project, "Order"))
    assert order.responsibilities == ("I take orders", "offers place", "publishes /Order/Created")
    stock = RuleAgent("Stock").analyze(view_of(project, "Stock"))
    assert stock.responsibilities == ("hears /Order/Created", "hears /Order/Creatd")
    assert stock.dependencies == ("Order",)
    assert stock.schema_expectations == {"/Order/Created": "skuu"}
    assert any("skuu" in issue for issue in stock.potential_issues)


def test_an_agent_that_is_no_longer_there_has_an_empty_analysis(shop: Callable[..., Project]) -> None:
    assert RuleAgent("Nobody").analyze(view_of(shop(), "Nobody")).responsibilities == ()


# --- proposals -------------------------------------------------------------------------------


def test_findings_at_its_own_end_become_proposals_the_worst_first(shop: Callable[..., Project]) -> None:
    assert codes(shop()) == ["GB003", "GB001", "GB301"]
    assert "GB003" not in codes(shop(), "Order")


def test_a_proposal_says_what_why_and_whom_it_affects(shop: Callable[..., Project]) -> None:
    project = shop()
    first = RuleAgent("Stock").propose(view_of(project, "Stock", round=4))[0]
    finding = next(one for one in find_selected(project) if one.code == "GB003")
    assert (first.src, first.round, first.finding, first.reason) == ("Stock", 4, "GB003", finding.message)
    assert first.files == ("agents/stock.py",)
    assert first.dst is None
    assert "skuu" in first.code_change.old_code
    assert "skuu" not in first.code_change.new_code


def test_a_proposal_names_the_agents_at_the_other_ends(shop: Callable[..., Project]) -> None:
    project = shop()
    affected = {one.finding: one.affects for one in RuleAgent("Stock").propose(view_of(project, "Stock"))}
    assert affected == {"GB003": ("Order",), "GB001": ("Order",), "GB301": ()}


def test_a_proposal_for_another_agent_s_file_is_addressed_to_it(project: Callable[[Mapping[str, str]], Path]) -> None:
    root = project(
        {
            "agents/caller.py": """
                from graphbus_core import GraphBusNode, depends_on


                @depends_on("Callee")
                class Caller(GraphBusNode):
                    def work(self) -> None:
                        self.call("Callee", "reserve", quantity=1)


                @depends_on("Callee")
                class Second(GraphBusNode):
                    def work(self) -> None:
                        self.call("Callee", "reserve", quantity=2)
                """,
            "agents/callee.py": """
                from graphbus_core import GraphBusNode, schema_method


                class Callee(GraphBusNode):
                    @schema_method(input_schema={"quantit": int}, output_schema={"ok": bool})
                    def reserve(self, quantit: int) -> dict:
                        return {"ok": quantit > 0}
                """,
        }
    )
    here = Project.read(ResolvedBuild(root=str(root), paths=(str(root / "agents"),)), cache=False)
    (proposal,) = RuleAgent("Caller").propose(view_of(here, "Caller"))
    assert (proposal.finding, proposal.files, proposal.dst) == ("GB110", ("agents/callee.py",), "Callee")
    assert RuleAgent("Second").propose(view_of(here, "Second")) == (), "the same change is proposed once"


CALLER = """
    from graphbus_core import GraphBusNode, depends_on


    {depends}class Caller(GraphBusNode):
        def work(self) -> None:
            self.call("One", "work", a=1)
    """


@pytest.mark.parametrize(("depends", "proposed"), [("", []), ('@depends_on("Two")\n    ', ["GB010"])])
def test_no_decorator_is_proposed_that_the_gate_refuses(
    project: Callable[[Mapping[str, str]], Path], depends: str, proposed: list[str]
) -> None:
    root = project({**BASE, "agents/caller.py": CALLER.replace("{depends}", depends)})
    here = Project.read(ResolvedBuild(root=str(root), paths=(str(root / "agents"),), dry_run=True), cache=False)
    assert [(each.code, each.is_fix_safe) for each in find_selected(here) if each.agent == "Caller"] == [
        ("GB010", True)
    ]
    proposals = RuleAgent("Caller").propose(view_of(here, "Caller"))
    assert [each.finding for each in proposals] == proposed
    for each in proposals:
        report = Gate(here, here.config, None).check(each, Workspace(here))
        assert [rung.status for rung in report.rungs[:5]] == ["passed"] * 5


BASE = {
    "agents/base.py": """
        from typing import Any

        from graphbus_core import GraphBusNode, schema_method


        class BaseService(GraphBusNode):
            @schema_method(input_schema={"a": int, "b": str}, output_schema={"ok": bool})
            def work(self, a, b="x"):
                return {"ok": True}


        class Other:
            value = 1
        """,
    "agents/one.py": "from .base import BaseService\n\n\nclass One(BaseService): ...\n",
    "agents/two.py": "from .base import BaseService\n\n\nclass Two(BaseService): ...\n",
    "agents/__init__.py": "",
}


def test_all_annotations_of_a_method_are_one_proposal_also_in_a_base_class(
    project: Callable[[Mapping[str, str]], Path],
) -> None:
    root = project(BASE)
    here = Project.read(ResolvedBuild(root=str(root), paths=(str(root / "agents"),), dry_run=True), cache=False)
    assert sorted(each.code for each in find_selected(here)) == ["GB201", "GB201", "GB202"]
    (proposal,) = RuleAgent("One").propose(view_of(here, "One"))
    assert (proposal.files, proposal.affects) == (("agents/base.py",), ("Two",))
    assert proposal.title == "Annotate the parameters and the result in BaseService.work"
    assert [finding.message in proposal.reason for finding in find_selected(here)] == [True] * 3
    workspace = Workspace(here)
    report = Gate(here, here.config, None).check(proposal, workspace)
    assert [rung.status for rung in report.rungs[:5]] == ["passed"] * 5
    assert find_selected(workspace.preview_project(proposal.code_changes)) == ()


@pytest.mark.parametrize(
    ("path", "old", "affects", "code"),
    [
        ("agents/base.py", 'return {"ok": True}', ("Two",), ""),
        ("agents/base.py", 'return {"ok": True}', (), "G0.audience"),
        ("agents/base.py", "value = 1", ("Two",), "G0.not-agent-file"),
        ("agents/__init__.py", "", ("Two",), "G0.not-agent-file"),
    ],
)
def test_of_a_file_without_agent_only_their_base_may_change_and_all_heirs_are_asked(
    project: Callable[[Mapping[str, str]], Path], path: str, old: str, affects: tuple[str, ...], code: str
) -> None:
    root = project(BASE)
    here = Project.read(ResolvedBuild(root=str(root), paths=(str(root / "agents"),), dry_run=True), cache=False)
    target = "BaseService" if "return" in old else "Other"
    proposal = msgspec.structs.replace(replace_text(path, old, f"{old}  # so"), src="One", affects=affects)
    change = msgspec.structs.replace(proposal.code_changes[0], target=target)
    problem = check_scope(msgspec.structs.replace(proposal, code_change=change), here)
    assert (problem.code if problem else "") == code


def test_schema_conflicts_come_before_other_findings_of_their_severity(shop: Callable[..., Project]) -> None:
    project = shop()
    conflicts = tuple(detect_conflicts(project))
    assert {one.finding.code for one in conflicts} >= {"GB003"}
    without = RuleAgent("Stock").propose(view_of(project, "Stock"))[0]
    first = RuleAgent("Stock").propose(view_of(project, "Stock", conflicts=conflicts))[0]
    assert (without.priority, first.priority, first.finding) == (30, 35, "GB003")


def test_no_more_is_proposed_than_would_be_taken(shop: Callable[..., Project]) -> None:
    assert codes(shop(), limit=1) == ["GB003"]
    assert codes(shop(), limit=0) == []


def history(project: Project, status: Any, position: int = 0, **changes: Any) -> tuple[ProposalRecord, ...]:
    proposal = RuleAgent("Stock").propose(view_of(project, "Stock"))[position]
    return (ProposalRecord(proposal=msgspec.structs.replace(proposal, **changes), status=status),)


@pytest.mark.parametrize("status", ["rejected", "accepted", "superseded", "pending"])
def test_what_was_turned_down_or_is_under_way_is_not_proposed_again(shop: Callable[..., Project], status: str) -> None:
    project = shop()
    assert codes(project, history=history(project, status)) == ["GB001", "GB301"]


def test_what_was_refused_is_proposed_again_only_when_the_text_has_changed(shop: Callable[..., Project]) -> None:
    project = shop()
    assert codes(project, history=history(project, "refused")) == ["GB001", "GB301"]
    other = replace_text("agents/stock.py", "a", "b").code_change
    assert codes(project, history=history(project, "refused", code_change=other)) == ["GB003", "GB001", "GB301"]


@pytest.mark.parametrize(
    ("intent", "first", "said"),
    [
        ("no mutable defaults please", "GB301", "; it answers the intent (mutable, defaults)"),
        ("every topic has a publisher", "GB001", "; it answers the intent ("),
        ("make it purple", "GB003", ""),
    ],
)
def test_what_answers_the_intent_comes_first_and_says_so(
    shop: Callable[..., Project], intent: str, first: str, said: str
) -> None:
    proposals = RuleAgent("Stock").propose(view_of(shop(intent=intent), "Stock"))
    assert proposals[0].finding == first
    assert ("it answers the intent" in proposals[0].reason) == bool(said)
    assert said in proposals[0].reason
    assert [proposal.priority for proposal in proposals] == sorted((p.priority for p in proposals), reverse=True)
    assert len(proposals) == 3


def test_goals_rank_like_an_intent(shop: Callable[..., Project]) -> None:
    proposals = RuleAgent("Stock").propose(view_of(shop(refactoring_goals=("mutable_defaults",)), "Stock"))
    assert proposals[0].finding == "GB301"
    assert "; it answers the goals (mutable, defaults)" in proposals[0].reason


def test_an_intent_wakes_a_rule_that_is_off_by_default(shop: Callable[..., Project]) -> None:
    assert "GB210" not in codes(shop(), "Order")
    assert "GB210" in codes(shop(intent="add validation"), "Order")
    assert "GB210" in codes(shop(refactoring_goals=("add_validation",)), "Order")
    assert "GB210" not in {finding.code for finding in find_selected(shop(intent="add validation"))}


@pytest.mark.parametrize(
    ("intent", "text", "expected"),
    [
        ("add validation", "input not validated", ("validation",)),
        ("align_schemas", "a schema differs", ("schemas",)),
        ("OrderProcessor", "of OrderProcessor", ("order", "processor")),
        ("the and for", "the and for", ()),
        ("topic topic", "topics", ("topic",)),
        ("sku", "'skuu' is read", ()),
        ("", "anything", ()),
    ],
)
def test_words_match_by_their_beginning(intent: str, text: str, expected: tuple[str, ...]) -> None:
    assert matching_words(intent, text) == expected


def test_a_rule_knows_no_second_fix(shop: Callable[..., Project]) -> None:
    project = shop()
    proposal = RuleAgent("Stock").propose(view_of(project, "Stock"))[0]
    assert RuleAgent("Stock").repair(view_of(project, "Stock"), proposal, report("P001", passed=False)) is None


# --- judgements ------------------------------------------------------------------------------


def finding(code: str = "GB003", agent: str = "Stock", message: str = "it breaks", related: str = "") -> Finding:
    span = SourceSpan("agents/stock.py", 1, 0, 1, 1)
    others = (Related(related, span, "here"),) if related else ()
    return Finding(code=code, severity="error", agent=agent, span=span, message=message, related=others)


def trial(
    project: Project, *, passed: bool = True, path: str = "agents/order.py", changes: tuple[str, ...] = (), **found: Any
) -> TriedProposal:
    proposal: Proposal = msgspec.structs.replace(replace_text(path, "a", "b"), proposal_id="P001", src="Order")
    gate = GateReport(
        proposal_id="P001", passed=passed, rungs=(), schema_changes=tuple(SchemaChange(method=name) for name in changes)
    )
    return TriedProposal(proposal=proposal, report=gate, after=project, **found)


@pytest.mark.parametrize(
    ("given", "decision", "reasoning"),
    [
        ({}, "accept", "no schema impact on my side"),
        ({"path": "agents/stock.py"}, "accept", "my code changes, my contracts do not"),
        ({"changes": ("Stock.work",)}, "accept", "my contract changes as it says, and all my edges still fit"),
        ({"removed": (finding(),)}, "accept", "it fixes GB003 on my side"),
        ({"removed": (finding(agent="Other"),)}, "accept", "no schema impact on my side"),
        ({"added": (finding(agent="Other"),)}, "accept", "no schema impact on my side"),
        ({"added": (finding(),)}, "reject", "it would break my side: it breaks"),
        ({"added": (finding(agent="Other", related="Stock"),)}, "reject", "it would break my side: it breaks"),
        ({"added": (finding(),), "removed": (finding("GB001"),)}, "reject", "it would break my side: it breaks"),
    ],
)
def test_a_judgement_is_computed_from_what_the_rules_find_on_its_own_edges(
    shop: Callable[..., Project], given: dict[str, Any], decision: str, reasoning: str
) -> None:
    project = shop()
    (vote,) = RuleAgent("Stock").evaluate(view_of(project, "Stock", round=2), [trial(project, **given)])
    assert (vote.decision, vote.reasoning, vote.evaluator, vote.round) == (decision, reasoning, "Stock", 2)
    assert [evidence.text for evidence in vote.evidence] == (["it breaks"] if decision == "reject" else [])
    assert vote.impact_assessment.breaks_contracts is (decision == "reject")


@pytest.mark.parametrize(
    ("given", "decision", "reasoning"),
    [
        (
            {"removed": (finding(),)},
            "accept",
            "it passed the gate, fixes GB003 and breaks no contract (0 for, 0 against)",
        ),
        ({}, "reject", "it fixes nothing, and any change is a risk (0 for, 0 against)"),
        (
            {"added": (finding(),), "removed": (finding(),)},
            "reject",
            "it breaks something: it breaks (0 for, 0 against)",
        ),
        ({"passed": False, "removed": (finding(),)}, "reject", "the gate refused it (0 for, 0 against)"),
    ],
)
def test_the_arbiter_is_conservative_and_always_explains(
    shop: Callable[..., Project], given: dict[str, Any], decision: str, reasoning: str
) -> None:
    project = shop()
    word = RuleAgent("Judge", is_arbiter=True).arbitrate(view_of(project, "Judge"), trial(project, **given), ())
    assert (word.decision, word.reasoning) == (decision, reasoning)


def test_the_arbiter_counts_the_votes_in_its_explanation(shop: Callable[..., Project]) -> None:
    project = shop()
    case = trial(project, removed=(finding(),))
    votes = RuleAgent("Stock").evaluate(view_of(project, "Stock"), [case]) * 2
    word = RuleAgent("Judge", is_arbiter=True).arbitrate(view_of(project, "Judge"), case, votes)
    assert "(2 for, 0 against)" in word.reasoning


# --- activation ------------------------------------------------------------------------------


def test_agents_come_to_life_in_the_order_of_activation_arbiters_last(shop: Callable[..., Project]) -> None:
    project = shop()
    agents = activate_agents(project.definitions, project.order.order, project.config)
    assert list(agents) == ["Order", "Stock", "Judge"]
    assert agents.arbiters == ("Judge",)


def test_the_settings_may_name_the_arbiters(shop: Callable[..., Project]) -> None:
    project = shop(safety=SafetyConfig(arbiter_agents=("Stock", "Order")))
    agents = activate_agents(project.definitions, project.order.order, project.config)
    assert agents.arbiters == ("Stock", "Order")
    assert not agents["Judge"].is_arbiter


def test_an_arbiter_that_is_not_there_is_an_error_with_the_nearest(shop: Callable[..., Project]) -> None:
    project = shop(safety=SafetyConfig(arbiter_agents=("Jugde",)))
    with pytest.raises(NegotiationError, match=r"lists Jugde, which is not an agent .* Did you mean 'Judge'") as info:
        activate_agents(project.definitions, project.order.order, project.config)
    assert info.value.code == "GBE401"


@pytest.mark.parametrize(("name", "shown"), [("Judgee", "Did you mean 'Judge'"), ("Stock", "")])
def test_a_domain_of_one_who_is_no_arbiter_is_refused(shop: Callable[..., Project], name: str, shown: str) -> None:
    project = shop(safety=SafetyConfig(arbiter_domains={"Judge": ("*",), name: ("*",)}))
    with pytest.raises(NegotiationError, match=rf"names {name}, which is not an arbiter.*{shown}") as info:
        activate_agents(project.definitions, project.order.order, project.config)
    assert info.value.code == "GBE411"


# --- the whole -------------------------------------------------------------------------------


def test_rule_agents_fix_what_they_can_and_converge(shop: Callable[..., Project]) -> None:
    project = shop()
    agents = activate_agents(project.definitions, project.order.order, project.config)
    outcome = negotiate(project, agents)
    assert outcome.negotiations.converged
    left = [(one.code, one.agent) for one in find_selected(outcome.workspace.project) if one.is_fixable]
    assert left == [("GB301", "Judge")], "arbiters do not propose"
    assert {one.status for one in outcome.negotiations.records} == {"accepted"}


def test_a_fix_that_its_voters_reject_is_not_tried_again(shop: Callable[..., Project]) -> None:
    project = shop(safety=SafetyConfig(max_proposals_per_agent=9))
    agents = activate_agents(project.definitions, project.order.order, project.config)
    stubborn = ScriptedAgent("Order")
    stubborn.vote = "reject"
    outcome = negotiate(project, ActiveAgents({**agents, "Order": stubborn}))
    titles = [record.proposal.title for record in outcome.negotiations.records]
    assert len(titles) == len(set(titles)) == 3
    assert {record.status for record in outcome.negotiations.records} == {"rejected"}
