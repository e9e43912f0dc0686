"""Commits without a checkout: every commit is made beside the work tree, then HEAD moves once, if it is where it was.

    HEAD -> temporary index + temporary folder -> blobs, trees, commits -> index.lock -> HEAD old => new -> index

No hook runs, no branch is changed but the one that is checked out, and of the index only the entries of the committed files.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from graphbus_core.editing.git import Git, Repository, listed
from graphbus_core.errors import NegotiationError, Place, raise_all

_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}
_SIGNERS = ("gpg.program", "gpg.openpgp.program", "gpg.x509.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand")
_SIGNING_TIMEOUT_S = 120.0
LOCK_WAIT_S = 3.0
"""So long another git, such as the `git status` of an editor, may hold the index."""


class Step(NamedTuple):
    """One commit to be: the new bytes of the files that it changes, and its message."""

    files: Mapping[str, bytes]
    message: str


def open_for_commits(root: str | Path) -> Repository:
    """Give the repository of a project if commits can be made in it.

    Raises:
        NegotiationError: GBE433, there is none, nothing was ever committed, something is under way, nobody has a name ...
    """
    repository = Repository.find(root)
    if repository is None:
        raise _unfit("there is no git repository with a work tree", "Make one with `git init`.", root)
    if not repository.head():
        raise _unfit(
            "nothing was ever committed", "Commit the project first, so that each decision can be reverted.", root
        )
    folder = Path(repository.git.line("rev-parse", "--absolute-git-dir"))
    for name, what in _UNDER_WAY.items():
        if (folder / name).exists():
            raise _unfit(f"{what} is under way", "Finish or abort it first.", root)
    _check_identity(repository)
    _check_signer(repository)
    lock = _lock_of(repository)
    if not any(not lock.exists() for _ in _tries()):
        raise _in_use(repository, lock)
    return repository


def check_files(repository: Repository, paths: Sequence[str]) -> None:
    """Refuse files that git is told to ignore or not to look at, that are in conflict, or that are not what they seem.

    Raises:
        SeveralErrors: GBE434 for each of them.
    """
    raise_all(
        NegotiationError("GBE434", where=Place(path), path=path, reason=reason)
        for path, reason in sorted(dict(_troubles(repository, paths)).items())
    )


def changed_before(repository: Repository, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Give those files whose bytes are not what HEAD has, sorted; untracked ones among them."""
    head = repository.head()
    known = repository.entries(head, tuple(files))
    with _Scratch.opened(repository, head) as scratch:
        scratch.put({path: data for path, data in files.items() if path in known})
        now = scratch.entries()
    return tuple(sorted(path for path in files if path not in known or now[path] != known[path]))


def make_commits(repository: Repository, steps: Sequence[Step], on_made: Callable[[Sequence[str]], object]) -> None:
    """Make one commit after the other on what is checked out, and let HEAD stand for the last; all of them or none.

    Args:
        on_made: Told the ids while no branch has them yet; if it fails, none ever will.

    Raises:
        NegotiationError: GBE431, git refuses; GBE433, HEAD or the index is in use by somebody else; HEAD is as it was.
    """
    head, branch = repository.head(), repository.branch()
    paths = tuple(sorted({path for step in steps for path in step.files}))
    old = repository.entries(head, paths)
    made: list[str] = []
    sign = ("-S",) if _signs(repository) else ()
    with _Scratch.opened(repository, head) as scratch:
        for step in steps:
            scratch.put(step.files)
            tree = scratch.git.line("write-tree", "--missing-ok")  # a partial clone has not all that HEAD has
            parent = made[-1] if made else head
            written = repository.git.run(
                *("commit-tree", *sign, "-p", parent, "-F", "-", tree),
                stdin=step.message.encode(),
                timeout_s=_SIGNING_TIMEOUT_S,
            )
            made.append(written.decode().strip())
        fresh = scratch.entries()
    on_made(made)
    with _locked_index(repository) as lock:
        _renew_index(repository, lock, {path: (old[path], fresh[path]) for path in paths})
        if (repository.head(), repository.branch()) != (head, branch):
            raise _unfit("HEAD was moved meanwhile", "Commit by hand what was written.", repository.root)
        subject = steps[-1].message.partition("\n")[0]
        repository.git.run("update-ref", "-m", f"graphbus: {subject}", "HEAD", made[-1], head)


# --- may commits be made here? ----------------------------------------------------------------


def _unfit(reason: str, advice: str, root: str | Path) -> NegotiationError:
    return NegotiationError("GBE433", where=Place(str(root)), reason=reason, advice=advice)


def _check_identity(repository: Repository) -> None:
    for kind in ("AUTHOR", "COMMITTER"):
        status, _, _ = repository.git.attempt("var", f"GIT_{kind}_IDENT")
        if status:
            advice = "Set both: `git config user.name ...` and `git config user.email ...`."
            raise _unfit(f"git has no name or address for the {kind.lower()} of a commit", advice, repository.root)


def _signs(repository: Repository) -> bool:
    _, output, _ = repository.git.attempt("config", "--type=bool", "--get", "commit.gpgSign")
    return output.strip() == b"true"


def _check_signer(repository: Repository) -> None:
    """A signing program of the person's own settings is trusted; one that came with the repository is not run."""
    if not _signs(repository):
        return
    for key in _SIGNERS:
        _, output, _ = repository.git.attempt(
            "config", "--show-scope", "-z", "--get", key
        )  # files that it includes too
        if output.partition(b"\0")[0] in {b"local", b"worktree"}:
            advice = "Set it in your own settings (`git config --global`), or negotiate without --commit."
            raise _unfit(f"commits are signed, and {key} is a setting of the repository", advice, repository.root)


def _troubles(repository: Repository, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Give path -> why its changes cannot be committed; a later reason outranks an earlier one."""
    submodules = []
    for (flag, mode, _, stage), full in listed(repository.git, "ls-files", "-v", "--stage", "--full-name", "-z"):
        path = full.removeprefix(repository.prefix)
        if mode == "160000":
            submodules.append(f"{path}/")
        elif path in paths and stage != "0":
            yield path, "it is in conflict"
        elif path in paths and flag != "H":
            yield path, "git is told not to look at it (assume-unchanged or skip-worktree)"
    inside = {path for path in paths if path.startswith(tuple(submodules))}
    yield from ((path, "it lies in a submodule") for path in inside)
    yield from _own_troubles(repository, [path for path in paths if path not in inside])


def _own_troubles(repository: Repository, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    git = repository.git
    listed = os.fsencode("".join(f"./{path}\0" for path in paths))  # `./` keeps a name from being a pattern
    status, output, said = git.attempt("--no-literal-pathspecs", "check-ignore", "-z", "--stdin", stdin=listed)
    if status > 1:  # 1: none of them
        raise NegotiationError("GBE431", where=Place(str(git.folder)), command="check-ignore", reason=said.strip())
    for path in os.fsdecode(output).split("\0")[:-1]:
        yield path.removeprefix("./"), "git ignores it"
    attributes = iter(git.fields("check-attr", "-z", "--stdin", "filter", stdin=listed))
    for path, _, name in zip(attributes, attributes, attributes, strict=True):
        if f"filter.{name}" in repository.filters:
            yield path.removeprefix("./"), f"it goes through the program of filter.{name}, which is not run"


# --- beside the work tree ---------------------------------------------------------------------


class _Scratch:
    """A temporary index and a temporary folder: what lands in the index is what `git add` would make of it."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self.repository = repository
        self.folder = folder / "tree"
        self.folder.mkdir()
        self.top = Path(repository.git.line("rev-parse", "--show-toplevel"))
        git_dir = repository.git.line("rev-parse", "--absolute-git-dir")
        places = {"GIT_DIR": git_dir, "GIT_WORK_TREE": str(self.folder), "GIT_INDEX_FILE": str(folder / "index")}
        self.git = Git(self.folder, repository.git.settings, places)
        self._paths: set[str] = set()

    @classmethod
    @contextmanager
    def opened(cls, repository: Repository, commit: str) -> Iterator[_Scratch]:
        """Begin with the tree of a commit."""
        with TemporaryDirectory(prefix="graphbus-git-") as folder:
            scratch = cls(repository, Path(folder))
            scratch.git.run("read-tree", "--no-sparse-checkout", commit)
            yield scratch

    def put(self, files: Mapping[str, bytes]) -> None:
        """Give files that the commit has other bytes; their modes stay."""
        modes = self.entries_of(files)
        for path, data in files.items():
            self._copy_attributes(path)
            target = self.folder / self._full(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(0o755 if modes[path][0] == "100755" else 0o644)
        self._paths |= set(files)
        listed = "".join(f"{self._full(path)}\0" for path in files)
        self.git.run("update-index", "-z", "--stdin", stdin=os.fsencode(listed))

    def _full(self, path: str) -> str:
        return f"{self.repository.prefix}{path}"

    def _copy_attributes(self, path: str) -> None:
        """Line ends are decided by the attributes as they are in the work tree."""
        for folder in PurePosixPath(self._full(path)).parents:
            found, copy = self.top / folder / ".gitattributes", self.folder / folder / ".gitattributes"
            if not copy.exists() and found.is_file() and not found.is_symlink():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, copy)

    def entries(self) -> dict[str, tuple[str, str]]:
        """Give mode and id of every file that was put."""
        return self.entries_of(self._paths)

    def entries_of(self, paths: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Give mode and id of files: path -> `("100644", id)`."""
        full = {self._full(path): path for path in paths}
        if not full:
            return {}  # git would list them all
        return {full[name]: entry for name, entry in _staged(self.git, full).items()}


def _staged(git: Git, paths: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Give mode and id that an index has for files, by their paths relative to the folder that git works in."""
    found = {}
    for (mode, blob, stage), path in listed(git, "ls-files", "--stage", "-z", "--", *paths):
        if stage == "0":
            found[path] = (mode, blob)
    return found


# --- the index of the person -------------------------------------------------------------------


@contextmanager
def _locked_index(repository: Repository) -> Iterator[Path]:
    """Hold the lock of the index, as git itself does; what was written into it becomes the index in the end."""
    lock = _lock_of(repository)
    if not any(_take(lock) for _ in _tries()):
        raise _in_use(repository, lock)
    try:
        yield lock
        if lock.stat().st_size:
            os.replace(lock, repository.index)
    finally:
        with suppress(FileNotFoundError):
            lock.unlink()


def _lock_of(repository: Repository) -> Path:
    index = repository.index
    return index.with_name(f"{index.name}.lock")


def _take(lock: Path) -> bool:
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    return True


def _tries() -> Iterator[None]:
    """Give one try after the other until it has been long enough."""
    until = time.monotonic() + LOCK_WAIT_S
    yield
    while time.monotonic() < until:
        time.sleep(0.05)
        yield


def _in_use(repository: Repository, lock: Path) -> NegotiationError:
    return _unfit("another git process works on the index", f"If no git is at work, remove {lock}.", repository.root)


def _renew_index(
    repository: Repository, lock: Path, changes: Mapping[str, tuple[tuple[str, str], tuple[str, str]]]
) -> None:
    """Write into the lock the index with the new entries of files whose entry is still the old one of HEAD."""
    with repository.copied_index() as git:
        now = _staged(git, changes)
        lines = [
            f"{fresh[0]} {fresh[1]}\t{repository.prefix}{path}\0"
            for path, (old, fresh) in changes.items()
            if now.get(path) == old
        ]
        if not lines:
            return
        git.run("update-index", "-z", "--index-info", stdin=os.fsencode("".join(lines)))
        copy = Path(git.variables["GIT_INDEX_FILE"])
        made, mode = copy.stat(), stat.S_IMODE(repository.index.stat().st_mode)
        lock.write_bytes(copy.read_bytes())
        os.utime(lock, ns=(made.st_atime_ns, made.st_mtime_ns))
        lock.chmod(mode)
