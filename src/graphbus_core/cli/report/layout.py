"""Where agents and edges stand in a drawing: layers from providers to consumers, few crossings, the same input the same place.

1. Edges that close a circle are turned round.  2. The longest way to an agent is its layer.  3. Edges over several layers
get a bend in each.  4. Each layer is sorted by the middle of its neighbours, to and fro.  5. Layers become columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Pair = tuple[str, str]
_Slot = str | tuple[Pair, int]

NODE_HEIGHT, _NODE_GAP, _BEND_HEIGHT, _BEND_GAP = 40, 28, 8, 24
_COLUMN_GAP, _MARGIN, _SWEEPS, _LONGEST_COLUMN = 112, 20, 12, 16


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
    """Turn round what leads back to an agent on the way to which it was found."""
    after: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in pairs:
        after[source].append(target)
    open_, done = set[str](), set[str]()
    turned: list[Pair] = []
    for start in nodes:
        stack = [(start, iter(after[start]))] if start not in done else []
        open_.update(name for name, _ in stack)
        while stack:
            name, rest = stack[-1]
            reached = next(rest, None)
            if reached is None:
                stack.pop()
                open_.discard(name)
                done.add(name)
            elif reached in open_:
                turned.append((name, reached))
            elif reached not in done:
                open_.add(reached)
                stack.append((reached, iter(after[reached])))
    backward = set(turned)
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
