"""The graph of a session: places for up to a hundred agents and their edges, and the values of the template for them.

1. Edges that close a circle are turned.  2. The longest way to an agent is its layer.  3. Edges over several layers
get a bend in each.  4. Each layer is sorted by the middle of its neighbours, to and fro.  5. Layers become columns.
The same input always gives the same picture.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from graphbus_core.cli.report.story import Case, Story
from graphbus_core.cli.report.template import Values
from graphbus_core.model.artifacts import Edge, EdgeKind

Pair = tuple[str, str]
_Slot = str | tuple[Pair, int]
"""What stands in a column: an agent, or the bend of an edge in this layer."""
_Chains = Mapping[Pair, tuple[_Slot, ...]]

MOST_DRAWN = 100
_MOST_LABELS = 14
NODE_HEIGHT, _NODE_GAP, _BEND_HEIGHT, _BEND_GAP = 40, 28, 8, 24
_COLUMN_GAP, _MARGIN, _SWEEPS, _LONGEST_COLUMN = 112, 20, 12, 16
_LETTER_WIDTH, _PADDING, _NARROWEST, _LONGEST_NAME, _LONGEST_LABEL = 7.6, 30, 112, 26, 30
_VERBS: dict[EdgeKind, str] = {"depends_on": "is needed by", "topic": "sends to", "call": "is called by"}
_MEANINGS: dict[EdgeKind, str] = {"depends_on": "dependency", "call": "call", "topic": "topic"}
"""The kinds of edges, the one that is drawn where several join the same agents first."""
_UNKNOWN = "The artifacts of the last build tell no edges, and the sources could not be read: agents only."


# --- the values of the template ----------------------------------------------------------------


def graph_values(story: Story) -> Values:
    """Give the drawing, None for too many agents, with its legend and the list."""
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
    drawn = arrange(story.agents, by_pair, {name: _width(name) for name in story.agents})
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


def _arrow(edges: Sequence[Edge], way: Sequence[tuple[int, int]], *, has_labels: bool) -> Values:
    (x0, y0), (x1, y1) = way[len(way) // 2 - 1 : len(way) // 2 + 1]
    labels = list(dict.fromkeys(edge.label for edge in edges if edge.label)) if has_labels else []
    more = f" +{len(labels) - 1}" if len(labels) > 1 else ""
    words = dict.fromkeys(f"{edge.source} {_VERBS[edge.kind]} {_labelled(edge.target, edge)}" for edge in edges)
    return {
        "kind": next(kind for kind in _MEANINGS if any(edge.kind == kind for edge in edges)),
        "words": "; ".join(words),
        "curve": _curve(way),
        "label": _shortened(labels[0], _LONGEST_LABEL) + more if labels else "",
        "x": (x0 + x1) // 2,
        "y": (y0 + y1) // 2 - 8,
    }


def _curve(points: Sequence[tuple[int, int]]) -> str:
    """Straight through a layer, in a soft bow from layer to layer."""
    x, y = points[0]
    parts = [f"M{x} {y}"]
    for right, bottom in points[1:]:
        middle = (x + right) // 2
        parts.append(f"H{right}" if bottom == y else f"C{middle} {y} {middle} {bottom} {right} {bottom}")
        x, y = right, bottom
    return "".join(parts)


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
        "concerning": links(case for case in story.cases if name in (case.proposal.src, *case.affected)),
    }


def links(cases: Iterable[Case]) -> list[Values]:
    """Give the values of links to proposals."""
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
    """Where an agent or a bend stands: its upper left corner and its size, in pixels."""

    x: int
    y: int
    width: int
    height: int = NODE_HEIGHT

    @property
    def middle(self) -> int:
        """Half way down."""
        return self.y + self.height // 2


class Drawing(NamedTuple):
    """A graph with places; `ways` has for each pair the points that its arrow goes through, ends included."""

    width: int
    height: int
    boxes: Mapping[str, Box]
    ways: Mapping[Pair, tuple[tuple[int, int], ...]]


def arrange(nodes: Sequence[str], pairs: Iterable[Pair], widths: Mapping[str, int]) -> Drawing:
    """Give every node and pair a place.

    Args:
        nodes: The names, in the order in which ties are decided.
        pairs: From, to; both ends are nodes and differ.
        widths: Node -> pixels.
    """
    wanted = list(dict.fromkeys(pairs))
    forward = _without_circles(nodes, wanted)
    linked = {name for pair in wanted for name in pair}
    layers = _layers([name for name in nodes if name in linked], forward)
    columns, chains = _with_bends(layers, forward)
    _sort(columns, chains)
    slots = _columns(columns, widths)
    slots |= _rows([name for name in nodes if name not in linked], widths, slots)
    return Drawing(
        max((box.x + box.width for box in slots.values()), default=_MARGIN) + _MARGIN,
        max((box.y + box.height for box in slots.values()), default=_MARGIN) + _MARGIN,
        {name: slots[name] for name in nodes},
        {pair: _way(pair, chains, slots) for pair in wanted},
    )


def _without_circles(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Turn each pair that leads back to an agent on the way to which it was found."""
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


def _layers(nodes: Sequence[str], pairs: Sequence[Pair]) -> dict[str, int]:
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        before[target].append(source)
    layers: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        layers[name] = max((layers[other] + 1 for other in before[name]), default=0)
    for name in [name for name in nodes if not before[name]]:  # a source stands next to what it feeds
        layers[name] = min(layers[target] for source, target in pairs if source == name) - 1
    return layers


def _with_bends(layers: Mapping[str, int], pairs: Sequence[Pair]) -> tuple[list[list[_Slot]], _Chains]:
    columns: list[list[_Slot]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for name, layer in layers.items():
        columns[layer].append(name)
    chains: dict[Pair, tuple[_Slot, ...]] = {}
    for source, target in pairs:
        bends = [((source, target), layer) for layer in range(layers[source] + 1, layers[target])]
        for bend in bends:
            columns[bend[1]].append(bend)
        chains[source, target] = (source, *bends, target)
    return columns, chains


def _sort(columns: list[list[_Slot]], chains: _Chains) -> None:
    """Sort each column by the middle of the neighbours in the column before it, and on the way back behind it."""
    before: dict[_Slot, list[_Slot]] = defaultdict(list)
    after: dict[_Slot, list[_Slot]] = defaultdict(list)
    for left, right in (step for chain in chains.values() for step in pairwise(chain)):
        before[right].append(left)
        after[left].append(right)
    for sweep in range(_SWEEPS):
        neighbours = after if sweep % 2 else before
        place: dict[_Slot, float] = {}
        for column in columns[:: -1 if sweep % 2 else 1]:
            own = {slot: index / len(column) for index, slot in enumerate(column)}
            middle = {slot: _mean([place[each] for each in neighbours[slot]], own[slot]) for slot in column}
            column.sort(key=lambda slot: (middle[slot], own[slot]))
            place.update({slot: (index + 0.5) / len(column) for index, slot in enumerate(column)})


def _mean(places: list[float], default: float) -> float:
    return sum(places) / len(places) if places else default


def _columns(columns: Sequence[Sequence[_Slot]], widths: Mapping[str, int]) -> dict[_Slot, Box]:
    """Give the slots of the columns their places, each column in the middle of the tallest one."""
    spaces = {
        slot: (NODE_HEIGHT, _NODE_GAP) if isinstance(slot, str) else (_BEND_HEIGHT, _BEND_GAP)
        for column in columns
        for slot in column
    }
    heights = [sum(sum(spaces[slot]) for slot in column) for column in columns]
    boxes: dict[_Slot, Box] = {}
    x = _MARGIN
    for column, height in zip(columns, heights, strict=True):
        width = max((widths[slot] for slot in column if isinstance(slot, str)), default=0)
        y = _MARGIN + (max(heights) - height) // 2
        for slot in column:
            boxes[slot] = Box(x, y + spaces[slot][1] // 2, width, spaces[slot][0])
            y += sum(spaces[slot])
        x += width + _COLUMN_GAP
    return boxes


def _rows(names: Sequence[str], widths: Mapping[str, int], above: Mapping[_Slot, Box]) -> dict[_Slot, Box]:
    """Put the agents without edges in rows below the others."""
    if not names:
        return {}
    width = max(widths[name] for name in names)
    right = max((box.x + box.width for box in above.values()), default=_MARGIN)
    top = max((box.y + box.height for box in above.values()), default=_MARGIN) + _NODE_GAP
    room = max(right, 4 * (width + _NODE_GAP)) if len(names) > 1 else right
    count = max((room - _MARGIN) // (width + _NODE_GAP), -(-len(names) // _LONGEST_COLUMN), 1)
    places = ((name, *divmod(index, count)) for index, name in enumerate(names))
    return {
        name: Box(_MARGIN + column * (width + _NODE_GAP), top + row * (NODE_HEIGHT + _NODE_GAP), width)
        for name, row, column in places
    }


def _way(pair: Pair, chains: _Chains, slots: Mapping[_Slot, Box]) -> tuple[tuple[int, int], ...]:
    is_turned = pair not in chains
    chain = [slots[slot] for slot in chains[pair[::-1] if is_turned else pair]]
    shift = 10 if is_turned else 0  # there and back do not lie on each other
    points = [
        point for box in chain for point in ((box.x, box.middle + shift), (box.x + box.width, box.middle + shift))
    ]
    return tuple(points[-2:0:-1] if is_turned else points[1:-1])
