"""Which powers the code of a project uses, read from its text: the files of its agents, and what they import of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.editing.rungs.capability import signs
from graphbus_core.editing.rungs.imports import Allowed
from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.model.powers import Power

SEEN: dict[str, Power] = {
    "G3.network": "network",
    "G3.files": "write",
    "G3.process": "processes",
    "G3.environment": "environment",
}
"""Code of a sign -> the power that it is of. What only reads files is not seen."""


class Use(NamedTuple):
    """One place where a power is used."""

    path: str
    line: int
    power: Power
    what: str


def powers_used(project: Project) -> tuple[Use, ...]:
    """Give every use, by place."""
    paths = {*project.agent_files, *(path for path in project.imports.files if path.endswith(".py"))}
    return tuple(sorted({use for path in paths for use in _uses(project, path)}))


def _uses(project: Project, path: str) -> Iterator[Use]:
    source = SourceText(project.source(path).data, path)
    for sign in signs(source, Allowed(frozenset(), is_everything=True)):
        if sign.code in SEEN:
            yield Use(path, sign.line, SEEN[sign.code], sign.what)
