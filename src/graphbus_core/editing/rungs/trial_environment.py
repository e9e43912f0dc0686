"""Where states of the project are tried: fresh copies, a sandbox, and what is said when nothing can be tried.

A copy is made anew for each run, because what is tried may write where it likes.

A model reads the reasons of the gate, and they are kept in records and reports. Tried code could put any file of the project into
the text of an error, the name of a class or of a test. So only this is repeated of what it has said: a path of the project and a
line that it has, a name that stands in the text of a file, an exception that Python itself defines. All else is for the person
alone, shortened.
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


class TrialImpossible(Exception):  # noqa: N818 - it is an answer, not a failure
    """The project cannot be copied, or is larger than what may be copied."""


class TrialTree:
    """A copy of the project as it was when it was first needed, and copies of that copy. Removed with this object."""

    def __init__(self, root: str, artifacts_dir: str) -> None:
        self._root = Path(root)
        self._artifacts = Path(artifacts_dir)
        self._home = Path(tempfile.mkdtemp(prefix="graphbus-trial-"))
        self._count = 0
        weakref.finalize(self, remove_tree, self._home)

    @contextmanager
    def copy(self, changed: Mapping[str, bytes | None]) -> Iterator[Path]:
        """Give a folder with the project and these files in it, or without those that are None; it is gone afterwards.

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
            with Folder.at(
                os.path.realpath(folder)
            ) as copy:  # a link that stays in the project may lead out of a copy of it
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
        """Leave out what is made, secret or no file, and links that would lead back to the real files."""
        mode = path.lstat().st_mode
        if path.name in SKIPPED_FOLDERS or path == self._artifacts or (path / "pyvenv.cfg").exists():
            return False
        if stat.S_ISLNK(mode):
            inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root))
            return inside and not os.path.isabs(os.readlink(path))
        if stat.S_ISDIR(mode):
            return path.parent != self._home.parent or not path.name.startswith("graphbus-")  # TMPDIR is in the project
        return stat.S_ISREG(mode) and not any(fnmatch(path.name, glob) for glob in _SKIPPED_FILES)


_MOST_CHARACTERS, _MOST_LINES = 2000, 20
_ANY_ERROR = "an error"
_OF_LIBRARY = ("CancelledError", "Empty", "FrozenInstanceError", "Full", "InvalidOperation", "JSONDecodeError")
_LONGEST_FILE = 4_000_000
_IN_TEXT = re.compile(r"^\s*([^\s:()\"']+\.\w+):(\d+)", re.MULTILINE)


class RaisedError(msgspec.Struct, frozen=True, array_like=True):
    """An exception as `sandbox_programs/graphbus_trial.py` tells it: class, text, and where it came from, nearest last."""

    name: str
    text: str = ""
    steps: list[tuple[str, int]] = []

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


class SourceLine(NamedTuple):
    """A line of a file of the project; nothing for none that is known."""

    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


class ProjectFiles:
    """The files of a state of the project, by which places and names are recognised."""

    def __init__(self, root: Path, changed: Mapping[str, bytes | None]) -> None:
        self._root = root
        self._changed = changed
        self._names: dict[str, frozenset[str]] = {}

    def text(self, path: str) -> bytes | None:
        """Give the text of a file; None for what is no file of the project."""
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

    def spot(self, path: str, line: int = 0) -> SourceLine:
        """Give a place if there is such a file, with its line if the file has that line."""
        text = self.text(path)
        if text is None:
            return SourceLine()
        return SourceLine(path, line if 0 < line <= text.count(b"\n") + 1 else 0)

    def last(self, steps: Iterable[tuple[str, int]]) -> SourceLine:
        """Give the last place that is known."""
        return next((spot for spot in (self.spot(*step) for step in reversed(list(steps))) if spot.line), SourceLine())

    def spots_in(self, text: str) -> list[SourceLine]:
        """Give the places with which lines of a text begin, each once."""
        found = (self.spot(path.removeprefix("./"), int(line[:9])) for path, line in _IN_TEXT.findall(text))
        return list(dict.fromkeys(spot for spot in found if spot.line))

    def test(self, name: str) -> str:
        """Give the name of a test as far as it stands in its file: without parameters, and without what was made by code."""
        path, *parts = name.partition("[")[0].split("::")
        spot = self.spot(path)
        known = self._defined(path) if spot.path else frozenset()
        kept = parts[: next((at for at, part in enumerate(parts) if part not in known), len(parts))]
        return "::".join([spot.path, *kept]) if spot.path else "a test"

    def _defined(self, path: str) -> frozenset[str]:
        if path not in self._names:
            try:
                tree = syntax.parse(self.text(path) or b"")
            except (SyntaxError, ValueError, RecursionError):
                return frozenset()
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            self._names[path] = frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
        return self._names[path]


def error_name(name: str) -> str:
    """Give the name of an exception of Python itself; of others only that there was one."""
    if name in _OF_LIBRARY:
        return name
    found = getattr(builtins, name, None)
    return name if isinstance(found, type) and issubclass(found, BaseException) else _ANY_ERROR


def list_known_names(found: Iterable[str], known: Collection[str], noun: str) -> str:
    """Give the names that are known, and how many others there are."""
    output = list(dict.fromkeys(found))
    kept = [name for name in output if name in known]
    others = len(output) - len(kept)
    return ", ".join([*kept, *([f"{others} {noun}{'s' if others > 1 else ''} of other names"] if others else [])])


def shorten_output(text: str) -> str:
    """Give the beginning of a text, for the person."""
    lines = text.strip().splitlines()
    kept = "\n".join(lines[:_MOST_LINES])
    is_whole = len(lines) <= _MOST_LINES and len(kept) <= _MOST_CHARACTERS
    return kept if is_whole else f"{kept[:_MOST_CHARACTERS]} …"


SANDBOX_PROGRAMS = Path(__file__).with_name("sandbox_programs")
NO_JAIL = (
    "There is no jail here in which changed code could run. Install bubblewrap (see `graphbus doctor`), "
    'or set isolation = "process" in [tool.graphbus.gate] if you would run this code yourself.'
)
_OUTPUT_BYTES = 32_000_000
_MARGIN = 3
"""How many times as long as without a change it may take with it: processor time, too, is not the same each time."""
_ABSENT = object()

_Read = TypeVar("_Read")


class TreeState(NamedTuple):
    """The files that differ from the start of the session (None: gone), and the digest by which the state is known again."""

    digest: str
    files: Mapping[str, bytes | None]


class NotRun(NamedTuple):
    """Why a change passes a rung that was not climbed; `code` is what `allow_unverified` let through, else it is empty."""

    reason: str
    code: str = ""
    output: str = ""


class PassedWithNote(NamedTuple):
    """What a person should know of a rung that was passed."""

    reason: str
    output: str = ""


RungVerdict = Refusal | NotRun | PassedWithNote | None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the watching process writes."""

    is_sound: bool
    said: list[Json]
    returncode: int


class WatchedRun(NamedTuple):
    """How a watched command ended, and what our code in it said.

    Attributes:
        said: In order; up to the first line that did not bear the key.
        is_sound: Every line bore the key.
    """

    done: FinishedProcess
    said: list[Json]
    is_sound: bool

    def at(self, number: int, kind: type[_Read]) -> _Read | None:
        """Give one thing that was said, if it is of a kind."""
        try:
            return msgspec.convert(self.said[number], kind) if self.said else None
        except msgspec.ValidationError:
            return None


class TrialEnvironment:
    """Copies of the project and the sandbox in which they are tried.

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
        """Refuse what nobody has tried, or say so where that is allowed."""
        if self.config.settings.gate.allow_unverified:
            return NotRun(reason, code, output)
        return Refusal(code, reason, path, output=output)

    def check_if_possible(self, code: str, check: Callable[[], RungVerdict]) -> RungVerdict:
        """Give a verdict, or `unverified` where nothing can be tried."""
        try:
            return check()
        except TrialImpossible as reason:
            return self.refuse_unverified(code, why_not_tried(reason))

    def files_in(self, state: TreeState) -> ProjectFiles:
        """Give the files of a state."""
        return ProjectFiles(Path(self.config.root), state.files)

    @property
    def sandbox(self) -> Sandbox:
        """Where it is tried.

        Raises:
            TrialImpossible: There is none here.
        """
        if self._sandbox is None:
            raise TrialImpossible(NO_JAIL)
        return self._sandbox

    def copy(self, state: TreeState) -> AbstractContextManager[Path]:
        """Give a copy of the project in a state.

        Raises:
            TrialImpossible: There is no jail to try it in, or too much to copy.
        """
        if self._sandbox is None:
            raise TrialImpossible(NO_JAIL)
        return self._tree.copy(state.files)

    def import_paths(self, folder: Path, import_roots: Sequence[str]) -> list[str]:
        """Where modules of the project are found in a copy, also those that are installed from its sources."""
        relative = [*import_roots, *sources_in(Path(self.config.root))]
        seen = self.sandbox.visible_path(folder)
        return list(dict.fromkeys(str(seen / path) for path in relative))

    def strip_copy_path(self, text: str, folder: Path) -> str:
        """Give what a command has said with paths relative to its copy."""
        return text.replace(str(self.sandbox.visible_path(folder)), ".")

    def limits_after(self, before_s: float, longest_s: float = inf) -> Limits:
        """Give the limits of what took so long without the change: more time for what needs nearly all of it anyway."""
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
        """Run a command in a copy, with the programs of this Python in reach.

        Args:
            longest_s: What it may use, if that is less than `timeout_s`.
            before_s: What it used without the change.
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
        """Import modules of a state, then make calls, or run the text of a test, all in one process of its own.

        Raises:
            TrialImpossible: As `copy`.
        """
        with self.copy(state) as folder:
            work = msgspec.json.encode([self.import_paths(folder, import_roots), modules, calls, test]).decode()
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
        """Run a command in which code of ours speaks; another process, which runs no project code, writes down what it says."""
        watch = [sys.executable, "-I", "-S", str(SANDBOX_PROGRAMS / "graphbus_watch.py"), *command]
        done = self.run(watch, folder, environment, longest_s=longest_s, before_s=before_s)
        try:
            record = msgspec.json.decode(done.stdout, type=_Record)
        except msgspec.DecodeError:
            return WatchedRun(done._replace(stdout=""), [], False)
        done = done._replace(returncode=record.returncode, stdout="")
        return WatchedRun(done, record.said, record.is_sound)


def _programs(command: Sequence[str]) -> list[Path]:
    """Give the programs that a command names by their paths, with the virtual environments that they are in."""
    found = []
    for program in (Path(word) for word in command if _is_program(word)):
        home = program.parent.parent
        found += [home, Path(os.path.realpath(program))] if (home / "pyvenv.cfg").exists() else [program]
    return found


def _is_program(word: str) -> bool:
    return os.path.isabs(word) and os.path.isfile(word) and os.access(word, os.X_OK)


def why_not_tried(reason: TrialImpossible) -> str:
    """Say why nothing can be tried."""
    if str(reason) == NO_JAIL:
        return NO_JAIL
    return f"The project cannot be copied to try the change: {reason}. Keep large data outside of the project folder."


def changed_paths(base: TreeState, head: TreeState) -> set[str]:
    """Give the files that differ between two states."""
    return {
        path for path in {*base.files, *head.files} if base.files.get(path, _ABSENT) != head.files.get(path, _ABSENT)
    }
