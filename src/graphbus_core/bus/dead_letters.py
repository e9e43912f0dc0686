"""Dead letters: the events that could not be handled, and the log lines about failures."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from os.path import dirname
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import cast

from graphbus_core import isolation
from graphbus_core.clock import Clock
from graphbus_core.errors import GraphBusError
from graphbus_core.errors.legible import escape_to_one_line, escape_unprintable
from graphbus_core.isolation import attempt as try_to
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeadLetter, Reason
from graphbus_core.model.messages import Event

_log = Log("graphbus.bus")
_OURS = dirname(dirname(__file__)) + "/"
_STANDARD = dirname(os.__file__) + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")

_LONGEST_LINE = 1000
_LONGEST_TEXT = 20_000

_WHOLE = 10
"""This many failures of one kind are logged in full; after that there is one line per interval."""
_INTERVAL_S = 10.0
_KINDS = 1000
"""This many kinds of failures are remembered."""

DeadLetterKeeper = Callable[[DeadLetter], object]


class _Flood:
    """One kind of failure: how often it was logged in full, and how many were not logged since the last line."""

    __slots__ = ("last_at", "line_at", "silent", "whole")

    def __init__(self) -> None:
        self.whole = self.silent = 0
        self.last_at = self.line_at = 0.0


class _Floods:
    """Keeps repeated failures from filling the log. Safe from any thread."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], _Flood] = {}
        self._changing = Lock()

    def count(self, *kind: str) -> int | None:
        """Count a failure, and say how to log it.

        Returns:
            0: log it in full. A number: log one line that this many came since the last one. None: do not log it.
        """
        now = monotonic()
        with self._changing:
            flood = self._kinds.pop(kind, None) or _Flood()
            self._kinds[kind] = flood  # moved to the end, so that the first kind is the one not seen for longest
            if len(self._kinds) > _KINDS:
                del self._kinds[next(iter(self._kinds))]
            if now - flood.last_at > _INTERVAL_S and not flood.silent:
                flood.whole = 0  # a quiet interval has passed
            flood.last_at = now
            if flood.whole < _WHOLE:
                flood.whole += 1
                flood.line_at = now + _INTERVAL_S
                return 0
            flood.silent += 1
            if now < flood.line_at:
                return None
            silent, flood.silent, flood.line_at = flood.silent, 0, now + _INTERVAL_S
            return silent

    def rest(self) -> list[tuple[tuple[str, ...], int]]:
        """Return each kind with the number of failures since its last line, and set the numbers to 0."""
        with self._changing:
            found = [(kind, flood.silent) for kind, flood in self._kinds.items() if flood.silent]
            for flood in self._kinds.values():
                flood.silent = 0
        return found


class DeadLetters:
    """The last dead letters, and how many there were. Safe from any thread.

    Attributes:
        latest: The last ones.
        count: How many there were in all.
        keeper: Called with every dead letter; it must not raise.
        claimed: `id(event)` -> the event and its letters, for events whose letters go to the caller of `claim` and not to the
            keeper.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self.latest: deque[DeadLetter] = deque(maxlen=size)
        self.count = 0
        self.keeper: DeadLetterKeeper | None = None
        self.claimed: dict[int, tuple[Event, list[DeadLetter]]] = {}
        self._clock = clock
        self._floods = _Floods()
        self._changing = Lock()

    def batched(self) -> AbstractContextManager[None]:
        """Return a context in which the keeper, if it can, writes all letters in one transaction."""
        gather: Callable[[], AbstractContextManager[None]] = getattr(self.keeper, "together", nullcontext)
        return gather()

    def log_retry(self, event: Event, subscription: str, told: str, *, attempt: int, of: int, delay_s: float) -> None:
        """Log in one line that a handler raised and will be called again."""
        more = self._floods.count("attempts of", subscription)
        if more is not None:
            message = "%s failed on %s (event %s): %s; attempt %d of %d, the next in %g s%s"
            _log.warning(
                message, subscription, event.topic, event.event_id, told, attempt, of, delay_s, _repeat_note(more)
            )

    def log_not_retried(self, event: Event, subscription: str, limit: int) -> None:
        """Log in one line that no further attempt is planned because too many wait."""
        more = self._floods.count("no further attempts of", subscription)
        if more is not None:
            message = "%s is not retried on %s: %d further attempts are already waiting%s"
            _log.error(message, subscription, event.topic, limit, _repeat_note(more))

    def record_failure(
        self,
        event: Event,
        subscription: str,
        error: Exception,
        *,
        attempt: int = 1,
        failed_at: float | None = None,
        is_dead: bool = False,
    ) -> None:
        """Log the last exception of a handler with its traceback, and keep the event, unless it is a dead letter already."""
        error = isolation.explain_exception(error)
        told = error_line(error)
        described, _ = try_to(lambda: _describe(error))
        place, raised, text, is_as_python_has_it = described or ("", None, "", True)
        more = self._floods.count(subscription, place, told.partition(":")[0])
        if more is not None:
            logged = f"{place}: {told}" if place and (not raised or more) else told
            logged += f" ({attempt} attempts)" if attempt > 1 else ""
            logged += _repeat_note(more)
            if more:
                raised = None
            elif raised and not is_as_python_has_it:  # a log that cannot encode a character would lose the whole record
                logged, raised = f"{logged}\n{text.rstrip()}", None
            message = "%s failed on %s (event %s): %s"
            _log.error(message, subscription, event.topic, event.event_id, logged, exc_info=raised)
        if not is_dead:
            self._keep(
                event,
                subscription,
                "handler",
                told,
                attempts=attempt,
                failed_at=failed_at,
                place=place,
                traceback=text,
            )

    def record_undelivered(
        self,
        event: Event,
        reason: Reason,
        why: str,
        subscription: str = "",
        *,
        attempts: int = 0,
        failed_at: float | None = None,
    ) -> None:
        """Log and keep an event that was not delivered, or not as often as its policy says.

        Args:
            reason: The kind of the dead letter.
            why: The cause, as the end of a sentence.
            subscription: The handler that did not get it; empty for all.
        """
        more = self._floods.count(reason, event.topic, subscription)
        if more is not None:
            trail = " > ".join(f"{topic} > {handler}" for topic, handler in event.trail[-3:])
            to = f" to {subscription}" if subscription else ""
            came = f"; it came from {trail}" if trail else ""
            message = "%s (event %s) was not delivered%s: %s%s%s"
            _log.error(message, event.topic, event.event_id, to, why, came, _repeat_note(more))
        self._keep(event, subscription, reason, why, attempts=attempts, failed_at=failed_at)

    def forget(self, letter: DeadLetter) -> None:
        """Remove a letter from `latest`, if it is there; it stays counted."""
        with self._changing:
            for index, each in enumerate(self.latest):
                if each is letter:
                    del self.latest[index]
                    return

    def claim(self, event: Event) -> None:
        """Collect the dead letters of this event from now on, instead of passing them to the keeper."""
        with self._changing:
            self.claimed[id(event)] = event, []

    def release(self, event: Event) -> tuple[DeadLetter, ...]:
        """Return the dead letters of a claimed event; later ones go to the keeper again."""
        with self._changing:
            return tuple(self.claimed.pop(id(event))[1])

    def close(self) -> None:
        """Log how many failures were counted but not logged."""
        for kind, silent in self._floods.rest():
            _log.error("%s: %d more failures that were not logged", " ".join(filter(None, kind)), silent)

    def _keep(
        self,
        event: Event,
        subscription: str,
        reason: Reason,
        error: str,
        *,
        attempts: int,
        failed_at: float | None,
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
            first_timestamp=now if failed_at is None else failed_at,
            attempts=attempts,
            place=place,
            traceback=traceback,
        )
        with self._changing:
            self.count += 1
            self.latest.append(letter)
            claimed = self.claimed.get(id(event))
            if claimed is not None:
                claimed[1].append(letter)
        if claimed is None and self.keeper is not None:
            self.keeper(letter)


def _repeat_note(more: int) -> str:
    return f"; {more} times since the last such line" if more else ""


def error_line(error: BaseException) -> str:
    """Describe an exception in one line of printable characters."""
    if issubclass(type(error), GraphBusError):  # `isinstance` could call code of the user, through `__class__`
        refusal = cast("GraphBusError", error)
        return f"{refusal.sentence} [{refusal.code}]"
    said, is_mute = try_to(lambda: str(error))
    words = "(its str() fails)" if is_mute or said is None else escape_to_one_line(" ".join(said.split()))
    name, _ = try_to(lambda: type(error).__name__)
    line = f"{name or 'an exception'}: {words}".removesuffix(": ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def _describe(error: Exception) -> tuple[str, ExceptionInfo | None, str, bool]:
    """Return the place of an exception, the exception for the log, its traceback as text, and whether Python writes it so.

    An error of GraphBus has its own place and no traceback. Nor has an exception whose traceback cannot be formatted.
    """
    if issubclass(type(error), GraphBusError):
        return str(cast("GraphBusError", error).where or ""), None, "", True
    raised = without_own_frames(error)
    told, _ = try_to(lambda: _traceback_text(raised))
    return (_place_of(error), None, "", True) if told is None else (_place_of(error), raised, *told)


def without_own_frames(error: BaseException) -> ExceptionInfo:
    """Return an exception for `exc_info`, without the frames of GraphBus that led to the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return type(error), error, trace


def _traceback_text(raised: ExceptionInfo) -> tuple[str, bool]:
    """Return the traceback in printable characters, shortened if long, and whether the characters are as Python writes them."""
    from traceback import format_exception

    original = "".join(format_exception(*raised))
    text = escape_unprintable(original)
    is_original = text == original
    if len(text) <= _LONGEST_TEXT:
        return text, is_original
    begin, end = text[: _LONGEST_TEXT // 4], text[-_LONGEST_TEXT // 2 :]
    return f"{begin}\n  ...\n{end}", is_original


def _place_of(error: Exception) -> str:
    """Return `file:line` of the innermost frame in the user's own code, else of the innermost frame outside of GraphBus."""
    place = own = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_OURS):
            place = f"{path}:{trace.tb_lineno}"
            if not _is_library_code(path):
                own = place
        trace = trace.tb_next
    return own or place


def _is_library_code(path: str) -> bool:
    """True for a file of the standard library or of an installed package."""
    return path.startswith((_STANDARD, "<frozen ")) or any(each in path for each in _INSTALLED)
