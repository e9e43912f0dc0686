"""What goes into the image of a project: found from its artifacts, its settings and what was asked for."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files as package_files
from io import BytesIO
from modulefinder import ModuleFinder
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import graphbus_core
from graphbus_core import store
from graphbus_core.cli.shipping.programs import Project, read_project, text_of
from graphbus_core.cli.shipping.writing import command_line
from graphbus_core.deploy.image import ImagePlan, Requirement, check_base, generate, join, read_hashed
from graphbus_core.deploy.names import BASES, choose_python, folders_to_write
from graphbus_core.deploy.render import Files
from graphbus_core.errors import DeployError
from graphbus_core.settings import PROJECT_FILE

DOORS = ("graphbus_core.runtime", "graphbus_core.hosting.serving.health")
"""The two commands of a container. The names that agents import come with the package itself."""
LEFT_BEHIND = "graphbus_core.build"
"""The package names `build_graph` as well, for those who have it."""
_NAME = "graphbus_runtime"
WHEEL_NAME = f"{_NAME}-{graphbus_core.__version__}-py3-none-any.whl"
_ABOUT = f"{_NAME}-{graphbus_core.__version__}.dist-info"
_METADATA = f"""\
Metadata-Version: 2.4
Name: {_NAME.replace("_", "-")}
Version: {graphbus_core.__version__}
Summary: Runtime Mode of GraphBus, without what builds.
License-Expression: MIT
Requires-Python: >=3.11
Requires-Dist: msgspec>=0.20
"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: graphbus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@cache
def make_wheel() -> bytes:
    """Pack the runtime. Nothing is compressed: compressors differ between machines, and the hash must not."""
    files = {**_modules(), f"{_ABOUT}/METADATA": _METADATA.encode(), f"{_ABOUT}/WHEEL": _WHEEL.encode()}
    files[f"{_ABOUT}/RECORD"] = _record(files)
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            entry = ZipInfo(path)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as on POSIX, wherever it is made
            archive.writestr(entry, data)
    return packed.getvalue()


def _modules() -> dict[str, bytes]:
    """Follow every import of the doors within the package, also those inside of functions."""
    top = Path(graphbus_core.__file__).parents[1]
    finder = ModuleFinder(path=[str(top)], excludes=[LEFT_BEHIND])
    for door in DOORS:
        finder.import_hook(door)
    names = (getattr(module, "__file__", None) for module in finder.modules.values())
    modules = {Path(name).relative_to(top).as_posix(): Path(name).read_bytes() for name in names if name}
    return {**modules, "graphbus_core/py.typed": b""}


def _record(files: Mapping[str, bytes]) -> bytes:
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in sorted(files.items())
    ]
    return "".join([*lines, f"{_ABOUT}/RECORD,,\n"]).encode()


class Wanted(NamedTuple):
    """What was asked for, named as the parameters of the command, in the order in which the command is shown again."""

    requirements: str
    python: str
    base: str
    includes: tuple[str, ...]
    optional: tuple[str, ...]
    may_float: bool
    is_served: bool
    artifacts: str


def plan_image(wanted: Wanted) -> tuple[Path, Files]:
    """Find everything that a run of these artifacts needs, and return the project with the files of its image.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        DeployError: GBE703, GBE710-714, GBE738.
    """
    project = read_project(wanted.artifacts)
    root, manifest = project.root, project.manifest
    wanted = wanted._replace(
        requirements=_below(root, wanted.requirements),
        artifacts=_below(root, wanted.artifacts),
        includes=tuple(_included(root, path) for path in wanted.includes),
    )
    theirs = _their_requirements(project, wanted)
    base = _base(project, wanted)
    own = [PROJECT_FILE] if (root / PROJECT_FILE).is_file() else []  # it has the settings, and shows where the top is
    shown = {**wanted._asdict(), "includes": tuple(path.rstrip("/") for path in wanted.includes)}
    plan = ImagePlan(
        command=command_line("graphbus docker build", shown),
        base=base,
        wheel=WHEEL_NAME,
        artifacts=wanted.artifacts,
        artifact_files=(*store.ARTIFACTS, store.MANIFEST),
        sources=tuple(sorted({*store.files_of(manifest), *own})),
        includes=wanted.includes,
        requirements=wanted.requirements,
        third_party=tuple(name for name in manifest.third_party if name not in wanted.optional),
        labels=dict(_labels(project, base)),
        is_served=wanted.is_served,
        writable=folders_to_write(project.run.powers),
    )
    wheel = make_wheel()
    requirements = join(_pins(project, wanted), WHEEL_NAME, sha256(wheel).hexdigest(), theirs)
    return root, generate(plan, requirements=requirements, wheel=wheel)


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
    return "" if resolved == root else resolved.relative_to(root).as_posix()


def _their_requirements(project: Project, wanted: Wanted) -> tuple[Requirement, ...]:
    brought = {"msgspec", *(["opentelemetry"] if project.run.settings.tracing else []), *wanted.optional}
    needed = [name for name in project.manifest.third_party if name not in brought]
    if not wanted.requirements:
        if needed:
            raise DeployError("GBE710", modules=", ".join(needed))
        return ()
    try:
        text = (project.root / wanted.requirements).read_text(encoding="utf-8")
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
    known = {
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
