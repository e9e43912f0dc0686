"""The same with LangGraph, with a model that reads the customer's note and says whether it is an order at all."""

import json
import os
from typing import TypedDict
from urllib.request import Request, urlopen

from langgraph.graph import END, START, StateGraph

left = {"mug": 1_000_000}
QUESTION = "Is this note part of an order that can be carried out as it stands? Answer with yes or no.\n\n"


class Order(TypedDict, total=False):
    order_id: str
    sku: str
    qty: int
    note: str
    status: str


def ask(question: str) -> str:
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": question}]}).encode()
    request = Request(os.environ["MODEL_URL"], body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def validate(order: Order) -> Order:
    if order["qty"] <= 0 or not ask(QUESTION + order.get("note", "")).startswith("yes"):
        return {"status": "invalid"}
    return {}


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
