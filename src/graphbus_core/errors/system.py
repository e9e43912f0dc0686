"""Describes errors of the operating system: the reason as the end of a sentence, and a hint that fits the cause."""

from __future__ import annotations

import os
from errno import EACCES, EDQUOT, EINVAL, EISDIR, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOSPC, ENOTEMPTY, EPERM, EROFS

_ADVICE = {
    EACCES: "Correct the permissions of this path and of its folder.",
    EPERM: "Correct the permissions of this path and of its folder.",
    EROFS: "Make its file system writable, or use a path on another one.",
    ENOSPC: "Free disk space.",
    EDQUOT: "Free disk space, or raise the quota.",
    ENOENT: "Correct the path, or create what is missing.",
    EISDIR: "This path is a folder: use the path of a file.",
    ENOTEMPTY: "Empty the folder, or use another path.",
    ELOOP: "Replace the symbolic link with the actual file or folder.",
    EMLINK: "Replace the link with a copy of the file.",
    ENAMETOOLONG: "Use a shorter name.",
    EINVAL: "Replace it with a regular file.",
}
_DEFAULT = "Check the path, its permissions and the free disk space."
MOVE_AWAY = "Move the file away: GraphBus then creates a new one."
"""The hint for a damaged file in the state folder."""
UPGRADE = "Upgrade GraphBus, or move the file away: GraphBus then creates a new one."
"""The hint for a file in the state folder that a newer version has written."""


def reason_of(error: BaseException) -> str:
    """Return the text of an error as the end of a sentence; an acronym at its beginning keeps its case."""
    text = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    return (text if text[1:2].isupper() else text[:1].lower() + text[1:]).rstrip(".")


def advise_on(error: BaseException, path: str | os.PathLike[str] = "") -> str:
    """Return what to do about an error with a path, as a sentence; a file that stands where a folder is needed is named."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        file = _find_file_above(os.fspath(path))
        return f"`{file}` is a file, not a folder: rename or move it." if file else "Use another path."
    return _ADVICE.get(getattr(error, "errno", None) or 0, _DEFAULT)


def _find_file_above(path: str) -> str:
    """Return the parent of a path that is a file instead of a folder; empty if there is none."""
    above = os.path.dirname(path)
    while above and above != os.path.dirname(above):
        if os.path.lexists(above):
            return "" if os.path.isdir(above) else above
        above = os.path.dirname(above)
    return ""
