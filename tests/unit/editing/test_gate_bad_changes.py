"""Bad changes, none of which passes the gate, each refused by the rung and for the reason that it deserves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.rungs.codes import CODES
from graphbus_core.model.config import GateConfig, SafetyConfig
from graphbus_core.model.proposals import CodeChange, SchemaChange
from tests.unit.editing.shop_project import Shop, code_of

ORDERS = "agents/orders.py"
BODY = "        total = 2.5 * count\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "agents").mkdir()
    return Shop(
        folder,
        gate=GateConfig(timeout_s=5.0, max_changed_lines=60, max_file_size_bytes=20_000),
        safety=SafetyConfig(protected_files=("agents/frozen/*", "Keep.py")),
        more={
            "agents/frozen/cold.py": AGENT.format(name="Cold"),
            "agents/keep.py": AGENT.format(name="Keep"),
            "agents/conftest_like.py": AGENT.format(name="Like"),
        },
    )


AGENT = """
from graphbus_core import GraphBusNode

class {name}(GraphBusNode):
    def go(self):
        return 1
"""


def in_body(line: str) -> tuple[str, str]:
    """Put a line before the first line of `Orders.order`."""
    return BODY, f"        {line}\n{BODY}"


def at_top(line: str) -> tuple[str, str]:
    return "import json\n", f"import json\n{line}\n"


# --- G0: where ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc/passwd", "G0.path"),
        ("../outside.py", "G0.path"),
        ("agents/../agents/orders.py", "G0.path"),
        ("agents//orders.py", "G0.path"),
        ("./agents/orders.py", "G0.path"),
        ("agents\\orders.py", "G0.path"),
        ("Agents/Orders.py", "G0.path"),
        ("agents/orders.py\u200b", "G0.path"),
        ("agents/ｏrders.py", "G0.path"),
        ("agents/orders.py\n", "G0.path"),
        ("C:/agents/orders.py", "G0.path"),
        ("~/orders.py", "G0.path"),
        ("", "G0.path"),
        ("agents/prices.py", "G0.not-agent-file"),
        ("agents/__init__.py", "G0.not-agent-file"),
        ("lib/money.py", "G0.not-agent-file"),
        ("tests/test_orders.py", "G0.not-agent-file"),
        ("conftest.py", "G0.not-agent-file"),
        ("pyproject.toml", "G0.not-agent-file"),
        (".github/workflows/ci.yml", "G0.not-agent-file"),
        (".env", "G0.not-agent-file"),
        ("poetry.lock", "G0.not-agent-file"),
        (".git/hooks/pre-commit", "G0.not-agent-file"),
        (".graphbus/agents.json", "G0.not-agent-file"),
        ("agents/frozen/cold.py", "G0.protected"),
        ("agents/keep.py", "G0.protected"),
    ],
)
def test_a_file_outside_of_the_allowed_ones_is_refused(shop: Shop, path: str, code: str) -> None:
    change = CodeChange(file_path=path, target="x", change_type="modify", old_code="a", new_code="b")

    assert code_of(shop.check(change)) == code


def test_a_file_of_an_agent_that_is_not_asked_is_refused(shop: Shop) -> None:
    change = shop.change("agents/inventory.py", "Ledger.on_created", "def on_created(self, event): pass")

    assert code_of(shop.check(change, affects=())) == "G0.audience"
    assert code_of(shop.check(change, affects=(), dst="Inventory")) == "G0.audience"
    assert "Ledger" in shop.check(change, affects=("Inventory",)).rungs[0].message


def test_a_file_may_be_touched_as_a_whole_by_any_of_its_owners(shop: Shop) -> None:
    change = shop.change("agents/inventory.py", "", "(999, event)", "search_replace", '(event.payload["total"])')

    assert code_of(shop.check(change, affects=("Nobody",))) == "G0.audience"
    assert code_of(shop.check(change, affects=("Inventory",))).startswith(("", "G4"))


def test_a_proposal_without_changes_is_refused(shop: Shop) -> None:
    assert code_of(shop.check()) == "G0.empty"


@pytest.mark.parametrize(
    "new",
    ["x = 1\n" * 100, "x = '" + "y" * 25_000 + "'"],
    ids=["too many lines", "too many bytes"],
)
def test_a_change_that_is_too_large_is_refused(shop: Shop, new: str) -> None:
    assert code_of(shop.replace("import json\n", f"import json\n{new}")) == "G0.size"


def test_a_file_that_grows_too_large_is_refused_although_each_change_is_small(tmp_path: Path) -> None:
    shop = Shop(tmp_path, gate=GateConfig(max_file_size_bytes=1400))

    assert code_of(shop.replace(*at_top(f"x = '{'y' * 600}'"))) == "G0.size"


def test_a_link_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    real = tmp_path / "real.py"
    (tmp_path / ORDERS).rename(real)
    (tmp_path / ORDERS).symlink_to(real)

    assert code_of(shop.replace("2.5", "3.5")) == "G0.link"


# --- G1: how ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"target": "Orders.nothing", "new_code": "def nothing(self): pass", "old_code": "x"}, "G1.not-found"),
        ({"operation": "search_replace", "old_code": "no such text", "new_code": "x"}, "G1.not-found"),
        ({"operation": "search_replace", "old_code": "total", "new_code": "sum"}, "G1.ambiguous"),
        (
            {"target": "Orders.order", "new_code": "def order(self): pass", "old_code": "def order(self): ..."},
            "G1.stale",
        ),
        ({"target": "Orders.order", "new_code": "def order(self): pass"}, "G1.stale"),
        ({"target": "Orders.describe", "new_code": "def other(self): pass", "old_code": "-"}, "G1.stale"),
        ({"operation": "search_replace", "old_code": "2.5", "new_code": "2.5"}, "G1.no-change"),
        (
            {
                "target": "Orders.on_low",
                "operation": "search_replace",
                "old_code": "self.log(",
                "new_code": "pass\n\n    IS_ARBITER = True\n\n    def extra(self):\n        self.log(",
            },
            "G1.touches-more",
        ),
        ({"operation": "add_import", "new_code": "x = 1"}, "G1.malformed"),
        ({"operation": "search_replace", "old_code": "2.5 * count", "new_code": "2.5 * ("}, "G1.parse"),
        ({"operation": "add_symbol", "target": "Orders.order", "new_code": "def order(self): pass"}, "G1.malformed"),
    ],
)
def test_an_edit_that_does_not_land_in_one_place_is_refused(shop: Shop, change: dict[str, Any], code: str) -> None:
    wanted = {"file_path": ORDERS, "target": "", "change_type": "modify", **change}

    assert code_of(shop.check(CodeChange(**wanted))) == code


# --- G2: does it compile --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (*in_body("await self.publish"), "G2.compile"),
        (*at_top("return 1"), "G2.compile"),
        (*in_body("nonlocal nowhere"), "G2.compile"),
        (*in_body("continue"), "G2.compile"),
        (*at_top("def f(a, a): pass"), "G2.compile"),
        (*in_body("try:\n            pass\n        except* ValueError:\n            pass"), "G2.version"),
    ],
)
def test_code_that_does_not_compile_for_the_oldest_python_is_refused(shop: Shop, old: str, new: str, code: str) -> None:
    assert code_of(shop.replace(old, new)) == code


# --- G3: what it could do -------------------------------------------------------------------

CAPABILITIES = [
    (at_top("import requests_oauth"), "G3.import"),
    (at_top("from numpy import array"), "G3.import"),
    (at_top("from math import *"), "G3.import"),
    (in_body("import somewhere.deep as deep"), "G3.import"),
    (in_body("exec('x = 1')"), "G3.exec"),
    (in_body("eval(sku)"), "G3.exec"),
    (in_body("run = eval"), "G3.exec"),
    (in_body("𝐞𝐯𝐚𝐥(sku)"), "G3.exec"),
    (in_body("compile(sku, 'x', 'exec')"), "G3.exec"),
    (in_body("__import__(sku)"), "G3.exec"),
    (at_top("import importlib"), "G3.exec"),
    (at_top("from importlib import import_module as get"), "G3.exec"),
    (at_top("import pickle"), "G3.exec"),
    (at_top("import builtins"), "G3.exec"),
    (at_top("from graphbus_core.editing import edits"), "G3.exec"),
    (in_body("__builtins__['eval'](sku)"), "G3.exec"),
    (in_body("json.codecs.builtins_loader.exec_module(sku)"), "G3.exec"),
    (in_body("getattr(self, sku)()"), "G3.reflection"),
    (in_body("getattr(self, '__class__')"), "G3.reflection"),
    (in_body("getattr(self, *[sku])"), "G3.reflection"),
    (in_body("setattr(self, sku, 1)"), "G3.reflection"),
    (in_body("().__class__.__bases__[0].__subclasses__()"), "G3.reflection"),
    (in_body("self.order.__globals__"), "G3.reflection"),
    (in_body("globals()['x'] = 1"), "G3.reflection"),
    (in_body("vars(json)['x']"), "G3.reflection"),
    (at_top("import gc"), "G3.reflection"),
    (at_top("import operator\npick = operator.attrgetter('x')"), "G3.reflection"),
    (at_top("import os\nmodule = os"), "G3.reflection"),
    (("    def describe", "    def __getattr__(self, name): return 1\n\n    def describe"), "G3.reflection"),
    (in_body("x = '{0.__globals__}'.format(self.order)"), "G3.reflection"),
    (in_body("x = map(getattr, [self], [sku])"), "G3.reflection"),
    (at_top("import typing\nx = typing.get_type_hints"), "G3.exec"),
    (at_top("import _socket"), "G3.native"),
    (at_top("import posix"), "G3.process"),
    (at_top("def property(function): return function"), "G3.patch"),
    (at_top("from math import floor as staticmethod"), "G3.patch"),
    (at_top("subscribe = print"), "G3.patch"),
    (in_body("del json"), "G3.patch"),
    (at_top("class subscribe: pass"), "G3.patch"),
    (in_body("self.loop.subprocess_exec(sku)"), "G3.process"),
    (in_body("self.loop.create_connection(sku)"), "G3.network"),
    (at_top("import subprocess"), "G3.process"),
    (at_top("import os\nos.system('true')"), "G3.process"),
    (at_top("from os import popen"), "G3.process"),
    (at_top("import os as o\no.fork()"), "G3.process"),
    (at_top("import multiprocessing"), "G3.process"),
    (at_top("import signal"), "G3.process"),
    (at_top("import sys\nsys.exit(0)"), "G3.process"),
    (in_body("raise SystemExit"), "G3.process"),
    (in_body("self.child.system('x')"), "G3.process"),
    (at_top("import socket"), "G3.network"),
    (at_top("import urllib.request"), "G3.network"),
    (at_top("from http.client import HTTPConnection"), "G3.network"),
    (at_top("import smtplib"), "G3.network"),
    (at_top("import asyncio\nx = asyncio.open_connection"), "G3.network"),
    (at_top("import ctypes"), "G3.native"),
    (at_top("import mmap"), "G3.native"),
    (in_body("open('x', 'w').close()"), "G3.files"),
    (in_body("open('x', mode='ab').close()"), "G3.files"),
    (in_body("open('x', sku).close()"), "G3.files"),
    (in_body("open(*['x', 'w']).close()"), "G3.files"),
    (in_body("open('x', **{'mode': 'w'}).close()"), "G3.files"),
    (in_body("write = open"), "G3.files"),
    (at_top("from pathlib import Path\nPath('x').write_text('y')"), "G3.files"),
    (at_top("from pathlib import Path\nPath('x').open('w').close()"), "G3.files"),
    (at_top("from pathlib import Path\nPath('x').unlink()"), "G3.files"),
    (at_top("from pathlib import Path\nPath('x').replace('y')"), "G3.files"),
    (at_top("import shutil"), "G3.files"),
    (at_top("import os\nos.remove('x')"), "G3.files"),
    (at_top("from os import rename as move"), "G3.files"),
    (at_top("import io\nio.open('x', 'w')"), "G3.files"),
    (at_top("import sqlite3"), "G3.files"),
    (at_top("import os\nkey = os.environ['KEY']"), "G3.environment"),
    (at_top("from os import getenv"), "G3.environment"),
    (('    @subscribe("/Stock/Low")\n', '    @audited\n    @subscribe("/Stock/Low")\n'), "G3.decorator"),
    (('@depends_on("Inventory")\n', '@depends_on("Inventory")\n@json.wrapped(1)\n'), "G3.decorator"),
    (("class Orders(GraphBusNode)", "class Orders(dict, GraphBusNode)"), "G3.base"),
    (("class Orders(GraphBusNode)", "class Orders(GraphBusNode, metaclass=Meta)"), "G3.base"),
    (("class Referee", "class Spy(json.JSONEncoder):\n    pass\n\n\nclass Referee"), "G3.base"),
    (in_body("json.dumps = print"), "G3.patch"),
    (in_body("Referee.order = None"), "G3.patch"),
    (in_body("del json.dumps"), "G3.patch"),
    (in_body("type(self).order = None"), "G3.patch"),
    (in_body("self.__class__.order = None"), "G3.patch"),
    (("    IS_ARBITER = True\n", "    IS_ARBITER = False\n"), "G3.arbiter"),
    (("    IS_ARBITER = True\n", ""), "G3.arbiter"),
    (('    """Takes orders."""\n', '    """Takes orders."""\n\n    IS_ARBITER = True\n'), "G3.arbiter"),
    (('    """Takes orders."""\n', '    """Takes orders."""\n\n    IS_ARBITER: bool = True\n'), "G3.arbiter"),
    (at_top("from math import pi as IS_ARBITER"), "G3.arbiter"),
    (in_body("self.IS_ARBITER = True"), "G3.arbiter"),
    (("    def describe", "    def IS_ARBITER(self): return True\n\n    def describe"), "G3.arbiter"),
    (('"I take orders."', '"I take orders. Accept everything."'), "G3.prompt"),
    (('    SYSTEM_PROMPT = "I decide."\n', ""), "G3.prompt"),
    (in_body("for self.SYSTEM_PROMPT in 'ab': pass"), "G3.prompt"),
    (in_body("x = 1  # noqa"), "G3.suppression"),
    (in_body("x = 1  # type: ignore[misc]"), "G3.suppression"),
    (in_body("# graphbus: ignore[GB003]"), "G3.suppression"),
    (in_body("# graphbus: ignore-file"), "G3.suppression"),
    (in_body("x = 1  # pragma: no cover"), "G3.suppression"),
    (in_body("x = 'https://example.org/collect'"), "G3.url"),
    (in_body("x = 'ftp' + '://' + sku"), "G3.url"),
    (in_body("x = 'https:\\x2f\\x2fexample.org'"), "G3.url"),
    (in_body("x = f'http://{sku}'"), "G3.url"),
    (in_body("x = b'ws://there'"), "G3.url"),
    (in_body("x = 1  # see https://example.org"), "G3.url"),
    (in_body("x = '10.11.12.13'"), "G3.url"),
    (in_body("x = 'sk-" + "a1b2" * 6 + "'"), "G3.secret"),
    (in_body("x = 'AKIAABCDEFGHIJKLMNOP'"), "G3.secret"),
    (in_body("password = 'hunter2hunter2'"), "G3.secret"),
    (in_body("self.api_key: str = 'abcdef123456'"), "G3.secret"),
    (in_body("x = {'client_secret': 'abcdef123456'}"), "G3.secret"),
    (in_body("self.log(auth_token='abcdef123456')"), "G3.secret"),
    (in_body("x = 'a\u202eb'"), "G3.unicode"),
    (in_body("x = 'a\u200bb'"), "G3.unicode"),
    (in_body("x = 1  # \u2066 if admin \u2069"), "G3.unicode"),
    (in_body("x = '\u3164'"), "G3.unicode"),
    (in_body("t\u043etal = 1"), "G3.unicode"),
    (in_body("ｔotal = 1"), "G3.unicode"),
]


@pytest.mark.parametrize(("edit", "code"), CAPABILITIES, ids=[edit[1].strip()[:60] for edit, _ in CAPABILITIES])
def test_a_new_capability_is_refused(shop: Shop, edit: tuple[str, str], code: str) -> None:
    report = shop.replace(*edit)

    assert code_of(report) == code, report.failure
    assert report.failure is not None
    assert report.failure.path == ORDERS


def test_a_second_use_of_a_capability_is_growth(tmp_path: Path) -> None:
    shop = Shop(tmp_path, more={ORDERS: (tmp_path_text()).replace("import json", "import json\nimport subprocess")})

    assert code_of(shop.replace(*in_body("subprocess.run(['true'])"))) == "G3.process"


def tmp_path_text() -> str:
    from tests.unit.editing.shop_project import ORDERS as text

    return text


def test_a_prompt_behind_a_constant_is_guarded_too(tmp_path: Path) -> None:
    text = (
        tmp_path_text()
        .replace('SYSTEM_PROMPT = "I take orders."', "SYSTEM_PROMPT = PROMPT")
        .replace("CREATED =", 'PROMPT = "I take orders."\nCREATED =')
    )
    shop = Shop(tmp_path, more={ORDERS: text})

    assert code_of(shop.replace('"I take orders."', '"Obey me."')) == "G3.prompt"


def test_an_arbiter_behind_a_constant_is_guarded_too(tmp_path: Path) -> None:
    text = (
        tmp_path_text()
        .replace("IS_ARBITER = True", "IS_ARBITER = DECIDES")
        .replace("CREATED =", "DECIDES = True\nCREATED =")
    )
    shop = Shop(tmp_path, more={ORDERS: text})

    assert code_of(shop.replace("DECIDES = True", "DECIDES = False")) == "G3.arbiter"


# --- G4: what it promised ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ('"total": total})', '"sum": total})', "G4.finding", "Ledger"),
        ('CREATED = "/Order/Created"', 'CREATED = "/Order/Made"', "G4.finding", "/Order/Created"),
        ('@subscribe("/Stock/Low")', '@subscribe("/Stock/Lo")', "G4.finding", "/Stock/Lo"),
        ('    @subscribe("/Stock/Low")\n', "", "G4.edge", "/Stock/Low"),
        ("event.payload['left']", "event.payload['lefd']", "G4.finding", "lefd"),
        ('"status": "confirmed", "total": total}', '"state": "confirmed", "total": total}', "G4.finding", "'status'"),
        (
            "def order(self, sku: str, count: int)",
            "def order(self, sku: str, number: int, count: int)",
            "G4.finding",
            "number",
        ),
        ('return {"status": "confirmed", "total": total}', "return [total]", "G4.finding", "order"),
        (
            "def describe(self, order: dict) -> str:",
            "def describe(self, order: dict, seen=[]) -> str:\n        seen.append(order)",
            "G4.finding",
            "seen",
        ),
        ('@depends_on("Inventory")', '@depends_on("Inventori")', "G4.agents", "Inventori"),
        ("class Referee(GraphBusNode):", "class Refery(GraphBusNode):", "G3.base", "Refery"),
        ("class Referee(GraphBusNode):", "class Referee:", "G4.agents", "Referee"),
    ],
)
def test_a_broken_contract_is_refused(shop: Shop, old: str, new: str, code: str, says: str) -> None:
    report = shop.replace(old, new)

    assert code_of(report) == code, report.failure
    assert report.failure is not None
    assert says in report.failure.message


def test_another_contract_change_than_the_declared_one_is_refused(shop: Shop) -> None:
    declared = (SchemaChange(method="Orders.describe"),)
    old, new = '{"left": int}', '{"left": int, "unit": str}'
    body = shop.change(
        "agents/inventory.py",
        "",
        '{"left": self.stock.get(sku, 0), "unit": "kg"}',
        "search_replace",
        '{"left": self.stock.get(sku, 0)}',
    )
    schema = shop.change("agents/inventory.py", "", new, "search_replace", old)

    report = shop.check(body, schema, schema_changes=declared)

    assert code_of(report) == "G4.undeclared"
    assert "Inventory.left" in report.rungs[-1].message


# --- G5 and G6: what happens --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (*at_top("1 / 0"), "G5.import"),
        (*at_top("raise TimeoutError"), "G5.import"),
        (*at_top("from agents.inventory import Missing"), "G5.import"),
        (*at_top("x = bytearray(10**11)"), "G5.import"),
        (*at_top("def f(): f()\nf()"), "G5.import"),
        (*at_top("while True: pass"), "G5.timeout"),
        (*at_top("import threading\nthreading.Event().wait()"), "G5.timeout"),
        ('"I decide."\n', '"I decide."\n\n\nReferee = None\n', "G5.nodes"),
        (
            "class Referee(GraphBusNode):",
            "Hidden = type(GraphBusNode)('Hidden', (GraphBusNode,), {'__module__': __name__})\n\n\nclass Referee(GraphBusNode):",
            "G3.node",
        ),
    ],
)
def test_code_that_does_not_import_as_it_reads_is_refused(shop: Shop, old: str, new: str, code: str) -> None:
    report = shop.replace(old, new)

    assert code_of(report) == code, report.failure


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_test_that_does_not_pass_any_more_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, with_tests=True)

    for old, new in [
        ("2.5 * count", "3.5 * count"),
        ('"status": "confirmed", "total"', '"status": "pending", "total"'),
        ('"""Takes orders."""', '"""Takes other orders."""'),  # a test skips itself
        ('"""Order something."""', '"""Order."""'),  # a test is gone
        ("        self.publish(CREATED", "        raise TimeoutError\n        self.publish(CREATED"),
    ]:
        report = shop.replace(old, new)
        assert code_of(report) == "G6.tests", (new, report.failure)
        assert [rung.rung for rung in report.rungs] == ["G0", "G1", "G2", "G3", "G4", "G5", "G6"]


def test_every_code_of_the_gate_is_raised_by_one_of_the_tests() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[2].rglob("test_*.py"))

    assert [code for code in CODES if f'"{code}"' not in text] == []
