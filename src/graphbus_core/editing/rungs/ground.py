"""Where states of the project are tried: fresh copies, a sandbox, and what is said when nothing can be tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.trial_tree import NotCopied, TrialTree
from graphbus_core.editing.rungs.vetted import Files
from graphbus_core.editing.sandboxes.limits import Finished, Limits, Sandbox
from graphbus_core.editing.sandboxes.reach import sources_in
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.schema.json import Json

INSIDE = Path(__file__).with_name("inside")
NO_JAIL = (
    "There is no jail here in which changed code could run. Install bubblewrap (see `graphbus doctor`), "
    'or set isolation = "process" in [tool.graphbus.gate] if you would run this code yourself.'
)
_OUTPUT_BYTES = 32_000_000
_MARGIN = 3
"""How many times as long as without a change it may take with it: processor time, too, is not the same each time."""
_ABSENT = object()

Read = TypeVar("Read")


class State(NamedTuple):
    """The files that differ from the start of the session (None: gone), and the digest by which the state is known again."""

    digest: str
    files: Mapping[str, bytes | None]


class NotRun(NamedTuple):
    """Why a change passes a rung that was not climbed; `code` is what `allow_unverified` let through, else it is empty."""

    reason: str
    code: str = ""
    told: str = ""


class Noted(NamedTuple):
    """What a person should know of a rung that was passed."""

    reason: str
    told: str = ""


Verdict = Problem | NotRun | Noted | None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the watching process writes."""

    is_sound: bool
    said: list[Json]
    returncode: int


class Heard(NamedTuple):
    """How a watched command ended, and what our code in it said.

    Attributes:
        said: In order; up to the first line that did not bear the key.
        is_sound: Every line bore the key.
    """

    done: Finished
    said: list[Json]
    is_sound: bool

    def first(self, kind: type[Read]) -> Read | None:
        """Give the first thing that was said, if it is of a kind."""
        try:
            return msgspec.convert(self.said[0], kind) if self.said else None
        except msgspec.ValidationError:
            return None

    def last(self, kind: type[Read]) -> Read | None:
        """Give the last thing that was said, if it is of a kind."""
        try:
            return msgspec.convert(self.said[-1], kind) if self.said else None
        except msgspec.ValidationError:
            return None


class Ground:
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

    def unverified(self, code: str, reason: str, path: str = "", told: str = "") -> Verdict:
        """Refuse what nobody has tried, or say so where that is allowed."""
        if self.config.settings.gate.allow_unverified:
            return NotRun(reason, code, told)
        return Problem(code, reason, path, told=told)

    def files(self, state: State) -> Files:
        """Give the files of a state."""
        return Files(Path(self.config.root), state.files)

    @property
    def sandbox(self) -> Sandbox:
        """Where it is tried.

        Raises:
            NotCopied: There is none here.
        """
        if self._sandbox is None:
            raise NotCopied(NO_JAIL)
        return self._sandbox

    @contextmanager
    def copy(self, state: State) -> Iterator[Path]:
        """Give a copy of the project in a state.

        Raises:
            NotCopied: There is no jail to try it in, or too much to copy.
        """
        if self._sandbox is None:
            raise NotCopied(NO_JAIL)
        with self._tree.copy(state.files) as folder:
            yield folder

    def paths(self, folder: Path, import_roots: Sequence[str]) -> list[str]:
        """Where modules of the project are found in a copy, also those that are installed from its sources."""
        relative = [*import_roots, *sources_in(Path(self.config.root))]
        seen = self.sandbox.seen(folder)
        return list(dict.fromkeys(str(seen / path) for path in relative))

    def plain(self, text: str, folder: Path) -> str:
        """Give what a command has said with paths relative to its copy."""
        return text.replace(str(self.sandbox.seen(folder)), ".")

    def limits_beside(self, before_s: float, longest_s: float = inf) -> Limits:
        """Give the limits of what took so long without the change: more time for what needs nearly all of it anyway."""
        whole_s = min(longest_s, self.limits.timeout_s)
        return self.limits._replace(timeout_s=max(whole_s, _MARGIN * min(before_s, whole_s)))

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        before_s: float = 0.0,
    ) -> Finished:
        """Run a command of the configuration in a copy, with the programs of this Python in reach.

        Args:
            before_s: What it used without the change.
        """
        bin_first = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        more = {"PATH": bin_first, **(environment or {})}
        shown = [INSIDE, *_program(command)]
        limits = self.limits_beside(before_s)
        return self.sandbox.run(command, folder, limits=limits, environment=more, readable=shown)

    def watched(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        longest_s: float = inf,
        before_s: float = 0.0,
    ) -> Heard:
        """Run a command in which code of ours speaks; another process, which runs no project code, writes down what it says.

        Args:
            longest_s: What it may use, if that is less than `timeout_s`.
            before_s: What it used without the change.
        """
        limits = self.limits_beside(before_s, longest_s)._replace(output_bytes=_OUTPUT_BYTES)
        watch = [sys.executable, "-I", "-S", str(INSIDE / "graphbus_watch.py"), *command]
        shown = [INSIDE, *_program(command)]
        done = self.sandbox.run(watch, folder, limits=limits, environment=environment, readable=shown)
        try:
            record = msgspec.json.decode(done.stdout, type=_Record)
        except msgspec.DecodeError:
            return Heard(done._replace(stdout=""), [], False)
        done = done._replace(returncode=record.returncode, stdout="")
        return Heard(done, record.said, record.is_sound)


def _program(command: Sequence[str]) -> list[Path]:
    """Give the program that a command names by its path, with the virtual environment that it is in."""
    program = Path(command[0])
    if not program.is_absolute():
        return []
    home = program.parent.parent
    if not (home / "pyvenv.cfg").exists():
        return [program]
    return [home, Path(os.path.realpath(program))]


def not_copied(reason: NotCopied) -> str:
    """Say why nothing can be tried."""
    if str(reason) == NO_JAIL:
        return NO_JAIL
    return f"The project cannot be copied to try the change: {reason}. Keep large data outside of the project folder."


def changed_paths(base: State, head: State) -> set[str]:
    """Give the files that differ between two states."""
    return {
        path for path in {*base.files, *head.files} if base.files.get(path, _ABSENT) != head.files.get(path, _ABSENT)
    }
