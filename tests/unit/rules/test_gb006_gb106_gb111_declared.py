"""GB006, GB106, GB111, and what publishers declare: findings that follow from declared types alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checking import assert_marked

HELLO = """
class HelloService(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"message": str})
    def generate_message(self): return {"message": "Hello"}

class PrinterService(GraphBusNode):
    @schema_method(input_schema={"msg": str}, output_schema={"done": bool})
    def print_message(self, msg: str): return {"done": bool(msg)}

@depends_on("HelloService", "PrinterService")
class Main(GraphBusNode):
    def run(self):
        out = self.call("HelloService", "generate_message")
        %s
"""
SPELLINGS = {
    "**out": 'self.call("PrinterService", "print_message", **out)  #! GB110',
    "a key": 'self.call("PrinterService", "print_message", msg=out["msg"])  #! GB111',
    "a proxy": "self.agent(PrinterService).print_message(**out)  #! GB110",
    "spread": 'self.call("PrinterService", "print_message", **{**out})  #! GB110',
    "the right key": 'self.call("PrinterService", "print_message", msg=out["message"])',
    "a key that may be missing": 'self.log(out.get("reply"))',
}


@pytest.mark.parametrize("line", SPELLINGS.values(), ids=SPELLINGS)
def test_a_result_is_compared_with_what_the_other_agent_declares(tmp_path: Path, line: str) -> None:
    assert_marked(tmp_path, HELLO % line, "GB110", "GB111")


DECLARED = """
from typing import TypedDict
from graphbus_core import Topic
class Order(TypedDict):
    order_id: str
    total: float
CREATED = Topic("/Order/Created", Order)
def anything(): ...
"""
FLOWS = {
    "a reader against a declared topic": """
class Orders(GraphBusNode):
    def go(self): self.publish(CREATED, anything())
class Books(GraphBusNode):
    @subscribe("/Order/Created")
    def on_created(self, event): self.log(event["totl"])  #! GB003
""",
    "a value against its own declaration": """
class Orders(GraphBusNode):
    def go(self): self.publish(CREATED, {"order_id": "1", "total": "much"})  #! GB004
""",
    "a handler against its own topic": """
class Books(GraphBusNode):
    @subscribe(CREATED)  #! GB110
    def on_created(self, order_id: int): self.log(str(order_id))
""",
    "two types of one topic": """
class Other(TypedDict):
    number: int
class Orders(GraphBusNode):
    def go(self, order: Order): self.publish(CREATED, order)
class Books(GraphBusNode):
    @subscribe(Topic("/Order/Created", Other))  #! GB006
    def on_created(self): ...
""",
    "a schema against its signature": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"g": dict}, output_schema={})
    def go(self, g: list): ...  #! GB106
""",
    "a default beside a schema": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"name": str}, output_schema={})
    def go(self, name: str = "World"): ...
""",
}


@pytest.mark.parametrize("text", FLOWS.values(), ids=FLOWS)
def test_what_is_declared_counts(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, DECLARED + text, "GB003", "GB004", "GB006", "GB106", "GB110")


HANDED_ON = """
def shown(quote%s):
    return quote["amont"]  %s

class Pricing(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"amount": float})
    def quote(self):
        return {"amount": 1.0}

@depends_on("Pricing")
class Orders(GraphBusNode):
    def pay(self):
        %s
"""


@pytest.mark.parametrize(
    ("annotation", "mark", "line"),
    [
        ("", "#! GB111", 'shown(self.call("Pricing", "quote"))'),
        ("", "#! GB111", 'quote = self.call("Pricing", "quote"); shown(quote=quote)'),
        (": dict", "#! GB111", 'quote = self.call("Pricing", "quote"); shown(quote)'),
        ("", "", 'quote = self.call("Pricing", "quote"); shown({**quote, "amont": 2.0})'),
    ],
)
def test_a_result_is_followed_to_who_gets_it(tmp_path: Path, annotation: str, mark: str, line: str) -> None:
    assert_marked(tmp_path, HANDED_ON % (annotation, mark, line), "GB111")
