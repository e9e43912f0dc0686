"""`graphbus dev`: check, build and run a graph from its source files, again after each save."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from graphbus_core.cli.running.execution import RunOptions, shared_options
from graphbus_core.cli.running.watching import require_watchfiles


@click.command("dev", short_help="Run agents from their sources, restart on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@shared_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(paths: tuple[str, ...], **given: Any) -> int:
    """Check, build and run the agents in PATH (the working directory by default), again after each save of a file.

    The graph runs in a process of its own, which each save replaces: handlers finish first, and `self.state` is kept.
    While a file has an error, the old code keeps running. Source files are never written. Stop it with Ctrl-C.

    `graphbus run` starts what a build wrote, once and without building, as in production.

    Exit status: 0 stopped by Ctrl-C, SIGTERM or at the prompt; 2 wrong usage, or watchfiles is not installed; 7 an
    `on_stop` failed at the end.

    \b
    Examples:
      graphbus dev agents/
      graphbus dev agents/ --entrypoint my_shop.main:run
      graphbus dev agents/ -i
      graphbus dev agents/ --serve --port 8765
    """
    require_watchfiles("graphbus dev")
    from graphbus_core.cli.running.supervisor import Builder, Supervisor

    builder = Builder(paths)
    options = RunOptions(artifacts=builder.config.artifacts_dir, is_watched=True, outlives_entrypoint=True, **given)
    options.refuse_contradictions()
    run_options = msgspec.structs.replace(options, as_json=False)  # only the supervisor writes JSON
    return Supervisor(builder, run_options, as_json=options.as_json).run()
