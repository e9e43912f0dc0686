"""NatsLink: a connection to a NATS server that is made again for ever. The only module that knows nats-py.

It uses what every version of the protocol has: publish, subscribe and request. JetStream is spoken as JSON (see `nats`), so that
no field of an answer is dropped, and a message that comes late is not lost with the call that asked for it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from graphbus_core.errors import RunError
from graphbus_core.ledger.nats_names import Address, inbox_of, unusable
from graphbus_core.ledger.seam import EngineGone
from graphbus_core.log import Log

Received = Msg
"""A message: `data`, `headers`, `reply` and `subject`."""
Receiver = Subscription
"""What `NatsLink.listen` returns."""
CONNECT_S = 5.0
"""How long the first connection may take for somebody who does not wait for the server to come."""
_DIAL_S = 10
"""How long one attempt may take; a busy server is slow."""
ANSWER_S = 5.0
"""How long an answer of the server may take."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LOOK_S = 0.25
"""How often it is verified that the connection is there."""
_RELEASE_S = 2.0
"""How long a connection may take to close."""
_UNLISTEN_S = 1.0
_PIPELINE = 500
"""How many events are published before their acknowledgements are waited for."""

_log = Log("graphbus.ledger")


_REFUSED = re.compile(r'permissions violation for (publish|subscription) .*?"([^"]+)"', re.IGNORECASE)


class Message(NamedTuple):
    """A message to be stored: its subject, its body, and the id by which the server recognizes a repetition."""

    subject: str
    body: bytes
    id: str


async def _release(client: Client) -> None:
    """Close a client and its socket.

    nats-py leaves the socket open when it cannot send the rest, and returns at once when a task of its own is closing already.
    """
    with suppress(OSError, nats.errors.Error, TimeoutError):
        async with asyncio.timeout(_RELEASE_S):
            await client.close()
    transport: Any = client._transport
    if transport is not None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                transport.close()
                await transport.wait_closed()


class ApiError(Exception):
    """An error that JetStream has answered; `number` is its `err_code`."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", "an unknown error")))
        self.number = int(error.get("err_code", 0))


class NobodyThereError(EngineGone):
    """Nobody listens on the subject of a request: JetStream is not enabled, or has not started yet."""


class ForbiddenError(RunError):
    """GBE659: the permissions of the user do not allow a subject."""


class _Asked(NamedTuple):
    """A message whose answer resolves a future: what was asked, and its name, which ends the subject of the answer."""

    name: str
    subject: str
    answer: asyncio.Future[Msg]


class NatsLink:
    """A connection. All calls come from one event loop.

    Args:
        address: The server.
        on_up: Called whenever the connection is there again, after the first one.
    """

    def __init__(self, address: Address, on_up: Callable[[], None]) -> None:
        self.address = address
        self._on_up = on_up
        self._client: Client | None = None
        self._last_error = ""
        self._asked: dict[str, _Asked] = {}  # by name
        self._refused: set[str] = set()  # subjects, in lower case
        self._inbox, self._nonce = inbox_of(address.user), ""
        self._numbers = count(1)
        self._closed = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """True while the connection is there."""
        return self._client is not None and self._client.is_connected

    @property
    def version(self) -> tuple[int, int]:
        """The version of the server: major and minor."""
        found = self._connected().connected_server_version
        return found.major, found.minor

    @property
    def max_bytes(self) -> int:
        """The size of the largest message that the server takes."""
        return 0 if self._client is None else self._client.max_payload

    # --- life ---

    async def connect(self, *, is_patient: bool = False) -> None:
        """Connect for the first time.

        Args:
            is_patient: Wait until there is a server, and say so once: a supervisor would only start the process again.

        Raises:
            RunError: GBE659, the server refuses it; or it is not possible within `CONNECT_S`, and this is not patient.
        """
        try:
            async with asyncio.timeout(None if is_patient else CONNECT_S):
                await self._keep_dialing(is_first=True, is_patient=is_patient)
            self._staying = asyncio.create_task(self._stay_connected())
        except TimeoutError:
            raise unusable(
                f"there is no answer within {CONNECT_S:g} s ({self._last_error or 'no error was given'})",
                "Start the server with `nats-server -js -sd FOLDER`, or correct the address.",
                self.address.place,
            ) from None

    async def _keep_dialing(self, *, is_first: bool = False, is_patient: bool = False) -> None:
        """Connect, with pauses between the attempts; raise GBE659 if the server refuses the first one."""
        pause_s, must_say = _FIRST_PAUSE_S, is_patient
        while True:
            try:
                await self._dial()
            except (OSError, nats.errors.Error, EngineGone, TimeoutError, ForbiddenError) as error:
                if is_first and isinstance(error, ForbiddenError):
                    raise
                self._last_error = self._last_error or _describe(error)
            else:
                return
            if is_first and "authorization" in self._last_error.lower():
                advice = "Check the user and the password in the address: `nats://user:password@host:4222`."
                raise unusable("it refuses the credentials", advice, self.address.place)
            if must_say:
                must_say = False
                _log.warning("NATS at %s is waited for: %s", self.address.place, self._last_error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _dial(self) -> None:
        """Connect a new client.

        nats-py would reconnect by itself, but then it publishes first what it had not sent before, behind which a repetition
        of what was lost would come out of order; and it gives up for ever when the server refuses the credentials once.
        """
        client, self._last_error = Client(), ""
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(_release, client)
            await self._connect(client)
            self._client = client
            self._nonce = client.new_inbox().rpartition(".")[2]
            await self.listen(f"{self._inbox}.{self._nonce}.*", self._take_answer)
            await self.listen(f"{self._inbox}.*.{self._nonce}.*", self._take_answer)  # of agents
            on_failure.pop_all()  # it succeeded: keep the connection

    async def _connect(self, client: Client) -> None:
        await client.connect(
            servers=[f"{self.address.scheme}://{self.address.place}"],
            user=self.address.user or None,
            password=self.address.password or None,
            name=f"graphbus {self.address.app}",
            inbox_prefix=self._inbox,
            error_cb=self._note_error,
            closed_cb=self._note_closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_DIAL_S,
            ping_interval=10,
        )

    async def _note_error(self, error: Exception) -> None:
        """Keep an error that the server has sent; let those fail at once that wait for an answer to what it has refused."""
        self._last_error = _describe(error)
        refused = _REFUSED.search(self._last_error)
        if refused is None:
            return
        kind, subject = refused[1], refused[2].lower()  # nats-py gives it in lower case
        self._refused.add(subject)
        waiting = [each for each in self._asked.values() if each.subject.lower() == subject]
        for each in waiting:
            if not each.answer.done():
                each.answer.set_exception(self._forbidden(each.subject))
        if kind == "publish" and not waiting:
            _log.error("NATS at %s: %s", self.address.place, self._last_error)

    def _forbidden(self, subject: str) -> ForbiddenError:
        return ForbiddenError(
            "GBE659",
            place=f" at {self.address.place}",
            reason=f"it does not allow {self.address.user or 'anybody'} the subject {subject}",
            advice="Use the user of the agents of this process. If the build has changed what they publish or ask, write the"
            " users again with `graphbus nats generate`, and let the server load them.",
        )

    async def _note_closed(self) -> None:
        self._closed.set()

    async def _stay_connected(self) -> None:
        """Connect again whenever the connection is lost, for ever."""
        while True:
            while self.is_up:  # nats-py does not always call `closed_cb`
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._closed.wait()
                self._closed.clear()
            _log.warning("the connection to NATS at %s is lost; events wait", self.address.place)
            for each in self._asked.values():
                if not each.answer.done():
                    each.answer.set_exception(EngineGone("the connection to NATS is lost"))
            if self._client is not None:
                await _release(self._client)
            await self._keep_dialing()
            _log.warning("the connection to NATS at %s is back", self.address.place)
            self._on_up()

    async def close(self) -> None:
        """Send what is buffered, and disconnect. `drain` of nats-py would wait 30 s for subscriptions of pulls."""
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.gather(self._staying, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError, nats.errors.Error, TimeoutError):
                if client.is_connected:
                    await client.flush(timeout=1)
            await _release(client)

    def _connected(self) -> Client:
        """Return the client; raise EngineGone while there is no connection."""
        if self._client is None or not self._client.is_connected:
            raise EngineGone(f"there is no connection to NATS at {self.address.place}")
        return self._client

    # --- messages ---

    async def send(self, subject: str, body: bytes, reply: str = "") -> None:
        """Publish a message without an acknowledgement.

        Raises:
            EngineGone: There is no connection.
        """
        try:
            await self._connected().publish(subject, body, reply=reply)
        except (OSError, nats.errors.Error) as error:
            raise EngineGone(_describe(error)) from error

    async def listen(self, subject: str, take: Callable[[Received], None], group: str = "") -> Receiver:
        """Call `take` with each message on a subject, as long as this connection lasts.

        Of several listeners with the same group, one gets each message.

        Raises:
            EngineGone: There is no connection.
            ForbiddenError: The server refuses it.
        """

        async def callback(message: Msg) -> None:
            take(message)

        client = self._connected()
        self._refused.discard(subject.lower())
        try:
            receiver = await client.subscribe(subject, queue=group, cb=callback)
        except (OSError, nats.errors.Error) as error:
            raise EngineGone(_describe(error)) from error
        await _finish(_ping(client), ANSWER_S)  # a refusal comes before its answer
        if subject.lower() in self._refused:
            raise self._forbidden(subject)
        return receiver

    async def unlisten(self, receiver: Receiver) -> None:
        """End `listen`; what is on its way is still taken."""
        await _finish(receiver.drain(), _UNLISTEN_S if self.is_up else 0)  # type: ignore[no-untyped-call]  # of nats-py

    def new_inbox(self) -> str:
        """Return a subject that nobody else uses.

        Raises:
            EngineGone: There is no connection.
        """
        return self._connected().new_inbox()

    # --- requests ---

    def _take_answer(self, message: Msg) -> None:
        asked = self._asked.get(message.subject.rpartition(".")[2])
        if asked is None or asked.answer.done():
            return
        if message.headers and message.headers.get("Status") == "503":
            asked.answer.set_exception(NobodyThereError("JetStream does not answer"))
        else:
            asked.answer.set_result(message)

    async def _ask(self, client: Client, subject: str, body: bytes, event_id: str = "", *, agent: str = "") -> _Asked:
        """Publish a message whose answer resolves a future; an agent answers to a subject with its name."""
        asked = _Asked(str(next(self._numbers)), subject, asyncio.get_running_loop().create_future())
        self._asked[asked.name] = asked
        headers = {"Nats-Msg-Id": event_id} if event_id else None
        reply = ".".join((self._inbox, *([agent] if agent else ()), self._nonce, asked.name))
        try:
            await client.publish(subject, body, reply=reply, headers=headers)
        except (OSError, nats.errors.Error) as error:
            asked.answer.set_exception(EngineGone(_describe(error)))
        return asked

    async def request(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the API of JetStream answers.

        Raises:
            ApiError: It answers with an error.
            EngineGone: It does not answer.
            ForbiddenError: The server refuses it.
        """
        asked = await self._ask(self._connected(), subject, json.dumps(body or {}).encode())
        (answer,) = await self._collect([asked])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, agent: str, subject: str, body: bytes, timeout_s: float, missing_s: float = 0.0) -> bytes:
        """Return what an agent that listens on a subject answers; until there is one, try again for `missing_s`.

        Raises:
            TimeoutError: There was no answer in this time.
            NobodyThereError: Nobody listens.
            EngineGone: There is no connection.
            ForbiddenError: The server refuses it.
        """
        ends_at = monotonic() + timeout_s
        patient_until = ends_at - max(0.0, timeout_s - missing_s) - _FIRST_PAUSE_S
        while True:
            asked = await self._ask(self._connected(), subject, body, agent=agent)
            try:
                async with asyncio.timeout(ends_at - monotonic()):
                    return bytes((await asked.answer).data)
            except NobodyThereError:
                if monotonic() >= patient_until:
                    raise
                await asyncio.sleep(_FIRST_PAUSE_S)
            finally:
                self._asked.pop(asked.name, None)

    async def store(self, messages: Sequence[Message]) -> list[dict[str, Any] | Exception]:
        """Publish messages to a stream; return for each its acknowledgement, or why there is none: EngineGone, ApiError or
        ForbiddenError.

        Raises:
            EngineGone: There is no connection.
        """
        answers: list[dict[str, Any] | Exception] = []
        for start in range(0, len(messages), _PIPELINE):
            client, part = self._connected(), messages[start : start + _PIPELINE]
            answers += await self._collect([await self._ask(client, *each) for each in part])
        return answers

    async def _collect(self, asked: Sequence[_Asked]) -> list[dict[str, Any] | Exception]:
        """Wait for answers, and forget the questions."""
        try:
            _, late = await asyncio.wait([each.answer for each in asked], timeout=ANSWER_S)
        finally:
            for each in asked:
                self._asked.pop(each.name, None)
        for future in late:
            future.set_exception(EngineGone(f"NATS does not answer within {ANSWER_S:g} s"))
        return [_read_answer(each.answer) for each in asked]


def _read_answer(future: asyncio.Future[Msg]) -> dict[str, Any] | Exception:
    """Return an answer of JetStream, or why there is none."""
    if (error := future.exception()) is not None:
        return error  # type: ignore[return-value]  # no BaseException
    answer: dict[str, Any] = json.loads(future.result().data)
    return ApiError(answer["error"]) if "error" in answer else answer


async def _ping(client: Client) -> None:
    """Wait until the server has read what was sent; the PING of nats-py alone overtakes what is buffered."""
    await client._flush_pending(force_flush=True)
    await client.flush()


async def _finish(work: Coroutine[Any, Any, Any], timeout_s: float) -> None:
    """Wait for work of nats-py that must not be cancelled: it suppresses that, or stops reading at the answer to a `flush`."""
    task = asyncio.create_task(work)
    task.add_done_callback(_forget_error)
    await asyncio.wait([task], timeout=timeout_s)


def _forget_error(task: asyncio.Task[None]) -> None:
    """Take the error of a task for which nobody waits."""
    if not task.cancelled():
        task.exception()


def _describe(error: Exception) -> str:
    """Return an error of nats-py in a few words; none of them has the address, and so no password."""
    return str(error) or type(error).__name__
