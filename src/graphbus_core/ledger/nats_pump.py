"""Pump: brings the events of a consumer on a NATS server into the local file, and acknowledges what is handled.

    pull -> messages -> inbox (one transaction) -> ... settled -> acknowledgements -> receipts forgotten

The server owns an event until it is acknowledged; until then, the pump says every third of `ack_wait` that it is being worked on.
Messages come to a subject of the pump's own, for as long as it is attached: a message that comes late is not lost with the pull
that asked for it.

Order. The server hands out messages in order, and again those that nobody has acknowledged in time. Messages that were on
their way when a process or connection ended are not in the file; until the server hands them out again, the pump takes nothing
newer, unless another process pulls too.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from graphbus_core.errors import RunError
from graphbus_core.ledger.envelope import decode_envelope
from graphbus_core.ledger.inbox import Arrival, InboxLedger, Source
from graphbus_core.ledger.nats_link import NatsLink, Received, Receiver
from graphbus_core.ledger.nats_names import subject_of
from graphbus_core.ledger.nats_stream import NS, Stream, find_consumer
from graphbus_core.ledger.seam import EngineGone
from graphbus_core.log import Log

PREFETCH = 256
"""The most events of an agent in the file that are not acknowledged."""
_PULL_S, _HEARTBEAT_S = 30.0, 5.0
_SILENCE_S = 3 * _HEARTBEAT_S
"""After this long without a sign of the server, a pull is taken to be lost."""
_PAUSE_S = 0.5
"""The pause after an error of the server."""
_MARGIN_S = 1.0
_LOOKS = 5
_ACKNOWLEDGE_S = 0.002
"""How long acknowledgements are collected while there is more to handle; they are one write to the connection then."""

_log = Log("graphbus.ledger")


class _Held:
    """An event in the file that is not acknowledged: its receipt, and how many of its deliveries are open."""

    __slots__ = ("event_id", "open_deliveries", "receipt")

    def __init__(self, event_id: str, receipt: str, open_deliveries: int) -> None:
        self.event_id = event_id
        self.receipt = receipt
        self.open_deliveries = open_deliveries


class Pump:
    """The pump of one consumer. All calls come from the event loop of its task.

    Args:
        link: The connection.
        local: The file.
        source: The consumer, its agent and partition.
        ack_wait_s: How long the server waits for an acknowledgement before it hands an event out again.
    """

    def __init__(self, link: NatsLink, local: InboxLedger, source: Source, ack_wait_s: float) -> None:
        self.source = source
        self._link, self._local, self._ack_wait_s = link, local, ack_wait_s
        self._stream: Stream | None = None  # None: it is not attached
        self._created = ""  # when the stream was made to which it was attached last
        self._wanted: Stream | None = None  # the stream to attach to
        self._held: dict[int, _Held] = {}  # by number in the stream
        self._numbers: dict[str, int] = {}  # of held events, by id
        self._acknowledged: list[int] = []  # their receipts are still in the file
        self._unsent: deque[str] = deque()  # receipts of what is handled, to be sent together
        self._last_receipts: deque[str] = deque(maxlen=2 * PREFETCH)  # of what was acknowledged
        self._highest = 0  # the highest number that was seen
        self._arrived: list[Received] = []
        self._pulled = 0  # how many messages the present pull may still bring
        self._seen_at = self._beat_at = self._resume_at = 0.0  # monotonic
        self._wake = asyncio.Event()
        self._receiver: Receiver | None = None
        self._inbox = ""
        self._reported = ""  # the error that was logged last
        self.is_detached = False  # it must be attached again, because the consumer may be gone

    # --- what the ledger calls ---

    def attach(self, stream: Stream) -> None:
        """Begin to pull, or begin again after a reconnection."""
        self._wanted, self.is_detached = stream, False
        self._wake.set()

    def held(self) -> frozenset[int]:
        """Return the numbers of the events in the file that are not acknowledged."""
        return frozenset(self._held)

    def count_down(self, event_id: str) -> None:
        """Note that a delivery is done, dead or parked; acknowledge the event if it was the last one."""
        number = self._numbers.get(event_id)
        held = None if number is None else self._held[number]
        if number is None or held is None:
            return
        held.open_deliveries -= 1
        if held.open_deliveries > 0:
            return
        self._acknowledge(number)
        if not self._held:
            self._wake.set()
        elif len(self._unsent) == 1:
            asyncio.get_running_loop().call_later(_ACKNOWLEDGE_S, self._wake.set)

    async def run(self) -> None:
        """Pump until the task is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._step()
                self._reported = ""
            except (EngineGone, RunError) as gone:  # e.g. a full disk
                if isinstance(gone, RunError) and str(gone) != self._reported:
                    self._reported = str(gone)
                    _log.error("the events of %s wait: %s", self.source.name, gone)
                self._resume_at = monotonic() + _PAUSE_S

    async def close(self) -> None:
        """End the pull, and write what has arrived into the file, or else give it back."""
        await self._unlisten()
        with suppress(EngineGone):
            await self._send_acknowledgements()
        with suppress(EngineGone, RunError):
            await self._store()
        with suppress(EngineGone):
            for message in self._arrived:
                await self._link.send(message.reply, b"-NAK")

    # --- its task ---

    def _pause_s(self) -> float:
        """Return how long there is nothing to do unless something happens."""
        now = monotonic()
        resume_s = self._resume_at - now
        return min(max(0.05, self._beat_at - now), resume_s if resume_s > 0 else _HEARTBEAT_S)

    async def _step(self) -> None:
        if not self._link.is_up:
            return
        if self._wanted is not None:
            await self._attach(self._wanted)
        if self._stream is None:
            return
        await self._send_acknowledgements()
        await self._store()
        if monotonic() >= self._beat_at:
            await self._beat()
        await self._pull()

    async def _attach(self, stream: Stream) -> None:
        """Listen on a new subject, which answers to earlier pulls do not reach, and take up the receipts in the file."""
        await self._unlisten()
        self._take_up(stream)
        self._pulled, self._stream, self._created = 0, stream, stream.created
        self._unsent.clear()
        for receipt in self._last_receipts:  # an acknowledgement may be lost with the connection
            await self._link.send(receipt, b"+ACK")
        await self._store()
        await self._beat()
        self._resume_at = monotonic() + (self._ack_wait_s + _MARGIN_S if await self._has_gap(stream) else 0.0)
        self._inbox = self._link.new_inbox()
        self._receiver = await self._link.listen(self._inbox, self._take)
        self._wanted = None

    async def _unlisten(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await self._link.unlisten(receiver)

    def _take_up(self, stream: Stream) -> None:
        self._held.clear()
        self._numbers.clear()
        receipts = self._local.receipts(self.source, stream.created)
        highest = max((self._highest, *(each.number for each in receipts)))
        if stream.last < highest or self._created not in ("", stream.created):
            # It has lost its end, or was made anew: its numbers name other events now.
            _log.error("the stream %s has lost events: it ends at %d, not at %d", stream.name, stream.last, highest)
            self._local.receive(self.source, "", (), [each.number for each in receipts])
            self._arrived.clear()
            self._last_receipts.clear()
            receipts, highest = [], 0
        self._highest = highest
        for each in receipts:
            self._hold(each.number, _Held(each.event_id, each.receipt, each.open_deliveries))

    def _hold(self, number: int, held: _Held) -> None:
        self._held[number] = held
        self._numbers[held.event_id] = number

    async def _has_gap(self, stream: Stream) -> bool:
        """Return whether the server has handed out messages that are not in the file, and nobody else pulls."""
        for _ in range(_LOOKS):  # it may not have counted the latest acknowledgements yet
            info = await find_consumer(self._link, stream.name, self.source.name)
            if info is None:
                raise EngineGone(f"the consumer {self.source.name} is missing")
            if info["num_waiting"] or info["num_ack_pending"] <= len(self._held):
                return False
            await asyncio.sleep(0.05)
        return True

    async def _pull(self) -> None:
        """Ask for as many events as there is room for, if no pull is under way."""
        now = monotonic()
        if self._pulled and now - self._seen_at > _SILENCE_S:
            self._fail("the server is silent")
        room = PREFETCH - len(self._held)
        if self._pulled or room < PREFETCH // 2 or now < self._resume_at or self._stream is None:
            return
        request = {"batch": room, "expires": round(_PULL_S * NS), "idle_heartbeat": round(_HEARTBEAT_S * NS)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream.name}.{self.source.name}"
        await self._link.send(subject, json.dumps(request).encode(), self._inbox)
        self._pulled, self._seen_at = room, now

    def _take(self, message: Received) -> None:
        """Take a message: an event, or a sign of the server about the pull."""
        self._seen_at = monotonic()
        status = (message.headers or {}).get("Status", "")
        if not status:
            self._arrived.append(message)
            self._pulled -= 1
            self._wake.set()
        elif status in ("404", "408"):  # the pull has ended
            self._pulled = 0
            self._wake.set()
        elif status != "100":
            self._fail((message.headers or {}).get("Description", status))

    def _fail(self, reason: str) -> None:
        """Pull again after a pause, when the ledger has looked at the consumer."""
        _log.debug("the pull for %s has ended: %s", self.source.name, reason)
        self._pulled, self._stream, self.is_detached = 0, None, True
        self._resume_at = monotonic() + _PAUSE_S
        self._wake.set()

    # --- events ---

    async def _store(self) -> None:
        """Write what has arrived into the file, and acknowledge what is handled already."""
        arrived, self._arrived = self._arrived, []
        try:
            arrivals = [each for message in arrived if (each := await self._read(message)) is not None]
            if arrivals:
                await self._receive(arrivals)
        except (EngineGone, RunError):
            self._arrived[:0] = arrived  # again later; what is in the file already is recognized
            raise

    async def _read(self, message: Received) -> Arrival | None:
        """Return the event of a message; None if it is in the file, or is not an event, which is refused for ever."""
        number = _number_of(message.reply)
        self._highest = max(self._highest, number)
        held = self._held.get(number)
        if held is not None:
            held.receipt = message.reply  # it was handed out again
            return None
        try:
            envelope = decode_envelope(message.data)
            if message.subject != subject_of(
                self._link.address.app, envelope.type
            ):  # which alone the server has checked
                raise ValueError(f"it says that its topic is {envelope.type}")
            return Arrival(number, message.reply, envelope)
        except ValueError as error:
            _log.error(
                "message %d on %s is not an event of a graph, and was refused: %s", number, message.subject, error
            )
            await self._link.send(message.reply, b"+TERM")
            return None

    async def _receive(self, arrivals: Sequence[Arrival]) -> None:
        """Write events into the file in one transaction."""
        if self._stream is None:
            raise EngineGone("the pump is not attached")
        forgotten, self._acknowledged = self._acknowledged, []
        try:
            counts = self._local.receive(self.source, self._stream.created, arrivals, forgotten)
        except (EngineGone, RunError):  # another process writes to the file, or the disk is full
            self._acknowledged += forgotten
            raise
        for each, count in zip(arrivals, counts, strict=True):
            await self._hold_or_acknowledge(each, count)

    async def _hold_or_acknowledge(self, arrival: Arrival, open_deliveries: int) -> None:
        event_id = arrival.envelope.id
        if open_deliveries and self._numbers.get(event_id, arrival.number) == arrival.number:
            self._hold(arrival.number, _Held(event_id, arrival.receipt, open_deliveries))
        else:  # it is handled, or stored twice in the stream
            await self._link.send(arrival.receipt, b"+ACK")
            self._last_receipts.append(arrival.receipt)
            self._acknowledged.append(arrival.number)

    def _acknowledge(self, number: int) -> None:
        """Acknowledge an event soon; if that does not arrive, the server hands it out again, and the file knows it."""
        held = self._held.pop(number)
        self._numbers.pop(held.event_id, None)
        self._acknowledged.append(number)
        self._last_receipts.append(held.receipt)
        self._unsent.append(held.receipt)

    async def _send_acknowledgements(self) -> None:
        while self._unsent:
            await self._link.send(self._unsent.popleft(), b"+ACK")

    async def _beat(self) -> None:
        """Tell the server what is still being worked on, and acknowledge what others have settled in the file."""
        self._beat_at = monotonic() + self._ack_wait_s / 3
        if self._held:
            open_deliveries = self._local.count_open(self.source)
            for number, held in list(self._held.items()):
                if number not in self._held:
                    continue  # another task has acknowledged it meanwhile
                if held.event_id not in open_deliveries:
                    self._acknowledge(number)
                else:
                    await self._link.send(held.receipt, b"+WPI")
        if self._acknowledged:
            self._local.receive(self.source, "", (), self._acknowledged)
            self._acknowledged = []
        await self._send_acknowledgements()


def _number_of(receipt: str) -> int:
    """Return the number in the stream from the subject of an acknowledgement: of 9 parts, or 11 and more with a domain."""
    parts = receipt.split(".")
    return int(parts[5] if len(parts) == 9 else parts[7])
