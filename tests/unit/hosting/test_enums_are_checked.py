"""An Enum in a declaration is its values: what is no member and none of them is refused where it is given."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.contracts.compare import compare_surfaces
from graphbus_core.contracts.surface import Surface
from graphbus_core.errors import RunError
from tests.checking import read


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enum.Enum):
    GIFT = "gift"
    BULK = "bulk"


@publishes("/Shop/Taken", {"size": Size, "level": Level, "kind": Kind})
class Shop(GraphBusNode):
    heard: Any = None

    @schema_method(
        input_schema={"size": Size, "level": Level, "kind": Kind}, output_schema={"size": Size, "kind": Kind}
    )
    def take(self, size, level, kind):  # type: ignore[no-untyped-def]
        return {"size": size, "kind": kind}

    @schema_method(input_schema={"size": Size, "level": Level, "kind": Kind})
    def typed(self, size: Size, level: Level, kind: Kind) -> dict[str, Any]:
        return {"members": [size, level, kind]}

    @subscribe("/Shop/Taken")
    def on_taken(self, size: Size, level: Level, kind: Kind) -> None:
        self.heard = (size, level, kind)


WORDS = {"size": "s", "level": 1, "kind": "gift"}
MEMBERS = {"size": Size.SMALL, "level": Level.LOW, "kind": Kind.GIFT}
WRONG = [
    ({"size": "x"}, "size: expected Literal['s', 'l'], got str 'x'"),
    ({"size": "SMALL"}, "size: expected Literal['s', 'l'], got str 'SMALL'"),
    ({"level": 3}, "level: expected Literal[1, 2], got int 3"),
    ({"level": True}, "level: expected Literal[1, 2], got bool True"),
    ({"level": "1"}, "level: expected Literal[1, 2], got str '1'"),
    ({"kind": "gfit"}, "kind: expected Literal['gift', 'bulk'], got str 'gfit'. Did you mean 'gift'?"),
    ({"kind": None}, "kind: expected Literal['gift', 'bulk'], got None"),
]


@pytest.mark.parametrize("given", [WORDS, MEMBERS], ids=["words", "members"])
def test_members_and_their_values_are_taken(given: dict[str, Any]) -> None:
    with connect(Shop) as graph:
        assert graph.call("Shop", "take", **given) == {"size": given["size"], "kind": given["kind"]}
        members = graph.call("Shop", "typed", **given)["members"]
        assert list(map(type, members)) == [Size, Level, Kind]
        assert members == [*MEMBERS.values()]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_what_is_no_member_is_refused_by_methods_with_annotations_and_without(wrong: dict[str, Any], told: str) -> None:
    with connect(Shop) as graph:
        for method in ("take", "typed"):
            with pytest.raises(RunError, match="GBE622") as refused:
                graph.call("Shop", method, **(MEMBERS | wrong))
            assert told in str(refused.value)


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_what_is_no_member_is_not_published(wrong: dict[str, Any], told: str) -> None:
    with connect(Shop) as graph:
        with pytest.raises(RunError, match="GBE614") as refused:
            graph.publish("/Shop/Taken", WORDS | wrong)
        assert told in str(refused.value)
        graph.publish("/Shop/Taken", WORDS)
        assert graph.node("Shop").heard == tuple(MEMBERS.values())  # type: ignore[attr-defined]


SHOP = """
from enum import StrEnum
class Size(StrEnum):
    SMALL = "s"
{more}

class Stock(GraphBusNode):
    @schema_method(input_schema={{"size": Size}}, output_schema={{"left": int}})
    def take(self, size: Size): return {{"left": 1}}

    @schema_method(input_schema={{"n": int}}, output_schema={{"size": Size}})
    def give(self, n: int): return {{"size": Size.SMALL}}
"""


def test_a_word_that_is_no_longer_taken_and_one_that_is_newly_given_break_the_contract(tmp_path: Path) -> None:
    both, one = SHOP.format(more='    LARGE = "l"'), SHOP.format(more="")
    states = []
    for name, text in (("both", both), ("one", one)):
        project = read(tmp_path / name, {"shop.py": text})
        states.append(Surface(project.definitions, project.graph.topics))
    told = {
        f"{change.effect} {change.title}: {change.why}"
        for pair in (states, states[::-1])
        for change in compare_surfaces(*pair)
    }
    assert told == {
        "breaking Stock.take: input size: was Literal['s', 'l'], is Literal['s'] now: it takes less than before",
        "compatible Stock.give: output size: was Literal['s', 'l'], is Literal['s'] now: it gives less than before",
        "compatible Stock.take: input size: was Literal['s'], is Literal['s', 'l'] now: it takes more than before",
        "breaking Stock.give: output size: was Literal['s'], is Literal['s', 'l'] now: it gives what it never gave",
    }
