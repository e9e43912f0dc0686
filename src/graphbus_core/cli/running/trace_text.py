"""A trace and a profile as text: each delivery while it happens, the tree of one root, one line for each handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import localtime, strftime
from typing import NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.hosting.instruments.profile import Profile, Row
from graphbus_core.hosting.instruments.trace import SHORT, Caused, Delivery, Handled


def duration(seconds: float) -> str:
    """Three digits and a unit: `12.3 ms`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def clock(timestamp: float) -> str:
    """The local time of day, with milliseconds."""
    return f"{strftime('%H:%M:%S', localtime(timestamp))}.{int(timestamp % 1 * 1000):03}"


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


_PAYLOAD = 200


def delivery_line(delivery: Delivery) -> str:
    """One delivery, when it has ended."""
    where = f"{plain(delivery.topic)} > {paint(plain(delivery.handler), 'name')}"
    return (
        f"{paint(clock(delivery.started), 'dim')}  {paint(delivery.event_id[:SHORT], 'accent')}  "
        f"{where}  {_outcome(delivery)}"
    )


class _Line(NamedTuple):
    branch: str
    text: str


def tree_lines(tree: Caused, *, marked: str = "", limit: int = 0) -> Iterator[str]:
    """Draw the tree.

    Args:
        tree: From `trace.plant`.
        marked: The id of the event that was asked for.
        limit: How many lines are shown at most; 0: all.
    """
    events, deliveries = _count(tree)
    count = events + len(deliveries)
    shown = count if not limit or count <= limit else limit - 1
    for line in islice(_event(tree, marked), shown):
        yield f"{line.branch and paint(line.branch, 'dim')}{line.text}"
    if shown < count:
        yield paint(f"… {count - shown:,} more lines; `--limit 0` shows all", "dim")
    yield ""
    yield _summary(events, deliveries)


def _event(tree: Caused, marked: str) -> Iterator[_Line]:
    """Without recursion: a chain of events may be long."""
    stack: list[tuple[str, str, Caused | Handled]] = [("", "", tree)]
    while stack:
        branch, below, node = stack.pop()
        if isinstance(node, Caused):
            yield _Line(branch, _event_text(node, marked))
            children: Sequence[Caused | Handled] = (*node.handled, *node.unplaced)
        else:
            yield _Line(branch, _handled_text(node))
            children = node.caused
        grown = []
        for index, child in enumerate(children):
            is_last = index == len(children) - 1
            grown.append((f"{below}{'└─ ' if is_last else '├─ '}", f"{below}{'   ' if is_last else '│  '}", child))
        stack += reversed(grown)


def _event_text(event: Caused, marked: str) -> str:
    topic = plain(event.topic) or "(not in the trace any more)"
    parts = [paint(topic, "strong"), paint(event.event_id[:SHORT], "accent")]
    if not event.published_by:
        parts.append(
            paint(f"{clock(event.published)}  from {event.src or 'outside'}" if event.published else "", "dim")
        )
    if event.payload:
        parts.append(plain(event.payload if len(event.payload) <= _PAYLOAD else f"{event.payload[:_PAYLOAD]}…"))
    if marked and event.event_id == marked:
        parts.append(paint("<- this one", "warn"))
    return "  ".join(part for part in parts if part)


def _handled_text(handled: Handled) -> str:
    delivery = handled.delivery
    return f"{paint(plain(delivery.handler), 'name')}  {_outcome(delivery)}"


def _outcome(delivery: Delivery) -> str:
    attempt = f"  attempt {delivery.attempt}" if delivery.attempt > 1 else ""
    if delivery.outcome == "done":
        return f"{duration(delivery.duration_s)}{paint(attempt, 'warn')}"
    end = "failed" if delivery.outcome == "failed" else "interrupted"
    error = f": {plain(delivery.error)}" if delivery.outcome == "failed" else ""
    return f"{paint(f'{end} after {duration(delivery.duration_s)}', 'bad')}{attempt}{error}"


def _summary(events: int, deliveries: Sequence[Delivery]) -> str:
    failed = sum(each.outcome != "done" for each in deliveries)
    again = sum(each.attempt > 1 for each in deliveries)
    text = f"{_many(len(deliveries), 'delivery', 'deliveries')} of {_many(events, 'event', 'events')}"
    if deliveries:
        began = min(each.started for each in deliveries)
        ended = max(each.started + each.duration_s for each in deliveries)
        text += f" in {duration(max(0.0, ended - began))}"
    parts = [text]
    if failed:
        parts.append(paint(f"{failed} failed", "bad"))
    if again:
        parts.append(paint(f"{again} of them repeated", "warn"))
    return ", ".join(parts)


def _count(tree: Caused) -> tuple[int, list[Delivery]]:
    events, deliveries, stack = 0, [], [tree]
    while stack:
        node = stack.pop()
        events += 1
        deliveries += [each.delivery for each in node.handled]
        stack += [*node.unplaced, *(child for each in node.handled for child in each.caused)]
    return events, deliveries


def _many(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
