"""Removes absolute paths from texts that are shared: a path names folders of a machine, and often its user."""

from __future__ import annotations

import re

_PATH = re.compile(r"(?:(?<=\s-[A-Za-z])|(?<![\w./~-]))(?:~[\w.-]*|[A-Za-z]:)?/(?!/)[^\s'\"<>|;,()\[\]]*")
"""An absolute path in a text. The slashes of a URL, and those within a relative path, do not begin one."""


def remove_paths(text: str) -> str:
    """Return a text in which `cut_path` has cut each absolute path."""
    return _PATH.sub(lambda found: cut_path(found[0]), text)


def cut_path(path: str) -> str:
    """Return the last part of an absolute path if that looks like the name of a file, else `PATH`."""
    folder, _, name = path.rpartition("/")
    is_file = "." in name.strip(".:") and folder not in ("/home", "/Users")
    return name if is_file else "PATH"
