"""The rungs that run project code, G5 to G8: in a sandbox, on a new copy of the project, never in this process.

    G5 imports the changed project and compares the agents with those that the text shows      here
    G6 runs the project's tests with and without the change                                    suite
    G7 runs the configured `checks` commands with and without the change                       here
    G8 calls changed methods and handlers with sample values                                   smoke

A rung that cannot run refuses the change (`unverified`), unless the settings allow it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.smoke import LONGEST_S, SmokeTrials
from graphbus_core.editing.rungs.suite import TestTrials
from graphbus_core.editing.rungs.trial_environment import (
    NotRun,
    PassedWithNote,
    ProjectFiles,
    RaisedError,
    RungVerdict,
    SourceLine,
    TreeState,
    TrialEnvironment,
    TrialImpossible,
    changed_paths,
    error_name,
    list_known_names,
    why_not_tried,
)
from graphbus_core.editing.sandboxes.process import FinishedProcess, Sandbox
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.schema.json import Json

MAX_CHARACTERS = 20_000
_TEST_FUNCTION = re.compile(r"\bdef\s+(test\w*)")


# --- objections --------------------------------------------------------------------------------------
#
# An evaluator may object to a change with a test. The objection holds if the test passes without the change, fails with it, and
# passes without it once more. A test that fails on both sides proves nothing; nor does one that is skipped, hangs or ends its
# process. Its author is trusted no more than the author of the change, so it runs in the sandbox only.


class Objection(NamedTuple):
    """The result of trying an objection: whether it holds, and why or why not."""

    holds: bool
    detail: str


class _Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test file: test -> `passed`, `skipped` or `failed: CLASS`; `error` if the file could not be loaded."""

    outcomes: dict[str, str]
    error: str
    used_s: float = 0.0

    @property
    def passed(self) -> set[str]:
        """The names of the tests that passed."""
        return {name for name, outcome in self.outcomes.items() if outcome == "passed"}

    @property
    def failed(self) -> dict[str, str]:
        """The tests that failed, with their outcomes."""
        return {name: outcome for name, outcome in self.outcomes.items() if outcome.startswith("failed")}


class Objections:
    """The objections of one session. Results are cached."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._tried: dict[tuple[str, str, str], Objection] = {}

    def try_out(self, base: TreeState, head: TreeState, project: Project, text: str) -> Objection:
        """Run the test of an objection without and with a change; return whether the objection holds, and why.

        Args:
            base: The state without the change.
            head: The state with it.
            project: The project, for its import roots.
            text: A Python file with functions whose names begin with `test`; they take no arguments and may be async.
        """
        key = (base.digest, head.digest, text)
        if key not in self._tried:
            self._tried[key] = self._try_without_cache(base, head, project, text)
        return self._tried[key]

    def _try_without_cache(self, base: TreeState, head: TreeState, project: Project, text: str) -> Objection:
        """Run the test without the change, then with it. If that shows a failure, run it without the change once more.

        If the third run differs from the first, the test is flaky, and the objection does not hold.
        """
        if len(text) > MAX_CHARACTERS:
            return Objection(False, f"the test is longer than {MAX_CHARACTERS} characters")
        try:
            before = self._run(base, project, text)
            if before is None or not before.passed:
                return Objection(False, _why_nothing_passed(before))
            broken = _judge_objection(before, self._run(head, project, text, before.used_s))
            if broken.holds:
                again = self._run(base, project, text, before.used_s)
                if again is None or again.passed != before.passed:
                    return Objection(False, "the test is flaky: without the change it passes only sometimes")
        except TrialImpossible as reason:
            return Objection(False, f"the test cannot be run: {why_not_tried(reason)}")
        return broken

    def _run(self, state: TreeState, project: Project, text: str, before_s: float = 0.0) -> _Outcomes | None:
        """Run the tests in a state; return None if there is no authentic report: the process ended early or took too long.

        `before_s` is the time that they used without the change; 0 for the run without it.
        """
        run = self._environment.run_trial(state, project.index.import_roots, test=text, before_s=before_s)
        found = run.at(-1, _Outcomes) if run.is_sound and not run.done.timed_out else None
        return msgspec.structs.replace(_keep_trusted_part(found, text), used_s=run.done.used_s) if found else None


def _keep_trusted_part(found: _Outcomes, text: str) -> _Outcomes:
    """Return the outcomes that a message may repeat, because the process that reported them is not trusted.

    They have only names of tests that stand in the text of the test, and exception classes of Python.
    """
    tests = set(_TEST_FUNCTION.findall(text))
    outcomes = {name: _keep_trusted_outcome(outcome) for name, outcome in found.outcomes.items() if name in tests}
    return _Outcomes(outcomes=outcomes, error=error_name(found.error) if found.error else "")


def _keep_trusted_outcome(outcome: str) -> str:
    """Return an outcome in which the class of an error is one of Python, or `an error`."""
    kind, _, name = outcome.partition(": ")
    return kind if kind in ("passed", "skipped") else f"failed: {error_name(name)}"


def _why_nothing_passed(before: _Outcomes | None) -> str:
    """Return why a run without the change in which no test passed proves nothing; None stands for a run without a report."""
    if before is None:
        return "the test does not end without the change"
    if before.error:
        return f"the test cannot be loaded without the change: {before.error}"
    if not before.outcomes:
        return "the file has no function whose name begins with `test`"
    name, outcome = min(before.outcomes.items())
    return f"{name} does not pass without the change either ({outcome})"


def _judge_objection(before: _Outcomes, after: _Outcomes | None) -> Objection:
    """Compare a run without the change and one with it: the objection holds if a test passes without and fails with it.

    It also holds if the tests can be loaded only without the change. `after` is None if that run has no report.
    """
    if after is None:
        return Objection(False, "the test does not end with the change")
    if after.error:
        return Objection(
            True, f"{min(before.passed)} passes without the change and cannot be loaded with it: {after.error}"
        )
    lost = sorted(before.passed & set(after.failed))
    if lost:
        reason = after.failed[lost[0]].removeprefix("failed: ")
        return Objection(True, f"{lost[0]} passes without the change and fails with it: {reason}")
    return Objection(False, f"{min(before.passed)} passes with the change, too")


_Failures = dict[str, Refusal]


# --- G5 ----------------------------------------------------------------------------------------------


class _Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing: module -> the names of its agents, module -> its error."""

    nodes: dict[str, list[str]]
    errors: dict[str, RaisedError]


class _ImportTrials:
    """Rung G5 of one session. Each state is imported once."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._imported: dict[str, _Imported | FinishedProcess] = {}
        self._used_s: dict[str, float] = {}
        self.answers: dict[str, list[Json]] = {}
        """Digest of a state -> the reports on the calls made after the imports; absent if not all of them were made."""

    def check(self, base: TreeState, head: TreeState, project: Project, calls: Sequence[Json] = ()) -> RungVerdict:
        """Import every module with an agent, and return the verdict of G5.

        The calls of G8 are made in the same process, because starting one costs most. If a module does not import without
        the change either, the change is refused only if it concerns that module.
        """
        failures = self._find_failures(head, project, calls)
        known = self._find_failures(base, project) if failures else {}
        if "" in failures and "" not in known:  # without the change, the time may just have sufficed: allow more
            failures = self._find_failures(head, project, before_s=self._used_s[base.digest])
        new = [problem for module, problem in failures.items() if _is_caused_by_change(problem, known.get(module))]
        if new:
            return new[0]
        untried = [problem for problem in failures.values() if problem.code != "G5.nodes"]
        for problem in untried:
            if problem.path in ("", *changed_paths(base, head)):  # it concerns the change, which is not verified then
                is_slow = problem.code == "G5.timeout"
                hint = "Raise timeout_s in [tool.graphbus.gate]." if is_slow else "Install what it needs here."
                message = f"Even without the change: {problem.message} {hint}"
                return self._environment.refuse_unverified("G5.unverified", message, problem.path, problem.output)
        if not untried:
            return None
        return PassedWithNote(f"Even without the change: {untried[0].message}", untried[0].output)

    def _find_failures(
        self, state: TreeState, project: Project, calls: Sequence[Json] = (), before_s: float = 0.0
    ) -> _Failures:
        """Import a state; return module -> what is wrong. The key `""` means that the process ended before its report."""
        wanted: dict[str, list[str]] = {}
        for agent in project.definitions:
            wanted.setdefault(agent.module, []).append(agent.name)
        result = self._import_modules(state, project, sorted(wanted), calls, before_s)
        if isinstance(result, FinishedProcess):
            return {"": _refusal_of_early_end(result, self._environment.limits.timeout_s)}
        files, failures = self._environment.files_in(state), _Failures()
        for module, names in wanted.items():
            path, found = _find_path(project, module), result.nodes.get(module, [])
            if module in result.errors:
                failures[module] = _refusal_of_import_error(module, result.errors[module], files, path)
            elif sorted(found) != sorted(names):
                defined = list_known_names(found, names, "agent") or "no agent"
                message = f"{module} defines {defined}; its text shows {', '.join(names)}."
                failures[module] = Refusal("G5.nodes", message, path, output=", ".join(found))
        return failures

    def _import_modules(
        self, state: TreeState, project: Project, modules: list[str], calls: Sequence[Json], before_s: float
    ) -> _Imported | FinishedProcess:
        """Import modules in a state and make the calls; return the result, or how the process ended without one.

        The result of a state is cached, but with a `before_s` above 0 the process runs again.
        """
        if state.digest not in self._imported or before_s:
            roots, longest_s = project.index.import_roots, LONGEST_S if calls else inf
            run = self._environment.run_trial(
                state, roots, modules=modules, calls=calls, longest_s=longest_s, before_s=before_s
            )
            if calls and not run.reports:  # a call may have ended the process: import again, without calls
                run = self._environment.run_trial(state, roots, modules=modules)
            self._imported[state.digest] = run.at(0, _Imported) or run.done
            self._used_s[state.digest] = run.done.used_s
            if calls and run.reports[-1:] == [["end"]]:
                self.answers[state.digest] = run.reports[1:]
        return self._imported[state.digest]


def _refusal_of_early_end(done: FinishedProcess, timeout_s: float) -> Refusal:
    """Return the refusal for an import process that ended before it could report."""
    if done.timed_out:
        return Refusal("G5.timeout", f"Importing takes longer than timeout_s ({timeout_s:g} s).")
    message = f"The process ended while importing (exit status {done.returncode})."
    return Refusal("G5.import", message, output=done.stderr)


def _refusal_of_import_error(module: str, error: RaisedError, files: ProjectFiles, path: str) -> Refusal:
    """Return the refusal for a module, at `path`, that raises when it is imported; the place is named if it is in `files`."""
    place = files.last_known_line(error.steps)
    message = f"{module} does not import: {error_name(error.name)}"
    if place.path not in ("", path):
        message, place = f"{message} at {place}", SourceLine()
    return Refusal("G5.import", f"{message}.", path, place.line, str(error))


def _is_caused_by_change(problem: Refusal, known: Refusal | None) -> bool:
    """True if the change has caused a failure; `known` is the failure without the change, None if there was none.

    If the module defined other agents than its text shows without the change, any other failure with it counts, too.
    """
    return known is None or (known.code == "G5.nodes" and problem != known)


def _find_path(project: Project, module: str) -> str:
    """Return the path of the agents in a module; empty if it has none."""
    return next((agent.path for agent in project.definitions if agent.module == module), "")


_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")
_NO_FINDING = re.compile(
    r"\s*\d*\s*[|^]|\s*$|Found \d+ |\[\*\] \d+ fixable|All checks passed|Success: |\d+ (errors?|warnings?|files?)\b"
)
_PLAIN_OUTPUT = {"RUFF_OUTPUT_FORMAT": "concise", "NO_COLOR": "1", "TERM": "dumb"}
_NOT_RUNNABLE = (126, 127)


# --- G7 ----------------------------------------------------------------------------------------------


class _CheckRun(NamedTuple):
    """The output of a command of `checks` in one state.

    Attributes:
        lines: The lines of its findings with all numbers replaced, so that a finding that has only moved is not new.
        shown: Such a line -> the line as it was printed.
    """

    lines: Counter[str]
    shown: dict[str, str]
    returncode: int
    timed_out: bool
    used_s: float


class _CheckTrials:
    """Rung G7 of one session. Each command runs once for each state."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._found: dict[tuple[str, ...], _CheckRun] = {}

    def check(self, base: TreeState, head: TreeState) -> RungVerdict:
        """Run each command of `checks` on both states, up to the first that finds something new; return the verdict of G7."""
        commands = [command for command in self._environment.config.settings.gate.checks if command]
        if not commands:
            return NotRun("No `checks` are set in [tool.graphbus.gate].")
        verdict: RungVerdict = None
        for command in commands:
            verdict = self._check_command(command, base, head) or verdict
            if isinstance(verdict, Refusal):
                break
        return verdict

    def _check_command(self, command: tuple[str, ...], base: TreeState, head: TreeState) -> RungVerdict:
        """Run one command on both states, and refuse the change if the command finds something new or fails only with it.

        Lines that differ only in their numbers are not new. Without a failing exit status, nothing is refused.
        """
        name = remove_paths(" ".join(command))
        before = self._run_command(command, base)
        obstacle = _why_inconclusive(before)
        if obstacle:
            message = f"Even without the change, {name} {obstacle}."
            return self._environment.refuse_unverified("G7.unverified", message)
        after = self._run_command(command, head, before.used_s)
        if _why_inconclusive(after):
            return Refusal("G7.checks", f"With the change, {name} {_why_inconclusive(after)}.")
        new = [after.shown[line] for line in after.lines - before.lines]
        if after.returncode and (new or not before.returncode):
            places = self._environment.files_in(head).known_lines_in("\n".join(new))
            more = f", also at {', '.join(map(str, places[1:6]))}" if places[1:] else ""
            message = f"{name} finds something new{more}." if new else f"{name} fails."
            return Refusal("G7.checks", message, *(places[0] if places else ("", 0)), "\n".join(new))
        return None

    def _run_command(self, command: tuple[str, ...], state: TreeState, before_s: float = 0.0) -> _CheckRun:
        """Run a command on a copy of a state, and return its findings; cached.

        `before_s` is the time that it used without the change; 0 for the run without it.
        """
        key = (state.digest, *command)
        if key not in self._found:
            with self._environment.copy(state) as folder:
                done = self._environment.run(command, folder, _PLAIN_OUTPUT, before_s=before_s)
                text = self._environment.strip_copy_path(f"{done.stdout}\n{done.stderr}", folder)
            lines = [line for line in text.splitlines() if not _NO_FINDING.match(line)]
            shown = {_mask_numbers(line): line.strip() for line in lines}
            counted = Counter(_mask_numbers(line) for line in lines)
            self._found[key] = _CheckRun(counted, shown, done.returncode, done.timed_out, done.used_s)
        return self._found[key]


def _mask_numbers(line: str) -> str:
    """Return a line with all numbers replaced by 0, so that line numbers do not matter."""
    return _NUMBER.sub("0", line).strip()


def _why_inconclusive(found: _CheckRun) -> str:
    """Return why the output of a command proves nothing, as the end of a sentence; empty if it can be used."""
    if found.timed_out:
        return "takes longer than timeout_s"
    return "is not installed where changed code runs" if found.returncode in _NOT_RUNNABLE else ""


class Trials:
    """The rungs G5 to G8 and the objections of one session.

    Args:
        sandbox: None where no isolated sandbox works: then no project code runs, and every rung here is unverified.

    Attributes:
        objections: Runs the tests with which evaluators object.
    """

    def __init__(self, config: ResolvedBuild, sandbox: Sandbox | None) -> None:
        self._environment = environment = TrialEnvironment(config, sandbox)
        self._imports = _ImportTrials(environment)
        self._tests = TestTrials(environment)
        self.objections = Objections(environment)
        self._checks = _CheckTrials(environment)
        self._smoke = SmokeTrials(environment)

    @property
    def test_command(self) -> tuple[str, ...]:
        """The command that runs the project's tests; empty if it has none."""
        return self._tests.command

    def check_import(
        self, base: TreeState, head: TreeState, project: Project, before: Project | None = None
    ) -> RungVerdict:
        """G5: the modules import and define the agents that their text shows.

        Args:
            project: The project with the change.
            before: The project without it. If it is given, the calls of G8 are made in the same process.
        """
        calls = self._smoke.calls(base, head, before, project) if before else ()
        verdict = self._environment.check_if_possible("G5.unverified", self._imports.check, base, head, project, calls)
        answers = self._imports.answers.pop(head.digest, None)
        if answers is not None:
            self._smoke.keep_answers(base, head, answers)
        return verdict

    def check_tests(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """G6: the tests that passed before still pass."""
        return self._environment.check_if_possible("G6.unverified", self._tests.check, base, head, project)

    def prove_tests(self, base: TreeState, head: TreeState, project: Project) -> RungVerdict:
        """G6, before changes are written: the tests fail when their expectations are inverted."""
        return self._environment.check_if_possible("G6.unverified", self._tests.prove, base, head, project)

    def check_commands(self, base: TreeState, head: TreeState) -> RungVerdict:
        """G7: the commands of `checks` find nothing new."""
        return self._environment.check_if_possible("G7.unverified", self._checks.check, base, head)

    def check_calls(self, base: TreeState, head: TreeState, before: Project, after: Project) -> RungVerdict:
        """G8: changed methods and handlers can still be called."""
        return self._environment.check_if_possible("G8.unverified", self._smoke.check, base, head, before, after)
