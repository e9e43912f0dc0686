"""Looks at the events in the file of a ledger, and plans which of them are handed out again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from graphbus_core.ledger import sqlite_tables as sql
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Entry, EntryState, ReplayRequest, Subscription
from graphbus_core.model.topics import matches

_decoder = msgspec.json.Decoder(Envelope)


def find_entries(
    connection: Connection, now: float, topic: str, states: Collection[EntryState], limit: int
) -> list[Entry]:
    """Return what `History.entries` returns."""
    found: list[Entry] = []
    for body, kind, handler, why, _ in connection.execute(sql.ENTRIES, {"now": now}):
        if len(found) >= limit:
            break
        if states and kind not in states:
            continue
        envelope = _decoder.decode(body)
        if not topic or matches(topic, envelope.type):
            found.append(Entry(envelope=envelope, state=kind, handler=handler, why=why or ""))
    return found


class _Kept(NamedTuple):
    """An event in the file: its row number, and the row numbers of the subscriptions that get it again."""

    number: int
    envelope: Envelope
    is_done: bool
    again: Sequence[int]


class ReplayPlan(NamedTuple):
    """What a replay changes in the file.

    Attributes:
        deliveries: Row number and envelope of an event, and the row number of the subscription that gets it.
        forgotten: Row numbers of events that will be published again with the same ids.
    """

    deliveries: Sequence[tuple[int, Envelope, int]]
    forgotten: Sequence[int]


def plan_replay(
    connection: Connection, subscriptions: Mapping[int, Subscription], request: ReplayRequest
) -> ReplayPlan:
    """Return what to do for a request."""
    kept = list(_find_kept(connection, subscriptions, request))
    caused: dict[str, list[_Kept]] = defaultdict(list)
    for each in kept:
        caused[each.envelope.causationid].append(each)
    again: dict[int, _Kept] = {}
    for each in kept:
        agents = {subscriptions[number].agent for number in each.again}
        left = [child for child in caused[each.envelope.id] if child.envelope.source in agents]
        while left:
            child = left.pop()
            if child.number not in again:
                again[child.number] = child
                left += caused[child.envelope.id]
    chosen = [each for each in kept if each.number not in again]
    deliveries = [(each.number, each.envelope, number) for each in chosen for number in each.again]
    return ReplayPlan(deliveries, [each.number for each in again.values() if each.is_done])


def _find_kept(
    connection: Connection, subscriptions: Mapping[int, Subscription], request: ReplayRequest
) -> Iterator[_Kept]:
    """Yield all events, each with the subscriptions that are chosen for it and have no open delivery of it."""
    is_open = set(connection.execute(sql.OPEN))
    for row, deliveries, body in connection.execute(sql.EVENTS):
        event = _decoder.decode(body)
        is_chosen = request.since <= event.time < request.until and matches(request.topic or "/**", event.type)
        again = [
            number
            for number, each in (subscriptions.items() if is_chosen else ())
            if matches(each.topic, event.type)
            and (not request.handlers or each.handler in request.handlers)
            and (row, number) not in is_open
        ]
        yield _Kept(row, event, deliveries == 0, again)


def apply_replay(connection: Connection, subscriptions: Mapping[int, Subscription], plan: ReplayPlan) -> None:
    """Write the deliveries of a plan, and forget what will come again."""
    for row, event, number in plan.deliveries:
        each = subscriptions[number]
        connection.execute(sql.ADD_DELIVERY, (row, number, each.agent, each.partition_of(event), event.time))
        connection.execute(sql.ADD_TO_EVENT, (row,))
    connection.executemany(sql.FORGET_EVENT, [(number,) for number in plan.forgotten])
