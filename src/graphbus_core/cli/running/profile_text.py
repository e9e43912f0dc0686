"""What a profile looks like: one line for each handler and method."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphbus_core.cli import console
from graphbus_core.cli.running.durations import duration
from graphbus_core.hosting.instruments.profile import Profile, Row

_HEADERS = ("handler", "count", "failed", "total", "mean", "p50", "p99", "max", "share")
_OPTIONAL = ("mean", "max", "share", "failed")


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
            f"{runs:,} run{'' if runs == 1 else 's'} took {total}, within {duration(measured.wall_s)}"
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
