"""Edges, topics, order, circles."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.compiler.graph import AgentGraph, build_graph, components, compute_order, find_circle
from graphbus_core.model.agent import (
    AgentDefinition,
    Call,
    Dependency,
    Publication,
    SourceSpan,
    Subscription,
    TopicDefinition,
)
from graphbus_core.model.artifacts import Edge
from graphbus_core.schema.types import INT, STR, Field, Schema


def _span(path: str, line: int = 1) -> SourceSpan:
    return SourceSpan(path, line, 0, line, 1)


def _agent(
    name: str,
    *,
    needs: str = "",
    says: str = "",
    hears: str = "",
    calls: str = "",
    arbiter: bool = False,
    path: str = "",
) -> AgentDefinition:
    span = _span(path or f"{name}.py")
    return AgentDefinition(
        name=name,
        module=name,
        path=span.path,
        span=span,
        name_span=span,
        is_arbiter=arbiter,
        dependencies=tuple(Dependency(other, span) for other in needs.split()),
        publications=tuple(Publication(topic=topic, method="f", span=span) for topic in says.split()),
        subscriptions=tuple(Subscription(topic=topic, method="f", span=span, shape="event") for topic in hears.split()),
        calls=tuple(Call(other, "f", span) for other in calls.split()),
    )


@pytest.mark.parametrize(
    ("agents", "order"),
    [
        ([], []),
        ([_agent("B"), _agent("A")], [["A", "B"]]),
        ([_agent("A", needs="B"), _agent("B")], [["B"], ["A"]]),
        ([_agent("A", needs="C"), _agent("B"), _agent("C")], [["B", "C"], ["A"]]),
        ([_agent("A", hears="/T"), _agent("B", says="/T")], [["B"], ["A"]]),
        ([_agent("A", hears="/*"), _agent("B", says="/T")], [["B"], ["A"]]),
        ([_agent("A", says="/1", hears="/2"), _agent("B", says="/2", hears="/1")], [["A", "B"]]),
        ([_agent("A", says="/1", hears="/2", needs="B"), _agent("B", says="/2", hears="/1")], [["B"], ["A"]]),
        ([_agent("A", needs="B"), _agent("B", hears="/T"), _agent("C", says="/T", hears="/U"), _agent("D", says="/U")],
         [["D"], ["C"], ["B"], ["A"]]),
        ([_agent("A", arbiter=True), _agent("B"), _agent("C", needs="B")], [["B"], ["C"], ["A"]]),
        ([_agent("A", arbiter=True, says="/T"), _agent("B", hears="/T")], [["B"], ["A"]]),
        ([_agent("A", arbiter=True), _agent("B", needs="A"), _agent("C")], [["A", "C"], ["B"]]),
        ([_agent("A", arbiter=True, needs="B"), _agent("B", arbiter=True), _agent("C")], [["C"], ["B"], ["A"]]),
        ([_agent("A", calls="B"), _agent("B")], [["A", "B"]]),
        ([_agent("A", needs="B"), _agent("B", needs="A"), _agent("C", needs="A")], [["A", "B"], ["C"]]),
        ([_agent("A", needs="A")], [["A"]]),
    ],
)  # fmt: skip
def test_the_order_of_activation(agents: list[AgentDefinition], order: list[list[str]]) -> None:
    found = compute_order(build_graph(agents))
    assert [list(group) for group in found.generations] == order
    assert list(found.order) == [name for group in order for name in group]


def test_every_kind_of_edge() -> None:
    graph = build_graph(
        [
            _agent("A", says="/T /Only", hears="/T"),
            _agent("B", needs="A", hears="/T /Heard", calls="A Nobody"),
            _agent("C", hears="/**"),
        ]
    )
    assert graph.edges == (
        Edge("A", "A", "topic", "/T"),
        Edge("A", "B", "call", "f"),
        Edge("A", "B", "depends_on"),
        Edge("A", "B", "topic", "/T"),
        Edge("A", "C", "topic", "/Only"),
        Edge("A", "C", "topic", "/T"),
    )
    assert (graph.neighbours("A"), graph.providers("B"), graph.consumers("A")) == (("B", "C"), ("A",), ("B", "C"))
    assert graph.neighbours("Nobody") == ()
    assert [topic.name for topic in graph.topics] == ["/Heard", "/Only", "/T"]
    assert graph.topics[-1] == TopicDefinition(name="/T", publishers=("A",), subscribers=("A", "B", "C"))


def test_the_graph_is_a_networkx_graph_when_asked(tmp_path: Path) -> None:
    graph = build_graph([_agent("A"), _agent("B", needs="A", hears="/T"), _agent("C", says="/T")])
    assert sorted(graph.graph.nodes) == ["A", "B", "C"]
    assert sorted(graph.graph.edges(data=True)) == [
        ("A", "B", {"kind": "depends_on", "label": ""}),
        ("C", "B", {"kind": "topic", "label": "/T"}),
    ]
    assert graph.get_agent_activation_order() == ("A", "C", "B")


def test_topics_that_go_round_are_told_and_no_error() -> None:
    graph = build_graph(
        [
            _agent("A", says="/1", hears="/2"),
            _agent("B", says="/2", hears="/1"),
            _agent("C", says="/3", hears="/3"),
            _agent("D", hears="/1"),
        ]
    )
    assert graph.errors == ()
    assert compute_order(graph).topic_cycles == (("A", "B"), ("C",))


def test_what_is_wrong_with_a_graph_is_collected() -> None:
    graph = build_graph(
        [
            _agent("Twin", path="b.py"),
            _agent("Twin", path="a.py"),
            _agent("Lost", needs="Tvin Nowhere"),
            _agent("One", needs="Two"),
            _agent("Two", needs="Three"),
            _agent("Three", needs="One Two"),
            _agent("Selfish", needs="Selfish"),
        ]
    )
    assert [(error.code, str(error.where), error.sentence) for error in graph.errors] == [
        ("GBE210", "b.py:1:1", "Two agents are named Twin; the other one is at a.py:1:1."),
        ("GBE211", "Lost.py:1:1", "Lost depends on Tvin, which is not an agent of this graph. Did you mean 'Twin'?"),
        ("GBE211", "Lost.py:1:1", "Lost depends on Nowhere, which is not an agent of this graph."),
        ("GBE212", "One.py:1:1", "The dependencies of these agents form a cycle: One → Two → Three → One."),
        ("GBE212", "Selfish.py:1:1", "The dependencies of these agents form a cycle: Selfish → Selfish."),
    ]
    assert set(graph.nodes) == {"Twin", "Lost", "One", "Two", "Three", "Selfish"}


@pytest.mark.parametrize(
    ("sent", "schema"),
    [
        ([(False, None)], None),
        ([(False, Schema((Field("a", INT),)))], Schema((Field("a", INT),))),
        ([(False, Schema((Field("a", INT),))), (False, Schema((Field("a", INT),)))], Schema((Field("a", INT),))),
        ([(False, Schema((Field("a", INT),))), (False, Schema((Field("a", STR),)))], None),
        ([(False, Schema((Field("a", INT),))), (False, None)], None),
        ([(True, Schema((Field("a", INT),))), (False, Schema((Field("b", STR),)))], Schema((Field("a", INT),))),
        ([(True, Schema((Field("a", INT),))), (True, Schema((Field("a", STR),)))], None),
        ([(True, None), (False, Schema((Field("a", INT),)))], None),
    ],
)
def test_a_topic_has_the_schema_that_is_declared_or_that_all_send(
    sent: list[tuple[bool, Schema | None]], schema: Schema | None
) -> None:
    agents = [
        AgentDefinition(
            name=f"A{number}",
            module="m",
            path="m.py",
            span=_span("m.py", number + 1),
            name_span=_span("m.py", number + 1),
            publications=(
                Publication(topic="/T", method="f", span=_span("m.py"), payload=payload, is_declared=is_declared),
            ),
        )
        for number, (is_declared, payload) in enumerate(sent)
    ]
    assert build_graph(agents).topics[0].schema == schema


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    names = [f"A{number:05}" for number in range(5_000)]
    agents = [_agent(name, needs=before) for name, before in zip(names, ["", *names], strict=False)]
    assert compute_order(build_graph(agents)).order == tuple(names)


Edges = dict[str, set[str]]


@st.composite
def _edges(draw: st.DrawFn) -> Edges:
    names = [f"N{number}" for number in range(draw(st.integers(1, 9)))]
    return {name: draw(st.sets(st.sampled_from(names), max_size=4)) for name in names}


def _reaches(needs: Edges, start: str) -> set[str]:
    seen: set[str] = set()
    pending = list(needs[start])
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(needs[name])
    return seen


@given(_edges())
def test_components_are_the_groups_that_reach_each_other(needs: Edges) -> None:
    found = components(needs)
    reach = {name: _reaches(needs, name) for name in needs}
    expected = {tuple(sorted({name} | {other for other in reach[name] if name in reach[other]})) for name in needs}
    assert set(found) == expected
    assert sorted(name for group in found for name in group) == sorted(needs)
    for group in found:
        if len(group) > 1:
            circle = find_circle(group, needs)
            assert circle[0] == circle[-1] == group[0]
            assert all(after in needs[before] for before, after in pairwise(circle))


@given(_edges(), _edges(), st.sets(st.integers(0, 8)))
def test_an_order_is_complete_and_respects_what_can_be_respected(needs: Edges, heard: Edges, judges: set[int]) -> None:
    names = sorted(needs)
    heard = {name: {other for other in heard.get(name, ()) if other in needs} for name in names}
    arbiters = frozenset(f"N{number}" for number in judges if f"N{number}" in needs)
    edges = [Edge(provider, name, "depends_on") for name in names for provider in needs[name]]
    edges += [Edge(publisher, name, "topic", "/T") for name in names for publisher in heard[name]]
    found = compute_order(AgentGraph(tuple(names), tuple(edges), (), arbiters))
    assert sorted(found.order) == names
    assert [name for group in found.generations for name in group] == list(found.order)
    place = {name: position for position, name in enumerate(found.order)}
    is_acyclic = all(name not in _reaches(needs, name) for name in names)
    if is_acyclic:
        assert all(place[provider] < place[name] for name in names for provider in needs[name])
        wanted = {other for name in names if name not in arbiters for other in _reaches(needs, name)}
        free = arbiters - wanted
        assert set(found.order[len(names) - len(free) :]) == free
