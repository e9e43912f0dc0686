"""`graphbus run`: run a graph until its calls and events are done, or until a signal; with --watch in a second process."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from graphbus_core import runtime, store
from graphbus_core.cli.process_options import ledger_option
from graphbus_core.cli.running.execution import RunOptions, run_graph_here, shared_options
from graphbus_core.cli.running.work import OneShot
from graphbus_core.errors import UsageError
from graphbus_core.store import BuildArtifacts


@click.command("run", short_help="Run the graph that a build wrote.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option(
    "--call",
    "calls",
    nargs=2,
    multiple=True,
    metavar="AGENT.METHOD JSON",
    help="Call a @schema_method and print its result; may be repeated.",
)
@click.option(
    "--publish",
    "publications",
    nargs=2,
    multiple=True,
    metavar="TOPIC JSON",
    help="Publish an event; may be repeated. Events come before calls.",
)
@click.option(
    "--validation",
    type=click.Choice(["strict", "warn", "off"]),
    help="Refuse values that do not match their schema (strict), log them (warn), or do not check (off).",
)
@click.option("--allow-drift", is_flag=True, help="Start even if source files have changed since the build.")
@click.option("--partial", "is_partial", is_flag=True, help="Leave out the agents that cannot start.")
@click.option(
    "--only",
    multiple=True,
    metavar="AGENT",
    help="Run only this agent; may be repeated. `outside`: no agent, only --publish and --call.",
)
@click.option(
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Handle only this partition of the agents, on NATS (see `partitions` in [tool.graphbus.runtime.nats]).",
)
@ledger_option("Keep events in this ledger until they are handled: sqlite, or nats://HOST:PORT/APP ($GRAPHBUS_LEDGER).")
@click.option(
    "--confined", "is_confined", is_flag=True, help="Enforce [tool.graphbus.powers] with Landlock and seccomp."
)
@click.option("--watch", "is_watched", is_flag=True, help="Build and restart whenever a source file is saved.")
@click.option(
    "--break",
    "breaks",
    multiple=True,
    metavar="AGENT.METHOD",
    help="Stop in the debugger before this method; may be repeated.",
)
@click.option("--trace", "is_traced", is_flag=True, help="Record every delivery, for `graphbus trace`.")
@click.option("--trace-payloads", "traces_payloads", is_flag=True, help="Record the payloads too.")
@click.option("--profile", "is_profiled", is_flag=True, help="Measure every handler, for `graphbus profile`.")
@shared_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def run(**given: object) -> int:
    """Run the graph that a build wrote to the folder ARTIFACTS (.graphbus by default). No model is asked.

    With --entrypoint, --call or --publish it does that, delivers all events that follow, and ends. Otherwise it runs
    until SIGTERM or Ctrl-C, then delivers waiting events, stops the agents and ends with 0. With --serve, --health or
    --watch it keeps running, unless there is an entry point.

    `graphbus dev` starts from the source files instead, and builds and restarts after each save.

    Exit status: 0 done; 6 the artifacts are damaged or outdated; 7 the graph cannot start, a call or an event was
    refused, or a handler failed (a graph that keeps running logs and counts failures instead); 130 and 143 a signal came
    before the work was done.

    \b
    Examples:
      graphbus run
      graphbus run --serve --port 8765
      graphbus run --publish /Order/Placed '{"order_id": "1", "items": []}'
      graphbus run --call OrderProcessor.process_order '{"order_id": "1"}'
      graphbus run .graphbus/ --entrypoint my_shop.main:run
      graphbus run --confined --serve
    """
    options = msgspec.convert(given, RunOptions)
    options.refuse_contradictions()
    return _run_and_watch(options) if options.is_watched else run_graph_here(options)


def _run_and_watch(options: RunOptions) -> int:
    """Run the graph in another process, and replace that process whenever a source file is saved.

    Raises:
        ArtifactError: The artifacts cannot be read.
        UsageError: GBE163 when watchfiles is not installed, GBE165 for artifacts that are not where a build writes them.
    """
    from graphbus_core.cli.running.watching import require_watchfiles

    require_watchfiles("--watch")
    OneShot(
        options.publications, options.calls, as_json=options.as_json
    )  # raises for calls and events that are not valid
    from graphbus_core.cli.running.supervisor import Builder, Save, Supervisor

    artifacts = runtime.load_build_artifacts(runtime.load_runtime_config(options.request()))
    builder = Builder(_source_paths(artifacts, options.artifacts))
    if Path(options.artifacts).resolve() != Path(builder.config.artifacts_dir).resolve():
        raise UsageError("GBE165", folder=options.artifacts, path=builder.config.settings.artifacts)
    return Supervisor(builder, options).run(Save())


def _source_paths(artifacts: BuildArtifacts, folder: str) -> list[str]:
    """Return the paths that the build read, absolute; empty if the artifacts have no manifest."""
    if artifacts.manifest is None:
        return []
    root = store.project_root(folder, artifacts.manifest)
    return [str(Path(root, each)) for each in artifacts.manifest.roots]
