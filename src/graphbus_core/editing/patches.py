"""Changes that somebody else has written down: unified diffs as edits, and patches, applied by `git apply` to copies of files.

A diff in an answer becomes edits by content: what a hunk says of line numbers and counts is not believed. A patch is applied to
copies of the files that it names, in the forms of git and of `diff -u`, with new, deleted and renamed files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from graphbus_core.editing.git import Files, Git
from graphbus_core.editing.text.source_text import with_lf
from graphbus_core.errors import EditError, Place
from graphbus_core.model.proposals import CodeChange

TextOf = Callable[[str], str]
"""Relative path -> the text of the file that the diff was made for."""

_FILE = re.compile(r"^--- (.+)\n\+\+\+ (.+)\n(?=@@)", re.MULTILINE)
_HUNK = re.compile(r"^@@.*\n", re.MULTILINE)
_ODD = re.compile(
    r"^(?:new file|deleted file|old|new) mode|^(?:rename|copy) from|^GIT binary patch|^Binary files", re.MULTILINE
)
_REASONS = {
    "new file mode": "it makes a new file",
    "deleted file mode": "it deletes a file",
    "old mode": "it changes the mode of a file",
    "new mode": "it changes the mode of a file",
    "rename from": "it renames a file",
    "copy from": "it copies a file",
    "GIT binary patch": "it changes a binary file",
    "Binary files": "it changes a binary file",
}


def changes_of_diff(diff: str, text_of: TextOf) -> tuple[CodeChange, ...]:
    """Turn a unified diff of existing files into `search_replace` edits, one for each hunk, in the order of the text.

    Whole lines must be equal, but for their line ends; nothing that is merely similar is accepted.

    Raises:
        EditError: GBE316, it is no diff of existing text files; GBE307 or GBE308, the lines of a hunk are not in the file, or
            more than once. What `text_of` raises goes up.
    """
    diff = diff.replace("\r\n", "\n")
    odd = _ODD.search(diff)
    if odd:
        raise _unreadable(_REASONS[odd[0]])
    talk, *parts = _FILE.split(f"{diff}\n")
    if _HUNK.search(talk):
        raise _unreadable("a hunk comes before the name of its file")
    changes: list[CodeChange] = []
    for old, new, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        path = _path(old, new)
        changes += _changes(path, body, with_lf(text_of(path)).split("\n"))
    if not changes:
        raise _unreadable("it changes nothing")
    return tuple(changes)


def _unreadable(reason: str, path: str = "") -> EditError:
    return EditError("GBE316", where=Place(path) if path else None, reason=reason)


def _path(old: str, new: str) -> str:
    before, after = (name.partition("\t")[0].rstrip() for name in (old, new))
    if before == "/dev/null":
        raise _unreadable("it makes a new file", after)
    if after == "/dev/null":
        raise _unreadable("it deletes a file", before)
    if before.startswith("a/") and after.startswith("b/"):
        before, after = before[2:], after[2:]
    if before != after:
        raise _unreadable(f"it renames {before} to {after}", before)
    if not after or after.startswith('"'):
        raise _unreadable("the name of a file cannot be read")
    return after


def _changes(path: str, body: str, lines: list[str]) -> Iterator[CodeChange]:
    end = 0
    for text in _HUNK.split(body)[1:]:
        old, new = _sides(path, text)
        if old == new:
            continue
        start = _find(path, old, lines)
        if start < end:
            raise _unreadable("two of its hunks change the same lines, or lines before those of an earlier one", path)
        end = start + len(old)
        yield _change(path, lines, start, end, new)


def _sides(path: str, hunk: str) -> tuple[list[str], list[str]]:
    """Give the lines that a hunk expects and those that shall be there; an empty line has lost the blank before it."""
    body = list(takewhile(lambda line: line[:1] in ("", " ", "+", "-", "\\"), hunk.split("\n")))
    while body and not body[-1]:
        body.pop()
    old, new = ([line[1:] for line in body if line[:1] in ("", " ", sign)] for sign in "-+")
    if not any(line.strip() for line in old):
        raise _unreadable("a hunk has no line of the text that is there", path)
    return old, new


def _find(path: str, wanted: list[str], lines: list[str]) -> int:
    count = len(wanted)
    starts = [at for at in range(len(lines) - count + 1) if lines[at : at + count] == wanted]
    if len(starts) == 1:
        return starts[0]
    if starts:
        shown = ", ".join(str(start + 1) for start in starts)
        raise EditError("GBE308", where=Place(path, starts[0] + 1), target="the module", count=len(starts), lines=shown)
    first = next(line.strip() for line in wanted if line.strip())
    nearest = f"The hunk with {first!r} was made for other text."
    raise EditError("GBE307", where=Place(path), target="the module", nearest=nearest)


def _change(path: str, lines: list[str], start: int, end: int, new: list[str]) -> CodeChange:
    """Quote whole lines with the line ends around them, so that no part of a longer line can match."""
    before = "\n" if start else ""
    after = "\n" if end < len(lines) else ""
    old_code = before + "\n".join(lines[start:end]) + after
    new_code = before + "\n".join([*new, ""] if after and new else new)
    return CodeChange(
        file_path=path,
        target="",
        change_type="modify",
        operation="search_replace",
        old_code=old_code,
        new_code=new_code,
    )


Read = Callable[[str], bytes | None]
"""Relative path -> bytes; None for what is no file of the project."""

_HAS_PREFIXES = re.compile(rb'^(?:--- "?a/|\+\+\+ "?b/|diff --git "?a/)', re.MULTILINE)
_FAILED_AT = re.compile(r"error: patch failed: (.+):(\d+)")
_FAILED = re.compile(r"error: (.+?): (.+)")
_OPTIONS = ("--whitespace=nowarn", "--no-ignore-whitespace")


def apply_patch(patch: bytes, read: Read) -> Files:
    """Give what a patch makes of the files that it names; an empty one makes nothing. Line ends of the files stay.

    Raises:
        EditError: GBE341, it does not apply; GBE342, it is no patch, or makes a link.
        NegotiationError: GBE430, there is no git.
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
                _copy(folder / path, data)
        status, _, said = git.attempt("apply", level, *_OPTIONS, "-", stdin=patch)
        if status:
            raise _refused(said)
        return {path: (data, _result(folder / path, path, data)) for path, data in before.items()}


def _git(folder: Path) -> Git:
    """Give a git that takes the folder for no part of a repository, and that runs no program of a setting."""
    git = Git(folder).having(GIT_CEILING_DIRECTORIES=str(folder.parent), GIT_ATTR_NOSYSTEM="1")
    git.settings |= {"core.autocrlf": "false", "core.attributesFile": "/dev/null"}
    git.forbid_filters()
    return git


def _named(git: Git, patch: bytes, read: Read) -> tuple[str, list[str]]:
    """Give how many folders are cut from the names in a patch, as an option of git, and the paths that are left."""
    levels = ("-p1",) if _HAS_PREFIXES.search(patch) else ("-p0", "-p1")
    found: list[tuple[str, list[str]]] = []
    reason = ""
    for level in levels:
        try:
            found.append((level, sorted({*_paths(git, patch, level), *_paths(git, patch, level, "--reverse")})))
        except EditError as error:
            reason = reason or str(error.data["reason"])
    if not found:
        raise EditError("GBE342", reason=reason)
    return next((each for each in found if any(read(path) is not None for path in each[1])), found[0])


def _paths(git: Git, patch: bytes, *options: str) -> Iterator[str]:
    """Yield the paths that a patch makes; with `--reverse` those that it is made for."""
    status, output, said = git.attempt("apply", "--numstat", "-z", *options, "-", stdin=patch)
    if status:
        raise EditError("GBE342", reason=_sentence(said))
    for line in output.decode(errors="surrogateescape").split("\0")[:-1]:
        yield line.split("\t", 2)[2]


def _copy(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data.replace(b"\r\n", b"\n"))


def _result(place: Path, path: str, before: bytes | None) -> bytes | None:
    if place.is_symlink():
        raise EditError("GBE342", where=Place(path), reason="it makes a link")
    if not place.is_file():
        return None
    data = place.read_bytes()
    return data.replace(b"\n", b"\r\n") if before and b"\r\n" in before else data


def _refused(said: str) -> EditError:
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
