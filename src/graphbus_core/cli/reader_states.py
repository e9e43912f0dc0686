"""Two states of a repository for a reader: the Python files of revisions, of the working tree and of folders, without a checkout.

A file that both states have is read once, from the disk if one state is the working tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from graphbus_core.cli.states import REASONS, REVISION, merge_base, reason_of_revision
from graphbus_core.contracts.messages import Messages, Unread
from graphbus_core.editing.git import GitEntry, Repository, read_listing, repository_of
from graphbus_core.errors import GraphBusError, UsageError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.seam import Project, Reader

_SUBMODULE, _LINK = "160000", "120000"
_OTHER = {
    _SUBMODULE: "a submodule that has changed; its files are in another repository",
    _LINK: "a symbolic link that has changed, which is not followed",
}
"""Mode in git -> why what is there is not read."""
_REGULAR = ("100644", "100755")
_WORKING_TREE = "the working tree"
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__"})


class ReaderState(NamedTuple):
    """What a reader found in one state.

    Attributes:
        label: Its name in messages.
        messages: Who sends what.
        root: The folder that paths are relative to; empty for a revision.
        agents: Empty, because a reader knows no agents.
        digest: Empty, because nothing was built.
    """

    label: str
    messages: Messages
    root: str = ""
    agents: frozenset[str] = frozenset()
    digest: str = ""


class _Files(NamedTuple):
    """The Python files of one state.

    Attributes:
        label: Its name in messages.
        versions: Path -> what distinguishes its text from that of another state, such as the id of the object.
        read: Returns the bytes of a path.
        others: Path -> its mode and version in git, of submodules and links.
        root: The folder on disk; empty for a revision.
    """

    label: str
    versions: Mapping[str, str]
    read: Callable[[str], bytes]
    others: Mapping[str, tuple[str, str]] = {}
    root: str = ""


def read_both(old: str, new: str, reader: Reader, paths: Sequence[str]) -> tuple[ReaderState, ReaderState]:
    """Read two states.

    Args:
        old: A folder or a revision; with the working tree as new state, the commit in which HEAD left the revision.
        new: A folder or a revision; empty for the working tree.
        reader: Reads the messages.
        paths: Only files below these paths; empty for all.

    Raises:
        UsageError: GBE171, a name is neither a folder nor a revision.
        NegotiationError: GBE431, git fails.
    """
    before, after = _find_files(old, new)
    tops = [os.path.normpath(path) for path in paths]
    kept = [{path for path in each.versions if not tops or _is_below(path, tops)} for each in (before, after)]
    changed = {path for path in kept[0] | kept[1] if before.versions.get(path) != after.versions.get(path)}
    focus = frozenset({*changed, *map(_same_module, changed)})
    memory: dict[Hashable, object] = {}
    was, now = (
        reader.read(Project(names, side.read, focus, memory)) for side, names in zip((before, after), kept, strict=True)
    )
    return (
        ReaderState(before.label, _complete(was, now, focus, _changed_others(before, after)), before.root),
        ReaderState(after.label, _complete(now, was, focus, _changed_others(after, before)), after.root),
    )


def _same_module(path: str) -> str:
    """Return the path that means the same module: a package hides a file with its name."""
    return f"{path.removesuffix('/__init__.py')}.py" if path.endswith("/__init__.py") else f"{path[:-3]}/__init__.py"


def _complete(found: Messages, other: Messages, focus: Collection[str], unread: Sequence[Unread]) -> Messages:
    """Return the messages of a state with those in files that both states have, even if only the other reading met them."""
    known = {each.span for each in found.producers} | {each.span for each in found.consumers}
    consumers = [each for each in other.consumers if each.span.path not in focus and each.key not in found.by_key]
    consumers = [each for each in consumers if each.span not in known]
    shared = [each for each in other.producers if each.span.path not in focus and each.span not in known]
    producers = [replace(each) for each in shared]  # `both_ways` tells the producers of two builds apart by identity
    return Messages((*found.producers, *producers), (*found.consumers, *consumers), (*found.unread, *unread))


def read_one(name: str, reader: Reader, paths: Sequence[str]) -> ReaderState:
    """Read one state as a whole: a folder, a revision, or without a name the working tree; raises like `read_both`."""
    side = _folder(name) if _is_folder(name) else _revision(name) if name else _against_working_tree("HEAD")[1]
    tops = [os.path.normpath(path) for path in paths]
    kept = {path for path in side.versions if not tops or _is_below(path, tops)}
    return ReaderState(side.label, reader.read(Project(kept, side.read)), side.root)


def _is_below(path: str, tops: Collection[str]) -> bool:
    return any(top in (".", path) or path.startswith(f"{top}/") for top in tops)


def _changed_others(side: _Files, other: _Files) -> list[Unread]:
    """Return the submodules and links that are not the same in another state."""
    changed = [(path, each[0]) for path, each in side.others.items() if other.others.get(path) != each]
    return [Unread(SourceSpan(path, 1, 0, 1, 0), _OTHER[mode]) for path, mode in changed]


def _find_files(old: str, new: str) -> tuple[_Files, _Files]:
    """Return the files of both states."""
    if new or _is_folder(old):
        first, second = (
            _folder(name or ".") if _is_folder(name) or not name else _revision(name) for name in (old, new)
        )
        return first, second
    return _against_working_tree(old)


def _is_folder(name: str) -> bool:
    return bool(name) and not name.startswith(REVISION) and os.path.isdir(name)


def _folder(name: str) -> _Files:
    """Return the files of a folder; their versions are those that git would give them."""
    root = Path(name).resolve()
    found: dict[str, str] = {}
    links: dict[str, tuple[str, str]] = {}
    for place, folders, files in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _SKIPPED]
        for path in (Path(place, each) for each in (*folders, *files)):
            name_below = path.relative_to(root).as_posix()
            if path.is_symlink():
                links[name_below] = _LINK, _version(os.fsencode(os.readlink(path)))
            elif path.suffix == ".py" and path.is_file():
                found[name_below] = _version(path.read_bytes())
    return _Files(name, found, lambda path: (root / path).read_bytes(), links, str(root))


def _version(text: bytes) -> str:
    """Return the id that git gives a text."""
    return sha1(b"blob %d\0%b" % (len(text), text)).hexdigest()  # noqa: S324


def _revision(name: str) -> _Files:
    with _named(name) as revision:
        repository = _find_repository()
        commit = repository.resolve(revision)
    return _files_of_commit(repository, commit, f"{revision} ({commit[:7]})")


@contextmanager
def _named(name: str) -> Iterator[str]:
    """Yield a name without `rev:`; raise GBE171 if the block finds no repository or no such commit."""
    revision = name.removeprefix(REVISION)
    try:
        yield revision
    except GraphBusError as error:
        if error.code not in REASONS:
            raise
        raise UsageError("GBE171", name=revision, reason=reason_of_revision(error, Path.cwd())) from None


def _find_repository() -> Repository:
    """Return the repository around the working directory, seen from its top."""
    return repository_of(Path(repository_of(Path.cwd()).git.line("rev-parse", "--show-toplevel")))


def _files_of_commit(repository: Repository, commit: str, label: str, only: Collection[str] | None = None) -> _Files:
    """Return the files of a commit; all, or those among `only`, are read at once when the first is asked for."""
    entries: dict[str, GitEntry] = {}
    others = {}
    for (mode, _, blob), path in read_listing(repository.git, "ls-tree", "-r", "-z", commit):
        if mode in _OTHER:
            others[path] = mode, blob
        elif mode in _REGULAR and path.endswith(".py"):
            entries[path] = (mode, blob)
    texts: dict[str, bytes] = {}

    def read(path: str) -> bytes:
        if not texts:
            wanted = entries if only is None else {each: entries[each] for each in entries.keys() & only}
            texts.update(repository.contents(wanted))
        return texts[path]

    return _Files(label, {path: blob for path, (_, blob) in entries.items()}, read, others)


def _against_working_tree(name: str) -> tuple[_Files, _Files]:
    """Return the files where HEAD left a revision, and those on disk."""
    with _named(name) as revision:
        repository = _find_repository()
        commit, label = merge_base(repository, revision)
    differing, root = repository.changed(commit), repository.root
    links = {path for path in differing if (root / path).is_symlink()}
    changed = {path for path in differing if path.endswith(".py")}
    on_disk = {path: "" for path in changed if (root / path).is_file() and path not in links}
    old = _files_of_commit(repository, commit, f"{label} ({commit[:7]})", changed)
    kept = {path: blob for path, blob in old.versions.items() if path not in changed}

    def read_old(path: str) -> bytes:
        return old.read(path) if path in changed else (root / path).read_bytes()

    listing = read_listing(repository.git, "ls-files", "--stage", "-z")
    others = {path: (mode, blob) for (mode, blob, _), path in listing if mode in _OTHER}
    if any(mode == _SUBMODULE for mode, _ in others.values()):
        moved = repository.git.fields("diff-files", "--name-only", "-z", "--ignore-submodules=dirty")
        others |= {path: (_SUBMODULE, "another commit") for path in moved if others.get(path, ("",))[0] == _SUBMODULE}
    others = {path: each for path, each in others.items() if each[0] == _SUBMODULE or path not in differing}
    others |= {path: (_LINK, _version(os.fsencode(os.readlink(root / path)))) for path in links}
    new = _Files(_WORKING_TREE, {**kept, **on_disk}, lambda path: (root / path).read_bytes(), others, str(root))
    return old._replace(read=read_old), new
