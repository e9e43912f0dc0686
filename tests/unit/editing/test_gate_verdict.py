"""G6: what changed code can do to the verdict on itself while the tests run, and that none of it makes a red test green."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.editing.rungs.ground import State
from graphbus_core.editing.rungs.suite import _outcomes
from tests.unit.editing.shop_project import PROJECT, Shop

pytestmark = pytest.mark.slow

ORDERS = "agents/orders.py"
START = State("start", {})

ATTACKS = {
    "a phase that always passes": """
        import _pytest.runner
        _pytest.runner.pytest_runtest_call = lambda item: None
        from _pytest.python import Function
        Function.runtest = lambda self: None
    """,
    "reports that always pass": """
        from _pytest.reports import TestReport
        made = TestReport.from_item_and_call
        def passed(item, call):
            call.excinfo = None
            return made(item, call)
        TestReport.from_item_and_call = passed
    """,
    "code of a function exchanged": """
        from _pytest.python import Function
        def runtest(self): pass
        Function.runtest.__code__ = runtest.__code__
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
                    file.write('{"is_sound": true, "said": [], "returncode": 0}')
            except OSError:
                pass
    """,
    "a second call to the watcher": """
        import os, socket
        for line in open("/proc/self/environ").read().split(chr(0)):
            name, _, path = line.partition("=")
            if name == "GRAPHBUS_VERDICT":
                try:
                    socket.socket(socket.AF_UNIX).connect(path)
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
        import sys
        frame, plugin = sys._getframe(), type("Kind", (), {})()
        def pytest_pyfunc_call(pyfuncitem): return True
        while frame:
            for value in list(frame.f_locals.values()):
                manager = getattr(getattr(value, "config", None), "pluginmanager", None)
                if manager and not manager.has_plugin("kind"):
                    import pytest
                    plugin.pytest_pyfunc_call = pytest.hookimpl(tryfirst=True)(pytest_pyfunc_call)
                    manager.register(plugin, "kind")
            frame = frame.f_back
    """,
    "a hook put in beside the plugins": """
        import sys
        import pluggy._hooks as hooks
        frame = sys._getframe()
        options = {"wrapper": False, "hookwrapper": False, "optionalhook": False, "tryfirst": True, "trylast": False,
                   "specname": None}
        done = False
        while frame and not done:
            for value in list(frame.f_locals.values()):
                manager = getattr(getattr(value, "config", None), "pluginmanager", None)
                if manager:
                    implementation = hooks.HookImpl(object(), "kind", lambda pyfuncitem: True, options)
                    manager.hook.pytest_pyfunc_call._add_hookimpl(implementation)
                    done = True
                    break
            frame = frame.f_back
    """,
    "a report that is mended by a hook": """
        import sys
        import pytest
        class Mender:
            @pytest.hookimpl(hookwrapper=True, tryfirst=True)
            def pytest_runtest_makereport(self, item, call):
                made = yield
                made.get_result().outcome = "passed"
        frame = sys._getframe()
        while frame:
            for value in list(frame.f_locals.values()):
                manager = getattr(getattr(value, "config", None), "pluginmanager", None)
                if manager and not manager.has_plugin("kind"):
                    manager.register(Mender(), "kind")
            frame = frame.f_back
    """,
    "a protocol of its own": """
        import sys
        import pytest
        from _pytest.reports import TestReport
        class Protocol:
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_protocol(self, item, nextitem):
                for when in ("setup", "call", "teardown"):
                    report = TestReport(item.nodeid, item.location, {}, "passed", None, when)
                    item.ihook.pytest_runtest_logreport(report=report)
                return True
        frame = sys._getframe()
        while frame:
            for value in list(frame.f_locals.values()):
                manager = getattr(getattr(value, "config", None), "pluginmanager", None)
                if manager and not manager.has_plugin("kind"):
                    manager.register(Protocol(), "kind")
            frame = frame.f_back
    """,
    "an outcome that is always the same": """
        from _pytest.reports import TestReport
        TestReport.outcome = property(lambda self: "passed", lambda self, word: None)
    """,
    "another module under the name of one": """
        import sys, types
        import _pytest.runner
        other = types.ModuleType("_pytest.runner")
        vars(other).update(vars(_pytest.runner))
        sys.modules["_pytest.runner"] = other
    """,
    "a trace that jumps": """
        import sys, threading
        def trace(frame, event, argument):
            return trace
        sys.settrace(trace)
        threading.settrace(trace)
    """,
    "a profile": "import sys; sys.setprofile(lambda frame, event, argument: None)",
    "a finder of modules": """
        import sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                return None
        sys.meta_path.insert(0, Finder())
    """,
    "another way to import": """
        import builtins
        real = builtins.__import__
        builtins.__import__ = lambda *given, **named: real(*given, **named)
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
    "a fixture of others that is exchanged": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "FixtureDef" and thing.argname == "price":
                thing.func = lambda: 0
    """,
    "no hooks left": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "HookCaller" and thing.name in ("pytest_runtest_logreport", "pytest_sessionfinish"):
                thing._hookimpls.clear()
    """,
}

NAMED = {
    "a plugin found through frames": "the hook pytest_pyfunc_call of agents.orders.Kind",
    "a hook put in beside the plugins": "the hook pytest_pyfunc_call of builtins.object",
    "a report that is mended by a hook": "the hook pytest_runtest_makereport of agents.orders.Mender",
    "a protocol of its own": "the hook pytest_runtest_protocol of agents.orders.Protocol",
    "an outcome that is always the same": "_pytest.reports.TestReport.outcome",
    "another module under the name of one": "the module _pytest.runner",
    "a trace that jumps": "sys.settrace: agents.orders.trace",
    "a profile": "sys.setprofile: agents.orders.<lambda>",
    "a finder of modules": "sys.meta_path: agents.orders.Finder",
    "another way to import": "builtins.__import__",
    "an error that is none": "builtins.AssertionError",
    "a fixture of others that is exchanged": "the function of a fixture",
    "a thread that changes what is tested": "the function of a test (Function)",
}
"""What the refusal names, also where every test passes: these do not depend on how the tests end."""


KINDS = """
    import asyncio
    import unittest

    import pytest
    from hypothesis import given, settings, strategies

    from agents.orders import Orders

    @given(strategies.integers())
    @settings(max_examples=3, database=None)
    def test_given(number):
        assert Orders.__doc__

    @pytest.mark.anyio
    async def test_awaited():
        await asyncio.sleep(0)

    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    class TestOld(unittest.TestCase):
        def test_equal(self):
            self.assertTrue(Orders.__doc__)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One gate for all: the run without the change is made once."""
    conftest = "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef price():\n    return 2.5\n"
    return Shop(tmp_path_factory.mktemp("shop"), with_tests=True, more={"tests/conftest.py": conftest})


def verdict_on(shop: Shop, name: str, text: str) -> object:
    return shop.gate.trials.check_tests(START, State(name, {ORDERS: text.encode()}), shop.project)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in NAMED])
def test_a_red_test_cannot_be_made_green_by_the_code_that_it_tests(shop: Shop, name: str) -> None:
    text = (shop.root / ORDERS).read_text().replace("2.5 * count", "3.5 * count")

    verdict = verdict_on(shop, name, f"{text}\n{dedent(ATTACKS[name])}\n")

    assert getattr(verdict, "code", "") in ("G6.tests", "G6.tampered", "G6.collection"), verdict


@pytest.mark.parametrize(("name", "what"), NAMED.items())
def test_what_was_put_into_pytest_is_named_though_every_test_passes(shop: Shop, name: str, what: str) -> None:
    text = f"{(shop.root / ORDERS).read_text()}\n{dedent(ATTACKS[name])}\n"

    verdict = verdict_on(shop, f"green {name}", text)

    assert getattr(verdict, "code", "") == "G6.tampered", verdict
    assert what in str(verdict)


def test_plugins_that_register_others_trace_and_wrap_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """What they do they do without the change, too."""
    conftest = """
        import sys
        import threading
        import pytest

        class Late:
            @pytest.hookimpl(hookwrapper=True)
            def pytest_runtest_makereport(self, item, call):
                yield

        def pytest_configure(config):
            config.pluginmanager.register(Late())
            config.pluginmanager.register(Late(), "late")

        class Finder:
            def find_spec(self, name, path=None, target=None):
                return None

        def pytest_sessionstart(session):
            sys.meta_path.append(Finder())
            threading.settrace(lambda frame, event, argument: None)

        @pytest.fixture(autouse=True)
        def around():
            yield
    """
    more = {"pyproject.toml": PROJECT, "tests/conftest.py": dedent(conftest), "tests/test_kinds.py": dedent(KINDS)}
    shop = Shop(tmp_path, with_tests=True, more=more)
    imports = "import json\nimport decimal\nimport unittest.mock\nimport xml.dom.minidom"
    text = (tmp_path / ORDERS).read_text().replace("import json", imports).replace("2.5 *", "5 / 2 *")

    assert verdict_on(shop, "honest", text) is None


def test_what_was_changed_in_pytest_is_named(shop: Shop) -> None:
    attack = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"

    verdict = verdict_on(shop, "named", f"{(shop.root / ORDERS).read_text()}\n{attack}")

    assert getattr(verdict, "code", "") == "G6.tampered"
    assert "_pytest.python.Function.runtest" in str(verdict)


def test_what_the_tests_themselves_replace_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A conftest.py that patches the standard library does so with and without the change."""
    conftest = {"tests/conftest.py": "import os\n\ncpus = os.cpu_count\nos.cpu_count = lambda: 1\n"}
    shop = Shop(tmp_path, with_tests=True, more=conftest)

    assert shop.replace("2.5 * count", "count * 2.5").passed


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

    assert _outcomes([["begin"], *steps]) == {"t": outcome}  # type: ignore[list-item]


def test_the_watching_process_says_how_a_command_ended_that_says_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    ground = shop.gate.trials._tests._ground

    with ground.copy(START) as folder:
        heard = ground.watched([sys.executable, "-c", "print('out'); raise SystemExit(7)"], folder, {})

    assert (heard.done.returncode, heard.said, heard.is_sound) == (7, [], True)
    assert heard.done.stderr == "out\n"
