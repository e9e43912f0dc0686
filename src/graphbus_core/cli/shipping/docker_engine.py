"""The engine that builds and runs images: docker or podman, if one is there and answers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple

from graphbus_core.cli import console
from graphbus_core.deploy.facts import HEALTH_PORT, SERVE_PORT, STATE, USER_ID
from graphbus_core.deploy.image.plan import start_arguments
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
    """An engine, or the reason why there is none; then it is the one whose commands are shown."""

    name: Name
    missing: str = ""


def find_engine(wanted: Name | None) -> Engine:
    """Look for the engine that was asked for, else for docker, then podman."""
    silent: list[Engine] = []
    for name in (wanted,) if wanted else ENGINES:
        if shutil.which(name):
            reason = _ask(name)
            if not reason:
                return Engine(name)
            silent.append(Engine(name, reason))
    return silent[0] if silent else Engine(wanted or "docker", "not found")


def demand_engine(wanted: Name | None, *, otherwise: str) -> Engine:
    """The same for who cannot go on without one.

    Raises:
        DeployError: GBE704 none is installed, GBE715 it does not answer.
    """
    engine = find_engine(wanted)
    if engine.missing == "not found":
        raise DeployError("GBE704", program=wanted or " or ".join(ENGINES), otherwise=otherwise)
    if engine.missing:
        raise DeployError("GBE715", program=engine.name, reason=engine.missing, otherwise=otherwise)
    return engine


def _ask(name: Name) -> str:
    """Why the engine does not answer; empty when it does."""
    try:
        asked = subprocess.run(
            [name, *_QUESTIONS[name]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing in {_PATIENCE_S:.0f} seconds"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if asked.returncode == 0:
        return ""
    last = [line.strip() for line in asked.stderr.splitlines() if line.strip()][-1:]
    return last[0].partition(". ")[0].rstrip(".?!") if last else f"status {asked.returncode}"


def build_command(engine: Name, tag: str, dockerfile: str) -> list[str]:
    """What builds the image, in the folder of the project."""
    elsewhere = [] if dockerfile == "Dockerfile" else ["--file", dockerfile]
    as_docker = ["--format", "docker"] if engine == "podman" else []  # else podman drops HEALTHCHECK
    return [engine, "build", *as_docker, *elsewhere, "--tag", tag, "."]


class Start(NamedTuple):
    """How a container is started.

    Attributes:
        port: Of this machine, for probes and metrics.
        serve_port: For calls and events; None: the image does not take any.
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
    """What runs the image with as few rights as it needs: read-only, nobody's user, no capabilities, loopback only."""
    served: list[str] = []
    if start.serve_port is not None:
        served = ["--publish", f"127.0.0.1:{start.serve_port}:{SERVE_PORT}", "--env", start.token_env]
    return [
        *(engine, "run", "--rm", "--init"),
        *("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m"),  # noqa: S108 - of the container
        *("--user", f"{USER_ID}:{USER_ID}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--volume", f"{start.volume}:{STATE}"),
        *("--publish", f"127.0.0.1:{start.port}:{HEALTH_PORT}", *served),
        *("--stop-timeout", str(ceil(start.grace_s) + _MARGIN_S)),
        *(start.image, *(_arguments(start) if start.arguments else ())),
    ]


def _arguments(start: Start) -> tuple[str, ...]:
    """An engine leaves out what the image says as soon as one word is given: without it nobody answers its HEALTHCHECK."""
    return (*start_arguments(is_served=start.serve_port is not None), *start.arguments)


def become(command: list[str], cwd: Path) -> None:
    """Let a program take our place, so that Ctrl-C and SIGTERM reach it and nobody else.

    Raises:
        DeployError: GBE705 it cannot be started.
    """
    console.say(console.paint(f"$ {console.plain(shlex.join(command))}", "dim"))
    console.flush()
    os.chdir(cwd)
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell is what it must not have
    except OSError:
        raise DeployError("GBE705", command=shlex.join(command[:2]), status=127) from None
