"""Records what happens on a bus, and asserts about it with messages that show what happened instead."""

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
_MOST_LISTED = 20
_MOST_CHARACTERS = 160

_Listed = tuple[str, object]
"""An event or call that a message lists: a line about it, and its payload or arguments to compare with the expected fields."""


class Delivered(msgspec.Struct, kw_only=True):
    """One attempt of a handler to handle an event.

    Attributes:
        event: The event.
        handler: `Agent.method`.
        attempt: 1 for the first attempt.
        error: The exception of the handler; None when it has returned, or has not ended yet.
    """

    event: Event
    handler: str
    attempt: int
    error: BaseException | None = None


class Recorder:
    """Middleware that records deliveries to handlers and calls of methods."""

    def __init__(self) -> None:
        self.deliveries: list[Delivered] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Record one delivery or call, and how it ended."""
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
        """Record the error of a delivery if it is a TimeoutError: the middleware itself sees only the cancellation."""
        if not isinstance(failed.error, TimeoutError):
            return
        for each in self.deliveries:
            if each.event is failed.event and (each.handler, each.attempt) == (
                failed.subscription.name,
                failed.attempt,
            ):
                each.error = failed.error


class Recorded:
    """Queries and assertions of a recording bus or graph.

    Topics may be patterns. Results are in the order in which things happened.
    """

    _recorder: Recorder
    _recorded_bus: MessageBus

    def events(self, topic: str | Topic[Any] = _EVERYTHING, /) -> list[Event]:
        """Return the events of a topic whose delivery has begun; by default of all topics.

        Raises:
            RunError: GBE610, the topic is malformed.
        """
        topic = name_of(topic)
        if not is_topic_or_pattern(topic):
            raise RunError("GBE610", topic=topic, reason="it is neither a topic nor a pattern")
        return [event for event in self._recorded_bus.history() if matches(topic, event.topic)]

    def published(self, topic: str | Topic[Any] = _EVERYTHING, /) -> list[Json]:
        """Return the payloads of the events that `events` returns."""
        return [event.payload for event in self.events(topic)]

    def deliveries(self, handler: str = "", /) -> list[Delivered]:
        """Return the deliveries to a handler `Agent.method`, or to all handlers of `Agent`; by default to all handlers."""
        return [each for each in self._recorder.deliveries if _matches_name(each.handler, handler)]

    def failures(self, handler: str = "", /) -> list[Delivered]:
        """Return the deliveries that failed, even if a retry succeeded; `handler` is as for `deliveries`."""
        return [each for each in self.deliveries(handler) if each.error is not None]

    def calls(self, method: str, /) -> list[dict[str, Any]]:
        """Return the arguments of each call of `Agent.method`, or of all methods of `Agent`."""
        return [dict(arguments) for name, arguments in self._recorder.calls if _matches_name(name, method)]

    def assert_published(self, topic: str | Topic[Any], /, **fields: object) -> Event:
        """Assert that an event with these payload fields was published on the topic, and return the first such event.

        Raises:
            AssertionError: There is none; the message lists the events that were published.
        """
        __tracebackhide__ = True
        topic = name_of(topic)
        events = self.events(topic)
        for event in events:
            if not _find_differences(event.payload, fields):
                return event
        if events:
            raise self._make_assertion_error(
                f"no event on {topic}{_describe_fields(fields)}; there were:", map(_describe_event, events), fields
            )
        every = self.events()
        hint = did_you_mean(topic, {event.topic for event in every})
        raise self._make_assertion_error(
            f"nothing was published on {topic}.{hint} There were:", map(_describe_event, every)
        )

    def assert_not_published(self, topic: str | Topic[Any], /, **fields: object) -> None:
        """Assert that no event with these payload fields was published on the topic.

        Raises:
            AssertionError: There are such events; the message lists them.
        """
        __tracebackhide__ = True
        found = [event for event in self.events(topic) if not _find_differences(event.payload, fields)]
        if found:
            raise self._make_assertion_error(
                f"there were events on {topic}{_describe_fields(fields)}:", map(_describe_event, found)
            )

    def assert_delivered_to(
        self, handler: str, topic: str | Topic[Any] = _EVERYTHING, /, **fields: object
    ) -> Delivered:
        """Assert that a handler handled such an event without an error, and return the first such delivery.

        Args:
            handler: `Agent.method`, or `Agent` for any of its handlers.
            topic: The topic of the event, or a pattern; all topics by default.
            fields: Fields that the payload must have.

        Raises:
            AssertionError: There is none; the message lists the events that the handler got.
        """
        __tracebackhide__ = True
        topic = name_of(topic)
        got = self.deliveries(handler)
        on_topic = [each for each in got if matches(topic, each.event.topic)]
        for each in on_topic:
            if each.error is None and not _find_differences(each.event.payload, fields):
                return each
        hint = (
            "" if got else did_you_mean(handler, _add_agent_names(each.handler for each in self._recorder.deliveries))
        )
        wanted = f"{handler} handled no event{'' if topic == _EVERYTHING else f' on {topic}'}{_describe_fields(fields)}"
        listed = (_describe_event(each.event) for each in on_topic or got)
        raise self._make_assertion_error(f"{wanted}.{hint} It got:", listed, fields if on_topic else {})

    def assert_called(self, method: str, /, **arguments: object) -> dict[str, Any]:
        """Assert that `Agent.method`, or any method of `Agent`, was called with these arguments; return all its arguments.

        Raises:
            AssertionError: It was not; the message lists the calls that were made.
        """
        __tracebackhide__ = True
        calls = self.calls(method)
        for each in calls:
            if not _find_differences(each, arguments):
                return each
        every = [(name, each) for name, each in self._recorder.calls if not calls or _matches_name(name, method)]
        hint = "" if calls else did_you_mean(method, _add_agent_names(name for name, _ in every))
        head = f"nobody called {method}{_describe_fields(arguments)}.{hint} Calls were:"
        raise self._make_assertion_error(
            head, (_describe_call(name, each) for name, each in every), arguments if calls else {}
        )

    def assert_no_dead_letters(self) -> None:
        """Assert that every event was handled by all its handlers, retries included.

        Raises:
            AssertionError: The message lists the dead letters with their errors.
        """
        __tracebackhide__ = True
        letters = self._recorded_bus.dead_letters()
        if letters:
            listed = [
                (f"{_format_event(each.event)} to {each.subscription or 'nobody'}: {each.error}", None)
                for each in letters
            ]
            raise self._make_assertion_error("there are dead letters:", listed)

    def _make_assertion_error(
        self, head: str, listed: Iterable[_Listed], fields: Mapping[str, object] | None = None
    ) -> AssertionError:
        """Return an AssertionError whose message has the line `head`, what was recorded instead, and the handlers that failed.

        For each listed item, the expected `fields` that it lacks or that differ are named.
        """
        found_instead = list(listed)
        failed = [
            f"  {each.handler} on {each.event.topic}: {error_line(each.error)}"
            for each in self.failures()
            if each.error
        ]
        lines = [head if found_instead else f"{head} nothing"]
        for text, found in found_instead[:_MOST_LISTED]:
            lines.append(f"  {text if len(text) <= _MOST_CHARACTERS else f'{text[: _MOST_CHARACTERS - 1]}…'}")
            lines += [f"      {difference}" for difference in _find_differences(found, fields or {})]
        lines += [f"  … and {len(found_instead) - _MOST_LISTED} more"] if len(found_instead) > _MOST_LISTED else []
        lines += ["These handlers have failed:", *failed] if failed else []
        return AssertionError("\n".join(lines))


class RecordingBus(Recorded, MessageBus):
    """A message bus that records events, deliveries and calls; see `Recorded` for its queries and assertions.

    Args:
        on_error: `"raise"`: the publish that caused it raises the first exception of a handler. `"isolate"`: it becomes a dead
            letter.
        clock: The clock of the bus, for instance a `FakeClock`; None: the time of the machine.
        admit: See `MessageBus`.
        learn: See `MessageBus`.
        middleware: Wraps every handler, outermost first.
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


def _find_differences(payload: object, fields: Mapping[str, object]) -> list[str]:
    """Return a line for each field that is missing from a payload or has another value; an empty list if there is none."""
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


def _describe_fields(fields: Mapping[str, object]) -> str:
    """Return the expected fields as the end of a clause, ` with total=12, status='open'`; the empty string for no fields."""
    return f" with {_format_arguments(fields)}" if fields else ""


def _format_arguments(fields: Mapping[str, object]) -> str:
    """Return fields as in a call: `total=12, status='open'`."""
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())


def _describe_event(event: Event) -> _Listed:
    """Return the line for an event, and its payload."""
    return _format_event(event), event.payload


def _describe_call(name: str, arguments: Mapping[str, object]) -> _Listed:
    """Return the line for a call, and its arguments."""
    return f"{name}({_format_arguments(arguments)})", dict(arguments)


def _format_event(event: Event) -> str:
    """Return the topic of an event and its payload as JSON; the topic alone if the payload is None."""
    return event.topic if event.payload is None else f"{event.topic} {msgspec.json.encode(event.payload).decode()}"


def _add_agent_names(handlers: Iterable[str]) -> set[str]:
    """Return the names `Agent.method` and the names `Agent` in them, for suggestions."""
    return {name for handler in handlers for name in (handler, handler.partition(".")[0])}


def _matches_name(name: str, wanted: str) -> bool:
    """Return whether a name `Agent.method` is `wanted` or belongs to the agent `wanted`; True if `wanted` is empty."""
    return not wanted or name == wanted or name.partition(".")[0] == wanted
