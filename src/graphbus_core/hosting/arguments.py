"""What `python -m graphbus_core.runtime` understands. argparse alone would cost more time than verifying the artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from getopt import GetoptError, getopt

import msgspec

from graphbus_core.errors import UsageError
from graphbus_core.model.config import RuntimeConfig

COMMAND = "python -m graphbus_core.runtime"
HELP = f"""Usage: {COMMAND} [OPTIONS]

Runtime Mode; see also `graphbus run`. Without an entry point the graph stays up until SIGTERM or Ctrl-C.

  --only AGENT                  run this agent alone; may be repeated
  --entrypoint MODULE:FUNCTION  call this function when the graph is ready
  --artifacts DIR               the artifact folder (.graphbus)
  --allow-drift                 start although source files differ from what was built
  --confined                    enforce [tool.graphbus.powers] with Landlock and seccomp
  --health [HOST:]PORT          answer probes and metrics there (127.0.0.1)
  --serve [HOST:]PORT           take calls and events over HTTP there (127.0.0.1)
"""
_VALUES = ("entrypoint=", "artifacts=", "health=", "serve=", "only=")
_SWITCHES = ("allow-drift", "confined", "help")


class Arguments(msgspec.Struct, frozen=True):
    """What was typed.

    Attributes:
        health: Where probes are answered, `[HOST:]PORT`; empty: nowhere.
        serve: Where calls and events are taken, in the same form.
    """

    request: RuntimeConfig
    health: str = ""
    serve: str = ""


def parse_arguments(words: Sequence[str]) -> Arguments | None:
    """Understand the words; None for `--help`. Of an option that is given twice, the last one counts; of --only, all.

    Raises:
        UsageError: GBE110 for an option that does not exist, or one without its value.
    """
    try:
        options, rest = getopt(list(words), "h", [*_VALUES, *_SWITCHES])
        for name, value in options:
            if not value and f"{name[2:]}=" in _VALUES:  # `--serve=$PORT` of a variable that is not set
                raise GetoptError(f"option {name} requires argument")
        if rest:
            raise GetoptError(f"there is no argument {rest[0]}")
    except GetoptError as error:
        raise UsageError("GBE110", message=f"{error.msg[:1].upper()}{error.msg[1:]}.", command=COMMAND) from None
    given = {"--artifacts": ".graphbus", **dict(options)}
    if "--help" in given or "-h" in given:
        return None
    entrypoint, serve = given.get("--entrypoint", ""), given.get("--serve", "")
    request = RuntimeConfig(
        artifacts=given["--artifacts"],
        entrypoint=entrypoint,
        allow_drift="--allow-drift" in given,
        is_confined="--confined" in given,
        only=tuple(value for name, value in options if name == "--only"),
        is_serving=bool(serve) or not entrypoint,  # nobody but a thread of its own delivers while it stays up
    )
    return Arguments(request, given.get("--health", ""), serve)
