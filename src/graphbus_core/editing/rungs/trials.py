"""Rungs G5 and G6: import the changed project and run its tests, in a sandbox and never in this process.

What happened is written by code of ours, in the child, to a folder outside of the copy that the project's code runs in. A test
that passed before must pass again: failing, erring, being skipped and not being there are all the same.

What cannot be tried is not verified, and refused (`unverified`) unless the settings allow it.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs import child_code
from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.find_tests import has_tests
from graphbus_core.editing.rungs.trial_tree import NotCopied, TrialTree
from graphbus_core.editing.sandbox import Finished, Limits, Sandbox, remove_tree
from graphbus_core.model.config import BuildConfig

_LAST_LINES = 12
_NO_TESTS = 5
"""Exit status of a pytest that has found no test."""


class State(NamedTuple):
    """The files that differ from the start of the session, and the digest by which the state is known again."""

    digest: str
    files: Mapping[str, bytes]


class NotRun(NamedTuple):
    """Why a change passes a rung that was not climbed; `code` is what `allow_unverified` let through, else it is empty."""

    reason: str
    code: str = ""


class Noted(NamedTuple):
    """What a person should know of a rung that was passed."""

    reason: str


Read = TypeVar("Read")
Failures = dict[str, Problem]
Verdict = Problem | NotRun | Noted | None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What importing gave: module -> names of its agents, module -> error."""

    nodes: dict[str, list[str]]
    errors: dict[str, str]


class PytestReport(msgspec.Struct, frozen=True, kw_only=True):
    """What our plugin writes: `outcomes` by test, None until pytest has ended; test file -> why it cannot be collected."""

    outcomes: dict[str, str] | None
    uncollected: dict[str, str]


class Tested(NamedTuple):
    """What a run of the tests gave; `report` is None when the command is no pytest and only its exit status is known."""

    report: PytestReport | None
    returncode: int
    timed_out: bool
    tail: str = ""

    @property
    def outcomes(self) -> dict[str, str]:
        """Test -> outcome; empty when nobody has told."""
        return (self.report.outcomes if self.report else None) or {}

    @property
    def uncollected(self) -> dict[str, str]:
        """Test file -> why it cannot be collected."""
        return self.report.uncollected if self.report else {}

    @property
    def passed(self) -> set[str]:
        """The tests that passed."""
        return {name for name, outcome in self.outcomes.items() if outcome == "passed"}

    @property
    def is_silent(self) -> bool:
        """True for a pytest that ended without having said what became of the tests."""
        return self.report is not None and self.report.outcomes is None


class Trials:
    """Imports and test runs of one session; a state of the files that was tried is not tried again."""

    def __init__(self, config: BuildConfig, sandbox: Sandbox) -> None:
        self._config = config
        self._sandbox = sandbox
        self._tree = TrialTree(config.root, config.artifacts_dir)
        self._imported: dict[tuple[str, ...], Imported | Finished] = {}
        self._tested: dict[str, Tested] = {}
        self._obstacle = ""
        gate = config.settings.gate
        self._limits = Limits(timeout_s=gate.timeout_s, memory_mb=gate.memory_mb)

    def check_import(self, base: State, head: State, project: Project) -> Verdict:
        """Import every module with an agent, and compare the agents found with those that the text shows.

        A module that does not import without the change either is no reason to refuse, unless it is one that changes.
        """
        wanted: dict[str, list[str]] = {}
        for agent in project.definitions:
            wanted.setdefault(agent.module, []).append(agent.name)
        try:
            failures, known = self._failures(base, head, project, wanted)
        except NotCopied as reason:
            return self._unverified("G5.unverified", _not_copied(reason))
        fresh = [problem for module, problem in failures.items() if _is_fresh(problem, known.get(module))]
        if fresh:
            return fresh[0]
        untried = [problem for problem in failures.values() if problem.code != "G5.nodes"]
        for problem in untried:
            if problem.path in _changed_paths(base, head):
                is_slow = problem.code == "G5.timeout"
                hint = (
                    "Raise timeout_s in [tool.graphbus.gate]." if is_slow else "Install what it needs beside GraphBus."
                )
                said = f"Without the change, too: {problem.message} {hint}"
                return self._unverified("G5.unverified", said, problem.path)
        return Noted(f"Without the change, too: {untried[0].message}") if untried else None

    def _unverified(self, code: str, reason: str, path: str = "") -> Verdict:
        """Refuse what nobody has tried, or say so where that is allowed."""
        return NotRun(reason, code) if self._config.settings.gate.allow_unverified else Problem(code, reason, path)

    def _failures(
        self, base: State, head: State, project: Project, wanted: Mapping[str, list[str]]
    ) -> tuple[Failures, Failures]:
        """Give what is wrong with the change, and then what is wrong without it.

        Where a module ends the whole process without the change, each is imported in a process of its own.
        """
        failures = self._import_failures(head, project, wanted)
        known = self._import_failures(base, project, wanted) if failures else {}
        if "" in known:
            return self._one_by_one(head, project, wanted), self._one_by_one(base, project, wanted)
        return failures, known

    def _one_by_one(self, state: State, project: Project, wanted: Mapping[str, list[str]]) -> Failures:
        found: Failures = {}
        for module, names in wanted.items():
            for problem in self._import_failures(state, project, {module: names}).values():
                found[module] = problem._replace(path=_path_of(project, module))
        return found

    def _import_failures(self, state: State, project: Project, wanted: Mapping[str, list[str]]) -> Failures:
        """Give what is wrong by module; the empty name when the process ended before it could say."""
        result = self._import(state, project, sorted(wanted))
        if isinstance(result, Finished):
            return {"": _import_ended(result, self._limits.timeout_s)}
        failures = {
            module: Problem("G5.import", f"{module} does not import: {error}", _path_of(project, module))
            for module, error in result.errors.items()
        }
        for module, names in wanted.items():
            found = result.nodes.get(module, [])
            if module not in failures and sorted(found) != sorted(names):
                message = f"{module} defines {', '.join(found) or 'no agent'}; its text shows {', '.join(names)}."
                failures[module] = Problem("G5.nodes", message, _path_of(project, module))
        return failures

    def _import(self, state: State, project: Project, modules: list[str]) -> Imported | Finished:
        key = (state.digest, *modules)
        if key not in self._imported:
            with self._tree.copy(state.files) as folder, _report() as (report, token):
                roots = [str(folder / root) for root in project.index.import_roots]
                command = [sys.executable, "-B", "-c", child_code.IMPORT, str(report), token]
                arguments = [msgspec.json.encode([roots, modules]).decode()]
                done = self._sandbox.run([*command, *arguments], folder, limits=self._limits)
                self._imported[key] = _read_report(report, token, Imported) or done
        return self._imported[key]

    def check_tests(self, base: State, head: State, project: Project) -> Verdict:
        """Run the tests before (once for each state) and after, and compare.

        Tests that could not be run to their end without a change are not tried again in this session, whatever the state.
        """
        if not self.test_command:
            return NotRun("The project has no tests.")
        try:
            if not self._obstacle:
                before = self._test(base, project)
                self._obstacle = _obstacle(before, self._limits.timeout_s)
            if self._obstacle:
                return self._unverified("G6.unverified", self._obstacle)
            if before.report and not before.passed:
                return NotRun("No test passes without the change.")
            return _compare(before, self._test(head, project), self._limits.timeout_s)
        except NotCopied as reason:
            return self._unverified("G6.unverified", _not_copied(reason))

    @cached_property
    def test_command(self) -> tuple[str, ...]:
        """The command of the configuration, or pytest if there are tests for it."""
        if self._config.settings.gate.test_command:
            return self._config.settings.gate.test_command
        return (sys.executable, "-m", "pytest", "-q") if has_tests(Path(self._config.root)) else ()

    def _test(self, state: State, project: Project) -> Tested:
        if state.digest not in self._tested:
            with self._tree.copy(state.files) as folder, _report() as (report, token):
                plugin = report.parent
                (plugin / f"{child_code.PLUGIN_NAME}.py").write_text(child_code.PLUGIN)
                roots = [str(folder / root) for root in project.index.import_roots]
                environment = {
                    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
                    "PYTHONPATH": os.pathsep.join([str(plugin), *roots]),
                    "PYTEST_PLUGINS": child_code.PLUGIN_NAME,
                    "PYTEST_ADDOPTS": "-p no:cacheprovider --continue-on-collection-errors",
                    child_code.REPORT: f"{token}:{report}",
                }
                done = self._sandbox.run(self.test_command, folder, limits=self._limits, environment=environment)
                said = _read_report(report, token, PytestReport)
                if said is None and _is_pytest(self.test_command):
                    said = PytestReport(outcomes=None, uncollected={})
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-_LAST_LINES:])
                self._tested[state.digest] = Tested(said, done.returncode, done.timed_out, tail)
        return self._tested[state.digest]


def _is_pytest(command: tuple[str, ...]) -> bool:
    """True when the command names pytest; another that runs it in the end is known by what our plugin writes."""
    return any(Path(word).name in ("pytest", "py.test") for word in command)


def _obstacle(before: Tested, timeout_s: float) -> str:
    """Say why the tests say nothing about any change; empty when they do."""
    if before.timed_out:
        said = f"The tests take longer than timeout_s ({timeout_s:g} s) without the change, too"
        return f"{said}; they are not tried again in this session. Raise timeout_s in [tool.graphbus.gate]."
    if before.outcomes:
        return ""
    if before.uncollected:
        return (
            f"Without the change, too: {_uncollected(before.uncollected)}, and there is no other test. Mend it first."
        )
    return _failed_obstacle(before)


def _failed_obstacle(before: Tested) -> str:
    """Say what went wrong in a run that gave neither an outcome nor a broken test file; empty when nothing did."""
    if "No module named pytest" in before.tail:
        said = "There are tests, but pytest is not installed for the Python that shall run them"
        return f"{said}. Install pytest there, or set test_command in [tool.graphbus.gate]."
    if before.is_silent and before.returncode in (0, _NO_TESTS):
        said = "The tests end before pytest has said what became of them, without the change, too"
        return f"{said} (exit status {before.returncode}). Look for what ends the process, in conftest.py first."
    if before.returncode in (0, _NO_TESTS if before.report else 0):
        return ""
    said = f"The test command fails without the change, too (exit status {before.returncode})"
    last = before.tail.rpartition("\n")[2]
    return f"{said}: {last or 'it says nothing'}. Mend it, or set test_command in [tool.graphbus.gate]."


def _compare(before: Tested, after: Tested, timeout_s: float) -> Verdict:
    if after.timed_out:
        return Problem("G6.timeout", f"The tests take longer than timeout_s ({timeout_s:g} s).")
    if before.report is None:
        if after.returncode:
            return Problem("G6.tests", f"The test command fails (exit status {after.returncode}): {after.tail}")
        return None
    fresh = {path: why for path, why in after.uncollected.items() if path not in before.uncollected}
    if fresh:
        return Problem("G6.collection", f"With the change, {_uncollected(fresh)}.")
    lost = sorted(before.passed - after.passed)
    if lost:
        shown = ", ".join(f"{name} ({after.outcomes.get(name, 'gone')})" for name in lost[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        return Problem("G6.tests", f"Passed before and not now: {shown}{more}.")
    return Noted(f"Without the change, too: {_uncollected(before.uncollected)}.") if before.uncollected else None


def _uncollected(files: Mapping[str, str]) -> str:
    path, why = min(files.items())
    more = f"; nor can {len(files) - 1} more" if len(files) > 1 else ""
    return f"{path} cannot be collected: {why.rstrip('.')}{more}"


def _import_ended(done: Finished, timeout_s: float) -> Problem:
    if done.timed_out:
        return Problem("G5.timeout", f"Importing takes longer than timeout_s ({timeout_s:g} s).")
    tail = done.stderr.strip().rpartition("\n")[2]
    return Problem("G5.import", f"The process ended while importing (exit status {done.returncode}). {tail}".strip())


def _is_fresh(problem: Problem, known: Problem | None) -> bool:
    """True when the change is what is to blame: it was right before, or did import and gives other agents now."""
    return known is None or (known.code == "G5.nodes" and problem != known)


def _changed_paths(base: State, head: State) -> set[str]:
    return {path for path in {*base.files, *head.files} if base.files.get(path) != head.files.get(path)}


def _not_copied(reason: NotCopied) -> str:
    return f"The project cannot be copied to try the change: {reason}. Keep large data outside of the project folder."


def _path_of(project: Project, module: str) -> str:
    return next((agent.path for agent in project.definitions if agent.module == module), "")


@contextmanager
def _report() -> Iterator[tuple[Path, str]]:
    """A file for the verdict, outside of the copy, and the token that only our code knows."""
    folder = Path(tempfile.mkdtemp(prefix="graphbus-verdict-"))
    try:
        yield folder / "report.json", secrets.token_hex(16)
    finally:
        remove_tree(folder)


def _read_report(report: Path, token: str, kind: type[Read]) -> Read | None:
    try:
        lines = report.read_bytes().split(b"\n", 1)
        if lines[0].decode() != token:
            return None
        return msgspec.json.decode(lines[1], type=kind)
    except (OSError, IndexError, msgspec.DecodeError, UnicodeDecodeError):
        return None
