"""The gate: the checks that a change must pass before agents vote on it. The checks are called rungs; the first
refusal ends the sequence.

    G0 scope -> G1 apply -> G2 parse -> G3 capability -> G4 contract -> G5 import -> G6 tests -> G7 checks -> G8 smoke

A rung that cannot run (the project is too large to copy, the tests do not start) refuses the change, unless `allow_unverified`
is set. A rung that has nothing to check (no tests) is reported as `not_run` with the reason, and the change goes on.
`rungs.codes.CODES` lists every reason to refuse.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from os import PathLike
from pathlib import Path

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.foreign import ForeignChange, ForeignScope, is_test_side, parseable_or_empty
from graphbus_core.editing.rungs import contract, nonsense, scope
from graphbus_core.editing.rungs.capability import (
    AnalyzedFiles,
    CodeVersion,
    ProjectPowers,
    Sign,
    check_growth,
    count_guarded,
)
from graphbus_core.editing.rungs.capability.sources import AllowedPackages, AnalyzedFile
from graphbus_core.editing.rungs.codes import Refusal, refusal_of_edit
from graphbus_core.editing.rungs.removals import check_dropped, find_removals, is_declared
from graphbus_core.editing.rungs.trial_environment import NotRun, RungVerdict, TreeState, shorten_output
from graphbus_core.editing.rungs.trials import Trials
from graphbus_core.editing.sandboxes.process import Sandbox
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.editing.workspace import Workspace, state_digest
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, Removal, RungResult, SchemaChange

_Contents = dict[str, tuple[bytes, bytes]]
_OnOutput = Callable[[str, str], object]
_OnRung = Callable[[str, RungResult], object]

_IMPORT_LINE = re.compile(rb"^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([^#\r\n]+))", re.MULTILINE)
_LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")
_REQUIRED_PYTHON = re.compile(r"(?:>=|~=|==)\s*3\.(\d+)")
_READING_RUNGS = frozenset({"G2", "G3", "G4"})
"""The rungs above G1 that read code and run none."""


class Gate:
    """The gate of one session.

    Args:
        base: The project at the start of the session.
        config: The settings and limits.
        sandbox: Where changed code is imported and tested. None: it runs nowhere, and G5 to G8 refuse every change.
        on_output: Called with a rung and the shortened output of project code that ran there. It is for the user only: reports,
            which models read, never contain it.
        on_rung: Called with the id of a proposal and the result of each rung as soon as that has ended, so that a user can follow
            a check that takes long. A refusal by G0 or G1 is only in the report, and so is all of `check_tree`.
    """

    def __init__(
        self,
        base: Project,
        config: ResolvedBuild,
        sandbox: Sandbox | None,
        on_output: _OnOutput | None = None,
        on_rung: _OnRung | None = None,
    ) -> None:
        self._base = base
        self.config = config
        self.on_output = on_output
        self.on_rung = on_rung
        self.trials = Trials(config, sandbox)
        self._powers_cache: tuple[Project, ProjectPowers] | None = None
        self.findings: dict[str, tuple[Finding, ...]] = {}  # by the digest of the state; each is computed once

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        """Run the rungs for a proposal on the present workspace, up to the first refusal; return the report.

        Raises:
            NotJudgedError: This machine is too busy to judge the change.
        """
        problem = scope.check_scope(proposal, workspace.project)
        if problem:
            return _make_report(proposal.proposal_id, [_make_rung_result("G0", problem)])
        problem = _first_refusal(
            _refuse_carriage_returns(change.file_path, change.new_code) for change in proposal.code_changes
        )
        if problem:
            return _make_report(proposal.proposal_id, [_make_rung_result("G0", None), _make_rung_result("G1", problem)])
        try:
            fresh = workspace.preview_files(proposal.code_changes)
        except EditError as error:
            return _make_report(
                proposal.proposal_id, [_make_rung_result("G0", None), _make_rung_result("G1", refusal_of_edit(error))]
            )
        contents = {path: (workspace.file_data(path), data) for path, data in fresh.items()}
        trial = GateRun(self, workspace.project, contents, workspace.changed_files(), workspace.changed_files(fresh))
        problem = scope.check_sizes(contents, workspace.project) or scope.check_touched(
            proposal, workspace.project, trial.after
        )
        if problem:
            return _make_report(proposal.proposal_id, [_make_rung_result("G0", problem)])
        return trial.report(proposal.proposal_id, proposal.schema_changes)

    def check_tree(self, workspace: Workspace) -> GateReport:
        """Run the gate for all accepted proposals together: exactly what will be written is tested. Raises as `check`."""
        changed = workspace.changed_files()
        problem = _first_refusal(scope.check_path(path, self._base, self._base.editable) for path in changed)
        if problem:
            return _make_report("", [_make_rung_result("G0", problem)])
        return GateRun(self, self._base, changed, {}, changed, is_last=True).report("", ())

    @cached_property
    def allowed(self) -> AllowedPackages:
        """The top-level packages that the project imports or consists of; a change may import them."""
        used = {"graphbus_core"}
        for file in self._base.index.files:
            used.update(_find_imported_packages(Path(self.config.root, file.path)))
        for root in self._base.index.import_roots:
            used.update(_list_own_packages(Path(self.config.root, root)))
        return AllowedPackages(frozenset(used), self.config.safety_config.allow_external_dependencies)

    def powers_before(self, project: Project) -> ProjectPowers:
        """Return the powers of a project before a change; those of the last project are cached."""
        if self._powers_cache is None or self._powers_cache[0] is not project:
            self._powers_cache = project, self.powers_in(project, project)
        return self._powers_cache[1]

    def powers_in(self, project: Project, before: Project) -> ProjectPowers:
        """Return the powers of a project.

        Args:
            project: The project.
            before: The project without the change; a change may import the modules that its agents load, as they run anyway.
        """
        loaded = frozenset({*before.agent_files, *before.imports.files})
        return ProjectPowers(AnalyzedFiles(project.index, project.reader, self.allowed), loaded)

    @cached_property
    def minimum_python(self) -> int:
        """The minor version of the oldest Python 3 that the project supports, not newer than this one."""
        return min(_find_minimum_version(self.config), sys.version_info.minor)


class GateRun:
    """One run of the rungs G2 to G8 for a change.

    Args:
        gate: The gate of the session, with its settings and caches.
        before: The project without the change.
        contents: The files that the change alters: path -> bytes without it and with it.
        changed_before: The files that the session had changed before this change: path -> bytes at its start and then.
        changed_after: The same with this change included.
        is_last: The changes are written next, so that G6 also proves that the test results can be believed.
    """

    def __init__(
        self,
        gate: Gate,
        before: Project,
        contents: _Contents,
        changed_before: _Contents,
        changed_after: _Contents,
        *,
        is_last: bool = False,
    ) -> None:
        self.gate = gate
        self.is_last = is_last
        self.before = before
        self.contents = contents
        self.base = TreeState(state_digest(changed_before), _new_bytes(changed_before))
        self.head = TreeState(state_digest(changed_after), _new_bytes(changed_after))

    @cached_property
    def after(self) -> Project:
        """The project with the change."""
        return self.before.with_files(_new_bytes(self.contents))

    def report(self, proposal_id: str, declared: tuple[SchemaChange, ...]) -> GateReport:
        """Run the rungs above G1 up to the first refusal, tell `on_rung` and `on_output` of them, and return the report.

        Args:
            declared: The contract changes that the proposal declares.
        """
        results: list[RungResult] = []
        actual: tuple[SchemaChange, ...] = ()
        removals: tuple[Removal, ...] = ()
        for rung, check in chain((("G0", _pass), ("G1", _pass)), self.rungs(declared)):
            verdict = check()
            results.append(_make_rung_result(rung, verdict))
            if self.gate.on_rung and not self.is_last:
                self.gate.on_rung(proposal_id, results[-1])
            if verdict and verdict.output and self.gate.on_output:
                self.gate.on_output(rung, shorten_output(verdict.output))
            if isinstance(verdict, Refusal):
                break
            if rung == "G4":
                actual, removals = contract.schema_changes(self.before, self.after), self.removals
        return _make_report(proposal_id, results, actual, removals)

    @cached_property
    def removals(self) -> tuple[Removal, ...]:
        """What handlers and methods no longer do after the change."""
        return find_removals(self.before, self.after)

    def rungs(self, declared: tuple[SchemaChange, ...]) -> Iterator[tuple[str, Callable[[], RungVerdict]]]:
        """Yield the rungs above G1 in order, each with its check."""
        yield "G2", lambda: self.check_syntax(declared)
        yield "G3", self.check_capability
        yield "G4", lambda: self.check_contract(declared)
        yield "G5", self.check_imports
        yield "G6", self.check_tests
        yield "G7", lambda: self.gate.trials.check_commands(self.base, self.head)
        yield "G8", lambda: self.gate.trials.check_calls(self.base, self.head, self.before, self.after)

    def check_syntax(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """G2: the files compile for this Python and parse for the oldest Python that the project supports."""
        minimum = self.gate.minimum_python
        problem = _first_refusal(check_source(path, data, minimum) for path, (_, data) in self.contents.items())
        if problem:
            return problem
        path = next(iter(self.contents), "")
        try:
            problem = self.check_sense(declared)
        except RecursionError:
            return Refusal("G2.size", "The code is nested too deeply to be checked. Split it up.", path)
        # one that also takes a power is refused by G3, as that matters more
        return None if problem and self.check_capability() else problem

    def check_sense(self, declared: tuple[SchemaChange, ...]) -> Refusal | None:
        """Refuse code that compiles and cannot be meant; of what was accepted already, only the names are checked again."""
        if not self.is_last:
            return nonsense.check_effect(self.contents) or self.check_meaning(declared)
        return _first_refusal(self.check_names(path, *pair) for path, pair in self.contents.items())

    def check_meaning(self, declared: tuple[SchemaChange, ...]) -> Refusal | None:
        """Refuse lines of an answer in the code, names that nothing defines, and bodies that are emptied undeclared."""
        intended = self.emptied_as_declared(declared)
        for path, (before, after) in self.contents.items():
            problem = nonsense.check_marks(path, before, after) or self.check_names(path, before, after)
            problem = problem or self.check_bodies(path, before, after, intended)
            if problem:
                return problem
        return None

    def emptied_as_declared(self, declared: tuple[SchemaChange, ...]) -> Set[str]:
        """Return the handlers that lose something and that are declared, themselves or their topic; G4 tells voters what."""
        lost = (each for each in (self.removals if declared else ()) if each.topic)
        return {removal.method for removal in lost if is_declared(removal, declared)}

    def check_names(self, path: str, before: bytes, after: bytes) -> Refusal | None:
        """Refuse names that nothing defines, in one file."""
        known, file = self.analyzed(path, before, after)
        return nonsense.check_names(known, file) if file else None

    def check_bodies(self, path: str, before: bytes, after: bytes, intended: Set[str]) -> Refusal | None:
        """Refuse functions that are emptied, in one file."""
        known, file = self.analyzed(path, before, after)
        # code that has moved to a test has not moved
        elsewhere = [other for other in self.contents if other != path and not is_test_side(other)]
        others = (self.analyzed(other, *self.contents[other])[1] for other in elsewhere)
        return nonsense.check_bodies(known, file, filter(None, others), intended) if known and file else None

    def analyzed(self, path: str, before: bytes, after: bytes) -> tuple[AnalyzedFile | None, AnalyzedFile | None]:
        """Return a file before and after the change, with the scopes of its names."""
        old, new = self.surroundings
        return (
            old.files.file(path, tree=SourceText(before, path).tree),
            new.files.file(path, tree=SourceText(after, path).tree),
        )

    def check_capability(self) -> RungVerdict:
        """G3: the code uses no power (network, files, processes ...) that it did not use before."""
        return _first_refusal(self.check_growth(path, *pair) for path, pair in self.contents.items())

    def check_growth(
        self,
        path: str,
        before: bytes,
        after: bytes,
        is_exempt: Callable[[Sign], bool] = lambda _: False,
        *,
        has_moved: bool = False,
    ) -> Refusal | None:
        """Refuse a file with powers that it did not have before (G3); the arguments are those of `capability.check_growth`."""
        old, new = self.surroundings
        sides, powers = (CodeVersion(before, old), CodeVersion(after, new)), self.gate.config.settings.powers
        return check_growth(path, *sides, powers, is_exempt, has_moved=has_moved)

    @cached_property
    def surroundings(self) -> tuple[ProjectPowers, ProjectPowers]:
        """The powers of the project without and with the change."""
        return self.gate.powers_before(self.before), self.gate.powers_in(self.after, self.before)

    def check_contract(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """G4: the contracts between the agents still fit."""
        problem = contract.check_agents(self.before, self.after) or self.check_promises(declared)
        if problem is None and not self.is_last:
            problem = check_dropped(self.removals, declared, self.after)
        return problem

    def check_promises(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """Check that no finding is new, no edge is lost or unknown, and no contract changes that `declared` does not name."""
        known = self.gate.findings
        if self.base.digest not in known:
            known[self.base.digest] = contract.findings_of(self.before)
        before = known[self.base.digest]
        if self.head.digest not in known:
            known[self.head.digest] = contract.findings_after(self.after, self.before, before)
        after = known[self.head.digest]
        return (
            contract.check_findings(before, after)
            or contract.check_edges(self.before, self.after, declared)
            or contract.check_known(self.before, self.after)
            or contract.check_declared(declared, contract.schema_changes(self.before, self.after))
        )

    def check_imports(self) -> RungVerdict:
        """G5: the modules import and define the agents that their text shows. The calls of G8 are made in the same process."""
        return self.gate.trials.check_import(self.base, self.head, self.after, self.before)

    def check_tests(self) -> RungVerdict:
        """G6: the tests that passed before still pass; if `is_last`, they must also fail when their expectations are inverted."""
        verdict = self.gate.trials.check_tests(self.base, self.head, self.after)
        return self.require_proof(verdict, self.head)

    def require_proof(self, verdict: RungVerdict, head: TreeState) -> RungVerdict:
        """Return a verdict of G6 on `head`, or a refusal if tests with inverted expectations show that results are forged.

        The inverted tests run only if `is_last`, and only if the verdict is that the tests pass.
        """
        if not self.is_last or isinstance(verdict, Refusal | NotRun):
            return verdict
        return self.gate.trials.prove_tests(self.base, head, self.after) or verdict


def _pass() -> RungVerdict:
    """G0 and G1: a change that did not pass them has no run."""
    return None


def check_source(path: str, data: bytes, minimum_python: int) -> Refusal | None:
    """Refuse a file that does not compile for this Python or does not parse for Python 3.`minimum_python`; it does not run."""
    problem = check_encoding(path, data)
    if problem:
        return problem
    with syntax.alone():
        try:
            compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as reason:
            return Refusal("G2.compile", f"It does not compile: {reason}.", path, getattr(reason, "lineno", 0) or 0)
        try:
            syntax.parse(data, path, minimum_python)
        except SyntaxError as reason:
            message = f"It does not parse for Python 3.{minimum_python}, the oldest supported one: {reason.msg}."
            return Refusal("G2.version", message, path, reason.lineno or 0)
    return None


def check_encoding(path: str, data: bytes) -> Refusal | None:
    """Refuse a file that other tools may read differently from Python: not in UTF-8, or with lone carriage returns."""
    import tokenize

    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        data.decode("utf-8")
    except (SyntaxError, UnicodeDecodeError) as reason:
        return Refusal("G2.encoding", f"It is not UTF-8: {reason}. Save the file as UTF-8.", path)
    if encoding not in ("utf-8", "utf-8-sig"):
        message = f"Its coding line says {encoding}. Save the file as UTF-8 and remove that line."
        return Refusal("G2.encoding", message, path, 1)
    return _refuse_carriage_returns(path, data.decode("utf-8"), "G2.encoding")


def _refuse_carriage_returns(path: str, text: str, code: str = "G1.malformed") -> Refusal | None:
    """Refuse a carriage return without a line feed, which ends a line for Python but not for other tools.

    `text` is new code of a proposal; with the code `"G2.encoding"` it is a whole file.
    """
    lone = _LONE_CARRIAGE_RETURN.search(text)
    if lone is None:
        return None
    message = "A carriage return without a line feed ends a line for Python but not for other tools. Remove it."
    return Refusal(code, message, path, text.count("\n", 0, lone.start()) + 1)


def _first_refusal(problems: Iterator[Refusal | None]) -> Refusal | None:
    """Return the first refusal; None if there is none. Later problems are not computed."""
    return next((problem for problem in problems if problem), None)


def _new_bytes(changed: _Contents) -> dict[str, bytes]:
    """Return path -> bytes after the change."""
    return {path: after for path, (_, after) in changed.items()}


def _make_rung_result(rung: str, verdict: RungVerdict) -> RungResult:
    """Return the entry of the report for a verdict; a verdict of None means passed."""
    if isinstance(verdict, Refusal):
        code, message, path, line = verdict.code, verdict.message, verdict.path, verdict.line
        return RungResult(rung=rung, status="failed", code=code, message=message, path=path, line=line)
    if isinstance(verdict, NotRun):
        return RungResult(rung=rung, status="not_run", code=verdict.code, message=verdict.reason)
    return RungResult(rung=rung, status="passed", message=verdict.reason if verdict else "")


def _make_report(
    proposal_id: str,
    results: list[RungResult],
    actual: tuple[SchemaChange, ...] = (),
    removals: tuple[Removal, ...] = (),
) -> GateReport:
    """Return the report with these results of rungs; it says `passed` if no rung has failed."""
    has_failed = any(result.status == "failed" for result in results)
    return GateReport(
        proposal_id=proposal_id, passed=not has_failed, rungs=tuple(results), schema_changes=actual, removals=removals
    )


def _find_imported_packages(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a file imports, found by a pattern: parsing every file would cost more."""
    with suppress(OSError):
        for module, names in _IMPORT_LINE.findall(path.read_bytes()):
            listed = [module] if module else [name.split(b" as ")[0] for name in names.split(b",")]
            yield from (name.strip().partition(b".")[0].decode() for name in listed)


def _list_own_packages(root: Path) -> Iterator[str]:
    """Yield the names under which files and folders of an import root can be imported."""
    for entry in root.iterdir() if root.is_dir() else ():
        name = entry.stem if entry.suffix == ".py" and not entry.is_dir() else entry.name
        if name.isidentifier() and (entry.is_dir() or entry.suffix == ".py"):
            yield name


def _find_minimum_version(config: ResolvedBuild) -> int:
    """Return the minor version of the Python 3 in `target_python`, else in `requires-python`, else of this Python."""
    wanted = config.settings.gate.target_python
    if wanted:
        return int(wanted.rpartition(".")[2])
    import tomllib

    required = ""
    with suppress(OSError):
        text = Path(config.root, "pyproject.toml").read_text(encoding="utf-8")
        required = str(tomllib.loads(text).get("project", {}).get("requires-python", ""))
    match = _REQUIRED_PYTHON.search(required)
    return int(match.group(1)) if match else sys.version_info.minor


# --- changes by other tools and people ---------------------------------------------------------


class _ForeignTrial(GateRun):
    """A run of the gate for a change by another tool or a person, whose scope has passed G0."""

    def __init__(self, gate: Gate, change: ForeignChange, judged: ForeignScope, *, runs_code: bool) -> None:
        python = {path: pair for path, pair in judged.files.items() if path.endswith(".py")}
        contents = {path: (before or b"", after or b"") for path, (before, after) in python.items()}
        super().__init__(gate, change.project, contents, {}, contents, is_last=True)
        self.judged = judged
        self.runs_code = runs_code
        self.base = TreeState("base", {})
        self.head = TreeState("head", {path: after for path, (_, after) in judged.files.items()})

    def rungs(self, declared: tuple[SchemaChange, ...]) -> Iterator[tuple[str, Callable[[], RungVerdict]]]:
        """The rungs as for proposals; without `runs_code`, those that run code do not run."""
        for rung, check in super().rungs(declared):
            is_asked = self.runs_code or rung in _READING_RUNGS
            yield rung, check if is_asked else lambda: NotRun("It runs code, which was not asked for.")

    def check_sense(self, declared: tuple[SchemaChange, ...]) -> Refusal | None:
        """Refuse names that nothing defines, and emptied bodies, except in files whose functions may be emptied."""
        problem = super().check_sense(declared)
        judged = {path: pair for path, pair in self.contents.items() if not self.judged.is_free(path)}
        return problem or _first_refusal(self.check_bodies(path, *pair, frozenset()) for path, pair in judged.items())

    def check_capability(self) -> RungVerdict:
        """G3 as for proposals, except that tests may do more, and a prompt or role may move to another file with its class."""
        pairs = {path: (parseable_or_empty(before), after) for path, (before, after) in self.contents.items()}
        # equal counts: prompts and roles have only moved between these files
        before, after = (count_guarded(pair[side] for pair in pairs.values()) for side in (0, 1))
        return _first_refusal(
            self.check_growth(path, *pair, partial(self.judged.is_exempt, path), has_moved=before == after)
            for path, pair in pairs.items()
        )

    def check_contract(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """G4 as for proposals, except that agents may appear and disappear in files that `allow` names."""
        free = self.judged.agents_of(self.before, self.after)
        problem = contract.check_agents(self.before, self.after, free)
        return problem or self.check_promises(declared)

    def check_tests(self) -> RungVerdict:
        """G6 in two steps: the changed code must pass the old tests, and then the changed tests."""
        code = {path: data for path, data in self.head.files.items() if not is_test_side(path)}
        if len(code) == len(self.head.files):
            return super().check_tests()
        with_old_tests = TreeState("code", code)
        found = self.gate.trials.check_tests(self.base, with_old_tests, self.after)
        verdict = self.require_proof(found, with_old_tests)
        if isinstance(verdict, Refusal | NotRun):
            return verdict
        changed = self.gate.trials.check_tests(with_old_tests, self.head, self.after)
        if isinstance(changed, Refusal):
            return changed._replace(message=f"With the changed tests: {changed.message}")
        return verdict or changed


def judge_change(change: ForeignChange, on_output: _OnOutput | None = None, *, runs_code: bool = True) -> GateReport:
    """Run the gate for a change that another tool or a person made. Nothing is written; changed code runs in the sandbox only.

    Contracts may change as long as no edge breaks; the report lists the contracts that differ.

    Args:
        change: The project before the change, and the changed files.
        on_output: As for `Gate`.
        runs_code: False leaves out G5 to G8, for which the sandbox is needed.

    Raises:
        NotJudgedError: This machine is too busy to judge the change.
    """
    from graphbus_core.editing import sandboxes

    judged = ForeignScope(change)
    problem = judged.check()
    if problem or not judged.files:
        return _make_report("", [_make_rung_result("G0", problem)])
    config = change.project.config
    sandbox = sandboxes.choose_sandbox(config.settings.gate.isolation, Path(config.root)) if runs_code else None
    gate = Gate(change.project, config, sandbox, on_output)
    return _ForeignTrial(gate, change, judged, runs_code=runs_code).report("", ())


def check_file(root: str | PathLike[str], path: str, text: str | bytes) -> GateReport:
    """Check whether the gate would accept a new text for one file of a project. Nothing is written.

    Args:
        root: The project's folder; its settings apply.
        path: The file, relative to the folder.
        text: The whole new text; a str is encoded like the present file and gets its line ends.

    Returns:
        The report: `passed`, and in `rungs` the result of each rung with status, code, message, path and line.

    Raises:
        EditError: GBE340, there is no agent in the project.
        UsageError: The settings of the project cannot be read.
        NotJudgedError: This machine is too busy to judge the change.
    """
    from graphbus_core import settings
    from graphbus_core.editing import foreign

    folder = Path(root).resolve()
    data = text if isinstance(text, bytes) else foreign.encode_like(text, foreign.bytes_on_disk(folder, path))
    return judge_change(foreign.change_of_files(folder, settings.load(folder), {path: data}))
