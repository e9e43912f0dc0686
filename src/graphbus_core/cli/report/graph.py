"""The graph of a session as a layered drawing of up to a hundred agents, and the template values for it.

1. Edges that close a cycle are reversed.  2. The longest path to an agent is its layer.  3. Each layer is sorted by the mean
place of its neighbours, in several sweeps.  4. Layers become columns.  The same input always gives the same drawing.
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
_MOST_LABELS = 14
NODE_HEIGHT, _NODE_GAP = 40, 28
_COLUMN_GAP, _MARGIN, _SWEEPS, _LONGEST_COLUMN, _SHIFT = 112, 20, 12, 16, 10
_LETTER_WIDTH, _PADDING, _NARROWEST, _LONGEST_NAME, _LONGEST_LABEL = 7.6, 30, 112, 26, 30
_VERBS: dict[EdgeKind, str] = {"depends_on": "is needed by", "topic": "sends to", "call": "is called by"}
_MEANINGS: dict[EdgeKind, str] = {"depends_on": "dependency", "call": "call", "topic": "topic"}
"""The kinds of edges, the one that is drawn where several join the same agents first."""
_UNKNOWN = "The artifacts of the last build tell no edges, and the sources could not be read: agents only."


# --- the values of the template ----------------------------------------------------------------


def graph_values(story: Story) -> Values:
    """Return the template values of the drawing (None for too many agents), its legend and the list of agents."""
    count = len(story.agents)
    is_drawn = 0 < count <= MOST_DRAWN
    kinds = {edge.kind for edge in story.edges or ()}
    too_many = f"{count} agents are more than a drawing can show; here they are as a list."
    return {
        "graph_note": too_many if not is_drawn else _UNKNOWN if story.edges is None else "",
        "drawing": _drawing(story) if is_drawn else None,
        "edge_kinds": [{"kind": kind, "meaning": text} for kind, text in _MEANINGS.items() if kind in kinds],
        "agents": [_listed(story, name) for name in story.agents],
    }


def _drawing(story: Story) -> Values:
    by_pair: dict[Pair, list[Edge]] = defaultdict(list)
    for edge in story.edges or ():
        by_pair[edge.source, edge.target].append(edge)
    drawn = lay_out_graph(story.agents, by_pair, {name: _width(name) for name in story.agents})
    numbers = {name: number for number, name in enumerate(story.agents)}
    has_labels = len(by_pair) <= _MOST_LABELS
    return {
        "width": drawn.width,
        "height": drawn.height,
        "description": f"{len(story.agents)} agents and {len(story.edges or ())} edges. The list below says the same in words.",
        "arrows": [
            {
                "source": numbers[pair[0]],
                "target": numbers[pair[1]],
                **_arrow(edges, drawn.ways[pair], has_labels=has_labels),
            }
            for pair, edges in by_pair.items()
        ],
        "nodes": [_node(story, name, number, drawn.boxes[name]) for name, number in numbers.items()],
    }


def _arrow(edges: Sequence[Edge], way: Way, *, has_labels: bool) -> Values:
    (x, y), (right, bottom) = way
    middle = (x + right) // 2
    labels = list(dict.fromkeys(edge.label for edge in edges if edge.label)) if has_labels else []
    more = f" +{len(labels) - 1}" if len(labels) > 1 else ""
    words = dict.fromkeys(f"{edge.source} {_VERBS[edge.kind]} {_labelled(edge.target, edge)}" for edge in edges)
    return {
        "kind": next(kind for kind in _MEANINGS if any(edge.kind == kind for edge in edges)),
        "words": "; ".join(words),
        "curve": f"M{x} {y}" + (f"H{right}" if y == bottom else f"C{middle} {y} {middle} {bottom} {right} {bottom}"),
        "label": _shortened(labels[0], _LONGEST_LABEL) + more if labels else "",
        "x": middle,
        "y": (y + bottom) // 2 - 8,
    }


def _node(story: Story, name: str, number: int, box: Box) -> Values:
    is_arbiter = name in story.record.arbiters
    made = [case for case in story.cases if case.proposal.src == name]
    met = [case.name for case in story.cases if name in case.affected]
    parts = [f"proposed {', '.join(case.name for case in made)}"] if made else []
    parts += [f"affected by {', '.join(met)}"] if met else []
    return {
        "agent": name,
        "number": number,
        "short": _shortened(name, _LONGEST_NAME),
        "part": "; ".join(parts) or "no proposal concerns it",
        "is_arbiter": is_arbiter,
        "is_changed": any(case.record.commit for case in made),
        **box._asdict(),
        "radius": 20 if is_arbiter else 8,
        "middle_x": box.x + box.width // 2,
        "middle_y": box.middle,
    }


def _listed(story: Story, name: str) -> Values:
    edges = story.edges or ()
    return {
        "agent": name,
        "is_arbiter": name in story.record.arbiters,
        "receives": _joined(_labelled(edge.source, edge) for edge in edges if edge.target == name),
        "gives": _joined(_labelled(edge.target, edge) for edge in edges if edge.source == name),
        "concerning": proposal_links(case for case in story.cases if name in (case.proposal.src, *case.affected)),
    }


def proposal_links(cases: Iterable[ProposalStory]) -> list[Values]:
    """Return the template values of links to proposals."""
    return [{"name": case.name, "anchor": case.anchor} for case in cases]


def _labelled(name: str, edge: Edge) -> str:
    return f"{name} ({edge.label})" if edge.label else name


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts)) or "–"


def _width(name: str) -> int:
    wide = (2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in _shortened(name, _LONGEST_NAME))
    return max(_NARROWEST, round(_LETTER_WIDTH * sum(wide)) + _PADDING)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# --- the places --------------------------------------------------------------------------------


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
    """Compute the coordinates of every node and arrow.

    Args:
        nodes: The names; their order decides ties.
        pairs: (from, to); both are nodes, and they differ.
        widths: Node -> width in pixels.
    """
    wanted = list(dict.fromkeys(pairs))
    forward = _without_circles(nodes, wanted)
    linked = {name for pair in wanted for name in pair}
    columns = _layers([name for name in nodes if name in linked], forward)
    _sort(columns, forward)
    boxes = _columns(columns, widths)
    boxes |= _rows([name for name in nodes if name not in linked], widths, boxes)
    return Drawing(
        max((box.x + box.width for box in boxes.values()), default=_MARGIN) + _MARGIN,
        max((box.y + box.height for box in boxes.values()), default=_MARGIN) + _MARGIN,
        {name: boxes[name] for name in nodes},
        {pair: _way(boxes[pair[0]], boxes[pair[1]]) for pair in wanted},
    )


def _without_circles(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Reverse each pair that closes a cycle in a depth-first search."""
    on_the_way: list[str] = []
    done = set[str]()
    backward = set[Pair]()

    def visit(name: str) -> None:
        on_the_way.append(name)
        for pair in pairs:
            if pair[0] != name:
                continue
            if pair[1] in on_the_way:
                backward.add(pair)
            elif pair[1] not in done:
                visit(pair[1])
        done.add(on_the_way.pop())

    for name in nodes:
        if name not in done:
            visit(name)
    return list(dict.fromkeys(pair[::-1] if pair in backward else pair for pair in pairs))


def _layers(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[list[str]]:
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        before[target].append(source)
    layers: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        layers[name] = max((layers[other] + 1 for other in before[name]), default=0)
    for name in [name for name in nodes if not before[name]]:  # a source stands next to what it feeds
        layers[name] = min(layers[target] for source, target in pairs if source == name) - 1
    return [[name for name in layers if layers[name] == layer] for layer in sorted(set(layers.values()))]


def _sort(columns: list[list[str]], pairs: Sequence[Pair]) -> None:
    """Sort each column by the mean place of its neighbours: those before it, and in every second sweep those behind it."""
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


def _columns(columns: Sequence[Sequence[str]], widths: Mapping[str, int]) -> dict[str, Box]:
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


def _rows(names: Sequence[str], widths: Mapping[str, int], above: Mapping[str, Box]) -> dict[str, Box]:
    """Return the boxes of agents without edges, in rows below the others."""
    if not names:
        return {}
    step = max(widths[name] for name in names) + _NODE_GAP
    right = max((box.x + box.width for box in above.values()), default=_MARGIN)
    top = max((box.y + box.height for box in above.values()), default=_MARGIN) + _NODE_GAP
    count = max((right - _MARGIN) // step, 4, -(-len(names) // _LONGEST_COLUMN))
    places = ((name, *divmod(index, count)) for index, name in enumerate(names))
    return {
        name: Box(_MARGIN + column * step, top + row * (NODE_HEIGHT + _NODE_GAP), step - _NODE_GAP)
        for name, row, column in places
    }


def _way(source: Box, target: Box) -> Way:
    """Return both ends of an arrow; one that leads backwards is shifted, so that it does not cover its counterpart."""
    if source.x < target.x:
        return (source.x + source.width, source.middle), (target.x, target.middle)
    return (source.x, source.middle + _SHIFT), (target.x + target.width, target.middle + _SHIFT)
