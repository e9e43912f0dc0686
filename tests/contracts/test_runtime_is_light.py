"""A deployed graph loads plain Python and msgspec: no build wing, no graph library, no terminal library, no model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FORBIDDEN = {
    "a build wing": " ".join(
        f"graphbus_core.{wing}" for wing in ("build", "compiler", "editing", "negotiation", "cli")
    ),
    "what draws or parses commands": "networkx click rich markdown_it pygments",
    "a model or an HTTP client": "anthropic openai pydantic pydantic_ai litellm httpx requests aiohttp urllib3 http.client",
    "what sync handlers do not need": "asyncio concurrent.futures multiprocessing sqlite3",
    "a ledger that is not configured": "graphbus_core.ledger",
    "paths as objects, where text will do": "pathlib urllib.parse",
    "what writes artifacts": "graphbus_core.store.writing graphbus_core.store.stamps graphbus_core.store.cache",
}
FILES = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/__init__.py": "",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method

        class Orders(GraphBusNode):
            @schema_method(input_schema={"order_id": str}, output_schema={"accepted": bool})
            def place(self, order_id: str) -> dict[str, object]:
                self.publish("/Order/Placed", {"order_id": order_id})
                return {"accepted": True}
        """,
    "agents/stock.py": """
        from graphbus_core import GraphBusNode, depends_on, subscribe

        @depends_on("Orders")
        class Stock(GraphBusNode):
            @subscribe("/Order/Placed")
            def on_placed(self, event: dict[str, object]) -> None:
                print("reserved", event["order_id"])
        """,
    "main.py": """
        import atexit
        import sys

        def run(graph):
            answer = graph.call("Orders", "place", order_id="7")
            at_work = set(sys.modules)
            atexit.register(lambda: print("LOADED", *at_work.union(sys.modules)))
            return answer
        """,
}


def modules_loaded(folder: Path) -> list[str]:
    """Run the graph as a deployment would; its last words are what it has loaded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    command = [sys.executable, "-m", "graphbus_core.runtime", "--entrypoint", "main:run"]
    finished = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr[-2000:]
    assert "reserved 7" in finished.stdout
    return finished.stdout.partition("LOADED ")[2].split()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    from graphbus_core import build_graph
    from tests.project_files import write_project

    root = write_project(tmp_path_factory.mktemp("graph"), FILES)
    build_graph(root / "agents")
    return modules_loaded(root)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_running_graph_has_not_loaded(what: str, loaded: list[str]) -> None:
    unwanted = tuple(FORBIDDEN[what].split())
    assert [
        name for name in loaded if name in unwanted or name.startswith(tuple(f"{name}." for name in unwanted))
    ] == []


def test_the_list_of_loaded_modules_is_real(loaded: list[str]) -> None:
    assert {"graphbus_core.bus", "agents.stock", "msgspec"} <= set(loaded)


def test_the_public_face_loads_nothing_of_build_mode(project: Project) -> None:
    code = "import sys; from graphbus_core import GraphBusNode, subscribe, Event; print(*sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=project({}), capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    wings = FORBIDDEN["a build wing"].split()
    assert not set(wings) & set(finished.stdout.split())
