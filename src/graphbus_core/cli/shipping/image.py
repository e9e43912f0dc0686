"""What goes into the image of a project: found from its artifacts, its settings and what was asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files as package_files
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.cli.shipping.left_out import LeftOut, find_left_out
from graphbus_core.cli.shipping.project import Project, read_project, text_of
from graphbus_core.cli.shipping.wheel import make_wheel
from graphbus_core.cli.shipping.writing import command_line
from graphbus_core.deploy.facts import Files, folders_to_write
from graphbus_core.deploy.image import ImagePlan, generate
from graphbus_core.deploy.pins import BASES, check_base, choose_python
from graphbus_core.deploy.requirements import Requirement, join, read_hashed
from graphbus_core.errors import DeployError
from graphbus_core.settings import PROJECT_FILE

_FOLDER = "docker"
_UNCOPIED = re.compile(r"""^(?:--|<<)|[*?\[\]\\"'`]""")
"""What COPY takes for an option, a text of its own, a pattern or a quotation."""


class Wanted(NamedTuple):
    """What was asked for, named as the parameters of the command, in the order in which the command is shown again."""

    output: str
    requirements: str
    python: str
    base: str
    includes: tuple[str, ...]
    optional: tuple[str, ...]
    may_float: bool
    is_served: bool
    artifacts: str


class Image(NamedTuple):
    """An image that can be built.

    Attributes:
        root: The project: what the engine gets to see, as far as the ignore file lets it.
        dockerfile: Path below it.
        left_out: What the sources name and the image does not have.
    """

    root: Path
    dockerfile: str
    files: Files
    left_out: list[LeftOut]


def plan_image(wanted: Wanted) -> Image:
    """Find everything that a run of these artifacts needs.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        DeployError: GBE703, GBE710-714, GBE738.
    """
    project = read_project(wanted.artifacts)
    theirs = _their_requirements(project, wanted)
    wheel = make_wheel()
    plan = _plan(project, wanted, wheel.name)
    _check_paths(plan)
    requirements = join(_pins(project, wanted), f"{plan.folder}/{wheel.name}", wheel.sha256, theirs)
    files = generate(plan, requirements=requirements, wheel=wheel.data)
    left_out = find_left_out(project.root, plan, project.manifest.import_roots)
    return Image(project.root, plan.dockerfile, files, left_out)


def _plan(project: Project, wanted: Wanted, wheel: str) -> ImagePlan:
    root, manifest = project.root, project.manifest
    output = _below(root, wanted.output)
    requirements = _below(root, wanted.requirements)
    artifacts = _below(root, wanted.artifacts)
    includes = tuple(_included(root, path) for path in wanted.includes)
    base = _base(project, wanted)
    own = [PROJECT_FILE] if (root / PROJECT_FILE).is_file() else []  # it has the settings, and shows where the top is
    normalized = {
        "output": output,
        "requirements": requirements,
        "includes": tuple(path.rstrip("/") for path in includes),
        "artifacts": artifacts,
    }
    return ImagePlan(
        command=command_line("graphbus docker build", {**wanted._asdict(), **normalized}),
        base=base,
        folder=f"{output}/{_FOLDER}".removeprefix("/"),
        wheel=wheel,
        artifacts=artifacts,
        artifact_files=(*store.ARTIFACTS, store.MANIFEST),
        sources=tuple(sorted({*store.files_of(manifest), *own})),
        includes=includes,
        requirements=requirements,
        third_party=tuple(name for name in manifest.third_party if name not in wanted.optional),
        labels=dict(_labels(project, base)),
        is_served=wanted.is_served,
        writable=folders_to_write(project.run.powers),
    )


def _base(project: Project, wanted: Wanted) -> str:
    if wanted.base:
        return check_base(wanted.base, may_float=wanted.may_float)
    return BASES[choose_python(wanted.python, text_of(project.about, "requires-python"))]


def _included(root: Path, path: str) -> str:
    below = _below(root, path)
    if not below:
        raise DeployError("GBE714", path=path, reason="it is the whole project; name what is needed of it")
    return f"{below}/" if os.path.isdir(path) else below


def _below(root: Path, path: str) -> str:
    """The path as seen from the project; empty for the project itself, and for no path."""
    resolved = Path(path).resolve() if path else root
    if not resolved.is_relative_to(root):
        raise DeployError("GBE714", path=path, reason=f"it is not below the project {root}")
    below = resolved.relative_to(root).as_posix()
    return "" if below == "." else below


def _their_requirements(project: Project, wanted: Wanted) -> tuple[Requirement, ...]:
    brought = {"msgspec", *(["opentelemetry"] if project.run.settings.tracing else []), *wanted.optional}
    needed = [name for name in project.manifest.third_party if name not in brought]
    if not wanted.requirements:
        if needed:
            raise DeployError("GBE710", modules=", ".join(needed))
        return ()
    path = project.root / _below(project.root, wanted.requirements)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DeployError("GBE714", path=wanted.requirements, reason=f"{reason[:1].lower()}{reason[1:]}") from None
    return read_hashed(text, wanted.requirements)


def _pins(project: Project, wanted: Wanted) -> Iterator[str]:
    """The parts of our lock that a run of this project needs."""
    lock = package_files("graphbus_core.deploy") / "lock"
    needed = {"runtime": True, "serve": wanted.is_served, "otel": project.run.settings.tracing}
    return ((lock / f"{name}.txt").read_text(encoding="utf-8") for name, is_needed in needed.items() if is_needed)


def _labels(project: Project, base: str) -> Iterator[tuple[str, str]]:
    """What the project says of itself, as OCI labels; whoever builds the image adds the rest, e.g. the revision.

    A text that not every reader of a Dockerfile would take for the same is left out.
    """
    about = project.about
    urls = about.get("urls")
    at = {key.lower(): url for key, url in urls.items()} if isinstance(urls, dict) else {}
    name, _, digest = base.partition("@")
    known: Mapping[str, object] = {
        "title": about.get("name") or project.root.name,
        "description": about.get("description"),
        "version": about.get("version"),
        "licenses": about.get("license"),
        "url": at.get("homepage"),
        "documentation": at.get("documentation"),
        "source": at.get("source") or at.get("repository"),
        "base.name": name,
        "base.digest": digest,
    }
    for key, value in known.items():
        if isinstance(value, str) and value.isprintable() and value and not value.endswith("\\"):
            yield f"org.opencontainers.image.{key}", value


def _check_paths(plan: ImagePlan) -> None:
    """Refuse names that would be read as something else; a file may have names that these formats cannot hold."""
    copied = (f"{plan.folder}/", plan.requirements, *plan.copied)
    for path in (*plan.sources, *plan.includes, *copied, plan.command):
        if not path.isprintable():
            raise _unfit(path, "its name has characters that an ignore file cannot hold")
        if path.rstrip("/").strip() != path.rstrip("/"):
            raise _unfit(path, "its name begins or ends with a space")
    for path in copied:
        if _UNCOPIED.search(path):
            raise _unfit(path, "COPY would read its name as something else")


def _unfit(path: str, reason: str) -> DeployError:
    return DeployError("GBE714", path=repr(path), reason=reason)
