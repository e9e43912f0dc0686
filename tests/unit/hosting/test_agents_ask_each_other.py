"""`self.request`: one agent asks, another one answers; and what a graph that stays up does with publishers and with exits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.errors import DeadlockError, RunError
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.runtime import run_runtime_pipeline
from tests.conftest import Project
from tests.patience import PATIENCE_S


class Stock(GraphBusNode):
    @subscribe("/Stock/Ask")
    def on_ask(self, sku: str) -> dict[str, object]:
        if sku == "none":
            raise KeyError(sku)
        return {"sku": sku, "left": 3}

    @subscribe("/Stock/AskBack")
    def on_ask_back(self) -> object:
        return self.request("/Shop/Ask")


class Shop(GraphBusNode):
    def __init__(self) -> None:
        self.answers: list[object] = []

    @subscribe("/Shop/Open")
    def on_open(self, event: object) -> None:
        self.answers.append(self.request("/Stock/Ask", {"sku": "mug"}))

    @subscribe("/Shop/Loop")
    def on_loop(self, event: object) -> None:
        self.request("/Stock/AskBack")

    @subscribe("/Shop/Ask")
    def on_ask(self) -> str:
        return "never"


class AsyncShop(GraphBusNode):
    def __init__(self) -> None:
        self.answers: list[object] = []

    @subscribe("/Shop/Open")
    async def on_open(self, event: object) -> None:
        await asyncio.sleep(0)
        self.answers.append(await self.request("/Stock/Ask", {"sku": "mug"}))


@pytest.mark.parametrize("shop", [Shop, AsyncShop])
def test_an_agent_asks_another_one(shop: type[Shop] | type[AsyncShop]) -> None:
    with connect(shop, Stock) as graph:
        graph.publish("/Shop/Open")
        assert graph.node(shop.__name__).answers == [{"sku": "mug", "left": 3}]  # type: ignore[attr-defined]
        asked = graph.bus.history()[-1]
        assert (asked.topic, asked.src) == ("/Stock/Ask", shop.__name__)


def test_a_program_asks_an_agent_and_gets_its_own_error() -> None:
    with connect(Stock) as graph:
        assert graph.request("/Stock/Ask", {"sku": "mug"}) == {"sku": "mug", "left": 3}
        with pytest.raises(KeyError, match="none"):
            graph.request("/Stock/Ask", {"sku": "none"})
        with pytest.raises(RunError) as refused:
            graph.request("/Stock/Ask", {})
    assert refused.value.code == "GBE617"


def test_agents_that_would_wait_for_each_other_are_told() -> None:
    with (
        connect(Shop, Stock) as graph,
        pytest.raises(DeadlockError, match=r"Shop\.on_loop waits for Stock\.on_ask_back"),
    ):
        graph.publish("/Shop/Loop")


class Selfish(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"result": str})
    def think(self) -> object:
        return self.request("/Selfish/Ask")

    @subscribe("/Selfish/Ask")
    def on_ask(self) -> dict[str, str]:
        return {"result": "never"}


def test_a_method_that_asks_its_own_agent_is_told() -> None:
    with connect(Selfish) as graph, pytest.raises(DeadlockError, match=r"Selfish waits for Selfish\.on_ask"):
        graph.call("Selfish", "think")


SERVED = {
    "pyproject.toml": "[tool.graphbus]\n[tool.graphbus.runtime]\nqueue = 7\nmailbox = 5\nmax_hops = 3\n",
    "agents/__init__.py": "",
    "agents/door.py": """
        import threading

        from graphbus_core import GraphBusNode, subscribe

        class Door(GraphBusNode):
            @subscribe("/Door/Knock")
            def on_knock(self) -> str:
                return threading.current_thread().name

            @subscribe("/Door/Leave")
            def on_leave(self, status: int) -> None:
                self.publish("/Door/Knock")
                raise SystemExit(status)
        """,
}


def served(root: object) -> RuntimeConfig:
    return RuntimeConfig(artifacts=f"{root}/.graphbus", is_serving=True)


def test_a_graph_that_stays_up_delivers_on_a_thread_of_its_own_and_keeps_its_settings(project: Project) -> None:
    from graphbus_core import build_graph

    root = project(SERVED)
    build_graph(root / "agents")
    found: list[object] = []

    def work(graph: object) -> None:
        receipt = graph.publish("/Door/Knock")  # type: ignore[attr-defined]
        assert receipt.wait(PATIENCE_S)
        found.append([each.value for each in receipt.results])
        bus = graph.bus  # type: ignore[attr-defined]
        found.append((bus._core.capacity, bus._core.mailbox, bus._core.max_hops))

    run_runtime_pipeline(served(root), work=work)
    assert found == [["graphbus-dispatcher"], (7, 5, 3)]
    assert not [each for each in threading.enumerate() if each.name.startswith("graphbus-")]


def test_a_handler_that_exits_ends_a_graph_that_stays_up_in_good_order(project: Project) -> None:
    from graphbus_core import build_graph
    from graphbus_core.hosting.signals import StopRequested, stop_on_signals, wait_for_signal

    root = project(SERVED)
    build_graph(root / "agents")
    log: list[object] = []

    def work(graph: object) -> None:
        log.append(graph.bus)  # type: ignore[attr-defined]
        graph.publish("/Door/Leave", {"status": 9})  # type: ignore[attr-defined]
        wait_for_signal()

    with stop_on_signals() as patience:
        patience.is_busy = lambda: False
        with pytest.raises(SystemExit) as left:
            run_runtime_pipeline(served(root), work=work)
    assert left.value.code == 9
    assert isinstance(left.value.__context__, StopRequested)
    assert log[0].history()[-1].topic == "/Door/Knock", "what waited was delivered"  # type: ignore[attr-defined]
