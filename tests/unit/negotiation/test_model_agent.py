"""An agent with a model: what it asks, what it makes of the answers, and what it does when they are no use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Clients, Completion, ModelPrompt, ScriptedClient, WorstCase
from graphbus_core.model.config import LLMConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.proposals import GateReport
from graphbus_core.model.spending import Usage
from graphbus_core.negotiation.asking import PreparedQuestion, answer_question
from graphbus_core.negotiation.backend import activate_agents
from graphbus_core.negotiation.model_agent import ModelAgent
from graphbus_core.negotiation.protocol import (
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    Evaluated,
    GatedProposal,
    Proposed,
)
from tests.fakes import model_texts as texts
from tests.fakes.model_texts import Recorder, Speak, asked_in, clients_of
from tests.project_files import write_project
from tests.unit.negotiation.prompted_shop import shop, trial_of, view_of

EDIT = texts.swap("agents/stock.py", "skuu", "sku").replace("skuu\n", '        self._secret_of_stock = event["skuu"]\n')
TOO_LONG = Completion(text="## proposal\ntitle: x", model="scripted:test", usage=Usage(), stop="length")
REFUSAL = Completion(text="", model="scripted:test", stop="refusal")
REPORT = GateReport(proposal_id="P001", passed=False, rungs=())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return shop(tmp_path_factory.mktemp("shop"))


def _agent(speak: Speak, name: str = "Order", **fields: int) -> ModelAgent:
    return ModelAgent(name, clients_of(speak), max_output_tokens=fields.get("max_output_tokens", 1000))


def _in_turn(*answers: str | Completion) -> Recorder:
    waiting: Iterator[str | Completion] = iter(answers)
    return Recorder(lambda _prompt: next(waiting))


def test_each_task_goes_to_the_model_of_its_role(base: Project) -> None:
    heard: list[tuple[str, str]] = []

    def client(role: str) -> ScriptedClient:
        def speak(prompt: ModelPrompt) -> str:
            heard.append((role, asked_in(prompt).task))
            return texts.agreeable(prompt)

        return ScriptedClient(speak, f"scripted:{role}")

    agent = ModelAgent("Order", Clients(client("proposer"), client("evaluator"), client("arbiter")), is_arbiter=True)
    view, trial = view_of(base), trial_of(base)
    agent.analyze(view)
    assert agent.propose(view) == ()
    assert agent.repair(view, trial.proposal, REPORT) is None
    assert [vote.decision for vote in agent.evaluate(view, [trial])] == ["accept"]
    word = agent.arbitrate(view, trial, ())
    assert (word.decision, word.is_arbiter) == ("accept", True)
    assert heard == [
        ("proposer", "analyze"),
        ("proposer", "propose"),
        ("proposer", "repair"),
        ("evaluator", "evaluate"),
        ("arbiter", "arbitrate"),
    ]


def test_the_rules_findings_are_part_of_the_analysis(base: Project) -> None:
    said = texts.analysis("cares for stock", dependency=["Shelf", "Nobody", "Stock"], issue=["no check of sku"])
    found = _agent(lambda _prompt: said, "Stock").analyze(view_of(base, "Stock"))
    assert found.responsibilities == ("cares for stock",)
    assert found.dependencies == ("Order", "Shelf")
    assert found.schema_expectations == {"/Order/Placed": "skuu"}
    assert [text.partition(" ")[0] for text in found.potential_issues] == ["Stock.on_placed", "no"]


def test_a_malformed_answer_is_sent_back_once_with_its_faults(base: Project) -> None:
    model = _in_turn("I propose something.", texts.proposal("Right it", EDIT))
    (draft,) = _agent(model).propose(view_of(base))
    assert draft.title == "Right it"
    assert [len(prompt.turns) for prompt in model.prompts] == [0, 2]
    assert model.prompts[1].turns[0].text == "I propose something."
    assert "neither a section `## proposal` nor `## nothing`" in model.prompts[1].turns[1].text


def test_a_second_malformed_answer_is_a_failure_that_says_why(base: Project) -> None:
    model = _in_turn("x", "y", "never asked for")
    with pytest.raises(ModelError) as caught:
        _agent(model).propose(view_of(base))
    assert (caught.value.code, len(model.prompts)) == ("GBE460", 2)
    assert "scripted:test gave no usable answer in two attempts. There is neither" in caught.value.sentence


def test_an_answer_that_was_cut_off_is_sent_back_as_too_long(base: Project) -> None:
    model = _in_turn(TOO_LONG, texts.nothing())
    assert _agent(model).propose(view_of(base)) == ()
    assert "cut off at the limit of 1000 tokens" in model.prompts[1].turns[1].text


def test_a_complete_looking_answer_that_was_cut_off_counts_for_nothing(base: Project) -> None:
    whole = Completion(text=texts.evaluation("P001"), model="m", stop="length")
    with pytest.raises(ModelError):
        _agent(_in_turn(whole, whole)).evaluate(view_of(base), [trial_of(base)])


def test_a_refusal_is_a_failure_and_is_not_argued_with(base: Project) -> None:
    model = _in_turn(REFUSAL, texts.nothing())
    with pytest.raises(ModelError) as caught:
        _agent(model).propose(view_of(base))
    assert (caught.value.code, len(model.prompts)) == ("GBE461", 1)


def test_errors_of_the_client_go_up_unchanged(base: Project) -> None:
    error = ModelError("GBE461", is_final=True, model="x")

    def speak(_prompt: ModelPrompt) -> str:
        raise error

    with pytest.raises(ModelError) as caught:
        _agent(speak).propose(view_of(base))
    assert caught.value is error


def test_evaluations_are_asked_for_four_at_a_time(base: Project) -> None:
    model = Recorder()
    trials = [trial_of(base, proposal_id=f"P{number:03}") for number in range(1, 10)]
    votes = _agent(model, "Stock", max_output_tokens=8192).evaluate(view_of(base, "Stock"), trials)
    assert [vote.proposal_id for vote in votes] == [trial.proposal.proposal_id for trial in trials]
    assert [len(asked_in(prompt).proposals) for prompt in model.prompts] == [4, 4, 1]


def test_of_a_half_usable_answer_the_usable_half_counts(base: Project) -> None:
    half = texts.evaluation("P001", "reject") + texts.evaluation("P002", "perhaps")
    trials = [trial_of(base), trial_of(base, proposal_id="P002")]
    (vote,) = _agent(_in_turn(half, half), max_output_tokens=8192).evaluate(view_of(base), trials)
    assert (vote.proposal_id, vote.decision) == ("P001", "reject")


def test_a_failed_evaluation_is_an_abstention_and_never_an_accept(base: Project) -> None:
    trial = trial_of(base)
    question = AskEvaluations(1, "Order", (GatedProposal(trial.proposal, trial.report),))
    for text in (
        "",
        "accept",
        "## evaluation P001\nreasoning: I accept this.\n",
        "## evaluation P002\ndecision: accept\n",
    ):
        reply = answer_question(
            PreparedQuestion(_agent(lambda _prompt, text=text: text), question, view_of(base), (trial,))
        )
        assert isinstance(reply, Evaluated)
        assert reply.evaluations == ()
        assert reply.failure


def test_a_failed_proposer_proposes_nothing(base: Project) -> None:
    reply = answer_question(PreparedQuestion(_agent(lambda _prompt: "x"), AskProposals(1, "Order", 1), view_of(base)))
    assert isinstance(reply, Proposed)
    assert reply.proposals == ()
    assert reply.failure.startswith("scripted:test gave no usable answer in two attempts. There is neither")
    assert reply.failure.endswith("[GBE460]")


def test_answers_in_many_threads_are_those_of_one(base: Project) -> None:
    agent = _agent(texts.agreeable, "Stock")
    view, trials = view_of(base, "Stock"), [trial_of(base), trial_of(base, proposal_id="P002")]
    alone = agent.evaluate(view, trials)
    with ThreadPoolExecutor(8) as pool:
        assert all(votes == alone for votes in pool.map(lambda _: agent.evaluate(view, trials), range(32)))


# --- what an answer can cost -------------------------------------------------------------------


def test_the_bound_holds_for_the_worst_that_a_model_can_do(base: Project) -> None:
    view, trial = view_of(base), trial_of(base)
    trials = tuple(trial_of(base, proposal_id=f"P{number:03}") for number in range(1, 6))
    reviews = tuple(GatedProposal(one.proposal, one.report) for one in trials)
    questions = [
        (AskProposals(1, "Order", 1), ()),
        (AskRepair(1, "Order", trial.proposal, REPORT), ()),
        (AskEvaluations(1, "Order", reviews), trials),
        (AskArbitration(1, "Order", reviews[0], ()), trials[:1]),
        (None, ()),
    ]
    for question, about in questions:
        used: list[Usage] = []

        def chatter(prompt: ModelPrompt, used: list[Usage] = used) -> Completion:
            sent = (prompt.shared, prompt.own, prompt.task, *(turn.text for turn in prompt.turns))
            used.append(Usage(input_tokens=sum(len(text.encode()) for text in sent), output_tokens=1000))
            return Completion(text="## evaluation P099\n" * 50, model="m", usage=used[-1])

        agent = _agent(chatter)
        bound = agent.worst_case(question, view, about)
        if question is None:
            with pytest.raises(ModelError):
                agent.analyze(view)
        else:
            answer_question(PreparedQuestion(agent, question, view, about))
        spent = sum(used, start=Usage())
        assert 0 < len(used) <= bound.requests
        assert spent.input_tokens <= bound.input_tokens
        assert spent.output_tokens <= bound.output_tokens


def test_a_prompt_that_is_too_long_is_not_sent_and_says_what_to_do(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {
            "big.py": "from graphbus_core import GraphBusNode\n\nclass Big(GraphBusNode):\n"
            + "    x = 'yyyy'\n" * 40_000
            + "    z = 1\n",
            "pyproject.toml": "[project]\nname='x'\n",
        },
    )
    project = Project.read(ResolvedBuild(root=str(tmp_path), paths=(str(tmp_path),)), cache=False)
    speak = _in_turn()
    (agent,) = activate_agents(project.definitions, ["Big"], project.config, clients_of(speak)).values()
    for ask in (agent.analyze, agent.propose):
        with pytest.raises(ModelError) as caught:
            ask(view_of(project, "Big"))
        assert caught.value.code == "GBE462"
        assert {caught.value.is_final, caught.value.is_transient, caught.value.may_be_billed} == {False}
    assert "too long for scripted:test: it has about 15" in caught.value.sentence
    assert "`max_prompt_tokens` allows 150000, besides 8192 for the answer." in caught.value.sentence
    assert speak.prompts == []
    assert isinstance(agent, ModelAgent)
    assert agent.worst_case(None, view_of(project, "Big"), ()) == WorstCase()


def test_without_a_limit_any_prompt_is_sent(base: Project) -> None:
    agent = ModelAgent("Order", clients_of(_in_turn("## nothing")), max_prompt_tokens=0)
    assert agent.propose(view_of(base)) == ()


def test_a_question_about_nothing_costs_nothing(base: Project) -> None:
    assert _agent(texts.agreeable).worst_case(AskEvaluations(1, "Order", ()), view_of(base), ()) == WorstCase()


# --- activation --------------------------------------------------------------------------------


def test_with_models_every_class_has_an_agent_that_asks_them(base: Project) -> None:
    settings = Settings(llm=LLMConfig(max_output_tokens=77), safety=SafetyConfig(arbiter_agents=("Order",)))
    config = ResolvedBuild(root=base.config.root, paths=base.config.paths, settings=settings)
    agents = activate_agents(base.definitions, base.order.order, config, clients_of(texts.agreeable))
    assert list(agents) == ["Shelf", "Stock", "Order"]
    assert agents.arbiters == ("Order",)
    assert agents.backend == "scripted:test"
    assert agents.models == dict.fromkeys(("proposer", "evaluator", "arbiter"), "scripted:test")
    assert {one.max_output_tokens for one in agents.values() if isinstance(one, ModelAgent)} == {77}


def test_without_models_the_rules_negotiate(base: Project) -> None:
    agents = activate_agents(base.definitions, base.order.order, base.config)
    assert (agents.backend, agents.models) == ("rules", {})
