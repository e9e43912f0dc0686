"""`graphbus trace`: show what `graphbus run --trace` recorded as a tree of causes and effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.trace_text import format_clock, format_duration
from graphbus_core.hosting.instruments.trace import (
    SHORT_ID_LENGTH,
    RootSummary,
    TracedEvent,
    find_event,
    list_roots,
    read_trace,
)
from graphbus_core.model.config import RuntimeConfig

_MAX_LINES = 200
_MAX_ROOTS = 20


@click.command("trace", short_help="Show what an event caused, handler by handler.")
@click.argument("event_id", metavar="[EVENT_ID]", default="")
@click.option("--artifacts", default=".graphbus", metavar="DIR", help="The artifact folder of the graph (.graphbus).")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show N events (20) or N lines of the tree (200); 0 means all.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def trace(*, event_id: str, artifacts: str, limit: int | None, as_json: bool) -> int:
    """Show the event with this ID, or the beginning of an ID, as a tree of causes and effects: which handlers received it,
    what they published, how long each took, what failed and what was retried. `last` is the last event from outside;
    without an ID, all events from outside are listed.

    `graphbus run --trace` writes the trace; it can be read while the graph runs. `graphbus profile` sums up times by
    handler instead of following one event.

    Exit status: 0; 7 there is no trace, or no such event in it.

    \b
    Examples:
      graphbus trace
      graphbus trace last
      graphbus trace 3f2a91c4
      graphbus trace 3f2a91c4 --json
    """
    folder = settings.resolve_run(RuntimeConfig(artifacts=artifacts)).state_dir
    deliveries = read_trace(Path(folder))
    if event_id:
        _print_tree(find_event(deliveries, event_id), _MAX_LINES if limit is None else limit, as_json=as_json)
    else:
        _print_roots(list_roots(deliveries, _MAX_ROOTS if limit is None else limit), as_json=as_json)
    return 0


def _print_tree(found: TracedEvent, limit: int, *, as_json: bool) -> None:
    """Print the tree of the chain to which an event belongs, with the event marked; `limit` 0 prints all lines."""
    if as_json:
        document = {"event_id": found.event_id, "correlation_id": found.root, "deliveries": found.deliveries}
        console.emit_json(document)
        return
    marked = "" if found.event_id == found.root else found.event_id
    for line in trace_text.tree_lines(found.tree, marked=marked, limit=limit):
        console.print_line(line)


def _print_roots(found: Sequence[RootSummary], *, as_json: bool) -> None:
    """Print a table of the events from outside, with what each of them caused."""
    if as_json:
        console.emit_json({"roots": found})
        return
    rows = [
        (
            console.style(each.event_id[:SHORT_ID_LENGTH], "accent"),
            format_clock(each.published),
            console.sanitize(each.topic) or console.style("no longer in the trace", "dim"),
            console.sanitize(each.src) or "outside",
            f"{each.events:,}",
            f"{each.deliveries:,}",
            console.style(f"{each.failed:,}", "bad") if each.failed else "0",
            format_duration(each.busy_s),
        )
        for each in found
    ]
    headers = ("event", "at", "topic", "from", "events", "deliveries", "failed", "handlers took")
    console.print_table(headers, rows, right=headers[4:], optional=("events", "from"))
