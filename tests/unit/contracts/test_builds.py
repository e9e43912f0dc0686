"""Two builds compared: nothing without a difference, and no difference without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from graphbus_core.cli.diff import compare_builds
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.artifacts import AgentsArtifact, NegotiationsArtifact
from graphbus_core.store import BuildArtifacts
from graphbus_core.store.migration import load_any
from tests.fakes.frozen_artifacts import FROZEN, SAMPLES


def _built(sample: str) -> BuildArtifacts:
    return load_any(FROZEN / sample / "built")[0]


EVERYTHING = _built("format_1/every_shape")
NEGOTIATED = _built("format_1/negotiated")


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_build_does_not_differ_from_itself(sample: str) -> None:
    assert compare_builds(_built(sample), _built(sample)) == ()


# --- every field is told --------------------------------------------------------------------------


def _mutations(value: Any) -> Iterator[Any]:
    """Give the value with one thing in it changed, for each thing in it."""
    if value == NegotiationsArtifact():
        yield NEGOTIATED.negotiations
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            for other in _mutations(getattr(value, name)):
                yield msgspec.structs.replace(value, **{name: other})
    elif isinstance(value, dict):
        for key, part in value.items():
            yield {other: each for other, each in value.items() if other != key}
            yield from ({**value, key: other} for other in _mutations(part))
        yield {**value, "further": "1"}
    elif isinstance(value, tuple):
        for position, part in enumerate(value):
            yield (*value[:position], *value[position + 1 :])
            yield from ((*value[:position], other, *value[position + 1 :]) for other in _mutations(part))
    else:
        yield _other(value)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value or ''}x"


@pytest.mark.slow
@pytest.mark.parametrize("artifacts", [EVERYTHING, NEGOTIATED], ids=["every shape", "negotiated"])
def test_each_single_value_that_differs_is_told(artifacts: BuildArtifacts) -> None:
    """Change one value after the other, whatever it is; a build of another value must not look the same."""
    mutations = [other for other in _mutations(artifacts) if other.manifest and other != artifacts]
    followers = [other for other in mutations if other.manifest.artifacts == artifacts.manifest.artifacts]
    assert len(followers) > 300
    assert all(compare_builds(artifacts, other) for other in followers)


# --- how it is told -------------------------------------------------------------------------------


def _replaced(artifacts: BuildArtifacts, *agents: AgentDefinition) -> BuildArtifacts:
    return msgspec.structs.replace(artifacts, agents=AgentsArtifact(agents))


def _told(old: BuildArtifacts, new: BuildArtifacts) -> list[tuple[str, str]]:
    return [(change.sign, " ".join(change.path)) for change in compare_builds(old, new)]


def test_an_agent_that_is_new_or_gone_is_one_change() -> None:
    agents = NEGOTIATED.agents.agents
    fewer = _replaced(NEGOTIATED, *agents[:-1])
    assert _told(NEGOTIATED, fewer) == [("removed", f"agents {agents[-1].name}")]
    assert _told(fewer, NEGOTIATED) == [("added", f"agents {agents[-1].name}")]


def test_text_that_stands_elsewhere_has_moved_and_text_that_says_something_else_has_changed() -> None:
    agent, *others = EVERYTHING.agents.agents
    method, *methods = agent.methods
    span = SourceSpan(method.span.path, method.span.line + 7, 0, method.span.end_line + 7, 1)
    told = [
        _told(EVERYTHING, _replaced(EVERYTHING, msgspec.structs.replace(agent, methods=(each, *methods)), *others))
        for each in (msgspec.structs.replace(method, span=span), msgspec.structs.replace(method, doc="New."))
    ]
    name = f"agents {agent.name} methods {method.name}"
    assert told == [[("moved", name)], [("changed", f"{name} doc")]]


def test_what_an_old_format_does_not_say_is_not_compared() -> None:
    assert NEGOTIATED.manifest is not None
    said = msgspec.structs.replace(NEGOTIATED.manifest, imports={"a.py": "0"}, third_party=("numpy",))
    other = msgspec.structs.replace(NEGOTIATED, manifest=said)
    assert _told(NEGOTIATED, other) == [("added", "manifest imports"), ("added", "manifest third_party")]
    assert compare_builds(NEGOTIATED, other, frozenset({"imports", "third_party"})) == ()


def test_a_second_part_of_the_same_name_gets_a_number() -> None:
    agent, *others = EVERYTHING.agents.agents
    twice = msgspec.structs.replace(agent, methods=(*agent.methods, agent.methods[0]))
    name = f"agents {agent.name} methods {agent.methods[0].name} (2)"
    assert _told(EVERYTHING, _replaced(EVERYTHING, twice, *others)) == [("added", name)]
