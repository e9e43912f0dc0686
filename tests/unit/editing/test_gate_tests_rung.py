"""G6: which projects have tests, and what a run proves when some of it is broken, silent or without end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.gate import Gate
from graphbus_core.editing.rungs.suite import has_tests
from graphbus_core.editing.sandboxes.process import FinishedProcess, Limits, ProcessSandbox
from graphbus_core.model.config import GateConfig
from tests.project_files import write_project
from tests.unit.editing.shop_project import Shop, code_of

HARMLESS = ("2.5 * count", "count * 2.5")
HARMFUL = ("2.5 * count", "3.5 * count")


class Counting(ProcessSandbox):
    """Runs what it is given, and notes which test runs and how much time there were."""

    def __init__(self, used_s: float | None = None) -> None:
        self.test_runs = 0
        self.given_s: list[float] = []
        self.used_s = used_s

    def run(self, command: Sequence[str], cwd: Path, *, limits: Limits, **more: Any) -> FinishedProcess:
        self.test_runs += "PYTEST_PLUGINS" in (more["environment"] or {})
        self.given_s.append(limits.timeout_s)
        done = super().run(command, cwd, limits=limits, **more)
        return done if self.used_s is None else done._replace(used_s=self.used_s)


def counted_shop(folder: Path, used_s: float | None = None, **options: Any) -> tuple[Shop, Counting]:
    shop, sandbox = Shop(folder, **options), Counting(used_s)
    shop.gate = Gate(shop.project, shop.config, sandbox)
    return shop, sandbox


@pytest.mark.parametrize("settings", [{"test_command": ("true",)}, {"checks": (("true",),)}], ids=["tests", "checks"])
def test_what_uses_nearly_all_of_its_time_without_the_change_gets_more_with_it(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    """Else it would be chance whether a change is refused: the same code does not use the same time twice."""
    shop, sandbox = counted_shop(tmp_path, 55.0, gate=GateConfig(timeout_s=60.0, **settings))  # type: ignore[arg-type]
    assert shop.replace("2.5 * count", "count * 2.5").passed
    assert [given_s for given_s in sandbox.given_s if given_s > 20] == [60.0, 165.0]


# --- a project has tests ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["test_root.py", "tests/test_a.py", "agents/checks/tests/test_a.py", "agents/deep/er/orders_test.py"],
)
def test_a_test_file_anywhere_is_a_test(tmp_path: Path, path: str) -> None:
    assert has_tests(write_project(tmp_path, {path: ""}))


@pytest.mark.parametrize(
    "path",
    [
        *(
            "agents/testing.py",
            "agents/latest.py",
            "tests/data.py",
            "test_readme.md",
            ".venv/test_a.py",
            ".git/test_a.py",
        ),
        *("node_modules/x/test_a.py", "__pycache__/test_a.py", ".graphbus/test_a.py", "lib/site-packages/x/test_a.py"),
        "env/lib/test_a.py",
    ],
)
def test_other_files_and_files_of_others_are_no_tests(tmp_path: Path, path: str) -> None:
    assert not has_tests(write_project(tmp_path, {path: "", "env/pyvenv.cfg": ""}))


@pytest.mark.parametrize(
    ("name", "text", "has"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["agents/checks"]\n', True),
        ("pytest.ini", "[pytest]\ntestpaths = agents/checks\n", True),
        ("setup.cfg", "[tool:pytest]\ntestpaths =\n    none\n    agents/che*\n", True),
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["tests", "/"]\n', False),
        ("pytest.ini", "[pytest]\naddopts = -q\n", False),
    ],
)
def test_settings_of_pytest_that_say_where_tests_are_mean_tests(
    tmp_path: Path, name: str, text: str, has: bool
) -> None:
    assert has_tests(write_project(tmp_path, {name: text, "agents/checks/check_orders.py": ""})) == has


# --- broken test files -----------------------------------------------------------------------

BROKEN = {"tests/test_broken.py": "import package_that_is_not_here\n"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_test_file_that_was_broken_before_does_not_silence_the_others(tmp_path: Path) -> None:
    shop = Shop(tmp_path, with_tests=True, more=BROKEN)

    assert code_of(shop.replace(*HARMFUL)) == "G6.tests"
    rung = shop.replace(*HARMLESS).rungs[6]
    assert (rung.rung, rung.status) == ("G6", "passed")
    assert rung.message == "Even without the change, tests/test_broken.py cannot be collected."
    assert "ModuleNotFoundError: No module named 'package_that_is_not_here'" in shop.heard[-1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_test_file_that_breaks_with_the_change_refuses_even_if_no_test_of_it_passed(tmp_path: Path) -> None:
    red = "from agents.orders import PRICE\n\n\ndef test_red():\n    assert PRICE == 0\n"
    shop = Shop(tmp_path, with_tests=True)
    text = (tmp_path / "agents/orders.py").read_text().replace("CREATED =", "PRICE = 1\nCREATED =")
    shop = Shop(tmp_path, with_tests=True, more={"agents/orders.py": text, "tests/test_red.py": red})

    rung = shop.replace("PRICE = 1\n", "VALUE = 1\n").rungs[6]

    assert (rung.status, rung.code) == ("failed", "G6.collection")
    assert rung.message == "With the change, tests/test_red.py cannot be collected."


# --- a pytest that says nothing ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "command"),
    [(0, ()), (5, ("sh", "-c", f"{sys.executable} -m py''test; exit $?"))],
    ids=["plain", "hidden"],
)
def test_a_pytest_that_ends_without_a_word_has_proved_nothing(
    tmp_path: Path, status: int, command: tuple[str, ...]
) -> None:
    silent = {"tests/conftest.py": f"import os\n\nos._exit({status})\n"}
    shop = Shop(tmp_path, with_tests=True, more=silent, gate=GateConfig(test_command=command))

    rung = shop.replace(*HARMLESS).rungs[6]

    assert (rung.rung, rung.status, rung.code) == ("G6", "failed", "G6.unverified")
    assert f"(exit status {status})" in rung.message
    assert "before pytest has reported" in rung.message


# --- tests without end ------------------------------------------------------------------------

ENDLESS = {"tests/test_endless.py": "import time\n\n\ndef test_sleep():\n    time.sleep(1000)\n"}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tests_without_end_are_tried_once_in_a_session(tmp_path: Path) -> None:
    shop, sandbox = counted_shop(tmp_path, with_tests=True, more=ENDLESS, gate=GateConfig(timeout_s=4))

    first = shop.replace(*HARMLESS)
    runs = sandbox.test_runs
    shop.workspace.commit(
        shop.proposal(shop.change("agents/orders.py", "", "count * 2.5", "search_replace", HARMLESS[0]))
    )
    second = shop.replace("I take orders.", "I take all orders.", path="agents/orders.py")
    third = shop.replace("return round", "return  round", path="lib/money.py")
    tree = shop.gate.check_tree(shop.workspace)

    assert (runs, sandbox.test_runs) == (1, 1)
    for report in (first, tree):
        assert code_of(report) == "G6.unverified"
        assert report.rungs[6].message == (
            "Even without the change, the tests take longer than timeout_s (4 s); they are not run again in this session. "
            "Raise timeout_s in [tool.graphbus.gate]."
        )
    assert not second.passed
    assert not third.passed


UNSTEADY = """
import time
import pytest
from unittest import mock
from agents.orders import Orders

@pytest.mark.parametrize("now", [time.time()])
def test_whose_name_is_never_the_same(now):
    assert Orders

def test_that_is_steady():
    with mock.patch.object(Orders, "publish"):
        assert Orders().order("a", 2)["total"]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("new", "code"), [("count * 2.5", ""), ("0 * count", "G6.tests")])
def test_a_test_that_is_lost_without_the_change_too_proves_nothing(tmp_path: Path, new: str, code: str) -> None:
    shop = Shop(tmp_path, more={"tests/test_unsteady.py": UNSTEADY})

    failure = shop.replace("2.5 * count", new).failure

    assert (failure.code if failure else "") == code
    assert failure is None or "never_the_same" not in failure.message
