"""Where the rungs G5 to G8 run project code: in a sandbox, on a new copy of the project for each run.

A copy is used once, because the code may write to any file in it.

Project code cannot be trusted with the messages of the gate: models read them, and records keep them, while the code could put
the content of any file into the text of an error or the name of a test. So a message repeats only what can be checked: a path and
line that the project has, a name that its text defines, an exception class of Python. All other output is for the user only,
shortened.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatch
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.sandboxes.jails import sources_in
from graphbus_core.editing.sandboxes.process import FinishedProcess, Limits, Sandbox, remove_tree
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.schema.json import Json
from graphbus_core.store.folders import Folder

_MAX_BYTES = 200_000_000
MAX_FILES = 20_000
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".graphbus", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".hypothesis"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".idea", ".vscode", ".import_linter_cache"}
)
_SKIPPED_FILES = (".env", ".env.*", "*.pyc", "*.pem", "*.key", ".netrc", ".coverage*")


class TrialImpossible(Exception):  # noqa: N818 - control flow, not a failure
    """Project code cannot be run: no isolated sandbox works, or the project cannot be copied or is too large to be copied."""


class TrialTree:
    """Copies of the project for trials, in a temporary folder that is removed with this object.

    The project is copied once, when it is first needed; each trial gets a copy of that copy.
    """

    def __init__(self, root: str, artifacts_dir: str) -> None:
        self._root = Path(root)
        self._artifacts = Path(artifacts_dir)
        self._home = Path(tempfile.mkdtemp(prefix="graphbus-trial-"))
        self._count = 0
        weakref.finalize(self, remove_tree, self._home)

    @contextmanager
    def copy(self, changed: Mapping[str, bytes | None]) -> Iterator[Path]:
        """Yield the folder of a copy in which these files have these bytes; None removes a file. It is deleted afterwards.

        Raises:
            TrialImpossible: There is too much to copy, or a file cannot be read or written.
        """
        self._count += 1
        folder = self._home / f"trial{self._count}"
        try:
            self._write_copy(folder, changed)
            yield folder
        finally:
            remove_tree(folder)

    def _write_copy(self, folder: Path, changed: Mapping[str, bytes | None]) -> None:
        """Copy the base copy to a folder and write the changed files; raise TrialImpossible if that fails."""
        base = self._home / "base"
        try:
            if not base.exists():
                self._copy_base(base)
            shutil.copytree(base, folder, symlinks=True, copy_function=shutil.copyfile)
            # `Folder` follows no links: one that is harmless in the project may lead out of the copy
            with Folder.at(os.path.realpath(folder)) as copy:
                for path, data in changed.items():
                    above, _, name = path.rpartition("/")
                    with copy.folder(above or ".", make=data is not None) as place:
                        place.write(name, data, is_flushed=False) if data is not None else place.unlink(name)
        except OSError as reason:
            raise TrialImpossible(remove_paths(str(reason).replace(f"{self._root}{os.sep}", ""))) from None

    def _copy_base(self, base: Path) -> None:
        """Copy the wanted files of the project to `base`; raise TrialImpossible if there are too many."""
        partial = base.with_name("base.part")
        remove_tree(partial)
        files = size_bytes = 0

        def copy_within_limits(source: str, target: str) -> None:
            """Copy a file, or raise TrialImpossible if there are too many files or bytes by now."""
            nonlocal files, size_bytes
            files, size_bytes = files + 1, size_bytes + os.stat(source).st_size
            if files > MAX_FILES or size_bytes > _MAX_BYTES:
                raise TrialImpossible(f"it has more than {MAX_FILES} files or {_MAX_BYTES} bytes")
            shutil.copyfile(source, target)

        shutil.copytree(
            self._root, partial, symlinks=True, ignore=self._list_excluded, copy_function=copy_within_limits
        )
        for folder, _, _ in os.walk(partial):
            os.chmod(folder, 0o755)  # noqa: S103 - a folder of the project may be read-only, but changed files must be written
        partial.rename(base)

    def _list_excluded(self, folder: str, names: list[str]) -> set[str]:
        """Return those of the names in a folder that are not copied, for `shutil.copytree`."""
        return {name for name in names if not self._is_wanted(Path(folder, name))}

    def _is_wanted(self, path: Path) -> bool:
        """True if a path is copied: not if it is generated or secret, a device, a trial, or a link out of the project."""
        mode = path.lstat().st_mode
        if path.name in SKIPPED_FOLDERS or path == self._artifacts or (path / "pyvenv.cfg").exists():
            return False
        if stat.S_ISLNK(mode):
            inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root))
            return inside and not os.path.isabs(os.readlink(path))
        if stat.S_ISDIR(mode):
            is_ours = path.parent == self._home.parent and path.name.startswith("graphbus-")
            return not is_ours  # the folder of temporary files may be in the project
        return stat.S_ISREG(mode) and not any(fnmatch(path.name, glob) for glob in _SKIPPED_FILES)


_MAX_CHARACTERS, _MAX_LINES = 2000, 20
_ANY_ERROR = "an error"
_LIBRARY_ERRORS = ("CancelledError", "Empty", "FrozenInstanceError", "Full", "InvalidOperation", "JSONDecodeError")
_MAX_FILE_BYTES = 4_000_000
_PLACE = re.compile(r"^\s*([^\s:()\"']+\.\w+):(\d+)", re.MULTILINE)


class RaisedError(msgspec.Struct, frozen=True, array_like=True):
    """An exception as `sandbox_programs/graphbus_trial.py` reports it: class name, text, and file and line of each step."""

    name: str
    text: str = ""
    steps: list[tuple[str, int]] = []

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


class SourceLine(NamedTuple):
    """A line of a file of the project; an empty path stands for an unknown place."""

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class ProjectFiles:
    """The files of the project in one state. They decide which paths, lines and test names a message may repeat."""

    def __init__(self, root: Path, changed: Mapping[str, bytes | None]) -> None:
        self._root = root
        self._changed = changed
        self._names: dict[str, frozenset[str]] = {}

    def read_file(self, path: str) -> bytes | None:
        """Return the bytes of a file; None if the project has no such file, or if it is too large or leads out of it."""
        if path in self._changed:
            return self._changed[path]
        parts = path.split("/")
        if path != Path(path).as_posix() or parts[0] in ("", ".") or ".." in parts:
            return None
        try:
            file = self._root / path
            is_ours = file.is_file() and file.resolve().is_relative_to(self._root.resolve())
            return file.read_bytes() if is_ours and file.stat().st_size <= _MAX_FILE_BYTES else None
        except (OSError, ValueError):
            return None

    def known_line(self, path: str, line: int = 0) -> SourceLine:
        """Return the place in a file, with its line if the file has that line; an unknown place if there is no such file."""
        text = self.read_file(path)
        if text is None:
            return SourceLine()
        return SourceLine(path, line if 0 < line <= text.count(b"\n") + 1 else 0)

    def last_known_line(self, steps: Iterable[tuple[str, int]]) -> SourceLine:
        """Return the last step of a traceback that is a line of the project; an unknown place if there is none."""
        return next(
            (place for place in (self.known_line(*step) for step in reversed(list(steps))) if place.line), SourceLine()
        )

    def known_lines_in(self, text: str) -> list[SourceLine]:
        """Return the places in the project with which lines of a text begin (`path:line`), each once."""
        found = (self.known_line(path.removeprefix("./"), int(line[:9])) for path, line in _PLACE.findall(text))
        return list(dict.fromkeys(place for place in found if place.line))

    def test_name(self, name: str) -> str:
        """Return the name of a test as a message may repeat it: without parameters and without parts that its file lacks.

        Such a name is `tests/test_a.py::TestB::test_c`. It is cut before the first part that the file does not define. `a test`
        is returned if the project has no such file.
        """
        path, *parts = name.partition("[")[0].split("::")
        place = self.known_line(path)
        known = self._find_defined_names(path) if place.path else frozenset()
        kept = parts[: next((at for at, part in enumerate(parts) if part not in known), len(parts))]
        return "::".join([place.path, *kept]) if place.path else "a test"

    def _find_defined_names(self, path: str) -> frozenset[str]:
        """Return the names of all functions and classes in a file; none if it has a syntax error."""
        if path not in self._names:
            try:
                tree = syntax.parse(self.read_file(path) or b"")
            except (SyntaxError, ValueError, RecursionError):
                return frozenset()
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            self._names[path] = frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
        return self._names[path]


def error_name(name: str) -> str:
    """Return the name of an exception class of Python's library; `"an error"` for any other."""
    if name in _LIBRARY_ERRORS:
        return name
    found = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else _ANY_ERROR


def list_known_names(found: Iterable[str], known: Collection[str], noun: str) -> str:
    """Return a list of the names that are `known`, and the number of others: `Order, 2 agents of other names`."""
    different = list(dict.fromkeys(found))
    kept = [name for name in different if name in known]
    others = len(different) - len(kept)
    return ", ".join([*kept, *([f"{others} {noun}{'s' if others > 1 else ''} of other names"] if others else [])])


def shorten_output(text: str) -> str:
    """Return the first lines of a text, with `…` if there are more, for the user."""
    lines = text.strip().splitlines()
    kept = "\n".join(lines[:_MAX_LINES])
    is_whole = len(lines) <= _MAX_LINES and len(kept) <= _MAX_CHARACTERS
    return kept if is_whole else f"{kept[:_MAX_CHARACTERS]} …"


SANDBOX_PROGRAMS = Path(__file__).with_name("sandbox_programs")
NO_JAIL = (
    "No isolated sandbox works on this machine, so changed code cannot run. Install bubblewrap (see `graphbus doctor`), "
    'or set isolation = "process" in [tool.graphbus.gate] if you trust this code enough to run it yourself.'
)
_OUTPUT_BYTES = 32_000_000
_MARGIN = 3
"""A run with a change may take this many times as long as the one without: even processor time varies between runs."""
_ABSENT = object()

_Read = TypeVar("_Read")


class TreeState(NamedTuple):
    """A state of the project: the files that differ from the start of the session (None: removed), and a digest of them."""

    digest: str
    files: Mapping[str, bytes | None]


class NotRun(NamedTuple):
    """Why a rung did not run, though the change passes it.

    Attributes:
        reason: For the report.
        code: The refusal that `allow_unverified` has overridden; empty if there was nothing to check.
        output: Output of project code, for the user only.
    """

    reason: str
    code: str = ""
    output: str = ""


class PassedWithNote(NamedTuple):
    """A rung that was passed, with a remark for the report and output of project code for the user."""

    reason: str
    output: str = ""


RungVerdict = Refusal | NotRun | PassedWithNote | None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The line of JSON that `graphbus_watch.py` writes."""

    is_sound: bool
    reports: list[Json]
    returncode: int


class WatchedRun(NamedTuple):
    """The end of a watched command, and the reports of the code of GraphBus in it.

    Attributes:
        done: How the process ended.
        reports: The reports in order, up to the first that was not authentic.
        is_sound: All reports were authentic.
    """

    done: FinishedProcess
    reports: list[Json]
    is_sound: bool

    def at(self, number: int, kind: type[_Read]) -> _Read | None:
        """Return the report with this index, converted to a type; None if there are no reports, or it has another type.

        Raises:
            IndexError: There are reports, but none with this index.
        """
        try:
            return msgspec.convert(self.reports[number], kind) if self.reports else None
        except msgspec.ValidationError:
            return None


class TrialEnvironment:
    """Runs project code in a sandbox, on copies of the project.

    Args:
        sandbox: None where no isolated sandbox works: then no project code runs.
    """

    def __init__(self, config: ResolvedBuild, sandbox: Sandbox | None) -> None:
        gate = config.settings.gate
        self.config = config
        self.limits = Limits(timeout_s=gate.timeout_s, memory_mb=gate.memory_mb)
        self._sandbox = sandbox
        self._tree = TrialTree(config.root, config.artifacts_dir)

    def refuse_unverified(self, code: str, reason: str, path: str = "", output: str = "") -> RungVerdict:
        """Return the verdict on a change that cannot be tried: a refusal, or NotRun if `allow_unverified` is set."""
        if self.config.settings.gate.allow_unverified:
            return NotRun(reason, code, output)
        return Refusal(code, reason, path, output=output)

    def check_if_possible(self, code: str, check: Callable[..., RungVerdict], *arguments: object) -> RungVerdict:
        """Return the verdict of `check(*arguments)`, or that of `refuse_unverified` if nothing can be run here."""
        try:
            return check(*arguments)
        except TrialImpossible as reason:
            return self.refuse_unverified(code, why_not_tried(reason))

    def files_in(self, state: TreeState) -> ProjectFiles:
        """Return the files of the project in a state."""
        return ProjectFiles(Path(self.config.root), state.files)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox.

        Raises:
            TrialImpossible: No isolated sandbox works.
        """
        if self._sandbox is None:
            raise TrialImpossible(NO_JAIL)
        return self._sandbox

    def copy(self, state: TreeState) -> AbstractContextManager[Path]:
        """Return a context manager that yields the folder of a copy of the project in a state.

        Raises:
            TrialImpossible: No isolated sandbox works, or there is too much to copy.
        """
        if self._sandbox is None:
            raise TrialImpossible(NO_JAIL)
        return self._tree.copy(state.files)

    def import_paths(self, folder: Path, import_roots: Sequence[str]) -> list[str]:
        """Return the folders of a copy from which modules of the project are imported, editable installs included."""
        relative = [*import_roots, *sources_in(Path(self.config.root))]
        seen = self.sandbox.visible_path(folder)
        return list(dict.fromkeys(str(seen / path) for path in relative))

    def strip_copy_path(self, text: str, folder: Path) -> str:
        """Return the output of a command in a copy with the path of the copy replaced by `.`."""
        return text.replace(str(self.sandbox.visible_path(folder)), ".")

    def limits_after(self, before_s: float, longest_s: float = inf) -> Limits:
        """Return the limits of a run. Its time limit is `timeout_s` of the settings, or `longest_s` if that is less.

        `before_s` is the time that the run used without the change. With the change it may take `_MARGIN` times as long, even
        beyond that limit.
        """
        whole_s = min(longest_s, self.limits.timeout_s)
        return self.limits._replace(timeout_s=max(whole_s, _MARGIN * min(before_s, whole_s)))

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        longest_s: float = inf,
        before_s: float = 0.0,
    ) -> FinishedProcess:
        """Run a command in a copy, with the programs of this Python first in PATH.

        Args:
            command: Program and arguments.
            folder: The copy.
            environment: Further variables.
            longest_s: A time limit that is shorter than `timeout_s`.
            before_s: The time that the command used without the change.

        Raises:
            TrialImpossible: No isolated sandbox works.
            NotJudgedError: GBE332, the machine is too busy.
        """
        bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        limits = self.limits_after(before_s, longest_s)._replace(output_bytes=_OUTPUT_BYTES)
        more = {"PATH": bin_first, **environment}
        return self.sandbox.run(
            command, folder, limits=limits, environment=more, readable=[SANDBOX_PROGRAMS, *_find_program_paths(command)]
        )

    def run_trial(
        self,
        state: TreeState,
        import_roots: Sequence[str],
        *,
        modules: Sequence[str] = (),
        calls: Sequence[Json] = (),
        test: str = "",
        longest_s: float = inf,
        before_s: float = 0.0,
    ) -> WatchedRun:
        """Import modules of a state, make calls and run a test, all in one process; see `graphbus_trial.py`.

        Raises:
            TrialImpossible: As `copy`.
        """
        with self.copy(state) as folder:
            paths, factory = self.import_paths(folder, import_roots), self.config.settings.runtime.factory
            work = msgspec.json.encode([paths, modules, calls, test, factory]).decode()
            command = [sys.executable, "-B", str(SANDBOX_PROGRAMS / "graphbus_trial.py"), work]
            return self.run_watched(command, folder, {}, longest_s=longest_s, before_s=before_s)

    def run_watched(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        longest_s: float = inf,
        before_s: float = 0.0,
    ) -> WatchedRun:
        """Run a command in a copy and collect the reports of the code of GraphBus in it, see `graphbus_watch.py`.

        Arguments and errors are those of `run`. If the watcher leaves no record, the result has no reports and is not sound.
        """
        watch = [sys.executable, "-I", "-S", str(SANDBOX_PROGRAMS / "graphbus_watch.py"), *command]
        done = self.run(watch, folder, environment, longest_s=longest_s, before_s=before_s)
        try:
            record = msgspec.json.decode(done.stdout, type=_Record)
        except msgspec.DecodeError:
            return WatchedRun(done._replace(stdout=""), [], False)
        done = done._replace(returncode=record.returncode, stdout="")
        return WatchedRun(done, record.reports, record.is_sound)


def _find_program_paths(command: Sequence[str]) -> list[Path]:
    """Return the paths that a command needs to read for the programs that it names by absolute paths.

    These are the programs, or for one in a virtual environment, that environment and the real file.
    """
    found = []
    for program in (Path(word) for word in command if _is_program(word)):
        home = program.parent.parent
        found += [home, Path(os.path.realpath(program))] if (home / "pyvenv.cfg").exists() else [program]
    return found


def _is_program(word: str) -> bool:
    """True for the absolute path of an executable file."""
    return os.path.isabs(word) and os.path.isfile(word) and os.access(word, os.X_OK)


def why_not_tried(reason: TrialImpossible) -> str:
    """Return the sentence that says why project code cannot be run."""
    if str(reason) == NO_JAIL:
        return NO_JAIL
    return f"The project cannot be copied to test the change: {reason}. Keep large data outside of the project folder."


def changed_paths(base: TreeState, head: TreeState) -> set[str]:
    """Return the paths of the files that differ between two states."""
    return {
        path for path in {*base.files, *head.files} if base.files.get(path, _ABSENT) != head.files.get(path, _ABSENT)
    }
