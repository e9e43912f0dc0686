"""The driver over real source files: scripted agents, a real project and workspace, and for some tests the real gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.errors import EditError, NegotiationError
from graphbus_core.model.config import Budget, SafetyConfig
from graphbus_core.model.proposals import Counterexample, ProposalEvaluation
from graphbus_core.negotiation.agents import AgentView
from graphbus_core.negotiation.driver import SessionOutcome
from graphbus_core.negotiation.transcript import list_sessions, load_session, load_transcript
from tests.fakes.negotiating_agents import BrokenGate, OpenGate, Scene, ask_backwards, replace_text

FILES = {
    "pyproject.toml": "[project]\nname = 'x'\n",
    "agents/order.py": """
        from graphbus_core import GraphBusNode


        class Order(GraphBusNode):
            def place(self) -> None:
                self.publish("/Order/Created", {"sku": "mug", "total": 0})
        """,
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, subscribe


        class Stock(GraphBusNode):
            @subscribe("/Order/Created")
            def on_order(self, event):
                self.log(event["sku"])
        """,
    "agents/mail.py": """
        from graphbus_core import GraphBusNode, subscribe


        class Mail(GraphBusNode):
            @subscribe("/Order/Created")
            def on_order(self, event):
                self.log("seen")
        """,
    "agents/judge.py": """
        from graphbus_core import GraphBusNode


        class Judge(GraphBusNode):
            IS_ARBITER = True
        """,
}
MORE = replace_text("agents/order.py", '"total": 0', '"total": 1')
BREAKING = replace_text("agents/order.py", '"sku": "mug"', '"code": "mug"')


NAMES = ("Order", "Stock", "Mail", "Judge")


@pytest.fixture
def scene(project: Callable[[Mapping[str, str]], Path]) -> Callable[..., Scene]:
    root = project(FILES)
    return lambda **settings: Scene(root, *NAMES, **settings)


def test_what_everybody_accepts_is_in_the_workspace_and_not_on_disk(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)
    negotiations, workspace = here.run()
    (commit,) = negotiations.completed
    assert commit.files_modified == ("agents/order.py",)
    assert '+        self.publish("/Order/Created", {"sku": "mug", "total": 1})' in commit.resolution["agents/order.py"]
    assert b'"total": 1' in workspace.changed_files()["agents/order.py"][1]
    assert '"total": 0' in Path(here.config.root, "agents/order.py").read_text(encoding="utf-8")


def test_everything_is_told_on_the_bus_in_order(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)
    here.run()
    one = ["Proposed", "Gated", "Evaluated", "Evaluated", "Committed"]
    assert here.topics == ["Started", "Round", *one, "Round", "Round", "Finished"]
    assert here.heard[0][1] == {
        "session": "S001",
        "backend": "rules",
        "agents": ["Order", "Stock", "Mail", "Judge"],
        "arbiters": ["Judge"],
        "intent": "",
        "allow_unverified": False,
    }
    assert here.heard[6][1]["accepts"] == here.heard[6][1]["votes"] == 2
    assert here.heard[-1][1]["ending"]["reason"] == "convergence"
    assert here.heard[-1][1]["summary"]["accepted"] == 1


def test_later_rounds_see_what_earlier_rounds_have_changed(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts = {1: (MORE,), 2: (replace_text("agents/order.py", '"total": 1', '"total": 2'),)}
    outcome = here.run()
    assert [commit.round for commit in outcome.negotiations.completed] == [1, 2]
    views = [view for view in here.agents["Stock"].views if view.round == 2]
    assert b'"total": 1' in views[0].project.source("agents/order.py").data


def test_an_agent_sees_its_source_its_neighbours_its_history_and_its_analysis(scene: Callable[..., Scene]) -> None:
    here = scene(intent="totals", refactoring_goals=("align_schemas",))
    here.agents["Order"].drafts[1] = (MORE,)
    here.run()
    view: AgentView = here.agents["Order"].views[-1]
    assert view.source.startswith("class Order(GraphBusNode):")
    assert {one.name for one in view.neighbours} == {"Stock", "Mail"}
    assert [(one.proposal.proposal_id, one.status) for one in view.history] == [("P001", "accepted")]
    assert view.analysis is not None
    assert view.analysis.responsibilities == ("something",)
    assert (view.intent, view.goals, view.limit) == ("totals", ("align_schemas",), 1)
    assert here.agents["Stock"].views[-1].history == ()


def test_evaluators_see_the_diff_and_what_breaks(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (BREAKING,)
    here.run()
    trial = here.agents["Stock"].trials[0]
    assert "-" in trial.diff
    assert '"code": "mug"' in trial.diff
    assert [(finding.code, finding.agent) for finding in trial.added] == [("GB003", "Stock")]
    assert trial.removed == ()


def test_agents_see_the_findings_as_they_are_now_and_the_conflicts_of_the_beginning(
    scene: Callable[..., Scene],
) -> None:
    here = scene()
    here.agents["Order"].drafts = {1: (BREAKING,), 2: (MORE,)}
    here.run()
    seen = {view.round: [finding.code for finding in view.findings] for view in here.agents["Stock"].views}
    assert "GB003" not in seen[1]
    assert "GB003" in seen[2]
    assert all(view.conflicts == () for view in here.agents["Stock"].views)

    path = Path(here.config.root, "agents/order.py")
    path.write_text(path.read_text(encoding="utf-8").replace('"sku": "mug"', '"code": "mug"'), encoding="utf-8")
    here = scene(artifacts=".other")
    here.run()
    assert [conflict.consumer for conflict in here.agents["Stock"].views[-1].conflicts] == ["Stock"]
    assert here.agents["Mail"].views[-1].conflicts == ()


def reject_with(text: str, *, kind: Any = "contract", is_verified: bool = False) -> ProposalEvaluation:
    evidence = (Counterexample(kind, text, is_verified=is_verified),)
    return ProposalEvaluation(proposal_id="P001", evaluator="Stock", round=1, decision="reject", evidence=evidence)


def test_no_agent_can_vouch_for_its_own_evidence(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (BREAKING,)
    here.agents["Stock"].vote = (reject_with("it feels wrong", is_verified=True),)
    here.agents["Judge"].word = "accept"
    (record,) = here.run().negotiations.records
    assert record.evaluations[-1].evidence == () or not record.evaluations[0].evidence[0].is_verified
    assert record.status == "accepted"


@pytest.mark.parametrize(("kind", "status"), [("contract", "rejected"), ("test", "accepted")])
def test_a_counterexample_that_the_rules_confirm_is_a_veto(scene: Callable[..., Scene], kind: str, status: str) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (BREAKING,)
    here.agents["Judge"].word = "accept"
    here.agents["Stock"].vote = lambda view: (reject_with(here.agents["Stock"].trials[0].added[0].message, kind=kind),)
    (record,) = here.run().negotiations.records
    assert record.status == status
    vote = next(vote for vote in record.evaluations if vote.evaluator == "Stock")
    assert vote.evidence[0].is_verified is (kind == "contract")


# --- agents that fail ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [RuntimeError("boom"), None, "accept", 7, ("accept",), (None,), [{"proposal_id": 1}], (reject_with("\ud800"),)],
    ids=str,
)
def test_an_evaluator_that_raises_or_talks_nonsense_abstains(scene: Callable[..., Scene], answer: object) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)
    here.agents["Stock"].vote = (lambda view: answer) if isinstance(answer, str) else answer
    (record,) = here.run().negotiations.records
    vote = next(vote for vote in record.evaluations if vote.evaluator == "Stock")
    assert vote.decision == "abstain"
    assert vote.reasoning
    assert here.topics.count("Failed") == 1


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None, 7, (None,), "abc", (MORE, "x")], ids=str)
def test_a_proposer_that_raises_or_talks_nonsense_proposes_nothing(scene: Callable[..., Scene], answer: object) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = answer
    negotiations = here.run().negotiations
    assert negotiations.records == ()
    assert negotiations.ending.reason == "convergence"
    failed = [payload for topic, payload in here.heard if topic == "/Negotiation/Failed"]
    assert [(one["agent"], one["task"]) for one in failed] == [("Order", "propose")]


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None, ("accept",)], ids=str)
def test_an_arbiter_that_raises_or_talks_nonsense_accepts_nothing(scene: Callable[..., Scene], answer: object) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)
    here.agents["Stock"].vote = "reject"
    here.agents["Judge"].word = answer
    (record,) = here.run().negotiations.records
    assert record.status == "rejected"
    assert record.evaluations[-1].is_arbiter


@pytest.mark.parametrize("answer", [RuntimeError("boom"), None], ids=str)
def test_an_analysis_that_fails_is_empty_and_told(scene: Callable[..., Scene], answer: object) -> None:
    here = scene()
    here.agents["Order"].analysis = answer
    here.run()
    assert here.session.analyses["Order"].responsibilities == ()
    assert here.heard[0][0] == "/Negotiation/Failed"
    assert (here.heard[0][1]["agent"], here.heard[0][1]["task"]) == ("Order", "analyze")


def test_a_repair_is_asked_of_the_author_with_the_gate_s_report(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (replace_text("agents/order.py", "nowhere", "x"),)
    here.agents["Order"].repaired = MORE
    (record,) = here.run().negotiations.records
    assert (record.status, record.proposal.title) == ("accepted", MORE.title)


def test_ctrl_c_goes_up_and_changes_no_file_but_what_was_said_is_kept(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts = {1: (MORE,), 2: KeyboardInterrupt()}
    before = Path(here.config.root, "agents/order.py").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        here.run()
    kept = load_session(here.config.artifacts_dir).negotiations
    assert (kept.ending.reason, kept.ending.detail) == ("manual", "interrupted; no source file was changed")
    assert [record.status for record in kept.records] == ["accepted"]
    assert here.topics[-1] == "Finished"
    assert Path(here.config.root, "agents/order.py").read_bytes() == before


def test_ctrl_c_at_the_very_end_goes_up_as_well(scene: Callable[..., Scene]) -> None:
    here = scene()

    def interrupt(event: Any) -> None:
        raise KeyboardInterrupt

    here.bus.subscribe("/Negotiation/Finished", interrupt)
    with pytest.raises(KeyboardInterrupt):
        here.run()
    assert load_session(here.config.artifacts_dir).negotiations.converged


# --- listeners -------------------------------------------------------------------------------


def listen_badly(here: Scene) -> None:
    def broken(event: Any) -> None:
        raise RuntimeError("a listener")

    def noisy(event: Any) -> None:
        if event.topic != "/Negotiation/Noise":
            here.bus.publish("/Negotiation/Noise", {"again": True})

    here.bus.subscribe("/Negotiation/*", broken)
    here.bus.subscribe("/Negotiation/*", noisy)


def test_the_outcome_does_not_depend_on_who_listens(
    scene: Callable[..., Scene], capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes = []
    for name, prepare in (("quiet", lambda here: None), ("loud", listen_badly)):
        here = scene()
        here.config = msgspec.structs.replace(here.config, session=name)
        here.agents["Order"].drafts[1] = (MORE,)
        prepare(here)
        negotiations, workspace = here.run()
        said = load_transcript(here.config.artifacts_dir, name)[1:]
        outcomes.append((negotiations.records, negotiations.ending, workspace.digest, said))
    assert outcomes[0] == outcomes[1]


def test_the_outcome_does_not_depend_on_the_order_of_the_answers(scene: Callable[..., Scene]) -> None:
    outcomes = []
    for options in ({}, {"ask": ask_backwards}):
        here = scene()
        here.config = msgspec.structs.replace(here.config, dry_run=True)
        here.options = options
        for name in ("Order", "Stock", "Mail"):
            path = f"agents/{name.lower()}.py"
            here.agents[name].drafts[1] = (replace_text(path, "GraphBusNode)", "GraphBusNode):  # noted", dst=None),)
        here.agents["Order"].drafts[1] = (MORE,)
        here.agents["Mail"].vote = "reject"
        negotiations, workspace = here.run()
        outcomes.append((msgspec.json.encode(negotiations), workspace.digest, here.session.events))
    assert outcomes[0] == outcomes[1]


def test_a_proposal_too_large_for_the_bus_is_still_judged(scene: Callable[..., Scene]) -> None:
    here = scene()
    huge = replace_text("agents/order.py", '"total": 0', f'"total": "{"x" * 1_100_000}"')
    here.agents["Order"].drafts[1] = (huge,)
    (record,) = here.run().negotiations.records
    assert record.status == "accepted"
    proposed = next(payload for topic, payload in here.heard if topic == "/Negotiation/Proposed")
    assert len(proposed["proposal"]["code_change"]["new_code"]) < 3000
    assert (
        len(load_session(here.config.artifacts_dir).negotiations.records[0].proposal.code_change.new_code) > 1_000_000
    )


# --- how it ends -----------------------------------------------------------------------------


def test_the_budget_of_calls_is_never_exceeded_and_what_was_accepted_stays(scene: Callable[..., Scene]) -> None:
    """Four analyses, three proposals and two votes make nine; the second round cannot be paid."""
    here = scene(budget=Budget(max_calls=9))
    here.agents["Order"].drafts = {1: (MORE,), 2: (BREAKING,)}
    ending = here.run().negotiations.ending
    assert (ending.reason, ending.commits_created) == ("budget", 1)
    assert ending.detail == "3 more calls after 9, and max_calls is 9"
    assert sum(len(agent.views) for agent in here.agents.values()) == 9


def test_a_budget_that_does_not_pay_for_the_analysis_stops_at_once(scene: Callable[..., Scene]) -> None:
    here = scene(budget=Budget(max_calls=2))
    ending = here.run().negotiations.ending
    assert (ending.reason, ending.proposals_made) == ("budget", 0)
    assert list(here.session.analyses) == ["Order", "Stock"]


def test_the_budget_of_time_ends_it_even_between_two_answers(scene: Callable[..., Scene]) -> None:
    here = scene(budget=Budget(max_seconds=10.0))
    now_s = [0.0]

    def late(view: AgentView) -> tuple[()]:
        now_s[0] += 6
        return ()

    here.options = {"clock": lambda: now_s[0]}
    here.agents["Order"].drafts[1] = here.agents["Stock"].drafts[1] = late
    ending = here.run().negotiations.ending
    assert (ending.reason, ending.detail) == ("budget", "max_seconds is 10")
    assert [view.round for view in here.agents["Mail"].views] == [0]


def test_a_listener_may_stop_it_and_what_was_accepted_stays(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts = {1: (MORE,), 2: (BREAKING,)}
    here.bus.subscribe("/Negotiation/Committed", lambda event: here.session.stop())
    negotiations, workspace = here.run()
    assert (negotiations.ending.reason, negotiations.ending.commits_created) == ("manual", 1)
    assert negotiations.ending.rounds_executed == 2
    assert b'"total": 1' in workspace.changed_files()["agents/order.py"][1]


def test_a_gate_that_breaks_down_ends_it_and_lets_nothing_through(scene: Callable[..., Scene]) -> None:
    """Neither the change that could not be judged nor any that was accepted before: there is no result yet."""
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)
    here.gate = BrokenGate(EditError("GBE321", reason="no space left", advice=""))
    with pytest.raises(EditError, match="no space left"):
        here.run()
    negotiations = load_session(here.config.artifacts_dir).negotiations
    assert (negotiations.ending.reason, negotiations.completed) == ("error", ())
    assert "the gate itself failed on P001" in negotiations.ending.detail
    assert [record.status for record in negotiations.records] == ["pending"]


def test_a_change_that_the_workspace_refuses_is_stale(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.agents["Order"].drafts[1] = (MORE,)

    def sabotage(event: Any) -> None:
        """Play a world that has moved on between the gate and the commit."""
        workspace = here.gate.workspace
        workspace._now["agents/order.py"] = workspace._now["agents/order.py"].replace(b'"total": 0', b'"total": 5')

    class Watching(OpenGate):
        def check(self, proposal: Any, workspace: Any) -> Any:
            self.workspace = workspace
            return super().check(proposal, workspace)

    here.gate = Watching()
    here.bus.subscribe("/Negotiation/Evaluated", sabotage)
    (record,) = here.run().negotiations.records
    assert record.status == "refused"
    assert record.refusal.startswith("stale: ")


# --- what is kept ----------------------------------------------------------------------------


def test_a_session_is_kept_with_every_event(scene: Callable[..., Scene]) -> None:
    here = scene(intent="totals")
    here.agents["Order"].drafts[1] = (MORE,)
    negotiations, _ = here.run()
    record = load_session(here.config.artifacts_dir)
    assert (record.session, record.backend, record.intent) == ("S001", "rules", "totals")
    assert record.negotiations == negotiations
    said = load_transcript(here.config.artifacts_dir, "S001")
    assert [(one.topic, one.payload) for one in said] == here.heard


def test_sessions_of_equal_negotiations_are_equal_byte_for_byte(scene: Callable[..., Scene]) -> None:
    texts = []
    for _ in range(2):
        here = scene(artifacts=f".graphbus{len(texts)}")
        here.agents["Order"].drafts[1] = (MORE,)
        here.run()
        folder = Path(here.config.artifacts_dir) / "sessions" / "S001"
        texts.append([(folder / name).read_bytes() for name in ("transcript.jsonl", "record.json")])
    assert texts[0] == texts[1]


def test_a_dry_run_keeps_nothing(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.config = msgspec.structs.replace(here.config, dry_run=True)
    here.run()
    assert list_sessions(here.config.artifacts_dir) == ()


def test_a_session_s_name_is_taken_from_the_request(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.config = msgspec.structs.replace(here.config, session="mine")
    assert here.run().negotiations.session == "mine"


def test_a_name_that_is_taken_is_refused_before_anybody_is_asked(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.config = msgspec.structs.replace(here.config, session="mine")
    here.run()
    fresh = Scene(Path(here.config.root), *NAMES)
    fresh.config = here.config
    with pytest.raises(NegotiationError):
        fresh.run()
    assert all(view.round == 0 for agent in fresh.agents.values() for view in agent.views)


def test_a_session_that_begins_while_another_one_goes_on_gets_the_next_name(scene: Callable[..., Scene]) -> None:
    here, other = scene(), scene()
    outcomes: list[SessionOutcome] = []
    here.bus.subscribe("/Negotiation/Started", lambda event: outcomes.append(other.run()))
    outcomes.append(here.run())
    assert [outcome.negotiations.session for outcome in outcomes] == ["S002", "S001"]
    assert list_sessions(here.config.artifacts_dir) == ("S001", "S002")


def test_a_session_that_fails_gives_its_name_back(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.gate = None
    here.agents["Order"].drafts[1] = (MORE,)
    with pytest.raises(AttributeError):
        here.run()
    assert scene().run().negotiations.session == "S001"


# --- with the real gate ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "status"), [(False, "refused"), (True, "accepted")])
def test_a_new_dependency_is_refused_unless_it_is_allowed(
    scene: Callable[..., Scene], allowed: bool, status: str
) -> None:
    here = scene(safety=SafetyConfig(allow_external_dependencies=allowed, max_repairs=0))
    importing = replace_text(
        "agents/order.py",
        "from graphbus_core import GraphBusNode\n",
        "import msgspec\nfrom graphbus_core import GraphBusNode\n",
    )
    here.agents["Order"].drafts[1] = (importing,)
    here.gate = Gate(here.project, here.config, ProcessSandbox())
    (record,) = here.run().negotiations.records
    assert record.status == status, record.refusal
