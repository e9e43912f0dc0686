"""`graphbus profile`: show what the last `graphbus run --profile` measured."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.running.trace_text import print_profile
from graphbus_core.hosting.instruments.profile import SortKey, load_profile, sort_rows
from graphbus_core.model.config import RuntimeConfig


@click.command("profile", short_help="Show how long each handler took.")
@click.option("--artifacts", default=".graphbus", metavar="DIR", help="The artifact folder of the graph (.graphbus).")
@click.option("--sort", "key", type=click.Choice(get_args(SortKey)), default="total", help="The column to sort by.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show only the first N.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def profile(*, artifacts: str, key: SortKey, top: int | None, as_json: bool) -> int:
    """Show what the last `graphbus run --profile` measured: how often each handler and method ran and failed, how long it
    took, and its share of the total time.

    `graphbus trace` follows one event instead of summing up all.

    Exit status: 0; 7 there is no profile.

    \b
    Examples:
      graphbus profile
      graphbus profile --sort p99 --top 5
      graphbus profile --json
    """
    measured = load_profile(Path(settings.resolve_run(RuntimeConfig(artifacts=artifacts)).state_dir))
    rows = sort_rows(measured, key)[:top]
    if as_json:
        console.emit_json({"began": measured.began, "wall_s": measured.wall_s, "handlers": rows})
    else:
        print_profile(measured, rows)
    return 0
