"""Small projects for tests, written from a mapping of relative path to text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

NO_PLUGINS = "--disable-plugin-autoload"
"""For pytest in a project: it starts in half the time when it loads none of the plugins that are installed here."""


def write_project(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write each file below `folder`, text dedented and without its first empty line, and give the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(dedent(content).removeprefix("\n"), encoding="utf-8", newline="")
    return folder
