"""Calls are compiled once per method and keep every promise of the bus."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.errors import RunError


class Shelf(GraphBusNode):
    heard: list[str]

    def on_start(self) -> None:
        self.heard = []

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"left": int})
    def take(self, sku: str, qty: int) -> dict[str, Any]:
        self.publish("/Shelf/Taken", {"sku": sku})
        return {"left": 5 - qty}

    @schema_method(input_schema={"qty": int, "sku": str}, output_schema={"seen": str})
    def reversed(self, sku: str, qty: int) -> dict[str, Any]:
        return {"seen": f"{sku}-{qty}"}

    @schema_method(input_schema={"sku": str}, output_schema={"seen": str})
    def by_name_only(self, *, sku: str) -> dict[str, Any]:
        return {"seen": sku}

    @schema_method(input_schema={"sku": str}, output_schema={"seen": str})
    def with_default(self, sku: str, more: str = "!") -> dict[str, Any]:
        return {"seen": sku + more}

    @schema_method(
        input_schema={"sku": str, "box": {"sku": int, "label": [{"sku": bool}]}}, output_schema={"seen": str}
    )
    def nested(self, sku: str, box: dict[str, Any]) -> dict[str, Any]:
        return {"seen": f"{sku}-{box['sku']}"}

    @schema_method(input_schema={"box": {"sku": int}, "sku": str}, output_schema={"seen": str})
    def nested_first(self, sku: str, box: dict[str, Any]) -> dict[str, Any]:
        return {"seen": f"{sku}-{box['sku']}"}

    @schema_method(input_schema={}, output_schema={"seen": str})
    def nothing(self) -> dict[str, Any]:
        return {"seen": "nothing"}

    @schema_method(input_schema={"sku": str})
    def fails(self, sku: str) -> None:
        self.publish("/Shelf/Taken", {"sku": sku})
        raise ValueError(sku)

    @schema_method(input_schema={"sku": str})
    def interrupted(self, sku: str) -> None:
        self.publish("/Shelf/Taken", {"sku": sku})
        raise KeyboardInterrupt

    @subscribe("/Shelf/Taken")
    def on_taken(self, sku: str) -> None:
        self.heard.append(sku)


@pytest.mark.parametrize(
    ("method", "arguments", "result"),
    [
        ("take", {"qty": 2, "sku": "mug"}, {"left": 3}),
        ("reversed", {"qty": 2, "sku": "mug"}, {"seen": "mug-2"}),
        ("by_name_only", {"sku": "mug"}, {"seen": "mug"}),
        ("with_default", {"sku": "mug"}, {"seen": "mug!"}),
        ("nested", {"sku": "mug", "box": {"sku": 7, "label": [{"sku": True}]}}, {"seen": "mug-7"}),
        ("nested_first", {"sku": "mug", "box": {"sku": 7}}, {"seen": "mug-7"}),
        ("nothing", {}, {"seen": "nothing"}),
    ],
)
def test_arguments_reach_the_parameters_of_their_names(method: str, arguments: dict[str, Any], result: object) -> None:
    with connect(Shelf) as graph:
        for _ in range(2):
            assert graph.call("Shelf", method, **arguments) == result
        with pytest.raises(RunError, match="GBE622"):
            graph.call("Shelf", method, **arguments, surplus=1)


def test_what_a_call_publishes_is_delivered_before_it_returns_or_raises() -> None:
    with connect(Shelf) as graph:
        shelf = graph.node("Shelf")
        graph.call("Shelf", "take", sku="a", qty=1)
        assert shelf.heard == ["a"]  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="b"):
            graph.call("Shelf", "fails", sku="b")
        assert shelf.heard == ["a", "b"]  # type: ignore[attr-defined]


def test_an_interrupted_call_delivers_nothing_more_and_loses_nothing() -> None:
    with connect(Shelf) as graph:
        shelf = graph.node("Shelf")
        with pytest.raises(KeyboardInterrupt):
            graph.call("Shelf", "interrupted", sku="a")
        assert shelf.heard == []  # type: ignore[attr-defined]
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:  # who is asked while somebody else's interruption is handled works as ever
            graph.call("Shelf", "take", sku="b", qty=1)
        assert shelf.heard == ["a", "b"]  # type: ignore[attr-defined]


def test_calls_from_many_threads_take_their_turns() -> None:
    class Counter(GraphBusNode):
        count = 0
        is_inside = False

        @schema_method(input_schema={"by": int}, output_schema={"count": int})
        def add(self, by: int) -> dict[str, int]:
            assert not self.is_inside
            self.is_inside = True
            before = self.count
            self.publish("/Counter/Added", {"by": by})
            self.count = before + by
            self.is_inside = False
            return {"count": self.count}

        @subscribe("/Counter/Added")
        def on_added(self) -> None:
            assert not self.is_inside

    with connect(Counter) as graph:

        def work() -> None:
            for _ in range(300):
                graph.call("Counter", "add", by=1)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert graph.node("Counter").count == 1800  # type: ignore[attr-defined]
        assert graph.bus.statistics().published == 1800
        assert graph.bus.statistics().failed == 0
