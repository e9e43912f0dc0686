"""A build with scripted models, from the first prompt to the files: repair, dispute, objection, and answers that are no use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler.memory import BuildResult
from graphbus_core.llm.client import ModelPrompt
from graphbus_core.model.config import BuildConfig, GateConfig, SafetyConfig, Settings
from graphbus_core.negotiation.backend import Backend
from tests.fakes.model_texts import (
    AskedOf,
    Recorder,
    agreeable,
    asked_in,
    clients_of,
    data_in,
    decision,
    edit,
    evaluation,
    proposal,
)
from tests.project_files import write_project

PROJECT = {
    "pyproject.toml": "[project]\nname = 'x'\nrequires-python = '>=3.11'\n",
    "agents/order.py": """
        from graphbus_core import GraphBusNode


        class Order(GraphBusNode):
            def place(self, sku: str) -> None:
                self.publish("/Order/Placed", {"sku": sku})

            def total(self, prices: list) -> float:
                return sum(prices)
        """,
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, subscribe


        class Stock(GraphBusNode):
            @subscribe("/Order/Placed")
            def on_placed(self, event):
                self.log(event["sku"])
        """,
    "agents/mail.py": """
        from graphbus_core import GraphBusNode, subscribe


        class Mail(GraphBusNode):
            @subscribe("/Order/Placed")
            def on_placed(self, event):
                self.log(event["sku"])
        """,
    "agents/judge.py": """
        from graphbus_core import GraphBusNode


        class Judge(GraphBusNode):
            IS_ARBITER = True
            SYSTEM_PROMPT = "You are fair."
        """,
}
GOOD = "def total(self, prices: list) -> float:\n    return float(sum(prices))\n"
GREEDY = "def total(self, prices: list) -> float:\n    import subprocess\n\n    return float(sum(prices))\n"


def _build(root: Path, speak: Callable[[AskedOf, ModelPrompt], str | None]) -> tuple[BuildResult, Recorder]:
    def answer(prompt: ModelPrompt) -> str:
        said = speak(asked_in(prompt), prompt)
        return agreeable(prompt) if said is None else said

    model = Recorder(answer)
    settings = Settings(safety=SafetyConfig(convergence_threshold=1), gate=GateConfig(isolation="process"))
    request = BuildConfig(
        paths=(str(root / "agents"),), enable_agents=True, settings=settings, intent="Totals are floats"
    )
    return run_build_pipeline(request, backend=Backend(clients_of(model))), model


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_project(tmp_path, PROJECT)


def _total(code: str) -> str:
    return proposal(
        "Give a float", edit("replace_symbol", "agents/order.py", "Order.total", code), affects=["Stock", "Mail"]
    )


def test_what_the_gate_refuses_goes_back_with_code_and_place_and_is_fixed(root: Path) -> None:
    def speak(asked: AskedOf, prompt: ModelPrompt) -> str | None:
        if asked.task == "propose" and asked.agent == "Order" and "What was decided" not in prompt.task:
            return _total(GREEDY)
        return _total(GOOD) if asked.task == "repair" else None

    result, model = _build(root, speak)
    (repair,) = model.of("repair")
    assert "G3." in data_in(repair, "refusal")
    assert "import subprocess" in data_in(repair, "your proposal P001")
    assert "return float(sum(prices))" in (root / "agents/order.py").read_text()
    assert "subprocess" not in (root / "agents/order.py").read_text()
    assert result.applied


@pytest.mark.parametrize(("word", "is_changed"), [("accept", True), ("reject", False)])
def test_a_dispute_goes_to_the_arbiter_who_sees_everything(word: str, is_changed: bool, root: Path) -> None:
    def speak(asked: AskedOf, prompt: ModelPrompt) -> str | None:
        if asked.task == "propose" and asked.agent == "Order" and "What was decided" not in prompt.task:
            return _total(GOOD)
        if asked.task == "evaluate" and asked.agent == "Mail":
            return evaluation("P001", "reject", "I fear floats.", concern=["rounding"])
        return decision("P001", word, "I have weighed it.") if asked.task == "arbitrate" else None

    result, model = _build(root, speak)
    (prompt,) = model.of("arbitrate")
    assert asked_in(prompt).agent == "Judge"
    assert data_in(prompt, "about you") == "You are fair.\n"
    assert "title: Give a float" in data_in(prompt, "proposal P001")
    said = data_in(prompt, "evaluations")
    assert "I fear floats." in said
    assert "concern: rounding" in said
    assert "Stock: accept" in said
    assert bool(result.applied) is is_changed
