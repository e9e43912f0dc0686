"""Git as GraphBus uses it: reading by plumbing commands that run nothing which the repository's own settings name.

No hook, filter program, textconv, fsmonitor, pager, prompt or network; the index and the files stay as they are.
Paths are relative to the folder that the repository was found from, with `/`. At the end: what somebody changed since a revision,
and the project as it was there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from graphbus_core.errors import EditError, NegotiationError, Place

TIMEOUT_S = 60.0
STAGED = ""
"""Stands for the index where a revision is asked for."""
UNREACHED = "?"
"""Stands for a commit that the history here does not reach back to."""

Files = dict[str, tuple[bytes | None, bytes | None]]
"""Path -> bytes before and after; None: there is no such file."""

ChangeKind = Literal["added", "modified", "deleted"]

_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|GNUPGHOME|GPG_TTY|SSH_AUTH_SOCK|EMAIL"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)|GIT_CEILING_DIRECTORIES"
)
"""What git sees of our environment: no keys, and nothing with which a calling git would point us at another repository."""

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.safecrlf": "false",
    "core.splitIndex": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "user.useConfigOnly": "true",
}
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
}
_FILTER_KEY = re.compile(r"(filter\..*)\.(clean|smudge|process|required)", re.DOTALL)
_BLAMED = re.compile(rb"([0-9a-f]{40,64}) \d+ \d+")
_REGULAR = {"100644", "100755"}
_KINDS: dict[str, ChangeKind] = {"A": "added", "D": "deleted"}


class FileState(NamedTuple):
    """One path that differs between two states."""

    path: str
    kind: ChangeKind


class Git:
    """Runs git in one folder.

    Attributes:
        settings: Settings that outrank those of the repository.
        variables: Further variables of its environment.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = _SETTINGS, variables: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.settings = dict(settings)
        self.variables = dict(variables or {})

    def having(self, **variables: str) -> Git:
        """Give the same with further variables in its environment."""
        return Git(self.folder, self.settings, {**self.variables, **variables})

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S) -> bytes:
        """Give what a command prints.

        Raises:
            NegotiationError: GBE430, there is no git; GBE431, git refuses or takes too long.
        """
        status, output, said = self.attempt(*arguments, stdin=stdin, timeout_s=timeout_s)
        if status:
            reason = " ".join(said.split()).removeprefix("fatal: ").rstrip(".") or f"exit status {status}"
            raise NegotiationError("GBE431", where=Place(str(self.folder)), command=arguments[0], reason=reason)
        return output

    def attempt(self, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S) -> tuple[int, bytes, str]:
        """Give the exit status of a command, what it prints, and what it says on stderr.

        Raises:
            NegotiationError: GBE430, there is no git; GBE431, it takes too long.
        """
        command = ["git", "--no-pager", "--literal-pathspecs", *arguments]
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # no terminal to ask at, and one group to end
            )
        except OSError as failure:
            raise NegotiationError("GBE430", reason=failure.strerror or str(failure)) from None
        with process:
            try:
                output, said = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                reason = f"no answer within {timeout_s:g} s"
                raise NegotiationError(
                    "GBE431", where=Place(str(self.folder)), command=arguments[0], reason=reason
                ) from None
        return process.returncode, output, said.decode(errors="replace")

    def line(self, *arguments: str) -> str:
        """Give the one line that a command prints."""
        return _text(self.run(*arguments)).rstrip("\n")

    def fields(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        """Give the fields that a command prints, each with a NUL behind it."""
        return _text(self.run(*arguments, stdin=stdin)).split("\0")[:-1]

    def forbid_filters(self) -> frozenset[str]:
        """Let no filter program run that the settings name; give their names: `{"filter.lfs"}`."""
        keys = self.fields("config", "--list", "--name-only", "-z")
        filters = frozenset(match[1] for match in map(_FILTER_KEY.fullmatch, keys) if match)
        for name in filters:
            self.settings |= {f"{name}.{key}": "" for key in ("clean", "smudge", "process")}
            self.settings[f"{name}.required"] = "false"
        return filters

    def _environment(self) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
        given = {"GIT_CONFIG_COUNT": str(len(self.settings))}
        for number, (key, value) in enumerate(self.settings.items()):
            given |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {**passed, **_ENVIRONMENT, **given, **self.variables}


class Repository:
    """A work tree with its repository, seen from one folder of it.

    Attributes:
        root: The folder; paths are relative to it.
        prefix: Its own path within the work tree, `"services/shop/"`, or empty.
        filters: Filter programs that the settings name and that are not run: `{"filter.lfs"}`.
    """

    def __init__(self, git: Git, prefix: str, filters: frozenset[str]) -> None:
        self.git = git
        self.root = git.folder
        self.prefix = prefix
        self.filters = filters

    @classmethod
    def find(cls, root: str | Path) -> Repository | None:
        """Find the repository that a folder belongs to; None if it belongs to none, or to one without a work tree.

        Raises:
            NegotiationError: GBE430, there is no git; GBE431, git does not want to read it (its owner is somebody else ...).
        """
        git = Git(Path(root).resolve())
        status, output, said = git.attempt("rev-parse", "--is-inside-work-tree", "--show-prefix")
        if status:
            if "not a git repository" in said and not _has_git_folder(git.folder):
                return None
            git.run("rev-parse", "--is-inside-work-tree")
        is_inside, _, prefix = _text(output).partition("\n")
        if is_inside != "true":
            return None
        _check_obedience(git)
        return cls(git, prefix.removesuffix("\n"), git.forbid_filters())

    def head(self) -> str:
        """Give the id of the commit that is checked out; empty before the first commit."""
        status, output, _ = self.git.attempt("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return "" if status else _text(output).strip()

    def branch(self) -> str:
        """Give the full name of the branch that HEAD stands for, `"refs/heads/main"`; empty when HEAD is detached."""
        status, output, _ = self.git.attempt("symbolic-ref", "--quiet", "HEAD")
        return "" if status else _text(output).rstrip("\n")

    def resolve(self, revision: str) -> str:
        """Give the id of the commit that a person calls so.

        Raises:
            NegotiationError: GBE432, there is no such commit.
        """
        named = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        status, output, _ = self.git.attempt(*named) if "\0" not in revision and revision else (1, b"", "")
        if status:
            raise NegotiationError("GBE432", revision=revision)
        return _text(output).strip()

    def list_files(self, revision: str, under: str = "") -> tuple[str, ...]:
        """Give the regular files that a commit, or `STAGED`, has in or below a folder, sorted; no links, no submodules."""
        folder = under.rstrip("/")
        below = (self.prefix + (f"{folder}/" if folder and folder != "." else "")) or ""
        if revision == STAGED:
            found = listed(self.git, "ls-files", "--stage", "--full-name", "-z")
        else:
            found = self._tree(revision, *([below] if below else []))
        return tuple(
            sorted(
                path.removeprefix(self.prefix)
                for (mode, *_), path in found
                if mode in _REGULAR and path.startswith(below)
            )
        )

    def _tree(self, revision: str, *full_paths: str) -> Iterator[tuple[list[str], str]]:
        yield from listed(self.git, "ls-tree", "-r", "-z", "--full-tree", self.resolve(revision), "--", *full_paths)

    def read(self, revision: str, path: str) -> bytes:
        """Give the bytes of a file in a commit, or `STAGED`, with the line ends that a checkout would give it here.

        Raises:
            NegotiationError: GBE431, there is none; GBE432, there is no such commit.
        """
        commit = "" if revision == STAGED else self.resolve(revision)
        return self.git.run("cat-file", "--filters", f"{commit}:{self.prefix}{path}")

    def changed(self, revision: str = "HEAD") -> tuple[FileState, ...]:
        """Give what differs in the work tree from a commit, sorted by path; untracked files count, ignored ones do not."""
        found = {one.path: one for one in self._differing(self.resolve(revision))}
        for path in self.git.fields("ls-files", "--others", "--exclude-standard", "-z"):
            kind: ChangeKind = "modified" if path in found else "added"  # taken out of the index, still there
            found[path] = FileState(path, kind)
        return tuple(sorted(found.values()))

    def staged(self) -> tuple[FileState, ...]:
        """Give what differs in the index from HEAD, sorted by path; before the first commit, all that is staged."""
        base = self.head() or _text(self.git.run("hash-object", "-t", "tree", "--stdin")).strip()
        return tuple(sorted(self._compared(self.git, "diff-index", "--cached", base)))

    def _differing(self, commit: str) -> tuple[FileState, ...]:
        with self.copied_index() as git:  # `git diff` refreshes the index that it reads
            return tuple(self._compared(git, "diff", "--no-ext-diff", "--no-textconv", commit))

    def _compared(self, git: Git, *command: str) -> Iterator[FileState]:
        options = ("--name-status", "-z", "--no-renames", "--ignore-submodules=all", "--relative", "--")
        fields = iter(git.fields(*command, *options))
        for status, path in zip(fields, fields, strict=True):
            yield FileState(path, _KINDS.get(status[:1], "modified"))

    @contextmanager
    def copied_index(self) -> Iterator[Git]:
        """Give git a copy of the index to work with, as old as the index: by its age git tells which entries to distrust."""
        with TemporaryDirectory(prefix="graphbus-git-") as folder:
            copy = Path(folder, "index")
            with suppress(FileNotFoundError):  # before anything was staged
                shutil.copy2(self.index, copy)
            yield self.git.having(GIT_INDEX_FILE=str(copy))

    @property
    def index(self) -> Path:
        """The file with the index."""
        return self.root / self.git.line("rev-parse", "--git-path", "index")

    def entries(self, revision: str, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Give mode and id of the regular files among `paths` that a commit has: path -> `("100644", id)`."""
        if not paths:
            return {}
        full = {f"{self.prefix}{path}": path for path in paths}
        found = self._tree(revision, *full)
        return {full[name]: (mode, blob) for (mode, _, blob), name in found if mode in _REGULAR and name in full}

    def all_entries(self, revision: str) -> dict[str, tuple[str, str]]:
        """Give mode and id of all regular files of a commit below the folder whose names hold no line end."""
        found = self._tree(revision, *([self.prefix] if self.prefix else []))
        return {
            path.removeprefix(self.prefix): (mode, blob)
            for (mode, _, blob), path in found
            if mode in _REGULAR and "\n" not in path
        }

    def blame(self, path: str) -> tuple[str, ...]:
        """Give for every line of a file, as it is now, the id of the commit that wrote it; empty: not committed yet.

        Nothing for a file that HEAD does not have. `UNREACHED` stands for a commit before the beginning of a shallow clone.

        Raises:
            NegotiationError: GBE431, the history of the file cannot be read: objects are missing in a partial clone ...
        """
        head = self.head()
        if not head or not self.entries(head, (path,)):
            return ()
        output = self.git.run("blame", "-M10", "--porcelain", "--no-textconv", "--", path)
        heads = [match[1].decode() for match in map(_BLAMED.match, output.split(b"\n")) if match]
        first = self._first_commits()  # git takes them for the authors of all that they hold
        return tuple("" if set(commit) == {"0"} else UNREACHED if commit in first else commit for commit in heads)

    def _first_commits(self) -> frozenset[str]:
        """Give the commits where the history of a shallow clone begins."""
        shallow = self.root / self.git.line("rev-parse", "--git-path", "shallow")
        with suppress(FileNotFoundError):
            return frozenset(shallow.read_text(encoding="ascii").split())
        return frozenset()

    def messages(self, commits: Iterable[str]) -> dict[str, str]:
        """Give the messages of commits: id -> text."""
        asked = tuple(dict.fromkeys(commits))
        rest = self.git.run("cat-file", "--batch", stdin="".join(f"{commit}\n" for commit in asked).encode())
        found = {}
        for commit in asked:
            head, _, rest = rest.partition(b"\n")
            size = int(head.rpartition(b" ")[2])
            found[commit] = rest[:size].decode(errors="replace").partition("\n\n")[2]
            rest = rest[size + 1 :]
        return found

    def is_on_head(self, commit: str) -> bool:
        """True when a commit is part of the history of HEAD."""
        return not self.git.attempt("merge-base", "--is-ancestor", commit, "HEAD")[0]


def listed(git: Git, *command: str) -> Iterator[tuple[list[str], str]]:
    """Give the facts and the path of each line that `ls-tree` and `ls-files --stage` print."""
    for line in git.fields(*command):
        facts, _, path = line.partition("\t")
        yield facts.split(" "), path


def _text(data: bytes) -> str:
    return os.fsdecode(data)


def _has_git_folder(folder: Path) -> bool:
    """A damaged `.git` is said to be no repository; that must not pass for having none."""
    return (folder / ".git").exists()


def _check_obedience(git: Git) -> None:
    """Refuse a git that does not know settings from the environment (before 2.31): it would run hooks and filters."""
    _, output, _ = git.attempt("config", "--get", "core.hooksPath")
    if _text(output).rstrip("\n") != os.devnull:
        reason = "it is older than 2.31 and cannot be told which programs not to run"
        raise NegotiationError("GBE431", where=Place(str(git.folder)), command="config", reason=reason)


class Difference(NamedTuple):
    """What differs from a revision.

    Attributes:
        commit: The revision's id.
        files: What is judged: path -> bytes before and after.
        links: What is a link or a folder with a repository of its own now.
        others: The paths that differ and are not judged.
    """

    commit: str
    files: Files
    links: frozenset[str]
    others: tuple[str, ...]


def repository_of(root: Path) -> Repository:
    """Give the repository around a project.

    Raises:
        EditError: GBE344, there is none.
    """
    found = Repository.find(root)
    if found is None:
        raise EditError("GBE344", where=Place(str(root)))
    return found


def difference(
    repository: Repository, revision: str, *, is_staged: bool, is_judged: Callable[[str], bool]
) -> Difference:
    """Give what differs from a revision: in the working tree, or in the index.

    Args:
        repository: Of the project's folder.
        revision: What to compare with; for the index it is HEAD.
        is_staged: Take the index.
        is_judged: Tells by its path whether a file counts.
    """
    commit = repository.resolve(revision)
    states = repository.staged() if is_staged else repository.changed(commit)
    in_index = frozenset(repository.list_files(STAGED)) if is_staged else frozenset()
    files: Files = {}
    links, others = set(), []
    for path, kind in states:
        place = repository.root / path
        if not is_staged and kind != "deleted" and (place.is_symlink() or place.is_dir()):
            links.add(path)
        if not is_judged(path):
            others.append(path)
            continue
        in_commit = repository.entries(commit, (path,))
        before = repository.read(commit, path) if path in in_commit else None
        staged = repository.read(STAGED, path) if path in in_index else None
        after = staged if is_staged else _on_disk(place)
        if after != before:
            files[path] = (before, after)
    return Difference(commit, files, frozenset(links), tuple(others))


def _on_disk(place: Path) -> bytes | None:
    return place.read_bytes() if place.is_file() else None


@contextmanager
def tree_at(
    repository: Repository, commit: str, is_wanted: Callable[[str], bool] = lambda _path: True
) -> Iterator[Path]:
    """Give a temporary folder with the project as it is in a commit, or some of its files; it is gone afterwards."""
    with TemporaryDirectory(prefix="graphbus-base-") as folder:
        root = Path(folder).resolve()
        blobs = {path: blob for path, (_, blob) in repository.all_entries(commit).items() if is_wanted(path)}
        for path, data in _contents(repository, blobs):
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield root


def _contents(repository: Repository, blobs: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Read all files in one process, with the line ends that a checkout would give them."""
    asked = "".join(f"{blob} {repository.prefix}{path}\n" for path, blob in blobs.items())
    answer = repository.git.run("cat-file", "--batch", "--filters", stdin=os.fsencode(asked))
    at = 0
    for path in blobs:
        end = answer.index(b"\n", at)
        size_bytes = int(answer[at:end].rpartition(b" ")[2])
        yield path, answer[end + 1 : end + 1 + size_bytes]
        at = end + size_bytes + 2
