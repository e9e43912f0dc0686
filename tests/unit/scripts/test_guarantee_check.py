"""The check behind docs/guarantees.md cannot be satisfied by a test that is not there or did not run."""

from __future__ import annotations

import pytest

from scripts.guarantees import Promise, broken, left_out, outcomes, promises

PAGE = """
# Guarantees

- Events come in order. `tests/unit/test_bus.py::test_order`
- Nothing is half written,
  ever. `tests/e2e/test_undo.py::test_kill` `tests/e2e/test_undo.py::TestDisk::test_full`
- Hope.
"""
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_bus" name="test_order[1]"/>
<testcase classname="tests.unit.test_bus" name="test_order[2]">{inside}</testcase>
<testcase classname="tests.e2e.test_undo.TestDisk" name="test_full"/>
</testsuite></testsuites>"""


def test_an_item_and_its_indented_lines_are_one_promise() -> None:
    found = promises(PAGE)
    assert [(promise.line, promise.tests) for promise in found] == [
        (4, ("tests/unit/test_bus.py::test_order",)),
        (5, ("tests/e2e/test_undo.py::test_kill", "tests/e2e/test_undo.py::TestDisk::test_full")),
        (7, ()),
    ]


@pytest.mark.parametrize(
    ("inside", "outcome"),
    [("", "passed"), ("<skipped/>", "skipped"), ("<failure/>", "failed"), ("<error/>", "failed")],
)
def test_the_worst_run_of_a_test_counts(inside: str, outcome: str) -> None:
    assert outcomes(REPORT.format(inside=inside)) == {
        "tests/unit/test_bus.py::test_order": outcome,
        "tests/e2e/test_undo.py::TestDisk::test_full": "passed",
    }


@pytest.mark.parametrize(
    ("tests", "word"),
    [((), "names no test"), (("a.py::t",), "no such test"), (("s.py::t",), "skipped"), (("f.py::t",), "failed")],
)
def test_a_promise_without_a_test_that_ran_and_passed_is_broken(tests: tuple[str, ...], word: str) -> None:
    (problem,) = broken([Promise(3, "A promise.", tests)], {"s.py::t": "skipped", "f.py::t": "failed"})
    assert problem.startswith("docs/guarantees.md:3:")
    assert word in problem


def test_a_promise_whose_test_passed_holds() -> None:
    assert broken([Promise(1, "A promise.", ("p.py::t",))], {"p.py::t": "passed"}) == []


def test_a_test_file_of_which_nothing_ran_is_told() -> None:
    ran = {"tests/unit/test_bus.py::test_order": "passed"}
    assert left_out(["tests/unit/test_bus.py", "tests/unit/build/test_x.py"], ran) == [
        "tests/unit/build/test_x.py: nothing of it ran"
    ]


@pytest.mark.parametrize(("may_skip", "count"), [(False, 1), (True, 0)])
def test_a_skipped_test_breaks_a_promise_only_where_everything_is_installed(may_skip: bool, count: int) -> None:
    found = promises("- It is safe. `tests/test_a.py::test_b`\n")
    assert len(broken(found, {"tests/test_a.py::test_b": "skipped"}, may_skip=may_skip)) == count
