"""What goes into the image of a project: found from its artifacts, its settings and what was asked for."""

from __future__ import annotations

import ast
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
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
from graphbus_core.compiler.reading.syntax import parse
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
_METADATA = f"""\
Metadata-Version: 2.4
Name: {_NAME.replace("_", "-")}
Version: {graphbus_core.__version__}
Summary: Runtime Mode of GraphBus, without what builds.
License-Expression: MIT
Requires-Python: >=3.11
Requires-Dist: msgspec>=0.20
"""
_WHEEL_NAME = f"{_NAME}-{graphbus_core.__version__}-py3-none-any.whl"
_WHEEL = "Wheel-Version: 1.0\nGenerator: graphbus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Wheel(NamedTuple):
    """A wheel, ready to be written."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash, as files of requirements write it."""
        return sha256(self.data).hexdigest()


@cache
def _make_wheel() -> Wheel:
    """Pack the runtime. Nothing is compressed: compressors differ between machines, and the hash must not."""
    about = f"{_NAME}-{graphbus_core.__version__}.dist-info"
    files = {**_modules(), f"{about}/METADATA": _METADATA.encode(), f"{about}/WHEEL": _WHEEL.encode()}
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            entry = ZipInfo(path)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as on POSIX, wherever it is made
            archive.writestr(entry, data)
    return Wheel(_WHEEL_NAME, packed.getvalue())


def _modules() -> dict[str, bytes]:
    """Follow every import of the doors within the package, also those inside of functions."""
    top = Path(graphbus_core.__file__).parents[1]
    finder = ModuleFinder(path=[str(top)], excludes=[LEFT_BEHIND])
    for door in DOORS:
        finder.import_hook(door)
    names = (getattr(module, "__file__", None) for module in finder.modules.values())
    modules = {Path(name).relative_to(top).as_posix(): Path(name).read_bytes() for name in names if name}
    return {**modules, "graphbus_core/py.typed": b""}


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in sorted(files.items())
    ]
    return ("\n".join([*lines, f"{own},,"]) + "\n").encode()


_FILE = re.compile(r"(?:\./)?[\w@+~%-][\w .@+~%-]*(?:/[\w@+~%-][\w .@+~%-]*)*/?")
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?::[A-Za-z_][\w.]*)?")
_LONGEST = 200


class LeftOut(NamedTuple):
    """A file or folder of the project, and the first line that names it."""

    path: str
    source: str
    line: int


def _find_left_out(root: Path, plan: ImagePlan, import_roots: Sequence[str]) -> list[LeftOut]:
    """Return each file that is left out once, sorted by name."""
    found: dict[str, LeftOut] = {}
    for source in _sources(root, plan):
        try:
            tree = parse((root / source).read_bytes(), source)
        except (SyntaxError, ValueError, OSError):
            continue  # a run says so; here it is only not read
        for line, names in _names(tree, source, import_roots):
            there = (os.path.normpath(name) for name in names)
            path = next((path for path in there if _is_of_the_project(root, path)), "")
            if path and not _is_taken(path, plan):
                found.setdefault(path, LeftOut(path, source, line))
    return sorted(found.values())


def _sources(root: Path, plan: ImagePlan) -> Iterator[str]:
    """All that is Python: what the artifacts know, and what was included, which no build has read."""
    yield from (path for path in (*plan.sources, *plan.includes) if path.endswith(".py"))
    for folder in plan.includes:
        if folder.endswith("/"):
            yield from sorted(path.relative_to(root).as_posix() for path in (root / folder).rglob("*.py"))


def _names(tree: ast.Module, source: str, import_roots: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield a line, and the files that may be meant there."""
    folder = os.path.dirname(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST:
            if module := _MODULE.fullmatch(node.value):
                yield node.lineno, _files_of(module[1], import_roots)
            if _FILE.fullmatch(node.value):
                yield node.lineno, [os.path.join(folder, node.value), node.value]


def _files_of(module: str, import_roots: Sequence[str]) -> list[str]:
    path = module.replace(".", "/")
    return [os.path.join(top, name) for top in ("", *import_roots) for name in (f"{path}.py", f"{path}/__init__.py")]


def _is_of_the_project(root: Path, path: str) -> bool:
    """True for a file, and for a folder with data: one with modules is named like much else."""
    if any(part.startswith(".") for part in path.split("/")):
        return False
    try:
        inside = [each for each in os.listdir(root / path) if not each.startswith(".")]
    except NotADirectoryError:
        return True
    except (OSError, ValueError):
        return False
    return bool(inside) and not any(each.endswith(".py") or each == "__pycache__" for each in inside)


def _is_taken(path: str, plan: ImagePlan) -> bool:
    """True for what the ignore file lets through, and for what this command writes."""
    beside = {each.rpartition("/")[0] for each in plan.sources if each.endswith(".py")} - {""}
    own = (f"{plan.folder}/", f"{plan.artifacts}/", *(each for each in plan.includes if each.endswith("/")))
    is_named = path in (*plan.sources, *plan.includes, plan.requirements)
    return is_named or f"{path}/".startswith(own) or (path.endswith(".py") and path.rpartition("/")[0] in beside)


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
    plan = _plan(project, wanted)
    _check_paths(plan)
    wheel = _make_wheel()
    requirements = join(_pins(project, wanted), f"{plan.folder}/{wheel.name}", wheel.sha256, theirs)
    files = generate(plan, requirements=requirements, wheel=wheel.data)
    left_out = _find_left_out(project.root, plan, project.manifest.import_roots)
    return Image(project.root, plan.dockerfile, files, left_out)


def _plan(project: Project, wanted: Wanted) -> ImagePlan:
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
        wheel=_WHEEL_NAME,
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
