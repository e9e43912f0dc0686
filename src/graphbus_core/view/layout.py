"""Coordinates for a layered drawing of a graph, as `graphbus report` and the live view show it.

1. Edges that close a cycle are reversed.  2. The layer of a node is the length of the longest path to it.  3. Each layer is
sorted by the mean position of its neighbours, in several sweeps.  4. Each layer becomes a column.  The result is deterministic.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

Pair = tuple[str, str]
Way = tuple[tuple[int, int], tuple[int, int]]
NODE_HEIGHT = 40
_MARGIN, _SWEEPS, _MAX_COLUMN_LENGTH, _BACKWARD_SHIFT = 20, 12, 16, 10
_LETTER_WIDTH, _PADDING = 7.6, 30


class Gaps(NamedTuple):
    """The distances between columns, and between the nodes of a column, in pixels."""

    column: int = 112
    node: int = 28


def shorten(text: str, longest: int) -> str:
    """Return the text, cut to so many characters with `…` at the end if it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def node_width(name: str, least: int, longest: int) -> int:
    """Return the width of a node in pixels: `least`, or what the name needs, cut to `longest`; wide characters count twice."""
    wide = (2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shorten(name, longest))
    return max(least, round(_LETTER_WIDTH * sum(wide)) + _PADDING)


def curve_of(way: Way) -> str:
    """Return the `d` of an SVG path for an arrow: a straight line, or a curve between two heights."""
    (x, y), (right, bottom) = way
    middle = (x + right) // 2
    return f"M{x} {y}" + (f"H{right}" if y == bottom else f"C{middle} {y} {middle} {bottom} {right} {bottom}")


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


def lay_out_graph(
    nodes: Sequence[str],
    pairs: Iterable[Pair],
    widths: Mapping[str, int],
    *,
    gaps: Gaps = Gaps(),  # noqa: B008 - a constant
    height: int = NODE_HEIGHT,
) -> Drawing:
    """Return the drawing of a graph, with coordinates of every node and arrow.

    Args:
        nodes: The names, in the order that decides if positions are equal.
        pairs: The edges as (from, to); both are nodes, and they differ.
        widths: Node -> width in pixels.
        gaps: The distances between the nodes.
        height: The height of every node.
    """
    unique = list(dict.fromkeys(pairs))
    forward = _reverse_cycle_edges(nodes, unique)
    connected = {name for pair in unique for name in pair}
    columns = _assign_layers([name for name in nodes if name in connected], forward)
    _sort_columns(columns, forward)
    boxes = _place_columns(columns, widths, gaps, height)
    boxes |= _place_rows([name for name in nodes if name not in connected], widths, boxes, gaps, height)
    return Drawing(
        max((box.x + box.width for box in boxes.values()), default=_MARGIN) + _MARGIN,
        max((box.y + box.height for box in boxes.values()), default=_MARGIN) + _MARGIN,
        {name: boxes[name] for name in nodes},
        {pair: _arrow_ends(boxes[pair[0]], boxes[pair[1]]) for pair in unique},
    )


def _reverse_cycle_edges(nodes: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs, each once, with those reversed that close a cycle in a depth-first search."""
    targets: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        targets[source].append(target)
    done, backward = set[str](), set[Pair]()
    for name in (each for each in nodes if each not in done):
        path = {name: iter(targets[name])}  # name -> its further targets, in order; no recursion, as a path may be long
        while path:
            current = next(reversed(path))
            found = next(path[current], None)
            if found is None:
                path.pop(current)
                done.add(current)
            elif found in path:
                backward.add((current, found))
            elif found not in done:
                path[found] = iter(targets[found])
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


def _place_columns(
    columns: Sequence[Sequence[str]], widths: Mapping[str, int], gaps: Gaps, height: int
) -> dict[str, Box]:
    """Return the boxes of the columns, each column centred beside the tallest one."""
    step, most = height + gaps.node, max(map(len, columns), default=0)
    boxes: dict[str, Box] = {}
    x = _MARGIN
    for column in columns:
        width = max(widths[name] for name in column)
        top = _MARGIN + (most - len(column)) * step // 2
        boxes |= {name: Box(x, top + index * step, width, height) for index, name in enumerate(column)}
        x += width + gaps.column
    return boxes


def _place_rows(
    names: Sequence[str], widths: Mapping[str, int], above: Mapping[str, Box], gaps: Gaps, height: int
) -> dict[str, Box]:
    """Return the boxes of agents without edges, in rows below the others."""
    if not names:
        return {}
    step = max(widths[name] for name in names) + gaps.node
    right = max((box.x + box.width for box in above.values()), default=_MARGIN)
    top = max((box.y + box.height for box in above.values()), default=_MARGIN) + gaps.node
    # As many in a row as fit below the columns, but at least 4, and enough to keep the rows few.
    count = max((right - _MARGIN) // step, 4, -(-len(names) // _MAX_COLUMN_LENGTH))
    places = ((name, *divmod(index, count)) for index, name in enumerate(names))
    return {
        name: Box(_MARGIN + column * step, top + row * (height + gaps.node), step - gaps.node, height)
        for name, row, column in places
    }


def _arrow_ends(source: Box, target: Box) -> Way:
    """Return both ends of an arrow; one that leads backwards is shifted, so that it does not cover one in the other direction."""
    if source.x < target.x:
        return (source.x + source.width, source.middle), (target.x, target.middle)
    return (source.x, source.middle + _BACKWARD_SHIFT), (target.x + target.width, target.middle + _BACKWARD_SHIFT)
