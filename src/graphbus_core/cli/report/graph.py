"""The graph of a session as a layered drawing of up to a hundred agents, as template values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from graphbus_core.cli.report.story import ProposalStory, Story
from graphbus_core.cli.report.template import Values
from graphbus_core.model.artifacts import Edge, EdgeKind
from graphbus_core.view.layout import Box, Pair, Way, curve_of, lay_out_graph, node_width, shorten

MOST_DRAWN = 100
_MAX_LABELLED_EDGES = 14
_MIN_NODE_WIDTH, _MAX_NAME_LENGTH, _MAX_LABEL_LENGTH = 112, 26, 30
_VERBS: dict[EdgeKind, str] = {"depends_on": "is needed by", "topic": "sends to", "call": "is called by"}
_MEANINGS: dict[EdgeKind, str] = {"depends_on": "dependency", "call": "call", "topic": "topic"}
"""The kinds of edges. If several edges connect the same agents, the kind that stands first here is drawn."""
_EDGES_UNKNOWN = "Only the agents are shown: the edges could be read neither from artifacts nor from the source files."


# --- the values of the template ----------------------------------------------------------------


def graph_values(story: Story) -> Values:
    """Return the template values of the drawing (None for too many agents), its legend and the list of agents."""
    count = len(story.agents)
    is_drawn = 0 < count <= MOST_DRAWN
    kinds = {edge.kind for edge in story.edges or ()}
    too_many = f"{count} agents are too many for a drawing; the list below shows them."
    return {
        "graph_note": too_many if not is_drawn else _EDGES_UNKNOWN if story.edges is None else "",
        "drawing": _drawing_values(story) if is_drawn else None,
        "edge_kinds": [{"kind": kind, "meaning": text} for kind, text in _MEANINGS.items() if kind in kinds],
        "agents": [_agent_values(story, name) for name in story.agents],
    }


def _drawing_values(story: Story) -> Values:
    """Return the values of the drawing: its size, a description, arrows and nodes. Parallel edges share an arrow."""
    by_pair: dict[Pair, list[Edge]] = defaultdict(list)
    for edge in story.edges or ():
        by_pair[edge.source, edge.target].append(edge)
    drawn = lay_out_graph(
        story.agents, by_pair, {name: node_width(name, _MIN_NODE_WIDTH, _MAX_NAME_LENGTH) for name in story.agents}
    )
    numbers = {name: number for number, name in enumerate(story.agents)}
    has_labels = len(by_pair) <= _MAX_LABELLED_EDGES
    return {
        "width": drawn.width,
        "height": drawn.height,
        "description": f"{len(story.agents)} agents and {len(story.edges or ())} edges. The list below has the same content.",
        "arrows": [
            {
                "source": numbers[pair[0]],
                "target": numbers[pair[1]],
                **_arrow_values(edges, drawn.ways[pair], has_labels=has_labels),
            }
            for pair, edges in by_pair.items()
        ],
        "nodes": [_node_values(story, name, number, drawn.boxes[name]) for name, number in numbers.items()],
    }


def _arrow_values(edges: Sequence[Edge], way: Way, *, has_labels: bool) -> Values:
    """Return the values of one arrow: a curve between its two ends, its kind, its label and a description in words."""
    (x, y), (right, bottom) = way
    middle = (x + right) // 2
    labels = list(dict.fromkeys(edge.label for edge in edges if edge.label)) if has_labels else []
    more = f" +{len(labels) - 1}" if len(labels) > 1 else ""
    words = dict.fromkeys(f"{edge.source} {_VERBS[edge.kind]} {_name_with_label(edge.target, edge)}" for edge in edges)
    return {
        "kind": next(kind for kind in _MEANINGS if any(edge.kind == kind for edge in edges)),
        "words": "; ".join(words),
        "curve": curve_of(way),
        "label": shorten(labels[0], _MAX_LABEL_LENGTH) + more if labels else "",
        "x": middle,
        "y": (y + bottom) // 2 - 8,
    }


def _node_values(story: Story, name: str, number: int, box: Box) -> Values:
    """Return the values of an agent in the drawing: its box, its short name and its part in the proposals."""
    is_arbiter = name in story.record.arbiters
    proposed = [case for case in story.cases if case.proposal.src == name]
    affecting = [case.name for case in story.cases if name in case.affected]
    parts = [f"proposed {', '.join(case.name for case in proposed)}"] if proposed else []
    parts += [f"affected by {', '.join(affecting)}"] if affecting else []
    return {
        "agent": name,
        "number": number,
        "short": shorten(name, _MAX_NAME_LENGTH),
        "part": "; ".join(parts) or "no proposal concerns it",
        "is_arbiter": is_arbiter,
        "is_changed": any(case.record.commit for case in proposed),
        **box._asdict(),
        "radius": 20 if is_arbiter else 8,
        "middle_x": box.x + box.width // 2,
        "middle_y": box.middle,
    }


def _agent_values(story: Story, name: str) -> Values:
    """Return the values of an agent in the list: the agents at the other ends of its edges, and its proposals."""
    edges = story.edges or ()
    return {
        "agent": name,
        "is_arbiter": name in story.record.arbiters,
        "receives": _join_unique(_name_with_label(edge.source, edge) for edge in edges if edge.target == name),
        "gives": _join_unique(_name_with_label(edge.target, edge) for edge in edges if edge.source == name),
        "concerning": proposal_links(case for case in story.cases if name in (case.proposal.src, *case.affected)),
    }


def proposal_links(cases: Iterable[ProposalStory]) -> list[Values]:
    """Return the template values of links to proposals."""
    return [{"name": case.name, "anchor": case.anchor} for case in cases]


def _name_with_label(name: str, edge: Edge) -> str:
    """Return the name of an agent, followed by the label of the edge (such as its topic) if the edge has one."""
    return f"{name} ({edge.label})" if edge.label else name


def _join_unique(texts: Iterable[str]) -> str:
    """Return the texts, each once, separated by commas; a dash if there are none."""
    return ", ".join(dict.fromkeys(texts)) or "–"
