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


OWN = {
    "**out": "self.show(**out)  #! GB110",
    "a key of another type": 'self.count(out["message"])  #! GB110',
    "a parameter too many": 'self.show(msg="a", **out)  #! GB110',
    "the names that there are": "self.say(**out)",
    "names and others": "self.say(**out, times=3)",
    "any names": "self.keep(**out)",
    "the whole result": "self.whole(out)",
    "one by one": 'self.show(msg=out["message"])',
}


@pytest.mark.parametrize("line", OWN.values(), ids=OWN)
def test_a_result_that_is_handed_on_fits_the_own_method(tmp_path: Path, line: str) -> None:
    text = f"""
        class HelloService(GraphBusNode):
            @schema_method(input_schema={{}}, output_schema={{"message": str}})
            def generate_message(self): return {{"message": "Hello"}}
        @depends_on("HelloService")
        class PrinterService(GraphBusNode):
            def run(self):
                out = self.call("HelloService", "generate_message")
                {line}
            def show(self, msg: str): self.log(msg)
            def say(self, message: str, times: int = 1): self.log(message * times)
            def keep(self, **fields): self.log(fields)
            def whole(self, result): self.log(result)
            def count(self, number: int): self.log(number)
    """
    assert_marked(tmp_path, text, "GB110", "GB111")


KINDS_OF_RESULTS = {
    "key of a dataclass": ("@dataclass\nclass Q:\n    a: float", "Q(1.0)", '["a"]  #! GB111'),
    "key of a derived dataclass": ("@dataclass\nclass P:\n    a: float\nclass Q(P): ...", "Q(1.0)", '["a"]  #! GB111'),
    "attribute of a dataclass": ("@dataclass\nclass Q:\n    a: float", "Q(1.0)", ".a"),
    "key of a TypedDict": ("class Q(TypedDict):\n    a: float", '{"a": 1.0}', '["a"]'),
    "attribute of a TypedDict": ("class Q(TypedDict):\n    a: float", '{"a": 1.0}', ".a  #! GB111"),
    "key of a class with keys": (
        "@dataclass\nclass Q:\n    a: float\n    def __getitem__(self, k): ...",
        "Q(1.0)",
        '["a"]',
    ),
}


@pytest.mark.parametrize(("kind", "value", "read"), KINDS_OF_RESULTS.values(), ids=KINDS_OF_RESULTS)
def test_objects_have_attributes_and_dicts_have_keys(tmp_path: Path, kind: str, value: str, read: str) -> None:
    text = f"""
from dataclasses import dataclass
from typing import TypedDict
{kind}
class Pricing(GraphBusNode):
    @schema_method
    def quote(self) -> Q: return {value}
@depends_on(Pricing)
class Shop(GraphBusNode):
    def sell(self):
        quote = self.call("Pricing", "quote")
        self.log(quote{read.replace("  #!", ")  #!") if "#" in read else read + ")"}
"""
    assert_marked(tmp_path, text, "GB111")


def test_topics_are_compared_although_one_is_not_used(tmp_path: Path) -> None:
    text = """
        class A(TypedDict):
            a: int
        class B(TypedDict):
            b: int
        ONE = Topic("/T", A)
        OTHER = Topic("/T", B)  #! GB006
        class Agent(GraphBusNode):
            def act(self): self.publish(ONE, {"a": 1})
            @subscribe(ONE)
            def on_t(self, a: A): ...
    """
    assert_marked(
        tmp_path,
        "from typing import TypedDict\nfrom graphbus_core import Topic" + text.replace("\n        ", "\n"),
        "GB006",
    )


CONSTANTS = {
    "a word that is not wanted": '"payed"  #! GB004 GB110',
    "one of two that are not wanted": '"paid" if x else "payed"  #! GB004 GB110',
    "a word that is wanted": '"paid"',
    "either of them": '"paid" if x else "open"',
    "a text that is not known": "x",
    "a constant": "PAID",
}


@pytest.mark.parametrize("value", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_are_compared_with_the_words_that_are_wanted(tmp_path: Path, value: str) -> None:
    value, _, mark = value.partition("  #! ")
    codes = iter([*mark.split(), "", ""])
    text = f"""
PAID = "paid"
class Paid(TypedDict):
    status: Literal["open", "paid"]
@publishes("/Paid", Paid)
class Orders(GraphBusNode):
    def pay(self, x: str):
        self.publish("/Paid", {{"status": {value}}})  #! {next(codes)}
class Ledger(GraphBusNode):
    @subscribe("/Paid")
    def on_paid(self, paid: Paid): ...  #! {next(codes)}
"""
    lines = [line.removesuffix("  #! ") for line in text.splitlines()]
    lines[-1], lines[-2] = (
        lines[-1].replace("  #! GB110", ""),
        lines[-2] + ("  #! GB110" if "GB110" in lines[-1] else ""),
    )
    assert_marked(tmp_path, "from typing import Literal, TypedDict" + "\n".join(lines), "GB004", "GB110")
