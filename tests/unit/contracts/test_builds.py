"""Two builds compared: nothing without a difference, and no difference without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from graphbus_core import store
from graphbus_core.cli.diff import GROUPS, bare, compare
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.artifacts import BuildArtifacts, NegotiationsArtifact
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store import writing
from graphbus_core.store.migration import load_any
from tests.fakes.frozen_artifacts import FROZEN, SAMPLES


def _built(sample: str) -> BuildArtifacts:
    return load_any(FROZEN / sample / "built")[0]


EVERYTHING = _built("format_1/every_shape")
NEGOTIATED = _built("format_1/negotiated")


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_build_does_not_differ_from_itself(sample: str) -> None:
    assert compare(_built(sample), _built(sample)) == ()


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


def _signed(artifacts: BuildArtifacts) -> BuildArtifacts:
    parts = {name: writing.encode(getattr(artifacts, name.removesuffix(".json"))) for name in store.ARTIFACTS}
    assert artifacts.manifest is not None
    digests = {name: sha256_hex(each) for name, each in parts.items()}
    return msgspec.structs.replace(artifacts, manifest=msgspec.structs.replace(artifacts.manifest, artifacts=digests))


@pytest.mark.slow
@pytest.mark.parametrize("artifacts", [EVERYTHING, NEGOTIATED], ids=["every shape", "negotiated"])
def test_each_single_value_that_differs_is_told(artifacts: BuildArtifacts) -> None:
    """Change one value after the other, whatever it is; a build of another value must not look the same."""
    signed = _signed(artifacts)
    mutations = [_signed(other) for other in _mutations(artifacts) if other.manifest and other != artifacts]
    told = [
        {change.name for change in compare(signed, other)} - {*store.ARTIFACTS}
        for other in mutations
        if other != signed
    ]
    assert all(told)  # the digest alone would not say what it is
    assert len(mutations) > 300


def test_a_digest_that_nothing_explains_is_told() -> None:
    assert NEGOTIATED.manifest is not None
    digests = {**NEGOTIATED.manifest.artifacts, "graph.json": "0"}
    other = msgspec.structs.replace(
        NEGOTIATED, manifest=msgspec.structs.replace(NEGOTIATED.manifest, artifacts=digests)
    )
    assert _told(NEGOTIATED, other) == [("build", "changed", "graph.json")]


# --- how it is told -------------------------------------------------------------------------------


def _told(old: BuildArtifacts, new: BuildArtifacts) -> list[tuple[str, str, str]]:
    return [(change.group, change.sign, change.name) for change in compare(old, new)]


def test_an_agent_that_is_new_or_gone_is_one_change_and_its_nodes_none() -> None:
    agents = NEGOTIATED.agents.agents
    fewer = msgspec.structs.replace(
        NEGOTIATED,
        agents=msgspec.structs.replace(NEGOTIATED.agents, agents=agents[:-1]),
        graph=msgspec.structs.replace(NEGOTIATED.graph, nodes=NEGOTIATED.graph.nodes[:-1]),
    )
    gone = next(iter({each.name for each in agents} - {each.name for each in agents[:-1]}))
    renamed = {*NEGOTIATED.graph.nodes} - {*NEGOTIATED.graph.nodes[:-1]} == {gone}
    told = [each for each in _told(NEGOTIATED, fewer) if each[0] != "order"]
    assert told == [("agents", "removed", gone)]
    assert [each for each in _told(fewer, NEGOTIATED) if each[0] != "order"] == [("agents", "added", gone)]
    assert (("order", "changed", "nodes") in _told(NEGOTIATED, fewer)) != renamed


def test_text_that_stands_elsewhere_has_moved_and_text_that_says_something_else_has_changed() -> None:
    agent = EVERYTHING.agents.agents[0]
    method = agent.methods[0]
    below = SourceSpan(method.span.path, method.span.line + 7, 0, method.span.end_line + 7, 1)
    moved, renamed = (
        msgspec.structs.replace(
            EVERYTHING,
            agents=msgspec.structs.replace(
                EVERYTHING.agents,
                agents=(
                    msgspec.structs.replace(agent, methods=(each, *agent.methods[1:])),
                    *EVERYTHING.agents.agents[1:],
                ),
            ),
        )
        for each in (
            msgspec.structs.replace(method, span=below),
            msgspec.structs.replace(method, span=below, doc="New."),
        )
    )
    name = f"{agent.name}.{method.name}"
    assert _told(EVERYTHING, moved) == [("methods", "moved", name)]
    assert _told(EVERYTHING, renamed) == [("methods", "changed", name)]


def test_groups_come_in_their_order() -> None:
    told = [GROUPS.index(change.group) for change in compare(_built("format_1/orders"), NEGOTIATED)]
    assert told == sorted(told)
    assert len(set(told)) > 6


def test_what_an_old_format_does_not_say_is_not_compared() -> None:
    assert NEGOTIATED.manifest is not None
    said = msgspec.structs.replace(NEGOTIATED.manifest, imports={"a.py": "0"}, third_party=("numpy",))
    other = msgspec.structs.replace(NEGOTIATED, manifest=said)
    assert _told(NEGOTIATED, other) == [("packages", "added", "numpy"), ("imports", "added", "a.py")]
    assert compare(NEGOTIATED, other, frozenset({"imports", "third_party"})) == ()


def test_a_second_part_of_the_same_name_gets_a_number() -> None:
    agent = EVERYTHING.agents.agents[0]
    twice = msgspec.structs.replace(agent, methods=(*agent.methods, agent.methods[0]))
    new = msgspec.structs.replace(
        EVERYTHING, agents=msgspec.structs.replace(EVERYTHING.agents, agents=(twice, *EVERYTHING.agents.agents[1:]))
    )
    assert _told(EVERYTHING, new) == [("methods", "added", f"{agent.name}.{agent.methods[0].name} (2)")]


def test_artifacts_in_memory_have_no_manifest_to_compare() -> None:
    bare_build = msgspec.structs.replace(NEGOTIATED, manifest=None)
    assert compare(bare_build, NEGOTIATED) == ()


def test_a_place_is_no_content() -> None:
    agent = EVERYTHING.agents.agents[0]
    assert bare(agent)["span"] is None
    assert bare((agent.span, 1)) == [None, 1]
