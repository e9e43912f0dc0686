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
from typing import NamedTuple, cast

from graphbus_core import isolation
from graphbus_core.clock import Clock
from graphbus_core.errors import GraphBusError
from graphbus_core.errors.legible import escape_to_one_line, escape_unprintable
from graphbus_core.isolation import attempt as try_to
from graphbus_core.log import Log
from graphbus_core.model.deliveries import DeadLetter, Reason
from graphbus_core.model.messages import Event

_log = Log("graphbus.bus")
_OWN_FOLDER = dirname(dirname(__file__)) + "/"
_STANDARD_LIBRARY = dirname(os.__file__) + "/"
_PACKAGE_FOLDERS = ("/site-packages/", "/dist-packages/")

_LONGEST_LINE = 1000
_LONGEST_TRACEBACK = 20_000

_MOST_IN_FULL = 10
"""This many failures of one kind are logged in full; after that there is one line per interval."""
_INTERVAL_S = 10.0
_MOST_KINDS = 1000
"""This many kinds of failures are remembered."""

DeadLetterKeeper = Callable[[DeadLetter], object]


class _FailureKind:
    """One kind of failure: how many were logged in full, how many not at all since the last line, and when a line is due."""

    __slots__ = ("in_full", "last_at", "next_line_at", "unlogged")

    def __init__(self) -> None:
        self.in_full = self.unlogged = 0
        self.last_at = self.next_line_at = 0.0  # on the monotonic clock


class _LogLimiter:
    """Keeps repeated failures from filling the log. Safe from any thread."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], _FailureKind] = {}
        self._changing = Lock()

    def count(self, *kind: str) -> int | None:
        """Count a failure, and return how to log it.

        Returns:
            0: log it in full. None: do not log it. Another number: log one line, for this many failures since the last line.
        """
        now = monotonic()
        with self._changing:
            entry = self._kinds.pop(kind, None) or _FailureKind()
            self._kinds[kind] = entry  # moved to the end, so that the first entry is the kind with the oldest failure
            if len(self._kinds) > _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            if now - entry.last_at > _INTERVAL_S and not entry.unlogged:
                entry.in_full = 0  # an interval without failures of this kind has passed
            entry.last_at = now
            if entry.in_full < _MOST_IN_FULL:
                entry.in_full += 1
                entry.next_line_at = now + _INTERVAL_S
                return 0
            entry.unlogged += 1
            if now < entry.next_line_at:
                return None
            unlogged, entry.unlogged, entry.next_line_at = entry.unlogged, 0, now + _INTERVAL_S
            return unlogged

    def take_unlogged(self) -> list[tuple[tuple[str, ...], int]]:
        """Return each kind with the number of failures that were not logged since its last line, and set the numbers to 0."""
        with self._changing:
            found = [(kind, entry.unlogged) for kind, entry in self._kinds.items() if entry.unlogged]
            for entry in self._kinds.values():
                entry.unlogged = 0
        return found


class DeadLetters:
    """The last dead letters, and how many there were. Safe from any thread.

    Attributes:
        latest: The last ones, at most `size`, oldest first.
        count: How many there were in all.
        keeper: Called with every dead letter, on the thread that records it; it must not raise.
        claimed: `id(event)` -> the event and its letters, for events whose letters go to the caller of `claim` and not to the
            keeper.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        self.latest: deque[DeadLetter] = deque(maxlen=size)
        self.count = 0
        self.keeper: DeadLetterKeeper | None = None
        self.claimed: dict[int, tuple[Event, list[DeadLetter]]] = {}
        self._clock = clock
        self._log_limiter = _LogLimiter()
        self._changing = Lock()

    def batched(self) -> AbstractContextManager[None]:
        """Return a context in which the keeper writes all letters in one transaction; one without effect if it cannot."""
        open_transaction: Callable[[], AbstractContextManager[None]] = getattr(self.keeper, "together", nullcontext)
        return open_transaction()

    def log_retry(
        self, event: Event, subscription: str, error_text: str, *, attempt: int, of: int, delay_s: float
    ) -> None:
        """Log in one line that an attempt (`attempt` of `of`) has failed, unless too many such lines were logged just now."""
        more = self._log_limiter.count("attempts of", subscription)
        if more is not None:
            message = "%s failed on %s (event %s): %s; attempt %d of %d, the next in %g s%s"
            _log.warning(
                message, subscription, event.topic, event.event_id, error_text, attempt, of, delay_s, _repeat_note(more)
            )

    def log_not_retried(self, event: Event, subscription: str, limit: int) -> None:
        """Log in one line that no further attempt is planned because `limit` wait, unless too many such lines were logged."""
        more = self._log_limiter.count("no further attempts of", subscription)
        if more is not None:
            message = "%s is not retried on %s: %d further attempts are already waiting%s"
            _log.error(message, subscription, event.topic, limit, _repeat_note(more))

    def record_failure(
        self,
        event: Event,
        subscription: str,
        failure: Failure,
        *,
        attempt: int = 1,
        failed_at: float | None = None,
        is_dead: bool = False,
    ) -> None:
        """Log the last exception of a handler with its traceback, and keep the event as a dead letter.

        Args:
            failure: What `describe_failure` has found.
            attempt: The number of the attempt that raised, from 1.
            failed_at: When the first attempt failed; None for now.
            is_dead: The event is a dead letter already, so only log.
        """
        place, error_text, text, raised, is_text_unchanged = failure
        more = self._log_limiter.count(subscription, place, error_text.partition(":")[0])
        if more is not None:
            logged = f"{place}: {error_text}" if place and (not raised or more) else error_text
            logged += f" ({attempt} attempts)" if attempt > 1 else ""
            logged += _repeat_note(more)
            if more:
                raised = None
            elif raised and not is_text_unchanged:  # a log that cannot encode a character would lose the whole record
                logged, raised = f"{logged}\n{text.rstrip()}", None
            message = "%s failed on %s (event %s): %s"
            _log.error(message, subscription, event.topic, event.event_id, logged, exc_info=raised)
        if not is_dead:
            self._keep(
                event,
                subscription,
                "handler",
                error_text,
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
        """Log an event that was not delivered, or not as often as its policy says, and keep it as a dead letter.

        Args:
            reason: The kind of the dead letter.
            why: The cause, as the end of a sentence.
            subscription: The handler that did not get it; empty for all.
            attempts: How often the handler was called with it.
            failed_at: When the first attempt failed; None for now.
        """
        more = self._log_limiter.count(reason, event.topic, subscription)
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
        """Return the dead letters of an event that `claim` was called with; later ones go to the keeper again."""
        with self._changing:
            return tuple(self.claimed.pop(id(event))[1])

    def close(self) -> None:
        """Log for each kind of failure how many were not logged."""
        for kind, unlogged in self._log_limiter.take_unlogged():
            _log.error("%s: %d more failures that were not logged", " ".join(filter(None, kind)), unlogged)

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
        """Create a dead letter, count it, and pass it to the caller that has claimed the event, or else to the keeper."""
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


def _repeat_note(count: int) -> str:
    """Return the end of a log line that stands for this many failures; empty for 0, as `_LogLimiter.count` returns them."""
    return f"; {count} times since the last such line" if count else ""


def error_line(error: BaseException) -> str:
    """Describe an exception in one line of printable characters; it calls `str(error)`, and never raises an Exception."""
    if issubclass(type(error), GraphBusError):  # `isinstance` could call code of the user, through `__class__`
        own_error = cast("GraphBusError", error)
        return f"{own_error.sentence} [{own_error.code}]"
    message, str_error = try_to(lambda: str(error))
    text = "(its str() fails)" if str_error or message is None else escape_to_one_line(" ".join(message.split()))
    name, _ = try_to(lambda: type(error).__name__)
    line = f"{name or 'an exception'}: {text}".removesuffix(": ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Failure(NamedTuple):
    """An exception of a handler, as the log and the dead letter have it.

    Attributes:
        place: Where it was raised.
        line: The exception in one line.
        traceback: Empty for an error of GraphBus, and where it cannot be formatted.
        raised: The exception for `exc_info`; None where there is no traceback.
        is_original: The traceback is exactly what Python writes.
    """

    place: str = ""
    line: str = ""
    traceback: str = ""
    raised: ExceptionInfo | None = None
    is_original: bool = True


def describe_failure(error: Exception) -> Failure:
    """Describe an exception of a handler for the log and the dead letter."""
    error = isolation.explain_exception(error)
    described, _ = try_to(lambda: _describe_failure(error))
    return (described or Failure())._replace(line=error_line(error))


def _describe_failure(error: Exception) -> Failure:
    if issubclass(type(error), GraphBusError):
        return Failure(str(cast("GraphBusError", error).where or ""))
    raised = without_own_frames(error)
    formatted, _ = try_to(lambda: _format_traceback(raised))
    if formatted is None:
        return Failure(place_of(error))
    traceback, is_original = formatted
    return Failure(place_of(error), traceback=traceback, raised=raised, is_original=is_original)


def without_own_frames(error: BaseException) -> ExceptionInfo:
    """Return an exception in the form of `exc_info`, without the leading frames of GraphBus that called the handler."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        trace = trace.tb_next
    return type(error), error, trace


def _format_traceback(raised: ExceptionInfo) -> tuple[str, bool]:
    """Return the traceback in printable characters, shortened if it is long, and whether no character had to be replaced."""
    from traceback import format_exception

    original = "".join(format_exception(*raised))
    text = escape_unprintable(original)
    is_original = text == original
    if len(text) <= _LONGEST_TRACEBACK:
        return text, is_original
    begin, end = text[: _LONGEST_TRACEBACK // 4], text[-_LONGEST_TRACEBACK // 2 :]
    return f"{begin}\n  ...\n{end}", is_original


def place_of(error: BaseException) -> str:
    """Return `file:line` of the innermost frame in the user's own code, else of the innermost frame outside of GraphBus."""
    place = own = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_OWN_FOLDER):
            place = f"{path}:{trace.tb_lineno}"
            if not _is_library_code(path):
                own = place
        trace = trace.tb_next
    return own or place


def _is_library_code(path: str) -> bool:
    """True for a file of the standard library or of an installed package."""
    return path.startswith((_STANDARD_LIBRARY, "<frozen ")) or any(each in path for each in _PACKAGE_FOLDERS)
