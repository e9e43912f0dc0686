"""Traces and profiles as text: a line for each delivery, the tree of one event, a table of handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import localtime, strftime

from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.hosting.instruments.profile import Profile, Row
from graphbus_core.hosting.instruments.trace import SHORT_ID_LENGTH, EventTree, TracedDelivery

_HEADERS = ("handler", "count", "failed", "total", "mean", "p50", "p99", "max", "share")
_OPTIONAL_COLUMNS = ("mean", "max", "share", "failed")
_MAX_PAYLOAD_LENGTH = 200


def format_duration(seconds: float) -> str:
    """Format a duration with three digits and a unit: `12.3 ms`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms"), (1, "s")):
        number = seconds * factor
        if number < 999.5 or unit == "s":
            return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f} {unit}"
    raise AssertionError


def format_clock(timestamp: float) -> str:
    """Format the local time of day, with milliseconds."""
    return f"{strftime('%H:%M:%S', localtime(timestamp))}.{int(timestamp % 1 * 1000):03}"


def print_profile(measured: Profile, rows: Sequence[Row], write: Callable[[str], None] = console.print_line) -> None:
    """Print the table of handlers, and a line with totals.

    Args:
        measured: The profile, from which the totals are computed.
        rows: Its rows that are shown, in this order.
        write: Prints a line.
    """
    if not measured.handlers:
        write("No handler and no method has run.")
        return
    console.print_table(_HEADERS, map(_profile_row, rows), right=_HEADERS[1:], optional=_OPTIONAL_COLUMNS, write=write)
    runs, left_out = sum(row.count for row in measured.handlers), len(measured.handlers) - len(rows)
    total = format_duration(sum(row.total_s for row in measured.handlers))
    more = f"; {left_out} more handlers are not shown" if left_out else ""
    text = f"{console.pluralize(runs, 'run')} took {total}, within {format_duration(measured.wall_s)}{more}"
    write(style(text, "dim"))


def _profile_row(row: Row) -> tuple[str, ...]:
    """Return the cells of a handler, in the order of `_HEADERS`."""
    return (
        style(sanitize(row.name), "name"),
        f"{row.count:,}",
        style(f"{row.failed:,}", "bad") if row.failed else "0",
        *(format_duration(each) for each in (row.total_s, row.mean_s, row.p50_s, row.p99_s, row.max_s)),
        f"{row.share:.1%}",
    )


def delivery_line(delivery: TracedDelivery) -> str:
    """Return the line for one delivery that has ended: time, event, topic, handler, duration and error."""
    when, event_id = style(format_clock(delivery.started), "dim"), style(delivery.event_id[:SHORT_ID_LENGTH], "accent")
    return f"{when}  {event_id}  {sanitize(delivery.topic)} > {_handler_text(delivery)}"


def tree_lines(tree: EventTree, *, marked: str = "", limit: int = 0) -> Iterator[str]:
    """Yield the lines of a tree of events and deliveries, and a summary.

    Args:
        tree: The root event with all that it caused, from `trace.build_tree`.
        marked: The ID of an event to mark; empty for none.
        limit: The maximum number of lines of the tree; 0 means all.
    """
    events = [tree.event_id]
    for event_id in events:
        events += tree.effects.get(event_id, ())
    deliveries = [each for event_id in events for each in tree.deliveries.get(event_id, ())]
    count = len(events) + len(deliveries)
    shown = count if not limit or count <= limit else limit - 1
    yield from islice(_draw_tree(tree, marked), shown)
    if shown < count:
        yield style(f"… {count - shown:,} more lines; `--limit 0` shows all", "dim")
    yield ""
    yield _summary_line(len(events), deliveries)


def _draw_tree(tree: EventTree, marked: str) -> Iterator[str]:
    """Yield the lines of the tree, depth first; without recursion, because a chain of events may be long."""
    stack: list[tuple[str, str, str | TracedDelivery]] = [("", "", tree.event_id)]
    while stack:
        branch, below, node = stack.pop()
        text = _event_line(tree, node, marked) if isinstance(node, str) else _handler_text(node)
        yield f"{style(branch, 'dim') if branch else ''}{text}"
        children = _find_children(tree, node)
        stack += [
            (f"{below}{'├─ ' if index else '└─ '}", f"{below}{'│  ' if index else '   '}", child)
            for index, child in enumerate(reversed(children))
        ]


def _find_children(tree: EventTree, node: str | TracedDelivery) -> list[str | TracedDelivery]:
    """Return the nodes below an event (its deliveries) or below a delivery (the events that it caused).

    Events are shown below the last attempt of their handler; those without a known handler stand below the event itself.
    """
    event_id = node if isinstance(node, str) else node.event_id
    deliveries, effects = tree.deliveries.get(event_id, []), tree.effects.get(event_id, ())
    last = {each.handler: each for each in deliveries}
    owners = {effect: last.get(tree.deliveries[effect][0].published_by) for effect in effects}
    if isinstance(node, str):
        return [*deliveries, *(effect for effect in effects if owners[effect] is None)]
    return [effect for effect in effects if owners[effect] is node]


def _event_line(tree: EventTree, event_id: str, marked: str) -> str:
    """Return the topic, ID, origin and payload of an event; an event without deliveries in the trace has only its ID."""
    parts = [style(event_id[:SHORT_ID_LENGTH], "accent")]
    known = tree.deliveries.get(event_id)
    if known is None:
        parts.insert(0, style("(no longer in the trace)", "strong"))
    else:
        first = known[0]
        parts.insert(0, style(sanitize(first.topic), "strong"))
        if not first.published_by:
            parts.append(style(f"{format_clock(first.published)}  from {first.src or 'outside'}", "dim"))
        if first.payload:
            parts.append(
                sanitize(
                    first.payload
                    if len(first.payload) <= _MAX_PAYLOAD_LENGTH
                    else f"{first.payload[:_MAX_PAYLOAD_LENGTH]}…"
                )
            )
    if event_id == marked:
        parts.append(style("<- this one", "warn"))
    return "  ".join(parts)


def _handler_text(delivery: TracedDelivery) -> str:
    """Return the handler of a delivery, its duration, and its attempt and error if there was more than one or it failed."""
    duration = format_duration(delivery.duration_s)
    if delivery.outcome != "done":
        duration = style(f"{delivery.outcome} after {duration}", "bad")
    attempt = style(f"  attempt {delivery.attempt}", "warn") if delivery.attempt > 1 else ""
    error = f": {sanitize(delivery.error)}" if delivery.outcome == "failed" else ""
    return f"{style(sanitize(delivery.handler), 'name')}  {duration}{attempt}{error}"


def _summary_line(events: int, deliveries: Sequence[TracedDelivery]) -> str:
    """Return the numbers of deliveries, events, failures and repeated attempts, and the time from first to last."""
    failed = sum(each.outcome != "done" for each in deliveries)
    again = sum(each.attempt > 1 for each in deliveries)
    counted = f"{len(deliveries):,} deliver{'y' if len(deliveries) == 1 else 'ies'}"
    text = f"{counted} of {events:,} event{'' if events == 1 else 's'}"
    if deliveries:
        began = min(each.started for each in deliveries)
        ended = max(each.started + each.duration_s for each in deliveries)
        text += f" in {format_duration(max(0.0, ended - began))}"
    parts = [text]
    parts += [style(f"{failed} failed", "bad")] if failed else []
    parts += [style(f"{again} of them repeated", "warn")] if again else []
    return ", ".join(parts)
