"""The demo fails when a step does not do what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import demo
from scripts.demo import (
    DemoError,
    Finished,
    Step,
    finds_defects,
    finds_nothing,
    is_green,
    is_red,
    negotiates,
    perform,
    processes_the_order,
    show_diff,
    succeeds,
)

ORDER_LINES = "[RUNTIME] Ready.\nYour order 1001 over 25.00 is confirmed.\nInventory changed: 10 x mug left\n"


@pytest.mark.parametrize(
    ("judge", "status", "output"),
    [
        (succeeds, 0, ""),
        (finds_defects, 3, "a.py:1:1: GB001 x\na.py:2:1: GB003 y\na.py:3:1: GB301 z"),
        (finds_nothing, 0, "Nothing found in 4 agents."),
        (is_red, 1, "5 failed, 1 passed in 0.10s"),
        (is_green, 0, "6 passed in 0.10s"),
        (negotiates, 0, "[AGENT] A\n[ARBITER] Consensus (1/1). Committing.\n  ✓ Modified: agents/a.py"),
        (processes_the_order, 0, ORDER_LINES),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_judge_is_content_with_what_should_happen(judge, status, output) -> None:
    assert judge(Finished(status, output)) == ""


@pytest.mark.parametrize(
    ("judge", "status", "output"),
    [
        pytest.param(succeeds, 1, "", id="a command failed"),
        pytest.param(finds_defects, 0, "GB001 GB002 GB003", id="findings, but exit status 0"),
        pytest.param(finds_defects, 3, "GB001 GB001 GB002", id="hardly any findings"),
        pytest.param(finds_nothing, 0, "a.py:1:1: GB002 x", id="an information is left"),
        pytest.param(finds_nothing, 3, "", id="an error is left"),
        pytest.param(is_red, 0, "6 passed in 0.10s", id="green before"),
        pytest.param(is_red, 2, "1 error in 0.10s", id="an import error instead of failures"),
        pytest.param(is_red, 1, "1 failed, 4 errors in 0.10s", id="errors beside failures"),
        pytest.param(is_red, 1, "usage: pytest", id="no failure was counted"),
        pytest.param(is_green, 1, "1 failed, 5 passed in 0.10s", id="red after"),
        pytest.param(is_green, 0, "5 passed, 1 skipped in 0.10s", id="a test was skipped"),
        pytest.param(is_green, 5, "no tests ran in 0.10s", id="no tests"),
        pytest.param(negotiates, 0, "Nothing to do.", id="nobody negotiated"),
        pytest.param(negotiates, 5, "[AGENT] Committing ✓ Modified: x", id="the negotiation failed"),
        pytest.param(processes_the_order, 0, "[RUNTIME] Ready.", id="nobody heard of the order"),
        pytest.param(processes_the_order, 7, ORDER_LINES, id="the run failed"),
    ],
)
def test_a_judge_complains_about_everything_else(judge, status, output) -> None:
    assert judge(Finished(status, output))


def test_a_step_shows_its_command_before_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perform(Step("Say it", (sys.executable, "-c", "print('said')"), succeeds), tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["$ python -c 'print('\"'\"'said'\"'\"')'", "  said"]


def test_a_step_whose_judge_complains_ends_the_demo(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="Leave: exit status 4"):
        perform(Step("Leave", (sys.executable, "-c", "raise SystemExit(4)"), succeeds), tmp_path)


def test_a_step_that_does_not_end_is_ended_and_said_to_be_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STEP_TIMEOUT_S", 0.5)
    with pytest.raises(DemoError, match=r"Wait: it has not ended after 0\.5 seconds"):
        perform(Step("Wait", (sys.executable, "-c", "import time; time.sleep(600)"), succeeds), tmp_path)


@pytest.mark.parametrize(
    ("after", "complaint"),
    [({"agents/a.py": "1\n", "tests/t.py": "1\n"}, "no file"), ({"agents/a.py": "2\n", "tests/t.py": "2\n"}, "tests")],
    ids=["nothing changed", "a test changed"],
)
def test_the_diff_must_change_agents_and_no_test(after: dict[str, str], complaint: str) -> None:
    with pytest.raises(DemoError, match=complaint):
        show_diff({"agents/a.py": "1\n", "tests/t.py": "1\n"}, after)


def test_the_diff_shows_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    show_diff({"agents/a.py": "old\n"}, {"agents/a.py": "new\n"})
    shown = capsys.readouterr().out
    assert "-old" in shown
    assert "+new" in shown
    assert "\x1b[" not in shown
