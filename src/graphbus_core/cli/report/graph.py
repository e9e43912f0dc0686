"""The graph of a session: places for up to a hundred agents and their edges, and the values of the template for them.

1. Edges that close a circle are turned.  2. The longest way to an agent is its layer.  3. Edges over several layers
get a bend in each.  4. Each layer is sorted by the middle of its neighbours, to and fro.  5. Layers become columns.
The same input always gives the same picture.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from graphbus_core.cli.report.story import Case, Story
from graphbus_core.cli.report.template import Values
from graphbus_core.model.artifacts import Edge, EdgeKind

Pair = tuple[str, str]
_Slot = str | tuple[Pair, int]

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
    unknown = _UNKNOWN if story.edges is None else ""
    return {
        "graph_note": unknown
        if is_drawn
        else f"{count} agents are more than a drawing can show; here they are as a list.",
        "drawing": _drawing(story) if is_drawn else None,
        "edge_kinds": [{"kind": kind, "meaning": text} for kind, text in _MEANINGS.items() if kind in kinds],
        "agents": [_listed(story, name) for name in story.agents],
    }


def _drawing(story: Story) -> Values:
    by_pair: dict[Pair, list[Edge]] = {}
    for edge in story.edges or ():
        by_pair.setdefault((edge.source, edge.target), []).append(edge)
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
    return {
        "kind": next(kind for kind in _MEANINGS if any(edge.kind == kind for edge in edges)),
        "words": "; ".join(
            dict.fromkeys(f"{edge.source} {_VERBS[edge.kind]} {_labelled(edge.target, edge)}" for edge in edges)
        ),
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
    return {
        "agent": name,
        "number": number,
        "short": _shortened(name, _LONGEST_NAME),
        "part": _part(story, name),
        "is_arbiter": is_arbiter,
        "is_changed": any(case.proposal.src == name and case.record.commit for case in story.cases),
        **box._asdict(),
        "height": NODE_HEIGHT,
        "radius": 20 if is_arbiter else 8,
        "middle_x": box.x + box.width // 2,
        "middle_y": box.y + NODE_HEIGHT // 2,
    }


def _part(story: Story, name: str) -> str:
    made = [case.name for case in story.cases if case.proposal.src == name]
    met = [case.name for case in story.cases if name in case.affected]
    parts = [f"proposed {', '.join(made)}" if made else "", f"affected by {', '.join(met)}" if met else ""]
    return "; ".join(filter(None, parts)) or "no proposal concerns it"


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
    """Where an agent stands: its upper left corner, in pixels."""

    x: int
    y: int
    width: int


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
    alone = [name for name in nodes if name not in linked]
    return _place(columns, chains, alone, wanted, widths)


def _without_circles(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Turn each pair that leads back to an agent on the way to which it was found."""
    after: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        after[source].append(target)
    on_the_way: list[str] = []
    done = set[str]()
    backward = set[Pair]()

    def visit(name: str) -> None:
        on_the_way.append(name)
        for target in after[name]:
            if target in on_the_way:
                backward.add((name, target))
            elif target not in done:
                visit(target)
        done.add(on_the_way.pop())

    for name in nodes:
        if name not in done:
            visit(name)
    return list(dict.fromkeys((t, s) if (s, t) in backward else (s, t) for s, t in pairs))


def _layers(nodes: Sequence[str], pairs: Sequence[Pair]) -> dict[str, int]:
    from graphlib import TopologicalSorter

    before: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        before[target].append(source)
    layers: dict[str, int] = {}
    for name in TopologicalSorter(before).static_order():
        layers[name] = max((layers[other] + 1 for other in before[name]), default=0)
    after: dict[str, list[int]] = {}
    for source, target in pairs:
        after.setdefault(source, []).append(layers[target])
    for name in nodes:  # a source stands next to what it feeds, not at the far left
        if not before[name] and name in after:
            layers[name] = min(after[name]) - 1
    return layers


def _with_bends(
    layers: Mapping[str, int], pairs: Sequence[Pair]
) -> tuple[list[list[_Slot]], dict[Pair, tuple[_Slot, ...]]]:
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


def _sort(columns: list[list[_Slot]], chains: Mapping[Pair, tuple[_Slot, ...]]) -> None:
    before: dict[_Slot, list[_Slot]] = {}
    after: dict[_Slot, list[_Slot]] = {}
    for chain in chains.values():
        for left, right in pairwise(chain):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        neighbours = before if is_forward else after
        place: dict[_Slot, float] = {}
        for column in columns if is_forward else reversed(columns):
            own = {slot: index / max(len(column), 1) for index, slot in enumerate(column)}
            middle = {slot: _middle([place[o] for o in neighbours.get(slot, ())], own[slot]) for slot in column}
            column.sort(key=lambda slot: (middle[slot], own[slot]))
            place.update({slot: (index + 0.5) / len(column) for index, slot in enumerate(column)})


def _middle(places: list[float], own: float) -> float:
    return sum(places) / len(places) if places else own


def _place(
    columns: list[list[_Slot]],
    chains: Mapping[Pair, tuple[_Slot, ...]],
    alone: Sequence[str],
    wanted: Sequence[Pair],
    widths: Mapping[str, int],
) -> Drawing:
    boxes: dict[str, Box] = {}
    bends: dict[_Slot, tuple[int, int, int]] = {}
    heights = [sum(_space(slot) for slot in column) for column in columns]
    tallest = max(heights, default=0)
    x = _MARGIN
    for column, height in zip(columns, heights, strict=True):
        width = max((widths[slot] for slot in column if isinstance(slot, str)), default=0)
        y = _MARGIN + (tallest - height) // 2
        for slot in column:
            if isinstance(slot, str):
                boxes[slot] = Box(x, y + _NODE_GAP // 2, width)
            else:
                bends[slot] = (x, y + _space(slot) // 2, x + width)
            y += _space(slot)
        x += width + _COLUMN_GAP
    right, bottom = _stand_alone(boxes, alone, widths, max(x - _COLUMN_GAP, _MARGIN), tallest)
    ways = {pair: _way(pair, chains, boxes, bends) for pair in wanted}
    return Drawing(right + _MARGIN, bottom + _MARGIN, boxes, ways)


def _space(slot: _Slot) -> int:
    return NODE_HEIGHT + _NODE_GAP if isinstance(slot, str) else _BEND_HEIGHT + _BEND_GAP


def _stand_alone(
    boxes: dict[str, Box], alone: Sequence[str], widths: Mapping[str, int], right: int, tallest: int
) -> tuple[int, int]:
    """Put the agents without edges in rows below the others; give the right and the lower end of all."""
    bottom = _MARGIN + tallest
    if not alone:
        return right, bottom
    width = max(widths[name] for name in alone)
    room = max(right, 4 * (width + _NODE_GAP)) if len(alone) > 1 else right
    count = max((room - _MARGIN) // (width + _NODE_GAP), -(-len(alone) // _LONGEST_COLUMN), 1)
    for index, name in enumerate(alone):
        row, column = divmod(index, count)
        x = _MARGIN + column * (width + _NODE_GAP)
        boxes[name] = Box(x, bottom + _NODE_GAP + row * (NODE_HEIGHT + _NODE_GAP), width)
        right = max(right, x + width)
    rows = -(-len(alone) // count)
    return right, bottom + _NODE_GAP + rows * (NODE_HEIGHT + _NODE_GAP)


def _way(
    pair: Pair,
    chains: Mapping[Pair, tuple[_Slot, ...]],
    boxes: Mapping[str, Box],
    bends: Mapping[_Slot, tuple[int, int, int]],
) -> tuple[tuple[int, int], ...]:
    is_turned = pair not in chains
    source, target = (pair[1], pair[0]) if is_turned else pair
    between = chains[source, target][1:-1]
    shift = 10 if is_turned and pair[::-1] in chains else 0  # there and back do not lie on each other
    start, end = boxes[source], boxes[target]
    points = [(start.x + start.width, start.y + NODE_HEIGHT // 2 + shift)]
    for slot in between:
        left, y, right = bends[slot]
        points += [(left, y + shift), (right, y + shift)]
    points.append((end.x, end.y + NODE_HEIGHT // 2 + shift))
    return tuple(reversed(points)) if is_turned else tuple(points)
