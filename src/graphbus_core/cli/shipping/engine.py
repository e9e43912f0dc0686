"""The engine that builds and runs images: docker or podman, if one is there and answers."""

from __future__ import annotations

import shutil
from math import ceil
from typing import Literal, NamedTuple

from graphbus_core.cli.shipping import programs
from graphbus_core.deploy.facts import HEALTH_PORT, SERVE_PORT, STATE, USER_ID
from graphbus_core.deploy.image import start_arguments
from graphbus_core.errors import DeployError

Name = Literal["docker", "podman"]
ENGINES: tuple[Name, ...] = ("docker", "podman")
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


def find_engine(wanted: Name | None) -> Engine:
    """Look for the engine that was asked for, else for docker, then podman."""
    installed = [name for name in ((wanted,) if wanted else ENGINES) if shutil.which(name)]
    silent: list[Engine] = []
    for name in installed:
        answer = programs.ask([name, *_QUESTIONS[name]], timeout_s=_PATIENCE_S)
        if not answer.status:
            return Engine(name)
        silent.append(Engine(name, answer.reason.partition(". ")[0].rstrip(".?!")))
    return silent[0] if silent else Engine(wanted or "docker", "not found")


def demand_engine(wanted: Name | None, *, otherwise: str) -> Engine:
    """The same for a caller that cannot go on without one.

    Raises:
        DeployError: GBE704 none is installed, GBE715 it does not answer.
    """
    engine = find_engine(wanted)
    if engine.missing == "not found":
        raise DeployError("GBE704", program=wanted or " or ".join(ENGINES), otherwise=otherwise)
    if engine.missing:
        raise DeployError("GBE715", program=engine.name, reason=engine.missing, otherwise=otherwise)
    return engine


def build_command(engine: Name, tag: str, dockerfile: str) -> list[str]:
    """Return the command that builds the image, in the folder of the project."""
    elsewhere = [] if dockerfile == "Dockerfile" else ["--file", dockerfile]
    as_docker = ["--format", "docker"] if engine == "podman" else []  # else podman drops HEALTHCHECK
    return [engine, "build", *as_docker, *elsewhere, "--tag", tag, "."]


class Start(NamedTuple):
    """How a container is started.

    Attributes:
        port: Of this machine, for probes and metrics.
        serve_port: Of this machine, for calls and events; None: the image does not take any.
        token_env: The variable with their token.
        volume: The name of the volume with state.
        arguments: On top of those of the image.
    """

    image: str
    port: int
    serve_port: int | None
    token_env: str
    volume: str
    grace_s: float
    arguments: tuple[str, ...] = ()


def run_command(engine: Name, start: Start) -> list[str]:
    """Return the command that runs the image with as few rights as it needs, reachable from this machine alone."""
    served: list[str] = []
    if start.serve_port is not None:
        served = ["--publish", f"127.0.0.1:{start.serve_port}:{SERVE_PORT}", "--env", start.token_env]
    # One word is enough for an engine to leave out what the image says; then nobody would answer its HEALTHCHECK.
    arguments = (*start_arguments(is_served=bool(served)), *start.arguments) if start.arguments else ()
    return [
        *(engine, "run", "--rm", "--init"),
        *("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m"),  # noqa: S108 - of the container
        *("--user", f"{USER_ID}:{USER_ID}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--volume", f"{start.volume}:{STATE}"),
        *("--publish", f"127.0.0.1:{start.port}:{HEALTH_PORT}", *served),
        *("--stop-timeout", str(ceil(start.grace_s) + _MARGIN_S)),
        *(start.image, *arguments),
    ]
