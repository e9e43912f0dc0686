"""What a project says of itself, as far as documents about it show it."""

from __future__ import annotations

from typing import NamedTuple


class ProjectInfo(NamedTuple):
    """Name, version and description, as `[project]` of pyproject.toml has them."""

    title: str = "GraphBus"
    version: str = "0"
    description: str = ""
