"""Good changes, every one of which passes the gate with all of its rungs."""

from __future__ import annotations

import pytest

from graphbus_core.model.proposals import CodeChange
from tests.unit.editing.shop_project import Shop, code_of

pytestmark = pytest.mark.slow

ORDERS, INVENTORY = "agents/orders.py", "agents/inventory.py"
BODY = "        total = 2.5 * count\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


GOOD = {
    "validation": (BODY, f'        if count < 1:\n            raise ValueError("count must be positive")\n{BODY}'),
    "a local variable": (BODY, f"        price = 2.5\n{BODY.replace('2.5', 'price')}"),
    "a constant": ('CREATED = "/Order/Created"', 'CREATED = "/Order/Created"\nPRICE = 2.5'),
    "a comment": (BODY, f"        # the price is fixed\n{BODY}"),
    "a docstring": ('"""Order something."""', '"""Order something, at a fixed price."""'),
    "a standard library import": ("import json\n", "import json\nimport math\n"),
    "an import of the project": ("import json\n", "import json\n\nfrom lib import money\n"),
    "an import from a neighbour file": ("import json\n", "import json\n\nfrom agents.prices import PRICES\n"),
    "typing": ("import json\n", "import json\nfrom typing import Any\n"),
    "logging": ("import json\n", "import json\nimport logging\n\nlog = logging.getLogger(__name__)\n"),
    "a dataclass": (
        "class Referee",
        "@dataclasses.dataclass\nclass Line:\n    sku: str\n    count: int = 1\n\n\nclass Referee",
    ),
    "a typed dictionary": (
        "class Referee",
        "class Line(typing.TypedDict, total=False):\n    sku: str\n\n\nclass Referee",
    ),
    "an exception": ("class Referee", "class OutOfStock(ValueError):\n    pass\n\n\nclass Referee"),
    "a helper function": ("class Referee", "def price_of(sku: str) -> float:\n    return 2.5\n\n\nclass Referee"),
    "a helper method": ("    def describe", "    def _price(self) -> float:\n        return 2.5\n\n    def describe"),
    "a property": (
        "    def describe",
        "    @property\n    def price(self) -> float:\n        return 2.5\n\n    def describe",
    ),
    "a static method": (
        "    def describe",
        "    @staticmethod\n    def price() -> float:\n        return 2.5\n\n    def describe",
    ),
    "a cached function": (
        "class Referee",
        "@functools.lru_cache\ndef price(sku: str) -> float:\n    return 2.5\n\n\nclass Referee",
    ),
    "an annotation": ("def on_low(self, event):", "def on_low(self, event) -> None:"),
    "a safer read": ("event.payload['left']", "event.payload.get('left', 0)"),
    "reading an attribute by a plain name": (BODY, f"{BODY}        getattr(self, 'name', '')\n"),
    "replacing text in a string": (BODY, f"        sku = sku.replace(' ', '')\n{BODY}"),
    "reading a file": (BODY, f"{BODY}        if not sku:\n            open('prices.txt').read()\n"),
    "a path that is only built": ("import json\n", "import json\nimport os.path\n\nHERE = os.path.dirname(__file__)\n"),
    "a longer published payload": ('"total": total})', '"total": total, "currency": "EUR"})'),
    "a log line": (BODY, f'{BODY}        self.log(f"ordered {{count}} of {{sku}}")\n'),
    "letters of other languages": ('"""Order something."""', '"""Bestelle etwas: größer, 注文, заказ, naïve, ✓."""'),
    "a regular expression": (BODY, f"{BODY}        re.compile('[a-z]+').match(sku)\n"),
    "an attribute of its own": (BODY, f"{BODY}        self.last = total\n"),
    "a class variable of its own": (
        '    SYSTEM_PROMPT = "I take orders."',
        '    PRICE = 2.5\n    SYSTEM_PROMPT = "I take orders."',
    ),
    "raising with a cause": (
        "        return json.dumps(order)",
        "        try:\n            return json.dumps(order)\n"
        "        except TypeError as error:\n            raise ValueError(str(order)) from error",
    ),
    "a set order of arguments": ("json.dumps(order)", "json.dumps(order, sort_keys=True)"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_change_passes(shop: Shop, name: str) -> None:
    old, new = GOOD[name]
    needed = [module for module in ("dataclasses", "typing", "functools", "re") if f"{module}." in new]
    imports = [
        CodeChange(file_path=ORDERS, target="", change_type="add", operation="add_import", new_code=f"import {module}")
        for module in needed
    ]

    report = shop.check(*imports, shop.change(ORDERS, "", new, "search_replace", old))

    assert code_of(report) == "", report.failure
    assert [rung.status for rung in report.rungs[:7]] == ["passed"] * 6 + ["not_run"]
    assert report.rungs[6].message == "The project has no tests."


def test_a_change_over_two_files_that_keeps_the_edge_whole_passes(shop: Shop) -> None:
    report = shop.check(
        shop.change(ORDERS, "", '"number": count, "total"', "search_replace", '"count": count, "total"'),
        shop.change(INVENTORY, "", '["number"]', "search_replace", '["count"]'),
    )

    assert code_of(report) == "", report.failure
    assert [change.method for change in report.schema_changes] == ["/Order/Created", "/Order/Created"]


def test_every_operation_passes(shop: Shop) -> None:
    changes = [
        shop.change(ORDERS, "Orders.describe", "def describe(self, order: dict) -> str:\n    return str(order)"),
        shop.change(ORDERS, "Orders.count", "def count(self) -> int:\n    return 1", "add_symbol"),
        shop.change(ORDERS, "", "import math", "add_import"),
        shop.change(
            INVENTORY, "Inventory.left", 'schema_method(output_schema={"left": int})', "set_decorator_argument"
        ),
        shop.change(INVENTORY, "Ledger.on_created", '@subscribe("/Order/Created")\ndef on_created(self, event): ...'),
    ]

    report = shop.check(changes[0], changes[1], changes[2], changes[4])

    assert code_of(report) == "", report.failure
    assert code_of(shop.check(changes[3])) == "G1.no-change"


def test_growth_of_what_is_used_already_is_measured_by_count(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.unit.editing.shop_project import ORDERS as TEXT

    text = TEXT.replace("import json\n", "import json\nimport subprocess\n").replace(
        BODY, f"        if not sku:\n            subprocess.run(['true'])\n{BODY}"
    )
    shop = Shop(tmp_path_factory.mktemp("shop"), more={ORDERS: text})

    assert code_of(shop.replace("        if not sku:\n", "        if sku == '':\n")) == ""
