"""Makes git commits without touching the work tree: all are created first, then HEAD moves once, if it is still where it was.

    HEAD -> temporary index + temporary folder -> blobs, trees, commits -> index.lock -> HEAD old => new -> index

No hook runs. Only the present branch changes, and in the index only the entries of the committed files.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from graphbus_core.editing.git import STAGED, Git, GitEntry, Repository, read_listing
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
"""How long to wait for another git, such as the `git status` of an editor, to release the index."""


class PlannedCommit(NamedTuple):
    """A commit to make: path -> new bytes of the files that it changes, and its message."""

    files: Mapping[str, bytes]
    message: str


def open_for_commits(root: str | Path) -> Repository:
    """Return the repository of a project after checking that commits can be made in it.

    Raises:
        NegotiationError: GBE433, there is no repository or no commit yet, a merge or the like is under way, or git does not know
            who the author is.
    """
    repository = Repository.find(root)
    if repository is None:
        raise _refusal("there is no git repository with a work tree", "Create one with `git init`.", root)
    if not repository.head():
        raise _refusal(
            "there is no commit yet", "Commit the project first, so that each decision can be reverted.", root
        )
    folder = Path(repository.git.line("rev-parse", "--absolute-git-dir"))
    for name, what in _UNDER_WAY.items():
        if (folder / name).exists():
            raise _refusal(f"{what} is under way", "Finish or abort it first.", root)
    _check_identity(repository)
    _check_signer(repository)
    lock = _lock_of(repository)
    _wait_for(repository, lambda: not lock.exists())
    return repository


def check_files(repository: Repository, paths: Sequence[str]) -> None:
    """Check that changes to these files can be committed: they are not ignored, in conflict, in a submodule or filtered.

    Raises:
        SeveralErrors: GBE434 for each file that cannot be.
    """
    raise_all(
        NegotiationError("GBE434", where=Place(path), path=path, reason=reason)
        for path, reason in sorted(dict(_uncommittable(repository, paths)).items())
    )


def make_commits(
    repository: Repository, steps: Sequence[PlannedCommit], on_made: Callable[[Sequence[str]], object]
) -> None:
    """Make commits on top of HEAD, one after the other, and move HEAD to the last; all of them or none.

    Args:
        repository: From `open_for_commits`.
        on_made: Called with their ids before HEAD moves; if it raises, HEAD does not move.

    Raises:
        NegotiationError: GBE431, git fails; GBE433, HEAD was moved or the index is locked. HEAD is as it was.
    """
    head, branch = repository.head(), repository.branch()
    paths = sorted({path for step in steps for path in step.files})
    old = repository.entries(head, *paths)
    made: list[str] = []
    with _scratch_repository(repository, head) as scratch:
        for step in steps:
            _stage_files(repository, scratch, step.files)
            tree = scratch.git.line("write-tree", "--missing-ok")  # a partial clone may lack objects of HEAD
            made.append(_commit(repository, tree, made[-1] if made else head, step.message))
        fresh = scratch.entries(STAGED, *paths)
    on_made(made)
    with _locked_index(repository) as lock:
        _renew_index(repository, lock, {path: (old[path], fresh[path]) for path in paths})
        if (repository.head(), repository.branch()) != (head, branch):
            raise _refusal("HEAD was moved in the meantime", "Commit the written files by hand.", repository.root)
        subject = steps[-1].message.partition("\n")[0]
        repository.git.run("update-ref", "-m", f"graphbus: {subject}", "HEAD", made[-1], head)


def _commit(repository: Repository, tree: str, parent: str, message: str) -> str:
    command = ("commit-tree", *(("-S",) if _signs_commits(repository) else ()), "-p", parent, "-F", "-", tree)
    return repository.git.run(*command, stdin=message.encode(), timeout_s=_SIGNING_TIMEOUT_S).decode().strip()


# --- can commits be made here? ----------------------------------------------------------------


def _refusal(reason: str, advice: str, root: str | Path) -> NegotiationError:
    return NegotiationError("GBE433", where=Place(str(root)), reason=reason, advice=advice)


def _check_identity(repository: Repository) -> None:
    for kind in ("AUTHOR", "COMMITTER"):
        if repository.git.attempt("var", f"GIT_{kind}_IDENT")[0]:
            advice = "Set both: `git config user.name ...` and `git config user.email ...`."
            raise _refusal(
                f"git has no name or e-mail address for the {kind.lower()} of a commit", advice, repository.root
            )


def _signs_commits(repository: Repository) -> bool:
    _, output, _ = repository.git.attempt("config", "--type=bool", "--get", "commit.gpgSign")
    return output.strip() == b"true"


def _check_signer(repository: Repository) -> None:
    """Raise GBE433 if commits are signed with a program from the repository's settings; the user's own is trusted."""
    if not _signs_commits(repository):
        return
    for key in _SIGNERS:
        asked = ("config", "--show-scope", "-z", "--get", key)  # files that the settings include, too
        _, output, _ = repository.git.attempt(*asked)
        if output.partition(b"\0")[0] in {b"local", b"worktree"}:
            advice = "Set it in your own settings (`git config --global`), or negotiate without --commit."
            raise _refusal(f"commits are signed, and {key} is set by the repository itself", advice, repository.root)


def _uncommittable(repository: Repository, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield paths with the reason why their changes cannot be committed; of several reasons the last one counts."""
    git, submodules = repository.git, []
    for (flag, mode, _, stage), full in read_listing(git, "ls-files", "-v", "--stage", "--full-name", "-z"):
        path = full.removeprefix(repository.prefix)
        if mode == "160000":
            submodules.append(f"{path}/")
        elif path in paths and stage != "0":
            yield path, "it has an unresolved merge conflict"
        elif path in paths and flag != "H":
            yield path, "git is told to ignore its changes (assume-unchanged or skip-worktree)"
    inside = [path for path in paths if path.startswith(tuple(submodules))]
    yield from ((path, "it lies in a submodule") for path in inside)
    own = os.fsencode("".join(f"./{path}\0" for path in paths if path not in inside))  # `./`: not read as a pattern
    status, ignored, said = git.attempt("--no-literal-pathspecs", "check-ignore", "-z", "--stdin", stdin=own)
    if status > 1:  # 1: none is ignored
        raise git.refusal("check-ignore", said.strip())
    yield from ((path.removeprefix("./"), "git ignores it") for path in os.fsdecode(ignored).split("\0")[:-1])
    attributes = iter(git.fields("check-attr", "-z", "--stdin", "filter", stdin=own))
    for path, _, name in zip(attributes, attributes, attributes, strict=True):
        if f"filter.{name}" in repository.filters:
            yield (
                path.removeprefix("./"),
                f"git would run the program of filter.{name} on it, which GraphBus does not do",
            )


# --- beside the work tree ---------------------------------------------------------------------


@contextmanager
def _scratch_repository(repository: Repository, commit: str) -> Iterator[Repository]:
    """Yield the same repository with a temporary index, which holds the tree of a commit, and an empty temporary work tree."""
    with TemporaryDirectory(prefix="graphbus-git-") as folder:
        tree = Path(folder, "tree")
        root = tree / repository.prefix
        root.mkdir(parents=True)
        git_dir = repository.git.line("rev-parse", "--absolute-git-dir")
        places = {"GIT_DIR": git_dir, "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": str(Path(folder, "index"))}
        git = Git(root, repository.git.settings, places)
        git.run("read-tree", "--no-sparse-checkout", commit)
        yield Repository(git, repository.prefix, repository.filters)


def _stage_files(repository: Repository, scratch: Repository, files: Mapping[str, bytes]) -> None:
    """Put new bytes of files into the temporary index, converted as `git add` would; their modes stay."""
    modes = scratch.entries(STAGED, *files)
    _copy_attributes(repository, scratch, files)
    for path, data in files.items():
        target = scratch.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o755 if modes[path][0] == "100755" else 0o644)
    scratch.git.run("update-index", "-z", "--stdin", stdin=os.fsencode("".join(f"{path}\0" for path in files)))


def _copy_attributes(repository: Repository, scratch: Repository, paths: Iterable[str]) -> None:
    """Copy the `.gitattributes` of the work tree for these paths: they decide about line ends."""
    top, tree = Path(repository.git.line("rev-parse", "--show-toplevel")), Path(scratch.git.variables["GIT_WORK_TREE"])
    for folder in {above for path in paths for above in PurePosixPath(repository.prefix, path).parents}:
        found, copy = top / folder / ".gitattributes", tree / folder / ".gitattributes"
        if found.is_file() and not found.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, copy)


# --- the user's index ---------------------------------------------------------------------------


@contextmanager
def _locked_index(repository: Repository) -> Iterator[Path]:
    """Hold the lock file of the index, as git does. If the block has written to it, it becomes the new index."""
    lock = _lock_of(repository)
    _wait_for(repository, lambda: _create_lock(lock))
    try:
        yield lock
        if lock.stat().st_size:
            os.replace(lock, repository.index)
    finally:
        lock.unlink(missing_ok=True)


def _lock_of(repository: Repository) -> Path:
    index = repository.index
    return index.with_name(f"{index.name}.lock")


def _create_lock(lock: Path) -> bool:
    """Create the lock file; False if it exists."""
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    return True


def _wait_for(repository: Repository, is_free: Callable[[], bool]) -> None:
    """Call `is_free` until it is true; raise GBE433 if another git holds the index for longer than `LOCK_WAIT_S`."""
    until = time.monotonic() + LOCK_WAIT_S
    while not is_free():
        if time.monotonic() > until:
            advice = f"If no git is running, remove {_lock_of(repository)}."
            raise _refusal("another git process has locked the index", advice, repository.root)
        time.sleep(0.05)


def _renew_index(repository: Repository, lock: Path, changes: Mapping[str, tuple[GitEntry, GitEntry]]) -> None:
    """Write the index with new entries into the lock file, for those files whose entry is still that of the old HEAD."""
    with repository.copied_index() as git:
        now = Repository(git, repository.prefix, repository.filters).entries(STAGED, *changes)
        kept = {path: fresh for path, (old, fresh) in changes.items() if now.get(path) == old}
        if not kept:
            return
        lines = "".join(f"{mode} {blob}\t{repository.prefix}{path}\0" for path, (mode, blob) in kept.items())
        git.run("update-index", "-z", "--index-info", stdin=os.fsencode(lines))
        copy = Path(git.variables["GIT_INDEX_FILE"])
        made, mode_bits = copy.stat(), stat.S_IMODE(repository.index.stat().st_mode)
        lock.write_bytes(copy.read_bytes())
        os.utime(lock, ns=(made.st_atime_ns, made.st_mtime_ns))
        lock.chmod(mode_bits)
