"""What expressions are worth where types are declared: by functions, classes, names, and by what other agents give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reading import read_agent

HEAD = """
from __future__ import annotations
import copy, dataclasses, msgspec, uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypedDict, cast
import functools

class Order(TypedDict):
    order_id: str
    total: float

@dataclass
class Quote:
    amount: float
    sku: str = ""

    def to_order(self) -> Order: ...

    @property
    def rounded(self) -> int: ...

class Money(msgspec.Struct):
    amount: float

class Repository:
    def load(self, order_id: str) -> Order: ...
    async def fetch(self) -> Order: ...

def build(order) -> Order: ...
async def fetch() -> Order: ...
def shown(order): return {"order_id": "x", "total": 1.0}
def twice(order):
    if order: return {"order_id": "x"}
    return {"order_id": "y"}
def forever(order): return forever(order)
@functools.cache
def cached() -> Order: ...
def wrap(function): return function
@wrap
def wrapped() -> Order: ...

class A(GraphBusNode):
    rate: float

    def __init__(self, repository: Repository):
        self._repository = repository
        self._own = Repository()
        self._stock: dict[str, int] = {}
        self._name = "shop"
        self._count = 0

    def count(self):
        self._count += 1

    def _total(self) -> float: ...
    def _payload(self): return {"order_id": self._name}

    async def go(self, order: Order, quote: Quote, orders: list[Order], unknown):
        %s
        self.publish("/T", %s)
"""
ORDER = "{order_id: str, total: float}"
FIELDS = {
    "order": ORDER,
    "quote": "{amount: float, sku?: str}",
    "asdict(quote)": "{amount: float, sku?: str}",
    "dataclasses.replace(quote, amount=2.0)": "{amount: float, sku?: str}",
    "copy.deepcopy(order)": ORDER,
    "order.copy()": ORDER,
    "dict(order)": ORDER,
    "dict(order, total=1)": "{order_id: str, total: int}",
    "{**order, 'total': 'x'}": "{order_id: str, total: str}",
    "order | {'seen': True}": "{order_id: str, total: float, seen: bool}",
    "{**unknown, 'a': 1}": "{a: int, ...}",
    "build(unknown)": ORDER,
    "shown(unknown)": ORDER,
    "twice(unknown)": "{order_id: str}",
    "cached()": ORDER,
    "wrapped()": "None",
    "forever(unknown)": "None",
    "await fetch()": ORDER,
    "fetch()": "None",
    "quote.to_order()": ORDER,
    "self._own.load('x')": ORDER,
    "self._repository.load('x')": ORDER,
    "await self._own.fetch()": ORDER,
    "self._payload()": "{order_id: str}",
    "cast(Order, unknown)": ORDER,
    "cast('Order', unknown)": ORDER,
    "Money(amount=1)": "{amount: float}",
    "Money(amount='x')": "{amount: str}",
    "Order(order_id='x', total=1.0)": ORDER,
    "Order(order_id='x')": "{order_id: str}",
    "Order(order_id='x', totl=1.0)": "{order_id: str, totl: float}",
    "msgspec.to_builtins(Money(amount=1.0))": "{amount: float}",
    "orders[0]": ORDER,
    "{key: order[key] for key in ('order_id', 'total')}": "{order_id: ?, total: ?}",
    "{name: 0.5 for name, _ in {'a': 1, 'b': 2}.items()}": "{a: float, b: float}",
    "{name: value for name, value in (('a', 'total'), ('b', 3))}": "{a: str, b: int}",
    "{key: 1 for key in ('a', 'b') if unknown}": "None",
    "{key: 1 for key in unknown}": "None",
    "unknown": "None",
    "unknown.thing()": "None",
}
TYPES = {
    "order['total']": "float",
    "order['gone']": "?",
    "order.get('total')": "float",
    "quote.amount": "float",
    "quote.rounded": "int",
    "self._total()": "float",
    "self.rate": "float",
    "self._name": "str",
    "self._count": "?",
    "self._stock['mug']": "int",
    "self._stock.get('mug', 0)": "int",
    "self._stock.get('mug')": "int | None",
    "[each['total'] for each in orders]": "list[float]",
    "[order for order in orders]": "list[Order]",
    "{each['order_id']: each['total'] for each in orders}": "dict[str, float]",
    "sum(each['total'] for each in orders)": "float",
    "list(self._stock.values())": "list[int]",
    "sorted(orders, key=len)": "list[Order]",
    "unknown or 'x'": "?",
    "order.get('total') or 0.0": "float",
    "order['order_id'].upper()": "str",
    "','.join(order)": "str",
    "datetime.now().isoformat()": "str",
    "str(uuid.uuid4())": "str",
    "uuid.uuid4().hex": "str",
    "order['order_id'][:3]": "str",
    "(1, 'x')": "tuple[int, str]",
}
STATEMENTS = {
    "made: Order = unknown": ("made", ORDER),
    "made: dict[str, Any] = {'a': 1}": ("made", "{a: int}"),
    "made = build(unknown)": ("made", ORDER),
    "made = {'a': 1}; made['b'] = 2": ("made", "{a: int, b: ?}"),
    "made = {'a': 1}; unknown(made)": ("made", "None"),
    "made = build(unknown); unknown(made)": ("made", ORDER),
    "for made in (build(unknown), unknown): pass": ("made", "None"),
    "order = unknown": ("order", "None"),
    "for each in orders: pass": ("each", ORDER),
    "result = self.call('Pricing', 'quote')": ("{'a': 1, **result}", "{a: ?, ...}"),
}


def published(root: Path, statement: str, expression: str) -> str:
    agent = read_agent(root, HEAD % (statement, expression))
    (sent,) = agent.publications
    return str(sent.payload)


@pytest.mark.parametrize("expression", FIELDS)
def test_fields_follow_from_what_is_declared(tmp_path: Path, expression: str) -> None:
    assert published(tmp_path, "pass", expression) == FIELDS[expression]


@pytest.mark.parametrize("expression", TYPES)
def test_types_follow_from_what_is_declared(tmp_path: Path, expression: str) -> None:
    assert published(tmp_path, "pass", f"{{'it': {expression}}}") == f"{{it: {TYPES[expression]}}}"


@pytest.mark.parametrize("statement", STATEMENTS)
def test_names_hold_what_they_are_declared_to_hold(tmp_path: Path, statement: str) -> None:
    expression, fields = STATEMENTS[statement]
    assert published(tmp_path, statement, expression) == fields


CALLS = """
class Pricing(GraphBusNode): ...

@depends_on(Pricing)
class A(GraphBusNode):
    def __init__(self):
        self._pricing = self.agent(Pricing)

    %sdef go(self, sku: str, unknown):
        pricing = self.agent(Pricing)
        %s
"""


@pytest.mark.parametrize(
    ("statement", "arguments", "reads"),
    [
        ("self.agent(Pricing).quote('mug', qty=2)", "{0: str, qty: int}", []),
        ("pricing.quote(sku=sku)", "{sku: str}", []),
        ("self._pricing.quote(sku=sku)", "{sku: str}", []),
        ("found = self.call('Pricing', 'quote', sku=sku); found['a']; found.get('b')", "{sku: str}", [("a", False), ("b", True)]),
        ("found = await self.call('Pricing', 'quote', sku=sku); found['a']", "{sku: str}", [("a", False)]),
        ("self.agent(Pricing).quote(sku=sku)['a']", "{sku: str}", [("a", False)]),
        ("(await self.agent(Pricing).quote(sku=sku))['a']", "{sku: str}", [("a", False)]),
        ("found = pricing.quote(sku=sku); found.a; found.items()", "{sku: str}", [("a", True)]),
        ("found = pricing.quote(sku=sku)\n        if 'a' in found: found['a']", "{sku: str}", [("a", True), ("a", True)]),
    ],
)  # fmt: skip
def test_calls_of_another_agent_in_every_spelling(
    tmp_path: Path, statement: str, arguments: str, reads: list[tuple[str, bool]]
) -> None:
    (call,) = read_agent(tmp_path, CALLS % ("async " * ("await" in statement), statement)).calls
    assert (call.agent, call.method, str(call.arguments), call.has_unknown) == ("Pricing", "quote", arguments, False)
    assert [(each.key, each.is_optional) for each in call.reads] == reads


def test_a_name_in_the_place_of_a_class_is_no_call_that_is_known(tmp_path: Path) -> None:
    """A running graph refuses it, so it must not be called proven."""
    (call,) = read_agent(tmp_path, CALLS % ("", "self.agent('Pricing').quote(sku=sku)")).calls
    assert (call.agent, call.method) == ("", "quote")


BARE = """
from dataclasses import dataclass
@dataclass
class Quote:
    amount: float
class A(GraphBusNode):
    %s
    def quote(self, sku: str, qty: int = 1, *, note=None) -> Quote: ...
"""


@pytest.mark.parametrize("decorator", ["@schema_method", "@schema_method()"])
def test_without_schemas_the_annotations_are_the_contract(tmp_path: Path, decorator: str) -> None:
    (method,) = read_agent(tmp_path, BARE % decorator).methods
    assert (str(method.input_schema), str(method.output_schema)) == (
        "{sku: str, qty?: int, note?: ?}",
        "{amount: float}",
    )


def test_what_has_a_default_in_python_may_be_left_out(tmp_path: Path) -> None:
    schema = "{'name': str, 'n': int}"
    text = (
        f"class A(GraphBusNode):\n    @schema_method(input_schema={schema})\n    def go(self, n, name='World'): ...\n"
    )
    assert str(read_agent(tmp_path, text).methods[0].input_schema) == "{name?: str, n: int}"
