"""`graphbus dev`: check, build and run a graph from its source files, again after each save."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from graphbus_core.cli.running.execution import RunOptions, shared_options
from graphbus_core.cli.running.watching import require_watchfiles

_LOOPBACK = "127.0.0.1"


@click.command("dev", short_help="Run agents from their sources, restart on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@shared_options
@click.option("--no-view", is_flag=True, help="Do not show the running graph on a page.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(paths: tuple[str, ...], *, no_view: bool, **given: Any) -> int:
    """Check, build and run the agents in PATH (the working directory by default), again after each save of a file.

    The graph runs in a process of its own, which each save replaces: handlers finish first, and `self.state` is kept.
    While a file has an error, the old code keeps running. Source files are never written. Stop it with Ctrl-C.

    A page shows the running graph, if the packages of `--serve` are installed: its address is printed, only this machine
    can open it, and it stays open over each save.

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
    given |= {} if no_view else _view_options(given)
    options = RunOptions(artifacts=builder.config.artifacts_dir, is_watched=True, outlives_entrypoint=True, **given)
    options.refuse_contradictions()
    run_options = msgspec.structs.replace(options, as_json=False)  # only the supervisor writes JSON
    return Supervisor(builder, run_options, as_json=options.as_json).run()


def _view_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that let the graph be shown; none if the packages are missing, or if other options exclude a page.

    Without --serve the page gets a free port, which stays the same for each process.
    """
    from importlib.util import find_spec

    if not all(map(find_spec, ("starlette", "uvicorn"))):
        return {}
    if given["is_served"]:
        return {"is_viewed": True}
    if given["host"] or given["port"] is not None:
        return {}  # they need --serve, which is told next
    import socket

    with socket.create_server((_LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    return {"is_served": True, "is_viewed": True, "is_view_implied": True, "host": _LOOPBACK, "port": port}
