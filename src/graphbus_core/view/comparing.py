"""Compares what is published in two traces or builds: topics, how often, with which keys, to whom, and with how many failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from graphbus_core import strict_json
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.view.messages import Choice, Comparison, Difference
from graphbus_core.view.records import Records
from graphbus_core.view.trace_file import MOST_COMPARED, FileRecords

Side = Records | Artifacts

_ONE_SIDE = "Only one trace is there: run the graph with --trace before and after a change, or name a second path."
_CUT = "Of {name} only the last {size} MB are compared."
_LESS_THAN_ALL = 0.1
"""Counts count as different if they differ by more than this part of the larger one: runs need not be equally long."""


class _Published:
    """What is known of one topic on one side."""

    def __init__(self) -> None:
        self.events: set[str] = set()
        self.attempts = self.failures = 0
        self.keys: Counter[str] = Counter()
        self.with_payload = 0
        self.handlers: set[str] = set()

    def add(self, delivery: TracedDelivery) -> None:
        """Count one delivery."""
        is_new = delivery.event_id not in self.events
        self.events.add(delivery.event_id)
        self.handlers.add(delivery.handler)
        self.attempts += 1
        self.failures += delivery.outcome != "done"
        if is_new and delivery.payload:
            payload, _ = attempt(lambda: strict_json.loads(delivery.payload, any_text=True))
            self.with_payload += 1
            self.keys.update(payload if isinstance(payload, dict) else {})


def compare_sides(sides: Mapping[str, Side], left: str, right: str) -> Comparison:
    """Return what is published differently on two sides.

    Args:
        sides: Name -> deliveries, or the artifacts of a build.
        left: The name of one side; empty: the last but one.
        right: The name of the other side; empty: the last one.

    Raises:
        RunError: GBE694 for an unknown name.
    """
    names = list(sides)
    choices = tuple(Choice(name=name, title=name) for name in names)
    if len(names) < 2:
        return Comparison(choices=choices, note=_ONE_SIDE)
    chosen = left or names[-2], right or names[-1]
    for name in chosen:
        if name not in sides:
            reason = f"there is no trace {name!r} to compare{did_you_mean(name, names)}"
            raise RunError("GBE694", reason=reason, advice=f"Choose from {', '.join(names)}.")
    cut = [name for name in chosen if isinstance(side := sides[name], FileRecords) and side.is_long()]
    before, after = (_collect(sides[name]) for name in chosen)
    topics = sorted({*before, *after})
    found = {topic: tuple(_differences(topic, before.get(topic), after.get(topic))) for topic in topics}
    return Comparison(
        choices=choices,
        left=chosen[0],
        right=chosen[1],
        differences=tuple(each for differences in found.values() for each in differences),
        same=tuple(topic for topic, differences in found.items() if not differences),
        note=" ".join(_CUT.format(name=name, size=MOST_COMPARED >> 20) for name in cut),
    )


def _collect(side: Side) -> dict[str, _Published]:
    """Return topic -> what one side publishes there."""
    found: dict[str, _Published] = {}
    if isinstance(side, Artifacts):
        for topic in side.topics.topics:
            published = found[topic.name] = _Published()
            published.handlers.update(topic.subscribers)
            published.with_payload = int(topic.schema is not None)
            published.keys.update(field.name for field in (topic.schema.fields if topic.schema else ()))
        return found
    for delivery in side.all():
        found.setdefault(delivery.topic, _Published()).add(delivery)
    return found


def _differences(topic: str, left: _Published | None, right: _Published | None) -> Iterator[Difference]:
    """Yield what differs between the two sides of a topic."""
    if left is None or right is None:
        known = left or right or _Published()
        count = f"{len(known.events):,} events" if known.attempts else "by this build"
        if left is None:
            yield Difference(
                kind="added", topic=topic, text=f"Only the right side publishes to {topic}.", left="", right=count
            )
        else:
            yield Difference(
                kind="removed", topic=topic, text=f"Only the left side publishes to {topic}.", left=count, right=""
            )
        return
    counts = len(left.events), len(right.events)
    if max(counts) - min(counts) > _LESS_THAN_ALL * max(counts):
        text = f"{topic} is published {counts[0]:,} times on the left and {counts[1]:,} times on the right."
        yield Difference(kind="count", topic=topic, text=text, left=f"{counts[0]:,}", right=f"{counts[1]:,}")
    if left.with_payload and right.with_payload and set(left.keys) != set(right.keys):
        gone, new = sorted({*left.keys} - {*right.keys}), sorted({*right.keys} - {*left.keys})
        parts = [f"no longer has {', '.join(gone)}"] * bool(gone) + [f"now has {', '.join(new)}"] * bool(new)
        text = f"The payload of {topic} {' and '.join(parts)}."
        yield Difference(kind="fields", topic=topic, text=text, left=_join(left.keys), right=_join(right.keys))
    if left.handlers != right.handlers:
        text = f"{topic} is handled by others."
        yield Difference(
            kind="handlers", topic=topic, text=text, left=_join(left.handlers), right=_join(right.handlers)
        )
    shares = [each.failures / each.attempts if each.attempts else 0.0 for each in (left, right)]
    if abs(shares[0] - shares[1]) > 0.001:
        text = f"{shares[0]:.1%} of the attempts on {topic} fail on the left, {shares[1]:.1%} on the right."
        yield Difference(kind="failures", topic=topic, text=text, left=f"{shares[0]:.1%}", right=f"{shares[1]:.1%}")


def _join(names: set[str] | Counter[str]) -> str:
    return ", ".join(sorted(names))
