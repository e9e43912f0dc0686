"""The engine and the agents of seed 002 by their names: they negotiate for real, in memory, with models by script."""

from __future__ import annotations

import re

import pytest

from graphbus_core.llm.client import ModelPrompt, ScriptedClient
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import CodeChange, Proposal, SchemaChange
from graphbus_core.negotiation.protocol import ProtocolError
from graphbus_core.negotiation.seed_names import AgentBus, AgentMemory, LLMAgent, NegotiationEngine

HELLO = """
from graphbus_core import GraphBusNode

class HelloService(GraphBusNode):
    SYSTEM_PROMPT = "I greet."

    def generate_message(self):
        self.publish("/Hello/Said", {"message": "hello"})
"""
PRINTER = """
from graphbus_core import GraphBusNode, subscribe

class PrinterService(GraphBusNode):
    @subscribe("/Hello/Said")
    def print_message(self, event):
        self.log(event["message"])
"""
ARBITER = """
from graphbus_core import GraphBusNode

class ArbiterService(GraphBusNode):
    IS_ARBITER = True
"""
ANALYSIS = "## analysis\nresponsibility: greets people\ndependency: PrinterService\n"
PROPOSAL = """\
## proposal
title: Say it louder
intent: refactor_method
reason: Nobody hears it.
affects: PrinterService
### edit search_replace hello_service.py HelloService.generate_message
```old
        self.publish("/Hello/Said", {"message": "hello"})
```
```new
        self.publish("/Hello/Said", {"message": "HELLO"})
```
"""


class Models:
    """A model that answers each kind of question from this table, and remembers the prompts."""

    def __init__(self, **decisions: str) -> None:
        self.decisions = decisions
        self.prompts: list[ModelPrompt] = []

    def __call__(self, prompt: ModelPrompt) -> str:
        self.prompts.append(prompt)
        me = re.findall(r"You speak for the class (\w+)", prompt.own)[0]
        if "## decision" in prompt.task:
            return f"## decision P001\ndecision: {self.decisions[me]}\nreasoning: it is safe\n"
        if "## evaluation" in prompt.task:
            return f"## evaluation P001\ndecision: {self.decisions[me]}\nreasoning: as I see it\n"
        return PROPOSAL if "propos" in prompt.task.lower() else ANALYSIS


def cast(models: Models, **safety: object) -> tuple[NegotiationEngine, dict[str, LLMAgent]]:
    engine = NegotiationEngine(SafetyConfig(**safety))
    sources = {"HelloService": HELLO, "PrinterService": PRINTER, "ArbiterService": ARBITER}
    bus, client = AgentBus(), ScriptedClient(models)
    agents = {name: LLMAgent(name, f"I am {name}.", text, bus, engine, client) for name, text in sources.items()}
    return engine, agents


def test_a_proposal_becomes_a_commit_of_the_real_engine() -> None:
    engine, agents = cast(Models(PrinterService="accept"))
    proposal = agents["HelloService"].propose_change("refactor_method", {"why": "it is quiet"})
    assert proposal is not None
    assert engine.can_agent_propose("HelloService") == (True, "")
    assert engine.add_proposal(proposal)
    (commit,) = engine.create_commits(agents)
    assert (commit.proposer, commit.evaluators, commit.consensus_type) == (
        "HelloService",
        ("PrinterService",),
        "unanimous",
    )
    assert '+        self.publish("/Hello/Said", {"message": "HELLO"})' in commit.resolution["hello_service.py"]
    assert [(entry.actor, entry.action) for entry in commit.negotiation_log] == [
        ("HelloService", "propose"),
        ("gate", "check"),
        ("PrinterService", "accept"),
    ]
    assert b'"HELLO"' in engine.workspace.files.file_data("hello_service.py")
    assert (engine.total_files_modified, engine.proposal_counts) == (1, {"HelloService": 1})
    assert engine.proposals["P001"].code_change.diff.startswith("--- a/hello_service.py\n+++ b/hello_service.py\n")


def test_the_prompts_hold_intent_context_and_system_prompt() -> None:
    models = Models()
    _, agents = cast(models)
    agents["PrinterService"].propose_change("add_validation", {"limit": 3})
    assert "add_validation" in models.prompts[0].task
    assert '{"limit":3}' in models.prompts[0].task
    assert "I am PrinterService." in models.prompts[0].own


def test_a_tie_goes_to_the_arbiter_whose_decision_binds() -> None:
    models = Models(PrinterService="accept", LoggerService="reject", ArbiterService="accept")
    engine, agents = cast(models, electorate="all")
    logger = PRINTER.replace("Printer", "Logger")
    agents["LoggerService"] = LLMAgent("LoggerService", "", logger, AgentBus(), engine, ScriptedClient(models))
    proposal = agents["HelloService"].propose_change("refactor_method", {})
    assert proposal is not None
    assert engine.add_proposal(proposal)
    (commit,) = engine.create_commits(agents)
    assert commit.consensus_type == "arbiter"
    assert commit.evaluators[-1] == "ArbiterService (ARBITER)"
    decision = engine.evaluations["P001"][-1]
    assert (decision.evaluator, decision.agent, decision.confidence) == (
        "ArbiterService (ARBITER)",
        "ArbiterService",
        1.0,
    )


@pytest.mark.parametrize(
    ("safety", "reason"),
    [
        ({"max_proposals_per_agent": 0}, "max_proposals_per_agent is 0"),
        ({"protected_files": ("hello_service.py",)}, "hello_service.py is protected by protected_files"),
    ],
)
def test_a_limit_refuses_a_proposal_and_says_which_one(safety: dict[str, object], reason: str) -> None:
    engine, _ = cast(Models(), **safety)
    change = CodeChange(file_path="hello_service.py", target="", change_type="modify", old_code="a", new_code="b")
    assert not engine.add_proposal(
        Proposal(
            proposal_id="x",
            round=1,
            src="HelloService",
            dst=None,
            intent="x",
            code_change=change,
            schema_change=SchemaChange(method="/Hello/Said"),
        )
    )
    assert engine.last_refusal == reason


def test_rounds_without_proposals_end_in_convergence() -> None:
    engine, agents = cast(Models())
    assert engine.create_commits(agents) == ()
    assert engine.rounds_without_proposals == 1
    assert engine.create_commits(agents) == ()
    assert engine.ending is not None
    assert engine.ending.reason == "convergence"
    assert engine.can_agent_propose("HelloService") == (False, "the negotiation has ended: convergence")
    assert engine.create_commits(agents) == ()


def test_what_the_gate_refuses_is_rejected_without_a_question() -> None:
    models = Models()
    _, agents = cast(models)
    change = CodeChange(
        file_path="elsewhere.py",
        target="",
        change_type="modify",
        operation="search_replace",
        old_code="a",
        new_code="b",
    )
    wrong = Proposal(proposal_id="x", round=1, src="HelloService", intent="x", code_change=change)
    vote = agents["PrinterService"].evaluate_proposal(wrong)
    assert (vote.decision, vote.reasoning.partition(":")[0], models.prompts) == ("reject", "G0.not-agent-file", [])


def test_an_analysis_is_stored_under_the_name_of_the_seed() -> None:
    _, agents = cast(Models())
    analysis = agents["HelloService"].analyze_code()
    assert analysis["responsibilities"] == ["greets people"]
    assert agents["HelloService"].memory.get("code_analysis") == analysis
    memory = AgentMemory()
    memory.store("a", 1)
    assert (memory.get("a"), memory.get("b")) == (1, None)


def test_an_agent_cannot_join_twice_or_late() -> None:
    engine, _ = cast(Models())
    with pytest.raises(ProtocolError, match="HelloService is added twice"):
        engine.add_agent("HelloService", HELLO)
    assert engine.workspace.files.project.agent("PrinterService")
    with pytest.raises(ProtocolError):
        engine.add_agent("Late", HELLO)


def test_a_text_is_generated_by_any_client() -> None:
    client = ScriptedClient(lambda prompt: f"answer to {prompt.task}")
    assert client.generate("a question") == "answer to a question"
