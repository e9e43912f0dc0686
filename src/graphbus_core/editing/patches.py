"""Applies patches of git and of `diff -u` with `git apply`, to copies of the files that they name."""

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
_AS_DIFF = "Pass a unified diff of text files, such as the output of `git diff`."


def apply_patch(patch: bytes, read: Callable[[str], bytes | None]) -> ChangedFiles:
    """Return the files that a patch changes: path -> bytes before and after, None for a missing file.

    Nothing is written to the project, and a file with CRLF keeps its line ends.

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
        git = _isolated_git(folder)
        level, paths = _find_level_and_paths(git, patch, read)
        before = {path: read(path) for path in paths}
        for path, data in before.items():
            if data is not None and ".git" not in PurePosixPath(path.lower()).parts:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data.replace(b"\r\n", b"\n"))
        status, _, stderr = git.attempt("apply", level, *_OPTIONS, "-", stdin=patch)
        if status:
            raise _apply_error(stderr)
        return {path: (data, _read_result(folder / path, path, data)) for path, data in before.items()}


def _isolated_git(folder: Path) -> Git:
    """Return a `Git` for a folder that finds no repository around it, and runs no program that a setting names."""
    git = Git(folder).with_variables(GIT_CEILING_DIRECTORIES=str(folder.parent), GIT_ATTR_NOSYSTEM="1")
    git.settings |= {"core.autocrlf": "false", "core.attributesFile": "/dev/null"}
    git.forbid_filters()
    return git


def _find_level_and_paths(git: Git, patch: bytes, read: Callable[[str], bytes | None]) -> tuple[str, list[str]]:
    """Return the `-p` option of `git apply` for a patch (how many leading folders to strip), and the paths it results in.

    A patch without the prefixes `a/` and `b/` may need `-p0` or `-p1`. The first is taken that leads to a file of the project,
    or `-p0` if neither does. Raise GBE342 if git cannot read the patch.
    """
    levels = ("-p1",) if _HAS_PREFIXES.search(patch) else ("-p0", "-p1")
    found: list[tuple[str, list[str]]] = []
    reasons = []
    for level in levels:
        try:
            found.append(
                (level, sorted({*_list_paths(git, patch, level), *_list_paths(git, patch, level, "--reverse")}))
            )
        except EditError as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    return next((each for each in found if any(read(path) is not None for path in each[1])), found[0])


def _list_paths(git: Git, patch: bytes, *options: str) -> Iterator[str]:
    """Yield the paths that a patch writes; with the option `--reverse`, those that it reads. Raise GBE342 if git refuses it."""
    status, output, stderr = git.attempt("apply", "--numstat", "-z", *options, "-", stdin=patch)
    if status:
        raise EditError("GBE342", reason=_first_message(stderr), advice=_AS_DIFF)
    for line in output.decode(errors="surrogateescape").split("\0")[:-1]:
        yield line.split("\t", 2)[2]


def _read_result(place: Path, path: str, before: bytes | None) -> bytes | None:
    """Return the bytes of a patched copy; None if the patch deletes the file. Raise GBE342 for a symbolic link.

    The bytes have CRLF if those of the file had it before the patch; `before` is None for a new file.
    """
    if place.is_symlink():
        advice = "Leave the link out of the patch: the gate tests only regular files."
        raise EditError("GBE342", where=Place(path), reason="it creates a symbolic link", advice=advice)
    if not place.is_file():
        return None
    data = place.read_bytes()
    return data.replace(b"\n", b"\r\n") if before and b"\r\n" in before else data


def _apply_error(stderr: str) -> EditError:
    """Return the error for what `git apply` printed: GBE341 at the place that it names, or GBE342 if it names none."""
    at, failed = _FAILED_AT.search(stderr), _FAILED.search(stderr)
    if at:
        reason = f"the lines that it expects around line {at[2]} are not there"
        return EditError("GBE341", where=Place(at[1], int(at[2])), reason=reason)
    if failed:
        return EditError("GBE341", where=Place(failed[1]), reason=_first_message(failed[2]))
    return EditError("GBE342", reason=_first_message(stderr), advice=_AS_DIFF)


def _first_message(stderr: str) -> str:
    """Return the first line that git printed, without prefix and full stop, for the end of a sentence."""
    first = stderr.strip().splitlines()[0] if stderr.strip() else "git refuses it"
    return first.removeprefix("error: ").partition(" (allow with")[0].rstrip(".")
