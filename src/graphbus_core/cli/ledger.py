"""`graphbus ledger`: the events in the ledger of a graph, what waits and is parked there, and what is handed out again."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import format_duration, pluralize, style
from graphbus_core.cli.process_options import ledger_option
from graphbus_core.cli.state import as_cell, format_age
from graphbus_core.errors import Place, RunError, UsageError, did_you_mean
from graphbus_core.hosting.graph import state_path
from graphbus_core.ledger.attached import open_engine
from graphbus_core.ledger.seam import Entry, EntryState, History, Lag, ReplayRequest
from graphbus_core.model.config import RuntimeConfig

R = TypeVar("R")

_ARTIFACTS = click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
_LEDGER = ledger_option("The ledger of the graph ($GRAPHBUS_LEDGER, that of the settings, or sqlite).")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
_COUNTS = ("waiting", "leased", "retrying", "parked", "dead")


@click.group("ledger", short_help="Show the events in the ledger, and hand them out again.")
def ledger() -> None:
    """Show the events in the ledger of a graph and what waits there, and hand out again what is parked or done. Works while the
    graph runs.

    \b
    Examples:
      graphbus ledger lag
      graphbus ledger ls --state parked
      graphbus ledger resume
    """


@ledger.command("lag")
@_ARTIFACTS
@_LEDGER
@_AS_JSON
def lag(*, artifacts: str, ledger: str | None, as_json: bool) -> int:
    """Show for each handler how many events wait, are being handled, wait for a retry, are parked, or are dead letters.

    `graphbus dlq` shows the dead letters themselves.

    Exit status: 0; 7 there is no ledger.

    \b
    Examples:
      graphbus ledger lag
      graphbus ledger lag --json
    """
    lags = _with_engine(artifacts, ledger, lambda engine: engine.lag())
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
    return format_duration(lag.oldest_s) if lag.waiting and lag.oldest_s else ""  # on NATS it is not known


@ledger.command("resume")
@_ARTIFACTS
@_LEDGER
@click.option("--build", default="", metavar="DIGEST", help="Only events that this build has published.")
@_AS_JSON
def resume(*, artifacts: str, ledger: str | None, build: str, as_json: bool) -> int:
    """Hand out again what is parked: events of another build that a running one could not read.

    A process of that build takes them up by itself when it starts. What still does not fit is parked again. Events for
    handlers that no longer exist stay parked until a build has the handler again.

    Exit status: 0; 7 there is no ledger.

    \b
    Examples:
      graphbus ledger resume
    """
    count = _with_engine(artifacts, ledger, lambda engine: engine.resume(build))
    said = f"{style('✓', 'good')} {pluralize(count, 'delivery', 'deliveries')} handed out again."
    console.print_result({"resumed": count}, [said], as_json=as_json)
    return 0


@ledger.command("ls", short_help="List the events in the ledger, the latest last.")
@_ARTIFACTS
@_LEDGER
@click.option("--topic", default="", metavar="TOPIC", help="Only events of this topic or pattern.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(get_args(EntryState)), help="Only these; may be repeated."
)
@click.option(
    "--limit", default=50, type=click.IntRange(0, 10**6), metavar="N", help="Show at most N of them (50); 0 means all."
)
@_AS_JSON
def ls(
    *, artifacts: str, ledger: str | None, topic: str, states: tuple[EntryState, ...], limit: int, as_json: bool
) -> int:
    """List the events in the ledger, the latest last: a line for each handler that is not done with an event, and one for an
    event that all are done with. These are kept for a day. On NATS, the list shows the state file, not the server.

    Exit status: 0; 7 there is no ledger.

    \b
    Examples:
      graphbus ledger ls
      graphbus ledger ls --topic /Order/Paid --state parked --state dead
      graphbus ledger ls --limit 0 --json
    """
    found = _with_engine(
        artifacts, ledger, lambda engine: engine.entries(topic, states, limit + 1 if limit else 1 << 62)
    )
    shown = found[:limit][::-1] if limit else found[::-1]
    if as_json:
        console.emit_json({"events": [_describe_entry(each) for each in shown], "has_more": len(shown) < len(found)})
        return 0
    _print_entries(shown, "No events are there.")
    if len(shown) < len(found):
        console.print_note("Older ones are not shown; `--limit 0` shows all.")
    return 0


def _describe_entry(entry: Entry) -> dict[str, object]:
    event = entry.envelope
    facts = {"topic": event.type, "event_id": event.id, "published": event.time, "build": event.build}
    return facts | {"state": entry.state, "handler": entry.handler, "why": entry.why}


def _print_entries(entries: Sequence[Entry], nothing: str) -> None:
    rows = [
        [
            each.envelope.id,
            format_age(each.envelope.time),
            each.envelope.type,
            each.state,
            each.handler,
            each.envelope.build[:12],
            as_cell(each.why),
        ]
        for each in entries
    ]
    if rows:
        console.print_table(["event", "age", "topic", "state", "handler", "build", "why"], rows)
    else:
        console.print_note(nothing)


class _Moment(click.ParamType[float]):
    """A time in ISO 8601, or how long ago: `90s`, `30m`, `2h`, `1d`; as seconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time; fail for any other text."""
        ago = re.fullmatch(r"(\d{1,9})([smhd])", str(value))
        if ago:
            return time.time() - int(ago[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[ago[2]]
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            self.fail(f"{value!r} is neither a time such as 2026-01-31T12:00 nor a duration such as 30m, 2h or 1d.")


@ledger.command("replay", short_help="Hand out events again that are done.")
@_ARTIFACTS
@_LEDGER
@click.option("--from", "since", required=True, type=_Moment(), metavar="TIME", help="Published then or later.")
@click.option("--to", "until", type=_Moment(), metavar="TIME", help="Published before (now).")
@click.option("--topic", default="", metavar="TOPIC", help="Only events of this topic or pattern.")
@click.option("--handler", "handlers", multiple=True, metavar="AGENT.METHOD", help="Only to this one; may be repeated.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be handed out; change nothing.")
@_AS_JSON
def replay(
    *,
    artifacts: str,
    ledger: str | None,
    since: float,
    until: float | None,
    topic: str,
    handlers: tuple[str, ...],
    is_dry: bool,
    as_json: bool,
) -> int:
    """Hand out events again that handlers are done with: their code runs again, and what it stores and publishes happens a second
    time, also in the handlers behind it. An event keeps its id, so that what uses this as idempotency key is not repeated.

    A time is ISO 8601, in the local time zone if it names none, or a duration up to now: 90s, 30m, 2h, 1d. `sqlite` forgets what
    has been done for a day; on NATS this is not possible. What is parked, dead or still waits is not handed out a second time.
    `graphbus replay` is something else: it repeats a negotiation.

    Exit status: 0; 2 there is no such handler; 7 there is no ledger, or it forgets what is done.

    \b
    Examples:
      graphbus ledger replay --from 2h --handler Books.on_order_paid --dry-run
      graphbus ledger replay --from 2026-01-31T09:00 --topic /Order/Placed
    """
    request = ReplayRequest(since=since, until=time.time() if until is None else until, topic=topic, handlers=handlers)

    async def ask(engine: History) -> Sequence[Entry]:
        known = (
            {each.subscription.handler for each in await engine.lag()} if engine.capabilities.replay else {*handlers}
        )
        for each in handlers:
            if each not in known:
                raise click.BadParameter(f"There is no handler {each!r}.{did_you_mean(each, known)}")
        return await engine.replay(request, is_dry=is_dry)

    found = _with_engine(artifacts, ledger, ask)
    if as_json:
        console.emit_json({"replayed": [_describe_entry(each) for each in found], "dry_run": is_dry})
        return 0
    _print_entries(found, "Nothing of this is done.")
    if not found:
        return 0
    deliveries = pluralize(len(found), "delivery", "deliveries")
    verb = "would be handed out" if is_dry else "handed out"
    effects = "what the handlers store and publish happens a second time"
    console.print_line(f"{style('✓', 'good')} {deliveries} {verb} again: {effects}.")
    return 0


def _with_engine(artifacts: str, ledger: str | None, use: Callable[[History], Awaitable[R]]) -> R:
    """Open the ledger of a graph for one question.

    Raises:
        RunError: GBE629, there is no ledger.
        UsageError: GBE101, there is no such artifact folder.
    """
    if not Path(artifacts).is_dir():
        raise UsageError("GBE101", path=artifacts)
    config = settings.resolve_run(RuntimeConfig(artifacts=artifacts, ledger=ledger))
    path = state_path(config)
    if not Path(path).exists():
        raise RunError("GBE629", where=Place(path))
    import asyncio

    engine = open_engine(config.settings.ledger or "sqlite", path, nats=config.settings.nats)

    async def ask() -> R:
        try:
            return await use(engine)
        finally:
            await engine.close()

    return asyncio.run(ask())
