"""What goes into the image of a project: found from its artifacts, its settings and what was asked for."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from importlib.resources import files as package_files
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.cli.shipping.docker_left_out import LeftOut, find_left_out
from graphbus_core.cli.shipping.wheel import make_wheel
from graphbus_core.deploy.facts import Files, folders_to_write
from graphbus_core.deploy.image.bases import check_base, choose_base
from graphbus_core.deploy.image.dockerfile import copied
from graphbus_core.deploy.image.files import generate
from graphbus_core.deploy.image.plan import ImagePlan
from graphbus_core.deploy.image.requirements import Requirement, join, read_hashed
from graphbus_core.errors import DeployError, raise_all
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.config import RuntimeRequest, RuntimeSettings
from graphbus_core.settings import PROJECT_FILE, project_table, resolve_run

FOLDER = "docker"
_UNCOPIED = re.compile(r"""^(?:--|<<)|[*?\[\]\\"'`]""")
"""What COPY takes for an option, a text of its own, a pattern or a quotation."""


class Wanted(NamedTuple):
    """What was asked for on the command line; empty: what follows from the project."""

    artifacts: str = ".graphbus"
    output: str = ""
    base: str = ""
    may_float: bool = False
    python: str = ""
    requirements: str = ""
    includes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    is_served: bool = False


class Image(NamedTuple):
    """An image that can be built.

    Attributes:
        root: The project: what the engine gets to see, as far as the ignore file lets it.
        dockerfile: Path below it.
        left_out: What the sources speak of and the image does not have.
    """

    root: Path
    dockerfile: str
    files: Files
    left_out: list[LeftOut]


def plan_image(wanted: Wanted) -> Image:
    """Find everything that a run of these artifacts needs.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        DeployError: GBE703, GBE710-714.
    """
    folder = Path(wanted.artifacts)
    manifest = _verified(folder)
    root = Path(store.project_root(folder, manifest))
    run = resolve_run(RuntimeRequest(artifacts=wanted.artifacts))
    settings = run.settings
    needed = tuple(name for name in manifest.third_party if name not in wanted.optional)
    brought = {"msgspec", *(["opentelemetry"] if settings.tracing else [])}
    theirs = _their_requirements(root, wanted, [name for name in needed if name not in brought])
    about = project_table(root)
    output = _below(root, Path(wanted.output)) if wanted.output else ""
    wheel = make_wheel()
    base = _base(wanted, about)
    plan = ImagePlan(
        command="",
        base=base,
        folder=f"{output}/{FOLDER}" if output else FOLDER,
        wheel=wheel.name,
        artifacts=_below(root, folder),
        artifact_files=(*store.ARTIFACTS, store.MANIFEST),
        sources=tuple(sorted({*store.files_of(manifest), *_project_file(root)})),
        includes=tuple(_included(root, path) for path in wanted.includes),
        requirements=_below(root, Path(wanted.requirements)) if wanted.requirements else "",
        third_party=needed,
        labels=dict(_labels(root, about, base)),
        is_served=wanted.is_served,
        writable=folders_to_write(run.powers),
    )
    plan = plan._replace(command=_command(plan, wanted, output))
    _check_paths(plan)
    requirements = join(_pins(wanted, settings), wheel.name, wheel.sha256, theirs, plan.folder)
    dockerfile = f"{output}/Dockerfile" if output else "Dockerfile"
    files = generate(plan, requirements=requirements, wheel=wheel.data)
    return Image(root, dockerfile, files, find_left_out(root, plan, manifest.import_roots))


def _base(wanted: Wanted, about: dict[str, object]) -> str:
    if wanted.base:
        return check_base(wanted.base, may_float=wanted.may_float)
    requires_python = about.get("requires-python")
    return choose_base(wanted.python, requires_python if isinstance(requires_python, str) else "")


def _included(root: Path, path: str) -> str:
    below = _below(root, Path(path))
    if not below:
        raise DeployError("GBE714", path=path, reason="it is the whole project; name what is needed of it")
    return f"{below}/" if os.path.isdir(path) else below


def _command(plan: ImagePlan, wanted: Wanted, output: str) -> str:
    """What writes the same files again, in the folder of the project."""
    pairs = [("--output", output), ("--requirements", plan.requirements), ("--python", wanted.python)]
    pairs += [("--base", wanted.base), *(("--include", path.rstrip("/")) for path in plan.includes)]
    pairs += [("--optional", name) for name in wanted.optional]
    words = [word for option, value in pairs if value for word in (option, value)]
    words += ["--allow-unpinned"] * wanted.may_float + ["--serve"] * wanted.is_served
    words += [] if plan.artifacts == ".graphbus" else [plan.artifacts]
    return shlex.join(["graphbus", "docker", "build", *words])


def name_image(root: Path, *, option: str = "--tag") -> str:
    """Give the name that an image of this project has: `name:version`.

    Args:
        option: Of the command, which gives another one.

    Raises:
        DeployError: GBE716 when the project does not say one of them.
    """
    from graphbus_core.deploy.names import as_label, check_image

    about = project_table(root)
    name, version = (text if isinstance(text := about.get(key), str) else "" for key in ("name", "version"))
    if not as_label(name) or not version:
        missing = "`version`" if as_label(name) else "`name`"
        raise DeployError("GBE716", missing=missing, option=option, example="shop:1.4.2")
    return check_image(f"{as_label(name)}:{version.replace('+', '-')}")


def _verified(folder: Path) -> Manifest:
    store.load(folder, without=("negotiations.json", "modified_files.json"))
    manifest = store.load_manifest(folder)
    raise_all(store.find_drift(folder, manifest))
    return manifest


def _their_requirements(root: Path, wanted: Wanted, needed: list[str]) -> tuple[Requirement, ...]:
    if not wanted.requirements:
        if needed:
            raise DeployError("GBE710", modules=", ".join(needed))
        return ()
    path = root / _below(root, Path(wanted.requirements))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DeployError("GBE714", path=wanted.requirements, reason=f"{reason[:1].lower()}{reason[1:]}") from None
    return read_hashed(text, wanted.requirements)


def _pins(wanted: Wanted, settings: RuntimeSettings) -> Iterator[str]:
    pins = package_files("graphbus_core.deploy.image") / "pins"
    for name, is_needed in (("runtime", True), ("serve", wanted.is_served), ("otel", settings.tracing)):
        if is_needed:
            yield (pins / f"{name}.txt").read_text(encoding="utf-8")


def _project_file(root: Path) -> Iterable[str]:
    """It has the settings; the top of a project is where it lies."""
    return (PROJECT_FILE,) if (root / PROJECT_FILE).is_file() else ()


def _labels(root: Path, about: dict[str, object], base: str) -> Iterator[tuple[str, str]]:
    """What the project says of itself, in the words of the OCI; who builds it adds the rest, e.g. the revision.

    A text that not every reader of a Dockerfile would take for the same is left out.
    """
    known = {"title": about.get("name") or root.name, "description": about.get("description")}
    known |= {"version": about.get("version"), "licenses": about.get("license")}
    urls = about.get("urls")
    at = {key.lower(): url for key, url in urls.items()} if isinstance(urls, dict) else {}
    known |= {"url": at.get("homepage"), "documentation": at.get("documentation")}
    known |= {"source": at.get("source") or at.get("repository")}
    name, _, digest = base.partition("@")
    known |= {"base.name": name, "base.digest": digest}
    for key, value in known.items():
        if isinstance(value, str) and value.isprintable() and value and not value.endswith("\\"):
            yield f"org.opencontainers.image.{key}", value


def _below(root: Path, path: Path) -> str:
    """The path as seen from the project; the project itself is `""`."""
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise DeployError("GBE714", path=str(path), reason=f"it is not below the project {root}")
    below = resolved.relative_to(root).as_posix()
    return "" if below == "." else below


def _check_paths(plan: ImagePlan) -> None:
    """Refuse names that would be read as something else; what names a file can have is no affair of these formats."""
    for path in (*plan.sources, *plan.includes, *copied(plan), plan.command):
        if not path.isprintable():
            raise DeployError(
                "GBE714", path=repr(path), reason="its name has characters that an ignore file cannot hold"
            )
        if path.rstrip("/").strip() != path.rstrip("/"):
            raise DeployError("GBE714", path=repr(path), reason="its name begins or ends with a space")
    for path in copied(plan):
        if _UNCOPIED.search(path):
            raise DeployError("GBE714", path=repr(path), reason="COPY would read its name as something else")
