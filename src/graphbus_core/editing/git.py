"""Reads git repositories safely: with plumbing commands that run no program which the repository's own settings name.

No hook, filter, textconv, fsmonitor, pager, prompt or network is used; the index and the work tree stay as they are. Paths are
relative to the folder that the repository was found from, and use `/`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from graphbus_core.errors import EditError, NegotiationError, Place
from graphbus_core.errors.system import reason_of

STAGED = ""
"""Passed instead of a revision: the index."""
UNREACHED = "?"
"""Returned instead of the id of a commit that a shallow clone does not have."""

ChangedFiles = dict[str, tuple[bytes | None, bytes | None]]
"""Path -> bytes before and after; None if there is no such file."""
GitEntry = tuple[str, str]
"""Mode and id of a file in a tree or in the index: `("100644", id)`."""

_TIMEOUT_S = 60.0
_PASSED_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|GNUPGHOME|GPG_TTY|SSH_AUTH_SOCK|EMAIL"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|GIT_CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)|GIT_CEILING_DIRECTORIES"
)
"""The environment variables that git gets: no keys, and none that would select another repository, as git hooks set them."""

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
_BLAME_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ \d+")
_REGULAR = {"100644", "100755"}
_SUBMODULE = "160000"
_NAMES_ONLY = ("--name-only", "-z", "--no-renames", "--ignore-submodules=all", "--relative", "--")


class Git:
    """Runs git in one folder.

    Attributes:
        settings: Settings that override those of the repository.
        variables: Further environment variables.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = _SETTINGS, variables: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.settings = dict(settings)
        self.variables = dict(variables or {})

    def with_variables(self, **variables: str) -> Git:
        """Return a copy with further environment variables."""
        return Git(self.folder, self.settings, {**self.variables, **variables})

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> bytes:
        """Run a git command and return its standard output.

        Raises:
            NegotiationError: GBE430, git is not installed; GBE431, it fails or takes too long.
        """
        status, output, stderr = self.attempt(*arguments, stdin=stdin, timeout_s=timeout_s)
        if status:
            reason = " ".join(stderr.split()).removeprefix("fatal: ").rstrip(".") or f"exit status {status}"
            raise self.refusal(
                arguments[0], reason, "Correct this problem in the repository; `git status` may show more."
            )
        return output

    def attempt(self, *arguments: str, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> tuple[int, bytes, str]:
        """Run a git command and return its exit status, standard output and standard error, even if it fails.

        Raises:
            NegotiationError: GBE430, git is not installed; GBE431, it takes too long.
        """
        command = ["git", "--no-pager", "--literal-pathspecs", *arguments]
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._make_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # without a terminal git cannot prompt, and the whole group can be killed
            )
        except OSError as failure:
            is_missing = isinstance(failure, FileNotFoundError)
            reason = "it was not found on PATH" if is_missing else reason_of(failure)
            raise NegotiationError("GBE430", reason=reason) from None
        with process:
            try:
                output, stderr = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                advice = "Wait until other git commands in this repository have finished."
                raise self.refusal(arguments[0], f"no answer within {timeout_s:g} s", advice) from None
        return process.returncode, output, stderr.decode(errors="replace")

    def line(self, *arguments: str) -> str:
        """Run a command and return the one line that it prints; raises like `run`."""
        return os.fsdecode(self.run(*arguments)).rstrip("\n")

    def fields(self, *arguments: str, stdin: bytes = b"") -> list[str]:
        """Run a command and return its NUL-terminated output fields; raises like `run`."""
        return os.fsdecode(self.run(*arguments, stdin=stdin)).split("\0")[:-1]

    def forbid_filters(self) -> frozenset[str]:
        """Switch off all filter programs of the settings for later commands; return their names: `{"filter.lfs"}`."""
        keys = self.fields("config", "--list", "--name-only", "-z")
        filters = frozenset(match[1] for match in map(_FILTER_KEY.fullmatch, keys) if match)
        for name in filters:
            self.settings |= {f"{name}.{key}": "" for key in ("clean", "smudge", "process")}
            self.settings[f"{name}.required"] = "false"
        return filters

    def batch(self, requests: Iterable[str], *options: str) -> list[bytes]:
        """Return the contents of objects, read by one git process.

        Args:
            requests: Lines of standard input for `git cat-file --batch`.
            options: Its further options.

        Raises:
            NegotiationError: GBE431, an object is missing, as in a partial clone.
        """
        mark = secrets.token_hex(16)  # a separator: the sizes that git prints do not consider `--filters`
        lines = [f"{line}\n" for line in requests]
        output = self.run("cat-file", f"--batch={mark}", *options, stdin=os.fsencode("".join(lines)))
        before, *found = output.split(f"{mark}\n".encode())
        if before or len(found) < len(lines):
            raise self.refusal("cat-file", "an object is not in this clone", "Fetch it with `git fetch --refetch`.")
        return [data[:-1] for data in found]

    def refusal(self, command: str, reason: str, advice: str) -> NegotiationError:
        """Return the error for a git command that failed; `advice` is its hint."""
        where = Place(str(self.folder))
        return NegotiationError("GBE431", where=where, command=command, reason=reason, advice=advice)

    def _make_environment(self) -> dict[str, str]:
        """Return the environment of git: `settings` go into `GIT_CONFIG_*` variables, which override all settings files."""
        passed = {name: value for name, value in os.environ.items() if _PASSED_VARIABLES.fullmatch(name)}
        given = {"GIT_CONFIG_COUNT": str(len(self.settings))}
        for number, (key, value) in enumerate(self.settings.items()):
            given |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {**passed, **_ENVIRONMENT, **given, **self.variables}


class Repository:
    """A repository with a work tree, used from one folder of it.

    Attributes:
        root: The folder; paths are relative to it.
        prefix: The path of the folder in the work tree, e.g. `"services/shop/"`; empty at the top.
        filters: The filter programs in the settings, which are not run: `{"filter.lfs"}`.
    """

    def __init__(self, git: Git, prefix: str, filters: frozenset[str]) -> None:
        self.git = git
        self.root = git.folder
        self.prefix = prefix
        self.filters = filters

    @classmethod
    def find(cls, root: str | Path) -> Repository | None:
        """Return the repository that a folder belongs to; None if there is none, or it has no work tree.

        Raises:
            NegotiationError: GBE430, git is not installed; GBE431, git refuses to read it, e.g. because of its owner.
        """
        git = Git(Path(root).resolve())
        status, output, stderr = git.attempt("rev-parse", "--is-inside-work-tree", "--show-prefix")
        if status:
            if "not a git repository" in stderr and not (git.folder / ".git").exists():  # if it exists, it is damaged
                return None
            git.run("rev-parse", "--is-inside-work-tree")  # fails again, with the error for it
        is_inside, _, prefix = os.fsdecode(output).partition("\n")
        if is_inside != "true":
            return None
        _check_git_version(git)
        return cls(git, prefix.removesuffix("\n"), git.forbid_filters())

    def head(self) -> str:
        """Return the id of the commit that is checked out; empty before the first commit."""
        status, output, _ = self.git.attempt("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return "" if status else os.fsdecode(output).strip()

    def branch(self) -> str:
        """Return the full name of the present branch, e.g. `"refs/heads/main"`; empty if HEAD is detached."""
        status, output, _ = self.git.attempt("symbolic-ref", "--quiet", "HEAD")
        return "" if status else os.fsdecode(output).rstrip("\n")

    def resolve(self, revision: str) -> str:
        """Return the id of the commit that a revision names.

        Raises:
            NegotiationError: GBE432, there is no such commit.
        """
        command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        status, output, _ = self.git.attempt(*command) if "\0" not in revision and revision else (1, b"", "")
        if status:
            raise NegotiationError("GBE432", revision=revision)
        return os.fsdecode(output).strip()

    def entries(self, revision: str, *paths: str) -> dict[str, GitEntry]:
        """Return the regular files below the folder in a commit or the index, by path; no links, no submodules.

        Args:
            revision: A revision, or `STAGED`.
            paths: Only these paths; without any, all.
        """
        commit = () if revision == STAGED else (self.resolve(revision),)
        command = ("ls-tree", "-r") if commit else ("ls-files", "--stage")
        found = {}
        for (mode, *ids), path in read_listing(self.git, *command, "-z", *commit, "--", *paths):
            # `ids` is (type, id) in a commit and (id, stage) in the index, where other stages than 0 are conflicts
            blob = ids[1] if commit else ids[0] if ids[1] == "0" else ""
            if mode in _REGULAR and blob:
                found[path] = (mode, blob)
        return found

    def submodules(self, revision: str, *paths: str) -> tuple[str, ...]:
        """Return the submodules below the folder in a commit, whose files are in another repository."""
        listed = read_listing(self.git, "ls-tree", "-r", "-z", self.resolve(revision), "--", *paths)
        return tuple(path for (mode, *_), path in listed if mode == _SUBMODULE)

    def is_shallow(self) -> bool:
        """True if the clone does not have the whole history."""
        return self.git.line("rev-parse", "--is-shallow-repository") == "true"

    def contents(self, entries: Mapping[str, GitEntry]) -> Iterator[tuple[str, bytes]]:
        """Yield path and bytes of files by their entries, with the line ends that a checkout would give them."""
        plain = [path for path in entries if "\n" not in path]
        requests = (f"{entries[path][1]} {self.prefix}{path}" for path in plain)
        yield from zip(plain, self.git.batch(requests, "--filters"), strict=True)
        for path in entries.keys() - set(plain):  # a path with a line feed does not fit into a line of `batch`
            yield path, self.git.run("cat-file", "--filters", f"--path={self.prefix}{path}", entries[path][1])

    def changed(self, revision: str = "HEAD") -> tuple[str, ...]:
        """Return the sorted paths that differ between work tree and commit, untracked ones included, ignored ones not."""
        others = self.git.fields("ls-files", "--others", "--exclude-standard", "-z")
        return tuple(sorted({*self._find_differing(self.resolve(revision)), *others}))

    def uncommitted(self, paths: Sequence[str]) -> list[str]:
        """Return those of these paths that differ from HEAD or are not in it; there must be a commit."""
        head = self.head()
        known, differing = self.entries(head, *paths), self._find_differing(head, *paths)
        return [path for path in paths if path not in known or path in differing]

    def _find_differing(self, commit: str, *paths: str) -> list[str]:
        """Return which of these paths differ between a commit and the work tree; without paths, all that differ.

        Untracked files are not among them.
        """
        with self.copied_index() as git:  # `git diff` writes to the index that it reads
            return git.fields("diff", "--no-ext-diff", "--no-textconv", commit, *_NAMES_ONLY, *paths)

    def staged(self) -> tuple[str, ...]:
        """Return the paths that differ between the index and HEAD, sorted; before the first commit, all in the index."""
        base = self.head() or os.fsdecode(self.git.run("hash-object", "-t", "tree", "--stdin")).strip()
        return tuple(sorted(self.git.fields("diff-index", "--cached", base, *_NAMES_ONLY)))

    @contextmanager
    def copied_index(self) -> Iterator[Git]:
        """Yield a `Git` that uses a temporary copy of the index, deleted at the end of the block.

        The copy keeps the time stamp of the index, by which git knows which files are unchanged.
        """
        with TemporaryDirectory(prefix="graphbus-git-") as folder:
            copy = Path(folder, "index")
            with suppress(FileNotFoundError):  # before anything was staged
                shutil.copy2(self.index, copy)
            yield self.git.with_variables(GIT_INDEX_FILE=str(copy))

    @property
    def index(self) -> Path:
        """The path of the index file."""
        return self.root / self.git.line("rev-parse", "--git-path", "index")

    def blame(self, path: str) -> tuple[str, ...]:
        """Return for every line of a file in the work tree the id of the commit that wrote the line.

        The id is `""` for a line that is not committed, and `UNREACHED` for a commit that a shallow clone lacks. The result is
        empty for a file that HEAD does not have.

        Raises:
            NegotiationError: GBE431, the history cannot be read, e.g. because a partial clone lacks objects.
        """
        head = self.head()
        if not head or not self.entries(head, path):
            return ()
        output = self.git.run("blame", "-M10", "--porcelain", "--no-textconv", "--", path)
        commits = [match[1].decode() for match in map(_BLAME_HEADER.match, output.split(b"\n")) if match]
        first = self._first_commits()  # git attributes every older line to them
        return tuple("" if set(commit) == {"0"} else UNREACHED if commit in first else commit for commit in commits)

    def _first_commits(self) -> frozenset[str]:
        """Return the commits at which the history of a shallow clone begins; empty for a complete clone."""
        shallow = self.root / self.git.line("rev-parse", "--git-path", "shallow")
        with suppress(FileNotFoundError):
            return frozenset(shallow.read_text(encoding="ascii").split())
        return frozenset()

    def messages(self, commits: Iterable[str]) -> dict[str, str]:
        """Return the messages of commits: id -> text; raise GBE431 if one is not in this clone."""
        requests = tuple(dict.fromkeys(commits))
        texts = (data.decode(errors="replace").partition("\n\n")[2] for data in self.git.batch(requests))
        return dict(zip(requests, texts, strict=True))

    def is_on_head(self, commit: str) -> bool:
        """True if a commit is part of the history of HEAD."""
        return not self.git.attempt("merge-base", "--is-ancestor", commit, "HEAD")[0]


def read_listing(git: Git, *command: str) -> Iterator[tuple[list[str], str]]:
    """Yield (columns before the tab, path) for each entry that a git command with `-z` prints: `ls-tree`, `ls-files --stage`."""
    for line in git.fields(*command):
        facts, _, path = line.partition("\t")
        yield facts.split(" "), path


def _check_git_version(git: Git) -> None:
    """Raise GBE431 if git ignores settings from the environment, as before version 2.31: it would run hooks and filters."""
    _, output, _ = git.attempt("config", "--get", "core.hooksPath")
    if os.fsdecode(output).rstrip("\n") != os.devnull:
        raise git.refusal(
            "config",
            "git is older than version 2.31, which is needed to keep git from running other programs",
            "Update git.",
        )


class Difference(NamedTuple):
    """The difference from a revision.

    Attributes:
        commit: The id of the revision.
        files: The selected files that differ: path -> bytes before and after, None for a missing file.
        links: Paths that are now symbolic links or nested repositories; empty for the index.
        others: Paths that differ and were not selected.
    """

    commit: str
    files: ChangedFiles
    links: frozenset[str]
    others: tuple[str, ...]


def repository_of(root: Path) -> Repository:
    """Return the repository that a project belongs to.

    Raises:
        EditError: GBE344, there is none.
    """
    found = Repository.find(root)
    if found is None:
        raise EditError("GBE344", where=Place(str(root)))
    return found


def difference_from(
    repository: Repository, revision: str, *, is_staged: bool, is_judged: Callable[[str], bool]
) -> Difference:
    """Return the difference between a revision and the work tree or the index.

    Args:
        repository: The repository of the project's folder.
        revision: The revision to compare with; HEAD for the index.
        is_staged: Compare the index instead of the work tree.
        is_judged: Returns True for a path to select.

    Raises:
        NegotiationError: GBE432, there is no such revision; GBE431, git fails.
    """
    commit, root = repository.resolve(revision), repository.root
    paths = repository.staged() if is_staged else repository.changed(commit)
    judged = [path for path in paths if is_judged(path)]
    before = _read_files(repository, commit, judged)
    on_disk = [path for path in judged if not is_staged and (root / path).is_file()]
    after = (
        _read_files(repository, STAGED, judged) if is_staged else {path: (root / path).read_bytes() for path in on_disk}
    )
    files: ChangedFiles = {path: (before.get(path), after.get(path)) for path in judged}
    links = () if is_staged else (path for path in paths if (root / path).is_symlink() or (root / path).is_dir())
    differing = {path: pair for path, pair in files.items() if pair[0] != pair[1]}
    return Difference(commit, differing, frozenset(links), tuple(path for path in paths if path not in files))


def _read_files(repository: Repository, revision: str, paths: list[str]) -> dict[str, bytes]:
    """Return path -> bytes in a revision, or in the index for `STAGED`; paths that it does not have are left out."""
    known = repository.entries(revision)
    return dict(repository.contents({path: known[path] for path in paths if path in known}))


@contextmanager
def tree_at(
    repository: Repository, commit: str, is_wanted: Callable[[str], bool] = lambda _path: True
) -> Iterator[Path]:
    """Yield a temporary folder with those files of a commit whose paths `is_wanted` accepts; it is deleted afterwards."""
    with TemporaryDirectory(prefix="graphbus-base-") as folder:
        root = Path(folder).resolve()
        wanted = {path: entry for path, entry in repository.entries(commit).items() if is_wanted(path)}
        for path, data in repository.contents(wanted):
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield root
