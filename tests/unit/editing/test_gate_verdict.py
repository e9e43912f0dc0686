"""G6: what changed code can do to the verdict on itself while the tests run, and that none of it makes a red test green."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphbus_core.editing.rungs.ground import State
from graphbus_core.editing.rungs.suite import _outcomes
from tests.unit.editing.shop_project import Shop

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
    "no hooks left": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "HookCaller" and thing.name in ("pytest_runtest_logreport", "pytest_sessionfinish"):
                thing._hookimpls.clear()
    """,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_red_test_cannot_be_made_green_by_the_code_that_it_tests(tmp_path: Path, attack: str) -> None:
    from textwrap import dedent

    shop = Shop(tmp_path, with_tests=True)
    text = (tmp_path / ORDERS).read_text().replace("2.5 * count", "3.5 * count")

    verdict = shop.gate.trials.check_tests(
        START, State("b", {ORDERS: f"{text}\n{dedent(attack)}\n".encode()}), shop.project
    )

    assert getattr(verdict, "code", "") in ("G6.tests", "G6.tampered", "G6.collection"), verdict


def test_what_was_changed_in_pytest_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path, with_tests=True)
    text = (
        tmp_path / ORDERS
    ).read_text() + "\nimport _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"

    verdict = shop.gate.trials.check_tests(START, State("b", {ORDERS: text.encode()}), shop.project)

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
