"""The rungs that run code, G5 to G8, each in a sandbox on a fresh copy and never in this process.

What cannot be tried is not verified, and refused (`unverified`) unless the settings allow it.
"""

from __future__ import annotations

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.checks import CheckTrials
from graphbus_core.editing.rungs.ground import Ground, State, Verdict
from graphbus_core.editing.rungs.import_trials import ImportTrials
from graphbus_core.editing.rungs.objection import Objections
from graphbus_core.editing.rungs.smoke import SmokeTrials
from graphbus_core.editing.rungs.suite import TestTrials
from graphbus_core.editing.sandboxes.limits import Sandbox
from graphbus_core.model.config import BuildConfig


class Trials:
    """What is tried in one session.

    Args:
        sandbox: None where there is no jail: then nothing runs, and nothing is verified.

    Attributes:
        objections: The tests that evaluators have written.
    """

    def __init__(self, config: BuildConfig, sandbox: Sandbox | None) -> None:
        ground = Ground(config, sandbox)
        self._imports = ImportTrials(ground)
        self._tests = TestTrials(ground)
        self.objections = Objections(ground)
        self._checks = CheckTrials(ground)
        self._smoke = SmokeTrials(ground)

    @property
    def test_command(self) -> tuple[str, ...]:
        """What runs the project's tests; empty when it has none."""
        return self._tests.command

    def check_import(self, base: State, head: State, project: Project, before: Project | None = None) -> Verdict:
        """G5: it imports, and gives the agents that its text shows.

        Args:
            before: The project without the change: where it is given, the calls of G8 are made at once, in the same process.
        """
        if before is None:
            return self._imports.check(base, head, project)
        verdict = self._imports.check(base, head, project, self._smoke.calls(base, head, before, project))
        answers = self._imports.answers.pop(head.digest, None)
        if answers is not None:
            self._smoke.hear(base, head, answers)
        return verdict

    def check_tests(self, base: State, head: State, project: Project, *, are_tests: bool = False) -> Verdict:
        """G6: the tests that passed before pass; `are_tests`: it is tests that differ, which may bring plugins."""
        return self._tests.check(base, head, project, are_tests=are_tests)

    def prove_tests(self, base: State, head: State, project: Project) -> Verdict:
        """G6, before anything is written: the tests fail where they must, too."""
        return self._tests.prove(base, head, project)

    def check_commands(self, base: State, head: State) -> Verdict:
        """G7: the further checks of the configuration find nothing new."""
        return self._checks.check(base, head)

    def check_calls(self, base: State, head: State, before: Project, after: Project) -> Verdict:
        """G8: what has changed can still be called."""
        return self._smoke.check(base, head, before, after)
