"""LangGraph: a graph of nodes over a shared state, here without a model and without a checkpointer: only the cost of the engine.

It keeps and merges a state between the steps, can stop and go on, and streams; a publish to n handlers is a step with n nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from protocol import ORDER, PAYLOAD, serve
from pydantic import BaseModel
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    """An order as a plain state."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


class Order(BaseModel):
    """An order whose fields are checked when it enters the graph."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


class Flow(TypedDict, total=False):
    """The state of the small graph."""

    order_id: str
    sku: str
    qty: int
    seen: Annotated[list[str], lambda before, more: before + more]


def hear(state: Any) -> dict[str, object]:
    """Do next to nothing."""
    return {}


async def hear_async(state: Any) -> dict[str, object]:
    """Do next to nothing on the loop."""
    return {}


def compiled(schema: type, count: int, node: Callable[[Any], object]) -> Any:
    """A graph that goes from the start to so many nodes at once."""
    graph = StateGraph(schema)
    for number in range(count):
        graph.add_node(f"node{number}", node)
        graph.add_edge(START, f"node{number}")
        graph.add_edge(f"node{number}", END)
    return graph.compile()


def publish(schema: type, count: int) -> Callable[[], object]:
    """`invoke` of a graph with so many nodes."""
    graph = compiled(schema, count, hear)
    return lambda: graph.invoke(PAYLOAD)


def awaited() -> Callable[[], object]:
    """`ainvoke` of a graph with one async node."""
    graph = compiled(State, 1, hear_async)

    async def work() -> None:
        await graph.ainvoke(PAYLOAD)

    return work


def first_event() -> None:
    """Three nodes in a row."""

    def validate(state: Flow) -> Flow:
        return {}

    def reserve(state: Flow) -> Flow:
        return {}

    def confirm(state: Flow) -> Flow:
        return {"seen": [state["order_id"]]}

    graph = StateGraph(Flow)
    graph.add_node("validate", validate)
    graph.add_node("reserve", reserve)
    graph.add_node("confirm", confirm)
    graph.add_edge(START, "validate")
    graph.add_conditional_edges("validate", lambda state: "reserve" if state["qty"] else END, ["reserve", END])
    graph.add_edge("reserve", "confirm")
    graph.add_edge("confirm", END)
    assert graph.compile().invoke({**ORDER, "seen": []})["seen"] == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(State, 1),
            "publish, 10 handlers": lambda: publish(State, 10),
            "publish, 100 handlers": lambda: publish(State, 100),
            "typed payload": lambda: publish(Order, 1),
            "async handler": awaited,
        },
        first_event,
    )
