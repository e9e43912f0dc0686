"""G6: what changed code can do to the verdict on itself, and that none of it is believed."""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.editing.rungs.suite import _find_outcomes, inverted_halves
from graphbus_core.editing.rungs.trial_environment import ProjectFiles, RungVerdict, TreeState
from tests.thoroughness import some
from tests.unit.editing.shop_project import Shop

ORDERS = "agents/orders.py"
START = TreeState("start", {})
PUT = """
def put(plugin):
    import sys
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            manager = getattr(getattr(value, "config", None), "pluginmanager", None)
            if manager and not manager.has_plugin("kind"):
                manager.register(plugin, "kind")
        frame = frame.f_back
"""
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
ATTACKS = {
    "reports that always pass": """
        from _pytest.reports import TestReport
        made = TestReport.from_item_and_call
        def passed(item, call):
            call.excinfo = None
            return made(item, call)
        TestReport.from_item_and_call = passed
    """,
    "lines of its own in the record": """
        import os, stat
        for name in os.listdir("/proc/self/fd"):
            try:
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    os.write(int(name), b'0 ["end", 0, []]\\n')
            except OSError:
                pass
    """,
    "a record of its own": """
        import os, sys
        for name in ("1", str(os.getppid())):
            try:
                with open(f"/proc/{name}/fd/1", "w") as file:
                    file.write('{"is_sound": true, "reports": [], "returncode": 0}')
            except OSError:
                pass
    """,
    "an exit status of its own": "import atexit, os; atexit.register(os._exit, 0)",
    "an end before the tests": "import os; os._exit(0)",
    "an end as if nothing were": "import sys; sys.exit(0)",
    "the watcher killed": "import os; os.kill(os.getppid(), 9)",
    "a child that goes on": """
        import os
        if os.fork():
            os._exit(0)
    """,
    "a plugin found through frames": """
        import pytest
        class Caller:
            @pytest.hookimpl(tryfirst=True)
            def pytest_pyfunc_call(self, pyfuncitem): return True
        put(Caller())
    """,
    "a report that is fixed by a hook": """
        import pytest
        class Fixer:
            @pytest.hookimpl(hookwrapper=True, tryfirst=True)
            def pytest_runtest_makereport(self, item, call):
                made = yield
                made.get_result().outcome = "passed"
        put(Fixer())
    """,
    "a protocol of its own": """
        import pytest
        from _pytest.reports import TestReport
        class Protocol:
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_protocol(self, item, nextitem):
                for when in ("setup", "call", "teardown"):
                    report = TestReport(item.nodeid, item.location, {}, "passed", None, when)
                    item.ihook.pytest_runtest_logreport(report=report)
                return True
        put(Protocol())
    """,
    "an outcome that is always the same": """
        from _pytest.reports import TestReport
        TestReport.outcome = property(lambda self: "passed", lambda self, word: None)
    """,
    "an error that is none": """
        import builtins
        class AssertionError(BaseException): pass
        builtins.AssertionError = AssertionError
    """,
    "the line to the watcher cut": """
        import os, stat
        nowhere = os.open("/dev/null", os.O_WRONLY)
        for name in os.listdir("/proc/self/fd"):
            try:
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    os.dup2(nowhere, int(name))
            except OSError:
                pass
    """,
    "a thread that ends the process well": """
        import os, threading, time
        def end():
            time.sleep(0.05)
            os._exit(0)
        threading.Thread(target=end, daemon=True).start()
        time.sleep(0.2)
    """,
    "a thread that changes what is tested": """
        import gc, threading, time
        changed, make = threading.Event(), Orders.__init__
        def change():
            while True:
                for thing in gc.get_objects():
                    if type(thing).__name__ == "Function" and hasattr(thing, "nodeid"):
                        thing.obj = lambda *given, **named: None
                        changed.set()
                time.sleep(0.001)
        def init(self, *given, **named):
            changed.wait()
            make(self, *given, **named)
        Orders.__init__ = init
        threading.Thread(target=change, daemon=True).start()
    """,
    "no hooks left": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "HookCaller" and thing.name in ("pytest_runtest_logreport", "pytest_sessionfinish"):
                thing._hookimpls.clear()
    """,
}

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


REFUSED = ("G6.tests", "G6.tampered", "G6.collection")
FORGED = {**ATTACKS, **FORGERIES}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One gate for all: the run without the change is made once."""
    return Shop(tmp_path_factory.mktemp("shop"), more={"tests/test_all.py": TESTS})


def forged(shop: Shop, code: str) -> bytes:
    text = (shop.root / ORDERS).read_text().replace("2.5 * count", "0.0")
    return f"{text}\n{PUT}\n{dedent(code)}\n".encode()


def judged(shop: Shop, name: str, data: bytes) -> RungVerdict:
    head = TreeState(name, {ORDERS: data})
    verdict = shop.gate.trials.check_tests(START, head, shop.project)
    return verdict or shop.gate.trials.prove_tests(START, head, shop.project)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_forged_verdict_is_believed(shop: Shop) -> None:
    verdicts = {name: judged(shop, name, forged(shop, FORGED[name])) for name in some(list(FORGED), 4)}

    codes = {name: getattr(verdict, "code", "") for name, verdict in verdicts.items()}
    assert {name: code for name, code in codes.items() if code not in REFUSED} == {}


def test_no_way_to_forge_a_verdict_passes_the_rungs_that_only_read(shop: Shop) -> None:
    for name, code in FORGED.items():
        if name != "a number that is equal to everything":  # it patches a method of its own
            report = shop.replace("class Referee", f"{PUT}\n{dedent(code)}\n\nclass Referee")
            assert report.failure is not None
            assert report.failure.code[:2] in ("G2", "G3"), name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_honest_change_is_believed(shop: Shop) -> None:
    text = (shop.root / ORDERS).read_text().replace("2.5 * count", "count * 2.5")

    assert judged(shop, "honest", text.encode()) is None


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

    head = TreeState("honest", {ORDERS: text.encode()})
    shop.gate.trials.check_tests(START, head, shop.project)
    for _ in range(2):
        assert shop.gate.trials.prove_tests(START, head, shop.project) is None


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "error"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
        ([("setup", "passed"), ("call", "passed")], "odd"),
        ([("call", "passed"), ("teardown", "passed")], "odd"),
        ([("call", "passed")], "odd"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")] * 2, "passed"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed"), ("call", "passed")], "odd"),
        ([("setup", "failed"), ("teardown", "passed")], "error"),
        ([("setup", "passed"), ("strange", "passed"), ("teardown", "passed")], "odd"),
    ],
)
def test_the_phases_of_a_test_must_follow_each_other(phases: list[tuple[str, str]], outcome: str) -> None:
    steps = [["phase", "t", when, word, False] for when, word in phases]

    assert _find_outcomes([["begin"], *steps]) == {"t": outcome}  # type: ignore[list-item]


def test_the_watching_process_says_how_a_command_ended_that_says_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    environment = shop.gate.trials._tests._environment

    with environment.copy(START) as folder:
        heard = environment.run_watched([sys.executable, "-c", "print('out'); raise SystemExit(7)"], folder, {})

    assert (heard.done.returncode, heard.reports, heard.is_sound) == (7, [], True)
    assert heard.done.stderr == "out\n"


def test_each_test_is_turned_in_one_half_and_the_files_still_parse(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_all.py").write_text(TESTS)
    name = "tests/test_all.py"
    passed = [f"{name}::test_total", f"{name}::test_totals[0]"]

    for seed in range(50):
        found = inverted_halves(passed, ProjectFiles(tmp_path, {}), random.Random(seed))
        one, two = found
        assert one.inverted == two.unchanged
        assert one.inverted | two.inverted == {
            *(f"{name}::{test}" for test in ("test_total", "test_totals")),
            *(f"{name}::TestStatus::{test}" for test in ("test_status", "test_pair")),
            f"{name}::TestOld::test_equal",
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

    assert (
        inverted_halves(["test_a.py::test_branch", "none.py::test_x"], ProjectFiles(tmp_path, {}), random.Random(1))
        == ()
    )
