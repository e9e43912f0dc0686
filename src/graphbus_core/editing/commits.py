"""Makes git commits without touching the work tree: all are created first, then HEAD moves once, unless it has moved meanwhile.

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

_UNFINISHED_OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}
"""File or folder in the git directory -> the operation of git that is unfinished while it exists."""
_SIGNERS = ("gpg.program", "gpg.openpgp.program", "gpg.x509.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand")
"""The settings that name a program which signs commits."""
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
        NegotiationError: GBE433, there is no repository or no commit yet, a merge or the like is under way, git does not know the
            author, the repository itself sets a signing program, or its index stays locked.
    """
    repository = Repository.find(root)
    if repository is None:
        raise _refusal_error("there is no git repository with a work tree", "Create one with `git init`.", root)
    if not repository.head():
        raise _refusal_error(
            "there is no commit yet", "Commit the project first, so that each decision can be reverted.", root
        )
    folder = Path(repository.git.line("rev-parse", "--absolute-git-dir"))
    for name, what in _UNFINISHED_OPERATIONS.items():
        if (folder / name).exists():
            raise _refusal_error(f"{what} is under way", "Finish or abort it, then run the command again.", root)
    _check_identity(repository)
    _check_signer(repository)
    lock = _index_lock_path(repository)
    _wait_until_unlocked(repository, lambda: not lock.exists())
    return repository


def check_files(repository: Repository, paths: Sequence[str]) -> None:
    """Check that git neither ignores nor filters these files, and that none is in conflict or in a submodule.

    Raises:
        NegotiationError: GBE434, changes to one of the files cannot be committed.
        SeveralErrors: GBE434 for more than one file.
    """
    raise_all(
        NegotiationError("GBE434", where=Place(path), reason=reason, advice=advice)
        for path, (reason, advice) in sorted(dict(_find_uncommittable(repository, paths)).items())
    )


def make_commits(
    repository: Repository, steps: Sequence[PlannedCommit], on_made: Callable[[Sequence[str]], object]
) -> None:
    """Make commits on top of HEAD, one after the other, and move HEAD to the last; all of them or none.

    Args:
        repository: From `open_for_commits`.
        steps: The commits, at least one; their files must be in HEAD.
        on_made: Called with the ids of the commits before HEAD moves; if it raises, HEAD does not move.

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
            made.append(_create_commit(repository, tree, made[-1] if made else head, step.message))
        fresh = scratch.entries(STAGED, *paths)
    on_made(made)
    with _locked_index(repository) as lock:
        _write_new_index(repository, lock, {path: (old[path], fresh[path]) for path in paths})
        if (repository.head(), repository.branch()) != (head, branch):
            raise _refusal_error("HEAD was moved in the meantime", "Commit the written files by hand.", repository.root)
        subject = steps[-1].message.partition("\n")[0]
        repository.git.run("update-ref", "-m", f"graphbus: {subject}", "HEAD", made[-1], head)


def _create_commit(repository: Repository, tree: str, parent: str, message: str) -> str:
    """Create a commit of a tree, signed if the settings of git say so, and return its id; HEAD does not move."""
    command = ("commit-tree", *(("-S",) if _signs_commits(repository) else ()), "-p", parent, "-F", "-", tree)
    return repository.git.run(*command, stdin=message.encode(), timeout_s=_SIGNING_TIMEOUT_S).decode().strip()


# --- can commits be made here? ----------------------------------------------------------------


def _refusal_error(reason: str, advice: str, root: str | Path) -> NegotiationError:
    """Return GBE433: no commit can be made in the repository at `root`, for this reason; `advice` is the hint."""
    return NegotiationError("GBE433", where=Place(str(root)), reason=reason, advice=advice)


def _check_identity(repository: Repository) -> None:
    """Raise GBE433 if git has no name or e-mail address for the author or the committer."""
    for kind in ("AUTHOR", "COMMITTER"):
        if repository.git.attempt("var", f"GIT_{kind}_IDENT")[0]:
            advice = "Set both: `git config user.name ...` and `git config user.email ...`."
            raise _refusal_error(
                f"git has no name or e-mail address for the {kind.lower()} of a commit", advice, repository.root
            )


def _signs_commits(repository: Repository) -> bool:
    """True if the settings of git say that commits are signed."""
    _, output, _ = repository.git.attempt("config", "--type=bool", "--get", "commit.gpgSign")
    return output.strip() == b"true"


def _check_signer(repository: Repository) -> None:
    """Raise GBE433 if the repository's own settings name the signing program; one from the user's settings is trusted."""
    if not _signs_commits(repository):
        return
    for key in _SIGNERS:
        _, output, _ = repository.git.attempt("config", "--show-scope", "-z", "--get", key)
        if output.partition(b"\0")[0] in {b"local", b"worktree"}:
            advice = "Set it in your own settings (`git config --global`), or negotiate without --commit."
            raise _refusal_error(
                f"commits are signed, and {key} is set by the repository itself", advice, repository.root
            )


def _find_uncommittable(repository: Repository, paths: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (path, (reason, hint)) for each reason why changes of a path cannot be committed; the caller keeps the last."""
    git, submodules = repository.git, []
    for (flag, mode, _, stage), full in read_listing(git, "ls-files", "-v", "--stage", "--full-name", "-z"):
        path = full.removeprefix(repository.prefix)
        if mode == "160000":
            submodules.append(f"{path}/")
        elif path in paths and stage != "0":
            yield path, ("it has an unresolved merge conflict", "Resolve the conflict.")
        elif path in paths and flag != "H":
            advice = "Run `git update-index --no-assume-unchanged --no-skip-worktree` on the file."
            yield path, ("git is set to ignore its changes (assume-unchanged or skip-worktree)", advice)
    inside = [path for path in paths if path.startswith(tuple(submodules))]
    yield from ((path, ("it lies in a submodule", "Negotiate in the submodule itself.")) for path in inside)
    listed = os.fsencode("".join(f"./{path}\0" for path in paths if path not in inside))  # `./`: not read as a pattern
    status, ignored, stderr = git.attempt("--no-literal-pathspecs", "check-ignore", "-z", "--stdin", stdin=listed)
    if status > 1:  # 0: some are ignored, 1: none
        raise git.refusal("check-ignore", stderr.strip(), "Correct the `.gitignore` files of this repository.")
    pair = "git ignores it", "Remove the pattern from `.gitignore`; `git check-ignore -v` shows where it is."
    yield from ((path.removeprefix("./"), pair) for path in os.fsdecode(ignored).split("\0")[:-1])
    attributes = iter(git.fields("check-attr", "-z", "--stdin", "filter", stdin=listed))
    for path, _, name in zip(attributes, attributes, attributes, strict=True):
        if f"filter.{name}" in repository.filters:
            reason = f"git would run the program of filter.{name} on it, which GraphBus does not do"
            yield path.removeprefix("./"), (reason, "Remove the filter from `.gitattributes`.")


# --- beside the work tree ---------------------------------------------------------------------


@contextmanager
def _scratch_repository(repository: Repository, commit: str) -> Iterator[Repository]:
    """Yield the same repository with a temporary index and work tree, which are deleted at the end of the block.

    The index holds the tree of the commit; the work tree is empty. Objects are written to the real repository.
    """
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
    """Put new bytes of files into the temporary index, converted as by `git add`; each file keeps its mode."""
    modes = scratch.entries(STAGED, *files)
    _copy_attribute_files(repository, scratch, files)
    for path, data in files.items():
        target = scratch.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o755 if modes[path][0] == "100755" else 0o644)
    scratch.git.run("update-index", "-z", "--stdin", stdin=os.fsencode("".join(f"{path}\0" for path in files)))


def _copy_attribute_files(repository: Repository, scratch: Repository, paths: Iterable[str]) -> None:
    """Copy the `.gitattributes` that apply to these paths, e.g. for line ends, into the temporary work tree."""
    top, tree = Path(repository.git.line("rev-parse", "--show-toplevel")), Path(scratch.git.variables["GIT_WORK_TREE"])
    for folder in {above for path in paths for above in PurePosixPath(repository.prefix, path).parents}:
        found, copy = top / folder / ".gitattributes", tree / folder / ".gitattributes"
        if found.is_file() and not found.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, copy)


# --- the user's index ---------------------------------------------------------------------------


@contextmanager
def _locked_index(repository: Repository) -> Iterator[Path]:
    """Hold the lock file of the index, as git does, and yield its path; raise GBE433 if another git holds it for too long.

    If the block writes to the lock file, that file replaces the index; after an exception the index stays as it is.
    """
    lock = _index_lock_path(repository)
    _wait_until_unlocked(repository, lambda: _create_lock(lock))
    try:
        yield lock
        if lock.stat().st_size:
            os.replace(lock, repository.index)
    finally:
        lock.unlink(missing_ok=True)


def _index_lock_path(repository: Repository) -> Path:
    """Return the path of the lock file that git makes while it writes the index."""
    index = repository.index
    return index.with_name(f"{index.name}.lock")


def _create_lock(lock: Path) -> bool:
    """Create the lock file and return True; return False if it exists already."""
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        return False
    return True


def _wait_until_unlocked(repository: Repository, is_free: Callable[[], bool]) -> None:
    """Call `is_free` until it returns True; raise GBE433 if that takes longer than `LOCK_WAIT_S`."""
    until = time.monotonic() + LOCK_WAIT_S
    while not is_free():
        if time.monotonic() > until:
            advice = f"Run the command again. If no git is running, first remove {_index_lock_path(repository)}."
            raise _refusal_error("another git process has locked the index", advice, repository.root)
        time.sleep(0.05)


def _write_new_index(repository: Repository, lock: Path, changes: Mapping[str, tuple[GitEntry, GitEntry]]) -> None:
    """Write a copy of the index with new entries into the lock file; write nothing if no entry is to be replaced.

    `changes` is path -> entry in the old HEAD and new entry. A file gets its new entry only if its present one is that of the old
    HEAD, so that other staged changes stay.
    """
    with repository.copied_index() as git:
        now = Repository(git, repository.prefix, repository.filters).entries(STAGED, *changes)
        renewed = {path: fresh for path, (old, fresh) in changes.items() if now.get(path) == old}
        if not renewed:
            return
        lines = "".join(f"{mode} {blob}\t{repository.prefix}{path}\0" for path, (mode, blob) in renewed.items())
        git.run("update-index", "-z", "--index-info", stdin=os.fsencode(lines))
        copy = Path(git.variables["GIT_INDEX_FILE"])
        written, mode_bits = copy.stat(), stat.S_IMODE(repository.index.stat().st_mode)
        lock.write_bytes(copy.read_bytes())
        os.utime(lock, ns=(written.st_atime_ns, written.st_mtime_ns))  # git trusts entries by the time of the index
        lock.chmod(mode_bits)
