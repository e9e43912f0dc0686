"""`graphbus contract [PATH]...`: each method and edge, and whether both of its ends fit."""

from __future__ import annotations

from graphbus_core import settings
from graphbus_core.compiler.project import Project
from graphbus_core.model.config import BuildRequest


def validate(paths: tuple[str, ...]) -> int:
    """Read the agents and say of each edge whether it holds."""
    project = Project.read(settings.resolve_build(BuildRequest(paths=paths)))
    return 3 if project.errors else 0
