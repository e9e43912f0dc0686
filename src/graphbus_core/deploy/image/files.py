"""A plan becomes files."""

from __future__ import annotations

from graphbus_core.deploy.facts import STATE, Files
from graphbus_core.deploy.image import dockerfile, ignored
from graphbus_core.deploy.image.plan import ImagePlan

SETTINGS = f"""\
# Settings of the container, on top of [tool.graphbus] in pyproject.toml. Mount another file over it to change them.
[runtime]
state_dir = "{STATE}"
"""


def generate(plan: ImagePlan, *, requirements: str, wheel: bytes) -> Files:
    """Give the files, by path below the project; the same plan gives the same bytes."""
    above = plan.folder.rpartition("/")[0]
    beside = f"{above}/" if above else ""
    ignore_file = f"{beside}Dockerfile.dockerignore" if above else ".dockerignore"
    return {
        f"{beside}Dockerfile": dockerfile.render(plan),
        ignore_file: ignored.render(plan),
        f"{plan.folder}/graphbus.toml": SETTINGS,
        f"{plan.folder}/requirements.txt": requirements,
        f"{plan.folder}/{plan.wheel}": wheel,
    }
