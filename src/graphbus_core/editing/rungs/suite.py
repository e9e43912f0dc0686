"""Rung G6: run the project's tests with and without the change. A test that passed before must pass again.

A process that runs no project code (`sandbox_programs/graphbus_watch.py`) records the results that the pytest plugin of
GraphBus reports. A test that fails, raises, is skipped or is missing counts as not passed.

A test shares a process with the code that it tests, so that malicious code could forge its result. Therefore, before changes are
written, the tests run twice more. Each time the expectations of a random half of them are inverted: those tests must
fail, and the others must pass. Code that turns failures into passes cannot know which tests ought to fail. To find out it would
have to understand the tests, and then it could as well return what they expect.
"""

from __future__ import annotations

import ast
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.trial_environment import (
    SANDBOX_PROGRAMS,
    SKIPPED_FOLDERS,
    NotRun,
    PassedWithNote,
    ProjectFiles,
    RungVerdict,
    TreeState,
    TrialEnvironment,
    WatchedRun,
)
from graphbus_core.schema.json import Json

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Assertion = ast.expr
_OPPOSITE_METHODS = (
    "assertEqual assertNotEqual",
    "assertTrue assertFalse",
    "assertIn assertNotIn",
    "assertIsNone assertIsNotNone",
)
_OPPOSITES = dict(way for pair in _OPPOSITE_METHODS for way in (pair.split(), pair.split()[::-1]))
"""Assertion methods of unittest -> the method that asserts the opposite of the same arguments."""


class _InvertedHalf(NamedTuple):
    """Test files in which a random half of the tests is inverted.

    Attributes:
        files: Path -> text.
        inverted: The names of the inverted tests, without parameters.
        unchanged: The names of the tests that could be inverted and are not.
    """

    files: Mapping[str, bytes]
    inverted: frozenset[str]
    unchanged: frozenset[str]

    def find_forged(self, passed: Collection[str], outcomes: Mapping[str, str]) -> set[str]:
        """Return the tests whose results contradict their expectations: inverted ones that pass, unchanged ones that do not.

        Args:
            passed: The tests that passed in the ordinary run; only these are looked at.
            outcomes: Test -> outcome in the run of this half.
        """
        found = set()
        for name in passed:
            plain = _strip_parameters(name)
            is_green = outcomes.get(name) == "passed"
            if (plain in self.inverted and is_green) or (plain in self.unchanged and not is_green):
                found.add(name)
        return found


def inverted_halves(
    passed: Iterable[str], files: ProjectFiles, random_source: random.Random
) -> tuple[_InvertedHalf, ...]:
    """Return two versions of the test files: a random half of the tests is inverted in the first, the others in the second.

    Tests that cannot be inverted stay as they are in both. The result is empty if no test can be inverted.

    Args:
        passed: The names of the tests that passed, with their files: `tests/test_a.py::test_b[1]`. All tests of these files that
            can be inverted are.
        files: The files of the project.
        random_source: Chooses the tests and the inverted assertions.
    """
    found = {
        path: _find_invertible_tests(files.read_file(path) or b"", path)
        for path in sorted({name.partition("::")[0] for name in passed})
    }
    names = sorted(name for invertible in found.values() for name in invertible)
    first = frozenset(name for name in names if random_source.random() < 0.5)
    if not names:
        return ()
    return tuple(
        _InvertedHalf(
            {
                path: _invert_tests(files.read_file(path) or b"", found[path], chosen, random_source)
                for path in found
                if found[path]
            },
            chosen,
            frozenset(names) - chosen,
        )
        for chosen in (first, frozenset(names) - first)
    )


def _strip_parameters(name: str) -> str:
    """Return the name of a test without its parameters."""
    return name.partition("[")[0]


def _find_invertible_tests(text: bytes, path: str) -> dict[str, list[_Assertion]]:
    """Return name -> assertions for each test that can be inverted; empty if the file does not parse.

    The assertions are those that the test always reaches: at the top level of its body, if it has no `return` and no `yield`.
    """
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, list[_Assertion]] = {}
    for name, function in _find_test_functions(tree.body, path):
        assertions = [step for step in map(_find_assertion, function.body) if step]
        ends = any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(function))
        found[name] = [] if name in found or ends else assertions  # of two tests with one name only the last runs
    return {name: assertions for name, assertions in found.items() if assertions}


def _find_assertion(step: ast.stmt) -> _Assertion | None:
    """Return the expression to invert if a statement is an assertion; else None.

    It is the condition of an `assert`, or the `self.assertEqual` of a call if `_OPPOSITES` knows the method.
    """
    if isinstance(step, ast.Assert):
        return step.test
    function = step.value.func if isinstance(step, ast.Expr) and isinstance(step.value, ast.Call) else None
    return function if isinstance(function, ast.Attribute) and function.attr in _OPPOSITES else None


def _find_test_functions(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, _Function]]:
    """Yield (name, function) for the tests in a module or class; the name is written as by pytest and begins with `above`."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _find_test_functions(node.body, f"{above}::{node.name}")
        elif isinstance(node, _Function) and node.name.startswith("test"):
            yield f"{above}::{node.name}", node


def _invert_tests(
    text: bytes, found: Mapping[str, list[_Assertion]], chosen: Collection[str], random_source: random.Random
) -> bytes:
    """Return the text of a test file with one random assertion of each chosen test inverted.

    `found` are the tests of this file that can be inverted, with their assertions.
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = []
    for name in found.keys() & set(chosen):
        assertion = random_source.choice(found[name])
        constant = _expected_constant(assertion)
        place = constant or assertion
        first = starts[place.lineno - 1] + place.col_offset
        last = starts[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)
        edits.append((first, last, _make_inverted_text(assertion, constant, text[first:last], random_source)))
    for first, last, new in sorted(edits, reverse=True):  # from the end, so that positions stay valid
        text = text[:first] + new + text[last:]
    return text


def _make_inverted_text(
    assertion: _Assertion, constant: ast.Constant | None, text: bytes, random_source: random.Random
) -> bytes:
    """Return the new text for a part of an assertion: for the expected `constant`, or without one for the whole.

    A changed constant is harder for malicious code to detect than a `not`.
    """
    if constant is not None and isinstance(constant.value, str):
        return repr(f"{constant.value}{random_source.choice('abcdefgh')}").encode()
    if constant is not None:
        return f"({constant.value!r} + {random_source.randint(1, 9)})".encode()
    if isinstance(assertion, ast.Attribute) and assertion.attr in _OPPOSITES:
        return text.removesuffix(assertion.attr.encode()) + _OPPOSITES[assertion.attr].encode()
    return b"not (" + text + b")"


def _expected_constant(node: ast.expr) -> ast.Constant | None:
    """Return the constant of `something == constant`, if it is a number or a text on one line; else None."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        value = node.comparators[0]
        if (
            isinstance(value, ast.Constant)
            and type(value.value) in (int, float, str)
            and value.lineno == value.end_lineno
        ):
            return value
    return None


_TEST_FILES = ("test_*.py", "*_test.py")
_PYTEST_SETTINGS = ("pyproject.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg")
_TESTPATHS = re.compile(r"^testpaths\s*=\s*(\[[^\]]*\]|.*(?:\n[ \t]+.*)*)", re.MULTILINE)
"""A list in TOML, or words in an INI file, which may continue on indented lines."""


def has_tests(root: Path) -> bool:
    """True if the project has a test file, or anything that the `testpaths` setting of pytest names."""
    for folder, names, files in os.walk(root):
        names[:] = [
            name for name in names if name not in SKIPPED_FOLDERS and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        if any(fnmatch(name, pattern) for name in files for pattern in _TEST_FILES):
            return True
    return any(any(root.glob(pattern)) for pattern in _find_testpaths(root) if not os.path.isabs(pattern))


def _find_testpaths(root: Path) -> Iterator[str]:
    """Yield the patterns in the `testpaths` settings of all settings files of pytest."""
    for path in (root / name for name in _PYTEST_SETTINGS):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for value in _TESTPATHS.findall(text):
            yield from re.findall(r"[^\s\[\]\"',]+", value)


_FURTHER_ROUNDS = 4
"""How often tests that seem forged are run again, without the change and with it."""
_LAST_LINES = 12
_NO_TESTS = 5
"""The exit status of pytest when it finds no test."""
_RANK = {"passed": 0, "skipped": 1, "failed": 2, "error": 3, "odd": 4}
"""The outcomes of a phase of a test; the worst one counts. `odd` stands for reports that contradict each other."""
_PASSED_VARIABLES = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD",)
"""Environment variables that change how pytest starts; they are passed on, so that tests start as they do by hand."""
_PREVIOUS_PHASES = {"setup": ("", "teardown"), "call": ("setup", "call"), "teardown": ("setup", "call")}
"""Phase of a test -> the phases that may come before it; a test may run again after its teardown."""


class _TestRun(NamedTuple):
    """The result of one test run.

    Attributes:
        outcomes: Test -> outcome; None if pytest did not report the end of the run.
        uncollected: Test file -> why it cannot be collected.
        is_pytest: False if the command is not pytest, so that only its exit status is known.
        tail: The last lines of the output.
        tampered: What contradicts itself in the record of the run, if anything.
        used_s: The time that it used.
    """

    outcomes: dict[str, str] | None
    uncollected: dict[str, str]
    is_pytest: bool
    returncode: int
    timed_out: bool
    tail: str = ""
    tampered: str = ""
    used_s: float = 0.0

    @property
    def passed(self) -> set[str]:
        """The tests that passed."""
        return {name for name, outcome in (self.outcomes or {}).items() if outcome == "passed"}


class TestTrials:
    """Rung G6 of one session. The tests run once for each state."""

    __test__ = False

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._runs: dict[tuple[str, bool], _TestRun] = {}
        self._obstacle = self._obstacle_output = ""

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The configured test command; without one, pytest if the project has tests for it, else empty."""
        if self._environment.config.settings.gate.test_command:
            return self._environment.config.settings.gate.test_command
        return (sys.executable, "-m", "pytest", "-q") if has_tests(Path(self._environment.config.root)) else ()

    def check(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """Run the tests without and with the change, and return the verdict of G6.

        If a test no longer passes, the tests run a second time without the change, to leave out flaky tests and tests with random
        names: those prove nothing. If the tests prove nothing even without the change, they do not run again in this session.
        """
        if not self.command:
            return NotRun("The project has no tests.")
        timeout_s = self._environment.limits.timeout_s
        if not self._obstacle:
            before = self._run_tests(base, project)
            self._obstacle = _why_inconclusive(before, timeout_s, self._environment.files_in(base))
            self._obstacle_output = _join_output(before)
        if self._obstacle:
            return self._environment.refuse_unverified("G6.unverified", self._obstacle, output=self._obstacle_output)
        if before.is_pytest and not before.passed:
            return NotRun("No test passes without the change.")
        after = self._run_tests(head, project, before.used_s)
        files = self._environment.files_in(head)
        verdict = _compare_runs(before, after, timeout_s, files)
        if isinstance(verdict, Refusal) and verdict.code == "G6.tests" and before.is_pytest:
            again = self._run_tests(base, project, before.used_s, again=True)
            return _compare_runs(_drop_flaky_tests(before, again), after, timeout_s, files)
        return verdict

    def prove(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """Run the tests of a change that passed `check` with inverted expectations, half of them at a time.

        Refuse the change if a result is forged: it never follows the expectation with the change, but always does without it.
        None means that none is, or that there are no tests of pytest that pass.
        """
        after = self._runs.get((head.digest, False))
        if after is None or not after.is_pytest or not after.passed:
            return None
        files = self._environment.files_in(head)
        for half in inverted_halves(after.passed, files, random.SystemRandom()):
            forged = self._find_forged(half, base, head, after.passed, project)
            if forged:
                shown = _describe_lost_tests(dict.fromkeys(sorted(forged), "same result when inverted"), files)
                message = f"The results of these tests do not depend on what they expect: {shown}."
                return Refusal("G6.tampered", message, output="\n".join(sorted(forged)))
        return None

    def _find_forged(
        self, half: _InvertedHalf, base: TreeState, head: TreeState, passed: set[str], project: Project
    ) -> set[str]:
        """Return the tests whose results never follow their expectations with the change, and always do without it.

        If no test seems forged, one run is enough. Otherwise the tests run `_FURTHER_ROUNDS` times more on each side, so that
        flaky tests are not taken for forged ones: for a test that fails every second time the probability is 1/500.
        """
        forged, name = passed, os.urandom(8).hex()
        used_s = self._runs[head.digest, False].used_s
        for number, side in enumerate([head, *[base, head] * _FURTHER_ROUNDS]):
            state = TreeState(f"{side.digest} {name} {number}", {**side.files, **half.files})
            run = self._run_tests(state, project, used_s)
            if run.timed_out or (side is base and run.outcomes is None):  # such a run proves nothing
                return set()
            found = half.find_forged(passed, run.outcomes or {})
            forged = forged - found if side is base else forged & found
            if not forged:
                break
        return forged

    def _run_tests(self, state: TreeState, project: Project, before_s: float = 0.0, *, again: bool = False) -> _TestRun:
        """Run the tests on a copy of a state; the result is cached, that of a second run (`again`) separately.

        Args:
            state: The state.
            project: The project, for its import roots.
            before_s: The time that the tests used without the change; 0 for a run without it.
            again: Run them a second time.
        """
        key = (state.digest, again)
        if key not in self._runs:
            with self._environment.copy(state) as folder:
                paths = self._environment.import_paths(folder, project.index.import_roots)
                environment = {
                    "PYTHONPATH": os.pathsep.join([str(SANDBOX_PROGRAMS), *paths]),
                    "PYTEST_PLUGINS": "graphbus_verdict",
                    "PYTEST_ADDOPTS": "-p no:cacheprovider --continue-on-collection-errors",
                    **{name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
                }
                run = self._environment.run_watched(self.command, folder, environment, before_s=before_s)
                self._runs[key] = _read_reports(run, _is_pytest_command(self.command))
        return self._runs[key]


def _is_pytest_command(command: tuple[str, ...]) -> bool:
    """True if the command names pytest. If a command runs pytest indirectly, only the reports of the plugin show it."""
    return any(Path(word).name in ("pytest", "py.test") for word in command)


# --- from reports to outcomes ---------------------------------------------------------------------


def _read_reports(run: WatchedRun, names_pytest: bool) -> _TestRun:
    """Return the result of a run from the reports of the plugin. It has outcomes only if the last report is the end of the run.

    Args:
        run: The run.
        names_pytest: The command names pytest, so that its exit status is that of pytest.
    """
    steps = [step for step in run.reports if isinstance(step, list) and step]
    tail = "\n".join(run.done.stderr.splitlines()[-_LAST_LINES:])
    is_pytest = names_pytest or bool(steps) or not run.is_sound
    uncollected = {str(step[1]): str(step[2]) for step in steps if step[0] == "uncollected"}
    end = steps[-1] if run.is_sound and steps and steps[-1][0] == "end" else None
    outcomes = _find_outcomes(steps) if end else None
    tampered = ""
    if not run.is_sound and not run.done.timed_out and steps:
        tampered = "the record of the run"
    elif end and names_pytest and end[1] != run.done.returncode:
        tampered = f"the exit status ({run.done.returncode} for {end[1]})"
    done = run.done
    return _TestRun(outcomes, uncollected, is_pytest, done.returncode, done.timed_out, tail, tampered, done.used_s)


def _find_outcomes(steps: list[list[Json]]) -> dict[str, str]:
    """Return test -> its worst outcome, from the reports; `odd` if phases are in the wrong order or the teardown is missing."""
    worst: dict[str, str] = {}
    phase: dict[str, str] = {}
    for step in steps:
        if step[0] != "phase":
            continue
        name, when, outcome = str(step[1]), str(step[2]), str(step[3])
        outcome = outcome if outcome in _RANK else "odd"
        if phase.get(name, "") not in _PREVIOUS_PHASES.get(when, ()):
            outcome = "odd"
        elif outcome == "failed" and when != "call":
            outcome = "error"
        elif step[4]:  # the test is expected to fail
            outcome = "xfailed" if outcome == "skipped" else "xpassed"
        phase[name] = when
        if outcome != "passed" or when == "call":
            worst[name] = max(worst.get(name, outcome), outcome, key=lambda word: _RANK.get(word, 1))
    return {name: outcome if phase[name] == "teardown" else "odd" for name, outcome in worst.items()}


# --- what a run proves ------------------------------------------------------------------------------


def _join_output(run: _TestRun) -> str:
    """Return the output of a run, for the user."""
    return "\n".join([*(f"{path}: {why}" for path, why in sorted(run.uncollected.items())), run.tail])


def _why_inconclusive(before: _TestRun, timeout_s: float, files: ProjectFiles) -> str:
    """Return why a run without any change shows that the tests prove nothing; empty if they can prove something."""
    if before.timed_out:
        message = f"Even without the change, the tests take longer than timeout_s ({timeout_s:g} s)"
        return f"{message}; they are not run again in this session. Raise timeout_s in [tool.graphbus.gate]."
    if before.outcomes:
        return ""
    if before.uncollected:
        found = _describe_uncollected(before.uncollected, files)
        return f"Even without the change, {found}, and there is no other test. Fix it first."
    if "No module named pytest" in before.tail:
        message = "The project has tests, but pytest is not installed for the Python that runs them"
        return f"{message}. Install pytest there, or set test_command in [tool.graphbus.gate]."
    is_fine = before.returncode in (0, _NO_TESTS if before.is_pytest else 0)
    is_silent = is_fine and before.is_pytest and before.outcomes is None
    if is_fine and not is_silent:
        return ""
    how = "the tests end before pytest has reported their results" if is_silent else "the test command fails"
    message = f"Even without the change, {how} (exit status {before.returncode})"
    return f"{message}. Fix it (look at conftest.py first), or set test_command in [tool.graphbus.gate]."


def _drop_flaky_tests(first: _TestRun, second: _TestRun) -> _TestRun:
    """Return the first of two runs of the same state, without the tests whose outcomes differ between the two."""
    if second.outcomes is None:
        return first
    lasting = {name: word for name, word in (first.outcomes or {}).items() if second.outcomes.get(name) == word}
    return first._replace(outcomes=lasting)


def _compare_runs(before: _TestRun, after: _TestRun, timeout_s: float, files: ProjectFiles) -> RungVerdict:
    """Return the verdict of G6 for a run without the change and one with it."""
    if after.timed_out:
        return Refusal("G6.timeout", f"The tests take longer than timeout_s ({timeout_s:g} s).")
    if after.tampered and after.tampered != before.tampered:
        return Refusal("G6.tampered", f"The code that was tested has forged {after.tampered}.")
    if before.is_pytest:
        return _compare_outcomes(before, after, files)
    if after.returncode:
        return Refusal("G6.tests", f"The test command fails (exit status {after.returncode}).", output=after.tail)
    return None


def _compare_outcomes(before: _TestRun, after: _TestRun, files: ProjectFiles) -> RungVerdict:
    """Return the verdict of G6 for two runs of pytest: a refusal if a file or test is lost, else None or a note."""
    new = {path: why for path, why in after.uncollected.items() if path not in before.uncollected}
    if new:
        output = "\n".join(f"{path}: {why}" for path, why in sorted(new.items()))
        return Refusal("G6.collection", f"With the change, {_describe_uncollected(new, files)}.", output=output)
    outcomes = after.outcomes or {}
    lost = {name: outcomes.get(name, "gone") for name in sorted(before.passed - after.passed)}
    if lost:
        output = "\n".join(f"{name}: {word}" for name, word in lost.items())
        message = f"These tests passed before the change and do not now: {_describe_lost_tests(lost, files)}."
        return Refusal("G6.tests", message, output=f"{output}\n{after.tail}")
    if not before.uncollected:
        return None
    message = f"Even without the change, {_describe_uncollected(before.uncollected, files)}."
    return PassedWithNote(message, _join_output(before))


def _describe_lost_tests(lost: Mapping[str, str], files: ProjectFiles) -> str:
    """Return up to five tests with their outcomes, as text; the cases of one parametrised test count as one."""
    counted = Counter((files.test_name(name), word) for name, word in lost.items())
    shown = [f"{name} ({word}{f', {count} times' if count > 1 else ''})" for (name, word), count in counted.items()]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return f"{', '.join(shown[:5])}{more}"


def _describe_uncollected(found: Mapping[str, str], files: ProjectFiles) -> str:
    """Return a clause that names the first test file that cannot be collected, and the number of others."""
    path = files.test_name(min(found))
    more = f"; nor can {len(found) - 1} more" if len(found) > 1 else ""
    return f"{path} cannot be collected{more}"
