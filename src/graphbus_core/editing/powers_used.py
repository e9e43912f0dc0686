"""Which powers the code of a project uses, read from its text: the files of its agents, and what they import of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.capability.sources import Allowed, SourceFiles
from graphbus_core.editing.rungs.capability.uses import notes_of
from graphbus_core.model.powers import Power

SEEN: dict[str, Power] = {
    "G3.network": "network",
    "G3.files": "write",
    "G3.process": "processes",
    "G3.environment": "environment",
}
"""Code of a sign of rung G3 -> the power that it is of. Reading is left out: what a project reads is mostly its own."""


class Use(NamedTuple):
    """One place where a power is used."""

    path: str
    line: int
    power: Power
    what: str


def powers_used(project: Project) -> tuple[Use, ...]:
    """Give every use, by place."""
    paths = {*project.agent_files, *(path for path in project.imports.files if path.endswith(".py"))}
    files = SourceFiles(project.index, project.reader, Allowed(frozenset(), is_everything=True))
    return tuple(sorted({use for path in paths for use in _uses(files, path)}))


def _uses(files: SourceFiles, path: str) -> Iterator[Use]:
    file = files.file(path)
    for sign in notes_of(file).signs if file else ():
        if sign.code in SEEN and not sign.what.startswith("the import of"):
            yield Use(path, sign.line, SEEN[sign.code], sign.what)
