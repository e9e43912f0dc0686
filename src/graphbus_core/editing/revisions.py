"""What somebody changed since a git revision, and the project as it was there: read from git, nothing is checked out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from graphbus_core.editing.git import STAGED, Repository
from graphbus_core.editing.patches import Files
from graphbus_core.errors import EditError, Place

_LINK = "120000"
_REGULAR = ("100644", "100755")


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
        blobs = {path: blob for path, blob in _blobs(repository, commit) if is_wanted(path)}
        for path, data in _contents(repository, blobs):
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        yield root


def _blobs(repository: Repository, commit: str) -> Iterator[tuple[str, str]]:
    below = ("--", repository.prefix) if repository.prefix else ()
    for line in repository.git.fields("ls-tree", "-r", "-z", "--full-tree", commit, *below):
        facts, _, path = line.partition("\t")
        mode, _, blob = facts.split(" ")
        if mode in _REGULAR and "\n" not in path:
            yield path.removeprefix(repository.prefix), blob


def _contents(repository: Repository, blobs: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """Read all files in one process, with the line ends that a checkout would give them."""
    import os

    asked = "".join(f"{blob} {repository.prefix}{path}\n" for path, blob in blobs.items())
    answer = repository.git.run("cat-file", "--batch", "--filters", stdin=os.fsencode(asked))
    at = 0
    for path in blobs:
        end = answer.index(b"\n", at)
        size_bytes = int(answer[at:end].rpartition(b" ")[2])
        yield path, answer[end + 1 : end + 1 + size_bytes]
        at = end + size_bytes + 2
