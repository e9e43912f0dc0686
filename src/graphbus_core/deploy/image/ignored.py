"""The ignore file: everything stays out of the build, but for what is named. What nobody thought of stays out as well."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphbus_core.deploy.image.plan import ImagePlan

_SIGNS = re.compile(r"([\\*?\[\]!])")


def render(plan: ImagePlan) -> str:
    """Give the text.

    Source files are let through folder by folder, as some engines do not look below a folder that only `**` would reach.
    """
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: ImagePlan) -> Iterator[str]:
    yield f"# Written by `{plan.command}`. Nothing goes into the image but what is named here."
    yield "*"
    yield ""
    yield "# the runtime, and what it needs"
    for name in sorted(("graphbus.toml", "requirements.txt", plan.wheel)):
        yield f"!{_literal(f'{plan.folder}/{name}')}"
    if plan.requirements:
        yield f"!{_literal(plan.requirements)}"
    yield ""
    yield "# the artifacts"
    yield from (f"!{_literal(f'{plan.artifacts}/{name}')}" for name in plan.artifact_files)
    yield ""
    yield "# the agents, and what they import"
    yield from dict.fromkeys(f"!{_pattern(path)}" for path in sorted(plan.sources))
    if plan.includes:
        yield ""
        yield "# what was asked for with --include"
        yield from (f"!{_literal(path.rstrip('/'))}" for path in plan.includes)
        yield from (f"{_literal(path)}**/.*" for path in plan.includes if path.endswith("/"))
        yield from (f"{_literal(path)}**/__pycache__" for path in plan.includes if path.endswith("/"))


def _pattern(path: str) -> str:
    """All modules of a folder, so that a new one needs no new ignore file; files at the top of the project one by one."""
    folder, slash, _ = path.rpartition("/")
    return f"{_literal(folder)}/*.py" if slash and path.endswith(".py") else _literal(path)


def _literal(path: str) -> str:
    return _SIGNS.sub(r"\\\1", path)
