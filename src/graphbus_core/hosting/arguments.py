"""The command line of `python -m graphbus_core.runtime`. It uses getopt, because argparse alone takes long to import."""

from __future__ import annotations

import os
from collections.abc import Sequence
from getopt import GetoptError, getopt

import msgspec

from graphbus_core.errors import UsageError
from graphbus_core.model.config import RuntimeConfig

LEDGER_VARIABLE = "GRAPHBUS_LEDGER"
"""Names the ledger if `--ledger` does not, so that a password in its address is not on the command line."""
COMMAND = "python -m graphbus_core.runtime"
HELP = f"""Usage: {COMMAND} [OPTIONS]

Runtime Mode; see also `graphbus run`. Without an entry point the graph stays up until SIGTERM or Ctrl-C.

  --only AGENT                  run this agent alone; may be repeated
  --partition N                 handle only this partition of the agents, on NATS
  --entrypoint MODULE:FUNCTION  call this function when the graph is ready
  --artifacts DIR               the artifact folder (.graphbus)
  --allow-drift                 start although source files differ from what was built
  --ledger LEDGER               keep events there until they are handled ($GRAPHBUS_LEDGER)
  --confined                    enforce [tool.graphbus.powers] with Landlock and seccomp
  --health [HOST:]PORT          answer probes and metrics there (127.0.0.1)
  --serve [HOST:]PORT           take calls and events over HTTP there (127.0.0.1)
"""
_VALUES = ("entrypoint=", "artifacts=", "health=", "serve=", "only=", "ledger=", "partition=")
_SWITCHES = ("allow-drift", "confined", "help")


class Arguments(msgspec.Struct, frozen=True):
    """The parsed command line.

    Attributes:
        request: What to run.
        health: The address for probes and metrics, `[HOST:]PORT`; empty: none.
        serve: The address for calls and events over HTTP, in the same form; empty: none.
    """

    request: RuntimeConfig
    health: str = ""
    serve: str = ""


def parse_arguments(words: Sequence[str]) -> Arguments | None:
    """Parse the words after the command; return None for `--help`.

    If an option is repeated, its last value counts; the values of `--only` are all kept.

    Raises:
        UsageError: GBE110 for an unknown option, an option without its value, or a positional argument.
    """
    try:
        options, rest = getopt(list(words), "h", [*_VALUES, *_SWITCHES])
        for name, value in options:
            if not value and f"{name[2:]}=" in _VALUES:  # such as `--serve=$PORT` with an unset variable
                raise GetoptError(f"option {name} requires argument")
        if rest:
            raise GetoptError(f"unexpected argument {rest[0]}")
        if any(name == "--partition" and not value.isdecimal() for name, value in options):
            raise GetoptError("option --partition requires a whole number")
        if ("--ledger", "") in options:
            raise GetoptError("option --ledger requires the name of a ledger")
    except GetoptError as error:
        message = f"{error.msg[:1].upper()}{error.msg[1:]}."
        raise UsageError("GBE110", message=message, command=COMMAND, purpose="see its options") from None
    values = {"--artifacts": ".graphbus", **dict(options)}
    if "--help" in values or "-h" in values:
        return None
    entrypoint, serve = values.get("--entrypoint", ""), values.get("--serve", "")
    request = RuntimeConfig(
        artifacts=values["--artifacts"],
        entrypoint=entrypoint,
        allow_drift="--allow-drift" in values,
        is_confined="--confined" in values,
        only=tuple(value for name, value in options if name == "--only"),
        partition=int(values["--partition"]) if "--partition" in values else None,
        ledger=values.get("--ledger", os.environ.get(LEDGER_VARIABLE) or None),
        is_serving=bool(serve) or not entrypoint,  # a graph that stays up delivers on its own thread
    )
    return Arguments(request, values.get("--health", ""), serve)
