"""What happened on a bus, in order, and assertions about it that say what there was instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import Delivery
from graphbus_core.bus.dead_letters import error_line
from graphbus_core.bus.message_bus import OnError
from graphbus_core.bus.routes import AdmitTopic
from graphbus_core.clock import Clock
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.middleware import Handling, Middleware
from graphbus_core.model.config import RuntimeSettings
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import Topic, is_topic_or_pattern, matches, name_of
from graphbus_core.schema.json import Json
from graphbus_core.testing.clock import BusClock, FakeClock

_EVERYTHING = "/**"
_HISTORY = 100_000
_DEFAULTS = RuntimeSettings()
_MOST = 20
_WIDEST = 160

_Thing = tuple[str, object]
"""What happened: a line about it, and the fields that it had."""


class Delivered(msgspec.Struct, kw_only=True):
    """One attempt to hand an event to a handler.

    Attributes:
        handler: `Agent.method`.
        attempt: 1 for the first one.
        error: What the handler raised; None when it has returned, or has not ended yet.
    """

    event: Event
    handler: str
    attempt: int
    error: BaseException | None = None


class Recorder:
    """Middleware that writes down what goes to handlers and methods."""

    def __init__(self) -> None:
        self.deliveries: list[Delivered] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Write down one attempt or call."""
        if handling.event is None:
            self.calls.append((handling.name, handling.arguments))
            yield
            return
        delivery = Delivered(event=handling.event, handler=handling.name, attempt=handling.attempt)
        self.deliveries.append(delivery)
        has_returned = False
        try:
            yield
            has_returned = True
        finally:
            delivery.error = None if has_returned else sys.exception()

    def note_timeout(self, failed: Delivery) -> None:
        """Say that it was a time limit: that goes around the middleware, which hears of a cancellation only."""
        if not isinstance(failed.error, TimeoutError):
            return
        for each in self.deliveries:
            if each.event is failed.event and (each.handler, each.attempt) == (
                failed.subscription.name,
                failed.attempt,
            ):
                each.error = failed.error


class Recorded:
    """What a bus or a graph that records can be asked. Topics may be patterns; all is in the order in which it happened."""

    _recorder: Recorder
    _recorded_bus: MessageBus

    def events(self, topic: str | Topic[Any] = _EVERYTHING, /) -> list[Event]:
        """The events whose delivery has begun."""
        topic = name_of(topic)
        if not is_topic_or_pattern(topic):
            raise RunError("GBE610", topic=topic, reason="it is neither a topic nor a pattern")
        return [event for event in self._recorded_bus.history() if matches(topic, event.topic)]

    def published(self, topic: str | Topic[Any] = _EVERYTHING, /) -> list[Json]:
        """The payloads of these events."""
        return [event.payload for event in self.events(topic)]

    def deliveries(self, handler: str = "", /) -> list[Delivered]:
        """The attempts to hand events to a handler, `Agent.method`, or to those of an agent, `Agent`; to all by default."""
        return [each for each in self._recorder.deliveries if _is_of(each.handler, handler)]

    def failures(self, handler: str = "", /) -> list[Delivered]:
        """The attempts that failed, also those that were made good by a later one."""
        return [each for each in self.deliveries(handler) if each.error is not None]

    def calls(self, method: str, /) -> list[dict[str, Any]]:
        """The arguments of each call of `Agent.method`, or of the methods of `Agent`."""
        return [dict(arguments) for name, arguments in self._recorder.calls if _is_of(name, method)]

    def assert_published(self, topic: str | Topic[Any], /, **fields: object) -> Event:
        """Give the first event of the topic whose payload has these fields.

        Raises:
            AssertionError: There is none; it says what there was.
        """
        __tracebackhide__ = True
        topic = name_of(topic)
        events = self.events(topic)
        for event in events:
            if not _differences(event.payload, fields):
                return event
        if events:
            raise self._failure(f"no event on {topic}{_expectation(fields)}; there were:", map(_event, events), fields)
        every = self.events()
        hint = did_you_mean(topic, {event.topic for event in every})
        raise self._failure(f"nothing was published on {topic}.{hint} There were:", map(_event, every))

    def assert_not_published(self, topic: str | Topic[Any], /, **fields: object) -> None:
        """Prove that no event of the topic has these fields.

        Raises:
            AssertionError: There is one; it says which.
        """
        __tracebackhide__ = True
        found = [event for event in self.events(topic) if not _differences(event.payload, fields)]
        if found:
            raise self._failure(f"there were events on {topic}{_expectation(fields)}:", map(_event, found))

    def assert_delivered_to(
        self, handler: str, topic: str | Topic[Any] = _EVERYTHING, /, **fields: object
    ) -> Delivered:
        """Give the first delivery of such an event to the handler, `Agent.method` or `Agent`, that did not fail.

        Raises:
            AssertionError: There is none; it says what the handler got instead.
        """
        __tracebackhide__ = True
        topic = name_of(topic)
        got = self.deliveries(handler)
        on_topic = [each for each in got if matches(topic, each.event.topic)]
        for each in on_topic:
            if each.error is None and not _differences(each.event.payload, fields):
                return each
        hint = "" if got else did_you_mean(handler, _names(each.handler for each in self._recorder.deliveries))
        wanted = f"{handler} handled no event{'' if topic == _EVERYTHING else f' on {topic}'}{_expectation(fields)}"
        things = (_event(each.event) for each in on_topic or got)
        raise self._failure(f"{wanted}.{hint} It got:", things, fields if on_topic else {})

    def assert_called(self, method: str, /, **arguments: object) -> dict[str, Any]:
        """Give the arguments of the first call of `Agent.method`, or of a method of `Agent`, that was made with these.

        Raises:
            AssertionError: There is none; it says which calls there were.
        """
        __tracebackhide__ = True
        calls = self.calls(method)
        for each in calls:
            if not _differences(each, arguments):
                return each
        every = [(name, each) for name, each in self._recorder.calls if not calls or _is_of(name, method)]
        hint = "" if calls else did_you_mean(method, _names(name for name, _ in every))
        head = f"nobody called {method}{_expectation(arguments)}.{hint} Calls were:"
        raise self._failure(head, (_call(name, each) for name, each in every), arguments if calls else {})

    def assert_no_dead_letters(self) -> None:
        """Prove that every event was handled by all who hear it, if not at the first attempt.

        Raises:
            AssertionError: It says which were not, and why.
        """
        __tracebackhide__ = True
        letters = self._recorded_bus.dead_letters()
        if letters:
            things = [
                (f"{_line(each.event)} to {each.subscription or 'nobody'}: {each.error}", None) for each in letters
            ]
            raise self._failure("there are dead letters:", things)

    def _failure(
        self, head: str, things: Iterable[_Thing], fields: Mapping[str, object] | None = None
    ) -> AssertionError:
        """Tell what there was instead, and which handlers have failed: often that is why something is missing."""
        there = list(things)
        failed = [
            f"  {each.handler} on {each.event.topic}: {error_line(each.error)}"
            for each in self.failures()
            if each.error
        ]
        lines = [head if there else f"{head} nothing"]
        for text, found in there[:_MOST]:
            lines.append(f"  {text if len(text) <= _WIDEST else f'{text[: _WIDEST - 1]}…'}")
            lines += [f"      {difference}" for difference in _differences(found, fields or {})]
        lines += [f"  … and {len(there) - _MOST} more"] if len(there) > _MOST else []
        lines += ["These handlers have failed:", *failed] if failed else []
        return AssertionError("\n".join(lines))


class RecordingBus(Recorded, MessageBus):
    """A message bus that remembers what happened on it.

    Args:
        on_error: `raise`: the first exception of a handler comes out of the publish that caused it.
        clock: Where the bus has its time from, e.g. a `FakeClock`.
        admit: See `MessageBus`; so is `learn`.
        middleware: What goes around every handler, outermost first.
        settings: The limits of `[tool.graphbus.runtime]`.
    """

    def __init__(
        self,
        *,
        on_error: OnError = "raise",
        clock: Clock | None = None,
        admit: AdmitTopic | None = None,
        learn: Callable[[Topic[Any]], bool] | None = None,
        middleware: Sequence[Middleware] = (),
        settings: RuntimeSettings = _DEFAULTS,
    ) -> None:
        self._recorder = Recorder()
        self._recorded_bus = self
        super().__init__(
            history=_HISTORY,
            dead_letters=_HISTORY,
            max_hops=settings.max_hops,
            max_tree=settings.max_tree,
            queue=settings.queue,
            mailbox=settings.mailbox,
            on_error=on_error,
            clock=BusClock(clock, self.run) if isinstance(clock, FakeClock) else clock,
            admit=admit,
            learn=learn,
            middleware=(self._recorder, *middleware),
        )
        self._sync.on_failure = self._recorder.note_timeout


def _differences(payload: object, fields: Mapping[str, object]) -> list[str]:
    """Give one sentence for each field that is not as expected; none when the payload fits."""
    if not fields:
        return []
    if not isinstance(payload, dict):
        return [f"the payload is {payload!r} and has no fields"]
    missing = [
        f"{name}: missing, not {expected!r}{did_you_mean(name, payload)}"
        for name, expected in fields.items()
        if name not in payload
    ]
    wrong = [
        f"{name}: {payload[name]!r}, not {expected!r}"
        for name, expected in fields.items()
        if name in payload and payload[name] != expected
    ]
    return missing + wrong


def _expectation(fields: Mapping[str, object]) -> str:
    """Give the expected fields as they were written: ` with total=12, status='open'`."""
    return f" with {_arguments(fields)}" if fields else ""


def _arguments(fields: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def _event(event: Event) -> _Thing:
    return _line(event), event.payload


def _call(name: str, arguments: Mapping[str, object]) -> _Thing:
    return f"{name}({_arguments(arguments)})", dict(arguments)


def _line(event: Event) -> str:
    return event.topic if event.payload is None else f"{event.topic} {msgspec.json.encode(event.payload).decode()}"


def _names(handlers: Iterable[str]) -> set[str]:
    """Give the handlers and their agents."""
    return {name for handler in handlers for name in (handler, handler.partition(".")[0])}


def _is_of(name: str, wanted: str) -> bool:
    return not wanted or name == wanted or name.partition(".")[0] == wanted
