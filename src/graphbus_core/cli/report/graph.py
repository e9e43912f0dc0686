"""The graph of a session as a layered drawing of up to a hundred agents, and the template values for it.

1. Edges that close a cycle are reversed.  2. The layer of an agent is the length of the longest path to it.  3. Each layer is
sorted by the mean position of its neighbours, in several sweeps.  4. Each layer becomes a column.  The result is deterministic.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

from graphbus_core.cli.report.story import ProposalStory, Story
from graphbus_core.cli.report.template import Values
from graphbus_core.model.artifacts import Edge, EdgeKind

Pair = tuple[str, str]
Way = tuple[tuple[int, int], tuple[int, int]]
MOST_DRAWN = 100
_MAX_LABELLED_EDGES = 14
NODE_HEIGHT, _NODE_GAP = 40, 28
_COLUMN_GAP, _MARGIN, _SWEEPS, _MAX_COLUMN_LENGTH, _BACKWARD_SHIFT = 112, 20, 12, 16, 10
_LETTER_WIDTH, _PADDING, _MIN_NODE_WIDTH, _MAX_NAME_LENGTH, _MAX_LABEL_LENGTH = 7.6, 30, 112, 26, 30
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
    drawn = lay_out_graph(story.agents, by_pair, {name: _node_width(name) for name in story.agents})
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
        "curve": f"M{x} {y}" + (f"H{right}" if y == bottom else f"C{middle} {y} {middle} {bottom} {right} {bottom}"),
        "label": _shorten(labels[0], _MAX_LABEL_LENGTH) + more if labels else "",
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
        "short": _shorten(name, _MAX_NAME_LENGTH),
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


def _node_width(name: str) -> int:
    """Return the width of a node in pixels; wide characters count twice."""
    wide = (2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in _shorten(name, _MAX_NAME_LENGTH))
    return max(_MIN_NODE_WIDTH, round(_LETTER_WIDTH * sum(wide)) + _PADDING)


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# --- the coordinates ------------------------------------------------------------------------------


class Box(NamedTuple):
    """The box of an agent: its upper left corner and its size, in pixels."""

    x: int
    y: int
    width: int
    height: int = NODE_HEIGHT

    @property
    def middle(self) -> int:
        """The vertical middle."""
        return self.y + self.height // 2


class Drawing(NamedTuple):
    """A graph with coordinates; `ways` maps each pair to the two ends of its arrow."""

    width: int
    height: int
    boxes: Mapping[str, Box]
    ways: Mapping[Pair, Way]


def lay_out_graph(nodes: Sequence[str], pairs: Iterable[Pair], widths: Mapping[str, int]) -> Drawing:
    """Return the drawing of a graph, with coordinates of every node and arrow.

    Args:
        nodes: The names, in the order that decides if positions are equal.
        pairs: The edges as (from, to); both are nodes, and they differ.
        widths: Node -> width in pixels.
    """
    unique = list(dict.fromkeys(pairs))
    forward = _reverse_cycle_edges(nodes, unique)
    connected = {name for pair in unique for name in pair}
    columns = _assign_layers([name for name in nodes if name in connected], forward)
    _sort_columns(columns, forward)
    boxes = _place_columns(columns, widths)
    boxes |= _place_rows([name for name in nodes if name not in connected], widths, boxes)
    return Drawing(
        max((box.x + box.width for box in boxes.values()), default=_MARGIN) + _MARGIN,
        max((box.y + box.height for box in boxes.values()), default=_MARGIN) + _MARGIN,
        {name: boxes[name] for name in nodes},
        {pair: _arrow_ends(boxes[pair[0]], boxes[pair[1]]) for pair in unique},
    )


def _reverse_cycle_edges(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, each once, with those reversed that close a cycle in a depth-first search."""
    path: list[str] = []
    done = set[str]()
    backward = set[Pair]()

    def visit(name: str) -> None:
        path.append(name)
        for pair in pairs:
            if pair[0] != name:
                continue
            if pair[1] in path:
                backward.add(pair)
            elif pair[1] not in done:
                visit(pair[1])
        done.add(path.pop())

    for name in nodes:
        if name not in done:
            visit(name)
    return list(dict.fromkeys(pair[::-1] if pair in backward else pair for pair in pairs))


def _assign_layers(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[list[str]]:
    """Return the nodes by layer: each stands one layer after the last of its sources."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        before[target].append(source)
    layers: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        layers[name] = max((layers[other] + 1 for other in before[name]), default=0)
    for name in [
        name for name in nodes if not before[name]
    ]:  # a node without sources stands directly before the first of its targets
        layers[name] = min(layers[target] for source, target in pairs if source == name) - 1
    return [[name for name in layers if layers[name] == layer] for layer in sorted(set(layers.values()))]


def _sort_columns(columns: list[list[str]], pairs: Sequence[Pair]) -> None:
    """Sort each column in place by the mean position of its neighbours: the sources, in every second sweep the targets."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for left, right in pairs:
        before[right].append(left)
        after[left].append(right)
    for sweep in range(_SWEEPS):
        neighbours = after if sweep % 2 else before
        place: dict[str, float] = {}
        for column in columns[:: -1 if sweep % 2 else 1]:
            own = {name: index / len(column) for index, name in enumerate(column)}
            middle = {name: _mean([place[each] for each in neighbours[name]] or [own[name]]) for name in column}
            column.sort(key=lambda name: (middle[name], own[name]))
            place |= {name: (index + 0.5) / len(column) for index, name in enumerate(column)}


def _mean(places: Sequence[float]) -> float:
    return sum(places) / len(places)


def _place_columns(columns: Sequence[Sequence[str]], widths: Mapping[str, int]) -> dict[str, Box]:
    """Return the boxes of the columns, each column centred beside the tallest one."""
    step, most = NODE_HEIGHT + _NODE_GAP, max(map(len, columns), default=0)
    boxes: dict[str, Box] = {}
    x = _MARGIN
    for column in columns:
        width = max(widths[name] for name in column)
        top = _MARGIN + (most - len(column)) * step // 2
        boxes |= {name: Box(x, top + index * step, width) for index, name in enumerate(column)}
        x += width + _COLUMN_GAP
    return boxes


def _place_rows(names: Sequence[str], widths: Mapping[str, int], above: Mapping[str, Box]) -> dict[str, Box]:
    """Return the boxes of agents without edges, in rows below the others."""
    if not names:
        return {}
    step = max(widths[name] for name in names) + _NODE_GAP
    right = max((box.x + box.width for box in above.values()), default=_MARGIN)
    top = max((box.y + box.height for box in above.values()), default=_MARGIN) + _NODE_GAP
    # As many in a row as fit below the columns, but at least 4, and enough to keep the rows few.
    count = max((right - _MARGIN) // step, 4, -(-len(names) // _MAX_COLUMN_LENGTH))
    places = ((name, *divmod(index, count)) for index, name in enumerate(names))
    return {
        name: Box(_MARGIN + column * step, top + row * (NODE_HEIGHT + _NODE_GAP), step - _NODE_GAP)
        for name, row, column in places
    }


def _arrow_ends(source: Box, target: Box) -> Way:
    """Return both ends of an arrow; one that leads backwards is shifted, so that it does not cover one in the other direction."""
    if source.x < target.x:
        return (source.x + source.width, source.middle), (target.x, target.middle)
    return (source.x, source.middle + _BACKWARD_SHIFT), (target.x + target.width, target.middle + _BACKWARD_SHIFT)
