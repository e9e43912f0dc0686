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


class TrialImpossible(Exception):  # noqa: N818 - an answer, not a failure
    """Project code cannot be run: there is no jail, or the project cannot be copied or is too large to be."""


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
        """Yield the folder of a copy in which these files have these bytes (None: are removed). It is deleted afterwards.

        Raises:
            TrialImpossible: There is too much to copy, or a file cannot be read or written.
        """
        self._count += 1
        folder = self._home / f"trial{self._count}"
        try:
            self._fill(folder, changed)
            yield folder
        finally:
            remove_tree(folder)

    def _fill(self, folder: Path, changed: Mapping[str, bytes | None]) -> None:
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
            raise TrialImpossible(str(reason)) from None

    def _copy_base(self, base: Path) -> None:
        fresh = base.with_name("base.part")
        remove_tree(fresh)
        files = size_bytes = 0

        def copy(source: str, target: str) -> None:
            nonlocal files, size_bytes
            files, size_bytes = files + 1, size_bytes + os.stat(source).st_size
            if files > MAX_FILES or size_bytes > _MAX_BYTES:
                raise TrialImpossible(f"it has more than {MAX_FILES} files or {_MAX_BYTES} bytes")
            shutil.copyfile(source, target)

        shutil.copytree(self._root, fresh, symlinks=True, ignore=self._unwanted, copy_function=copy)
        for folder, _, _ in os.walk(fresh):
            os.chmod(folder, 0o755)  # noqa: S103 - the folders of a project may be read-only; changed files go into the copy
        fresh.rename(base)

    def _unwanted(self, folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not self._is_wanted(Path(folder, name))}

    def _is_wanted(self, path: Path) -> bool:
        """False for generated and secret files, devices and the like, and links that lead out of the copy."""
        mode = path.lstat().st_mode
        if path.name in SKIPPED_FOLDERS or path == self._artifacts or (path / "pyvenv.cfg").exists():
            return False
        if stat.S_ISLNK(mode):
            inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root))
            return inside and not os.path.isabs(os.readlink(path))
        if stat.S_ISDIR(mode):
            is_ours = path.parent == self._home.parent and path.name.startswith("graphbus-")
            return not is_ours  # TMPDIR may be in the project
        return stat.S_ISREG(mode) and not any(fnmatch(path.name, glob) for glob in _SKIPPED_FILES)


_MOST_CHARACTERS, _MOST_LINES = 2000, 20
_ANY_ERROR = "an error"
_OF_LIBRARY = ("CancelledError", "Empty", "FrozenInstanceError", "Full", "InvalidOperation", "JSONDecodeError")
_LONGEST_FILE = 4_000_000
_IN_TEXT = re.compile(r"^\s*([^\s:()\"']+\.\w+):(\d+)", re.MULTILINE)


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
        """Return the bytes of a file; None if the project has no such file."""
        if path in self._changed:
            return self._changed[path]
        parts = path.split("/")
        if path != Path(path).as_posix() or parts[0] in ("", ".") or ".." in parts:
            return None
        try:
            file = self._root / path
            is_ours = file.is_file() and file.resolve().is_relative_to(self._root.resolve())
            return file.read_bytes() if is_ours and file.stat().st_size <= _LONGEST_FILE else None
        except (OSError, ValueError):
            return None

    def known_line(self, path: str, line: int = 0) -> SourceLine:
        """Return a place if the file exists, with the line if the file has it."""
        text = self.read_file(path)
        if text is None:
            return SourceLine()
        return SourceLine(path, line if 0 < line <= text.count(b"\n") + 1 else 0)

    def last_known_line(self, steps: Iterable[tuple[str, int]]) -> SourceLine:
        """Return the last step of a traceback that is a line of the project."""
        return next(
            (spot for spot in (self.known_line(*step) for step in reversed(list(steps))) if spot.line), SourceLine()
        )

    def known_lines_in(self, text: str) -> list[SourceLine]:
        """Return the places at the beginning of lines of a text (`path:line`), each once."""
        found = (self.known_line(path.removeprefix("./"), int(line[:9])) for path, line in _IN_TEXT.findall(text))
        return list(dict.fromkeys(spot for spot in found if spot.line))

    def test_name(self, name: str) -> str:
        """Return the name of a test without parameters, up to the first part that its file does not define."""
        path, *parts = name.partition("[")[0].split("::")
        spot = self.known_line(path)
        known = self._defined(path) if spot.path else frozenset()
        kept = parts[: next((at for at, part in enumerate(parts) if part not in known), len(parts))]
        return "::".join([spot.path, *kept]) if spot.path else "a test"

    def _defined(self, path: str) -> frozenset[str]:
        """Return the names of all functions and classes in a file."""
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
    if name in _OF_LIBRARY:
        return name
    found = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else _ANY_ERROR


def list_known_names(found: Iterable[str], known: Collection[str], noun: str) -> str:
    """List the names that are known, and say how many others there are."""
    output = list(dict.fromkeys(found))
    kept = [name for name in output if name in known]
    others = len(output) - len(kept)
    return ", ".join([*kept, *([f"{others} {noun}{'s' if others > 1 else ''} of other names"] if others else [])])


def shorten_output(text: str) -> str:
    """Return the first lines of a text, for the user."""
    lines = text.strip().splitlines()
    kept = "\n".join(lines[:_MOST_LINES])
    is_whole = len(lines) <= _MOST_LINES and len(kept) <= _MOST_CHARACTERS
    return kept if is_whole else f"{kept[:_MOST_CHARACTERS]} …"


SANDBOX_PROGRAMS = Path(__file__).with_name("sandbox_programs")
NO_JAIL = (
    "There is no jail on this machine in which changed code could run. Install bubblewrap (see `graphbus doctor`), "
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
    said: list[Json]
    returncode: int


class WatchedRun(NamedTuple):
    """The end of a watched command, and the reports of our code in it.

    Attributes:
        done: How the process ended.
        said: The reports in order, up to the first that was not authentic.
        is_sound: All reports were authentic.
    """

    done: FinishedProcess
    said: list[Json]
    is_sound: bool

    def at(self, number: int, kind: type[_Read]) -> _Read | None:
        """Return one report if it has the given type; else None."""
        try:
            return msgspec.convert(self.said[number], kind) if self.said else None
        except msgspec.ValidationError:
            return None


class TrialEnvironment:
    """Runs project code in a sandbox, on copies of the project.

    Args:
        sandbox: None where there is no jail: then nothing runs.
    """

    def __init__(self, config: ResolvedBuild, sandbox: Sandbox | None) -> None:
        gate = config.settings.gate
        self.config = config
        self.limits = Limits(timeout_s=gate.timeout_s, memory_mb=gate.memory_mb)
        self._sandbox = sandbox
        self._tree = TrialTree(config.root, config.artifacts_dir)

    def refuse_unverified(self, code: str, reason: str, path: str = "", output: str = "") -> RungVerdict:
        """Refuse a change that cannot be tried, or let it pass with a remark if `allow_unverified` is set."""
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
            TrialImpossible: There is no jail.
        """
        if self._sandbox is None:
            raise TrialImpossible(NO_JAIL)
        return self._sandbox

    def copy(self, state: TreeState) -> AbstractContextManager[Path]:
        """Return a context with the folder of a copy of the project in a state.

        Raises:
            TrialImpossible: There is no jail, or too much to copy.
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
        """Return the output of a command with paths relative to its copy."""
        return text.replace(str(self.sandbox.visible_path(folder)), ".")

    def limits_after(self, before_s: float, longest_s: float = inf) -> Limits:
        """Return the limits of a run that took `before_s` without the change: a slow one gets more time than `timeout_s`."""
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
            environment: Further variables.
            longest_s: A time limit that is shorter than `timeout_s`.
            before_s: The time that the command used without the change.
        """
        bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        limits = self.limits_after(before_s, longest_s)._replace(output_bytes=_OUTPUT_BYTES)
        more = {"PATH": bin_first, **environment}
        return self.sandbox.run(
            command, folder, limits=limits, environment=more, readable=[SANDBOX_PROGRAMS, *_programs(command)]
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
        """Import modules of a state, then make calls, or run the text of a test, all in one process; see `graphbus_trial.py`.

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
        """Run a command in a copy and collect the reports of our code in it, see `graphbus_watch.py`; arguments as for `run`."""
        watch = [sys.executable, "-I", "-S", str(SANDBOX_PROGRAMS / "graphbus_watch.py"), *command]
        done = self.run(watch, folder, environment, longest_s=longest_s, before_s=before_s)
        try:
            record = msgspec.json.decode(done.stdout, type=_Record)
        except msgspec.DecodeError:
            return WatchedRun(done._replace(stdout=""), [], False)
        done = done._replace(returncode=record.returncode, stdout="")
        return WatchedRun(done, record.said, record.is_sound)


def _programs(command: Sequence[str]) -> list[Path]:
    """Return the programs that a command names by absolute paths, with their virtual environments, to make them readable."""
    found = []
    for program in (Path(word) for word in command if _is_program(word)):
        home = program.parent.parent
        found += [home, Path(os.path.realpath(program))] if (home / "pyvenv.cfg").exists() else [program]
    return found


def _is_program(word: str) -> bool:
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
