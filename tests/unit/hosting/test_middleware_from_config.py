"""`middleware` of `[tool.graphbus.runtime]`: found in the project, in order, or refused with what would fix it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbus_core import build_graph, run_graph, runtime
from graphbus_core.errors import GraphBusError, Place, RunError
from graphbus_core.middleware import Handling
from graphbus_core.model.config import RuntimeConfig
from tests.conftest import Project

SHOP = """
    from graphbus_core import GraphBusNode, schema_method

    class Shop(GraphBusNode):
        def on_start(self):
            self.log_of_middleware = []

        @schema_method(input_schema={}, output_schema={"log": list})
        def log(self):
            import my_shop.around
            return {"log": my_shop.around.LOG}
    """
AROUND = """
    from graphbus_core.middleware import Handling

    LOG = []

    def timing(handling):
        LOG.append("timing")
        yield

    class Counting:
        def __call__(self, handling):
            LOG.append("counting")
            yield

    class NeedsMuch:
        def __init__(self, much):
            pass

    counting = Counting()
    number = 3
    """


def configured(*names: str) -> str:
    return f"[tool.graphbus.runtime]\nmiddleware = {list(names)!r}\n"


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = project(
        {
            "pyproject.toml": "",
            "my_shop/__init__.py": "",
            "my_shop/agents.py": SHOP,
            "my_shop/around.py": AROUND,
            "my_shop/broken.py": "import nothing_like_this",
        }
    )
    monkeypatch.chdir(root)
    build_graph("my_shop")
    before = list(sys.path), set(sys.modules)
    yield root
    assert sys.path == before[0]
    assert not {name for name in set(sys.modules) - before[1] if name.startswith("my_shop")}


def log_with(root: Path, *names: str) -> object:
    (root / "pyproject.toml").write_text(configured(*names), encoding="utf-8")
    with run_graph() as graph:
        return list(graph.call("Shop", "log")["log"])


def test_instruments_of_the_request_go_around_the_middleware_of_the_project(shop: Path) -> None:
    def watch(handling: Handling) -> Iterator[None]:
        sys.modules["my_shop.around"].LOG.append(f"watch {handling.name}")
        yield

    (shop / "pyproject.toml").write_text(configured("my_shop.around:timing"), encoding="utf-8")
    result = runtime.run_runtime_pipeline(
        RuntimeConfig(instruments=(watch,)),
        work=lambda graph: list(graph.call("Shop", "log")["log"]),
    )
    assert result.value == ["watch Shop.log", "timing"]


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("timing", "GBE663", "the module or the name is missing"),
        ("my_shop.around:", "GBE663", "the module or the name is missing"),
        (":timing", "GBE663", "the module or the name is missing"),
        ("my_shop.arround:timing", "GBE663", "the project has no module my_shop.arround"),
        ("json:dumps", "GBE663", "the project has no module json"),
        ("my_shop.around:timng", "GBE663", "my_shop.around has no 'timng' (did you mean 'timing'?)"),
        ("my_shop.around:counting.nothing", "GBE663", "my_shop.around has no 'counting.nothing'"),
        ("my_shop.around:number", "GBE663", "'int' cannot be called"),
        ("my_shop.around:NeedsMuch", "GBE663", "missing 1 required positional argument: 'much'"),
        ("my_shop.broken:timing", "GBE601", "No module named 'nothing_like_this'"),
    ],
)
def test_middleware_that_cannot_be_used_starts_nothing(shop: Path, name: str, code: str, sentence: str) -> None:
    with pytest.raises(RunError) as caught:
        log_with(shop, name)
    assert caught.value.code == code
    assert sentence in caught.value.sentence
    assert caught.value.where is not None


def test_the_file_that_names_a_wrong_middleware_is_the_place(
    shop: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_place = tmp_path_factory.mktemp("etc") / "graphbus.toml"
    monkeypatch.setenv("GRAPHBUS_CONFIG", str(of_place))
    of_place.write_text("[runtime]\ngrace_s = 1\n", encoding="utf-8")
    with pytest.raises(RunError) as caught:
        log_with(shop, "nothing")
    assert caught.value.where == Place(str(shop / "pyproject.toml"), 2)
    of_place.write_text("[runtime]\ngrace_s = 1\nmiddleware = ['nothing']\n", encoding="utf-8")
    with pytest.raises(RunError) as caught:
        log_with(shop, "my_shop.around:timing")
    assert caught.value.where == Place(str(of_place), 3)


def test_a_module_of_the_project_that_another_one_hides_is_refused(shop: Path) -> None:
    (shop / "json.py").write_text("def timing(handling):\n    yield\n", encoding="utf-8")
    with pytest.raises(GraphBusError) as caught:
        log_with(shop, "json:timing")
    assert caught.value.code == "GBE508"  # the new file takes the name of a module that the agents import
