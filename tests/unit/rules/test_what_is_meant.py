"""What the code itself decides is mended, and what it leaves open is not; each change is tried on the whole project first."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import mended, read, text_of

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


def ordering(*lines: str) -> str:
    return ORDERS % "\n        ".join(lines)


def listening(*lines: str) -> str:
    return LISTENER % "".join(f"    {line}\n" for line in ('@subscribe("/Stock/Low")', *lines))


def making(*lines: str) -> str:
    return "class A(GraphBusNode):\n" + "".join(f"    {line}\n" for line in lines)


MENDED = {
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
}


@pytest.mark.parametrize(("code", "wrong", "right"), MENDED.values(), ids=MENDED)
def test_what_the_code_decides_is_mended(tmp_path: Path, code: str, wrong: str, right: str) -> None:
    assert text_of(mended(read(tmp_path, wrong), code)).strip() == right.strip()


OPEN = {
    "two keys may be meant": ("GB111", ordering(QUOTE, 'print(quote["sum"])', RETURN)),
    "a key may be read twice": ("GB111", ordering(QUOTE, 'print(quote["sum"], quote["amount"])', RETURN)),
    "no variable has the name": (
        "GB110",
        ordering(QUOTE.replace("quantity=quantity", ""), RETURN).replace(
            "quantity: int):\n        quote", "count: int):\n        quote"
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
    "the event is used": ("GB321", listening("def on_low(self, event: Event, sku: str): print(event.topic, sku)")),
}  # fmt: skip


@pytest.mark.parametrize(("code", "text"), OPEN.values(), ids=OPEN)
def test_what_the_code_leaves_open_is_not_mended(tmp_path: Path, code: str, text: str) -> None:
    project = read(tmp_path, text)
    found = [each for each in rules.check(project) if each.code == code]
    assert found
    assert [rules.fix_for(each, project) for each in found] == [None] * len(found)
