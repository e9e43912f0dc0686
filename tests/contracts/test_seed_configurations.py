"""Both pipelines take the configurations that the second document of GraphBus prints, to the letter."""

from __future__ import annotations

import pytest

from graphbus_core.build import BuildConfig, LLMConfig, SafetyConfig, run_build_pipeline
from graphbus_core.errors import UsageError
from graphbus_core.llm.providers import parse_model, providers_of
from graphbus_core.runtime import RuntimeConfig, run_runtime_pipeline
from graphbus_core.settings import resolve_build
from tests.conftest import Project

KEY = "sk-ant-very-secret"
AGENT = """
from graphbus_core import GraphBusNode, subscribe

class Orders(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_order(self, event):
        self.log("placed")
"""
MAIN = "def run(graph):\n    graph.publish('/Order/Placed', {})\n    return 'done'\n"


@pytest.fixture
def config(project: Project, monkeypatch: pytest.MonkeyPatch) -> BuildConfig:
    root = project({"my_project/agents/orders.py": AGENT, "my_project/main.py": MAIN, "pyproject.toml": ""})
    monkeypatch.chdir(root)
    return BuildConfig(
        root_package="my_project.agents",
        llm_config=LLMConfig(model="claude-sonnet-4"),
        refactoring_goals=["align_schemas", "add_validation"],
        safety_config=SafetyConfig(
            max_negotiation_rounds=10,
            max_proposals_per_agent=3,
            convergence_threshold=2,
            require_arbiter_on_conflict=True,
            max_total_file_changes=10,
            protected_files=[],
        ),
    )


def test_both_modes_run_what_the_seed_prints(config: BuildConfig) -> None:
    built = run_build_pipeline(config)
    assert [agent.name for agent in built.artifacts.agents.agents] == ["Orders"]
    assert built.config.refactoring_goals == ("align_schemas", "add_validation")
    assert built.config.safety_config.max_total_file_changes == 10
    ran = run_runtime_pipeline(RuntimeConfig(entrypoint="my_project.main:run"))
    assert (ran.value, ran.statistics.delivered) == ("done", 1)


def test_the_model_of_the_seed_is_one_of_anthropic(config: BuildConfig) -> None:
    llm = resolve_build(config).llm_config
    assert str(parse_model(llm.model, providers_of(llm))) == "anthropic:claude-sonnet-4"


def test_a_key_is_refused_with_the_place_where_it_belongs_and_is_not_repeated() -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY") as caught:
        LLMConfig(model="claude-sonnet-4", api_key=KEY)
    assert caught.value.code == "GBE154"
    assert KEY not in f"{caught.value} {caught.value!r}"


def test_a_key_in_a_file_is_refused_and_not_repeated(project: Project) -> None:
    root = project({"agents/orders.py": AGENT, "pyproject.toml": f'[tool.graphbus.llm]\napi_key = "{KEY}"\n'})
    with pytest.raises(UsageError) as caught:
        resolve_build(BuildConfig(paths=[root / "agents"]))
    assert caught.value.code == "GBE103"
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"safety_config": SafetyConfig(max_negotiation_rounds="ten")},
            "BuildConfig.safety_config.max_negotiation_rounds",
        ),
        ({"llm_config": "claude-sonnet-4"}, "BuildConfig.llm_config cannot be used"),
        (
            {"refactoring_goals": [1]},
            r"BuildConfig.refactoring_goals\[0\] cannot be used: expected `str`, got `int`",
        ),
    ],
)
def test_wrong_values_are_refused_in_words(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        run_build_pipeline(BuildConfig(**wrong))
    assert caught.value.code == "GBE146"


def test_names_that_there_are_not_and_wrong_values_of_a_run_are_refused_in_words() -> None:
    with pytest.raises(TypeError, match="goals"):
        BuildConfig(goals=["x"])
    with pytest.raises(UsageError, match=r"RuntimeConfig.entrypoint cannot be used: expected `str`, got `int`"):
        run_runtime_pipeline(RuntimeConfig(entrypoint=3))
