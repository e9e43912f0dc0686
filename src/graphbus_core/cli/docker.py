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
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.ledger.nats_names import is_on_nats
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


_ONLY_FILES = "write only the files with --no-build"


class _Engine(NamedTuple):
    """A container engine. If none is usable, `missing` says why, and `name` is the one for which commands are printed.

    Attributes:
        missing: Why it cannot be used; `"not found"` if none is installed; empty if it can be used.
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


def _find_engine(requested: _EngineName | None, otherwise: str = "") -> _Engine:
    """Return the requested engine, or without a request the first of docker and podman that answers.

    Args:
        requested: The only engine to try; None means both.
        otherwise: What the user can do without an engine. If it is empty and no engine answers, the engine that is returned
            has the reason in `missing`; else an error with this hint is raised.

    Raises:
        DeployError: GBE704, none is installed; GBE715, none answers.
    """
    names = (requested,) if requested else _ENGINES
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
        is_served: Also publish the port for calls and events, and pass on the variable with the token.
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


_engine_option = click.option(
    "--engine", type=click.Choice(_ENGINES), help="The program that builds and runs images (the first that answers)."
)
_serve_option = click.option("--serve", "is_served", is_flag=True, help="Accept calls and events over HTTP.")


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
    "--tag", "-t", default="", metavar="NAME[:TAG]", help="The name of the image (name:version of the project)."
)
@click.option("--run", "runs", is_flag=True, help="Run the image when it is built.")
@click.option("--no-build", "writes_only", is_flag=True, help="Write the files and build nothing.")
@_engine_option
@_serve_option
@click.option("--nats", "has_nats", is_flag=True, help="Add what a ledger on NATS needs (if the settings name one).")
@click.option("--requirements", default="", metavar="FILE", help="The requirements of the agents, pinned with hashes.")
@click.option(
    "--include", "includes", multiple=True, metavar="PATH", type=click.Path(exists=True),
    help="A further file or folder that the agents need, e.g. one with data; may be repeated.",
)  # fmt: skip
@click.option(
    "--optional",
    multiple=True,
    metavar="MODULE",
    help="A module that the agents import only if it is installed; may be repeated.",
)
@click.option(
    "--python", default="", metavar="VERSION", help="3.11 to 3.14 (3.11, or the next that `requires-python` allows)."
)
@click.option(
    "--base", default="", metavar="IMAGE", help="Build on this image instead; it needs Python, pip and a shell."
)
@click.option("--allow-unpinned", "may_float", is_flag=True, help="Accept a --base without a digest.")
@shipping.writing_options
def build(*, tag: str, engine: _EngineName | None, runs: bool, writes_only: bool, **given: Any) -> None:
    """Write a Dockerfile for the graph in ARTIFACTS, a folder (.graphbus by default), and build the image.

    The image has Python, the runtime and the agents: no command line, nothing that builds or negotiates, no model. Its base is
    pinned by digest and all packages by hash. It runs as an unnamed user, writes only to /var/lib/graphbus, and answers health
    probes on port 8080. Without docker or podman, only the files are written and the command fails; use --no-build to write
    only the files.

    Exit status: 0 done; 6 the artifacts are damaged, or older than the source files; 8 a file exists already, packages
    are not pinned, or the engine is missing or has failed.

    \b
    Examples:
      graphbus docker build
      graphbus docker build --tag ghcr.io/acme/shop:1.4.2
      graphbus docker build --requirements requirements.txt
      graphbus docker build --include agents/prices.json
      graphbus docker build --serve --run
      graphbus docker build --check
    """
    options = _ImageOptions(**{name: given[name] for name in _ImageOptions._fields})
    write_options = shipping.WriteOptions(**{name: given[name] for name in shipping.WriteOptions._fields})
    if runs and (writes_only or write_options != shipping.WriteOptions(is_forced=write_options.is_forced)):
        reason = "these options build no image, or write to stdout, which the running graph needs"
        raise UsageError("GBE132", option="--run", other="--no-build, --check, --diff or --json", reason=reason)
    if options.base and options.python:
        raise UsageError("GBE132", option="--base", other="--python", reason="a base image contains its own Python")
    root, files = _plan_image(options)
    tag = _check_tag(tag) if tag else name_image(root)
    builds = not (writes_only or write_options.is_check or write_options.is_diff)
    found = _Engine(engine or "docker")
    if builds:  # raises before anything is written if an image is required
        found = _find_engine(engine, _ONLY_FILES if runs or engine else "")
    states = shipping.write_files(Path(os.path.relpath(root)), files, write_options)
    as_docker = ["--format", "docker"] if found.name == "podman" else []  # otherwise podman drops HEALTHCHECK
    command = [found.name, "build", *as_docker, "--tag", tag, "."]
    is_built = builds and not found.missing
    if is_built:
        shipping.run_at_terminal(command, root)
    if write_options.as_json:
        console.emit_json({"files": states, "image": tag, "command": command, "is_built": is_built})
    elif is_built:
        console.print_line(f"{console.style('built', 'good')}        {tag}")
    if found.missing:
        raise found.refusal(_build_elsewhere_hint(command, root))
    if runs:
        shipping.replace_process(
            _run_command(found.name, tag, root, port=HEALTH_PORT, is_served=options.is_served), root
        )


@docker.command("run", short_help="Run the image with as few rights as it needs.")
@click.argument("arguments", metavar="[-- ARGUMENTS]", nargs=-1)
@click.option("--tag", "-t", default="", metavar="NAME[:TAG]", help="The image (name:version of the project).")
@_engine_option
@_serve_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=HEALTH_PORT,
    metavar="PORT",
    help="The port of this machine for probes (8080).",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only print the command.")
def run(
    *,
    arguments: tuple[str, ...],
    tag: str,
    engine: _EngineName | None,
    is_served: bool,
    port: int,
    is_dry: bool,
) -> None:
    """Run the image of the current project: read-only, without capabilities, and reachable only from this machine.

    What the agents store goes into the volume NAME-state. ARGUMENTS are added to those of the image; see
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


def _build_elsewhere_hint(command: list[str], root: Path) -> str:
    """Return the part of a hint that says how to build the image on another machine from the written files."""
    where = os.path.relpath(root)
    there = "" if where == "." else f"cd {shlex.quote(where)} && "
    return f"build the image from the written files on a machine that has it: `{there}{shlex.join(command)}`"


# --- What goes into the image ---------------------------------------------------------------------

DOORS = ("graphbus_core.runtime", "graphbus_core.hosting.serving.health")
"""The modules that a container runs. What agents import comes with the package `graphbus_core` itself."""
LEFT_BEHIND = "graphbus_core.build"
"""Left out although `graphbus_core` refers to it: `build_graph` is imported only when it is used."""
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
    """Return a wheel of Runtime Mode, without the modules that build, as bytes."""
    return wheel.pack_wheel(_NAME, _collect_modules(), {"METADATA": _METADATA})


def _collect_modules() -> dict[str, bytes]:
    """Return path -> bytes of every module that those in `DOORS` import, also inside functions."""
    top = Path(graphbus_core.__file__).parents[1]
    finder = ModuleFinder(path=[str(top)], excludes=[LEFT_BEHIND])
    for door in DOORS:
        finder.import_hook(door)
    names = (getattr(module, "__file__", None) for module in finder.modules.values())
    modules = {Path(name).relative_to(top).as_posix(): Path(name).read_bytes() for name in names if name}
    return {**modules, "graphbus_core/py.typed": b""}


class _ImageOptions(NamedTuple):
    """The options by the names of the parameters, in their order in the command that the Dockerfile quotes."""

    requirements: str
    python: str
    base: str
    includes: tuple[str, ...]
    optional: tuple[str, ...]
    may_float: bool
    is_served: bool
    has_nats: bool
    artifacts: str


def _plan_image(options: _ImageOptions) -> tuple[Path, Files]:
    """Collect everything that the artifacts need at run time; return the project root and the files of the image.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515.
        DeployError: GBE703, GBE710-714 or GBE738: an option, or a value of pyproject.toml, cannot be used.
    """
    project = read_project(options.artifacts)
    root, manifest = project.root, project.manifest
    options = options._replace(
        requirements=_path_in_project(root, options.requirements),
        artifacts=_path_in_project(root, options.artifacts),
        includes=tuple(_path_to_include(root, path) for path in options.includes),
    )
    agent_requirements = _read_agent_requirements(project, options)
    base = _choose_base(project, options)
    own = [PROJECT_FILE] if (root / PROJECT_FILE).is_file() else []  # holds the settings, and marks the project root
    shown = {**options._asdict(), "includes": tuple(path.rstrip("/") for path in options.includes)}
    plan = ImagePlan(
        command=shipping.command_line("graphbus docker build", shown),
        base=base,
        wheel=WHEEL_NAME,
        artifacts=options.artifacts,
        artifact_files=(*store.ARTIFACTS, store.MANIFEST),
        sources=tuple(sorted({*store.needed_files(manifest), *own})),
        includes=options.includes,
        requirements=options.requirements,
        third_party=tuple(name for name in manifest.third_party if name not in options.optional),
        labels=dict(_labels(project, base)),
        is_served=options.is_served,
        writable=folders_to_write(project.run.powers),
    )
    packed = make_wheel()
    requirements = join_requirements(
        _graphbus_requirements(project, options), WHEEL_NAME, sha256(packed).hexdigest(), agent_requirements
    )
    return root, generate_image(plan, requirements=requirements, wheel=packed)


def _choose_base(project: BuiltProject, options: _ImageOptions) -> str:
    """Return the base image: that of `--base`, or the pinned image of a Python version that the project allows."""
    if options.base:
        return check_base(options.base, may_float=options.may_float)
    return BASES[choose_python(options.python, text_of(project.about, "requires-python"))]


def _path_to_include(root: Path, path: str) -> str:
    """Return the path relative to the project, with `/` after a folder; the project itself is refused with GBE714."""
    below = _path_in_project(root, path)
    if not below:
        advice = "Pass only the files and folders that the agents need."
        raise DeployError("GBE714", path=path, reason="it is the whole project", advice=advice)
    return f"{below}/" if os.path.isdir(path) else below


def _path_in_project(root: Path, path: str) -> str:
    """Return a path relative to the project; empty for the project itself, and for an empty path.

    Raises:
        DeployError: GBE714, the path is outside the project.
    """
    resolved = Path(path).resolve() if path else root
    if not resolved.is_relative_to(root):
        advice = "Copy it into the project, and pass the path of the copy."
        raise DeployError("GBE714", path=path, reason=f"it is outside of the project folder {root}", advice=advice)
    return "" if resolved == root else resolved.relative_to(root).as_posix()


def _read_agent_requirements(project: BuiltProject, options: _ImageOptions) -> dict[str, str]:
    """Return distribution -> requirement with hashes, from the file of `--requirements`; empty without the option.

    Raises:
        DeployError: GBE710 if the agents need packages and no file was given, GBE711, GBE714 for an unusable file.
    """
    included = {"msgspec", *(["opentelemetry"] if project.run.settings.tracing else []), *options.optional}
    needed = [name for name in project.manifest.third_party if name not in included]
    if not options.requirements:
        if needed:
            raise DeployError("GBE710", modules=", ".join(needed))
        return {}
    try:
        text = (project.root / options.requirements).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason, advice = "it is not UTF-8 text", "Save the file as UTF-8."
        if isinstance(error, OSError):
            reason, advice = reason_of(error), advise_on(error, options.requirements)
        raise DeployError("GBE714", path=options.requirements, reason=reason, advice=advice) from None
    return read_hashed(text, options.requirements)


def _graphbus_requirements(project: BuiltProject, options: _ImageOptions) -> Iterator[str]:
    """Yield the texts of the lock files with the requirements of GraphBus that this project needs at run time."""
    lock = package_files("graphbus_core.deploy") / "lock"
    settings = project.run.settings
    has_nats = options.has_nats or is_on_nats(settings.ledger)
    needed = {"runtime": True, "serve": options.is_served, "otel": settings.tracing, "nats": has_nats}
    return ((lock / f"{name}.txt").read_text(encoding="utf-8") for name, is_needed in needed.items() if is_needed)


def _labels(project: BuiltProject, base: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of OCI labels, from pyproject.toml and the base image; unknown and unprintable values are left out.

    The pipeline that builds the image adds others, e.g. the revision.
    """
    urls = project.about.get("urls")
    addresses = {key.lower(): url for key, url in urls.items()} if isinstance(urls, dict) else {}
    name, _, digest = base.partition("@")
    known = {
        "title": project.about.get("name") or project.root.name,
        "version": project.about.get("version"),
        "source": addresses.get("source") or addresses.get("repository"),
        "base.name": name,
        "base.digest": digest,
    }
    for key, value in known.items():
        if isinstance(value, str) and value.isprintable() and value and not value.endswith("\\"):
            yield f"org.opencontainers.image.{key}", value
