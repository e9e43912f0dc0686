"""`graphbus trace`: what `graphbus run --trace` has written, as a tree of causes and effects."""

from __future__ import annotations

import re
from pathlib import Path

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.durations import clock, duration
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.hosting.instruments.trace_file import FILE, TraceReader
from graphbus_core.hosting.instruments.trace_tree import plant
from graphbus_core.model.config import RuntimeRequest

_ID = re.compile(r"[0-9a-f]{1,32}")
_LINES = 200
_ROOTS = 20
_CANDIDATES = 6


@click.command("trace", short_help="Show what an event has caused.")
@click.argument("event_id", metavar="[EVENT_ID]", default="")
@click.option("--artifacts", default=".graphbus", metavar="DIR", help="The artifact folder of the graph (.graphbus).")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Events in the table (20) or lines of the tree (200); 0: all.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def trace(*, event_id: str, artifacts: str, limit: int | None, as_json: bool) -> int:
    """Show the causal tree of the event with this id, or whose id begins so: which handlers got it, what they published,
    how long each took, what failed and what was tried again. `last` is the last event from outside; without an id all of
    those are listed.

    The trace is written by `graphbus run --trace`; it may be read while that runs.

    Exit status: 0; 7 there is no trace, or no such event in it.

    \b
    Examples:
      graphbus trace
      graphbus trace last
      graphbus trace 3f2a91c4
      graphbus trace 3f2a91c4 --json
    """
    folder = settings.resolve_run(RuntimeRequest(artifacts=artifacts)).state_dir
    with TraceReader(Path(folder) / FILE) as reader:
        if event_id:
            _show_tree(reader, _find(reader, event_id.lower()), _LINES if limit is None else limit, as_json=as_json)
        else:
            _show_roots(reader, _ROOTS if limit is None else limit, as_json=as_json)
    return 0


def _find(reader: TraceReader, prefix: str) -> str:
    if prefix == "last":
        roots = reader.roots(1)
        if roots:
            return roots[0].event_id
    found = reader.matching(prefix, _CANDIDATES) if _ID.fullmatch(prefix) else []
    if prefix in found:
        return prefix
    if len(found) > 1:
        count = str(len(found)) if len(found) < _CANDIDATES else f"At least {_CANDIDATES}"
        raise RunError("GBE686", count=count, event_id=prefix, known=trace_text.suggestions(found))
    if not found:
        near = did_you_mean(prefix, [each[: max(len(prefix), trace_text.SHORT)] for each in reader.last_ids(1000)])
        raise RunError("GBE685", event_id=prefix, suggestion=near)
    return found[0]


def _show_tree(reader: TraceReader, event_id: str, limit: int, *, as_json: bool) -> None:
    root = reader.root_of(event_id)
    deliveries = reader.tree(root)
    if as_json:
        console.emit_json({"event_id": event_id, "correlation_id": root, "deliveries": deliveries})
        return
    marked = "" if event_id == root else event_id
    for line in trace_text.tree_lines(plant(root, deliveries), marked=marked, limit=limit):
        console.out(line)


def _show_roots(reader: TraceReader, limit: int, *, as_json: bool) -> None:
    roots = reader.roots(limit or -1)
    if as_json:
        console.emit_json({"roots": roots})
        return
    rows = [
        (
            console.paint(each.event_id[: trace_text.SHORT], "accent"),
            clock(each.published),
            console.plain(each.topic) or console.paint("not in the trace any more", "dim"),
            console.plain(each.src) or "outside",
            f"{each.events:,}",
            f"{each.deliveries:,}",
            console.paint(f"{each.failed:,}", "bad") if each.failed else "0",
            duration(each.busy_s),
        )
        for each in roots
    ]
    headers = ("event", "at", "topic", "from", "events", "deliveries", "failed", "handlers took")
    console.table(headers, rows, right=headers[4:], optional=("events", "from"))
