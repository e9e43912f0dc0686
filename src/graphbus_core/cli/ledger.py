"""`graphbus ledger`: what waits in the ledger of a graph, and what is parked there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import format_duration, pluralize, style
from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.graph import state_path
from graphbus_core.ledger.attached import open_engine
from graphbus_core.ledger.seam import Lag, Ledger
from graphbus_core.model.config import RuntimeConfig

R = TypeVar("R")

_ARTIFACTS = click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
_COUNTS = ("waiting", "leased", "retrying", "parked", "dead")


@click.group("ledger", short_help="Show what waits in the ledger, and hand out what is parked.")
def ledger() -> None:
    """Show what waits in the ledger of a graph, and hand out again what is parked. Works while the graph runs.

    \b
    Examples:
      graphbus ledger lag
      graphbus ledger resume
    """


@ledger.command("lag")
@_ARTIFACTS
@_AS_JSON
def lag(*, artifacts: str, as_json: bool) -> int:
    """Show for each handler how many events wait, are being handled, wait for a retry, are parked, or are dead letters.

    `graphbus dlq` shows the dead letters themselves.

    Exit status: 0; 7 there is no ledger.

    \b
    Examples:
      graphbus ledger lag
      graphbus ledger lag --json
    """
    lags = _with_engine(artifacts, lambda engine: engine.lag())
    found = sorted(lags, key=lambda each: (each.subscription.handler, each.subscription.topic))
    if as_json:
        console.emit_json([_as_document(each) for each in found])
        return 0
    rows = [
        [
            each.subscription.handler,
            each.subscription.topic,
            *(str(getattr(each, name)) for name in _COUNTS),
            _age(each),
        ]
        for each in found
    ]
    console.print_table(["handler", "topic", *_COUNTS, "oldest"], rows, right=(*_COUNTS, "oldest"))
    return 0


def _as_document(lag: Lag) -> dict[str, object]:
    counts = {name: getattr(lag, name) for name in _COUNTS}
    return {"handler": lag.subscription.handler, "topic": lag.subscription.topic, **counts, "oldest_s": lag.oldest_s}


def _age(lag: Lag) -> str:
    return format_duration(lag.oldest_s) if lag.waiting else ""


@ledger.command("resume")
@_ARTIFACTS
@click.option("--build", default="", metavar="DIGEST", help="Only events that this build has published.")
@_AS_JSON
def resume(*, artifacts: str, build: str, as_json: bool) -> int:
    """Hand out again what is parked: events of another build that a running one could not read.

    A process of that build takes them up by itself when it starts. What still does not fit is parked again. Events for
    handlers that no longer exist stay parked until a build has the handler again.

    Exit status: 0; 7 there is no ledger.

    \b
    Examples:
      graphbus ledger resume
    """
    count = _with_engine(artifacts, lambda engine: engine.resume(build))
    said = f"{style('✓', 'good')} {pluralize(count, 'delivery', 'deliveries')} handed out again."
    console.print_result({"resumed": count}, [said], as_json=as_json)
    return 0


def _with_engine(artifacts: str, use: Callable[[Ledger], Awaitable[R]]) -> R:
    """Open the ledger of a graph for one question.

    Raises:
        RunError: GBE629, there is no ledger.
    """
    config = settings.resolve_run(RuntimeConfig(artifacts=artifacts))
    path = state_path(config)
    if not Path(path).exists():
        raise RunError("GBE629", where=Place(path))
    import asyncio

    engine = open_engine(config.settings.ledger or "sqlite", path)

    async def ask() -> R:
        try:
            return await use(engine)
        finally:
            await engine.close()

    return asyncio.run(ask())
