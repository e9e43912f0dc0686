"""The gate: the checks that a change must pass before agents vote on it. The checks are called rungs; the first refusal ends.

    G0 scope -> G1 apply -> G2 parse -> G3 capability -> G4 contract -> G5 import -> G6 tests -> G7 checks -> G8 smoke

A rung that cannot run (the project is too large to copy, the tests do not start) refuses the change, unless `allow_unverified`
is set. A rung that has nothing to check (no tests) is reported as `not_run` with the reason, and the change goes on.
`rungs.codes.CODES` lists every reason to refuse.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from os import PathLike
from pathlib import Path

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.foreign import ForeignChange, ForeignScope, is_test_side, parseable_or_empty
from graphbus_core.editing.rungs import contract, scope
from graphbus_core.editing.rungs.capability import (
    AnalyzedFiles,
    CodeVersion,
    ProjectPowers,
    Sign,
    check_growth,
    count_guarded,
)
from graphbus_core.editing.rungs.capability.sources import AllowedPackages
from graphbus_core.editing.rungs.codes import Refusal, refusal_of_edit
from graphbus_core.editing.rungs.trial_environment import NotRun, RungVerdict, TreeState, shorten_output
from graphbus_core.editing.rungs.trials import Trials
from graphbus_core.editing.sandboxes.process import Sandbox
from graphbus_core.editing.workspace import Workspace, state_digest
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, RungResult, SchemaChange

_Contents = dict[str, tuple[bytes, bytes]]
_OnOutput = Callable[[str, str], object]

_IMPORT_LINE = re.compile(rb"^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([^#\r\n]+))", re.MULTILINE)
_LONE_RETURN = re.compile(r"\r(?!\n)")
_REQUIRED = re.compile(r"(?:>=|~=|==)\s*3\.(\d+)")


class Gate:
    """The gate of one session.

    Args:
        base: The project at the start of the session.
        config: The settings and limits.
        sandbox: Where changed code is imported and tested. None: it runs nowhere, and G5 to G8 refuse every change.
        on_output: Called with a rung and the shortened output of project code that ran there. It is for the user only: reports,
            which models read, never contain it.
    """

    def __init__(
        self, base: Project, config: ResolvedBuild, sandbox: Sandbox | None, on_output: _OnOutput | None = None
    ) -> None:
        self._base = base
        self.config = config
        self.on_output = on_output
        self.trials = Trials(config, sandbox)
        self._read: tuple[Project, ProjectPowers] | None = None
        self.findings: dict[str, tuple[Finding, ...]] = {}  # by the digest of the state; each is computed once

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        """Check a proposal against the present state of the workspace, which does not change."""
        problem = scope.check_scope(proposal, workspace.project)
        if problem:
            return _report(proposal.proposal_id, [_rung_result("G0", problem)])
        problem = _first_refusal(_check_returns(change.file_path, change.new_code) for change in proposal.code_changes)
        if problem:
            return _report(proposal.proposal_id, [_rung_result("G0", None), _rung_result("G1", problem)])
        try:
            fresh = workspace.preview_files(proposal.code_changes)
        except EditError as error:
            return _report(proposal.proposal_id, [_rung_result("G0", None), _rung_result("G1", refusal_of_edit(error))])
        contents = {path: (workspace.file_data(path), data) for path, data in fresh.items()}
        trial = GateRun(self, workspace.project, contents, workspace.changed_files(), workspace.changed_files(fresh))
        problem = scope.check_sizes(contents, workspace.project) or scope.check_touched(
            proposal, workspace.project, trial.after
        )
        if problem:
            return _report(proposal.proposal_id, [_rung_result("G0", problem)])
        return trial.report(proposal.proposal_id, proposal.schema_changes)

    def check_tree(self, workspace: Workspace) -> GateReport:
        """Check all accepted proposals together against the base, so that exactly what will be written has been tested."""
        changed = workspace.changed_files()
        problem = _first_refusal(scope.check_path(path, self._base, self._base.editable) for path in changed)
        if problem:
            return _report("", [_rung_result("G0", problem)])
        return GateRun(self, self._base, changed, {}, changed, is_last=True).report("", ())

    @cached_property
    def allowed(self) -> AllowedPackages:
        """The packages that the project imports or consists of; a change may import these."""
        used = {"graphbus_core"}
        for file in self._base.index.files:
            used.update(_imported_packages(Path(self.config.root, file.path)))
        for root in self._base.index.import_roots:
            used.update(_own_packages(Path(self.config.root, root)))
        return AllowedPackages(frozenset(used), self.config.safety_config.allow_external_dependencies)

    def powers_before(self, project: Project) -> ProjectPowers:
        """Return the powers of a project before a change; cached for the next change of the same project."""
        if self._read is None or self._read[0] is not project:
            self._read = project, self.powers_in(project, project)
        return self._read[1]

    def powers_in(self, project: Project, before: Project) -> ProjectPowers:
        """Return the powers of a project. Modules that its agents import in `before` count as imported anyway."""
        loaded = frozenset({*before.agent_files, *before.imports.files})
        return ProjectPowers(AnalyzedFiles(project.index, project.reader, self.allowed), loaded)

    @cached_property
    def minimum_python(self) -> int:
        """The minor version of the oldest Python 3 that the project supports, not newer than this one."""
        return min(_minor_version(self.config), sys.version_info.minor)


class GateRun:
    """One run of the rungs G2 to G8 for a change.

    Args:
        before: The project without the change.
        contents: The changed files: path -> bytes before and after.
        changed_before: What differs from the start of the session without the change, in the same form.
        changed_after: The same with the change.
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
        """Run the rungs above G1 up to the first refusal."""
        results = [_rung_result("G0", None), _rung_result("G1", None)]
        actual: tuple[SchemaChange, ...] = ()
        for rung, check in self.rungs(declared):
            verdict = check()
            results.append(_rung_result(rung, verdict))
            if verdict and verdict.output and self.gate.on_output:
                self.gate.on_output(rung, shorten_output(verdict.output))
            if isinstance(verdict, Refusal):
                break
            if rung == "G4":
                actual = contract.schema_changes(self.before, self.after)
        return _report(proposal_id, results, actual)

    def rungs(self, declared: tuple[SchemaChange, ...]) -> Iterator[tuple[str, Callable[[], RungVerdict]]]:
        """Yield the rungs above G1 in order, each with its check."""
        yield "G2", self.check_syntax
        yield "G3", self.check_capability
        yield "G4", lambda: self.check_contract(declared)
        yield "G5", self.check_imports
        yield "G6", self.check_tests
        yield "G7", lambda: self.gate.trials.check_commands(self.base, self.head)
        yield "G8", lambda: self.gate.trials.check_calls(self.base, self.head, self.before, self.after)

    def check_syntax(self) -> RungVerdict:
        """G2: the files compile here and parse for the oldest Python of the project."""
        minimum = self.gate.minimum_python
        return _first_refusal(check_source(path, data, minimum) for path, (_, data) in self.contents.items())

    def check_capability(self) -> RungVerdict:
        """G3: the code has no power that it did not have before."""
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
        """Run G3 for one file; see `capability.check_growth`."""
        old, new = self.surroundings
        sides, powers = (CodeVersion(before, old), CodeVersion(after, new)), self.gate.config.settings.powers
        return check_growth(path, *sides, powers, is_exempt, has_moved=has_moved)

    @cached_property
    def surroundings(self) -> tuple[ProjectPowers, ProjectPowers]:
        """The powers of the project before and after the change."""
        return self.gate.powers_before(self.before), self.gate.powers_in(self.after, self.before)

    def check_contract(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """G4: the contracts between the agents still fit."""
        return contract.check_agents(self.before, self.after) or self.check_promises(declared)

    def check_promises(self, declared: tuple[SchemaChange, ...]) -> RungVerdict:
        """Check that no finding is new, no edge is lost or unknown, and no contract changes undeclared."""
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
        """G6: the tests that passed before still pass; before changes are written, inverted tests must also fail."""
        verdict = self.gate.trials.check_tests(self.base, self.head, self.after)
        return self.require_proof(verdict, self.head)

    def require_proof(self, verdict: RungVerdict, head: TreeState) -> RungVerdict:
        """Return a verdict of G6, or a refusal if inverted tests show that its test results are forged."""
        if not self.is_last or isinstance(verdict, Refusal | NotRun):
            return verdict
        return self.gate.trials.prove_tests(self.base, head, self.after) or verdict


def check_source(path: str, data: bytes, minimum_python: int) -> Refusal | None:
    """Compile a file for this Python and parse it for Python 3.`minimum_python`; nothing of it runs."""
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
    """Refuse a file that Python would read differently from people and other tools: not UTF-8, or with lone returns."""
    import tokenize

    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        data.decode("utf-8")
    except (SyntaxError, UnicodeDecodeError) as reason:
        return Refusal("G2.encoding", f"It is not UTF-8: {reason}. Save the file as UTF-8.", path)
    if encoding not in ("utf-8", "utf-8-sig"):
        message = f"Its coding line says {encoding}. Save the file as UTF-8 and remove that line."
        return Refusal("G2.encoding", message, path, 1)
    return _check_returns(path, data.decode("utf-8"), "G2.encoding")


def _check_returns(path: str, text: str, code: str = "G1.malformed") -> Refusal | None:
    """Refuse a carriage return without a line feed, which ends a line for Python but not for other tools."""
    lone = _LONE_RETURN.search(text)
    if lone is None:
        return None
    message = "A carriage return without a line feed ends a line for Python but not for other tools. Remove it."
    return Refusal(code, message, path, text.count("\n", 0, lone.start()) + 1)


def _first_refusal(problems: Iterator[Refusal | None]) -> Refusal | None:
    return next((problem for problem in problems if problem), None)


def _new_bytes(changed: _Contents) -> dict[str, bytes]:
    return {path: after for path, (_, after) in changed.items()}


def _rung_result(rung: str, verdict: RungVerdict) -> RungResult:
    if isinstance(verdict, Refusal):
        code, message, path, line = verdict.code, verdict.message, verdict.path, verdict.line
        return RungResult(rung=rung, status="failed", code=code, message=message, path=path, line=line)
    if isinstance(verdict, NotRun):
        return RungResult(rung=rung, status="not_run", code=verdict.code, message=verdict.reason)
    return RungResult(rung=rung, status="passed", message=verdict.reason if verdict else "")


def _report(proposal_id: str, results: list[RungResult], actual: tuple[SchemaChange, ...] = ()) -> GateReport:
    has_failed = any(result.status == "failed" for result in results)
    return GateReport(proposal_id=proposal_id, passed=not has_failed, rungs=tuple(results), schema_changes=actual)


def _imported_packages(path: Path) -> Iterator[str]:
    """Yield the top-level names of what a file imports, found by a pattern because parsing every file costs more."""
    with suppress(OSError):
        for module, names in _IMPORT_LINE.findall(path.read_bytes()):
            listed = [module] if module else [name.split(b" as ")[0] for name in names.split(b",")]
            yield from (name.strip().partition(b".")[0].decode() for name in listed)


def _own_packages(root: Path) -> Iterator[str]:
    """Yield the names under which files and folders of an import root can be imported."""
    for entry in root.iterdir() if root.is_dir() else ():
        name = entry.stem if entry.suffix == ".py" and not entry.is_dir() else entry.name
        if name.isidentifier() and (entry.is_dir() or entry.suffix == ".py"):
            yield name


def _minor_version(config: ResolvedBuild) -> int:
    """Return the minor version of `target_python`, else of `requires-python` in pyproject.toml, else of this Python."""
    wanted = config.settings.gate.target_python
    if wanted:
        return int(wanted.rpartition(".")[2])
    import tomllib

    required = ""
    with suppress(OSError):
        text = Path(config.root, "pyproject.toml").read_text(encoding="utf-8")
        required = str(tomllib.loads(text).get("project", {}).get("requires-python", ""))
    match = _REQUIRED.search(required)
    return int(match.group(1)) if match else sys.version_info.minor


# --- changes by other tools and people ---------------------------------------------------------


class _ForeignTrial(GateRun):
    """A run of the gate for a change that another tool or a person made, without a proposal."""

    def __init__(self, gate: Gate, change: ForeignChange, judged: ForeignScope) -> None:
        python = {path: pair for path, pair in judged.files.items() if path.endswith(".py")}
        contents = {path: (before or b"", after or b"") for path, (before, after) in python.items()}
        super().__init__(gate, change.project, contents, {}, contents, is_last=True)
        self.judged = judged
        self.base = TreeState("base", {})
        self.head = TreeState("head", {path: after for path, (_, after) in judged.files.items()})

    def check_capability(self) -> RungVerdict:
        """G3 as for proposals, except that tests may do more, and a prompt may move between files with its class."""
        pairs = {path: (parseable_or_empty(before), after) for path, (before, after) in self.contents.items()}
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
        """G6: what passed before still passes, first with the unchanged tests, then with the changed ones."""
        code = {path: data for path, data in self.head.files.items() if not is_test_side(path)}
        if len(code) == len(self.head.files):
            return super().check_tests()
        middle = TreeState("code", code)
        verdict = self.require_proof(self.gate.trials.check_tests(self.base, middle, self.after), middle)
        if isinstance(verdict, Refusal | NotRun):
            return verdict
        changed = self.gate.trials.check_tests(middle, self.head, self.after)
        if isinstance(changed, Refusal):
            return changed._replace(message=f"With the changed tests: {changed.message}")
        return verdict or changed


def judge_change(change: ForeignChange, on_output: _OnOutput | None = None) -> GateReport:
    """Run the gate for a change that another tool or a person made. Nothing is written; changed code runs in the sandbox only.

    Contracts may change as long as no edge breaks; the report lists what differs.

    Args:
        on_output: As for `Gate`.
    """
    from graphbus_core.editing import sandboxes

    judged = ForeignScope(change)
    problem = judged.check()
    if problem or not judged.files:
        return _report("", [_rung_result("G0", problem)])
    config = change.project.config
    sandbox = sandboxes.choose_sandbox(config.settings.gate.isolation, Path(config.root))
    gate = Gate(change.project, config, sandbox, on_output)
    return _ForeignTrial(gate, change, judged).report("", ())


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
    """
    from graphbus_core import settings
    from graphbus_core.editing import foreign

    folder = Path(root).resolve()
    data = text if isinstance(text, bytes) else foreign.encode_like(text, foreign.bytes_on_disk(folder, path))
    return judge_change(foreign.change_of_files(folder, settings.load(folder), {path: data}))
