"""`graphbus contract diff OLD [NEW]`: what has changed between two states of a graph, and what it breaks."""

from __future__ import annotations

import click


@click.command("diff", short_help="Compare two states of the contracts.")
@click.argument("old")
@click.argument("new", default="")
def diff(*, old: str, new: str) -> int:
    """Compare the contracts of two states of the graph: OLD, and NEW (the working tree by default).

    \b
    Examples:
      graphbus contract diff main
    """
    return 0
