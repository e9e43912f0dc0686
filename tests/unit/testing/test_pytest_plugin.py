"""The fixtures, in a real run of pytest as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILES = {
    "pyproject.toml": "",
    "conftest.py": 'pytest_plugins = ["graphbus_core.testing.plugin"]\n',
    "agents/__init__.py": "",
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, schema_method, subscribe

        class Stock(GraphBusNode):
            tried = 0

            @subscribe("/Order/Placed", retries=2, backoff=60)
            def on_order(self, order_id):
                self.tried += 1
                if self.tried < 3:
                    raise TimeoutError("busy")
                self.publish("/Stock/Reserved", {"order_id": order_id})

            def on_stop(self):
                print("stopped")

        class Rude(GraphBusNode):
            failed = False

            @subscribe("/Order/Lost")
            def on_lost(self, n):
                if not self.failed:
                    self.failed = True
                    raise LookupError("lost")

            @schema_method(input_schema={"n": int})
            def count(self, n):
                return n
        """,
    "test_stock.py": """
        from agents.stock import Rude, Stock

        def test_an_order_is_tried_again(run_graph, fake_clock):
            graph = run_graph(Stock, on_error="isolate")
            graph.publish("/Order/Placed", {"order_id": "1"})
            graph.assert_not_published("/Stock/Reserved")
            assert fake_clock.waiting == [60.0]
            fake_clock.advance(60)
            assert fake_clock.waiting == [120.0]
            fake_clock.advance(120)
            graph.assert_published("/Stock/Reserved", order_id="1")

        def test_two_graphs_are_both_stopped(run_graph):
            run_graph(Stock)
            run_graph(Stock)

        def test_what_fails_is_told(run_graph):
            run_graph(Stock).assert_published("/Order/Placed")

        def test_a_handler_fails(run_graph):
            run_graph(Rude).publish_all(("/Order/Lost", {"n": 1}), ("/Order/Lost", {"n": "x"}))

        def test_a_call_is_refused(run_graph):
            run_graph(Rude).call("Rude", "count", n="x")
        """,
}


def environment(*left_out: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", *left_out))}


def test_graphs_of_the_fixture_are_stopped_and_have_the_time_of_the_other_fixture(project: Project) -> None:
    root = project(FILES)
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-W", "error"],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "3 failed, 2 passed" in finished.stdout, finished.stdout + finished.stderr
    assert finished.stdout.count("stopped") == 4
    assert "AssertionError: nothing was published on /Order/Placed." in finished.stdout
    assert "def assert_published" not in finished.stdout, "the failure is shown at the line of the test"
    assert "> " + " " * 10 + 'raise LookupError("lost")' in finished.stdout
    assert "Rude.count was called with the wrong arguments: n: expected int, got str 'x'" in finished.stdout
    assert "graphbus_core/" not in finished.stdout
    assert "???" not in finished.stdout


def test_the_kit_itself_loads_no_pytest(tmp_path: Path) -> None:
    program = "import sys, graphbus_core.testing; print(*sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment("COV"),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in finished.stdout.split()}
    assert not loaded & {"pytest", "_pytest", "networkx", "rich", "click", "asyncio", "sqlite3"}
    assert "graphbus_core.runtime" not in finished.stdout.split()
