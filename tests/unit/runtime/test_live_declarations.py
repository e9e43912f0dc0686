"""What the build read and what the live classes say: the first counts for handlers, the second for what can be called."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import build_graph, run_graph
from graphbus_core.errors import RunError
from tests.conftest import Project

CHECKED = """
    from __future__ import annotations
    from typing import TYPE_CHECKING, Any
    from graphbus_core import GraphBusNode, schema_method, subscribe
    if TYPE_CHECKING:
        from collections.abc import Mapping
        from graphbus_core import Event

    class Checked(GraphBusNode):
        def on_start(self):
            self.heard = []

        @schema_method(input_schema={"a": int})
        def go(self, a: int) -> None:
            self.publish("/X", {"a": a})

        @subscribe("/X")
        def one(self, it: Mapping[str, Any]) -> None:
            self.heard.append(it)

        @subscribe("/X")
        def two(self, it: Event) -> None:
            self.heard.append(it.payload)
    """
MADE = """
    from graphbus_core import GraphBusNode, schema_method

    both = schema_method(input_schema={"a": int}, output_schema={"b": int})

    def typed(method):
        return both(method)

    class Made(GraphBusNode):
        @typed
        def x(self, a: int) -> dict:
            return {"b": a}

        @both
        def y(self, a: int) -> dict:
            return {"b": str(a)}

        def v(self, a: int) -> dict:
            return {"b": a}

        v = both(v)

        @schema_method(input_schema={"a": int})
        def plain(self, a: int) -> int:
            return a

        def hidden(self) -> None:
            pass
    """


@pytest.fixture
def built(project: Project, monkeypatch: pytest.MonkeyPatch):
    def built(text: str) -> Path:
        root = project({"pyproject.toml": "", "agents/it.py": text})
        monkeypatch.chdir(root)
        build_graph("agents")
        return root

    return built


def test_annotations_that_only_type_checkers_see_mean_what_the_build_read(built) -> None:
    built(CHECKED)
    with run_graph() as graph:
        graph.call("Checked", "go", a=1)
        assert graph.node("Checked").heard == [{"a": 1}, {"a": 1}]
        assert graph.bus.dead_letters() == ()


@pytest.mark.parametrize("method", ["x", "v", "plain"])
def test_a_method_is_called_that_a_wrapper_of_the_project_has_decorated(built, method: str) -> None:
    built(MADE)
    with run_graph() as graph:
        assert graph.call("Made", method, a=1) == (1 if method == "plain" else {"b": 1})
        with pytest.raises(RunError, match="GBE622"):
            graph.call("Made", method, a="1")
