"""`graphbus docker`: a Dockerfile and what belongs to it from the artifacts of a build; the image, where an engine is there."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.shipping import programs, writing
from graphbus_core.cli.shipping.image import Wanted, plan_image
from graphbus_core.cli.shipping.programs import name_image
from graphbus_core.deploy.image import start_arguments
from graphbus_core.deploy.names import (
    HEALTH_PORT,
    SERVE_PORT,
    STATE,
    USER_ID,
    as_label,
    check_image,
    parts_of_image,
    refusal,
)
from graphbus_core.errors import DeployError, UsageError
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.settings import find_root, resolve_run

Name = Literal["docker", "podman"]
_ENGINES: tuple[Name, ...] = ("docker", "podman")
_PATIENCE_S = 15.0
_MARGIN_S = 5
_QUESTIONS: dict[Name, tuple[str, ...]] = {
    "docker": ("version", "--format", "{{.Server.Version}}"),
    "podman": ("info", "--format", "{{.Version.Version}}"),
}
"""What only an engine can answer: the client of docker runs without one."""


class Engine(NamedTuple):
    """An engine, or the reason why there is none; then `name` is the one whose commands are shown."""

    name: Name
    missing: str = ""


def _find_engine(wanted: Name | None) -> Engine:
    """Look for the engine that was asked for, else for docker, then podman."""
    names = (wanted,) if wanted else _ENGINES
    silent: list[Engine] = []
    for name in filter(shutil.which, names):
        answer = programs.ask([name, *_QUESTIONS[name]], timeout_s=_PATIENCE_S)
        if not answer.status:
            return Engine(name)
        silent.append(Engine(name, answer.reason.partition(". ")[0].rstrip(".?!")))
    return silent[0] if silent else Engine(names[0], "not found")


def _demand_engine(wanted: Name | None, *, otherwise: str) -> Engine:
    """The same for a caller that cannot go on without one.

    Raises:
        DeployError: GBE704 none is installed, GBE715 it does not answer.
    """
    engine = _find_engine(wanted)
    if engine.missing == "not found":
        raise DeployError("GBE704", program=wanted or " or ".join(_ENGINES), otherwise=otherwise)
    if engine.missing:
        raise DeployError("GBE715", program=engine.name, reason=engine.missing, otherwise=otherwise)
    return engine


def _run_command(
    engine: Name, image: str, root: Path, *, port: int, serve_port: int | None, arguments: tuple[str, ...] = ()
) -> list[str]:
    """Return the command that runs the image with as few rights as it needs, reachable from this machine alone.

    Args:
        root: The project, whose settings are read.
        port: Of this machine, for probes and metrics.
        serve_port: Of this machine, for calls and events; None: the image does not take any.
        arguments: On top of those of the image.
    """
    settings = resolve_run(RuntimeConfig(artifacts=str(root / ".graphbus"))).settings
    name = parts_of_image(image)[0].rpartition("/")[2]
    served: list[str] = []
    if serve_port is not None:
        served = ["--publish", f"127.0.0.1:{serve_port}:{SERVE_PORT}", "--env", settings.serve.token_env]
    # One word is enough for an engine to leave out what the image says; then nobody would answer its HEALTHCHECK.
    given = (*start_arguments(is_served=bool(served)), *arguments) if arguments else ()
    return [
        *(engine, "run", "--rm", "--init"),
        *("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m"),  # noqa: S108 - of the container
        *("--user", f"{USER_ID}:{USER_ID}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--volume", f"{as_label(name)}-state:{STATE}"),
        *("--publish", f"127.0.0.1:{port}:{HEALTH_PORT}", *served),
        *("--stop-timeout", str(ceil(settings.grace_s) + _MARGIN_S)),
        *(image, *given),
    ]


_engine = click.option(
    "--engine", type=click.Choice(_ENGINES), help="What builds and runs images (the first that answers)."
)
_serve = click.option("--serve", "is_served", is_flag=True, help="Take calls and events over HTTP.")


@click.group("docker", short_help="Write a Dockerfile, build the image, run it.")
def docker() -> None:
    """Make an image of the graph that a build has written, and run it.

    \b
    Examples:
      graphbus docker build
      graphbus docker build --tag ghcr.io/acme/shop:1.4.2 --run
      graphbus docker run
    """


@docker.command("build", short_help="Write a Dockerfile; build the image where an engine is there.")
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
@writing.options
def build(*, tag: str, engine: Name | None, runs: bool, writes_only: bool, **given: Any) -> None:
    """Write a Dockerfile for the graph in ARTIFACTS, a folder (.graphbus by default), and build the image.

    The image has Python, the runtime and the agents: no command line, nothing that builds or negotiates, no model. Its base is
    pinned by digest and all packages by hash. It runs as a user without a name, writes to /var/lib/graphbus alone, and says
    at port 8080 how it is. Without docker or podman the files are written all the same.

    Exit status: 0 done; 6 the artifacts are damaged, or older than the source files; 8 a file would be overwritten, packages
    are not pinned, there is no engine to run with, or it has failed.

    \b
    Examples:
      graphbus docker build
      graphbus docker build --tag ghcr.io/acme/shop:1.4.2
      graphbus docker build --requirements requirements.txt
      graphbus docker build --include agents/prices.json
      graphbus docker build --serve --run
      graphbus docker build --check
    """
    wanted = Wanted(**{name: given[name] for name in Wanted._fields})
    wish = writing.Wish(**{name: given[name] for name in writing.Wish._fields})
    if runs:
        _refuse_run(
            {"--no-build": writes_only, "--check": wish.is_check, "--diff": wish.is_diff, "--json": wish.as_json}
        )
    if wanted.base and wanted.python:
        raise UsageError("GBE132", option="--base", other="--python", reason="an image brings its own Python")
    root, files = plan_image(wanted)
    tag = _check_tag(tag) if tag else name_image(root)
    builds = not (writes_only or wish.is_check or wish.is_diff)
    if runs or (builds and engine):  # nothing is written if the command is useless without one
        found = _demand_engine(engine, otherwise="write the files alone with --no-build")
    else:
        found = _find_engine(None) if builds else Engine(engine or "docker")
    states = writing.write(Path(os.path.relpath(root)), files, wish)
    as_docker = ["--format", "docker"] if found.name == "podman" else []  # else podman drops HEALTHCHECK
    command = [found.name, "build", *as_docker, "--tag", tag, "."]
    is_built = builds and not found.missing
    if is_built:
        programs.run(command, root)
    elif builds:
        _say_no_engine(found, command, root)
    if wish.as_json:
        console.emit_json({"files": states, "image": tag, "command": command, "is_built": is_built})
    elif is_built:
        console.out(f"{console.paint('built', 'good')}        {tag}")
    if runs:
        serve_port = SERVE_PORT if wanted.is_served else None
        programs.become(_run_command(found.name, tag, root, port=HEALTH_PORT, serve_port=serve_port), root)


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
@click.option(
    "--serve-port", type=click.IntRange(1, 65535), metavar="PORT", help="Of this machine, for calls and events (8765)."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the command alone.")
def run(
    *,
    arguments: tuple[str, ...],
    tag: str,
    engine: Name | None,
    is_served: bool,
    port: int,
    serve_port: int | None,
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
    if serve_port is not None and not is_served:
        raise UsageError("GBE131", option="--serve-port", needed="--serve")
    root = find_root([Path()])
    image = check_image(tag) if tag else name_image(root)
    served = (serve_port or SERVE_PORT) if is_served else None
    name = (
        _find_engine(engine).name
        if is_dry
        else _demand_engine(engine, otherwise="see what would be run with --dry-run").name
    )
    command = _run_command(name, image, root, port=port, serve_port=served, arguments=arguments)
    if is_dry:
        console.out(shlex.join(command))
        return
    programs.become(command, root)


def _refuse_run(others: Mapping[str, bool]) -> None:
    for option, is_given in others.items():
        if is_given:
            reason = "the graph talks on stdout" if option == "--json" else "what is not built cannot be run"
            raise UsageError("GBE132", option="--run", other=option, reason=reason)


def _check_tag(tag: str) -> str:
    """Return the tag of a new image, which cannot be a digest: nobody knows it before the build."""
    name, at, _ = check_image(tag).partition("@")
    if at:
        raise refusal(tag, "name for a new image", "an image gets its digest when it is built", name)
    return tag


def _say_no_engine(engine: Engine, command: list[str], root: Path) -> None:
    silent = f"The engine of {engine.name} does not answer ({engine.missing})"
    why = "There is neither docker nor podman" if engine.missing == "not found" else silent
    where = os.path.relpath(root)
    there = "" if where == "." else f"cd {shlex.quote(where)} && "
    console.say(f"{console.plain(why)}: nothing was built. To build it:")
    console.say(f"  {console.plain(f'{there}{shlex.join(command)}')}")
