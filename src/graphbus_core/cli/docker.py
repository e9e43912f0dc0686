"""`graphbus docker`: write a Dockerfile and its files for the artifacts of a build; build and run the image."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files as package_files
from math import ceil
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

import graphbus_core
from graphbus_core import store
from graphbus_core.cli import console, shipping, wheel
from graphbus_core.cli.shipping import BuiltProject, name_image, read_project, text_of
from graphbus_core.deploy.image import (
    ImagePlan,
    check_base,
    generate_image,
    join_requirements,
    read_hashed,
    start_arguments,
)
from graphbus_core.deploy.names import (
    BASES,
    HEALTH_PORT,
    SERVE_PORT,
    STATE,
    USER_ID,
    check_image,
    choose_python,
    folders_to_write,
    invalid_value,
    make_label,
    split_image,
)
from graphbus_core.deploy.render import Files
from graphbus_core.errors import DeployError, UsageError
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.settings import PROJECT_FILE, find_root, resolve_run

_EngineName = Literal["docker", "podman"]
_ENGINES: tuple[_EngineName, ...] = ("docker", "podman")
_NOT_FOUND = "not found"
_PATIENCE_S = 15.0
_MARGIN_S = 5
_QUESTIONS: dict[_EngineName, tuple[str, ...]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version.Version}}"),
}
"""Arguments that fail unless the engine runs: the docker client alone also works without an engine."""


_FILES_ALONE = "write the files alone with --no-build"


class _Engine(NamedTuple):
    """A container engine, or the reason why none is usable; then `name` is the one whose commands are shown.

    Attributes:
        missing: Why it does not answer; `"not found"` when none is installed.
        looked_for: The names that were tried.
    """

    name: _EngineName
    missing: str = ""
    looked_for: tuple[_EngineName, ...] = _ENGINES

    def refusal(self, otherwise: str) -> DeployError:
        """Return the error for a command that needs an engine; `otherwise` says what the user can do instead."""
        if self.missing == _NOT_FOUND:
            return DeployError("GBE704", program=" or ".join(self.looked_for), otherwise=otherwise)
        return DeployError("GBE715", program=self.name, reason=self.missing, otherwise=otherwise)


def _find_engine(wanted: _EngineName | None, otherwise: str = "") -> _Engine:
    """Look for the engine that was asked for, else for docker, then podman.

    Raises:
        DeployError: With `otherwise`, what the user can do instead: GBE704 none is installed, GBE715 it does not answer.
    """
    names = (wanted,) if wanted else _ENGINES
    silent: list[_Engine] = []
    for name in filter(shutil.which, names):
        answer = shipping.run_captured([name, *_QUESTIONS[name]], timeout_s=_PATIENCE_S)
        if not answer.status:
            return _Engine(name)
        silent.append(_Engine(name, answer.reason.partition(". ")[0].rstrip(".?!")))
    found = silent[0] if silent else _Engine(names[0], _NOT_FOUND, names)
    if otherwise:
        raise found.refusal(otherwise)
    return found


def _run_command(
    engine: _EngineName, image: str, root: Path, *, port: int, is_served: bool, arguments: tuple[str, ...] = ()
) -> list[str]:
    """Return the command that runs the image with as few rights as it needs, reachable only from this machine.

    Args:
        root: The project, whose settings are read.
        port: The port of this machine for probes and metrics.
        arguments: Arguments in addition to those of the image.
    """
    settings = resolve_run(RuntimeConfig(artifacts=str(root / ".graphbus"))).settings
    name = split_image(image)[0].rpartition("/")[2]
    served = ["--publish", f"127.0.0.1:{SERVE_PORT}:{SERVE_PORT}", "--env", settings.serve.token_env]
    # Any argument replaces the command of the image, so its own arguments are repeated; HEALTHCHECK needs them.
    given = (*start_arguments(is_served=is_served), *arguments) if arguments else ()
    return [
        *(engine, "run", "--rm", "--init"),
        *("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m"),  # noqa: S108 - of the container
        *("--user", f"{USER_ID}:{USER_ID}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--volume", f"{make_label(name)}-state:{STATE}"),
        *("--publish", f"127.0.0.1:{port}:{HEALTH_PORT}", *(served if is_served else ())),
        *("--stop-timeout", str(ceil(settings.grace_s) + _MARGIN_S)),
        *(image, *given),
    ]


_engine = click.option(
    "--engine", type=click.Choice(_ENGINES), help="What builds and runs images (the first that answers)."
)
_serve = click.option("--serve", "is_served", is_flag=True, help="Accept calls and events over HTTP.")


@click.group("docker", short_help="Write a Dockerfile, build the image, run it.")
def docker() -> None:
    """Make an image of the graph that a build has written, and run it.

    \b
    Examples:
      graphbus docker build
      graphbus docker build --tag ghcr.io/acme/shop:1.4.2 --run
      graphbus docker run
    """


@docker.command("build", short_help="Write a Dockerfile and build the image.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option(
    "--tag", "-t", default="", metavar="NAME[:TAG]", help="What the image is called (name:version of the project)."
)
@click.option("--run", "runs", is_flag=True, help="Run the image when it is built.")
@click.option("--no-build", "writes_only", is_flag=True, help="Write the files and build nothing.")
@_engine
@_serve
@click.option("--requirements", default="", metavar="FILE", help="What the agents need, pinned with hashes.")
@click.option(
    "--include", "includes", multiple=True, metavar="PATH", type=click.Path(exists=True),
    help="A further file or folder that the agents need, e.g. one with data; may be repeated.",
)  # fmt: skip
@click.option(
    "--optional",
    multiple=True,
    metavar="MODULE",
    help="What the agents import if it is there, and do without if not; may be repeated.",
)
@click.option(
    "--python", default="", metavar="VERSION", help="3.11 to 3.14 (3.11, or the next that `requires-python` allows)."
)
@click.option(
    "--base", default="", metavar="IMAGE", help="Build on this image instead; it needs Python, pip and a shell."
)
@click.option("--allow-unpinned", "may_float", is_flag=True, help="Let --base go without a digest.")
@shipping.writing_options
def build(*, tag: str, engine: _EngineName | None, runs: bool, writes_only: bool, **given: Any) -> None:
    """Write a Dockerfile for the graph in ARTIFACTS, a folder (.graphbus by default), and build the image.

    The image has Python, the runtime and the agents: no command line, nothing that builds or negotiates, no model. Its base is
    pinned by digest and all packages by hash. It runs as a user without a name, writes to /var/lib/graphbus alone, and says
    at port 8080 how it is. Without docker or podman the files are written, and the image is not: that is a failure, unless
    --no-build asks for the files alone.

    Exit status: 0 done; 6 the artifacts are damaged, or older than the source files; 8 a file would be overwritten, packages
    are not pinned, there is no engine, or it has failed.

    \b
    Examples:
      graphbus docker build
      graphbus docker build --tag ghcr.io/acme/shop:1.4.2
      graphbus docker build --requirements requirements.txt
      graphbus docker build --include agents/prices.json
      graphbus docker build --serve --run
      graphbus docker build --check
    """
    wanted = _ImageOptions(**{name: given[name] for name in _ImageOptions._fields})
    wish = shipping.WriteOptions(**{name: given[name] for name in shipping.WriteOptions._fields})
    if runs and (writes_only or wish != shipping.WriteOptions(is_forced=wish.is_forced)):
        reason = "only an image that is built can run, and the graph writes to stdout"
        raise UsageError("GBE132", option="--run", other="--no-build, --check, --diff or --json", reason=reason)
    if wanted.base and wanted.python:
        raise UsageError("GBE132", option="--base", other="--python", reason="a base image contains its own Python")
    root, files = _plan_image(wanted)
    tag = _check_tag(tag) if tag else name_image(root)
    builds = not (writes_only or wish.is_check or wish.is_diff)
    found = _Engine(engine or "docker")
    if builds:  # raises before anything is written if an image is required
        found = _find_engine(engine, _FILES_ALONE if runs or engine else "")
    states = shipping.write_files(Path(os.path.relpath(root)), files, wish)
    as_docker = ["--format", "docker"] if found.name == "podman" else []  # otherwise podman drops HEALTHCHECK
    command = [found.name, "build", *as_docker, "--tag", tag, "."]
    is_built = builds and not found.missing
    if is_built:
        shipping.run_at_terminal(command, root)
    if wish.as_json:
        console.emit_json({"files": states, "image": tag, "command": command, "is_built": is_built})
    elif is_built:
        console.print_line(f"{console.style('built', 'good')}        {tag}")
    if found.missing:
        raise found.refusal(_elsewhere(command, root))
    if runs:
        shipping.replace_process(
            _run_command(found.name, tag, root, port=HEALTH_PORT, is_served=wanted.is_served), root
        )


@docker.command("run", short_help="Run the image with as few rights as it needs.")
@click.argument("arguments", metavar="[-- ARGUMENTS]", nargs=-1)
@click.option("--tag", "-t", default="", metavar="NAME[:TAG]", help="Which image (name:version of the project).")
@_engine
@_serve
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=HEALTH_PORT,
    metavar="PORT",
    help="Of this machine, for probes (8080).",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the command alone.")
def run(
    *,
    arguments: tuple[str, ...],
    tag: str,
    engine: _EngineName | None,
    is_served: bool,
    port: int,
    is_dry: bool,
) -> None:
    """Run the image of the project that this folder is in: read-only, without capabilities, and reachable from here alone.

    What the graph keeps goes into the volume NAME-state. ARGUMENTS are added to those of the image; see
    `python -m graphbus_core.runtime --help`. An image that was built with --serve is run with --serve, and its token comes
    from the environment.

    Exit status: that of the container; 8 there is no engine.

    \b
    Examples:
      graphbus docker run
      graphbus docker run --dry-run
      graphbus docker run --tag ghcr.io/acme/shop:1.4.2 --port 9090
      graphbus docker run -- --entrypoint my_shop.main:run
    """
    root = find_root([Path()])
    image = check_image(tag) if tag else name_image(root)
    name = _find_engine(engine, "" if is_dry else "see what would be run with --dry-run").name
    command = _run_command(name, image, root, port=port, is_served=is_served, arguments=arguments)
    if is_dry:
        console.print_lines(console.command_lines(shlex.join(command)))
        return
    shipping.replace_process(command, root)


def _check_tag(tag: str) -> str:
    """Return the tag of a new image; a digest is refused, because it is known only after the build."""
    name, at, _ = check_image(tag).partition("@")
    if at:
        raise invalid_value(tag, "name for a new image", "an image gets its digest only when it is built", name)
    return tag


def _elsewhere(command: list[str], root: Path) -> str:
    """Say how to build the image on another machine from the files that were written."""
    where = os.path.relpath(root)
    there = "" if where == "." else f"cd {shlex.quote(where)} && "
    return f"build it where there is one: `{there}{shlex.join(command)}`. The files are written; --no-build asks for no more"


# --- What goes into the image ---------------------------------------------------------------------------------------

DOORS = ("graphbus_core.runtime", "graphbus_core.hosting.serving.health")
"""The two commands of a container. The names that agents import come with the package itself."""
LEFT_BEHIND = "graphbus_core.build"
"""The package names `build_graph` as well, for those who have it."""
_NAME = "graphbus_runtime"
WHEEL_NAME = wheel.wheel_name(_NAME)
_METADATA = f"""\
Metadata-Version: 2.4
Name: {_NAME.replace("_", "-")}
Version: {graphbus_core.__version__}
Summary: Runtime Mode of GraphBus, without what builds.
License-Expression: MIT
Requires-Python: >=3.11
Requires-Dist: msgspec>=0.20
"""


@cache
def make_wheel() -> bytes:
    """Return a wheel of Runtime Mode, without what builds, as bytes."""
    return wheel.pack_wheel(_NAME, _modules(), {"METADATA": _METADATA})


def _modules() -> dict[str, bytes]:
    """Return path -> bytes of every module that the entry modules import, also inside functions."""
    top = Path(graphbus_core.__file__).parents[1]
    finder = ModuleFinder(path=[str(top)], excludes=[LEFT_BEHIND])
    for door in DOORS:
        finder.import_hook(door)
    names = (getattr(module, "__file__", None) for module in finder.modules.values())
    modules = {Path(name).relative_to(top).as_posix(): Path(name).read_bytes() for name in names if name}
    return {**modules, "graphbus_core/py.typed": b""}


class _ImageOptions(NamedTuple):
    """The options of the command by the names of its parameters, in the order in which the command is shown again."""

    requirements: str
    python: str
    base: str
    includes: tuple[str, ...]
    optional: tuple[str, ...]
    may_float: bool
    is_served: bool
    artifacts: str


def _plan_image(wanted: _ImageOptions) -> tuple[Path, Files]:
    """Collect everything that the artifacts need at run time; return the project root and the files of the image.

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
    own = [PROJECT_FILE] if (root / PROJECT_FILE).is_file() else []  # it has the settings, and marks the project root
    shown = {**wanted._asdict(), "includes": tuple(path.rstrip("/") for path in wanted.includes)}
    plan = ImagePlan(
        command=shipping.command_line("graphbus docker build", shown),
        base=base,
        wheel=WHEEL_NAME,
        artifacts=wanted.artifacts,
        artifact_files=(*store.ARTIFACTS, store.MANIFEST),
        sources=tuple(sorted({*store.needed_files(manifest), *own})),
        includes=wanted.includes,
        requirements=wanted.requirements,
        third_party=tuple(name for name in manifest.third_party if name not in wanted.optional),
        labels=dict(_labels(project, base)),
        is_served=wanted.is_served,
        writable=folders_to_write(project.run.powers),
    )
    packed = make_wheel()
    requirements = join_requirements(_pins(project, wanted), WHEEL_NAME, sha256(packed).hexdigest(), theirs)
    return root, generate_image(plan, requirements=requirements, wheel=packed)


def _base(project: BuiltProject, wanted: _ImageOptions) -> str:
    if wanted.base:
        return check_base(wanted.base, may_float=wanted.may_float)
    return BASES[choose_python(wanted.python, text_of(project.about, "requires-python"))]


def _included(root: Path, path: str) -> str:
    below = _below(root, path)
    if not below:
        raise DeployError("GBE714", path=path, reason="it is the whole project; name only the parts that are needed")
    return f"{below}/" if os.path.isdir(path) else below


def _below(root: Path, path: str) -> str:
    """Return a path relative to the project; empty for the project itself, and for an empty path."""
    resolved = Path(path).resolve() if path else root
    if not resolved.is_relative_to(root):
        raise DeployError("GBE714", path=path, reason=f"it is not below the project {root}")
    return "" if resolved == root else resolved.relative_to(root).as_posix()


def _their_requirements(project: BuiltProject, wanted: _ImageOptions) -> dict[str, str]:
    brought = {"msgspec", *(["opentelemetry"] if project.run.settings.tracing else []), *wanted.optional}
    needed = [name for name in project.manifest.third_party if name not in brought]
    if not wanted.requirements:
        if needed:
            raise DeployError("GBE710", modules=", ".join(needed))
        return {}
    try:
        text = (project.root / wanted.requirements).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DeployError("GBE714", path=wanted.requirements, reason=f"{reason[:1].lower()}{reason[1:]}") from None
    return read_hashed(text, wanted.requirements)


def _pins(project: BuiltProject, wanted: _ImageOptions) -> Iterator[str]:
    """Yield the pinned requirements of GraphBus that this project needs at run time."""
    lock = package_files("graphbus_core.deploy") / "lock"
    needed = {"runtime": True, "serve": wanted.is_served, "otel": project.run.settings.tracing}
    return ((lock / f"{name}.txt").read_text(encoding="utf-8") for name, is_needed in needed.items() if is_needed)


def _labels(project: BuiltProject, base: str) -> Iterator[tuple[str, str]]:
    """Yield OCI labels from pyproject.toml; the pipeline that builds the image adds others, e.g. the revision."""
    urls = project.about.get("urls")
    at = {key.lower(): url for key, url in urls.items()} if isinstance(urls, dict) else {}
    name, _, digest = base.partition("@")
    known = {
        "title": project.about.get("name") or project.root.name,
        "version": project.about.get("version"),
        "source": at.get("source") or at.get("repository"),
        "base.name": name,
        "base.digest": digest,
    }
    for key, value in known.items():
        if isinstance(value, str) and value.isprintable() and value and not value.endswith("\\"):
            yield f"org.opencontainers.image.{key}", value
