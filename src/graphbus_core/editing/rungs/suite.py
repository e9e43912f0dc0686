"""Rung G6: run the project's tests with and without the change. A test that passed before must pass again.

A process that runs no project code (`sandbox_programs/graphbus_watch.py`) writes the results down, as our pytest plugin reports
them. Failing, erring, being skipped and not being there are all the same.

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
_Claim = ast.expr
_PAIRS = (
    "assertEqual assertNotEqual",
    "assertTrue assertFalse",
    "assertIn assertNotIn",
    "assertIsNone assertIsNotNone",
)
_OPPOSITES = dict(way for pair in _PAIRS for way in (pair.split(), pair.split()[::-1]))
"""Assertion methods of unittest -> the method that asserts the opposite of the same arguments."""


class _InvertedHalf(NamedTuple):
    """Test files in which a random half of the tests is inverted.

    Attributes:
        files: Path -> text.
        turned: The names of the inverted tests, without parameters.
        kept: The names of the tests that could be inverted and are not.
    """

    files: Mapping[str, bytes]
    turned: frozenset[str]
    kept: frozenset[str]

    def find_forged(self, passed: Collection[str], outcomes: Mapping[str, str]) -> set[str]:
        """Return the tests whose results do not follow their expectations: inverted ones that pass, others that do not.

        Args:
            passed: The tests that passed in the ordinary run; only these are looked at.
            outcomes: Test -> outcome in the run of this half.
        """
        found = set()
        for name in passed:
            plain = _plain_name(name)
            is_green = outcomes.get(name) == "passed"
            if (plain in self.turned and is_green) or (plain in self.kept and not is_green):
                found.add(name)
        return found


def inverted_halves(passed: Iterable[str], files: ProjectFiles, chance: random.Random) -> tuple[_InvertedHalf, ...]:
    """Return two halves, so that each test that can be inverted is inverted in one of them; empty if none can be."""
    found = {
        path: _invertible_tests(files.read_file(path) or b"", path)
        for path in sorted({name.partition("::")[0] for name in passed})
    }
    names = sorted(name for turnable in found.values() for name in turnable)
    first = frozenset(name for name in names if chance.random() < 0.5)
    if not names:
        return ()
    return tuple(
        _InvertedHalf(
            {
                path: _invert_tests(files.read_file(path) or b"", found[path], chosen, chance)
                for path in found
                if found[path]
            },
            chosen,
            frozenset(names) - chosen,
        )
        for chosen in (first, frozenset(names) - first)
    )


def _plain_name(name: str) -> str:
    """Return the name of a test without its parameters."""
    return name.partition("[")[0]


def _invertible_tests(text: bytes, path: str) -> dict[str, list[_Claim]]:
    """Return the tests of a file that can be inverted, each with the assertions that it always reaches.

    These are the ones at the top level of a test without `return` and `yield`.
    """
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, list[_Claim]] = {}
    for name, function in _functions(tree.body, path):
        claims = [step for step in map(_claim_of, function.body) if step]
        ends = any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(function))
        found[name] = [] if name in found or ends else claims  # of two tests with one name only the last runs
    return {name: claims for name, claims in found.items() if claims}


def _claim_of(step: ast.stmt) -> _Claim | None:
    """Return the expression of an `assert`, or the assertion method of unittest if it has an opposite; else None."""
    if isinstance(step, ast.Assert):
        return step.test
    function = step.value.func if isinstance(step, ast.Expr) and isinstance(step.value, ast.Call) else None
    return function if isinstance(function, ast.Attribute) and function.attr in _OPPOSITES else None


def _functions(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, _Function]]:
    """Yield the test functions of a module or class with their names as pytest writes them."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{above}::{node.name}")
        elif isinstance(node, _Function) and node.name.startswith("test"):
            yield f"{above}::{node.name}", node


def _invert_tests(
    text: bytes, found: Mapping[str, list[_Claim]], chosen: Collection[str], chance: random.Random
) -> bytes:
    """Return the text with one assertion of each chosen test inverted."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = []
    for name in found.keys() & set(chosen):
        claim = chance.choice(found[name])
        constant = _expected_constant(claim)
        place = constant or claim
        first = starts[place.lineno - 1] + place.col_offset
        last = starts[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)
        edits.append((first, last, _inverted_text(claim, constant, text[first:last], chance)))
    for first, last, fresh in sorted(edits, reverse=True):
        text = text[:first] + fresh + text[last:]
    return text


def _inverted_text(claim: _Claim, constant: ast.Constant | None, text: bytes, chance: random.Random) -> bytes:
    """Return the text that inverts an assertion; an expected constant is changed, which is harder to guess than `not`."""
    if constant is not None and isinstance(constant.value, str):
        return repr(f"{constant.value}{chance.choice('abcdefgh')}").encode()
    if constant is not None:
        return f"({constant.value!r} + {chance.randint(1, 9)})".encode()
    if isinstance(claim, ast.Attribute) and claim.attr in _OPPOSITES:
        return text.removesuffix(claim.attr.encode()) + _OPPOSITES[claim.attr].encode()
    return b"not (" + text + b")"


def _expected_constant(node: ast.expr) -> ast.Constant | None:
    """Return the constant in `assert something == constant`, if it is a number or a text on one line."""
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
_SETTINGS = ("pyproject.toml", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg")
_TESTPATHS = re.compile(r"^testpaths\s*=\s*(\[[^\]]*\]|.*(?:\n[ \t]+.*)*)", re.MULTILINE)
"""A list in TOML, or words in an INI file, which may continue on indented lines."""


def has_tests(root: Path) -> bool:
    """True if the project has a test file, or a file that the `testpaths` setting of pytest names."""
    for folder, names, files in os.walk(root):
        names[:] = [
            name for name in names if name not in SKIPPED_FOLDERS and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        if any(fnmatch(name, pattern) for name in files for pattern in _TEST_FILES):
            return True
    return any(any(root.glob(pattern)) for pattern in _named_in_settings(root) if not os.path.isabs(pattern))


def _named_in_settings(root: Path) -> Iterator[str]:
    """Yield the patterns in `testpaths`, from whatever settings file of pytest there is."""
    for path in (root / name for name in _SETTINGS):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for value in _TESTPATHS.findall(text):
            yield from re.findall(r"[^\s\[\]\"',]+", value)


_FURTHER_ROUNDS = 4
"""How often tests that seem forged are run again, without the change and with it."""
_LAST_LINES = 12
_NO_TESTS = 5
"""The exit status of pytest when it finds no test."""
_RANK = {"passed": 0, "skipped": 1, "failed": 2, "error": 3, "odd": 4}
_OBEYED = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD",)
"""Environment variables that change how pytest starts; they are passed on, so that tests start as they do by hand."""
_BEFORE = {"setup": ("", "teardown"), "call": ("setup", "call"), "teardown": ("setup", "call")}


class _Tested(NamedTuple):
    """The result of one test run.

    Attributes:
        outcomes: Test -> outcome; None if pytest did not report its end.
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
        self._tested: dict[tuple[str, bool], _Tested] = {}
        self._obstacle = self._obstacle_told = ""

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The configured test command, else pytest if the project has tests for it, else nothing."""
        if self._environment.config.settings.gate.test_command:
            return self._environment.config.settings.gate.test_command
        return (sys.executable, "-m", "pytest", "-q") if has_tests(Path(self._environment.config.root)) else ()

    def check(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """Run the tests without and with the change, and compare.

        Before a lost test refuses the change, the tests run a second time without the change: a flaky test, or one with a
        random name, proves nothing. If the tests do not even run without the change, they are not tried again in this session.
        """
        if not self.command:
            return NotRun("The project has no tests.")
        timeout_s = self._environment.limits.timeout_s
        if not self._obstacle:
            before = self._run_tests(base, project)
            self._obstacle = _obstacle(before, timeout_s, self._environment.files_in(base))
            self._obstacle_told = _full_output(before)
        if self._obstacle:
            return self._environment.refuse_unverified("G6.unverified", self._obstacle, output=self._obstacle_told)
        if before.is_pytest and not before.passed:
            return NotRun("No test passes without the change.")
        after = self._run_tests(head, project, before.used_s)
        files = self._environment.files_in(head)
        verdict = _compare(before, after, timeout_s, files)
        if isinstance(verdict, Refusal) and verdict.code == "G6.tests" and before.is_pytest:
            again = self._run_tests(base, project, before.used_s, again=True)
            return _compare(_without_flaky(before, again), after, timeout_s, files)
        return verdict

    def prove(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """Run the tests of a change that passed `check` with inverted expectations, half of them at a time.

        A test whose result never follows its expectation with the change, but always does without it, is forged: refuse.
        """
        after = self._tested.get((head.digest, False))
        if after is None or not after.is_pytest or not after.passed:
            return None
        files = self._environment.files_in(head)
        for half in inverted_halves(after.passed, files, random.SystemRandom()):
            forged = self._find_forged(half, base, head, after.passed, project)
            if forged:
                shown = _list_lost(dict.fromkeys(sorted(forged), "same result when inverted"), files)
                said = f"The results of these tests do not depend on what they expect: {shown}."
                return Refusal("G6.tampered", said, output="\n".join(sorted(forged)))
        return None

    def _find_forged(
        self, half: _InvertedHalf, base: TreeState, head: TreeState, passed: set[str], project: Project
    ) -> set[str]:
        """Return the tests whose results never follow their expectations with the change, and always do without it.

        One run is enough if all is well. Further runs keep flaky tests from being taken for forged ones: a test that fails every
        second time is so in one of 500 cases.
        """
        forged, name = passed, os.urandom(8).hex()
        used_s = self._tested[head.digest, False].used_s
        for number, side in enumerate([head, *[base, head] * _FURTHER_ROUNDS]):
            state = TreeState(f"{side.digest} {name} {number}", {**side.files, **half.files})
            tested = self._run_tests(state, project, used_s)
            if tested.timed_out or (side is base and tested.outcomes is None):
                return set()
            found = half.find_forged(passed, tested.outcomes or {})
            forged = forged - found if side is base else forged & found
            if not forged:
                break
        return forged

    def _run_tests(self, state: TreeState, project: Project, before_s: float = 0.0, *, again: bool = False) -> _Tested:
        key = (state.digest, again)
        if key not in self._tested:
            with self._environment.copy(state) as folder:
                paths = self._environment.import_paths(folder, project.index.import_roots)
                environment = {
                    "PYTHONPATH": os.pathsep.join([str(SANDBOX_PROGRAMS), *paths]),
                    "PYTEST_PLUGINS": "graphbus_verdict",
                    "PYTEST_ADDOPTS": "-p no:cacheprovider --continue-on-collection-errors",
                    **{name: os.environ[name] for name in _OBEYED if name in os.environ},
                }
                heard = self._environment.run_watched(self.command, folder, environment, before_s=before_s)
                self._tested[key] = _read_reports(heard, _is_pytest(self.command))
        return self._tested[key]


def _is_pytest(command: tuple[str, ...]) -> bool:
    """True if the command names pytest. A command that runs pytest indirectly is recognised by the reports of our plugin."""
    return any(Path(word).name in ("pytest", "py.test") for word in command)


# --- from reports to outcomes ---------------------------------------------------------------------


def _read_reports(heard: WatchedRun, names_pytest: bool) -> _Tested:
    """Build the result of a run from the reports of our plugin. The report of the end must be the very last one."""
    steps = [step for step in heard.said if isinstance(step, list) and step]
    tail = "\n".join(heard.done.stderr.splitlines()[-_LAST_LINES:])
    is_pytest = names_pytest or bool(steps) or not heard.is_sound
    uncollected = {str(step[1]): str(step[2]) for step in steps if step[0] == "uncollected"}
    end = steps[-1] if heard.is_sound and steps and steps[-1][0] == "end" else None
    outcomes = _outcomes(steps) if end else None
    tampered = ""
    if not heard.is_sound and not heard.done.timed_out and steps:
        tampered = "the record of the run"
    elif end and names_pytest and end[1] != heard.done.returncode:
        tampered = f"the exit status ({heard.done.returncode} for {end[1]})"
    done = heard.done
    return _Tested(outcomes, uncollected, is_pytest, done.returncode, done.timed_out, tail, tampered, done.used_s)


def _outcomes(steps: list[list[Json]]) -> dict[str, str]:
    """Return the worst outcome of each test; `odd` if its phases are in the wrong order or the last one is missing."""
    worst: dict[str, str] = {}
    phase: dict[str, str] = {}
    for step in steps:
        if step[0] != "phase":
            continue
        name, when, outcome = str(step[1]), str(step[2]), str(step[3])
        outcome = outcome if outcome in _RANK else "odd"
        if phase.get(name, "") not in _BEFORE.get(when, ()):
            outcome = "odd"
        elif outcome == "failed" and when != "call":
            outcome = "error"
        elif step[4]:
            outcome = "xfailed" if outcome == "skipped" else "xpassed"
        phase[name] = when
        if outcome != "passed" or when == "call":
            worst[name] = max(worst.get(name, outcome), outcome, key=lambda word: _RANK.get(word, 1))
    return {name: outcome if phase[name] == "teardown" else "odd" for name, outcome in worst.items()}


# --- what a run proves ------------------------------------------------------------------------------


def _full_output(tested: _Tested) -> str:
    """Return the output of a run, for the user."""
    return "\n".join([*(f"{path}: {why}" for path, why in sorted(tested.uncollected.items())), tested.tail])


def _obstacle(before: _Tested, timeout_s: float, files: ProjectFiles) -> str:
    """Say why the tests prove nothing about any change; empty if they do."""
    if before.timed_out:
        said = f"Without the change, too, the tests take longer than timeout_s ({timeout_s:g} s)"
        return f"{said}; they are not run again in this session. Raise timeout_s in [tool.graphbus.gate]."
    if before.outcomes:
        return ""
    if before.uncollected:
        found = _describe_uncollected(before.uncollected, files)
        return f"Without the change, too, {found}, and there is no other test. Fix it first."
    if "No module named pytest" in before.tail:
        said = "The project has tests, but pytest is not installed for the Python that runs them"
        return f"{said}. Install pytest there, or set test_command in [tool.graphbus.gate]."
    is_fine = before.returncode in (0, _NO_TESTS if before.is_pytest else 0)
    is_silent = is_fine and before.is_pytest and before.outcomes is None
    if is_fine and not is_silent:
        return ""
    how = "the tests end before pytest has reported their results" if is_silent else "the test command fails"
    said = f"Without the change, too, {how} (exit status {before.returncode})"
    return f"{said}. Fix it (look at conftest.py first), or set test_command in [tool.graphbus.gate]."


def _without_flaky(first: _Tested, second: _Tested) -> _Tested:
    """Leave out the tests with different outcomes in two runs of the same state."""
    if second.outcomes is None:
        return first
    lasting = {name: word for name, word in (first.outcomes or {}).items() if second.outcomes.get(name) == word}
    return first._replace(outcomes=lasting)


def _compare(before: _Tested, after: _Tested, timeout_s: float, files: ProjectFiles) -> RungVerdict:
    if after.timed_out:
        return Refusal("G6.timeout", f"The tests take longer than timeout_s ({timeout_s:g} s).")
    if after.tampered and after.tampered != before.tampered:
        return Refusal("G6.tampered", f"The code that was tested has forged {after.tampered}.")
    if before.is_pytest:
        return _compare_outcomes(before, after, files)
    if after.returncode:
        return Refusal("G6.tests", f"The test command fails (exit status {after.returncode}).", output=after.tail)
    return None


def _compare_outcomes(before: _Tested, after: _Tested, files: ProjectFiles) -> RungVerdict:
    """Refuse if a test file can no longer be collected, or a test that passed before does not pass."""
    fresh = {path: why for path, why in after.uncollected.items() if path not in before.uncollected}
    if fresh:
        told = "\n".join(f"{path}: {why}" for path, why in sorted(fresh.items()))
        return Refusal("G6.collection", f"With the change, {_describe_uncollected(fresh, files)}.", output=told)
    outcomes = after.outcomes or {}
    lost = {name: outcomes.get(name, "gone") for name in sorted(before.passed - after.passed)}
    if lost:
        told = "\n".join(f"{name}: {word}" for name, word in lost.items())
        said = f"These tests passed before the change and do not now: {_list_lost(lost, files)}."
        return Refusal("G6.tests", said, output=f"{told}\n{after.tail}")
    if not before.uncollected:
        return None
    said = f"Without the change, too, {_describe_uncollected(before.uncollected, files)}."
    return PassedWithNote(said, _full_output(before))


def _list_lost(lost: Mapping[str, str], files: ProjectFiles) -> str:
    """List lost tests with their outcomes; the cases of one parametrised test count as one."""
    counted = Counter((files.test_name(name), word) for name, word in lost.items())
    shown = [f"{name} ({word}{f', {count} times' if count > 1 else ''})" for (name, word), count in counted.items()]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return f"{', '.join(shown[:5])}{more}"


def _describe_uncollected(found: Mapping[str, str], files: ProjectFiles) -> str:
    path = files.test_name(min(found))
    more = f"; nor can {len(found) - 1} more" if len(found) > 1 else ""
    return f"{path} cannot be collected{more}"
