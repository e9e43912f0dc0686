"""An order is validated, reserved and confirmed, with LangGraph."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph

left = {"mug": 1_000_000}


class Order(TypedDict, total=False):
    order_id: str
    sku: str
    qty: int
    status: str


def validate(order: Order) -> Order:
    return {} if order["qty"] > 0 else {"status": "invalid"}


def reserve(order: Order) -> Order:
    if left.get(order["sku"], 0) < order["qty"]:
        return {"status": "sold out"}
    left[order["sku"]] -= order["qty"]
    return {}


def confirm(order: Order) -> Order:
    return {"status": "confirmed"}


def closed_or(step: str):
    return lambda order: END if "status" in order else step


builder = StateGraph(Order)
builder.add_node("validate", validate)
builder.add_node("reserve", reserve)
builder.add_node("confirm", confirm)
builder.add_edge(START, "validate")
builder.add_conditional_edges("validate", closed_or("reserve"), ["reserve", END])
builder.add_conditional_edges("reserve", closed_or("confirm"), ["confirm", END])
builder.add_edge("confirm", END)
graph = builder.compile()


def handle(order: dict) -> str:
    return graph.invoke(order)["status"]
