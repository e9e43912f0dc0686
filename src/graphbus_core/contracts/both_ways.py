"""Two builds side by side: can each of them handle the messages that the other one sends?

forward    old messages reach new code: while the new build starts
back       new messages reach old code: while both run
queued     retries and dead letters of the old build are handled by the new one
rollback   what the new build has left in the queue is handled by the old one

A running graph decides by the same types (`Subscription.wanted`) whether it parks an event of another build.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Literal, NamedTuple

from graphbus_core.contracts.messages import OUTSIDE, Consumer, MessageKind, Messages, Producer, Unread
from graphbus_core.contracts.misfits import Misfit, find_misfits, find_mixed_up, find_reliances, fits
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import Field, Type

Way = Literal["forward", "back", "queued", "rollback"]
Verdict = Literal["fits", "breaks", "waits", "unknown", "none"]
"""`breaks`: some messages fail. `waits`: they stay in the queue for a build that has their handler. `none`: nothing is queued."""
Order = Literal["any", "readers first", "writers first", "two steps", "none"]
"""The order in which both ends of an edge can be deployed. `two steps`: accept both, and send the new with the next deploy.

`none`: no order is safe, because one end is outside, or old and new messages look alike.
"""

WAYS: tuple[Way, ...] = ("forward", "back", "queued", "rollback")
STORED: frozenset[MessageKind] = frozenset({"event", "task"})
"""The kinds of messages that wait in a queue."""
_AGES: Mapping[Way, tuple[str, str]] = {"forward": ("old", "new"), "back": ("new", "old")}
_RANK: Mapping[Verdict, int] = {"breaks": 0, "unknown": 1, "waits": 2, "fits": 3, "none": 4}


class Problem(NamedTuple):
    """Messages of one build that the other one does not handle.

    Attributes:
        ways: In which of the four cases.
        verdict: `breaks`, `waits` or `unknown`.
        field: The field that does not fit; empty for the whole message.
        sent_at: Where the message is sent, in the build that sends it.
        read_at: Where it is read, in the other build; of a consumer that is gone, its place in the build that sends.
        why: The reason in one sentence, without its full stop.
        hurt: Who is hurt: whose messages are not handled, or whose calls fail.
        is_new: False if both ends are the same in both builds, so that no change of theirs is the reason.
        is_gone: The other build does not have the consumer.
        is_mixed_up: The other build takes the message for one with another meaning.
    """

    ways: tuple[Way, ...]
    verdict: Verdict
    field: str
    sent_at: SourceSpan
    read_at: SourceSpan
    why: str
    hurt: str
    is_new: bool = True
    is_gone: bool = False
    is_mixed_up: bool = False


class EdgeAnswers(NamedTuple):
    """The four answers about one edge.

    Attributes:
        kind: What is sent.
        channel: The topic, method or task.
        producer: Who sends.
        consumer: Who takes it.
        units: What both ends are deployed as; see `Producer.unit`.
        problems: Why an answer is not `fits`, the breaks first.
        order: How both ends can be deployed without one of the breaks.
    """

    kind: MessageKind
    channel: str
    producer: str
    consumer: str
    units: tuple[str, str]
    problems: tuple[Problem, ...] = ()
    order: Order = "any"

    @property
    def answers(self) -> dict[Way, Verdict]:
        """Way -> what becomes of the messages."""
        found: dict[Way, Verdict] = {way: "fits" if self.kind in STORED or way in _AGES else "none" for way in WAYS}
        for each in self.problems:
            found |= {way: min(found[way], each.verdict, key=_RANK.__getitem__) for way in each.ways}
        return found

    @property
    def verdict(self) -> Verdict:
        """The worst of the answers; of those that a change between the builds is the reason for, if there are any."""
        found = [each.verdict for each in self.problems if each.is_new] or [each.verdict for each in self.problems]
        return min(found, key=_RANK.__getitem__, default="fits")

    @property
    def is_new(self) -> bool:
        """True if a change between the builds is the reason why an answer is not `fits`."""
        return any(each.is_new for each in self.problems)


class BothWays(NamedTuple):
    """The comparison of two builds both ways.

    Attributes:
        edges: Every edge that either of them has, those that break first.
        unread: What could not be read in the old and in the new build, so that it is not compared.
    """

    edges: tuple[EdgeAnswers, ...]
    unread: tuple[tuple[Unread, ...], tuple[Unread, ...]] = ((), ())

    @property
    def breaks(self) -> tuple[EdgeAnswers, ...]:
        """The edges that break by a change between the builds."""
        return tuple(
            edge for edge in self.edges if any(each.verdict == "breaks" and each.is_new for each in edge.problems)
        )


def compare_both_ways(old: Messages, new: Messages, planned: Messages | None = None) -> BothWays:
    """Compare two builds both ways; each edge of either build is in the result once.

    Args:
        old: What runs.
        new: What is to run.
        planned: The whole build of which `new` contains some agents beside those that stay; by default `new` is a whole build.
            Its agents were written for each other.
    """
    found: dict[tuple[MessageKind, str, str, str], EdgeAnswers] = {}
    ways = _Direction(old, new, "forward", planned or new), _Direction(new, old, "back", planned or new)
    for edge in (*ways[0].edges(), *ways[1].edges()):
        key = edge.kind, edge.channel, edge.producer, edge.consumer
        known = found.setdefault(key, edge)
        if known is not edge:
            found[key] = known._replace(problems=tuple(dict.fromkeys((*known.problems, *edge.problems))))
    writers = {(each.kind, each.channel, each.name) for each in new.producers}
    first_taken = {(each.kind, each.channel) for each in new.producers if not old.consumers_of(each)}
    edges = [
        edge._replace(
            problems=tuple(sorted(edge.problems, key=lambda each: _RANK[each.verdict])),
            order=_find_order(edge, is_sent_on=key[:3] in writers, is_first_taken=key[:2] in first_taken),
        )
        for key, edge in found.items()
    ]
    return BothWays(tuple(sorted(edges, key=lambda edge: (_RANK[edge.verdict], edge[1:4]))), (old.unread, new.unread))


def _find_order(edge: EdgeAnswers, *, is_sent_on: bool, is_first_taken: bool) -> Order:
    """Return the order of deploys in which nothing breaks.

    Args:
        edge: The edge.
        is_sent_on: The new build sends such messages, too.
        is_first_taken: Nobody takes such messages in the old build.
    """
    broken = [each for each in edge.problems if each.verdict == "breaks"]
    ways = {way for each in broken for way in each.ways}
    is_one = bool(edge.units[0]) and edge.units[0] == edge.units[1]
    if not broken:  # what is sent before a process of the new build has declared its handlers reaches nobody
        return "readers first" if edge.verdict == "waits" and is_first_taken and not is_one else "any"
    is_lost = any(each.is_gone for each in broken) and edge.kind == "event" and is_sent_on
    if edge.producer == OUTSIDE or is_lost or any(each.is_mixed_up for each in broken):
        return "none"
    if is_one or {"forward", "back"} <= ways:
        return "two steps"
    return "readers first" if "back" in ways else "writers first"


class _Direction:
    """The messages that one build sends, and the code of the other one, which reads them."""

    def __init__(self, sender: Messages, reader: Messages, way: Literal["forward", "back"], planned: Messages) -> None:
        self._sender, self._reader, self._way, self._planned = sender, reader, way, planned
        self._planned_producers = {*map(id, planned.producers)}
        self._past, self._present = _AGES[way]

    def edges(self) -> Iterator[EdgeAnswers]:
        """Yield the edges on which the sender has a producer, with the problems in this direction."""
        for producer in self._sender.producers:
            home = self._planned if id(producer) in self._planned_producers else self._sender
            own, there = home.consumers_of(producer), self._reader.consumers_of(producer)
            is_new_outside = (
                producer.name == OUTSIDE and self._way == "back"
            )  # code outside does not change with a build
            for consumer in there:
                yield _edge(producer, consumer, () if is_new_outside else self._find_misfits(producer, consumer))
            for consumer in own:
                if consumer.key not in self._reader.by_key:
                    yield _edge(producer, consumer, self._describe_gone(producer, consumer, there))
            if producer.kind == "request" and len(own) == 1 < len(there):
                yield _edge(producer, own[0], self._describe_ambiguous(producer, there))

    # --- consumers that the other build does not have, or has twice -----------------------------------

    def _describe_gone(self, producer: Producer, consumer: Consumer, there: Sequence[Consumer]) -> Iterator[Problem]:
        """Yield the problem of messages for a consumer that the other build does not have, if it is one.

        `there` are the consumers that they reach in the other build.
        """
        kind, hurt, ways = producer.kind, consumer.name, _ways_of(self._way, is_stored=True)
        verdict: Verdict = "breaks"
        if kind == "answer" or (kind == "request" and there):
            return
        if kind == "event":
            why = f"the {self._present} build has no handler {consumer.name} for {consumer.channel}, so events for it stay parked"
            added = [each.name for each in there if each.key not in self._sender.by_key]
            if self._way == "back":
                ways, verdict = ("rollback",), "waits"
            elif len(added) == 1 and added != [consumer.name]:
                why += f"; {added[0]} does not get them"
        elif kind == "task":
            why = f"the {self._present} build has no task {consumer.channel}, which the {self._past} {producer.name} sends"
        else:
            hurt, ways = producer.name, (self._way,)
            lacks, does = ("an answer on", "asks for") if kind == "request" else ("a method", "calls")
            why = f"the {self._present} build lacks {lacks} {producer.channel}, which the {self._past} {producer.name} {does}"
        yield Problem(ways, verdict, "", producer.span, consumer.span, why, hurt, is_gone=True)

    def _describe_ambiguous(self, producer: Producer, there: Sequence[Consumer]) -> Iterator[Problem]:
        """Yield the problem of a request that several handlers of the other build would answer."""
        names = " and ".join(each.name for each in there)
        why = f"in the {self._present} build {names} would answer {producer.channel}, and a request has one handler"
        yield Problem((self._way,), "breaks", "", producer.span, there[-1].span, why, producer.name)

    # --- messages that a consumer reads -----------------------------------------------------------

    def _find_misfits(self, producer: Producer, consumer: Consumer) -> Iterator[Problem]:
        """Yield why messages do not fit a consumer of the other build, or are not known to fit."""
        own = self._sender.by_key.get(consumer.key)
        ways = _ways_of(self._way, is_stored=producer.kind in STORED and (own is not None or self._way == "back"))
        hurt = producer.name if producer.kind in ("call", "request") else consumer.name
        always = self._find_fields_that_always_fail(producer, consumer, own)
        for each in self._misfits_of(producer, consumer, own):
            read_at, is_new = (
                consumer.place_of(each.field),
                _is_new(each, producer, consumer, own, self._find_same(producer, each.field)),
            )
            is_new = is_new and not (each.verdict == "breaks" and each.field in always)
            yield Problem(
                ways, each.verdict, each.field, producer.span, read_at, each.why, hurt, is_new, is_mixed_up=each.is_mixed_up
            )  # fmt: skip

    def _find_fields_that_always_fail(self, producer: Producer, consumer: Consumer, own: Consumer | None) -> set[str]:
        """Return the fields by which a task fails without a change: old messages in the old build, or equal ones in both."""
        if producer.kind != "task" or own is None:
            return set()
        ends = [own] if self._way == "forward" else [consumer] if self._find_same(producer) else []
        found = (each for end in ends for each in self._misfits_of(producer, end, end))
        return {each.field for each in found if each.verdict == "breaks"}

    def _misfits_of(self, producer: Producer, consumer: Consumer, own: Consumer | None) -> Iterator[Misfit]:
        """Yield what does not fit; of each field only the first reason. `own` is the consumer in the producer's build."""
        names = f"the {self._past} {producer.name}", f"the {self._present} {consumer.name}"
        home = self._planned if self._planned.by_key.get(consumer.key) is consumer else self._reader
        found = [*find_mixed_up(producer, consumer, own, names)] if own and fits(producer, own) else []
        found += find_misfits(producer, consumer, names)
        found += find_reliances(producer, consumer, home.producers_of(producer), names)
        yield from {each.field: each for each in reversed(found)}.values()

    def _find_same(self, producer: Producer, field: str = "") -> list[Producer]:
        """Return the producers of the reader's build that send the same in a field; without a field, in all of them."""
        there, sent = self._reader.producers_of(producer), _sent_by(producer, field)
        return [each for each in there if each.name == producer.name and _sent_by(each, field) == sent]


def _is_new(
    misfit: Misfit, producer: Producer, consumer: Consumer, own: Consumer | None, same: Sequence[Producer]
) -> bool:
    """Return whether a change between the builds is the reason for a misfit.

    Args:
        misfit: The misfit.
        producer: Who sends, in one build.
        consumer: Who takes it, in the other build.
        own: The consumer in the build of the producer; None if it is not there.
        same: The producers in the build of the consumer that send the same, as far as is known.
    """
    is_same_text = own is not None and own.digest == consumer.digest
    if misfit.is_assumed and is_same_text:  # it got along with these messages in the other build
        return False
    if own is None or not same or _taken_by(own, misfit.field) != _taken_by(consumer, misfit.field):
        return True
    return misfit.verdict == "unknown" and not (is_same_text and any(each.digest == producer.digest for each in same))


def _edge(producer: Producer, consumer: Consumer, problems: Iterable[Problem]) -> EdgeAnswers:
    units = producer.unit, consumer.unit
    return EdgeAnswers(producer.kind, producer.channel, producer.name, consumer.name, units, (*problems,))


def _ways_of(way: Literal["forward", "back"], *, is_stored: bool) -> tuple[Way, ...]:
    """Return in which of the four cases messages of this direction are; `is_stored`: they may wait in a queue."""
    if not is_stored:
        return (way,)
    return ("forward", "queued") if way == "forward" else ("back", "rollback")


def _taken_by(consumer: Consumer, field: str) -> tuple[object, ...]:
    """Return what a consumer takes in a field, or in all of them, whatever its place is."""
    return _part_of(consumer.wanted, field), consumer.positions, consumer.is_closed, consumer.takes_rest


def _sent_by(producer: Producer, field: str) -> tuple[object, ...]:
    """Return what a producer sends in a field, or in all of them, whatever its place is."""
    parts = _part_of(producer.given, field), _part_of(producer.declared, field)
    return *parts, producer.positional, producer.is_open, producer.has_rest


def _part_of(of: Type, field: str) -> Field | Type | None:
    """Return a field of a record, None if it has no such field; without a field, and for other types, the type."""
    if not field or of.kind != "record":
        return of
    return next((each for each in of.fields if each.name == field), None)


def find_deploy_order(edges: Iterable[EdgeAnswers]) -> tuple[str, ...]:
    """Return the units of these edges in an order of deploys in which none of them breaks; empty if any will do, or none."""
    after: dict[str, set[str]] = {}
    for edge in (each for each in edges if each.order != "any"):
        writer, reader = edge.units
        if edge.order not in ("readers first", "writers first"):
            return ()
        first, then = (reader, writer) if edge.order == "readers first" else (writer, reader)
        after.setdefault(first, set())
        after.setdefault(then, set()).add(first)
    with suppress(CycleError):
        return tuple(TopologicalSorter(after).static_order())
    return ()
