"""What `python -m graphbus_core.runtime` understands. argparse alone would cost more time than verifying the artifacts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphbus_core.errors import UsageError, did_you_mean
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
_SWITCHES = ("--allow-drift", "--confined", "--help")
_VALUES = ("--entrypoint", "--artifacts", "--health", "--serve", "--only")


class Arguments(msgspec.Struct, frozen=True):
    """What was typed.

    Attributes:
        health: Where probes are answered, `[HOST:]PORT`; empty: nowhere.
        serve: Where calls and events are taken, in the same form.
    """

    request: RuntimeConfig
    health: str = ""
    serve: str = ""


def read(words: Sequence[str]) -> Arguments | None:
    """Understand the words; None for `--help`. Of an option that is given twice, the last one counts; of --only, all.

    Raises:
        UsageError: GBE110 for an option that does not exist, or one without its value.
    """
    given = dict.fromkeys(_VALUES, "") | {"--artifacts": ".graphbus"}
    switches: set[str] = set()
    only: list[str] = []
    left = iter(words)
    for word in left:
        name, _, value = word.partition("=")
        if word in ("-h", "--help"):
            return None
        if word in _SWITCHES:
            switches.add(word)
            continue
        if name not in given:
            message = f"There is no option {word}.{did_you_mean(name, [*_VALUES, *_SWITCHES])}"
            raise UsageError("GBE110", message=message, command=COMMAND)
        given[name] = value or next(left, "")
        if not given[name]:
            raise UsageError("GBE110", message=f"{name} needs a value.", command=COMMAND)
        if name == "--only":
            only.append(given[name])
    entrypoint = given["--entrypoint"]
    request = RuntimeConfig(
        artifacts=given["--artifacts"],
        entrypoint=entrypoint,
        allow_drift="--allow-drift" in switches,
        is_confined="--confined" in switches,
        only=tuple(only),
        is_serving=bool(given["--serve"])
        or not entrypoint,  # nobody but a thread of its own delivers while it stays up
    )
    return Arguments(request, given["--health"], given["--serve"])
