"""`graphbus dev`: a graph that follows its source files. Checks, builds and starts it again after each save."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from graphbus_core.cli.running.execution import RunOptions, shared_options
from graphbus_core.cli.running.watching import require_watchfiles


@click.command("dev", short_help="Run the agents, and restart them on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@shared_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(paths: tuple[str, ...], **given: Any) -> int:
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
    require_watchfiles("graphbus dev")
    from graphbus_core.cli.running.supervisor import Builder, Supervisor

    builder = Builder(paths)
    options = RunOptions(artifacts=builder.config.artifacts_dir, is_watched=True, outlives_entrypoint=True, **given)
    options.refuse_contradictions()
    ran = msgspec.structs.replace(options, as_json=False)  # the supervisor alone writes JSON
    return Supervisor(builder, ran, as_json=options.as_json).run()
