"""The public interface, as the first document of GraphBus prints it, to the letter."""

from __future__ import annotations

import importlib

import pytest

import graphbus_core
from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe
from graphbus_core.bus import MessageBus, SimpleMessageBus
from tests.conftest import Project

SEED_MODULE = '''
from graphbus_core import GraphBusNode, schema_method, subscribe

class OrderProcessor(GraphBusNode):
    SYSTEM_PROMPT = """
    I process e-commerce orders. I validate inputs, check inventory,
    and emit order events. During build cycles, I negotiate with other
    agents to ensure our shared schemas are consistent and well-typed.
    """

    @schema_method(
        input_schema={"order_id": str, "items": list},
        output_schema={"status": str, "total": float, "event_id": str}
    )
    def process_order(self, order_id: str, items: list) -> dict:
        total = sum(item["price"] * item["qty"] for item in items)
        return {
            "status": "confirmed",
            "total": total,
            "event_id": f"ord_{order_id}"
        }

    @subscribe("/Inventory/Updated")
    def on_inventory_update(self, event):
        self.log(f"Inventory changed: {event.payload}")
'''
SEED_ARBITER = '''
from graphbus_core import GraphBusNode

class ArbiterService(GraphBusNode):
    IS_ARBITER = True

    SYSTEM_PROMPT = """
    You are an impartial arbiter. When agents disagree on a proposal:
    - Favor changes that improve correctness without breaking existing contracts
    - Reject changes that introduce risk without clear benefit
    - Be conservative: when in doubt, reject
    - Always explain your reasoning
    """
'''
ORDER = {"order_id": "7", "items": [{"price": 2.5, "qty": 2}, {"price": 1.0, "qty": 1}]}


@pytest.fixture
def order_processor() -> type[GraphBusNode]:
    namespace: dict[str, type[GraphBusNode]] = {}
    exec(SEED_MODULE, namespace)
    return namespace["OrderProcessor"]


@pytest.mark.parametrize("name", ["GraphBusNode", "schema_method", "subscribe", "depends_on", "publishes", "Event"])
def test_the_names_of_the_seed_can_be_imported_from_the_package(name: str) -> None:
    assert name in graphbus_core.__all__
    assert name in dir(graphbus_core)
    assert getattr(graphbus_core, name).__module__.startswith("graphbus_core.")


def test_every_public_name_is_there_and_an_unknown_one_is_an_attribute_error() -> None:
    assert all(getattr(graphbus_core, name) is not None for name in graphbus_core.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        graphbus_core.no_such_name  # noqa: B018


def test_a_schema_method_is_a_plain_method(order_processor: type[GraphBusNode]) -> None:
    result = order_processor().process_order(**ORDER)
    assert result == {"status": "confirmed", "total": 6.0, "event_id": "ord_7"}


def test_decorators_leave_the_function_and_the_class_as_they_are() -> None:
    def function(self: object, event: Event) -> None: ...

    class Node(GraphBusNode):
        pass

    decorators = [
        schema_method(input_schema={"a": int}, output_schema={"b": str}),
        subscribe("/Order/Created"),
        publishes("/Order/Created"),
    ]
    assert all(decorate(function) is function for decorate in decorators)
    assert publishes("/Order/Created", {"order_id": str})(Node) is Node
    assert depends_on("Other")(Node) is Node


def test_the_log_line_of_the_seed_shows_the_payload_of_the_event(
    order_processor: type[GraphBusNode], caplog: pytest.LogCaptureFixture
) -> None:
    bus = MessageBus()
    node = order_processor()
    bus.subscribe("/Inventory/Updated", node.on_inventory_update)
    with caplog.at_level("INFO"):
        bus.publish("/Inventory/Updated", {"sku": "A1", "left": 3})
    assert "Inventory changed: {'sku': 'A1', 'left': 3}" in caplog.text


def test_the_bus_of_the_runtime_pipeline_has_the_name_of_the_seed() -> None:
    assert SimpleMessageBus is MessageBus


def test_the_seeds_order_processor_is_built_and_run_as_it_stands(project: Project) -> None:
    root = project({"agents/order_processor.py": SEED_MODULE, "agents/arbiter.py": SEED_ARBITER})
    before = {path: path.read_bytes() for path in root.rglob("*.py")}
    built = graphbus_core.build_graph(root / "agents")
    agents = {agent.name: agent for agent in built.artifacts.agents.agents}
    assert agents["ArbiterService"].is_arbiter
    order_processor = agents["OrderProcessor"]
    assert order_processor.system_prompt.strip().startswith("I process e-commerce orders.")
    assert [subscription.topic for subscription in order_processor.subscriptions] == ["/Inventory/Updated"]
    method = order_processor.method("process_order")
    assert str(method.input_schema) == "{order_id: str, items: list}"
    assert str(method.output_schema) == "{status: str, total: float, event_id: str}"
    with graphbus_core.run_graph(root / ".graphbus") as graph:
        assert graph.call("OrderProcessor", "process_order", **ORDER)["event_id"] == "ord_7"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(("door", "run"), [("build", "run_build_pipeline"), ("runtime", "run_runtime_pipeline")])
def test_both_doors_have_the_function_and_the_graph_of_the_seed(door: str, run: str) -> None:
    import networkx as nx

    module = importlib.import_module(f"graphbus_core.{door}")
    pipeline = getattr(module, f"{door.upper()}_PIPELINE")
    assert callable(getattr(module, run))
    assert list(nx.topological_sort(pipeline)) == STAGES[door]


STAGES = {
    "build": [
        "LOAD_BUILD_CONFIG",
        "DISCOVER_MODULES",
        "DISCOVER_CLASSES",
        "READ_SOURCE_CODE",
        "EXTRACT_AGENT_METADATA",
        "BUILD_AGENT_GRAPH",
        "COMPUTE_TOPOLOGICAL_ORDER",
        "INIT_NEGOTIATION_ENGINE",
        "ACTIVATE_AGENTS",
        "AGENT_ANALYSIS_PHASE",
        "DETECT_SCHEMA_CONFLICTS",
        "MULTI_ROUND_NEGOTIATION_LOOP",
        "APPLY_CODE_CHANGES",
        "EMIT_BUILD_ARTIFACTS",
        "BUILD_COMPLETE",
    ],
    "runtime": [
        "LOAD_RUNTIME_CONFIG",
        "LOAD_BUILD_ARTIFACTS",
        "IMPORT_MODULES",
        "INIT_SIMPLE_BUS",
        "EXECUTE_ENTRYPOINT",
        "SHUTDOWN",
    ],
}
"""The stages of both modes as the second document of GraphBus lists them."""


def test_the_public_face_is_small_enough_to_remember() -> None:
    assert len(graphbus_core.__all__) <= 12
