"""`graphbus dev`: a graph that follows its source files. Checks, builds and starts it again after each save."""

from __future__ import annotations

import click
import msgspec

from graphbus_core.cli.running.execution import RunOptions, serving_options
from graphbus_core.cli.running.watching import need
from graphbus_core.errors import UsageError


@click.command("dev", short_help="Run the agents, and restart them on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option("-i", "--interactive", "is_interactive", is_flag=True, help="Type commands to the running graph.")
@serving_options
@click.option("--clear", "clears", is_flag=True, help="Clear the terminal before what a save has to say.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(**given: object) -> int:
    """Check, build and run the agents in PATH (the working directory by default), and do so again whenever a file is saved.

    The graph runs in a process of its own, and each save replaces it: what is being handled is finished first, and
    `self.state` is kept. While a file has an error, the old code keeps running. Source files are never written. Ctrl-C
    ends it in good order.

    Exit status: 0 ended by Ctrl-C, SIGTERM or at the prompt; 2 wrong usage, or watchfiles is not installed; 7 an `on_stop`
    failed in the end.

    \b
    Examples:
      graphbus dev agents/
      graphbus dev agents/ --entrypoint my_shop.main:run
      graphbus dev agents/ -i
      graphbus dev agents/ --serve --port 8765
    """
    options = msgspec.convert(given, DevOptions)
    need("graphbus dev")
    for option, is_given in (("--entrypoint", bool(options.entrypoint)), ("--json", options.as_json)):
        if options.is_interactive and is_given:
            raise UsageError("GBE132", option="-i", other=option, reason="the prompt takes its place")
    from graphbus_core.cli.running.development import Development
    from graphbus_core.cli.running.narrators import JsonNarrator, TextNarrator
    from graphbus_core.cli.running.supervisor import Supervisor

    development = Development(options.paths)
    narrator = (
        JsonNarrator()
        if options.as_json
        else TextNarrator(development, clears=options.clears, is_at_a_prompt=options.is_interactive)
    )
    ran = _run_options(options, development.config.artifacts_dir)
    return Supervisor(development, ran, narrator, is_patient=True).run()


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line; the fields are named as the parameters of the command."""

    paths: tuple[str, ...]
    entrypoint: str
    is_interactive: bool
    is_served: bool
    host: str
    port: int | None
    health: str
    clears: bool
    as_json: bool


def _run_options(options: DevOptions, artifacts: str) -> RunOptions:
    """The same as options of `graphbus run`."""
    return RunOptions(
        artifacts=artifacts,
        entrypoint=options.entrypoint,
        is_interactive=options.is_interactive,
        is_served=options.is_served,
        host=options.host,
        port=options.port,
        health=options.health,
        is_watched=True,
        outlives_entrypoint=True,
        breaks=(),
        is_traced=False,
        traces_payloads=False,
        is_profiled=False,
        as_json=False,
    )
