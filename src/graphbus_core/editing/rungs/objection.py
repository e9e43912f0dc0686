"""Objections that are tests: a test that an evaluator has written, run on the state before a change and on the state after it.

It holds if a test of it passes before the change and fails after it, and passes before the change once more. A test that fails
on both sides says nothing about the change; one that is skipped, hangs or ends its process does not hold.

The author of a test is trusted no more than the author of a change: it runs in the sandbox and nowhere else.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.ground import INSIDE, Ground, State, not_copied
from graphbus_core.editing.rungs.trial_tree import NotCopied
from graphbus_core.editing.rungs.vetted import error_name

MAX_CHARACTERS = 20_000
_FUNCTION = re.compile(r"\bdef\s+(test\w*)")


class Objection(NamedTuple):
    """Whether an objection holds, and why or why not."""

    holds: bool
    detail: str


class _Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave: test -> `passed`, `skipped` or why it failed; `error` if the text could not be loaded."""

    outcomes: dict[str, str]
    error: str
    used_s: float = 0.0

    @property
    def passed(self) -> set[str]:
        return {name for name, outcome in self.outcomes.items() if outcome == "passed"}

    @property
    def failed(self) -> dict[str, str]:
        return {name: outcome for name, outcome in self.outcomes.items() if outcome.startswith("failed")}


class Objections:
    """The objections of one session; the same one is not tried twice."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._tried: dict[tuple[str, str, str], Objection] = {}

    def try_out(self, base: State, head: State, project: Project, text: str) -> Objection:
        """Run a test on both states.

        Args:
            base: The workspace without the change.
            head: The workspace with it.
            project: Where modules are found.
            text: A Python file with functions whose names begin with `test`; they take no arguments and may be async.
        """
        key = (base.digest, head.digest, text)
        if key not in self._tried:
            self._tried[key] = self._try_out(base, head, project, text)
        return self._tried[key]

    def _try_out(self, base: State, head: State, project: Project, text: str) -> Objection:
        if len(text) > MAX_CHARACTERS:
            return Objection(False, f"the test is longer than {MAX_CHARACTERS} characters")
        try:
            before = self._run(base, project, text)
            if before is None or not before.passed:
                return Objection(False, _nothing_before(before))
            broken = _broken(before, self._run(head, project, text, before.used_s))
            if broken.holds:
                again = self._run(base, project, text, before.used_s)
                if again is None or again.passed != before.passed:
                    return Objection(False, "without the change the test passes at one time and fails at another")
        except NotCopied as reason:
            return Objection(False, f"the test cannot be run: {not_copied(reason)}")
        return broken

    def _run(self, state: State, project: Project, text: str, before_s: float = 0.0) -> _Outcomes | None:
        """Give what became of the tests; None when the process ended before it could say."""
        with self._ground.copy(state) as folder:
            roots = self._ground.paths(folder, project.index.import_roots)
            work = msgspec.json.encode([roots, text]).decode()
            command = [sys.executable, "-B", str(INSIDE / "graphbus_objection.py"), work]
            heard = self._ground.watched(command, folder, {}, before_s=before_s)
        found = heard.last(_Outcomes) if heard.is_sound and not heard.done.timed_out else None
        return msgspec.structs.replace(_vetted(found, text), used_s=heard.done.used_s) if found else None


def _vetted(found: _Outcomes, text: str) -> _Outcomes:
    """Leave out every word that is neither ours nor Python's, nor a name of a function in the text of the test."""
    tests = set(_FUNCTION.findall(text))
    outcomes = {name: _word(outcome) for name, outcome in found.outcomes.items() if name in tests}
    return _Outcomes(outcomes=outcomes, error=error_name(found.error) if found.error else "")


def _word(outcome: str) -> str:
    kind, _, name = outcome.partition(": ")
    return kind if kind in ("passed", "skipped") else f"failed: {error_name(name)}"


def _nothing_before(before: _Outcomes | None) -> str:
    if before is None:
        return "the test does not come to its end without the change"
    if before.error:
        return f"the test cannot be loaded without the change: {before.error}"
    if not before.outcomes:
        return "there is no function in it whose name begins with `test`"
    name, outcome = min(before.outcomes.items())
    return f"{name} does not pass without the change either ({outcome})"


def _broken(before: _Outcomes, after: _Outcomes | None) -> Objection:
    if after is None:
        return Objection(False, "the test does not come to its end with the change")
    if after.error:
        return Objection(
            True, f"{min(before.passed)} passes without the change and cannot be loaded with it: {after.error}"
        )
    lost = sorted(before.passed & set(after.failed))
    if lost:
        reason = after.failed[lost[0]].removeprefix("failed: ")
        return Objection(True, f"{lost[0]} passes without the change and fails with it: {reason}")
    return Objection(False, f"{min(before.passed)} passes with the change, too")
