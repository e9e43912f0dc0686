"""Annotations: the commands by which a job tells GitHub what to show beside the lines of a pull request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def annotation(level: str, at: dict[str, Any], title: str, lines: Sequence[str]) -> str:
    """Give one workflow command; what is empty in `at` is left out."""
    listed = {**{key: value for key, value in at.items() if value}, "title": title}
    properties = ",".join(f"{key}={_escaped(str(value), ',:')}" for key, value in listed.items())
    message = _escaped("\n".join(line for line in lines if line))
    return f"::{level} {properties}::{message}"


def _escaped(text: str, also: str = "") -> str:
    for letter in "%\r\n" + also:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def annotated(root: str, path: str) -> str:
    """Give a path of a project as annotations name it: from the top of the repository, wherever the command runs.

    Without a repository it is the workspace of the job that counts, and without that the working directory.

    Args:
        root: The project; empty if it is no folder but a revision.
        path: Below the project; empty for no file.
    """
    if not path or not root:
        return path
    return Path(os.path.relpath(os.path.join(root, path), _top_of(root))).as_posix()


def _top_of(root: str) -> str:
    folder = os.path.abspath(root)
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return _workspace_of(root)
    return folder


def _workspace_of(root: str) -> str:
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    is_inside = bool(workspace) and os.path.abspath(root).startswith(os.path.join(workspace, ""))
    return workspace if is_inside else os.getcwd()
