"""`graphbus profile`: what `graphbus run --profile` has measured last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.durations import duration
from graphbus_core.hosting.instruments.profile import Profile, Row, SortKey, in_order, load
from graphbus_core.model.config import RuntimeRequest

_OPTIONAL = ("mean", "max", "share", "failed")
_HEADERS = ("handler", "count", "failed", "total", "mean", "p50", "p99", "max", "share")


@click.command("profile", short_help="Show how long handlers took.")
@click.option("--artifacts", default=".graphbus", metavar="DIR", help="The artifact folder of the graph (.graphbus).")
@click.option("--sort", "key", type=click.Choice(get_args(SortKey)), default="total", help="The column to sort by.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show only the first N.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def profile(*, artifacts: str, key: SortKey, top: int | None, as_json: bool) -> int:
    """Show what the last `graphbus run --profile` has measured: for each handler and method how often it ran, how often it
    failed, how long it took, and its share of the time of all.

    Exit status: 0; 7 there is no profile.

    \b
    Examples:
      graphbus profile
      graphbus profile --sort p99 --top 5
      graphbus profile --json
    """
    measured = load(Path(settings.resolve_run(RuntimeRequest(artifacts=artifacts)).state_dir))
    rows = in_order(measured, key)[:top]
    if as_json:
        console.emit_json({"began": measured.began, "wall_s": measured.wall_s, "handlers": rows})
    else:
        show(measured, rows)
    return 0


def show(measured: Profile, rows: Sequence[Row], write: Callable[[str], None] = console.out) -> None:
    """Write the table, and a line that says what it covers."""
    if not measured.handlers:
        write("No handler and no method has run.")
        return
    console.table(_HEADERS, map(_cells, rows), right=_HEADERS[1:], optional=_OPTIONAL, write=write)
    runs, left_out = sum(row.count for row in measured.handlers), len(measured.handlers) - len(rows)
    total = duration(sum(row.total_s for row in measured.handlers))
    write(
        console.paint(
            f"{runs:,} run{'' if runs == 1 else 's'} took {total} of {duration(measured.wall_s)}"
            f"{f'; {left_out} more handlers are not shown' if left_out else ''}",
            "dim",
        )
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        console.paint(console.plain(row.name), "name"),
        f"{row.count:,}",
        console.paint(f"{row.failed:,}", "bad") if row.failed else "0",
        *(duration(each) for each in (row.total_s, row.mean_s, row.p50_s, row.p99_s, row.max_s)),
        f"{row.share:.1%}",
    )
