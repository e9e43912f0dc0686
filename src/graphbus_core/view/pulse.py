"""The stream of `/view/events`: a thread looks at the source a few times a second, and sends what it finds to all who look.

Each part is encoded once for all. The last parts are kept, so that a page that was disconnected gets those that it has missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import time

import msgspec

from graphbus_core.hosting.serving.pages import Asked, Send
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.view.messages import Bye, Hello, Tick

WATCHED_S = 0.25
_UNWATCHED_S = 1.0
_QUIET_S = 10.0
"""A tick is sent at least that often, so that the page and all between notice a broken connection."""
_KEPT = 120
_RECONNECT_MS = 1000

_log = Log("graphbus.view")

MakeTick = Callable[[bool, bool], Tick]
"""Takes what has happened since the last call. Its arguments: somebody looks; all counts are wanted, not only changed ones."""
MakeHello = Callable[[Asked], Hello]


class Pulse:
    """The ticks of one source, and who gets them.

    Args:
        server: The id of this start of the server.
        make_hello: Returns the first message for a request.
        make_tick: Returns the next tick; called by one thread at a time.
    """

    def __init__(self, server: str, make_hello: MakeHello, make_tick: MakeTick) -> None:
        self._server, self._make_hello, self._make_tick = server, make_hello, make_tick
        self._lock = Lock()
        self._followers: dict[int, Send] = {}
        self._parts: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._number = self._names = 0
        self._sent_at = 0.0
        self._wake = Event()
        self._is_closed = False
        self._thread = Thread(target=self._run, name="graphbus-view", daemon=True)

    def start(self) -> None:
        """Begin to look at the source."""
        self._thread.start()

    @property
    def is_watched(self) -> bool:
        """True while somebody looks."""
        return bool(self._followers)

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Send what happens from now on, and return a function that ends that; see `Pages.follow`."""
        send(b"retry: %d\n\n" % _RECONNECT_MS + encode_part("hello", self._make_hello(asked)))
        with self._lock:
            missed = self._find_missed(last_id)
            if missed is None:
                tick = self._make_tick(True, True)
                self._number += 1
                missed = [encode_part("tick", tick, f"{self._server}:{self._number}")]
                self._share(missed[0])
            for part in missed:
                send(part)
            self._names += 1
            name = self._names
            self._followers[name] = send
            if self._is_closed:
                send(None)
        self._wake.set()
        return lambda: self._leave(name)

    def _leave(self, name: int) -> None:
        with self._lock:
            self._followers.pop(name, None)

    def _find_missed(self, last_id: str) -> list[bytes] | None:
        """Return the parts after the one with this id; None if that is not known any more."""
        server, _, number = last_id.rpartition(":")
        if server != self._server or not number.isdecimal() or not self._parts:
            return None
        if not self._parts[0][0] - 1 <= int(number) <= self._number:
            return None
        return [part for own, part in self._parts if own > int(number)]

    def _run(self) -> None:
        while not self._is_closed:
            _, error = attempt(self._beat)
            if error is not None:
                _log.error("the view could not look at the graph", exc_info=error)
            self._wake.wait(WATCHED_S if self._followers else _UNWATCHED_S)
            self._wake.clear()

    def _beat(self) -> None:
        """Make a tick, and send it if it has anything in it, or if nothing was sent for long."""
        with self._lock:
            tick = self._make_tick(bool(self._followers), False)
            is_quiet = not (tick.last or tick.left_out or tick.handlers or tick.negotiation)
            if self._followers and (not is_quiet or time() - self._sent_at > _QUIET_S):
                self._number += 1
                self._share(encode_part("tick", tick, f"{self._server}:{self._number}"))
            elif not self._followers:
                self._parts.clear()  # from here on parts are missing

    def _share(self, part: bytes) -> None:
        self._parts.append((self._number, part))
        self._sent_at = time()
        for send in self._followers.values():
            send(part)

    def begin_anew(self, hello: Hello) -> None:
        """Tell all who look that what they know is over; called by `make_tick`."""
        for send in self._followers.values():
            send(encode_part("hello", hello))

    def close(self, reason: str, *, may_return: bool = True) -> None:
        """Say goodbye to all who look, and end the thread; see `Bye`."""
        self._is_closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        attempt(self._beat)
        with self._lock:
            for send in self._followers.values():
                send(encode_part("bye", Bye(reason=reason, may_return=may_return)))
                send(None)


def encode_part(event: str, message: msgspec.Struct, part_id: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"id: {part_id}\nevent: {event}\n" if part_id else f"event: {event}\n"
    return head.encode() + b"data: " + msgspec.json.encode(message) + b"\n\n"
