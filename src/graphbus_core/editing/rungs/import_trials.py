"""Rung G5: import the changed project, and compare the agents found with those that the text shows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs import vetted
from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.ground import INSIDE, Ground, Heard, Noted, State, Verdict, changed_paths, not_copied
from graphbus_core.editing.rungs.smoke import LONGEST_S
from graphbus_core.editing.rungs.trial_tree import NotCopied
from graphbus_core.editing.rungs.vetted import Files, Raised, Spot
from graphbus_core.editing.sandboxes.limits import Finished
from graphbus_core.schema.json import Json

Failures = dict[str, Problem]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What importing gave: module -> names of its agents, module -> error."""

    nodes: dict[str, list[str]]
    errors: dict[str, Raised]


class ImportTrials:
    """The imports of one session; a state that was tried is not tried again, nor a module that hangs without any change."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._imported: dict[tuple[str, ...], Imported | Finished] = {}
        self._used_s: dict[tuple[str, ...], float] = {}
        self._hanging: Failures = {}
        self.answers: dict[str, list[Json]] = {}
        """State -> what became of the calls that were made after the imports, if all were made."""

    def check(self, base: State, head: State, project: Project, calls: Sequence[Json] = ()) -> Verdict:
        """Import every module with an agent, and then make calls in the same process: to start one costs the most.

        A module that does not import without the change either is no reason to refuse, unless it is one that changes.
        """
        wanted: dict[str, list[str]] = {}
        for agent in project.definitions:
            wanted.setdefault(agent.module, []).append(agent.name)
        try:
            failures, known = self._failures(base, head, project, wanted, calls)
        except NotCopied as reason:
            return self._ground.unverified("G5.unverified", not_copied(reason))
        fresh = [problem for module, problem in failures.items() if _is_fresh(problem, known.get(module))]
        if fresh:
            return fresh[0]
        untried = [problem for problem in failures.values() if problem.code != "G5.nodes"]
        for problem in untried:
            if problem.path in changed_paths(base, head):
                is_slow = problem.code == "G5.timeout"
                hint = (
                    "Raise timeout_s in [tool.graphbus.gate]." if is_slow else "Install what it needs beside GraphBus."
                )
                said = f"Without the change, too: {problem.message} {hint}"
                return self._ground.unverified("G5.unverified", said, problem.path, problem.told)
        if not untried:
            return None
        return Noted(f"Without the change, too: {untried[0].message}", untried[0].told)

    def _failures(
        self, base: State, head: State, project: Project, wanted: Mapping[str, list[str]], calls: Sequence[Json]
    ) -> tuple[Failures, Failures]:
        """Give what is wrong with the change, and then what is wrong without it.

        Where a module ends the whole process without the change, each is imported in a process of its own.
        """
        failures = self._import_failures(head, project, wanted, calls)
        known = self._import_failures(base, project, wanted) if failures else {}
        if "" in failures and "" not in known:  # it may be as slow without the change, and just not out of time
            failures = self._import_failures(head, project, wanted, before=base)
        if "" in known:
            known = self._one_by_one(base, project, wanted)
            self._hanging |= {module: problem for module, problem in known.items() if problem.code == "G5.timeout"}
            failures = self._one_by_one(head, project, wanted)
        return failures, known

    def _one_by_one(self, state: State, project: Project, wanted: Mapping[str, list[str]]) -> Failures:
        found: Failures = {}
        for module, names in wanted.items():
            for problem in self._import_failures(state, project, {module: names}).values():
                found[module] = problem._replace(path=_path_of(project, module))
        return found

    def _import_failures(
        self,
        state: State,
        project: Project,
        wanted: Mapping[str, list[str]],
        calls: Sequence[Json] = (),
        before: State | None = None,
    ) -> Failures:
        """Give what is wrong by module; the empty name when the process ended before it could say."""
        failures = {module: problem for module, problem in self._hanging.items() if module in wanted}
        tried = {module: names for module, names in wanted.items() if module not in failures}
        result = self._import(state, project, sorted(tried), calls, before) if tried else Imported(nodes={}, errors={})
        if isinstance(result, Finished):
            return {**failures, "": _import_ended(result, self._ground.limits.timeout_s)}
        files = self._ground.files(state)
        for module, error in result.errors.items():
            if module in tried:
                failures[module] = _not_imported(module, error, files, _path_of(project, module))
        for module, names in tried.items():
            found = result.nodes.get(module, [])
            if module not in failures and sorted(found) != sorted(names):
                defined = vetted.names(found, names, "agent") or "no agent"
                message = f"{module} defines {defined}; its text shows {', '.join(names)}."
                failures[module] = Problem("G5.nodes", message, _path_of(project, module), told=", ".join(found))
        return failures

    def _import(
        self, state: State, project: Project, modules: list[str], calls: Sequence[Json], before: State | None
    ) -> Imported | Finished:
        key = (state.digest, *modules)
        before_s = self._used_s.get((before.digest, *modules), 0.0) if before else 0.0
        limit_s = self._ground.limits_beside(before_s).timeout_s
        known = self._imported.get(key)
        if known is None or (isinstance(known, Finished) and known.timed_out and known.used_s < limit_s):
            heard = self._run(state, project, modules, calls, longest_s=LONGEST_S if calls else inf, before_s=before_s)
            if calls and not heard.said:  # what ends or hangs may be a call: the imports are judged alone
                heard = self._run(state, project, modules, ())
            self._imported[key] = heard.first(Imported) or heard.done
            self._used_s[key] = heard.done.used_s
            if calls and heard.said[-1:] == [["end"]]:
                self.answers[state.digest] = heard.said[1:]
        return self._imported[key]

    def _run(self, state: State, project: Project, modules: list[str], calls: Sequence[Json], **limits: float) -> Heard:
        with self._ground.copy(state) as folder:
            roots = self._ground.paths(folder, project.index.import_roots)
            work = msgspec.json.encode([roots, modules, calls]).decode()
            command = [sys.executable, "-B", str(INSIDE / "graphbus_import.py"), work]
            return self._ground.watched(command, folder, {}, **limits)


def _import_ended(done: Finished, timeout_s: float) -> Problem:
    if done.timed_out:
        return Problem("G5.timeout", f"Importing takes longer than timeout_s ({timeout_s:g} s).")
    return Problem("G5.import", f"The process ended while importing (exit status {done.returncode}).", told=done.stderr)


def _not_imported(module: str, error: Raised, files: Files, path: str) -> Problem:
    spot = files.last(error.steps)
    said = f"{module} does not import: {vetted.error_name(error.name)}"
    if spot.path not in ("", path):
        said, spot = f"{said} at {spot}", Spot()
    return Problem("G5.import", f"{said}.", path, spot.line, str(error))


def _is_fresh(problem: Problem, known: Problem | None) -> bool:
    """True when the change is what is to blame: it was right before, or did import and gives other agents now."""
    return known is None or (known.code == "G5.nodes" and problem != known)


def _path_of(project: Project, module: str) -> str:
    return next((agent.path for agent in project.definitions if agent.module == module), "")
