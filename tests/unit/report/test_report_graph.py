from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.view.layout import NODE_HEIGHT, Drawing, Pair, lay_out_graph

NAMES = [f"n{number}" for number in range(14)]
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1]))


def arranged(*pairs: Pair, nodes: str = "abcdef") -> Drawing:
    return lay_out_graph(list(nodes), pairs, dict.fromkeys(nodes, 100))


def test_providers_stand_left_of_consumers() -> None:
    boxes = arranged(("a", "b"), ("b", "c"), ("a", "c")).boxes
    assert boxes["a"].x < boxes["b"].x < boxes["c"].x


def test_there_and_back_are_two_arrows_that_do_not_lie_on_each_other() -> None:
    ways = arranged(("a", "b"), ("b", "a")).ways
    assert ways["a", "b"][0] != ways["b", "a"][-1]


def test_agents_without_edges_stand_below_the_others() -> None:
    boxes = arranged(("a", "b")).boxes
    assert all(boxes[name].y > boxes["a"].y + NODE_HEIGHT for name in "cdef")


def test_two_pairs_that_need_not_cross_do_not_cross() -> None:
    boxes = arranged(("a", "d"), ("b", "c"), nodes="abcd").boxes
    assert (boxes["a"].y < boxes["b"].y) == (boxes["d"].y < boxes["c"].y)


@given(PAIRS)
def test_every_agent_has_a_place_of_its_own_inside_and_the_same_each_time(pairs: list[Pair]) -> None:
    widths = {name: 90 + 5 * index for index, name in enumerate(NAMES)}
    drawing = lay_out_graph(NAMES, pairs, widths)
    assert drawing == lay_out_graph(NAMES, pairs, widths)
    assert set(drawing.boxes) == set(NAMES)
    assert set(drawing.ways) == set(pairs)
    for box in drawing.boxes.values():
        assert 0 <= box.x <= drawing.width - box.width
        assert 0 <= box.y <= drawing.height - NODE_HEIGHT
    for one, other in combinations(drawing.boxes.values(), 2):
        is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert is_beside or abs(one.y - other.y) >= NODE_HEIGHT
    for (source, target), way in drawing.ways.items():
        ends = {way[0][0] - drawing.boxes[source].x, way[-1][0] - drawing.boxes[target].x}
        assert ends <= {0, drawing.boxes[source].width, drawing.boxes[target].width}
