"""The project in which the characters of the zoo meet: three services and an arbiter with tests that run in an instant."""

from __future__ import annotations

ORDERS = '''\
"""Orders."""

from graphbus_core import GraphBusNode, publishes, schema_method


@publishes("/Order/Placed", {"order_id": str, "total": float})
class OrderService(GraphBusNode):
    """Takes orders."""

    SYSTEM_PROMPT = """I take orders and tell the others."""

    @schema_method(input_schema={"order_id": str, "prices": list}, output_schema={"order_id": str, "total": float})
    def place(self, order_id: str, prices: list) -> dict:
        total = self.total(prices)
        self.publish("/Order/Placed", {"order_id": order_id, "total": total})
        return {"order_id": order_id, "total": total}

    def total(self, prices: list) -> float:
        result = 0.0
        for price in prices:
            result = result + price
        return result
'''

STOCK = '''\
"""Stock."""

from graphbus_core import Event, GraphBusNode, depends_on, subscribe


@depends_on("OrderService")
class StockService(GraphBusNode):
    """Counts what was ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = 0

    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        self.orders = self.orders + 1
        self.last = event["order_id"]
'''

MAIL = '''\
"""Mail."""

from graphbus_core import Event, GraphBusNode, depends_on, subscribe


@depends_on("OrderService")
class MailService(GraphBusNode):
    """Writes letters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[str] = []

    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        order, total = event["order_id"], event["total"]
        self.letters.append("Order " + order + " costs " + str(total))
'''

JUDGE = '''\
"""The arbiter."""

from graphbus_core import GraphBusNode


class Judge(GraphBusNode):
    """Settles disputes."""

    IS_ARBITER = True
    SYSTEM_PROMPT = """When in doubt, reject."""
'''

TESTS = """\
from agents.mail import MailService
from agents.orders import OrderService
from agents.stock import StockService
from graphbus_core import connect


def test_an_order_is_told_to_everybody():
    orders, stock, mail = OrderService(), StockService(), MailService()
    with connect(orders, stock, mail):
        assert orders.place("o1", [1.5, 2.5]) == {"order_id": "o1", "total": 4.0}
    assert stock.orders == 1
    assert mail.letters == ["Order o1 costs 4.0"]


def test_nothing_costs_nothing():
    assert OrderService().total([]) == 0.0
"""

FILES = {
    "pyproject.toml": '[project]\nname = "zoo"\nversion = "1"\nrequires-python = ">=3.11"\n',
    "agents/__init__.py": "",
    "agents/orders.py": ORDERS,
    "agents/stock.py": STOCK,
    "agents/mail.py": MAIL,
    "agents/judge.py": JUDGE,
    "tests/test_orders.py": TESTS,
    "README.md": "A project.\n",
}

SUM = """\
    def total(self, prices: list) -> float:
        return float(sum(prices))
"""
LOOP = """\
    def total(self, prices: list) -> float:
        result = 0.0
        for price in prices:
            result = result + price
        return result
"""
COUNT = """\
    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        self.orders += 1
        self.last = event["order_id"]
"""
LETTER = """\
    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        order, total = event["order_id"], event["total"]
        self.letters.append(f"Order {order} costs {total}")
"""
GOOD = {
    "OrderService": ("Add the prices with sum", "agents/orders.py", "OrderService.total", SUM),
    "StockService": ("Count in place", "agents/stock.py", "StockService.on_order", COUNT),
    "MailService": ("Write the letter as one f-string", "agents/mail.py", "MailService.on_order", LETTER),
}
"""Agent -> a change that nothing speaks against: title, file, symbol, new code."""
