"""`self.call` in agents with `async def` methods: it is awaited, and a plain `def` is told so."""

from __future__ import annotations

from typing import Any

import pytest

from graphbus_core import GraphBusNode, connect, depends_on, schema_method, subscribe
from graphbus_core.errors import RunError


class Adder(GraphBusNode):
    @schema_method(input_schema={"a": int}, output_schema={"sum": int})
    def add(self, a: int) -> dict[str, Any]:
        return {"sum": a + 1}


@depends_on("Adder")
class Mixed(GraphBusNode):
    @subscribe("/Mixed/Plain")
    def on_plain(self) -> None:
        self.answer = self.call("Adder", "add", a=1)

    @subscribe("/Mixed/Async")
    async def on_async(self) -> None: ...

    @schema_method(input_schema={})
    def ask_plainly(self) -> Any:
        return self.call("Adder", "add", a=3)


def test_a_plain_handler_of_an_async_agent_is_told_that_it_cannot_wait() -> None:
    with connect(Adder, Mixed) as graph:
        with pytest.raises(RunError) as refused:
            graph.publish("/Mixed/Plain")
        assert refused.value.code == "GBE628"
        assert "async def" in refused.value.hint


def test_a_plain_method_of_an_async_agent_is_told_that_it_cannot_wait() -> None:
    with connect(Adder, Mixed) as graph, pytest.raises(RunError, match="GBE628"):
        graph.call("Mixed", "ask_plainly")
