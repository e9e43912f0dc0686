"""What the build read and what the live classes say: the first counts for handlers, the second for what can be called."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import build_graph, run_graph
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
