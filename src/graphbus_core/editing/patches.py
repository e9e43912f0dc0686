"""Patches of git and of `diff -u`, applied by `git apply` to copies of the files that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from graphbus_core.editing.git import ChangedFiles, Git
from graphbus_core.errors import EditError, Place

_HAS_PREFIXES = re.compile(rb'^(?:--- "?a/|\+\+\+ "?b/|diff --git "?a/)', re.MULTILINE)
_FAILED_AT = re.compile(r"error: patch failed: (.+):(\d+)")
_FAILED = re.compile(r"error: (.+?): (.+)")
_OPTIONS = ("--whitespace=nowarn", "--no-ignore-whitespace")


def apply_patch(patch: bytes, read: Callable[[str], bytes | None]) -> ChangedFiles:
    """Return the files that a patch names, each before and after it. The line ends of the files stay.

    Args:
        patch: The patch; an empty one changes nothing.
        read: Returns the bytes of a file by its relative path; None if the project has no such file.

    Raises:
        EditError: GBE341, the patch does not apply; GBE342, it is not a patch, or it creates a symbolic link.
        NegotiationError: GBE430, git is not installed.
    """
    patch = patch.replace(b"\r\n", b"\n")
    if not patch.strip():
        return {}
    with TemporaryDirectory(prefix="graphbus-patch-") as name:
        folder = Path(name).resolve()
        git = _git(folder)
        level, paths = _named(git, patch, read)
        before = {path: read(path) for path in paths}
        for path, data in before.items():
            if data is not None and ".git" not in PurePosixPath(path.lower()).parts:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data.replace(b"\r\n", b"\n"))
        status, _, said = git.attempt("apply", level, *_OPTIONS, "-", stdin=patch)
        if status:
            raise _refused(said)
        return {path: (data, _result(folder / path, path, data)) for path, data in before.items()}


def _git(folder: Path) -> Git:
    """Return a git that does not see a repository around the folder, and runs no program that a setting names."""
    git = Git(folder).with_variables(GIT_CEILING_DIRECTORIES=str(folder.parent), GIT_ATTR_NOSYSTEM="1")
    git.settings |= {"core.autocrlf": "false", "core.attributesFile": "/dev/null"}
    git.forbid_filters()
    return git


def _named(git: Git, patch: bytes, read: Callable[[str], bytes | None]) -> tuple[str, list[str]]:
    """Return the `-p` option of git for a patch (how many leading folders to strip), and the paths that result."""
    levels = ("-p1",) if _HAS_PREFIXES.search(patch) else ("-p0", "-p1")
    found: list[tuple[str, list[str]]] = []
    reasons = []
    for level in levels:
        try:
            found.append((level, sorted({*_paths(git, patch, level), *_paths(git, patch, level, "--reverse")})))
        except EditError as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    return next((each for each in found if any(read(path) is not None for path in each[1])), found[0])


def _paths(git: Git, patch: bytes, *options: str) -> Iterator[str]:
    """Yield the paths that a patch writes; with `--reverse`, those that it reads."""
    status, output, said = git.attempt("apply", "--numstat", "-z", *options, "-", stdin=patch)
    if status:
        raise EditError("GBE342", reason=_sentence(said))
    for line in output.decode(errors="surrogateescape").split("\0")[:-1]:
        yield line.split("\t", 2)[2]


def _result(place: Path, path: str, before: bytes | None) -> bytes | None:
    if place.is_symlink():
        raise EditError("GBE342", where=Place(path), reason="it creates a symbolic link")
    if not place.is_file():
        return None
    data = place.read_bytes()
    return data.replace(b"\n", b"\r\n") if before and b"\r\n" in before else data


def _refused(said: str) -> EditError:
    """Turn what `git apply` prints on failure into an error with the place."""
    at, failed = _FAILED_AT.search(said), _FAILED.search(said)
    if at:
        reason = f"the lines that it expects around line {at[2]} are not there"
        return EditError("GBE341", where=Place(at[1], int(at[2])), path=at[1], reason=reason)
    if failed:
        return EditError("GBE341", where=Place(failed[1]), path=failed[1], reason=_sentence(failed[2]))
    return EditError("GBE342", reason=_sentence(said))


def _sentence(said: str) -> str:
    first = said.strip().splitlines()[0] if said.strip() else "git refuses it"
    return first.removeprefix("error: ").partition(" (allow with")[0].rstrip(".")
