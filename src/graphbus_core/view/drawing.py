"""Draws a graph for the page: boxes of agents in layers, lines with their verdicts, and the same by group for large graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.errors import GraphBusError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import Artifacts, Edge, EdgeKind
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.topics import matches
from graphbus_core.settings import resolve_build
from graphbus_core.view.layout import Box, Gaps, Pair, Way, curve_of, lay_out_graph, node_width
from graphbus_core.view.messages import (
    OUTSIDE,
    AgentBox,
    GraphPicture,
    Group,
    Groups,
    Handler,
    Line,
    Origin,
    TopicInfo,
    Verdict,
)

_LEAST_WIDTH, _LONGEST_NAME, _HEIGHT = 150, 26, 56
_WIDE = Gaps(190, 40)
_WIDE_UP_TO = 24  # with more agents the lines have no room for their topics anyway
_BETWEEN_PARALLELS, _LOOP = 14, 26
_BY_WEIGHT: tuple[Verdict, ...] = ("proven", "unknown", "broken")
_NO_AGENTS = "This graph has no agents. A class that extends GraphBusNode becomes one with the next `graphbus build`."
_NOT_READ = "The sources were not read, so it is not known whether both ends fit."


class Judged(NamedTuple):
    """The verdict about an edge, and why it is not proven."""

    verdict: Verdict = "unknown"
    doubt: str = _NOT_READ


Verdicts = Mapping[Edge, Judged]


def read_verdicts(artifacts: Artifacts, folder: str | Path) -> Verdicts:
    """Return the verdict about each edge, as `graphbus check` counts them; empty if the sources cannot be read.

    Args:
        artifacts: The artifacts; their manifest says where the sources are.
        folder: Their folder.
    """
    if artifacts.manifest is None:
        return {}
    from graphbus_core.compiler import rules
    from graphbus_core.compiler.project import Project
    from graphbus_core.compiler.rules.wiring import Wiring
    from graphbus_core.contracts.edges import ContractEdge, validate_contracts

    def edge_of(found: ContractEdge) -> Edge:
        agent, _, method = found.target.partition(".")
        if found.kind == "call":
            return Edge(agent, found.source, "call", method)
        if found.kind == "depends_on":
            return Edge(agent, found.source, "depends_on")
        return Edge(found.source, agent, "topic", found.topic)

    try:
        root = store.project_root(folder, artifacts.manifest)
        paths = tuple(str(Path(root, each)) for each in artifacts.manifest.roots)
        project = Project.read(resolve_build(BuildConfig(paths=paths, dry_run=True)))
        edges = validate_contracts(Wiring(project), rules.check(project)).edges
    except (GraphBusError, OSError):
        return {}
    judged: dict[Edge, Judged] = {}
    for found in (each for each in edges if each.kind != "method"):
        problems = [each.message for each in found.findings if each.severity != "info"]
        new = Judged(found.verdict, " ".join(problems) or found.unknown)
        before = judged.setdefault(edge_of(found), new)
        if _BY_WEIGHT.index(before.verdict) < _BY_WEIGHT.index(new.verdict):
            judged[edge_of(found)] = new
    return judged


def draw_graph(
    artifacts: Artifacts, origin: Origin, verdicts: Verdicts, left_out: Mapping[str, str] | None = None
) -> GraphPicture:
    """Return the drawing of a built graph.

    Args:
        artifacts: What was built.
        origin: Passed on.
        verdicts: From `read_verdicts`; an edge that is not in it is unknown.
        left_out: Name -> why the agent does not run.
    """
    agents = {agent.name: agent for agent in artifacts.agents.agents}
    edges = [*artifacts.graph.edges, *_edges_from_outside(artifacts)]
    names = [*([OUTSIDE] if len(edges) > len(artifacts.graph.edges) else []), *artifacts.graph.activation_order]
    boxes, lines, size = _draw(names, edges, agents, verdicts)
    group_of = _group_names(agents.values())
    return GraphPicture(
        origin=origin,
        width=size[0],
        height=size[1],
        agents=tuple(_agent_box(name, boxes[name], agents, group_of, left_out or {}) for name in names),
        lines=lines,
        topics=tuple(
            TopicInfo(
                name=each.name, publishers=each.publishers, subscribers=each.subscribers, is_external=each.is_external
            )
            for each in artifacts.topics.topics
        ),
        groups=_draw_groups(edges, agents, group_of, verdicts),
        note="" if agents else _NO_AGENTS,
    )


def _edges_from_outside(artifacts: Artifacts) -> list[Edge]:
    """Return an edge from outside to each subscriber of a topic that is external or that no agent publishes to."""
    return [
        Edge(OUTSIDE, subscriber, "topic", topic.name)
        for topic in artifacts.topics.topics
        if topic.is_external or not topic.publishers
        for subscriber in topic.subscribers
    ]


def _draw(
    names: Sequence[str], edges: Sequence[Edge], agents: Mapping[str, AgentDefinition], verdicts: Verdicts
) -> tuple[Mapping[str, Box], tuple[Line, ...], tuple[int, int]]:
    """Return the boxes of the nodes, the lines between them, and width and height of the drawing."""
    widths = {name: node_width(name, _LEAST_WIDTH, _LONGEST_NAME) for name in names}
    gaps = _WIDE if len(names) <= _WIDE_UP_TO else Gaps()
    pairs = [(each.source, each.target) for each in edges if each.source != each.target]
    drawn = lay_out_graph(names, pairs, widths, gaps=gaps, height=_HEIGHT)
    lines = _lines_between(edges, drawn.boxes, drawn.ways, agents, verdicts)
    return drawn.boxes, tuple(lines), (drawn.width, drawn.height)


def _lines_between(
    edges: Sequence[Edge],
    boxes: Mapping[str, Box],
    ways: Mapping[Pair, Way],
    agents: Mapping[str, AgentDefinition],
    verdicts: Verdicts,
) -> Iterator[Line]:
    """Yield a line for each edge; those between the same two nodes stand side by side."""
    by_pair: dict[Pair, list[Edge]] = defaultdict(list)
    for edge in dict.fromkeys(edges):
        by_pair[edge.source, edge.target].append(edge)
    for pair, parallel in by_pair.items():
        for number, edge in enumerate(parallel):
            shift = round((number - (len(parallel) - 1) / 2) * _BETWEEN_PARALLELS)
            judged = verdicts.get(edge, Judged())
            yield Line(
                source=edge.source,
                target=edge.target,
                kind=edge.kind,
                topic=edge.label if edge.kind == "topic" else "",
                verdict=judged.verdict,
                doubt=judged.doubt,
                handlers=_handlers_of(agents.get(edge.target), edge),
                curve=_loop(boxes[pair[0]], shift) if pair[0] == pair[1] else curve_of(_shifted(ways[pair], shift)),
            )


def _handlers_of(agent: AgentDefinition | None, edge: Edge) -> tuple[str, ...]:
    """Return the handlers of the agent at the end of a topic edge; empty for the other kinds."""
    if agent is None or edge.kind != "topic":
        return ()
    return tuple(
        f"{agent.name}.{each.method}" for each in agent.subscriptions if each.topic and matches(each.topic, edge.label)
    )


def _shifted(way: Way, down: int) -> Way:
    (x, y), (right, bottom) = way
    return (x, y + down), (right, bottom + down)


def _loop(box: Box, shift: int) -> str:
    """Return the path of an edge from a node to itself: a loop above it."""
    left, right = box.x + box.width // 3 + shift, box.x + 2 * box.width // 3 + shift
    return f"M{left} {box.y}C{left} {box.y - _LOOP} {right} {box.y - _LOOP} {right} {box.y}"


def _agent_box(
    name: str,
    box: Box,
    agents: Mapping[str, AgentDefinition],
    group_of: Mapping[str, str],
    left_out: Mapping[str, str],
) -> AgentBox:
    """Return the box of an agent with what the page shows about it, or that of the outside."""
    agent = agents.get(name)
    if agent is None:
        doc = "Everything that publishes events from outside of the graph."
        return AgentBox(
            name=name,
            group="",
            module="",
            file="",
            line=0,
            doc=doc,
            x=box.x,
            y=box.y,
            width=box.width,
            height=box.height,
        )
    topics: dict[str, list[str]] = defaultdict(list)
    for each in agent.subscriptions:
        topics[each.method].append(each.topic)
    lines = {method.name: method.span.line for method in agent.methods}
    return AgentBox(
        name=name,
        group=group_of[name],
        module=agent.module,
        file=agent.path,
        line=agent.span.line,
        handlers=tuple(
            Handler(name=f"{name}.{method}", topics=tuple(found), line=lines.get(method, 0))
            for method, found in topics.items()
        ),
        doc=agent.doc,
        note=left_out.get(name, ""),
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
    )


# --- groups ------------------------------------------------------------------------------------


def _group_names(agents: Iterable[AgentDefinition]) -> dict[str, str]:
    """Return agent -> its group: the package of its module, or if all are in one package, the module."""
    found = list(agents)
    packages = {agent.name: agent.module.rpartition(".")[0] or agent.module for agent in found}
    return packages if len(set(packages.values())) > 1 else {agent.name: agent.module for agent in found}


def _draw_groups(
    edges: Sequence[Edge], agents: Mapping[str, AgentDefinition], group_of: Mapping[str, str], verdicts: Verdicts
) -> Groups:
    """Return the drawing of the groups; lines of the same kind between two groups are one, with their worst verdict."""
    names = [*([OUTSIDE] if any(edge.source == OUTSIDE for edge in edges) else []), *dict.fromkeys(group_of.values())]
    worst: dict[Edge, Judged] = {}
    for edge in edges:
        ends = group_of.get(edge.source, OUTSIDE), group_of.get(edge.target, OUTSIDE)
        kind: EdgeKind = edge.kind
        if ends[0] != ends[1]:
            judged, merged = verdicts.get(edge, Judged()), Edge(*ends, kind)
            worst[merged] = max(worst.get(merged, judged), judged, key=lambda each: _BY_WEIGHT.index(each.verdict))
    boxes, lines, size = _draw(names, list(worst), {}, worst)
    return Groups(
        width=size[0],
        height=size[1],
        boxes=tuple(
            Group(
                name=name,
                agents=tuple(agent for agent in agents if group_of[agent] == name),
                x=boxes[name].x,
                y=boxes[name].y,
                width=boxes[name].width,
                height=boxes[name].height,
            )
            for name in names
        ),
        lines=lines,
    )
