"""NatsLedger: the engine on a NATS server with JetStream, for several hosts.

    append -> stream -> consumer of each agent -> pump -> file of a process -> claim, settle -> outbox -> relay -> stream

The server carries events between processes; each process handles them out of a file of its own (see `inbox`), by the code of the
engine in a file. So an outcome, the changes of states and what the handler published are one transaction, and an event that the
server hands out twice is handled once. The server owns an event until all deliveries of it in a process are done, dead or
parked; what a process has published but not relayed when it ends is relayed when it runs again.

An agent, or each partition of it, belongs to one file: while a process handles its events, one with another file is refused,
unless the settings say that processes share the events.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import msgspec

from graphbus_core.clock import Clock
from graphbus_core.errors import RunError
from graphbus_core.ledger.envelope import Envelope, encode_envelope
from graphbus_core.ledger.inbox import InboxLedger, Source
from graphbus_core.ledger.nats_link import (
    ApiError,
    Message,
    NatsLink,
    NobodyThereError,
    Received,
    Receiver,
)
from graphbus_core.ledger.nats_names import (
    consumer_name,
    is_inbox,
    parse_address,
    stream_name,
    subject_of,
    subject_of_owner,
    subject_of_question,
    subject_of_questions,
    unusable,
)
from graphbus_core.ledger.nats_pump import Pump
from graphbus_core.ledger.nats_stream import (
    ACK_WAIT_S,
    Stream,
    consumers_of,
    declare_consumers,
    declare_stream,
    divide_again,
    find_consumer,
    no_jetstream,
)
from graphbus_core.ledger.processes import identity_of_file
from graphbus_core.ledger.seam import (
    AgentMissing,
    Capabilities,
    Dead,
    Done,
    EngineGone,
    Entry,
    EntryState,
    Lag,
    Lease,
    Outcome,
    Parked,
    Question,
    ReplayRequest,
    Settled,
    StateChange,
    Subscription,
)
from graphbus_core.log import Log
from graphbus_core.model.config import NatsConfig
from graphbus_core.model.deliveries import DeadLetter

_RELAY = 256
"""How many events of the outbox are published before their acknowledgements are waited for."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_LAST_S = 2.0
"""How long `close` may publish what the outbox has."""
_LOOKS, _LOOK_S = 5, 0.005
_OWNER_S = 2.0
"""How long a process may take to say that it handles the events of an agent."""
_TOO_LARGE = 10054
_HEADROOM_BYTES = 512
"""What the headers of a message take at most."""

_log = Log("graphbus.ledger")


class NatsLedger:
    """A `Ledger` on a NATS server. A crash of any process loses nothing that was stored, and doubles nothing in states.

    A power cut of a server may undo what it has stored last, unless it runs with `sync_interval: always`.

    Args:
        url: `nats://[user:password@]host[:port][/app]`.
        path: The state file of the graph, on a disk of the process's own. An agent has one file.
        clock: The clock of leases and retries.
        lease_s: How long a lease lasts.
        agents: The agents that this process hosts; None: all that are subscribed.
        partition: The only partition that this process handles of those agents that are divided; None: all.
        ack_wait_s: After how long without a sign of a process the server hands its events out again.
        settings: The settings of the stream, and of agents that several processes run.

    Raises:
        RunError: GBE659, the address is malformed.
    """

    capabilities = Capabilities(atomic_settle=True, survives="process", several_processes=True)

    def __init__(
        self,
        url: str,
        path: str,
        clock: Clock | None = None,
        lease_s: float = 30.0,
        *,
        agents: Collection[str] | None = None,
        partition: int | None = None,
        ack_wait_s: float = ACK_WAIT_S,
        settings: NatsConfig = NatsConfig(),  # noqa: B008 - it is frozen
    ) -> None:
        self.address = parse_address(url)
        self._outgoing = asyncio.Event()
        self._local = InboxLedger(path, clock, lease_s)
        self._link = NatsLink(self.address, self._declare_soon)
        self._path = path
        self._only = None if agents is None else frozenset(agents)
        self._partition = partition
        self._ack_wait_s = ack_wait_s
        self._settings = settings
        self._subscriptions: Sequence[Subscription] = ()
        self._stream: Stream | None = None
        self._pumps: dict[str, Pump] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._must_declare = asyncio.Event()
        self._is_declared = False
        self._numbers = count(1)
        self._questions: list[Question] = []
        self._askers: dict[int, str] = {}  # where an answer is sent to, by the number of the question
        self._listening: list[Receiver] = []
        self._answering: set[asyncio.Task[None]] = set()  # who would forget them otherwise

    # --- life ---

    @property
    def is_reachable(self) -> bool:
        """True while the connection is there and the stream and the consumers are as they must be."""
        return self._link.is_up and self._is_declared

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        """Open the file, connect, and make or verify the stream and the consumers; see `Ledger.open`. Wait for the server.

        Raises:
            RunError: GBE659, the server cannot be used.
        """
        await self._local.open(subscriptions)
        self._subscriptions = tuple(subscriptions)
        await self._connect(is_patient=True)
        await self._declare()
        self._spawn("relay", self._relay())
        self._spawn("watch", self._watch_connection())

    async def _connect(self, *, is_patient: bool = False) -> None:
        """Connect, and make or verify the stream, unless that is done."""
        if self._stream is None:
            if not self._link.is_up:
                await self._link.connect(is_patient=is_patient)
            try:
                self._stream = await declare_stream(self._link, self._settings)
            except NobodyThereError:
                raise no_jetstream(self.address.place) from None

    def _hosted(self) -> list[str]:
        """Return the agents of this process that are subscribed."""
        agents = dict.fromkeys(each.agent for each in self._subscriptions)
        return [each for each in agents if self._only is None or each in self._only]

    async def _declare(self) -> None:
        """Make or verify the stream and the consumers, and attach a pump for each consumer of this process."""
        self._is_declared = False
        stream = await declare_stream(self._link, self._settings)
        if self._stream is not None and self._stream.created != stream.created:
            _log.error("the stream %s is new: what the earlier one kept is lost", stream.name)
        hosted = self._hosted()
        wanted = consumers_of(self._link, self._subscriptions, self._settings.partitions, self._ack_wait_s)
        await declare_consumers(self._link, stream, wanted, hosted)
        self._stream = stream
        sources = {
            each.name: Source(agent, each.partition, each.name)
            for agent in hosted
            for each in wanted[agent]
            if each.partition is None or self._partition in (None, each.partition)
        }
        owned = [each for each in sources.values() if each.agent not in self._settings.shared]
        for each in owned:
            await self._refuse_other_owner(each)
        for name in [each for each in self._pumps if each not in sources]:
            await self._end(self._tasks.pop(name))
            await self._pumps.pop(name).close()
        for name, source in sources.items():
            if name not in self._pumps:
                self._pumps[name] = Pump(self._link, self._local, source, self._ack_wait_s)
                self._spawn(name, self._pumps[name].run())
            self._pumps[name].attach(stream)
        await self._listen(hosted, owned)
        self._is_declared = True

    async def _refuse_other_owner(self, source: Source) -> None:
        """Raise GBE692 if a process with another file handles the events of a source; one that does not answer has ended."""
        subject = subject_of_owner(self.address.app, source.name)
        with suppress(EngineGone, TimeoutError):
            answer = await self._link.ask(source.agent, subject, b"", _OWNER_S)
            owner = json.loads(answer)
            if owner["file"] != identity_of_file(self._path):
                what = source.agent if source.partition is None else f"partition {source.partition} of {source.agent}"
                raise RunError("GBE692", process=str(owner["process"]), agent=what)

    def _answer_as_owner(self, message: Received) -> None:
        """Say which file has the events of a source, and who one may ask about it."""
        if is_inbox(message.reply):
            owner = {"file": identity_of_file(self._path), "process": f"{os.getpid()} on {platform.node()}"}
            answering = asyncio.create_task(self._link.send(message.reply, json.dumps(owner).encode()))
            self._answering.add(answering)
            answering.add_done_callback(self._answering.discard)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task with this name, unless there is one."""
        if name in self._tasks:
            work.close()
            return
        task = asyncio.create_task(work, name=f"graphbus-nats-{name}")
        task.add_done_callback(_log_failure)
        self._tasks[name] = task

    @staticmethod
    async def _end(task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _declare_soon(self) -> None:
        self._must_declare.set()

    async def _watch_connection(self) -> None:
        """Declare everything again after a reconnection, and when a pump has found its consumer missing."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._must_declare.wait()
            if not self._link.is_up:
                await asyncio.sleep(_FIRST_PAUSE_S)  # `wait` does not, if it is set already
            elif self._must_declare.is_set() or any(each.is_detached for each in self._pumps.values()):
                self._must_declare.clear()
                await self._declare_again()

    async def _declare_again(self) -> None:
        """Declare everything; after an error, try again later."""
        try:
            await self._declare()
            self._outgoing.set()
        except (EngineGone, RunError) as error:
            _log.warning("NATS at %s cannot be used yet: %s", self.address.place, error)
            self._must_declare.set()
            await asyncio.sleep(_FIRST_PAUSE_S * 10)

    async def close(self) -> None:
        """Publish the outbox, give back what is not in the file, and disconnect. Closing twice does nothing."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            await self._end(task)
        if self._pumps and self._link.is_up:
            with suppress(EngineGone, TimeoutError):  # the rest is published when the process runs again
                async with asyncio.timeout(_LAST_S):
                    while not await self._relay_some():
                        pass
        for pump in self._pumps.values():
            await pump.close()
        self._pumps.clear()
        await self._link.close()
        await self._local.close()

    # --- events ---

    async def append(self, events: Sequence[Envelope]) -> None:
        """Publish events, and return when the server has stored all of them; see `Ledger.append`.

        Raises:
            RunError: GBE659, an event is larger than the server accepts.
        """
        await self._connect()
        answers = await self._link.store(self._messages(events))
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._translate(answer)

    def _message(self, topic: str, body: str, event_id: str) -> Message:
        return Message(subject_of(self.address.app, topic), body.encode(), event_id)

    def _messages(self, events: Sequence[Envelope]) -> list[Message]:
        """Return events as messages; raise GBE659 if one is too large for the server, which it always will be."""
        messages = [self._message(each.type, encode_envelope(each), each.id) for each in events]
        limit = self._link.max_bytes - _HEADROOM_BYTES
        for event, message in zip(events, messages, strict=True):
            if 0 < limit < len(message.body):
                raise self._too_large(event.type)
        return messages

    def _too_large(self, topic: str) -> RunError:
        reason = f"an event on {topic} is larger than it accepts"
        return unusable(reason, "Raise `max_payload` of the server, or publish a reference.", self.address.place)

    def _translate(self, error: Exception) -> Exception:
        """Return what the callers of an engine understand: EngineGone for what may be repeated."""
        if isinstance(error, ApiError):
            return self._too_large("a topic") if error.number == _TOO_LARGE else EngineGone(str(error))
        return error

    # --- deliveries: those of the file ---

    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        """Return leases for the next deliveries in the file; see `Ledger.claim`."""
        return await self._local.claim(agent, partitions, limit)

    async def extend(self, lease: Lease) -> Lease:
        """Return the lease with a later end; see `Ledger.extend`."""
        return await self._local.extend(lease)

    async def settle(
        self, lease: Lease, outcome: Outcome, state: Sequence[StateChange] = (), outgoing: Sequence[Envelope] = ()
    ) -> None:
        """End a lease in one transaction of the file, which also keeps the outgoing events for the relay; see `Ledger.settle`.

        Raises:
            RunError: GBE659, the server would never accept an outgoing event.
        """
        note, _ = self.settle_here(lease, outcome, state, outgoing)
        note()

    def settle_here(
        self,
        lease: Lease,
        outcome: Outcome,
        state: Sequence[StateChange],
        outgoing: Sequence[Envelope],
        limit: int = 0,
    ) -> Settled:
        """Settle a lease on any thread, and claim what follows; see `SettlesHere`."""
        self._messages(outgoing)
        note, leases = self._local.settle_here(lease, outcome, state, outgoing, limit)
        return Settled(partial(self._note_settled, lease, outcome, note, has_outgoing=bool(outgoing)), leases)

    def _note_settled(self, lease: Lease, outcome: Outcome, note: Callable[[], None], *, has_outgoing: bool) -> None:
        note()
        if has_outgoing:
            self._outgoing.set()
        if isinstance(outcome, Done | Dead | Parked):
            agent, partition = lease.subscription.agent, lease.partition
            pump = self._pumps.get(agent) or self._pumps.get(consumer_name(agent, partition))
            if pump is not None:
                pump.count_down(lease.envelope.id)

    async def resume(self, build: str = "") -> int:
        """Hand out again what is parked in the file; see `Ledger.resume`."""
        return await self._local.resume(build)

    async def dead_letters(self, agents: Collection[str]) -> Sequence[tuple[int, DeadLetter]]:
        """Return the dead letters of these agents in the file; see `Ledger.dead_letters`."""
        return await self._local.dead_letters(agents)

    async def forget(self, deliveries: Collection[int]) -> None:
        """Forget dead letters in the file; see `Ledger.forget`."""
        await self._local.forget(deliveries)

    async def entries(self, topic: str, states: Collection[EntryState], limit: int) -> Sequence[Entry]:
        """Return the latest events in the file; see `History.entries`."""
        return await self._local.entries(topic, states, limit)

    async def replay(self, request: ReplayRequest, *, is_dry: bool = False) -> Sequence[Entry]:
        """Refuse: the server forgets an event as soon as all agents are done with it, and a file knows those of its own agents.

        Raises:
            RunError: GBE698.
        """
        raise RunError("GBE698", reason="a NATS server forgets an event when its handlers are done with it")

    def watch(self) -> AsyncIterator[Collection[str]]:
        """Yield whenever a delivery may have become due; see `Ledger.watch`."""
        return self._local.watch()

    async def lag(self) -> Sequence[Lag]:
        """Return the open deliveries in the file, and count as waiting what the server and the outbox have for this process.

        How the server's events are divided among several handlers of an agent is not known: the first one has them all.
        Before `open`, these are those that the server has for any process, of the agents in the file.
        """
        local = await self._local.lag()
        if self._pumps or self._stream is not None:
            waiting = await self._count_waiting()
        else:
            waiting = await self._count_elsewhere({each.subscription.agent for each in local})
        found = []
        for each in local:
            more = waiting.pop(each.subscription.agent, 0)
            found.append(msgspec.structs.replace(each, waiting=each.waiting + more) if more else each)
        return found

    async def _count_waiting(self) -> Counter[str]:
        """Return agent -> the number of its events that are not in the file yet; the outbox may have some for each agent."""
        if self._stream is None:
            return Counter()
        unsent = len(self._local.outgoing(self._hosted(), _RELAY)) if self._pumps else 0
        waiting = Counter(dict.fromkeys(self._hosted(), unsent))
        for pump in list(self._pumps.values()):
            waiting[pump.source.agent] += await self._count_on_server(self._stream, pump)
        return waiting

    async def _count_elsewhere(self, agents: Collection[str]) -> Counter[str]:
        """Return agent -> the number of its events that no process is done with and that are not in this file."""
        if not self._link.is_up:
            await self._link.connect()
        held, waiting = self._local.count_receipts(), Counter[str]()
        for agent in agents:
            for partition in (None, *range(self._settings.partitions.get(agent, 0))):
                name = consumer_name(agent, partition)
                info = await find_consumer(self._link, stream_name(self.address.app), name) or {}
                unacknowledged = int(info.get("num_ack_pending", 0)) - held.get(name, 0)
                waiting[agent] += int(info.get("num_pending", 0)) + max(0, unacknowledged)
        return waiting

    async def _count_on_server(self, stream: Stream, pump: Pump) -> int:
        """Return how many events of an agent the server has not handed out, or has sent and the file has not got."""
        for _ in range(_LOOKS):
            before = pump.held()
            info = await find_consumer(self._link, stream.name, pump.source.name) or {}
            on_their_way = int(info.get("num_ack_pending", 0)) - len(before & pump.held())
            if on_their_way <= 0:
                break
            await asyncio.sleep(_LOOK_S)  # the server may not have counted the latest acknowledgements yet
        return int(info.get("num_pending", 0)) + max(0, on_their_way)

    # --- questions ---

    async def ask(self, agent: str, text: str, timeout_s: float, missing_s: float) -> str:
        """Put a question to a process that hosts an agent, and return the answer; see `Questions.ask`."""
        subject = subject_of_question(self.address.app, agent, text)
        try:
            return (await self._link.ask(agent, subject, text.encode(), timeout_s, missing_s)).decode()
        except NobodyThereError:
            raise AgentMissing(agent) from None

    async def take_questions(self, agents: Collection[str]) -> Sequence[Question]:
        """Return the questions to these agents that wait; see `Questions.take_questions`."""
        taken = [each for each in self._questions if each.agent in agents]
        self._questions = [each for each in self._questions if each.agent not in agents]
        return taken

    async def answer(self, question: Question, text: str) -> None:
        """Answer a question; see `Questions.answer`."""
        reply = self._askers.pop(question.number, "")
        with suppress(EngineGone):  # the asker waits in vain then
            await self._link.send(reply, text.encode())

    async def leave_questions(self) -> None:
        """Listen no more: who asks tries again until another process listens; see `Questions.leave_questions`."""
        listening, self._listening = self._listening, []
        for receiver in listening:
            await self._link.unlisten(receiver)

    async def _listen(self, agents: Collection[str], owned: Collection[Source]) -> None:
        """Take questions to these agents, of which another process of an agent may take some; and who owns these sources."""
        await self.leave_questions()
        app, listen = self.address.app, self._link.listen
        self._listening = [
            await listen(subject_of_questions(app, each), partial(self._take_question, each), each) for each in agents
        ]
        self._listening += [await listen(subject_of_owner(app, each.name), self._answer_as_owner) for each in owned]

    def _take_question(self, agent: str, message: Received) -> None:
        """Take a question if it is the one that its subject allows, and its answer would not be published as something else."""
        try:
            text = message.data.decode()
            is_allowed = message.subject == subject_of_question(self.address.app, agent, text)
        except ValueError:
            is_allowed = False
        if not (is_allowed and is_inbox(message.reply)):
            _log.error("a message on %s is not a question of a graph, and was refused", message.subject)
            return
        number = next(self._numbers)
        self._askers[number] = message.reply
        self._questions.append(Question(number, agent, text))
        self._local.note()

    # --- the outbox ---

    async def _relay(self) -> None:
        """Publish the outbox in its order, and delete from it what the server has stored; again and again."""
        pause_s = _FIRST_PAUSE_S
        while True:
            self._outgoing.clear()
            try:
                is_all = await self._relay_some()
            except (EngineGone, RunError) as gone:
                (_log.error if isinstance(gone, RunError) else _log.debug)("published events wait: %s", gone)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            if is_all:
                await self._outgoing.wait()

    async def _relay_some(self) -> bool:
        """Publish the oldest events of the outbox; return whether that was all.

        Raises:
            EngineGone: The server has not stored one of them.
            RunError: GBE659, it refuses one.
        """
        events = self._local.outgoing(self._hosted(), _RELAY)
        if not events:
            return True
        answers = await self._link.store([self._message(each.topic, each.body, each.event_id) for each in events])
        stored = [
            each.number for each, answer in zip(events, answers, strict=True) if not isinstance(answer, Exception)
        ]
        self._local.forget_outgoing(stored)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer if isinstance(answer, RunError) else EngineGone(str(answer))
        return len(events) < _RELAY


async def deploy_stream(url: str, settings: NatsConfig, subscriptions: Sequence[Subscription]) -> tuple[str, list[str]]:
    """Make the stream and the consumers of all agents, or change them; return the name of the stream, and the changed consumers.

    Raises:
        RunError: GBE659, the server cannot be used, or the user may not do that.
    """
    link = NatsLink(parse_address(url), lambda: None)
    await link.connect()
    try:
        stream = await declare_stream(link, settings, may_change=True)
        wanted = consumers_of(link, subscriptions, settings.partitions, ACK_WAIT_S)
        divided = await divide_again(link, stream, wanted)
        return stream.name, [*divided, *await declare_consumers(link, stream, wanted, wanted)]
    except NobodyThereError:
        raise no_jetstream(link.address.place) from None
    except EngineGone as gone:
        raise unusable(str(gone), "Try again.", link.address.place) from None
    finally:
        await link.close()


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log why a task has ended that never should."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s has ended", task.get_name(), exc_info=task.exception())
