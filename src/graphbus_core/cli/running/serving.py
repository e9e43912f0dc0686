"""The options of `graphbus run` that put servers beside the graph: `--serve` and `--health`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import click

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.errors import UsageError
from graphbus_core.model.config import Instrument

F = TypeVar("F", bound=Callable[..., Any])


def serving_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(
        [
            click.option("--serve", "is_served", is_flag=True, help="Take calls and events over HTTP."),
            click.option("--host", default="", metavar="HOST", help="Where --serve listens (127.0.0.1)."),
            click.option(
                "--port", type=click.IntRange(0, 65535), metavar="PORT", help="Its port (8765); 0: any that is free."
            ),
            click.option(
                "--health", default="", metavar="[HOST:]PORT", help="Probes and metrics alone, without a token."
            ),
        ]
    ):
        command = option(command)
    return command


class Beside(NamedTuple):
    """What a run gets for its servers.

    Attributes:
        middleware: What measures for them.
        companions: The servers themselves.
        ports: Where they listen: `serve` and `health`.
    """

    middleware: tuple[Instrument, ...] = ()
    companions: tuple[runtime.Companion, ...] = ()
    ports: Mapping[str, int] = MappingProxyType({})


def servers(stack: ExitStack, artifacts: str, *, is_served: bool, host: str, port: int | None, health: str) -> Beside:
    """Make the servers that were asked for; the stack lets go of their addresses.

    Raises:
        UsageError: GBE131 for --host or --port without --serve, GBE155-157 for a token or an address that cannot be used.
        RunError: GBE671 when packages are missing, GBE672 when an address cannot be had.
    """
    for option, value in (("--host", host or None), ("--port", port)):
        if value is not None and not is_served:
            raise UsageError("GBE131", option=option, needed="--serve")
    if not is_served and not health:
        return Beside()
    from graphbus_core.hosting.serving.address import read_address
    from graphbus_core.hosting.serving.companion import Asked, Servers

    probes = read_address(health, "127.0.0.1") if health else None
    made = Servers(Asked(is_served, host, port, probes), artifacts, lambda line: console.say(f"[RUNTIME] {line}"))
    stack.callback(made.close)
    return Beside((made.meter,), (made.beside,), made.ports)
