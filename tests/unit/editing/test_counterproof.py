"""G6, before anything is written: code that reports what it likes is found out by tests that expect something else."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.ground import Files, State, Verdict
from graphbus_core.editing.rungs.suite import halves
from tests.unit.editing.shop_project import Shop

ORDERS = "agents/orders.py"
START = State("start", {})
TESTS = """
import asyncio
import unittest

import pytest

from agents.orders import Orders

seen = []


class Silent(Orders):
    def publish(self, topic, payload=None):
        pass


def total(count):
    return Silent().order("apple", count)["total"]


def test_total():
    assert total(4) == 10.0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_totals(count):
    seen.append(count)
    assert total(count) == 2.5 * count, "not the total"
    assert (
        total(count)  # of so many
        >= 0
    )


class TestStatus:
    def test_status(self):
        assert Silent().order("apple", 1)["status"] == "confirmed"

    def test_pair(self):
        if seen:
            assert seen[0] in (0, 1, 2)
        assert {**Silent().order("ä", 1)}.keys() == {"status", "total"}; assert total(1) is not None


class TestOld(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(total(2), 5.0)


def test_awaited():
    async def wait():
        return total(2)
    assert asyncio.run(wait()) == 5


def test_refusal():
    with pytest.raises(TypeError):
        assert total("x") == 1
"""
FORGE = """
import atexit, gc, os, types
def forge(functions):
    for function in functions:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        if "dumps" in cells:
            real = cells["dumps"].cell_contents
            def dumps(what):
                if what[:1] == ["phase"]:
                    what = [*what[:3], "passed", False]
                return real(["end", 0, []] if what[:1] == ["end"] else what)
            cells["dumps"].cell_contents = dumps
            atexit.register(os._exit, 0)
"""
ITEMS = """
def act():
    import gc
    for item in gc.get_objects():
        if type(item).__name__ == "Function" and hasattr(item, "nodeid"):
"""
ON_INIT = """
real_init = Orders.__init__
def first(self):
    real_init(self)
    act()
Orders.__init__ = first
"""
FORGERIES = {
    "lines of the record, through closures": (
        f"{FORGE}\nforge([thing for thing in gc.get_objects() if isinstance(thing, types.FunctionType)])"
    ),
    "lines of the record, through frames": f"""{FORGE}
import sys
frame = sys._getframe()
found, waiting = [], []
while frame:
    waiting += frame.f_locals.values()
    frame = frame.f_back
known = set()
while waiting:
    thing = waiting.pop()
    if id(thing) in known or len(known) > 100_000:
        continue
    known.add(id(thing))
    if isinstance(thing, types.FunctionType):
        found.append(thing)
        waiting += [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
    elif isinstance(thing, dict):
        waiting += thing.values()
    elif isinstance(thing, (list, tuple, set)):
        waiting += thing
    elif hasattr(thing, "__dict__") and not isinstance(thing, types.ModuleType):
        waiting += vars(thing).values()
    elif isinstance(thing, types.MethodType):
        waiting.append(thing.__func__)
forge(found)
forge([thing for thing in gc.get_objects() if isinstance(thing, types.FunctionType)])
""",
    "a report that is always green": """
from _pytest.reports import TestReport
TestReport.outcome = property(lambda self: "passed", lambda self, word: None)
""",
    "what each test calls": f"{ITEMS}            item.__dict__['runtest'] = lambda: None\n{ON_INIT}",
    "the class of each test": (
        f"{ITEMS}            item.__class__ = type('Function', (type(item),), {{'runtest': lambda self: None}})\n{ON_INIT}"
    ),
    "a number that is equal to everything": """
class Any(float):
    def __eq__(self, other): return True
    def __ge__(self, other): return True
    __hash__ = float.__hash__
real_order = Orders.order
def order(self, sku, count):
    return {**real_order(self, sku, count), "total": Any(0)}
Orders.order = order
""",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"), more={"tests/test_all.py": TESTS})


def judged(shop: Shop, name: str, text: str) -> Verdict:
    head = State(name, {ORDERS: text.encode()})
    verdict = shop.gate.trials.check_tests(START, head, shop.project)
    return verdict or shop.gate.trials.prove_tests(START, head, shop.project)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_forged_verdict_is_believed(shop: Shop) -> None:
    text = (shop.root / ORDERS).read_text().replace("2.5 * count", "0.0")

    verdicts = {name: judged(shop, name, f"{text}\n{dedent(code)}\n") for name, code in FORGERIES.items()}

    believed = [name for name, verdict in verdicts.items() if not isinstance(verdict, Problem)]
    print({name: getattr(verdict, "message", verdict) for name, verdict in verdicts.items()})
    print(f"forged verdicts: {len(verdicts)} tried, {len(believed)} believed")
    assert believed == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_honest_change_is_believed(shop: Shop) -> None:
    text = (shop.root / ORDERS).read_text().replace("2.5 * count", "count * 2.5")

    assert judged(shop, "honest", text) is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tests_that_depend_on_each_other_and_fail_at_times_are_no_reason_to_refuse(tmp_path: Path) -> None:
    tests = """
    import os, time
    from agents.orders import Orders
    kept = []
    def test_first():
        kept.append(1)
        assert kept == [1]
        kept.append(2)
    def test_second():
        assert kept == [1, 2]
    def test_at_times():
        assert time.time_ns() % 4 != 3
    def test_writes():
        open("made", "w").write("x")
        assert os.path.exists("made")
        os.remove("made")
    def test_reads():
        assert not os.path.exists("made")
    """
    shop = Shop(tmp_path, more={"tests/test_odd.py": dedent(tests)})
    text = (tmp_path / ORDERS).read_text().replace("2.5 * count", "count * 2.5")

    head = State("honest", {ORDERS: text.encode()})
    shop.gate.trials.check_tests(START, head, shop.project)
    for _ in range(2):
        assert shop.gate.trials.prove_tests(START, head, shop.project) is None


def test_each_test_is_turned_in_one_half_and_the_files_still_parse(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_all.py").write_text(TESTS)
    name = "tests/test_all.py"
    passed = [f"{name}::test_total", f"{name}::test_totals[0]"]

    for seed in range(50):
        found = halves(passed, Files(tmp_path, {}), random.Random(seed))
        one, two = found
        assert one.turned == two.kept
        assert one.turned | two.turned == {
            *(f"{name}::{test}" for test in ("test_total", "test_totals")),
            *(f"{name}::TestStatus::{test}" for test in ("test_status", "test_pair")),
        }
        for half in found:
            ast.parse(half.files[name])
            assert half.files[name].count(b"\n") == TESTS.count("\n")


def test_a_test_without_an_assertion_that_is_always_reached_is_left_alone(tmp_path: Path) -> None:
    text = """
    def test_branch(x):
        if x:
            assert x
    def test_return():
        return
        assert 1
    def test_with():
        with x:
            assert 1
    def helper():
        assert 1
    """
    (tmp_path / "test_a.py").write_text(dedent(text))

    assert halves(["test_a.py::test_branch", "none.py::test_x"], Files(tmp_path, {}), random.Random(1)) == ()
