"""What the code itself decides is fixed, and what it leaves open is not; each change is tried on the whole project first."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import fixed, read, text_of

PRICING = """
class Pricing(GraphBusNode):
    @schema_method({"sku": str, "quantity": int}, {"amount": float, "currency": str})
    def quote(self, sku: str, quantity: int):
        return {"amount": 1.5, "currency": "EUR"}
"""
ORDERS = (
    PRICING
    + """
@depends_on("Pricing")
class Orders(GraphBusNode):
    @schema_method({"sku": str, "quantity": int}, {"currency": str})
    def order(self, sku: str, quantity: int):
        %s
"""
)
QUOTE = 'quote = self.call("Pricing", "quote", sku=sku, quantity=quantity)'
RETURN = 'return {"currency": quote["currency"]}'
STOCK = """
@publishes("/Stock/Low", {"sku": str, "level": int})
class Stock(GraphBusNode):
    def check(self, sku: str, level: int, line: dict):
        self.publish("/Stock/Low", %s)
"""
LISTENER = STOCK % '{"sku": sku, "level": level}' + "class Listener(GraphBusNode):\n%s"
LITERAL = """
from typing import Literal, TypedDict
T = {"paid": "/Bill/Paid", "sent": "/Bill/Sent"}

class Paid(TypedDict):
    status: Literal["open", "paid", "void"]

@publishes(T["paid"], Paid)
class Bills(GraphBusNode):
    def pay(self, is_paid: bool):
        self.publish(T["paid"], {"status": "paid" if is_paid else "open"})

    @subscribe("/Bill/Paid")
    def on_paid(self, event): print(event["status"])
"""


def ordering(*lines: str) -> str:
    return ORDERS % "\n        ".join(lines)


def listening(*lines: str) -> str:
    return LISTENER % "".join(f"    {line}\n" for line in ('@subscribe("/Stock/Low")', *lines))


def making(*lines: str) -> str:
    return "class A(GraphBusNode):\n" + "".join(f"    {line}\n" for line in lines)


FIXED = {
    "a key is read under the name that its value gets": (
        "GB111",
        ordering(QUOTE, 'return {"currency": quote["unit"]}'),
        ordering(QUOTE, RETURN),
    ),
    "also when it is converted": (
        "GB111",
        ordering(QUOTE, 'amount = round(quote["sum"], 2)', RETURN),
        ordering(QUOTE, 'amount = round(quote["amount"], 2)', RETURN),
    ),
    "a method is called by the name that its result gets": (
        "GB110",
        ordering(QUOTE.replace('"quote"', '"price"'), RETURN),
        ordering(QUOTE, RETURN),
    ),
    "an argument that is left out": (
        "GB110",
        ordering(QUOTE.replace(", quantity=quantity", ""), RETURN),
        ordering(QUOTE, RETURN),
    ),
    "an argument that is converted": (
        "GB110",
        ordering(QUOTE.replace("=quantity", "=str(quantity)"), RETURN),
        ordering(QUOTE, RETURN),
    ),
    "an argument that is a text": (
        "GB110",
        ordering(QUOTE.replace("=quantity", '="3"'), RETURN),
        ordering(QUOTE.replace("=quantity", "=3"), RETURN),
    ),
    "an argument in a list": (
        "GB110",
        ordering(QUOTE.replace("=sku", "=[sku]"), RETURN),
        ordering(QUOTE, RETURN),
    ),
    "what stands behind ** with another name": (
        "GB110",
        ordering('given = {"name": sku}', QUOTE, 'self.call("Pricing", "quote", **given, quantity=1)', RETURN),
        ordering('given = {"sku": sku}', QUOTE, 'self.call("Pricing", "quote", **given, quantity=1)', RETURN),
    ),
    "a key that is left out": ("GB004", STOCK % '{"sku": sku}', STOCK % '{"sku": sku, "level": level}'),
    "a key under another name": ("GB004", STOCK % '{"sku": sku, "rest": 3}', STOCK % '{"sku": sku, "level": 3}'),
    "a parameter under another name": (
        "GB110",
        listening("def on_low(self, sku: str, amount: int): print(amount)"),
        listening("def on_low(self, sku: str, level: int): print(level)"),
    ),
    "the type that is declared for a parameter": (
        "GB110",
        listening("def on_low(self, sku: str, level: str): print(level)"),
        listening("def on_low(self, sku: str, level: int): print(level)"),
    ),
    "an annotation against the schema and its callers": (
        "GB106",
        ordering(QUOTE, RETURN).replace("quantity: int):\n        return", "quantity: list):\n        return"),
        ordering(QUOTE, RETURN),
    ),
    "an attribute of an event": (
        "GB310",
        listening("def on_low(self, event): print(event.sku)"),
        listening('def on_low(self, event): print(event["sku"])'),
    ),
    "a handler named like the topic": (
        "GB312",
        listening("def on_low(self, event): ...").replace('@subscribe("/Stock/Low")', "@subscribe"),
        listening("def on_low(self, event): ..."),
    ),
    "several topics in a list": (
        "GB313",
        listening("def on_low(self, event): ...").replace('("/Stock/Low")', '(["/Stock/Low", "/Stock/*"])'),
        listening("def on_low(self, event): ...").replace('("/Stock/Low")', '("/Stock/Low", "/Stock/*")'),
    ),
    "an answer that is not awaited": (
        "GB314",
        ordering(f'return {{"currency": {QUOTE[8:]}["currency"]}}').replace("def order", "async def order"),
        ordering(f'return {{"currency": (await {QUOTE[8:]})["currency"]}}').replace("def order", "async def order"),
    ),
    "a bus that nothing uses": (
        "GB315",
        making("def __init__(self, bus):", "    super().__init__(bus)"),
        making("def __init__(self):", "    super().__init__()"),
    ),
    "a parameter that may be None": (
        "GB315",
        making("def __init__(self, size: int | None):", "    self.size = size"),
        making("def __init__(self, size: int | None = None):", "    self.size = size"),
    ),
    "a publish that comes too early": (
        "GB316",
        making("def __init__(self):", "    self.size = 1", '    self.publish("/A/Made", {"size": self.size})'),
        making(
            *("def __init__(self):", "    self.size = 1", ""),
            *("def on_start(self) -> None:", '    self.publish("/A/Made", {"size": self.size})'),
        ).replace("    \n", "\n"),
    ),
    "a decorator above a classmethod": (
        "GB317",
        listening("@classmethod", "def on_low(cls, event): ..."),
        listening("def on_low(cls, event): ...").replace("    @sub", "    @classmethod\n    @sub"),
    ),
    "an override without its decorator": (
        "GB318",
        listening("def on_low(self, event): ...") + "class Other(Listener):\n    def on_low(self, event): ...\n",
        listening("def on_low(self, event): ...")
        + 'class Other(Listener):\n    @subscribe("/Stock/Low")\n    def on_low(self, event): ...\n',
    ),
    "an event that is not used": (
        "GB321",
        listening("def on_low(self, event: Event, sku: str): print(sku)"),
        listening("def on_low(self, sku: str): print(sku)"),
    ),
    "a text that is nearly one of a Literal": (
        "GB004",
        LITERAL.replace('"paid" if', '"payed" if'),
        LITERAL,
    ),
    "a topic that is looked up under a misspelled key": (
        "GB313",
        LITERAL.replace('T["paid"], {', 'T["payd"], {'),
        LITERAL,
    ),
    "an attribute for a key of a result": (
        "GB111",
        ordering(QUOTE, 'return {"currency": quote.currency}'),
        ordering(QUOTE, RETURN),
    ),
    "an agent by its name": (
        "GB324",
        ordering('quote = self.agent("Pricing").quote(sku=sku, quantity=quantity)', RETURN),
        ordering(QUOTE, RETURN),
    ),
    "a value where a mapping of one key is declared": (
        "GB104",
        making('@schema_method({}, {"count": int})', "def count(self) -> dict[str, int]:", "    return 3"),
        making('@schema_method({}, {"count": int})', "def count(self) -> dict[str, int]:", '    return {"count": 3}'),
    ),
    "a text in the place of an event": (
        "GB310",
        listening("def on_low(self, msg: str): print(msg)"),
        listening("def on_low(self, sku: str): print(sku)"),
    ),
    "a key of one of two branches": (
        "GB004",
        STOCK % '{"sku": sku, "level": 1} if line else {"sku": sku, "rest": 3}',
        STOCK % '{"sku": sku, "level": 1} if line else {"sku": sku, "level": 3}',
    ),
    "an await of what gives nothing": (
        "GB314",
        making("async def go(self):", '    await self.publish("/A/Gone", {})'),
        making("async def go(self):", '    self.publish("/A/Gone", {})'),
    ),
    "a message of the constructor where there is an on_start": (
        "GB316",
        making(
            "def __init__(self):",
            "    super().__init__()",
            '    self.publish("/A/Made", {})',
            "def on_start(self):",
            "    self.n = 1",
        ),
        making(
            "def __init__(self):",
            "    super().__init__()",
            "def on_start(self):",
            "    self.n = 1",
            '    self.publish("/A/Made", {})',
        ),
    ),
    "a key that is written as a number": (
        "GB003",
        listening("def on_low(self, event): self.log('%d', event['rest'])"),
        listening("def on_low(self, event): self.log('%d', event['level'])"),
    ),
}


@pytest.mark.parametrize(("code", "wrong", "right"), FIXED.values(), ids=FIXED)
def test_what_the_code_decides_is_fixed(tmp_path: Path, code: str, wrong: str, right: str) -> None:
    assert text_of(fixed(read(tmp_path, wrong), code)).strip() == right.strip()


OPEN = {
    "two keys may be meant": ("GB111", ordering(QUOTE, 'print(quote["sum"])', RETURN)),
    "a key may be read twice": ("GB111", ordering(QUOTE, 'print(quote["sum"], quote["amount"])', RETURN)),
    "no variable has the name": (
        "GB110",
        ordering(QUOTE.replace("quantity=quantity", ""), RETURN).replace(
            "quantity: int):\n        quote", "count: int):\n        quote"
        ),
    ),
    "both arguments are left out": (
        "GB110",
        ordering(QUOTE.replace(", sku=sku, quantity=quantity", ""), RETURN).replace(
            "sku: str, quantity: int):\n        quote", "name: str, count: int):\n        quote"
        ),
    ),
    "the variable is part of another argument": (
        "GB110",
        ordering(QUOTE.replace("sku=sku, quantity=quantity", "sku=sku * quantity"), RETURN),
    ),
    "the variable may not be assigned": (
        "GB004",
        (STOCK % '{"sku": sku}')
        .replace(", level: int", "")
        .replace("        self", "        if line:\n            level = 1\n        self"),
    ),
    "another value is converted": ("GB110", ordering(QUOTE.replace("=quantity", "=str(sku)"), RETURN)),
    "the parameter is taken for the payload": ("GB110", listening("def on_low(self, sku: str, low: int): print(low['level'])")),
    "the parameter has no type": ("GB110", listening("def on_low(self, sku, low): print(low)")),
    "the body needs the other type": ("GB110", listening("def on_low(self, sku: str, level: str): print(level.upper())")),
    "nobody decides between schema and annotation": ("GB106", PRICING.replace("quantity: int)", "quantity: list)")),
    "no topic ends with the name of the handler": (
        "GB312",
        listening("def on_high(self, event): ...").replace('@subscribe("/Stock/Low")', "@subscribe"),
    ),
    "the bus is used": ("GB315", making("def __init__(self, bus):", "    self.bus = bus")),
    "an argument of the constructor is published": (
        "GB316",
        making("def __init__(self, size=1):", "    self.size = size", '    self.publish("/A/Made", {"size": size})'),
    ),
    "two texts of a Literal are as near": ("GB004", LITERAL.replace('"paid" if', '"vpen" if')),
    "a key that neither topic nor variable says": ("GB313", LITERAL.replace('T["paid"], {', 'T["left"], {')),
    "a value where several keys are declared": (
        "GB104",
        making('@schema_method({}, {"count": int, "sum": int})', "def count(self) -> dict[str, int]:", "    return 3"),
    ),
    "the one record is left without a key": ("GB004", (STOCK % '{"level": 1}').replace("sku: str, level", "level")),
    "two fields have the type of the text": (
        "GB310",
        listening("def on_low(self, msg: str): print(msg)").replace('l": int', 'l": str').replace("l: int", "l: str"),
    ),
    "the name of the text is bound again": (
        "GB310",
        listening("def on_low(self, msg: str):", "    msg = msg.strip()", "    print(msg)")
        .replace('"sku": str', '"event": str').replace("sku: str", "event: str").replace('"sku": sku', '"event": event'),
    ),
    "the result of time.sleep is used": (
        "GB310", "import time\n" + listening("async def on_low(self, event): print(time.sleep(1))"),
    ),
    "the statement is written twice": ("GB322", 'from graphbus_core import Topic\nprint(Topic("Sold"))\nprint(Topic("Sold"))\n'),
    "a base may have another on_start": (
        "GB316",
        making("def __init__(self):", "    super().__init__()", '    self.publish("/A/Made", {})').replace(
            "class A(GraphBusNode)", "class Base(GraphBusNode):\n    pass\nclass A(Base)"
        ),
    ),
    "other names are imported from there": ("GB319", "from graphbus_core.nodes import Topic, nothing\nprint(Topic, nothing)\n"),
    "the event is used": ("GB321", listening("def on_low(self, event: Event, sku: str): print(event.topic, sku)")),
}  # fmt: skip


@pytest.mark.parametrize(("code", "text"), OPEN.values(), ids=OPEN)
def test_what_the_code_leaves_open_is_not_fixed(tmp_path: Path, code: str, text: str) -> None:
    project = read(tmp_path, text)
    found = [each for each in rules.check(project) if each.code == code]
    assert found
    assert [rules.fix_for(each, project) for each in found] == [None] * len(found)
