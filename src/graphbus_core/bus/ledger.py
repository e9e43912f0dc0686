"""The ledger of a bus: which events were delivered last, and which could not be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os.path import dirname
from types import TracebackType
from typing import cast

from graphbus_core import isolation
from graphbus_core.clock import Clock
from graphbus_core.errors import GraphBusError
from graphbus_core.errors.legible import legible, on_one_line
from graphbus_core.isolation import attempt as try_to
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeadLetter, Reason
from graphbus_core.model.messages import Event

_log = Log("graphbus.bus")
_OURS = dirname(dirname(__file__)) + "/"

_LONGEST_LINE = 1000
_LONGEST_TEXT = 20_000

DeadLetterKeeper = Callable[[DeadLetter], object]


class Ledger:
    """Two rings that forget the oldest.

    Attributes:
        history: The last events, in the order of their delivery.
        dead: The last dead letters.
        dead_count: All dead letters, also those that are forgotten.
        keeper: Gets every dead letter as well; it must not raise.
        claimed: Events whose dead letters go to somebody else than the keeper, by their identity, and the letters so far.
    """

    def __init__(self, history: int, dead_letters: int, clock: Clock) -> None:
        self.history: deque[Event] = deque(maxlen=history)
        self.dead: deque[DeadLetter] = deque(maxlen=dead_letters)
        self.dead_count = 0
        self.keeper: DeadLetterKeeper | None = None
        self.claimed: dict[int, tuple[Event, list[DeadLetter]]] = {}
        self._clock = clock

    def together(self) -> AbstractContextManager[None]:
        """Many dead letters come: let the keeper write them together if it can."""
        gather: Callable[[], AbstractContextManager[None]] = getattr(self.keeper, "together", nullcontext)
        return gather()

    def retrying(self, event: Event, subscription: str, told: str, *, attempt: int, of: int, delay_s: float) -> None:
        """A handler has raised and will be called again: log it in one line."""
        message = "%s failed on %s (event %s): %s; attempt %d of %d, the next in %g s"
        _log.warning(message, subscription, event.topic, event.event_id, told, attempt, of, delay_s)

    def failed(
        self,
        event: Event,
        subscription: str,
        error: Exception,
        *,
        attempt: int = 1,
        since: float | None = None,
        is_dead: bool = False,
    ) -> None:
        """A handler has raised for the last time: log it with its traceback, and keep the event unless it is dead already."""
        error = isolation.explain(error)
        told = tell(error)
        described, _ = try_to(lambda: _describe(error))
        place, raised, text, is_as_python_has_it = described or ("", None, "", True)
        logged = f"{place}: {told}" if place and not raised else told
        logged += f" ({attempt} attempts)" if attempt > 1 else ""
        message = "%s failed on %s (event %s): %s"
        if raised and not is_as_python_has_it:  # a log that cannot write one character of it would lose all of it
            logged, raised = f"{logged}\n{text.rstrip()}", None
        _log.error(message, subscription, event.topic, event.event_id, logged, exc_info=raised)
        if is_dead:
            return
        self._keep(
            event,
            subscription,
            "handler",
            told,
            attempts=attempt,
            since=since,
            place=place,
            traceback=text,
        )

    def stopped(
        self,
        event: Event,
        reason: Reason,
        why: str,
        subscription: str = "",
        *,
        attempts: int = 0,
        since: float | None = None,
    ) -> None:
        """An event did not get to its handlers, or not to this one, or not as often as it should."""
        trail = " > ".join(f"{topic} > {handler}" for topic, handler in event.trail[-3:])
        to = f" to {subscription}" if subscription else ""
        came = f"; it came from {trail}" if trail else ""
        _log.error("%s (event %s) was not delivered%s: %s%s", event.topic, event.event_id, to, why, came)
        self._keep(event, subscription, reason, why, attempts=attempts, since=since)

    def forget(self, letter: DeadLetter) -> None:
        """Take a letter out of the ring, if it is there."""
        for index, each in enumerate(self.dead):
            if each is letter:
                del self.dead[index]
                return

    def _keep(
        self,
        event: Event,
        subscription: str,
        reason: Reason,
        error: str,
        *,
        attempts: int,
        since: float | None,
        place: str = "",
        traceback: str = "",
    ) -> None:
        now = self._clock.time()
        letter = DeadLetter(
            event=event,
            subscription=subscription,
            reason=reason,
            error=error,
            timestamp=now,
            first_timestamp=now if since is None else since,
            attempts=attempts,
            place=place,
            traceback=traceback,
        )
        self.dead_count += 1
        self.dead.append(letter)
        claimed = self.claimed.get(id(event))
        if claimed is not None:
            claimed[1].append(letter)
        elif self.keeper is not None:
            self.keeper(letter)


def tell(error: BaseException) -> str:
    """What was raised, in one line that can be written anywhere."""
    if issubclass(type(error), GraphBusError):  # `isinstance` would ask the object, which may be of any class
        refusal = cast("GraphBusError", error)
        return f"{refusal.sentence} [{refusal.code}]"
    said, is_mute = try_to(lambda: str(error))
    words = "(it cannot be told)" if is_mute or said is None else on_one_line(" ".join(said.split()))
    name, _ = try_to(lambda: type(error).__name__)
    line = f"{name or 'an exception'}: {words}".removesuffix(": ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


Raised = tuple[type[BaseException], BaseException, TracebackType | None]


def _describe(error: Exception) -> tuple[str, Raised | None, str, bool]:
    """Where it was raised, it with its traceback, that as text, and whether this is the text of Python.

    A refusal says where it is wrong, not how we came there; what Python cannot put into words has no traceback either.
    """
    if issubclass(type(error), GraphBusError):
        return str(cast("GraphBusError", error).where or ""), None, "", True
    raised = without_ours(error)
    told, _ = try_to(lambda: _as_text(raised))
    return (_place_of(error), None, "", True) if told is None else (_place_of(error), raised, *told)


def without_ours(error: BaseException) -> Raised:
    """The exception with its traceback, without the lines of ours that led to the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return type(error), error, trace


def _as_text(raised: Raised) -> tuple[str, bool]:
    """The traceback in words that can be written anywhere, and whether they are those of Python."""
    from traceback import format_exception

    original = "".join(format_exception(*raised))
    text = legible(original)
    is_original = text == original
    if len(text) <= _LONGEST_TEXT:
        return text, is_original
    begin, end = text[: _LONGEST_TEXT // 4], text[-_LONGEST_TEXT // 2 :]
    return f"{begin}\n  ...\n{end}", is_original


def _place_of(error: Exception) -> str:
    """Where it was raised, `file:line`: the innermost line that is not ours."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_OURS):
            place = f"{path}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
