"""`graphbus docker`: a Dockerfile and what belongs to it from the artifacts of a build; the image, where an engine is there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.shipping import docker_engine, writing
from graphbus_core.cli.shipping.docker_engine import Engine, Name, Start
from graphbus_core.cli.shipping.docker_plan import Image, Wanted, name_image, plan_image
from graphbus_core.cli.shipping.programs import run as run_program
from graphbus_core.deploy.facts import HEALTH_PORT, SERVE_PORT
from graphbus_core.deploy.names import as_label, check_image
from graphbus_core.errors import DeployError, UsageError
from graphbus_core.model.config import RuntimeRequest
from graphbus_core.settings import find_root, resolve_run


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was given to `build`; the fields are named as its parameters."""

    artifacts: str
    tag: str
    engine: Name | None
    runs: bool
    writes_only: bool
    output: str
    base: str
    may_float: bool
    python: str
    requirements: str
    includes: tuple[str, ...]
    optional: tuple[str, ...]
    is_served: bool
    is_forced: bool
    is_check: bool
    is_diff: bool
    as_json: bool

    @property
    def builds(self) -> bool:
        """The files are for an image that is to be built now."""
        return not (self.writes_only or self.is_check or self.is_diff)

    @property
    def wanted(self) -> Wanted:
        """What the image is to be like."""
        return Wanted(**{name: getattr(self, name) for name in Wanted._fields})

    @property
    def wish(self) -> writing.Wish:
        """How its files are written."""
        return writing.Wish(**{name: getattr(self, name) for name in writing.Wish._fields})


_MOST_LEFT_OUT = 10
_engine = click.option(
    "--engine", type=click.Choice(docker_engine.ENGINES), help="What builds and runs images (the first that answers)."
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
@click.option(
    "--output", "-o", default="", metavar="DIR", help="Where to write, below the project (the project itself)."
)
@writing.options
def build(**given: Any) -> int:
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
    options = msgspec.convert(given, Options)
    _refuse_contradictions(options)
    image = plan_image(options.wanted)
    tag = _check_tag(options.tag) if options.tag else name_image(image.root)
    engine = _engine_for(options)
    states = writing.write(Path(os.path.relpath(image.root)), image.files, options.wish)
    if not options.is_check:
        _say_left_out(image)
    command = docker_engine.build_command(engine.name, tag, image.dockerfile)
    is_built = options.builds and not engine.missing
    if is_built:
        run_program(command, image.root)
    elif options.builds:
        _say_no_engine(engine, command, image)
    if options.as_json:
        left_out = [each.path for each in image.left_out]
        facts = {"files": states, "image": tag, "command": command, "is_built": is_built, "left_out": left_out}
        console.emit_json(facts)
    elif is_built:
        console.out(f"{console.paint('built', 'good')}        {tag}")
    if options.runs:
        start = _start(image.root, tag, HEALTH_PORT, SERVE_PORT if options.is_served else None)
        docker_engine.become(docker_engine.run_command(engine.name, start), image.root)
    return 0


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was given to `run`; the fields are named as its parameters."""

    arguments: tuple[str, ...]
    tag: str
    engine: Name | None
    is_served: bool
    port: int
    serve_port: int | None
    is_dry: bool


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
def run(**given: Any) -> int:
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
    options = msgspec.convert(given, RunOptions)
    if options.serve_port is not None and not options.is_served:
        raise UsageError("GBE131", option="--serve-port", needed="--serve")
    root = find_root([Path()])
    image = check_image(options.tag) if options.tag else name_image(root)
    start = _start(root, image, options.port, (options.serve_port or SERVE_PORT) if options.is_served else None)
    start = start._replace(arguments=options.arguments)
    if options.is_dry:
        engine = docker_engine.find_engine(options.engine)
        console.out(shlex.join(docker_engine.run_command(engine.name, start)))
        return 0
    engine = docker_engine.demand_engine(options.engine, otherwise="see what would be run with --dry-run")
    docker_engine.become(docker_engine.run_command(engine.name, start), root)
    return 0


def _refuse_contradictions(options: Options) -> None:
    for option, is_given in (
        ("--no-build", options.writes_only),
        ("--check", options.is_check),
        ("--diff", options.is_diff),
    ):
        if options.runs and is_given:
            raise UsageError("GBE132", option="--run", other=option, reason="what is not built cannot be run")
    if options.base and options.python:
        raise UsageError("GBE132", option="--base", other="--python", reason="an image brings its own Python")
    if options.runs and options.as_json:
        raise UsageError("GBE132", option="--run", other="--json", reason="the graph talks on stdout")


def _check_tag(tag: str) -> str:
    """What is built cannot be called by a digest: nobody knows it before."""
    name, at, _ = check_image(tag).partition("@")
    if at:
        reason = "an image gets its digest when it is built"
        raise DeployError("GBE703", value=repr(tag), kind="name for a new image", reason=reason, example=name)
    return tag


def _start(root: Path, image: str, port: int, serve_port: int | None) -> Start:
    settings = resolve_run(RuntimeRequest(artifacts=str(root / ".graphbus"))).settings
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return Start(
        image=image,
        port=port,
        serve_port=serve_port,
        token_env=settings.serve.token_env,
        volume=f"{as_label(name)}-state",
        grace_s=settings.grace_s,
    )


def _engine_for(options: Options) -> Engine:
    """Look for one, before anything is written where nothing else will do; where nothing is built, any will do."""
    if not options.builds:
        return Engine(options.engine or "docker")
    if options.runs or options.engine:
        return docker_engine.demand_engine(options.engine, otherwise="write the files alone with --no-build")
    return docker_engine.find_engine(None)


def _say_left_out(image: Image) -> None:
    """What is missing would be met when the graph runs; whether it is needed, only the user knows."""
    for path, source, line in image.left_out[:_MOST_LEFT_OUT]:
        console.say(
            console.plain(f"{source}:{line} names {path}, which does not go into the image without --include {path}")
        )
    if len(image.left_out) > _MOST_LEFT_OUT:
        console.say(f"and {len(image.left_out) - _MOST_LEFT_OUT} more; --json has them all")


def _say_no_engine(engine: Engine, command: list[str], image: Image) -> None:
    silent = f"The engine of {engine.name} does not answer ({engine.missing})"
    why = "There is neither docker nor podman" if engine.missing == "not found" else silent
    where = os.path.relpath(image.root)
    there = "" if where == "." else f"cd {shlex.quote(where)} && "
    console.say(f"{console.plain(why)}: nothing was built. To build it:")
    console.say(f"  {console.plain(f'{there}{shlex.join(command)}')}")
