"""A ledger as a source of the page, read only: an SQLite file, or the stream of an application on a NATS server.

A ledger keeps events and what is still to be done with them, and forgets when a handler began: what is done is shown at the time
at which it was published.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from threading import Lock, Thread
from time import monotonic, time
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.dead_letters import StoredLetter
from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.isolation import attempt
from graphbus_core.ledger.attached import open_engine
from graphbus_core.ledger.envelope import Envelope, decode_envelope
from graphbus_core.ledger.nats_link import ApiError, NatsLink
from graphbus_core.ledger.nats_names import parse_address, stream_name, unusable
from graphbus_core.ledger.seam import EngineGone, Entry, Lag, Subscription
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.topics import matches
from graphbus_core.view.messages import (
    Counts,
    DeliveryPage,
    GraphPicture,
    Hello,
    Origin,
    Tick,
)
from graphbus_core.view.project import ProjectSource
from graphbus_core.view.recorder import choose_sample
from graphbus_core.view.records import MemoryRecords, Query
from graphbus_core.view.trees import Reveal

_READ_S = 1.0
_FIRST_EVENTS, _MOST_SEEN = 1000, 50_000
_TIMES_UNKNOWN = (
    "A ledger does not keep when a handler began and how long it took; events are shown when they were published."
)
_READ_ONLY = "Dead letters of a ledger are replayed by `graphbus dlq replay`, or on the page of the graph that runs."
_ANY_HANDLER = "(handlers)"

R = TypeVar("R")


class Snapshot(NamedTuple):
    """What a ledger holds now.

    Attributes:
        deliveries: What has come since the last one.
        counts: As in `Tick.handlers`.
        published: Events in the ledger.
        letters: Its dead letters.
    """

    deliveries: Sequence[TracedDelivery] = ()
    counts: Mapping[str, Counts] = MappingProxyType({})
    published: int = 0
    letters: Sequence[StoredLetter] = ()


class Reader(Protocol):
    """Reads a ledger. One thread uses it at a time."""

    name: str

    def read(self) -> Snapshot:
        """Return what it holds now.

        Raises:
            RunError: It cannot be used. EngineGone: it cannot be reached now.
        """

    def close(self) -> None:
        """Disconnect."""


class _Loop:
    """An event loop on a thread of its own, for engines with `async` methods."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="graphbus-view-ledger", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """End the thread, and close the loop with its sockets."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Seen:
    """Remembers the last keys that it was asked about."""

    def __init__(self) -> None:
        self._keys: OrderedDict[object, None] = OrderedDict()

    def is_new(self, key: object) -> bool:
        """True if the key comes for the first time."""
        is_new = key not in self._keys
        self._keys[key] = None
        if len(self._keys) > _MOST_SEEN:
            self._keys.popitem(last=False)
        return is_new


class FileReader:
    """Reads a ledger in an SQLite file.

    Args:
        path: The state file.

    Raises:
        RunError: GBE643-645 for a file that cannot be used.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self._engine = open_engine("sqlite", path)
        self._loop, self._seen = _Loop(), _Seen()

    def read(self) -> Snapshot:
        """Return what the file holds now."""
        return self._loop.do(self._read())

    async def _read(self) -> Snapshot:
        lags = await self._engine.lag()
        entries = await self._engine.entries("", (), _FIRST_EVENTS)
        found = await self._engine.dead_letters({each.subscription.agent for each in lags})
        letters = [StoredLetter(id=number, letter=each, replays=0, has_payload=True) for number, each in found]
        subscriptions = [each.subscription for each in lags]
        fresh = [each for each in entries if self._seen.is_new((each.envelope.id, each.handler, each.state))]
        return Snapshot(
            deliveries=[new for each in reversed(fresh) for new in _deliveries_of(each, subscriptions)],
            counts={f"{each.subscription.handler} <- {each.subscription.topic}": _counts_of(each) for each in lags},
            published=len({each.envelope.id for each in entries}),
            letters=letters,
        )

    def close(self) -> None:
        """Close the file."""
        self._loop.do(self._engine.close())
        self._loop.stop()


def _counts_of(lag: Lag) -> Counts:
    return Counts(
        dead=lag.dead,
        retrying=lag.retrying,
        waiting=lag.waiting + lag.leased + lag.parked,
        lag_s=round(lag.oldest_s, 1) if lag.waiting else 0.0,
    )


def _deliveries_of(entry: Entry, subscriptions: Iterable[Subscription]) -> Iterator[TracedDelivery]:
    """Yield what a ledger knows of the deliveries of an event that have ended: for each handler, if all are done with it."""
    if entry.state == "done":
        handlers = [each.handler for each in subscriptions if matches(each.topic, entry.envelope.type)]
        yield from (_delivery_of(entry.envelope, handler) for handler in handlers)
    elif entry.state in ("dead", "parked", "retrying"):
        yield _delivery_of(entry.envelope, entry.handler, entry.why or entry.state)


def _delivery_of(envelope: Envelope, handler: str, error: str = "") -> TracedDelivery:
    """Return a delivery of which only the event is known, and whether it failed."""
    return TracedDelivery(
        event_id=envelope.id,
        causation_id=envelope.causationid,
        correlation_id=envelope.correlationid or envelope.id,
        topic=envelope.type,
        src=envelope.source,
        published_by=envelope.trail[-1][1] if envelope.trail else "",
        published=envelope.time,
        handler=handler,
        attempt=1,
        started=envelope.time,
        duration_s=0.0,
        outcome="failed" if error else "done",
        error=error,
        payload=json.dumps(envelope.data, separators=(",", ":")),
    )


class NatsReader:
    """Reads the stream of an application on a NATS server: its last events, and what waits for each agent.

    Args:
        url: `nats://[user:password@]host[:port][/app]`.

    Raises:
        RunError: GBE659 for a malformed address, GBE671 if nats-py is not installed, and when the server refuses us.
    """

    def __init__(self, url: str) -> None:
        from graphbus_core.hosting.imports import require_packages

        address = parse_address(url)
        require_packages("A ledger on NATS", ["nats"], extra="nats")
        self.name = f"{address.scheme}://{address.place}/{address.app}"
        self._stream, self._app = stream_name(address.app), address.app
        self._loop = _Loop()
        self._link = NatsLink(address, lambda: None)
        self._last = 0
        self._loop.do(self._link.connect())

    def read(self) -> Snapshot:
        """Return what the stream holds now."""
        return self._loop.do(self._read())

    async def _read(self) -> Snapshot:
        try:
            state = (await self._link.request(f"$JS.API.STREAM.INFO.{self._stream}"))["state"]
            listed = await self._link.request(f"$JS.API.CONSUMER.LIST.{self._stream}", {"offset": 0})
        except ApiError as error:
            advice = "Name the application: `nats://host:4222/app`. Its stream is made when its graph starts."
            raise unusable(
                f"its stream {self._stream} cannot be read ({error})", advice, self._link.address.place
            ) from None
        first = max(self._last + 1, state["first_seq"], state["last_seq"] - _FIRST_EVENTS + 1)
        found = [await self._event(number) for number in range(first, state["last_seq"] + 1)]
        self._last = state["last_seq"]
        consumers = listed.get("consumers") or ()
        return Snapshot(
            deliveries=[_delivery_of(each, _ANY_HANDLER) for each in found if each is not None],
            counts={name: counts for each in consumers for name, counts in self._counts_of(each)},
            published=state["messages"],
        )

    async def _event(self, number: int) -> Envelope | None:
        """Return an event of the stream; None if it is gone, or no event of ours."""
        try:
            answer = await self._link.request(f"$JS.API.STREAM.MSG.GET.{self._stream}", {"seq": number})
            return decode_envelope(base64.b64decode(answer["message"]["data"]))
        except (ApiError, KeyError, ValueError, msgspec.MsgspecError):
            return None

    def _counts_of(self, consumer: dict[str, Any]) -> Iterator[tuple[str, Counts]]:
        """Yield what waits for an agent; the server counts it for all its topics together."""
        config = consumer["config"]
        subjects = config.get("filter_subjects") or [config.get("filter_subject") or f"gb.{self._app}.>"]
        topic = "/" + subjects[0].removeprefix(f"gb.{self._app}.").replace(".", "/").replace(">", "**")
        counts = Counts(
            delivered=consumer["delivered"]["consumer_seq"],
            retrying=consumer["num_redelivered"],
            waiting=consumer["num_pending"] + consumer["num_ack_pending"],
        )
        yield f"{consumer['name']}.{_ANY_HANDLER} <- {topic}", counts

    def close(self) -> None:
        """Disconnect."""
        self._loop.do(self._link.close())
        self._loop.stop()


class LedgerSource(ProjectSource):
    """A ledger as a source of the page.

    Args:
        reader: Reads it.
        artifacts: The graph, if it is known.
        folder: The folder of the artifacts.
        redacted: The keys of payloads whose values are never shown.
    """

    records: MemoryRecords
    no_replay, interval_s = _READ_ONLY, _READ_S

    def __init__(self, reader: Reader, artifacts: Artifacts, folder: str | Path, redacted: Sequence[str]) -> None:
        origin = Origin(
            kind="ledger",
            name=reader.name,
            server=token_hex(6),
            is_live=True,
            has_payloads=True,
            redacted=tuple(redacted),
            note=_TIMES_UNKNOWN,
        )
        super().__init__(artifacts, folder, origin, MemoryRecords(), Reveal(is_recorded=True, redacted=redacted))
        self._reader, self._reading = reader, Lock()
        self._last, self._read_at = Snapshot(), 0.0
        self._sent: Mapping[str, Counts] = {}

    def close(self) -> None:
        """End all streams, and disconnect."""
        self.pulse.close("The view has ended.")
        attempt(self._reader.close)

    def _look(self) -> Sequence[Any]:
        """Read the ledger, at most once a second; keep what has come, and return it with its numbers.

        While the ledger cannot be reached, what was read last is shown, and the note of the origin says so.
        """
        with self._reading:
            if monotonic() - self._read_at < _READ_S:
                return ()
            self._read_at = monotonic()
            try:
                self._last, note = self._reader.read(), _TIMES_UNKNOWN
            except (EngineGone, GraphBusError) as error:
                reason = error.sentence if isinstance(error, GraphBusError) else f"{error}."
                self.origin = msgspec.structs.replace(self.origin, note=f"The ledger cannot be read now: {reason}")
                return ()
            self.origin = msgspec.structs.replace(self.origin, note=note)
            return [self.records.add(each) for each in self._last.deliveries]

    def hello(self, *, is_trusted: bool) -> Hello:
        """Return the first message of a stream."""
        self._look()
        return super().hello(is_trusted=is_trusted)

    def tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return what has come into the ledger since the last call."""
        taken = self._look() if is_watched else ()
        sample = choose_sample(taken)
        counts = self._last.counts
        changed = (
            {**counts} if is_first else {name: each for name, each in counts.items() if each != self._sent.get(name)}
        )
        self._sent = counts
        return Tick(
            at=time(),
            deliveries=sample,
            left_out=len(taken) - len(sample),
            first=taken[0].seq if taken else 0,
            last=taken[-1].seq if taken else 0,
            published=self._last.published,
            dead_letters=len(self._last.letters),
            handlers=changed,
        )

    def graph(self, *, is_trusted: bool) -> GraphPicture:
        """Return the drawing of the graph; the note of its origin says whether the ledger can be read."""
        self._look()
        return super().graph(is_trusted=is_trusted)

    def deliveries(self, query: Query) -> DeliveryPage:
        """Return deliveries of the past."""
        self._look()
        return super().deliveries(query)

    def letters(self) -> Sequence[StoredLetter]:
        """Return the dead letters of the ledger."""
        self._look()
        return self._last.letters
